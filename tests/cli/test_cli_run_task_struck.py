"""``run TASK`` struck by Ctrl-C or a kill at any moment: what is left, and where ``--resume`` ends."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from model_server import Call, ModelServer, Says, Step
from run_desk import ANTHROPIC, DONE, MEND, PLAN, READ, SEARCH, Desk, edit

from wink_workspace.environment import Environment
from wink_workspace.ledger import EntryKind
from wink_workspace.sections import Plan
from wink_workspace.session import Outcome
from wink_workspace.workspace import RecordedRun, Workspace

TURNS = (
    Says("A plan first.", (PLAN, SEARCH)),
    Says("", (READ,)),
    Says("Two edits of one file.", (MEND, edit("(Exception)", "(ValueError)"))),
    Says("", (Call("write_file", {"file_path": "new.txt", "content": "new\n"}), Call("mend_it"))),
    Says("", (Call("planning_update_step", {"step_id": 1, "status": "done"}),)),
    Says("", (Call("rm", {"path": "iniconfig/py.typed"}),)),
    DONE,
)


class PatientServer(ModelServer):
    """Answers by how far the conversation is, so that the same may be asked twice."""

    def take(self, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Step]:
        super().take(asked, headers)
        n_turns = sum(message["role"] == "assistant" for message in asked["messages"])
        return n_turns + 1, self.steps[n_turns]


@dataclass
class Ring:
    """A desk whose ``run`` is struck, and what the run comes to when it is not.

    ``states`` are files and plan after as many calls as their index says.
    """

    desk: Desk
    process: subprocess.Popen[str]
    told: Path
    begun: int = 0
    calls: int = 0
    states: list[tuple[str, Plan | None]] = field(default_factory=list)

    def run(self, number: int = 0, moment: int | None = None) -> dict[str, int]:
        """One run in a fresh state directory."""
        shutil.rmtree(self.desk.tmp_path / "state", ignore_errors=True)
        request = {
            "arguments": ["run", "Mend.", "--repo", str(self.desk.source), "--model", ANTHROPIC],
            "variables": dict(os.environ), "told": str(self.told),
            "signal": number, "moment": moment,
        }  # fmt: skip
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def strike(self, number: int, moment: int) -> None:
        """Strike a run at *moment* and hold it to what is promised."""
        where = f"signal {number} at call {moment} of {self.calls}"
        code = self.run(number, moment)["code"]
        told = f"{where}: {self.told.read_text()}"
        allowed = (130, 0) if number == signal.SIGINT else (-number,)
        assert code in allowed, told
        left = self._left()
        if left is None:
            self.desk("run", "--repo", self.desk.source, "--resume", fails=2)
            assert self.run()["code"] == 0, where
        else:
            n_calls, state, is_finished = left
            assert state == self.states[n_calls], told
            assert is_finished or code != 0, told
            assert not is_finished or state == self.states[-1], told
            resumed = ("run", "--repo", self.desk.source, "--resume")
            self.desk(*resumed, fails=2 if is_finished else 0)
        assert self._state() == self.states[-1], told
        assert self.desk.mended.read_text() == self.desk.wrong, "nothing was applied"

    def _left(self) -> tuple[int, tuple[str, Plan | None], bool] | None:
        """How many calls were completed, the state, and whether that is the end; ``None``: no run."""
        if not self.desk.workspaces:
            return None
        (which,) = self.desk.workspaces
        run = RecordedRun.newest(self.desk.storage.folder(which))
        if run is None:
            return None
        with Workspace.open(which, storage=self.desk.storage) as place:
            n_calls = len(completed(place))
        run.drop_half_turn()
        return n_calls, self._state(), run.is_finished

    def _state(self) -> tuple[str, Plan | None]:
        (which,) = self.desk.workspaces
        with Workspace.open(which, storage=self.desk.storage) as place:
            return place.head.files, place.session[Plan].latest()

    def learn(self) -> None:
        """Run to the end, and see all that there was on the way."""
        assert self.run()["code"] == 0, self.told.read_text()  # loads
        counts = self.run()
        assert counts["code"] == 0, self.told.read_text()
        self.begun, self.calls = counts["begun"], counts["calls"]
        (which,) = self.desk.workspaces
        with Workspace.open(which, storage=self.desk.storage) as place:
            calls = completed(place)
            for entry in (calls[0] - 1, *calls):
                place.restore(entry)
                self.states.append((place.head.files, place.session[Plan].latest()))


def completed(place: Workspace) -> list[int]:
    """The numbers of the calls that nothing interrupted, oldest first."""
    numbers: list[int] = []
    for entry in place.log():
        if entry.kind is EntryKind.CALL and entry.outcome is not Outcome.UNKNOWN:
            error = getattr(place.record(entry).event, "error", None) or ""
            if "KeyboardInterrupt" not in error:
                numbers.insert(0, entry.number)
    return numbers


@pytest.fixture
def ring(desk: Desk) -> Iterator[Ring]:
    desk.serve_by(PatientServer(*TURNS))
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("run_server.py"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    ring = Ring(desk, process, desk.tmp_path / "told")
    ring.learn()
    yield ring
    process.communicate()


def struck(ring: Ring, number: int, n_moments: int) -> None:
    """Strike before the evaluation now and then, and during and after it most of the time."""
    chance = random.Random(n_moments if Environment.from_os().is_ci else None)
    for n in range(n_moments):
        begins = (1, ring.begun) if n % 6 == 5 else (ring.begun, ring.calls)
        ring.strike(number, chance.randrange(*begins))


def test_a_run_struck_at_any_moment_is_between_two_calls_and_resumed_to_the_same_end(
    ring: Ring,
) -> None:
    assert len({files for files, _ in ring.states}) == 5
    assert len(set(map(str, ring.states))) == 7
    struck(ring, signal.SIGINT, 12)
    struck(ring, signal.SIGKILL, 6)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_struck_at_150_moments_is_resumed_to_the_same_end(ring: Ring, number: int) -> None:
    struck(ring, number, 150)
