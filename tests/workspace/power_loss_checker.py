"""Opens what a loss of power left: mounts each image over the disk, in a mount namespace of its own.

Argument: the disk. Each line on stdin is JSON: the image, and the lines that the writer had
acknowledged. The answer is a line of JSON with what is wrong, empty if nothing is.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any
from uuid import UUID

from power_loss_writer import NAMES, content

from wink_workspace.ledger import file_state, walk
from wink_workspace.workspace import Workspace, WorkspaceStorage

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def number_in(name: str, found: bytes) -> int:
    """The step that wrote a file; raises if it is not the whole content."""
    n = int(found.split(b"\n")[0].split()[-1]) if found else -1
    assert found == content(name, n), f"{name} has {len(found)} bytes that no step wrote"
    return n


def check_source(source: Path, acknowledged: list[dict[str, Any]]) -> None:
    """Every file is whole, and as new as the last apply or durable call that was acknowledged."""
    least = max((each["n"] for each in acknowledged if each["what"] == "applied"), default=0)
    for path in source.iterdir():
        if not path.name.startswith(".wink"):
            n = number_in(path.name.partition("-")[0], path.read_bytes())
            assert n >= least or path.name not in NAMES, f"{path.name} of step {n}, not {least}"


def check_branch(workspace: Workspace) -> None:
    """Every entry is readable and of one step; the files are those of the newest one."""
    for entry in workspace.log():
        found = {
            "/".join(path.parts): (file_state(workspace._ledger.store, at) or at).data
            for path, at in walk(workspace._ledger.store, entry.files)
        }
        steps = {number_in(name, found[name]) for name in NAMES if name in found}
        assert len({n for n in steps if n < 1000}) <= 1, f"entry {entry.number} of {steps}"
    if workspace.info.mode != "in_place":  # there, changes since are edits of the user
        head = {
            path.name: (file_state(workspace._ledger.store, at) or at).data
            for path, at in walk(workspace._ledger.store, workspace.head.files)
        }
        files = {path.name: path.read_bytes() for path in workspace.files_path.iterdir()}
        assert files == head, f"files {sorted(files)}, not {sorted(head)}"
    with workspace.call("after") as call:
        workspace.files.write_bytes("a", content("a", 2000))
        call.result("ok")


def check(disk: Path, acknowledged: list[dict[str, Any]], *, durable: bool) -> None:
    storage = WorkspaceStorage(disk / "state")
    counts = ("closed", "call", "created") if durable else ("closed",)
    least = max((each["head"] for each in acknowledged if each["what"] in counts), default=0)
    check_source(disk / "source", acknowledged)
    infos = list(storage.all())
    assert infos or not least, "the workspace is missing"
    for info in infos:
        with Workspace.open(info.id, storage=storage) as workspace:
            forks = workspace.forks()
            if info.source == str(disk / "source"):
                assert workspace.head.number >= least, f"{workspace.head.number}, not {least}"
            check_branch(workspace)
            for discarded in workspace.discarded():
                list(walk(workspace._ledger.store, discarded.files))
            workspace.maintain()
        for name in forks:
            with Workspace.open(info.id, storage=storage, branch=name) as fork:
                check_branch(fork)


def main() -> None:
    disk = Path(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        subprocess.run(["mount", "-o", "loop", request["image"], disk], check=True)
        boot_id = Path(request["image"]).with_suffix(".boot")
        boot_id.write_text(f"{UUID(bytes=secrets.token_bytes(16))}\n")
        subprocess.run(["mount", "--bind", boot_id, BOOT_ID], check=True)
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                check(disk, request["acknowledged"], durable=request["durable"])
            except BaseException:  # noqa: BLE001 - the answer to any error is its traceback
                os.write(writer, traceback.format_exc()[-3000:].encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            print(json.dumps(answer.read().decode()), flush=True)
        os.waitpid(child, 0)
        subprocess.run(["umount", BOOT_ID], check=True)
        subprocess.run(["umount", "--lazy", disk], check=True)


if __name__ == "__main__":
    main()
