"""The table of docs/integrations.md: each framework's own loop, in each situation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_sandbox import registered
from framework_loops import LOOPS, Loop

from wink_workspace.session import Outcome
from wink_workspace.workspace import WorkspaceStorage

# inspect_ai leaves streams of its display to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject")

DOCS = Path(__file__).parents[2] / "docs" / "integrations.md"
SITUATIONS = ("tool", "command", "run", "parallel", "nested", "streamed")
PUT_LAST = [("put", {"path": "last"})]


def in_situation(situation: str) -> pytest.MarkDecorator:
    names = [name for name, each in LOOPS.items() if situation not in each.without]
    return pytest.mark.parametrize("loop", names, indirect=True)


@pytest.fixture
def loop(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Loop]:
    made = LOOPS[request.param]
    if request.param == "inspect_ai":
        request.getfixturevalue("left_streams")
    if made.is_contained:
        request.getfixturevalue("container")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = tmp_path / "source"
    source.mkdir()
    (source / "base").write_text("x")
    with registered(), made(source, WorkspaceStorage.default()) as loop:
        yield loop


def files(loop: Loop) -> list[str]:
    return sorted(str(entry.path) for entry in loop.workspace.files.walk())


def outcomes(loop: Loop) -> list[Outcome | None]:
    return [entry.outcome for entry in reversed(list(loop.workspace.log()))][1:]


@in_situation("tool")
def test_tool_raises_and_changes_no_file(loop: Loop) -> None:
    loop.go([("fail", {"path": "trace"})], PUT_LAST)
    kept = ["trace"] if loop.keeps_after_failure else []
    assert files(loop) == ["base", "last", *kept]
    assert outcomes(loop)[:2] == [
        Outcome.COMMITTED if kept else Outcome.ROLLED_BACK,
        Outcome.COMMITTED,
    ]


@in_situation("command")
def test_command_times_out_and_is_undone_although_the_tool_goes_on(loop: Loop) -> None:
    loop.go([("stall", {"path": "half"})], PUT_LAST)
    assert files(loop) == ["base", "last"]


@in_situation("run")
def test_run_is_cancelled_and_its_tool_changes_no_file(loop: Loop) -> None:
    loop.cancel(PUT_LAST, [("hang", {"path": "trace"})])
    assert files(loop) == ["base", "last"]
    loop.workspace.run(loop.put, "usable")


@in_situation("parallel")
def test_parallel_calls_take_turns_and_none_is_lost(loop: Loop) -> None:
    turn = [("append", {"path": "log", "text": text}) for text in "abc"]
    loop.go([*turn, ("stall", {"path": "trace"})], PUT_LAST)
    assert files(loop) == ["base", "last", "log"]
    assert sorted(loop.workspace.files.read_bytes("log").decode()) == ["a", "b", "c"]


@in_situation("nested")
def test_nested_agent_works_in_the_workspace_and_what_fails_there_is_undone_alone(
    loop: Loop,
) -> None:
    turn = [("append", {"path": "log", "text": text}) for text in "ab"]
    loop.inner = [
        [("put", {"path": "first"})],
        [("fail", {"path": "trace"})],
        [*turn, ("fail", {"path": "trace"})],
        [("stall", {"path": "half"})],
    ]
    loop.go([("delegate", {}), ("put", {"path": "beside"}), ("delegate", {})], PUT_LAST)
    assert files(loop) == ["base", "beside", "first", "last", "log"]
    assert sorted(loop.workspace.files.read_bytes("log").decode()) == [*"aabb"]
    assert loop.workspace.head.outcome is Outcome.COMMITTED


@in_situation("streamed")
def test_streamed_run_makes_the_same_entries(loop: Loop) -> None:
    loop.go([("fail", {"path": "trace"})], PUT_LAST, streams=True)
    assert files(loop) == ["base", "last"]
    assert outcomes(loop) == [Outcome.ROLLED_BACK, Outcome.COMMITTED]


def test_documented_table_has_these_cells() -> None:
    lines = [line for line in DOCS.read_text().splitlines() if line.startswith("| ")]
    header = next(n for n, line in enumerate(lines) if "Tool raises" in line)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[header + 1 :]]
    documented = {row[0]: row[1:] for row in rows[: len(LOOPS)]}
    assert {
        name: tuple(cell != "\N{EN DASH}" for cell in cells) for name, cells in documented.items()
    } == {
        name: tuple(each not in loop.without for each in SITUATIONS) for name, loop in LOOPS.items()
    }
