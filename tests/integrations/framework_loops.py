"""Each framework's own loop, with a scripted model and the same tools over one workspace.

The tools: ``put`` writes a file, ``append`` reads and writes one with a pause between, ``fail``
writes one and raises, ``stall`` runs a command that writes one and reaches its time limit, which the
tool catches, ``hang`` writes one and waits for ever, ``delegate`` runs another agent, whose turns are
``inner``; where two of them share a model, that has these turns twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from deepagents import create_deep_agent
from fake_sandbox import FakeConfig
from inspect_ai import Task, eval_async
from inspect_ai.agent import react
from inspect_ai.agent import run as run_agent
from inspect_ai.dataset import Sample
from inspect_ai.model import Model, ModelOutput, get_model, modelapi
from inspect_ai.model._providers.mockllm import MockLLM
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, ToolCall, ToolError, tool
from inspect_ai.util import sandbox
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool, ToolException
from langgraph.checkpoint.memory import InMemorySaver
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, WorkspaceRef
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from wink_workspace.integrations import openai_agents
from wink_workspace.integrations.command_environment import CommandEnvironment
from wink_workspace.integrations.deepagents import (
    WorkspaceMiddleware,
    WorkspaceSandbox,
)
from wink_workspace.integrations.inspect_ai import WinkSandbox
from wink_workspace.integrations.mini_swe_agent import WinkEnvironment
from wink_workspace.integrations.pydantic_ai import PROVIDER, WinkWorkspaces
from wink_workspace.workspace import Workspace, WorkspaceStorage

__all__ = ["LOOPS", "Loop", "Turn"]

Turn = Sequence[tuple[str, dict[str, Any]]]
"""The tool calls of one turn of the model."""


class Loop:
    """One framework; a subclass runs its loop."""

    workspace: Workspace
    is_contained = False
    """Whether its commands run in a container; else in a fake."""
    without: tuple[str, ...] = ()
    """The situations that the framework does not have."""
    keeps_after_failure = False
    """Whether a failure is a result, whose changes are kept: the exit code of a command."""

    def __init__(self, source: Path, storage: WorkspaceStorage) -> None:
        self.source, self.storage = source, storage
        self.inner: Sequence[Turn] = ()
        self.hangs = asyncio.Event()

    def __enter__(self) -> Loop:
        self.workspace = Workspace.create(self.source, storage=self.storage)
        return self

    def __exit__(self, *_: object) -> None:
        self.workspace.close()

    async def run(self, *turns: Turn, streams: bool = False) -> None:
        raise NotImplementedError

    def go(self, *turns: Turn, streams: bool = False) -> None:
        """Run it to its end."""
        asyncio.run(self.run(*turns, streams=streams))

    def cancel(self, *turns: Turn) -> None:
        """Run it, and cancel it when ``hang`` waits."""

        async def cancelled() -> None:
            running = asyncio.create_task(self.run(*turns))
            hanging = asyncio.create_task(self.hangs.wait())
            await asyncio.wait([running, hanging], return_when=asyncio.FIRST_COMPLETED)
            assert not running.done()
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()

        asyncio.run(cancelled())

    # What the tools do

    def put(self, path: str) -> str:
        self.workspace.files.write_text(path, "x")
        return "written"

    async def append(self, path: str, text: str) -> str:
        files = self.workspace.files
        before = files.read_bytes(path).decode() if files.exists(path) else ""
        await asyncio.sleep(0.01)
        files.write_text(path, before + text)
        return "appended"

    async def hang(self, path: str) -> str:
        self.put(path)
        self.hangs.set()
        await asyncio.Event().wait()
        return "never"

    async def stall(self, path: str) -> str:
        environment = CommandEnvironment(self.workspace, FakeConfig())
        result = await environment.run(["stall", path], timeout_s=1)
        return "timed out" if result.timed_out else "not timed out"


class PydanticAI(Loop):
    def __enter__(self) -> Loop:
        self.workspaces = WinkWorkspaces(
            str(self.source), storage=self.storage, sandbox=FakeConfig()
        )
        self.name, environment = self.workspaces.create()
        self.workspace = environment.workspace
        return self

    def __exit__(self, *_: object) -> None:
        self.workspaces.close()

    def agent(self, turns: Sequence[Turn]) -> Agent:
        left = iter(turns)

        def turn(messages, info) -> ModelResponse:
            calls = [ToolCallPart(name, arguments) for name, arguments in next(left, ())]
            return ModelResponse(parts=calls or [TextPart("Done.")])

        async def stream(messages, info):
            calls = next(left, ())
            if not calls:
                yield "Done."
            for index, (name, arguments) in enumerate(calls):
                yield {index: DeltaToolCall(name=name, json_args=json.dumps(arguments))}

        agent = Agent(FunctionModel(turn, stream_function=stream), capabilities=[self.workspaces])
        for method in (self.put, self.append, self.hang):
            agent.tool_plain(method)

        @agent.tool_plain(retries=3)
        def fail(path: str) -> str:
            self.put(path)
            raise ModelRetry("no")

        @agent.tool
        async def stall(ctx: RunContext, path: str) -> str:
            try:
                await ctx.workspace.run(["stall", path], timeout=1)
            except Exception as error:  # noqa: BLE001 - a tool that goes on
                return type(error).__name__
            return "not timed out"

        @agent.tool_plain
        async def delegate() -> str:
            return (await self.agent(self.inner).run("go")).output  # finds the workspace itself

        return agent

    async def run(self, *turns: Turn, streams: bool = False) -> None:
        ref = WorkspaceRef(provider=PROVIDER, id=self.name)
        agent = self.agent(turns)
        if not streams:
            await agent.run("go", workspace=ref)
            return
        async with agent.run_stream("go", workspace=ref) as result:
            assert [part async for part in result.stream_text()]


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


class DeepAgents(Loop):
    def model(self, turns: Sequence[Turn], *, n_ends: int = 1) -> Scripted:
        calls = {
            "stall": lambda path: ("execute", {"command": f"stall {path}", "timeout": 1}),
            "delegate": lambda: ("task", {"description": "d", "subagent_type": "inner"}),
        }
        messages = []
        for number, turn in enumerate(turns):
            made = []
            for index, (name, given) in enumerate(turn):
                name, given = calls[name](**given) if name in calls else (name, given)
                made.append({"name": name, "args": given, "id": f"c{id(turns)}-{number}-{index}"})
            messages.append(AIMessage("", tool_calls=made))
        return Scripted(messages=iter([*messages, *[AIMessage("Done.")] * n_ends]))

    def tools(self) -> list[StructuredTool]:
        def fail(path: str) -> str:
            self.put(path)
            raise ToolException("no")

        def described(name: str, **options: Any) -> StructuredTool:
            return StructuredTool.from_function(name=name, description=name, **options)

        return [
            described("put", func=self.put),
            described("append", coroutine=self.append),
            described("hang", coroutine=self.hang),
            described("fail", func=fail, handle_tool_error=True),
        ]

    async def run(self, *turns: Turn, streams: bool = False) -> None:
        inner_model = self.model([*self.inner, *self.inner], n_ends=2)
        inner = {"name": "inner", "description": "d", "system_prompt": "p"}
        graph = create_deep_agent(
            self.model(turns),
            self.tools(),
            backend=WorkspaceSandbox(self.workspace, config=FakeConfig()),
            middleware=[WorkspaceMiddleware(self.workspace)],
            subagents=[{**inner, "tools": self.tools(), "model": inner_model}],
            checkpointer=InMemorySaver(),
        )
        config: Any = {"configurable": {"thread_id": "t"}}
        given: Any = {"messages": [("user", "go")]}
        if streams:
            assert [part async for part in graph.astream(given, config, stream_mode="updates")]
        else:
            await graph.ainvoke(given, config)


class OpenAIAgents(Loop):
    def agent(self, turns: Sequence[Turn], *, is_inner: bool = False) -> OpenAIAgent[Any]:
        def fail(path: str) -> str:
            self.put(path)
            raise ValueError("no")

        methods = (self.put, self.append, self.hang, self.stall, fail)
        tools = [openai_agents.in_call(self.workspace, function_tool(each)) for each in methods]
        if not is_inner:
            inner = self.agent([*self.inner, *self.inner], is_inner=True)
            delegate = inner.as_tool("delegate", "d")
            tools.append(openai_agents.in_call(self.workspace, delegate))
        script = [
            [
                function_call(
                    name,
                    json.dumps({"input": "go"} if name == "delegate" else given),
                    call_id=f"{id(turns)}-{number}-{index}",
                )
                for index, (name, given) in enumerate(turn)
            ]
            for number, turn in enumerate(turns)
        ]
        model = ScriptedModel([*script, *[[assistant_message("Done.")]] * (2 if is_inner else 1)])
        return OpenAIAgent("agent", model=model, tools=tools)

    async def run(self, *turns: Turn, streams: bool = False) -> None:
        config = RunConfig(tracing_disabled=True)
        if not streams:
            await Runner.run(self.agent(turns), "go", run_config=config)
            return
        running = Runner.run_streamed(self.agent(turns), "go", run_config=config)
        assert [event async for event in running.stream_events()]


@modelapi("offline")
class OfflineModel(MockLLM):
    """A model whose tokens are counted without tables that are downloaded."""

    async def count_text_tokens(self, text: str) -> int:
        return len(text)


class InspectAI(Loop):
    """Its workspace is opened after the run; storage is the default one."""

    is_contained = True
    without = ("streamed",)

    def __enter__(self) -> Loop:
        return self

    def model(self, turns: Sequence[Turn], *, n_ends: int) -> Model:
        outputs = []
        for number, turn in enumerate(turns):
            output = ModelOutput.from_content("offline/model", "")
            output.choices[0].message.tool_calls = [
                ToolCall(id=f"{id(turns)}-{number}-{index}", function=name, arguments=given)
                for index, (name, given) in enumerate(turn)
            ]
            outputs.append(output)
        outputs += [ModelOutput.from_content("offline/model", "Done.")] * n_ends
        return get_model("offline/model", custom_outputs=outputs, memoize=False)

    def tools(self) -> list[Tool]:
        loop = self

        def calling(work: Callable[..., Awaitable[str]], name: str) -> Tool:
            @tool(name=name)
            def made() -> Tool:
                async def execute(path: str = "", text: str = "") -> str:
                    """Work in a call.

                    Args:
                        path: A path.
                        text: A text.
                    """
                    own = sandbox().as_type(WinkSandbox)
                    loop.workspace = own.workspace
                    async with own.call(name):
                        return await work(*filter(None, (path, text)))

                return execute

            return made()

        async def put(path: str) -> str:
            return self.put(path)

        async def fail(path: str) -> str:
            self.put(path)
            raise ToolError("no")

        async def stall(path: str) -> str:
            try:
                await sandbox().exec(["sh", "-c", f"echo > {path}; sleep 60"], timeout=1)
            except TimeoutError:
                return "timed out"
            return "not timed out"

        async def delegate() -> str:
            model = self.model(self.inner, n_ends=2)
            await run_agent(react(tools=self.tools(), model=model, submit=False), "go")
            return "delegated"

        works = (put, self.append, fail, stall, self.hang, delegate)
        return [calling(work, work.__name__) for work in works]

    async def run(self, *turns: Turn, streams: bool = False) -> None:
        task = Task(
            dataset=[Sample(input="go")],
            solver=[use_tools(self.tools()), generate()],
            sandbox=("wink", str(self.source)),
        )
        options = {"log_dir": str(self.source.parent / "logs")}
        model = self.model(turns, n_ends=2)
        try:
            [log] = await eval_async(task, model, sandbox_cleanup=False, **options)
        finally:
            closed = self.workspace
            self.workspace = Workspace.open(closed.info.id, branch=closed.branch_name)
        if log.status == "cancelled":
            raise asyncio.CancelledError
        assert log.status == "success", log.error


class MiniSweAgent(Loop):
    is_contained = True
    without = ("nested", "streamed")
    keeps_after_failure = True

    def __enter__(self) -> Loop:
        self.environment = WinkEnvironment(source=str(self.source), storage=self.storage)
        self.workspace = self.environment.workspace
        return self

    def __exit__(self, *_: object) -> None:
        self.environment.close()

    def go(self, *turns: Turn, streams: bool = False) -> None:
        commands = {
            "put": "echo x > {path}",
            "append": "printf {text} >> {path}",
            "fail": "echo x > {path}; exit 1",
            "stall": "echo x > {path}; sleep 60",
            "hang": "echo x > {path}; sleep 60",
        }
        stalls = any(name == "stall" for turn in turns for name, _ in turn)
        self.environment.config = replace(self.environment.config, timeout_s=2 if stalls else 60)
        outputs = [
            make_output("", [{"command": commands[name].format(**given)} for name, given in turn])
            for turn in turns
        ]
        submit = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}
        model = DeterministicModel(outputs=[*outputs, make_output("", [submit])])
        templates = {"system_template": "You edit.", "instance_template": "{{task}}"}
        agent = DefaultAgent(model, self.environment, cost_limit=0, **templates)
        agent.run("go")

    def cancel(self, *turns: Turn) -> None:
        def interrupt() -> None:
            while not self.workspace.files.exists("trace"):
                threading.Event().wait(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            self.go(*turns)


LOOPS: dict[str, type[Loop]] = {
    "pydantic-ai": PydanticAI,
    "deepagents": DeepAgents,
    "OpenAI Agents SDK": OpenAIAgents,
    "inspect_ai": InspectAI,
    "mini-swe-agent": MiniSweAgent,
}
