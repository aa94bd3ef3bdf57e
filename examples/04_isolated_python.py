"""Isolated Python on files: a calculation, a rolled-back failure, a refused escape."""

from wink_workspace import (
    AstevalSection,
    MemoryFilesystem,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    Session,
    ToolCall,
    VfsToolsSection,
)
from wink_workspace.session import ToolInvoked

files = MemoryFilesystem({"sales.csv": "north,10\nsouth,32\n"})
prompt = Prompt(ns="examples", key="python", sections=[AstevalSection(), VfsToolsSection(files)])
total = """
import csv
rows = list(csv.reader(open("sales.csv")))
total = sum(int(amount) for _, amount in rows)
write_text("total.txt", f"{total}\\n")
total
"""
half_done = """
write_text("half.txt", "written, and then")
1 / 0
"""
escape = """
print.__self__.open("/etc/passwd").read()
"""
calls = [
    ToolCall("evaluate_python", code=total, reads=["sales.csv"], writes=["total.txt"]),
    ToolCall("evaluate_python", code=half_done, writes=["half.txt"]),
    ToolCall("evaluate_python", code=escape),
]
turns = [ModelTurn(tool_calls=[call]) for call in calls]
session = Session()
ScriptedAdapter([*turns, ModelTurn("Done.")]).evaluate(prompt, session=session)

for record in session[ToolInvoked].all():
    print(record.text, end="\n\n")
assert files.read_text("total.txt").text == "42"
assert not files.exists("half.txt"), "a call that fails leaves no trace"
assert [record.success for record in session[ToolInvoked].all()] == [True, False, False]
