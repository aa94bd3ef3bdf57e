"""Copies of a source's history: shared by workspaces, and deleted when none uses them."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from workspace_support import git, make_tree

from wink_workspace.errors import FilesystemError
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage
from wink_workspace.workspace.create.git_copies import GitCopies, write_git_file
from wink_workspace.workspace.place import shared_folders
from wink_workspace.workspace.place.path_rules import ImportConfig

COLLECT = """
import sys
from pathlib import Path
from wink_workspace.workspace.create.git_copies import GitCopies
print(GitCopies(Path(sys.argv[1])).collect())
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = make_tree(tmp_path / "source", {"a.txt": "a\n", "b/c.txt": "c\n"})
    git(source, "init", "-q", "-b", "trunk")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "first")
    return source


@pytest.fixture
def storage(tmp_path: Path) -> WorkspaceStorage:
    return WorkspaceStorage(tmp_path / "state")


def copies(storage: WorkspaceStorage) -> list[str]:
    return sorted(path.name for path in (storage.state_dir / "git").iterdir() if path.is_dir())


def collected(storage: WorkspaceStorage) -> int:
    """Collect in a process that uses no copy."""
    command = [sys.executable, "-c", COLLECT, str(storage.state_dir)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_workspaces_of_one_source_share_a_copy_until_its_head_or_its_rules_differ(
    source: Path, storage: WorkspaceStorage
) -> None:
    for _ in range(2):
        Workspace.create(source, storage=storage).close()
    assert len(copies(storage)) == 1
    git(source, "tag", "v1")
    Workspace.create(source, storage=storage).close()
    assert len(copies(storage)) == 2
    config = WorkspaceConfig(imported=ImportConfig(exclude=("a.txt",)))
    Workspace.create(source, storage=storage, config=config).close()
    assert len(copies(storage)) == 3


def test_copy_stays_while_a_workspace_names_it_or_a_process_uses_it(
    source: Path, storage: WorkspaceStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[Path, int] = {}
    # The test releases the lock, which otherwise ends with the process.
    monkeypatch.setattr(GitCopies, "_held", held)
    with Workspace.create(source, storage=storage) as workspace:
        which = workspace.info.id
    (lock,) = held.values()
    assert collected(storage) == 0
    Workspace.delete(which, storage=storage)
    assert collected(storage) == 0, "this process may show it to a container"
    assert len(copies(storage)) == 1
    os.close(lock)
    held.clear()
    (storage.state_dir / "git/new-of-a-dead-process/objects").mkdir(parents=True)
    assert collected(storage) == 1
    assert copies(storage) == []


def test_copy_that_another_process_has_just_deleted_is_passed_over(
    storage: WorkspaceStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (storage.state_dir / f"git/old-{name}/objects").mkdir(parents=True)
    real = shared_folders.lock_file
    listed: list[Path] = []

    def lock_later(path: Path, *, waits: bool) -> int | None:
        listed.append(path)
        if len(listed) == 1:
            shutil.rmtree(path.parent)
        return real(path, waits=waits)

    # Between the list and the lock
    monkeypatch.setattr(shared_folders, "lock_file", lock_later)
    GitCopies(storage.state_dir).collect()
    assert len(listed) == 2
    assert copies(storage) == []


def test_collection_that_fails_keeps_no_lock_of_a_copy(
    storage: WorkspaceStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (storage.state_dir / "git/1-unused/objects").mkdir(parents=True)

    def rename(path: Path, target: object) -> Path:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path), None, str(target))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(FilesystemError, match="Input/output error"):
            GitCopies(storage.state_dir).collect()
    assert GitCopies(storage.state_dir).collect() == 1, "its lock can be taken"


def test_copy_can_be_read_by_others_whatever_the_umask_is(
    source: Path, storage: WorkspaceStorage
) -> None:
    before = os.umask(0o077)
    try:
        Workspace.create(source, storage=storage).close()
    finally:
        os.umask(before)
    (name,) = copies(storage)
    top = storage.state_dir / "git" / name
    for path in (top, *(top / "objects").rglob("*"), *(top / "template").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o444)


def test_copy_that_fails_leaves_a_workspace_without_a_repository(
    source: Path, storage: WorkspaceStorage, caplog: pytest.LogCaptureFixture
) -> None:
    tree = git(source, "rev-parse", "HEAD^{tree}").strip()
    (source / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with Workspace.create(source, storage=storage) as workspace:
        assert not workspace._folder.git.exists()
        workspace.files.write_text(".gitkeep", "")
    assert "git in the sandbox has no history" in caplog.text
    assert copies(storage) == []


def test_git_file_replaces_whatever_a_command_left(tmp_path: Path) -> None:
    files = make_tree(tmp_path / "files", {"a": "x"})
    write_git_file(files)
    content = (files / ".git").read_bytes()
    for left in (
        {".git/hooks/x": "#!", ".git/config": "y"},
        {".git": "-> /etc/passwd"},
        {".git": ""},
    ):
        (files / ".git").unlink()
        make_tree(files, left)
        write_git_file(files)
        assert (files / ".git").read_bytes() == content
        assert not (files / ".git").is_symlink()
        assert (files / ".git").stat().st_mode & 0o777 == 0o644
    os.link(files / ".git", files / "other")
    before = (files / ".git").stat().st_ino
    write_git_file(files)
    assert (files / ".git").stat().st_ino != before, "another name of it could change it"
