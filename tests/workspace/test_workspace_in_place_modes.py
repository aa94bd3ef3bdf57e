"""Restored files in place have no wider permissions than before."""

from __future__ import annotations

from pathlib import Path

import pytest
from in_place_rig import begun, source_of
from workspace_rig import calls, folder, reopened

from wink_workspace.workspace import Workspace


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with mode 0600 in a directory with mode 0700."""
    path = source_of(tmp_path) / "keys" / "secret"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"secret\n")
    path.chmod(0o600)
    path.parent.chmod(0o700)
    return path


@pytest.mark.parametrize("is_reopened", [False, True])
def test_undone_deletion_restores_paths_without_wider_permissions(
    tmp_path: Path, secret: Path, is_reopened: bool
) -> None:
    workspace = begun(tmp_path)
    with calls(workspace) as call:
        assert call("rm", path="keys").result.success
    if is_reopened:
        workspace.close()
        workspace = reopened(tmp_path)
    with workspace:
        workspace.undo()
        assert secret.read_bytes() == b"secret\n"
        assert (mode_of(secret), mode_of(secret.parent)) == (0o600, 0o700)
        workspace.redo()
        workspace.restore(1)
        assert (mode_of(secret), mode_of(secret.parent)) == (0o600, 0o700)


def test_undone_move_and_a_deletion_by_hand_do_not_widen_permissions(
    tmp_path: Path, secret: Path
) -> None:
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("mv", source="keys/secret", destination="moved")
        workspace.undo()
        assert mode_of(secret) == 0o600
        secret.unlink()
        workspace.restore(1)
        assert mode_of(secret) == 0o600


def test_secret_that_replaces_a_public_file_keeps_its_permissions(
    tmp_path: Path, secret: Path
) -> None:
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("rm", path="keys/secret")
        call("write_file", file_path="keys/secret", content="public\n")
        assert mode_of(secret) == 0o644
        workspace.restore(1)
        assert (secret.read_bytes(), mode_of(secret)) == (b"secret\n", 0o600)


def test_permissions_that_were_widened_later_are_restored(tmp_path: Path, secret: Path) -> None:
    def deleted_and_back(workspace: Workspace) -> int:
        with calls(workspace) as call:
            call("rm", path="keys/secret")
        workspace.undo()
        return mode_of(secret)

    with begun(tmp_path) as workspace:
        secret.chmod(0o644)
        assert deleted_and_back(workspace) == 0o644
        secret.chmod(0o700)
        assert deleted_and_back(workspace) == 0o700


def test_note_of_modes_stays_small_and_survives_a_truncated_line(
    tmp_path: Path, secret: Path
) -> None:
    with begun(tmp_path) as workspace, calls(workspace) as call:
        for n in range(150):
            secret.write_bytes(b"secret %d\n" % n)
            call("ls")
    noted = folder(tmp_path).modes
    assert len(noted.read_text().splitlines()) < 120
    with noted.open("a") as file:
        file.write('["keys/sec')
    with reopened(tmp_path) as workspace, calls(workspace) as call:
        call("rm", path="keys/secret")
        workspace.undo()
        assert mode_of(secret) == 0o600
