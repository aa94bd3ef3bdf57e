"""Plans: the effect of each tool, what it refuses, and its answer to the model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import SmallWorkspace, executor_of, small_workspace

from wink_workspace.errors import ReducerError, UsageError
from wink_workspace.prompt import Prompt, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.sections import (
    AddStep,
    Plan,
    PlanningStrategy,
    PlanningToolsSection,
    PlanStatus,
    PlanStep,
    SetupPlan,
    StepStatus,
    UpdateStep,
)
from wink_workspace.session import Session, SliceView

OBJECTIVE = "Make the tests pass"


@pytest.fixture
def planner() -> Iterator[SmallWorkspace]:
    with small_workspace(sections=[PlanningToolsSection()]) as planner:
        yield planner


def plan_of(planner: SmallWorkspace) -> Plan:
    plan = planner.session[Plan].latest()
    assert plan is not None
    return plan


def set_up(planner: SmallWorkspace, *titles: str) -> None:
    outcome = planner.call("planning_setup_plan", objective=OBJECTIVE, initial_steps=list(titles))
    assert outcome.result.success


@pytest.mark.behaviour(59)
def test_plan_events_dispatched_by_a_program_change_the_plan(
    planner: SmallWorkspace,
) -> None:
    planner.session.dispatch(SetupPlan("Ship it", ("Build",)))
    planner.session.dispatch(AddStep(("Test",)))
    planner.session.dispatch(UpdateStep(1, status=StepStatus.DONE))
    assert [(step.title, step.status) for step in plan_of(planner).steps] == [
        ("Build", StepStatus.DONE),
        ("Test", StepStatus.PENDING),
    ]
    planner.session.dispatch(Plan("Another"))
    assert plan_of(planner) == Plan("Another")
    assert len(planner.session[Plan].all()) == 1


def test_a_new_plan_is_active_and_numbers_its_pending_steps_from_1(planner: SmallWorkspace) -> None:
    set_up(planner, "Read", "Write")
    assert plan_of(planner) == Plan(
        OBJECTIVE, PlanStatus.ACTIVE, (PlanStep(1, "Read"), PlanStep(2, "Write"))
    )


@pytest.mark.behaviour(59)
def test_added_steps_continue_the_numbering(planner: SmallWorkspace) -> None:
    set_up(planner, "Read")
    planner.call("planning_add_step", steps=["Write", "Check"])
    planner.call("planning_add_step", steps=["Tidy"])
    assert [(step.step_id, step.title) for step in plan_of(planner).steps] == [
        (1, "Read"),
        (2, "Write"),
        (3, "Check"),
        (4, "Tidy"),
    ]


@pytest.mark.behaviour(59)
def test_a_plan_is_completed_while_all_of_its_steps_are_done(
    planner: SmallWorkspace,
) -> None:
    set_up(planner, "Read", "Write")
    for step_id, status, expected in (
        (1, "done", PlanStatus.ACTIVE),
        (2, "in_progress", PlanStatus.ACTIVE),
        (2, "done", PlanStatus.COMPLETED),
        (1, "pending", PlanStatus.ACTIVE),
        (1, "done", PlanStatus.COMPLETED),
    ):
        planner.call("planning_update_step", step_id=step_id, status=status)
        assert plan_of(planner).status is expected, (step_id, status)


@pytest.mark.behaviour(59)
def test_adding_a_step_to_a_completed_plan_makes_it_active_again(planner: SmallWorkspace) -> None:
    set_up(planner, "Read")
    planner.call("planning_update_step", step_id=1, status="done")
    planner.call("planning_add_step", steps=["Write"])
    assert plan_of(planner).status is PlanStatus.ACTIVE


def test_a_plan_without_steps_is_active(planner: SmallWorkspace) -> None:
    set_up(planner)
    assert plan_of(planner) == Plan(OBJECTIVE, PlanStatus.ACTIVE, ())


def test_an_update_changes_only_the_named_fields(planner: SmallWorkspace) -> None:
    set_up(planner, "Read", "Write")
    planner.call("planning_update_step", step_id=2, status="in_progress")
    planner.call("planning_update_step", step_id=2, title="Write it down")
    assert plan_of(planner).steps == (
        PlanStep(1, "Read"),
        PlanStep(2, "Write it down", StepStatus.IN_PROGRESS),
    )


def test_a_second_plan_replaces_the_first_and_numbers_from_1(
    planner: SmallWorkspace,
) -> None:
    set_up(planner, "Read", "Write")
    set_up(planner, "Rest")
    assert planner.session[Plan].all() == (Plan(OBJECTIVE, steps=(PlanStep(1, "Rest"),)),)


def test_white_space_in_titles_and_objective_is_collapsed_to_one_line(
    planner: SmallWorkspace,
) -> None:
    planner.call(
        "planning_setup_plan", objective=" Two\nlines ", initial_steps=["  much \t space "]
    )
    assert plan_of(planner) == Plan("Two lines", steps=(PlanStep(1, "much space"),))


def test_every_call_answers_with_the_current_plan(planner: SmallWorkspace) -> None:
    set_up(planner, "Read", "Write")
    answer = planner.call("planning_update_step", step_id=1, status="done").text
    assert answer == "Updated step 1\n\n" + plan_of(planner).render()
    assert planner.call("planning_read_plan").text == (
        "Objective: Make the tests pass\n"
        "Status: active, 1 of 2 steps done\n"
        "[x] 1. Read\n"
        "[ ] 2. Write"
    )


def test_the_record_of_a_call_holds_its_event_in_one_line(planner: SmallWorkspace) -> None:
    set_up(planner, "Read")
    planner.call("planning_add_step", steps=["Write", "Check"])
    first, second = planner.records
    assert (first.value, first.rendered_text) == (
        SetupPlan(OBJECTIVE, ("Read",)),
        "Started a plan with 1 step",
    )
    assert (second.value, second.rendered_text) == (
        AddStep(("Write", "Check")),
        "Added 2 steps",
    )


def test_a_step_in_progress_is_marked(planner: SmallWorkspace) -> None:
    set_up(planner, "Read")
    answer = planner.call("planning_update_step", step_id=1, status="in_progress").text
    assert "[>] 1. Read" in answer


@pytest.mark.behaviour(59)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("planning_add_step", {"steps": ["Write"]}),
        ("planning_update_step", {"step_id": 1, "status": "done"}),
        ("planning_read_plan", {}),
    ],
)
def test_an_operation_without_a_plan_is_refused_and_creates_none(
    planner: SmallWorkspace, name: str, arguments: dict[str, object]
) -> None:
    outcome = planner.call(name, arguments)
    assert outcome.result == ToolResult.error("there is no plan yet. Set up a plan first.")
    assert planner.session[Plan].latest() is None


@pytest.mark.behaviour(59)
@pytest.mark.parametrize("n_chars", [1, 500])
def test_titles_of_1_to_500_characters_are_accepted(planner: SmallWorkspace, n_chars: int) -> None:
    set_up(planner, "x" * n_chars)
    assert plan_of(planner).steps[0].title == "x" * n_chars


@pytest.mark.behaviour(59)
@pytest.mark.parametrize("title", ["", " \n ", "x" * 501])
@pytest.mark.parametrize(
    "make",
    [
        lambda title: SetupPlan(title),
        lambda title: SetupPlan("fine", ("fine", title)),
        lambda title: AddStep((title,)),
        lambda title: UpdateStep(1, title=title),
    ],
)
def test_an_event_with_an_empty_or_too_long_title_is_refused(make: object, title: str) -> None:
    with pytest.raises(UsageError, match="must have 1 to 500"):
        make(title)  # type: ignore[operator] - parametrized


def test_an_update_of_an_unknown_step_lists_the_existing_steps(planner: SmallWorkspace) -> None:
    set_up(planner, "Read", "Write")
    answer = planner.call("planning_update_step", step_id=3, status="done").text
    assert answer == "the plan has no step 3. Use one of its step ids: 1, 2."


def test_an_update_of_a_plan_without_steps_asks_to_add_one(planner: SmallWorkspace) -> None:
    set_up(planner)
    answer = planner.call("planning_update_step", step_id=1, status="done").text
    assert answer == "the plan has no step 1. Add a step first."


def test_events_and_tools_change_the_plan_in_the_same_way() -> None:
    session = Session()
    PlanningToolsSection(session=session)
    session.dispatch(SetupPlan("Ship", ("Build",)))
    session.dispatch(UpdateStep(1, status=StepStatus.DONE))
    assert session[Plan].latest() == Plan(
        "Ship", PlanStatus.COMPLETED, (PlanStep(1, "Build", StepStatus.DONE),)
    )


def test_an_invalid_event_raises_and_changes_nothing() -> None:
    session = Session()
    PlanningToolsSection(session=session)
    with pytest.raises(ReducerError, match="no plan yet"):
        session.dispatch(AddStep(("Build",)))
    assert session[Plan].latest() is None


def test_the_tools_store_a_plan_without_an_installed_prompt() -> None:
    session = Session()
    prompt = Prompt(ns="tests", key="bare", sections=[PlanningToolsSection()])
    with prompt.resources:
        executor = executor_of(prompt, session)
        executor.execute(ToolCall("planning_setup_plan", objective=OBJECTIVE))
    assert session[Plan].latest() == Plan(OBJECTIVE)


@pytest.mark.behaviour(26)
def test_a_failing_reducer_rolls_the_plan_back(planner: SmallWorkspace) -> None:
    def refuse(view: SliceView[Plan], event: AddStep) -> None:
        raise RuntimeError("no more steps")

    set_up(planner, "Read")
    before = plan_of(planner)
    planner.session[Plan].register(AddStep, refuse)  # type: ignore[arg-type] - it only raises
    assert not planner.call("planning_add_step", steps=["Write"]).result.success
    assert plan_of(planner) is before


def test_a_plan_survives_the_sessions_json_form(planner: SmallWorkspace) -> None:
    set_up(planner, "Read", "Write")
    planner.call("planning_update_step", step_id=1, status="done")
    other = Session()
    PlanningToolsSection(session=other)
    other.load_state(planner.session.dump_state())
    assert other[Plan].latest() == plan_of(planner)


def texts() -> dict[PlanningStrategy, list[str]]:
    return {
        strategy: PlanningToolsSection(strategy=strategy).body(None).split("\n\n")
        for strategy in PlanningStrategy
    }


def test_strategies_differ_in_the_mindset_paragraphs_only() -> None:
    paragraphs = list(texts().values())
    n_mindset = 2
    assert len({len(text) for text in paragraphs}) == 1
    assert len({tuple(text[:-n_mindset]) for text in paragraphs}) == 1
    assert len({tuple(text[-n_mindset:]) for text in paragraphs}) == len(PlanningStrategy)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (PlanningStrategy.REACT, ["thought", "action", "observation"]),
        (PlanningStrategy.PLAN_ACT_REFLECT, ["Outline", "Carry", "reflect"]),
        (
            PlanningStrategy.GOAL_DECOMPOSE_ROUTE_SYNTHESISE,
            ["Restate", "Decompose", "Route", "synthesise"],
        ),
    ],
)
def test_each_strategy_describes_its_own_way_of_working(
    strategy: PlanningStrategy, words: list[str]
) -> None:
    mindset = "\n\n".join(texts()[strategy][-2:])
    assert [word for word in words if word in mindset] == words


@pytest.mark.behaviour(13)
def test_a_prefix_renames_tools_and_text_together() -> None:
    plain, mine = PlanningToolsSection(), PlanningToolsSection(prefix="my_")
    prompt = Prompt(ns="tests", key="two-plans", sections=[plain, mine])
    names = [tool.name for tool in prompt.tools()]
    assert names[4:] == [f"my_{name}" for name in names[:4]]
    assert mine.key == "my_planning"
    assert all(f"`my_{name}`" in mine.body(None) for name in names[:4])
