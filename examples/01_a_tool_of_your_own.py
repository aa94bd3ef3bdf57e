"""A typed tool whose failed calls leave no trace in the files or the session."""

from dataclasses import dataclass, field

from wink_workspace import (
    Filesystem,
    MarkdownSection,
    MemoryFilesystem,
    ModelTurn,
    Prompt,
    ScriptedAdapter,
    Session,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
)
from wink_workspace.session import ToolInvoked


@dataclass(frozen=True, slots=True)
class Publish:
    """The arguments that the model passes."""

    path: str = field(metadata={"description": "The file to publish"})


@dataclass(frozen=True, slots=True)
class Published:
    """The result of the tool, and its text for the model."""

    path: str
    n_bytes: int

    def render(self) -> str:
        return f"{self.path} is out, {self.n_bytes} bytes."


def publish(params: Publish, *, context: ToolContext) -> ToolResult[Published]:
    files = context.resources.get(Filesystem)
    files.write_text("published.txt", f"{params.path}\n", mode="append")
    data = files.read_bytes(params.path)  # raises if it is missing: the line above is undone
    return ToolResult.ok(Published(params.path, len(data)))


tool = Tool[Publish, Published](name="publish", description="Publish a file.", handler=publish)
files = MemoryFilesystem({"page.md": "# Hello\n"})
prompt = Prompt(
    ns="examples",
    key="publish",
    sections=[
        MarkdownSection(
            title="Publishing",
            template="Publish page.md with `publish`.",
            tools=[tool],
            resources={Filesystem: files},
        )
    ],
)
adapter = ScriptedAdapter(
    [
        ModelTurn(tool_calls=[ToolCall("publish", path="pgae.md")]),
        ModelTurn(tool_calls=[ToolCall("publish", path="page.md")]),
        ModelTurn("It is out."),
    ]
)
session = Session()
adapter.evaluate(prompt, session=session)

for record in session[ToolInvoked].all():
    print(f"{record.outcome}: {record.text}")
print(files.read_text("published.txt").text)
assert files.read_text("published.txt").lines == ("page.md",)
