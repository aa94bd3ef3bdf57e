"""The public API as an engineer first writes it: small programs that must keep running.

They use only public names. The statements that they show are numbers 69 to 77 of
``docs/reference/behaviours.md``.
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
    return executor.execute(ToolCall.of(name, arguments, id="1"))


@dataclass
class Params:
    """Parameters of several tools."""

    q: str = ""


@dataclass
class Result:
    """The result of several tools."""

    answer: str = ""


@pytest.mark.behaviour(71)
def test_handler_gets_resources_from_its_context() -> None:
    seen: list[Filesystem | None] = []

    def my_handler(params: Params, *, context: ToolContext) -> ToolResult[Result]:
        fs = context.resources.get(Filesystem)
        # Or shorthand: fs = context.filesystem
        seen.extend([fs, context.filesystem])
        return ToolResult.ok(Result("seen"), message="ok")

    tool = Tool[Params, Result](name="my_tool", description="Look.", handler=my_handler)
    section = MarkdownSection(title="Look", template="Look.", tools=[tool])
    filesystem = MemoryFilesystem()
    prompt = Prompt(ns="tests", key="look", name="look", sections=[section])
    prompt.bind(resources={Filesystem: filesystem})
    with prompt.resources:
        assert execute(prompt, "my_tool", q="x").result.success
    assert seen == [filesystem, filesystem]


@pytest.mark.behaviour(76)
def test_section_offers_its_tools_in_order() -> None:
    lookup_tool = Tool[Params, Result](name="lookup", description="Look up.", handler=None)
    search_tool = Tool[Params, Result](name="search", description="Search.", handler=None)

    section = MarkdownSection[Params](
        title="Guidance",
        key="guidance",
        template="Use tools when needed.",
        tools=[lookup_tool, search_tool],
    )

    assert section.tools() == (lookup_tool, search_tool)


@pytest.mark.behaviour(69)
def test_tool_parses_arguments_and_renders_its_result() -> None:
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
    prompt = Prompt(ns="tests", key="do", name="do", sections=[section])
    with prompt.resources:
        outcome = execute(prompt, "my_tool", query="x")
    assert outcome.text == "ok\n\n42"


class MyHttpClient:
    """A client that a program supplies."""

    def __init__(self, base_url: str = "https://api.example.com") -> None:
        self.base_url = base_url


HTTPClient = MyHttpClient


class Config:
    """Settings that a program supplies."""

    url = "https://config.example.com"

    @classmethod
    def from_env(cls) -> Config:
        return cls()


class Tracer:
    """A tracer that a program supplies."""


@pytest.mark.behaviour(72)
def test_registry_opens_bound_instances() -> None:
    registry = ResourceRegistry.of(
        Binding.instance(MyHttpClient, MyHttpClient()),
    )

    with registry.open() as resources:
        assert isinstance(resources.get(MyHttpClient), MyHttpClient)


@pytest.mark.behaviour(72)
def test_prompt_binds_instances_and_providers_with_scopes() -> None:
    template = PromptTemplate(
        ns="tests",
        key="bind",
        name="bind",
        sections=[MarkdownSection[Params](title="Do", template="Do ${q}.")],
    )
    params, session = Params("it"), Session()
    adapter = ScriptedAdapter([ModelTurn("done")])

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


@pytest.mark.behaviour(73)
def test_results_are_made_by_ok_by_error_or_in_full() -> None:
    @dataclass
    class MyResult:
        answer: str = ""

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


@pytest.mark.behaviour(74)
def test_tool_keeps_its_typed_examples() -> None:
    @dataclass(frozen=True)
    class NowParams:
        tz: str

    @dataclass(frozen=True)
    class NowResult:
        iso: str

    def now_handler(params: NowParams, *, context: ToolContext) -> ToolResult[NowResult]:
        return ToolResult.ok(NowResult("2025-01-01T00:00:00+00:00"))

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


@pytest.mark.behaviour(75)
def test_dependency_policy_refuses_a_tool_until_its_dependencies_succeeded() -> None:
    def run(params: Params, *, context: ToolContext) -> ToolResult[None]:
        return ToolResult.ok(None)

    deploy_tool, test_tool, build_tool = (
        Tool[Params, None](name=name, description=name, handler=run)
        for name in ("deploy", "test", "build")
    )

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
    prompt = Prompt(ns="tests", key="deploy", name="deploy", sections=[section])
    session = Session()
    prompt.install(session)
    with prompt.resources:
        executor = executor_of(prompt, session)
        answers = [
            executor.execute(ToolCall(name)).result.success
            for name in ("deploy", "test", "deploy", "build", "deploy")
        ]
    assert answers == [False, True, False, True, True]


@pytest.mark.behaviour(69)
def test_result_renders_with_its_own_method() -> None:
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


@pytest.mark.behaviour(70)
def test_generic_handler_fits_a_typed_tool() -> None:

    def handle_tool(params: ParamsT, *, context: ToolContext) -> ToolResult[ResultT]:
        return ToolResult(message="")

    handler: ToolHandler[Params, Result] = handle_tool
    tool = Tool[Params, Result](name="generic", description="Generic.", handler=handler)
    assert tool.handler is handle_tool


@dataclass
class LookupParams:
    """Parameters with a description."""

    entity_id: str = field(metadata={"description": "Global identifier to fetch"})
    include_related: bool = field(default=False)


@dataclass
class LookupResult:
    """What was found."""

    entity_id: str
    document_url: str


def lookup_handler(params: LookupParams, *, context: ToolContext) -> ToolResult[LookupResult]:
    result = LookupResult(entity_id=params.entity_id, document_url="https://example.com")
    message = f"Fetched entity {result.entity_id}."
    return ToolResult(message=message, value=result)


lookup_tool = Tool[LookupParams, LookupResult](
    name="lookup_entity",
    description="Fetch structured information for a given entity id.",
    handler=lookup_handler,
)


@pytest.mark.behaviour(76)
def test_prompt_renders_the_text_and_the_tools_of_its_sections() -> None:
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


def test_tool_context_has_the_documented_fields() -> None:
    @dataclass(slots=True, frozen=True)
    class Documented:
        prompt: Prompt[Any]
        rendered_prompt: RenderedPrompt[Any] | None
        adapter: ProviderAdapter[Any]
        session: SessionProtocol
        event_bus: EventBus

    for name in (f.name for f in dataclasses.fields(Documented)):
        assert hasattr(ToolContext, name)


@pytest.mark.behaviour(76)
def test_nested_sections_render_parameters_and_offer_tools() -> None:
    @dataclass
    class GuidanceParams:
        primary_tool: str

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


@pytest.mark.behaviour(70)
def test_handler_without_context_is_refused() -> None:
    def lookup_handler(params: Params) -> ToolResult[Result]:
        return ToolResult(message="", value=Result())

    with pytest.raises(PromptValidationError, match="context"):
        Tool[Params, Result](name="old", description="Old.", handler=lookup_handler)


@pytest.mark.behaviour(77)
def test_handler_can_evaluate_another_prompt() -> None:

    @dataclass
    class ChildParams:
        task: str

    sub_prompt = Prompt(
        ns="tests",
        key="child",
        name="child",
        sections=[MarkdownSection[ChildParams](title="Child", template="Do ${task}.")],
    )
    child_params = ChildParams("this")

    def delegate(params: Params, *, context: ToolContext) -> ToolResult[None]:
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
    prompt = Prompt(ns="tests", key="delegate", name="delegate", sections=[section])
    adapter = ScriptedAdapter([ModelTurn("child is done")])
    with prompt.resources:
        outcome = execute(prompt, "delegate", adapter)
    assert outcome.text == "Delegated work to sub-agent"
    assert adapter.n_left == 0
