"""Workspaces that earlier versions wrote open, with all that they hold."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from write_workspaces import contents, files_of, main, write_source

from wink_workspace.errors import UsageError
from wink_workspace.ledger import Retention
from wink_workspace.sections import Plan
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceMode, WorkspaceStorage

MODES: tuple[WorkspaceMode, ...] = ("copy", "overlay")
ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
KEEP_ALL = WorkspaceConfig(retention=Retention(max_age_days=36_500))


@pytest.fixture(scope="module")
def written_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the archives of the present version."""
    folder = tmp_path_factory.mktemp("written")
    main(folder, "present", modes=MODES if os.geteuid() == 0 else ("copy",))
    return folder


PRESENT = [Path(f"present-{mode}.tar.xz") for mode in MODES]


@pytest.fixture(params=[*ARCHIVES, *PRESENT], ids=lambda path: path.name.removesuffix(".tar.xz"))
def archive(request: pytest.FixtureRequest) -> Path:
    """An archive of an earlier version, or of this one."""
    if "overlay" in request.param.name and os.geteuid() != 0:
        pytest.skip("the files of this archive belong to another user, which only root can restore")
    if request.param in PRESENT:
        return request.getfixturevalue("written_now") / request.param.name
    return request.param


@pytest.fixture
def stored(archive: Path, tmp_path: Path) -> WorkspaceStorage:
    """The state directory of an archive, whose workspace has its source again."""
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="fully_trusted")
    write_source(tmp_path / "source")
    for about in tmp_path.glob("state/workspaces/*/about.json"):
        fields = json.loads(about.read_text())
        about.write_text(json.dumps({**fields, "source": str(tmp_path / "source")}))
    return WorkspaceStorage(tmp_path / "state")


def opened(storage: WorkspaceStorage, branch: str = "main") -> Workspace:
    (info,) = storage.all()
    return Workspace.open(info.id, storage=storage, branch=branch, config=KEEP_ALL)


def test_an_archive_of_each_mode_exists() -> None:
    assert {path.name.rpartition("-")[2] for path in ARCHIVES} == {f"{m}.tar.xz" for m in MODES}


def test_every_entry_fork_and_discard_has_the_same_value(
    archive: Path, stored: WorkspaceStorage
) -> None:
    held = json.loads(archive.with_name(archive.name.replace(".tar.xz", ".json")).read_text())
    assert set(held["branches"]) == {"main", "open", "try"}
    for name, branch in held["branches"].items():
        with opened(stored, name) as workspace:
            assert json.loads(json.dumps(contents(workspace))) == held
            assert files_of(workspace.files) == branch["files"]


def test_the_history_is_complete(stored: WorkspaceStorage) -> None:
    with opened(stored) as workspace:
        entries = [(each.tool, each.outcome) for each in reversed(list(workspace.log()))]
        assert [tool for tool, outcome in entries if outcome == "committed" and tool] == [
            *("planning_setup_plan", "read_file", "edit_file", "write_file"),
            *(("nested",) if ("nested", "committed") in entries else ()),
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
