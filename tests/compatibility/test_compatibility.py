"""Workspaces that earlier versions wrote open, with all that they hold."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from write_workspaces import write_source

from wink_workspace.errors import UsageError
from wink_workspace.ledger import Retention
from wink_workspace.sections import Plan
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
KEEP_ALL = WorkspaceConfig(retention=Retention(max_age_days=100_000))


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> WorkspaceStorage:
    """The state directory of an archive, whose workspace has its source again."""
    if "overlay" in request.param.name and os.geteuid() != 0:
        pytest.skip("the files of this archive belong to another user, which only root can restore")
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    write_source(tmp_path / "source")
    for about in tmp_path.glob("state/workspaces/*/about.json"):
        fields = json.loads(about.read_text())
        about.write_text(json.dumps({**fields, "source": str(tmp_path / "source")}))
    return WorkspaceStorage(tmp_path / "state")


def opened(storage: WorkspaceStorage, branch: str = "main") -> Workspace:
    (info,) = storage.all()
    return Workspace.open(info.id, storage=storage, branch=branch, config=KEEP_ALL)


def test_an_archive_of_each_mode_exists() -> None:
    assert {path.name.rpartition("-")[2] for path in ARCHIVES} == {"copy.tar.xz", "overlay.tar.xz"}


def test_the_history_is_complete(stored: WorkspaceStorage) -> None:
    with opened(stored) as workspace:
        entries = [(each.tool, each.outcome) for each in reversed(list(workspace.log()))]
        assert [tool for tool, outcome in entries if outcome == "committed" and tool] == [
            *("planning_setup_plan", "read_file", "edit_file", "write_file"),
        ]
        assert ("read_file", "rolled_back") in entries
        (plan,) = workspace.session[Plan].all()
        assert plan.objective == "Fix the total"
        assert "+    return sum(prices) * (1 - discount)" in workspace.diff()


def test_the_files_are_those_of_the_newest_entry_and_calls_continue(
    stored: WorkspaceStorage,
) -> None:
    with opened(stored) as workspace:
        files = workspace.files
        assert files.read_bytes("latin-1.txt") == b"gr\xfcn\n"
        assert files.read_bytes("external.txt") == b"by a person\n"
        assert files.read_bytes("fork.txt") == b"fork\n"
        assert not files.exists("NOTES.md")
        workspace.undo()  # of the merge
        assert not files.exists("fork.txt")
        with workspace.call("continue"):
            files.write_bytes("new.txt", b"new\n")
        assert "new.txt" in workspace.apply().added
        assert (Path(workspace.info.source) / "new.txt").read_bytes() == b"new\n"


def test_what_was_discarded_can_be_restored(stored: WorkspaceStorage) -> None:
    with opened(stored) as workspace:
        found = {
            str(path): each
            for each in workspace.discarded()
            for path in workspace.discarded_paths(each)
        }
        assert "half.txt" in found
        workspace.restore_discarded(found["half.txt"].id)
        assert workspace.files.read_bytes("half.txt") == b"half\n"


def test_forks_open_with_their_own_files(stored: WorkspaceStorage) -> None:
    with opened(stored, "open") as fork:
        assert fork.files.read_bytes("fork.txt") == b"changed\n"
    with opened(stored, "try") as fork:
        assert fork.files.read_bytes("fork.txt") == b"fork\n"


def test_a_format_of_a_later_version_is_refused_and_left_alone(stored: WorkspaceStorage) -> None:
    (info,) = stored.all()
    about = stored.folder(info.id).path / "about.json"
    text = json.dumps({**json.loads(about.read_text()), "version": 99})
    about.write_text(text)
    with pytest.raises(UsageError, match="format 99, and this program knows formats up to"):
        Workspace.open(info.id, storage=stored)
    assert about.read_text() == text
