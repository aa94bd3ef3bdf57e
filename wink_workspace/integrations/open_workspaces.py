"""Workspaces that several objects of a framework use under one name, each opened once.

A framework builds its environments again and again from an id, but one process can open a branch
only once. So the objects share what is open, until its owner closes all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TypeVar

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace.errors import UsageError
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.runtime import transactions_of
from wink_workspace.sandbox import SandboxConfig
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage

from .command_environment import CommandEnvironment


class OpenWorkspaces(ClosedAfterBlock):
    """Creates and opens workspaces, and closes them at the end of a ``with`` block.

    A name is the id of a workspace, or ``ID/BRANCH`` for a fork.

    Args:
        source: The directory that new workspaces are made of; without it, none can be created.
        storage: Where workspaces are stored; the default storage when omitted.
        sandbox: Where commands run; by default in a container.
        config: The settings of the workspaces.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | None = None,
        *,
        storage: WorkspaceStorage | None = None,
        sandbox: SandboxConfig | None = None,
        config: WorkspaceConfig | None = None,
    ) -> None:
        self._source = source
        self._storage = storage or WorkspaceStorage.default()
        self._sandbox = sandbox
        self._config = config
        self._lock = threading.Lock()
        self._open: dict[str, CommandEnvironment] = {}
        self._closing = ExitStack()

    def close(self) -> None:
        """Close all of them; they stay in the storage."""
        with self._lock:
            self._open.clear()
            self._closing.close()

    def delete(self, name: str) -> None:
        """Delete a workspace with its forks, or only a fork; what runs in it is cancelled.

        Raises as ``Workspace.delete``, or for a fork as ``Branches.delete``.
        """
        which, _, branch = name.partition("/")
        with self._lock:
            for each in tuple(self._open):
                if each == name or (not branch and each.startswith(f"{name}/")):
                    environment = self._open.pop(each)
                    try:
                        environment.end()
                    finally:
                        environment.workspace.close()
        if branch:
            self.get(which).workspace.branches.delete(branch)
        else:
            Workspace.delete(which, storage=self._storage)

    def create(self) -> tuple[str, CommandEnvironment]:
        """Make a new workspace of the source; its name, and its files and commands.

        Raises:
            UsageError: If there is no source.
        """
        if self._source is None:
            raise UsageError(
                "a new workspace needs a source", hint="Pass the directory that it is made of."
            )
        with self._lock:
            workspace = Workspace.create(self._source, storage=self._storage, config=self._config)
            return workspace.info.id, self._add(workspace.info.id, workspace)

    def get(self, name: str) -> CommandEnvironment:
        """The files and commands of a workspace, which is opened if it is not open yet.

        Raises as ``Workspace.open``.
        """
        with self._lock:
            if name in self._open:
                return self._open[name]
            which, _, branch = name.partition("/")
            workspace = Workspace.open(
                which,
                branch=branch or MAIN_BRANCH,
                storage=self._storage,
                config=self._config,
            )
            return self._add(name, workspace)

    def current(self) -> str | None:
        """The name of the workspace in a call of which the caller runs, if there is one."""
        with self._lock:
            for name, each in self._open.items():
                if transactions_of(each.workspace.session).around() is not None:
                    return name
            return None

    def use(self, workspace: Workspace, name: str = "") -> str:
        """Share a workspace that the caller has opened, and closes; its name."""
        name = name or name_of(workspace)
        with self._lock:
            self._open[name] = CommandEnvironment(workspace, self._sandbox)
        return name

    def _add(self, name: str, workspace: Workspace) -> CommandEnvironment:
        self._closing.enter_context(workspace)
        self._open[name] = CommandEnvironment(workspace, self._sandbox)
        return self._open[name]


def name_of(workspace: Workspace) -> str:
    """The name of a workspace: its id, or ``ID/BRANCH`` for a fork."""
    branch = workspace.branch_name
    return workspace.info.id if branch == MAIN_BRANCH else f"{workspace.info.id}/{branch}"


# -------------------------------------------------------------------------------------- rewinding


T = TypeVar("T")


def rewind_to(
    workspace: Workspace,
    items: Sequence[T],
    n_kept: int,
    call_ids: Callable[[Sequence[T]], Iterable[str]],
    *,
    noun: str,
) -> list[T]:
    """The first *n_kept* items of a conversation; the files and STATE become those after them.

    That is after the last tool call in these items, or before the first one after them. It is one
    more entry, so it can be undone; if no call was made since, there is none.

    Args:
        workspace: The workspace in which the calls were made.
        items: The conversation.
        n_kept: The number of items to keep.
        call_ids: The ids of the calls in items.
        noun: What an item is called, in the plural.

    Raises:
        UsageError: If *n_kept* is negative.
        EntryMissingError: If the entries are no longer kept.
    """
    if n_kept < 0:
        raise UsageError(f"{n_kept} {noun}", hint=f"Pass the number of {noun} to keep.")
    kept = list(items[:n_kept])
    done, undone = set(call_ids(kept)), set(call_ids(items[n_kept:]))
    number: int | None = None
    for entry in workspace.log():
        if entry.call_id in done:
            number = entry.number
            break
        if entry.call_id in undone:
            number = entry.number - 1
    if number not in (None, workspace.head.number):
        workspace.restore(number)
    return kept
