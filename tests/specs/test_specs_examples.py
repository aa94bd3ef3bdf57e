"""Every code example of the ancestor's five specifications, run.

Imports read ``wink_workspace`` for the ancestor's package and name our modules. Other ports are
listed in the docstring of the test; a comment ``# the specification's code`` marks where the
example starts, and what stands before it is what the example takes for granted.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pytest
from support import executor_of

from wink_workspace.adapters import ModelTurn, ProviderAdapter, ScriptedAdapter
from wink_workspace.errors import PromptValidationError
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    ReadBeforeWritePolicy,
    RenderedPrompt,
    SequentialDependencyPolicy,
    TextSection,
    Tool,
    ToolContext,
    ToolExample,
    ToolHandler,
    ToolResult,
    ToolsSection,
)
from wink_workspace.resources import Binding, ResourceRegistry, Scope
from wink_workspace.runtime import CallOutcome, ToolCall, ToolExecutor
from wink_workspace.session import EventBus, Session, SessionProtocol


def execute(
    prompt: Prompt[Any], name: str, adapter: ProviderAdapter[Any] | None = None, **arguments: object
) -> CallOutcome:
    """Call a tool of *prompt*, whose resources are open."""
    session = Session()
    prompt.install(session)
    executor = ToolExecutor(
        prompt=prompt,
        rendered_prompt=prompt.render(session=session),
        adapter=adapter or ScriptedAdapter(()),
        session=session,
    )
    return executor.execute(ToolCall("1", name, arguments))


@dataclass
class Params:
    """What several examples call their parameters."""

    q: str = ""


@dataclass
class Result:
    """What several examples call their result."""

    answer: str = ""


# 000: tool runtime, the newest


def test_000_handler_signature_and_resource_access() -> None:
    """Example "Handler signature" and example "Resource Access", given a body to observe."""
    seen: list[Filesystem | None] = []

    # the specification's code
    def my_handler(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        fs = context.resources.get(Filesystem)
        # Or shorthand: fs = context.filesystem
        seen.extend([fs, context.filesystem])
        return ToolResult.ok(Result("seen"), message="ok")

    tool = Tool[Params, Result](name="my_tool", description="Look.", handler=my_handler)
    section = MarkdownSection(title="Look", template="Look.", tools=[tool])
    filesystem = MemoryFilesystem()
    prompt = Prompt(ns="specs", key="000", name="000", sections=[section])
    prompt.bind(resources={Filesystem: filesystem})
    with prompt.resources:
        assert execute(prompt, "my_tool", q="x").result.success
    assert seen == [filesystem, filesystem]


def test_000_section_integration() -> None:
    lookup_tool = Tool[Params, Result](name="lookup", description="Look up.", handler=None)
    search_tool = Tool[Params, Result](name="search", description="Search.", handler=None)

    # the specification's code
    section = MarkdownSection[Params](
        title="Guidance",
        key="guidance",
        template="Use tools when needed.",
        tools=[lookup_tool, search_tool],
    )

    assert section.tools() == (lookup_tool, search_tool)


# 003: guide


def test_003_skeleton() -> None:
    # the specification's code
    @dataclass(slots=True, frozen=True)
    class MyParams:
        query: str

    @dataclass(slots=True, frozen=True)
    class MyResult:
        answer: str

        def render(self) -> str:
            return self.answer

    def handler(params: MyParams, *, context: ToolContext) -> ToolResult[MyResult]:
        # Do work here (read files, call an API, etc.)
        return ToolResult.ok(MyResult(answer="42"), message="ok")

    tool = Tool[MyParams, MyResult](
        name="my_tool",
        description="Do a thing.",
        handler=handler,
    )

    assert (tool.params_type, tool.result_type) == (MyParams, MyResult)
    section = MarkdownSection(title="Do", template="Do.", tools=[tool])
    prompt = Prompt(ns="specs", key="003", name="003", sections=[section])
    with prompt.resources:
        outcome = execute(prompt, "my_tool", query="x")
    assert outcome.text == "ok\n\n42"


class MyHttpClient:
    """A client of the user's own."""

    def __init__(self, base_url: str = "https://api.example.com") -> None:
        self.base_url = base_url


HTTPClient = MyHttpClient


class Config:
    """Settings of the user's own."""

    url = "https://config.example.com"

    @classmethod
    def from_env(cls) -> Config:
        return cls()


class Tracer:
    """A tracer of the user's own."""


def test_003_registry() -> None:
    """Port: the placeholder ``...`` for the client's arguments is left out."""
    # the specification's code
    registry = ResourceRegistry.of(
        Binding.instance(MyHttpClient, MyHttpClient()),
    )

    with registry.open() as resources:
        assert isinstance(resources.get(MyHttpClient), MyHttpClient)


def test_003_binding_resources_to_prompts() -> None:
    template = PromptTemplate(
        ns="specs",
        key="bind",
        name="bind",
        sections=[MarkdownSection[Params](title="Do", template="Do ${q}.")],
    )
    params, session = Params("it"), Session()
    adapter = ScriptedAdapter([ModelTurn("done")])

    # the specification's code
    # Simple case: pre-constructed instances
    http_client = HTTPClient(base_url="https://api.example.com")
    prompt = Prompt(template).bind(params, resources={HTTPClient: http_client})

    with prompt.resources:
        assert prompt.resources.get(HTTPClient) is http_client

    # Advanced: lazy construction with dependencies and scopes
    prompt = Prompt(template).bind(params, resources={
        Config: Binding(Config, lambda r: Config.from_env()),
        HTTPClient: Binding(HTTPClient, lambda r: HTTPClient(r.get(Config).url)),
        Tracer: Binding(Tracer, lambda r: Tracer(), scope=Scope.TOOL_CALL),
    })  # fmt: skip

    # Use prompt.resources context manager for lifecycle management
    with prompt.resources:
        assert prompt.resources.get(HTTPClient).base_url == Config.url
        response = adapter.evaluate(prompt, session=session)

    assert response.text == "done"


def test_003_tool_result_semantics() -> None:
    """Port: the placeholder ``...`` for the value in the full form is a value."""

    @dataclass
    class MyResult:
        answer: str = ""

    # the specification's code
    # Success with typed value (most common)
    ok = ToolResult.ok(MyResult(), message="Done")

    # Failure with no value
    failed = ToolResult.error("Something went wrong")

    # Full form (when exclude_value_from_context is needed)
    full = ToolResult(
        message="Human-readable status",
        value={"a": 1},                   # dataclass | mapping | sequence | str | None
        success=True,                     # if False, adapters treat as tool failure
        exclude_value_from_context=False, # hide large payloads from model context
    )  # fmt: skip

    assert (ok.success, ok.value, ok.message) == (True, MyResult(), "Done")
    assert (failed.success, failed.value) == (False, None)
    assert json.loads(full.render()) == {"a": 1}


def test_003_tool_examples() -> None:
    @dataclass(frozen=True)
    class NowParams:
        tz: str

    @dataclass(frozen=True)
    class NowResult:
        iso: str

    def now_handler(params: NowParams, *, context: ToolContext) -> ToolResult[NowResult]:
        return ToolResult.ok(NowResult("2025-01-01T00:00:00+00:00"))

    # the specification's code
    tool = Tool[NowParams, NowResult](
        name="now",
        description="Return UTC time.",
        handler=now_handler,
        examples=(
            ToolExample(
                description="Get UTC time",
                input=NowParams(tz="UTC"),
                output=NowResult(iso="2025-01-01T00:00:00+00:00"),
            ),
        ),
    )

    assert tool.examples[0].input == NowParams(tz="UTC")


def test_003_policies() -> None:
    def run(params: Params, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None)

    deploy_tool, test_tool, build_tool = (
        Tool[Params, None](name=name, description=name, handler=run)
        for name in ("deploy", "test", "build")
    )

    # the specification's code
    # Require 'test' and 'build' before 'deploy'
    deploy_policy = SequentialDependencyPolicy(
        dependencies={
            "deploy": frozenset({"test", "build"}),
        }
    )

    # Require reading a file before overwriting it (new files allowed)
    read_first = ReadBeforeWritePolicy()

    section = MarkdownSection(
        title="Deployment",
        key="deployment",
        template="Deploy the application after testing.",
        tools=(deploy_tool, test_tool, build_tool),
        policies=(deploy_policy,),
    )

    assert read_first.name
    prompt = Prompt(ns="specs", key="deploy", name="deploy", sections=[section])
    session = Session()
    prompt.install(session)
    with prompt.resources:
        executor = executor_of(prompt, session)
        answers = [
            executor.execute(ToolCall("1", name, {})).result.success
            for name in ("deploy", "test", "deploy", "build", "deploy")
        ]
    assert answers == [False, True, False, True, True]


# 001: combined tool runtime


def test_001_tool_renderable_result() -> None:
    # the specification's code
    class ToolRenderableResult(Protocol):
        def render(self) -> str: ...

    @dataclass
    class Rendered:
        def render(self) -> str:
            return "as text"

    result: ToolRenderableResult = Rendered()
    assert ToolResult("", result).render() == "as text"


ParamsT = TypeVar("ParamsT")
ResultT = TypeVar("ResultT")


def test_001_and_004_handler_signature() -> None:
    """Two specifications show the same signature; the placeholder body returns a result."""

    # the specification's code
    def handle_tool(params: ParamsT, *, context: ToolContext) -> ToolResult[ResultT]:
        return ToolResult(message="")

    handler: ToolHandler[Params, Result] = handle_tool
    tool = Tool[Params, Result](name="generic", description="Generic.", handler=handler)
    assert tool.handler is handle_tool


def test_001_example() -> None:
    # the specification's code
    @dataclass
    class LookupParams:
        entity_id: str = field(metadata={"description": "Global identifier to fetch"})
        include_related: bool = field(default=False)

    @dataclass
    class LookupResult:
        entity_id: str
        document_url: str

    def lookup_handler(
        params: LookupParams, *, context: ToolContext
    ) -> ToolResult[LookupResult]:  # fmt: skip
        result = LookupResult(entity_id=params.entity_id, document_url="https://example.com")
        message = f"Fetched entity {result.entity_id}."
        return ToolResult(message=message, value=result)

    lookup_tool = Tool[LookupParams, LookupResult](
        name="lookup_entity",
        description="Fetch structured information for a given entity id.",
        handler=lookup_handler,
    )

    prompt = Prompt(
        ns="examples/tooling",
        key="tools_overview",
        name="tools_overview",
        sections=[
            MarkdownSection(
                title="Guidance",
                template="Use tools when you need up-to-date context.",
                tools=[lookup_tool],
            )
        ],
    )

    rendered = prompt.render()
    markdown = rendered.text
    tools = rendered.tools
    assert tools[0].name == "lookup_entity"

    assert "Use tools when you need up-to-date context." in markdown


def test_001_and_004_tool_context_data_model() -> None:
    """Ports: 004 says ``Session`` where 001 says ``SessionProtocol``.

    The example redefines the class; ours has every field it names (``event_bus`` as a property).
    """
    ours = ToolContext
    del ours

    # the specification's code
    @dataclass(slots=True, frozen=True)
    class ToolContext001:
        prompt: Prompt[Any]
        rendered_prompt: RenderedPrompt[Any] | None
        adapter: ProviderAdapter[Any]
        session: SessionProtocol
        event_bus: EventBus

    for name in (f.name for f in dataclasses.fields(ToolContext001)):
        assert hasattr(ToolContext, name)


# 002: tool registration, the oldest


def test_002_example() -> None:
    """Ports: the handler takes ``context``, the result's ``payload`` is ``value``.

    ``render()`` gives the rendered prompt, whose ``text`` is the markdown; omitted keys are
    derived from the titles.
    """

    # the specification's code
    @dataclass
    class LookupParams:
        entity_id: str = field(metadata={"description": "Global identifier to fetch"})
        include_related: bool = field(default=False)

    @dataclass
    class LookupResult:
        entity_id: str
        document_url: str

    @dataclass
    class GuidanceParams:
        primary_tool: str

    def lookup_handler(params: LookupParams, *, context: ToolContext) -> ToolResult[LookupResult]:
        result = LookupResult(entity_id=params.entity_id, document_url="https://example.com")
        message = f"Fetched entity {result.entity_id}."
        return ToolResult(message=message, value=result)

    lookup_tool = Tool[LookupParams, LookupResult](
        name="lookup_entity",
        description="Fetch structured information for a given entity id.",
        handler=lookup_handler,
    )

    tooling_overview = Prompt(
        name="tools_overview",
        sections=[
            TextSection(
                title="Guidance",
                body="""
                Use tools when you need up-to-date context. Prefer ${primary_tool} for critical lookups.
                """,
                params=GuidanceParams,
                children=[
                    ToolsSection(
                        title="Available Tools",
                        tools=[lookup_tool],
                        params=GuidanceParams,
                        description="""
                        Invoke ${primary_tool} whenever you need fresh entity context.
                        """,
                    )
                ],
            )
        ],
    )

    markdown = tooling_overview.render(GuidanceParams(primary_tool="lookup_entity")).text
    tools = tooling_overview.tools()
    assert tools[0].name == "lookup_entity"

    assert "Prefer lookup_entity for critical lookups." in markdown
    assert "Invoke lookup_entity whenever you need fresh entity context." in markdown
    with tooling_overview.resources:
        tooling_overview.bind(GuidanceParams("lookup_entity"))
        outcome = execute(tooling_overview, "lookup_entity", entity_id="7")
    assert outcome.result.message == "Fetched entity 7."


def test_002_a_handler_of_the_old_signature_is_refused() -> None:
    def lookup_handler(params: Params) -> ToolResult[Result]:
        return ToolResult(message="", value=Result())

    with pytest.raises(PromptValidationError, match="context"):
        Tool[Params, Result](name="old", description="Old.", handler=lookup_handler)


# 004: tool context


def test_004_usage_sketch() -> None:
    """Port: ``bus=`` is gone, since the session has its dispatcher."""

    @dataclass
    class ChildParams:
        task: str

    sub_prompt = Prompt(
        ns="specs",
        key="child",
        name="child",
        sections=[MarkdownSection[ChildParams](title="Child", template="Do ${task}.")],
    )
    child_params = ChildParams("this")

    def delegate(params: Params, *, context: ToolContext) -> ToolResult[None]:
        # the specification's code
        rendered_child = context.adapter.evaluate(
            sub_prompt,
            child_params,
            session=context.session,
        )

        return ToolResult(
            message="Delegated work to sub-agent",
            value=rendered_child.output,
        )

    tool = Tool[Params, None](name="delegate", description="Delegate.", handler=delegate)
    section = MarkdownSection(title="Delegate", template="Delegate.", tools=[tool])
    prompt = Prompt(ns="specs", key="004", name="004", sections=[section])
    adapter = ScriptedAdapter([ModelTurn("child is done")])
    with prompt.resources:
        outcome = execute(prompt, "delegate", adapter)
    assert outcome.text == "Delegated work to sub-agent"
    assert adapter.n_left == 0
