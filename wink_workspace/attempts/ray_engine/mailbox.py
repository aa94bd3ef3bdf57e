"""The actor through which workers and their coordinator talk while attempts run.

Rule 1: results do not travel through it. If it dies, the coordinator starts the attempts of its
workers again.
Rule 2: it keeps messages until the coordinator takes them, a few for each task and second.
A coordinator that died has no actor, because Ray ends the actors of a dead program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from wink_workspace.attempts.budget import Spending
from wink_workspace.attempts.engine_protocol import AttemptPlan, AttemptResult
from wink_workspace.attempts.forwarded_logs import LogLine

Key: TypeAlias = tuple[int, int]
"""The number and the epoch of a task."""


class MailKind(StrEnum):
    """What a worker says."""

    BEGUN = "begun"
    ALIVE = "alive"
    REQUEST = "request"
    """It waits for the answer to the request of a turn."""
    SPENT = "spent"
    LOGGED = "logged"
    ENTRIES = "entries"
    """It committed entries, so that a lost attempt continues after them."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A message from the worker of a task."""

    kind: MailKind
    key: Key
    spending: Spending = Spending()  # noqa: RUF009 - frozen, so it may be shared
    entries: bytes = b""
    line: LogLine | None = None


class Mailbox:
    """Runs as an asynchronous actor, so all methods share one thread."""

    def __init__(self) -> None:
        self._mail: list[Mail] = []
        self._arrived = asyncio.Event()
        self._answers: dict[Key, asyncio.Future[str]] = {}
        self._waiting: dict[str, tuple[Key, asyncio.Event]] = {}
        self._stopped: set[Key] = set()
        self._all_stopped = False

    async def post(self, mail: Mail) -> None:
        """Leave a message for the coordinator."""
        self._mail.append(mail)
        self._arrived.set()

    async def request(self, mail: Mail) -> str:
        """Leave a request, and wait for its answer."""
        answer = self._answers[mail.key] = asyncio.get_running_loop().create_future()
        await self.post(mail)
        return await answer

    async def until_stopped(self, key: Key, worker: str) -> bool:
        """Wait until the task shall end, or *worker* has left it; whether it shall end.

        *worker* names one start of the task: a node without the base starts it twice.
        """
        event = asyncio.Event()
        self._waiting[worker] = (key, event)
        if not self._is_stopped(key):
            await event.wait()
        return self._is_stopped(key)

    async def leave(self, worker: str) -> None:
        """One start of a task has ended."""
        if worker in self._waiting:
            self._waiting.pop(worker)[1].set()

    async def take(self, wait_s: float) -> list[Mail]:
        """The messages since the last call; waits up to *wait_s* for one."""
        if not self._mail:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), wait_s)
        self._arrived.clear()
        mail, self._mail = self._mail, []
        return mail

    async def answer(self, key: Key, answer: str) -> None:
        """Answer the request of a task."""
        waiting = self._answers.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    async def stop(self, keys: list[Key] | None = None) -> None:
        """Have tasks end between two calls; all tasks if *keys* is left out."""
        self._all_stopped = self._all_stopped or keys is None
        self._stopped.update(keys or ())
        for key, event in self._waiting.values():
            if self._is_stopped(key):
                event.set()

    def _is_stopped(self, key: Key) -> bool:
        return self._all_stopped or key in self._stopped


# ------------------------------------------------------------------------------- cluster messages


WIRE_VERSION: Final = 3
"""Raise it with every change of these types, and of the form of bundles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRules:
    """What is the same for every task of a run.

    Attributes:
        plan: The plan; its folder means nothing on a node.
        files: The tree of files of the base.
        start: The entry with these files, from ``pack_start``.
        cache: The directory of the node's cache.
        cache_bytes: Its budget.
        progress_s: How often the entries of a running attempt are sent at most.
    """

    plan: AttemptPlan
    files: str
    start: bytes
    cache: str
    cache_bytes: int
    progress_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a node must have.

    Attributes:
        python: The Python version, such as ``3.11``.
        version: The version of wink-workspace.
        wire: ``WIRE_VERSION``.
        functions: The attempt and the scorer, pickled.
        cache: The directory of the node's cache.
        sandbox: The name of a sandbox that must work there; empty for none.
        image: The image that it must have; empty for none.
        needs_overlay: Whether workspaces must be overlays there.
    """

    python: str
    version: str
    wire: int
    functions: bytes
    cache: str
    sandbox: str
    image: str
    needs_overlay: bool

    def fields(self) -> dict[str, Any]:
        """The same without types of ours, which a node of another version could not load."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBase:
    """Where the bundle of the base is in the cluster.

    Attributes:
        parts: References to its parts.
        part_bytes: The size of each part but the last.
        n_bytes: The size of all.
    """

    parts: Sequence[Any]
    part_bytes: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class BaseMissing:
    """The node does not have the base: send the task again, with the base."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A task that ended.

    Attributes:
        result: The result.
        bundle: What the fork added, from ``pack_result``; empty if it could not be opened.
        turns: What each of its turns spent, in their order.
        lines: What it logged, in its order.
    """

    result: AttemptResult
    bundle: bytes
    turns: tuple[Spending, ...]
    lines: tuple[LogLine, ...]
