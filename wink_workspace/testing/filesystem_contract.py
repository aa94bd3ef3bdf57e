# ruff: noqa: S101, SLF001, D102 - tests assert, create links with primitives, and have names that
# say what they test
"""The behaviour required of every filesystem, as test suites for authors of backends.

Subclass the suites in a test module and define how to make a filesystem::

    class TestMyFilesystem(FilesystemContract, HistoryContract):
        @pytest.fixture
        def new_filesystem(self, tmp_path):
            def new(files=None, *, limits=None, read_only=False):
                return MyFilesystem(...)
            return new

``HistoryContract`` is for backends that support snapshots.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Protocol

import pytest

from wink_workspace.errors import (
    BinaryFileError,
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    EditError,
    FileExpectedError,
    FileMissingError,
    InvalidPathError,
    LimitExceededError,
    LinkError,
    PatchError,
    PathEscapeError,
    PathExistsError,
    PatternError,
    ReadOnlyError,
    SnapshotError,
    UsageError,
)
from wink_workspace.filesystem import (
    FileKind,
    FileStat,
    FileState,
    Filesystem,
    FilesystemLimits,
    MemoryFilesystem,
    WorkspacePath,
    parse_path,
)

from .faults import CrashError, FailingFilesystem

ESCAPES = (
    "..",
    "../etc/passwd",
    "../../../../etc/passwd",
    "a/..",
    "a/../..",
    "a/../../b",
    "./..",
    "a/./../..",
    "a//..//..",
    "../a",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "/./a",
    "/..",
    "a\0",
    "\0",
    "a\0/../b",
    "a/\ud800",
)
"""Texts that are not workspace paths; every method must refuse them."""

NAMES = (
    ".hidden",
    "...",
    " leading",
    "trailing ",
    "trailing.",
    "two  spaces",
    "tab\there",
    "line\nbreak",
    "quote\"'`",
    "star*?[x]{a,b}",
    "~",
    "-rf",
    "$HOME",
    "%2e%2e",
    "C:",
    "caf\u00e9",
    "cafe\u0301",
    "\u202egnp.exe",
    "\uff0e\uff0e",
    "\U0001f600",
    "UPPER",
    "upper",
    "con",
    "..\\a",
    "a\\..\\..\\b",
    "\\\\server\\share",
    "C:\\a",
    "a\\b",
    "\\",
    "a" * 255,
)
"""Unusual but valid names, all different."""

READERS: dict[str, Callable[[Filesystem, str], object]] = {
    "stat": lambda files, path: files.stat(path),
    "exists": lambda files, path: files.exists(path),
    "list": lambda files, path: files.list(path),
    "walk": lambda files, path: list(files.walk(path)),
    "open": lambda files, path: files.open(path),
    "read_bytes": lambda files, path: files.read_bytes(path),
    "read_text": lambda files, path: files.read_text(path),
    "glob": lambda files, path: files.glob("*", path),
    "glob pattern": lambda files, path: files.glob(path),
    "grep": lambda files, path: files.grep("x", path),
    "grep glob": lambda files, path: files.grep("x", glob=path),
    "fingerprint": lambda files, path: files.fingerprint(path),
    "identify": lambda files, path: files.identify(path),
}
"""Every method that only reads, called with one path."""

MUTATORS: dict[str, Callable[[Filesystem, str], object]] = {
    "write_bytes": lambda files, path: files.write_bytes(path, b"x"),
    "write_text": lambda files, path: files.write_text(path, "x"),
    "create": lambda files, path: files.write_bytes(path, b"x", mode="create"),
    "append": lambda files, path: files.write_bytes(path, b"x", mode="append"),
    "edit": lambda files, path: files.edit(path, "text", "other"),
    "patch": lambda files, path: files.apply_patch(_deletion(path)),
    "delete": lambda files, path: files.delete(path),
    "delete recursive": lambda files, path: files.delete(path, recursive=True),
    "mkdir": lambda files, path: files.mkdir(path),
    "move from": lambda files, path: files.move(path, "elsewhere"),
    "move to": lambda files, path: files.move("file.txt", path),
    "set_executable": lambda files, path: files.set_executable(path, True),
    "symlink": lambda files, path: files.symlink(path, "file.txt"),
}
"""Every method that changes something, called with one path."""


class FilesystemFactory(Protocol):
    """Makes a filesystem that contains *files* and nothing else."""

    def __call__(
        self,
        files: Mapping[str, bytes] | None = None,
        *,
        limits: FilesystemLimits | None = None,
        read_only: bool = False,
    ) -> Filesystem: ...


def contents(filesystem: Filesystem) -> dict[str, FileState]:
    """The states of all paths of a filesystem; equal filesystems have equal contents."""
    return {str(entry.path): _state(filesystem, entry) for entry in filesystem.walk()}


def _state(filesystem: Filesystem, entry: FileStat) -> FileState:
    if entry.kind is FileKind.FILE:
        return FileState(entry.kind, filesystem.read_bytes(entry.path), entry.executable)
    return FileState(entry.kind, (entry.target or "").encode("utf-8", "surrogateescape"))


def _deletion(path: str) -> str:
    return f"*** Begin Patch\n*** Delete File: {path}\n*** End Patch\n"


def _make_link(filesystem: Filesystem, path: str, target: str) -> None:
    """Create a link that ``symlink`` would refuse, as untrusted code can."""
    filesystem._symlink(parse_path(path), target)


def _found(filesystem: Filesystem, pattern: str, path: str = ".") -> list[str]:
    return [str(found) for found in filesystem.glob(pattern, path).paths]


class _Suite:
    @pytest.fixture
    def new_filesystem(self) -> FilesystemFactory:
        """A factory for the filesystem under test."""
        raise NotImplementedError

    @pytest.fixture
    def filesystem(self, new_filesystem: FilesystemFactory) -> Filesystem:
        """A filesystem with a file, a directory with a file, and an empty directory."""
        files = new_filesystem({"file.txt": b"text\n", "full/inner.txt": b"inner\n"})
        files.mkdir("empty")
        return files


class FilesystemContract(_Suite):
    """The behaviour of all methods except those of history."""

    # Paths

    @pytest.mark.behaviour(41)
    @pytest.mark.parametrize("path", ESCAPES, ids=ascii)
    def test_path_that_leads_outside_is_refused_everywhere(
        self, filesystem: Filesystem, path: str
    ) -> None:
        before = contents(filesystem)
        for name, call in (READERS | MUTATORS).items():
            if name == "patch" and "\0" in path:
                continue
            with pytest.raises((UsageError, PatchError)) as caught:
                call(filesystem, path)
            assert caught.value.hint, name
        assert contents(filesystem) == before

    @pytest.mark.behaviour(41)
    @pytest.mark.parametrize(
        "spelling", ["./full/inner.txt", "full//inner.txt", "full/./inner.txt", "full/inner.txt/"]
    )
    def test_spellings_of_one_path_name_one_file(
        self, filesystem: Filesystem, spelling: str
    ) -> None:
        assert filesystem.read_bytes(spelling) == b"inner\n"
        filesystem.write_bytes(spelling, b"changed")
        assert filesystem.read_bytes("full/inner.txt") == b"changed"
        assert str(filesystem.stat(spelling).path) == "full/inner.txt"

    @pytest.mark.behaviour(41)
    def test_unusual_names_are_kept_exactly_and_stay_different(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem()
        for name in NAMES:
            files.write_text(f"odd/{name}", name, mode="create")
        assert [str(entry.path.name) for entry in files.list("odd")] == sorted(NAMES)
        assert [files.read_bytes(f"odd/{name}").decode() for name in NAMES] == list(NAMES)

    def test_name_that_is_not_utf_8_is_kept_as_it_is(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem()
        name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
        files.write_bytes(WorkspacePath((name,)), b"x")
        assert [entry.path.name for entry in files.list()] == [name]
        assert files.glob("*.txt").paths == (WorkspacePath((name,)),)
        assert files.read_bytes(name) == b"x"

    @pytest.mark.behaviour(46)
    def test_too_long_path_is_refused_with_the_limit_and_the_value(
        self, filesystem: Filesystem
    ) -> None:
        with pytest.raises(LimitExceededError, match=r"65.*64"):
            filesystem.write_bytes("/".join("a" * 65), b"")
        with pytest.raises(LimitExceededError, match=r"256.*255"):
            filesystem.write_bytes("\u00e9" * 128, b"")

    # Reading

    def test_stat_returns_kind_size_and_executable_bit(self, filesystem: Filesystem) -> None:
        filesystem.set_executable("file.txt", True)
        assert filesystem.stat("file.txt") == FileStat(
            parse_path("file.txt"), FileKind.FILE, 5, executable=True
        )
        assert filesystem.stat("empty") == FileStat(parse_path("empty"), FileKind.DIRECTORY)
        assert filesystem.stat(".").kind is FileKind.DIRECTORY

    def test_list_gives_entries_by_name_and_empty_directories_too(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.write_bytes(".hidden", b"")
        assert [str(entry.path) for entry in filesystem.list()] == [
            ".hidden",
            "empty",
            "file.txt",
            "full",
        ]
        assert filesystem.list("empty") == ()
        assert [str(entry.path) for entry in filesystem.list("full")] == ["full/inner.txt"]

    def test_walk_gives_everything_below_in_path_order(self, filesystem: Filesystem) -> None:
        filesystem.write_bytes("full.txt", b"")
        assert [str(entry.path) for entry in filesystem.walk()] == [
            "empty",
            "file.txt",
            "full",
            "full/inner.txt",
            "full.txt",
        ]

    @pytest.mark.parametrize("reader", ["stat", "list", "walk", "open", "read_bytes", "read_text"])
    def test_missing_path_raises_file_missing_error_with_its_name(
        self, filesystem: Filesystem, reader: str
    ) -> None:
        with pytest.raises(FileMissingError, match=r"full/no/such") as caught:
            READERS[reader](filesystem, "full/no/such")
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.hint
        assert not filesystem.exists("full/no/such")

    def test_file_in_place_of_a_directory_raises_directory_expected_error(
        self, filesystem: Filesystem
    ) -> None:
        for call in (filesystem.list, filesystem.walk, filesystem.glob):
            with pytest.raises(NotADirectoryError):
                call("file.txt") if call != filesystem.glob else filesystem.glob("*", "file.txt")
        with pytest.raises(DirectoryExpectedError):
            filesystem.read_bytes("file.txt/inner")
        assert not filesystem.exists("file.txt/inner")

    def test_directory_in_place_of_a_file_raises_file_expected_error(
        self, filesystem: Filesystem
    ) -> None:
        for name in ("open", "read_bytes", "read_text", "write_bytes", "edit", "set_executable"):
            with pytest.raises(FileExpectedError) as caught:
                (READERS | MUTATORS)[name](filesystem, "full")
            assert isinstance(caught.value, IsADirectoryError)

    def test_part_of_a_file_can_be_read_as_bytes(self, filesystem: Filesystem) -> None:
        assert filesystem.read_bytes("file.txt", offset=1, limit=2) == b"ex"
        assert filesystem.read_bytes("file.txt", offset=3, limit=9) == b"t\n"
        assert filesystem.read_bytes("file.txt", offset=9) == b""
        assert filesystem.read_bytes("file.txt", limit=0) == b""
        with filesystem.open("file.txt") as stream:
            stream.seek(2)
            assert stream.read(2) == b"xt"

    def test_read_text_returns_lines_without_line_ends_and_whether_more_follow(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"a": b"\xef\xbb\xbfone\r\ntwo\nthree\n\nlast"})
        whole = files.read_text("a")
        assert whole.lines == ("one", "two", "three", "", "last")
        assert (whole.first_line, whole.more) == (1, False)
        part = files.read_text("a", offset=1, limit=2)
        assert (part.lines, part.first_line, part.more) == (("two", "three"), 2, True)
        assert part.text == "two\nthree"
        end = files.read_text("a", offset=4, limit=1)
        assert (end.lines, end.more) == (("last",), False)
        assert files.read_text("a", offset=5).lines == ()

    @pytest.mark.behaviour(46)
    def test_lines_over_the_limit_are_refused_and_long_ones_cut(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        limits = FilesystemLimits(read_lines=2, read_line_chars=3)
        files = new_filesystem({"a": b"abc\nabcd\nabc\r\n"}, limits=limits)
        window = files.read_text("a")
        assert (window.lines, window.more, window.n_cut_lines) == (("abc", "abc"), True, 1)
        assert files.read_text("a", offset=2).n_cut_lines == 0
        with pytest.raises(LimitExceededError, match=r"3 lines.*at most 2"):
            files.read_text("a", limit=3)

    @pytest.mark.parametrize("bounds", [{"offset": -1}, {"limit": -1}])
    def test_negative_offset_or_limit_is_refused(
        self, filesystem: Filesystem, bounds: dict[str, int]
    ) -> None:
        with pytest.raises(UsageError, match="-1"):
            filesystem.read_text(
                "file.txt", offset=bounds.get("offset", 0), limit=bounds.get("limit")
            )
        with pytest.raises(UsageError, match="-1"):
            filesystem.read_bytes("file.txt", **bounds)

    @pytest.mark.behaviour(47)
    @pytest.mark.parametrize("data", [b"text\0text", b"\xe9\1 text", b"\x89PNG\r\n\x1a\n text"])
    def test_text_operations_on_binary_files_raise_an_error_with_a_hint(
        self, new_filesystem: FilesystemFactory, data: bytes
    ) -> None:
        files = new_filesystem({"image": data})
        for call in (
            lambda: files.read_text("image"),
            lambda: files.edit("image", "text", "x"),
        ):
            with pytest.raises(BinaryFileError, match="image") as caught:
                call()
            assert caught.value.hint
        assert files.read_bytes("image") == data

    # Writing

    @pytest.mark.behaviour(47)
    @pytest.mark.parametrize(
        "data", [b"", b"\r\n", b"a\r\nb\n\rc", bytes(range(256)), b"\xef\xbb\xbf", b"no newline"]
    )
    def test_bytes_are_read_back_exactly(self, filesystem: Filesystem, data: bytes) -> None:
        result = filesystem.write_bytes("new/deep/file", data)
        assert (result.written_bytes, result.size_bytes) == (len(data), len(data))
        assert result.created
        assert filesystem.read_bytes("new/deep/file") == data

    def test_text_is_written_as_utf_8_with_its_line_ends(self, filesystem: Filesystem) -> None:
        filesystem.write_text("file.txt", "caf\u00e9\r\nx\n")
        assert filesystem.read_bytes("file.txt") == b"caf\xc3\xa9\r\nx\n"
        with pytest.raises(UsageError, match="character 1"):
            filesystem.write_text("file.txt", "a\ud800")
        filesystem.write_text("file.txt", "caf\u00e9\n", encoding="utf-16")
        filesystem.write_text("file.txt", "th\u00e9\n", keep=True)
        assert filesystem.read_bytes("file.txt") == "th\u00e9\n".encode("utf-16")
        assert filesystem.read_text("file.txt").lines == ("th\u00e9",)

    @pytest.mark.behaviour(45)
    def test_create_on_an_existing_path_is_refused(self, filesystem: Filesystem) -> None:
        filesystem.symlink("dangling", "nowhere")
        for path in ("file.txt", "full", "dangling"):
            with pytest.raises(PathExistsError) as caught:
                filesystem.write_bytes(path, b"x", mode="create")
            assert isinstance(caught.value, FileExistsError)
        assert filesystem.read_bytes("file.txt") == b"text\n"
        assert not filesystem.exists("nowhere")

    @pytest.mark.behaviour(45)
    def test_append_reports_the_bytes_appended(self, filesystem: Filesystem) -> None:
        result = filesystem.write_bytes("file.txt", b"more", mode="append")
        assert (result.written_bytes, result.size_bytes, result.created) == (4, 9, False)
        assert filesystem.read_bytes("file.txt") == b"text\nmore"
        assert filesystem.write_bytes("new.txt", b"x", mode="append").created

    @pytest.mark.behaviour(46)
    def test_write_over_the_limit_is_refused_with_the_limit_and_the_value(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"a": b"aaaa"}, limits=FilesystemLimits(write_bytes=4))
        with pytest.raises(LimitExceededError, match=r"5 bytes.*at most 4"):
            files.write_bytes("a", b"12345")
        with pytest.raises(LimitExceededError, match=r"8 bytes.*at most 4"):
            files.edit("a", "a", "bb", replace_all=True)
        with pytest.raises(LimitExceededError, match=r"5 bytes.*at most 4"):
            files.apply_patch("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-aaaa\n+bbbbb\n")
        assert files.read_bytes("a") == b"aaaa"

    def test_path_below_a_file_is_refused_and_leaves_nothing_behind(
        self, filesystem: Filesystem
    ) -> None:
        before = contents(filesystem)
        for name in ("write_bytes", "mkdir", "symlink", "move to"):
            with pytest.raises(NotADirectoryError):
                MUTATORS[name](filesystem, "full/inner.txt/new/file")
        assert contents(filesystem) == before

    def test_executable_bit_survives_writing_editing_and_moving(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.set_executable("file.txt", True)
        filesystem.write_bytes("file.txt", b"text two")
        filesystem.edit("file.txt", "two", "three")
        filesystem.move("file.txt", "moved.txt")
        assert filesystem.stat("moved.txt").executable
        filesystem.set_executable("moved.txt", False)
        assert not filesystem.stat("moved.txt").executable

    # Editing and patching

    @pytest.mark.behaviour(50)
    @pytest.mark.parametrize(
        "data",
        [b"one\ntwo", b"one\r\ntwo\r\n", b"\xef\xbb\xbfone\ntwo\n", "é one".encode(), b"\xe9 one"],
    )
    def test_edit_changes_nothing_but_the_text(
        self, new_filesystem: FilesystemFactory, data: bytes
    ) -> None:
        files = new_filesystem({"a": data})
        result = files.edit("./a", "one", "1")
        assert files.read_bytes("a") == data.replace(b"one", b"1")
        assert (str(result.path), result.n_replaced, result.first_line) == ("a", 1, 1)
        assert "-" in result.diff
        assert "+++ b/a" in result.diff

    @pytest.mark.behaviour(51)
    def test_edit_of_text_that_is_not_unique_needs_replace_all(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"a": b"x = 1\nx = 1\n"})
        with pytest.raises(EditError):
            files.edit("a", "x = 1", "y")
        with pytest.raises(EditError, match="x = 1"):
            files.edit("a", "x = 2", "y")
        assert files.edit("a", "x = 1", "y", replace_all=True).n_replaced == 2
        assert files.read_bytes("a") == b"y\ny\n"

    def test_patch_creates_changes_moves_and_deletes_files(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"old": b"old\n", "gone/only": b"x\n", "kept": b"1\n2\n"})
        result = files.apply_patch(
            "diff --git a/old b/sub/new\nold mode 100644\nnew mode 100755\n"
            "rename from old\nrename to sub/new\n"
            "diff --git a/gone/only b/gone/only\ndeleted file mode 100644\n"
            "--- a/gone/only\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
            "diff --git a/kept b/kept\n--- a/kept\n+++ b/kept\n@@ -1,2 +1,2 @@\n 1\n-2\n+3\n"
            "diff --git a/made/link b/made/link\nnew file mode 120000\n"
            "--- /dev/null\n+++ b/made/link\n@@ -0,0 +1 @@\n+../kept\n"
            "\\ No newline at end of file\n"
        )
        assert [file.action for file in result.files] == ["moved", "deleted", "modified", "created"]
        assert contents(files) == {
            "kept": FileState(FileKind.FILE, b"1\n3\n"),
            "made": FileState(FileKind.DIRECTORY),
            "made/link": FileState(FileKind.SYMLINK, b"../kept"),
            "sub": FileState(FileKind.DIRECTORY),
            "sub/new": FileState(FileKind.FILE, b"old\n", executable=True),
        }

    def test_patch_that_fails_in_its_last_hunk_changes_nothing(
        self, filesystem: Filesystem
    ) -> None:
        before = contents(filesystem)
        with pytest.raises(PatchError, match=r"full/inner\.txt"):
            filesystem.apply_patch(
                "--- a/file.txt\n+++ b/file.txt\n@@ -1 +1 @@\n-text\n+changed\n"
                "--- a/full/inner.txt\n+++ b/full/inner.txt\n@@ -1 +1 @@\n-other\n+changed\n"
            )
        assert contents(filesystem) == before

    @pytest.mark.behaviour(22)
    @pytest.mark.parametrize("afterwards", [False, True])
    def test_patch_whose_n_th_change_crashes_changes_nothing(
        self, new_filesystem: FilesystemFactory, afterwards: bool
    ) -> None:
        """Fail at change 1, 2, 3, ... until the patch is applied."""
        patch = (
            "*** Begin Patch\n*** Delete File: f/g/gone\n*** Update File: old\n"
            "*** Move to: d/e/new\n@@\n-old\n+new\n*** Add File: d/made\n+made\n"
            "*** Update File: run\n@@\n-a\n+b\n*** Delete File: link\n*** End Patch\n"
        )
        for n in itertools.count(1):
            inner = new_filesystem({"f/g/gone": b"x\n", "old": b"old\n", "run": b"a\n"})
            inner.set_executable("run", True)
            inner.symlink("link", "run")
            before = contents(inner)
            files = FailingFilesystem(inner, fail_at=n, afterwards=afterwards)
            try:
                files.apply_patch(patch)
            except CrashError:
                assert contents(inner) == before, f"a trace is left after change {n}"
            else:
                assert n > 8
                assert files.read_bytes("d/e/new") == b"new\n"
                assert not files.exists("f")
                break

    def test_patch_deletes_only_the_directories_that_it_empties(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"a/b/c/one": b"1\n", "a/b/two": b"2\n", "d/moved": b"3\n"})
        files.mkdir("a/empty")
        files.apply_patch(
            "*** Begin Patch\n*** Delete File: a/b/c/one\n*** Delete File: a/b/two\n"
            "*** Update File: d/moved\n*** Move to: e/moved\n@@\n-3\n+4\n*** End Patch\n"
        )
        assert sorted(contents(files)) == ["a", "a/empty", "e", "e/moved"]

    @pytest.mark.parametrize("name", ["write_bytes", "mkdir", "symlink", "move to"])
    def test_crash_at_any_step_leaves_no_parent_directories(
        self, new_filesystem: FilesystemFactory, name: str
    ) -> None:
        for n in itertools.count(1):
            inner = new_filesystem({"file.txt": b"x"})
            before = contents(inner)
            try:
                MUTATORS[name](FailingFilesystem(inner, fail_at=n), "new/deep/path")
            except CrashError:
                assert contents(inner) == before
            else:
                assert n == 4
                break

    # Deleting, making, moving

    def test_delete_of_a_directory_with_entries_needs_recursive(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.delete("empty")
        with pytest.raises(DirectoryNotEmptyError) as caught:
            filesystem.delete("full")
        assert caught.value.hint
        filesystem.delete("full", recursive=True)
        assert [str(entry.path) for entry in filesystem.walk()] == ["file.txt"]
        with pytest.raises(FileMissingError):
            filesystem.delete("full")
        with pytest.raises(UsageError):
            filesystem.delete(".", recursive=True)

    def test_mkdir_creates_parents_and_accepts_an_existing_directory_by_default(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.mkdir("a/b/c")
        filesystem.mkdir("a/b")
        assert filesystem.stat("a/b/c").kind is FileKind.DIRECTORY
        with pytest.raises(FileExistsError):
            filesystem.mkdir("a/b", exist_ok=False)
        with pytest.raises(FileExistsError):
            filesystem.mkdir("file.txt")
        with pytest.raises(FileMissingError):
            filesystem.mkdir("x/y", parents=False)

    def test_move_of_a_directory_moves_its_entries_and_creates_parents(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.mkdir("full/void")
        filesystem.move("full", "new/place")
        assert [str(entry.path) for entry in filesystem.walk("new")] == [
            "new/place",
            "new/place/inner.txt",
            "new/place/void",
        ]
        assert not filesystem.exists("full")

    def test_move_replaces_a_file_only_with_overwrite_and_never_a_directory(
        self, filesystem: Filesystem
    ) -> None:
        with pytest.raises(PathExistsError):
            filesystem.move("file.txt", "full/inner.txt")
        for source, destination in (("file.txt", "empty"), ("empty", "file.txt"), ("full", ".")):
            with pytest.raises(PathExistsError):
                filesystem.move(source, destination, overwrite=True)
        filesystem.move("file.txt", "full/inner.txt", overwrite=True)
        assert filesystem.read_bytes("full/inner.txt") == b"text\n"
        filesystem.move("full/inner.txt", "full/inner.txt", overwrite=True)
        assert filesystem.read_bytes("full/inner.txt") == b"text\n"

    def test_directory_cannot_move_inside_itself(self, filesystem: Filesystem) -> None:
        before = contents(filesystem)
        with pytest.raises(UsageError, match="inside itself"):
            filesystem.move("full", "full/deeper/still")
        with pytest.raises(UsageError):
            filesystem.move(".", "full/x")
        assert contents(filesystem) == before

    def test_move_that_would_make_a_path_too_long_is_refused(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem()
        files.mkdir("/".join("a" * 40))
        files.mkdir("/".join("b" * 40))
        with pytest.raises(LimitExceededError, match="64"):
            files.move("a", "/".join("b" * 30) + "/a")
        files.move("a", "/".join("b" * 24) + "/a")

    # Links

    def test_links_inside_the_workspace_are_followed(self, filesystem: Filesystem) -> None:
        filesystem.symlink("empty/up", "../full")
        filesystem.symlink("chain", "empty/up/inner.txt")
        assert filesystem.read_bytes("chain") == b"inner\n"
        filesystem.write_bytes("empty/up/new.txt", b"new")
        filesystem.edit("chain", "inner", "outer")
        filesystem.set_executable("chain", True)
        assert filesystem.read_bytes("full/new.txt") == b"new"
        assert filesystem.stat("full/inner.txt").executable
        assert filesystem.read_bytes("full/inner.txt") == b"outer\n"
        assert filesystem.fingerprint("chain") == filesystem.fingerprint("full/inner.txt")
        path, fingerprint = filesystem.identify("chain")
        assert (str(path), fingerprint) == (
            "full/inner.txt",
            filesystem.fingerprint("full/inner.txt"),
        )
        for other, follow in (("chain", False), ("full", True)):
            with pytest.raises(FileExpectedError):
                filesystem.identify(other, follow=follow)
        assert [str(entry.path) for entry in filesystem.list("empty/up")] == [
            "empty/up/inner.txt",
            "empty/up/new.txt",
        ]
        assert [str(entry.path) for entry in filesystem.walk("empty/up")] == [
            "empty/up/inner.txt",
            "empty/up/new.txt",
        ]

    def test_stat_describes_the_file_or_the_link_as_asked(self, filesystem: Filesystem) -> None:
        filesystem.symlink("link", "file.txt")
        assert filesystem.stat("link") == FileStat(parse_path("link"), FileKind.FILE, 5)
        assert filesystem.stat("link", follow=False) == FileStat(
            parse_path("link"), FileKind.SYMLINK, 8, target="file.txt"
        )

    def test_write_through_a_dangling_link_creates_its_target(self, filesystem: Filesystem) -> None:
        filesystem.symlink("link", "full/new/file")
        assert not filesystem.exists("link")
        filesystem.write_bytes("link", b"x")
        assert filesystem.read_bytes("full/new/file") == b"x"
        assert filesystem.stat("link", follow=False).kind is FileKind.SYMLINK

    @pytest.mark.behaviour(42)
    @pytest.mark.parametrize(
        "target",
        ["/etc", "/", "..", "../..", "./../../etc", "full/../..", "full/../../../etc", "//etc"],
    )
    def test_no_method_follows_a_link_that_leaves_the_root(
        self, filesystem: Filesystem, target: str
    ) -> None:
        with pytest.raises(LinkError, match="outside"):
            filesystem.symlink("link", target)
        _make_link(filesystem, "link", target)
        before = contents(filesystem)
        through = {**READERS, **MUTATORS}
        for name in ("exists", "glob pattern", "grep glob"):
            del through[name]
        for path in ("link/passwd", "link/new/file"):
            for name, call in through.items():
                with pytest.raises((LinkError, PatchError)):
                    call(filesystem, path)
                assert contents(filesystem) == before, name
        assert not filesystem.exists("link")
        assert filesystem.glob("link/*").paths == ()

    @pytest.mark.behaviour(42)
    def test_chain_of_links_that_leaves_the_root_is_refused(self, filesystem: Filesystem) -> None:
        filesystem.symlink("full/a", "../empty")
        _make_link(filesystem, "climb", "full/a/../../x")
        with pytest.raises(LinkError):
            filesystem.read_bytes("climb")
        filesystem.symlink("back", "full/a/../file.txt")
        assert filesystem.read_bytes("back") == b"text\n"

    @pytest.mark.behaviour(43)
    def test_list_walk_glob_and_grep_work_with_dangling_and_looping_links(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.symlink("dangling", "nowhere")
        filesystem.symlink("loop", "loop")
        filesystem.symlink("one", "two")
        filesystem.symlink("two", "one")
        filesystem.symlink("full/up", "..")
        _make_link(filesystem, "outside", "/etc/passwd")
        assert len(filesystem.list()) == 8
        assert len(list(filesystem.walk())) == 10
        assert _found(filesystem, "**/*.txt") == ["file.txt", "full/inner.txt"]
        found = filesystem.grep("text|inner|root")
        assert [str(match.path) for match in found.matches] == ["file.txt", "full/inner.txt"]
        assert found.n_unreadable == 5

    def test_looping_link_is_refused_with_a_hint(self, filesystem: Filesystem) -> None:
        filesystem.symlink("one", "two")
        filesystem.symlink("two", "one")
        for name in ("stat", "list", "read_bytes", "read_text", "write_bytes", "mkdir", "edit"):
            with pytest.raises(LinkError, match="loop") as caught:
                (READERS | MUTATORS)[name](filesystem, "one")
            assert caught.value.hint

    @pytest.mark.behaviour(44)
    def test_delete_and_move_act_on_the_link_itself(self, filesystem: Filesystem) -> None:
        for name in ("a", "b"):
            filesystem.symlink(name, "full")
        filesystem.symlink("dangling", "nowhere")
        filesystem.delete("a", recursive=True)
        filesystem.move("b", "empty/b")
        filesystem.move("dangling", "file.txt", overwrite=True)
        assert filesystem.read_bytes("full/inner.txt") == b"inner\n"
        assert filesystem.stat("empty/b", follow=False).target == "full"
        assert filesystem.stat("file.txt", follow=False).target == "nowhere"
        assert not filesystem.exists("a")

    def test_link_whose_target_passes_a_missing_path_or_a_file_is_refused(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.symlink("missing", "no/../file.txt")
        filesystem.symlink("file", "file.txt/../file.txt")
        with pytest.raises(FileMissingError):
            filesystem.read_bytes("missing")
        with pytest.raises(DirectoryExpectedError):
            filesystem.read_bytes("file")
        assert not filesystem.exists("missing")
        assert not filesystem.exists("file")

    @pytest.mark.parametrize("target", ["", "a\0b", "\ud800"])
    def test_link_with_an_invalid_target_is_refused(
        self, filesystem: Filesystem, target: str
    ) -> None:
        with pytest.raises(InvalidPathError):
            filesystem.symlink("link", target)
        with pytest.raises(LimitExceededError, match=r"4100.*4095"):
            filesystem.symlink("link", "a/" * 2_050)
        with pytest.raises(PathExistsError):
            filesystem.symlink("full", "file.txt")

    def test_path_that_a_link_makes_too_long_is_refused(self, filesystem: Filesystem) -> None:
        filesystem.symlink("long", "a/" * 70)
        filesystem.symlink("odd", "n" * 256)
        for path in ("long/file", "long", "odd"):
            with pytest.raises(LinkError, match=r"not lead to a valid path"):
                filesystem.write_bytes(path, b"")
            assert not filesystem.exists(path)
        assert filesystem.grep("x").n_unreadable == 2

    # Searching

    @pytest.mark.behaviour(48)
    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*.py", "a.py"),
            ("**/*.py", ".h/d.py a.py s/b.py s/t/c.py"),
            ("s/*.py", "s/b.py"),
            ("s/**/*.py", "s/b.py s/t/c.py"),
            ("**/t/**", "s/t/c.py"),
            ("**", ".h .h/d.py a.py s s/b.py s/t s/t/c.py x.PY"),
            ("**/", ".h s s/t"),
            ("*", ".h a.py s x.PY"),
            (".*", ".h"),
            ("[a-b].p?", "a.py"),
            ("[!a]*", ".h s x.PY"),
            ("{a.py,s/{b,z}.py}", "a.py s/b.py"),
            ("s//./b.py", "s/b.py"),
            ("**/**/**/c.py", "s/t/c.py"),
            ("s/t/c.py/*", ""),
            ("nothing", ""),
            ("no/such/*", ""),
            ("A.PY", ""),
        ],
    )
    def test_glob_finds_what_matches(
        self, new_filesystem: FilesystemFactory, pattern: str, expected: str
    ) -> None:
        names = ("a.py", "x.PY", "s/b.py", "s/t/c.py", ".h/d.py")
        files = new_filesystem(dict.fromkeys(names, b""))
        assert _found(files, pattern) == expected.split()

    def test_glob_below_a_directory_names_paths_from_the_root(self, filesystem: Filesystem) -> None:
        filesystem.symlink("link", "full")
        assert _found(filesystem, "*", "full") == ["full/inner.txt"]
        assert _found(filesystem, "**", "link") == ["link/inner.txt"]
        assert _found(filesystem, "link/*") == ["link/inner.txt"]
        with pytest.raises(FileMissingError):
            filesystem.glob("*", "nowhere")

    @pytest.mark.behaviour(46)
    def test_glob_and_grep_stop_at_their_limits_and_set_truncated(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        limits = FilesystemLimits(glob_results=2, grep_matches=2, read_line_chars=3)
        files = new_filesystem({"a": b"xxxx\nx\n", "b": b"x\n", "c": b""}, limits=limits)
        assert _found(files, "*") == ["a", "b"]
        assert files.glob("*").truncated
        assert not files.glob("[ab]").truncated
        found = files.grep("x")
        assert [(str(m.path), m.line, m.text) for m in found.matches] == [
            ("a", 1, "xxx"),
            ("a", 2, "x"),
        ]
        assert found.truncated
        assert not files.grep("x", "a").truncated

    @pytest.mark.parametrize("pattern", ["", "/", ".", "a" * 1_001, "{a,b}" * 9])
    def test_glob_that_is_empty_too_long_or_has_too_many_alternatives_is_refused(
        self, filesystem: Filesystem, pattern: str
    ) -> None:
        with pytest.raises((LimitExceededError, PathEscapeError, PatternError)) as caught:
            filesystem.glob(pattern)
        assert caught.value.hint

    def test_grep_finds_lines_in_files_and_directories(self, filesystem: Filesystem) -> None:
        filesystem.write_bytes("full/b.py", b"one\r\ntwo inner\r\n")
        found = filesystem.grep(r"\binner$")
        assert [(str(m.path), m.line, m.text) for m in found.matches] == [
            ("full/b.py", 2, "two inner"),
            ("full/inner.txt", 1, "inner"),
        ]
        assert found.n_files == 3
        filesystem.symlink("link", "full")
        assert [str(m.path) for m in filesystem.grep("one", "link").matches] == ["link/b.py"]
        assert [str(m.path) for m in filesystem.grep("^text", "file.txt").matches] == ["file.txt"]

    def test_grep_filter_without_a_slash_matches_at_any_depth(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem(dict.fromkeys(("a.py", "s/b.py", "s/t/c.py", "s/d.md"), b"x"))

        def found(glob: str, path: str = ".") -> list[str]:
            return [str(match.path) for match in files.grep("x", path, glob=glob).matches]

        assert found("*.py") == ["a.py", "s/b.py", "s/t/c.py"]
        assert found("s/*.py") == ["s/b.py"]
        assert found("*.py", "s") == ["s/b.py", "s/t/c.py"]
        assert found("t/*", "s") == ["s/t/c.py"]

    @pytest.mark.behaviour(49)
    def test_grep_skips_binary_files_and_counts_them(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"a": b"x\0x", "b": b"x\xff\n", "c": b"x"})
        found = files.grep("x")
        assert [(str(match.path), match.text) for match in found.matches] == [
            ("b", "x\ufffd"),
            ("c", "x"),
        ]
        assert (found.n_files, found.n_binary) == (2, 1)

    @pytest.mark.behaviour(49)
    @pytest.mark.parametrize(
        ("pattern", "position"), [("a(b", 3), ("*a", 0), ("a{2,1}", 2), ("[z-a]", 4), ("a**", 2)]
    )
    def test_error_of_an_invalid_expression_names_the_position(
        self, filesystem: Filesystem, pattern: str, position: int
    ) -> None:
        with pytest.raises(PatternError, match=rf"{re.escape(pattern)}.*position {position}"):
            filesystem.grep(pattern)

    @pytest.mark.behaviour(49)
    @pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", "(?R)?a"])
    def test_hostile_expression_ends_at_the_time_limit_and_says_where(
        self, new_filesystem: FilesystemFactory, pattern: str
    ) -> None:
        limits = FilesystemLimits(search_timeout_s=0.05)
        content = {"b": b"a" * 5_000 + b"!\n", "c": b"a\n"}
        files = new_filesystem(content, limits=limits)
        for path in (".", "b"):
            found = files.grep(pattern, path)
            assert (found.matches, found.n_files) == ((), 0)
            assert (found.timed_out_s, str(found.stopped_at)) == (0.05, "b")

    # Read-only filesystems and paths

    @pytest.mark.behaviour(53)
    def test_every_change_of_a_read_only_filesystem_is_refused(
        self, new_filesystem: FilesystemFactory
    ) -> None:
        files = new_filesystem({"file.txt": b"text\n"}, read_only=True)
        for path in ("file.txt", "new.txt"):
            for call in MUTATORS.values():
                with pytest.raises(ReadOnlyError) as caught:
                    call(files, path)
                assert isinstance(caught.value, PermissionError)
                assert caught.value.hint
        assert files.read_bytes("file.txt") == b"text\n"

    @pytest.mark.behaviour(53)
    def test_read_only_path_and_its_parents_cannot_be_changed_moved_or_deleted(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.write_bytes("full/fixed/file.txt", b"text\n")
        filesystem.symlink("link", "full/fixed")
        # How they are configured depends on the backend; every backend must obey them
        filesystem._read_only_paths = (parse_path("full/fixed"),)
        before = contents(filesystem)
        refused = [(call, "full/fixed/file.txt") for call in MUTATORS.values()]
        refused += [(call, "link/file.txt") for call in MUTATORS.values()]
        for name in ("delete recursive", "move from"):
            refused += [(MUTATORS[name], "full"), (MUTATORS[name], "full/fixed")]
        for call, path in refused:
            with pytest.raises((ReadOnlyError, PathExistsError, PatchError)):
                call(filesystem, path)
        assert contents(filesystem) == before
        filesystem.write_bytes("full/inner.txt", b"free")
        filesystem.delete("link")

    # Fingerprints

    def test_fingerprint_depends_on_the_content_only(self, filesystem: Filesystem) -> None:
        filesystem.symlink("link", "file.txt")
        same = MemoryFilesystem({"file.txt": b"text\n", "full/inner.txt": b"inner\n"})
        same.mkdir("empty")
        assert filesystem.fingerprint() != same.fingerprint()
        same.symlink("link", "file.txt")
        assert filesystem.fingerprint() == same.fingerprint()

    def test_fingerprint_differs_after_every_change(self, filesystem: Filesystem) -> None:
        seen = {filesystem.fingerprint()}
        steps: list[Callable[[], object]] = [
            lambda: filesystem.write_bytes("file.txt", b"texT\n"),
            lambda: filesystem.set_executable("file.txt", True),
            lambda: filesystem.mkdir("full/void"),
            lambda: filesystem.symlink("link", "file.txt"),
            lambda: filesystem.move("link", "link2"),
            lambda: filesystem.delete("empty"),
        ]
        for n, step in enumerate(steps, start=2):
            step()
            seen.add(filesystem.fingerprint())
            assert len(seen) == n
        assert filesystem.fingerprint("full") != filesystem.fingerprint("full/void")


class HistoryContract(_Suite):
    """The behaviour of snapshots and of their differences."""

    @pytest.mark.behaviour(22)
    @pytest.mark.behaviour(29)
    def test_restore_restores_all_files_modes_links_and_directories(
        self, filesystem: Filesystem
    ) -> None:
        filesystem.symlink("link", "file.txt")
        filesystem.set_executable("file.txt", True)
        filesystem.write_bytes(".gitignore", b"*\n")
        before, token = contents(filesystem), filesystem.snapshot()
        filesystem.write_bytes("file.txt", b"changed")
        filesystem.set_executable("file.txt", False)
        filesystem.delete("full", recursive=True)
        filesystem.delete("empty")
        filesystem.delete("link")
        filesystem.write_bytes("link/new", b"new")
        filesystem.restore(token)
        assert contents(filesystem) == before
        filesystem.restore(token)
        assert contents(filesystem) == before

    def test_snapshots_can_be_restored_in_any_order(self, filesystem: Filesystem) -> None:
        tokens = [filesystem.snapshot()]
        for n in range(5):
            filesystem.write_text("n", str(n))
            tokens.append(filesystem.snapshot())
        for n in (3, 1, 4, 0, 2):
            filesystem.restore(tokens[n + 1])
            assert filesystem.read_bytes("n") == str(n).encode()
        filesystem.restore(tokens[0])
        assert not filesystem.exists("n")

    def test_snapshot_is_the_same_object_while_nothing_changes(
        self, filesystem: Filesystem
    ) -> None:
        token = filesystem.snapshot()
        filesystem.read_bytes("file.txt")
        filesystem.grep("x")
        assert filesystem.snapshot() is token
        filesystem.write_bytes("file.txt", b"changed")
        assert filesystem.snapshot() is not token
        filesystem.restore(token)
        assert filesystem.snapshot() is token

    @pytest.mark.behaviour(33)
    def test_snapshot_of_another_filesystem_is_refused_and_changes_nothing(
        self, filesystem: Filesystem, new_filesystem: FilesystemFactory
    ) -> None:
        before, own = contents(filesystem), filesystem.snapshot()
        foreign = new_filesystem({"file.txt": b"text\n"}).snapshot()
        for token in (foreign, MemoryFilesystem().snapshot(), "token", object()):
            for call in (filesystem.restore, filesystem.changes):
                with pytest.raises(SnapshotError) as caught:
                    call(token)
                assert caught.value.hint
            with pytest.raises(SnapshotError):
                filesystem.changes(own, token)
        assert contents(filesystem) == before

    def test_changes_are_the_paths_that_differ(self, filesystem: Filesystem) -> None:
        before = filesystem.snapshot()
        filesystem.write_bytes("file.txt", b"changed")
        filesystem.delete("empty")
        filesystem.mkdir("new/void")
        filesystem.move("full/inner.txt", "moved.txt")
        changes = filesystem.changes(before)
        assert {str(c.path): (c.before is not None, c.after is not None) for c in changes} == {
            "empty": (True, False),
            "file.txt": (True, True),
            "full/inner.txt": (True, False),
            "moved.txt": (False, True),
            "new": (False, True),
            "new/void": (False, True),
        }
        assert list(changes) == sorted(changes, key=lambda change: change.path)
        after = filesystem.snapshot()
        filesystem.restore(before)
        assert filesystem.changes(before, after) == changes
        assert filesystem.changes(before) == ()

    def test_file_deleted_and_written_again_with_equal_content_is_not_a_change(
        self, filesystem: Filesystem
    ) -> None:
        before = filesystem.snapshot()
        filesystem.delete("full", recursive=True)
        filesystem.write_bytes("full/inner.txt", b"inner\n")
        assert filesystem.changes(before) == ()

    def test_diff_turns_one_state_into_the_other(self, filesystem: Filesystem) -> None:
        before = filesystem.snapshot()
        filesystem.write_bytes("file.txt", b"text\nmore")
        filesystem.set_executable("full/inner.txt", True)
        filesystem.write_bytes("new/file.bin", bytes(range(256)))
        filesystem.symlink("link", "file.txt")
        wanted, diff = contents(filesystem), filesystem.diff(before)
        filesystem.restore(before)
        filesystem.apply_patch(diff)
        assert contents(filesystem) == wanted
