"""``kill -9`` at any instant leaves the workspace as it was after some completed call.

A run without a kill records the state after each call, once. After a kill and opening, the state
must be the last one that the killed run recorded, or the next one.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import random_cases
from kill_rig import (
    FORMS,
    Server,
    Stage,
    assert_recovers,
    copied,
    discarded,
    kill_times,
    kills_at_random,
    staged,
    staged_calls,
)
from kill_server import state_of
from workspace_rig import assert_fsck_clean, calls, folder, made, reopened

from wink_workspace.ledger import Retention
from wink_workspace.session import Outcome
from wink_workspace.workspace import WorkspaceConfig

POINTS = (
    "mark-written",
    "mark-in-place",
    "trees-written",
    "commit-written",
    "ref-locked",
    "ref-moved",
    "mark-removed",
)
NTH = (1, 2, 7)
RECOVERY = (*((point, 1) for point in POINTS[2:]), ("ref-locked", 2), ("ref-moved", 2))
"""The steps of a recovery: a point, and which of its times."""
HELD = ("held-planned", "held-moved", "held-kept", "held-deleted")
KEEPS_LITTLE = WorkspaceConfig(retention=Retention(discard_bytes=100))


@pytest.fixture(scope="module", params=FORMS)
def mixed(
    server: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Stage:
    return staged_calls(server, tmp_path_factory.mktemp("mixed"), request.param)


@pytest.fixture(scope="module")
def undoing(server: Server, mixed: Stage, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    template = copied(mixed.template, tmp_path_factory.mktemp("undo") / "template")
    assert server.run(template, "calls") == 0
    (template / "oracle").unlink()
    return staged(server, template, "undo")


@pytest.mark.behaviour(79)
@pytest.mark.sweep
@pytest.mark.share(4)
@pytest.mark.parametrize("point", POINTS)
def test_calls_killed_at_a_step_of_the_protocol_leave_a_completed_state(
    server: Server, mixed: Stage, tmp_path: Path, point: str
) -> None:
    for nth in random_cases.some(NTH, 1):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", [point, nth]) == signal.SIGKILL
        assert_recovers(directory, mixed)


@pytest.mark.behaviour(79)
@pytest.mark.sweep
def test_calls_killed_in_a_handler_leave_its_files_as_a_discard(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    for nth in random_cases.some((1, 2, 3), 1):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", ["damage", nth]) == signal.SIGKILL
        assert_recovers(directory, mixed)
        (kept,) = discarded(directory)
        assert (kept[b"a.txt"], len(kept[b"junk/more"])) == (b"spoilt", 3_000)
        with reopened(directory) as workspace:
            head = next(workspace.log())
            assert (head.tool, head.outcome) == ("damage", Outcome.UNKNOWN)


def discarded_contents(directory: Path) -> dict[bytes, set[bytes]]:
    """The contents of each path in all discards, whatever their reason."""
    found: dict[bytes, set[bytes]] = {}
    for kept in discarded(directory, "rolled back", "interrupted"):
        for path, content in kept.items():
            found.setdefault(path, set()).add(content)
    return found


@pytest.mark.parametrize("point", HELD)
def test_rollbacks_killed_at_any_step_keep_all_discarded_files(
    server: Server, mixed: Stage, tmp_path: Path, point: str
) -> None:
    for nth in (1, 2) if point == "held-moved" else (1,):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", [point, nth]) == signal.SIGKILL
        with reopened(directory) as workspace, calls(workspace):
            head = next(workspace.log())
        assert_recovers(directory, mixed)
        found = discarded_contents(directory)
        assert b"spoilt" in found[b"a.txt"]
        assert b"spoilt" in found[b"run.sh"]
        assert 3_000 in {len(content) for content in found[b"junk/more"]}
        with reopened(directory) as workspace:
            workspace.maintain()  # a call deletes for half a millisecond only
        assert list(folder(directory).discarded.iterdir()) == []
        assert head.number >= 8


@pytest.mark.parametrize("n_kills", [4, pytest.param(300, marks=pytest.mark.soak)])
def test_calls_that_change_many_files_leave_a_completed_state_when_killed_anywhere(
    server: Server, tmp_path: Path, n_kills: int
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    made(template, {"a.txt": b"line\n"}).close()
    many = staged(server, template, "bulk")
    n_system_calls = many.passed["system-call"]
    for nth in range(2, n_system_calls, max(1, n_system_calls // n_kills)):
        directory = copied(template, tmp_path / "killed")
        assert server.run(directory, "bulk", ["system-call", nth]) == signal.SIGKILL
        assert_recovers(directory, many)


def test_rollback_killed_while_it_drops_excess_files_still_names_them(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    for point in (*HELD, "held-trimmed"):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "trim", [point, 1]) == signal.SIGKILL
        with reopened(directory, config=KEEPS_LITTLE) as workspace:
            named = {each.path for found in workspace.discarded() for each in found.dropped.named}
        assert named == {"junk/more"}
        assert b"spoilt" in discarded_contents(directory)[b"a.txt"]


@kill_times(8, soak=500)
def test_calls_killed_at_random_leave_a_completed_state(
    server: Server, mixed: Stage, tmp_path: Path, times: int, seed: int
) -> None:
    for _ in kills_at_random(server, mixed, tmp_path / "killed", times=times, seed=seed):
        assert_recovers(tmp_path / "killed", mixed)


@pytest.mark.sweep
def test_undo_killed_at_any_step_of_the_protocol_leaves_a_completed_state(
    server: Server, undoing: Stage, tmp_path: Path
) -> None:
    for point in POINTS:
        for nth in random_cases.some((1, undoing.passed[point]), 1):
            directory = copied(undoing.template, tmp_path / "killed")
            assert server.run(directory, "undo", [point, nth]) == signal.SIGKILL
            assert_recovers(directory, undoing)


@pytest.mark.sweep
def test_recovery_that_is_killed_too_is_repeated_with_the_same_result(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    for step in random_cases.some(RECOVERY, 4):
        # Not a copy of an interrupted one: ``copied`` would recover an overlay
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", ["damage", 2]) == signal.SIGKILL
        assert server.run(directory, "open", list(step)) == signal.SIGKILL
        with reopened(directory) as workspace, calls(workspace):
            head = next(workspace.log())
            assert (head.tool, head.outcome) == ("damage", Outcome.UNKNOWN)
            assert state_of(workspace, folder(directory).files) == mixed.states[head.number - 1]
        assert b"spoilt" in [kept[b"a.txt"] for kept in discarded(directory)]
        assert_fsck_clean(folder(directory).ledger)
