"""The examples that tools show to models are executed and must give the stated output."""

from __future__ import annotations

import pytest
from support import small_workspace

from wink_workspace import serde
from wink_workspace.prompt import Tool, ToolExample
from wink_workspace.sections import (
    PlanningToolsSection,
    ReadFileParams,
    SetupPlan,
    VfsToolsSection,
)

FILES = {
    "README.md": "",
    "src/app.py": "def main():\n    print('hello')\n    return 0\n",
}
FIRST_STEPS = ["Find the failing test", "Correct the code"]
SECTIONS = [VfsToolsSection(), PlanningToolsSection()]
TOOLS = [tool for section in SECTIONS for tool in section.tools()]
EXAMPLES = [(tool, example) for tool in TOOLS for example in tool.examples]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_has_an_example_and_described_parameters(tool: Tool[object, object]) -> None:
    assert tool.examples
    described = tool.param_descriptions().values()
    assert all(parameter.description for parameter in described)


@pytest.mark.parametrize(
    ("tool", "example"), EXAMPLES, ids=lambda value: getattr(value, "name", None)
)
def test_an_example_gives_the_stated_output(
    tool: Tool[object, object], example: ToolExample[object, object]
) -> None:
    with small_workspace(
        sections=[VfsToolsSection(), PlanningToolsSection()], files=FILES
    ) as agent:
        agent.call("read_file", serde.dump(ReadFileParams("src/app.py")))
        agent.call(
            "planning_setup_plan", serde.dump(SetupPlan("Make the tests pass", tuple(FIRST_STEPS)))
        )
        outcome = agent.call(tool.name, serde.dump_json(example.input))
        assert outcome.result.success, outcome.text
        assert outcome.result.value == example.output
