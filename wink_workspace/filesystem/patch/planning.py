"""Patches: what they touch, and what they make of the files they are for.

Rule 1: all or nothing. A plan is made for the whole patch before anything is changed, and if
it cannot be made, the error tells of everything that is in the way, not of the first thing.
Rule 2: as with git, the order of the sections does not decide what they mean. What a section
deletes, renames or copies is the file as it was before the patch, and its name is free for
another section: two files may swap their names. A file that is only changed may be changed
again by a later section, also after it was made or renamed by an earlier one. Nothing else
may happen to one path twice.
Rule 3: nothing is overwritten that the patch does not show: a file to be made must not exist,
one to be deleted must have the content shown (``*** Delete File`` shows none and takes any).
Rule 4: a patch does not reach through a symbolic link, and changes a link only if it says
that it is one.

Where a hunk goes is decided in ``placing``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.git_binary import apply_delta, blob_id
from wink_workspace.filesystem.model import FileChange, FileKind, FileState, PatchedFile
from wink_workspace.filesystem.paths import WorkspacePath

from .envelope import is_envelope_start, parse_envelope
from .headers import is_header
from .parts import BinaryChange, FilePatch, Hunk, PatchLines, malformed
from .placing import Placed, place_hunks
from .reading import Effort
from .unified import MAX_BINARY_BYTES, parse_unified

__all__ = ["FilePatch", "Hunk", "PatchPlan", "parse_patch", "plan_patch", "touched_paths"]

_MAX_PROBLEMS_TOLD = 50
_LITERAL_BREAK = re.compile(
    rb"""\s*(?: \*\*\*\ Begin\ Patch
           | \*\*\*\ (?:Add|Update|Delete)\ File:.*?(?=\\n(?:\*\*\*\ |@@|[ +-]))
           | (?:---|diff\ --git)\ .*?(?=\\n(?:\+\+\+\ |---\ |index\ |(?:new|old|deleted)\ ))
           | @@(?:[^@\\]*@@)?
         )\\n""",
    re.VERBOSE,
)
_REPLACEMENT = "\ufffd".encode()
_LOST_BYTES = (
    "it adds U+FFFD, which stands for a byte that is not UTF-8 and does not say which; send the"
    " change as a 'GIT binary patch' (`git diff --binary`), or make it with a command"
)
_NO_TARGET = "no link can have this target; end it with '\\ No newline at end of file'"
_DONE: Mapping[str, Literal["created", "modified", "deleted", "moved"]] = {
    "create": "created",
    "copy": "created",
    "modify": "modified",
    "delete": "deleted",
    "rename": "moved",
}


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """What to do to apply a patch.

    ``changes`` has one entry for each path that will differ, in an order in which they can be
    carried out: first what is deleted, the deepest first. Where a directory turns into a
    file, this includes the directories in it that the patch empties; whether anything else
    is left in them shows when they are deleted. ``files`` says what each section did.
    """

    changes: tuple[FileChange, ...]
    files: tuple[PatchedFile, ...]


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    r"""Read a unified diff or a ``*** Begin Patch`` text.

    Text around the patch, such as a code fence, is skipped. If the header lines end with
    CRLF, the patch is taken as written so throughout and the ``\r`` as no part of it. Bytes
    that are not UTF-8 are surrogate escapes in *text*.

    Raises:
        PatchError: If it does not parse; the message begins with the line.
        InvalidPathError: If a file name in it is no path inside the workspace.
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
    lines.at = 0  # even without a header the text may be something that is told apart
    if patches := parse_unified(lines):
        return patches
    raise PatchError(
        "there is no patch in the text",
        hint="Send a unified diff with '--- a/NAME' and '+++ b/NAME' lines,"
        " or a text from '*** Begin Patch' to '*** End Patch'.",
    )


def touched_paths(text: str) -> tuple[WorkspacePath, ...]:
    """Every path that a patch reads or writes, each once, in the order of the patch.

    Where only the files can show whether an ``a/`` belongs to a name, both paths are given.

    Raises:
        PatchError, InvalidPathError, LimitExceededError: As ``parse_patch``.
    """
    paths: dict[WorkspacePath, None] = {}
    for patch in parse_patch(text):
        for path in (patch.source, patch.target):
            if path is not None:
                paths[path] = None
                if patch.prefix_in_doubt and (bare := _without_prefix(path)) is not None:
                    paths[bare] = None
    return tuple(paths)


def plan_patch(
    patches: Sequence[FilePatch], read: Callable[[WorkspacePath], FileState | None]
) -> PatchPlan:
    """What *patches* make of the files that *read* gives.

    Args:
        patches: A parsed patch.
        read: Gives what stands at a path, not following a link there, directories included;
            ``None`` if nothing does. It is asked once for each path and each one above, and
            never below something that is no directory.

    Raises:
        PatchError: If the patch does not apply; it tells of every problem in every file, or
            if it is too large or takes too long.
    """
    planner = _Planner(patches, read)
    for patch in planner.patches:
        planner.add(patch)
    planner.check_nesting()
    if planner.problems:
        raise _not_applicable(planner.problems)
    return PatchPlan(planner.changes(), tuple(planner.files))


def _lines(text: str) -> PatchLines:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise malformed(line, "a lone surrogate, which is no character", "Correct it.") from error
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return PatchLines(lines)


def _check_line_breaks(lines: PatchLines) -> None:
    r"""Refuse a text that has ``\n`` as two characters where a line should end."""
    for number, line in enumerate(lines.all, 1):
        if b"\\n" in line and _LITERAL_BREAK.match(line):
            raise malformed(
                number,
                r"the text has a literal '\n' (a backslash and an 'n') where a line should end",
                "Send real line breaks; in JSON that is the escape with one backslash.",
            )


def _without_returns(lines: PatchLines) -> PatchLines:
    """The same lines, without ``CR`` at their ends if the current one, a header, has it."""
    if not lines.peek().endswith(b"\r"):
        return lines
    stripped = PatchLines([line.removesuffix(b"\r") for line in lines.all])
    stripped.at = lines.at
    return stripped


def _not_applicable(problems: Sequence[str]) -> PatchError:
    told = [f"- {problem}" for problem in problems[:_MAX_PROBLEMS_TOLD]]
    if len(problems) > _MAX_PROBLEMS_TOLD:
        told.append(f"… {len(problems) - _MAX_PROBLEMS_TOLD} more problems")
    listed = "\n".join(told)
    return PatchError(f"the patch does not apply:\n{listed}\nso no file was changed")


class _Planner:
    """What the files were before the patch, and what its sections so far made of them."""

    def __init__(
        self, patches: Sequence[FilePatch], read: Callable[[WorkspacePath], FileState | None]
    ) -> None:
        self.problems: list[str] = []
        self.files: list[PatchedFile] = []
        self._read = read
        self._before: dict[WorkspacePath, FileState | None] = {}
        self._after: dict[WorkspacePath, FileState] = {}
        self._effort = Effort()
        self._n_binary_bytes = 0
        self._removed: dict[WorkspacePath, FilePatch] = {}
        self.patches = self._with_real_names(patches)
        for patch in self.patches:
            if patch.source is not None and patch.action in ("delete", "rename"):
                self._removed.setdefault(patch.source, patch)
        self._may_become_empty = {above for path in self._removed for above in path.ancestors()}

    def add(self, patch: FilePatch) -> None:
        """Plan one section, or note what is in the way."""
        if self._makes_missing_file(patch):
            patch = replace(patch, action="create", source=None)
        base = self._base(patch)
        target_is_free = self._target_is_free(patch)
        if base is None:
            return
        placed = self._new_content(patch, base)
        if placed is None or not target_is_free:
            return
        if patch.target is not None:
            state = _with_mode(patch, base, placed.data)
            if state.kind is FileKind.SYMLINK and not _is_target(state.data):
                self._refuse(patch.target, patch, _NO_TARGET)
            self._after[patch.target] = state
        self.files.append(_patched_file(patch, placed))

    def check_nesting(self) -> None:
        """Note each path that would be both a file and a directory."""
        for outer, inner in pairwise(sorted(self._after)):
            if inner.is_below(outer):
                self.problems.append(f"{inner}: the patch makes {outer} a file")

    def changes(self) -> tuple[FileChange, ...]:
        """What differs in the end, in an order in which it can be done."""
        paths = dict.fromkeys([*self._removed, *self._dissolved(), *self._after])
        changes = [FileChange(path, self._before[path], self._after.get(path)) for path in paths]
        changes = [change for change in changes if change.before != change.after]
        deletions = [change for change in changes if change.after is None]
        others = [change for change in changes if change.after is not None]
        deletions.sort(key=lambda change: (-len(change.path.parts), change.path))
        return (*deletions, *sorted(others, key=lambda change: change.path))

    def _dissolved(self) -> Iterator[WorkspacePath]:
        """The directories in those that turn into files, as far as the patch knows of them."""
        directory = FileState(FileKind.DIRECTORY)
        files = {path for path in self._after if self._before[path] == directory}
        for inner in self._may_become_empty if files else ():
            if inner not in files and not files.isdisjoint(inner.ancestors()):
                yield inner

    def _refuse(self, path: WorkspacePath, patch: FilePatch, problem: str) -> None:
        self.problems.append(f"{path} (patch line {patch.line}): {problem}")

    # ------------------------------------------------------------------------------- names

    def _with_real_names(self, patches: Sequence[FilePatch]) -> list[FilePatch]:
        """Take ``a/`` off where only the name without it is that of a file.

        New files follow: if a file that the patch changes has such a prefix, so have they.
        """
        made = {patch.target for patch in patches if patch.action != "modify"}
        real: list[FilePatch] = []
        for patch in patches:
            bare = _without_prefix(patch.source) if patch.source is not None else None
            is_prefix = (
                patch.prefix_in_doubt
                and patch.source not in made
                and bare is not None
                and patch.source is not None
                and self._original(patch.source) is None
                and self._original(bare) is not None
            )
            real.append(_bare(patch) if is_prefix else patch)
        if real == list(patches):
            return real
        return [
            _bare(patch)
            if patch.action == "create" and self._is_unlike_a_directory(patch)
            else patch
            for patch in real
        ]

    def _is_unlike_a_directory(self, patch: FilePatch) -> bool:
        top = WorkspacePath(patch.path.parts[:1])
        return patch.prefix_in_doubt and self._original(top) is None

    # -------------------------------------------------------------------- what stands where

    def _original(self, path: WorkspacePath) -> FileState | None:
        """What stood there before the patch; nothing does behind a file or a link."""
        if path in self._before:
            return self._before[path]
        obstacle = self._first_that_is_no_directory(path)
        state = self._read(path) if obstacle is None else None
        self._before[path] = state
        if state is not None:
            self._effort.allow(state.data)
        return state

    def _first_that_is_no_directory(self, path: WorkspacePath) -> WorkspacePath | None:
        """The uppermost ancestor that is missing, a file or a link."""
        for above in path.ancestors():
            if above.parts and above not in self._before:
                self._before[above] = self._read(above)
            state = self._before.get(above)
            if above.parts and (state is None or state.kind is not FileKind.DIRECTORY):
                return above
        return None

    def _obstacle(self, path: WorkspacePath) -> WorkspacePath | None:
        """The ancestor that is a file or a link and stays one."""
        above = self._first_that_is_no_directory(path)
        stays = above is not None and self._before[above] is not None and above not in self._removed
        return above if stays else None

    def _makes_missing_file(self, patch: FilePatch) -> bool:
        """Whether a plain diff, which has no other way to say so, means a new file."""
        return (
            patch.action == "modify"
            and patch.hunks[:1] != ()
            and patch.hunks[0].old_start == 0
            and patch.hunks[0].n_lines(b"+") == len(patch.hunks[0].body)
            and patch.path not in self._after
            and self._original(patch.path) is None
        )

    def _base(self, patch: FilePatch) -> FileState | None:
        """The file that a section starts from; ``None`` if there is none that fits."""
        path = patch.source
        if path is None:
            return FileState(FileKind.FILE)
        if patch.action == "modify" and path in self._after:
            return self._after[path]
        remover = self._removed.get(path, patch)
        if remover is not patch and patch.action != "copy":
            self._refuse(path, patch, f"line {remover.line} of the patch deletes or renames it too")
            return None
        state = self._original(path)
        problem = _kind_problem(patch, state)
        if state is None and (obstacle := self._obstacle(path)) is not None:
            problem = f"{obstacle} is no directory, and a patch does not reach through a link"
        if problem is not None:
            self._refuse(path, patch, problem)
            return None
        return state

    def _target_is_free(self, patch: FilePatch) -> bool:
        path = patch.target
        if path is None or patch.action == "modify":
            return True
        state = self._original(path)
        obstacle = self._obstacle(path)
        if path in self._after:
            problem = "another section of the patch makes or changes it"
        elif obstacle is not None:
            problem = f"{obstacle} is no directory, and a patch does not reach through a link"
        elif state is None or path in self._removed:
            return True
        elif state.kind is not FileKind.DIRECTORY:
            problem = "it exists already; change it, or let the patch delete it as well"
        elif path in self._may_become_empty:
            return True
        else:
            problem = "it is a directory"
        self._refuse(path, patch, problem)
        return False

    # ------------------------------------------------------------------------- new content

    def _new_content(self, patch: FilePatch, base: FileState) -> Placed | None:
        placed: Placed | None = Placed(base.data)
        if patch.binary is not None:
            placed = self._new_binary(patch, patch.binary, base.data)
        elif patch.hunks:
            placed = self._new_text(patch, base.data)
        if placed is None:
            return None
        if patch.action == "delete" and placed.data and not patch.any_content:
            self._refuse(patch.path, patch, "the patch deletes it without showing all its content")
            return None
        return placed

    def _new_text(self, patch: FilePatch, data: bytes) -> Placed | None:
        if (line := _line_with_lost_bytes(patch, data)) is not None:
            self.problems.append(f"{patch.path} (patch line {line}): {_LOST_BYTES}")
            return None
        placed = place_hunks(data, patch.hunks, self._effort)
        if isinstance(placed, Placed):
            return placed
        self.problems += [
            f"{patch.path}, hunk {misfit.number} (patch line {misfit.hunk.line}): {misfit.problem}"
            for misfit in placed
        ]
        return None

    def _new_binary(self, patch: FilePatch, change: BinaryChange, data: bytes) -> Placed | None:
        self._effort.spend((len(data) + len(change.data)) // 4)
        if patch.source is not None and not _is_named(data, change.old_id):
            problem = "its content is not the one that the full 'index' line of the patch names"
            self._refuse(patch.path, patch, problem)
            return None
        try:
            if change.is_delta:
                allowed = MAX_BINARY_BYTES - self._n_binary_bytes
                new = apply_delta(change.data, data, max_bytes=allowed)
            else:
                new = change.data
        except ValueError as error:
            self._refuse(patch.path, patch, f"the binary change does not fit: {error}")
            return None
        self._n_binary_bytes += len(new)
        return Placed(new)


def _without_prefix(path: WorkspacePath) -> WorkspacePath | None:
    has_prefix = path.parts[0] in ("a", "b") and len(path.parts) > 1
    return WorkspacePath(path.parts[1:]) if has_prefix else None


def _bare(patch: FilePatch) -> FilePatch:
    source, target = (
        path if path is None else _without_prefix(path) or path
        for path in (patch.source, patch.target)
    )
    return replace(patch, source=source, target=target, prefix_in_doubt=False)


def _line_with_lost_bytes(patch: FilePatch, data: bytes) -> int | None:
    """The line of the patch that adds U+FFFD where it can only stand for an unknown byte."""
    if _REPLACEMENT in data:
        return None
    for hunk in patch.hunks:
        for n, line in enumerate(hunk.body):
            if line.startswith(b"+") and _REPLACEMENT in line:
                return None if _is_utf_8(data) else hunk.body_line + n
    return None


def _is_utf_8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_named(data: bytes, name: str) -> bool:
    return len(name) in (40, 64) and blob_id(data, n_digits=len(name)) == name


def _kind_problem(patch: FilePatch, state: FileState | None) -> str | None:
    """Why *state* is nothing that the section can start from."""
    if state is None:
        return "it does not exist"
    if state.kind is FileKind.DIRECTORY:
        return "it is a directory"
    if patch.old_mode is not None and patch.old_mode.kind is not state.kind:
        return f"it is a {state.kind}, not a {patch.old_mode.kind}"
    if patch.new_mode is not None and patch.new_mode.kind is not state.kind:
        return "a file and a link turn into one another only by deleting and making"
    if state.kind is FileKind.SYMLINK and patch.old_mode is None and (patch.hunks or patch.binary):
        target = state.data.decode("utf-8", "replace")
        return f"it is a link to {target!r}; patch the file that it leads to"
    return None


def _is_target(data: bytes) -> bool:
    return data != b"" and b"\0" not in data and not data.endswith(b"\n")


def _with_mode(patch: FilePatch, base: FileState, data: bytes) -> FileState:
    if patch.new_mode is None:
        return FileState(base.kind, data, base.executable)
    return FileState(patch.new_mode.kind, data, patch.new_mode.executable)


def _patched_file(patch: FilePatch, placed: Placed) -> PatchedFile:
    return PatchedFile(
        patch.path,
        _DONE[patch.action],
        moved_from=patch.source if patch.action == "rename" else None,
        n_added=sum(hunk.n_lines(b"+") for hunk in patch.hunks),
        n_removed=sum(hunk.n_lines(b"-") for hunk in patch.hunks),
        offset_lines=placed.offset_lines,
        lines=placed.lines if patch.action != "delete" else (),
        ignored_lines=placed.ignored_lines,
        notes=placed.notes,
    )
