"""Another ordinary user of the machine finds nothing of a workspace while a command runs in it."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from sandbox.podman.podman_machine import OrdinaryUser

pytestmark = pytest.mark.xdist_group("bubblewrap-user")

STRANGER = OrdinaryUser(54_321, 54_321)
SEARCH = "tests/sandbox/bubblewrap/what_a_user_sees.py"
HIDDEN = ("source", "edited", "derived", "recorded", "variable", "input")
"""What only the owner may see."""
SHOWN = ("path", "argument")
"""What the kernel shows every user of any process: its mounts and its command line."""
OWNER = """
import json, os, sys
from pathlib import Path
from wink_workspace import BubblewrapConfig, Workspace, WorkspaceStorage
from wink_workspace.sandbox import ExecRequest

os.umask(0o022)
folder, mode = Path(sys.argv[1]), sys.argv[2]
word = json.loads(sys.stdin.readline())
source = folder / "private" / word["path"]
source.mkdir(parents=True)
source.parent.chmod(0o700)
(source / "a.txt").write_text(word["source"])
storage = WorkspaceStorage(folder / "state")
with Workspace.create(source, storage=storage, mode=mode) as workspace:
    with workspace.call(word["recorded"]) as call:
        call.files.write_text("a.txt", word["edited"])
        call.files.write_bytes("node_modules/big.js", word["derived"].encode() * 100_000)
    fork = workspace.fork("try").open()
    program = (
        "read line; echo $VARIABLE $line > /tmp/file; cp /tmp/file /dev/shm/file;"
        "echo $VARIABLE > made; echo ready; while :; do sleep 1000; done"
    )
    fork.sandbox(BubblewrapConfig()).run(
        ExecRequest(
            argv=("sh", "-c", program, word["argument"]),
            env={"VARIABLE": word["variable"]},
            stdin=word["input"].encode() + b"\\n",
            timeout_s=600,
        ),
        observer=lambda *_: print("ready", flush=True),
    )
"""


@pytest.fixture
def folder() -> Generator[Path]:
    """A directory that every user can enter, unlike the temporary ones of tests."""
    made = Path(tempfile.mkdtemp(prefix="wink-tests-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("mode", ["overlay", pytest.param("copy", marks=pytest.mark.soak)])
@pytest.mark.parametrize("is_root", [True, False])
def test_another_user_finds_nothing_of_a_workspace_while_a_command_runs(
    folder: Path, ordinary_user: OrdinaryUser, mode: str, *, is_root: bool
) -> None:
    word = {kind: f"{kind}-{secrets.token_hex(8)}" for kind in (*HIDDEN, *SHOWN)}
    arguments = ("-c", OWNER, str(folder), mode)
    if is_root:
        command, variables = [sys.executable, *arguments], dict(os.environ)
    else:
        os.chown(folder, ordinary_user.uid, ordinary_user.gid)
        command, variables = ordinary_user.command(*arguments), ordinary_user.python_variables()
    with subprocess.Popen(
        command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdin is not None
            assert owner.stdout is not None
            owner.stdin.write(json.dumps(word) + "\n")
            owner.stdin.flush()
            assert owner.stdout.readline() == "ready\n"
            tops = (str(folder), "/tmp", "/var/tmp", "/dev/shm", "/run")
            strangers = STRANGER.python(SEARCH, *tops, "--", *word.values())
            owners = subprocess.run(
                [sys.executable, SEARCH, str(folder), "--", *word.values()],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
        finally:
            owner.kill()
    assert strangers.returncode == 0, strangers.stderr
    found = json.loads(strangers.stdout)
    assert {kind: found[word[kind]] for kind in HIDDEN} == {kind: [] for kind in HIDDEN}
    for kind in SHOWN:
        assert all(re.fullmatch(r"/proc/\d+/(cmdline|mountinfo)", at) for at in found[word[kind]])
    by_owner = {kind: json.loads(owners.stdout)[word[kind]] for kind in word}
    assert all(by_owner.values()), by_owner
    for place in ("/environ", "/root/tmp/file", "/root/dev/shm/file"):
        assert any(at.endswith(place) for at in by_owner["variable"]), by_owner
