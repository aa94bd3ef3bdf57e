"""A disk that is really full: a small filesystem of our own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_SCRIPT = """
import sys
from pathlib import Path
from workspace_rig import assert_same, calls, folder, made, picture, reopened
from wink_workspace.errors import LedgerError

here = Path(sys.argv[1])
with made(here, {"a.txt": b"a" * 9_000, "d/b.txt": b"b" * 9_000}) as workspace:
    with calls(workspace) as call:
        call("write_file", file_path="c.txt", content="c\\n")
        before = picture(workspace.files.tree.root)
        filler = (here / "filler").open("wb", buffering=0)
        try:
            while filler.write(b"x" * 4_096):
                pass
        except OSError:
            pass
        try:
            text = call("rm", path="d").text
        except LedgerError as error:
            text = str(error)
        assert "No space left on device" in text, text
        assert_same(before, picture(workspace.files.tree.root))
        assert len(list(workspace.log())) >= 2
        filler.truncate(0)
        assert call("read_file", file_path="d/b.txt").result.success
        assert call("rm", path="d").result.success
        assert folder(here).reserve.stat().st_blocks > 0
with reopened(here) as workspace:
    assert "d" not in [entry.path.name for entry in workspace.files.list(".")]
"""


def _can_mount() -> bool:
    """Whether a filesystem can be mounted that nobody else sees."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def test_call_on_a_full_disk_fails_and_is_taken_back_and_with_room_again_all_goes_on(
    tmp_path: Path,
) -> None:
    """What it deleted is written again, for which the disk has no room but what we keep."""
    if not _can_mount():
        pytest.skip("no small filesystem can be mounted here")
    mount = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, _SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{_HERE}:{_HERE.parent}"},
    )
    assert done.returncode == 0, done.stderr
