"""The cost of a call, counted in Python calls instead of time, so that it is exact."""

from __future__ import annotations

import gc
import sys
from types import FrameType

import pytest
from support import SmallWorkspace, Text, small_workspace

from wink_workspace.prompt import Tool, ToolContext, ToolResult


def nothing(params: Text, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def write(params: Text, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write_text("d0/f0.txt", "changed")
    return ToolResult.error("undo") if params.text == "undo" else ToolResult.ok(None)


def read(params: Text, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.read_text("d0/f0.txt")
    return ToolResult.ok(None)


TOOLS = [
    Tool[Text, None](name=handler.__name__, description="Count", handler=handler)
    for handler in (nothing, write, read)
]


def n_python_calls(workspace: SmallWorkspace, name: str, **arguments: str) -> int:
    """How many Python and C functions one call of the tool calls."""
    n_calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    workspace.call(name, **arguments)  # builds everything that is built once
    gc.disable()  # its callbacks would be counted
    sys.setprofile(count)
    try:
        workspace.call(name, **arguments)
    finally:
        sys.setprofile(None)
        gc.enable()
    return n_calls


@pytest.mark.behaviour(66)
def test_a_call_costs_the_same_after_5_and_after_2_000_calls() -> None:
    costs = []
    with small_workspace(*TOOLS) as workspace:
        for n_earlier in (5, 2_000):
            while len(workspace.records) < n_earlier:
                workspace.call("nothing")
            costs.append(n_python_calls(workspace, "nothing"))
    assert costs[0] == costs[1]


@pytest.mark.parametrize(
    ("name", "text"), [("nothing", ""), ("read", ""), ("write", "keep"), ("write", "undo")]
)
def test_a_call_costs_the_same_with_100_and_with_20_000_files(name: str, text: str) -> None:
    costs = []
    for n_files in (100, 20_000):
        files = {f"d{n // 1_000}/f{n % 1_000}.txt": "x\n" for n in range(n_files)}
        with small_workspace(*TOOLS, files=files) as workspace:
            costs.append(n_python_calls(workspace, name, text=text))
    assert costs[0] == costs[1]
