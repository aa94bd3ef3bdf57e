"""The images of sandboxes: which exist, and how ours are built.

Rule 1: nothing is pulled or downloaded unless the caller asks for an image to be built.
Rule 2: an image has the digest of its recipe as a label. It is built again if the recipe changed.
Rule 3: if this machine can make the root filesystem itself, no registry is used. Debian's packages
come from the mirrors that apt is configured for, busybox is the installed one. The root filesystem
is kept in the cache, so that another image store can import it without a second build.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import struct
import subprocess  # noqa: TID251 - the engine's own command builds images
import tarfile
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox.backends import SandboxImage, SandboxImageState

from .config import IMAGE_VERSION
from .engine_conf import EngineSettings

__all__ = ["RECIPES", "ImageStore", "PodmanImages", "Progress", "Recipe", "recipe"]

Progress = Callable[[str], None]
"""Is called with each line that a build prints."""

RECIPES: Final = ("python", "minimal")

_SUITE = "bookworm"
_LABEL = "wink-workspace.recipe"
_LONGEST_BUILD_S = 1_800
_LONGEST_QUERY_S = 60
_EPOCH = "1"  # time of every file in a root filesystem, so that builds are reproducible
_LAST_LINES = 12
_DPKG_OPTIONS = (
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
_CLEAN_HOOK = (
    'cd "$1/etc" && rm -rf apt/sources.list* apt/apt.conf.d/99mmdebstrap hostname resolv.conf'
)
_PERMISSION_MESSAGES = (
    "chroot mode",
    "unshare",
    "uidmap",
    "subuid",
    "need to be root",
    "permitted",
)
_PERMISSION_HINT = (
    "Build as root with all privileges, or as an ordinary user with `newuidmap` (package uidmap),"
    " lines in /etc/subuid and /etc/subgid, and user namespaces; `wink-workspace doctor`"
    " reports which of these is missing. Or start from a public image:"
    " `wink-workspace image build python --base debian:bookworm-slim`."
)
_BUILD_HINT = (
    "Fix the reported error and build again, or start from a public image:"
    " `wink-workspace image build python --base debian:bookworm-slim`."
)
_NETWORK_OPTIONS = ("Acquire::http", "Acquire::Check-", "Acquire::Retries")


@dataclass(frozen=True)
class Recipe:
    """How one of our images is made: a directory with a ``Containerfile`` and its files."""

    name: str
    folder: Path

    @property
    def reference(self) -> str:
        """The name of the image, with its tag."""
        return f"localhost/wink-workspace/{self.name}:{IMAGE_VERSION}"

    @cached_property
    def digest(self) -> str:
        """A digest of everything that the image is built from."""
        build = f"{_SUITE} {os.uname().machine} {_DPKG_OPTIONS} {_CLEAN_HOOK}\n"
        digest = hashlib.sha256(build.encode())
        for file in sorted(self.folder.iterdir()):
            if file.suffix != ".md":
                content = file.read_bytes()
                digest.update(f"{file.name} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]

    @property
    def packages(self) -> tuple[str, ...]:
        """The Debian packages of the image; empty if it is made from busybox."""
        listed = self.folder / "packages.txt"
        lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
        return tuple(line for line in lines if line and not line.startswith("#"))


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        UsageError: If there is none.
    """
    if name not in RECIPES:
        raise UsageError(
            f"there is no image {name!r}", hint=f"The images are {' and '.join(RECIPES)}."
        )
    packaged = Path(__file__).parent / "recipes"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "images"
    if not (folder / name).is_dir():
        raise UsageError(
            f"the recipe of {name!r} is not installed", hint="Reinstall wink-workspace."
        )
    return Recipe(name, folder / name)


class ImageStore:
    """The images of the engine that ``podman`` uses.

    Args:
        environment: The variables with the ``PATH``, the cache directory and the engine.
        cache: The directory of root filesystems; by default in the user's cache directory.
    """

    def __init__(self, environment: Environment, *, cache: Path | None = None) -> None:
        self._environment = environment
        self._cache = cache

    @property
    def cache(self) -> Path:
        """The directory of root filesystems; each file may be deleted at any time."""
        return self._cache or self._environment.cache_dir / "images"

    def find(self, reference: str) -> SandboxImage | None:
        """The image of that name, if the store has it.

        Raises:
            SandboxUnavailableError: If ``podman`` is not installed or fails.
        """
        found = self._podman("image", "ls", "--format", "json", "--no-trunc", reference)
        return next(iter(_images(found, reference)), None)

    def all(self) -> tuple[SandboxImage, ...]:
        """Our images in the store; raises as ``find``."""
        found = self._podman(
            "image", "ls", "--format", "json", "--no-trunc", "--filter", f"label={_LABEL}"
        )
        return _images(found)

    def is_current(self, wanted: Recipe) -> bool:
        """Whether the store has the image, built from this version of the recipe."""
        image = self.find(wanted.reference)
        return image is not None and image.recipe_digest == wanted.digest

    def build(
        self,
        wanted: Recipe,
        *,
        base: str | None = None,
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> SandboxImage:
        """The image of that recipe, built first unless the store has it.

        A build takes a minute or two if Debian's packages must be downloaded and unpacked, and
        seconds from the cache. Only one build runs at a time.

        Args:
            wanted: What to build.
            base: A public image to start from, which the engine pulls. By default the root
                filesystem is made on this machine, if possible.
            rebuild: Build even if the image exists, and from a new root filesystem.
            progress: Is called with each line that the build prints.

        Raises:
            SandboxUnavailableError: If it cannot be built; the message ends with the last output
                of the build.
        """
        on_progress = progress or _ignore_progress
        with self._build_lock():
            if rebuild or not self.is_current(wanted):
                start = base or self._import_base(wanted, rebuild=rebuild, on_progress=on_progress)
                self._build(wanted, start, on_progress)
            image = self.find(wanted.reference)
        if image is None:
            raise SandboxUnavailableError(
                f"the image {wanted.reference} is gone: another process removed it after the build"
            )
        return image

    def _build(self, wanted: Recipe, base: str | None, on_progress: Progress) -> None:
        is_local = base is not None and base.startswith("localhost/")
        self._podman(
            *("build", "--layers=false", "--force-rm", "--tag", wanted.reference),
            *("--label", f"{_LABEL}={wanted.digest}"),
            *(("--build-arg", f"BASE={base}") if base else ()),
            *(("--network=none", "--pull=never") if is_local else ("--pull=missing",)),
            str(wanted.folder),
            on_progress=on_progress,
        )
        if is_local:
            self._podman("untag", str(base))

    def _import_base(self, wanted: Recipe, *, rebuild: bool, on_progress: Progress) -> str | None:
        """Import a base image made on this machine; ``None`` if that is not possible."""
        archive = self.cache / f"{wanted.name}-{wanted.digest}.tar"
        if rebuild or not archive.exists():
            make = self._debian if wanted.packages else self._busybox
            with _replacing(archive) as unfinished:
                if not make(wanted, unfinished, on_progress):
                    return None
        reference = f"localhost/wink-workspace/{wanted.name}-base:{wanted.digest}"
        self._podman("import", "--quiet", str(archive), reference, on_progress=on_progress)
        return reference

    # Root filesystems

    def _debian(self, wanted: Recipe, archive: Path, on_progress: Progress) -> bool:
        mmdebstrap = self._program("mmdebstrap")
        if mmdebstrap is None:
            return False
        on_progress(f"{wanted.name}: fetching and unpacking Debian {_SUITE}")
        sources = self._debian_sources()
        with tempfile.TemporaryDirectory() as folder:
            options = Path(folder) / "apt.conf"
            options.write_text(self._apt_options(), encoding="utf-8")
            listed = Path(folder) / "sources.list"
            listed.write_text(sources, encoding="utf-8")
            self._run(
                [
                    *(mmdebstrap, "--quiet", "--variant=essential", "--format=tar"),
                    f"--include={','.join(wanted.packages)}",
                    f"--aptopt={options}",
                    *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
                    f"--customize-hook={_CLEAN_HOOK}",
                    *(_SUITE, str(archive)),
                    *((str(listed),) if sources else ()),
                ],
                on_progress=on_progress,
                more={"SOURCE_DATE_EPOCH": _EPOCH},
            )
        return True

    def _debian_sources(self) -> str:
        """The machine's apt sources of the image's Debian release; ``""`` if it has none."""
        line = "$(CODENAME) deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
        known = self._ask_apt("apt-get", "indextargets", "--format", line, "Origin: Debian")
        found = (entry.partition(" ") for entry in known.splitlines())
        wanted = {source for codename, _, source in found if codename.startswith(_SUITE)}
        return "".join(f"{source}\n" for source in sorted(wanted))

    def _apt_options(self) -> str:
        """The machine's apt options for the network, such as a proxy."""
        lines = self._ask_apt("apt-config", "dump").splitlines()
        return "".join(f"{line}\n" for line in lines if line.startswith(_NETWORK_OPTIONS))

    def _ask_apt(self, program: str, *arguments: str) -> str:
        found = self._program(program)
        return "" if found is None else self._run([found, *arguments])

    def _busybox(self, wanted: Recipe, archive: Path, on_progress: Progress) -> bool:
        found = self._program("busybox")
        if found is None or not _is_static(Path(found)):
            return False
        on_progress(f"{wanted.name}: made of {found}")
        with tarfile.open(archive, "w") as tar:
            folder = tarfile.TarInfo("bin")
            folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, 0o755, int(_EPOCH)
            tar.addfile(folder)
            content = Path(found).read_bytes()
            file = tarfile.TarInfo("bin/busybox")
            file.size, file.mode, file.mtime = len(content), 0o755, int(_EPOCH)
            tar.addfile(file, io.BytesIO(content))
        return True

    # Programs

    def _podman(self, *arguments: str, on_progress: Progress | None = None) -> str:
        podman = self._program("podman")
        if podman is None:
            raise SandboxUnavailableError("there is no podman on the PATH")
        with tempfile.TemporaryDirectory() as folder:
            path = self._environment.variables.get("PATH", "")
            conf = EngineSettings.for_this_machine(path=path).write(Path(folder))
            return self._run(
                [podman, *arguments], on_progress=on_progress, more={"CONTAINERS_CONF": str(conf)}
            )

    def _program(self, name: str) -> str | None:
        return shutil.which(name, path=self._environment.variables.get("PATH", os.defpath))

    def _run(
        self,
        command: Sequence[str],
        *,
        on_progress: Progress | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Run a program; returns its stdout. *on_progress* is called with each line of output."""
        with subprocess.Popen(  # noqa: S603 - found on the caller's own PATH; no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if on_progress else subprocess.PIPE,
            env={**self._environment.variables, **(more or {})},
            text=True,
            errors="replace",
        ) as process:
            if on_progress is None:
                return _answer(process, command)
            return _watched(process, command, on_progress)

    @contextmanager
    def _build_lock(self) -> Generator[None]:
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class PodmanImages:
    """Our images by name; implements ``SandboxImages``.

    Args:
        environment: As for ``ImageStore``.
    """

    names = RECIPES

    def __init__(self, environment: Environment) -> None:
        self._store = ImageStore(environment)

    def reference(self, name: str) -> str:
        """See ``SandboxImages``."""
        return recipe(name).reference

    def find(self, name: str) -> SandboxImage | None:
        """See ``SandboxImages``."""
        return self._store.find(self.reference(name))

    def listed(self) -> tuple[SandboxImageState, ...]:
        """See ``SandboxImages``."""
        current = {recipe(name).reference: recipe(name).digest for name in self.names}
        found = {image.reference: image for image in self._store.all()}
        states = {
            reference: (_state(current, image), image.size_bytes)
            for reference, image in found.items()
        }
        missing = dict.fromkeys(current.keys() - found.keys(), ("missing", None))
        return tuple(
            SandboxImageState(reference, *state)
            for reference, state in sorted({**states, **missing}.items())
        )

    def build(
        self,
        name: str,
        *,
        base: str | None = None,
        rebuild: bool = False,
        progress: Progress | None = None,
    ) -> SandboxImage:
        """See ``SandboxImages``."""
        return self._store.build(recipe(name), base=base, rebuild=rebuild, progress=progress)


def _state(current: Mapping[str, str], image: SandboxImage) -> str:
    wanted = current.get(image.reference)
    if wanted is None:
        return "of another version"
    return "current" if wanted == image.recipe_digest else "of an older recipe"


@contextmanager
def _replacing(file: Path) -> Generator[Path]:
    """A temporary path that replaces *file* at the end, if the block has created it."""
    unfinished = file.with_name(f"unfinished-{file.name}")
    try:
        yield unfinished
        if unfinished.exists():
            unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _answer(process: subprocess.Popen[str], command: Sequence[str]) -> str:
    try:
        out, err = process.communicate(timeout=_LONGEST_QUERY_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise _failed(command, ["it did not answer"]) from error
    if process.returncode:
        raise _failed(command, err.splitlines())
    return out


def _watched(process: subprocess.Popen[str], command: Sequence[str], on_progress: Progress) -> str:
    lines: list[str] = []
    try:
        for line in process.stdout or ():
            lines.append(line.rstrip("\n"))
            on_progress(lines[-1])
        process.wait(timeout=_LONGEST_BUILD_S)
    except BaseException:
        process.terminate()  # Ctrl-C: mmdebstrap and podman clean up after themselves
        raise
    if process.returncode:
        raise _failed(command, lines)
    return "\n".join(lines)


def _failed(command: Sequence[str], lines: Sequence[str]) -> SandboxUnavailableError:
    output = "; ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip())
    program = Path(command[0]).name
    if program != "mmdebstrap":
        return SandboxUnavailableError(f"{program} {command[1]} failed: {output}")
    is_not_permitted = any(word in output.casefold() for word in _PERMISSION_MESSAGES)
    why = " for lack of permissions" if is_not_permitted else ""
    return SandboxUnavailableError(
        f"the root filesystem cannot be made{why}; mmdebstrap printed: {output}",
        hint=_PERMISSION_HINT if is_not_permitted else _BUILD_HINT,
    )


def _ignore_progress(_line: str) -> None:
    pass


def _images(listed: str, reference: str | None = None) -> tuple[SandboxImage, ...]:
    entries: list[dict[str, Any]] = json.loads(listed)  # Any: the engine's JSON
    found: list[SandboxImage] = []
    for entry in entries:
        labels: dict[str, str] = entry.get("Labels") or {}
        names: list[str] = entry.get("Names") or []
        found += [
            SandboxImage(name, entry["Id"], entry["Size"], labels.get(_LABEL, ""))
            for name in names
            if reference is None or name == reference
        ]
    return tuple(found)


def _is_static(program: Path) -> bool:
    """Whether it is a 64-bit ELF program without an interpreter, which needs no libraries."""
    with program.open("rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return False
        (start,) = struct.unpack_from("<Q", header, 32)
        size, n_segments = struct.unpack_from("<HH", header, 54)
        file.seek(start)
        segments = file.read(size * n_segments)
    kinds = [struct.unpack_from("<I", segments, n * size)[0] for n in range(n_segments)]
    return 3 not in kinds  # PT_INTERP
