"""What a patch consists of, whichever form it was written in, and the lines it is read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath, parse_path

__all__ = [
    "BODY_SIGNS",
    "EMPTY_LINES",
    "BinaryChange",
    "FilePatch",
    "Hunk",
    "Mode",
    "PatchLines",
    "hunk_body",
    "malformed",
    "patch_path",
    "scope_text",
]

BODY_SIGNS = (b" ", b"-", b"+", b"\\")
"""How a line of a hunk begins."""
EMPTY_LINES = (b"", b"\r")
"""Lines that count as empty context, for which many a writer forgets the space."""


@dataclass(frozen=True, slots=True)
class Hunk:
    r"""One place to change.

    Args:
        line: Its line in the patch.
        body: The lines, each after its ``b" "``, ``b"-"`` or ``b"+"`` and with its ``\n``, which
            only a last line without a final newline lacks.
        old_start: The number of the first old line as stated (0: before the first), or
            ``None`` where the patch does not say.
        scopes: Lines between which it stands, the outermost first, such as a class and a
            method of it.
        at_end: Whether its last old line is the file's last.
        new_start: The number of the first new line as stated, or ``None`` as above.
        body_line: The line in the patch at which the body begins.
        is_unified: Whether it is written as tools do, with context on both sides of a change
            unless the file ends there.
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
        """How many of its lines begin with *sign*."""
        return sum(line.startswith(sign) for line in self.body)


@dataclass(frozen=True, slots=True)
class Mode:
    """What a git file mode says that a workspace keeps."""

    kind: FileKind
    executable: bool = False


@dataclass(frozen=True, slots=True)
class BinaryChange:
    """New content as such, or as a delta to the old one, with git's names for both contents."""

    data: bytes
    is_delta: bool
    old_id: str
    new_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePatch:
    """What a patch does to one file.

    Args:
        line: The line in the patch where it begins.
        action: ``source`` is ``None`` for ``"create"``, ``target`` for ``"delete"``; for
            ``"modify"`` they are equal.
        hunks: The changes to the text, in the order of the patch.
        binary: The change to content that is not text.
        old_mode: What the file must be, where the patch says so.
        new_mode: What it becomes, where the patch says so.
        any_content: Deletes whatever the content is.
        prefix_in_doubt: Whether its names may have an ``a/`` or ``b/`` that is no directory.
    """

    line: int
    action: Literal["create", "modify", "delete", "rename", "copy"]
    source: WorkspacePath | None = None
    target: WorkspacePath | None = None
    hunks: tuple[Hunk, ...] = ()
    binary: BinaryChange | None = None
    old_mode: Mode | None = None
    new_mode: Mode | None = None
    any_content: bool = False
    prefix_in_doubt: bool = False

    @property
    def path(self) -> WorkspacePath:
        """The file's name afterwards, or the last one it had."""
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
        """The current line; the next one is current then."""
        line = self.peek()
        self.at += 1
        return line


def malformed(line: int, problem: str, hint: str) -> PatchError:
    """The error for a patch that does not parse."""
    return PatchError(f"patch line {line}: {problem}", hint=hint)


def patch_path(name: bytes, line: int) -> WorkspacePath:
    """The file that *name* means.

    Raises:
        InvalidPathError: If it is no path, or leads outside.
        LimitExceededError: If it is too long.
        PatchError: If it names the root.
    """
    path = parse_path(name.decode("utf-8", "surrogateescape"))
    if not path.parts:
        raise malformed(line, "the file's name is missing", "Name a file in the header.")
    return path


def hunk_body(lines: Sequence[bytes], first: int) -> tuple[bytes, ...]:
    r"""A hunk's lines as ``Hunk.body`` has them; *first* is the number of the first.

    A ``\ No newline at end of file`` takes the newline off the line before it.
    """
    body: list[bytes] = []
    ended = b""  # the signs of lines that may not follow, since the file has ended
    for number, line in enumerate(lines, first):
        if line.startswith(b"\\"):
            ended += _end_without_newline(body, number)
            continue
        text = b" " + line if line in EMPTY_LINES else line
        if ended and text[:1] in ended:
            raise malformed(
                number,
                "a line follows one that is marked as the last of the file",
                "Put '\\ No newline at end of file' only after the last line.",
            )
        body.append(text + b"\n")
    if not any(line.startswith((b"-", b"+")) for line in body):
        raise malformed(
            first - 1, "the hunk changes nothing", "Mark lines with '-' or '+', or leave it out."
        )
    return tuple(body)


def _end_without_newline(body: list[bytes], number: int) -> bytes:
    """Take the newline off the last line; the signs of lines that may not follow it."""
    if not body or not body[-1].endswith(b"\n"):
        raise malformed(
            number,
            "a '\\' line without a line that it belongs to",
            "Put '\\ No newline at end of file' directly after the last line.",
        )
    body[-1] = body[-1][:-1]
    sign = body[-1][:1]
    return b" -+" if sign == b" " else b" " + sign


def scope_text(header: bytes) -> bytes:
    """What stands after ``@@`` in a header without line numbers; empty for ``@@ ... @@``."""
    text = header[2:].strip().removesuffix(b"@@").rstrip()
    return b"" if text in (b"...", b"\xe2\x80\xa6") else text
