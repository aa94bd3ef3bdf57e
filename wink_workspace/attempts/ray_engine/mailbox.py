"""The actor through which workers and their coordinator talk while attempts run.

Rule 1: results do not travel through it. If it dies, the coordinator starts the attempts of its
workers again.
Rule 2: it keeps messages until the coordinator takes them, a few for each task and second.
A coordinator that died has no actor, because Ray ends the actors of a dead program.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from wink_workspace.attempts.budget import Spending
from wink_workspace.attempts.forwarded_logs import LogLine

__all__ = ["Key", "Mail", "MailKind", "Mailbox"]

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
