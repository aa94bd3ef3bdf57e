"""A run while it happens: other processes of the user watch it, stop it, or send it a message.

::

    runs/<number>/live/
        owner       the process that runs it
        events      what it does, as JSON lines
        messages    what the user sent it, as JSON lines

``PublishedRun`` is the side of the run, ``RunInProgress`` that of any other process, such as
``run --attach`` and the web pages. The folder ends with the run; ``history`` has what happened.

Rule 1: nothing here is needed by the run. If an event cannot be written, publishing ends and the
run continues.
Rule 2: it is bounded. When ``events`` has reached 1 MiB, another file takes its place, and a reader
that was slower gets ``EventsMissed``. Of the output of commands, at most 256 KiB a second are
published.
Rule 3: text was redacted before it is published. It may hold control characters and markup: who
shows it, escapes it.
Rule 4: readers take no lock and write nothing, except a message. A run that was killed counts as
over, because its process is gone.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast, get_args

from wink_workspace import serde
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.ledger.store.disk import ledger_failures
from wink_workspace.ledger.store.lock import LockOwner, WriterLock, read_owner
from wink_workspace.session import Outcome, ToolInvoked, call_subject
from wink_workspace.workspace.place.storage import WorkspaceFolder, WorkspaceStorage

from .recorded_runs import RecordedRun

_log = logging.getLogger(__name__)

_MAX_FILE_BYTES: Final = 2**20
_MAX_OUTPUT_BYTES_PER_S: Final = 2**18
_MAX_MESSAGE_BYTES: Final = 2**16
_MAX_TEXT_CHARS: Final = 16_384
_MAX_LINE_CHARS: Final = 400
_N_LAST: Final = 3
_N_LAST_OF_FAILED: Final = 15


# Events


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpoke:
    """The words of one turn of the model, when they are complete."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetries:
    """A request to the model failed, and is sent again after ``wait_s``."""

    reason: str
    attempt: int
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """The model is about to get this message of the user."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan:
    """A call has begun; ``subject`` names its command or file, ``""`` if it has none."""

    tool: str
    subject: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutput:
    """Lines that the running command printed."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A call has ended.

    Attributes:
        tool: The tool.
        outcome: How it ended.
        success: Whether it succeeded.
        duration_s: The time that it took.
        depth: In how many other calls it ran.
        text: The answer that the model got, or its beginning.
        subject: The command or file that it worked on.
        ending: For a command, its exit code or signal; ``""`` otherwise.
        output: For a command, the last lines of its output.
        is_command: Whether it ran a command or code in a sandbox.
        entry: The number of its entry, if it was committed and is the outermost call.
    """

    tool: str
    outcome: Outcome
    success: bool
    duration_s: float
    depth: int = 0
    text: str = ""
    subject: str = ""
    ending: str = ""
    output: tuple[str, ...] = ()
    is_command: bool = False
    entry: int | None = None

    @classmethod
    def of(cls, event: ToolInvoked, *, entry: int | None = None) -> Self:
        """What is shown of *event*."""
        value = event.value
        summary = getattr(value, "summary", None)
        is_command = isinstance(getattr(event.params, "command", None), str)
        ending, output = "", ()
        if hasattr(value, "exit_code") and callable(summary):
            is_command = True
            ending = str(summary()) if event.success else event.message
            has_failed = not event.success or getattr(value, "exit_code", None) != 0
            output = _last_lines(value, _N_LAST_OF_FAILED if has_failed else _N_LAST)
        return cls(
            tool=event.tool,
            outcome=event.outcome,
            success=event.success,
            duration_s=event.duration_s,
            depth=event.depth,
            text=event.text[:_MAX_TEXT_CHARS],
            subject=call_subject(event.params),
            ending=ending,
            output=output,
            is_command=is_command,
            entry=entry,
        )


def _last_lines(value: object, limit: int) -> tuple[str, ...]:
    """The last lines of both streams of a command, standard error after standard output."""
    lines: list[str] = []
    for name in ("stdout", "stderr"):
        stream = getattr(value, name, None)
        text = str(getattr(stream, "tail", "") or getattr(stream, "text", ""))
        lines += [line for line in text[-_MAX_TEXT_CHARS:].splitlines() if line.strip()]
    return tuple(line[:_MAX_LINE_CHARS] for line in lines[-limit:])


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """One step of the plan; ``status`` is ``pending``, ``in_progress`` or ``done``."""

    number: int
    title: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged:
    """The model's plan as it is now."""

    objective: str
    steps: tuple[ShownStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsMissed:
    """Events before the next one are no longer stored. Only readers get this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The run has ended: with an answer, or because of ``problem``."""

    problem: str = ""


RunEvent = (
    ModelSpoke
    | ModelRetries
    | MessageReceived
    | CallBegan
    | CallOutput
    | CallEnded
    | PlanChanged
    | EventsMissed
    | RunEnded
)
_EVENTS: Final = {
    kind.__name__: kind for kind in cast("tuple[type[RunEvent], ...]", get_args(RunEvent))
}


# The run


class PublishedRun:
    """Publishes what a run does, from its construction to ``end``.

    Args:
        record: The run. Its process has the workspace open, so no other one publishes it.
        clock: For the bound of output.
    """

    def __init__(self, record: RecordedRun, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._record = record
        self._folder = record.folder / "live"
        self._clock = clock
        self._owner: WriterLock | None = None
        self._events: int | None = None
        self._n_events = self._n_bytes = self._n_output_bytes = self._n_taken_bytes = 0
        self._second_s = clock.monotonic_s()
        shutil.rmtree(self._folder, ignore_errors=True)  # of a process that was killed
        try:
            record.keep_problem("")
            self._folder.mkdir(mode=0o700)
            (self._folder / "messages").touch(mode=0o600)
            self._begin_file()
            self._owner = WriterLock(self._folder / "owner", what="the run", now=clock.now())
        except (OSError, LedgerError) as error:
            self._give_up(error)

    def publish(self, event: RunEvent) -> None:
        """Let others see *event*."""
        if self._events is None:
            return
        dumped = serde.map_strings(serde.dump(event), serde.well_formed)  # names of files, too
        fields = cast("dict[str, serde.JsonValue]", dumped)
        line = json.dumps({"n": self._n_events, "event": type(event).__name__, **fields})
        content = line.encode() + b"\n"
        if isinstance(event, CallOutput) and not self._may_add_output(len(content)):
            return
        try:
            if self._n_bytes + len(content) > _MAX_FILE_BYTES:
                self._begin_file()
            os.write(self._events, content)
        except OSError as error:
            self._give_up(error)
        self._n_events += 1
        self._n_bytes += len(content)

    def messages(self) -> tuple[str, ...]:
        """What others sent since this was last asked."""
        try:
            with (self._folder / "messages").open("rb") as file:
                file.seek(self._n_taken_bytes)
                content = file.read()
        except OSError:
            return ()
        whole = content[: content.rfind(b"\n") + 1]
        self._n_taken_bytes += len(whole)
        found: list[str] = []
        for line in filter(None, whole.splitlines()):
            try:
                found.append(str(json.loads(line)))
            except ValueError:  # its sender got an error
                _log.warning("an incomplete message to this run was skipped")
        return tuple(found)

    def end(self, problem: str = "") -> None:
        """Publish the end of the run, and delete what was published; may be repeated.

        The *problem* stays in the record of the run.
        """
        self.publish(RunEnded(problem=problem))
        try:
            if problem:
                self._record.keep_problem(problem[:_MAX_TEXT_CHARS])
        except OSError as error:
            self._give_up(error)
        self._give_up()

    def _begin_file(self) -> None:
        """Begin a file of events, in place of the one before."""
        new = self._folder / "events.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        before, self._events = self._events, os.open(new, flags, 0o600)
        self._n_bytes = 0
        if before is not None:
            os.close(before)
        new.rename(self._folder / "events")

    def _may_add_output(self, n_bytes: int) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s - self._second_s >= 1:
            self._second_s, self._n_output_bytes = now_s, 0
        self._n_output_bytes += n_bytes
        return self._n_output_bytes <= _MAX_OUTPUT_BYTES_PER_S

    def _give_up(self, error: Exception | None = None) -> None:
        if error is not None:
            _log.warning("others can no longer watch this run: %s", error)
        events, self._events = self._events, None
        if events is not None:
            os.close(events)
        if self._owner is not None:
            with suppress(LedgerError):  # the disk is full; the file is deleted anyway
                self._owner.release()
        shutil.rmtree(self._folder, ignore_errors=True)


# Other processes


class RunInProgress:
    """A run of another process; close it after use.

    Attributes:
        name: The workspace, and the fork: ``3f1c9e0a77d2`` or ``3f1c9e0a77d2/try-2``.
        record: Its task, its model, and its turns so far.
        owner: The process.
    """

    def __init__(self, name: str, record: RecordedRun, owner: LockOwner) -> None:
        self.name, self.record, self.owner = name, record, owner
        self._folder = record.folder / "live"
        self._events = self._following_file()
        self._line = b""
        self._n_events = 0

    @classmethod
    def of(cls, folder: WorkspaceFolder) -> Self | None:
        """The run in progress in a workspace or a fork; ``None`` if there is none."""
        record = RecordedRun.newest(folder)
        owner = None if record is None else read_owner(record.folder / "live" / "owner")
        if record is None or owner is None or owner.is_gone:
            return None
        name = folder.path.name + ("" if folder.branch == MAIN_BRANCH else f"/{folder.branch}")
        return cls(name, record, owner)

    @classmethod
    def all(cls, storage: WorkspaceStorage) -> Iterator[Self]:
        """Every run in progress, those in newer workspaces first."""
        for info in storage.all():
            folder, branches = storage.folder_of(info), list[str]()
            with suppress(FileNotFoundError):
                branches = sorted(path.name for path in (folder.path / "forks").iterdir())
            for branch in (MAIN_BRANCH, *branches):
                if (found := cls.of(folder.of_branch(branch))) is not None:
                    yield found

    @property
    def is_over(self) -> bool:
        """Whether it has ended; its last events may not have been read yet."""
        return self.owner.is_gone or read_owner(self._folder / "owner") != self.owner

    def new_events(self) -> list[RunEvent]:
        """What happened since this was last asked; at first, what is still stored.

        It never waits: ask again after a while. ``RunEnded`` is the last event. A run that is over
        and has no new events was killed.
        """
        events: list[RunEvent] = []
        while True:
            following = self._following_file(self._events)
            events += self._read()
            if following is None:
                return events
            self.close()
            self._events = following

    def _following_file(self, present: int | None = None) -> int | None:
        """The file in place of the *present* one, to which nothing is added any more."""
        try:
            found = os.open(self._folder / "events", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if present is not None and os.path.samestat(os.fstat(found), os.fstat(present)):
            os.close(found)
            return None
        return found

    def _read(self) -> Iterator[RunEvent]:
        """The rest of the open file."""
        if self._events is None:
            return
        while content := os.read(self._events, _MAX_FILE_BYTES):
            *lines, self._line = (self._line + content).split(b"\n")
            for line in lines:
                fields: dict[str, Any] = json.loads(line)
                number, kind = fields.pop("n"), _EVENTS.get(fields.pop("event"))
                if number != self._n_events:
                    yield EventsMissed()
                self._n_events = number + 1
                if kind is not None:  # otherwise of a newer version
                    yield serde.parse(kind, fields, extra="ignore")

    def stop(self) -> None:
        """Stop it as Ctrl-C does: the running call is rolled back, and the run can be resumed.

        This returns before the run has ended.

        Raises:
            UsageError: If it is over, or its process cannot be stopped from here.
        """
        self._check_is_in_progress()
        if self.owner.host != socket.gethostname():
            raise UsageError(f"the run is on {self.owner.host}", hint="Stop it there.")
        with ExitStack() as opened:
            try:
                process = os.pidfd_open(self.owner.pid)
                opened.callback(os.close, process)
                self._check_is_in_progress()  # now this is its process and no later one
                if _ignores_interrupts(self.owner.pid):
                    raise UsageError(
                        "the run was started in the background and ignores Ctrl-C",
                        hint=f"End its process: kill {self.owner.pid}",
                    )
                signal.pidfd_send_signal(process, signal.SIGINT)
            except (ProcessLookupError, FileNotFoundError):
                self._check_is_in_progress()
            except PermissionError as error:
                raise UsageError(
                    f"{self.owner} belongs to another user", hint="Stop it as that user."
                ) from error

    def send(self, message: str) -> None:
        """Send it a message of the user, which the model gets after its present turn.

        Raises:
            UsageError: As ``check_message``, or if the run is over.
            LedgerError: If it cannot be written, as on a full disk.
        """
        check_message(message)
        # The first newline ends what a sender wrote of a message on a full disk.
        content = b"\n" + json.dumps(message).encode() + b"\n"
        self._check_is_in_progress()
        try:
            file = os.open(self._folder / "messages", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise _over(self.name) from error
        try:
            with ledger_failures("the message cannot be sent"):
                if os.write(file, content) < len(content):  # to a local file, only on a full disk
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)

    def _check_is_in_progress(self) -> None:
        if self.is_over:
            raise _over(self.name)

    def close(self) -> None:
        """Close the file of events; may be repeated."""
        events, self._events, self._line = self._events, None, b""
        if events is not None:
            os.close(events)


def check_message(text: str) -> None:
    """Raise ``UsageError`` if *text* cannot be a message: empty, over 64 KiB, or not UTF-8."""
    try:
        n_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError("the message is not UTF-8", hint="Send text.") from error
    if not text.strip() or n_bytes > _MAX_MESSAGE_BYTES:
        raise UsageError(
            "the message is empty or over 64 KiB", hint="Send a shorter text, or a file's path."
        )


def _over(name: str) -> UsageError:
    return UsageError(f"the run in {name} has ended", hint="wink-workspace log shows what it did.")


def _ignores_interrupts(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGINT - 1))
