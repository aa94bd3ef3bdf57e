"""``kill -9`` in place: the call is rolled back, and edits made before the next opening stay.

A run without a kill records every file after each call, once. After each kill two files are edited:
one that calls write, and one that they do not. After opening, the two have the edits. Every other
file must be as after the last recorded call or the next one, the repository unchanged, and no
unfinished file left.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import random_cases
from in_place_kill_server import FILES, state_of
from in_place_rig import begun, files_of, fingerprint_of, repository, source_of, unfinished_in
from kill_rig import Server, Stage, copied, kill_times, kills_at_random
from workspace_rig import assert_fsck_clean, calls, folder, reopened, storage

from wink_workspace.ledger import EntryKind, Ledger
from wink_workspace.session import ExternalChange, Outcome

POINTS = (
    "mark-written",
    "mark-in-place",
    "effect-planned",
    "effect-in-progress",
    "effect-done",
    "trees-written",
    "commit-written",
    "ref-locked",
    "ref-moved",
    "mark-removed",
)
EDITED = {"a.txt": b"by hand\n", "mine.txt": b"by hand, too\n"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("in_place_kill_server.py")
    yield server
    server.close()


@pytest.fixture(scope="module")
def mixed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    template = tmp_path_factory.mktemp("mixed")
    repository(template, FILES)
    begun(template).close()
    return staged(server, template, "calls")


@pytest.fixture(scope="module")
def undoing(server: Server, mixed: Stage, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    template = copied(mixed.template, tmp_path_factory.mktemp("undo") / "template")
    assert server.run(template, "calls") == 0
    (template / "oracle").unlink()
    return staged(server, template, "undo")


def staged(server: Server, template: Path, work: str) -> Stage:
    """Do the work once without a kill."""
    reference = copied(template, template.with_name(template.name + "-reference"))
    with reopened(reference) as workspace, calls(workspace):
        first = {next(workspace.log()).number: state_of(workspace, reference)}
    started = time.perf_counter()
    assert server.run(reference, work) == 0
    seconds = time.perf_counter() - started
    passed = json.loads((reference / "passed").read_text())
    return Stage(template, work, first | oracle(reference), passed, seconds)


def oracle(directory: Path) -> dict[int, dict[str, Any]]:
    """The recorded states, by entry number."""
    path = directory / "oracle"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    # A kill may have cut the last line short: its state counts as not recorded
    noted = [json.loads(line) for line in lines if line.endswith("\n")]
    return {state.pop("number"): state for state in noted}


def but_edited(state: dict[str, Any]) -> dict[str, Any]:
    files = {path: at for path, at in state["files"].items() if path not in EDITED}
    return {**state, "files": files}


def assert_recovers(directory: Path, stage: Stage) -> None:
    """The directory has a recorded state with the edits; see the module."""
    source = source_of(directory)
    own = fingerprint_of(source / ".git")
    for name, content in EDITED.items():
        (source / name).write_bytes(content)
    interrupted = files_of(directory)
    last = max(oracle(directory), default=min(stage.states))
    with reopened(directory) as workspace, calls(workspace) as call:
        (head,) = workspace.log(limit=1)
        state = state_of(workspace, directory)
        if head.outcome is Outcome.UNKNOWN:
            expected = stage.states[head.number - 1]
            assert head.number in (last + 1, last + 2)
        else:
            expected = stage.states[head.number]
            assert head.number in (last, last + 1)
        assert but_edited(state) == but_edited(expected)
        recovered = files_of(directory)
        for name, content in EDITED.items():
            assert recovered[name.encode()][2] == content
        call("ls")
        external = workspace.session[ExternalChange].latest()
        assert external is not None
        assert external.paths == tuple(EDITED)
        assert [entry.kind for entry in workspace.log(limit=2)][1] is EntryKind.EXTERNAL
    if recovered != interrupted:
        with Ledger(folder(directory).ledger) as ledger:
            assert "interrupted" in [kept.reason for kept in ledger.discarded()]
    assert unfinished_in(source) == []
    assert files_of(directory) == recovered
    assert fingerprint_of(source / ".git") == own
    assert_fsck_clean(folder(directory).ledger)


@pytest.mark.sweep
@pytest.mark.share(5)
@pytest.mark.parametrize("point", POINTS)
def test_calls_killed_at_a_step_leave_a_completed_state_and_the_edits(
    server: Server, mixed: Stage, tmp_path: Path, point: str
) -> None:
    passed = mixed.passed[point]
    for nth in random_cases.some({1, passed // 2, passed}, 1):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", [point, nth]) == signal.SIGKILL
        assert_recovers(directory, mixed)


@pytest.mark.sweep
def test_call_killed_between_its_changes_is_rolled_back_and_the_record_names_them(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    for nth in random_cases.some((1, 2, 3), 1):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", ["damage", nth]) == signal.SIGKILL
        assert_recovers(directory, mixed)
        with reopened(directory) as workspace:
            entry = next(entry for entry in workspace.log() if entry.tool == "damage")
            message = workspace.record(entry).event.message
        assert "was undone" in message
        assert "changed by another program, so not undone: a.txt" in message


@pytest.mark.parametrize("work", ["calls", "undo"])
def test_work_killed_before_a_system_call_leaves_a_completed_state_and_the_edits(
    server: Server, mixed: Stage, undoing: Stage, tmp_path: Path, work: str
) -> None:
    stage = mixed if work == "calls" else undoing
    chosen = random.Random(3)
    for nth in sorted(chosen.sample(range(1, stage.passed["system-call"]), 3)):
        directory = copied(stage.template, tmp_path / "killed")
        assert server.run(directory, work, ["system-call", nth]) == signal.SIGKILL
        assert_recovers(directory, stage)


@kill_times(3, soak=250)
def test_calls_killed_at_random_leave_a_completed_state_and_the_edits(
    server: Server, mixed: Stage, tmp_path: Path, times: int, seed: int
) -> None:
    for _ in kills_at_random(server, mixed, tmp_path / "killed", times=times, seed=seed):
        assert_recovers(tmp_path / "killed", mixed)


@pytest.mark.sweep
def test_undo_killed_at_any_step_leaves_a_completed_state_and_the_edits(
    server: Server, undoing: Stage, tmp_path: Path
) -> None:
    for point in (each for each in POINTS if each.startswith(("effect", "ref"))):
        for nth in random_cases.some({undoing.passed[point] // 2, undoing.passed[point]}, 1):
            directory = copied(undoing.template, tmp_path / "killed")
            assert server.run(directory, "undo", [point, nth]) == signal.SIGKILL
            assert_recovers(directory, undoing)


@pytest.mark.sweep
def test_recovery_that_is_killed_too_is_repeated_with_the_same_result(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    interrupted = copied(mixed.template, tmp_path / "interrupted")
    assert server.run(interrupted, "calls", ["damage", 2]) == signal.SIGKILL
    complete = copied(interrupted, tmp_path / "complete")
    assert server.run(complete, "open") == 0
    passed = json.loads((complete / "passed").read_text())
    assert passed["effect-done"] > 5
    for point in POINTS:
        for nth in random_cases.some({passed.get(point, 0) // 2, passed.get(point, 0)} - {0}, 1):
            directory = copied(interrupted, tmp_path / "killed")
            assert server.run(directory, "open", [point, nth]) in (signal.SIGKILL, 0)
            assert_recovers(directory, mixed)


def test_unfinished_file_of_a_write_outside_of_calls_is_removed_at_the_next_opening(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    """There is no pending mark then; the write happened fully or not at all."""
    directory = copied(mixed.template, tmp_path / "killed")
    source = source_of(directory)
    code = (
        "import os, sys\n"
        "from wink_workspace.workspace import Workspace, WorkspaceStorage\n"
        "from wink_workspace._kill_points import calling\n"
        "storage = WorkspaceStorage(sys.argv[1])\n"
        "(info,) = storage.all()\n"
        "def kill(point):\n"
        "    if point == 'effect-in-progress': os.kill(os.getpid(), 9)\n"
        "with calling(kill), Workspace(storage.folder(info.id)) as opened:\n"
        "    opened.files.write_text('mine.txt', 'whole')\n"
    )
    import subprocess
    import sys

    subprocess.run([sys.executable, "-c", code, str(directory / "state")], check=False)
    assert len(unfinished_in(source)) == 1
    assert list(storage(directory).all())
    with reopened(directory) as workspace, calls(workspace) as call:
        assert unfinished_in(source) == []
        assert (source / "mine.txt").read_bytes() == b"whole"
        call("ls")
        external = workspace.session[ExternalChange].latest()
        assert external is not None
        assert external.paths == ("mine.txt",)
