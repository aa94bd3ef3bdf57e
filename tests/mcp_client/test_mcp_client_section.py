"""Tools of foreign MCP servers under our executor, also of servers that misbehave."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from wink_workspace import Prompt, ToolCall, VfsToolsSection
from wink_workspace.clock import Cancellation
from wink_workspace.errors import ForkedProcessError, McpServerError, UsageError
from wink_workspace.mcp_client import McpLimits, McpSection
from wink_workspace.runtime import CallOutcome
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace

SERVER = Path(__file__).parent / "foreign_server.py"
NOT_KNOWN = "The request was sent, so it is not known what it did."


class Foreign:
    """A foreign server of one kind, and calls of its tools in a workspace."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.journal = folder / "journal"
        self._source = folder / "source"
        self._source.mkdir()
        self._opened = opened

    def section(self, kind: str = "plain", **options: Any) -> McpSection:
        command = [sys.executable, "-I", str(SERVER), kind, str(self.journal)]
        return self._opened.enter_context(McpSection("it", command=command, **options))

    def calls(self, kind: str = "plain", **limits: Any) -> Callable[..., CallOutcome]:
        section = self.section(kind, limits=McpLimits(**limits))
        self.workspace = self._opened.enter_context(Workspace.temporary(self._source))
        prompt = Prompt[None](ns="a", key="b", sections=[section, VfsToolsSection()])
        executor = self._opened.enter_context(self.workspace.executor(prompt))

        def call(text: str = "hi", **options: Any) -> CallOutcome:
            return executor.execute(ToolCall("it__echo", text=text), **options)

        self.executor = executor
        return call

    def notes(self) -> list[str]:
        return self.journal.read_text().splitlines()


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[Foreign]:
    with ExitStack() as opened:
        yield Foreign(tmp_path, opened)


def connections() -> list[str]:
    """The threads of open connections."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("wink-mcp-")]


# A server that behaves


@pytest.mark.behaviour(175)
def test_call_of_a_foreign_tool_is_validated_and_recorded_with_its_outside_effect(
    foreign: Foreign,
) -> None:
    call = foreign.calls()
    outcome = call("hi")
    assert outcome.text == 'echo: {"text": "hi"}'
    assert outcome.event.outside_effects == ("called echo of the MCP server it",)
    assert outcome.event.outcome is Outcome.COMMITTED
    wrong = foreign.executor.execute(ToolCall("it__echo", txt=3))
    assert "did you mean 'text'?" in wrong.text
    assert wrong.event.outside_effects == ()
    assert foreign.notes() == ["start", "call hi"]
    record = foreign.workspace.record(foreign.workspace.entry(2)).event
    assert record.outside_effects == outcome.event.outside_effects


def test_tool_without_parameters_can_be_called(foreign: Foreign) -> None:
    foreign.calls()
    assert foreign.executor.execute(ToolCall("it__nothing")).text == "nothing: {}"


def test_server_gets_an_empty_environment_and_no_directory_of_a_repository(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "do not pass on")
    section = foreign.section(env={"GIVEN": "yes"})
    (echo, _) = section.tools()
    assert echo.handler is not None
    foreign.workspace = foreign._opened.enter_context(Workspace.temporary(foreign._source))
    prompt = Prompt[None](ns="a", key="b", sections=[section])
    with foreign.workspace.executor(prompt) as executor:
        env, cwd = json.loads(executor.execute(ToolCall("it__echo", text="env")).text)
    assert {key: value for key, value in env.items() if key != "LC_CTYPE"} == {"GIVEN": "yes"}
    assert cwd == "/"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("image", "[image/png of 6 bytes, not shown]\na [31mpicture"),
        (
            "resources",
            "its text\n[the resource file:///b, not shown]\n[the resource file:///c]",
        ),
        ("structured", '{"n": 1}'),
        ("surrogate", "half \ufffd"),
        ("large", "z" * 100_000),
        ("garbage", "after garbage"),
        ("other id", "for this one"),
    ],
)
def test_answer_is_text_within_limits(foreign: Foreign, kind: str, text: str) -> None:
    assert foreign.calls()(kind).text == text


def test_commas_and_digits_in_a_text_are_not_counted_as_values(foreign: Foreign) -> None:
    text = foreign.calls(received_bytes=320_000)("table").text
    assert text == '1,"a\\",[{\n' * 8_000 + "7" * 5_000


def test_request_of_a_server_is_refused(foreign: Foreign) -> None:
    assert '"error"' in foreign.calls()("ask").text


# Calls that fail


@pytest.mark.behaviour(176)
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fail", "it is broken"),
        ("wrong", "its answer is not valid"),
        ("die", "Connection closed"),
        ("endless", "it sent more than 1,000,000 bytes for one request"),
        ("asks", "it sent more than 100 requests of its own"),
        ("values", "it sent more than 31,250 values for one request"),
        ("escaped", "it sent more than 31,250 values for one request"),
        ("digits", "it sent a number with more than 4,300 digits"),
    ],
)
def test_call_that_fails_after_it_was_sent_is_recorded_as_unknown(
    foreign: Foreign, text: str, reason: str
) -> None:
    call = foreign.calls(received_bytes=1_000_000)
    outcome = call(text)
    assert not outcome.result.success
    assert reason in outcome.text
    assert outcome.text.endswith(NOT_KNOWN)
    assert outcome.event.outcome is Outcome.UNKNOWN
    assert foreign.workspace.head.outcome is Outcome.UNKNOWN
    assert call("again").result.success


@pytest.mark.parametrize("text", ["sleep", "flood"])
def test_server_that_is_late_is_ended_and_started_again(foreign: Foreign, text: str) -> None:
    call = foreign.calls(call_timeout_s=0.3, received_bytes=10**12)
    outcome = call(text)
    assert "it did not answer within 0.3 s" in outcome.text
    assert outcome.event.outcome is Outcome.UNKNOWN
    assert call("again").result.success
    assert foreign.notes().count("start") == 2


def test_flood_of_notifications_is_not_logged(
    foreign: Foreign, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        foreign.calls(received_bytes=100_000)("flood")
    assert [record.name for record in caplog.records if record.name.startswith("mcp")] == []


def test_cancelled_call_stops_waiting_and_does_not_say_that_nothing_changed(
    foreign: Foreign,
) -> None:
    call, cancellation = foreign.calls(), Cancellation()
    threading.Timer(0.2, cancellation.cancel).start()
    outcome = call("sleep", cancellation=cancellation)
    assert outcome.text == (
        "Tool 'it__echo' was cancelled. It is not known what it did outside of the workspace."
    )
    assert outcome.event.outcome is Outcome.UNKNOWN


def test_ctrl_c_ends_the_waiting_and_leaves_the_state_of_the_last_call(foreign: Foreign) -> None:
    call = foreign.calls()
    foreign.workspace.run(lambda: foreign.workspace.files.write_text("a.txt", "kept"))
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        call("sleep")
    head = foreign.workspace.head
    assert head.outcome is Outcome.UNKNOWN
    assert foreign.workspace.files_at(head).read_bytes("a.txt") == b"kept"


def test_call_of_a_server_that_cannot_start_again_was_not_sent(foreign: Foreign) -> None:
    call = foreign.calls()
    call("die")
    foreign.journal.unlink()
    foreign.journal.mkdir()
    outcome = call("again")
    assert outcome.event.outcome is Outcome.ROLLED_BACK
    assert outcome.event.outside_effects == ()


def test_server_that_lists_other_tools_after_a_restart_is_refused(foreign: Foreign) -> None:
    call = foreign.calls("changed")
    call("die")
    outcome = call("again")
    assert "was started again and lists other tools" in outcome.text
    assert outcome.event.outcome is Outcome.ROLLED_BACK
    assert foreign.notes() == ["start", "call die", "start"]


# Servers that are refused


@pytest.mark.behaviour(177)
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("double", "two tools that would be called it__read_file"),
        ("odd-name", "has a tool 'rm -rf /'"),
        ("many", "has 65 tools; at most 64"),
        ("large", "take more than 262,144 bytes"),
        ("bad-schema", "'http://x/' leads nowhere"),
        ("pages", "more than 100 pages"),
        ("silent", "did not list its tools within 0.3 s"),
    ],
)
def test_server_with_invalid_or_too_many_tools_is_refused_and_ended(
    foreign: Foreign, kind: str, reason: str
) -> None:
    with pytest.raises(McpServerError, match=reason):
        foreign.section(kind, limits=McpLimits(start_timeout_s=0.3 if kind == "silent" else 30))
    assert connections() == []


def test_error_of_a_start_has_the_last_line_of_the_server_without_secrets(
    foreign: Foreign,
) -> None:
    with pytest.raises(McpServerError, match="cannot start with \\[secret\\]"):
        foreign.section("dies", env={"TOKEN": "hunter2-hunter2"})


def test_program_that_does_not_exist_is_named() -> None:
    with pytest.raises(McpServerError, match="no-such-program"):
        McpSection("it", command=["no-such-program"])


def test_tools_that_are_not_wanted_are_not_looked_at(foreign: Foreign) -> None:
    section = foreign.section("odd-name", tools=["fine"])
    assert [tool.name for tool in section.tools()] == ["it__fine"]
    with pytest.raises(McpServerError, match="no tool 'other'"):
        foreign.section("odd-name", tools=["other"])


def test_tool_cannot_replace_one_of_ours(foreign: Foreign) -> None:
    section = foreign.section("shadow", tools=["read_file"])
    prompt = Prompt[None](ns="a", key="b", sections=[section, VfsToolsSection()])
    names = [tool.name for node in prompt.template.walk() for tool in node.section.tools()]
    assert len(names) == len(set(names))
    assert "it__read_file" in names


def test_description_is_quoted_cut_and_without_invisible_characters(foreign: Foreign) -> None:
    section = foreign.section("long", limits=McpLimits(description_chars=100))
    (tool,) = section.tools()
    assert tool.description.startswith("Say it again. yyy")
    assert len(tool.description) == 200
    text = section.body(None)
    assert "\n> Say it again. yyy" in text
    assert "characters left out]" in text
    assert tool.annotations.open_world
    assert tool.annotations.read_only is None


# Arguments and life


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"command": ["a"], "url": "http://x/"},
        {"command": "a b"},
        {"command": ["a"], "headers": {"A": "b"}},
        {"url": "http://x/", "env": {"A": "b"}},
        {"url": "ftp://x/"},
        {"url": "http:///"},
    ],
)
def test_arguments_that_do_not_name_one_server_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        McpSection("it", **options)


def test_name_and_limits_are_checked() -> None:
    with pytest.raises(UsageError, match="not a name"):
        McpSection("Wrong_Name", command=["a"])
    with pytest.raises(UsageError, match="n_tools is 0"):
        McpLimits(n_tools=0)


def test_closed_section_ends_its_server_and_closes_again(foreign: Foreign) -> None:
    section = foreign.section()
    section.close()
    section.close()
    assert connections() == []


def test_section_that_is_dropped_ends_its_server(foreign: Foreign) -> None:
    command = [sys.executable, "-I", str(SERVER), "plain", str(foreign.journal)]
    McpSection("it", command=command)
    gc.collect()
    assert connections() == []


def test_section_collected_on_the_thread_of_its_connection_ends_its_server(
    foreign: Foreign,
) -> None:
    """The garbage collector may run on any thread, and calls the finalizers there."""
    command = [sys.executable, "-I", str(SERVER), "plain", str(foreign.journal)]
    gc.disable()  # otherwise another thread may collect it
    try:
        section: Any = McpSection("it", command=command)
        section.cycle = section
        connection, collected = section._connection, weakref.ref(section)
        del section
        connection._loop.call_soon_threadsafe(gc.collect)
        connection._thread.join(30)
    finally:
        gc.enable()
    assert collected() is None
    assert not connection._thread.is_alive()
    assert connection._loop.is_closed()
    assert connection._open is None
    connection.close()


def test_forked_child_cannot_use_the_connection(foreign: Foreign) -> None:
    section = foreign.section()
    connection = section._connection
    pid = os.fork()
    if pid == 0:
        try:
            connection.call("echo", {}, timeout_s=1, before_sending=int, while_waiting=int)
        except ForkedProcessError:
            connection.close()
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert section.tools()[1].params_type is NoneType
