"""Prompts: their trees, their bindings and their tools."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from wink_workspace.errors import (
    PromptRenderError,
    PromptValidationError,
    ResourceError,
    ResourcesClosedError,
)
from wink_workspace.prompt import (
    MarkdownSection,
    PolicyDecision,
    Prompt,
    PromptTemplate,
    Section,
    SectionVisibility,
    TextSection,
    Tool,
    ToolContext,
    ToolPolicy,
    ToolResult,
    VisibilityOverrides,
)
from wink_workspace.resources import Binding, Scope
from wink_workspace.session import Append, Session, SessionProtocol, SliceView, append_all


@dataclass(frozen=True)
class Params:
    name: str


@dataclass(frozen=True)
class Mode:
    on: bool = True


@dataclass(frozen=True)
class Answer:
    text: str


class Client:
    """A resource."""


class Tracer:
    """Another resource."""


def handle(params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def tool(name: str) -> Tool[None, None]:
    return Tool[None, None](name=name, description="Does nothing.", handler=handle)


def text(title: str, body: str = "", **options: Any) -> MarkdownSection[Params]:
    return MarkdownSection[Params](title=title, template=body, **options)


def names(tools: tuple[Tool[Any, Any], ...]) -> list[str]:
    return [tool.name for tool in tools]


# Templates


def test_name_and_key_default_to_each_other() -> None:
    only_name = PromptTemplate(name="greeter", sections=[])
    only_key = Prompt(ns="demo", key="greeter", sections=[])

    assert (only_name.ns, only_name.key, only_name.name) == ("default", "greeter", "greeter")
    assert (only_key.ns, only_key.key, only_key.name) == ("demo", "greeter", "greeter")


@pytest.mark.parametrize("identity", [{}, {"ns": "demo"}, {"ns": "", "key": "greeter"}])
def test_prompt_without_a_name_is_refused(identity: dict[str, str]) -> None:
    with pytest.raises(PromptValidationError, match="needs a name"):
        PromptTemplate(**identity, sections=[])


@pytest.mark.behaviour(4)
def test_two_tools_with_one_name_are_refused_naming_both_sections() -> None:
    sections = [
        Section("Files", children=[Section("Reading", tools=[tool("look")])]),
        Section("Web", enabled=lambda: False, tools=[tool("look")]),
    ]
    with pytest.raises(PromptValidationError, match="files > reading") as caught:
        Prompt(name="p", sections=sections)
    assert caught.value.section_path == ("web",)
    assert caught.value.tool == "look"


@pytest.mark.behaviour(4)
def test_two_tools_with_one_name_in_one_section_are_refused() -> None:
    with pytest.raises(PromptValidationError, match="already used by section files"):
        Prompt(name="p", sections=[Section("Files", tools=[tool("look"), tool("look")])])


def test_tool_named_like_one_that_opens_sections_is_refused_once_a_section_can_close() -> None:
    taken = Section("Own", tools=[tool("read_section")])

    assert names(Prompt(name="p", sections=[taken]).tools()) == ["read_section"]
    with pytest.raises(PromptValidationError, match="the prompt itself") as caught:
        Prompt(name="p", sections=[taken, Section("Long", summary="Short.")])
    assert caught.value.tool == "read_section"


def test_siblings_with_one_key_are_refused_but_cousins_may_share_it() -> None:
    Prompt(
        name="p",
        sections=[Section("A", children=[Section("X")]), Section("B", children=[Section("X")])],
    )
    with pytest.raises(PromptValidationError, match="'X' and 'x!' have the same key") as caught:
        Prompt(name="p", sections=[Section("A", children=[Section("X"), Section("x!")])])
    assert caught.value.section_path == ("a", "x")


def test_object_that_is_not_a_section_is_refused() -> None:
    with pytest.raises(PromptValidationError, match=r"'Guide' is not a Section\. Make"):
        Prompt(name="p", sections=["Guide"])


def test_template_can_be_walked_depth_first() -> None:
    template = PromptTemplate(name="p", sections=[Section("A", children=[Section("B")])])

    assert [(node.path, node.section.title) for node in template.walk()] == [
        ("a", "A"),
        ("a.b", "B"),
    ]


def test_prompts_of_one_template_are_independent() -> None:
    template = PromptTemplate(name="p", sections=[text("A", "Hi ${name}.")])
    first, second = Prompt(template).bind(Params("Ada")), Prompt(template).bind(Params("Bo"))

    assert "Ada" in first.render().text
    assert "Bo" in second.render().text
    assert first.sections is second.sections


def test_template_together_with_parts_of_one_is_refused() -> None:
    template = PromptTemplate(name="p", sections=[])
    with pytest.raises(PromptValidationError, match="both a template"):
        Prompt(template, name="q")  # pyright: ignore[reportCallIssue] - the mistake under test


@pytest.mark.parametrize(
    ("build", "output_type"),
    [
        (lambda: PromptTemplate[Answer](name="p", sections=[]), Answer),
        (lambda: PromptTemplate[list[Answer]](name="p", sections=[]), list[Answer]),
        (lambda: PromptTemplate[None](name="p", sections=[]), None),
        (lambda: PromptTemplate(name="p", sections=[]), None),
        (lambda: Prompt[Answer](name="p", sections=[]).template, Answer),
        (lambda: Prompt[Answer](PromptTemplate[Answer](name="p", sections=[])).template, Answer),
        (lambda: Prompt(PromptTemplate[Answer](name="p", sections=[])).template, Answer),
    ],
)
def test_output_type_is_the_type_argument(
    build: Callable[[], PromptTemplate[Any]], output_type: object
) -> None:
    assert build().output_type == output_type


@pytest.mark.parametrize("output_type", [str, dict[str, int], list[str], tuple[Answer, ...]])
def test_output_other_than_a_dataclass_or_a_list_of_one_is_refused(output_type: Any) -> None:
    with pytest.raises(PromptValidationError, match="cannot be an output"):
        PromptTemplate[output_type](name="p", sections=[])


def test_prompt_with_another_output_type_than_its_template_is_refused() -> None:
    with pytest.raises(PromptValidationError, match="parts of another"):
        Prompt[Mode](PromptTemplate[Answer](name="p", sections=[]))


# Params


def test_params_reach_every_section_that_uses_their_type() -> None:
    sections = [text("A", "${name}", children=[text("B", "${name}!")]), text("C", "${name}?")]
    rendered = Prompt(name="p", sections=sections).render(Params("Ada"))

    assert [line for line in rendered.text.splitlines() if "Ada" in line] == ["Ada", "Ada!", "Ada?"]


def test_params_of_render_replace_bound_ones_in_that_rendering_only() -> None:
    prompt = Prompt(name="p", sections=[text("A", "${name}")]).bind(Params("bound"))

    assert "given" in prompt.render(Params("given")).text
    assert "bound" in prompt.render().text


def test_params_bound_later_replace_those_of_the_same_type_only() -> None:
    prompt = Prompt(
        name="p", sections=[text("A", "${name}"), TextSection("B", "${on}", params=Mode)]
    )
    prompt.bind(Params("first"), Mode(on=False)).bind(Params("second"))

    assert prompt.render().text == "## 1. A\n\nsecond\n\n## 2. B\n\nFalse"


def test_missing_params_fall_back_to_default_params_and_then_to_the_types_defaults() -> None:
    sections = [
        text("A", "${name}", default_params=Params("default")),
        TextSection("B", "${on}", params=Mode),
    ]
    assert Prompt(name="p", sections=sections).render().text.split("\n\n")[1::2] == [
        "default",
        "True",
    ]


def test_field_without_init_does_not_count_as_missing() -> None:
    @dataclass
    class Counted:
        first: int = 1
        total: int = field(init=False)

        def __post_init__(self) -> None:
            self.total = self.first + 1

    section = TextSection("A", "${first} of ${total}", params=Counted)

    assert Prompt(name="p", sections=[section]).render().text == "## 1. A\n\n1 of 2"


def test_missing_params_without_defaults_are_an_error_with_section_and_type() -> None:
    prompt = Prompt(name="p", sections=[Section("Top", children=[text("A", "no placeholder")])])

    with pytest.raises(PromptRenderError, match=r"top > a needs params of type Params.*bind\(\)"):
        prompt.render()


def test_disabled_section_needs_no_params() -> None:
    prompt = Prompt(name="p", sections=[text("A", "${name}", enabled=lambda: False)])

    assert prompt.render().text == ""


def test_missing_params_of_a_closed_section_are_found_before_the_model_opens_it() -> None:
    prompt = Prompt(name="p", sections=[Section("Top", summary="s", children=[text("A")])])

    with pytest.raises(PromptRenderError, match="top > a"):
        prompt.render()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ((Mode(),), "takes params of type Mode.*Types in use: Params. Resources go in"),
        ((Params,), "takes params of type type"),
        (("Ada",), "takes params of type str"),
        ((Params("a"), Params("b")), "two values of type Params"),
    ],
)
def test_params_that_no_section_uses_are_refused(params: tuple[object, ...], message: str) -> None:
    prompt = Prompt(name="p", sections=[text("A")])

    with pytest.raises(PromptValidationError, match=message):
        prompt.bind(*params)
    with pytest.raises(PromptRenderError, match=message):
        prompt.render(*params)


def test_refused_bind_changes_nothing() -> None:
    prompt = Prompt(name="p", sections=[text("A", "${name}")]).bind(Params("before"))

    with pytest.raises(PromptValidationError, match="bound to Client"):
        prompt.bind(Params("after"), resources={Client: Tracer()})

    assert "before" in prompt.render().text


# Tools


@pytest.mark.behaviour(5)
def test_tools_are_those_of_enabled_sections_in_declaration_order() -> None:
    sections = [
        Section("A", tools=[tool("a2"), tool("a1")], children=[Section("B", tools=[tool("b")])]),
        Section(
            "Off",
            tools=[tool("off")],
            enabled=lambda: False,
            children=[Section("C", tools=[tool("c")])],
        ),
        Section("D", tools=[tool("d")]),
    ]
    prompt = Prompt(name="p", sections=sections)

    assert names(prompt.tools()) == ["a2", "a1", "b", "d"]
    assert prompt.render().tools == prompt.tools()


def test_tools_include_those_of_closed_sections_and_not_those_that_open_them() -> None:
    closed = Section("A", summary="s", visibility=SectionVisibility.SUMMARY, tools=[tool("a")])

    assert names(Prompt(name="p", sections=[closed]).tools()) == ["a"]


def test_tools_need_only_the_params_that_enable_sections() -> None:
    sections = [
        text("A", "${name}", tools=[tool("a")]),
        TextSection("B", "", params=Mode, tools=[tool("b")], enabled=lambda mode: mode.on),
    ]
    prompt = Prompt(name="p", sections=sections)

    assert names(prompt.tools()) == ["a", "b"]
    assert names(prompt.tools(Mode(on=False))) == ["a"]


def test_predicate_without_its_params_is_an_error_with_the_section() -> None:
    prompt = Prompt(name="p", sections=[text("A", enabled=lambda params: True)])

    with pytest.raises(PromptRenderError, match="section a needs params"):
        prompt.tools()


# Resources


def test_bound_resources_replace_those_of_sections() -> None:
    mine, other, tracer = Client(), Client(), Tracer()
    section = Section("A", resources={Client: mine, Tracer: tracer})
    prompt = Prompt(name="p", sections=[section])

    with prompt.resources as resources:
        assert resources.get(Client) is mine
    with prompt.bind(resources={Client: other}).resources:
        assert prompt.resources.get(Client) is other
        assert prompt.resources.get(Tracer) is tracer
        assert prompt.resources.get_optional(Mode) is None


def test_protocol_without_runtime_checks_accepts_any_instance() -> None:
    class Speaks(Protocol):
        def speak(self) -> str: ...

    client = Client()
    prompt = Prompt(name="p", sections=[]).bind(resources={Speaks: client})

    with prompt.resources:
        assert prompt.resources.get(Speaks) is client


def test_object_bound_instead_of_a_mapping_of_resources_is_refused_with_a_hint() -> None:
    with pytest.raises(PromptValidationError, match=r"Client is not a mapping.*\.resources"):
        Prompt(name="p", sections=[]).bind(resources=Client())


def test_binding_is_built_lazily_and_again_in_each_block() -> None:
    prompt = Prompt(name="p", sections=[])
    prompt.bind(resources={Client: Binding(Client, lambda _: Client())})

    with prompt.resources:
        assert prompt.resources.mark() == 0
        first = prompt.resources.get(Client)
        assert prompt.resources.get(Client) is first
        assert prompt.resources.built() == (first,)
        assert prompt.resources.evict_since(0) == ()
        assert prompt.resources.built() == ()
    with prompt.resources:
        assert prompt.resources.get(Client) is not first


def test_tool_scope_is_one_calls_view_of_the_resources() -> None:
    binding = Binding(Tracer, lambda _: Tracer(), scope=Scope.TOOL_CALL)
    prompt = Prompt(name="p", sections=[]).bind(resources={Tracer: binding})

    with prompt.resources:
        with prompt.resources.tool_scope() as one:
            first = one.get(Tracer)
            assert one.get(Tracer) is first
        with prompt.resources.tool_scope() as two:
            assert two.get(Tracer) is not first


def test_two_sections_may_bind_one_type_to_the_same_object() -> None:
    client, binding = Client(), Binding(Tracer, lambda _: Tracer())
    shared = {Client: client, Tracer: binding}

    with Prompt(
        name="p", sections=[Section(title, resources=shared) for title in "AB"]
    ).resources as resources:
        assert resources.get(Client) is client


def test_two_sections_that_bind_one_type_differently_are_refused_naming_both() -> None:
    sections = [
        Section("A", children=[Section("B", resources={Client: Client()})]),
        Section("C", resources={Client: Client()}),
    ]
    with pytest.raises(PromptValidationError, match=r"Client is bound here.*a > b") as caught:
        Prompt(name="p", sections=sections)
    assert caught.value.section_path == ("c",)


def test_resources_are_open_only_inside_the_block() -> None:
    prompt = Prompt(name="p", sections=[]).bind(resources={Client: Client()})

    assert not prompt.resources.is_open
    with prompt.resources:
        assert prompt.resources.is_open
    with pytest.raises(ResourcesClosedError, match="not open"):
        prompt.resources.get(Client)


def test_open_resources_cannot_be_opened_again() -> None:
    prompt = Prompt(name="p", sections=[])

    with prompt.resources, pytest.raises(ResourceError, match="already open"):
        prompt.resources.__enter__()


def test_resources_cannot_be_bound_while_they_are_open_but_params_can() -> None:
    prompt = Prompt(name="p", sections=[text("A", "${name}")])

    with prompt.resources:
        prompt.bind(Params("Ada"))
        with pytest.raises(ResourceError, match="while the prompt's resources are open"):
            prompt.bind(resources={Client: Client()})
    assert "Ada" in prompt.render().text


# Sessions


def keep(view: SliceView[Mode], event: Mode) -> Append[Mode]:
    return Append(event)


class StoringSection(Section[None]):
    """A section that stores every ``Mode``."""

    def install(self, session: Session) -> None:
        session[Mode].register(Mode, keep)


class StoringPolicy(ToolPolicy):
    """A policy that stores every ``Answer``."""

    name = "learning"

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        return PolicyDecision.allow()

    def install(self, session: SessionProtocol) -> None:
        session[Answer].register(Answer, append_all)


def test_install_reaches_sections_and_policies_of_the_whole_tree_and_may_be_repeated() -> None:
    below = StoringSection("B", policies=[StoringPolicy()])
    prompt = Prompt(name="p", sections=[Section("A", enabled=lambda: False, children=[below])])
    session = Session()
    prompt.install(session)
    prompt.install(session)
    session.dispatch(Mode())
    session.dispatch(Answer("yes"))

    assert session[Mode].all() == (Mode(),)
    assert session[Answer].all() == (Answer("yes"),)
    assert session[VisibilityOverrides].latest() is None


def test_importing_the_package_loads_no_pydantic() -> None:
    code = "import sys, wink_workspace.prompt; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
