"""The entries of one project: what an agent's calls changed, and what others did in between."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import LedgerBusyError, UsageError
from wink_workspace.filesystem import WorkspacePath, parse_path
from wink_workspace.filesystem.paths import DERIVED_NAMES, SECRET_NAMES
from wink_workspace.serde.json_values import bounded_json
from wink_workspace.workspace import (
    ImportConfig,
    Workspace,
    WorkspaceConfig,
    WorkspaceInfo,
    WorkspaceStorage,
)

from .open_calls import ObservedCall, OpenCalls, Share

_CONFIG: Final = WorkspaceConfig(imported=ImportConfig(exclude=DERIVED_NAMES, derived=SECRET_NAMES))
_BUSY_S: Final = 10.0
_LOOK_S: Final = 0.05
_NOT_PROTECTED: Final = "not protected: it began before the project was recorded"


def find_project(storage: WorkspaceStorage, directory: Path) -> WorkspaceInfo | None:
    """The guarded workspace of *directory*, or of the nearest directory above."""
    here = directory.resolve()
    guarded = {
        os.path.realpath(info.source): info
        for info in storage.all()
        if info.mode == "in_place" and info.rules.derived
    }
    for path in (here, *here.parents):
        if str(path) in guarded:
            return guarded[str(path)]
    return None


class GuardedProject:
    """A project whose agents are observed; used on one thread.

    Args:
        storage: Where workspaces are stored.
        directory: The top of the project.
        redact: Applied to all text of an entry.
        clock: The time.
    """

    def __init__(
        self,
        storage: WorkspaceStorage,
        directory: Path,
        *,
        redact: Callable[[str], str] = str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.directory = directory.resolve()
        self.sessions: set[str] = set()
        self._storage = storage
        self._redact = redact
        self._clock = clock
        self._calls = OpenCalls()
        self._workspace: Workspace | None = None
        self._unprotected: set[str] = set()

    @property
    def workspace(self) -> Workspace:
        """Its workspace, opened or made when it is first needed.

        Raises:
            LedgerBusyError: If another process has it open for ten seconds.
            UsageError: If the directory cannot be recorded.
        """
        if self._workspace is None:
            self._workspace = self._opened()
        return self._workspace

    def _opened(self) -> Workspace:
        info = find_project(self._storage, self.directory)
        if info is None or Path(info.source) != self.directory:
            return Workspace.create(
                self.directory, storage=self._storage, mode="in_place", config=_CONFIG
            )
        until_s = self._clock.monotonic_s() + _BUSY_S
        while True:
            try:
                return Workspace.open(info.id, storage=self._storage, config=_CONFIG)
            except LedgerBusyError:  # a command of the user has it for a moment
                if self._clock.monotonic_s() > until_s:
                    raise
                threading.Event().wait(_LOOK_S)

    def release(self) -> None:
        """Close the workspace, so that a command can open it; the next event opens it again."""
        workspace, self._workspace = self._workspace, None
        if workspace is not None:
            workspace.close()

    # Events

    def look(self) -> None:
        """Record the edits of people and other programs, unless a call may have made them."""
        if not self._calls:
            self.workspace.commit_edits()

    def begin(self, call: ObservedCall, *, is_protected: bool = True) -> None:
        """A call is about to run; *is_protected* if it waits until this has returned."""
        if call.id in self._calls.of_session(call.session):
            return  # a hook that is installed for the user and for the project, too
        if is_protected:
            self.look()
        else:
            self._unprotected.add(call.id)
        self._calls.begin(call)

    def end(self, call_id: str, value: object = None, *, message: str = "") -> None:
        """A call has ended; unknown ones are left out.

        Args:
            call_id: The id with which it began.
            value: Its result; anything with a JSON form.
            message: One line for the history.
        """
        if call_id not in self._calls:
            return
        shares = self._calls.end(call_id, self.workspace.edited_paths())
        for share in shares:
            self._record(share, value if share is shares[0] else None, message)
        self._unprotected.discard(call_id)
        self.look()

    def end_session_calls(self, session: str) -> None:
        """End the calls of a conversation that reported no end: they were ended, or crashed."""
        for call_id in self._calls.of_session(session):
            self.end(call_id, message="no end was reported")

    def _record(self, share: Share, value: object, message: str) -> None:
        first, n_calls = share.calls[0], len(share.calls)
        if any(call.id in self._unprotected for call in share.calls):
            message = f"{message}; {_NOT_PROTECTED}" if message else _NOT_PROTECTED
        params = first.params
        if n_calls > 1:
            params = {"calls": [{"id": each.id, "tool": each.tool} for each in share.calls]}
            message = f"{n_calls} calls that overlapped"
        began_s = min(call.began_s for call in share.calls)
        self.workspace.record_call(
            " + ".join(dict.fromkeys(call.tool for call in share.calls)),
            params=bounded_json(params, self._redact),
            value=bounded_json(value, self._redact),
            message=message,
            paths=share.paths,
            uncertain=share.uncertain,
            call_id=first.id if n_calls == 1 else "",
            lasted_s=max(0.0, self._clock.monotonic_s() - began_s) if began_s else 0.0,
        )

    # Paths

    def paths_of(self, names: list[str], cwd: Path) -> tuple[WorkspacePath, ...]:
        """Those of *names* that are in the project, as a call in *cwd* means them."""
        found: list[WorkspacePath] = []
        for name in names:
            absolute = os.path.normpath(cwd / name)
            for top in (self.directory, *self._names):
                if absolute.startswith(f"{top}/"):
                    try:
                        found.append(parse_path(os.path.relpath(absolute, top)))
                    except UsageError:
                        continue
                    break
        return tuple(found)

    @property
    def _names(self) -> tuple[Path, ...]:
        return (Path(os.path.realpath(self.directory)),)


def same_call_id(session: str, tool: str, params: Any) -> str:
    """An id for a call of a program that gives none: the same before and after the call."""
    return f"{session}:{tool}:{hash(json.dumps(params, sort_keys=True, default=str)):x}"
