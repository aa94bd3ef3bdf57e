"""Searching takes bounded time for any pattern and any tree."""

from __future__ import annotations

import fnmatch
import io
from collections.abc import Callable, Iterable
from typing import BinaryIO

import pytest
import regex
from hypothesis import assume, example, given
from hypothesis import strategies as st

from wink_workspace.clock import ManualClock
from wink_workspace.errors import (
    FileMissingError,
    LimitExceededError,
    PatternError,
    SearchTimeoutError,
)
from wink_workspace.filesystem import (
    FileKind,
    FileStat,
    FilesystemLimits,
    MemoryFilesystem,
    WorkspacePath,
    parse_path,
)
from wink_workspace.filesystem.search import (
    SearchTimer,
    compile_expression,
    compile_filter,
    compile_glob,
    find,
    grep_files,
    literal_prefix,
)

Children = Callable[[WorkspacePath], Iterable[FileStat]]


class EndlessTree:
    """A directory that contains itself and counts how often it is listed."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.n_listed = 0

    def children(self, path: WorkspacePath) -> list[FileStat]:
        self.n_listed += 1
        self.clock.advance(1)
        return [FileStat(path / "a", FileKind.DIRECTORY)]


def test_many_double_stars_keep_a_bounded_number_of_positions() -> None:
    pattern = compile_glob("**/a/" * 20 + "b")
    positions = pattern.start
    for _ in range(60):
        positions = pattern.step(positions, "a")
        assert len(positions) <= 2 * 20 + 2
    assert not pattern.accepts(positions, FileKind.FILE)


@pytest.mark.parametrize("pattern", ["*a" * 30 + "b", "{*,a*}" * 6, "[" * 50, "*[!a-z]*" * 20])
def test_patterns_made_to_be_slow_are_matched_at_once(pattern: str) -> None:
    assert not compile_glob(pattern + "$").matches(["a" * 250])


@given(
    st.lists(st.sampled_from(["a", "b", "ab", "", "..."]), min_size=1, max_size=4),
    st.text(alphabet="ab*?[]!{", min_size=1, max_size=6),
)
def test_one_segment_matches_as_in_a_shell(names: list[str], pattern: str) -> None:
    assume(pattern != "**")
    name = "".join(names) or "a"
    assert compile_glob(pattern).matches([name]) == fnmatch.fnmatchcase(name, pattern)


@given(
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=5),
)
def test_double_star_stands_for_any_number_of_directories(
    names: list[str], pattern: list[str]
) -> None:
    def matches(names: list[str], pattern: list[str]) -> bool:
        if not pattern:
            return not names
        if pattern[0] == "**":
            rest = pattern[1:] or ["*"]
            return any(matches(names[n:], rest) for n in range(len(names)))
        return bool(names) and pattern[0] in ("*", names[0]) and matches(names[1:], pattern[1:])

    assert compile_glob("/".join(pattern)).matches(names) == matches(names, pattern)


@pytest.mark.parametrize(
    ("pattern", "names", "rest"),
    [
        ("a/b/*.py", ("a", "b"), "*.py"),
        ("./a//b", ("a",), "b"),
        ("a/", (), "a/"),
        ("a/b/", ("a",), "b/"),
        ("**/a", (), "**/a"),
        ("{a,b}/c", (), "{a,b}/c"),
    ],
)
def test_leading_names_of_a_glob_are_walked_directly(
    pattern: str, names: tuple[str, ...], rest: str
) -> None:
    assert literal_prefix(pattern) == (names, rest)


@pytest.mark.parametrize(
    ("pattern", "path", "matched"),
    [
        ("*.py", "a/b/c.py", True),
        ("build/", "a/build", False),
        ("/a.py", "a.py", None),
        ("a/*.py", "b/a/c.py", False),
    ],
)
def test_filter_matches_names_at_any_depth(pattern: str, path: str, matched: bool | None) -> None:
    if matched is None:
        with pytest.raises(ValueError, match="outside"):
            compile_filter(pattern)
    else:
        assert compile_filter(pattern).matches(path.split("/")) is matched
    assert compile_filter("build/").matches(["a", "build"], FileKind.DIRECTORY)


def test_endless_walk_stops_at_the_time_limit() -> None:
    clock = ManualClock()
    tree = EndlessTree(clock)
    timer = SearchTimer(clock, 5.0)
    with pytest.raises(SearchTimeoutError, match="5 s"):
        list(find(tree.children, WorkspacePath(()), compile_glob("**/b"), timer))
    assert tree.n_listed == 5


def test_directory_that_cannot_be_listed_is_skipped() -> None:
    def children(path: WorkspacePath) -> list[FileStat]:
        if path.name == "gone":
            raise FileMissingError("gone")
        if path.name == "denied":
            raise PermissionError
        names = () if path.parts else ("gone", "denied", "kept")
        return [FileStat(path / name, FileKind.DIRECTORY) for name in names]

    found = find(children, WorkspacePath(()), compile_glob("**"))
    assert [str(entry.path) for entry in found] == ["denied", "gone", "kept"]


@pytest.mark.behaviour(49)
def test_file_that_vanishes_meanwhile_is_counted_as_unreadable() -> None:
    def open_file(path: WorkspacePath) -> BinaryIO:
        if path.name == "gone":
            raise FileMissingError("gone")
        if path.name == "denied":
            raise PermissionError
        return io.BytesIO(b"x")

    files = [FileStat(parse_path(name), FileKind.FILE) for name in ("denied", "gone", "kept")]
    timer = SearchTimer(ManualClock(), 5.0)
    found = grep_files(
        files, open_file, compile_expression("x"), limits=FilesystemLimits(), timer=timer
    )
    assert (found.n_files, found.n_unreadable, len(found.matches)) == (1, 2, 1)


@pytest.mark.behaviour(49)
def test_grep_of_many_files_ends_at_the_time_limit() -> None:
    class SlowClock(ManualClock):
        def monotonic_s(self) -> float:
            self.advance(0.01)
            return super().monotonic_s()

    files = MemoryFilesystem({f"{n}": "x" for n in range(1_000)}, clock=SlowClock())
    with pytest.raises(SearchTimeoutError):
        files.grep("y")


@pytest.mark.behaviour(49)
def test_deeply_nested_expression_is_refused_with_a_hint() -> None:
    with pytest.raises(PatternError, match="nested too deeply") as caught:
        compile_expression("(" * 490 + "a" + ")" * 490)
    assert caught.value.hint


def test_expression_that_is_too_long_is_refused() -> None:
    with pytest.raises(LimitExceededError, match=r"1001.*1000"):
        compile_expression("a" * 1_001)


PIECES = st.sampled_from(
    [
        r"a",
        r"b",
        r"^",
        r"$",
        r".",
        r"\b",
        r"\s",
        r"\S*",
        r"[^a]",
        r"(?:",
        r"(",
        r")",
        r"*",
        r"+",
        r"?",
        r"|",
        r"(?=a)",
        r"(?!b)",
        r"(?<!a)",
        r"(?i)",
        r"\A",
        r"\Z",
        r"\n",
        r"{2}",
        r"*+",
        r"\W",
        r"(?>a*)",
        r"\B",
    ]
)


@given(
    st.lists(PIECES, min_size=1, max_size=6).map("".join),
    st.text(alphabet="ab \n", min_size=1, max_size=20),
)
@example(r"\Aa", "b\na")
@example(r"b\Z", "b\na")
@example(r"b(?!\s)", "b\na")
@example(r"(?<!\s)a", "b\na")
@example(r"b\s*+$", "b\na")
@example(r"(?>b\s*)$", "b\na")
def test_searching_a_block_gives_the_same_matches_as_line_by_line(pattern: str, block: str) -> None:
    """The fast search of a whole block never misses a line that matches."""
    try:
        compiled = regex.compile(pattern)
    except regex.error:
        assume(False)
    lines = enumerate(block.split("\n"))
    expected = [(number, line) for number, line in lines if compiled.search(line)]
    timer = SearchTimer(ManualClock(), 5.0)
    assert list(compile_expression(pattern).matching_lines(block, timer)) == expected


def test_line_is_searched_up_to_a_limit() -> None:
    files = MemoryFilesystem({"a": "x" * 300_000 + "needle\nneedle\n"})
    assert [match.line for match in files.grep("needle").matches] == [2]
