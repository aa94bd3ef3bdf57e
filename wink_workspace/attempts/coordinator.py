"""Coordinates the attempts of one run, and accepts exactly one result for each.

Rule 1: only the coordinator writes the state of a run: one document for the run and one for each
attempt, each changed by compare-and-swap. The holder of the workspace is the only coordinator.
Rule 2: every start of an attempt has an epoch and a branch of its own. A result of an older epoch
is refused, and what its branch has more is kept as a discard.
Rule 3: what was chosen is written before it is started, and what was reserved before it is spent.
So a coordinator that was killed at any step is continued by ``run`` in another process.

An attempt is waiting, running or ended. A worker that dies, or whose lease expires, makes it
waiting again; it then continues from the last entry of its branch.
"""

from __future__ import annotations

import copyreg
import pickle
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from types import MappingProxyType
from typing import Any, Final

from wink_workspace.clock import SYSTEM_CLOCK, Budget, Cancellation, Clock
from wink_workspace.errors import (
    EntryMissingError,
    LedgerBusyError,
    UsageError,
)
from wink_workspace.ledger import Document, LogEntry
from wink_workspace.workspace import ChangeSet, Selection, Workspace
from wink_workspace.workspace.program_calls import in_thread

from .attempt_context import AttemptContext
from .attempt_reader import RUNS_KIND, RunStatus, count_calls, run_status
from .budget import BudgetPool, Spending
from .engine_protocol import (
    AttemptEvent,
    AttemptOutcome,
    AttemptPlan,
    AttemptResult,
    AttemptTask,
    Cost,
    Engine,
    EventKind,
)
from .forwarded_logs import log_level, write_log
from .local_engine import LocalEngine
from .run_state import AttemptState, RunState, parse_state, state_content
from .strategies import Stop, Strategy, best_of_n, rank

_MAX_N: Final = 10_000
_MAX_STARTS: Final = 5
"""A worker of an attempt may die this often before the attempt counts as failed."""
_LONGEST_POLL_S: Final = 1.0

Attempt = Callable[[AttemptContext], object]
Scorer = Callable[[Workspace], object]


def _pickled(value: object) -> bytes:
    """*value* for ``pickle.loads``, which also gets the read-only mappings of configurations."""
    written = BytesIO()
    pickler = pickle.Pickler(written)
    pickler.dispatch_table = copyreg.dispatch_table | {MappingProxyType: _reduced_mapping}
    pickler.dump(value)
    return written.getvalue()


def _reduced_mapping(mapping: MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return _read_only, (dict(mapping),)


def _read_only(content: dict[Any, Any]) -> Mapping[Any, Any]:
    """A read-only mapping; its class has no name that pickle could store."""
    return MappingProxyType(content)


def _never(results: Sequence[AttemptResult]) -> bool:
    del results
    return False


def _look_away() -> None:
    """Watch nothing."""


class Attempts:
    """One run of *n* attempts, each in a fork of *workspace*; ``run`` runs or continues them.

    Args:
        workspace: An open workspace; the attempts begin at its newest entry.
        n: How many attempts, from 1 to 10,000.
        engine: Runs them; by default ``LocalEngine()``.
        budget: The limits of all attempts together.
        seed: The seed of ``context.random``.
        strategy: Chooses what runs next.
        lease_s: An attempt without a sign of life for this time is started again elsewhere.
        score_timeout_s: A scorer that takes longer makes the attempt fail.
        restart: Begin an attempt whose worker died again, instead of continuing it from its last
            entry; what it had done is kept as a discard.
        about: JSON that is stored with the run; ``RunStatus.about`` has it again.
        clock: The time, for leases.

    Attributes:
        run_id: Names the run; see ``open``.

    Raises:
        UsageError: If an argument is out of range, or the workspace is in place.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        n: int,
        engine: Engine | None = None,
        budget: Budget | None = None,
        seed: int = 0,
        strategy: Strategy = best_of_n,
        lease_s: float = 60.0,
        score_timeout_s: float = 3_600.0,
        restart: bool = False,
        about: Mapping[str, Any] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not 1 <= n <= _MAX_N:
            raise UsageError(f"{n} attempts were asked for", hint=f"Use from 1 to {_MAX_N:,}.")
        if not (lease_s > 0 and score_timeout_s > 0):
            raise UsageError(
                f"lease_s is {lease_s}, score_timeout_s is {score_timeout_s}",
                hint="Use positive numbers.",
            )
        if workspace.info.mode == "in_place":
            raise UsageError(
                f"the workspace {workspace.info.id} is in place, where attempts cannot be kept",
                hint="Make a workspace with a copy of the directory.",
            )
        self.run_id = secrets.token_hex(4)
        self._workspace = workspace
        self._engine: Engine = engine or LocalEngine()
        self._strategy = strategy
        self._lease_s, self._score_timeout_s = lease_s, score_timeout_s
        self._restart, self._clock = restart, clock
        self._is_new = True
        self._run = RunState(
            n=n,
            seed=seed,
            begun_at=clock.now(),
            branch=workspace.branch_name,
            origin="",
            budget=budget or Budget(),
            about=about or {},
        )
        self._run_version: str | None = None
        self._states: dict[int, AttemptState] = {}
        self._versions: dict[int, str] = {}
        self._leases: dict[int, float] = {}
        self._queue: list[int] = []
        self._pool = BudgetPool(self._run.budget)

    @classmethod
    def open(
        cls,
        workspace: Workspace,
        run_id: str,
        *,
        engine: Engine | None = None,
        budget: Budget | None = None,
        strategy: Strategy = best_of_n,
        lease_s: float = 60.0,
        score_timeout_s: float = 3_600.0,
        restart: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Attempts:
        """Open a run that an earlier process began; ``run`` continues it.

        Args:
            workspace: The workspace, opened at the branch on which the run began.
            run_id: One of ``run_ids``.
            engine: As for ``Attempts``, and so are the others.
            budget: The new limits of the whole run, by default those before.
            strategy: The same as before.
            lease_s: As for ``Attempts``.
            score_timeout_s: As for ``Attempts``.
            restart: As for ``Attempts``.
            clock: As for ``Attempts``.

        Raises:
            UsageError: If there is no such run.
            LedgerDamagedError: If its state cannot be read.
        """
        found = workspace.documents(f"{RUNS_KIND}/{run_id}").read_all() if run_id.isalnum() else {}
        if "run" not in found:
            runs = ", ".join(cls.run_ids(workspace)) or "none"
            raise UsageError(f"there is no run {run_id!r}", hint=f"The runs are: {runs}.")
        opened = cls(
            workspace,
            n=1,
            engine=engine,
            strategy=strategy,
            lease_s=lease_s,
            score_timeout_s=score_timeout_s,
            restart=restart,
            clock=clock,
        )
        opened._load(run_id, found, budget)
        return opened

    @staticmethod
    def run_ids(workspace: Workspace) -> tuple[str, ...]:
        """The runs of a workspace that were not removed, sorted."""
        names = (name.split("/") for name in workspace.documents(RUNS_KIND).read_all())
        return tuple(sorted({parts[0] for parts in names}))

    def _load(self, run_id: str, found: dict[str, Document], budget: Budget | None) -> None:
        self.run_id, self._is_new = run_id, False
        run = found.pop("run")
        self._run_version, self._run = run.id, parse_state(RunState, run.content)
        if budget is not None:
            self._run = replace(self._run, budget=budget)
        for name, document in found.items():
            self._versions[int(name)] = document.id
            self._states[int(name)] = parse_state(AttemptState, document.content)
        spent = sum((state.spent + state.reserved for state in self._states.values()), Spending())
        self._pool = BudgetPool(self._run.budget, spent)

    # Results

    @property
    def results(self) -> tuple[AttemptResult, ...]:
        """The attempts that ended, by number."""
        found = (state.as_result() for _, state in sorted(self._states.items()))
        return tuple(result for result in found if result is not None)

    @property
    def best(self) -> AttemptResult | None:
        """The best one that finished: passed before not passed, then by score and number."""
        finished = [each for each in self.results if each.outcome is AttemptOutcome.FINISHED]
        return max(finished, key=rank, default=None)

    @property
    def spent(self) -> Spending:
        """What all attempts together spent, with what lost workers had reserved."""
        return self._pool.spent

    @property
    def status(self) -> RunStatus:
        """Every attempt as it is now."""
        return run_status(
            self.run_id, self._run, self._states, partial(count_calls, self._workspace)
        )

    @property
    def _ended(self) -> list[AttemptResult]:
        """The results that do not continue."""
        return [
            result
            for _, state in sorted(self._states.items())
            if state.phase == "ended" and (result := state.as_result())
        ]

    def _result_at(self, which: AttemptResult | int) -> AttemptResult:
        number = which if isinstance(which, int) else which.number
        found = self._states[number].as_result() if number in self._states else None
        if found is None:
            raise UsageError(
                f"attempt {number} of run {self.run_id} has not ended", hint="List the results."
            )
        return found

    def keep(
        self,
        which: AttemptResult | int | None,
        *,
        paths: Sequence[str] | None = None,
        selected: Selection | None = None,
        shown: ChangeSet | None = None,
    ) -> LogEntry | None:
        """Merge an attempt into the workspace, as one entry, which can be undone.

        Returns ``None`` if the attempt changed nothing that is not merged already.

        Args:
            which: A result, or its number.
            paths: Only these, each with everything below it.
            selected: The chosen files and hunks of *shown*.
            shown: The result of ``changes_of``.

        Raises:
            ConflictError: If the workspace has other changes in the same lines; it has the
                conflicts by hunk, and nothing was changed.
            UsageError: If there is no such result.
            FileMissingError: If the attempt did not change one of *paths*.
        """
        if which is None:
            raise UsageError("no attempt finished", hint="Look at the errors in the results.")
        branch = self._result_at(which).branch
        return self._workspace.merge(branch, paths=paths, selected=selected, shown=shown)

    def changes_of(self, which: AttemptResult | int) -> ChangeSet:
        """What ``keep`` would merge, to choose parts of it; raises ``UsageError`` as that."""
        return self._workspace.branches.changes_to_merge(self._result_at(which).branch)

    def diff(self, one: AttemptResult | int, other: AttemptResult | int) -> ChangeSet:
        """The changes from one attempt to another; raises ``UsageError`` as ``keep``."""
        return self._workspace.branches.compare(
            self._result_at(one).branch, self._result_at(other).branch
        )

    def remove(self) -> None:
        """Delete the run with the branches of its attempts; what was merged stays.

        Raises:
            LedgerBusyError: If a process has one of the branches open; the rest is deleted.
        """
        for name in self._own_branches():
            self._workspace.branches.delete(name)
        documents = self._workspace.documents(f"{RUNS_KIND}/{self.run_id}")
        names = documents.read_all()
        for name in sorted(names, key=lambda each: each == "run"):  # the run last: it can be found
            documents.delete(name)
        self._states, self._versions, self._run_version = {}, {}, None
        self._is_new = True

    # Running

    def run(
        self,
        attempt: Attempt,
        *,
        score: Scorer | None = None,
        stop: Stop = _never,
        watch: Callable[[], object] = _look_away,
    ) -> Generator[AttemptResult]:
        """Run the attempts, or continue those of an earlier process; yields each one that ends.

        Attempts that ended before are not run again, and are not yielded again. Stopped ones
        continue. Closing the generator stops the run; it can be continued.

        Args:
            attempt: A function at the top level of a module, called with an ``AttemptContext``.
            score: A ``CommandScore``, or a function of a temporary fork of the attempt that
                returns a ``Score``, a number, or whether it passed.
            stop: Asked after each event, and at least every second; when it says so, running
                attempts end between two calls.
            watch: Called as often, for a display of ``status``.

        Raises:
            UsageError: If a function cannot be pickled, or the engine cannot run it. Nothing was
                written then.
        """
        plan = self._plan(attempt, score)
        self._pool.on_reserve = self._note_reservation
        capacity = self._engine.prepare(plan, self._pool)
        try:
            self._begin()
            while self._advance(capacity, stop):
                watch()
                events = self._engine.poll(min(self._lease_s / 4, _LONGEST_POLL_S))
                handled = [*map(self._handle, events), *self._expire()]  # all, then the caller
                yield from (result for result in handled if result is not None)
        finally:
            self._engine.close()
            late = [self._handle(event) for event in self._engine.poll(0)]
            self._interrupt_rest()
            self._workspace.branches.delete_leftover()  # of workers that died while they scored
        yield from (result for result in late if result is not None)

    resume = run
    """``run`` of a run that was opened: it continues."""

    async def run_async(
        self, attempt: Attempt, *, score: Scorer | None = None, stop: Stop = _never
    ) -> AsyncGenerator[AttemptResult]:
        """As ``run``, with the waiting in other threads.

        A cancelled task stops the run as *stop* does, and waits until the engine is closed. The
        results of attempts that end meanwhile are in ``results``.
        """
        ended = Cancellation()
        running = self.run(
            attempt, score=score, stop=lambda results: ended.cancelled or stop(results)
        )
        try:
            while (result := await in_thread(partial(next, running, None), ended)) is not None:
                yield result
        finally:
            await in_thread(running.close, ended)  # it waits for attempts that run

    def _plan(self, attempt: Attempt, score: Scorer | None) -> AttemptPlan:
        try:
            functions = _pickled((attempt, score, self._score_timeout_s))
        except Exception as error:  # the user's objects may raise anything in pickle
            raise UsageError(
                f"the attempt or its scorer cannot be sent to another process: {error}",
                hint="Use functions at the top level of a module, and arguments that pickle takes.",
            ) from error
        if not self._run.origin:
            with self._workspace.branches.temporary() as fork:  # commits external edits
                self._run = replace(self._run, origin=fork.head.id)
        return AttemptPlan(
            run_id=self.run_id,
            folder=self._workspace.folder.path,
            config=self._workspace.config,
            functions=functions,
            seed=self._run.seed,
            heartbeat_s=self._lease_s / 4,
            origin=self._run.origin,
            log_level=log_level(),
        )

    def _begin(self) -> None:
        """Write the state of a new run, or take over that of a dead coordinator."""
        self._workspace.documents(f"{RUNS_KIND}/{self.run_id}").delete_stale_locks()
        if self._is_new:
            self._write_run()
            self._is_new = False
        for number, state in sorted(self._states.items()):
            was_stopped = state.result and state.result.outcome is AttemptOutcome.STOPPED
            if state.phase == "running" or was_stopped:
                spent = state.spent + state.reserved
                self._write(number, state.waiting(spent=spent, n_starts=0))
        self._queue = []
        self._write_chosen()
        known = {state.branch for state in self._states.values()}
        for name in self._own_branches():
            if name not in known:
                self._retire(name, "replaced attempt")

    def _write_run(self) -> None:
        self._run_version = self._workspace.documents(f"{RUNS_KIND}/{self.run_id}").write(
            "run", state_content(self._run), expected=self._run_version, at=self._clock.now()
        )

    def _write(self, number: int, state: AttemptState) -> None:
        self._versions[number] = self._workspace.documents(f"{RUNS_KIND}/{self.run_id}").write(
            str(number),
            state_content(state),
            expected=self._versions.get(number),
            at=self._clock.now(),
        )
        self._states[number] = state

    def _write_chosen(self) -> None:
        """Make each chosen attempt waiting whose round has not ended, and queue it."""
        for number, round_ in self._run.chosen:
            state = self._states.get(number)
            if state is None:
                self._states[number] = AttemptState()
            elif state.phase == "ended" and state.round < round_:
                self._write(number, state.waiting(round_=round_))
            if self._states[number].phase == "waiting":
                self._queue.append(number)

    def _advance(self, capacity: int, stop: Stop) -> bool:
        """Start what can be started; whether there is something to wait for."""
        if stop(self.results):
            return False
        is_spent = self._pool.is_spent
        if not self._leases and not self._queue and not is_spent:
            self._choose()
        while self._queue and len(self._leases) < capacity and not is_spent:
            self._start(self._queue.pop(0))
        return bool(self._leases)

    def _choose(self) -> None:
        ended = self._ended
        n = self._run.n + sum(result.n_children for result in ended)
        rounds = {result.number: result.round + 1 for result in ended}
        stopped = {r.number for r in ended if r.outcome is AttemptOutcome.STOPPED}
        chosen = [each for each in self._strategy(n, ended) if each not in stopped]
        if not all(1 <= number <= n for number in chosen):
            raise UsageError(
                f"the strategy chose {chosen} of {n} attempts", hint=f"Choose from 1 to {n}."
            )
        if chosen:
            following = tuple((each, rounds.get(each, 0)) for each in chosen)
            self._run = replace(self._run, chosen=following)
            self._write_run()
            self._write_chosen()

    def _start(self, number: int) -> None:
        state = self._states[number]
        epoch = state.epoch + 1
        branch = f"attempt-{self.run_id}-{number}-{epoch}"
        forks = self._workspace.forks()
        if branch in forks:  # a coordinator was killed before it gave the branch away
            self._workspace.branches.delete(branch)
        previous = state.branch if state.branch in forks else ""
        parent, path = self._origin_of(number)
        if previous:
            self._recover(previous)
        goes_on = previous and (state.round or not self._restart)
        if goes_on:
            self._workspace.fork(branch, of=previous, with_runs=True)
        elif parent:
            self._workspace.fork(branch, of=self._states[parent].branch)
        else:
            self._workspace.fork(branch, at=self._run.origin)
        since = self._workspace.head_of(branch)
        begins_at = state.begins_at if goes_on else since.number
        self._write(
            number,
            state.running(epoch=epoch, branch=branch, parent=parent, begins_at=begins_at),
        )
        if previous:
            self._retire(previous, "replaced attempt", since=since.id if goes_on else "")
        self._leases[number] = self._clock.monotonic_s() + self._lease_s
        task = AttemptTask(number=number, epoch=epoch, round=state.round, branch=branch, path=path)
        self._engine.submit(task)

    def _origin_of(self, number: int) -> tuple[int, str]:
        """The parent of an attempt, 0 for none, and its path."""
        following = self._run.n + 1
        if number < following:
            return 0, str(number)
        for result in self._ended:
            children = range(following, following + result.n_children)
            if number in children:
                place = number - children.start + 1
                return result.number, f"{self._origin_of(result.number)[1]}.{place}"
            following = children.stop
        raise UsageError(f"no attempt asked for attempt {number}", hint="Choose another number.")

    # Events

    def _handle(self, event: AttemptEvent) -> AttemptResult | None:
        if event.line is not None:
            write_log(event.number, event.line)
            return None
        state = self._states.get(event.number)
        if state is None or state.phase != "running" or state.epoch != event.epoch:
            if event.result is not None and (state is None or event.result.branch != state.branch):
                self._retire(event.result.branch, "late attempt")
            return None
        if event.kind is EventKind.ENDED and event.result is not None:
            return self._accept(event.number, state, event.result)
        if event.kind is EventKind.LOST:
            return self._lose(event.number, event.reason)
        self._leases[event.number] = self._clock.monotonic_s() + self._lease_s
        return None

    def _accept(
        self, number: int, state: AttemptState, result: AttemptResult
    ) -> AttemptResult | None:
        spent = state.spent + self._take_spent(number, state)
        ended = state.ended(result, spent=spent, n_calls=count_calls(self._workspace, state))
        self._write(number, ended)
        self._leases.pop(number, None)
        return ended.as_result()

    def _take_spent(self, number: int, state: AttemptState) -> Spending:
        """What the running round of an attempt spent."""
        return self._pool.take_spent(number, state.epoch)

    def _lose(self, number: int, reason: str) -> AttemptResult | None:
        state = self._states[number]
        self._pool.forfeit(number, state.epoch)
        spent = state.spent + self._take_spent(number, state)
        self._leases.pop(number, None)
        if state.n_starts < _MAX_STARTS:
            self._write(number, state.waiting(spent=spent))
            self._queue.append(number)
            return None
        failed = AttemptResult(
            number=number,
            outcome=AttemptOutcome.FAILED,
            score=None,
            cost=Cost(),
            branch=state.branch,
            epoch=state.epoch,
            round=state.round,
            error=f"it was started {_MAX_STARTS} times; at last, {reason}",
        )
        ended = state.ended(failed, spent=spent, n_calls=count_calls(self._workspace, state))
        self._write(number, ended)
        return ended.as_result()

    def _expire(self) -> list[AttemptResult | None]:
        now = self._clock.monotonic_s()
        expired = [each for each, ends in self._leases.items() if ends <= now]
        reason = f"it gave no sign of life for {self._lease_s:g} s"
        return [self._lose(number, reason) for number in expired]

    def _interrupt_rest(self) -> None:
        """What still runs after the engine was closed waits for the next ``run``."""
        for number in list(self._leases):
            state = self._states[number]
            self._pool.forfeit(number, state.epoch)
            spent = state.spent + self._take_spent(number, state)
            self._write(number, state.waiting(spent=spent))
        self._leases.clear()

    def _note_reservation(self, number: int, wanted: Spending) -> None:
        state = self._states[number]
        spent = state.spent + self._take_spent(number, state)
        self._write(number, replace(state, spent=spent, reserved=wanted))

    # Branches

    def _own_branches(self) -> list[str]:
        prefix = f"attempt-{self.run_id}-"
        return [name for name in self._workspace.forks() if name.startswith(prefix)]

    def _recover(self, branch: str) -> None:
        """Roll back the call that a dead worker left on *branch*; its files become a discard."""
        with suppress(LedgerBusyError):  # its worker is alive
            Workspace(self._workspace.folder, config=self._workspace.config, branch=branch).close()

    def _retire(self, branch: str, reason: str, *, since: str = "") -> None:
        """Delete a branch that is not of a result; keep what it has after *since* as a discard."""
        with suppress(EntryMissingError, LedgerBusyError):  # if it is open, the next run does it
            self._workspace.branches.discard(branch, reason=reason, since=since)
