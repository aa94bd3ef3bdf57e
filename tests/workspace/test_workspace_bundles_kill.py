"""``kill -9`` during an export or an import: the result is complete, or there is none."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_rig import Server
from workspace_rig import assert_fsck_clean, calls, doing, folder, made, reopened, storage

from wink_workspace.workspace import Workspace, export_workspace, import_workspace

OLD = b"an older export\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a fork, its bundle, and an older file in the place of the next export."""
    directory = tmp_path_factory.mktemp("killed")
    noise = bytes((n * n * 2_654_435_761 >> 13) & 255 for n in range(20_000))
    with made(directory, {"a.txt": b"line\n" * 500, "noise": noise}, mode="copy") as workspace:
        workspace.fork("try-2")
        with calls(workspace) as call:
            call("write_file", file_path="b.txt", content="b\n")
    export_workspace(workspace.info.id, directory / "bundle", storage=storage(directory))
    (directory / "exported").write_bytes(OLD)
    return directory


def sampled(n: int, times: int) -> list[int]:
    """At most *times* numbers from 1 to *n*, both included."""
    return sorted({1 + k * (n - 1) // max(1, times - 1) for k in range(times)})


def kills(server: Server, directory: Path, work: str, times: int) -> Iterator[None]:
    """Yield after each kill, at every kill point and at system calls from the first to the last."""
    assert server.run(directory, work) == 0
    passed: dict[str, int] = json.loads((directory / "passed").read_text())
    yield
    for point, n in passed.items():
        for nth in sampled(n, times if point == "system-call" else 3):
            ended = server.run(directory, work, [point, nth])
            # The number of system calls of an export differs a little from run to run
            assert ended == signal.SIGKILL or (point == "system-call" and ended == 0), (point, nth)
            yield


@pytest.mark.behaviour(155)
def test_a_killed_import_leaves_no_workspace_and_can_be_repeated(
    server: Server, directory: Path
) -> None:
    other = storage(directory / "other")
    number = None
    for _ in kills(server, directory, "import", 16):
        for info in other.all():
            with Workspace.open(info.id, storage=other) as workspace:
                number = number or workspace.head.number
                assert workspace.head.number == number == 2
                assert workspace.forks() == ("try-2",)
                assert workspace.files.read_bytes("b.txt") == b"b\n"
            assert_fsck_clean(other.folder(info.id).ledger)
        other.sweep()
        known = {info.id for info in other.all()}
        for path in (directory / "other/state/workspaces").iterdir():
            # A kill between two system calls leaves an empty directory without an owner
            assert path.name in known | {"claims"} or not any(path.iterdir())
        shutil.rmtree(directory / "other")
    import_workspace(directory / "bundle", storage=other, mode="copy")


@pytest.mark.behaviour(155)
def test_a_killed_export_leaves_the_older_file_or_a_complete_one(
    server: Server, directory: Path
) -> None:
    for n, _ in enumerate(kills(server, directory, "export", 16)):
        found = (directory / "exported").read_bytes()
        if found != OLD:
            other = storage(directory / f"again-{n}")
            info = import_workspace(directory / "exported", storage=other, mode="copy")
            with Workspace.open(info.id, storage=other) as workspace:
                assert workspace.head.number == 2
            (directory / "exported").write_bytes(OLD)
        for left in directory.glob(".wink-workspace-export-*"):
            left.unlink()  # its content was complete; only the name was missing
    with reopened(directory) as workspace, calls(workspace, doing(lambda: None)) as call:
        call("act")
    assert_fsck_clean(folder(directory).ledger)
