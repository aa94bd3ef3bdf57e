"""The records that ``apply`` needs outlive the history entries that they came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import created, executor, state, tree_of, write

from wink_workspace.errors import LedgerDamagedError, LedgerError
from wink_workspace.ledger import Retention
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.sandboxing import OUTPUT_FOLDER

_NOTHING_OLD = Retention(max_age_days=1e-9)


def test_source_gets_changes_since_a_deleted_entry(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        write(workspace, **{"b.txt": "b\n"})
        workspace.apply()
        with executor(workspace) as call:
            call("rm", path="b.txt")
        workspace._ledger.maintain(_NOTHING_OLD)
        assert len(list(workspace.log())) == 1
        assert workspace.apply().paths == ("b.txt",)
        assert [*tree_of(tmp_path / "source")] == ["a.txt"]


def test_source_keeps_the_changes_of_a_deleted_fork(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        workspace.fork("other")
        which = workspace.info.id
        with Workspace.open(which, storage=state(tmp_path), branch="other") as other:
            write(other, **{"b.txt": "b\n"})
            other.apply()
        workspace.branches.delete("other")
        assert workspace.maintain().ran
        assert workspace.apply().paths == ()
        assert [*tree_of(tmp_path / "source")] == ["a.txt", "b.txt"]


def test_fork_with_the_name_of_a_deleted_fork_keeps_the_changes_of_that_fork(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        for text in ("b.txt", "c.txt"):
            workspace.fork("other")
            which = workspace.info.id
            with Workspace.open(which, storage=state(tmp_path), branch="other") as other:
                write(other, **{text: "new\n"})
                other.apply()
            workspace.branches.delete("other")
        assert [*tree_of(tmp_path / "source")] == ["a.txt", "b.txt", "c.txt"]


def test_source_gets_changes_since_a_tree_that_no_entry_has(tmp_path: Path) -> None:
    """The output folder is left out, so the applied tree belongs to no entry."""
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        write(workspace, **{f"{OUTPUT_FOLDER}/stdout.txt": "said\n", "b.txt": "b\n"})
        assert workspace.apply().paths == ("b.txt",)
        assert workspace.maintain().ran
        write(workspace, **{"c.txt": "c\n"})
        assert workspace.apply().paths == ("c.txt",)


@pytest.mark.parametrize(
    "text",
    [
        '{"branches": []}',
        '{"branches": {"main": [{"base": 1, "tree": 2}]}, "writing": null}',
    ],
)
def test_damaged_note_is_named_and_maintenance_deletes_nothing(tmp_path: Path, text: str) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        write(workspace, **{"b.txt": "b\n"})
        note = workspace._folder.applied
        note.write_text(text)
        for act in (workspace.apply, workspace.maintain):
            with pytest.raises(LedgerDamagedError, match="records what was applied") as caught:
                act()
            assert caught.value.hint.startswith("Delete it")
        note.unlink()
        assert workspace.maintain().ran
        assert workspace.apply().paths == ("b.txt",)


def test_note_of_a_missing_tree_is_named_and_maintenance_still_runs(tmp_path: Path) -> None:
    text = f'{{"branches": {{}}, "writing": ["{"0" * 40}", "{"0" * 40}"]}}'
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        write(workspace, **{"b.txt": "b\n"})
        note = workspace._folder.applied
        note.write_text(text)
        assert workspace.maintain().ran
        with pytest.raises(LedgerDamagedError, match="records what was applied") as caught:
            workspace.apply()
        assert caught.value.hint.startswith("Delete it")
        note.unlink()
        assert workspace.apply().paths == ("b.txt",)


def test_workspace_opens_when_the_note_is_not_a_file(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        which, note = workspace.info.id, workspace._folder.applied
    note.mkdir()
    with (
        Workspace.open(which, storage=state(tmp_path)) as workspace,
        pytest.raises(LedgerError, match="cannot be read"),
    ):
        workspace.apply()


def test_source_is_unchanged_when_the_note_cannot_be_written(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        write(workspace, **{"b.txt": "b\n"})
        workspace._folder.applied.with_name("applied.new").mkdir()
        with pytest.raises(LedgerError, match="what is applied to the source cannot be recorded"):
            workspace.apply()
        assert [*tree_of(tmp_path / "source")] == ["a.txt"]


def test_directory_with_a_repository_made_in_the_copy_is_removed_from_the_source(
    tmp_path: Path,
) -> None:
    """The repository was left out, so the source does not lose one."""
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        write(workspace, **{"sub/.git/HEAD": "ref: refs/heads/main\n", "sub/b.txt": "b\n"})
        assert workspace.apply().paths == ("sub/b.txt",)
        workspace.files.delete("sub", recursive=True)
        assert workspace.apply().paths == ("sub/b.txt",)
        assert [*tree_of(tmp_path / "source")] == ["a.txt"]
