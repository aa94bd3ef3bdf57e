"""A full disk: a small filesystem that is mounted in a separate process."""

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
from workspace_rig import assert_same, calls, doing, folder, made, picture, reopened
from wink_workspace.errors import LedgerError

here = Path(sys.argv[1])
with made(here, {"a.txt": b"a" * 9_000, "d/b.txt": b"b" * 9_000}) as workspace:
    def delete_and_fill() -> None:
        workspace.files.delete("d", recursive=True)
        try:
            while filler.write(b"x" * 4_096):
                pass
        except OSError:
            pass
    with calls(workspace, doing(delete_and_fill, fails=True)) as call:
        call("write_file", file_path="c.txt", content="c\\n")
        before = picture(workspace.files.tree.root)
        filler = (here / "filler").open("wb", buffering=0)
        try:
            text = call("act").text
            assert "the handler failed" in text, text
        except LedgerError as error:
            assert "No space left on device" in str(error)
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
    """Whether a filesystem can be mounted in a private namespace."""
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def on_a_small_disk(
    tmp_path: Path, script: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with a 4 MiB disk mounted at *tmp_path*, its first argument."""
    if not _can_mount():
        pytest.skip("no small filesystem can be mounted here")
    mount = 'mount -t tmpfs -o size=4m tmpfs "$1" && exec "$2" -c "$3" "$1" "$4"'
    return subprocess.run(
        [
            *("unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, script),
            *(arguments or ("",)),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{_HERE}:{_HERE.parent}"},
    )


def test_call_on_a_full_disk_is_rolled_back_and_calls_work_once_there_is_space(
    tmp_path: Path,
) -> None:
    """The rollback writes the deleted file again; only the reserve has space for it."""
    done = on_a_small_disk(tmp_path, _SCRIPT)
    assert done.returncode == 0, done.stderr


_COMMANDS = """
import os, subprocess, sys
from pathlib import Path
from workspace_rig import calls, doing, folder, made
from wink_workspace.cli.app import run_command

here, other = Path(sys.argv[1]), Path(sys.argv[2])
os.environ["XDG_STATE_HOME"] = str(here / "xdg")
(here / "source").mkdir()
for name in ("a", "b"):
    (here / "source" / name).write_bytes(b"a line\\n" * 2_000)
assert run_command(["new", "--mode", "copy", str(here / "source")]) == 0
which = next((here / "xdg/wink-workspace/workspaces").glob("*/about.json")).parent.name
(here / "turns").write_text('{"tool_calls": [{"name": "write_file", "arguments": '
    '{"file_path": "new", "content": "new"}}]}\\n{"text": "Done."}\\n')
assert run_command(["run", "--workspace", which, "--script", str(here / "turns")]) == 0
files = here / "xdg/wink-workspace/workspaces" / which / "files"
(files / "a").write_bytes(b"edited by hand\\n")
filler = (here / "filler").open("wb", buffering=0)
def fill():
    for n_bytes in (4_096, 1):
        try:
            while filler.write(b"x" * n_bytes):
                pass
        except OSError:
            pass
    assert os.statvfs(here).f_bavail == 0
for arguments in (
    ["diff", which],
    ["log", which],
    ["discarded", which],
    ["apply", which, "--patch", str(other / "patch")],
    ["gc", which],
    ["rm", which],
):
    fill()
    code = run_command(arguments)
    assert code == 0, (arguments, code)
assert "new file mode 100644" in (other / "patch").read_text()
assert not (here / "xdg/wink-workspace/workspaces" / which).exists()
assert run_command(["list"]) == 0
"""


def test_commands_that_read_or_free_space_work_on_a_full_disk(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """``diff``, ``log``, ``discarded``, ``apply --patch`` to another disk, ``gc`` and ``rm``."""
    done = on_a_small_disk(tmp_path, _COMMANDS, str(tmp_path_factory.mktemp("other")))
    assert done.returncode == 0, done.stderr
    assert "+edited by hand" in done.stdout


_FILLS = """
import os, sys
from pathlib import Path
from workspace_rig import assert_same, calls, doing, made, picture

here = Path(sys.argv[1])
with made(here, {"a.txt": b"a" * 9_000, "d/b.txt": b"b" * 9_000}) as workspace:
    root = workspace.files.tree.root

    def fill():
        (root / "mine").write_bytes(b"m" * 1_000)
        (root / "d/b.txt").unlink()
        with (root / "large").open("wb", buffering=0) as file:
            while file.write(os.urandom(4_096)):
                pass

    with calls(workspace, doing(fill, fails=True)) as call:
        before = picture(root)
        answer = call("act")
        assert "No space left on device" in answer.text, answer.text
        assert_same(before, picture(root))
        assert call("write_file", file_path="c.txt", content="c").result.success
    (found,) = workspace.discarded()
    assert [(each.path, each.reason) for each in found.dropped.named] == [
        ("large", "the disk is full")
    ]
    kept = {str(each.path): each.after for each in workspace.discarded_changes(found)}
    assert kept["mine"].data == b"m" * 1_000
"""


def test_call_that_fills_the_disk_loses_only_its_largest_file_which_is_named(
    tmp_path: Path,
) -> None:
    done = on_a_small_disk(tmp_path, _FILLS)
    assert done.returncode == 0, done.stderr
