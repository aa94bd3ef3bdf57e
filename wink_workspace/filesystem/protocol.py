"""The interface of all filesystems, with everything that does not depend on the backend.

Rule 1: public methods parse each path once, check limits and read-only paths, and follow
links. *Primitives* (the underscored methods at the end) act on one physical path, in which
no component is a link, and follow no links.
Rule 2: a primitive either does all of its work, or raises and changes nothing. A method that
needs several primitives undoes the earlier ones when a later one fails.
Rule 3: between two primitives, other processes may change the files. So a primitive checks
what it relies on and raises the matching error of this package.

Links with a relative target inside the root are followed when a path is read, written or
examined. ``delete``, ``move`` and ``symlink`` act on the link itself. Walks (``walk``, ``glob``,
``grep``) never enter a directory through a link.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
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

from .links import check_target, physical_path, resolve
from .model import (
    Change,
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
    directory_fingerprint,
    file_fingerprint,
    link_fingerprint,
)
from .paths import DERIVED_NAMES, WorkspacePath, parse_path
from .search import (
    EVERYTHING,
    HEAD_BYTES,
    GlobPattern,
    Heads,
    SearchTimer,
    compile_expression,
    compile_filter,
    compile_glob,
    find,
    grep_files,
    literal_prefix,
)
from .text import MOST_EXAMINED_BYTES, TextContent, encoded_text, read_window

_CHUNK_BYTES = 1_048_576
_WRITE_MODES = get_args(WriteMode)

_Touched = list[tuple[WorkspacePath, FileState | None]]

_CHANGED_BY_OTHERS = (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileChangedError,
    FileMissingError,
)


class _UndoOnError:
    """See ``Filesystem._undo_on_error``.

    Not a generator: Ctrl-C can leave a generator suspended. It would be closed only when the
    traceback is dropped, and would then undo the changes of later calls.
    """

    def __init__(self, put_back: Callable[[_Touched, BaseException], None]) -> None:
        self._undo = put_back
        self._touched: _Touched = []

    def __enter__(self) -> _Touched:
        return self._touched

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._undo(self._touched, error)


class Filesystem(ABC):
    """Files below one root, as text and as bytes.

    Args:
        limits: Limits of single operations.
        read_only: Refuse every change with ``ReadOnlyError``.
        read_only_paths: Paths at and below which nothing may change.
        clock: Measures the time of searches.

    Attributes:
        known_as: Absolute paths that name the root in the arguments of tools: where commands find
            it, and for a workspace also its source. Methods refuse absolute paths.
        output_folder: The directory for results that are too long for a model; ``None`` if such
            results are not stored.

    A path is text or a ``WorkspacePath``. Every method with a path raises
    ``InvalidPathError`` (``PathEscapeError`` if it leads outside); ``FileMissingError``,
    ``DirectoryExpectedError`` or ``FileExpectedError`` if the path does not exist or is of the
    wrong kind; and ``LinkError`` if a link on the way leads outside or loops. Results name
    paths as the caller spelled them.
    """

    known_as: tuple[str, ...] = ("/workspace",)
    output_folder: WorkspacePath | None = None

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

    # Options are not part of a snapshot, so they cannot be changed

    @property
    def limits(self) -> FilesystemLimits:
        """Limits of single operations."""
        return self._limits

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return self._read_only

    @property
    def read_only_paths(self) -> tuple[WorkspacePath, ...]:
        """Paths at and below which nothing may change."""
        return self._read_only_paths

    # Reading

    def stat(self, path: str | WorkspacePath, *, follow: bool = True) -> FileStat:
        """The metadata of *path*; with ``follow=False``, of the link itself."""
        given = parse_path(path)
        return replace(self._existing(given, follow=follow), path=given)

    def exists(self, path: str | WorkspacePath) -> bool:
        """Whether *path* exists; ``False`` for a dangling link."""
        try:
            self.stat(path)
        except (FileMissingError, DirectoryExpectedError, LinkError):
            return False
        return True

    def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """The path with all links resolved; it need not exist."""
        return physical_path(self._stat, parse_path(path), follow=True)

    def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """The entries of a directory, sorted by name; links are not followed."""
        given = parse_path(path)
        entries = self._children(self._directory(given))
        return tuple(
            replace(entry, path=given / entry.path.name)
            for entry in sorted(entries, key=lambda entry: entry.path.name)
        )

    def walk(self, path: str | WorkspacePath = ".") -> Iterator[FileStat]:
        """Everything below a directory, parents first, sorted by name; links are not followed.

        Directories that vanish during the walk or cannot be read are skipped.
        """
        given = parse_path(path)
        return self._found(self._directory(given), given, EVERYTHING)

    def open(self, path: str | WorkspacePath) -> BinaryIO:
        """A file as a stream, for reading and seeking; the caller closes it."""
        return self._open(self._file(parse_path(path)).path)

    def read_bytes(
        self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None
    ) -> bytes:
        """*limit* bytes (default: all) from *offset* on; fewer at the end of the file.

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
        encoding: str | None = None,
    ) -> TextWindow:
        """*limit* lines (default ``limits.read_lines``) after the first *offset*.

        The rest of the file is not read. Lines are cut to ``limits.read_line_chars``. If more
        than 16 Mi characters were read for them, the window ends early with ``more`` set.
        *encoding* is used if the file's would be a guess. A byte that no encoding explains is
        shown as U+FFFD.

        Raises:
            UsageError: If *offset* or *limit* is negative, or no encoding has this name.
            LimitExceededError: If *limit* is above ``limits.read_lines``.
            BinaryFileError: If the part that was read is not text.
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
                encoding=encoding,
            )

    def glob(self, pattern: str, path: str | WorkspacePath = ".") -> GlobResult:
        """The files, links and directories below *path* that match *pattern*, in path order.

        What is in directories with derived files, such as ``node_modules``, comes last.

        ``**`` matches any number of directories, also none; ``*.py`` matches in *path* only.
        Names before the first wildcard may be links.

        Raises:
            PatternError: If *pattern* is empty.
            SearchTimeoutError: After ``limits.search_timeout_s``.
        """
        compile_glob(pattern)  # also checks the prefix that is removed below
        given = parse_path(path)
        self._directory(given)
        prefix, rest = literal_prefix(pattern)
        below = WorkspacePath((*given.parts, *prefix))
        try:
            base = self._directory(below)
        except FilesystemError:
            return GlobResult(())
        limit = self.limits.glob_results
        found = self._found(base, below, compile_glob(rest), self._timer(), last=DERIVED_NAMES)
        entries = islice(found, limit + 1)
        paths = tuple(entry.path for entry in entries)
        return GlobResult(paths[:limit], truncated=len(paths) > limit)

    def grep(
        self,
        pattern: str,
        path: str | WorkspacePath = ".",
        *,
        glob: str | None = None,
        limit: int | None = None,
    ) -> GrepResult:
        """The lines in a file, or in all files below a directory, that match an expression.

        Args:
            pattern: A regular expression of the ``regex`` package; lines are searched one by one.
            path: A file, or a directory whose files are searched in path order, those in
                directories with derived files, such as ``node_modules``, last.
            glob: Search only files whose path relative to *path* matches. Without a ``/``, it
                matches names at any depth.
            limit: Most lines; ``limits.grep_matches`` by default.

        Raises:
            PatternError: If *pattern* does not parse; the message names the position.

        After ``limits.search_timeout_s``, the result is what was found until then; see
        ``GrepResult.timed_out_s``.
        """
        expression = compile_expression(pattern)
        wanted = EVERYTHING if glob is None else compile_filter(glob)
        given = parse_path(path)
        entry = self._existing(given)
        timer = self._timer()
        if entry.kind is FileKind.FILE:
            heads: Iterable[Heads] = (self._head(entry.path),)
        else:
            heads = self._heads(entry.path, wanted, timer)
        limits = self.limits if limit is None else replace(self.limits, grep_matches=limit)
        found = grep_files(heads, self._open, expression, limits=limits, timer=timer)
        if entry.path == given:
            return found
        matches = (replace(m, path=m.path.moved(entry.path, given)) for m in found.matches)
        last = found.stopped_at
        return replace(
            found,
            matches=tuple(matches),
            stopped_at=None if last is None else last.moved(entry.path, given),
        )

    def fingerprint(self, path: str | WorkspacePath = ".") -> str:
        """A text that differs whenever the content of a file, or of a directory tree, differs."""
        return self._fingerprint(self._existing(parse_path(path)).path)

    def identify(
        self, path: str | WorkspacePath, *, follow: bool = True
    ) -> tuple[WorkspacePath, str]:
        """The path of a file with all links resolved, and its fingerprint.

        Raises:
            FileExpectedError: If it is not a file; with ``follow=False``, also for a link.
        """
        entry = self._existing(parse_path(path), follow=follow)
        if entry.kind is not FileKind.FILE:
            raise FileExpectedError(f"{path} is not a file")
        return entry.path, self._fingerprint(entry.path)

    # Changing

    def write_bytes(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        mode: WriteMode = "overwrite",
        most_bytes: int | None = None,
    ) -> WriteResult:
        """Write a file; missing parent directories are created.

        Args:
            path: The file; a link is followed unless *mode* is ``"create"``.
            data: The whole content, or the part to append.
            mode: ``"create"`` makes a new file; ``"overwrite"`` and ``"append"`` make one if
                it is missing.
            most_bytes: A lower limit than ``limits.write_bytes`` for *data*.

        Raises:
            PathExistsError: If *mode* is ``"create"`` and *path* exists.
            FileExpectedError: If *path* is a directory.
            LimitExceededError: If *data* is longer than *most_bytes* or ``limits.write_bytes``.
            ReadOnlyError: If *path* is read-only.
            UsageError: If *mode* is unknown.
        """
        if mode not in _WRITE_MODES:
            raise UsageError(
                f"{mode!r} is not a write mode", hint=f"Use {', '.join(_WRITE_MODES)}."
            )
        self._check_writable()
        given = parse_path(path)
        self._check_size(given, len(data), most_bytes)
        physical, entry = self._resolve(given, follow=mode != "create")
        if entry is not None and mode == "create":
            raise PathExistsError(f"{given} exists already")
        if entry is not None and entry.kind is FileKind.DIRECTORY:
            raise FileExpectedError(f"{given} is a directory")
        self._check_writable(physical)
        with self._undo_on_error() as touched:
            self._make_parents(physical, touched)
            self._write(physical, bytes(data), mode=mode)
        kept_bytes = entry.size_bytes if entry is not None and mode == "append" else 0
        return WriteResult(given, len(data), kept_bytes + len(data), created=entry is None)

    def write_text(
        self,
        path: str | WorkspacePath,
        text: str,
        *,
        mode: WriteMode = "overwrite",
        most_bytes: int | None = None,
        encoding: str | None = None,
        keep: bool = False,
    ) -> WriteResult:
        """Write *text*, with its line ends unchanged; see ``write_bytes``.

        Args:
            path: The file.
            text: The whole text, or the part to append.
            mode: As for ``write_bytes``.
            most_bytes: As for ``write_bytes``.
            encoding: Its name; UTF-8 by default.
            keep: Keep the byte order mark, the encoding and, if *text* has no carriage return,
                the CRLF line ends of a text file that is overwritten.

        Raises:
            UsageError: If *text* is not valid Unicode, or no encoding has this name.
            EditError: If the encoding does not take *text*.
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the text for {path} is not valid Unicode at character {error.start}",
                hint="Remove the lone surrogate, or write bytes.",
            ) from error
        before = b""
        if keep and mode == "overwrite":
            with suppress(FilesystemError):  # the write reports it
                before = self.read_bytes(path, limit=MOST_EXAMINED_BYTES)
        data, shown = encoded_text(text, str(path), encoding, before)
        result = self.write_bytes(path, data, mode=mode, most_bytes=most_bytes)
        return replace(result, encoding=shown)

    def edit(
        self,
        path: str | WorkspacePath,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        most_bytes: int | None = None,
        encoding: str | None = None,
    ) -> EditResult:
        """Replace *old*, which must occur exactly once unless *replace_all* is set.

        Everything else stays: encoding, byte order mark, line ends, final newline. *encoding* is
        used if the file's would be a guess, which takes only ASCII.

        Raises:
            EditError: If *old* is missing or not unique; the message shows the nearest lines. Or
                if the encoding does not take *new*.
            BinaryFileError: If the file is not text.
            LimitExceededError: If the file is or would be above *most_bytes* or
                ``limits.write_bytes``.
            ReadOnlyError: If *path* is read-only.
        """
        # On use: the tools are listed without them. A relative import costs a call of Python here.
        from .diff.rendering import render_diff
        from .edits import replace_text

        if self.read_only:
            self._check_writable()  # raises
        given = parse_path(path)
        file = self._file(given)
        self._check_writable(file.path)
        data = self._content(file, most_bytes)
        name = str(given)
        if replace_all:
            text = TextContent.of(data, name, encoding, quoted=old).shown
            self._check_growth(given, text, old, new, most_bytes)
        edited = replace_text(data, old, new, replace_all=replace_all, path=name, encoding=encoding)
        self._check_size(given, len(edited.data), most_bytes)
        self._write(file.path, edited.data, mode="overwrite")
        before = FileState(FileKind.FILE, edited.before.encode(), file.executable)
        after = FileState(FileKind.FILE, edited.after.encode(), file.executable)
        diff = render_diff([Change(given, before, after)])
        return EditResult(given, edited.n_replaced, edited.first_line, diff)

    def apply_patch(
        self, patch: str, *, most_bytes: int | None = None, encoding: str | None = None
    ) -> PatchResult:
        """Apply a unified diff or a ``*** Begin Patch`` text to all its files, or to none.

        Links in paths are not followed. As with git, missing directories are created, and
        directories that the patch empties are deleted. Each file keeps its encoding; *encoding*
        is that of new files and of those for which it would be a guess.

        Raises:
            PatchError: If it does not parse or does not apply.
            UsageError: If no encoding has this name.
            LimitExceededError: If a file is or would be above *most_bytes* or
                ``limits.write_bytes``.
            ReadOnlyError: If one of its paths is read-only.
        """
        from .patch.patch_plan import (
            parse_patch,  # on use, as in ``edit``
            plan_patch,
        )

        self._check_writable()
        plan = plan_patch(
            parse_patch(patch), lambda path: self._state(path, most_bytes), encoding=encoding
        )
        for change in plan.changes:
            self._check_change(change, most_bytes)
        with self._undo_on_error() as touched:
            for change in plan.changes:
                if change.after is not None:
                    self._make_parents(change.path, touched)
                touched.append((change.path, change.before))
                self._set_state(change.path, change.after)
            gone = [change.path for change in plan.changes if change.after is None]
            self._delete_emptied(gone, touched)
        return PatchResult(plan.files)

    def delete(self, path: str | WorkspacePath, *, recursive: bool = False) -> None:
        """Delete a file, a link or an empty directory; with *recursive*, any directory.

        Raises:
            DirectoryNotEmptyError: If a directory has entries and *recursive* is not set.
            ReadOnlyError: If *path* or anything below it is read-only.
        """
        self._check_writable()
        entry = self._existing(self._not_root(path, "delete"), follow=False)
        self._check_removable(entry.path)
        self._delete(entry.path, recursive=recursive)

    def mkdir(
        self, path: str | WorkspacePath, *, parents: bool = True, exist_ok: bool = True
    ) -> None:
        """Create a directory.

        Raises:
            FileMissingError: If the parent directory is missing and *parents* is not set.
            PathExistsError: If *path* exists, unless it is a directory and *exist_ok* is set.
            ReadOnlyError: If *path* is read-only.
        """
        self._check_writable()
        given = parse_path(path)
        physical, entry = self._resolve(given)
        if entry is not None:
            if exist_ok and entry.kind is FileKind.DIRECTORY:
                return
            raise PathExistsError(f"{given} exists already")
        self._check_writable(physical)
        with self._undo_on_error() as touched:
            if parents:
                self._make_parents(physical, touched)
            self._mkdir(physical)

    def move(
        self,
        source: str | WorkspacePath,
        destination: str | WorkspacePath,
        *,
        overwrite: bool = False,
    ) -> None:
        """Rename a file, link or directory to *destination*; missing parents are created.

        Raises:
            PathExistsError: If *destination* exists, unless *overwrite* is set and neither is
                a directory.
            UsageError: If *destination* is inside *source*.
            ReadOnlyError: If one of them, or anything below *source*, is read-only.
        """
        self._check_writable()
        moved = self._existing(self._not_root(source, "move"), follow=False)
        given = parse_path(destination)
        physical, entry = self._resolve(given, follow=False)
        if physical == moved.path and overwrite:
            return
        if entry is not None and not (
            overwrite and FileKind.DIRECTORY not in (entry.kind, moved.kind)
        ):
            raise PathExistsError(
                f"{given} exists already",
                hint="Give the full new path of the file or directory; it must not exist.",
            )
        if physical.is_below(moved.path):
            raise UsageError(
                f"{source} cannot be moved inside itself",
                hint="Choose a destination outside of it.",
            )
        self._check_removable(moved.path)
        self._check_writable(physical)
        with self._undo_on_error() as touched:
            self._make_parents(physical, touched)
            self._move(moved.path, physical)

    def set_executable(self, path: str | WorkspacePath, executable: bool) -> None:
        """Set or clear the executable bit of a file.

        Raises:
            ReadOnlyError: If *path* is read-only.
        """
        self._check_writable()
        file = self._file(parse_path(path))
        self._check_writable(file.path)
        self._set_executable(file.path, executable=executable)

    def symlink(self, path: str | WorkspacePath, target: str) -> None:
        """Create a link to *target*, which is relative to the link's directory.

        Raises:
            LinkError: If *target* is absolute or leads outside the workspace.
            PathExistsError: If *path* exists.
            ReadOnlyError: If *path* is read-only.
        """
        self._check_writable()
        given = parse_path(path)
        physical, entry = self._resolve(given, follow=False)
        if entry is not None:
            raise PathExistsError(f"{given} exists already")
        check_target(physical, target)
        self._check_writable(physical)
        with self._undo_on_error() as touched:
            self._make_parents(physical, touched)
            self._symlink(physical, target)

    # History

    @abstractmethod
    def snapshot(self) -> object:
        """A token for the current state; the same object while nothing changes."""

    @abstractmethod
    def restore(self, token: object) -> None:
        """Restore the state of a token of this filesystem.

        Raises:
            SnapshotError: For any other token; nothing is changed.
        """

    @abstractmethod
    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        """The paths that differ between two snapshots, *before* and *after*, in path order.

        Each is what ``snapshot`` returned; *after* defaults to now.

        Directories count as paths, so adding or deleting an empty one is a change.
        """

    def diff(self, before: object, after: object | None = None) -> str:
        """``changes`` of *before* and *after* as a diff, for ``git apply`` and ``patch -p1``."""
        from .diff.rendering import render_diff  # on use, as in ``edit``

        return render_diff(self.changes(before, after))

    # Primitives: one physical path each, no link followed

    @abstractmethod
    def _stat(self, path: WorkspacePath) -> FileStat | None:
        """The entry at *path*; ``None`` if it does not exist or its parent is not a directory."""

    @abstractmethod
    def _children(self, path: WorkspacePath) -> Iterable[FileStat]:
        """The entries of the directory *path*, in any order."""

    @abstractmethod
    def _open(self, path: WorkspacePath) -> BinaryIO:
        """The file *path*, open for reading and seeking; the caller closes it."""

    @abstractmethod
    def _write(self, path: WorkspacePath, data: bytes, *, mode: WriteMode) -> None:
        """Write the file *path*, whose parent exists, and keep its executable bit."""

    @abstractmethod
    def _delete(self, path: WorkspacePath, *, recursive: bool) -> None:
        """Delete a file, a link or an empty directory; with *recursive*, any directory."""

    @abstractmethod
    def _mkdir(self, path: WorkspacePath) -> None:
        """Create the directory *path*; its parent exists."""

    @abstractmethod
    def _move(self, source: WorkspacePath, destination: WorkspacePath) -> None:
        """Rename; replaces a file or link at *destination*, whose parent exists."""

    @abstractmethod
    def _set_executable(self, path: WorkspacePath, *, executable: bool) -> None:
        """Set or clear the executable bit of the file *path*."""

    @abstractmethod
    def _symlink(self, path: WorkspacePath, target: str) -> None:
        """Create the link *path*, whose parent exists, with any *target*."""

    def _fingerprint(self, path: WorkspacePath) -> str:
        """``fingerprint`` of a physical path; backends may cache it."""
        entry = self._existing(path, follow=False)
        if entry.kind is FileKind.DIRECTORY:
            return directory_fingerprint(
                (entry.path.name, self._fingerprint(entry.path)) for entry in self._children(path)
            )
        if entry.kind is FileKind.SYMLINK:
            return link_fingerprint(entry.target or "")
        with self._open(path) as stream:
            chunks = iter(lambda: stream.read(_CHUNK_BYTES), b"")
            return file_fingerprint(chunks, executable=entry.executable)

    # Looking up paths

    def _resolve(
        self, path: WorkspacePath, *, follow: bool = True
    ) -> tuple[WorkspacePath, FileStat | None]:
        """The physical path of *path*, and its entry."""
        return resolve(self._stat, path, follow=follow)

    def _existing(self, path: WorkspacePath, *, follow: bool = True) -> FileStat:
        """The entry at *path*, with its physical path."""
        physical, entry = resolve(self._stat, path, follow=follow)
        if entry is not None:
            return entry
        for ancestor in physical.ancestors():
            above = self._stat(ancestor)
            if above is not None and above.kind is FileKind.FILE:
                raise DirectoryExpectedError(f"{path} does not exist: {ancestor} is a file")
        raise FileMissingError(f"{path} does not exist")

    def _file(self, path: WorkspacePath) -> FileStat:
        entry = self._existing(path)
        if entry.kind is FileKind.DIRECTORY:
            raise FileExpectedError(f"{path} is a directory")
        return entry

    def _directory(self, path: WorkspacePath) -> WorkspacePath:
        entry = self._existing(path)
        if entry.kind is not FileKind.DIRECTORY:
            raise DirectoryExpectedError(f"{path} is not a directory")
        return entry.path

    def _not_root(self, path: str | WorkspacePath, verb: str) -> WorkspacePath:
        parsed = parse_path(path)
        if not parsed.parts:
            raise UsageError(
                f"cannot {verb} the root of the workspace", hint="Name a path below it."
            )
        return parsed

    def _found(
        self,
        base: WorkspacePath,
        given: WorkspacePath,
        pattern: GlobPattern,
        timer: SearchTimer | None = None,
        last: Sequence[str] = (),
    ) -> Iterator[FileStat]:
        """The matches below the physical *base*, with their paths below *given*."""
        for entry in find(self._children, base, pattern, timer, last):
            yield replace(entry, path=entry.path.moved(base, given))

    def _heads(
        self,
        base: WorkspacePath,
        wanted: GlobPattern,
        timer: SearchTimer,
    ) -> Iterator[Heads]:
        """The files below the physical *base*, in path order, for ``grep``.

        Also dangling links, which count as unreadable. Raises ``SearchTimeoutError``.
        """
        for entry in find(self._children, base, wanted, timer, DERIVED_NAMES):
            broken_link = entry.kind is FileKind.SYMLINK and not self.exists(entry.path)
            if entry.kind is FileKind.FILE or broken_link:
                yield self._head(entry.path)

    def _head(self, path: WorkspacePath) -> Heads:
        head = None
        with suppress(FilesystemError, OSError), self._open(path) as stream:
            head = stream.read(HEAD_BYTES)
        return path.parent, (path.name,), (head,)

    def _timer(self) -> SearchTimer:
        return SearchTimer(self.clock, self.limits.search_timeout_s)

    def _state(self, path: WorkspacePath, most_bytes: int | None) -> FileState | None:
        entry = self._stat(path)
        if entry is None:
            return None
        if entry.kind is FileKind.FILE:
            return FileState(entry.kind, self._content(entry, most_bytes), entry.executable)
        return FileState(entry.kind, (entry.target or "").encode("utf-8", "surrogateescape"))

    def _content(self, file: FileStat, most_bytes: int | None) -> bytes:
        """The content of a file that is within the limit for writing."""
        self._check_size(file.path, file.size_bytes, most_bytes)
        with self._open(file.path) as stream:
            data = stream.read(file.size_bytes + 1)  # allocates no more than needed
            if len(data) > file.size_bytes:  # it grew
                data += stream.read(self._most(most_bytes) + 1 - len(data))
        if len(data) > file.size_bytes:
            self._check_size(file.path, len(data), most_bytes)
        return data

    # Checks

    def _check_writable(self, *paths: WorkspacePath) -> None:
        if self.read_only:
            raise ReadOnlyError("the filesystem is read-only")
        for physical in paths:
            for read_only in self.read_only_paths:
                if physical.is_below(read_only):
                    raise ReadOnlyError(f"{physical} is read-only")

    def _check_removable(self, physical: WorkspacePath) -> None:
        self._check_writable(physical)
        for read_only in self.read_only_paths:
            if read_only.is_below(physical):
                raise ReadOnlyError(
                    f"{read_only} is read-only, so {physical} cannot be deleted or moved"
                )

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
        self, path: WorkspacePath, text: str, old: str, new: str, most_bytes: int | None
    ) -> None:
        """Refuse a result above the limit before it fills the memory."""
        n_places = max(text.count(old), text.replace("\r\n", "\n").count(old))
        self._check_size(path, n_places * len(new), most_bytes)

    def _check_change(self, change: FileChange, most_bytes: int | None) -> None:
        self._check_writable(change.path)
        if change.after is not None:
            self._check_size(change.path, len(change.after.data), most_bytes)
            if change.after.kind is FileKind.SYMLINK:
                check_target(change.path, _target_of(change.after))

    # Changes of several paths

    def _undo_on_error(self) -> _UndoOnError:
        """Restore the touched paths, newest first, if the block raises."""
        return _UndoOnError(self._undo)

    def _undo(self, touched: _Touched, cause: BaseException) -> None:
        failures: list[Exception] = []
        for path, state in reversed(touched):
            try:
                self._set_state(path, state)
            except _CHANGED_BY_OTHERS:
                pass  # another process changed the path, its entries or its parent
            except Exception as error:  # noqa: BLE001 - all paths are tried before raising
                failures.append(error)
        if failures:
            raise RollbackError("some files could not be restored", failures) from cause

    def _set_state(self, path: WorkspacePath, state: FileState | None) -> None:
        """Change *path*, whose parent exists, to *state*."""
        entry = self._stat(path)
        same_kind = entry is not None and state is not None and entry.kind is state.kind
        if entry is not None and not (same_kind and entry.kind is not FileKind.SYMLINK):
            self._delete(path, recursive=False)
        if state is None:
            return
        if state.kind is FileKind.FILE:
            self._write(path, state.data, mode="overwrite")
            if state.executable != (same_kind and entry is not None and entry.executable):
                self._set_executable(path, executable=state.executable)
        elif state.kind is FileKind.SYMLINK:
            self._symlink(path, _target_of(state))
        elif not same_kind:
            self._mkdir(path)

    def _make_parents(self, physical: WorkspacePath, touched: _Touched) -> None:
        above = self._stat(physical.parent)
        if above is not None and above.kind is FileKind.DIRECTORY:
            return
        for ancestor in physical.ancestors():
            entry = self._stat(ancestor)
            if entry is None:
                touched.append((ancestor, None))
                self._mkdir(ancestor)
            elif entry.kind is not FileKind.DIRECTORY:
                raise DirectoryExpectedError(f"{ancestor} is not a directory")

    def _delete_emptied(self, gone: Iterable[WorkspacePath], touched: _Touched) -> None:
        """Delete the parents of the deleted paths *gone* that are now empty."""
        above = {ancestor for path in gone for ancestor in path.ancestors() if ancestor.parts}
        for ancestor in sorted(above, reverse=True):  # children before parents
            entry = self._stat(ancestor)
            if entry is None or entry.kind is not FileKind.DIRECTORY:
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
