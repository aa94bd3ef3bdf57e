"""The parts of a parsed patch, for both formats, and the lines from which it is parsed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.git_names import unquote_name
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath, parse_path

BODY_SIGNS = (b" ", b"-", b"+", b"\\")
"""The first characters of the lines of a hunk."""
EMPTY_LINES = (b"", b"\r")
"""Lines that count as empty context; many models and editors omit the space."""


@dataclass(frozen=True, slots=True)
class PatchHunk:
    r"""One hunk of a patch.

    Args:
        line: Its line number in the patch.
        body: The lines, each with its ``b" "``, ``b"-"`` or ``b"+"`` and its ``\n``. Only the last
            line of a file without a final newline has no ``\n``.
        old_start: The stated number of the first old line (0: before the first), or ``None``.
        scopes: The texts after ``@@`` of the lines that enclose it, the outermost first, such as
            a class and a method.
        at_end: Whether its last old line is the last line of the file.
        new_start: The stated number of the first new line, or ``None``.
        body_line: The line number in the patch at which the body begins.
        is_unified: Whether it has context on both sides of its changes, as tools write it,
            except at the start or end of the file.
    """

    line: int
    body: tuple[bytes, ...]
    old_start: int | None = None
    scopes: tuple[bytes, ...] = ()
    at_end: bool = False
    new_start: int | None = None
    body_line: int = 0
    is_unified: bool = False

    def n_lines(self, sign: bytes) -> int:
        """The number of lines that begin with *sign*."""
        return sum(line.startswith(sign) for line in self.body)


@dataclass(frozen=True, slots=True)
class Mode:
    """The part of a git file mode that a workspace stores."""

    kind: FileKind
    executable: bool = False


@dataclass(frozen=True, slots=True)
class BinaryChange:
    """New content, or a delta against the old content, with git's ids of both contents."""

    data: bytes
    is_delta: bool
    old_id: str
    new_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatch:
    """The change of a patch to one file.

    Args:
        line: The line number in the patch at which it begins.
        action: ``source`` is ``None`` for ``"create"``, ``target`` for ``"delete"``; for
            ``"modify"`` they are equal.
        hunks: The changes to the text, in the order of the patch.
        binary: The change to binary content.
        old_mode: The mode that the file must have, if the patch states it.
        new_mode: The mode that it gets, if the patch states it.
        any_content: Delete the file whatever its content.
        prefix_in_doubt: Whether an ``a/`` or ``b/`` in its names may be a prefix instead of a
            directory.
    """

    line: int
    action: Literal["create", "modify", "delete", "rename", "copy"]
    source: WorkspacePath | None = None
    target: WorkspacePath | None = None
    hunks: tuple[PatchHunk, ...] = ()
    binary: BinaryChange | None = None
    old_mode: Mode | None = None
    new_mode: Mode | None = None
    any_content: bool = False
    prefix_in_doubt: bool = False

    @property
    def path(self) -> WorkspacePath:
        """The path of the file after the change; for a deletion, before it."""
        path = self.target or self.source
        assert path is not None  # noqa: S101 - one is set for each action
        return path


class PatchLines:
    """The lines of a patch, without line ends, and a position in them."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.all = lines
        self.at = 0

    @property
    def number(self) -> int:
        """The current line's number, from 1."""
        return self.at + 1

    @property
    def ended(self) -> bool:
        """Whether no line is left."""
        return not self.has(0)

    def has(self, n: int) -> bool:
        """Whether there is an *n*-th line from the current one."""
        return self.at + n < len(self.all)

    def peek(self, n: int = 0) -> bytes:
        """The *n*-th line from the current one; empty after the end."""
        try:
            return self.all[self.at + n]
        except IndexError:
            return b""

    def take(self) -> bytes:
        """The current line; moves on to the next one."""
        line = self.peek()
        self.at += 1
        return line


def malformed(line: int, problem: str, hint: str) -> PatchError:
    """The error for a patch that does not parse."""
    return PatchError(f"patch line {line}: {problem}", hint=hint)


def patch_path(name: bytes, line: int) -> WorkspacePath:
    """The path of the file *name* in a patch.

    Raises:
        InvalidPathError: If it is not a valid path, or leads outside.
        LimitExceededError: If it is too long.
        PatchError: If it is the root.
    """
    path = parse_path(name.decode("utf-8", "surrogateescape"))
    if not path.parts:
        raise malformed(line, "the file's name is missing", "Name a file in the header.")
    return path


def hunk_body(lines: Sequence[bytes], first: int) -> tuple[bytes, ...]:
    r"""``Hunk.body`` for the lines of a hunk; *first* is the number of the first line.

    A ``\ No newline at end of file`` removes the newline of the line before it.
    """
    body: list[bytes] = []
    ended = b""  # the signs of lines that may not follow, since the file ended
    for number, line in enumerate(lines, first):
        if line.startswith(b"\\"):
            ended += _end_without_newline(body, number)
            continue
        text = b" " + line if line in EMPTY_LINES else line
        if ended and text[:1] in ended:
            raise malformed(
                number,
                "a line follows the line that is marked as the last of the file",
                "Put '\\ No newline at end of file' only after the last line.",
            )
        body.append(text + b"\n")
    if not any(line.startswith((b"-", b"+")) for line in body):
        raise malformed(
            first - 1, "the hunk changes nothing", "Mark lines with '-' or '+', or omit the hunk."
        )
    return tuple(body)


def _end_without_newline(body: list[bytes], number: int) -> bytes:
    """Remove the newline of the last line; the signs of lines that may not follow it."""
    if not body or not body[-1].endswith(b"\n"):
        raise malformed(
            number,
            "a '\\' line that does not follow a line of the hunk",
            "Put '\\ No newline at end of file' directly after the last line.",
        )
    body[-1] = body[-1][:-1]
    sign = body[-1][:1]
    return b" -+" if sign == b" " else b" " + sign


def scope_text(header: bytes) -> bytes:
    """The text after ``@@`` in a header without line numbers; empty for ``@@ ... @@``."""
    text = header[2:].strip().removesuffix(b"@@").rstrip()
    return b"" if text in (b"...", b"\xe2\x80\xa6") else text


# ---------------------------------------------------------------------------------------- headers

# The header of a file in a unified diff: its names, its mode, and the kind of change.
#
# Rule 1: a header that names two files without ``rename`` or ``copy`` is refused.
# Rule 2: names have a prefix (``a/`` and ``b/``, or any two that differ) if they are equal without
# it; otherwise they have none. The lines of a rename or copy never have one.


_MODE = re.compile(rb"[0-7]{6}")
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?")
_TIME = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{1,9})?(?: ?([+-]\d{4}))?")
_MAX_SPACES = 64
_EXTENDED = (
    b"old mode ",
    b"new mode ",
    b"deleted file mode ",
    b"new file mode ",
    b"rename from ",
    b"rename to ",
    b"copy from ",
    b"copy to ",
    b"index ",
    b"similarity index ",
    b"dissimilarity index ",
)


@dataclass(slots=True)
class Header:
    """The content of the lines before the first hunk.

    ``name`` is the name of the file without prefix, unless there are two names. ``old_name``
    and ``new_name`` are the names as written. ``line`` is the number of the first line.
    ``expects_hunks`` is set if there are ``---`` and ``+++`` lines.
    """

    line: int
    name: bytes | None = None
    old_name: bytes | None = None
    new_name: bytes | None = None
    moved_from: bytes | None = None
    moved_to: bytes | None = None
    is_copy: bool = False
    created: bool = False
    deleted: bool = False
    expects_hunks: bool = False
    old_mode: Mode | None = None
    new_mode: Mode | None = None
    ids: tuple[str, str] = ("", "")

    @property
    def action(self) -> Literal["create", "modify", "delete", "rename", "copy"]:
        """The kind of change to the file."""
        if self.moved_from != self.moved_to:
            return "copy" if self.is_copy else "rename"
        if self.created:
            return "create"
        return "delete" if self.deleted else "modify"

    @property
    def source_name(self) -> bytes:
        """The name of the file before the change."""
        return self.moved_from or self.name or b""

    @property
    def target_name(self) -> bytes:
        """The name of the file after the change."""
        return self.moved_to or self.name or b""


def is_header(lines: PatchLines) -> bool:
    """Whether the section of a file begins at the current line."""
    return lines.peek().startswith(b"diff --git ") or is_name_pair(lines)


def is_name_pair(lines: PatchLines, n: int = 0) -> bool:
    """Whether the *n*-th line from the current one and the next are ``---`` and ``+++`` lines."""
    return lines.peek(n).startswith(b"--- ") and lines.peek(n + 1).startswith(b"+++ ")


def names_one_file(lines: PatchLines, n: int) -> bool:
    """Whether the ``---`` and ``+++`` lines at *n* look like a header, not like changed lines."""
    old, _ = _file_name(lines.peek(n)[4:])
    new, _ = _file_name(lines.peek(n + 1)[4:])
    return old is None or new is None or _common_name(old, new) is not None


def read_header(lines: PatchLines) -> Header:
    """The header at the current line; moves *lines* behind it.

    Raises:
        PatchError: If it contradicts itself or does not name its file.
    """
    header = Header(lines.number)
    if lines.peek().startswith(b"diff --git "):
        header.name = _name_in_git_line(lines.take().removeprefix(b"diff --git "))
        while _take_extended(header, lines.peek(), lines.number):
            lines.at += 1
    if is_name_pair(lines):
        _take_name_pair(header, lines)
    _check_names(header)
    return header


def _take_extended(header: Header, line: bytes, number: int) -> bool:
    """Add an extended header line to *header*; whether *line* is one."""
    if not line.startswith(_EXTENDED):
        return False
    key = next(key for key in _EXTENDED if line.startswith(key))
    value = line[len(key) :]
    if b" mode " in key:
        _note_mode(header, key, _mode(value, number))
    elif key.startswith((b"rename", b"copy")):
        _note_move(header, key, _plain_name(value, number))
    elif key == b"index " and (index := _INDEX.fullmatch(value)):
        header.ids = (index[1].decode(), index[2].decode())
        if index[3]:
            header.old_mode = _mode(index[3], number)
    return True


def _note_mode(header: Header, key: bytes, mode: Mode) -> None:
    header.created |= key.startswith(b"new file")
    header.deleted |= key.startswith(b"deleted")
    if key.startswith(b"new"):
        header.new_mode = mode
    else:
        header.old_mode = mode


def _note_move(header: Header, key: bytes, name: bytes) -> None:
    header.is_copy = key.startswith(b"copy")
    if key.endswith(b"from "):
        header.moved_from = name
    else:
        header.moved_to = name


def _mode(text: bytes, number: int) -> Mode:
    bits = int(text, 8) if _MODE.fullmatch(text) else 0
    if bits & 0o170000 == 0o120000:
        return Mode(FileKind.SYMLINK)
    if bits & 0o170000 != 0o100000:
        raise malformed(
            number,
            f"unsupported mode {_shown(text)}; use 100644, 100755 (executable) or 120000 (link)",
            "Change files and links only; directories and submodules cannot be patched.",
        )
    return Mode(FileKind.FILE, executable=bool(bits & 0o111))


# ---------------------------------------------------------------------------------------- names


def _take_name_pair(header: Header, lines: PatchLines) -> None:
    header.old_name, created = _file_name(lines.take()[4:])
    header.new_name, deleted = _file_name(lines.take()[4:])
    header.created |= created
    header.deleted |= deleted
    header.expects_hunks = True


def _file_name(text: bytes) -> tuple[bytes | None, bool]:
    """The name in a ``---`` or ``+++`` line (``None`` for /dev/null); whether there is no file."""
    if text.startswith(b'"') and (unquoted := unquote_name(text)):
        return unquoted[0], _is_epoch(unquoted[1])
    name, tab, time = text.partition(b"\t")
    if not tab and (spaced := _TIME.search(text)) and spaced.end() == len(text.rstrip()):
        name, time = text[: spaced.start()].rstrip(), spaced[0]
    name = bare_name(name)
    if name.rstrip() == b"/dev/null":
        return None, True
    return name, _is_epoch(time)


def bare_name(name: bytes) -> bytes:
    """A file name without backticks or quotes around it."""
    for sign in (b"`", b'"', b"'"):
        if len(name) > 2 and name.startswith(sign) and name.endswith(sign):
            return name[1:-1]
    return name


def _is_epoch(time: bytes) -> bool:
    """Whether this is second 0 of 1970: the time that `diff -N` gives a missing file."""
    stamp = _TIME.fullmatch(time.strip())
    if stamp is None:
        return False
    try:
        text = f"{stamp[1].decode()} {(stamp[2] or b'+0000').decode()}"
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S %z").timestamp() == 0
    except ValueError:
        return False


def _plain_name(text: bytes, number: int) -> bytes:
    if not text.startswith(b'"'):
        return text
    unquoted = unquote_name(text)
    if unquoted is None:
        raise malformed(
            number, f"{_shown(text)} is not a quoted name", "Close the quotes; escape with '\\'."
        )
    return unquoted[0]


def _name_in_git_line(text: bytes) -> bytes | None:
    """The name without prefix in ``a/NAME b/NAME``; ``None`` if that is ambiguous."""
    if text.startswith(b'"'):
        old, rest = unquote_name(text) or (b"", b"")
        return _common_name(old, _unquoted(rest.removeprefix(b" "))) or None
    if text.endswith(b'"'):
        old, _, rest = text.partition(b' "')
        return _common_name(old, _unquoted(b'"' + rest)) or None
    middle = len(text) // 2  # the split, if both prefixes have the same length
    for at in (middle, *islice(_spaces(text), _MAX_SPACES)):
        if text[at : at + 1] == b" " and (name := _common_name(text[:at], text[at + 1 :])):
            return name
    return None


def _unquoted(text: bytes) -> bytes:
    quoted = unquote_name(text)
    return quoted[0] if quoted else text


def _spaces(text: bytes) -> Iterator[int]:
    at = text.find(b" ")
    while at != -1:
        yield at
        at = text.find(b" ", at + 1)


def _common_name(old: bytes, new: bytes) -> bytes | None:
    """The name of the file, if both name the same one."""
    if old == new:
        return old
    rest_old, rest_new = (name.partition(b"/")[2] for name in (old, new))
    if rest_old and rest_old == rest_new:
        return rest_old
    if _without_prefix(old) == new or old == _without_prefix(new):
        return min(old, new, key=len)
    return None


def _without_prefix(name: bytes) -> bytes:
    return name[2:] if name.startswith((b"a/", b"b/")) else name


def _check_names(header: Header) -> None:
    """Set the name, unless this is a move, and check that all lines agree with it."""
    if header.moved_from is not None or header.moved_to is not None:
        _check_move(header)
        return
    if header.created and header.deleted:
        raise malformed(
            header.line, "a file both created and deleted", "Use two sections, one for each."
        )
    old, new = header.old_name, header.new_name
    if header.name is None and old is not None and new is not None:
        header.name = _common_name(old, new)
    elif header.name is None:
        header.name = _without_prefix(old or new or b"") or None
        if header.name is None:
            raise malformed(
                header.line, "the file's name is missing", "Write '--- a/NAME' and '+++ b/NAME'."
            )
    if header.name is None or not all(_agrees(name, header.name) for name in (old, new)):
        raise malformed(
            header.line,
            "the header names different files",
            "Use one name, or add 'rename from OLD' and 'rename to NEW' after 'diff --git'.",
        )


def _check_move(header: Header) -> None:
    is_consistent = _agrees(header.old_name, header.moved_from) and _agrees(
        header.new_name, header.moved_to
    )
    if not is_consistent or header.created or header.deleted:
        raise malformed(
            header.line,
            "the header contradicts itself about the rename or copy",
            "Give 'rename from OLD' and 'rename to NEW', and the same names after '---' and '+++'.",
        )


def _agrees(written: bytes | None, name: bytes | None) -> bool:
    """Whether *written*, if not ``None``, is *name*, with or without a prefix."""
    return name is not None and (
        written is None or written == name or written.partition(b"/")[2] == name
    )


def _shown(text: bytes) -> str:
    return repr(text[:60].decode("utf-8", "replace"))
