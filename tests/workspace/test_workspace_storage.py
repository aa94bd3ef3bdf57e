"""Storage of workspaces: found by their ids, created fully or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from workspace_support import created, make_tree, state

from wink_workspace import workspace as package
from wink_workspace.errors import UsageError
from wink_workspace.sections import Plan, SetupPlan
from wink_workspace.workspace import Workspace, WorkspaceFolder, WorkspaceInfo, WorkspaceStorage
from wink_workspace.workspace.create.bases import BaseStore, collect_bases

_ORDINARY_ID = 12_345


def add(storage: WorkspaceStorage, day: int) -> WorkspaceInfo:
    def fill(folder: WorkspaceFolder) -> WorkspaceInfo:
        return WorkspaceInfo(folder.path.name, "/somewhere", datetime(2026, 1, day, tzinfo=UTC))

    return storage.add(fill)


def test_workspaces_are_listed_newest_first(tmp_path: Path) -> None:
    assert list(WorkspaceStorage(tmp_path).all()) == []
    older, newer = add(WorkspaceStorage(tmp_path), 1), add(WorkspaceStorage(tmp_path), 2)
    assert list(WorkspaceStorage(tmp_path).all()) == [newer, older]


def test_a_format_of_a_later_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a": "1"})
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(source, storage=storage) as workspace:
        info = workspace.info
    about = storage.folder(info.id).path / "about.json"
    text = json.dumps({**json.loads(about.read_text()), "version": 99})
    about.write_text(text)
    with pytest.raises(UsageError, match="format 99, and this program knows formats up to"):
        Workspace.open(info.id, storage=storage)
    assert about.read_text() == text


def test_plan_events_dispatched_on_a_workspaces_session_change_its_plan(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a": "1"})
    with Workspace.temporary(source) as workspace:
        workspace.session.dispatch(SetupPlan("Ship it", ("Build",)))
        plan = workspace.session[Plan].latest()
    assert plan is not None
    assert (plan.objective, [step.title for step in plan.steps]) == ("Ship it", ["Build"])


def test_the_start_of_an_id_is_enough_if_it_is_unique(tmp_path: Path) -> None:
    storage = WorkspaceStorage(tmp_path)
    info = add(storage, 1)
    assert storage.folder(info.id[:3]).info() == info
    (tmp_path / "workspaces" / info.id).rename(tmp_path / "workspaces" / "gone")
    with pytest.raises(UsageError, match="no workspace is called 'zz'"):
        storage.folder("zz")


def test_error_without_any_workspace_says_how_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no workspace is called '3f1'") as caught:
        WorkspaceStorage(tmp_path).folder("3f1")
    assert "wink-workspace new" in caught.value.hint


@pytest.mark.parametrize("which", ["", "../x", "/"])
def test_only_an_id_is_resolved_to_a_folder(tmp_path: Path, which: str) -> None:
    storage = WorkspaceStorage(tmp_path)
    add(storage, 1)
    with pytest.raises(UsageError, match="The workspaces are: "):
        storage.folder(which)


def test_a_workspace_whose_creation_fails_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        WorkspaceStorage(tmp_path).add(lambda _: 1 / 0)
    assert [path for path in (tmp_path / "workspaces").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("about", ["", "{}", '{"version": 99}', "[]"])
def test_an_unfinished_folder_is_not_listed_as_a_workspace(tmp_path: Path, about: str) -> None:
    storage = WorkspaceStorage(tmp_path)
    info = add(storage, 1)
    (tmp_path / "workspaces" / info.id / "about.json").write_text(about)
    assert list(storage.all()) == []


@pytest.mark.behaviour(36)
def test_the_history_lies_outside_of_the_files_and_of_the_source(tmp_path: Path) -> None:
    with created(tmp_path, {"a": "a"}) as workspace:
        folder = state(tmp_path).folder(workspace.info.id)
        assert not folder.ledger.is_relative_to(folder.files)
        assert not folder.ledger.is_relative_to(tmp_path / "source")
        assert [path.name for path in (tmp_path / "source").iterdir()] == ["a"]


def test_a_workspace_with_files_of_any_mode_is_removed(tmp_path: Path) -> None:
    storage = WorkspaceStorage(tmp_path)
    folder = storage.folder(add(storage, 1).id)
    (folder.path / "shut" / "in").mkdir(parents=True)
    (folder.path / "shut").chmod(0)
    storage.remove(folder)
    assert not folder.path.exists()


def test_the_package_exports_exactly_its_public_names() -> None:
    assert set(package.__all__) <= set(dir(package))
    assert package.WorkspaceStorage is WorkspaceStorage
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = package.Nothing


def test_import_reports_its_progress_up_to_the_totals_of_its_record(tmp_path: Path) -> None:
    files = {f"d{n}/{n}.txt": b"x" * n for n in range(5)}
    for name, content in files.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True)
        (tmp_path / "source" / name).write_bytes(content)
    reported: list[tuple[int, int]] = []
    storage = WorkspaceStorage(tmp_path / "state")

    def progress(n_files: int, n_bytes: int) -> None:
        reported.append((n_files, n_bytes))

    with Workspace.create(tmp_path / "source", storage=storage, progress=progress):
        assert reported == sorted(reported)
        assert reported[-1] == (5, 10)
        assert len(reported) > 1


def test_a_workspace_cannot_be_constructed_from_a_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Use Workspace\.create"):
        Workspace(tmp_path)  # pyright: ignore[reportArgumentType] - a common mistake


@pytest.fixture
def user_directory() -> Iterator[Path]:
    """A directory of an ordinary user, which the path to ``tmp_path`` would not let that user enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, _ORDINARY_ID, _ORDINARY_ID)
        yield Path(name)


@contextmanager
def ordinary_user() -> Iterator[None]:
    os.setegid(_ORDINARY_ID)
    os.seteuid(_ORDINARY_ID)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_workspace_that_root_made_in_a_users_state_directory_does_not_block_the_user(
    tmp_path: Path, user_directory: Path
) -> None:
    """As ``sudo -E wink-workspace new`` does."""
    Workspace.temporary(tmp_path).close()  # loads modules, which the user perhaps cannot read
    is_overlay = WorkspaceStorage(tmp_path).overlay_support().available
    storage = WorkspaceStorage(user_directory / "state")
    with ordinary_user():
        source = make_tree(user_directory / "source", {"a": "1"})
        Workspace.create(source, storage=storage, mode="copy").close()
        assert BaseStore(user_directory / "state").find("0" * 40) is None
    Workspace.create(source, storage=storage, mode="overlay" if is_overlay else "copy").close()
    with ordinary_user():
        Workspace.create(source, storage=storage, mode="copy").close()
        assert len(list(storage.all())) == 2
        assert collect_bases(user_directory / "state").n_deleted == 0
    assert len(list(storage.all())) == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_workspace_of_another_user_is_not_opened_not_even_with_sudo(
    tmp_path: Path, user_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root would read the marks of deleted directories in the user's layer wrongly."""
    Workspace.temporary(tmp_path).close()  # as above
    storage = WorkspaceStorage(user_directory / "state")
    with ordinary_user():
        source = make_tree(user_directory / "source", {"a": "1"})
        Workspace.create(source, storage=storage, mode="copy").close()
    (info,) = storage.all()
    monkeypatch.setenv("SUDO_UID", str(_ORDINARY_ID))
    with pytest.raises(UsageError, match=f"belongs to the user with the id {_ORDINARY_ID}"):
        Workspace.open(info.id, storage=storage)
