"""The branch that keeps the import is not a fork, and unknown names are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import created, state, tree_of, write

from wink_workspace.errors import EntryMissingError
from wink_workspace.workspace import Workspace


@pytest.mark.parametrize("name", ["imported", "../x", "", "a/b"])
def test_name_that_is_not_a_fork_is_neither_deleted_nor_opened(tmp_path: Path, name: str) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        workspace.fork("other")
        which, before = workspace.info.id, tree_of(tmp_path / "source")
        with pytest.raises(EntryMissingError, match="there is no fork") as caught:
            workspace.branches.delete(name)
        assert caught.value.hint == "The forks are: other."
        with pytest.raises(EntryMissingError, match="there is no fork"):
            Workspace.open(which, storage=state(tmp_path), branch=name)
        write(workspace, **{"b.txt": "b\n"})
        assert workspace.apply().paths == ("b.txt",)
        assert before.items() < tree_of(tmp_path / "source").items()


def test_reserve_that_is_a_link_does_not_change_its_target(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        which, reserve = workspace.info.id, workspace._folder.reserve
    reserve.unlink()
    other = tmp_path / "other"
    other.write_text("of its owner")
    reserve.symlink_to(other)
    with Workspace.open(which, storage=state(tmp_path)):
        assert other.read_text() == "of its owner"
