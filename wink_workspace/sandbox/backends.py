"""The sandboxes that there are: each one registers here, and callers ask for it by name.

Rule 1: a backend is known by its name alone until somebody asks for it. Importing this module
loads no backend, and neither does listing the names.
Rule 2: a configuration names its backend. So whoever gets one, such as a workspace, finds the
sandbox that it is of without knowing any.
Rule 3: what a backend cannot do is left out of it; nothing is offered that fails when called.

Our own backends are listed in ``_OWN``. A package adds one with an entry point of the group
``wink_workspace.sandboxes``, a program with ``SANDBOXES.register``. ``docs/extending.md`` shows
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module  # noqa: TID251 - backends register by name
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, cast

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError

from .findings import Finding
from .protocol import Sandbox, StreamName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from wink_workspace.prompt import Section

__all__ = [
    "DEFAULT_SANDBOX",
    "NO_SANDBOX",
    "SANDBOXES",
    "SandboxBackend",
    "SandboxConfig",
    "SandboxFactory",
    "SandboxImage",
    "SandboxImageState",
    "SandboxImages",
    "SandboxPlace",
    "SandboxRegistry",
]

NO_SANDBOX: Final = "none"
"""What stands for no sandbox where one can be chosen."""

DEFAULT_SANDBOX: Final = "podman"
"""The backend that runs commands where none is named."""

_GROUP: Final = "wink_workspace.sandboxes"
_OWN: Final = {
    "podman": "wink_workspace.sections.podman:PODMAN",
    "asteval": "wink_workspace.sections.asteval:ASTEVAL",
}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class SandboxConfig:
    """Base of the configurations of sandboxes, each a frozen dataclass with defaults only.

    Attributes:
        backend: The name of the backend that it is of.
    """

    __slots__ = ()

    backend: ClassVar[str]


C = TypeVar("C", bound=SandboxConfig)
C_contra = TypeVar("C_contra", bound=SandboxConfig, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlace:
    """Where a sandbox works.

    Attributes:
        files: The directory whose files commands see and change. It is the sandbox's to give to
            another user.
        notes: A directory outside of it, for what must be known after a crash, such as which
            container runs.
        publish: Puts output that a result does not hold where a model can read it.
        changed: How many bytes and entries there are where something may have moved since the
            last call.
    """

    files: Path
    notes: Path | None = None
    publish: Callable[[StreamName, Path], str] | None = None
    changed: Callable[[], tuple[int, int]] | None = None


class SandboxFactory(Protocol[C_contra]):
    """Makes a sandbox; the place for slow work is ``Sandbox.start``."""

    def __call__(
        self,
        place: SandboxPlace,
        *,
        config: C_contra,
        environment: Environment | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Sandbox:
        """A sandbox over *place*, which the caller closes; *environment* defaults to ours."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxImage:
    """An image in a backend's store; ``recipe_digest`` is empty for an image of another origin."""

    reference: str
    id: str
    size_bytes: int
    recipe_digest: str


@dataclass(frozen=True, slots=True)
class SandboxImageState:
    """Whether an image matches its recipe; ``size_bytes`` is ``None`` if it is missing."""

    reference: str
    state: str
    size_bytes: int | None


class SandboxImages(Protocol):
    """The images that the sandboxes of a backend start from."""

    @property
    def names(self) -> tuple[str, ...]:
        """The images that can be built."""
        ...

    def reference(self, name: str) -> str:
        """The reference of the image *name*; raises ``UsageError`` if there is none."""
        ...

    def find(self, name: str) -> SandboxImage | None:
        """The image *name*, if it has been built."""
        ...

    def listed(self) -> tuple[SandboxImageState, ...]:
        """Every image of ours, built or not, by reference."""
        ...

    def build(
        self,
        name: str,
        *,
        base: str | None = None,
        rebuild: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> SandboxImage:
        """The image *name*, built unless it matches its recipe.

        Args:
            name: One of ``names``.
            base: A public image to start from.
            rebuild: Whether to build it even if it matches.
            progress: Gets each line of the build's output.

        Raises:
            SandboxUnavailableError: If it cannot be built.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxBackend(Generic[C]):
    """One kind of sandbox, with all that the rest of the package needs of it.

    Attributes:
        name: What ``--sandbox`` and ``SandboxConfig.backend`` call it: a lower-case word.
        config: Its configuration; ``config()`` is the default one.
        section: Makes the section with its tools and their guidance. The file tools stand beside
            it in a section of their own.
        create: Makes the sandbox that runs commands over a workspace. ``None`` for a backend
            whose section brings all that its tools need.
        examine: What ``wink-workspace doctor`` reports of this machine.
        images: The images of its sandboxes; ``None`` for a backend without images. The command
            ``wink-workspace image`` builds and lists those of the default backend.
        sweep: Removes what dead processes left on the machine; the names of what went.
        end_leftover: Ends what a killed process left running, as its notes say, before anybody
            looks at the files; what it had written last. Raises ``SandboxError`` if it cannot.

    Raises:
        UsageError: If *name* cannot be one, or *config* is another backend's.
    """

    name: str
    config: type[C]
    section: Callable[[C], Section[None]]
    create: SandboxFactory[C] | None = None
    examine: Callable[[Environment], tuple[Finding, ...]] = lambda _: ()
    images: Callable[[Environment], SandboxImages] | None = None
    sweep: Callable[[Environment], tuple[str, ...]] = lambda _: ()
    end_leftover: Callable[[Path], str] = lambda _: ""

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None or self.name == NO_SANDBOX:
            raise UsageError(
                f"{self.name!r} cannot be the name of a sandbox",
                hint="Use up to 32 lower-case letters, digits, '_' and '-', a letter first.",
            )
        if getattr(self.config, "backend", None) != self.name:
            raise UsageError(
                f"{self.config.__name__} is not the configuration of the sandbox {self.name!r}",
                hint=f"Derive it from SandboxConfig, and set backend = {self.name!r} in it.",
            )

    def factory(self) -> SandboxFactory[C]:
        """What makes its sandboxes.

        Raises:
            UsageError: If it runs no commands.
        """
        if self.create is None:
            raise UsageError(
                f"the sandbox {self.name!r} runs no commands",
                hint=f"Use another sandbox, such as {DEFAULT_SANDBOX}.",
            )
        return self.create


class SandboxRegistry:
    """Backends by name.

    Args:
        own: Where our own are, as ``module:attribute``. Nothing takes their names.
    """

    def __init__(self, own: Mapping[str, str]) -> None:
        self._own = dict(own)
        self._registered: dict[str, SandboxBackend[Any]] = {}  # Any: each has its own config

    @property
    def own(self) -> tuple[str, ...]:
        """The names of our own, which cost nothing to list."""
        return tuple(self._own)

    def register(self, backend: SandboxBackend[Any]) -> Callable[[], None]:
        """Add a backend of this program; what takes it away again.

        Raises:
            UsageError: If its name is taken.
        """
        if backend.name in self.names():
            raise UsageError(
                f"there is a sandbox {backend.name!r} already", hint="Choose another name."
            )
        self._registered[backend.name] = backend

        def unregister() -> None:
            self._registered.pop(backend.name, None)

        return unregister

    def names(self) -> tuple[str, ...]:
        """The names of all: our own first, then those of packages and of this program."""
        installed = sorted(_installed().names)
        return tuple(dict.fromkeys((*self._own, *installed, *self._registered)))

    def get(self, name: str) -> SandboxBackend[Any]:
        """The backend called *name*, loaded now if it is not yet.

        Raises:
            UsageError: If there is none.
            SandboxUnavailableError: If its package cannot be loaded, or offers something else.
        """
        if name in self._registered:
            return self._registered[name]
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            return getattr(import_module(module), attribute)
        if name not in _installed().names:
            known = ", ".join((*self.names(), NO_SANDBOX))
            raise UsageError(f"there is no sandbox {name!r}", hint=f"Use one of {known}.")
        return _loaded(name)

    def of_config(self, config: SandboxConfig) -> SandboxBackend[Any]:
        """The backend that *config* is of; raises as ``get``."""
        return self.get(config.backend)

    def __iter__(self) -> Iterator[SandboxBackend[Any]]:
        """All of them, each loaded when its turn comes; raises as ``get``."""
        return map(self.get, self.names())


def _installed() -> EntryPoints:
    """The entry points of installed packages, read anew: one may have been added."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return entry_points(group=_GROUP)


def _loaded(name: str) -> SandboxBackend[Any]:
    """The backend that a package offers under *name*."""
    found = next(iter(_installed().select(name=name)))
    hint = f"Repair or remove the package that offers it: {found.value}."
    try:
        backend: object = found.load()
    except Exception as error:
        raise SandboxUnavailableError(
            f"the sandbox {name!r} cannot be loaded: {type(error).__name__}: {error}", hint=hint
        ) from error
    if not isinstance(backend, SandboxBackend) or backend.name != name:
        raise SandboxUnavailableError(
            f"the sandbox {name!r} is not a SandboxBackend of that name", hint=hint
        )
    return cast("SandboxBackend[Any]", backend)


SANDBOXES: Final = SandboxRegistry(_OWN)
"""The sandboxes of this process."""
