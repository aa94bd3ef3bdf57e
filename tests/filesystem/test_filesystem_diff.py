"""git, GNU patch and our own planner apply the output of ``render_diff`` byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from patch_trees import (
    Tree,
    changes_between,
    file,
    git_applied,
    gnu_patched,
    link,
    patched,
    tree,
    tree_pairs,
)
from random_cases import examples

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.diff import ChangedLines, changed_lines, render_diff
from wink_workspace.filesystem.git_names import quote_name, unquote_name
from wink_workspace.filesystem.model import FileChange, FileKind, FileState
from wink_workspace.filesystem.paths import parse_path
from wink_workspace.filesystem.text import differing_parts

Files = Mapping[str, FileState | bytes | str]

BOUNDED = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def diff(before: Tree, after: Tree) -> str:
    return render_diff(changes_between(before, after))


@given(pair=tree_pairs())
@BOUNDED
def test_git_apply_turns_the_first_tree_into_the_second(pair: tuple[Tree, Tree]) -> None:
    before, after = pair
    text = diff(before, after)
    with TemporaryDirectory() as directory:
        result = git_applied(text, before, Path(directory, "work")) if text else before
    assert result == after


@given(pair=tree_pairs())
@example(pair=(tree({"a": "\n" * 4}), tree({"a": "\n" * 5})))
@settings(BOUNDED, max_examples=examples(100))
def test_our_own_planner_turns_the_first_tree_into_the_second(pair: tuple[Tree, Tree]) -> None:
    before, after = pair
    text = diff(before, after)
    assert (patched(text, before) if text else before) == after


@given(pair=tree_pairs(textual=True))
@BOUNDED
def test_gnu_patch_turns_the_first_tree_into_the_second_where_all_is_text(
    pair: tuple[Tree, Tree],
) -> None:
    before, after = pair
    inner = {above for path in [*before, *after] for above in path.ancestors()}
    # GNU patch cannot turn a directory into a file or a file into a directory.
    assume(not inner & (before.keys() | after.keys()))
    text = diff(before, after)
    with TemporaryDirectory() as directory:
        result = gnu_patched(text, before, Path(directory, "work")) if text else before
    assert result == after


# -------------------------------------------------------------------------------------- examples


def shown(before: Files, after: Files, *, context_lines: int = 3) -> str:
    return render_diff(changes_between(tree(before), tree(after)), context_lines=context_lines)


def test_a_changed_file_is_shown_as_git_shows_it() -> None:
    before = "".join(f"{n}\n" for n in range(20))
    after = before.replace("4\n5\n", "4\nnew\n5\n").replace("19\n", "last")
    assert shown({"src/a.txt": before}, {"src/a.txt": after}) == (
        "diff --git a/src/a.txt b/src/a.txt\n"
        "index 19df0a2..9389093 100644\n"
        "--- a/src/a.txt\n"
        "+++ b/src/a.txt\n"
        "@@ -3,6 +3,7 @@\n 2\n 3\n 4\n+new\n 5\n 6\n 7\n"
        "@@ -17,4 +18,4 @@\n 16\n 17\n 18\n-19\n+last\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        pytest.param({}, {"f": "a\n"}, ["new file mode 100644", "@@ -0,0 +1 @@"], id="created"),
        pytest.param({}, {"f": ""}, ["new file mode 100644"], id="created empty"),
        pytest.param({"f": "a\n"}, {}, ["deleted file mode 100644", "@@ -1 +0,0 @@"], id="deleted"),
        pytest.param(
            {"f": "a"},
            {"f": file("a", executable=True)},
            ["old mode 100644", "new mode 100755"],
            id="mode",
        ),
        pytest.param({}, {"f": link("g")}, ["new file mode 120000", "+g"], id="link"),
        pytest.param(
            {"f": "a\n"},
            {"f": link("g")},
            ["deleted file mode 100644", "new file mode 120000"],
            id="file turned into a link",
        ),
        pytest.param(
            {"f": "a\nb\n"},
            {"g": file("a\nb\n", executable=True)},
            [
                "old mode 100644",
                "new mode 100755",
                "similarity index 100%",
                "rename from f",
                "rename to g",
            ],
            id="renamed and made executable",
        ),
        pytest.param(
            {"f": "a\n" * 9 + "b\n"},
            {"g": "a\n" * 9 + "c\n"},
            ["similarity index 90%", "rename from f", "rename to g", "@@ -7,4 +7,4 @@"],
            id="renamed and changed",
        ),
        pytest.param(
            {"x y": "a\n"},
            {"x y": "b\n", "ü": "c", "t\t": "d"},
            [
                *('diff --git "a/x y" "b/x y"', '--- "a/x y"', "diff --git a/ü b/ü"),
                'diff --git "a/t\\t" "b/t\\t"',
            ],
            id="names that need quotes and names that do not",
        ),
        pytest.param({"f": b"\xff\n"}, {"f": b"\xfe\n"}, ["-\udcff", "+\udcfe"], id="not UTF-8"),
        pytest.param({"f": b"\0"}, {"f": b"\1"}, ["GIT binary patch", "literal 1"], id="binary"),
    ],
)
def test_each_kind_of_change_has_its_lines(before: Files, after: Files, lines: list[str]) -> None:
    text = shown(before, after).split("\n")
    assert [line for line in lines if line not in text] == []


def test_unchanged_paths_and_directories_are_not_shown() -> None:
    same, directory = file("a\n"), FileState(FileKind.DIRECTORY)
    path = parse_path("d")
    changes = [
        FileChange(path, same, same),
        FileChange(path, None, directory),
        FileChange(path, directory, None),
        FileChange(path, None, None),
    ]
    assert render_diff(changes) == ""
    assert "new file" in render_diff([FileChange(path, directory, same)])
    assert "deleted file" in render_diff([FileChange(path, same, directory)])


def test_sections_are_sorted_by_path_in_any_order_of_the_changes() -> None:
    changes = changes_between({}, tree({"b": "1\n", "a/z": "2\n", "a": "3\n", "c": ""}))
    assert render_diff(changes) == render_diff(reversed(changes))
    names = [line for line in render_diff(changes).split("\n") if line.startswith("diff")]
    assert names == sorted(names)


def test_a_file_of_the_same_name_is_the_source_of_a_rename() -> None:
    before = {"a/one": "text\n" * 9, "a/two": "text\n" * 9, "a/three": "x\n" * 9, "gone": "q\n"}
    after = {
        "b/two": "text\n" * 9,
        "b/one": "text\n" * 9,
        "b/other": "x\n" * 9 + "y\n",
        "new": "r\n",
    }
    text = shown(before, after)
    for source, target in (("a/one", "b/one"), ("a/two", "b/two"), ("a/three", "b/other")):
        assert f"rename from {source}\nrename to {target}\n" in text
    assert text.count("rename from") == 3


def test_the_most_similar_file_is_the_source_of_a_rename() -> None:
    lines = [f"{n}\n" for n in range(20)]
    before = {"half": "".join(lines[:12]), "most": "".join(lines[:19]), "none": "x\n" * 20}
    assert "rename from most\nrename to new" in shown(before, {"new": "".join(lines)})


def test_files_with_reordered_lines_are_not_fully_similar() -> None:
    assert "similarity index 99%" in shown({"f": "a\nb\n"}, {"g": "b\na\n"})


def test_all_of_thousands_of_equal_renames_are_found_and_some_of_the_similar_ones() -> None:
    """Similar files would have to be compared pair by pair."""
    same = {f"a/{n}": f"{n}\n" * 3 for n in range(1_000)}
    moved = {f"b/{name[2:]}": text for name, text in same.items()}
    assert shown(same, moved).count("similarity index 100%") == 1_000
    edited = {name: f"{text}x\n" for name, text in moved.items()}
    assert 0 < shown(same, edited).count("similarity index") < 1_000


@pytest.mark.parametrize("context_lines", [1, 2, 5, 100])
def test_any_number_of_context_lines_applies(context_lines: int, tmp_path: Path) -> None:
    text = "".join(f"{n}\n" for n in range(40))
    before, after = tree({"f": text}), tree({"f": text.replace("7\n", "x\ny\n").replace("0\n", "")})
    patch = render_diff(changes_between(before, after), context_lines=context_lines)
    assert git_applied(patch, before, tmp_path / "git") == after
    assert gnu_patched(patch, before, tmp_path / "gnu") == after
    assert patched(patch, before) == after


def test_no_context_gives_the_changed_lines_only() -> None:
    text = shown({"f": "a\nb\nc\n"}, {"f": "a\nx\ny\nc\n"}, context_lines=0)
    assert text.endswith("@@ -2 +2,2 @@\n-b\n+x\n+y\n")
    assert shown({"f": "a\nb\n"}, {"f": "a\nx\nb\n"}, context_lines=0).endswith(
        "@@ -1,0 +2 @@\n+x\n"
    )


def test_a_negative_number_of_context_lines_is_refused() -> None:
    with pytest.raises(UsageError, match="context_lines is -1"):
        render_diff([], context_lines=-1)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("src/ä.py", "src/ä.py"),
        ("a b", '"a b"'),
        ('a"\\', '"a\\"\\\\"'),
        ("\a\b\t\n\v\f\r\x1b\x7f", '"\\a\\b\\t\\n\\v\\f\\r\\033\\177"'),
        ("ä\u202e", '"ä\\342\\200\\256"'),
        ("\udcff", '"\\377"'),
    ],
)
def test_ambiguous_names_are_quoted_and_unquoted_again(name: str, written: str) -> None:
    assert quote_name(name) == written
    back = unquote_name(f"{written} rest".encode()) or (written.encode(), b" rest")
    assert back == (name.encode("utf-8", "surrogateescape"), b" rest")


@pytest.mark.parametrize("text", [b"plain", b'"open', b'"\\z"', b'"\\12"', b'"\\"'])
def test_text_that_is_not_a_quoted_name_is_not_unquoted(text: bytes) -> None:
    assert unquote_name(text) is None


# ------------------------------------------------------------------------------- line comparison


@given(data=st.data())
@settings(max_examples=examples(200), deadline=None)
def test_changed_lines_turn_one_text_into_the_other_with_equal_lines_between_them(
    data: st.DataObject,
) -> None:
    texts = st.lists(st.sampled_from([b"a\n", b"b\n", b"\n", b"c\0\r\n"]), max_size=9)
    old, new = data.draw(texts), data.draw(texts)
    for by_indent in (False, True):
        changes = changed_lines(b"".join(old), b"".join(new), by_indent=by_indent)
        assert rebuilt(old, new, changes) == new
        assert all(a.old.stop < b.old.start for a, b in pairwise(changes))


@given(old=st.text("ab\nä€"), new=st.text("ab\nä€"))
def test_differing_parts_turn_one_text_into_the_other(old: str, new: str) -> None:
    after = old
    for start, end, added in reversed(differing_parts(old, new)):
        after = after[:start] + added + after[end:]
    assert after == new


def rebuilt(
    old: Sequence[bytes], new: Sequence[bytes], changes: Sequence[ChangedLines]
) -> list[bytes]:
    lines: list[bytes] = []
    at = 0
    for before, after in changes:
        lines += [*old[at : before.start], *new[after.start : after.stop]]
        at = before.stop
    return [*lines, *old[at:]]
