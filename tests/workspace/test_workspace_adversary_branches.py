"""The line that keeps the import is nobody's fork, and a name that is none leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import created, state, tree_of, write

from wink_workspace.errors import EntryMissingError
from wink_workspace.workspace import Workspace


@pytest.mark.parametrize("name", ["imported", "../x", "", "a/b"])
def test_what_is_no_fork_is_neither_deleted_nor_opened(tmp_path: Path, name: str) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        workspace.fork("other")
        which, before = workspace.info.id, tree_of(tmp_path / "source")
        with pytest.raises(EntryMissingError, match="there is no fork") as caught:
            workspace.delete_fork(name)
        assert caught.value.hint == "There are: other."
        with pytest.raises(EntryMissingError, match="there is no fork"):
            Workspace.open(which, storage=state(tmp_path), branch=name)
        write(workspace, **{"b.txt": "b\n"})
        assert workspace.apply().paths == ("b.txt",)
        assert before.items() < tree_of(tmp_path / "source").items()


def test_reserve_takes_up_no_room_in_another_file(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        which, reserve = workspace.info.id, workspace._folder.reserve
    reserve.unlink()
    other = tmp_path / "other"
    other.write_text("of its owner")
    reserve.symlink_to(other)
    with Workspace.open(which, storage=state(tmp_path)):
        assert other.read_text() == "of its owner"
