"""Downloads of a project's dependencies by pip and npm of this machine; no code of them is run.

Rule 1: pip gets only wheels, which it copies without building anything. npm gets packages of its
registry only, and runs none of their scripts.
Rule 2: files of the project are parsed first (``requirements``, ``_checked_lock``). The clients run
in a directory of their own, so no configuration of the project applies.
Rule 3: a download is kept in the cache under a hash of what was asked for, and used again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from wink_workspace import serde
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.system_packages import install_hint

from .downloads import Downloads
from .images import recipe_folder
from .programs import Progress
from .requirements import Requirements

__all__ = ["FetchedAgent", "ImageFacts", "PackageFetcher"]

_NO_MATCH: Final = re.compile(r"No matching distribution found for ([^\s;]+)")
_REGISTRY: Final = "https://registry.npmjs.org/"
"""The address that lock files contain; npm replaces it by the one that it is configured for."""
_LEAST_GLIBC: Final = 5
_VERSION_PARTS: Final = 2


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What packages for an image have to fit: its Python (``""`` if none), glibc and machine."""

    python: str
    glibc: str
    machine: str

    @property
    def pip_options(self) -> tuple[str, ...]:
        """The options with which pip chooses wheels for the image."""
        tag = "cp" + "".join(self.python.split(".")[:_VERSION_PARTS])
        major, _, minor = self.glibc.partition(".")
        names = [f"manylinux_{major}_{n}" for n in range(int(minor), _LEAST_GLIBC - 1, -1)]
        names += ["manylinux2014", "manylinux2010", "manylinux1", "linux"]
        return (
            "--only-binary=:all:",
            f"--python-version={self.python}",
            "--implementation=cp",
            *(f"--abi={abi}" for abi in (tag, "abi3", "none")),
            *(f"--platform={name}_{self.machine}" for name in names),
        )


_PROGRAMS: Final = {
    "claude-code": "node_modules/@anthropic-ai/claude-code-linux-*/claude",
    "codex": "node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
    "opencode": "node_modules/opencode-linux-*/bin/opencode",
}
"""The program of each agent in what npm downloads; the recipe ``agents/NAME`` has the lock."""


@dataclass(frozen=True, slots=True)
class FetchedAgent:
    """An agent program: a directory, and the path of the program in it."""

    folder: Path
    program: str


class PackageFetcher(Downloads):
    """Downloads packages of Python and Node, and agent programs."""

    def python(
        self,
        wanted: Requirements,
        builds: Sequence[str],
        facts: ImageFacts,
        progress: Progress,
        *,
        again: bool = False,
    ) -> Path:
        """A directory with the wheels of *wanted*, and with its lines in files for pip.

        These are ``requirements.txt``, ``constraints.txt`` and ``locked.txt``; each may be empty.

        Args:
            wanted: The requirements.
            builds: Requirements of the project's own build; their wheels are there, too.
            facts: What the wheels have to fit.
            progress: Is called with each line of pip's output.
            again: Download even if the cache has them.

        Raises:
            SandboxUnavailableError: If pip fails or is not installed.
            UsageError: If there is no wheel for a requirement.
        """
        asked = json.dumps([asdict(wanted), list(builds), facts.pip_options])

        def fill(folder: Path) -> Path:
            (folder / "constraints.txt").write_text(_text(wanted.constraints), encoding="utf-8")
            (folder / "requirements.txt").write_text(_text(wanted.lines), encoding="utf-8")
            (folder / "locked.txt").write_text(_text(wanted.locked), encoding="utf-8")
            if wanted.locked:
                progress(f"fetching wheels of {len(wanted.locked)} locked Python packages")
                options = ("--no-deps", "--requirement=locked.txt")
                self._download(folder, facts, options, progress)
            if wanted.lines:
                progress(f"fetching wheels of {len(wanted.lines)} Python requirements")
                options = ("--requirement=requirements.txt", "--constraint=constraints.txt")
                self._download(folder, facts, options, progress)
            if builds:
                progress(f"fetching wheels of {', '.join(builds)}")
                self._download(folder, facts, ("--", *builds), progress)
            return folder

        return self._filled("python", asked, fill, again=again)

    def _download(
        self, folder: Path, facts: ImageFacts, what: Sequence[str], progress: Progress
    ) -> None:
        pip = next(filter(None, map(self._programs.find, ("pip3", "pip"))), None)
        if pip is None:
            raise SandboxUnavailableError(
                "Python packages cannot be fetched: there is no pip on the PATH",
                hint=install_hint("pip"),
            )
        command = (pip, "download", "--quiet", "--disable-pip-version-check", "--dest=.")
        try:
            self._programs.run([*command, *facts.pip_options, *what], progress=progress, cwd=folder)
        except SandboxUnavailableError as error:
            missing = _NO_MATCH.search(error.message)
            if missing is None:
                raise
            raise UsageError(
                f"{missing[1]} has no wheel for Python {facts.python} on Linux {facts.machine}",
                hint="Only wheels are fetched, since a source package is code. Use a version that"
                " has one, or leave it out.",
            ) from error

    def node(self, package: str, lock: str, progress: Progress, *, again: bool = False) -> Path:
        """A directory with ``node_modules`` and the two files; no script has run.

        Args:
            package: The text of ``package.json``.
            lock: The text of ``package-lock.json``.
            progress: Is called with each line of npm's output.
            again: Download even if the cache has them.

        Raises:
            SandboxUnavailableError: If npm fails or is not installed.
            UsageError: If the lock names a package that is not in npm's registry.
        """
        what = "the packages of package-lock.json"
        return self._node(package, lock, what, progress, again=again)

    def _node(self, package: str, lock: str, what: str, progress: Progress, *, again: bool) -> Path:
        _check_lock(lock)

        def fill(folder: Path) -> Path:
            npm = self._programs.find("npm")
            if npm is None:
                raise SandboxUnavailableError(
                    "Node packages cannot be fetched: there is no npm on the PATH",
                    hint=install_hint("npm"),
                )
            (folder / "package.json").write_text(package, encoding="utf-8")
            (folder / "package-lock.json").write_text(lock, encoding="utf-8")
            progress(f"fetching {what}")
            command = (npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")
            self._programs.run([*command, "--loglevel=error"], progress=progress, cwd=folder)
            return folder

        return self._filled("node", json.dumps([package, lock]), fill, again=again)

    def agent(self, name: str, progress: Progress, *, again: bool = False) -> FetchedAgent:
        """The agent program of that name, in the version of its recipe; raises as ``node``."""
        recipe = recipe_folder(f"agents/{name}")
        package, lock = (
            (recipe / file).read_text(encoding="utf-8")
            for file in ("package.json", "package-lock.json")
        )
        folder = self._node(package, lock, name, progress, again=again)
        found = [path.relative_to(folder).as_posix() for path in folder.glob(_PROGRAMS[name])]
        if not found:
            raise SandboxUnavailableError(
                f"npm has no program of {name} for this machine",
                hint="Mount one that you built, or install it in a Containerfile.",
            )
        return FetchedAgent(folder, found[0])


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class _LockedPackage:
    version: str = ""
    resolved: str = ""
    integrity: str = ""
    is_bundled: bool = field(default=False, metadata={"alias": "inBundle"})


@dataclass(frozen=True, slots=True)
class _LockFile:
    packages: Mapping[str, _LockedPackage]


def _check_lock(text: str) -> None:
    """Refuse a lock file that would make npm use anything but its registry."""
    lock = serde.parse_json(_LockFile, text, what="package-lock.json", extra="ignore")
    for path, entry in lock.packages.items():
        if path == "" or entry.is_bundled:
            continue
        is_below = path.startswith("node_modules/") and ".." not in path.split("/")
        is_ours = not entry.resolved or entry.resolved.startswith(_REGISTRY)
        if not (is_below and is_ours and entry.integrity and entry.version):
            raise UsageError(
                f"package-lock.json: {path!r} is not in npm's registry: {entry.resolved[:120]!r}",
                hint="Only packages of npm's registry are fetched.",
            )
