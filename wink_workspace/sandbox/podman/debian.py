"""Debian's packages: a root filesystem made of them, and packages that are added to an image.

Rule 1: apt of this machine downloads, from its own mirrors and through its own proxy, and checks
signatures and hashes. Nothing of an image or a project runs while there is a network.
Rule 2: downloads are kept in the cache by a hash of what was asked for, and used again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wink_workspace.errors import SandboxUnavailableError, UsageError

from .downloads import Downloads
from .programs import Progress

__all__ = ["BUILD_OPTIONS", "STATUS_COMMAND", "SUITE", "DebianPackages"]

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

STATUS_COMMAND: Final = (
    f"grep -qx VERSION_CODENAME={SUITE} /etc/os-release && cat /var/lib/dpkg/status"
)
"""Prints what ``fetch`` has to know of an image; fails in an image of another release."""

BUILD_OPTIONS: Final = f"{SUITE} {_DPKG_OPTIONS} {_CLEAN_HOOK}"
"""What the content of a root filesystem depends on, in addition to its packages."""


class DebianPackages(Downloads):
    """Downloads Debian's packages."""

    @property
    def can_fetch(self) -> bool:
        """Whether this machine has apt."""
        return self._programs.find("apt-get") is not None

    def root_filesystem(self, packages: Sequence[str], archive: Path, progress: Progress) -> bool:
        """Write a Debian with *packages* to *archive*; ``False`` without ``mmdebstrap``."""
        mmdebstrap = self._programs.find("mmdebstrap")
        if mmdebstrap is None:
            return False
        sources = self._sources()
        with tempfile.TemporaryDirectory() as folder:
            options = Path(folder) / "apt.conf"
            options.write_text(self._options(), encoding="utf-8")
            listed = Path(folder) / "sources.list"
            listed.write_text(sources, encoding="utf-8")
            self._programs.run(
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

    def fetch(
        self, packages: Sequence[str], installed: str, progress: Progress, *, again: bool = False
    ) -> Path:
        """A directory with the files of *packages* and of all that they need.

        Args:
            packages: Names, each with an optional ``=version``.
            installed: The file ``/var/lib/dpkg/status`` of the image that will get them.
            progress: Is called with each line of apt's output.
            again: Download even if the cache has them, for newer versions.

        Raises:
            SandboxUnavailableError: If apt fails.
            UsageError: If Debian has no such package.
        """

        def fill(folder: Path) -> Path:
            progress(f"fetching {', '.join(packages)} from Debian {SUITE}")
            apt = self._apt(folder, installed)
            self._programs.run([*apt, "update"], progress=progress)
            try:
                self._programs.run([*apt, "install", *packages], progress=progress)
            except SandboxUnavailableError as error:
                if "Unable to locate package" in error.message:
                    raise UsageError(
                        f"Debian {SUITE} lacks a package: {error.message}",
                        hint="Look the name up with `apt-cache search`.",
                    ) from error
                raise
            fetched = folder / "archives"
            shutil.rmtree(fetched / "partial", ignore_errors=True)
            (fetched / "lock").unlink(missing_ok=True)
            return fetched

        asked = f"{SUITE} {sorted(packages)}\n{installed}"
        return self._filled("debian", asked, fill, again=again)

    def _apt(self, folder: Path, installed: str) -> list[str]:
        """The command of an apt that sees an image's packages, and this machine's mirrors."""
        for name in ("lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").write_text(installed, encoding="utf-8")
        (folder / "sources.list").write_text(self._sources(), encoding="utf-8")
        options = {
            "Dir::State": folder,
            "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Cache::archives": folder / "archives",
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Sandbox::User": "root",  # no file here is readable for apt's own user
            "APT::Install-Recommends": "false",
            "APT::Cmd::Pattern-Only": "true",  # lib.* is a name, not an expression
        }
        apt = self._programs.find("apt-get")
        if apt is None:
            raise SandboxUnavailableError(
                "Debian's packages cannot be fetched: there is no apt-get on the PATH",
                hint="Name the packages in a Containerfile, or build on a Debian or Ubuntu.",
            )
        given = (f"--option={name}={value}" for name, value in options.items())
        return [apt, *given, "--quiet", "--yes", "--download-only"]

    def _sources(self) -> str:
        """The machine's apt sources of the image's Debian release; ``""`` if it has none."""
        line = "$(CODENAME) deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
        known = self._ask_apt("apt-get", "indextargets", "--format", line, "Origin: Debian")
        found = (entry.partition(" ") for entry in known.splitlines())
        wanted = {source for codename, _, source in found if codename.startswith(SUITE)}
        return "".join(f"{source}\n" for source in sorted(wanted))

    def _options(self) -> str:
        """The machine's apt options for the network, such as a proxy."""
        lines = self._ask_apt("apt-config", "dump").splitlines()
        return "".join(f"{line}\n" for line in lines if line.startswith(_NETWORK_OPTIONS))

    def _ask_apt(self, program: str, *arguments: str) -> str:
        found = self._programs.find(program)
        return "" if found is None else self._programs.run([found, *arguments])
