"""Runs an agent program in a sandbox, over a branch, and makes entries of what it does.

The program is one command of the sandbox, outside of any call. Its edits are external ones until
the host commits them as a call, with ``Workspace.record_call``.

Rule 1: an entry is made while the program is paused, where the system can do that.
Rule 2: an entry holds every edit since the one before it, so no edit is in none.
Rule 3: a program that was killed, or whose host process was, loses nothing: the edits since the
last entry stay in the files, and become an external edit.
Rule 4: what the program reports is not trusted. It becomes the text of an entry, within limits.

A program may report each of its calls: by a file in ``CALLS_FOLDER``, in the JSON of Claude Code's
hooks. It waits until the file is deleted. The file has its name only when it is complete. Until
there is a report, each quiet moment after edits is an entry.

::

    .wink-agent/        a derived path
        home/           HOME of the program
        calls/          <time>-<pid>.json, one for each call that is not an entry yet
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from wink_workspace import serde
from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.counts import counted, lasted
from wink_workspace.errors import AgentError, FilesystemError, UsageError, WinkError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.sandbox import ExecRequest, OutputObserver, Sandbox
from wink_workspace.sections import CommandOutput
from wink_workspace.serde.json_values import bounded_json
from wink_workspace.workspace import Workspace

from .program_starts import AGENT_FOLDER, CALLS_FOLDER, HOME_FOLDER, AgentProgram

_MOST_TOOL_CHARS: Final = 100
_MOST_ERROR_CHARS: Final = 2_000
_MOST_REPORTS: Final = 100
"""At one time; the others follow."""
_SUFFIX: Final = ".json"
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._:-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """The limits of one run of an agent program.

    Attributes:
        timeout_s: It is ended after this time.
        most_entries: It is ended when it has made this number of entries.
        quiet_s: If no file changes for this time, the edits of a program that does not report its
            calls become an entry.
        look_s: The time between two checks for changed files.
        report_bytes: A longer report of a call is not read; its entry has no arguments.
        output_bytes: How much of each stream of its output is kept.
    """

    timeout_s: float = 7_200.0
    most_entries: int = 200
    quiet_s: float = 1.0
    look_s: float = 0.2
    report_bytes: int = 1_048_576
    output_bytes: int = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """How a run ended by itself.

    Attributes:
        answer: What the program wrote to its standard output; the middle may be left out.
        output: Its exit code and both streams.
        n_entries: How many entries it has made, without the last one, of its end.
    """

    answer: str
    output: CommandOutput
    n_entries: int


def run_agent(
    workspace: Workspace,
    sandbox: Sandbox,
    program: AgentProgram,
    task: str,
    *,
    limits: AgentLimits | None = None,
    redact: Callable[[str], str] = str,
    observer: OutputObserver | None = None,
    cancellation: Cancellation | None = None,
    check: Callable[[], object] = lambda: None,
    clock: Clock = SYSTEM_CLOCK,
) -> AgentResult:
    """Run *program* in *sandbox*, the sandbox of *workspace*, until it ends.

    Args:
        workspace: A copy. No call may be running.
        sandbox: Runs it.
        program: The program.
        task: What it shall do.
        limits: Its limits.
        redact: Applied to all text of an entry.
        observer: Gets its output as it arrives.
        cancellation: Ends it.
        check: Is called several times a second; a ``WinkError`` that it raises ends the program.
        clock: Measures quiet moments.

    Raises:
        AgentError: If it failed, or was ended by a limit; its edits stay in the files.
        UsageError: If the workspace is in place, or records the program's own files.
        SandboxError: If the sandbox failed.
        LedgerError: If an entry could not be written; the program was ended.
    """
    return _Run(workspace, sandbox, program, limits or AgentLimits(), redact, check, clock).of(
        task, observer, cancellation
    )


class _Run:
    def __init__(
        self,
        workspace: Workspace,
        sandbox: Sandbox,
        program: AgentProgram,
        limits: AgentLimits,
        redact: Callable[[str], str],
        check: Callable[[], object],
        clock: Clock,
    ) -> None:
        self._workspace = workspace
        self._sandbox = sandbox
        self._program = program
        self._limits = limits
        self._redact = redact
        self._check = check
        self._clock = clock
        self._failure: WinkError | None = None
        self._n_entries = 0
        self._has_reported = False
        self._activity = 0
        self._changed_s = self._looked_s = clock.monotonic_s()

    def of(
        self, task: str, observer: OutputObserver | None, cancellation: Cancellation | None
    ) -> AgentResult:
        program, limits = self._program, self._limits
        self._workspace.commit_edits()
        self._prepare()
        home = f"{self._workspace.files.known_as[0]}/{HOME_FOLDER}"
        request = ExecRequest(
            argv=(*self._sandbox.shell, program.command, program.name, task),
            env={**program.variables, "HOME": home},
            timeout_s=limits.timeout_s,
            cancellation=cancellation,
            output_bytes=limits.output_bytes,
            watch=self._watch,
        )
        result = self._sandbox.run(request, observer=observer)
        if self._failure is not None:
            raise self._failure
        stopped = result.stopped
        if result.timed_out:
            stopped = f"its time is over: {lasted(limits.timeout_s)}"
        output = serde.map_strings(CommandOutput.of(result), self._redact)
        if stopped is not None:
            self._workspace.commit_edits()
            raise self._error(f"was ended: {stopped}", output)
        self._take_reports()
        self._workspace.record_call(
            program.name,
            params={"task": self._redact(task)},
            value=output,
            message=output.summary(),
            outside_effects=output.outside_effects,
        )
        if not output.succeeded:
            raise self._error(f"failed: {output.summary()}", output)
        return AgentResult(
            answer=output.stdout.render().strip(), output=output, n_entries=self._n_entries
        )

    def _error(self, how: str, output: CommandOutput) -> AgentError:
        text = (output.stderr.render() or output.stdout.render()).strip()
        last = f"; its last output:\n{text[-_MOST_ERROR_CHARS:]}" if text else ""
        return AgentError(
            f"{self._program.name} {how}{last}",
            hint="Its edits are kept in the workspace, one entry for each step.",
        )

    def _prepare(self) -> None:
        """Write the files of the program's home, and make the folder of its reports empty."""
        files = self._workspace.files
        files.mkdir(HOME_FOLDER)
        if AGENT_FOLDER not in self._workspace.derived_paths():
            files.delete(AGENT_FOLDER, recursive=True)
            raise UsageError(
                f"this workspace would record {AGENT_FOLDER}, which has the agent's own files",
                hint="Use a new workspace: `run --agent … --repo .`.",
            )
        for name, text in self._program.files.items():
            files.write_text(f"{HOME_FOLDER}/{name}", text)
        if files.exists(CALLS_FOLDER):
            files.delete(CALLS_FOLDER, recursive=True)
        files.mkdir(CALLS_FOLDER)

    # While it runs

    def _watch(self) -> str | None:
        """Make the entries that are due; why the program must be ended, or ``None``."""
        try:
            self._check()
            self._take_reports()
            if not self._has_reported:
                self._take_quiet_moment()
        except WinkError as error:
            self._failure = error
            return "its edits cannot be recorded, or the caller ended it"
        if self._is_full:
            return f"it has made {counted(self._n_entries, 'entry', 'entries')}, which is the most"
        return None

    def _take_quiet_moment(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s < self._limits.look_s:
            return
        self._looked_s = now_s
        activity = self._workspace.edit_activity()
        if activity != self._activity:
            self._activity, self._changed_s = activity, now_s
        elif activity and now_s - self._changed_s >= self._limits.quiet_s:
            self._activity = 0
            with self._sandbox.paused():
                entry = self._workspace.record_call(
                    self._program.name, message="edits until a quiet moment", needs_changes=True
                )
            self._n_entries += entry is not None

    # Reports

    def _take_reports(self) -> None:
        """Make an entry of each call that the program has reported, and let it continue.

        The last entry of its limit is not answered, so no request follows it.
        """
        for path in self._reported():
            self._has_reported = True
            report = self._read(path)
            with self._sandbox.paused():
                self._workspace.record_call(
                    f"{self._program.name} {report.tool}", params=report.params, value=report.value
                )
            self._n_entries += 1
            if self._is_full:  # the program waits for this answer, and is ended
                return
            with suppress(FilesystemError):  # the program deleted it
                self._workspace.files.delete(path)

    @property
    def _is_full(self) -> bool:
        return self._n_entries >= self._limits.most_entries

    def _reported(self) -> list[WorkspacePath]:
        """The reports that are complete, oldest first; none if the program deleted the folder."""
        try:
            found = self._workspace.files.list(CALLS_FOLDER)
        except FilesystemError:
            return []
        paths = [each.path for each in found if each.kind is FileKind.FILE]
        return sorted(path for path in paths if path.name.endswith(_SUFFIX))[:_MOST_REPORTS]

    def _read(self, path: WorkspacePath) -> _Report:
        """What a report says; the tool is ``"call"`` if it cannot be read."""
        most = self._limits.report_bytes
        try:
            data = self._workspace.files.read_bytes(path, limit=most + 1)
            fields: object = json.loads(data[:most], parse_constant=str)
        except (FilesystemError, ValueError, RecursionError):
            return _Report()
        if not isinstance(fields, dict):
            return _Report()
        given = cast("dict[str, object]", fields)
        tool = _NOT_IN_A_NAME.sub(" ", str(given.get("tool_name", ""))).strip()
        return _Report(
            tool=tool[:_MOST_TOOL_CHARS] or "call",
            params=bounded_json(given.get("tool_input"), self._redact),
            value=bounded_json(given.get("tool_response", given.get("error")), self._redact),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """One call of the program, as it reports it."""

    tool: str = "call"
    params: object = None
    value: object = None
