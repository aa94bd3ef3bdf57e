"""Fail a long call at its first step, its second, its third, ... until it succeeds."""

from __future__ import annotations

import itertools

import pytest
from support import Note, Text, small_workspace

from wink_workspace.prompt import Tool, ToolContext, ToolResult
from wink_workspace.session import Outcome
from wink_workspace.testing import CrashAt, CrashError

BEFORE = {
    "src/a.py": "one\ntwo\nthree\n",
    "src/b.py": "alpha\nbeta\n",
    "docs/guide.md": b"\xff\x00binary",
    "old/name.txt": "to be moved",
}
PATCH = """\
--- a/src/b.py
+++ b/src/b.py
@@ -1,2 +1,2 @@
 alpha
-beta
+gamma
--- /dev/null
+++ b/src/c.py
@@ -0,0 +1 @@
+new
"""


def steps(context: ToolContext) -> list[object]:
    files, session = context.filesystem, context.session
    assert files is not None
    return [
        lambda: files.write_text("new.txt", "1"),
        lambda: session[Note].append(Note("one")),
        lambda: files.write_text("new.txt", "2", mode="append"),
        lambda: files.edit("src/a.py", "two", "TWO"),
        lambda: files.mkdir("empty/deep"),
        lambda: session[Note].append(Note("two")),
        lambda: files.apply_patch(PATCH),
        lambda: files.move("old/name.txt", "new/name.txt"),
        lambda: files.delete("docs", recursive=True),
        lambda: session[Note].clear(),
        lambda: files.symlink("link", "src/a.py"),
        lambda: files.write_text("link", "through the link"),
        lambda: files.set_executable("src/b.py", executable=True),
        lambda: session[Text].seed([Text("a"), Text("b")]),
        lambda: files.move("src", "source"),
        lambda: files.write_bytes("source/a.py", b"\r\n"),
        lambda: files.delete("empty", recursive=True),
        lambda: files.mkdir("again"),
        lambda: session[Note].append(Note("three")),
        lambda: files.write_text("last.txt", "last"),
    ]


@pytest.mark.behaviour(22, 26, 29)
def test_a_call_that_fails_at_any_of_twenty_steps_changes_nothing() -> None:
    for n in itertools.count(1):
        crash = CrashAt(n)

        def act(params: Text, *, context: ToolContext, crash: CrashAt = crash) -> ToolResult[None]:
            for step in steps(context):
                step()
                crash.step()
            return ToolResult.ok(None)

        tool = Tool[Text, None](name="act", description="Twenty steps", handler=act)
        with small_workspace(tool, files=BEFORE) as workspace:
            workspace.session[Note].append(Note("there before"))
            before = workspace.state()
            outcome = workspace.call("act")
            if outcome.outcome is Outcome.COMMITTED:
                assert n == 21
                assert workspace.state() != before
                break
            assert CrashError.__name__ in outcome.text
            assert workspace.state() == before, f"not undone after step {n}"
