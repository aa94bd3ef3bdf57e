"""The side of the workers: one attempt in a fork of a base that the node keeps."""

from __future__ import annotations

import io
import os
import pickle
import secrets
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray as typed_in_part
from ray.exceptions import RayError

from wink_workspace.attempts.attempt_context import AttemptWorkspace, one_line, run_attempt
from wink_workspace.attempts.budget import Grant, Spending
from wink_workspace.attempts.engine_protocol import AttemptTask
from wink_workspace.attempts.forwarded_logs import LogLine
from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.environment import Environment
from wink_workspace.errors import WinkError
from wink_workspace.ledger import LogEntry
from wink_workspace.sandbox import SANDBOXES
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.transfer.node_cache import NodeCache, pack_entries, pack_result

from .mailbox import WIRE_VERSION, BaseMissing, Finished, Key, Mail, MailKind, NodeBase, NodeRules

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


ray: Any = typed_in_part


def missing_parts(wanted: dict[str, Any]) -> str:
    """Why this node cannot be used, or an empty text; *wanted* are ``Requirements.fields``."""
    if wanted["wire"] != WIRE_VERSION:
        return f"it has version {WIRE_VERSION} of the messages, not {wanted['wire']}"
    try:
        pickle.loads(wanted["functions"])  # noqa: S301 - from the coordinator
    except Exception as error:  # noqa: BLE001 - the boundary to the user's functions
        return f"the attempt cannot be loaded there: {one_line(error)}"
    try:
        if wanted["needs_overlay"]:
            WorkspaceStorage(_directory(wanted["cache"])).require_overlays()
        return _missing_in_sandbox(wanted["sandbox"], wanted["image"]) if wanted["sandbox"] else ""
    except (WinkError, OSError) as error:
        return one_line(error)


def _directory(cache: str) -> Path:
    return Path(cache.replace("{node}", ray.get_runtime_context().get_node_id())).expanduser()


def _missing_in_sandbox(name: str, image: str) -> str:
    environment = Environment.from_os()
    backend = SANDBOXES.get(name)
    for finding in backend.examine(environment):
        # Of the images only the one that is wanted is needed
        if finding.state == "missing" and not finding.name.startswith("image "):
            return f"{finding.part} cannot be used: {finding.name}: {finding.detail}"
    if backend.images is not None and image:
        listed = backend.images(environment).listed()
        if not any(each.reference == image and each.size_bytes is not None for each in listed):
            return f"it does not have the image {image}"
    return ""


def work(
    rules: NodeRules, task: AttemptTask, more: bytes, base: NodeBase | None, mailbox: Any
) -> Finished | BaseMissing:
    """Run one task.

    Args:
        rules: What is the same for all tasks.
        task: The task.
        more: The entries at which it begins, after that of the base, from ``pack_entries``.
        base: The base, or ``None`` as long as no node has asked for it.
        mailbox: The handle of the actor.
    """
    cache = NodeCache(_directory(rules.cache), budget_bytes=rules.cache_bytes)
    link = _MailboxLink(mailbox, (task.number, task.epoch), rules)
    bundles: list[bytes] = []

    @contextmanager
    def opened() -> Generator[AttemptWorkspace]:
        with cache.start(
            rules.files,
            rules.start,
            more=more,
            config=rules.plan.config,
            workspace_type=AttemptWorkspace,
        ) as (fork, since):
            fork.before_call = link.send_progress_of(fork, since)
            try:
                yield fork
            finally:
                bundles.append(pack_result(fork, since))

    with link, _without_output():
        if not cache.has(rules.files):
            if base is None:
                return BaseMissing()
            cache.add(rules.files, io.BufferedReader(_BaseFile(base)))
        result = run_attempt(rules.plan, task, link, opened)
        if not bundles and not cache.has(rules.files):
            return BaseMissing()  # it was deleted meanwhile, to make room
        return Finished(result, b"".join(bundles), tuple(link.turns), tuple(link.lines))


class _BaseFile(io.RawIOBase):
    """The base as a file; each part is fetched when it is read. Ray keeps one copy on a node."""

    def __init__(self, base: NodeBase) -> None:
        self._base = base
        self._at = 0
        self._number: int = -1
        self._part = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._base.n_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        if self._at >= self._base.n_bytes:
            return 0
        number, offset = divmod(self._at, self._base.part_bytes)
        if number != self._number:
            self._number, self._part = number, memoryview(ray.get(self._base.parts[number]))
        target = memoryview(buffer).cast("B")
        found = self._part[offset : offset + len(target)]
        target[: len(found)] = found
        self._at += len(found)
        return len(found)


class _MailboxLink:
    """The worker's end; ``turns`` is what each turn spent, ``lines`` what was logged."""

    def __init__(self, mailbox: Any, key: Key, rules: NodeRules) -> None:
        self.should_stop: bool = False
        self.turns: list[Spending] = []
        self.lines: list[LogLine] = []
        self._mailbox, self._key, self._rules = mailbox, key, rules
        self._worker = secrets.token_hex(8)
        self._send_progress: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        # Waits, because a task that has not begun counts as one that waits for resources
        ray.get(self._mailbox.post.remote(Mail(MailKind.BEGUN, self._key)))
        stopped = self._mailbox.until_stopped.remote(self._key, self._worker)
        threading.Thread(target=self._listen, args=(stopped,), daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._mailbox.leave.remote(self._worker)  # ends the thread

    def request(self, wanted: Spending) -> str:
        if self.should_stop:
            return Grant.SPENT
        self._send_progress()
        return ray.get(self._mailbox.request.remote(Mail(MailKind.REQUEST, self._key, wanted)))

    def end_turn(self, spent: Spending) -> None:
        self.turns.append(spent)
        # Waits, because messages to an actor may overtake each other. If the next request did, it
        # would be granted before this turn counts, and this message would end its reservation.
        ray.get(self._mailbox.post.remote(Mail(MailKind.SPENT, self._key, spent)))

    def log(self, line: LogLine) -> None:
        self.lines.append(line)
        with suppress(RayError):  # the coordinator cannot be reached any more
            # Waits, so that the lines arrive in their order; this is not the attempt's thread
            ray.get(self._mailbox.post.remote(Mail(MailKind.LOGGED, self._key, line=line)))

    def send_progress_of(self, fork: Workspace, since: LogEntry) -> Callable[[], None]:
        """A function for the thread of the attempt: it sends the entries after *since*."""
        sent, next_s = since, SYSTEM_CLOCK.monotonic_s() + self._rules.progress_s

        def send() -> None:
            nonlocal sent, next_s
            now_s = SYSTEM_CLOCK.monotonic_s()
            if now_s >= next_s and fork.head.id != sent.id:
                entries = pack_entries(fork, fork.head, sent)
                with suppress(RayError):  # the result has them, too
                    # Waits, so that they are kept if the worker dies from now on
                    ray.get(self._post(MailKind.ENTRIES, entries=entries))
                sent, next_s = fork.head, now_s + self._rules.progress_s

        self._send_progress = send
        return send

    def _post(self, kind: MailKind, *, entries: bytes = b"") -> Any:
        """Send it; ``ray.get`` of the result waits until it has arrived."""
        return self._mailbox.post.remote(Mail(kind, self._key, entries=entries))

    def _listen(self, stopped: Any) -> None:
        """Give signs of life until the task ends or shall end."""
        while not ray.wait([stopped], timeout=self._rules.plan.heartbeat_s)[0]:
            self._post(MailKind.ALIVE)
        try:
            self.should_stop = ray.get(stopped)
        except RayError:  # the coordinator cannot be reached any more
            self.should_stop = True


@contextmanager
def _without_output() -> Generator[None]:
    """Drop what the attempt and its scorer print, as each engine does."""
    sink = os.open(os.devnull, os.O_RDWR)
    before = [(fd, os.dup(fd)) for fd in (1, 2)]
    for fd, _ in before:
        os.dup2(sink, fd)
    os.close(sink)
    try:
        yield
    finally:
        for fd, copy in before:
            os.dup2(copy, fd)
            os.close(copy)
