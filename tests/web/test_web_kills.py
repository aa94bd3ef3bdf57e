"""The server and the run that it shows may be killed at any moment, and used by many at once."""

from __future__ import annotations

import http.client
import random
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from test_web_actions import fields_of
from web_support import edit, serving

from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage

N_CALLS = 6


def made(tmp_path: Path) -> tuple[WorkspaceStorage, str]:
    (source := tmp_path / "source").mkdir()
    storage = WorkspaceStorage(tmp_path / "state" / "wink-workspace")
    with Workspace.create(source, storage=storage) as workspace:
        for n in range(N_CALLS):
            edit(workspace, f"{n}.txt", f"{n}\n", f"{n}")
        return storage, workspace.info.id


@pytest.mark.behaviour(203)
@pytest.mark.parametrize("n_kills", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_server_that_is_killed_in_an_action_loses_nothing(tmp_path: Path, n_kills: int) -> None:
    """An undo or redo is done fully or not at all, and the entries before it stay."""
    storage, name = made(tmp_path)
    chance = random.Random(n_kills)
    n_done = 0
    for n in range(n_kills):
        with WorkspaceReader(storage.folder(name)) as reader:
            before = [entry.id for entry in reader.log()]
            files = reader.head.files
        action = "redo" if n % 2 else "undo"
        with serving(storage) as server:
            form = {"token": server.form_token(name), "branch": "main", "action": action}
            status, page = server.send(f"/w/{name}/preview", form)
            if status != 200:  # the undo before was not done, so there is nothing to redo
                form["action"] = "undo"
                status, page = server.send(f"/w/{name}/preview", form)
            assert status == 200
            killer = threading.Timer(chance.uniform(0, 0.06), server.process.kill)
            killer.start()
            with suppress(OSError, http.client.HTTPException):
                server.send(f"/w/{name}/move", fields_of(page))
            killer.join()
        with Workspace.open(name, storage=storage) as workspace:
            after = [entry.id for entry in workspace.log()]
            assert after[len(after) - len(before) :] == before
            n_new = len(after) - len(before)
            assert n_new <= 1  # the move, or the record that it was interrupted
            is_done = n_new == 1 and workspace.head.kind.value == form["action"]
            assert (workspace.head.files == files) is not is_done
            assert workspace.source.preview().paths  # no edit and no interrupted call is left
            n_done += n_new
        found = subprocess.run(
            ["git", "--git-dir", storage.folder(name).ledger, "fsck", "--strict", "--no-dangling"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
    with serving(storage) as server:
        page = server.send(f"/w/{name}")[1]
        assert page.count('data-id="') == N_CALLS + 1 + n_done


_RUN = """
import sys, time
from pathlib import Path
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace, WorkspaceStorage
from wink_workspace.workspace.runs.live_runs import CallBegan, PublishedRun
storage = WorkspaceStorage(Path(sys.argv[1]))
with Workspace.open(sys.argv[2], storage=storage) as workspace:
    run = PublishedRun(RecordedRun.begin(storage.folder(sys.argv[2]), RunAbout("Fix it", "m", "none", 1)))
    print("ready", flush=True)
    n = 0
    while True:
        run.publish(CallBegan(tool="write", subject=f"call {n}"))
        with workspace.call(f"call {n}") as call:
            call.files.write_text("count.txt", f"{n}")
            call.result("done")
        n += 1
"""


@pytest.mark.behaviour(203)
@pytest.mark.parametrize("n_kills", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_the_page_says_that_a_run_was_killed_while_it_was_watched(
    tmp_path: Path, n_kills: int
) -> None:
    storage, name = made(tmp_path)
    chance = random.Random(n_kills)
    with serving(storage) as server:
        for _ in range(n_kills):
            command = [sys.executable, "-c", _RUN, str(storage.state_dir), name]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout
                process.stdout.readline()
                killer = threading.Timer(chance.uniform(0.05, 0.3), process.kill)
                killer.start()
                status, events = server.send(f"/w/{name}/run/events")  # until the run is over
                process.wait()
            assert status == 200
            assert "event: line\n" in events
            assert "was interrupted" in events.partition("event: over")[2]
            assert "--resume" in server.send(f"/w/{name}/run")[1]
            with Workspace.open(name, storage=storage) as workspace:
                committed = [e for e in workspace.log() if e.outcome is Outcome.COMMITTED]
                number = committed[0].subject.removeprefix("call ").removesuffix(": done")
                assert workspace.files.read_bytes("count.txt").decode() == number
                newest = workspace.head.id
            assert f'data-id="{newest}"' in server.send(f"/w/{name}")[1]


_WRITER = """
import sys
from pathlib import Path
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage
with Workspace.open(sys.argv[2], storage=WorkspaceStorage(Path(sys.argv[1])), branch=sys.argv[3]) as w:
    for n in range(25):
        with w.call(f"{sys.argv[3]} {n}") as call:
            call.files.write_text("n.txt", f"{n}")
            call.result("done")
"""


@pytest.mark.behaviour(203)
def test_pages_are_consistent_while_several_processes_write(tmp_path: Path) -> None:
    """Each page has every entry between its newest and its oldest one, once, children first."""
    storage, name = made(tmp_path)
    with Workspace.open(name, storage=storage) as workspace:
        for branch in ("one", "two"):
            workspace.fork(branch)
    problems: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        seen: set[str] = set()
        while True:
            last_round = is_over.is_set()
            status, rows = server.send(f"/w/{name}/rows")
            found = re.findall(r'data-id="(\w+)"', rows)
            if status != 200 or len(set(found)) != len(found):
                problems.append(rows)
            if not seen <= set(found):
                problems.append(f"lost: {seen - set(found)}")
            seen = set(found)
            newest = server.send(f"/w/{name}/entry/{found[0]}")
            if newest[0] != 200:
                problems.append(newest[1])
            if last_round:
                return

    with serving(storage) as server:
        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        command = [sys.executable, "-c", _WRITER, str(storage.state_dir), name]
        writers = [subprocess.Popen([*command, branch]) for branch in ("main", "one", "two")]
        assert [writer.wait() for writer in writers] == [0, 0, 0]
        is_over.set()
        for reader in readers:
            reader.join()
        assert problems == []
        rows = server.send(f"/w/{name}/rows")[1]
    with WorkspaceReader(storage.folder(name)) as reader:
        expected = {row.entry.id: row.entry.parent for row in reader.timeline()}
    shown = re.findall(r'data-id="(\w+)"', rows)
    assert set(shown) == set(expected)
    assert len(shown) == N_CALLS + 1 + 75
    places = {entry: n for n, entry in enumerate(shown)}
    assert all(parent is None or places[parent] > places[each] for each, parent in expected.items())


def test_a_server_that_ends_says_so_to_open_pages(tmp_path: Path) -> None:
    """The stream ends, so that the browser connects again or reports that it cannot."""
    storage, name = made(tmp_path)
    with serving(storage, name[:6]) as server:
        assert server.start == f"/w/{name}"
        connection = http.client.HTTPConnection(server.host, timeout=60)
        connection.request("GET", f"/w/{name}/events", headers={"Cookie": server.cookie})
        answer = connection.getresponse()
        assert answer.readline() == b"retry: 1000\n"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait() == 0
        answer.read()
        connection.close()
