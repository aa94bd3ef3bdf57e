"""What a person changes on the pages, by the functions that the commands use.

Rule 1: a change is shown before it is made. What was not shown is not done: if the workspace
changed meanwhile, the form is refused.
Rule 2: a form names files and hunks by their index in the changes that were shown, and has the
roots of these changes, which are compared.
Rule 3: a file whose box is clear is not applied, whatever the boxes of its hunks say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from wink_workspace.errors import ConflictError, LedgerBusyError, LimitExceededError, UsageError
from wink_workspace.ledger import LogEntry
from wink_workspace.report.reported import Text
from wink_workspace.workspace import (
    Applied,
    ApplyTarget,
    ChangeSet,
    FileHunks,
    MovePreview,
    PathChange,
    Selection,
    Workspace,
)
from wink_workspace.workspace.runs.live_runs import RunInProgress, check_message

from .pages import Pages, RunPage

# ------------------------------------------------------------------------------------- continuing

# Continue a run that has ended: the command ``run`` is started in a process of its own.
#
# Rule 1: a form names the run that its page showed. If that was continued since, the form is
# refused. Rule 2: the same form starts one process, however often it is sent while that process
# runs. Rule 3: the answer to a form comes when the run is in progress, or has the last error of a
# process that ended.


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


# ---------------------------------------------------------------------------------------- actions


Form = Mapping[str, Sequence[str]]
"""The fields of a form."""

_MAX_DIFF_CHARS: Final = 200_000
_MAX_FILES: Final = 5_000
_MAX_HUNK_CHARS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePage:
    """What an undo, redo, restore or merge would do; ``fields`` repeat it in the next form."""

    subject: str
    branch: str
    n_paths: int
    diff: Text
    stays: Sequence[str]
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A changed path with its hunks; without hunks it is chosen as a whole."""

    path: str
    status: str
    details: Sequence[str]
    risks: Sequence[str]
    hunks: Sequence[Text]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPage:
    """What can be applied; ``fields`` repeat it in the next form."""

    branch: str
    target: str
    files: Sequence[ChangedFile]
    left_out: Sequence[str]
    fields: Mapping[str, str]


class Actions:
    """Makes the changes that forms ask for, one at a time.

    Args:
        pages: The data of the pages.
        open_workspace: Opens the branch ``WORKSPACE/BRANCH``, and recovers it from a crash.
        continue_run: Continues a run in a process of its own; without it, no run is continued.

    Attributes:
        continuations: The runs that forms continue.
    """

    def __init__(
        self,
        pages: Pages,
        open_workspace: Callable[[str], Workspace],
        continue_run: ContinueRun | None = None,
    ) -> None:
        self.continuations = None if continue_run is None else Continuations(pages, continue_run)
        self._pages = pages
        self._open = open_workspace
        self._one_at_a_time = threading.Lock()

    def preview(self, workspace: str, form: Form) -> MovePage | None:
        """What the move of a form would change; ``None`` if there is nothing to merge.

        Raises:
            WinkError: If it is not possible, or another process has the branch open.
        """
        branch = _field(form, "branch")
        with self._one_at_a_time, self._open(f"{workspace}/{branch}") as opened:
            preview, _ = _move(opened, form)
            found = preview()
            if found is None:
                return None
            reported = self._pages.reported(opened)
            return MovePage(
                subject=reported.line(found.subject),
                branch=branch,
                n_paths=len(found.changes.paths),
                diff=reported.text(*found.changes.head(_MAX_DIFF_CHARS)),
                stays=[reported.line(effect) for effect in found.stays],
                fields={name: _field(form, name) for name in ("action", "branch", "entry", "other")}
                | {"after": found.after, "files": found.files},
            )

    def move(self, workspace: str, form: Form) -> LogEntry:
        """Do what was shown.

        Raises:
            ConflictError: If the workspace changed since.
            WinkError: As ``preview``.
        """
        shown = (_field(form, "after"), _field(form, "files"))
        with self._one_at_a_time, self._open(f"{workspace}/{_field(form, 'branch')}") as opened:
            preview, make = _move(opened, form)
            found = preview()
            if found is None or (found.after, found.files) != shown:
                raise _changed(workspace)
            return make(previewed=found) or opened.head

    def fork(self, workspace: str, form: Form) -> None:
        """Begin a branch at an entry; also while another process has the workspace open.

        Raises:
            WinkError: If the name is taken or not valid.
        """
        name = _field(form, "name")
        with self._one_at_a_time:
            with self._pages.reader(workspace) as reader:
                entry = self._pages.find(reader, _field(form, "entry"))
                branch = reader.branch_of(entry)
            try:
                with self._open(f"{workspace}/{branch}") as opened:
                    opened.fork(name, at=entry.id)
            except LedgerBusyError:
                with self._pages.reader(workspace, branch) as reader:
                    reader.fork(name, at=entry.id)

    def apply_page(self, workspace: str, form: Form) -> ApplyPage:
        """The changes that can be applied, with their hunks.

        Raises:
            WinkError: If they cannot, or another process has the branch open.
        """
        branch, target = _field(form, "branch"), _target(form)
        with self._one_at_a_time, self._open(f"{workspace}/{branch}") as opened:
            changes = opened.source.preview(target)
            reported = self._pages.reported(opened)
            paths = changes.changes()
            if len(paths) > _MAX_FILES:
                raise LimitExceededError(
                    f"{len(paths):,} paths changed; {_MAX_FILES:,} can be shown",
                    hint=f"Use the command: wink-workspace apply {workspace}",
                )
            files: list[ChangedFile] = []
            n_chars = 0
            for change, file in zip(paths, FileHunks.of(changes), strict=True):
                n_chars += sum(len(hunk.text) for hunk in file.hunks)
                shown = file.hunks if n_chars <= _MAX_HUNK_CHARS else ()
                hunks = [reported.text(hunk.text.decode("utf-8", "replace")) for hunk in shown]
                name, risks = self._pages.line(str(change.path)), map(reported.line, change.risks)
                files.append(
                    ChangedFile(name, change.status, _details(change), tuple(risks), hunks)
                )
            return ApplyPage(
                branch=branch,
                target=target,
                files=files,
                left_out=[
                    f"{self._pages.line(str(each.path))}: {each.reason}"
                    for each in changes.left_out
                ],
                fields={
                    "branch": branch,
                    "target": target,
                    "base": changes.base,
                    "wanted": changes.wanted,
                },
            )

    def apply(self, workspace: str, form: Form) -> Applied:
        """Apply the chosen files and hunks.

        Raises:
            ConflictError: If the workspace or the source changed since, or the source has other
                changes in the same lines; nothing was applied.
            UsageError: If nothing is chosen.
            WinkError: As ``apply_page``.
        """
        target = _target(form)
        with self._one_at_a_time, self._open(f"{workspace}/{_field(form, 'branch')}") as opened:
            changes = opened.source.preview(target)
            if (changes.base, changes.wanted) != (_field(form, "base"), _field(form, "wanted")):
                raise _changed(workspace)
            selected = _selected(changes, form)
            if not selected:
                raise UsageError("nothing is chosen", hint="Choose a file.")
            name = _field(form, "name").strip() if target == "branch" else ""
            return opened.apply(target, branch=name, previewed=changes, selected=selected)

    def send(self, workspace: str, form: Form) -> None:
        """Send a message to the model of a run in progress; raises ``UsageError``."""
        with self._run(workspace, form) as run:
            run.send(_field(form, "message"))

    def stop(self, workspace: str, form: Form) -> None:
        """Stop a run in progress as Ctrl-C does; raises ``UsageError`` if it is not possible."""
        with self._run(workspace, form) as run:
            run.stop()

    @contextmanager
    def _run(self, workspace: str, form: Form) -> Generator[RunInProgress]:
        run = self._pages.run_in_progress(workspace, _field(form, "branch"))
        if run is None:
            raise UsageError("no run is in progress", hint="Its page says how it ended.")
        with closing(run):
            yield run


def _move(
    workspace: Workspace, form: Form
) -> tuple[Callable[[], MovePreview | None], Callable[..., LogEntry | None]]:
    """The functions that preview and make the move of a form."""
    match _field(form, "action"):
        case "undo":
            return workspace.preview_undo, workspace.undo
        case "redo":
            return workspace.preview_redo, workspace.redo
        case "restore":
            entry = _field(form, "entry")
            return partial(workspace.preview_restore, entry), partial(workspace.restore, entry)
        case "merge":
            other = _field(form, "other")
            return partial(workspace.branches.preview_merge, other), partial(workspace.merge, other)
        case other:
            raise UsageError(f"{other!r} is not an action", hint="Go back to the page.")


def _selected(changes: ChangeSet, form: Form) -> Selection:
    return Selection.of(
        (
            file,
            {k: hunk for k, hunk in enumerate(file.hunks) if f"hunk.{n}.{k}" in form}
            if f"hunks.{n}" in form
            else None,
        )
        for n, file in enumerate(FileHunks.of(changes))
        if f"file.{n}" in form
    )


def _details(change: PathChange) -> list[str]:
    found = [change.detail] if change.detail else []
    lines = change.lines
    if lines is None:
        found.append("large")
    elif lines.is_binary:
        found.append("binary")
    elif lines.n_added or lines.n_removed:
        found.append(f"+{lines.n_added:,} -{lines.n_removed:,}")
    return found


def _target(form: Form) -> ApplyTarget:
    return "branch" if _field(form, "target") == "branch" else "worktree"


def _field(form: Form, name: str) -> str:
    return next(iter(form.get(name, ())), "")


def _changed(workspace: str) -> ConflictError:
    return ConflictError(
        f"the workspace {workspace}, or its source, changed since its changes were shown",
        hint="Go back and look at them again.",
    )
