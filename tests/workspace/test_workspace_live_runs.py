"""Runs in progress, as other processes see them: their events, their end, messages, stopping."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from wink_workspace.clock import SYSTEM_CLOCK, ManualClock
from wink_workspace.errors import LedgerError, UsageError

# To name another process as the owner of a run
from wink_workspace.ledger.store.lock import _start_of
from wink_workspace.session import Outcome
from wink_workspace.workspace import RecordedRun, RunAbout, WorkspaceFolder, WorkspaceStorage
from wink_workspace.workspace.runs import live_runs
from wink_workspace.workspace.runs.live_runs import (
    CallBegan,
    CallEnded,
    CallOutput,
    EventsMissed,
    ModelSpoke,
    PlanChanged,
    PublishedRun,
    RunEnded,
    RunInProgress,
    ShownStep,
)
from wink_workspace.workspace.summaries import remove_finished, summaries_of, summary_of
from wink_workspace.workspace.workspace import Workspace

ABOUT = RunAbout("Fix it.", "m", "none", 1)
EVENTS = [
    ModelSpoke(text="Let me see.\x1b[31m"),
    CallBegan(tool="shell_execute", subject="make"),
    CallOutput(lines=("one", "<b>two</b>")),
    CallEnded(
        tool="shell_execute", outcome=Outcome.COMMITTED, success=True, duration_s=0.5,
        subject="make", ending="exit code 0", output=("two",), is_command=True, entry=3,
    ),
    PlanChanged(objective="Fix", steps=(ShownStep(number=1, title="Find", status="done"),)),
]  # fmt: skip


@pytest.fixture
def storage(tmp_path: Path) -> WorkspaceStorage:
    (tmp_path / "source").mkdir()
    return WorkspaceStorage(tmp_path / "state")


@pytest.fixture
def folder(tmp_path: Path, storage: WorkspaceStorage) -> WorkspaceFolder:
    with Workspace.create(tmp_path / "source", storage=storage) as workspace:
        return storage.folder(workspace.info.id)


@pytest.fixture
def record(folder: WorkspaceFolder) -> RecordedRun:
    return RecordedRun.begin(folder, ABOUT)


@pytest.fixture
def published(record: RecordedRun) -> Iterator[PublishedRun]:
    run = PublishedRun(record, clock=ManualClock())
    yield run
    run.end()


def watched(folder: WorkspaceFolder) -> RunInProgress:
    found = RunInProgress.of(folder)
    assert found is not None
    return found


@pytest.mark.behaviour(178)
def test_another_process_reads_the_events_of_a_run_until_its_end(
    folder: WorkspaceFolder, published: PublishedRun
) -> None:
    for event in EVENTS[:2]:
        published.publish(event)
    with closing(watched(folder)) as run:
        assert run.record.about.task == "Fix it."
        assert run.owner.pid == os.getpid()
        assert run.new_events() == EVENTS[:2], "events before it was watched are read, too"
        assert run.new_events() == []
        for event in EVENTS[2:]:
            published.publish(event)
        published.end("the budget is used up")
        assert run.is_over
        assert run.new_events() == [*EVENTS[2:], RunEnded(problem="the budget is used up")]
    assert RunInProgress.of(folder) is None
    assert not (folder.runs / "1" / "live").exists()


@pytest.mark.behaviour(178)
def test_slow_reader_is_informed_that_it_missed_events_and_the_file_stays_small(
    folder: WorkspaceFolder, published: PublishedRun
) -> None:
    published.publish(ModelSpoke(text="first"))
    with closing(watched(folder)) as run:
        assert run.new_events() == [ModelSpoke(text="first")]
        for n in range(50):
            published.publish(ModelSpoke(text=f"{n} ".ljust(100_000, "x")))
            sizes = [path.stat().st_size for path in (folder.runs / "1" / "live").iterdir()]
            assert sum(sizes) < 2**20 + 1_000
        events = run.new_events()
    at = events.index(EventsMissed())
    seen = [int(event.text.split()[0]) for event in events if isinstance(event, ModelSpoke)]
    assert seen == [*range(at), *range(50 - len(seen) + at, 50)]
    assert 0 < at < len(seen) < 50


def test_flood_of_output_is_cut_each_second_and_other_events_are_not(
    folder: WorkspaceFolder, record: RecordedRun
) -> None:
    clock = ManualClock()
    published = PublishedRun(record, clock=clock)
    flood = CallOutput(lines=("x" * 400,) * 50)
    for _ in range(2):
        for _ in range(100):
            published.publish(flood)
        published.publish(EVENTS[0])
        clock.advance(1)
    with closing(watched(folder)) as run:
        events = run.new_events()
    published.end()
    assert events.count(EVENTS[0]) == 2
    assert 2 < events.count(flood) < 30
    assert EventsMissed() not in events


def test_run_goes_on_unwatched_if_nothing_can_be_published(
    folder: WorkspaceFolder, record: RecordedRun, caplog: pytest.LogCaptureFixture
) -> None:
    (record.folder / "live").write_text("in the way")
    published = PublishedRun(record)
    published.publish(EVENTS[0])
    assert published.messages() == ()
    published.end()
    assert "can no longer watch" in caplog.text
    assert RunInProgress.of(folder) is None


def test_run_goes_on_unwatched_if_a_file_of_events_cannot_be_replaced(
    folder: WorkspaceFolder, published: PublishedRun, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(watched(folder)) as run:
        (folder.runs / "1" / "live" / "events.new").mkdir()
        for _ in range(20):
            published.publish(ModelSpoke(text="x" * 100_000))
        assert run.is_over
        assert len(run.new_events()) == 10
    assert "can no longer watch" in caplog.text


@pytest.mark.behaviour(178)
def test_killed_run_is_over_and_the_next_run_can_be_watched(
    folder: WorkspaceFolder, record: RecordedRun
) -> None:
    child = os.fork()
    if child == 0:
        PublishedRun(record).publish(EVENTS[0])
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(1)
    os.waitpid(child, os.WUNTRACED)
    with closing(watched(folder)) as run:
        assert run.owner.pid == child
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert run.is_over
        assert run.new_events() == [EVENTS[0]]
        with pytest.raises(UsageError, match="has ended"):
            run.stop()
    assert RunInProgress.of(folder) is None

    again = PublishedRun(record)
    with closing(watched(folder)) as run:
        assert run.new_events() == []
    again.end()


def test_list_of_workspaces_says_that_a_run_is_in_progress_and_later_that_it_was_interrupted(
    storage: WorkspaceStorage, folder: WorkspaceFolder, record: RecordedRun
) -> None:
    published = PublishedRun(record)
    assert summary_of(storage, folder.info()).state == "running"
    published.end()
    assert summary_of(storage, folder.info()).state == "interrupted"


def test_every_run_in_progress_is_found_also_in_forks(
    tmp_path: Path, storage: WorkspaceStorage
) -> None:
    published: list[PublishedRun] = []
    expected: list[str] = []
    for branch in ("main", "side"):
        with Workspace.create(tmp_path / "source", storage=storage) as workspace:
            folder = storage.folder(workspace.info.id).of_branch(branch)
            if branch != "main":
                workspace.fork(branch)
                Workspace.open(workspace.info.id, storage=storage, branch=branch).close()
        published.append(PublishedRun(RecordedRun.begin(folder, ABOUT)))
        expected.append(folder.path.name if branch == "main" else f"{folder.path.name}/side")
    assert sorted(run.name for run in RunInProgress.all(storage)) == sorted(expected)
    for run in published:
        run.end()
    assert list(RunInProgress.all(storage)) == []


def test_workspace_that_is_deleted_while_all_are_listed_is_passed_over(
    storage: WorkspaceStorage,
    folder: WorkspaceFolder,
    published: PublishedRun,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = replace(folder.info(), id="0" * 12)
    monkeypatch.setattr(WorkspaceStorage, "all", lambda _: iter([gone, folder.info()]))
    assert [run.name for run in RunInProgress.all(storage)] == [folder.path.name]
    assert [each.info for each in summaries_of(storage)] == [folder.info()]
    assert remove_finished(storage, now=SYSTEM_CLOCK.now() + timedelta(days=100)) == ()


@pytest.mark.behaviour(179)
def test_messages_reach_the_run_once_and_in_order(
    folder: WorkspaceFolder, published: PublishedRun
) -> None:
    run = watched(folder)
    assert published.messages() == ()
    run.send("one\ntwo")
    run.send("three ü")
    assert published.messages() == ("one\ntwo", "three ü")
    assert published.messages() == ()
    with (folder.runs / "1" / "live" / "messages").open("a") as file:
        file.write('"half')
    assert published.messages() == ()


def test_message_of_which_a_full_disk_took_a_part_is_an_error_and_the_next_one_arrives(
    folder: WorkspaceFolder,
    published: PublishedRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, real = watched(folder), os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, content: real(file, content[:5]))
        with pytest.raises(LedgerError, match="message cannot be sent: No space left on device"):
            run.send("one of many words")
    assert published.messages() == ()
    run.send("two")
    run.send("three")
    assert published.messages() == ("two", "three")
    assert "incomplete message" in caplog.text


@pytest.mark.parametrize("message", ["", " \n", "x" * 70_000])
def test_empty_or_huge_message_is_refused(
    folder: WorkspaceFolder, published: PublishedRun, message: str
) -> None:
    with pytest.raises(UsageError, match="empty or over 64 KiB"):
        watched(folder).send(message)
    assert published.messages() == ()


def test_run_that_has_ended_takes_no_message_and_is_not_stopped(
    folder: WorkspaceFolder, published: PublishedRun
) -> None:
    run = watched(folder)
    published.end()
    with pytest.raises(UsageError, match="has ended"):
        run.send("Hello.")
    with pytest.raises(UsageError, match="has ended"):
        run.stop()


@pytest.mark.behaviour(179)
def test_stopping_interrupts_the_process_of_the_run(
    folder: WorkspaceFolder, published: PublishedRun
) -> None:
    with pytest.raises(KeyboardInterrupt):
        watched(folder).stop()


def test_run_that_ends_while_it_is_stopped_has_ended(
    folder: WorkspaceFolder, published: PublishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is gone before it is known which signals it ignores."""
    process = subprocess.Popen(["sleep", "60"])
    owner = folder.runs / "1" / "live" / "owner"
    fields = {
        **json.loads(owner.read_text()),
        "pid": process.pid,
        "started": _start_of(process.pid),
    }
    owner.write_text(json.dumps(fields))
    run, real = watched(folder), live_runs._ignores_interrupts

    def look_later(pid: int) -> bool:
        process.kill()
        process.wait()
        return real(pid)

    # Between two looks at the process
    monkeypatch.setattr(live_runs, "_ignores_interrupts", look_later)
    with pytest.raises(UsageError, match="has ended"):
        run.stop()


def test_run_that_ignores_ctrl_c_or_is_elsewhere_is_refused_with_what_to_do(
    folder: WorkspaceFolder, published: PublishedRun
) -> None:
    run = watched(folder)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(UsageError, match=f"kill {os.getpid()}"):
            run.stop()
    finally:
        signal.signal(signal.SIGINT, before)

    owner = folder.runs / "1" / "live" / "owner"
    owner.write_text(owner.read_text().replace(run.owner.host, "elsewhere"))
    with pytest.raises(UsageError, match="the run is on elsewhere"):
        watched(folder).stop()
