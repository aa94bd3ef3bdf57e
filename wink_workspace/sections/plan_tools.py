"""The section that lets a model keep a plan: four tools over the session's ``Plan``.

A handler returns the event as its value, and the executor passes it to the reducers. So a failed
call leaves the plan unchanged. The message shows the plan after the event.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack

from wink_workspace.errors import UsageError
from wink_workspace.prompt import (
    MarkdownSection,
    SectionOptions,
    Tool,
    ToolAnnotations,
    ToolContext,
    ToolExample,
    ToolResult,
)

from .plans import (
    AddStep,
    Plan,
    PlanStatus,
    PlanStep,
    ReadPlan,
    SetupPlan,
    StepStatus,
    UpdateStep,
    no_plan,
    plan_after,
    register_plans,
)

if TYPE_CHECKING:
    from wink_workspace.session import SessionProtocol


Event = TypeVar("Event", SetupPlan, AddStep, UpdateStep)

_READS: Final = ToolAnnotations(
    read_only=True, destructive=False, idempotent=True, open_world=False
)
_REPLACES: Final = ToolAnnotations(
    read_only=False, destructive=True, idempotent=True, open_world=False
)
_ADDS: Final = ToolAnnotations(
    read_only=False, destructive=False, idempotent=False, open_world=False
)


class PlanningStrategy(StrEnum):
    """The way of working that the text asks of the model."""

    REACT = "react"
    PLAN_ACT_REFLECT = "plan_act_reflect"
    GOAL_DECOMPOSE_ROUTE_SYNTHESISE = "goal_decompose_route_synthesise"


_SUMMARY: Final = """\
Keep a plan if the work takes more than a few steps: `{p}planning_setup_plan`. Set a step to \
`in_progress` when you start it, and to `done` after you checked its result."""


class PlanningToolsSection(MarkdownSection[None]):
    """A plan of numbered steps that the model sets up, extends, updates and reads.

    The plan is the session's latest ``Plan``, a STATE slice.

    Args:
        strategy: The way of working that the text asks for. It changes only the text.
        session: Where to register the reducers now; by default installing the prompt does it.
        title: The heading.
        prefix: A prefix of the name of every tool, and of the default key ``planning``.
        options: As for ``Section``.
    """

    def __init__(
        self,
        *,
        strategy: PlanningStrategy = PlanningStrategy.REACT,
        session: SessionProtocol | None = None,
        title: str = "Planning",
        prefix: str = "",
        **options: Unpack[SectionOptions[None]],
    ) -> None:
        options["key"] = options.get("key") or f"{prefix}planning"
        options["summary"] = options.get("summary") or _SUMMARY.format(p=prefix)
        super().__init__(
            title,
            _GUIDANCE.format(p=prefix, mindset=_MINDSETS[strategy]),
            tools=_planning_tools(prefix),
            **options,
        )
        self.strategy: Final = strategy
        if session is not None:
            self.install(session)

    def install(self, session: SessionProtocol) -> None:
        """Register the reducers for the tools' events; may be called again."""
        register_plans(session)


def _planning_tools(prefix: str) -> tuple[Tool[Any, Any], ...]:
    return (
        Tool[SetupPlan, SetupPlan](
            name=f"{prefix}planning_setup_plan",
            description="Start a plan: an objective and first steps. Replaces any earlier plan.",
            handler=_change,
            annotations=_REPLACES,
            examples=(_SET_UP,),
        ),
        Tool[AddStep, AddStep](
            name=f"{prefix}planning_add_step",
            description="Add steps at the end of the plan.",
            handler=_change,
            annotations=_ADDS,
            examples=(_ADD,),
        ),
        Tool[UpdateStep, UpdateStep](
            name=f"{prefix}planning_update_step",
            description="Change the status or the title of one step of the plan.",
            handler=_change,
            annotations=_REPLACES,
            examples=(_UPDATE,),
        ),
        Tool[ReadPlan, Plan](
            name=f"{prefix}planning_read_plan",
            description="Show the plan: its objective, and each step with its id and status.",
            handler=_read,
            annotations=_READS,
            examples=(_READ,),
        ),
    )


def _change(params: Event, /, *, context: ToolContext) -> ToolResult[Event]:
    register_plans(context.session)  # an event without a reducer would be lost silently
    try:
        plan = plan_after(context.session[Plan].latest(), params)
    except UsageError as error:
        return ToolResult.error(str(error))
    message = f"{params.render()}\n\n{plan.render()}"
    return ToolResult.ok(params, message, exclude_value_from_context=True)


def _read(params: ReadPlan, *, context: ToolContext) -> ToolResult[Plan]:
    del params
    plan = context.session[Plan].latest()
    return ToolResult.error(str(no_plan())) if plan is None else ToolResult.ok(plan)


_GUIDANCE: Final = """\
Keep a plan if the work takes more than two or three steps, or if it could be interrupted. The plan
shows you and others which steps are done and which are left.

**Tools**

- `{p}planning_setup_plan` starts a plan; it replaces any earlier one.
- `{p}planning_add_step` adds steps at the end.
- `{p}planning_update_step` sets a step to `in_progress` or `done`, or changes its title.
- `{p}planning_read_plan` shows the plan; the other three show it, too.

**Rules**

- Steps have ids that count from 1 and never change. A title is one line of at most 500 characters.
- Set a step to `in_progress` when you start it, and to `done` only after you checked its result.
- The plan is completed when all of its steps are done. Adding a step makes it active again.

**Way of working**

{mindset}
"""

_MINDSETS: Final = {
    PlanningStrategy.REACT: """\
Alternate between thought, action and observation. Say in one sentence what you need to find out or
do next, make the one call for it, and read its result before you decide on the next one.

Plan only the steps that you can foresee. Correct the plan after each observation: change the titles
of steps, add missing steps, and do not carry out a step that no longer makes sense.""",
    PlanningStrategy.PLAN_ACT_REFLECT: """\
Outline the whole work first: read what you need for that, then set up every step before you change
anything. Carry the steps out in order, one at a time.

After each step, reflect: did it achieve what the step says, what did it show about the remaining
steps, and is the plan still right? Change the plan before you continue, not afterwards.""",
    PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE: """\
Restate the goal in your own words, and how to check that it is reached. Decompose it into parts
that can be solved and checked separately, and make each part a step.

Route each part to the tool or source that suits it best, and solve the parts separately.
Then synthesise: combine the results, resolve contradictions, and check the whole against the goal
as you restated it.""",
}

# Examples. The session of the later ones has the plan of the first

_SET_UP: Final = ToolExample(
    description="Start with two steps",
    input=SetupPlan("Make the tests pass", ("Find the failing test", "Correct the code")),
    output=SetupPlan("Make the tests pass", ("Find the failing test", "Correct the code")),
)
_ADD: Final = ToolExample(
    description="Add a missing step",
    input=AddStep(("Update the documentation",)),
    output=AddStep(("Update the documentation",)),
)
_UPDATE: Final = ToolExample(
    description="Start the first step",
    input=UpdateStep(1, status=StepStatus.IN_PROGRESS),
    output=UpdateStep(1, status=StepStatus.IN_PROGRESS),
)
_READ: Final = ToolExample(
    description="Show the remaining steps",
    input=ReadPlan(),
    output=Plan(
        "Make the tests pass",
        PlanStatus.ACTIVE,
        (PlanStep(1, "Find the failing test"), PlanStep(2, "Correct the code")),
    ),
)
