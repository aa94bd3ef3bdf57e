"""The filesystem that every backend offers, and all of it that no backend decides.

Rule 1: public methods parse each path once, check limits and read-only parts, and follow
links; *primitives* (the underscored methods at the end) act on one physical path, in which
no component is a link, and follow nothing.
Rule 2: a primitive either does all of its work or raises and changes nothing. What needs
several of them undoes the earlier ones when a later one fails.
Rule 3: between two primitives anything may have happened to the files, so a primitive
checks what it relies on and raises the error of this package that fits.

Links whose target is relative and stays inside the root are followed when a path is read,
written or examined; ``delete``, ``move`` and ``symlink`` act on the link itself, and walks
(``walk``, ``glob``, ``grep``) never descend through one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from itertools import islice
from types import TracebackType
from typing import BinaryIO, get_args

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileChangedError,
    FileExpectedError,
    FileMissingError,
    FilesystemError,
    LimitExceededError,
    LinkError,
    PathExistsError,
    ReadOnlyError,
    RollbackError,
    UsageError,
)

from .diff import render_diff
from .edits import replace_text
from .fingerprints import directory_fingerprint, file_fingerprint, link_fingerprint
from .links import check_target, located
from .model import (
    EditResult,
    FileChange,
    FileKind,
    FileStat,
    FileState,
    FilesystemLimits,
    GlobResult,
    GrepResult,
    PatchResult,
    TextWindow,
    WriteMode,
    WriteResult,
)
from .patch import parse_patch, plan_patch
from .paths import WorkspacePath, parse_path
from .search import (
    EVERYTHING,
    GlobPattern,
    SearchTimer,
    compile_expression,
    compile_filter,
    compile_glob,
    find,
    grep_files,
    literal_prefix,
)
from .text import TextPieces, read_window

__all__ = ["Filesystem"]

_CHUNK_BYTES = 1_048_576
_WRITE_MODES = get_args(WriteMode)

_Touched = list[tuple[WorkspacePath, FileState | None]]

_SOMEBODY_ELSES = (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileChangedError,
    FileMissingError,
)


class _Undoing:
    """See ``Filesystem._undoing``.

    No generator: one that Ctrl-C leaves suspended is closed when somebody lets go of the
    traceback, and would then put back what later calls have made.
    """

    def __init__(self, put_back: Callable[[_Touched, BaseException], None]) -> None:
        self._put_back = put_back
        self._touched: _Touched = []

    def __enter__(self) -> _Touched:
        return self._touched

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._put_back(self._touched, error)


class Filesystem(ABC):
    """Files below one root, as text and as bytes.

    Args:
        limits: Bounds on single operations.
        read_only: Refuse every change with ``ReadOnlyError``.
        read_only_paths: Places at and below which nothing may change.
        clock: Measures the time that searches take.

    Every method that takes a path takes text or a ``WorkspacePath`` and raises
    ``InvalidPathError`` (``PathEscapeError`` for one that leads outside),
    ``FileMissingError``, ``DirectoryExpectedError`` or ``FileExpectedError`` where the path
    is not what it has to be, and ``LinkError`` where a link on the way leads outside or
    loops. Results name paths as the caller spelled them.
    """

    def __init__(
        self,
        *,
        limits: FilesystemLimits | None = None,
        read_only: bool = False,
        read_only_paths: Iterable[WorkspacePath] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._limits = limits or FilesystemLimits()
        self._read_only = read_only
        self._read_only_paths = tuple(read_only_paths)
        self.clock = clock

    # How it was made: no part of what a snapshot keeps, so nobody may change it

    @property
    def limits(self) -> FilesystemLimits:
        """Bounds on single operations."""
        return self._limits

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._read_only

    @property
    def read_only_paths(self) -> tuple[WorkspacePath, ...]:
        """Places at and below which nothing may change."""
        return self._read_only_paths

    # Reading

    def stat(self, path: str | WorkspacePath, *, follow: bool = True) -> FileStat:
        """What is at *path*; with ``follow=False`` a link is described itself."""
        given = parse_path(path)
        return replace(self._existing(given, follow=follow), path=given)

    def exists(self, path: str | WorkspacePath) -> bool:
        """Whether something is at *path*; a link that leads nowhere does not count."""
        try:
            self.stat(path)
        except (FileMissingError, DirectoryExpectedError, LinkError):
            return False
        return True

    def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """The entries of a directory by name, links as links."""
        given = parse_path(path)
        entries = self._children(self._directory(given))
        return tuple(
            replace(entry, path=given / entry.path.name)
            for entry in sorted(entries, key=lambda entry: entry.path.name)
        )

    def walk(self, path: str | WorkspacePath = ".") -> Iterator[FileStat]:
        """Everything below a directory, parents first and names in order, links as links.

        Directories that vanish meanwhile or cannot be read are passed over.
        """
        given = parse_path(path)
        return self._found(self._directory(given), given, EVERYTHING)

    def open(self, path: str | WorkspacePath) -> BinaryIO:
        """A file as a stream, for reading and seeking; the caller closes it."""
        return self._open(self._file(parse_path(path)).path)

    def read_bytes(
        self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        """*limit* bytes (default: all) from *offset* on; fewer when the file ends.

        Raises:
            UsageError: If *offset* or *limit* is negative.
        """
        _check_not_negative(offset=offset, limit=limit or 0)
        with self.open(path) as stream:
            stream.seek(offset)
            return stream.read() if limit is None else stream.read(limit)

    def read_text(
        self,
        path: str | WorkspacePath,
        *,
        offset: int = 0,
        limit: int | None = None,
        lenient: bool = False,
    ) -> TextWindow:
        """*limit* lines (default ``limits.read_lines``) after the first *offset*.

        The rest of the file is not read. Lines are cut to ``limits.read_line_chars``; where
        what is cut off adds up to more than 16 Mi characters, the window ends early with
        ``more`` set. With *lenient* a byte that is not UTF-8 is shown as U+FFFD.

        Raises:
            UsageError: If *offset* or *limit* is negative.
            LimitExceededError: If *limit* is above ``limits.read_lines``.
            BinaryFileError: If what was looked at is not text.
        """
        n_lines = self.limits.read_lines if limit is None else limit
        _check_not_negative(offset=offset, limit=n_lines)
        if n_lines > self.limits.read_lines:
            raise LimitExceededError(
                f"{n_lines} lines to read, at most {self.limits.read_lines} allowed",
                hint="Read the next lines with an offset.",
            )
        given = parse_path(path)
        with self.open(given) as stream:
            return read_window(
                stream,
                given,
                offset=offset,
                limit=n_lines,
                line_chars=self.limits.read_line_chars,
                lenient=lenient,
            )

    def glob(self, pattern: str, path: str | WorkspacePath = ".") -> GlobResult:
        """The files, links and directories below *path* that match *pattern*, in path order.

        ``**`` stands for any number of directories, none included; ``*.py`` matches in
        *path* only. Names before the first wildcard may be links.

        Raises:
            PatternError: If *pattern* is empty.
            SearchTimeoutError: After ``limits.search_timeout_s``.
        """
        compile_glob(pattern)  # refuses what is wrong in the part taken off below, too
        given = parse_path(path)
        self._directory(given)
        prefix, rest = literal_prefix(pattern)
        below = WorkspacePath((*given.parts, *prefix))
        try:
            base = self._directory(below)
        except FilesystemError:
            return GlobResult(())
        limit = self.limits.glob_results
        entries = islice(self._found(base, below, compile_glob(rest), self._timer()), limit + 1)
        paths = tuple(entry.path for entry in entries)
        return GlobResult(paths[:limit], truncated=len(paths) > limit)

    def grep(
        self, pattern: str, path: str | WorkspacePath = ".", *, glob: str | None = None
    ) -> GrepResult:
        """The lines that match a regular expression, in a file or below a directory.

        Args:
            pattern: In the syntax of the ``regex`` package; lines are searched one by one.
            path: A file, or a directory whose files are searched in path order.
            glob: Search only files whose path below *path* matches; without a ``/`` it
                matches names at any depth.

        Raises:
            PatternError: If *pattern* does not parse; the message names the position.
            SearchTimeoutError: After ``limits.search_timeout_s``.
        """
        expression = compile_expression(pattern)
        wanted = EVERYTHING if glob is None else compile_filter(glob)
        given = parse_path(path)
        there = self._existing(given)
        timer = self._timer()
        if there.kind is FileKind.FILE:
            files = iter((there,))
        else:
            files = self._searchable(there.path, wanted, timer)
        found = grep_files(files, self._open, expression, limits=self.limits, timer=timer)
        if there.path == given:
            return found
        spelled = (replace(m, path=m.path.moved(there.path, given)) for m in found.matches)
        return replace(found, matches=tuple(spelled))

    def fingerprint(self, path: str | WorkspacePath = ".") -> str:
        """A text that differs whenever the content at *path* (a file or all below) does."""
        return self._fingerprint(self._existing(parse_path(path)).path)

    def identify(
        self, path: str | WorkspacePath, *, follow: bool = True
    ) -> tuple[WorkspacePath, str]:
        """Where the file that *path* leads to is, without links, and its fingerprint.

        Raises:
            FileExpectedError: If no file is there but something else; with ``follow=False``
                also if *path* is a link.
        """
        there = self._existing(parse_path(path), follow=follow)
        if there.kind is not FileKind.FILE:
            raise FileExpectedError(f"{path} is no file")
        return there.path, self._fingerprint(there.path)

    # Changing

    def write_bytes(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        mode: WriteMode = "overwrite",
        most_bytes: int | None = None,
    ) -> WriteResult:
        """Write a file, making the directories it needs.

        Args:
            path: The file; a link is followed unless *mode* is ``"create"``.
            data: All of the content, or what to append.
            mode: ``"create"`` a new file, ``"overwrite"`` or make one, or ``"append"``.
            most_bytes: A bound on *data* below ``limits.write_bytes``, for a caller that is not
                trusted with that much.

        Raises:
            PathExistsError: If *mode* is ``"create"`` and something is there.
            LimitExceededError: If *data* is longer than *most_bytes* or ``limits.write_bytes``.
            ReadOnlyError: If nothing may change there.
            UsageError: If there is no such *mode*.
        """
        if mode not in _WRITE_MODES:
            raise UsageError(
                f"{mode!r} is no mode of writing", hint=f"Use {', '.join(_WRITE_MODES)}."
            )
        self._check_writable()
        given = parse_path(path)
        self._check_size(given, len(data), most_bytes)
        place, there = self._located(given, follow=mode != "create")
        if there is not None and mode == "create":
            raise PathExistsError(f"{given} exists already")
        if there is not None and there.kind is FileKind.DIRECTORY:
            raise FileExpectedError(f"{given} is a directory")
        self._check_writable(place)
        with self._undoing() as touched:
            self._make_parents(place, touched)
            self._write(place, bytes(data), mode=mode)
        kept_bytes = there.size_bytes if there is not None and mode == "append" else 0
        return WriteResult(given, len(data), kept_bytes + len(data), created=there is None)

    def write_text(
        self,
        path: str | WorkspacePath,
        text: str,
        *,
        mode: WriteMode = "overwrite",
        most_bytes: int | None = None,
    ) -> WriteResult:
        """Write *text* as UTF-8, its line ends as they are; see ``write_bytes``.

        Raises:
            UsageError: If *text* is not valid Unicode.
        """
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the text for {path} is not valid Unicode at character {error.start}",
                hint="Remove the lone surrogate there, or write bytes.",
            ) from error
        return self.write_bytes(path, data, mode=mode, most_bytes=most_bytes)

    def edit(
        self,
        path: str | WorkspacePath,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        most_bytes: int | None = None,
    ) -> EditResult:
        """Replace *old*, which must occur exactly once unless *replace_all*.

        Everything else stays: encoding, byte order mark, line ends, final newline.

        Raises:
            EditError: If *old* is missing or not unique; the message helps to find it.
            BinaryFileError: If the file is not text.
            LimitExceededError: If the file is or would be above *most_bytes* or
                ``limits.write_bytes``.
            ReadOnlyError: If nothing may change there.
        """
        if self.read_only:
            self._check_writable()  # raises
        given = parse_path(path)
        file = self._file(given)
        self._check_writable(file.path)
        data = self._content(file, most_bytes)
        if replace_all:
            self._check_growth(given, data, old, new, most_bytes)
        edited = replace_text(data, old, new, replace_all=replace_all, path=str(given))
        self._check_size(given, len(edited.data), most_bytes)
        self._write(file.path, edited.data, mode="overwrite")
        before = FileState(FileKind.FILE, data, file.executable)
        after = FileState(FileKind.FILE, edited.data, file.executable)
        diff = render_diff([FileChange(given, before, after)])
        return EditResult(given, edited.n_replaced, edited.first_line, diff)

    def apply_patch(self, patch: str, *, most_bytes: int | None = None) -> PatchResult:
        """Apply a unified diff or a ``*** Begin Patch`` text: to all its files or to none.

        Paths are taken as they are, no link on the way is followed. As with git, directories
        are made where files need them, and go when the patch takes the last out of them.

        Raises:
            PatchError: If it does not parse or does not apply.
            LimitExceededError: If a file is or would be above *most_bytes* or
                ``limits.write_bytes``.
            ReadOnlyError: If nothing may change at one of its paths.
        """
        self._check_writable()
        plan = plan_patch(parse_patch(patch), lambda path: self._state(path, most_bytes))
        for change in plan.changes:
            self._check_change(change, most_bytes)
        with self._undoing() as touched:
            for change in plan.changes:
                if change.after is not None:
                    self._make_parents(change.path, touched)
                touched.append((change.path, change.before))
                self._set_state(change.path, change.after)
            gone = [change.path for change in plan.changes if change.after is None]
            self._delete_emptied(gone, touched)
        return PatchResult(plan.files)

    def delete(self, path: str | WorkspacePath, *, recursive: bool = False) -> None:
        """Delete a file, a link or an empty directory; with *recursive* a full one too.

        Raises:
            DirectoryNotEmptyError: If a directory has entries and *recursive* is not set.
            ReadOnlyError: If nothing may change there or somewhere below.
        """
        self._check_writable()
        there = self._existing(self._not_root(path, "delete"), follow=False)
        self._check_removable(there.path)
        self._delete(there.path, recursive=recursive)

    def mkdir(
        self, path: str | WorkspacePath, *, parents: bool = True, exist_ok: bool = True
    ) -> None:
        """Make a directory.

        Raises:
            FileMissingError: If the directory above is missing and *parents* is not set.
            PathExistsError: If something is there, unless it is a directory and *exist_ok*.
            ReadOnlyError: If nothing may change there.
        """
        self._check_writable()
        given = parse_path(path)
        place, there = self._located(given)
        if there is not None:
            if exist_ok and there.kind is FileKind.DIRECTORY:
                return
            raise PathExistsError(f"{given} exists already")
        self._check_writable(place)
        with self._undoing() as touched:
            if parents:
                self._make_parents(place, touched)
            self._mkdir(place)

    def move(
        self,
        source: str | WorkspacePath,
        destination: str | WorkspacePath,
        *,
        overwrite: bool = False,
    ) -> None:
        """Give a file, link or directory the full path *destination*, parents made.

        Raises:
            PathExistsError: If something is at *destination*, unless *overwrite* and neither
                is a directory.
            UsageError: If a directory would come to lie inside itself.
            ReadOnlyError: If nothing may change at one of the two or below *source*.
        """
        self._check_writable()
        moved = self._existing(self._not_root(source, "move"), follow=False)
        given = parse_path(destination)
        place, there = self._located(given, follow=False)
        if place == moved.path and overwrite:
            return
        if there is not None and not (
            overwrite and FileKind.DIRECTORY not in (there.kind, moved.kind)
        ):
            raise PathExistsError(
                f"{given} exists already",
                hint="Give the full new path of the file or directory, one that is free.",
            )
        if place.is_below(moved.path):
            raise UsageError(
                f"{source} cannot be moved inside itself", hint="Choose a place outside it."
            )
        self._check_removable(moved.path)
        self._check_writable(place)
        with self._undoing() as touched:
            self._make_parents(place, touched)
            self._move(moved.path, place)

    def set_executable(self, path: str | WorkspacePath, executable: bool) -> None:
        """Set or clear a file's executable bit.

        Raises:
            ReadOnlyError: If nothing may change there.
        """
        self._check_writable()
        file = self._file(parse_path(path))
        self._check_writable(file.path)
        self._set_executable(file.path, executable=executable)

    def symlink(self, path: str | WorkspacePath, target: str) -> None:
        """Make a link to *target*, which is relative to the link's directory.

        Raises:
            LinkError: If *target* is absolute or leads outside the workspace.
            PathExistsError: If something is at *path*.
            ReadOnlyError: If nothing may change there.
        """
        self._check_writable()
        given = parse_path(path)
        place, there = self._located(given, follow=False)
        if there is not None:
            raise PathExistsError(f"{given} exists already")
        check_target(place, target)
        self._check_writable(place)
        with self._undoing() as touched:
            self._make_parents(place, touched)
            self._symlink(place, target)

    # History

    @abstractmethod
    def snapshot(self) -> object:
        """A token for the present state; the same object while nothing changes."""

    @abstractmethod
    def restore(self, token: object) -> None:
        """Put back the state of a token of this filesystem.

        Raises:
            SnapshotError: For any other token; nothing has changed then.
        """

    @abstractmethod
    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two snapshots (*after* defaults to now), in path order.

        Directories count as paths, so an empty one that came or went is a change.
        """

    def diff(self, before: object, after: object | None = None) -> str:
        """``changes`` as a git-style diff, which ``git apply`` and ``patch -p1`` accept."""
        return render_diff(self.changes(before, after))

    # Primitives: one physical path each, no link followed

    @abstractmethod
    def _stat(self, path: WorkspacePath) -> FileStat | None:
        """What is at *path*; ``None`` if nothing is, or if its parent is no directory."""

    @abstractmethod
    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        """The entries of the directory *path*, in any order."""

    @abstractmethod
    def _open(self, path: WorkspacePath) -> BinaryIO:
        """The file *path*, open for reading and seeking; the caller closes it."""

    @abstractmethod
    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        """Write the file *path*, whose parent exists; its executable bit stays."""

    @abstractmethod
    def _delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        """Delete a file, a link, or a directory that is empty unless *recursive*."""

    @abstractmethod
    def _mkdir(self, path: WorkspacePath) -> None:
        """Make the directory *path*, whose parent exists and which does not."""

    @abstractmethod
    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        """Rename; a file or link at *destination* is replaced, its parent exists."""

    @abstractmethod
    def _set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        """Set or clear the executable bit of the file *path*."""

    @abstractmethod
    def _symlink(self, path: WorkspacePath, target: str) -> None:
        """Make the link *path*, whose parent exists and which does not; any *target*."""

    def _fingerprint(self, path: WorkspacePath) -> str:
        """``fingerprint`` of a physical path; a backend that can, keeps it."""
        there = self._existing(path, follow=False)
        if there.kind is FileKind.DIRECTORY:
            return directory_fingerprint(
                (entry.path.name, self._fingerprint(entry.path)) for entry in self._children(path)
            )
        if there.kind is FileKind.SYMLINK:
            return link_fingerprint(there.target or "")
        with self._open(path) as stream:
            chunks = iter(lambda: stream.read(_CHUNK_BYTES), b"")
            return file_fingerprint(chunks, executable=there.executable)

    # Looking at places

    def _located(
        self, path: WorkspacePath, *, follow: bool = True
    ) -> tuple[WorkspacePath, FileStat | None]:
        """The physical path of *path*, and what is there."""
        return located(self._stat, path, follow=follow)

    def _existing(self, path: WorkspacePath, *, follow: bool = True) -> FileStat:
        """What is at *path*, under its physical path."""
        place, there = located(self._stat, path, follow=follow)
        if there is not None:
            return there
        for ancestor in place.ancestors():
            above = self._stat(ancestor)
            if above is not None and above.kind is FileKind.FILE:
                raise DirectoryExpectedError(f"{path} does not exist: {ancestor} is a file")
        raise FileMissingError(f"{path} does not exist")

    def _file(self, path: WorkspacePath) -> FileStat:
        there = self._existing(path)
        if there.kind is FileKind.DIRECTORY:
            raise FileExpectedError(f"{path} is a directory")
        return there

    def _directory(self, path: WorkspacePath) -> WorkspacePath:
        there = self._existing(path)
        if there.kind is not FileKind.DIRECTORY:
            raise DirectoryExpectedError(f"{path} is not a directory")
        return there.path

    def _not_root(self, path: str | WorkspacePath, verb: str) -> WorkspacePath:
        parsed = parse_path(path)
        if not parsed.parts:
            raise UsageError(f"the root is not something to {verb}", hint=f"Name what to {verb}.")
        return parsed

    def _found(
        self,
        base: WorkspacePath,
        given: WorkspacePath,
        pattern: GlobPattern,
        timer: SearchTimer | None = None,
    ) -> Iterator[FileStat]:
        """What matches below the physical *base*, spelled as below *given*."""
        for entry in find(self._children, base, pattern, timer):
            yield replace(entry, path=entry.path.moved(base, given))

    def _searchable(
        self, base: WorkspacePath, wanted: GlobPattern, timer: SearchTimer
    ) -> Iterator[FileStat]:
        """Files, and links that lead nowhere, which count as unreadable."""
        for entry in find(self._children, base, wanted, timer):
            broken_link = entry.kind is FileKind.SYMLINK and not self.exists(entry.path)
            if entry.kind is FileKind.FILE or broken_link:
                yield entry

    def _timer(self) -> SearchTimer:
        return SearchTimer(self.clock, self.limits.search_timeout_s)

    def _state(self, path: WorkspacePath, most_bytes: int | None) -> FileState | None:
        there = self._stat(path)
        if there is None:
            return None
        if there.kind is FileKind.FILE:
            return FileState(there.kind, self._content(there, most_bytes), there.executable)
        return FileState(there.kind, (there.target or "").encode("utf-8", "surrogateescape"))

    def _content(self, file: FileStat, most_bytes: int | None) -> bytes:
        """All of a file that is small enough to be written back."""
        self._check_size(file.path, file.size_bytes, most_bytes)
        with self._open(file.path) as stream:
            data = stream.read(file.size_bytes + 1)  # takes no more room than it needs
            if len(data) > file.size_bytes:  # it has grown since
                data += stream.read(self._most(most_bytes) + 1 - len(data))
        if len(data) > file.size_bytes:
            self._check_size(file.path, len(data), most_bytes)
        return data

    # Refusing

    def _check_writable(self, *places: WorkspacePath) -> None:
        if self.read_only:
            raise ReadOnlyError("the filesystem is read-only")
        for place in places:
            for fixed in self.read_only_paths:
                if place.is_below(fixed):
                    raise ReadOnlyError(f"{place} is read-only")

    def _check_removable(self, place: WorkspacePath) -> None:
        self._check_writable(place)
        for fixed in self.read_only_paths:
            if fixed.is_below(place):
                raise ReadOnlyError(f"{fixed} is read-only, so {place} has to stay")

    def _most(self, most_bytes: int | None) -> int:
        most = self.limits.write_bytes
        return most if most_bytes is None else min(most, most_bytes)

    def _check_size(self, path: WorkspacePath, n_bytes: int, most_bytes: int | None) -> None:
        most = self.limits.write_bytes
        if most_bytes is not None and most_bytes < most:
            most = most_bytes
        if n_bytes > most:
            raise LimitExceededError(
                f"{n_bytes} bytes for {path}, at most {most} allowed",
                hint="Split the content over several files.",
            )

    def _check_growth(
        self, path: WorkspacePath, data: bytes, old: str, new: str, most_bytes: int | None
    ) -> None:
        """Refuse early what would be refused for its size after filling the memory."""
        text = "".join(TextPieces(BytesIO(data), path))
        n_places = max(text.count(old), text.replace("\r\n", "\n").count(old))
        self._check_size(path, n_places * len(new), most_bytes)

    def _check_change(self, change: FileChange, most_bytes: int | None) -> None:
        self._check_writable(change.path)
        if change.after is not None:
            self._check_size(change.path, len(change.after.data), most_bytes)
            if change.after.kind is FileKind.SYMLINK:
                check_target(change.path, _target_of(change.after))

    # Changing several places

    def _undoing(self) -> _Undoing:
        """Put the touched places back, newest first, if the block raises."""
        return _Undoing(self._put_back)

    def _put_back(self, touched: _Touched, cause: BaseException) -> None:
        failures: list[Exception] = []
        for path, state in reversed(touched):
            try:
                self._set_state(path, state)
            except _SOMEBODY_ELSES:
                pass  # somebody has changed it, put something into it, or taken away what it is in
            except Exception as error:  # noqa: BLE001 - all places are tried before it is raised
                failures.append(error)
        if failures:
            raise RollbackError("some files could not be put back", failures) from cause

    def _set_state(self, path: WorkspacePath, state: FileState | None) -> None:
        """Make *path*, whose parent exists, be what *state* says."""
        there = self._stat(path)
        same_kind = there is not None and state is not None and there.kind is state.kind
        if there is not None and not (same_kind and there.kind is not FileKind.SYMLINK):
            self._delete(path, recursive=False)
        if state is None:
            return
        if state.kind is FileKind.FILE:
            self._write(path, state.data, mode="overwrite")
            if state.executable != (same_kind and there is not None and there.executable):
                self._set_executable(path, executable=state.executable)
        elif state.kind is FileKind.SYMLINK:
            self._symlink(path, _target_of(state))
        elif not same_kind:
            self._mkdir(path)

    def _make_parents(self, place: WorkspacePath, touched: _Touched) -> None:
        above = self._stat(place.parent)
        if above is not None and above.kind is FileKind.DIRECTORY:
            return
        for ancestor in place.ancestors():
            there = self._stat(ancestor)
            if there is None:
                touched.append((ancestor, None))
                self._mkdir(ancestor)
            elif there.kind is not FileKind.DIRECTORY:
                raise DirectoryExpectedError(f"{ancestor} is not a directory")

    def _delete_emptied(self, gone: Iterable[WorkspacePath], touched: _Touched) -> None:
        """Delete the directories in which nothing is left since the paths *gone* went."""
        above = {ancestor for path in gone for ancestor in path.ancestors() if ancestor.parts}
        for ancestor in sorted(above, reverse=True):  # what is inside comes first
            there = self._stat(ancestor)
            if there is None or there.kind is not FileKind.DIRECTORY:
                continue
            if any(True for _ in self._children(ancestor)):
                continue
            with suppress(DirectoryNotEmptyError, ReadOnlyError):
                self._check_removable(ancestor)
                touched.append((ancestor, FileState(FileKind.DIRECTORY)))
                self._delete(ancestor, recursive=False)


def _target_of(link: FileState) -> str:
    return link.data.decode("utf-8", "surrogateescape")


def _check_not_negative(*, offset: int, limit: int) -> None:
    for name, value in (("offset", offset), ("limit", limit)):
        if value < 0:
            raise UsageError(f"the {name} is {value}", hint="Use 0 or more.")
