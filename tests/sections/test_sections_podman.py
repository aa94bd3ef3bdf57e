"""The section for commands, with a sandbox that is missing or slow to start."""

from __future__ import annotations

import pytest
from support import small_workspace

from wink_workspace.clock import Cancellation, Deadline, ManualClock
from wink_workspace.errors import PromptEvaluationError, PromptRenderError
from wink_workspace.mcp_server import Catalog
from wink_workspace.prompt import Prompt, ToolAnnotations
from wink_workspace.sandbox import (
    CapturedOutput,
    ExecRequest,
    ExecResult,
    IsolationReport,
    NetworkRules,
    Sandbox,
)
from wink_workspace.sandbox.podman import PodmanConfig
from wink_workspace.sections import PodmanSandboxSection


class SlowSandbox(Sandbox):
    """Takes three seconds of *clock* to start, and records the time limits of commands."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.timeouts_s: list[float] = []

    @property
    def report(self) -> IsolationReport:
        return IsolationReport()

    def start(self, cancellation: Cancellation | None = None) -> None:
        self._clock.advance(3)

    def run(self, request: ExecRequest, *, observer: object = None) -> ExecResult:
        self.timeouts_s.append(request.timeout_s)
        return ExecResult(
            exit_code=0, signal=None, stdout=CapturedOutput(), stderr=CapturedOutput(), duration_s=0
        )

    def close(self) -> None:
        pass


def test_rendering_a_prompt_without_a_sandbox_is_refused() -> None:
    prompt = Prompt[None](ns="t", key="p", sections=[PodmanSandboxSection()])
    with pytest.raises(PromptRenderError, match="needs a Sandbox, but none is bound") as caught:
        prompt.render()
    assert "prompt.bind(resources=workspace.resources)" in str(caught.value)

    disabled = PodmanSandboxSection(enabled=lambda: False)
    assert Prompt[None](ns="t", key="p", sections=[disabled]).render().tools == ()


def test_a_server_lists_the_tools_of_a_sandbox_before_any_workspace_is_open() -> None:
    commands, services = ["shell_execute", "evaluate_python"], ["start_service", "service_logs"]
    catalog = Catalog([PodmanSandboxSection(files=False)])
    assert [tool.name for tool in catalog.tools] == [*commands, *services, "stop_service"]
    catalog = Catalog([PodmanSandboxSection(files=False, services=False)])
    assert [tool.name for tool in catalog.tools] == commands
    assert not {"tty", "background"} & catalog.tools[0].param_descriptions().keys()


@pytest.mark.parametrize(("network", "open_world"), [((), False), (("pypi",), True)])
def test_the_annotations_of_sandbox_tools_say_whether_they_reach_a_network(
    network: tuple[str, ...], open_world: bool
) -> None:
    config = PodmanConfig(network=NetworkRules(allowed=network))
    section = PodmanSandboxSection(config, files=False, services=False)
    hints = ToolAnnotations(
        read_only=False, destructive=True, idempotent=False, open_world=open_world
    )
    assert [tool.annotations for tool in section.tools()] == [hints, hints]


def test_a_command_gets_the_time_that_is_left_after_the_sandbox_started() -> None:
    clock = ManualClock()
    sandbox = SlowSandbox(clock)
    with small_workspace(
        sections=[PodmanSandboxSection(files=False)],
        resources={Sandbox: sandbox},
        deadline=Deadline.after(5, clock=clock),
    ) as agent:
        assert agent.call("shell_execute", command="true").result.success
        assert sandbox.timeouts_s == [2.0]
        with pytest.raises(PromptEvaluationError, match="deadline"):
            agent.call("shell_execute", command="true")
        assert sandbox.timeouts_s == [2.0]
