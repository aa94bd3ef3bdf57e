"""``run TASK`` interrupted by Ctrl-C or a kill at any moment, and the guarantees that must hold.

Files and plan are in the state between two calls, all processes of the run have ended, and
``--resume`` reaches the same end as an uninterrupted run.
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
"""The files of the workspace, the plan, and the contents of the user's directory."""


class RepeatingServer(ModelServer):
    """Chooses the answer by the length of the conversation, so requests may be repeated."""

    def take(self, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Step]:
        super().take(asked, headers)
        n_turns = sum(message["role"] == "assistant" for message in asked["messages"])
        return n_turns + 1, self.steps[n_turns]


@dataclass
class InterruptedRun:
    """A ``run`` to interrupt, and the results of the same run without interruption.

    ``states[n]`` is the state after *n* calls. ``left_running`` lists remains that are not child
    processes, such as containers. A kill may leave some, which the next run ends.
    """

    user: CliUser
    process: subprocess.Popen[str]
    options: tuple[str, ...] = ()
    begun: int = 0
    calls: int = 0
    states: list[State] = field(default_factory=list[State])
    left_running: Callable[[], list[str]] = list[str]

    def __post_init__(self) -> None:
        self._output = self.user.tmp_path / "output"
        self._before = contents_of(self.user.source)

    def run(
        self, number: int = 0, moment: int | None = None, *, loads: bool = False
    ) -> dict[str, int]:
        """Run once on the original directory, with a new state directory."""
        shutil.rmtree(self.user.tmp_path / "state", ignore_errors=True)
        shutil.rmtree(self.user.source)
        for name, content in self._before.items():
            path = self.user.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        task = ("run", "Fix.", "--repo", str(self.user.source), "--model", ANTHROPIC)
        request = {
            "arguments": [*task, *self.options], "variables": dict(os.environ),
            "output": str(self._output), "signal": number, "moment": moment, "loads": loads,
        }  # fmt: skip
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def interrupt(self, number: int, moment: int) -> None:
        """Interrupt a run at *moment* and check the guarantees."""
        where = f"signal {number} at call {moment} of {self.calls}"
        code = self.run(number, moment)["code"]
        details = f"{where}: {self._output.read_text()}"
        allowed = (130, 0) if number == signal.SIGINT else (-number,)
        assert code in allowed, details
        assert number == signal.SIGKILL or not self.left_running(), (details, self.left_running())
        left_state = self._state_left()
        if left_state is None:
            self._resume(fails=2)
            assert self.run()["code"] == 0, where
        else:
            n_calls, state, is_finished = left_state
            assert state == self.states[n_calls], details
            assert is_finished or code != 0, details
            assert not is_finished or state == self.states[-1], details
            self._resume(fails=2 if is_finished else 0)
        assert self._state() == self.states[-1], details
        assert not self.left_running(), (details, self.left_running())

    def interrupt_at_random(self, number: int, n_moments: int) -> None:
        """Interrupt at random moments, every third of them before the evaluation."""
        chance = random.Random(n_moments if Environment.from_os().is_ci else None)
        for n in range(n_moments):
            moments = range(1, self.begun) if n % 3 == 2 else range(self.begun, self.calls)
            self.interrupt(number, chance.choice(moments))

    def record_states(self) -> None:
        """Run without interruption, and record the state after each call."""
        assert self.run(loads=True)["code"] == 0, self._output.read_text()
        counts = self.run()
        assert counts["code"] == 0, self._output.read_text()
        self.begun, self.calls = counts["begun"], counts["calls"]
        (workspace_id,) = self.user.workspaces
        with Workspace.open(workspace_id, storage=self.user.storage) as workspace:
            calls = completed(workspace)
            for number in calls:
                event = workspace.record(workspace.entry(number)).event
                assert not getattr(event, "error", None), f"a call failed: {event}"
            for entry in (calls[0] - 1, *calls):
                workspace.restore(entry)
                self.states.append(self._state_of(workspace))

    def _resume(self, *, fails: int) -> None:
        in_place = [option for option in self.options if option == "--in-place"]
        self.user("run", "--repo", self.user.source, *in_place, "--resume", fails=fails)

    def _state_left(self) -> tuple[int, State, bool] | None:
        """Return completed calls, state, and whether the run finished; ``None`` without a run."""
        if not self.user.workspaces:
            return None
        (workspace_id,) = self.user.workspaces
        run = RecordedRun.newest(self.user.storage.folder(workspace_id))
        if run is None:
            return None
        with Workspace.open(workspace_id, storage=self.user.storage) as workspace:
            n_calls = len(completed(workspace))
        run.drop_half_turn()
        return n_calls, self._state(), run.is_finished

    def _state(self) -> State:
        (workspace_id,) = self.user.workspaces
        with Workspace.open(workspace_id, storage=self.user.storage) as workspace:
            return self._state_of(workspace)

    def _state_of(self, workspace: Workspace) -> State:
        return workspace.head.files, workspace.session[Plan].latest(), contents_of(self.user.source)


@contextmanager
def run_server() -> Generator[subprocess.Popen[str]]:
    """Start the process whose children run the commands."""
    script = str(Path(__file__).with_name("run_server.py"))
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def prepare_interrupted_run(
    user: CliUser, process: subprocess.Popen[str], turns: Sequence[Step], *options: str
) -> InterruptedRun:
    """Return a run with these turns and options, its states recorded."""
    user.serve_by(RepeatingServer(*turns))
    run = InterruptedRun(user, process, options)
    run.record_states()
    return run


def contents_of(directory: Path) -> dict[str, bytes]:
    """Return the contents of a directory's files by path."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def completed(workspace: Workspace) -> list[int]:
    """Return the numbers of the entries of uninterrupted calls, oldest first."""
    numbers: list[int] = []
    for entry in workspace.log():
        if entry.kind is EntryKind.CALL and entry.outcome is not Outcome.UNKNOWN:
            error = getattr(workspace.record(entry).event, "error", None) or ""
            if "KeyboardInterrupt" not in error:
                numbers.insert(0, entry.number)
    return numbers
