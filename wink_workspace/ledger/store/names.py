r"""File names in git trees: unchanged, or escaped.

Rule 1: a name is a sequence of bytes (in a ``str``, bytes that are not UTF-8 are surrogate
escapes). Different names have different stored names, and each is restored exactly.
Rule 2: whether a name is escaped depends only on that name and on fixed tables, not on the kind of
file or on Python's version of Unicode. So a name is always stored the same way.
Rule 3: names that git, libgit2 or ``git fsck`` treat specially are escaped, in every spelling that
Windows and macOS accept for them: ``.git``, ``.gitmodules`` and ``.gitattributes`` (fsck reads the
last two and may refuse their content). So are names with a backslash or with bytes that are not
UTF-8, and names that look escaped. All others stay readable in plain git, ``.gitignore`` and
``.github`` included.

An escaped name is ``%``, then the name with ``%``, ``\`` and each byte that is not UTF-8 as
``%XX``. It has at most 766 bytes. Git has no limit for a name in a tree, fsck warns above 4,096
bytes, and no file is ever created under an escaped name, so its length does not matter.
"""

from __future__ import annotations

import re

from wink_workspace.errors import LedgerDamagedError

_PREFIX = "%"

# Characters that git's own checks ignore inside a name because HFS+ does.
_IGNORED = (
    *range(0x200C, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x206A, 0x2070),
    0xFEFF,
)
_FOLDING = {
    **dict.fromkeys(_IGNORED),
    **{ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
}

# The long names, and the short ones that NTFS may give them: six letters, or a few letters and
# a hash, then "~" and a number. NTFS ignores spaces and dots at the end, and what follows ":".
_SHORT_NAMES = "|".join(
    sorted({name[:n] for name in ("gi7eba", "gi7d29") for n in range(7)}, key=len, reverse=True)
)
_SPECIAL = re.compile(
    rf"(\.git(modules|attributes)?|(git|gitmod|gitatt|{_SHORT_NAMES})~[0-9]+)[ .]*(:.*)?",
    re.DOTALL,
)
_GIT_DIRECTORY = re.compile(r"(\.git|git~[0-9]+)[ .]*(:.*)?", re.DOTALL)
_UNSAFE = re.compile(r"[%\\\uDC80-\uDCFF]")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def stored_name(name: str) -> bytes:
    """The name of *name* in a tree."""
    if name.isascii() and name[0] not in ".gG~%" and "\\" not in name:
        return name.encode()
    # Surrogate escapes that together encode a character are that character on disk.
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    if _is_plain(name):
        return name.encode()
    return (_PREFIX + _UNSAFE.sub(_escape, name)).encode()


def is_git_directory_name(name: str) -> bool:
    """Whether git treats *name* as ``.git``, on this or on any other system."""
    if name.isascii() and name[:1] not in (".", "g", "G"):
        return False
    return _GIT_DIRECTORY.fullmatch(name.translate(_FOLDING)) is not None


def _is_plain(name: str) -> bool:
    return not (
        name.startswith(_PREFIX)
        or "\\" in name
        or any("\udc80" <= char <= "\udcff" for char in name)
        or _SPECIAL.fullmatch(name.translate(_FOLDING))
    )


def _escape(char: re.Match[str]) -> str:
    return "%{:02X}".format(*char[0].encode("utf-8", "surrogateescape"))


def workspace_name(stored: bytes) -> str:
    """The inverse of ``stored_name``.

    Raises:
        LedgerDamagedError: If ``stored_name`` never returns *stored*.
    """
    if not stored.startswith(b"%"):
        return stored.decode("utf-8", "surrogateescape")
    escaped = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), stored[1:])
    name = escaped.decode("utf-8", "surrogateescape")
    if not name or stored_name(name) != stored:
        raise LedgerDamagedError(f"{stored!r} in the ledger is not a valid escaped name")
    return name
