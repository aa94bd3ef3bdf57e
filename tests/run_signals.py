"""A ``run TASK`` that is struck by Ctrl-C or a kill at any moment, and what is promised of it.

Nothing is half done: the files and the plan are those between two calls, nothing that the run
started is left, and ``--resume`` ends where a run ends that nobody strikes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli_user import ANTHROPIC, CliUser
from model_server import ModelServer, Step

from wink_workspace.environment import Environment
from wink_workspace.ledger import EntryKind
from wink_workspace.sections import Plan
from wink_workspace.session import Outcome
from wink_workspace.workspace import RecordedRun, Workspace

State = tuple[str, Plan | None, dict[str, bytes]]
"""The files of the workspace, the plan, and what is in the user's directory."""


class PatientServer(ModelServer):
    """Answers by how far the conversation is, so that the same may be asked twice."""

    def take(self, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Step]:
        super().take(asked, headers)
        n_turns = sum(message["role"] == "assistant" for message in asked["messages"])
        return n_turns + 1, self.steps[n_turns]


@dataclass
class InterruptedRun:
    """A user whose ``run`` is struck, and what the run comes to when it is not.

    ``states`` are those after as many calls as their index says; ``left_running`` tells what no
    process of ours shows. A kill may leave some of that, for the next run to end.
    """

    user: CliUser
    process: subprocess.Popen[str]
    options: tuple[str, ...] = ()
    begun: int = 0
    calls: int = 0
    states: list[State] = field(default_factory=list[State])
    left_running: Callable[[], list[str]] = list[str]

    def __post_init__(self) -> None:
        self._told = self.user.tmp_path / "told"
        self._before = contents_of(self.user.source)

    def run(
        self, number: int = 0, moment: int | None = None, *, loads: bool = False
    ) -> dict[str, int]:
        """One run over the directory as it was at first, in a fresh state directory."""
        shutil.rmtree(self.user.tmp_path / "state", ignore_errors=True)
        shutil.rmtree(self.user.source)
        for name, content in self._before.items():
            path = self.user.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        task = ("run", "Mend.", "--repo", str(self.user.source), "--model", ANTHROPIC)
        request = {
            "arguments": [*task, *self.options], "variables": dict(os.environ),
            "told": str(self._told), "signal": number, "moment": moment, "loads": loads,
        }  # fmt: skip
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def interrupt(self, number: int, moment: int) -> None:
        """Strike a run at *moment* and hold it to what is promised."""
        where = f"signal {number} at call {moment} of {self.calls}"
        code = self.run(number, moment)["code"]
        told = f"{where}: {self._told.read_text()}"
        allowed = (130, 0) if number == signal.SIGINT else (-number,)
        assert code in allowed, told
        assert number == signal.SIGKILL or not self.left_running(), (told, self.left_running())
        left = self._left()
        if left is None:
            self._resume(fails=2)
            assert self.run()["code"] == 0, where
        else:
            n_calls, state, is_finished = left
            assert state == self.states[n_calls], told
            assert is_finished or code != 0, told
            assert not is_finished or state == self.states[-1], told
            self._resume(fails=2 if is_finished else 0)
        assert self._state() == self.states[-1], told
        assert not self.left_running(), (told, self.left_running())

    def interrupt_at_random(self, number: int, n_moments: int) -> None:
        """Strike before the evaluation now and then, and during and after it most of the time."""
        chance = random.Random(n_moments if Environment.from_os().is_ci else None)
        for n in range(n_moments):
            moments = range(1, self.begun) if n % 6 == 5 else range(self.begun, self.calls)
            self.interrupt(number, chance.choice(moments))

    def learn(self) -> None:
        """Run to the end, and see all that there was on the way."""
        assert self.run(loads=True)["code"] == 0, self._told.read_text()
        counts = self.run()
        assert counts["code"] == 0, self._told.read_text()
        self.begun, self.calls = counts["begun"], counts["calls"]
        (which,) = self.user.workspaces
        with Workspace.open(which, storage=self.user.storage) as place:
            calls = completed(place)
            for entry in (calls[0] - 1, *calls):
                place.restore(entry)
                self.states.append(self._state_of(place))

    def _resume(self, *, fails: int) -> None:
        where = [option for option in self.options if option == "--in-place"]
        self.user("run", "--repo", self.user.source, *where, "--resume", fails=fails)

    def _left(self) -> tuple[int, State, bool] | None:
        """How many calls were completed, the state, and whether that is the end; ``None``: no run."""
        if not self.user.workspaces:
            return None
        (which,) = self.user.workspaces
        run = RecordedRun.newest(self.user.storage.folder(which))
        if run is None:
            return None
        with Workspace.open(which, storage=self.user.storage) as place:
            n_calls = len(completed(place))
        run.drop_half_turn()
        return n_calls, self._state(), run.is_finished

    def _state(self) -> State:
        (which,) = self.user.workspaces
        with Workspace.open(which, storage=self.user.storage) as place:
            return self._state_of(place)

    def _state_of(self, place: Workspace) -> State:
        return place.head.files, place.session[Plan].latest(), contents_of(self.user.source)


@contextmanager
def run_server() -> Generator[subprocess.Popen[str]]:
    """The process in whose children runs are struck."""
    script = str(Path(__file__).with_name("run_server.py"))
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def prepare_interrupted_run(
    user: CliUser, process: subprocess.Popen[str], turns: Sequence[Step], *options: str
) -> InterruptedRun:
    """A run with these turns and options, to be struck."""
    user.serve_by(PatientServer(*turns))
    run = InterruptedRun(user, process, options)
    run.learn()
    return run


def contents_of(place: Path) -> dict[str, bytes]:
    """The files of a directory by their names."""
    paths = [path for path in place.rglob("*") if path.is_file()]
    return {str(path.relative_to(place)): path.read_bytes() for path in paths}


def completed(place: Workspace) -> list[int]:
    """The numbers of the calls that nothing interrupted, oldest first."""
    numbers: list[int] = []
    for entry in place.log():
        if entry.kind is EntryKind.CALL and entry.outcome is not Outcome.UNKNOWN:
            error = getattr(place.record(entry).event, "error", None) or ""
            if "KeyboardInterrupt" not in error:
                numbers.insert(0, entry.number)
    return numbers
