"""The images of sandboxes: which exist, and how ours are built.

Rule 1: nothing is pulled or downloaded unless the caller asks for an image to be built.
Rule 2: an image has the digest of its recipe as a label. It is built again if the recipe changed.
Rule 3: if this machine can make the root filesystem itself, no registry is used. Debian's packages
come from the mirrors that apt is configured for. The root filesystem is kept in the cache, so that
another image store can import it without a second build.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.disk import DiskTree
from wink_workspace.sandbox.git_directory import host_owner
from wink_workspace.sandbox.image_store import SandboxImage
from wink_workspace.sandbox.podman.engine.host_programs import Programs, Progress
from wink_workspace.sandbox.podman.engine.podman_config import IMAGE_VERSION

# ----------------------------------------------------------------------------------------- debian

# A root filesystem made of Debian's packages by this machine's mmdebstrap, and packages to add.
#
# Rule 1: mmdebstrap gets the packages of our own recipes only. It uses apt's own mirrors and proxy,
# and checks signatures and hashes.
# Rule 2: packages for an image are downloaded by the apt of this image, in a build step.


SUITE: Final = "bookworm"
"""The release of Debian in our images."""

_EPOCH: Final = "1"  # time of every file in a root filesystem, so that builds are reproducible
_DPKG_OPTIONS: Final = (
    "force-unsafe-io",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
_CLEAN_HOOK: Final = (
    'cd "$1/etc" && rm -rf apt/sources.list* apt/apt.conf.d/99mmdebstrap hostname resolv.conf'
)
_NETWORK_OPTIONS: Final = ("Acquire::http", "Acquire::Check-", "Acquire::Retries")

BUILD_OPTIONS: Final = f"{SUITE} {_DPKG_OPTIONS} {_CLEAN_HOOK}"
"""What the content of a root filesystem depends on, in addition to its packages."""


def root_filesystem(
    programs: Programs, packages: Sequence[str], archive: Path, progress: Progress
) -> bool:
    """Write a Debian with *packages* to *archive*; ``False`` without ``mmdebstrap``."""
    mmdebstrap = programs.find("mmdebstrap")
    if mmdebstrap is None:
        return False
    sources = _sources(programs)
    with tempfile.TemporaryDirectory() as folder:
        options = Path(folder) / "apt.conf"
        options.write_text(_options(programs), encoding="utf-8")
        listed = Path(folder) / "sources.list"
        listed.write_text(sources, encoding="utf-8")
        programs.run(
            [
                *(mmdebstrap, "--quiet", "--variant=essential", "--format=tar"),
                f"--include={','.join(packages)}",
                f"--aptopt={options}",
                *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
                f"--customize-hook={_CLEAN_HOOK}",
                *(SUITE, str(archive)),
                *((str(listed),) if sources else ()),
            ],
            progress=progress,
            more={"SOURCE_DATE_EPOCH": _EPOCH},
        )
    return True


def _sources(programs: Programs) -> str:
    """The machine's apt sources of the image's Debian release; ``""`` if it has none."""
    line = "$(CODENAME) deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    known = _ask_apt(programs, "apt-get", "indextargets", "--format", line, "Origin: Debian")
    found = (entry.partition(" ") for entry in known.splitlines())
    wanted = {source for codename, _, source in found if codename.startswith(SUITE)}
    return "".join(f"{source}\n" for source in sorted(wanted))


def _options(programs: Programs) -> str:
    """The machine's apt options for the network, such as a proxy."""
    lines = _ask_apt(programs, "apt-config", "dump").splitlines()
    return "".join(f"{line}\n" for line in lines if line.startswith(_NETWORK_OPTIONS))


def _ask_apt(programs: Programs, program: str, *arguments: str) -> str:
    found = programs.find(program)
    return "" if found is None else programs.run([found, *arguments])


# ----------------------------------------------------------------------------------------- images


RECIPES: Final = ("python", "build", "node")

USUAL_RECIPES: Final = ("python",)
"""Those that are built unless the caller names others."""

UNFINISHED: Final = "unfinished-"
"""How the names of incomplete directories and files of the cache begin.

The process with the lock of builds may delete them."""

_PARENTS: Final = {"build": "python", "node": "python"}
AGENTS_LABEL: Final = "wink-workspace.agents"
"""The label with the agent programs of an image, separated by spaces."""

RECIPE_LABEL: Final = "wink-workspace.recipe"
"""The label with the digest of an image's recipe."""

SOURCE_LABEL: Final = "wink-workspace.source"
"""The label with the directory of the project that an image was built for."""

_LISTS: Final = ("packages.txt", "commands.txt")
_VANISHED: Final = "image not known"  # in what podman prints
_MOST_QUERIES: Final = 5
"""The files of a recipe that add lines to those of its parent."""


@dataclass(frozen=True)
class Recipe:
    """How one of our images is made: a directory with a ``Containerfile`` and its files.

    A recipe with a *parent* adds packages to that image, and has only lists of its own.
    """

    name: str
    folder: Path
    parent: Recipe | None = None

    @property
    def reference(self) -> str:
        """The name of the image, with its tag."""
        return f"localhost/wink-workspace/{self.name}:{IMAGE_VERSION}"

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        """Everything that the image is built from, by name."""
        files = {} if self.parent is None else dict(self.parent.files)
        for file in sorted(self.folder.iterdir()):
            if file.suffix != ".md":
                above = files.get(file.name, b"") if file.name in _LISTS else b""
                files[file.name] = above + file.read_bytes()
        return files

    @cached_property
    def digest(self) -> str:
        """A digest of everything that the image is built from."""
        digest = hashlib.sha256(f"{BUILD_OPTIONS} {os.uname().machine}\n".encode())
        for name, content in sorted(self.files.items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]

    @property
    def packages(self) -> tuple[str, ...]:
        """The Debian packages of the image."""
        lines = self.files.get("packages.txt", b"").decode().splitlines()
        return tuple(line for line in lines if line and not line.startswith("#"))

    def write(self, folder: Path) -> None:
        """Write the files to a directory, as the context of a build."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


def recipe(name: str) -> Recipe:
    """The recipe of that name.

    Raises:
        UsageError: If there is none.
    """
    if name not in RECIPES:
        raise UsageError(
            f"there is no image {name!r}", hint=f"The images are {', '.join(RECIPES)}."
        )
    parent = _PARENTS.get(name)
    return Recipe(name, recipe_folder(name), None if parent is None else recipe(parent))


def recipe_folder(name: str) -> Path:
    """The folder of that name with files for builds.

    Raises:
        UsageError: If it is not installed.
    """
    packaged = Path(__file__).parents[1] / "recipes"
    folder = (packaged if packaged.is_dir() else Path(__file__).parents[4] / "images") / name
    if not folder.is_dir():
        raise UsageError(
            f"the recipe of {name!r} is not installed",
            hint="Run `pip install --force-reinstall wink-workspace`.",
        )
    return folder


def step_script(name: str, **embedded: str) -> str:
    """The shell script of a build step; *embedded* are files for the words that stand for them."""
    folder = recipe_folder("project")
    text = (folder / name).read_text(encoding="utf-8")
    for word, file in embedded.items():
        text = text.replace(word, (folder / file).read_text(encoding="utf-8"))
    return text


class ImageStore:
    """The images of the engine that ``podman`` uses.

    Args:
        environment: The variables with the ``PATH``, the cache directory and the engine.
        cache: The directory of root filesystems; by default in the user's cache directory.
    """

    def __init__(self, environment: Environment, *, cache: Path | None = None) -> None:
        self.programs = Programs(environment)
        self._cache = cache

    @property
    def cache(self) -> Path:
        """The directory of root filesystems and downloads; any of them may be deleted."""
        return self._cache or self.programs.environment.cache_dir / "images"

    def find(self, reference: str) -> SandboxImage | None:
        """The image of that name, if the store has it.

        Raises:
            SandboxUnavailableError: If ``podman`` is not installed or fails.
        """
        return next(iter(_images(self._listed(reference), reference)), None)

    def by_name(self) -> dict[str, SandboxImage]:
        """Every image in the store, by each of its names; raises as ``find``."""
        return {image.reference: image for image in _images(self._listed())}

    def all(self) -> tuple[SandboxImage, ...]:
        """Our images in the store; raises as ``find``."""
        return _images(self._listed("--filter", f"label={RECIPE_LABEL}"))

    def _listed(self, *arguments: str) -> str:
        """What ``podman image ls`` prints, as JSON.

        It fails if another process deletes an image meanwhile, so it is then asked again.
        """
        command = ("image", "ls", "--format", "json", "--no-trunc", *arguments)
        for _ in range(_MOST_QUERIES - 1):
            try:
                return self.programs.podman(*command)
            except SandboxUnavailableError as error:
                if _VANISHED not in str(error):
                    raise
        return self.programs.podman(*command)

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
        with self.lock():
            return self.built(
                wanted, base=base, rebuild=rebuild, progress=progress or _ignore_progress
            )

    def built(
        self, wanted: Recipe, *, base: str | None = None, rebuild: bool, progress: Progress
    ) -> SandboxImage:
        """As ``build``, for a caller that holds the lock."""
        if rebuild or not self.is_current(wanted):
            if base is not None or wanted.parent is None:
                start = base or self._import_base(wanted, rebuild=rebuild, progress=progress)
                self._build(wanted, start, progress)
            else:
                self.built(wanted.parent, rebuild=rebuild, progress=progress)
                self._extend(wanted, wanted.parent, rebuild=rebuild, progress=progress)
        image = self.find(wanted.reference)
        if image is None:
            raise SandboxUnavailableError(
                f"the image {wanted.reference} is gone: another process removed it after the build"
            )
        return image

    def _build(self, wanted: Recipe, base: str | None, progress: Progress) -> None:
        is_local = base is not None and base.startswith("localhost/")
        source = ("--network=none", "--pull=never") if is_local else ("--pull=missing",)
        self._run_build(wanted, base, source, progress)
        if is_local:
            self.programs.podman("untag", str(base))

    def _extend(self, wanted: Recipe, parent: Recipe, *, rebuild: bool, progress: Progress) -> None:
        """Build on the parent's image, whose own apt downloads the packages that it lacks."""
        added = [each for each in wanted.packages if each not in parent.packages]
        folder = self.fetch_debian(added, parent.reference, parent.digest, progress, again=rebuild)
        options = ["--pull=never", "--network=none", f"--volume={folder}:/fetched/debian:ro"]
        self._run_build(wanted, parent.reference, options, progress)

    def fetch_debian(
        self,
        packages: Iterable[str],
        image: str,
        identity: str,
        progress: Progress,
        *,
        again: bool,
    ) -> Path:
        """A directory with Debian *packages* and all that they need in *image*.

        Args:
            packages: Names, each with an optional ``=version``.
            image: The image that will get them.
            identity: What distinguishes this image from others; downloads are kept for it.
            progress: Is called with each line of output.
            again: Download even if the cache has them, for newer versions.

        Raises:
            SandboxUnavailableError: If apt fails, or the image has no apt.
        """
        command = step_script("debian.sh").replace("NAMES", " ".join(sorted(packages)))
        return self.filled("debian", image, command, (identity,), {}, progress, again=again)

    def filled(
        self,
        kind: str,
        image: str,
        command: str,
        asked: Sequence[str],
        files: Mapping[str, str],
        progress: Progress,
        *,
        again: bool,
    ) -> Path:
        """A directory of the cache that a build step of ours fills, without any file of a project.

        Args:
            kind: How its name begins.
            image: The image in which the step runs.
            command: The shell command of the step.
            asked: What the result depends on, in addition to *command* and *files*.
            files: The texts of the files that the step sees, by name.
            progress: Is called with each line of output.
            again: Run the step even if the cache has the result.

        Raises:
            SandboxUnavailableError: If the step fails.
        """
        from .build_step import BuildStep, StepRunner, first_line  # here, as it loads the sandbox

        inputs = json.dumps([command, list(asked), dict(files)])
        digest = hashlib.sha256(inputs.encode()).hexdigest()[:24]
        kept = self.cache / "fetched" / f"{kind}-{digest}"
        if again or not kept.is_dir():
            progress(f"step: {first_line(command)}")
            with self.scratch() as scratch:
                source, filled = scratch("source"), scratch("filled")
                for name, text in files.items():
                    (source / name).write_text(text, encoding="utf-8")
                    (source / name).chmod(0o644)
                record = self.cache / "requests" / f"{kept.name}.jsonl"
                step = BuildStep(
                    image=image, command=command, source=source, project=filled, record=record
                )
                StepRunner(self.programs.environment, progress).run(step)
                kept.parent.mkdir(exist_ok=True)
                delete_tree(kept)
                filled.rename(kept)
        os.utime(kept)  # it is used
        return kept

    @contextmanager
    def scratch(self) -> Generator[Callable[[str], Path]]:
        """Makes new directories for the sandbox's user; they are deleted whatever is in them."""
        self.cache.mkdir(parents=True, exist_ok=True)
        above = Path(tempfile.mkdtemp(dir=self.cache, prefix=UNFINISHED))
        numbers = itertools.count()

        def new(name: str) -> Path:
            folder = above / f"{name}-{next(numbers)}"
            folder.mkdir()
            owner = host_owner()
            if owner is not None:
                os.chown(folder, owner, owner)
            return folder

        try:
            yield new
        finally:
            delete_tree(above)

    def _run_build(
        self, wanted: Recipe, base: str | None, options: Sequence[str], progress: Progress
    ) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wanted.write(Path(folder))
            self.programs.podman(
                *("build", "--layers=false", "--force-rm", "--tag", wanted.reference),
                *("--label", f"{RECIPE_LABEL}={wanted.digest}"),
                *(("--build-arg", f"BASE={base}") if base else ()),
                *options,
                folder,
                progress=progress,
            )

    def _import_base(self, wanted: Recipe, *, rebuild: bool, progress: Progress) -> str | None:
        """Import a base image made on this machine; ``None`` if that is not possible."""
        archive = self.cache / f"{wanted.name}-{wanted.digest}.tar"
        if rebuild or not archive.exists():
            with _replacing(archive) as unfinished:
                progress(f"{wanted.name}: fetching and unpacking Debian {SUITE}")
                if not root_filesystem(self.programs, wanted.packages, unfinished, progress):
                    return None
        reference = f"localhost/wink-workspace/{wanted.name}-base:{wanted.digest}"
        self.programs.podman("import", "--quiet", str(archive), reference, progress=progress)
        return reference

    @contextmanager
    def lock(self) -> Generator[None]:
        """Exclude other builds of this user, and delete what builds left that were killed."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for folder in (self.cache, self.cache / "fetched"):
                for left in folder.glob(f"{UNFINISHED}*"):
                    delete_tree(left)
            yield

    def note_use(self, *references: str) -> None:
        """Record that a build uses these images now, for ``used_s``."""
        for reference in references:
            note = self._note(reference)
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()

    def used_s(self, reference: str) -> float:
        """When a build last used an image, in seconds since 1970; 0 if that is not recorded."""
        try:
            return self._note(reference).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def forget_use(self, references: Iterable[str]) -> None:
        """Delete what is recorded about images that are deleted."""
        for reference in references:
            self._note(reference).unlink(missing_ok=True)

    def _note(self, reference: str) -> Path:
        return self.cache / "used" / reference.rpartition("/")[2].replace(":", "-")


def delete_tree(path: Path) -> None:
    """Delete a file, or a directory that a step may have written; it need not exist."""
    with DiskTree(path.parent) as above:
        above.remove(WorkspacePath((path.name,)))


@contextmanager
def _replacing(file: Path) -> Generator[Path]:
    """A temporary path that replaces *file* at the end, if the block has created it."""
    unfinished = file.with_name(f"{UNFINISHED}{file.name}")
    try:
        yield unfinished
        if unfinished.exists():
            unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _ignore_progress(_line: str) -> None:
    pass


def _images(listed: str, reference: str | None = None) -> tuple[SandboxImage, ...]:
    entries: list[dict[str, Any]] = json.loads(listed)  # Any: the engine's JSON
    found: list[SandboxImage] = []
    for entry in entries:
        names: list[str] = entry.get("Names") or []
        found += [image_of(entry, name) for name in names if reference is None or name == reference]
    return tuple(found)


def image_of(entry: Mapping[str, Any], name: str) -> SandboxImage:
    """The image *name* from the engine's JSON, of a list or of one image."""
    labels: dict[str, str] = entry.get("Labels") or {}
    created = entry.get("Created") or 0  # in a list a number, otherwise a text
    return SandboxImage(
        name,
        entry["Id"],
        entry["Size"],
        labels.get(RECIPE_LABEL, ""),
        labels.get(SOURCE_LABEL, ""),
        datetime.fromisoformat(created).timestamp() if isinstance(created, str) else float(created),
        tuple(labels.get(AGENTS_LABEL, "").split()),
    )
