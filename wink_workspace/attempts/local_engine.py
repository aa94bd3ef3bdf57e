"""Runs attempts in worker processes of this machine.

Workers are started with ``spawn``, never forked, and are reused. A worker ends when its connection
to the coordinator closes, so none outlives a coordinator that was killed. Its output is dropped;
its logs are sent to the coordinator.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Final

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.errors import UsageError

from .attempt_context import run_task
from .budget import BudgetPool, Grant, Spending
from .engine_protocol import AttemptEvent, AttemptPlan, AttemptTask, EventKind
from .forwarded_logs import LogLine

_MAX_WORKERS: Final = 256
_RETRY_S: Final = 0.05
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass(slots=True, eq=False)
class _Worker:
    process: BaseProcess
    connection: Connection
    task: AttemptTask | None = None
    wanted: Spending | None = None
    """The turn that it waits for."""


@dataclass(eq=False)
class LocalEngine:
    """Runs attempts in processes; needs nothing else.

    Args:
        workers: How many attempts run at the same time.
        stop_s: How long ``close`` waits for running attempts before it kills their workers.

    Raises:
        UsageError: If *workers* is not from 1 to 256.
    """

    workers: int = 2
    stop_s: float = 5.0
    _plan: AttemptPlan | None = field(default=None, init=False, repr=False)
    _budget: BudgetPool | None = field(default=None, init=False, repr=False)
    _running: list[_Worker] = field(default_factory=list[_Worker], init=False, repr=False)
    _queue: deque[AttemptTask] = field(default_factory=deque[AttemptTask], init=False, repr=False)
    _events: list[AttemptEvent] = field(default_factory=list[AttemptEvent], init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= _MAX_WORKERS:
            raise UsageError(
                f"{self.workers} workers were asked for", hint=f"Use from 1 to {_MAX_WORKERS}."
            )

    def prepare(self, plan: AttemptPlan, budget: BudgetPool) -> int:
        """As in ``Engine``; workers are started when there are tasks for them."""
        self._plan, self._budget = plan, budget
        self._queue.clear()
        self._events.clear()
        return self.workers

    def submit(self, task: AttemptTask) -> None:
        """As in ``Engine``; a worker that runs an older epoch of the attempt is killed."""
        for worker in list(self._running):
            if worker.task is not None and worker.task.number == task.number:
                self._end(worker)
        self._queue.append(task)
        self._dispatch()

    def poll(self, timeout_s: float) -> Sequence[AttemptEvent]:
        """As in ``Engine``."""
        if not self._events:
            self._receive(timeout_s)
            self._answer()
            self._dispatch()
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """As in ``Engine``; what ended meanwhile is reported by ``poll``."""
        self._queue.clear()
        for worker in self._running:
            self._send(worker, ("stop",))
        ends = SYSTEM_CLOCK.monotonic_s() + self.stop_s
        while any(worker.task for worker in self._running):
            left_s = ends - SYSTEM_CLOCK.monotonic_s()
            if left_s <= 0:
                break
            self._receive(left_s)
            self._answer(stopping=True)
        for worker in list(self._running):
            self._end(worker)

    # The workers

    def _dispatch(self) -> None:
        while self._queue:
            worker = next((each for each in self._running if each.task is None), None)
            if worker is None:
                if len(self._running) >= self.workers:
                    return
                worker = self._start()
            worker.task = self._queue.popleft()
            self._events.append(
                AttemptEvent(EventKind.BEGUN, worker.task.number, worker.task.epoch)
            )
            self._send(worker, ("task", worker.task))  # if it is dead, its sentinel reports it

    def _start(self) -> _Worker:
        ours, theirs = _SPAWN.Pipe()
        with theirs:
            worker = _Worker(self._start_process(theirs, self._prepared()), ours)
        self._running.append(worker)
        return worker

    def _start_process(self, connection: Connection, plan: AttemptPlan) -> BaseProcess:
        """Start a process that runs ``work``; the tests have a faster way."""
        process = _SPAWN.Process(target=work, args=(connection, plan), daemon=True)
        process.start()
        return process

    def _prepared(self) -> AttemptPlan:
        if self._plan is None:
            raise UsageError("the engine is not prepared", hint="Call prepare first.")
        return self._plan

    def _end(self, worker: _Worker) -> None:
        """Kill a worker: what it was doing is as after a crash."""
        self._running.remove(worker)
        if worker.task is not None and self._budget is not None:
            self._budget.forfeit(worker.task.number, worker.task.epoch)
        worker.process.kill()
        worker.process.join()
        worker.process.close()
        worker.connection.close()

    @staticmethod
    def _send(worker: _Worker, message: object) -> None:
        try:
            worker.connection.send(message)
        except OSError:  # it is dead, which its sentinel reports
            return

    def _receive(self, timeout_s: float) -> None:
        waiting = any(worker.wanted for worker in self._running)
        sources: dict[Any, _Worker] = {}
        for worker in self._running:
            sources[worker.connection] = worker
            sources[worker.process.sentinel] = worker
        ready = wait(list(sources), min(timeout_s, _RETRY_S) if waiting else timeout_s)
        for worker in dict.fromkeys(sources[each] for each in ready):
            self._read(worker)

    def _read(self, worker: _Worker) -> None:
        is_dead = not worker.process.is_alive()
        try:
            while worker.connection.poll():
                self._handle(worker, worker.connection.recv())
        except (EOFError, OSError):
            is_dead = True
        if is_dead:
            task = worker.task
            worker.process.join()
            code = worker.process.exitcode
            self._end(worker)
            if task is not None:
                reason = f"its worker ended with exit code {code}"
                self._events.append(
                    AttemptEvent(EventKind.LOST, task.number, task.epoch, reason=reason)
                )

    def _handle(self, worker: _Worker, message: tuple[str, Any]) -> None:
        task = worker.task
        if task is None or self._budget is None:
            return
        match message:
            case ("alive", _):
                self._events.append(AttemptEvent(EventKind.ALIVE, task.number, task.epoch))
            case ("request", wanted):
                worker.wanted = wanted
            case ("spent", spent):
                self._budget.end_turn(task.number, task.epoch, spent)
            case ("logged", line):
                self._events.append(
                    AttemptEvent(EventKind.LOGGED, task.number, task.epoch, line=line)
                )
            case (_, result):
                worker.task = None
                self._events.append(
                    AttemptEvent(EventKind.ENDED, task.number, task.epoch, result=result)
                )

    def _answer(self, *, stopping: bool = False) -> None:
        for worker in self._running:
            if worker.wanted is None or worker.task is None or self._budget is None:
                continue
            answer: str = Grant.SPENT
            if not stopping:
                answer = self._budget.request(worker.task.number, worker.task.epoch, worker.wanted)
            if answer != Grant.WAIT:
                worker.wanted = None
                self._send(worker, ("answer", answer))


class _PipeLink:
    """The worker's end."""

    def __init__(self, connection: Connection, heartbeat_s: float) -> None:
        self.should_stop = False
        self.tasks: SimpleQueue[AttemptTask] = SimpleQueue()
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._connection = connection
        self._lock = threading.Lock()
        self._is_busy = threading.Event()
        self._heartbeat_s = heartbeat_s
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def request(self, wanted: Spending) -> str:
        if self.should_stop:
            return Grant.SPENT
        self._send("request", wanted)
        return self._answers.get()

    def end_turn(self, spent: Spending) -> None:
        self._send("spent", spent)

    def log(self, line: LogLine) -> None:
        self._send("logged", line)

    def run(self, plan: AttemptPlan) -> None:
        while True:
            task = self.tasks.get()
            self._is_busy.set()
            result = run_task(plan, task, self)
            self._is_busy.clear()
            self._send("ended", result)

    def _send(self, kind: str, content: object) -> None:
        with self._lock:
            try:
                self._connection.send((kind, content))
            except OSError:
                os._exit(1)  # the coordinator is dead

    def _read(self) -> None:
        try:
            while True:
                match self._connection.recv():
                    case ("task", task):
                        self.tasks.put(task)
                    case ("answer", answer):
                        self._answers.put(answer)
                    case _:
                        self.should_stop = True
        except (EOFError, OSError):
            # As after a crash: the next coordinator recovers the branch. Waiting for the attempt
            # could take hours.
            os._exit(1)

    def _beat(self) -> None:
        never = threading.Event()
        while not never.wait(self._heartbeat_s):
            if self._is_busy.is_set():
                self._send("alive", None)


def work(connection: Connection, plan: AttemptPlan) -> None:
    """The main function of a worker; Ctrl-C is for the coordinator, which then stops it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sink = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(sink, fd)
    os.close(sink)
    _PipeLink(connection, plan.heartbeat_s).run(plan)
