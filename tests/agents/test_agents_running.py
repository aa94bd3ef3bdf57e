"""Entries of an agent program, with a sandbox whose program is a Python function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from wink_workspace.agents import AgentLimits, AgentProgram, AgentResult, run_agent
from wink_workspace.clock import ManualClock
from wink_workspace.errors import (
    AgentError,
    AttemptStoppedError,
    FilesystemError,
    LedgerError,
    UsageError,
)
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.ledger import EntryKind
from wink_workspace.sandbox import (
    AGENT_NAMES,
    CapturedOutput,
    ExecRequest,
    ExecResult,
    IsolationReport,
    OutputObserver,
    Sandbox,
)
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import ImportConfig, Workspace, WorkspaceConfig

PROGRAM = AgentProgram.of_command("my-agent --fast")
CALLS = ".wink-agent/calls"

Program = Callable[["ScriptedSandbox"], object]


@dataclass
class ScriptedSandbox(Sandbox):
    """Runs *program*, which calls ``look`` where a real one would be watched."""

    files: Filesystem
    program: Program
    clock: ManualClock = field(default_factory=ManualClock)
    exit_code: int = 0
    request: ExecRequest | None = None
    n_pauses: int = 0

    @property
    def report(self) -> IsolationReport:
        return IsolationReport()

    def look(self, seconds: float = 0.0) -> None:
        """Let *seconds* pass, and the host look."""
        assert self.request is not None
        assert self.request.watch is not None
        self.clock.advance(seconds)
        reason = self.request.watch()
        if reason is not None:
            raise StopIteration(reason)

    def report_call(self, call: object, name: str = "1.json") -> None:
        """Report a call; it must be an entry when the host has looked."""
        text = call if isinstance(call, str) else json.dumps(call)
        self.files.write_text(f"{CALLS}/{name}", text)
        self.look()
        assert not self.files.exists(f"{CALLS}/{name}")

    def run(self, request: ExecRequest, *, observer: OutputObserver | None = None) -> ExecResult:
        self.request = request
        stopped = None
        try:
            self.program(self)
        except StopIteration as end:
            stopped = end.value
        return ExecResult(
            exit_code=None if stopped else self.exit_code,
            signal=9 if stopped else None,
            stdout=CapturedOutput(b"I am done.\n", n_bytes=11),
            stderr=CapturedOutput(b"oh\n" if self.exit_code else b"", n_bytes=3),
            duration_s=1.0,
            stopped=stopped,
            timed_out=self.exit_code == 124,
        )

    @contextmanager
    def paused(self) -> Iterator[bool]:
        self.n_pauses += 1
        yield True

    def close(self) -> None:
        """There is nothing to end."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a.txt").write_text("a\n")
    with Workspace.temporary(tmp_path / "source") as opened:
        yield opened


def run(
    workspace: Workspace, program: Program, limits: AgentLimits | None = None, code: int = 0
) -> tuple[ScriptedSandbox, AgentResult]:
    sandbox = ScriptedSandbox(workspace.files, program, exit_code=code)
    result = run_agent(
        workspace,
        sandbox,
        PROGRAM,
        "Do it.",
        limits=limits,
        redact=lambda text: text.replace("s3cret", "[redacted]"),
        clock=sandbox.clock,
    )
    return sandbox, result


def subjects(workspace: Workspace) -> list[str]:
    return [f"{each.kind}: {each.subject}" for each in reversed(list(workspace.log()))][1:]


def newest(workspace: Workspace) -> ToolInvoked:
    return workspace.session[ToolInvoked].all()[-1]


def test_each_quiet_moment_after_edits_is_an_entry_and_so_is_the_end(workspace: Workspace) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.write_text("a.txt", "b\n")
        sandbox.look(0.5)
        sandbox.files.write_text("b.txt", "b\n")  # not quiet yet
        sandbox.look(0.5)
        sandbox.look(0.6)
        assert workspace.head.number == 1
        sandbox.look(0.5)
        assert workspace.head.number == 2
        for _ in range(5):
            sandbox.look(2)  # quiet, without edits
        sandbox.files.write_text("c.txt", "c\n")

    sandbox, result = run(workspace, program)

    assert subjects(workspace) == [
        "call: my-agent: edits until a quiet moment",
        "call: my-agent: Exit code 0",
    ]
    assert sandbox.n_pauses == 1
    assert (result.answer, result.n_entries) == ("I am done.", 1)
    workspace.undo()
    workspace.undo()
    assert workspace.diff() == ""


def test_edits_that_cancel_out_are_not_an_entry(workspace: Workspace) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.write_text("a.txt", "b\n")
        sandbox.files.write_text("a.txt", "a\n")
        for _ in range(3):
            sandbox.look(1)

    _, result = run(workspace, program)
    assert result.n_entries == 0


def test_a_reported_call_is_an_entry_with_its_arguments_and_redacted_result(
    workspace: Workspace,
) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.write_text("a.txt", "b\n")
        call = {"tool_name": "Bash", "tool_input": {"command": "make s3cret"}}
        sandbox.report_call({**call, "tool_response": {"stdout": "s3cret", "n": [1, None, 2.5]}})
        sandbox.report_call({"tool_name": "Read", "tool_input": {"file_path": "a.txt"}})  # no edit
        sandbox.files.write_text("a.txt", "c\n")
        sandbox.look(60)  # no quiet moments: the program reports its calls

    _, result = run(workspace, program)

    assert subjects(workspace) == [
        "call: my-agent Bash: make [redacted]",
        "call: my-agent Read: a.txt",
        "call: my-agent: Exit code 0",
    ]
    first = workspace.session[ToolInvoked].all()[0]
    assert first.value == {"stdout": "[redacted]", "n": [1, None, 2.5]}
    assert newest(workspace).params == {"task": "Do it."}
    assert result.n_entries == 2


@pytest.mark.parametrize(
    "report",
    [
        "no json",
        "[1]",
        '{"tool_name": "' + "x" * 3_000_000,
        "[" * 100_000,
        json.dumps({"tool_name": "\ud800\n\x1b[31m", "tool_input": {"\ud800": "\ud800" * 50_000}}),
        '{"tool_input": ' + '{"a":' * 500 + "1" + "}" * 501,
        '{"tool_input": NaN, "tool_response": [-Infinity, 1e999]}',
        json.dumps({"tool_name": {"a": 1}, "tool_input": list(range(10_000))}),
        "\0",
        "",
    ],
    ids=["text", "list", "long", "open", "unicode", "deep", "nan", "types", "nul", "empty"],
)
def test_a_malformed_report_is_an_entry_and_harms_nothing(
    workspace: Workspace, report: str
) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.write_text("a.txt", "b\n")
        sandbox.report_call(report)

    _, result = run(workspace, program)
    assert result.n_entries == 1
    assert "+b" in workspace.diff()
    assert all(each.isprintable() for each in subjects(workspace))


def test_a_program_that_deletes_or_replaces_the_folder_of_reports_ends_as_usual(
    workspace: Workspace,
) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.delete(CALLS, recursive=True)
        sandbox.look()
        sandbox.files.write_text(CALLS, "not a folder")
        sandbox.look()
        sandbox.files.delete(CALLS)
        sandbox.files.mkdir(f"{CALLS}/1.json")
        sandbox.look()

    _, result = run(workspace, program)
    assert result.n_entries == 0
    run(workspace, lambda sandbox: sandbox.report_call({}))  # the next one has a folder again


def test_a_link_in_place_of_its_home_is_refused_and_not_followed(
    workspace: Workspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.delete(".wink-agent", recursive=True)
        (workspace.files_path / ".wink-agent").symlink_to(outside)

    run(workspace, program)
    with pytest.raises(FilesystemError, match="leads outside the workspace"):
        run(workspace, lambda sandbox: sandbox.look())
    assert list(outside.iterdir()) == []


def test_the_files_of_the_program_are_not_recorded(workspace: Workspace) -> None:
    home = "/workspace/.wink-agent/home"

    def program(sandbox: ScriptedSandbox) -> None:
        assert sandbox.request is not None
        assert sandbox.request.env["HOME"] == home
        assert sandbox.request.argv[-3:] == ('my-agent --fast "$1"', "my-agent", "Do it.")
        sandbox.files.write_text(".wink-agent/home/session", "1")

    run(workspace, program)
    assert workspace.diff() == ""
    assert workspace.files.exists(".wink-agent/home/session")


def test_edits_before_the_program_are_not_its_own(workspace: Workspace) -> None:
    workspace.files.write_text("mine.txt", "mine\n")
    run(workspace, lambda sandbox: sandbox.files.write_text("a.txt", "b\n"))
    assert subjects(workspace)[0] == "external: 1 path changed outside of any call"
    workspace.undo()
    assert workspace.files.exists("mine.txt")


@pytest.mark.parametrize(
    ("limits", "code", "problem"),
    [
        (AgentLimits(most_entries=2), 0, "was ended: it has made 2 entries, which is the most"),
        (None, 124, "was ended: its time is over: 2h; its last output:\noh"),
        (None, 3, "failed: Exit code 3; its last output:\noh"),
    ],
)
def test_a_program_that_fails_or_reaches_a_limit_keeps_its_edits(
    workspace: Workspace, limits: AgentLimits | None, code: int, problem: str
) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        for n in range(2):
            sandbox.files.write_text("a.txt", f"{n}\n")
            if n == 1:
                sandbox.files.write_text(f"{CALLS}/1.json", "{}")
                sandbox.look()
            else:
                sandbox.report_call({})
        sandbox.files.write_text("b.txt", "late\n")

    with pytest.raises(AgentError, match=problem.splitlines()[0]) as raised:
        run(workspace, program, limits, code)
    assert problem in raised.value.message
    assert workspace.files.read_text("a.txt").lines == ("1",)
    workspace.commit_edits()
    assert workspace.head.kind is EntryKind.CALL or "late" in workspace.diff()


def test_an_entry_that_cannot_be_written_ends_the_program_and_keeps_its_edits(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.files.write_text("a.txt", "b\n")
        with monkeypatch.context() as patch:
            patch.setattr(workspace._journal, "commit", fail)  # a full disk is hard to make
            sandbox.files.write_text(f"{CALLS}/1.json", "{}")
            sandbox.look()

    def fail(*_: object) -> None:
        raise LedgerError("the disk is gone")

    with pytest.raises(LedgerError, match="the disk is gone"):
        run(workspace, program)
    assert "+b" in workspace.diff()
    assert subjects(workspace)[0] == "external: 1 path changed outside of any call"


def test_a_workspace_that_would_record_the_files_of_the_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    config = WorkspaceConfig(imported=ImportConfig(propose_derived=False))
    with Workspace.temporary(tmp_path / "source", config=config) as workspace:
        with pytest.raises(UsageError, match=r"would record \.wink-agent"):
            run(workspace, lambda _: None)
        assert not workspace.files.exists(".wink-agent")


@pytest.mark.parametrize("command", ["", " ", "a\0b"])
def test_a_command_without_a_program_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match="the command of the agent"):
        AgentProgram.of_command(command)


def test_the_name_of_a_command_is_that_of_its_program() -> None:
    assert AgentProgram.of_command("/usr/bin/aider --yes").name == "aider"
    assert AgentProgram.of_command("$(x)").name == "x"
    assert AgentProgram.of_command("'' a").name == "agent"


@pytest.mark.behaviour(210)
@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("claude-code", ".claude/projects/-workspace/1.jsonl"),
        ("codex", ".codex/sessions/2026/11/25/rollout.jsonl"),
        ("opencode", ".local/share/opencode/opencode.db"),
    ],
)
def test_a_known_program_continues_its_session_if_it_has_one(name: str, session: str) -> None:
    program, files = AgentProgram.named(name, model="m"), MemoryFilesystem()
    assert program.resumed(files) is None
    files.mkdir(".wink-agent/home")
    assert program.resumed(files) is None
    files.write_text(f".wink-agent/home/{session}", "{}")
    resumed = program.resumed(files)
    assert resumed is not None
    assert resumed.command == program.resume_command
    assert resumed.files == program.files
    assert PROGRAM.resumed(files) is None


def test_an_error_of_the_caller_ends_the_program_and_its_edits_stay(workspace: Workspace) -> None:
    def check() -> None:
        if workspace.files.exists("b.txt"):
            raise AttemptStoppedError("the run of this attempt was stopped")

    def program(sandbox: ScriptedSandbox) -> None:
        sandbox.look()
        sandbox.files.write_text("b.txt", "b\n")
        sandbox.look()
        raise AssertionError("it was not ended")

    sandbox = ScriptedSandbox(workspace.files, program)
    with pytest.raises(AttemptStoppedError):
        run_agent(workspace, sandbox, PROGRAM, "Do it.", check=check, clock=sandbox.clock)
    assert workspace.files.exists("b.txt")


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_a_known_program_has_hooks_and_a_provider_and_no_key(name: str) -> None:
    program = AgentProgram.named(name)
    assert program.name == name
    assert program.provider is not None
    assert any("../calls/" in text for text in program.files.values())
    assert "added-by-the-proxy" in str([*program.variables.values(), *program.files.values()])
    assert AgentProgram.named("codex.py") == AgentProgram.of_command("codex.py")
