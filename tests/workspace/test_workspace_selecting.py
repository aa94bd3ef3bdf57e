"""Apply chosen hunks and paths: they are merged into the source, and the others stay for later."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cases import examples
from test_workspace_apply import FILES, change_everything, files_of
from workspace_support import created, git, tree_of

from wink_workspace.errors import ConflictError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.ledger import EMPTY_TREE_ID, Ledger, ObjectStore, TreeEntry, build
from wink_workspace.workspace import ChangeSet, FileHunks, Hunk, Selection, Workspace

LINES = [f"line {n}\n" for n in range(50)]
CHANGED = [0, 10, 20, 30, 49]
"""The lines that get changed: far enough from each other for hunks of their own."""


def with_changed(*which: int, extra: str = "") -> str:
    lines = list(LINES)
    for n in which:
        lines[CHANGED[n]] = f"CHANGED {n}\n"
    return "".join(lines) + extra


def hunks_of(shown: ChangeSet, path: str) -> FileHunks:
    (found,) = [each for each in FileHunks.of(shown) if str(each.change.path) == path]
    return found


def choose(shown: ChangeSet, path: str, *which: int) -> Selection:
    found = hunks_of(shown, path)
    return Selection({found.change.path: found.content({n: found.hunks[n] for n in which})})


def five_hunks(tmp_path: Path) -> Workspace:
    workspace = created(tmp_path, {"a.txt": "".join(LINES), "b.txt": "b\n"})
    with workspace.call("edit") as call:
        call.files.write_text("a.txt", with_changed(0, 1, 2, 3, 4))
        call.files.write_text("b.txt", "B\n")
    return workspace


@pytest.mark.behaviour(118)
def test_two_of_five_hunks_are_applied_and_the_rest_later(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with five_hunks(tmp_path) as workspace:
        shown = workspace.source.preview()
        assert len(hunks_of(shown, "a.txt").hunks) == 5
        applied = workspace.apply(previewed=shown, selected=choose(shown, "a.txt", 1, 3))
        assert applied.paths == ("a.txt",)
        assert (source / "a.txt").read_text() == with_changed(1, 3)
        assert (source / "b.txt").read_text() == "b\n"

        shown = workspace.source.preview()
        assert shown.paths == ("a.txt", "b.txt")
        left = hunks_of(shown, "a.txt").hunks
        assert [b"".join(hunk.new).count(b"CHANGED") for hunk in left] == [1, 1, 1]
        workspace.apply(previewed=shown, selected=choose(shown, "a.txt", 1))
        assert (source / "a.txt").read_text() == with_changed(1, 2, 3)

        workspace.apply()
        assert (source / "a.txt").read_text() == with_changed(0, 1, 2, 3, 4)
        assert (source / "b.txt").read_text() == "B\n"
        assert not workspace.source.preview().paths


@pytest.mark.behaviour(118)
def test_chosen_hunks_are_merged_with_edits_of_the_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with five_hunks(tmp_path) as workspace:
        (source / "a.txt").write_text(with_changed(extra="mine\n").replace("line 5\n", "MY 5\n"))
        shown = workspace.source.preview()
        workspace.apply(previewed=shown, selected=choose(shown, "a.txt", 0, 2))
        expected = with_changed(0, 2, extra="mine\n").replace("line 5\n", "MY 5\n")
        assert (source / "a.txt").read_text() == expected
        (source / "a.txt").write_text(expected.replace("line 10\n", "mine 10\n"))
        shown = workspace.source.preview()
        with pytest.raises(ConflictError):
            workspace.apply(previewed=shown, selected=choose(shown, "a.txt", 0))
        workspace.apply(previewed=shown, selected=choose(shown, "a.txt", 1))
        assert "mine 10\n" in (source / "a.txt").read_text()
        assert "CHANGED 3\n" in (source / "a.txt").read_text()


@pytest.mark.behaviour(118)
def test_source_that_lost_an_earlier_hunk_gets_only_the_chosen_ones(tmp_path: Path) -> None:
    """The source changes between the preview and the apply."""
    source = tmp_path / "source"
    with five_hunks(tmp_path) as workspace:
        shown = workspace.source.preview()
        workspace.apply(previewed=shown, selected=choose(shown, "a.txt", 0))
        shown = workspace.source.preview()
        chosen = choose(shown, "a.txt", 2)
        (source / "a.txt").write_text(with_changed())
        workspace.apply(previewed=shown, selected=chosen)
        assert (source / "a.txt").read_text() == with_changed(3)
        workspace.apply()
        assert (source / "a.txt").read_text() == with_changed(0, 1, 2, 3, 4)


def test_chosen_hunks_become_a_patch_and_a_branch(tmp_path: Path) -> None:
    with five_hunks(tmp_path) as workspace:
        source = tmp_path / "source"
        for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "import")):
            git(source, *arguments)
        shown = workspace.source.preview("patch")
        chosen = choose(shown, "a.txt", 4)
        patch = workspace.apply("patch", previewed=shown, selected=chosen).patch
        assert patch.count("@@ -") == 1
        assert "+CHANGED 4" in patch
        workspace.apply(previewed=shown, selected=chosen)
        git(source, "commit", "-qam", "the last hunk")
        shown = workspace.source.preview("branch")
        workspace.apply("branch", branch="two", previewed=shown, selected=choose(shown, "a.txt", 1))
        assert git(source, "show", "two:a.txt") == with_changed(1, 4)


def test_every_kind_of_change_can_be_chosen_path_by_path(tmp_path: Path) -> None:
    with created(tmp_path, FILES) as workspace:
        files = files_of(workspace, tmp_path)
        change_everything(files)
        order = list(workspace.source.preview().reported)
        random.Random(7).shuffle(order)
        for change in order:
            shown = workspace.source.preview()
            if str(change.path) in shown.paths:  # a file that replaced a directory took it along
                chosen = Selection({change.path: None})
                assert str(change.path) in workspace.apply(previewed=shown, selected=chosen).paths
        assert tree_of(tmp_path / "source") == tree_of(files)


def test_nothing_outside_of_the_preview_is_applied(tmp_path: Path) -> None:
    with five_hunks(tmp_path) as workspace:
        shown = workspace.source.preview()
        chosen = choose(shown, "a.txt", 0)
        with pytest.raises(UsageError, match="without the changes"):
            workspace.apply(selected=chosen)
        workspace.files.write_text("c.txt", "c\n")
        with pytest.raises(ConflictError, match="changed since"):
            workspace.apply(previewed=shown, selected=chosen)
        later = next(
            each for each in workspace.source.preview().reported if str(each.path) == "c.txt"
        )
        with workspace.call("delete") as call:
            call.files.delete("c.txt")
        shown = workspace.source.preview()
        with pytest.raises(UsageError, match="not among the changes"):
            workspace.apply(previewed=shown, selected=Selection({later.path: None}))
        assert tree_of(tmp_path / "source")["a.txt"][-1] == with_changed().encode()


def test_edited_hunk_replaces_the_same_lines(tmp_path: Path) -> None:
    with five_hunks(tmp_path) as workspace:
        shown = workspace.source.preview()
        found = hunks_of(shown, "a.txt")
        edited = found.hunks[2].edited(
            found.hunks[2].text.replace(b"CHANGED 2", b"mine\n+and more")
        )
        chosen = Selection({found.change.path: found.content({2: edited})})
        workspace.apply(previewed=shown, selected=chosen)
        expected = with_changed().replace("line 20\n", "mine\nand more\n")
        assert (tmp_path / "source/a.txt").read_text() == expected
        for old, new in ((b"-line 20", b"-line 2"), (b"@@", b"@"), (b"+CH", b"CH")):
            with pytest.raises(UsageError):
                found.hunks[2].edited(found.hunks[2].text.replace(old, new))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    folder = tmp_path_factory.mktemp("ledger") / "ledger.git"
    Ledger.create(folder)
    with Ledger(folder) as ledger:
        yield ledger.store


def change_of(store: ObjectStore, old: str, new: str) -> ChangeSet:
    path = WorkspacePath(("a.txt",))
    roots = [
        build(store, EMPTY_TREE_ID, {path: TreeEntry(FileKind.FILE, store.write_blob(text))})
        for text in (old.encode(), new.encode())
    ]
    return ChangeSet.between(store, *roots)


TEXTS = st.lists(st.sampled_from(["a\n", "b\n", "\n", "c\r\n", "\\ No newline\n"])).map("".join)


@settings(max_examples=examples(150), deadline=None)
@given(old=TEXTS, new=TEXTS, end=st.sampled_from(["", "x"]), data=st.data())
def test_hunks_make_the_new_text_in_any_two_steps(
    store: ObjectStore, old: str, new: str, end: str, data: st.DataObject
) -> None:
    old, new = old + "same\n" * 7 + old + end, new + "same\n" * 7 + new
    shown = change_of(store, old, new)
    for found in FileHunks.of(shown):
        everything = dict(enumerate(found.hunks))
        assert found.content(everything) == new.encode()
        assert found.content({}) == old.encode()
        assert all(Hunk.parse(hunk.text) == hunk for hunk in found.hunks)
        first = data.draw(st.sets(st.sampled_from(sorted(everything)))) if everything else set()
        middle = found.content({n: everything[n] for n in first}).decode()
        for rest in FileHunks.of(change_of(store, middle, new)):
            assert rest.content(dict(enumerate(rest.hunks))) == new.encode()
