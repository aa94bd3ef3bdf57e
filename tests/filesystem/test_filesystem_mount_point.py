"""A directory of the host that shows a mounted branch; root alone can make one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.overlay.mount_point import MountPoint
from wink_workspace.filesystem.overlay.mounting import Mounter, OverlayMount, overlay_support

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TIMEOUT_MS = 30_000


def mounted(folder: Path) -> OverlayMount:
    for name in ("base/files", "upper/files", "work"):
        (folder / name).mkdir(parents=True)
    (folder / "base/files/a.txt").write_text("of the base\n")
    return Mounter.shared().mount([folder / "base"], folder / "upper", folder / "work")


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[OverlayMount]:
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    with mounted(tmp_path) as mount:
        yield mount


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    return directory


@ROOT_ONLY
def test_a_mount_point_shows_the_branch_until_it_is_detached(
    mount: OverlayMount, directory: Path
) -> None:
    point = MountPoint(mount, directory)
    assert (directory / "a.txt").read_text() == "of the base\n"
    (directory / "new").write_text("by an editor\n")
    assert point.detach()
    assert list(directory.iterdir()) == []
    assert (mount.path / "files/new").read_text() == "by an editor\n"
    assert point.detach(), "a second time changes nothing"
    point.close()


@ROOT_ONLY
def test_a_mount_point_in_use_is_detached_only_by_its_close(
    mount: OverlayMount, directory: Path
) -> None:
    with MountPoint(mount, directory) as point, (directory / "a.txt").open() as editor:
        assert not point.detach()
        assert (directory / "a.txt").exists()
        point.close()
        assert list(directory.iterdir()) == []
        assert editor.read() == "of the base\n"


@ROOT_ONLY
def test_a_mount_point_ends_with_a_killed_process(tmp_path: Path, directory: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from test_filesystem_mount_point import MountPoint, mounted\n"
        "folder = Path(sys.argv[1])\n"
        "point = MountPoint(mounted(folder), folder / 'here')\n"
        "assert (folder / 'here/a.txt').exists()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with Path("/proc/self/mounts").open() as mounts:
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            },
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        changed = select.poll()
        changed.register(mounts, select.POLLPRI)  # the kernel reports changes of the table
        while os.path.ismount(directory):
            assert changed.poll(TIMEOUT_MS)
            mounts.seek(0)
            mounts.read()
    assert list(directory.iterdir()) == []


def test_a_directory_with_files_is_not_hidden_by_a_branch(
    mount: OverlayMount, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (directory / "mine").touch()
    with pytest.raises(UsageError, match="not an empty directory"):
        MountPoint(mount, directory)


def test_an_ordinary_user_is_referred_to_the_shell(
    mount: OverlayMount, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(UsageError, match="ordinary user cannot mount") as caught:
        MountPoint(mount, directory)
    assert "wink-workspace shell" in str(caught.value.hint)
