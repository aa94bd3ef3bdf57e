"""Continue a run that has ended: the command ``run`` is started in a process of its own.

Rule 1: a form names the run that its page showed. If that was continued since, the form is refused.
Rule 2: the same form starts one process, however often it is sent while that process runs.
Rule 3: the answer to a form comes when the run is in progress, or has the last error of a process
that ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from wink_workspace.errors import ConflictError, UsageError
from wink_workspace.workspace.runs.live_runs import check_message

from .pages import Pages, RunPage

__all__ = ["Continuation", "Continuations", "ContinueRun", "RunProcess"]


class RunProcess(Protocol):
    """A process that continues a run."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def ending(self) -> str | None:
        """``None`` while it runs, ``""`` after success, otherwise what it said last."""
        ...


ContinueRun = Callable[[str, str], RunProcess]
"""Continues the last run of a workspace or fork, with a message unless that is ``""``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A process that was started for a form."""

    workspace: str
    branch: str
    revision: str
    message: str
    process: RunProcess


class Continuations:
    """The runs that forms continue.

    Args:
        pages: The data of the pages.
        start: Starts a process.
    """

    def __init__(self, pages: Pages, start: ContinueRun) -> None:
        self._pages = pages
        self._start = start
        self._lock = threading.Lock()
        self._running: list[Continuation] = []

    def begin(
        self, workspace: str, branch: str, revision: str, message: str
    ) -> Continuation | None:
        """Continue the run with this *revision*, with a *message* unless that is ``""``.

        Returns ``None`` while the process of the ended run still has the workspace: ask again.

        Raises:
            ConflictError: If it was continued, or another one was started, since it was shown.
            UsageError: If a run is in progress, or the message cannot be sent.
        """
        with self._lock:
            self._running = [each for each in self._running if each.process.ending() is None]
            started = self._started(workspace, branch)
            if started is not None and (started.revision, started.message) == (revision, message):
                return started
            run = self._pages.newest_run(workspace, branch)
            if run is None or run.owner or self._is_starting(run, started):
                raise UsageError(
                    f"no run on {branch} has ended",
                    hint="If one is in progress, its page sends messages.",
                )
            if run.revision != revision:
                raise ConflictError(
                    "the run was continued, or another one was started, since it was shown",
                    hint="Look at its page again.",
                )
            if message or run.is_finished:
                check_message(message)
            if started is not None:
                return None
            process = self._start(run.name, message)
            started = Continuation(
                workspace=workspace,
                branch=branch,
                revision=revision,
                message=message,
                process=process,
            )
            self._running.append(started)
            return started

    def outcome(self, started: Continuation) -> str | None:
        """``None`` while it starts, ``""`` if the run began, otherwise why its process ended."""
        ending = started.process.ending()  # first: what ends after this is seen at the next look
        if ending is not None:
            return ending
        run = self._pages.run_in_progress(started.workspace, started.branch)
        if run is None:
            return None
        with closing(run):
            return "" if run.owner.pid == started.process.pid else None

    def is_starting(self, workspace: str, branch: str, run: RunPage) -> bool:
        """Whether a process was started that has not yet begun to continue *run*."""
        with self._lock:
            return self._is_starting(run, self._started(workspace, branch))

    @staticmethod
    def _is_starting(run: RunPage, started: Continuation | None) -> bool:
        if started is None or started.process.ending() is not None:
            return False
        return started.revision == run.revision

    def _started(self, workspace: str, branch: str) -> Continuation | None:
        place = (workspace, branch)
        return next(
            (each for each in self._running if (each.workspace, each.branch) == place), None
        )
