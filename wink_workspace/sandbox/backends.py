"""Registry of sandbox backends: each backend registers here, and callers get it by name.

Rule 1: a backend is loaded when a caller asks for it. Importing this module or listing the names
loads none.
Rule 2: a configuration names its backend, so a workspace finds the backend for a configuration
without knowing any.
Rule 3: an optional feature that a backend lacks is ``None``, not a method that fails.

The built-in backends are listed in ``_BUILT_IN``. A package adds one with an entry point of the
group ``wink_workspace.sandboxes``, a program with ``SANDBOXES.register``. ``docs/extending.md``
has an example.
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

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

    from wink_workspace.filesystem.overlay.mounting import OverlayMount
    from wink_workspace.prompt import Section

    from .image_store import SandboxImages
    from .isolation_report import Finding
    from .sandbox_protocol import Sandbox, StreamName


NO_SANDBOX: Final = "none"
"""The name that selects no sandbox."""

AUTO_SANDBOX: Final = "auto"
"""The name that selects the best sandbox that works on this machine."""

DEFAULT_SANDBOX: Final = "podman"
"""The backend that runs commands unless the caller names another."""

_GROUP: Final = "wink_workspace.sandboxes"
_BUILT_IN: Final = {
    "podman": "wink_workspace.sections.podman_backend:PODMAN",
    "bubblewrap": "wink_workspace.sections.bubblewrap_backend:BUBBLEWRAP",
    "asteval": "wink_workspace.sections.asteval:ASTEVAL",
    "python": "wink_workspace.sections.asteval:PYTHON",
}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")


class SandboxConfig:
    """Base of sandbox configurations, which are frozen dataclasses with defaults for all fields.

    Attributes:
        backend: The name of the backend that it configures.
    """

    __slots__ = ()

    backend: ClassVar[str]


C = TypeVar("C", bound=SandboxConfig)
C_contra = TypeVar("C_contra", bound=SandboxConfig, contravariant=True)


def _no_derived(path: str) -> None:
    """Refuse every path: nothing is derived."""
    raise UsageError(f"{path!r} is not a derived path", hint="Leave it out of the paths to write.")


def _prepare_nothing(config: object, environment: Environment, git_history: Path | None) -> None:
    """Start nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxContext:
    """What a sandbox gets from its workspace.

    Attributes:
        files: The directory whose files commands see and change. The sandbox may change its owner.
        mount: The overlay mount whose ``files`` this directory is. The sandbox mounts it in a
            running container. ``None`` if *files* is a plain directory.
        source: The directory that the files were copied from. A sandbox over the programs of this
            machine shows the files at this path.
        notes: A directory outside of *files*, for what recovery needs after a crash, such as the
            name of the running container.
        publish: Stores output that does not fit into a result. Returns the path at which a model
            can read it.
        services: A file outside of *files* that remembers the services of the branch.
        make_derived: Makes a directory of derived content, which a service may change, unless it
            exists. Raises ``UsageError`` if the history records that path.
        changed: The number of bytes and of entries in directories that may have changed since the
            last call.
        git_history: The directory with the history of the source, for git; see ``git_directory``.
        write_git_file: Writes ``.git`` into *files* for it, unless it is there unchanged. Called
            before the first command and after each one.
    """

    files: Path
    source: Path | None = None
    notes: Path | None = None
    publish: Callable[[StreamName, Path], str] | None = None
    changed: Callable[[], tuple[int, int]] | None = None
    mount: OverlayMount | None = None
    services: Path | None = None
    make_derived: Callable[[str], None] = _no_derived
    git_history: Path | None = None
    write_git_file: Callable[[], None] = lambda: None


class SandboxFactory(Protocol[C_contra]):
    """Creates a sandbox. It returns quickly; slow work belongs in ``Sandbox.start``."""

    def __call__(
        self,
        context: SandboxContext,
        *,
        config: C_contra,
        environment: Environment | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Sandbox:
        """A sandbox that the caller closes; *environment* defaults to that of this process."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxBackend(Generic[C]):
    """One kind of sandbox, and everything that the rest of the package uses of it.

    Attributes:
        name: Its name in ``--sandbox`` and ``SandboxConfig.backend``: a lower-case word.
        config: Its configuration class; ``config()`` is the default configuration.
        section: Creates the section with its tools and their guidance. The file tools are in a
            section of their own.
        create: Creates the sandbox that runs commands in a workspace. ``None`` for a backend
            whose section contains everything that its tools need.
        examine: The findings about this machine that ``wink-workspace doctor`` reports.
        images: The images of its sandboxes; ``None`` for a backend without images. The command
            ``wink-workspace image`` builds and lists those of the default backend.
        sweep: Removes what dead processes left on the machine. Returns the names of what it
            removed.
        connect: Connects to what runs its sandboxes, and starts it if necessary, without waiting
            for it. A caller that will run a command calls this first, and keeps the result until
            then. It raises nothing: the command raises what is wrong.
        prepare: Starts what the first command with a configuration needs, on another thread, while
            the caller opens a workspace whose files are an overlay. The arguments are the
            configuration, the environment, and the ``git_history`` of the workspace. What is not
            used ends with the process. It raises nothing: the command raises what is wrong.
        find_program: For a sandbox over the programs of this machine: finds a program on the user's
            ``PATH``, but not in the source. Returns the configuration with which commands see it,
            and its path there. Raises ``UsageError`` if there is none, or it cannot be shown.
        end_leftover: Ends what a killed process left running, which it finds by the files in
            *notes*. Runs before the workspace reads its files. Returns the last output of what
            it ended. Raises ``SandboxError`` if it cannot end it.

    Raises:
        UsageError: If *name* is not allowed, or *config* belongs to another backend.
    """

    name: str
    config: type[C]
    section: Callable[[C], Section[None]]
    create: SandboxFactory[C] | None = None
    examine: Callable[[Environment], tuple[Finding, ...]] = lambda _: ()
    images: Callable[[Environment], SandboxImages] | None = None
    sweep: Callable[[Environment], tuple[str, ...]] = lambda _: ()
    connect: Callable[[Environment], object] = lambda _: None
    prepare: Callable[[C, Environment, Path | None], None] = _prepare_nothing
    find_program: Callable[[C, str, Path, Environment], tuple[C, str]] | None = None
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
        """The factory of its sandboxes.

        Raises:
            UsageError: If the backend runs no commands.
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
        built_in: The built-in backends by name, as ``module:attribute``. Their names are reserved.
    """

    def __init__(self, built_in: Mapping[str, str]) -> None:
        self._built_in = dict(built_in)
        self._registered: dict[str, SandboxBackend[Any]] = {}  # Any: each has its own config

    @property
    def built_in(self) -> tuple[str, ...]:
        """The names of the built-in backends."""
        return tuple(self._built_in)

    def register(self, backend: SandboxBackend[Any]) -> Callable[[], None]:
        """Add a backend for this process; the returned function removes it.

        Raises:
            UsageError: If its name is taken.
        """
        if backend.name in self.names():
            raise UsageError(
                f"a sandbox named {backend.name!r} already exists", hint="Choose another name."
            )
        self._registered[backend.name] = backend

        def unregister() -> None:
            self._registered.pop(backend.name, None)

        return unregister

    def names(self) -> tuple[str, ...]:
        """All names: built-in backends first, then those of packages, then registered ones.

        It reads the list of all installed packages; ``check`` does not for a name of ours.
        """
        installed = sorted(_installed().names)
        return tuple(dict.fromkeys((*self._built_in, *installed, *self._registered)))

    def check(self, name: str) -> None:
        """Check that there is a backend called *name*; it is not loaded.

        Raises:
            UsageError: If there is none.
        """
        if name in self._registered or name in self._built_in:  # first: packages take 40 ms
            return
        if name not in _installed().names:
            known = ", ".join((*self.names(), NO_SANDBOX))
            raise UsageError(f"there is no sandbox {name!r}", hint=f"Use one of {known}.")

    def get(self, name: str) -> SandboxBackend[Any]:
        """The backend called *name*, which is loaded if necessary.

        Raises:
            UsageError: If there is none.
            SandboxUnavailableError: If its package cannot be loaded, or the entry point is not a
                backend of that name.
        """
        if name in self._registered:
            return self._registered[name]
        if name in self._built_in:
            module, _, attribute = self._built_in[name].partition(":")
            return getattr(import_module(module), attribute)
        self.check(name)
        return _load_installed(name)

    def of_config(self, config: SandboxConfig) -> SandboxBackend[Any]:
        """The backend that *config* configures; raises as ``get``."""
        return self.get(config.backend)

    def __iter__(self) -> Iterator[SandboxBackend[Any]]:
        """All backends, each loaded when the iterator reaches it; raises as ``get``."""
        return map(self.get, self.names())


def _installed() -> EntryPoints:
    """The entry points of installed packages, read again each time: one may have been added."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    return entry_points(group=_GROUP)


def _load_installed(name: str) -> SandboxBackend[Any]:
    """The backend that a package registers under *name*."""
    entry_point = next(iter(_installed().select(name=name)))
    hint = f"Repair or remove the package that registers it: {entry_point.value}."
    try:
        backend: object = entry_point.load()
    except Exception as error:
        raise SandboxUnavailableError(
            f"the sandbox {name!r} cannot be loaded: {type(error).__name__}: {error}", hint=hint
        ) from error
    if not isinstance(backend, SandboxBackend) or backend.name != name:
        raise SandboxUnavailableError(
            f"the sandbox {name!r} is not a SandboxBackend of that name", hint=hint
        )
    return cast("SandboxBackend[Any]", backend)


SANDBOXES: Final = SandboxRegistry(_BUILT_IN)
"""The backends that this process knows."""
