"""Work on a copy of a real directory and print a patch."""

import tempfile
from pathlib import Path

from wink_workspace import (
    HostMount,
    MemoryFilesystem,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    Session,
    ToolCall,
    VfsToolsSection,
)

with tempfile.TemporaryDirectory() as folder:
    source = Path(folder)
    (source / "greet.py").write_text("def greet():\n    print('helo')\n")

    files = MemoryFilesystem(mounts=[HostMount(source)])
    before = files.snapshot()
    prompt = Prompt(ns="examples", key="directory", sections=[VfsToolsSection(files)])
    calls = [
        ToolCall("grep", pattern="helo"),
        ToolCall("read_file", file_path="greet.py"),
        ToolCall("edit_file", file_path="greet.py", old_string="helo", new_string="hello"),
    ]
    turns = [ModelTurn(tool_calls=[call]) for call in calls]
    ScriptedAdapter([*turns, ModelTurn("Done.")]).evaluate(prompt, session=Session())

    print(files.diff(before), end="")
    assert "+    print('hello')" in files.diff(before)
    assert "helo" in (source / "greet.py").read_text(), "the directory itself is never written"
