"""A workspace on disk: a policy, a rolled-back failure, an undo, a redo, an apply."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from wink_workspace import (
    Filesystem,
    MarkdownSection,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    SequentialDependencyPolicy,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    VfsToolsSection,
    Workspace,
)


@dataclass(frozen=True, slots=True)
class Release:
    """The arguments that the model passes."""

    version: int


def release(params: Release, *, context: ToolContext) -> ToolResult[None]:
    files = context.resources.get(Filesystem)
    released = int(files.read_text("VERSION").text)
    files.write_text("VERSION", f"{params.version}\n")
    if params.version != released + 1:
        return ToolResult.error(f"After {released} comes {released + 1}.")  # rolled back, too
    return ToolResult.ok(None, f"{params.version} is released.")


prompt = Prompt(
    ns="examples",
    key="release",
    sections=[
        MarkdownSection(
            title="Releasing",
            template="Read the notes, then release the next version.",
            tools=[Tool[Release, None](name="release", description="Release.", handler=release)],
            policies=[SequentialDependencyPolicy({"release": {"read_file"}})],
            children=[VfsToolsSection()],  # a policy sees the calls of its section and its children
        )
    ],
)
calls = [
    ToolCall("release", version=2),
    ToolCall("read_file", file_path="NOTES"),
    ToolCall("release", version=7),
    ToolCall("release", version=2),
]
turns = [ModelTurn(tool_calls=[call]) for call in calls]

with tempfile.TemporaryDirectory() as folder:
    source = Path(folder)
    (source / "NOTES").write_text("Fewer surprises.\n")
    (source / "VERSION").write_text("1\n")
    with Workspace.temporary(source) as workspace:
        prompt.bind(resources=workspace.resources)
        adapter = ScriptedAdapter([*turns, ModelTurn("Done.")])
        adapter.evaluate(prompt, session=workspace.session)

        for entry in reversed(list(workspace.log())):
            print(f"{entry.number}  {entry.outcome or entry.kind:<12} {entry.subject}")
        assert workspace.files.read_text("VERSION").text == "2"

        workspace.undo()
        assert workspace.diff() == ""
        workspace.redo()
        workspace.apply()
    assert (source / "VERSION").read_text() == "2\n"
