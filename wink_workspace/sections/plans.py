"""Plans: the steps that an agent intends to do, as a value, and the events that change it.

Rule 1: step ids count from 1 within a plan and are never reused, because steps are never removed.
A new plan counts from 1 again.
Rule 2: a plan is completed if and only if it has steps and all of them are done. So a new step, or
a step that is no longer done, makes a completed plan active again.
Rule 3: titles and objectives are one line of 1 to 500 characters; runs of white space become one
space.

The tools in ``plan_tools.py`` make the events; any program may dispatch them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from wink_workspace.counts import counted
from wink_workspace.errors import UsageError
from wink_workspace.session import Replace, replace_latest

if TYPE_CHECKING:
    from wink_workspace.session import SessionProtocol, SliceView


MAX_TITLE_CHARS: Final = 500


class StepStatus(StrEnum):
    """The progress of a step."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"


class PlanStatus(StrEnum):
    """Whether a plan has steps that are not done."""

    ACTIVE = "active"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One thing to do."""

    step_id: int
    title: str
    status: StepStatus = StepStatus.PENDING


@dataclass(frozen=True, slots=True)
class Plan:
    """An objective and its steps; a STATE slice, of which the latest value is used."""

    objective: str
    status: PlanStatus = PlanStatus.ACTIVE
    steps: tuple[PlanStep, ...] = ()

    def with_steps(self, titles: tuple[str, ...]) -> Plan:
        """The plan with a new pending step for each of *titles* at the end."""
        first_id = max((step.step_id for step in self.steps), default=0) + 1
        added = (PlanStep(step_id, title) for step_id, title in enumerate(titles, start=first_id))
        return self._with((*self.steps, *added))

    def with_update(self, update: UpdateStep) -> Plan:
        """The plan with the title or status of one step changed.

        Raises:
            UsageError: If the plan has no such step.
        """
        if all(step.step_id != update.step_id for step in self.steps):
            known = ", ".join(str(step.step_id) for step in self.steps)
            raise UsageError(
                f"the plan has no step {update.step_id}",
                hint=f"Use one of its step ids: {known}." if known else "Add a step first.",
            )
        return self._with(
            tuple(
                update.applied_to(step) if step.step_id == update.step_id else step
                for step in self.steps
            )
        )

    def render(self) -> str:
        """The objective, the status, and a checklist with the step ids."""
        n_done = sum(step.status is StepStatus.DONE for step in self.steps)
        lines = (f"{_MARKS[step.status]} {step.step_id}. {step.title}" for step in self.steps)
        return "\n".join(
            (
                f"Objective: {self.objective}",
                f"Status: {self.status}, {n_done} of {len(self.steps)} steps done",
                *lines,
            )
        )

    def _with(self, steps: tuple[PlanStep, ...]) -> Plan:
        done = bool(steps) and all(step.status is StepStatus.DONE for step in steps)
        status = PlanStatus.COMPLETED if done else PlanStatus.ACTIVE
        return dataclasses.replace(self, status=status, steps=steps)


_MARKS = {StepStatus.PENDING: "[ ]", StepStatus.IN_PROGRESS: "[>]", StepStatus.DONE: "[x]"}


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """Starts a plan, which replaces any earlier one."""

    objective: str = field(
        metadata={"description": f"The goal of the plan, at most {MAX_TITLE_CHARS} characters."}
    )
    initial_steps: tuple[str, ...] = field(
        default=(),
        metadata={
            "description": "Titles of the first steps, in order, "
            f"each at most {MAX_TITLE_CHARS} characters."
        },
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "objective", _one_line(self.objective, "the objective"))
        object.__setattr__(self, "initial_steps", _titles(self.initial_steps))

    def render(self) -> str:
        """One line for the record."""
        return f"Started a plan with {counted(len(self.initial_steps), 'step')}"


@dataclass(frozen=True, slots=True)
class AddStep:
    """Adds steps at the end of the plan."""

    steps: tuple[str, ...] = field(
        metadata={
            "description": "Titles of the steps to add, in order, "
            f"each at most {MAX_TITLE_CHARS} characters.",
            "min_length": 1,
        }
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", _titles(self.steps))

    def render(self) -> str:
        """One line for the record."""
        return f"Added {counted(len(self.steps), 'step')}"


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """Changes the title or status of a step; ``None`` leaves it unchanged."""

    step_id: int = field(metadata={"description": "The id of the step.", "ge": 1})
    title: str | None = field(default=None, metadata={"description": "A new title."})
    status: StepStatus | None = field(default=None, metadata={"description": "A new status."})

    def __post_init__(self) -> None:
        if self.title is None and self.status is None:
            raise UsageError(
                "neither a title nor a status is given", hint="Pass title, status or both."
            )
        if self.title is not None:
            object.__setattr__(self, "title", _one_line(self.title, "the title"))

    def applied_to(self, step: PlanStep) -> PlanStep:
        """*step* after the update."""
        return PlanStep(step.step_id, self.title or step.title, self.status or step.status)

    def render(self) -> str:
        """One line for the record."""
        return f"Updated step {self.step_id}"


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Reads the plan. It has no parameters, because there is only one plan."""


PlanEvent: TypeAlias = SetupPlan | AddStep | UpdateStep


def plan_after(plan: Plan | None, event: PlanEvent) -> Plan:
    """The plan after *event*.

    Raises:
        UsageError: If there is no plan to change, or it has no such step.
    """
    if isinstance(event, SetupPlan):
        return Plan(event.objective).with_steps(event.initial_steps)
    if plan is None:
        raise no_plan()
    if isinstance(event, AddStep):
        return plan.with_steps(event.steps)
    return plan.with_update(event)


def no_plan() -> UsageError:
    """The error for a session without a plan."""
    return UsageError("there is no plan yet", hint="Set up a plan first.")


def register_plans(session: SessionProtocol) -> None:
    """Register the reducers of the session's ``Plan`` slice; may be called again.

    A dispatched ``Plan`` replaces the present one.
    """
    session[Plan].register(Plan, replace_latest)
    for event_type in (SetupPlan, AddStep, UpdateStep):
        session[Plan].register(event_type, _reduced)


def _reduced(view: SliceView[Plan], event: PlanEvent) -> Replace[Plan]:
    return Replace((plan_after(view.latest(), event),))


def _titles(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_one_line(title, f"step {n}") for n, title in enumerate(given, start=1))


def _one_line(text: str, what: str) -> str:
    text = " ".join(text.split())
    if not 1 <= len(text) <= MAX_TITLE_CHARS:
        raise UsageError(
            f"{what} has {len(text)} characters, and must have 1 to {MAX_TITLE_CHARS}",
            hint="Use one short line.",
        )
    return text
