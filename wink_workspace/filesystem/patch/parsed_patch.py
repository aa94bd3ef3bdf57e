"""The parts of a parsed patch, for both formats, and the lines from which it is parsed."""

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
"""The first characters of the lines of a hunk."""
EMPTY_LINES = (b"", b"\r")
"""Lines that count as empty context; many models and editors omit the space."""


@dataclass(frozen=True, slots=True)
class Hunk:
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
    hunks: tuple[Hunk, ...] = ()
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
