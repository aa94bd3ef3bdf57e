"""The page of a run in progress: what it shows, and what its forms send."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
from starlette.testclient import TestClient
from web_support import CANARY, HOSTILE, SECRET, edit

from wink_workspace.clock import ManualClock
from wink_workspace.session import Outcome
from wink_workspace.web.actions import Actions, RunProcess
from wink_workspace.web.application import make_app
from wink_workspace.web.browser_sessions import AccessGuard
from wink_workspace.web.pages import Pages
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace, WorkspaceStorage
from wink_workspace.workspace.runs.live_runs import (
    CallBegan,
    CallEnded,
    CallOutput,
    EventsMissed,
    MessageReceived,
    ModelRetries,
    ModelSpoke,
    PlanChanged,
    PublishedRun,
    RunEvent,
    RunInProgress,
    ShownStep,
)

EVENTS: list[RunEvent] = [
    ModelSpoke(text=f"{HOSTILE}\nsecond"),
    ModelRetries(reason=CANARY, attempt=2, wait_s=1.5),
    MessageReceived(text=CANARY),
    CallBegan(tool=f"shell{CANARY}", subject=CANARY, depth=1),
    CallOutput(lines=(HOSTILE, f"{SECRET} \x1b]0;title\x07", "x" * 200_000)),
    CallEnded(
        tool="shell_execute",
        outcome=Outcome.ROLLED_BACK,
        success=False,
        duration_s=0.5,
        text=CANARY,
        entry=3,
    ),
    PlanChanged(objective=CANARY, steps=(ShownStep(number=1, title=CANARY, status="done"),)),
    EventsMissed(),
]
ADDRESS = "127.9.8.7:4321"


class Run:
    """A run of this process, and a browser that watches it."""

    def __init__(self, directory: Path) -> None:
        (directory / "source").mkdir()
        self.storage = WorkspaceStorage(directory / "state")
        with Workspace.create(directory / "source", storage=self.storage) as workspace:
            self.name = workspace.info.id
            edit(workspace, "a.txt", "a\n", "a")
        self.folder = self.storage.folder(self.name)
        self.record = RecordedRun.begin(self.folder, RunAbout(HOSTILE, "m", "none", 1))
        self.published = PublishedRun(self.record, clock=ManualClock())
        self.pages = Pages(self.storage, lambda text: text.replace(SECRET, "[redacted]"))
        actions = Actions(
            self.pages, lambda _: pytest.fail("a run needs no open workspace"), self.continue_run
        )
        self.app = make_app(self.pages, actions=actions, form_token="t")[0]
        guard = AccessGuard(self.app, ManualClock(), form_token="t")
        guard.address = ADDRESS
        self.browser = TestClient(
            guard,
            base_url=f"http://{ADDRESS}",
            client=("127.0.0.1", 9),
            headers={"origin": f"http://{ADDRESS}"},
            follow_redirects=False,
        )
        self.browser.get(guard.link())

    def continue_run(self, name: str, message: str) -> RunProcess:
        pytest.fail(f"{name} is continued with {message!r}")

    def page(self, place: str = "run") -> str:
        return self.browser.get(f"/w/{self.name}/{place}".rstrip("/")).text

    def post(self, place: str, **fields: str) -> tuple[int, str]:
        data = {"token": "t", "branch": "main", **fields}
        answer = self.browser.post(f"/w/{self.name}/{place}", data=data)
        return answer.status_code, answer.text


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    found = Run(tmp_path)
    yield found
    found.published.end()


@pytest.mark.behaviour(187)
def test_a_run_in_progress_is_shown_as_text(run: Run) -> None:
    for event in EVENTS:
        run.published.publish(event)
    page = run.page()
    for wanted in ("second", "shell&lt;script&gt;", "rolled back", "entry 3", "again in 2 s"):
        assert wanted in page
    assert "no longer stored" in page
    assert CANARY not in page
    assert SECRET not in page
    assert "\x1b" not in page
    assert len(page) < 100_000
    assert "watch it" in run.page("")


@pytest.mark.behaviour(187)
def test_the_stream_has_every_event_and_the_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Pages.run_in_progress

    def ending(self: Pages, workspace: str, branch: str) -> RunInProgress | None:
        """The run, which ends when the page has begun to watch it."""
        watched = found(self, workspace, branch)
        for event in EVENTS:
            run.published.publish(event)
        run.published.end("the budget is used up")
        return watched

    monkeypatch.setattr(Pages, "run_in_progress", ending)
    text = run.page("run/events")
    assert text.count("event: line\n") == len(EVENTS) + 1
    assert "The run has ended: the budget is used up" in text
    assert text.endswith("event: over\ndata: The run is over.\n\n")
    assert CANARY not in text
    assert SECRET not in text
    assert all(
        line.startswith(("event: ", "data: ", "retry: ")) for line in text.split("\n") if line
    )


@pytest.mark.behaviour(187)
def test_the_page_says_how_a_run_ended_and_what_to_do(run: Run) -> None:
    owner = run.folder.runs / "1" / "live" / "owner"
    owner.write_text(owner.read_text().replace('"started"', '"began"'))  # as after kill -9
    page = run.page()
    assert "was interrupted" in page
    assert f"wink-workspace run --workspace {run.name} --resume" in page
    assert "event: over\ndata: No run is in progress" in run.page("run/events")
    run.published.end()
    run.record.script.write_text('{"text": "Done."}\n')
    assert "has ended" in run.page()
    assert "cannot be shown" in run.page("run?branch=../../x")
    with Workspace.open(run.name, storage=run.storage) as workspace:
        workspace.fork("other")
    assert "no run on this branch" in run.page("run?branch=other")


@pytest.mark.behaviour(188)
def test_a_message_reaches_the_run(run: Run) -> None:
    message = f"{HOSTILE.replace(chr(0), '')}\nand more"
    assert run.post("say", message=message)[0] == 303
    assert run.published.messages() == (message,)
    status, answer = run.post("say", message=" ")
    assert (status, "empty" in answer) == (409, True)
    run.published.end()
    for place in ("say", "stop"):
        status, answer = run.post(place, message="too late")
        assert (status, "no run is in progress" in answer) == (409, True)


@pytest.mark.behaviour(188)
def test_stopping_interrupts_the_run(run: Run) -> None:
    interrupted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        interrupted.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        assert run.post("stop")[0] == 303
    finally:
        signal.signal(signal.SIGINT, before)
    assert interrupted == [signal.SIGINT]
