"""The process that records what hooks report: ``python -m wink_workspace.guard.guard_process DIR``.

Rule 1: each project has a thread of its own, which does one event after another.
Rule 2: a call waits at most ten seconds until its project is ready. Then it runs, and is recorded
as not protected.
Rule 3: the process ends with the last conversation, or after ten idle minutes.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.environment import Environment
from wink_workspace.errors import WinkError
from wink_workspace.workspace import WorkspaceStorage

from .guarded_project import GuardedProject, find_project, same_call_id
from .hook_pipes import HookEvent, HookPipes, reply
from .open_calls import ObservedCall
from .programs.hook_format import AgentHooks, directory_of, session_of
from .programs.registry import PROGRAMS

_log = logging.getLogger(__name__)

_IDLE_S: Final = 600.0
_WAIT_S: Final = 10.0


class GuardProcess:
    """Answers events until it is idle.

    Args:
        pipes: Where they arrive.
        storage: Where workspaces are stored.
        redact: Applied to all text of an entry.
    """

    def __init__(
        self, pipes: HookPipes, storage: WorkspaceStorage, redact: Callable[[str], str]
    ) -> None:
        self._pipes = pipes
        self._storage = storage
        self._redact = redact
        self._projects: dict[Path, _ProjectThread] = {}
        self._tops: dict[Path, Path] = {}
        self._is_ending = False

    def run(self, *, idle_s: float = _IDLE_S) -> None:
        """Answer events; another process that does so ends this one at once."""
        with self._pipes.owned() as is_owner:
            if not is_owner:
                return
            events = self._pipes.arrived()
            while True:
                for event in events:
                    self._handle(event)
                timeout_s = 0.0 if self._is_ending else idle_s
                events = self._pipes.waiting(timeout_s)
                if not events and (self._is_ending or not self._is_busy):
                    self._pipes.withdraw()
                    events = self._pipes.arrived()  # rule 2 of ``hook_pipes``
                    if not events:
                        break
                    self._pipes.announce()
            for project in self._projects.values():
                project.close()

    @property
    def _is_busy(self) -> bool:
        return any(project.is_busy for project in self._projects.values())

    def _handle(self, event: HookEvent) -> None:
        if event.program == "guard":
            for project in self._projects.values():
                project.release()
            reply(event.answer, {"released": True})
            return
        program, directory = PROGRAMS.get(event.program), directory_of(event.fields)
        project = None if directory is None else self._project(directory)
        kind = None if program is None else program.kind(event.fields)
        if program is None or project is None or directory is None or kind is None:
            reply(event.answer, {})
            return
        self._is_ending = False
        session = session_of(event.fields)
        match kind:
            case "begin":
                call = _call(program, project.project, event.fields, directory)
                project.begin(call, event.answer)
            case "end":
                call = _call(program, project.project, event.fields, directory)
                failure = event.fields.get("error")
                value = event.fields.get("tool_response", event.fields.get("tool_output", failure))
                project.do(lambda it: it.end(call.id, value), event.answer)
            case "start":
                project.project.sessions.add(session)
                project.do(lambda it: it.look(), event.answer)
            case "pause":
                project.do(lambda it: it.end_session_calls(session), event.answer)
            case "stop":
                project.do(lambda it: it.end_session_calls(session), event.answer)
                project.project.sessions.discard(session)
                if not any(each.project.sessions for each in self._projects.values()):
                    self._is_ending = True

    def _project(self, directory: Path) -> _ProjectThread | None:
        top = self._tops.get(directory)
        if top is None:
            info = find_project(self._storage, directory)
            if info is None:
                return None
            top = self._tops[directory] = Path(info.source)
        if top not in self._projects:
            project = GuardedProject(self._storage, top, redact=self._redact)
            self._projects[top] = _ProjectThread(project)
        return self._projects[top]


class _ProjectThread:
    """A project, and the thread on which it is used."""

    def __init__(self, project: GuardedProject) -> None:
        self.project = project
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="guard")
        self._last: Future[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an event is still worked on."""
        return self._last is not None and not self._last.done()

    def do(self, work: Callable[[GuardedProject], object], answer: Path) -> None:
        """Do *work* after all earlier events, then answer."""
        self._last = self._pool.submit(self._attempt, work)
        self._last.add_done_callback(lambda _: reply(answer, {}))

    def begin(self, call: ObservedCall, answer: Path) -> None:
        """Begin a call; it waits for this at most ten seconds."""
        answered = threading.Event()

        def let_go() -> None:
            if not answered.is_set():
                answered.set()
                reply(answer, {})

        def work(project: GuardedProject) -> None:
            is_protected = not answered.is_set()
            try:
                project.begin(call, is_protected=is_protected)
            finally:
                let_go()

        timer = threading.Timer(_WAIT_S, let_go)
        timer.daemon = True
        timer.start()
        self._last = self._pool.submit(self._attempt, work)
        self._last.add_done_callback(lambda _: timer.cancel())

    def release(self) -> None:
        """Close the workspace, after the events before."""
        self._pool.submit(self._attempt, lambda it: it.release()).result()

    def close(self) -> None:
        """Finish what arrived, and close the workspace."""
        self.release()
        self._pool.shutdown()

    def _attempt(self, work: Callable[[GuardedProject], object]) -> None:
        try:
            work(self.project)
        except WinkError:
            _log.exception("an event of %s is not recorded", self.project.directory)


def _call(
    program: AgentHooks, project: GuardedProject, fields: dict[str, Any], directory: Path
) -> ObservedCall:
    tool, params = str(fields.get("tool_name", "call")), fields.get("tool_input")
    session = session_of(fields)
    return ObservedCall(
        id=str(fields.get("tool_use_id") or same_call_id(session, tool, params)),
        tool=tool,
        params=params,
        session=session,
        paths=project.paths_of(program.paths_in(tool, params), directory),
        is_broad=program.is_broad(tool),
        began_s=SYSTEM_CLOCK.monotonic_s(),
    )


def main(directory: str) -> None:
    """Run the process that answers in *directory*, with its log there."""
    place = Path(directory)
    logging.basicConfig(filename=place / "log", format="%(asctime)s %(message)s")
    redact = Environment.from_os().redactor()  # the variables are those of the agent program
    GuardProcess(HookPipes(place), WorkspaceStorage(place.parent), redact).run()


if __name__ == "__main__":
    main(sys.argv[1])
