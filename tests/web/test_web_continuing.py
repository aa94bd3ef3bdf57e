"""Continue an ended run from its page: one process of its own, which outlives the server."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_user import ANTHROPIC
from model_server import KEY, Call, HangingTurn, Turn
from test_web_runs import Run
from web_support import CANARY, HOSTILE, SECRET, HeldModel, Server, edit, serving

from wink_workspace.web import application as app
from wink_workspace.web.actions import RunProcess
from wink_workspace.workspace import (
    RecordedRun,
    RunAbout,
    Workspace,
    WorkspaceReader,
    WorkspaceStorage,
)
from wink_workspace.workspace.runs.live_runs import PublishedRun, RunInProgress

MESSAGE = "Write the tests, too."
WRITE = Turn("Writing.", (Call("write_file", {"file_path": "new.txt", "content": "new"}),))


# The forms, with processes that do nothing


@dataclass
class FakeProcess:
    """A process that has ended with *ended*, or runs."""

    ended: str | None = None
    pid: int = os.getpid()  # so that a run of this process is its run

    def ending(self) -> str | None:
        return self.ended


class EndedRun(Run):
    """A finished run of another process, and the processes that forms start."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.published.end()
        self.answer("First answer.")
        self.process = FakeProcess()
        self.started: list[tuple[str, str]] = []
        self.begins = True

    def answer(self, text: str) -> None:
        self.record.script.write_text(json.dumps({"text": text}) + "\n")

    def continue_run(self, name: str, message: str) -> RunProcess:
        self.started.append((name, message))
        if self.begins:
            self.published = PublishedRun(self.record)
        return self.process

    def resume(self, message: str = MESSAGE, **fields: str) -> tuple[int, str]:
        return self.post("resume", message=message, **{"run": self.record.revision, **fields})


@pytest.fixture
def run(tmp_path: Path) -> Iterator[EndedRun]:
    found = EndedRun(tmp_path)
    yield found
    found.published.end()


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_STARTING_LOOKS", 1)  # a form would wait for a minute


@pytest.mark.behaviour(213)
def test_the_page_of_a_finished_run_has_its_answer_and_a_form_for_a_message(run: EndedRun) -> None:
    run.answer(f"{HOSTILE}\n{SECRET} second")
    page = run.page()
    assert " second" in page
    assert CANARY not in page
    assert SECRET not in page
    assert "Send and continue" in page
    assert f'name="run" value="{run.record.revision}"' in page
    run.record.script.write_text("")
    assert "Send and continue" not in run.page()
    assert "(optional)" in run.page(), "an interrupted run continues without one, too"
    assert "Newest run" in run.page("")


@pytest.mark.behaviour(213)
def test_the_same_form_starts_one_process_while_that_runs(run: EndedRun) -> None:
    assert run.resume()[0] == 303
    assert run.resume()[0] == 303
    assert run.started == [(run.name, MESSAGE)]
    status, answer = run.resume("Another message")
    assert (status, "no run on main has ended" in answer) == (409, True)
    run.published.end()
    run.process.ended = ""
    run.record.keep_about()  # as the process did when it began
    status, answer = run.post("resume", message=MESSAGE, run="1.1")
    assert (status, "since it was shown" in answer) == (409, True)
    assert len(run.started) == 1


@pytest.mark.behaviour(213)
def test_the_page_says_why_a_run_was_not_continued_and_keeps_the_message(run: EndedRun) -> None:
    run.begins, run.process.ended = False, f"no model {HOSTILE} {SECRET}. Set it."
    status, page = run.resume(f"{CANARY} {MESSAGE}")
    assert status == 409
    assert "The run was not continued: no model" in page
    assert "Set it." in page
    assert CANARY not in page
    assert SECRET not in page
    assert f'{MESSAGE}"' in page
    run.process.ended = ""
    assert run.resume()[0] == 303, "it can be tried again"
    assert len(run.started) == 2


@pytest.mark.usefixtures("_impatient")
def test_a_run_that_takes_long_to_start_is_waited_for_on_its_page(run: EndedRun) -> None:
    run.begins = False
    assert run.resume()[0] == 303
    assert "about to continue" in run.page()
    run.process.ended = "it was killed"
    assert "about to continue" not in run.page()


@pytest.mark.usefixtures("_impatient")
def test_a_form_waits_until_the_process_of_the_ended_run_has_ended(run: EndedRun) -> None:
    assert run.resume()[0] == 303
    run.record.keep_about()
    run.published.end()
    assert "Send and continue" in run.page()
    status, page = run.resume("More")
    assert (status, "still has the workspace" in page, '"More"' in page) == (409, True, True)
    assert len(run.started) == 1
    first, run.process = run.process, FakeProcess()
    first.ended = ""
    assert run.resume("More")[0] == 303
    assert run.started[1:] == [(run.name, "More")]


@pytest.mark.usefixtures("_impatient")
def test_a_run_of_another_process_is_not_taken_for_the_one_that_was_started(run: EndedRun) -> None:
    run.process.pid = 1
    assert run.resume()[0] == 303
    run.process.ended = "the workspace is in use"
    run.published.end()
    assert run.resume()[0] == 409


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"message": " "}, "the message is empty"),
        ({"message": "x" * 65_537}, "over 64 KiB"),
        ({"run": "9.9"}, "since it was shown"),
        ({"branch": "../../x"}, "no branch"),
    ],
)
def test_a_form_that_continues_nothing_is_refused(
    run: EndedRun, fields: dict[str, str], problem: str
) -> None:
    status, answer = run.resume(**fields)
    assert (status, problem in answer) == (409, True)
    assert run.started == []


def test_runs_of_agent_programs_and_of_other_servers_have_no_form(run: EndedRun) -> None:
    about = RunAbout("t", "a program", "podman", 1, is_agent=True)
    RecordedRun.begin(run.folder, about).keep_answer("Done.")
    page = run.page()
    assert "Send and continue" not in page
    assert "--agent &#39;a program&#39; TASK" in page


# The command


@dataclass
class Site:
    """A workspace with a finished run, and a model."""

    storage: WorkspaceStorage
    name: str
    model: HeldModel

    @property
    def newest(self) -> RecordedRun:
        run = RecordedRun.newest(self.storage.folder(self.name))
        assert run is not None
        return run

    def resume(self, server: Server, message: str = "") -> tuple[int, str]:
        """Send the form of the page as it is now."""
        page = server.send(f"/w/{self.name}/run")[1]
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page))
        return server.send(f"/w/{self.name}/resume", fields | {"message": message})

    def running(self) -> RunInProgress:
        run = RunInProgress.of(self.storage.folder(self.name))
        assert run is not None
        run.close()
        return run


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (source := tmp_path / "source").mkdir()
    storage = WorkspaceStorage(tmp_path / "state" / "wink-workspace")
    with Workspace.create(source, storage=storage) as workspace:
        name = workspace.info.id
        edit(workspace, "old.txt", "old\n", "old")
    about = RunAbout("Write it.", ANTHROPIC, "none", 1, max_turns=7)
    run = RecordedRun.begin(storage.folder(name), about)
    run.script.write_text(json.dumps({"text": "First answer."}) + "\n")
    with HeldModel(WRITE, Turn("Second answer.")) as model:
        model.hold()
        yield Site(storage, name, model)


def wait_for_end(pid: int) -> None:
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    assert poll.poll(60_000)
    os.close(process)


@pytest.mark.behaviour(213)
def test_a_run_continues_when_the_server_that_started_it_is_killed(site: Site) -> None:
    with serving(site.storage, variables=site.model.variables) as server:
        assert site.resume(server, MESSAGE)[0] == 303
        pid = site.running().owner.pid
        server.process.kill()
        server.process.wait()
    arguments = Path(f"/proc/{pid}/cmdline").read_text()
    assert MESSAGE not in arguments
    assert KEY not in arguments
    assert os.getsid(pid) == pid
    site.model.release()
    wait_for_end(pid)
    run = site.newest
    assert run.is_finished
    assert run.problem == ""
    assert (run.about.follows, run.about.message) == (1, MESSAGE)
    assert (run.about.max_turns, run.about.sandbox) == (7, "none")
    assert run.turns()[-1].text == "Second answer."
    with WorkspaceReader(site.storage.folder(site.name)) as reader:
        assert reader.content(reader.head, "new.txt", limit_bytes=9) == b"new"


@pytest.mark.behaviour(213)
def test_a_continued_run_that_is_killed_continues_again_and_can_be_stopped(site: Site) -> None:
    asked = threading.Event()
    site.model.steps[:] = [HangingTurn(WRITE, 0, asked.set)] * 2
    site.model.release()
    with serving(site.storage, variables=site.model.variables) as server:
        assert site.resume(server, MESSAGE)[0] == 303
        assert asked.wait(60)
        asked.clear()
        os.kill(site.running().owner.pid, signal.SIGKILL)
        assert "was interrupted" in server.send(f"/w/{site.name}/run/events")[1]
        assert site.resume(server, "Go on.")[0] == 303
        assert asked.wait(60)
        sent = json.dumps(site.model.requests[-1])
        assert sent.index("First answer.") < sent.index(MESSAGE) < sent.index("Go on.")
        form = {"token": server.form_token(site.name), "branch": "main"}
        assert server.send(f"/w/{site.name}/stop", form)[0] == 303
        server.send(f"/w/{site.name}/run/events")  # until the run is over
        assert "without an answer: interrupted" in server.send(f"/w/{site.name}/run")[1]
    assert site.newest.number == 2


@pytest.mark.behaviour(213)
def test_a_run_that_cannot_start_leaves_the_workspace_as_it_was(site: Site) -> None:
    with serving(site.storage) as server:
        status, page = site.resume(server, MESSAGE)
        assert (status, "ANTHROPIC_API_KEY" in page) == (409, True)
        assert MESSAGE in page
        with Workspace.open(site.name, storage=site.storage):
            status, page = site.resume(server, MESSAGE)
        assert (status, f"in use by process {os.getpid()}" in page) == (409, True)
    assert site.newest.number == 1
    assert site.newest.is_finished
    assert site.model.requests == []
