r"""How the names of a workspace stand in git trees: as they are, or escaped.

Rule 1: a name is a sequence of bytes (in a ``str``, those that are not UTF-8 are surrogate
escapes). Different names are stored differently, and what was stored comes back exactly.
Rule 2: whether a name is escaped depends on that name and on fixed tables alone. Neither the
kind of the file nor Python's version of Unicode matters, so the same name never moves.
Rule 3: escaped are the names that git, libgit2 or ``git fsck`` treat as something else than a
name, in every disguise that Windows and macOS see through: ``.git``, ``.gitmodules`` and
``.gitattributes`` (fsck reads the last two and may refuse what it finds), whatever holds a
backslash or bytes that are not UTF-8, and whatever looks escaped itself. All other names stay
readable in plain git, ``.gitignore`` and ``.github`` too.

An escaped name is ``%``, then the name with ``%``, ``\`` and each byte that is not UTF-8 as
``%XX``. It is at most 766 bytes long. Git sets no limit for a name in a tree, fsck warns
above 4,096 bytes, and nothing ever makes a file of that name, so over-long escapes need no
place of their own.
"""

from __future__ import annotations

import re

from wink_workspace.errors import LedgerDamagedError

__all__ = ["is_git_directory_name", "stored_name", "workspace_name"]

_PREFIX = "%"

# What git's own checks ignore inside a name because HFS+ does.
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
    """The name under which *name* stands in a tree."""
    if name.isascii() and name[0] not in ".gG~%" and "\\" not in name:
        return name.encode()
    # Two surrogate escapes that make up a character together are that character on disk.
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    if _is_plain(name):
        return name.encode()
    return (_PREFIX + _UNSAFE.sub(_escape, name)).encode()


def is_git_directory_name(name: str) -> bool:
    """Whether git takes *name* for ``.git``, on this or on any other system."""
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
    """The name of which ``stored_name`` made *stored*.

    Raises:
        LedgerDamagedError: If it made *stored* of no name.
    """
    if not stored.startswith(b"%"):
        return stored.decode("utf-8", "surrogateescape")
    escaped = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), stored[1:])
    name = escaped.decode("utf-8", "surrogateescape")
    if not name or stored_name(name) != stored:
        raise LedgerDamagedError(f"{stored!r} in the ledger is not a name that it escaped")
    return name
