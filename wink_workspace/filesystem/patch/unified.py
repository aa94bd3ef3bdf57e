"""Parse unified diffs: git's, with all its extended headers, and plain ones.

Rule 1: the line counts of a hunk decide where it ends. If they do not fit, it ends before the
first line that cannot belong to a hunk. If that is ambiguous, or something else than a header
follows, the patch is refused.
Rule 2: text before the first header, and text that git puts around a patch in a mail, is
skipped. After a hunk, lines that could be part of it are not skipped.
"""

from __future__ import annotations

import re

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.git_binary import decode_lines, inflate

from .parsed_patch import (
    BODY_SIGNS,
    EMPTY_LINES,
    BinaryChange,
    FilePatch,
    Header,
    PatchHunk,
    PatchLines,
    hunk_body,
    is_header,
    is_name_pair,
    malformed,
    names_one_file,
    patch_path,
    read_header,
    scope_text,
)

MAX_BINARY_BYTES = 67_108_864
"""Most bytes (64 MiB) of inflated binary content in one patch."""

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))?(?: @@|\s*$)")
_BINARY = re.compile(rb"(literal|delta) (\d{1,12})")
_BOUNDARIES = (b"@@", b"diff ", b"--- ", b"-- ", b"*** ", b"Index: ", b"From ", b"Only in ", b"```")
_OTHER_FORM = (b"*** Begin", b"*** End", b"*** Add", b"*** Update", b"*** Delete", b"*** Move")
_MAY_MATTER = (b"diff ", b"-", b"+", b"@@", b"*", b"From ", b"GIT ")
_SIGNATURES = (b"-- ", b"--")  # between a patch and the version of git in a mail
_CORRECT_COUNTS = "Begin lines of context with a space, and correct the counts in the '@@' line."


def parse_unified(lines: PatchLines) -> tuple[FilePatch, ...]:
    """The file changes of a unified diff, in its order.

    Raises:
        PatchError: At the first line that does not parse.
        InvalidPathError: For a file name that is not a path in the workspace.
    """
    reader = _Reader(lines)
    patches: list[FilePatch] = []
    while reader.skip_to_header():
        patches.append(reader.section())
    return tuple(patches)


class _Reader:
    def __init__(self, lines: PatchLines) -> None:
        self.lines = lines
        self.n_inflated = 0
        self.after_hunk = False

    def skip_to_header(self) -> bool:
        """Skip to the next section; whether there is one."""
        while not self.lines.ended:
            line = self.lines.peek()
            if line.startswith(_MAY_MATTER):
                if is_header(self.lines):
                    return True
                self._check_skipped(line)
            self.lines.at += 1
        return False

    def _check_skipped(self, line: bytes) -> None:
        if line in _SIGNATURES or line.startswith(b"From "):
            self.after_hunk = False  # the text of a mail follows
        elif self.after_hunk and line.startswith((b"+", b"-", b"@@")):
            raise self._malformed("a changed line outside of a hunk", _CORRECT_COUNTS)
        elif line.startswith((b"diff --cc ", b"diff --combined ")):
            raise self._malformed("a combined diff of a merge", "Diff against one side only.")
        elif line == b"***************":
            raise self._malformed("a context diff", "Make a unified diff, as with `diff -u`.")
        elif line.startswith(_OTHER_FORM):
            raise self._malformed("two patch formats are mixed", "Send each as a separate patch.")
        elif line.startswith((b"@@ -", b"GIT binary patch")):
            raise self._malformed(
                "a change without a file header", "Begin with '--- a/NAME' and '+++ b/NAME'."
            )

    def section(self) -> FilePatch:
        header = read_header(self.lines)
        binary = self._binary_change(header)
        hunks: list[PatchHunk] = []
        while self.lines.peek().startswith(b"@@"):
            hunks.append(self._hunk())
        self.after_hunk = bool(hunks)
        return _file_patch(header, tuple(hunks), binary)

    def _malformed(self, problem: str, hint: str, n: int = 0) -> PatchError:
        return malformed(self.lines.number + n, problem, hint)

    # ------------------------------------------------------------------------ binary content

    def _binary_change(self, header: Header) -> BinaryChange | None:
        line = self.lines.peek()
        if line.startswith((b"Binary files ", b"Files ")) and line.endswith(b" differ"):
            raise self._malformed(
                "a change of a binary file, without its content",
                "Make the diff with `git diff --binary`, or write the file.",
            )
        if line != b"GIT binary patch":
            return None
        self.lines.at += 1
        method, data = self._binary_block()
        if self.lines.peek().startswith((b"literal ", b"delta ")):
            self._binary_block()  # the inverse change, which is not needed
        return BinaryChange(data, method == b"delta", *header.ids)

    def _binary_block(self) -> tuple[bytes, bytes]:
        start = _BINARY.fullmatch(self.lines.peek())
        if start is None:
            raise self._malformed("neither 'literal SIZE' nor 'delta SIZE'", "Use git's output.")
        n_bytes = int(start[2])
        self.n_inflated += n_bytes
        if self.n_inflated > MAX_BINARY_BYTES:
            raise self._malformed(
                f"{self.n_inflated} bytes of binary content, at most {MAX_BINARY_BYTES} allowed",
                "Send fewer files in one patch.",
            )
        n = 1
        while self.lines.peek(n):
            n += 1
        try:
            data = inflate(
                decode_lines(self.lines.all[self.lines.at + 1 : self.lines.at + n]), n_bytes
            )
        except ValueError as error:
            raise self._malformed(str(error), "Use git's output unchanged.") from error
        self.lines.at += n + 1
        return start[1], data

    # ----------------------------------------------------------------------------- one hunk

    def _hunk(self) -> PatchHunk:
        number = self.lines.number
        header = self.lines.peek()
        stated = _HUNK.match(header)
        if stated is None and header[2:].lstrip(b" ").startswith((b"-", b"+", b"@ ")):
            raise self._malformed("invalid hunk header", "Write '@@ -LINE,COUNT +LINE,COUNT @@'.")
        self.lines.at += 1
        n_lines = self._n_counted(stated) if stated else None
        if n_lines is None:
            n_lines = self._n_visible()
        first = self.lines.at
        self.lines.at += n_lines
        body = hunk_body(self.lines.all[first : first + n_lines], number + 1)
        if stated is not None:
            old_start, new_start = int(stated[1]), int(stated[3])
            return PatchHunk(
                number,
                body,
                old_start,
                new_start=new_start,
                body_line=number + 1,
                is_unified=True,
            )
        scope = scope_text(header)
        return PatchHunk(number, body, scopes=(scope,) if scope else (), body_line=number + 1)

    def _n_counted(self, stated: re.Match[bytes]) -> int | None:
        """The number of lines of the hunk by its counts; ``None`` if they do not fit."""
        n_old = int(stated[2] or 1)
        n_new = int(stated[4] or 1)
        lines, at = self.lines.all, self.lines.at
        while (n_old > 0 or n_new > 0) and at < len(lines):
            line = lines[at]
            if line.startswith(b"+"):
                n_new -= 1
            elif line.startswith(b"-"):
                n_old -= 1
            elif line.startswith(b" ") or line in EMPTY_LINES:
                n_old -= 1
                n_new -= 1
            elif not line.startswith(b"\\"):
                return None
            at += 1
        n = at - self.lines.at
        n += self.lines.peek(n).startswith(b"\\")
        fits = n_old == n_new == 0 and not self._continues(n)
        return n if fits else None

    def _continues(self, n: int) -> bool:
        line = self.lines.peek(n)
        is_body = line.startswith((b" ", b"-", b"+")) and line not in _SIGNATURES
        return is_body and not is_name_pair(self.lines, n)

    def _n_visible(self) -> int:
        """The number of lines that look like lines of a hunk, without empty ones at the end."""
        lines, at = self.lines.all, self.lines.at
        while at < len(lines) and (lines[at].startswith(BODY_SIGNS) or lines[at] in EMPTY_LINES):
            if lines[at].startswith(b"--") and self._ends_here(at - self.lines.at):
                break
            at += 1
        if at < len(lines) and not lines[at].startswith(_BOUNDARIES):
            n = at - self.lines.at
            raise self._malformed("not a line of a hunk", _CORRECT_COUNTS, n)
        while at > self.lines.at and lines[at - 1] in EMPTY_LINES:
            at -= 1
        return at - self.lines.at

    def _ends_here(self, n: int) -> bool:
        """Whether the hunk ends before this line, which begins like a removed line."""
        if not is_name_pair(self.lines, n):
            return self.lines.peek(n) in _SIGNATURES
        if names_one_file(self.lines, n) and self.lines.peek(n + 2).startswith(b"@@"):
            return True
        raise self._malformed(
            "this may be a file header or a changed line",
            "Correct the counts in the '@@' line before it.",
            n,
        )


def _file_patch(
    header: Header, hunks: tuple[PatchHunk, ...], binary: BinaryChange | None
) -> FilePatch:
    action = header.action
    _check_content(header, hunks, binary)
    return FilePatch(
        line=header.line,
        action=action,
        source=None if action == "create" else patch_path(header.source_name, header.line),
        target=None if action == "delete" else patch_path(header.target_name, header.line),
        hunks=hunks,
        binary=binary,
        old_mode=header.old_mode,
        new_mode=header.new_mode,
    )


def _check_content(
    header: Header, hunks: tuple[PatchHunk, ...], binary: BinaryChange | None
) -> None:
    """Refuse a missing change, and one that contradicts the header."""
    action = header.action
    changes_nothing = action == "modify" and header.new_mode is None and binary is None
    if not hunks and (header.expects_hunks or changes_nothing):
        raise malformed(
            header.line, "a file header without a change", "Add a hunk that begins with '@@'."
        )
    if hunks and binary is not None:
        raise malformed(hunks[0].line, "both binary and text changes", "Use two patches.")
    only = {"create": b"+", "delete": b"-"}.get(action, b"")
    for hunk in hunks:
        if not all(line.startswith(only) for line in hunk.body):
            raise malformed(
                hunk.line,
                f"the file is {action}d, so only '{only.decode()}' lines fit",
                "Correct the header, or mark every line.",
            )
    if action == "create" and len(hunks) > 1:
        raise malformed(hunks[1].line, "a second hunk for a new file", "Put all lines in one hunk.")
