"""A root filesystem made of Debian's packages by this machine's mmdebstrap, and packages to add.

Rule 1: mmdebstrap gets the packages of our own recipes only. It uses apt's own mirrors and proxy,
and checks signatures and hashes.
Rule 2: packages for an image are downloaded by the apt of this image, in a build step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wink_workspace.sandbox.podman.engine.host_programs import Programs, Progress

__all__ = ["BUILD_OPTIONS", "SUITE", "root_filesystem"]

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
