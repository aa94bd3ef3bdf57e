"""``kill -9`` at any instant leaves the workspace as it was after some completed call.

A run that is not killed writes down the state after each call, once. Every killed run must be,
once opened, in the last state that it wrote down itself or in the one after it.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kill_server import state_of
from workspace_rig import assert_fsck_clean, calls, folder, made, picture, reopened

from wink_workspace.filesystem import FileKind
from wink_workspace.ledger import Discarded, Ledger, file_state, walk
from wink_workspace.session import Outcome

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


class Server:
    """The process that runs and kills."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("kill_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, directory: Path, work: str, kill: object = None) -> int:
        """The signal that ended the work."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"directory": str(directory), "work": work, "kill": kill}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@dataclass(frozen=True)
class Stage:
    """A workspace to copy, what to do in it, its states by entry number, and how long it takes."""

    template: Path
    work: str
    states: dict[int, str]
    passed: dict[str, int]
    seconds: float


@pytest.fixture(scope="module")
def mixed(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    template = tmp_path_factory.mktemp("mixed")
    files = {f"d{n}/{n}.txt": b"content\n" for n in range(20)}
    made(template, {"a.txt": b"line\n", "run.sh": b"#!/bin/sh\n", **files}).close()
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
        (head,) = workspace.log(limit=1)
        states = {head.number: state_of(workspace, folder(reference).files)}
    started = time.perf_counter()
    assert server.run(reference, work) == 0
    seconds = time.perf_counter() - started
    states |= oracle(reference)
    passed = json.loads((reference / "passed").read_text())
    assert len(set(states.values())) > len(states) // 2
    return Stage(template, work, states, passed, seconds)


def oracle(directory: Path) -> dict[int, str]:
    """The states that were written down, by entry number."""
    path = directory / "oracle"
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(number): state for number, _, state in (line.partition(" ") for line in lines)}


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return shutil.copytree(source, target, symlinks=True)


def assert_recovers(directory: Path, stage: Stage) -> None:
    """See the module."""
    interrupted = picture(folder(directory).files)
    last = max(oracle(directory), default=min(stage.states))
    with reopened(directory) as workspace, calls(workspace):
        (head,) = workspace.log(limit=1)
        state = state_of(workspace, folder(directory).files)
    if head.outcome is Outcome.UNKNOWN:
        assert state == stage.states[head.number - 1]
        assert head.number in (last + 1, last + 2)
    else:
        assert state == stage.states[head.number]
        assert head.number in (last, last + 1)
    recovered = picture(folder(directory).files)
    if recovered != interrupted:
        assert content_of(interrupted) in discarded(directory)
    with reopened(directory) as workspace:
        assert next(workspace.log()).id == head.id
    assert picture(folder(directory).files) == recovered
    assert_fsck_clean(folder(directory).ledger)


def content_of(shown: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, bytes]:
    return {path: content for path, (kind, _, content) in shown.items() if kind == "file"}


def discarded(directory: Path) -> list[dict[bytes, bytes]]:
    """The contents of what was interrupted and kept."""
    with Ledger(folder(directory).ledger) as ledger:

        def contents(found: Discarded) -> dict[bytes, bytes]:
            kept: dict[bytes, bytes] = {}
            for path, entry in walk(ledger.store, found.files):
                if entry.kind is FileKind.FILE:
                    state = file_state(ledger.store, entry)
                    assert state is not None
                    kept["/".join(path.parts).encode("utf-8", "surrogateescape")] = state.data
            return kept

        return [contents(found) for found in ledger.discarded() if found.reason == "interrupted"]


@pytest.mark.parametrize("point", POINTS)
def test_calls_killed_at_a_step_of_the_protocol_leave_a_completed_state(
    server: Server, mixed: Stage, tmp_path: Path, point: str
) -> None:
    for nth in NTH:
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", [point, nth]) == signal.SIGKILL
        assert_recovers(directory, mixed)


def test_calls_killed_in_a_handler_leave_what_it_wrote_among_the_discarded(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    for nth in (1, 2, 3):
        directory = copied(mixed.template, tmp_path / "killed")
        assert server.run(directory, "calls", ["spoil", nth]) == signal.SIGKILL
        assert_recovers(directory, mixed)
        (kept,) = discarded(directory)
        assert (kept[b"a.txt"], len(kept[b"junk/more"])) == (b"spoilt", 3_000)
        with reopened(directory) as workspace:
            head = next(workspace.log())
            assert (head.tool, head.outcome) == ("spoil", Outcome.UNKNOWN)


def killed_at_random(
    server: Server, stage: Stage, directory: Path, *, times: int, seed: int
) -> None:
    chosen = random.Random(seed)
    for _ in range(times):
        copied(stage.template, directory)
        server.run(directory, stage.work, chosen.uniform(0.0, stage.seconds))
        assert_recovers(directory, stage)


def test_calls_killed_at_random_leave_a_completed_state(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    killed_at_random(server, mixed, tmp_path / "killed", times=40, seed=1)


@pytest.mark.soak
def test_calls_killed_at_2000_instants_leave_a_completed_state(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    killed_at_random(server, mixed, tmp_path / "killed", times=2_000, seed=2)


def test_undo_killed_at_any_step_of_the_protocol_leaves_a_completed_state(
    server: Server, undoing: Stage, tmp_path: Path
) -> None:
    for point in POINTS:
        for nth in (1, undoing.passed[point]):
            directory = copied(undoing.template, tmp_path / "killed")
            assert server.run(directory, "undo", [point, nth]) == signal.SIGKILL
            assert_recovers(directory, undoing)


def test_recovery_that_is_killed_too_is_repeated_and_ends_the_same(
    server: Server, mixed: Stage, tmp_path: Path
) -> None:
    interrupted = copied(mixed.template, tmp_path / "interrupted")
    assert server.run(interrupted, "calls", ["spoil", 2]) == signal.SIGKILL
    n_killed = 0
    for point in POINTS:
        for nth in (1, 2):
            directory = copied(interrupted, tmp_path / "killed")
            n_killed += server.run(directory, "open", [point, nth]) == signal.SIGKILL
            with reopened(directory) as workspace, calls(workspace):
                head = next(workspace.log())
                assert (head.tool, head.outcome) == ("spoil", Outcome.UNKNOWN)
                assert state_of(workspace, folder(directory).files) == mixed.states[head.number - 1]
            assert b"spoilt" in [kept[b"a.txt"] for kept in discarded(directory)]
            assert_fsck_clean(folder(directory).ledger)
    assert n_killed >= 7
