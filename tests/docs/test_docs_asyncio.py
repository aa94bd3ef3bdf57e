"""The code in docs/asyncio.md rolls back a call on Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_WATCHDOG_S = 60.0
_SCRIPT = """
import asyncio, os, select, sys
from pathlib import Path
from support import tool
from wink_workspace.prompt import MarkdownSection, Prompt, ToolResult
from wink_workspace.adapters import ModelTurn, ScriptedAdapter
from wink_workspace.runtime import ToolCall
from wink_workspace.workspace import Workspace

documented, source, ready, asks = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
exec(documented)
with Workspace.temporary(source) as workspace:

    def handle(params, *, context):
        workspace.files.write_text("a.txt", "half done")
        os.write(ready, b"the call is under way")
        while not context.cancellation.cancelled:
            select.select([], [], [], 0.005)
        if asks == "asks":
            context.cancellation.check()
        return ToolResult.ok(None, message="done")

    section = MarkdownSection(title="Tools", template="Use them.", tools=[tool(handle)])
    prompt = Prompt(ns="tests", key="asyncio", sections=[section])
    prompt.bind(resources=workspace.resources)
    turns = [ModelTurn(tool_calls=[ToolCall("act")]), ModelTurn("not reached")]
    try:
        asyncio.run(evaluate(ScriptedAdapter(turns), prompt, workspace.session))
    except KeyboardInterrupt:
        print("interrupted")
    print(workspace.files.read_text("a.txt").text, workspace.head.outcome.value)
"""


@pytest.mark.parametrize("asks", ["asks", "returns"])
def test_ctrl_c_during_a_call_on_an_asyncio_thread_rolls_it_back(asks: str, tmp_path: Path) -> None:
    page = (ROOT / "docs/asyncio.md").read_text(encoding="utf-8")
    documented, *_ = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "a.txt").write_text("before")
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, documented, str(tmp_path), str(writing), asks],
        pass_fds=[writing],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
    ) as process:
        os.close(writing)
        assert os.read(reading, 100)
        os.close(reading)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=_WATCHDOG_S)
    assert output.splitlines() == ["interrupted", "before rolled_back"], errors
    assert errors == ""
