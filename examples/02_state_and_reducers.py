"""State that tools change by events. A failed call is rolled back."""

from dataclasses import dataclass, replace

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
from wink_workspace.session import reducer


@dataclass(frozen=True, slots=True)
class Spent:
    """An event, and also the arguments of the tool."""

    euros: int


@dataclass(frozen=True)
class Budget:
    """State: the money that is left. Only the event above changes it."""

    left: int

    @reducer(on=Spent)
    def spend(self, event: Spent) -> "Budget":
        if event.euros > self.left:
            raise ValueError(f"only {self.left} euros are left")
        return replace(self, left=self.left - event.euros)


def spend(params: Spent, *, context: ToolContext) -> ToolResult[Spent]:
    return ToolResult.ok(params, f"Spent {params.euros}.", exclude_value_from_context=True)


session = Session()
session.install(Budget, initial=Budget(left=100))
tool = Tool[Spent, Spent](name="spend", description="Spend some euros.", handler=spend)
section = MarkdownSection(title="Shopping", template="Buy what we need.", tools=[tool])
prompt = Prompt(ns="examples", key="shopping", sections=[section])
turns = [ModelTurn(tool_calls=[ToolCall("spend", euros=euros)]) for euros in (30, 90, 50)]
ScriptedAdapter([*turns, ModelTurn("Done.")]).evaluate(prompt, session=session)

budget = session[Budget].latest()
assert budget == Budget(left=20)
print(f"{budget}: the 90 were refused and undone")
