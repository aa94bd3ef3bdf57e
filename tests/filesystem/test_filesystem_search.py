"""Searching takes bounded time for any pattern and any tree."""

from __future__ import annotations

import fnmatch
import io
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import BinaryIO

import pytest
import regex
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from random_cases import examples

from wink_workspace.clock import ManualClock
from wink_workspace.errors import (
    FileMissingError,
    LimitExceededError,
    PatternError,
    SearchTimeoutError,
)
from wink_workspace.filesystem import (
    DiskFilesystem,
    DiskTree,
    FileKind,
    FileStat,
    FilesystemLimits,
    MemoryFilesystem,
    WorkspacePath,
    parse_path,
)
from wink_workspace.filesystem.disk import searching
from wink_workspace.filesystem.disk.descriptors import Descriptor
from wink_workspace.filesystem.search import (
    HEAD_BYTES,
    SearchTimer,
    _cannot_match,
    compile_expression,
    compile_filter,
    compile_glob,
    find,
    grep_files,
    literal_prefix,
    required_literals,
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

    large = b"x" * HEAD_BYTES  # its head is not the whole file, so it is opened again
    heads = [(parse_path("d"), ("denied", "gone", "kept"), (large, large, large))]
    timer = SearchTimer(ManualClock(), 5.0)
    found = grep_files(
        heads, open_file, compile_expression("x"), limits=FilesystemLimits(), timer=timer
    )
    assert (found.n_files, found.n_unreadable, len(found.matches)) == (1, 2, 1)


@pytest.mark.behaviour(49)
def test_grep_of_many_files_ends_at_the_time_limit_and_says_where() -> None:
    class SlowClock(ManualClock):
        def monotonic_s(self) -> float:
            self.advance(0.01)
            return super().monotonic_s()

    files = MemoryFilesystem({f"{n:03}": "x" for n in range(1_000)}, clock=SlowClock())
    found = files.grep("x")
    assert 0 < found.n_files < 500
    assert [str(match.path) for match in found.matches] == [f"{n:03}" for n in range(found.n_files)]
    assert found.timed_out_s == 5.0
    assert int(str(found.stopped_at)) in (found.n_files - 1, found.n_files)


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


# Literals


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("needle", ("needle",)),
        (r"def \w+\(self", ("(self",)),
        (r"a\.b\.c$", ("a.b.c",)),
        ("^import (os|sys)$", ("import ",)),
        ("foo|bar", ("foo", "bar")),
        ("foo|[a-z]+", ()),
        ("abc*de", ("ab",)),
        ("abc+de", ("ab",)),
        ("ab?", ("a",)),
        ("x{0}", ()),
        ("(?i)needle", ()),
        ("(?:a|b)cd(?=ef)", ("cd",)),
        ("need(?i:le)", ()),
        (r"\Qa.b\E", ()),
        (r"a\x41", ()),
        ("[[a-z]--[b]]cd", ()),
        ("(a)cd\\1", ()),
        ("(needle", ()),
        ("a|b)c", ()),
        ("(*FAIL)a", ()),
        ("", ()),
        ("|".join("abcdefghijklmnopqrstuvwxyz"), ()),
    ],
)
def test_literals_of_an_expression_are_found_or_there_are_none(
    pattern: str, literals: tuple[str, ...]
) -> None:
    assert required_literals(pattern) == literals


SYNTAX = [
    *("a", "b", "ab", "^", "$", ".", r"\b", r"\s", r"\S*", "[^a]", "[b-]", "[]a]", "(?:", "(", ")"),
    *("*", "+", "?", "|", "(?=a)", "(?!b)", "(?<!a)", "(?i)", "(?i:", r"\A", r"\Z", r"\n", "{2}"),
    *(
        "{0}",
        "{0,1}",
        "{,1}",
        "{e}",
        "*+",
        "??",
        r"\W",
        "(?>a*)",
        r"\B",
        r"\.",
        r"\-",
        "{",
        "}",
        "]",
    ),
    *(
        "[[:alpha:]]",
        "[a",
        "(?#b)",
        "(?P<n>a)",
        "(?P=n)",
        r"\1",
        r"\x61",
        r"\u0061",
        r"\N{DIGIT ONE}",
    ),
    *(
        r"\p{L}",
        r"\K",
        r"\G",
        r"\m",
        r"\R",
        "(?R)",
        "(?|",
        "(?(1)a|b)",
        "(*F)",
        "(?x)",
        " ",
        "#",
        "\u00e9",
    ),
]


@given(
    st.lists(st.sampled_from(SYNTAX), min_size=1, max_size=6).map("".join),
    st.text(alphabet="abAB1 .-\u00e9\u00c9\n", max_size=24),
)
@settings(max_examples=examples(200), deadline=None)
@example("a(?i)", "A")
@example("ab{0}", "a")
@example("a{e<=1}b", "b")
@example("[a", "a")
def test_text_without_the_literals_of_an_expression_never_matches(pattern: str, text: str) -> None:
    try:
        compiled = regex.compile(pattern, regex.MULTILINE)
    except (regex.error, RecursionError):
        assume(False)
    literals = required_literals(pattern)
    may_match = not literals or any(literal in text for literal in literals)
    assert may_match or not any(compiled.search(line, timeout=5) for line in text.split("\n"))


# The disk


NAMES = st.sampled_from(["a", "b.py", "c", "c.py", "d", "\u00e9"])
CONTENTS = st.sampled_from(
    [
        *(b"", b"x", b"one\nneedle\r\nx", b"needle\0", b"caf\xc3\xa9 needle\n", b"\xff needle\n"),
        *("\ufeffneedle\n".encode(), "needle\n".encode("utf-16")),
        b"y" * 70_000 + b"\nneedle\n",
    ]
)


PATTERNS = st.sampled_from(
    ["needle", "nee|x$", "^x", "[a-z]e", "n.*e", "caf\u00e9", "zzz", "(?<=n)e"]
)


@given(
    st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), CONTENTS, max_size=9),
    PATTERNS,
    st.sampled_from([None, "*.py", "c/**", "**/d/*"]),
    st.sampled_from([1, 3, 1_000]),
    st.sampled_from(["here", "threads"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_files_on_the_disk_are_searched_as_files_in_memory(
    contents: dict[str, bytes], pattern: str, glob: str | None, most: int, by: str
) -> None:
    """The order, the counts and the end at the limit, also if threads read the files."""
    search_by(by, contents, pattern, glob, most)


def search_by(
    by: str, contents: dict[str, bytes], pattern: str, glob: str | None, most: int
) -> None:
    files = {
        path: content for path, content in contents.items() if not is_directory_of(path, contents)
    }
    limits = FilesystemLimits(grep_matches=most)
    with TemporaryDirectory() as root, DiskFilesystem(root, limits=limits) as disk:
        for path, content in files.items():
            disk.write_bytes(path, content)
        with pytest.MonkeyPatch.context() as patch:
            # Whether a read waits for the disk, and how many processors there are, is up to the system
            patch.setattr(searching, "_MOST_WAITS", -1 if by == "threads" else 10**9)
            found = disk.grep(pattern, glob=glob)
    expected = MemoryFilesystem(files, limits=limits).grep(pattern, glob=glob)
    if found.truncated:
        assert (found.matches, expected.truncated) == (expected.matches, True)
    else:
        assert found == expected


def test_grep_reads_no_pipe_and_no_device_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("needle\n")
    root = tmp_path / "root"
    root.mkdir()
    (root / "kept").write_text("needle\n")
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "directory").symlink_to(tmp_path)
    (root / "broken").symlink_to("nowhere")
    with DiskFilesystem(root) as disk:
        found = disk.grep("needle")
    assert [str(match.path) for match in found.matches] == ["kept"]
    assert (found.n_files, found.n_unreadable) == (1, 4)


def test_file_that_becomes_a_pipe_or_a_link_after_the_listing_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("needle\n")
    for name in ("a", "b", "c"):
        (root / name).write_text("needle\n")

    class Racing(DiskTree):
        def entered(self, path: WorkspacePath) -> Descriptor:
            for name in ("a", "b"):
                (root / name).unlink()
            os.mkfifo(root / "a")
            (root / "b").symlink_to(tmp_path / "outside")
            return super().entered(path)

    with Racing(root) as tree, DiskFilesystem(tree) as disk:
        found = disk.grep("needle")
    assert [str(match.path) for match in found.matches] == ["c"]
    assert found.n_unreadable == 2


LINES = st.text(alphabet="abcx019 .-_", max_size=12)
EXPRESSIONS = st.one_of(
    st.text(alphabet="abx01", min_size=1, max_size=3),
    st.lists(
        st.sampled_from([*"abx0", "[0-9]", "[^a]", "(a|b)", "(ab|x0)?", "b*", "x+", ".", "1{2}"]),
        min_size=1,
        max_size=4,
    ).map("".join),
).flatmap(lambda text: st.sampled_from([text, f"^{text}", f"{text}$", f"{text}|90"]))


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abcd"), min_size=1, max_size=3).map("/".join),
        st.lists(LINES, max_size=5).map(lambda lines: "".join(f"{line}\n" for line in lines)),
        max_size=12,
    ),
    EXPRESSIONS,
)
@settings(max_examples=examples(40), deadline=None)
def test_search_finds_the_lines_that_git_grep_finds(contents: dict[str, str], pattern: str) -> None:
    files = {path: text for path, text in contents.items() if not is_directory_of(path, contents)}
    with TemporaryDirectory() as root, DiskFilesystem(root) as disk:
        for path, text in files.items():
            disk.write_text(path, text)
        found = disk.grep(pattern)
        done = subprocess.run(
            ["git", "grep", "--no-index", "-n", "-E", "-e", pattern],
            cwd=root,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "GIT_CONFIG_GLOBAL": "/dev/null"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == ""
    lines = [f"{match.path}:{match.line}:{match.text}" for match in found.matches]
    assert sorted(lines) == sorted(done.stdout.splitlines())


def is_directory_of(path: str, files: Iterable[str]) -> bool:
    """Whether *path* is a directory above another of the *files*."""
    return any(other.startswith(f"{path}/") for other in files)


@given(
    st.binary(max_size=30) | CONTENTS,
    st.lists(st.sampled_from([b"needle", b"x", b"\xc3\xa9"]), max_size=2),
)
def test_content_that_cannot_match_is_text_without_the_literals(
    content: bytes, literals: list[bytes]
) -> None:
    if _cannot_match(content, literals, None):
        assert b"\0" not in content.decode().encode()
        assert not any(literal in content for literal in literals)
        assert literals


def test_a_small_file_costs_three_system_calls(tmp_path: Path) -> None:
    for n in range(600):
        (tmp_path / f"{n}").write_text("text\n")
    counts: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__module__", None) == "posix":
            counts[function.__name__] += 1

    with DiskFilesystem(tmp_path) as disk:
        sys.setprofile(profile)
        try:
            assert disk.grep("needle").n_files == 600
        finally:
            sys.setprofile(None)
    assert (counts["open"] - 600, counts["pread"], counts["fstat"]) == (1, 600, 1)
    assert counts.total() < 3 * 600 + 60
