"""The same tool calls in an agent of each framework: on a plain directory, and in a workspace.

Both sides have the framework's own loop and a scripted model. Each call writes a file of 1 KiB, or
for mini-swe-agent, which has only commands, runs ``echo``. Natively a call leaves nothing; in a
workspace it is one entry that can be undone. The sides take turns, 20 calls each time, so the load
of the machine is the same for both. ``extra_ms`` is what a call costs more in a workspace; the goal
is 5.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from wink_workspace.workspace import Workspace, WorkspaceStorage

N_ROUNDS = 6  # the first one warms up
N_CALLS = 20
N_FILES = 200
TEXT = "x" * 1_023 + "\n"

Side = Callable[[list[str]], None]
"""Runs an agent that writes the files of these names."""


def pydantic_ai(folder: Path, opened: ExitStack) -> tuple[Side, Side]:
    from pydantic_ai import Agent, RunContext
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, WorkspaceRef
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.workspaces import LocalWorkspaceBackend

    from wink_workspace.integrations.pydantic_ai import WinkWorkspaces

    async def write(context: Any, name: str) -> str:
        await context.workspace.write_text(name, TEXT)
        return "written"

    write.__annotations__["context"] = RunContext  # imported here, so its name is not found

    def run(names: list[str], workspace: Any, **options: Any) -> None:
        left = iter(names)

        def turn(messages: Any, info: Any) -> ModelResponse:
            name = next(left, None)
            call = TextPart("Done.") if name is None else ToolCallPart("write", {"name": name})
            return ModelResponse(parts=[call])

        agent = Agent(FunctionModel(turn), tools=[write], **options)
        asyncio.run(agent.run("Write.", workspace=workspace))

    workspaces = opened.enter_context(
        WinkWorkspaces(str(folder / "source"), storage=WorkspaceStorage(folder / "storage"))
    )
    ref = WorkspaceRef(provider="wink", id=workspaces.create()[0])
    return (
        lambda names: run(names, LocalWorkspaceBackend(folder / "native")),
        lambda names: run(names, ref, capabilities=[workspaces]),
    )


def deepagents(folder: Path, opened: ExitStack) -> tuple[Side, Side]:
    from deepagents import create_deep_agent
    from deepagents.backends import FilesystemBackend
    from langchain_core.language_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    from wink_workspace.integrations.deepagents import WorkspaceBackend, WorkspaceMiddleware

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:  # noqa: ARG002 - as its base
            return self

    def run(names: list[str], **options: Any) -> None:
        calls = [
            {"name": "write_file", "id": name, "args": {"file_path": name, "content": TEXT}}
            for name in names
        ]
        turns = [*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("Done.")]
        agent = create_deep_agent(Scripted(messages=iter(turns)), **options)
        agent.invoke({"messages": [("user", "Write.")]}, {"recursion_limit": 1_000})

    workspace = opened.enter_context(_workspace(folder))
    native = FilesystemBackend(root_dir=folder / "native", virtual_mode=True)
    middleware = [WorkspaceMiddleware(workspace)]
    return (
        lambda names: run([f"/{name}" for name in names], backend=native),
        lambda names: run(
            [f"/workspace/{name}" for name in names],
            backend=WorkspaceBackend(workspace),
            middleware=middleware,
        ),
    )


def openai_agents(folder: Path, opened: ExitStack) -> tuple[Side, Side]:
    from agents import Agent, RunConfig, Runner, function_tool
    from agents.testing import ScriptedModel, assistant_message, function_call

    from wink_workspace.integrations.openai_agents import in_call

    workspace = opened.enter_context(_workspace(folder))

    @function_tool(name_override="write")
    async def write_natively(name: str) -> str:
        (folder / "native" / name).write_text(TEXT)
        return "written"

    @function_tool(name_override="write")
    async def write(name: str) -> str:
        workspace.files.write_text(name, TEXT)
        return "written"

    def run(names: list[str], tool: Any) -> None:
        turns = [
            [function_call("write", json.dumps({"name": each}), call_id=each)] for each in names
        ]
        model = ScriptedModel([*turns, [assistant_message("Done.")]])
        agent = Agent("Writer", model=model, tools=[tool])
        config = RunConfig(tracing_disabled=True)
        asyncio.run(Runner.run(agent, "Write.", run_config=config, max_turns=1_000))

    ours = in_call(workspace, write)
    return lambda names: run(names, write_natively), lambda names: run(names, ours)


def openai_agents_sandbox(folder: Path, opened: ExitStack) -> tuple[Side, Side]:
    from agents import RunConfig, Runner
    from agents.run_config import SandboxRunConfig
    from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent
    from agents.sandbox.capabilities import Filesystem
    from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
    from agents.testing import ScriptedModel, assistant_message
    from openai.types.responses import ResponseCustomToolCall

    from wink_workspace.integrations.openai_agents import (
        OpenWorkspaces,
        WinkFilesystem,
        WinkSandboxClient,
        WinkSandboxOptions,
    )

    workspaces = opened.enter_context(
        OpenWorkspaces(folder / "source", storage=WorkspaceStorage(folder / "storage"))
    )
    options = WinkSandboxOptions(workspace=workspaces.create()[0])
    native = SandboxRunConfig(
        client=UnixLocalSandboxClient(),
        manifest=Manifest(root=str(folder / "native")),
        snapshot=LocalSnapshotSpec(base_path=folder / "snapshots"),
    )
    ours = SandboxRunConfig(client=WinkSandboxClient(workspaces), options=options)

    def run(names: list[str], capability: Any, sandbox: SandboxRunConfig) -> None:
        def call(name: str) -> ResponseCustomToolCall:
            text = f"*** Begin Patch\n*** Add File: {name}\n+{TEXT}*** End Patch"
            return ResponseCustomToolCall(
                call_id=name, name="apply_patch", input=text, type="custom_tool_call"
            )

        model = ScriptedModel([*([call(each)] for each in names), [assistant_message("Done.")]])
        agent = SandboxAgent("Writer", model=model, capabilities=[capability])
        config = RunConfig(sandbox=sandbox, tracing_disabled=True)
        asyncio.run(Runner.run(agent, "Write.", run_config=config, max_turns=1_000))

    return (
        lambda names: run(names, Filesystem(), native),
        lambda names: run(names, WinkFilesystem(), ours),
    )


def inspect_ai(folder: Path, opened: ExitStack) -> tuple[Side, Side]:
    """Without its evaluation, which takes longer to begin than all calls take."""
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

    from wink_workspace.integrations.inspect_ai import WinkSandbox

    local = LocalSandboxEnvironment()
    opened.callback(local.directory.cleanup)
    ours = WinkSandbox(opened.enter_context(_workspace(folder)))

    def run(names: list[str], environment: Any) -> None:
        async def write() -> None:
            for name in names:
                await environment.write_file(name, TEXT)

        asyncio.run(write())

    return lambda names: run(names, local), lambda names: run(names, ours)


def mini_swe_agent(folder: Path, opened: ExitStack) -> tuple[Side, Side]:
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.test_models import DeterministicModel, make_output

    from wink_workspace.integrations.mini_swe_agent import WinkEnvironment

    logging.getLogger("agent").setLevel(logging.ERROR)
    native = LocalEnvironment(cwd=str(folder / "native"))
    ours = WinkEnvironment(
        source=str(folder / "source"), storage=WorkspaceStorage(folder / "storage")
    )
    opened.callback(ours.close)

    def run(names: list[str], environment: Any) -> None:
        commands = [f"echo {name} > {name}" for name in names]
        commands.append("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
        outputs = [make_output("", [{"command": command}]) for command in commands]
        agent = DefaultAgent(
            DeterministicModel(outputs=outputs),
            environment,
            system_template="You write.",
            instance_template="{{task}}",
            step_limit=0,
            cost_limit=0,
        )
        agent.run("Write.")

    return lambda names: run(names, native), lambda names: run(names, ours)


def _workspace(folder: Path) -> Workspace:
    return Workspace.temporary(folder / "source")


FRAMEWORKS = (
    pydantic_ai,
    deepagents,
    openai_agents,
    openai_agents_sandbox,
    inspect_ai,
    mini_swe_agent,
)


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.__name__)
@pytest.mark.filterwarnings("ignore")
def bench_calls_of_a_framework(benchmark, tmp_path: Path, framework) -> None:
    """Twenty calls in a workspace; beside them, in turns, the same ones natively."""
    for side in ("source", "native"):
        (tmp_path / side).mkdir()
        for number in range(N_FILES):
            (tmp_path / side / f"f{number}.txt").write_text(TEXT)
    native_ms: list[float] = []
    numbers = iter(range(N_ROUNDS))

    with ExitStack() as opened:
        native, ours = framework(tmp_path, opened)

        def setup() -> tuple[tuple[list[str]], dict[str, Any]]:
            number = next(numbers)
            names = [f"new-{number}-{call}" for call in range(N_CALLS)]
            begun = perf_counter()
            native(names)
            native_ms.append((perf_counter() - begun) * 1_000 / N_CALLS)
            return (names,), {}

        benchmark.pedantic(ours, setup=setup, rounds=N_ROUNDS)
    ours_ms = [seconds * 1_000 / N_CALLS for seconds in benchmark.stats.stats.data]
    pairs = list(zip(ours_ms[1:], native_ms[1:], strict=True))
    benchmark.extra_info["calls"] = N_CALLS * len(pairs)
    benchmark.extra_info["native_ms"] = round(statistics.median(each for _, each in pairs), 2)
    benchmark.extra_info["workspace_ms"] = round(statistics.median(each for each, _ in pairs), 2)
    extra = statistics.median(one - other for one, other in pairs)
    benchmark.extra_info["extra_ms"] = round(extra, 2)
