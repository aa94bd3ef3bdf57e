"""Plan the changes that a patch makes.

Rule 1: all or nothing. The plan covers the whole patch before anything is changed. If that fails,
the error lists all problems, not just the first.
Rule 2: as with git, the order of the sections does not matter. A section deletes, renames or
copies the file as it was before the patch, and the old name is free for another section: two
files may swap their names. A file that is only modified may be modified again by a later section,
also if an earlier section created or renamed it. Nothing else may happen to a path twice.
Rule 3: the patch never overwrites content that it does not show. A file to be created must not
exist. A file to be deleted must have the content shown; ``*** Delete File`` accepts any content.
Rule 4: a patch does not follow symbolic links, and changes a link only if it states that the path
is a link.

``placing`` decides where a hunk is applied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from wink_workspace.errors import BinaryFileError, EditError, PatchError
from wink_workspace.filesystem.git_binary import apply_delta, blob_id
from wink_workspace.filesystem.model import Change, FileChange, FileKind, FileState, PatchedFile
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.filesystem.text import TextContent

from .envelope import is_envelope_start, parse_envelope
from .parsed_patch import BinaryChange, FilePatch, PatchLines, is_header, malformed
from .placing import Placed, place_hunks
from .unified import MAX_BINARY_BYTES, parse_unified
from .views import Effort

# ---------------------------------------------------------------------------------- patch parsing

# Parse a patch of either format, and name its files without reading any.
#
# ``unified`` and ``envelope`` parse the two formats.


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


# ------------------------------------------------------------------------------------- patch plan


_MAX_PROBLEMS_SHOWN = 50
_NO_TARGET = (
    "a link cannot have this target: it is empty, has a NUL byte, or ends with a line break;"
    " give a path, and add the line '\\ No newline at end of file' after it"
)
_NOT_DIRECTORY = "is not a directory, and a patch does not follow links; use the real path"
_IS_DIRECTORY = "it is a directory; name a file in it"
_DONE: Mapping[str, Literal["created", "modified", "deleted", "moved"]] = {
    "create": "created",
    "copy": "created",
    "modify": "modified",
    "delete": "deleted",
    "rename": "moved",
}


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """The changes that apply a patch.

    ``changes`` has one entry for each path that will differ, in an order that can be carried
    out: deletions first, the deepest path first. If a directory becomes a file, they include
    the directories in it that the patch empties. Deleting these fails if they have other
    entries. ``files`` describes what each section does.
    """

    changes: tuple[FileChange, ...]
    files: tuple[PatchedFile, ...]


def plan_patch(
    patches: Sequence[FilePatch],
    read: Callable[[WorkspacePath], FileState | None],
    *,
    encoding: str | None = None,
) -> PatchPlan:
    """The changes that *patches* make to the files that *read* returns.

    Args:
        patches: A parsed patch.
        read: Returns the state of a path, or ``None``; it does not follow links. It is called
            once for each path and each of its parents, and never below something that is not
            a directory.
        encoding: The encoding of new files, and of those for which it would be a guess.

    Raises:
        PatchError: If the patch does not apply, with every problem in every file; or if it is
            too large or takes too long.
        UsageError: If no encoding has this name.
    """
    planner = _Planner(patches, read, encoding)
    for patch in planner.patches:
        planner.add(patch)
    planner.check_nesting()
    if planner.problems:
        raise _not_applicable(planner.problems)
    return PatchPlan(planner.changes(), tuple(planner.files))


def _not_applicable(problems: Sequence[str]) -> PatchError:
    shown = [f"- {problem}" for problem in problems[:_MAX_PROBLEMS_SHOWN]]
    if len(problems) > _MAX_PROBLEMS_SHOWN:
        shown.append(f"… {len(problems) - _MAX_PROBLEMS_SHOWN} more problems")
    listed = "\n".join(shown)
    return PatchError(
        f"no file was changed, because the patch does not apply:\n{listed}",
        hint="Correct all of these, from the present content of the files, and send the whole"
        " patch again.",
    )


class _Planner:
    """The states of the files before the patch and after the sections added so far."""

    def __init__(
        self,
        patches: Sequence[FilePatch],
        read: Callable[[WorkspacePath], FileState | None],
        encoding: str | None,
    ) -> None:
        self._encoding = encoding
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
        """Plan one section, or add its problems."""
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
        """Add a problem for each path that would be both a file and a directory."""
        for outer, inner in pairwise(sorted(self._after)):
            if inner.is_below(outer):
                self.problems.append(
                    f"{inner}: the patch makes {outer} a file; change one of the paths"
                )

    def changes(self) -> tuple[FileChange, ...]:
        """All changes, in an order that can be carried out."""
        paths = dict.fromkeys([*self._removed, *self._emptied_directories(), *self._after])
        changes = [Change(path, self._before[path], self._after.get(path)) for path in paths]
        changes = [change for change in changes if change.before != change.after]
        deletions = [change for change in changes if change.after is None]
        others = [change for change in changes if change.after is not None]
        deletions.sort(key=lambda change: (-len(change.path.parts), change.path))
        return (*deletions, *sorted(others, key=lambda change: change.path))

    def _emptied_directories(self) -> Iterator[WorkspacePath]:
        """The directories below those that become files, as far as the patch may empty them."""
        directory = FileState(FileKind.DIRECTORY)
        files = {path for path in self._after if self._before[path] == directory}
        for inner in self._may_become_empty if files else ():
            if inner not in files and not files.isdisjoint(inner.ancestors()):
                yield inner

    def _refuse(self, path: WorkspacePath, patch: FilePatch, problem: str) -> None:
        self.problems.append(f"{path} (patch line {patch.line}): {problem}")

    # ------------------------------------------------------------------------------- names

    def _with_real_names(self, patches: Sequence[FilePatch]) -> list[FilePatch]:
        """Remove ``a/`` and ``b/`` from a name if only the name without it exists.

        If a file that the patch changes has such a prefix, names of new files have it, too.
        """
        made = {patch.target for patch in patches if patch.action != "modify"}
        real: list[FilePatch] = []
        for patch in patches:
            bare_path = without_prefix(patch.source) if patch.source is not None else None
            is_prefix = (
                patch.prefix_in_doubt
                and patch.source not in made
                and bare_path is not None
                and patch.source is not None
                and self._original(patch.source) is None
                and self._original(bare_path) is not None
            )
            real.append(_with_bare_names(patch) if is_prefix else patch)
        if real == list(patches):
            return real
        return [
            _with_bare_names(patch)
            if patch.action == "create" and self._has_unused_prefix(patch)
            else patch
            for patch in real
        ]

    def _has_unused_prefix(self, patch: FilePatch) -> bool:
        top = WorkspacePath(patch.path.parts[:1])
        return patch.prefix_in_doubt and self._original(top) is None

    # ---------------------------------------------------------------------- the old states

    def _original(self, path: WorkspacePath) -> FileState | None:
        """The state before the patch; ``None`` also for paths below a file or a link."""
        if path in self._before:
            return self._before[path]
        obstacle = self._first_non_directory(path)
        state = self._read(path) if obstacle is None else None
        self._before[path] = state
        if state is not None:
            self._effort.allow(state.data)
        return state

    def _first_non_directory(self, path: WorkspacePath) -> WorkspacePath | None:
        """The topmost ancestor that is missing, or is a file or a link."""
        for above in path.ancestors():
            if above.parts and above not in self._before:
                self._before[above] = self._read(above)
            state = self._before.get(above)
            if above.parts and (state is None or state.kind is not FileKind.DIRECTORY):
                return above
        return None

    def _obstacle(self, path: WorkspacePath) -> WorkspacePath | None:
        """The ancestor that is a file or a link and stays one."""
        above = self._first_non_directory(path)
        stays = above is not None and self._before[above] is not None and above not in self._removed
        return above if stays else None

    def _makes_missing_file(self, patch: FilePatch) -> bool:
        """Whether a diff without ``/dev/null`` creates a missing file, as its line number is 0."""
        return (
            patch.action == "modify"
            and patch.hunks[:1] != ()
            and patch.hunks[0].old_start == 0
            and patch.hunks[0].n_lines(b"+") == len(patch.hunks[0].body)
            and patch.path not in self._after
            and self._original(patch.path) is None
        )

    def _base(self, patch: FilePatch) -> FileState | None:
        """The file that a section changes; ``None`` if there is a problem with it."""
        path = patch.source
        if path is None:
            return FileState(FileKind.FILE)
        if patch.action == "modify" and path in self._after:
            return self._after[path]
        remover = self._removed.get(path, patch)
        if remover is not patch and patch.action != "copy":
            problem = (
                f"line {remover.line} of the patch deletes or renames it; use one section for it"
            )
            self._refuse(path, patch, problem)
            return None
        state = self._original(path)
        problem = _kind_problem(patch, state)
        if state is None and (obstacle := self._obstacle(path)) is not None:
            problem = f"{obstacle} {_NOT_DIRECTORY}"
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
            problem = "another section of the patch makes or changes it; join both sections"
        elif obstacle is not None:
            problem = f"{obstacle} {_NOT_DIRECTORY}"
        elif state is None or path in self._removed:
            return True
        elif state.kind is not FileKind.DIRECTORY:
            problem = "it exists already; update it, or add a section that deletes it"
        elif path in self._may_become_empty:
            return True
        else:
            problem = _IS_DIRECTORY
        self._refuse(path, patch, problem)
        return False

    # ------------------------------------------------------------------------- new content

    def _new_content(self, patch: FilePatch, base: FileState) -> Placed | None:
        placed: Placed | None = Placed(base.data)
        if patch.binary is not None:
            placed = self._new_binary(patch, patch.binary, base.data)
        elif patch.hunks:
            placed = self._new_text(patch, base)
        if placed is None:
            return None
        if patch.action == "delete" and placed.data and not patch.any_content:
            problem = (
                "the patch deletes it without showing all its content;"
                f" show each line with '-', or use '*** Delete File: {patch.path}'"
            )
            self._refuse(patch.path, patch, problem)
            return None
        return placed

    def _new_text(self, patch: FilePatch, base: FileState) -> Placed | None:
        """The text with the hunks. They are placed in UTF-8, and change the bytes of the file."""
        data, content = base.data, self._text_content(patch, base)
        if content is not None and not content.is_utf_8:
            data = content.shown.encode()
        placed = place_hunks(data, patch.hunks, self._effort)
        if not isinstance(placed, Placed):
            self.problems += [
                f"{patch.path}, hunk {each.number} (patch line {each.hunk.line}): {each.problem}"
                for each in placed
            ]
            return None
        if content is None:
            return placed
        try:
            new = content.rewritten(placed.data.decode())
        except EditError as error:
            self.problems.append(f"{error.message} (patch line {patch.line}). {error.hint}")
            return None
        return placed if content.is_utf_8 and patch.source else replace(placed, data=new)

    def _text_content(self, patch: FilePatch, base: FileState) -> TextContent | None:
        """The text of the file; ``None`` if the hunks are placed in its bytes."""
        is_link = FileKind.SYMLINK in (base.kind, patch.new_mode and patch.new_mode.kind)
        lines = [line for hunk in patch.hunks for line in hunk.body]
        name = self._encoding if patch.source or self._encoding else "utf-8"
        with suppress(UnicodeDecodeError, BinaryFileError):
            b"".join(lines).decode()  # fails for a diff with bytes of the file
            quoted = b"".join(line for line in lines if line[:1] != b"+").decode()
            content = TextContent.of(base.data, str(patch.path), name, quoted=quoted)
            return None if is_link else content
        return None

    def _new_binary(self, patch: FilePatch, change: BinaryChange, data: bytes) -> Placed | None:
        self._effort.spend((len(data) + len(change.data)) // 4)
        if patch.source is not None and not _has_id(data, change.old_id):
            problem = (
                "its content is not the one whose full id is in the 'index' line of the patch;"
                " make the patch again with `git diff --binary --full-index`"
            )
            self._refuse(patch.path, patch, problem)
            return None
        try:
            if change.is_delta:
                allowed = MAX_BINARY_BYTES - self._n_binary_bytes
                new = apply_delta(change.data, data, max_bytes=allowed)
            else:
                new = change.data
        except ValueError as error:
            problem = f"the binary change does not fit: {error}; make the patch again"
            self._refuse(patch.path, patch, problem)
            return None
        self._n_binary_bytes += len(new)
        return Placed(new)


def _with_bare_names(patch: FilePatch) -> FilePatch:
    source, target = (
        path if path is None else without_prefix(path) or path
        for path in (patch.source, patch.target)
    )
    return replace(patch, source=source, target=target, prefix_in_doubt=False)


def _has_id(data: bytes, name: str) -> bool:
    return len(name) in (40, 64) and blob_id(data, n_digits=len(name)) == name


def _kind_problem(patch: FilePatch, state: FileState | None) -> str | None:
    """Why the section cannot change *state*, or ``None``."""
    if state is None:
        creation = ", or create it with '--- /dev/null' or '*** Add File'"
        return f"it does not exist; check the name{creation if patch.action == 'modify' else ''}"
    if state.kind is FileKind.DIRECTORY:
        return _IS_DIRECTORY
    if patch.old_mode is not None and patch.old_mode.kind is not state.kind:
        return f"it is a {state.kind}, not a {patch.old_mode.kind}; correct the mode in the patch"
    if patch.new_mode is not None and patch.new_mode.kind is not state.kind:
        return "to turn a file into a link or back, use two sections: delete it, then create it"
    if state.kind is FileKind.SYMLINK and patch.old_mode is None and (patch.hunks or patch.binary):
        target = state.data.decode("utf-8", "replace")
        return f"it is a link to {target!r}; patch the target instead"
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
