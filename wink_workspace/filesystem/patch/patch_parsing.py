"""Parse a patch of either format, and name its files without reading any.

``unified`` and ``envelope`` parse the two formats.
"""

from __future__ import annotations

import re

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.paths import WorkspacePath

from .envelope import is_envelope_start, parse_envelope
from .headers import is_header
from .parsed_patch import FilePatch, PatchLines, malformed
from .unified import parse_unified

__all__ = ["parse_patch", "touched_paths", "without_prefix"]

_LITERAL_BREAK = re.compile(
    rb"""\s*(?: \*\*\*\ Begin\ Patch
           | \*\*\*\ (?:Add|Update|Delete)\ File:.*?(?=\\n(?:\*\*\*\ |@@|[ +-]))
           | (?:---|diff\ --git)\ .*?(?=\\n(?:\+\+\+\ |---\ |index\ |(?:new|old|deleted)\ ))
           | @@(?:[^@\\]*@@)?
         )\\n""",
    re.VERBOSE,
)


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    r"""Read a unified diff or a ``*** Begin Patch`` text.

    Text around the patch, such as a code fence, is skipped. If the header lines end with CRLF,
    so do all lines of the patch, and the ``\r`` is removed from each. Bytes that are not UTF-8
    are surrogate escapes in *text*.

    Raises:
        PatchError: If it does not parse; the message begins with the line number.
        InvalidPathError: If a file name in it is not a path inside the workspace.
        LimitExceededError: If a file name in it is too long.
    """
    lines = _lines(text)
    _check_line_breaks(lines)
    while not lines.ended:
        if is_envelope_start(lines.peek()):
            return parse_envelope(_without_returns(lines))
        if is_header(lines):
            break
        lines.at += 1
    lines = _without_returns(lines)
    lines.at = 0  # parse_unified recognizes some other formats and refuses them
    if patches := parse_unified(lines):
        return patches
    raise PatchError(
        "there is no patch in the text",
        hint="Send a unified diff with '--- a/NAME' and '+++ b/NAME' lines,"
        " or a text from '*** Begin Patch' to '*** End Patch'.",
    )


def touched_paths(text: str) -> tuple[WorkspacePath, ...]:
    """Every path that a patch reads or writes, each once, in the order of the patch.

    If only the files show whether an ``a/`` is a prefix, both paths are included.

    Raises:
        PatchError, InvalidPathError, LimitExceededError: As ``parse_patch``.
    """
    paths: dict[WorkspacePath, None] = {}
    for patch in parse_patch(text):
        for path in (patch.source, patch.target):
            if path is not None:
                paths[path] = None
                if patch.prefix_in_doubt and (bare_path := without_prefix(path)) is not None:
                    paths[bare_path] = None
    return tuple(paths)


def without_prefix(path: WorkspacePath) -> WorkspacePath | None:
    """*path* without its first part ``a`` or ``b``; ``None`` if it begins with neither."""
    has_prefix = path.parts[0] in ("a", "b") and len(path.parts) > 1
    return WorkspacePath(path.parts[1:]) if has_prefix else None


def _lines(text: str) -> PatchLines:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise malformed(
            line, "a lone surrogate, which is not a character", "Remove it, or send a character."
        ) from error
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return PatchLines(lines)


def _check_line_breaks(lines: PatchLines) -> None:
    r"""Refuse a text with a backslash and an ``n`` where a line should end."""
    for number, line in enumerate(lines.all, 1):
        if b"\\n" in line and _LITERAL_BREAK.match(line):
            raise malformed(
                number,
                r"the text has a literal '\n' (a backslash and an 'n') where a line should end",
                "Send real line breaks; in JSON, escape them with one backslash.",
            )


def _without_returns(lines: PatchLines) -> PatchLines:
    """The same lines, without ``CR`` at their ends if the current line, a header, has one."""
    if not lines.peek().endswith(b"\r"):
        return lines
    stripped = PatchLines([line.removesuffix(b"\r") for line in lines.all])
    stripped.at = lines.at
    return stripped
