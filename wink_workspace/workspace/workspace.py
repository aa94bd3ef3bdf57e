"""A workspace on disk: a copy of a directory in which every tool call is one commit.

The composition root. It joins components that do not know each other: the directory
(``DiskFilesystem``) with the ledger that serves its snapshots, and the ledger with the runtime
that decides when to keep them. The source is only read, until a caller asks for ``apply``.

An opened workspace always has the state after *some* completed call. The effects of a call that a
crash interrupted are undone when it is opened, and kept as a discard.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from wink_workspace._descriptors import ClosedAfterBlock
from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock, Heartbeat
from wink_workspace.errors import (
    FilesystemError,
    LedgerError,
    UsageError,
)
from wink_workspace.filesystem import (
    Filesystem,
    WorkspacePath,
)
from wink_workspace.ledger import (
    MAIN_BRANCH,
    Discarded,
    Documents,
    Draft,
    Ledger,
    LogEntry,
    Maintenance,
    SessionStore,
    Steps,
    diff,
    no_steps,
)
from wink_workspace.processes import OwnProcess
from wink_workspace.prompt import CompletedTools, KnownFiles, VisibilityOverrides
from wink_workspace.runtime import transactions_of
from wink_workspace.sandbox import NO_SANDBOX, Sandbox, SandboxConfig
from wink_workspace.sections import Plan, register_plans
from wink_workspace.session import Session

from .branch.recorded_branch import require_branch
from .changes.applied_trees import AppliedTrees
from .files.discard_records import Discards
from .files.histories import CopyHistory
from .history.workspace_reader import ReadableHistory
from .moves.branch_moves import Branches, Fork
from .moves.ledger_journal import LedgerJournal, recover
from .moves.moves import MovePreview, Moves
from .moves.reverting import Reverts
from .opened_files import check_owner, open_files
from .place.path_rules import OUTPUT_FOLDER, Progress, no_progress
from .place.storage import (
    TemporaryStorage,
    WorkspaceFolder,
    WorkspaceMode,
    WorkspaceStorage,
    collect_layers,
    storage_or_default,
)
from .place.workspace_config import WorkspaceConfig
from .program_calls import TaskTurns, WorkspaceCall, executor_for, in_thread, recorded
from .sandboxing import SandboxSlot, end_interrupted

if TYPE_CHECKING:
    from wink_workspace.adapters import ProviderAdapter
    from wink_workspace.clock import Budget, Deadline
    from wink_workspace.filesystem.overlay.mounting import OverlayMount
    from wink_workspace.prompt import Prompt, Tool, ToolPolicy
    from wink_workspace.runtime import CallOutcome, ToolCall, ToolExecutor

    from .apply.applying import Applied, ApplyTarget
    from .changes.changeset import ChangeSet
    from .changes.selection import Selection
    from .moves.branch_source import BranchSource
    from .runs.task_run import RunReport


T = TypeVar("T")

_log = logging.getLogger(__name__)

_OWN_SLICES: tuple[type[Any], ...] = (Plan, KnownFiles, CompletedTools, VisibilityOverrides)


class Workspace(ReadableHistory, ClosedAfterBlock):
    """An open workspace, from ``create`` or ``open``; used in a ``with`` block.

    Args:
        folder: Where it is stored.
        config: Its limits and intervals.
        branch: The main branch, or the name of a fork.
        slices: As for ``open``.
        clock: The time of entries.

    Attributes:
        info: Its id, source and mode.
        files: Its files; bind them to prompts as ``Filesystem``.
        session: Its state; evaluate prompts with it.
    """

    def __init__(
        self,
        folder: WorkspaceFolder,
        *,
        config: WorkspaceConfig | None = None,
        branch: str = MAIN_BRANCH,
        slices: Iterable[type[Any]] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if not isinstance(folder, WorkspaceFolder):  # pyright: ignore[reportUnnecessaryIsInstance] - a common first mistake
            raise UsageError(
                f"a workspace cannot be made of {folder!r}",
                hint="Use Workspace.create(source), temporary(source) or open(id).",
            )
        self.config = config or WorkspaceConfig()
        self._delete_storage: Callable[[], None] | None = None
        self._process = OwnProcess(f"the workspace {folder.path.name}")
        self._closing = threading.RLock()
        self._maintenance_enabled = True
        self._task_turns = TaskTurns()
        self._folder = folder.of_branch(branch)
        self._clock = clock
        check_owner(folder)
        with ExitStack() as opened:
            ledger = opened.enter_context(
                Ledger(
                    folder.ledger,
                    durable=self.config.durable,
                    clock=clock,
                    other_trees=self._other_trees,
                )
            )
            require_branch(ledger, branch)
            self._writer = opened.enter_context(ledger.write(branch))
            super().__init__(folder.info(), ledger, self._writer, applied=folder.applied)
            last_output = end_interrupted(self._folder)
            self._opened = open_files(
                self._folder, self._writer, self._recorded, config=self.config, clock=clock
            )
            opened.callback(self._opened.close)
            self._sandbox = SandboxSlot(self._folder, self._opened, clock)
            opened.callback(self._sandbox.close)
            self._history, self.files = self._opened.history, self._opened.filesystem
            self.files.known_as = (*self.files.known_as, *_names_of(self.info.source))
            self.files.output_folder = None if self._recorded.is_in_place else OUTPUT_FOLDER
            self.session = self._new_session(slices)
            self._sessions = SessionStore(ledger.store)
            self._discards = Discards(self._writer, clock, self._opened.pending_discards)
            self._journal = LedgerJournal(
                self._writer,
                self._history,
                self._sessions,
                self.session,
                files=self.files,
                discards=self._discards,
                derived=self._opened.derived,
                run_maintenance=self._run_maintenance,
            )
            self._compose()
            recover(
                self._writer,
                self._history,
                clock,
                discards=self._discards,
                derived=self._opened.derived,
                last_output=last_output,
            )
            self._sandbox.forget_services()
            self._discards.advance()
            self._opened.absorb_before_change(lambda: self._journal.absorb_external(()))
            self._sessions.load(self.session, self.head.session)
            if AppliedTrees(folder.applied).was_interrupted:
                _log.warning("An apply to %s was interrupted; apply again.", self.info.source)
            self._close = opened.pop_all().close

    def _compose(self) -> None:
        """Join the parts that make calls and moves."""
        transactions = transactions_of(self.session)
        transactions.journal, transactions.process = self._journal, self._process
        transactions.own(self.files)
        transactions.frozen = self._sandbox.frozen
        self._moves = Moves(
            self._recorded,
            self.session,
            self._opened,
            sessions=self._sessions,
            journal=self._journal,
            clock=self._clock,
            check_open=self._check_open,
        )
        self._reverts = Reverts(
            self._recorded,
            self._writer,
            self._moves,
            self._history.put_private,
        )
        self._branches = Branches(
            self._recorded,
            self._folder,
            self._writer,
            self._moves,
            opened=self._opened,
            durable=self.config.durable,
            sandbox=self._sandbox,
            clock=self._clock,
            open_branch=self._open_branch,
        )

    def _open_branch(self, name: str) -> Workspace:
        return Workspace(self._folder, config=self.config, branch=name, clock=self._clock)

    @property
    def branches(self) -> Branches[Workspace]:
        """The other branches: opens, compares and deletes them; ``UsageError`` if it is closed."""
        self._check_open()
        return self._branches

    @cached_property
    def source(self) -> BranchSource:
        """The directory that it was made of: previews, applies and takes back changes there."""
        from .moves.branch_source import BranchSource  # on use: with diffs it takes 25 ms to load

        return BranchSource(self._recorded, self._moves, self._clock, self.config.imported)

    def _other_trees(self) -> frozenset[str]:
        """The trees, beside those of entries, that the ledger has to keep."""
        from .create.overlay_branches import trees_of_bases
        from .in_place.private_paths import private_roots

        applied = AppliedTrees(self._folder.applied).referenced
        return applied | trees_of_bases(self._folder) | private_roots(self._folder.private)

    def _new_session(self, slices: Iterable[type[Any]]) -> Session:
        session = Session(clock=self._clock)
        for slice_type in (*_OWN_SLICES, *slices):
            session[slice_type].declare()
        register_plans(session)
        return session

    @classmethod
    def create(
        cls,
        source: str | os.PathLike[str],
        *,
        storage: WorkspaceStorage | None = None,
        mode: WorkspaceMode | Literal["auto"] = "auto",
        config: WorkspaceConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        progress: Progress = no_progress,
    ) -> Workspace:
        """Import a directory, uncommitted and ignored files included, and open the workspace.

        Args:
            source: A directory. Its own ``.git`` is not copied; nested ones are. Of the history in
                it, ``ImportConfig.git_depth`` generations are copied for git in a sandbox.
            storage: Where workspaces are stored; ``WorkspaceStorage.default()`` when omitted,
                like the command ``wink-workspace``.
            mode: With ``"overlay"``, what did not change since an earlier import is shared, and
                forks are made at once; the files have no path of their own. With ``"copy"``, they
                are a plain copy. ``"auto"`` is an overlay where the system supports it, unless
                the variable ``WINK_WORKSPACE_MODE`` says otherwise. With ``"in_place"`` nothing is
                copied: calls change the directory itself, with file tools only. Its own ``.git`` is
                never touched.
            config: The settings.
            clock: The time.
            progress: Called with the number of files and bytes copied so far.

        Raises:
            MountError: If *source* is not a readable directory, or the system does not support the
                overlay that was asked for.
            UsageError: If *source* holds, or lies in, the folder of the workspaces. In place, also
                if another workspace is in it, above it or below it, or if it is a repository.
                Without *storage*, also if no home directory is known.
            LedgerError: If the history cannot be written; nothing is left then.
        """
        from .creating import create_workspace

        storage = storage_or_default(storage)
        config = config or WorkspaceConfig()
        info = create_workspace(
            source, storage, mode=mode, config=config.imported, clock=clock, progress=progress
        )
        return cls(storage.folder(info.id), config=config, clock=clock)

    @classmethod
    def open(
        cls,
        which: str,
        *,
        storage: WorkspaceStorage | None = None,
        branch: str = MAIN_BRANCH,
        config: WorkspaceConfig | None = None,
        slices: Iterable[type[Any]] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> Workspace:
        """Open a workspace by its id, or the beginning of it; recovers from a crash.

        Args:
            which: The id.
            storage: Where workspaces are stored; as for ``create``.
            branch: The main branch, or the name of a fork, whose files are written when it is
                first opened.
            config: The settings.
            slices: Your own classes of STATE, so that their values are loaded at once. Without,
                they are loaded when a section that registers them is used.
            clock: The time.

        Raises:
            UsageError: If there is no such workspace, or another user made it.
            EntryMissingError: If there is no such fork.
            LedgerBusyError: If another process has it open; the message names it.
        """
        folder = storage_or_default(storage).folder(which)
        return cls(folder, config=config, branch=branch, slices=slices, clock=clock)

    @classmethod
    def temporary(
        cls,
        source: str | os.PathLike[str],
        *,
        config: WorkspaceConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        progress: Progress = no_progress,
    ) -> Workspace:
        """As ``create``, in a folder that ``close`` or the end of the interpreter deletes."""
        storage = TemporaryStorage()
        try:
            workspace = cls.create(
                source, storage=storage, config=config, clock=clock, progress=progress
            )
        except BaseException:
            storage.delete()
            raise
        workspace._delete_storage = storage.delete  # noqa: SLF001 - an object of this class
        workspace._ledger.is_kept = False  # noqa: SLF001 - as above
        return workspace

    @classmethod
    def delete(cls, which: str, *, storage: WorkspaceStorage | None = None) -> None:
        """Delete the workspace *which*, its id or the beginning of it, with all its forks.

        *storage* is as for ``create``.

        Raises:
            UsageError: If there is no such workspace.
            LedgerBusyError: If another process has it or one of its forks open.
            FilesystemError: If something cannot be deleted; it is no longer a workspace all the
                same.
        """
        from .creating import delete_workspace

        delete_workspace(which, storage_or_default(storage))

    def close(self) -> None:
        """Close everything; only a temporary workspace is deleted. May be called again.

        In a forked child it does nothing: the parent closes the workspace.

        Raises:
            UsageError: Inside a call on the same thread, which could not be rolled back then.
            SandboxError: If the sandbox cannot be ended. The workspace is closed all the same;
                opening it again ends what still runs.
        """
        if not self._process.is_present:
            return
        if self._writer.is_held and transactions_of(self.session).is_inside_call:
            raise UsageError(
                f"the workspace {self.info.id} cannot be closed inside a call",
                hint="Close it when the call is over.",
            )
        with self._closing:  # one thread at a time
            try:
                self._sandbox.close()  # before the last scan of the files
                self._keep_index()
                if self._writer.is_held and self._delete_storage is None:
                    self._discards.record_small()
                self._discards.close()
                self._ledger.flush()  # before the locks are released
                self._release_reserve()
            finally:
                self._close()
            if self._delete_storage is not None:
                self._delete_storage()

    def _release_reserve(self) -> None:
        """Free the reserved space of a closed fork, of which there may be thousands.

        A recovery may need it, and the main branch needs it to delete the workspace.
        """
        reserve, is_fork = self._opened.reserve, self._folder.branch != MAIN_BRANCH
        if (
            is_fork
            and reserve is not None
            and self._writer.is_held
            and self._writer.pending() is None
        ):
            reserve.release()

    def _check_open(self) -> None:
        self._process.check()
        if not self._writer.is_held:
            raise UsageError(
                f"the workspace {self.info.id} is no longer open in this process",
                hint="Use it before the end of its `with` block, or open it again.",
            )

    @property
    def resources(self) -> dict[type[Any], object]:
        """The resources for a prompt: ``prompt.bind(resources=workspace.resources)``.

        Evaluate that prompt with ``session=workspace.session``; any other session is refused.

        In place there is no sandbox: its changes could not be distinguished from the user's.
        """
        if self._recorded.is_in_place:
            return {Filesystem: self.files}
        return {Filesystem: self.files, Sandbox: self._sandbox.binding}

    @property
    def mount(self) -> OverlayMount | None:
        """The mount of its files, if it is an overlay; ``close`` ends it."""
        return self._opened.mount

    @property
    def files_path(self) -> Path:
        """The directory of its files; on an overlay a path of this process only."""
        return self._opened.tree.root

    def mode_of(self, path: WorkspacePath) -> int | None:
        """The permission bits of what is at *path*, a link itself included; ``None`` for nothing.

        The history records only whether a file is executable. Commands of a sandbox may set others,
        which bind them and not the methods of ``files``.
        """
        self._check_open()
        entry = self._opened.tree.entry(path)
        return None if entry is None else entry.mode

    def sandbox(self, config: SandboxConfig | None = None) -> Sandbox:
        """The sandbox that runs commands over the files; the first command starts it.

        There is one at a time: another *config* ends the previous one. ``close`` ends it, too.

        Args:
            config: The sandbox and its limits; when omitted, the previous or the default one.

        Raises:
            UsageError: If the workspace is in place, or the sandbox cannot run commands.
        """
        if self._recorded.is_in_place:
            raise UsageError(
                f"the workspace {self.info.id} is in place, where commands cannot run",
                hint="Fork it: the files of a fork are a copy.",
            )
        self._process.check()
        return self._sandbox.get(config)

    # Calls

    def call(
        self,
        label: str,
        *,
        params: object = None,
        cancellation: Cancellation | None = None,
        policies: Sequence[ToolPolicy] = (),
        call_id: str = "",
    ) -> WorkspaceCall:
        """A program's own code as one call: ``with workspace.call("rename module") as call``.

        The changes of the block to files and STATE are one entry, which can be undone. An
        exception, Ctrl-C included, rolls them back and is raised again; the record stays. A call
        inside another one, also in a task or thread that it started, is a savepoint of it.

        ``async with`` does the same in a task of asyncio: a task that is cancelled is rolled back,
        and other tasks wait for their turn (see docs/asyncio.md).

        Args:
            label: What the call does; the entry shows it as its tool.
            params: Its parameters, for the record; anything with a JSON form.
            cancellation: Fails the call when it is cancelled.
            policies: Asked before the block, and notified of its success. They see a tool named
                after the label (``rename-module``) and *params* as given. A refusal raises
                ``CallRefusedError`` before the block runs.
            call_id: The id of the call in the history, which ``find`` and ``restore`` accept; by
                default a new one.

        Raises:
            UsageError: If the workspace is closed, *label* is empty or too long, or *params* has
                no JSON form.
        """
        self._check_may_begin()
        return WorkspaceCall(
            self.files,
            self.session,
            label,
            params=params,
            cancellation=cancellation,
            policies=policies,
            resources=self.resources if policies else {},
            turns=self._task_turns,
            call_id=call_id,
        )

    def record_call(
        self,
        label: str,
        *,
        params: object = None,
        value: object = None,
        message: str = "",
        outside_effects: Sequence[str] = (),
        needs_changes: bool = False,
        paths: Collection[WorkspacePath] | None = None,
        uncertain: Collection[WorkspacePath] = (),
        call_id: str = "",
        lasted_s: float = 0.0,
    ) -> LogEntry | None:
        """Commit the edits since the newest entry as one call, which another program made.

        Without it they would be an external edit, which ``undo`` does not revert. That is what they
        stay if this fails, or if the process dies before.

        Args:
            label: What the program did; the entry shows it as its tool.
            params: Its parameters; anything with a JSON form.
            value: Its result; anything with a JSON form.
            message: One line for the history.
            outside_effects: What an undo of the entry does not take back, one line each.
            needs_changes: Make no entry if no file differs from the newest one.
            paths: In place, which paths it changed. Other edits stay external ones.
            uncertain: Those of *paths* that may have been changed by the user or another program
                meanwhile. ``undo`` keeps them by default.
            call_id: As for ``call``.
            lasted_s: How long it took, until now.

        Returns:
            The entry; ``None`` if none was made.

        Raises:
            UsageError: As ``call``, if a call is running, or if the workspace is in place and
                *paths* is not given.
        """
        if paths is None:
            self._check_recordable()
        chosen = None if paths is None else frozenset(paths).__contains__
        if needs_changes and self._present_root() == self.head.files:
            return None
        call = WorkspaceCall(
            self.files,
            self.session,
            label,
            params=params,
            turns=self._task_turns,
            call_id=call_id,
            adopt=partial(self._journal.adopt_external, chosen),
        )
        with call:
            call.began_before(lasted_s)
            call.uncertain_paths = tuple(map(str, uncertain))
            call.result(value, message)
            result = call.tool_result
            call.tool_result = replace(result, outside_effects=tuple(outside_effects))
        self._run_maintenance()
        return self.head

    def edited_paths(self) -> tuple[WorkspacePath, ...]:
        """The paths that differ from the newest entry, in order; edits that no entry has."""
        self._check_open()
        changed = diff(self._ledger.store, self.head.files, self._present_root())
        return tuple(change.path for change in changed)

    def edit_activity(self) -> int:
        """How often edits were noticed since the workspace was opened; 0 while none is pending.

        Edits are pending until a call, or ``record_call``, has committed them. The number grows
        while a program still writes.

        Raises:
            UsageError: If the workspace is closed or in place.
        """
        history = self._check_recordable()
        return history.n_noticed if history.changed_paths() else 0

    def _check_recordable(self) -> CopyHistory:
        self._check_open()
        if transactions_of(self.session).depth or not isinstance(self._history, CopyHistory):
            raise UsageError(
                "the edits of another program cannot be a call here",
                hint="Use a workspace that is a copy, outside of any call.",
            )
        return self._history

    def _check_may_begin(self) -> None:
        """Raise if no call may begin now."""
        self._check_open()

    def run(
        self,
        function: Callable[..., T],
        *arguments: object,
        label: str = "",
        params: object = None,
        cancellation: Cancellation | None = None,
        policies: Sequence[ToolPolicy] = (),
    ) -> T:
        """Run ``function(*arguments)`` as one call and return its result; see ``call``.

        Args:
            function: It changes ``files`` and ``session`` of the workspace.
            arguments: Its arguments.
            label: The function's name when omitted.
            params: For the record.
            cancellation: Fails the call when it is cancelled.
            policies: As for ``call``.

        Raises whatever *function* raises, after the rollback, and as ``call``. The entry records
        the result, or only its type if it has no JSON form.
        """
        name = label or getattr(function, "__name__", type(function).__name__)
        calling = self.call(name, params=params, cancellation=cancellation, policies=policies)
        with calling as call:
            returned = function(*arguments)
            call.result(*recorded(returned))
        return returned  # pyright: ignore[reportReturnType, reportPossiblyUnboundVariable] - the block raises what it catches

    async def run_async(
        self,
        function: Callable[..., T],
        *arguments: object,
        label: str = "",
        params: object = None,
        cancellation: Cancellation | None = None,
        policies: Sequence[ToolPolicy] = (),
    ) -> T:
        """As ``run``, in another thread, so that the event loop continues.

        *params*, *policies* and *arguments* are those of ``run``.

        A cancelled task cancels the call and ends when the call has been rolled back. A slow
        *function* should check *cancellation*, or pass it to what it waits for.

        Raises as ``run``. Inside ``async with workspace.call(…)`` it is a savepoint.
        """
        wanted = cancellation or Cancellation()

        def work() -> T:
            return self.run(
                function,
                *arguments,
                label=label,
                params=params,
                cancellation=wanted,
                policies=policies,
            )

        turn = await self._task_turns.take(transactions_of(self.session))
        try:
            return await in_thread(work, wanted)
        finally:
            turn.release()

    def executor(
        self,
        prompt: Prompt[Any],
        *,
        heartbeat: Heartbeat | None = None,
        redact: Callable[[str], str] | None = None,
    ) -> AbstractContextManager[ToolExecutor]:
        """Runs the tool calls of *prompt* without a model, for the length of a ``with`` block.

        The prompt gets the workspace's resources, unless its resources are open already. Each call
        is one entry.

        Args:
            prompt: Whose tools are called.
            heartbeat: Beats at every call, and when a handler asks for it.
            redact: See ``ToolExecutor``.
        """
        self._check_may_begin()
        return executor_for(
            prompt, self.resources, self.session, heartbeat=heartbeat, redact=redact
        )

    def execute(
        self,
        prompt: Prompt[Any],
        call: ToolCall,
        *,
        cancellation: Cancellation | None = None,
    ) -> CallOutcome:
        """Run one tool call of *prompt*; see ``executor`` and ``ToolExecutor.execute``."""
        with self.executor(prompt) as executor:
            return executor.execute(call, cancellation=cancellation)

    def work(
        self,
        task: str,
        *,
        model: str | ProviderAdapter[None],
        tools: Sequence[Tool[Any, Any]] = (),
        sandbox: str | SandboxConfig = NO_SANDBOX,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
    ) -> RunReport:
        """Let a model work on *task* until it answers; every call that it makes is one entry.

        It has the tools for files and a plan, those of *sandbox*, and *tools*. For other sections,
        make a ``Prompt`` with ``resources`` and evaluate it with ``session``. Tasks that should not
        see each other's changes run in forks.

        Args:
            task: What to do.
            model: Its name, such as ``anthropic:NAME``, or an adapter, which is not closed.
            tools: More tools.
            sandbox: The name of a sandbox, ``"auto"`` for the best that works here, or a
                configuration. By default the model runs no code. In place there is none.
            deadline: The end of the work.
            budget: The most tokens.

        Returns:
            The answer, the calls, what differs from the base, and the tokens used.

        Raises:
            PromptEvaluationError: If the provider fails, or a limit is reached.
            UsageError: If the workspace is closed, or there is no such provider or sandbox.
        """
        self._check_open()
        from .runs.task_run import work  # on use: with sections and adapters

        return work(
            self,
            task,
            model=model,
            tools=tools,
            sandbox=sandbox,
            deadline=deadline,
            budget=budget,
        )

    # Differences

    def _present_root(self) -> str:
        return self._moves.present_root()

    def derived_paths(self) -> tuple[WorkspacePath, ...]:
        """The derived paths that exist, each without what is below it, sorted."""
        self._check_open()
        return () if self._opened.derived is None else tuple(self._opened.derived.tops())

    def _derived_changes(self) -> tuple[WorkspacePath, ...]:
        return self._moves.derived_changes()

    def checkpoint(self) -> tuple[WorkspacePath, ...]:
        """Keep the present derived paths, so that later rollbacks restore them; their tops.

        It takes their disk space once more, unless the filesystem shares blocks. Excluded paths
        are not kept. The checkpoint before is deleted.

        Raises:
            UsageError: If a call is running, or the workspace is closed or in place.
            FilesystemError: If it cannot be written; the checkpoint before stays.
        """
        hint = "Its derived paths are your own."
        self._recorded.refuse_in_place("kept as a checkpoint of", hint)
        with self._moves.block(needs_room=False):
            return () if self._opened.derived is None else self._opened.derived.checkpoint()

    def diff(self) -> str:
        """``changeset`` as a git-style diff; a path that is too large has one line."""
        return self.changeset().review().text()

    # Moves in the history

    def undo(
        self,
        entry: int | str | None = None,
        *,
        uncertain: bool = False,
        previewed: MovePreview | None = None,
    ) -> LogEntry:
        """Undo the newest call, merge, sync or restore that changed files; the new entry.

        Later edits, by the user or by calls, stay: files are merged three-way. Its changes to
        STATE are undone, too.

        Args:
            entry: Undo this entry and keep all later ones: its number, or the beginning of its
                id. It may be one that changed no file, such as a plan, or an external edit.
            uncertain: Undo also what changed while the call ran and perhaps not by it; without
                this, these paths stay.
            previewed: The result of ``preview_undo``; nothing else is done.

        Raises:
            EntryMissingError: If there is nothing to undo, or *entry* is undone already or cannot
                be undone.
            ConflictError: If a later edit overlaps, or the workspace changed since the preview;
                nothing was changed.
            UncertainChangesError: If nothing is left to undo without *uncertain*.
        """
        return self._moves.make(partial(self._reverts.undo, entry, uncertain), previewed)

    def redo(self, *, previewed: MovePreview | None = None) -> LogEntry:
        """Undo the newest undo; takes and raises as ``undo``."""
        return self._moves.make(self._reverts.redo, previewed)

    def restore(
        self,
        which: int | str,
        *,
        paths: Sequence[str] | None = None,
        previewed: MovePreview | None = None,
    ) -> LogEntry:
        """Restore the files, or only *paths*, as they were after the entry *which*.

        That is its number, or the beginning of its id.

        Without *paths*, STATE is restored, too. Nothing is lost: it is one more entry.

        Raises:
            EntryMissingError: If there is no such entry.
            FileMissingError: If one of *paths* is neither in the workspace nor in that entry.
            ConflictError: If the workspace changed since *previewed*.
        """
        return self._moves.make(partial(self._reverts.restore, which, paths), previewed)

    def preview_undo(
        self, entry: int | str | None = None, *, uncertain: bool = False
    ) -> MovePreview:
        """What ``undo`` would change; raises as it does. Read it before the workspace is closed.

        *entry* and *uncertain* are as for ``undo``.
        """
        return self._moves.preview(partial(self._reverts.undo, entry, uncertain))

    def preview_redo(self) -> MovePreview:
        """What ``redo`` would change; as ``preview_undo``."""
        return self._moves.preview(self._reverts.redo)

    def preview_restore(
        self, which: int | str, *, paths: Sequence[str] | None = None
    ) -> MovePreview:
        """What ``restore`` of *which* and *paths* would change; as ``preview_undo``."""
        return self._moves.preview(partial(self._reverts.restore, which, paths))

    def discarded(self) -> tuple[Discarded, ...]:
        """What rollbacks, recoveries and undos discarded in this workspace, newest first.

        Outside of a call, what is not in the history yet is recorded first.
        """
        if self._writer.is_held and self._process.is_present:
            transactions = transactions_of(self.session)
            with transactions.turn():
                if not transactions.depth:
                    self._discards.record_all()
        return super().discarded()

    def restore_discarded(
        self, which: int | str, *, paths: Sequence[str] | None = None
    ) -> LogEntry:
        """Restore files that a rollback, a recovery or an undo discarded.

        It is one entry, which ``undo`` undoes. STATE stays as it is.

        Args:
            which: The number of the discard, or the beginning of its id.
            paths: Only these, each with everything below it. When omitted, every discarded file.
                Paths that the discard deleted are deleted again only if they are named here.

        Raises:
            EntryMissingError: If there is no such discard, or it has no file to restore.
            FileMissingError: If one of *paths* is not in the discard; the message says if it
                was too large to keep.
        """
        self._check_open()
        self.discarded()  # records what is not in the history yet, which a move cannot

        def plan() -> Draft:
            found = self.find_discarded(which)
            changes = self._discarded_tree_changes(found)
            return self._reverts.restore_discarded(found, changes, paths)

        return self._moves.make(plan)

    # Forks, merges and apply

    def commit_edits(self) -> None:
        """Commit edits that no call made, as every call does before it begins.

        Raises:
            UsageError: If a call is running, or the workspace is closed.
        """
        with self._moves.block():
            pass

    def fork(
        self, name: str, *, at: int | str | None = None, of: str = "", with_runs: bool = False
    ) -> Fork[Workspace]:
        """Begin another branch, which ``open`` of the result opens.

        Services that run here are started for the fork, too, with its first command.

        The derived paths, such as ``node_modules``, are shared until one of both changes them, at
        no cost; see ``Fork.left_out``. Excluded paths are left out. A sandbox that is open here
        ends, and starts again with its next command.

        Args:
            name: The name of the branch.
            at: The entry at which it begins, by default the newest. The derived paths are always
                the present ones.
            of: The branch with that entry, by default this one. What it has not committed is not
                part of it.
            with_runs: Copy the recorded runs of that branch, too, so that they can be resumed.

        Raises:
            UsageError: If *name* is taken, or is not a valid name.
            EntryMissingError: If there is no such entry or branch.
        """
        return self._branches.fork(name, at=at, of=of, with_runs=with_runs)

    def merge(
        self,
        branch: str,
        *,
        paths: Sequence[str] | None = None,
        previewed: MovePreview | None = None,
        selected: Selection | None = None,
        shown: ChangeSet | None = None,
    ) -> LogEntry | None:
        """Merge what another branch of this workspace committed into this one, as one entry.

        Returns ``None`` if everything is merged already.

        The base is the newest common entry, also by way of earlier merges. Files are merged;
        STATE stays as it is here. It can be undone.

        Args:
            branch: The main branch, or the name of a fork.
            paths: Only these, each with everything below it; the others can be merged later.
            previewed: The result of ``branches.preview_merge``; nothing else is done.
            selected: The chosen parts of *shown*; the others can be merged later.
            shown: The result of ``branches.changes_to_merge``.

        Raises:
            EntryMissingError: If there is no such fork.
            FileMissingError: If the other branch did not change one of *paths*.
            ConflictError: If both changed the same lines, or one of the branches changed since
                the preview; nothing was changed.
            UsageError: If it is this branch itself, or the workspace is in place.
        """
        plan = partial(self._branches.merge_draft, branch, paths, selected, shown)
        return self._moves.make(plan, previewed)

    def documents(self, kind: str) -> Documents:
        """As in ``ReadableHistory``; they can be written here."""
        self._check_open()
        return super().documents(kind)

    @property
    def folder(self) -> WorkspaceFolder:
        """Where it is stored; another process opens a branch of it with ``Workspace(folder)``."""
        return self._folder.of_branch(MAIN_BRANCH)

    def sync(self) -> LogEntry | None:
        """Merge later changes of the source into this branch, as one entry.

        Returns ``None`` if the source did not change since the import or the last sync.

        Afterwards the changes of this branch are relative to the synced source, without what
        this branch applied to it. It can be undone.

        Raises:
            ConflictError: If both changed the same lines; nothing was changed.
            UsageError: If the source is missing, or the workspace is in place.
            LedgerBusyError: If another process is applying to the source.
        """
        hint = "External edits are committed before each call."
        self._recorded.refuse_in_place("synced with", hint)
        return self._moves.make(self.source.sync_draft)

    def apply(
        self,
        to: ApplyTarget = "worktree",
        *,
        branch: str = "",
        merge: bool = False,
        include_ignored: bool = False,
        previewed: ChangeSet | None = None,
        selected: Selection | None = None,
    ) -> Applied:
        """Merge what this branch changed since its base into the source.

        The base is the import or what was last synced. Where the source still has what this
        branch applied before, that is the base instead: so an undo is applied, too, and what
        the source lost is applied again. A path that this branch did not change is not touched.

        In place there is nothing to apply: the files are the source's. A fork of a workspace in
        place applies what changed since it began.

        Args:
            to: ``"worktree"`` writes the files; ``"patch"`` writes nothing and returns the patch,
                whole and in memory (see ``source.write_patch``);
                ``"branch"`` is ``source.apply_to_branch(branch)``.
            branch: The new branch's name.
            merge: In the working tree, write what can be merged, and conflict markers where a
                text cannot, with its version before in a file beside it (``NAME.orig``).
                ``Applied.conflicts`` names what was not merged.
            include_ignored: Include created files that the source's rules ignore.
            previewed: The result of ``source.preview``; nothing else is applied.
            selected: The chosen parts of *previewed*, which is needed then. The others can be
                applied later.

        Raises:
            ConflictError: If the source has other changes in the same lines, if another program
                saved a file during the apply, or if the workspace changed since the preview. The
                source is as it was, with what was saved.
            UsageError: If the source is missing, if the workspace is in place, or if such a branch
                cannot be created.
            LedgerBusyError: If another branch is being applied; the message names the process.
            FilesystemError: If a file cannot be written; all changes were undone.
        """
        return self.source.apply(
            to,
            branch=branch,
            merge=merge,
            include_ignored=include_ignored,
            previewed=previewed,
            selected=selected,
        )

    # Maintenance

    def maintain(self, *, steps: Steps = no_steps) -> Maintenance:
        """Delete what retention does not keep, and pack the rest; *steps* reports the progress.

        It also runs by itself between calls, in steps of some milliseconds. Other processes may
        work in other branches meanwhile. If one of them does maintenance, this does nothing.
        """
        was_enabled = self._maintenance_enabled
        self._maintenance_enabled = False  # this call reports all
        try:
            with self._moves.block(needs_room=False):
                self._discards.record_all(delete=True)
                collect_layers(self._folder)
                return self._ledger.maintain(self.config.retention, steps=steps)
        finally:
            self._maintenance_enabled = was_enabled

    def _run_maintenance(self) -> None:
        """Do a step of maintenance if it is due. It cannot fail a call: errors are logged."""
        try:
            if self._maintenance_enabled:
                self._ledger.maintain_if_due(self.config.retention)
        except LedgerError as error:
            self._maintenance_enabled = False  # otherwise it would fail again before every call
            _log.warning("Old history cannot be deleted: %s", error)

    def _keep_index(self) -> None:
        """Save the index of the files if they are those of the newest entry."""
        from .files.seen_statuses import save_last_seen

        if not self._writer.is_held:
            return
        with suppress(LedgerError, FilesystemError):
            root = self._history.snapshot().root
            if self._opened.tracker.index is not None and root == self.head.files:
                save_last_seen(self._folder.index, self._opened.tracker.index, self.head)


def _names_of(source: str) -> tuple[str, ...]:
    """The absolute paths of the source, as it was given and without links."""
    return tuple(dict.fromkeys((source, os.path.realpath(source))))  # keeps the first of equals
