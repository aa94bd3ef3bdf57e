"""Three-way merges: changes of one side are taken, changes of both are merged or reported."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ledger_support import DIRECTORY, contents, link, new_ledger, script, tree
from random_cases import examples

from wink_workspace.filesystem.model import FileState
from wink_workspace.ledger import LARGE_BYTES, Ledger, merge_trees
from wink_workspace.ledger.store.merge import merge_slices

LINES = b"1\n2\n3\n4\n5\n6\n7\n"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory) -> Ledger:
    with new_ledger(tmp_path_factory.mktemp("merge")) as ledger:
        yield ledger


def merged(ledger: Ledger, base, ours, theirs):
    """The merged files, or the conflicts as sentences."""
    base, ours, theirs = (tree(ledger.store, files) for files in (base, ours, theirs))
    result = merge_trees(ledger.store, base=base, ours=ours, theirs=theirs)
    if result.tree is None:
        return [str(conflict) for conflict in result.conflicts]
    assert result.conflicts == ()
    return contents(ledger.store, result.tree)


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        pytest.param({"a": b"1"}, {"a": b"1"}, {"a": b"2"}, {"a": b"2"}, id="theirs changed"),
        pytest.param({"a": b"1"}, {"a": b"2"}, {"a": b"1"}, {"a": b"2"}, id="ours changed"),
        pytest.param({"a": b"1"}, {"a": b"2"}, {"a": b"2"}, {"a": b"2"}, id="both the same"),
        pytest.param({"a": b"1"}, {"a": b"1"}, {}, {}, id="theirs deleted"),
        pytest.param({"a": b"1"}, {}, {}, {}, id="both deleted"),
        pytest.param({}, {"a": b"1"}, {"b": b"2"}, {"a": b"1", "b": b"2"}, id="both created"),
        pytest.param({}, {"a": b"1"}, {"a": b"1"}, {"a": b"1"}, id="both created the same"),
        pytest.param(
            {"a": b"1"},
            {"a": script(b"1")},
            {"a": b"2"},
            {"a": script(b"2")},
            id="mode and content",
        ),
        pytest.param(
            {"a": b"1"},
            {"a": b"2"},
            {"a": script(b"1")},
            {"a": script(b"2")},
            id="content and mode",
        ),
        pytest.param(
            {"a": script(b"1")},
            {"a": script(b"2")},
            {"a": b"1"},
            {"a": b"2"},
            id="executable bit removed",
        ),
        pytest.param(
            {"d/x": b"1"},
            {"d/x": b"1", "d/new": b"2"},
            {},
            {"d": DIRECTORY, "d/new": b"2"},
            id="deleted directory with something new",
        ),
        pytest.param({"d/e/x": b"1"}, {"d/e/x": b"1"}, {}, {}, id="deleted directory"),
        pytest.param(
            {"d/x": b"1"}, {"d/x": b"1"}, {"d": b"f"}, {"d": b"f"}, id="directory to file"
        ),
        pytest.param(
            {"d": b"f"},
            {"d": b"f"},
            {"d/x": b"1"},
            {"d": DIRECTORY, "d/x": b"1"},
            id="file to directory",
        ),
        pytest.param(
            {"d/x": b"1"},
            {},
            {"d/x": b"1", "d/y": b"2"},
            {"d": DIRECTORY, "d/y": b"2"},
            id="created in a deleted directory",
        ),
        pytest.param(
            {"d": DIRECTORY}, {"d": DIRECTORY, "a": b""}, {}, {"a": b""}, id="empty directory"
        ),
        pytest.param(
            {}, {"d/x": b"1"}, {"d": DIRECTORY}, {"d": DIRECTORY, "d/x": b"1"}, id="both directory"
        ),
        pytest.param(
            {"a": LINES},
            {"a": LINES.replace(b"1", b"one")},
            {"a": LINES.replace(b"7\n", b"7")},
            {"a": LINES.replace(b"1", b"one").replace(b"7\n", b"7")},
            id="lines apart",
        ),
        pytest.param(
            {"a": b"\xff\n2\r\n3\n4\n5\n"},
            {"a": b"\xfe\n2\r\n3\n4\n5\n"},
            {"a": b"\xff\n2\r\n3\n4\nV\r\n"},
            {"a": b"\xfe\n2\r\n3\n4\nV\r\n"},
            id="bytes that are not UTF-8, and both line ends",
        ),
    ],
)
def test_changes_that_do_not_conflict_are_all_kept(ledger, base, ours, theirs, expected) -> None:
    assert merged(ledger, base, ours, theirs) == expected


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "reasons"),
    [
        ({"a": b"1"}, {"a": b"2"}, {"a": b"3"}, ["a was changed since, in the same lines"]),
        ({"a": b"1"}, {}, {"a": b"2"}, ["a was deleted since"]),
        ({"a": b"1"}, {"a": b"2"}, {}, ["a was changed since, and would be deleted"]),
        ({}, {"a": b"1"}, {"a": b"2"}, ["a was made since, with another content"]),
        (
            {"a": b"\0001"},
            {"a": b"\0002"},
            {"a": b"\0003"},
            ["a was changed since, and is not text that could be merged"],
        ),
        (
            {"a": b"1"},
            {"a": link("x")},
            {"a": b"2"},
            ["a was changed since, and is not a file on all sides"],
        ),
        (
            {"d/x": b"1"},
            {"d/x": b"1", "d/new": b"2"},
            {"d": b"file"},
            ["d holds files that were made or changed since"],
        ),
        (
            {"d/x": b"1"},
            {"d": b"file"},
            {"d/x": b"1", "d/y": b"2"},
            ["d/y cannot be inside d, which is a file now"],
        ),
        (
            {"a": b"1", "b": b"1", "c": b"1"},
            {"a": b"2", "b": b"2", "c": b"1"},
            {"a": b"3", "b": b"3", "c": b"3"},
            ["a was changed since, in the same lines", "b was changed since, in the same lines"],
        ),
    ],
)
def test_conflicting_changes_are_reported_and_there_is_no_result(
    ledger, base, ours, theirs, reasons
) -> None:
    assert merged(ledger, base, ours, theirs) == reasons


def test_files_too_large_to_merge_in_memory_are_a_conflict(ledger) -> None:
    big = b"x\n" * (LARGE_BYTES // 2)
    sides = ({"a": big}, {"a": b"1\n" + big}, {"a": big + b"1\n"})
    assert merged(ledger, *sides) == ["a was changed since, and is not text that could be merged"]


NAMES = st.sampled_from(["a", "b", "d/x", "d/y", "d/e/z"])
STATES = st.sampled_from([b"1\n", b"2\n", b"1\n2\n", script(b"1\n"), link("t"), DIRECTORY])
FILES = st.dictionaries(NAMES, STATES, max_size=4)


@settings(max_examples=examples(80), deadline=None)
@given(FILES, FILES)
def test_merging_with_an_unchanged_side_gives_the_other_side(ledger, base, other) -> None:
    base_tree, other_tree = tree(ledger.store, base), tree(ledger.store, other)
    for ours, theirs in (
        (base_tree, other_tree),
        (other_tree, base_tree),
        (other_tree, other_tree),
    ):
        assert (
            merge_trees(ledger.store, base=base_tree, ours=ours, theirs=theirs).tree == other_tree
        )


@settings(max_examples=examples(80), deadline=None)
@given(FILES, FILES, FILES)
def test_a_merge_loses_nothing_that_only_one_side_has(ledger, base, ours, theirs) -> None:
    roots = [tree(ledger.store, files) for files in (base, ours, theirs)]
    result = merge_trees(ledger.store, base=roots[0], ours=roots[1], theirs=roots[2])
    assume(result.tree is not None)
    before, mine, other = (contents(ledger.store, root) for root in roots)
    merged_files = contents(ledger.store, result.tree)
    for name in before | mine | other:
        if mine.get(name) == before.get(name) != other.get(
            name
        ) and name not in non_empty_directories(merged_files):
            assert merged_files.get(name) == other.get(name)
        if other.get(name) == before.get(name) != mine.get(
            name
        ) and name not in non_empty_directories(merged_files):
            assert merged_files.get(name) == mine.get(name)


def non_empty_directories(files: dict[str, bytes | FileState]) -> set[str]:
    """The directories that contain something."""
    return {name for name in files if any(other.startswith(name + "/") for other in files)}


def test_slices_are_merged_one_by_one_and_conflicting_ones_stay_ours(ledger) -> None:
    def state(**slices: bytes) -> str:
        return tree(ledger.store, {f"m:{name}/0": content for name, content in slices.items()})

    base = state(A=b"1", B=b"1", C=b"1", D=b"1", E=b"1")
    ours = state(A=b"2", B=b"1", C=b"2", D=b"2", F=b"2")
    theirs = state(A=b"1", B=b"3", C=b"3", D=b"2")
    result = merge_slices(ledger.store, base=base, ours=ours, theirs=theirs)
    assert result.tree == state(A=b"2", B=b"3", C=b"2", D=b"2", F=b"2")
    assert result.conflicts == ("m:C",)
