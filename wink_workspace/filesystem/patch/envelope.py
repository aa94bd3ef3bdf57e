"""Parse the ``*** Begin Patch`` format, which locates hunks by text instead of line numbers.

::

    *** Begin Patch
    *** Update File: src/app.py
    *** Move to: src/main.py
    @@ class App
    @@ def run(self):
     a line of context
    -a line to remove
    +a line to add
    *** End of File
    *** Add File: notes.md
    +each line marked
    *** Delete File: old.txt
    *** End Patch

Rule 1: ``@@`` texts name the scopes of a hunk, such as a class and its method, the outermost
first. Line numbers as in a unified diff are accepted instead.
Rule 2: every file section ends at the next ``***`` line. ``*** End Patch`` may be missing at the
end of the text.
Rule 3: common deviations of models are accepted: indented markers, a unified diff between the
first and the last line, its header below an ``Update File`` line, and quotes or backticks around
a file name. If a name begins with ``a/`` or ``b/``, the existing files decide whether that is a
directory (``FilePatch.prefix_in_doubt``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from wink_workspace.filesystem.model import FileKind

from .parsed_patch import (
    BODY_SIGNS,
    EMPTY_LINES,
    FilePatch,
    Mode,
    PatchHunk,
    PatchLines,
    bare_name,
    hunk_body,
    is_header,
    malformed,
    patch_path,
    read_header,
    scope_text,
)
from .unified import parse_unified

_BEGIN = b"*** Begin Patch"
_END = b"*** End Patch"
_ADD = b"*** Add File:"
_UPDATE = b"*** Update File:"
_DELETE = b"*** Delete File:"
_MOVE = b"*** Move to:"
_END_OF_FILE = b"*** End of File"
_MARKERS = (_BEGIN, _END, _ADD, _UPDATE, _DELETE, _MOVE, _END_OF_FILE)
_PREFIXES = (b"a/", b"b/")
_NUMBERS = re.compile(rb"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})?(?: @@|\s*$)")


def is_envelope_start(line: bytes) -> bool:
    """Whether a patch of this format begins with *line*."""
    return line.strip() == _BEGIN


def parse_envelope(lines: PatchLines) -> tuple[FilePatch, ...]:
    """The file changes of a patch, in its order; the current line is ``*** Begin Patch``.

    Raises:
        PatchError: At the first line that does not parse.
        InvalidPathError: For a file name that is not a path in the workspace.
    """
    lines = _with_plain_markers(lines)
    begin = lines.number
    lines.at += 1
    patches: list[FilePatch] = []
    while not lines.ended and lines.peek().strip() != _END:
        if not lines.peek().strip():
            lines.at += 1
        elif not patches and is_header(lines):
            return _unified_inside(lines)
        else:
            patches.append(_section(lines))
    if not patches:
        raise malformed(begin, "the patch is empty", "Add a '*** Update File: NAME' section.")
    lines.at += 1
    _check_rest(lines)
    return tuple(patches)


def _with_plain_markers(lines: PatchLines) -> PatchLines:
    """The same lines with markers not indented, and with an ``*** End Patch`` if it was missing."""
    every = list(lines.all)
    first = lines.at
    rest = [line for line in every[first + 1 :] if line.strip()]
    indents = [
        _indent(line) for line in (every[first], *rest[:1]) if line.lstrip().startswith(b"*** ")
    ]
    indent = max(indents, key=len)
    if _indent(every[first]) and all(line.startswith(indent) for line in rest):
        every[first + 1 :] = [line[len(indent) :] for line in every[first + 1 :]]
    for n in range(first, len(every)):
        bare = every[n].removeprefix(indent)
        if n == first or (indent and bare.startswith(_MARKERS)):
            every[n] = bare.lstrip()
    _find_end(every, first)
    plain = PatchLines(every)
    plain.at = first
    return plain


def _indent(line: bytes) -> bytes:
    return line[: len(line) - len(line.lstrip(b" \t"))]


def _find_end(every: list[bytes], first: int) -> None:
    """If ``*** End Patch`` is missing, put it before the ends of shell and Markdown quoting."""
    if any(line.rstrip() == _END for line in every[first:]):
        return
    last = len(every)
    while last > first + 1 and every[last - 1].strip() in (b"", b"```", b"EOF", b"PATCH"):
        last -= 1
    if every[last - 1].strip() == _END:
        every[last - 1] = _END
    elif last < len(every) and every[last].strip():
        every[last] = _END


def _unified_inside(lines: PatchLines) -> tuple[FilePatch, ...]:
    end = lines.at
    while end < len(lines.all) and lines.all[end].rstrip() != _END:
        end += 1
    inside = PatchLines(lines.all[:end])
    inside.at = lines.at
    lines.at = end + 1
    _check_rest(lines)
    return parse_unified(inside)


def _check_rest(lines: PatchLines) -> None:
    while not lines.ended:
        if is_header(lines) or is_envelope_start(lines.peek()):
            raise malformed(
                lines.number, "a second patch after the end", "Put all files into one patch."
            )
        lines.at += 1


def _section(lines: PatchLines) -> FilePatch:
    number = lines.number
    line = lines.take()
    for start, parse in ((_ADD, _added), (_UPDATE, _updated), (_DELETE, _deleted)):
        if line.startswith(start):
            return parse(lines, bare_name(line[len(start) :].strip()), number)
    raise malformed(
        number,
        "not a section header",
        "Begin with '*** Add File: ', '*** Update File: ' or '*** Delete File: ' and the name;"
        " in an update begin each line with ' ', '-' or '+'.",
    )


def _deleted(_lines: PatchLines, name: bytes, number: int) -> FilePatch:
    return FilePatch(
        line=number,
        action="delete",
        source=patch_path(name, number),
        any_content=True,
        prefix_in_doubt=name.startswith(_PREFIXES),
    )


def _added(lines: PatchLines, name: bytes, number: int) -> FilePatch:
    _skip_header(lines, name)
    if _NUMBERS.match(lines.peek()):
        lines.at += 1
    n = 0
    while lines.peek(n).startswith((b"+", b"\\")):
        n += 1
    body = lines.all[lines.at : lines.at + n]
    lines.at += n
    hunks = (PatchHunk(number, hunk_body(body, number + 1)),) if body else ()
    return FilePatch(
        line=number,
        action="create",
        target=patch_path(name, number),
        hunks=hunks,
        new_mode=Mode(FileKind.FILE),
        prefix_in_doubt=name.startswith(_PREFIXES),
    )


def _skip_header(lines: PatchLines, name: bytes) -> None:
    """Skip the header of a unified diff, which may only repeat the name of the file."""
    if not is_header(lines):
        return
    number = lines.number
    header = read_header(lines)
    if not name.endswith(header.target_name or header.source_name):
        raise malformed(number, "the header names another file", "Omit the '---' and '+++' lines.")


def _updated(lines: PatchLines, name: bytes, number: int) -> FilePatch:
    source = target = patch_path(name, number)
    if lines.peek().startswith(_MOVE):
        target = patch_path(bare_name(lines.peek()[len(_MOVE) :].strip()), lines.number)
        lines.at += 1
    _skip_header(lines, name)
    hunks: list[PatchHunk] = []
    while _at_hunk(lines):
        hunks.append(_hunk(lines))
    if not hunks and source == target:
        raise malformed(number, "an update without any change", "Mark lines with '-' or '+'.")
    return FilePatch(
        line=number,
        action="modify" if source == target else "rename",
        source=source,
        target=target,
        hunks=tuple(hunks),
        prefix_in_doubt=name.startswith(_PREFIXES),
    )


def _at_hunk(lines: PatchLines) -> bool:
    """Skip empty lines between hunks; whether a hunk follows."""
    while not lines.ended and lines.peek() in EMPTY_LINES:
        lines.at += 1
    return lines.peek().startswith((b"@@", *BODY_SIGNS))


def _hunk(lines: PatchLines) -> PatchHunk:
    number = lines.number
    old_start: int | None = None
    new_start: int | None = None
    scopes: list[bytes] = []
    while lines.peek().startswith(b"@@"):
        stated = _NUMBERS.match(lines.peek())
        if stated is not None:
            old_start, new_start = int(stated[1]), int(stated[2])
        elif scope := scope_text(lines.peek()):
            scopes.append(scope)
        lines.at += 1
    first = lines.number
    body = _body(lines)
    at_end = lines.peek().rstrip() == _END_OF_FILE
    lines.at += at_end
    return PatchHunk(
        number, hunk_body(body, first), old_start, tuple(scopes), at_end, new_start, first
    )


def _body(lines: PatchLines) -> Sequence[bytes]:
    every, first = lines.all, lines.at
    while not lines.ended and (
        every[lines.at].startswith(BODY_SIGNS) or every[lines.at] in EMPTY_LINES
    ):
        lines.at += 1
    end = lines.at
    while end > first and every[end - 1] in EMPTY_LINES:
        end -= 1
    return every[first:end]
