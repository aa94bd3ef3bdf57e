"""The coordinator's side of the engine.

Rule 1: a task is a task of Ray, which chooses the node by resources. Its retries are off: whether
an attempt runs again is decided by lease and epoch, as with every engine.
Rule 2: no work is sent to a node before it was inspected, also to one that joins later.
Rule 3: the base travels when a node asks for it, and once for each node. A task has only what its
branch has more than the base.
Rule 4: a task whose lease expired is asked to end, and not killed. If its result comes, it is put
on a branch of its own, and the coordinator keeps it as a discard.
Rule 5: one result at a time is in memory here.
"""

from __future__ import annotations

import logging
import platform
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.attempts.budget import BudgetPool, Grant, Spending
from wink_workspace.attempts.engine_protocol import (
    AttemptEvent,
    AttemptPlan,
    AttemptTask,
    EventKind,
)
from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.errors import BundleError, ClusterError, LedgerError, UsageError
from wink_workspace.ledger import Ledger, LogEntry
from wink_workspace.sandbox import SANDBOXES, SandboxConfig
from wink_workspace.workspace import WorkspaceFolder, WorkspaceReader
from wink_workspace.workspace.transfer.node_cache import (
    pack_base,
    pack_entries,
    pack_start,
    place_result,
    receive_result,
)

from .mailbox import (
    WIRE_VERSION,
    BaseMissing,
    Finished,
    Key,
    Mail,
    MailKind,
    NodeBase,
    NodeRules,
    Requirements,
)

if TYPE_CHECKING:
    from .cluster import Cluster, Ref, TaskOptions


_log = logging.getLogger(__name__)

_RETRY_S: Final = 0.05
_LOOK_S: Final = 2.0
_PART_BYTES: Final = 32 * 2**20
_CACHE: Final = "~/.cache/wink-workspace/nodes"


@dataclass(slots=True, eq=False)
class _Work:
    """A task that was given to Ray."""

    task: AttemptTask
    since: LogEntry
    head: LogEntry
    """The newest entry that arrived here."""
    more: bytes
    has_begun: bool = False
    is_late: bool = False
    """A newer epoch of its attempt was submitted."""
    n_turns: int = 0
    n_lines: int = 0
    """The lines that were logged; as ``n_turns``, of those that have arrived."""
    wanted: Spending | None = None
    """The turn that it waits for."""

    @property
    def key(self) -> Key:
        return self.task.number, self.task.epoch


@dataclass(slots=True, eq=False)
class _Session:
    """What exists from ``prepare`` to ``close``."""

    cluster: Cluster
    options: TaskOptions
    requirements: Requirements
    plan: AttemptPlan
    budget: BudgetPool
    reader: WorkspaceReader
    ledger: Ledger
    origin: LogEntry
    rules: Ref
    closing: ExitStack
    base: NodeBase | None = None
    works: dict[Ref, _Work] = field(default_factory=dict[Any, _Work])
    admitted: set[str] = field(default_factory=set[str])
    excluded: dict[str, str] = field(default_factory=dict[str, str])
    inspections: dict[Ref, str] = field(default_factory=dict[Any, str])
    renew_s: float = 0.0
    look_s: float = 0.0
    usable_s: float = 0.0


@dataclass(eq=False, kw_only=True)
class RayEngine:
    """Runs attempts on a Ray cluster, which exists; needs the extra ``ray``.

    Every node needs the same version of Python, Ray and wink-workspace. A node that lacks
    something that is required here gets no work; ``excluded`` says why.

    Args:
        address: The cluster, such as ``ray://head:10001`` or ``head:6379``. Left out, the
            connection that ``ray.init`` made in this process, or the cluster of this machine.
        cpus: The processors of one attempt, as Ray counts them; may be a part of one.
        memory_bytes: Its memory, as Ray counts it; 0 to leave it out.
        resources: How much it needs of custom resources, by name: ``{"podman": 1}``.
        workers: The most attempts at the same time; 0 for as many as the nodes have room for.
        sandbox: A sandbox that must work on a node, with its image.
        needs_overlay: Whether workspaces on a node must be overlays.
        cache: The directory on each node that keeps the bases. ``{node}`` in it becomes the id
            of the Ray node, for several nodes on one machine.
        cache_bytes: The budget of that directory.
        runtime_env: As for ``ray.init``, for example to ship your modules; only with *address*.
        progress_s: What an attempt committed is sent before its next call or turn, at most this
            often. If the node dies, the attempt continues after it.
        stop_s: How long ``close`` waits for running attempts before it kills their workers.
        node_wait_s: How long a run waits, when no node can be used any more, for one that can.

    Raises:
        UsageError: If an argument is out of range.
    """

    address: str = ""
    cpus: float = 1.0
    memory_bytes: int = 0
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    workers: int = 0
    sandbox: SandboxConfig | None = None
    needs_overlay: bool = False
    cache: str = _CACHE
    cache_bytes: int = 10 * 2**30
    runtime_env: Mapping[str, Any] | None = None
    progress_s: float = 5.0
    stop_s: float = 10.0
    node_wait_s: float = 60.0
    _session: _Session | None = field(default=None, init=False, repr=False)
    _events: list[AttemptEvent] = field(default_factory=list[AttemptEvent], init=False, repr=False)
    _excluded: dict[str, str] = field(default_factory=dict[str, str], init=False, repr=False)

    def __post_init__(self) -> None:
        amounts = (self.cpus, *self.resources.values())
        if not all(0 < amount < 1e6 for amount in amounts):
            raise UsageError(
                f"cpus is {self.cpus}, resources are {dict(self.resources)}",
                hint="Use positive numbers.",
            )
        if min(self.memory_bytes, self.workers, self.cache_bytes) < 0:
            raise UsageError(
                f"memory_bytes is {self.memory_bytes}, workers is {self.workers}, "
                f"cache_bytes is {self.cache_bytes}",
                hint="Use 0 or more.",
            )

    @property
    def excluded(self) -> Mapping[str, str]:
        """The nodes that get no work, by their Ray id, and why."""
        return dict(self._excluded)

    # The engine

    def prepare(self, plan: AttemptPlan, budget: BudgetPool) -> int:
        """As in ``Engine``; connects to the cluster and inspects its nodes.

        Raises:
            UsageError: If ray is not installed.
            ClusterError: If the cluster cannot be reached, or no node can be used.
        """
        try:
            from .cluster import Cluster, TaskOptions
        except ModuleNotFoundError as error:
            raise UsageError(
                f"attempts on a Ray cluster need the extra 'ray': {error}",
                hint="Install it: pip install 'wink-workspace[ray]'.",
            ) from error
        self.close()
        self._events.clear()
        self._excluded.clear()
        requirements = self._requirements(plan)
        with ExitStack() as closing:
            cluster = Cluster(self.address, self.runtime_env)
            closing.callback(cluster.disconnect)
            folder = WorkspaceFolder(plan.folder)
            reader = closing.enter_context(WorkspaceReader(folder))
            origin = reader.entry_of_any_branch(plan.origin)
            rules = NodeRules(
                plan=plan,
                files=origin.files,
                start=pack_start(reader, entry=origin),
                cache=self.cache,
                cache_bytes=self.cache_bytes,
                progress_s=self.progress_s,
            )
            now_s = SYSTEM_CLOCK.monotonic_s()
            session = _Session(
                cluster=cluster,
                options=TaskOptions(
                    cpus=self.cpus, memory_bytes=self.memory_bytes, resources=self.resources
                ),
                requirements=requirements,
                plan=plan,
                budget=budget,
                reader=reader,
                ledger=closing.enter_context(Ledger(folder.ledger)),
                origin=origin,
                rules=cluster.put(rules),
                closing=closing,
                usable_s=now_s,
                look_s=now_s + _LOOK_S,
            )
            slots = self._inspect_all(session)
            session.closing = closing.pop_all()
            self._session = session
        return min(slots, self.workers or slots)

    def _requirements(self, plan: AttemptPlan) -> Requirements:
        return Requirements(
            python=".".join(platform.python_version_tuple()[:2]),
            version=version("wink-workspace"),
            wire=WIRE_VERSION,
            functions=plan.functions,
            cache=self.cache,
            sandbox="" if self.sandbox is None else SANDBOXES.of_config(self.sandbox).name,
            image=str(getattr(self.sandbox, "image", "")),
            needs_overlay=self.needs_overlay,
        )

    def submit(self, task: AttemptTask) -> None:
        """As in ``Engine``; the worker of an older epoch of the attempt is asked to end."""
        session = self._prepared()
        for ref, work in list(session.works.items()):
            if work.task.number == task.number and not work.is_late:
                work.is_late, work.wanted = True, None
                if work.has_begun:
                    session.cluster.stop([work.key])
                else:
                    del session.works[ref]
                    session.cluster.cancel(ref, force=False)
        since = session.ledger.branch(task.branch).head
        if since is None:
            raise LedgerError(f"the branch {task.branch!r} has no entry")
        more = b""
        if since.id != session.origin.id:
            more = pack_entries(session.reader, since, session.origin)
        self._send(session, _Work(task, since, since, more))

    def poll(self, timeout_s: float) -> Sequence[AttemptEvent]:
        """As in ``Engine``.

        Raises:
            ClusterError: If the cluster does not answer, or no node can be used any more.
        """
        session = self._session
        if session is not None and not self._events:
            self._receive(session, timeout_s)
            self._answer(session)
            self._look_at_nodes(session)
            self._renew_waiting(session)
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """As in ``Engine``; what ended meanwhile is reported by ``poll``."""
        session, self._session = self._session, None
        if session is None:
            return
        with session.closing:
            try:
                self._stop_works(session)
            except ClusterError as error:
                _log.warning("The attempts on the cluster could not be stopped: %s", error)

    def _stop_works(self, session: _Session) -> None:
        for ref, work in list(session.works.items()):
            if not work.has_begun:
                session.cluster.cancel(ref, force=False)
                del session.works[ref]
        session.cluster.stop()
        ends_s = SYSTEM_CLOCK.monotonic_s() + self.stop_s
        while session.works:
            left_s = ends_s - SYSTEM_CLOCK.monotonic_s()
            if left_s <= 0:
                break
            self._receive(session, left_s)
            self._answer(session, stopping=True)
        for ref in session.works:
            session.cluster.cancel(ref, force=True)

    def _prepared(self) -> _Session:
        if self._session is None:
            raise UsageError("the engine is closed", hint="Call prepare first.")
        return self._session

    # Tasks

    def _send(self, session: _Session, work: _Work) -> None:
        ref = session.cluster.submit(
            session.rules,
            work.task,
            work.more,
            session.base,
            options=session.options,
            nodes=session.admitted,
        )
        session.works[ref] = work

    def _receive(self, session: _Session, timeout_s: float) -> None:
        cluster = session.cluster
        if any(work.wanted for work in session.works.values()):
            timeout_s = min(timeout_s, _RETRY_S)
        refs = [cluster.mail, *session.works, *session.inspections]
        for ref in cluster.wait(refs, timeout_s):
            if ref == cluster.mail:
                self._read_mail(session)
            elif ref in session.inspections:
                self._end_inspection(session, ref)
            elif ref in session.works:
                if cluster.wait([cluster.mail], 0.0):  # what it sent before it ended
                    self._read_mail(session)
                if ref in session.works:  # unless all were lost with the mailbox
                    self._end(session, session.works.pop(ref), ref)

    def _read_mail(self, session: _Session) -> None:
        mail = session.cluster.take_mail()
        if mail is None:
            self._lose_all(session)
            return
        works = {work.key: work for work in session.works.values()}
        for each in mail:
            if (work := works.get(each.key)) is not None:
                self._handle_mail(session, work, each)

    def _handle_mail(self, session: _Session, work: _Work, mail: Mail) -> None:
        match mail.kind:
            case MailKind.BEGUN:
                work.has_begun = True
                self._report(EventKind.BEGUN, work)
            case MailKind.ALIVE:
                self._report(EventKind.ALIVE, work)
            case MailKind.LOGGED:
                work.n_lines += 1
                self._events.append(AttemptEvent(EventKind.LOGGED, *work.key, line=mail.line))
            case MailKind.REQUEST:
                work.wanted = mail.spending
                if work.is_late:
                    session.cluster.answer(work.key, Grant.SPENT)
            case MailKind.SPENT:
                work.n_turns += 1
                if not work.is_late:  # else what it had reserved counts as spent
                    session.budget.end_turn(*work.key, mail.spending)
            case MailKind.ENTRIES:
                if not work.is_late:  # else they come with its result
                    self._add_progress(session, work, mail.entries)

    def _lose_all(self, session: _Session) -> None:
        """The mailbox died, so the tasks that run cannot reach this program any more."""
        for ref, work in list(session.works.items()):
            session.cluster.cancel(ref, force=True)
            self._report(EventKind.LOST, work, reason="the actor between it and its run died")
        session.works.clear()
        session.cluster.open_mailbox()

    def _end(self, session: _Session, work: _Work, ref: Ref) -> None:
        found = session.cluster.result(ref)
        if isinstance(found, BaseMissing):
            if not work.is_late:
                work.has_begun = False
                self._put_base(session)
                self._send(session, work)
        elif isinstance(found, Finished):
            self._finish(session, work, found)
        else:
            self._report(EventKind.LOST, work, reason=found.reason)

    def _put_base(self, session: _Session) -> None:
        """Store the base in the cluster, in parts, so that no process has all of it in memory."""
        if session.base is not None:
            return
        with tempfile.TemporaryFile() as file:
            pack_base(session.reader, file, entry=session.origin)
            n_bytes = file.tell()
            file.seek(0)
            parts: list[Ref] = []
            while part := file.read(_PART_BYTES):
                parts.append(session.cluster.put(part))
            session.base = NodeBase(parts=parts, part_bytes=_PART_BYTES, n_bytes=n_bytes)

    def _finish(self, session: _Session, work: _Work, found: Finished) -> None:
        # The messages of these turns and lines have not been read, and will not be any more
        if not work.is_late:
            for spent in found.turns[work.n_turns :]:
                session.budget.end_turn(*work.key, spent)
        for line in found.lines[work.n_lines :]:
            self._events.append(AttemptEvent(EventKind.LOGGED, *work.key, line=line))
        try:
            if found.bundle:
                self._add_entries(session, work, found.bundle, since=work.since)
        except (BundleError, UsageError) as error:
            self._report(EventKind.LOST, work, reason=error.message)
            return
        self._events.append(AttemptEvent(EventKind.ENDED, *work.key, result=found.result))

    def _add_progress(self, session: _Session, work: _Work, bundle: bytes) -> None:
        try:
            self._add_entries(session, work, bundle, since=work.head)
        except (BundleError, UsageError) as error:  # its result has these entries, too
            _log.warning("Attempt %d: %s", work.task.number, error)

    def _add_entries(
        self, session: _Session, work: _Work, bundle: bytes, *, since: LogEntry
    ) -> None:
        """Put the entries of a bundle, which begin after *since*, on the branch of the task."""
        head, _ = receive_result(session.ledger, bundle, since)
        if head.id != work.head.id:
            folder = WorkspaceFolder(session.plan.folder)
            place_result(folder, session.ledger, work.task.branch, since=work.head, head=head)
            work.head = head

    def _report(self, kind: EventKind, work: _Work, *, reason: str = "") -> None:
        self._events.append(AttemptEvent(kind, *work.key, reason=reason))

    def _answer(self, session: _Session, *, stopping: bool = False) -> None:
        for work in session.works.values():
            if work.wanted is None or work.is_late:
                continue
            answer: str = Grant.SPENT
            if not stopping:
                answer = session.budget.request(*work.key, work.wanted)
            if answer != Grant.WAIT:
                work.wanted = None
                session.cluster.answer(work.key, answer)

    def _renew_waiting(self, session: _Session) -> None:
        """Tasks that wait for resources in Ray's queue are not lost."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        if now_s >= session.renew_s:
            session.renew_s = now_s + session.plan.heartbeat_s
            for work in session.works.values():
                if not work.has_begun and not work.is_late:
                    self._report(EventKind.ALIVE, work)

    # Nodes

    def _inspect_all(self, session: _Session) -> int:
        """Inspect every node; how many tasks those that can be used have room for."""
        nodes = session.cluster.nodes()
        for node in nodes:
            self._begin_inspection(session, node, nodes[node])
        for ref in list(session.inspections):
            self._end_inspection(session, ref)
        self._require_nodes(session)
        return sum(session.options.slots(nodes[node]["resources"]) for node in session.admitted)

    def _begin_inspection(self, session: _Session, node: str, about: Mapping[str, Any]) -> None:
        if session.options.slots(about["resources"]) < 1:
            reason = "it has less resources than one attempt needs"
            session.excluded[node] = self._excluded[node] = reason
            return
        session.inspections[session.cluster.inspect(node, session.requirements)] = node

    def _end_inspection(self, session: _Session, ref: Ref) -> None:
        node = session.inspections.pop(ref)
        if reason := session.cluster.inspected(ref):
            session.excluded[node] = self._excluded[node] = reason
            _log.warning("The Ray node %s gets no work: %s", node, reason)
        else:
            session.admitted.add(node)

    def _require_nodes(self, session: _Session) -> None:
        if not session.admitted:
            reasons = "; ".join(f"{node[:8]}: {why}" for node, why in session.excluded.items())
            raise ClusterError(
                f"no node of the Ray cluster can run the attempts: {reasons or 'there is none'}",
                hint="Install on the nodes what is missing, or require less.",
            )

    def _look_at_nodes(self, session: _Session) -> None:
        """Forget nodes that died, and inspect those that joined."""
        now_s = SYSTEM_CLOCK.monotonic_s()
        if now_s < session.look_s:
            return
        session.look_s = now_s + _LOOK_S
        nodes = session.cluster.nodes()
        session.admitted &= nodes.keys()
        known = {*session.admitted, *session.excluded, *session.inspections.values()}
        for node in nodes.keys() - known:
            self._begin_inspection(session, node, nodes[node])
        if session.admitted:
            session.usable_s = now_s
        elif now_s - session.usable_s > self.node_wait_s:
            self._require_nodes(session)
