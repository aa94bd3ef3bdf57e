"""Images with the dependencies of a project, built step by step.

Rule 1: no program of this machine reads a file of the project, except the engine the Containerfile.
Packages are fetched, built and installed in containers, as ``build_step`` describes.
Rule 2: Debian's packages are a layer below, which only the recipes of our own images install. What
steps make is a directory, mounted at ``/opt/project`` and copied into the image at the end: a
virtual environment, and the ``node_modules`` that Node finds from ``/workspace``.
Rule 3: the result of each step is kept under a digest of everything that went into it, and used
again, for the same project only.

``image_names`` has the names of the images.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Final

from wink_workspace.environment import Environment
from wink_workspace.errors import FilesystemError, SandboxUnavailableError, UsageError
from wink_workspace.filesystem import parse_path
from wink_workspace.filesystem.disk import DiskTree
from wink_workspace.filesystem.ignoring import PathPatterns
from wink_workspace.filesystem.paths import DERIVED_NAMES, PUBLIC_NAMES, SECRET_NAMES
from wink_workspace.sandbox.commands.command_runs import VARIABLES
from wink_workspace.sandbox.git_directory import host_owner
from wink_workspace.sandbox.image_store import AGENT_NAMES, NODE_LOCKS, ImageRecipe, SandboxImage
from wink_workspace.sandbox.podman.engine.host_programs import Progress

from .build_step import BuildStep, StepRunner, first_line
from .image_names import LAYER, newest_image, project_name
from .images import (
    AGENTS_LABEL,
    RECIPE_LABEL,
    RECIPES,
    SOURCE_LABEL,
    ImageStore,
    delete_tree,
    recipe,
    recipe_folder,
    step_script,
)

# ----------------------------------------------------------------------------------- build source

# The files of a project that build steps see: a copy without secrets, history and caches.
#
# Set-up steps see all of it. The steps before them, which install packages, see only the lists of
# packages, so that a change of another file does not repeat them.


_EXCLUDED: Final = PathPatterns(
    # Certificates and keys by suffix stay: tests of a project need its own.
    (".git", *DERIVED_NAMES, *(name for name in SECRET_NAMES if not name.startswith("*")))
)
_PUBLIC: Final = PathPatterns(PUBLIC_NAMES)
_MOST_FILES: Final = 500_000
_MOST_SOURCE_BYTES: Final = 10 * 1_073_741_824

_LIST: Final = re.compile(
    r"(.*/)?(requirements/.*|[^/]*(requirements|constraints)[^/]*\.(txt|in|pip)|pyproject\.toml"
    r"|uv\.lock|package(-lock)?\.json|npm-shrinkwrap\.json|pnpm-(lock|workspace)\.yaml|yarn\.lock)"
)

Parts = tuple[str, ...]
Filter = Callable[[str], bool]
"""Whether a step sees the file at a path relative to the source."""


def package_lists(named: Collection[str]) -> Filter:
    """Accepts files that list packages by their names, those *named*, and those beside these.

    The latter have the same suffix in the same directory, because the named ones may include them.
    """
    beside = {(path.parent, path.suffix) for path in map(PurePosixPath, named)}

    def accepts(path: str) -> bool:
        pure = PurePosixPath(path)
        return bool(_LIST.fullmatch(path)) or (pure.parent, pure.suffix) in beside

    return accepts


def source_digest(source: Path, accepts: Filter | None = None) -> str:
    """A digest of the paths, kinds, contents and executable bits that ``copy_source`` copies."""
    digest = hashlib.sha256()
    for parts, entry, status in _entries(source, accepts):
        path = "/".join(parts).encode("utf-8", "surrogateescape")
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(entry.path).encode("utf-8", "surrogateescape")  # noqa: PTH115 - the text itself
        elif stat.S_ISREG(status.st_mode):
            with Path(entry.path).open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        else:
            content = b""
        kind = f"{stat.S_IFMT(status.st_mode):o} {status.st_mode & 0o100:o} {len(content)}"
        digest.update(b"%d %s %s " % (len(path), path, kind.encode()) + content)
    return digest.hexdigest()


def copy_source(source: Path, to: Path, owner: int | None, accepts: Filter | None = None) -> None:
    """Copy the files to the new directory *to*, for the host's user *owner* if that is not ours.

    With *accepts*, only files and links at such paths are copied.

    Left out are ``.git``, ``.env`` and other secrets by name, ``node_modules``, virtual
    environments and caches, and everything that is not a file, directory or link.

    Raises:
        UsageError: If it is too large.
    """
    to.mkdir()
    _give(to, owner)
    for parts, entry, status in _entries(source, accepts):
        target = to.joinpath(*parts)
        for above in reversed(target.parents[: len(parts) - 1]):
            if not above.exists():
                above.mkdir()
                _give(above, owner)
        if stat.S_ISDIR(status.st_mode):
            target.mkdir()
        elif stat.S_ISLNK(status.st_mode):
            target.symlink_to(os.readlink(entry.path))  # noqa: PTH115 - the text itself
        else:
            shutil.copyfile(entry.path, target, follow_symlinks=False)
            target.chmod(0o755 if status.st_mode & 0o100 else 0o644)
        _give(target, owner)


def _give(path: Path, owner: int | None) -> None:
    if owner is not None:
        os.chown(path, owner, owner, follow_symlinks=False)


def _entries(
    source: Path, accepts: Filter | None
) -> Iterator[tuple[Parts, os.DirEntry[str], os.stat_result]]:
    """All directories, files and links, in the order of their names; directories come first."""
    n_files = n_bytes = 0
    todo: list[Parts] = [()]
    while todo:
        directory = todo.pop()
        with os.scandir(source.joinpath(*directory)) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        names = [entry.name for entry in entries]
        left_out = _EXCLUDED.matching(directory, names) - _PUBLIC.matching(directory, names)
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if entry.name in left_out or not _is_copied(status):
                continue
            parts = (*directory, entry.name)
            if entry.is_dir(follow_symlinks=False):
                todo.append(parts)
            if accepts is not None and (
                stat.S_ISDIR(status.st_mode) or not accepts("/".join(parts))
            ):
                continue
            n_files, n_bytes = n_files + 1, n_bytes + status.st_size
            if n_files > _MOST_FILES or n_bytes > _MOST_SOURCE_BYTES:
                raise UsageError(
                    f"{source} has more than {_MOST_FILES:,} files or {_MOST_SOURCE_BYTES:,} bytes",
                    hint="Build the image from a smaller directory.",
                )
            yield parts, entry, status


def _is_copied(status: os.stat_result) -> bool:
    mode = status.st_mode
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode)


# ----------------------------------------------------------------------------------- source files

# The files of a project that its recipe names, as a build reads them on the host.
#
# Rule 1: only regular files below the source are read; no link is followed, and sizes are bounded.
# Rule 2: if the user confirmed the files of a project, a build ends if one of them has changed.


_MOST_BYTES: Final = 8 * 1_048_576


class SourceFiles:
    """The text files of *source*.

    Args:
        source: The directory of the project.
        confirmed: The SHA-256 of each file that may be read, by its path; ``None`` for any file.
    """

    def __init__(self, source: Path, confirmed: Mapping[str, str] | None = None) -> None:
        self._source = source
        self._confirmed = confirmed

    def text(self, path: str) -> str:
        """The text of a file.

        Raises:
            UsageError: If it is not a small text file, or not what was confirmed.
        """
        try:
            with DiskTree(self._source) as tree, tree.open(parse_path(path)) as file:
                content = file.read(_MOST_BYTES + 1)
        except FilesystemError as error:
            raise UsageError(
                f"{path} cannot be read: {error.message}",
                hint="Name a text file of the source; links are not followed.",
            ) from error
        if len(content) > _MOST_BYTES:
            raise UsageError(
                f"{path} is larger than {_MOST_BYTES:,} bytes", hint="Use a smaller file."
            )
        if self._confirmed is not None and (
            self._confirmed.get(path) != hashlib.sha256(content).hexdigest()
        ):
            raise UsageError(
                f"{path} is not what was confirmed with the project's file",
                hint="Look at it, and confirm it with wink-workspace trust.",
            )
        try:
            return content.decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} cannot be read: not text", hint="Name a text file of the source."
            ) from error


# --------------------------------------------------------------------------------- project images


_VERSION: Final = "2"
"""Part of every digest; it changes with the steps below."""

_BELOW: Final = """\
ARG BASE
FROM ${BASE}
COPY --chown=1000:1000 project /opt/project
ENV VIRTUAL_ENV=/opt/project
ENV PATH=/opt/project/bin:/opt/project/extensions/bin:/node_modules/.bin:PATH_OF_BASE
"""
_WITH_PACKAGES: Final = """\
COPY packages.txt prepare /usr/share/wink-workspace/
RUN sh /usr/share/wink-workspace/prepare
"""
_WITH_AGENTS: Final = """\
COPY agents /opt/agents
ENV PATH=/opt/agents/bin:${PATH}
"""
"""The programs are in front of those of the project, which could have the same names."""
_WITH_AGENT: Final = "COPY --chown=0:0 --from=NAME / /opt/agents/NAME\n"
_WHOLE: Final = """\
ARG BASE
FROM ${BASE}
COPY --chown=1000:1000 project /opt/project
"""
AGENT_PROGRAMS: Final = {
    "claude-code": "node_modules/@anthropic-ai/claude-code-linux-*/claude",
    "codex": "node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
    "opencode": "node_modules/opencode-linux-*/bin/opencode",
}
"""The program of each agent in what npm installs; the recipe ``agents/NAME`` has the lock."""
_OF_PROJECT: Final = re.compile(r"^\s*(-e|--editable|\.|file:)", re.MULTILINE)
"""A requirement for which pip needs the files of the project itself."""
_PYTHON_FILES: Final = ("pyproject.toml", "setup.py")
_MOST_STEPS: Final = 24
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/:._+-]+")

_ESCAPE: Final = re.compile(r"\s*#\s*escape\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step: its command, and whether it sees files of the source; ``accepts`` selects some."""

    command: str
    with_source: bool = True
    accepts: Filter | None = None


@dataclass(frozen=True, slots=True)
class _Agent:
    """An agent program: a directory, and the path of the program in it."""

    folder: Path
    program: str


class ProjectImages:
    """Builds and finds the images of projects.

    Args:
        environment: The variables with the ``PATH``, the cache directory and the engine.
        store: The engine's images and the cache of downloads.
    """

    def __init__(self, environment: Environment, store: ImageStore) -> None:
        self.environment = environment
        self.store = store

    def build(
        self,
        wanted: ImageRecipe,
        source: Path,
        *,
        rebuild: bool = False,
        confirmed: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> SandboxImage:
        """The image of a recipe for the project in *source*; each step is run unless it exists.

        Args:
            wanted: The recipe.
            source: The directory of the project.
            rebuild: Run all steps, with new downloads.
            confirmed: The SHA-256 of each file that the recipe names; ``None`` for any content.
            progress: Is called with each line that a step prints.

        Raises:
            SandboxUnavailableError: If a step fails; the message ends with its last output.
            UsageError: If a file of the recipe is missing or not allowed.
        """
        if not source.is_dir():
            raise UsageError(f"{source} is not a directory", hint="Name the project's directory.")
        on_progress = progress or _ignore_progress
        with self.store.lock(), self.store.scratch() as scratch:
            files = SourceFiles(source.resolve(), confirmed)
            build = _Build(self, wanted, source.resolve(), files, scratch, rebuild, on_progress)
            image = build.built()
            self._prune()
        return image

    @property
    def steps(self) -> Path:
        """The directory with the results of steps."""
        return self.store.cache / "steps"

    def _prune(self) -> None:
        """Delete the results of steps that were not used for the longest time."""
        if self.steps.is_dir():
            kept = sorted(self.steps.iterdir(), key=lambda path: path.stat().st_mtime)
            for path in kept[:-_MOST_STEPS]:
                delete_tree(path)


class _Build:
    """One build."""

    def __init__(
        self,
        images: ProjectImages,
        wanted: ImageRecipe,
        source: Path,
        files: SourceFiles,
        scratch: Callable[[str], Path],
        rebuild: bool,
        progress: Progress,
    ) -> None:
        self._images = images
        self._store = images.store
        self._wanted = wanted
        self._source = source
        self._files = files
        self._directory = scratch
        self._rebuild = rebuild
        self._progress = progress
        self._source_digests: dict[Filter | None, str] = {}
        self._images_by_name = self._store.by_name()
        """No other process builds meanwhile; asking the engine again takes a tenth of a second."""

    def built(self) -> SandboxImage:
        """Build what is missing; the image has its second names, too."""
        texts = {path: self._files.text(path) for path in self._wanted.files}
        below = self._below()
        steps = self._steps(texts)
        digests = [_digest(below, project_name(self._source))]
        for step in steps:
            source = self._digest_of(step.accepts) if step.with_source else ""
            digests.append(_digest(digests[-1], step.command, source))
        final = f"{project_name(self._source)}:{digests[-1]}"
        if self._is_missing(final):
            project = self._run(below, steps, digests)
            context = self._directory("context")
            if project is None:
                (context / "project").mkdir()
            else:
                project.rename(context / "project")
            labels = {RECIPE_LABEL: digests[-1], SOURCE_LABEL: str(self._source)}
            if self._wanted.agents:
                labels[AGENTS_LABEL] = " ".join(self._wanted.agents)
            self._podman_build(context, _WHOLE, final, below, labels=labels)
            self._forget_other_agents()
        image = self._image(final)
        names = [newest_image(self._source), *self._names_of_recipes()]
        if any((known := self._find(name)) is None or known.id != image.id for name in names):
            self._store.programs.podman("tag", final, *names)
        self._store.note_use(below, final)
        return image

    def _names_of_recipes(self) -> Iterator[str]:
        """The names of the recipes that the image is for: also those with fewer agent programs."""
        agents = self._wanted.agents
        for fewer in dict.fromkeys((agents, *((agent,) for agent in agents), ())):
            yield newest_image(self._source, replace(self._wanted, agents=fewer))

    def _forget_other_agents(self) -> None:
        """The dependencies are new, so images with other agent programs are not current."""
        for agent in set(AGENT_NAMES).difference(self._wanted.agents):
            name = newest_image(self._source, replace(self._wanted, agents=(agent,)))
            if self._find(name) is not None:
                self._store.programs.podman("untag", name, name)

    def _steps(self, texts: Mapping[str, str]) -> list[_Step]:
        """The steps; *texts* are those of the files that the recipe names."""
        wanted, steps, lock = self._wanted, list[_Step](), self._wanted.lock
        path = PurePosixPath(lock or "")
        is_node = path.name in NODE_LOCKS
        python = (*wanted.requirements, *([lock] if lock and not is_node else []))
        lists = package_lists(wanted.files)
        if python or (
            wanted.set_up and any((self._source / name).is_file() for name in _PYTHON_FILES)
        ):
            steps.append(
                _Step(
                    step_script("environment.sh", FINDER="extension_finder.py"), with_source=False
                )
            )
        if python:
            command = step_script("python.sh", SCRIPT="requirements.py")
            command = command.replace("FILES", shlex.join(python))
            is_all = any(
                _OF_PROJECT.search(texts[path]) for path in python if path.endswith(".txt")
            )
            steps.append(_Step(command, accepts=None if is_all else lists))
        if is_node:
            command = step_script("node.sh").replace("LOCK", path.name)
            command = command.replace("FOLDER", shlex.quote(str(path.parent)))
            steps.append(_Step(command, accepts=lists))
        return [*steps, *map(_Step, wanted.set_up)]

    def _run(self, below: str, steps: Sequence[_Step], digests: Sequence[str]) -> Path | None:
        """Run the steps that have no result yet; returns a directory with that of the last."""
        known = 0
        for n in range(len(steps), 0, -1):
            if not self._rebuild and (self._images.steps / digests[n]).is_dir():
                known = n
                break
        before = self._images.steps / digests[known] if known else None
        project = self._copy_of(before)
        for step, digest in list(zip(steps, digests[1:], strict=True))[known:]:
            self._progress(f"step: {first_line(step.command)}")
            seen = self._copied(step.accepts) if step.with_source else self._directory("empty")
            self._runner.run(
                BuildStep(
                    image=below,
                    command=step.command,
                    source=seen,
                    project=project,
                    record=self._store.cache / "requests" / f"{digest}.jsonl",
                )
            )
            self._images.steps.mkdir(exist_ok=True)
            delete_tree(self._images.steps / digest)
            self._copy_of(project).rename(self._images.steps / digest)
        return project

    def _copy_of(self, project: Path | None) -> Path:
        """A new directory for the sandbox's user, with what is in *project*."""
        copy = self._directory("empty")
        if project is not None:
            os.utime(project)  # it is used
            copy.rmdir()
            # Steps wrote it, so it is not walked by path here; cp follows no link below it.
            cp = self._store.programs.find("cp") or "/bin/cp"
            self._store.programs.run([cp, "-a", "--reflink=auto", "--", str(project), str(copy)])
        return copy

    # The image below

    def _below(self) -> str:
        """The image with Debian's packages, in which the steps run."""
        reference, identity = self._base()
        packages = sorted(set(self._wanted.packages))
        agents = self._agents()
        text = _BELOW + (_WITH_PACKAGES if packages else "") + (_WITH_AGENTS if agents else "")
        text += "".join(_WITH_AGENT.replace("NAME", agent) for agent in agents)
        folders = [[each.folder.name, each.program] for each in agents.values()]
        name = f"{LAYER}:{_digest(identity, text, packages, *folders)}"
        if self._is_missing(name):
            text = text.replace("PATH_OF_BASE", self._path_of(reference))
            context = self._directory("below")
            (context / "project").mkdir()
            volumes: tuple[str, ...] = ()
            if agents:
                (context / "agents/bin").mkdir(parents=True)
            for agent, each in agents.items():
                link = context / "agents/bin" / PurePosixPath(each.program).name
                link.symlink_to(f"../{agent}/{each.program}")
            if packages:
                folder = self._store.fetch_debian(
                    packages, reference, identity, self._progress, again=self._rebuild
                )
                recipe("python").write(context)
                (context / "packages.txt").write_text("".join(f"{each}\n" for each in packages))
                volumes = (f"--volume={folder}:/fetched/debian:ro",)
            contexts = (f"--build-context={name}={each.folder}" for name, each in agents.items())
            self._podman_build(context, text, name, reference, *volumes, *contexts)
        return name

    def _agents(self) -> Mapping[str, _Agent]:
        """The agent programs of the image, by name."""
        return {name: self._agent(name) for name in sorted(set(self._wanted.agents))}

    def _agent(self, name: str) -> _Agent:
        """An agent program, fetched by our own lock in our own image, without any of a project."""
        wanted, folder = recipe("node"), recipe_folder(f"agents/{name}")
        texts = {
            file: (folder / file).read_text(encoding="utf-8")
            for file in ("package.json", "package-lock.json")
        }
        image = self._store.built(wanted, rebuild=False, progress=self._progress)
        command = step_script("agent.sh").replace("NAME", name)
        kept = self._store.filled(
            "agent", image.reference, command, (), texts, self._progress, again=self._rebuild
        )
        found = [path.relative_to(kept).as_posix() for path in kept.glob(AGENT_PROGRAMS[name])]
        if not found:
            raise SandboxUnavailableError(
                f"npm has no program of {name} for this machine",
                hint="Mount one that you built, or install it in a Containerfile.",
            )
        return _Agent(kept, found[0])

    def _base(self) -> tuple[str, str]:
        """The name and the id of the image to start from."""
        if self._wanted.containerfile is not None:
            return self._built_containerfile(self._wanted.containerfile)
        name = self._wanted.base
        if name in RECIPES:
            wanted = recipe(name)
            image = self._find(wanted.reference)
            if image is None or image.recipe_digest != wanted.digest:
                image = self._store.built(wanted, rebuild=False, progress=self._progress)
            return image.reference, image.id
        found = self._find(name)
        if found is None:
            raise SandboxUnavailableError(
                f"there is no image {name}",
                hint="Pull it with podman, use its full name with the tag, or use one of"
                f" {', '.join(RECIPES)}.",
            )
        return found.reference, found.id

    def _built_containerfile(self, path: str) -> tuple[str, str]:
        """The image of a Containerfile of the project.

        Its instructions run as the root of a user namespace. If root runs the engine, a build has
        none, so that they would run as root of this machine.
        """
        if host_owner() is not None:
            raise SandboxUnavailableError(
                "a Containerfile of a project is not built by root: its commands would have root's"
                " id on this machine",
                hint="Build as an ordinary user, or name packages and set-up commands instead.",
            )
        text = self._files.text(path)
        check_containerfile(text, path)
        identity = _digest("containerfile", path, text, self._digest_of(None))
        name = f"{LAYER}:{identity}"
        if self._is_missing(name):
            context = self._copied(None)
            checked = self._directory("containerfile") / "Containerfile"
            checked.write_text(text, encoding="utf-8")  # not the copy: it may have changed
            self._progress(f"building {path}")
            self._store.programs.podman(
                *("build", "--layers=false", "--force-rm", "--network=none", "--pull=missing"),
                *(f"--file={checked}", f"--tag={name}", str(context)),
                progress=self._progress,
            )
            self._images_by_name = self._store.by_name()
        return name, identity

    def _podman_build(
        self,
        context: Path,
        text: str,
        name: str,
        base: str,
        *more: str,
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        (context / "Containerfile").write_text(text, encoding="utf-8")
        self._store.programs.podman(
            *("build", "--layers=false", "--force-rm", "--network=none", "--pull=never"),
            *(f"--build-arg=BASE={base}", f"--tag={name}"),
            *(f"--label={label}={value}" for label, value in labels.items()),
            *more,
            str(context),
            progress=self._progress,
        )
        self._images_by_name = self._store.by_name()

    def _is_missing(self, name: str) -> bool:
        return self._rebuild or self._find(name) is None

    def _find(self, name: str) -> SandboxImage | None:
        return self._images_by_name.get(name)

    def _image(self, name: str) -> SandboxImage:
        image = self._find(name)
        if image is None:
            raise SandboxUnavailableError(f"the image {name} is gone: another process removed it")
        return image

    # Questions about an image

    def _path_of(self, image: str) -> str:
        """The ``PATH`` of an image, or the usual one."""
        form = "{{range .Config.Env}}{{println .}}{{end}}"
        shown = self._store.programs.podman("image", "inspect", "--format", form, image)
        for line in shown.splitlines():
            name, _, value = line.partition("=")
            if name == "PATH" and _PLAIN_PATH.fullmatch(value):
                return value
        return VARIABLES["PATH"]

    @cached_property
    def _runner(self) -> StepRunner:
        return StepRunner(self._images.environment, self._progress)

    # Directories

    def _digest_of(self, accepts: Filter | None) -> str:
        if accepts not in self._source_digests:
            self._source_digests[accepts] = source_digest(self._source, accepts)
        return self._source_digests[accepts]

    def _copied(self, accepts: Filter | None) -> Path:
        copy = self._directory("source")
        copy.rmdir()
        copy_source(self._source, copy, host_owner(), accepts)
        if source_digest(copy, accepts) != self._digest_of(
            accepts
        ):  # the result is kept under that
            raise UsageError(
                f"{self._source} has changed while the image was built", hint="Build it again."
            )
        return copy


def check_containerfile(text: str, path: str) -> None:
    """Refuse instructions with which the engine itself would download or share a cache.

    Raises:
        UsageError: If there is one; the message has the line.
    """
    for line in _instructions(text):
        words = line.upper().split()
        if words[:1] == ["ONBUILD"]:
            words = words[1:]
        problem = None
        if words[:1] == ["ADD"]:
            problem = "ADD can download; use COPY"
        elif words[:1] == ["RUN"] and any(word.startswith("--") for word in words[1:2]):
            problem = "RUN has an option; write the command alone"
        elif _ESCAPE.match(line):
            problem = "another escape character is not supported"
        elif not line.isascii() and not words[0].isascii():
            problem = "an instruction has characters other than ASCII"
        if problem is not None:
            raise UsageError(f"{path}: {line.strip()[:120]!r}: {problem}", hint="Change the line.")


def _instructions(text: str) -> Iterator[str]:
    """The instructions as the engine reads them, and the comments.

    A line that ends with a backslash goes on without a space. Comments and empty lines within it
    are left out, and a backslash at the end of a comment continues nothing.
    """
    joined = ""
    for line in text.replace("\v", " ").replace("\f", " ").split("\n"):
        if line.lstrip().startswith("#"):
            yield line
        elif line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1]
        elif line.strip():
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([_VERSION, *parts]).encode()).hexdigest()[:24]


def _ignore_progress(_line: str) -> None:
    """For callers without a display."""
