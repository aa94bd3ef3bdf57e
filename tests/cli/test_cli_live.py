"""While a tool runs: its command line and output on the screen, without escape sequences."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from wink_workspace import (
    MarkdownSection,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)
from wink_workspace.cli.run.run_display import RunDisplay, RunFeed
from wink_workspace.cli.run.typed_messages import TypedMessages
from wink_workspace.cli.screen.console import SafeConsole
from wink_workspace.cli.screen.live_area import LiveArea, plain_lines
from wink_workspace.clock import ManualClock
from wink_workspace.counts import lasted
from wink_workspace.session import OutputLines, ToolInvoked, ToolOutput, ToolStarted, call_subject


@dataclass(frozen=True)
class Params:
    command: str


def run_printing(session: Session, *pieces: bytes, command: str = "make all", **options) -> None:
    """Run one call whose command prints *pieces*."""

    def handle(params: Params, *, context: ToolContext) -> ToolResult[str]:
        for piece in pieces:
            context.output("stdout", piece)
        return ToolResult.ok("value", "done")

    tool = Tool[Params, str](name="work", description="Works.", handler=handle)
    section = MarkdownSection(title="Task", template="Do it.", tools=[tool])
    prompt = Prompt(ns="t", key="live", sections=[section])
    turns = [ModelTurn(tool_calls=[ToolCall("work", command=command)]), ModelTurn("Done.")]
    ScriptedAdapter(turns, **options).evaluate(prompt, session=session)


@pytest.mark.behaviour(135)
def test_subscribers_get_the_start_and_the_output_before_the_record() -> None:
    session, seen = Session(), []
    for kind in (ToolStarted, ToolOutput, ToolInvoked):
        session.dispatcher.subscribe(kind, seen.append)
    run_printing(
        session, b"one\ntw", b"o\n", b"\xff\rthree", redact=lambda t: t.replace("two", "*")
    )
    started, first, second, third, invoked = seen
    assert (started.tool, started.subject) == ("work", "make all")
    assert [each.lines for each in (first, second, third)] == [("one",), ("*",), ("\\xff",)]
    assert {each.call_id for each in seen} == {invoked.call_id}
    assert session[ToolInvoked].all() == (invoked,)


def test_output_events_are_bounded() -> None:
    events: list[ToolOutput] = []
    output = OutputLines("c1", str, events.append, thread=threading.get_ident())
    output("stdout", b"x" * 100_000)
    output("stdout", b"y" * 100_000 + b"\n" + b"z\n" * 1_000)
    assert all(len(event.lines) <= 50 for event in events)
    assert all(len(line) <= 400 for event in events for line in event.lines)


@pytest.mark.parametrize(
    ("params", "subject"),
    [
        (Params("pytest -q"), "pytest -q"),
        (Params("cd a\nmake"), "cd a…"),
        (Params("\n"), ""),
        ({"file_path": "src/app.py", "content": "x"}, "src/app.py"),
        ("raw", ""),
        (Params("x" * 300), "x" * 200 + "…"),
    ],
)
def test_subject_of_a_call_is_its_command_or_file(params: object, subject: str) -> None:
    assert call_subject(params) == subject


@pytest.mark.behaviour(135)
@given(
    st.text(alphabet=st.sampled_from("\x1b[]0;31mHJ\x07\x9b\\PX^_ab\u202e?\r\t\x00é"), max_size=40)
)
def test_no_control_character_of_a_program_reaches_the_screen(text: str) -> None:
    assert all(char.isprintable() for line in plain_lines(text.splitlines()) for char in line)


def test_escape_sequences_are_removed_whole() -> None:
    lines = [
        "\x1b[1;31mred\x1b[0m and \x1b]0;title\x07plain",
        "\x1b[2J\x1b[H",
        "a\tb",
        "\x1bPq#\x1b\\x",
    ]
    assert list(plain_lines(lines)) == ["red and plain", "a       b", "x"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2s"), (42.9, "42s"), (185, "3m5s"), (480, "8m"), (5_400, "1h30m"), (3_605, "1h"), (273_600, "3d4h")],
)  # fmt: skip
def test_a_duration_is_written_as_options_take_it(seconds: float, text: str) -> None:
    assert lasted(seconds) == text


def test_typed_lines_are_queued_and_keys_edit_them() -> None:
    typed = TypedMessages()
    typed.type("fix\x7f\x7f\x7fadd a test\x1b[A\r")
    typed.type("  \n")
    typed.type("wrong\x15half")
    assert (typed.queued, typed.line) == (["add a test"], "half")
    assert typed.take() == ["add a test"]
    assert typed.take() == []


def test_live_area_shows_command_time_and_the_last_lines() -> None:
    clock, text = ManualClock(), io.StringIO()
    console = SafeConsole(file=text, width=30, color_system=None)
    area = LiveArea(console, clock)
    area._what = "shell_execute: " + "x" * 50
    clock.advance(75)
    area.add([f"line {n}" for n in range(9)] + ["y" * 50])
    console.print(area)
    lines = text.getvalue().splitlines()
    assert lines[0].endswith("… 1m15s")
    assert lines[1:] == ["  line 5", "  line 6", "  line 7", "  line 8", "  " + "y" * 27 + "…"]
    assert all(len(line) <= 30 for line in lines)


@pytest.mark.behaviour(135)
def test_output_that_is_not_a_terminal_gets_the_first_lines_and_no_control_characters() -> None:
    text = io.StringIO()
    display = RunDisplay(SafeConsole(file=text, soft_wrap=True), live=False)
    session = Session()
    with RunFeed(display).of(session):
        run_printing(session, b"\x1b[31mred\n", b"".join(b"%d\n" % n for n in range(30)))
    shown = text.getvalue()
    assert "    red\n" in shown
    assert "    18\n" in shown
    assert "    19\n" not in shown
    assert shown.count("the last lines follow") == 1
    assert "\x1b" not in shown
    assert "$ make all" in shown


def test_live_area_ends_before_the_call_is_printed() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    display = RunDisplay(console, live=True)
    session = Session()
    with RunFeed(display).of(session):
        run_printing(session, b"working\n")
    shown = text.getvalue()
    assert "asking the model" in shown
    assert "work: make all" in shown
    assert shown.index("work: make all") < shown.index("✓")
    assert shown.endswith(("\x1b[2K", "\x1b[?25h", "\x1b[1A\x1b[2K"))
