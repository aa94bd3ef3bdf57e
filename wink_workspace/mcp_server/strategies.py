"""The planning strategies as prompts that a person can choose in a client."""

from __future__ import annotations

from typing import Final

from mcp_types import GetPromptResult, PromptArgument, PromptMessage, TextContent
from mcp_types import Prompt as OfferedPrompt

from wink_workspace.prompt import Prompt
from wink_workspace.sections import PlanningStrategy, PlanningToolsSection

__all__ = ["STRATEGIES", "strategy_prompt"]

_DESCRIPTIONS: Final = {
    PlanningStrategy.REACT: "Plan as far as you can see; think, act and observe in turns.",
    PlanningStrategy.PLAN_ACT_REFLECT: "Plan the whole way first, then act and reflect by steps.",
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: (
        "Restate the goal, split it into parts, solve each where it fits, and put them together."
    ),
}

STRATEGIES: Final = tuple(
    OfferedPrompt(
        name=strategy.value,
        title=strategy.value.replace("_", " ").capitalize(),
        description=description,
        arguments=[PromptArgument(name="task", description="What is to be done.", required=False)],
    )
    for strategy, description in _DESCRIPTIONS.items()
)
"""What is listed."""


def strategy_prompt(name: str, task: str = "") -> GetPromptResult | None:
    """The prompt called *name*, for *task* if there is one; ``None`` if there is no such prompt."""
    if name not in _DESCRIPTIONS:
        return None
    strategy = PlanningStrategy(name)
    section = PlanningToolsSection(strategy=strategy)
    text = Prompt[None](ns="wink-workspace", key="strategy", sections=[section]).render().text
    said = f"{task.strip()}\n\n{text}" if task.strip() else text
    return GetPromptResult(
        description=_DESCRIPTIONS[strategy],
        messages=[PromptMessage(role="user", content=TextContent(text=said))],
    )
