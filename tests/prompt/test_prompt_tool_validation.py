"""Validation of tools when they are built."""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import pytest

import wink_workspace.prompt.tool_result as results
from wink_workspace.errors import PromptValidationError, UsageError
from wink_workspace.prompt.tool import Tool, ToolAnnotations, ToolExample
from wink_workspace.prompt.tool_context import ToolContext
from wink_workspace.prompt.tool_result import ToolResult

if TYPE_CHECKING:
    import wink_workspace.prompt.tool_context as contexts
    from wink_workspace.prompt.tool import ToolHandler

P = TypeVar("P")
A_DESCRIPTION = "Look something up."


@dataclass(frozen=True)
class Query:
    text: str


@dataclass(frozen=True)
class NarrowQuery(Query):
    limit: int = 10


@dataclass(frozen=True)
class Answer:
    text: str


@dataclass(frozen=True)
class LongAnswer(Answer):
    pages: int = 1


def look_up(params: Query, *, context: ToolContext) -> ToolResult[Answer]:
    return ToolResult.ok(Answer(params.text))


def look_up_alone(params: None, *, context: ToolContext) -> ToolResult[None]:
    return ToolResult.ok(None)


def built(**changes: Any) -> Tool[Query, Answer]:
    arguments = {"name": "look_up", "description": A_DESCRIPTION, "handler": look_up} | changes
    return Tool[Query, Answer](**arguments)


def refused(**changes: Any) -> PromptValidationError:
    with pytest.raises(PromptValidationError) as caught:
        built(**changes)
    return caught.value


# Name and description


@pytest.mark.behaviour(1)
@pytest.mark.parametrize("name", ["a", "look-up_2", "0", "x" * 64])
def test_a_name_of_64_letters_digits_and_dashes_is_accepted(name: str) -> None:
    assert built(name=name).name == name


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    "name", ["", "x" * 65, "Look", "look up", " look", "look\n", "look.up", "ünder", "a/b", None, 7]
)
def test_any_other_tool_name_is_refused_and_not_trimmed(name: object) -> None:
    error = refused(name=name)

    assert error.field == "name"
    assert error.tool == str(name)


@pytest.mark.behaviour(2)
def test_a_description_is_stored_without_the_white_space_around_it() -> None:
    assert built(description="\n  Look it up. \n").description == "Look it up."
    assert built(description="x" * 200 + " ").description == "x" * 200


@pytest.mark.behaviour(2)
@pytest.mark.parametrize("description", ["", "  \n", "x" * 201, "café", None])
def test_a_description_that_is_empty_long_or_not_ascii_is_refused(description: object) -> None:
    error = refused(description=description)

    assert (error.tool, error.field) == ("look_up", "description")
    assert "1 to 200 ASCII" in error.hint


# Types


@pytest.mark.parametrize(
    ("tool", "types"),
    [
        (Tool[Query, Answer](name="t", description="d"), (Query, Answer)),
        (Tool[None, None](name="t", description="d", handler=look_up_alone), (NoneType, NoneType)),
        (Tool(name="t", description="d", handler=look_up), (Query, Answer)),
        (Tool(name="t", description="d", handler=look_up_alone), (NoneType, NoneType)),
    ],
    ids=["written", "none", "inferred", "inferred none"],
)
def test_a_tool_knows_its_types(tool: Tool[Any, Any], types: tuple[type, type]) -> None:
    assert (tool.params_type, tool.result_type) == types


def test_types_of_a_generic_function_are_inferred_from_the_handler() -> None:
    def tool_from(handler: ToolHandler[P, None]) -> Tool[P, None]:
        return Tool[P, None](name="t", description="d", handler=handler)

    assert tool_from(look_up_alone).params_type is NoneType


def test_tool_without_types_is_refused_with_a_hint() -> None:
    with pytest.raises(PromptValidationError, match=r"Write Tool\[Params, Result\]"):
        Tool(name="t", description="d")


@pytest.mark.parametrize(
    "result",
    [
        Answer,
        str,
        None,
        list[int],
        tuple[str, ...],
        dict[str, int],
        Mapping[str, object],
        Sequence[Answer],
        Answer | None,
    ],
)
def test_results_are_dataclasses_mappings_sequences_strings_or_none(result: Any) -> None:
    tool = Tool[None, result](name="t", description="d")

    assert tool.result_type == (result or NoneType)


@pytest.mark.parametrize("result", [int, bytes, set[str], object, Any, Answer | int, Literal["a"]])
def test_other_results_are_refused(result: Any) -> None:
    with pytest.raises(PromptValidationError, match="cannot be the type of a result") as caught:
        Tool[None, result](name="t", description="d")

    assert caught.value.field == "result_type"


@pytest.mark.parametrize("params", [str, dict[str, int], Query | None])
def test_params_other_than_a_dataclass_are_refused(params: Any) -> None:
    with pytest.raises(PromptValidationError, match="cannot be the type of params") as caught:
        Tool[params, None](name="t", description="d")

    assert caught.value.field == "params_type"


# Handlers that are accepted


def on_anything(params: object, *, context: object) -> ToolResult[Any]: ...


class HasText(Protocol):
    text: str


def on_protocol(params: HasText, *, context: ToolContext) -> ToolResult[Answer]: ...


def narrowly(params: Query, *, context: ToolContext) -> ToolResult[LongAnswer]: ...


def in_either_way(
    params: Query, *, context: ToolContext
) -> ToolResult[Answer] | ToolResult[LongAnswer]: ...


def with_options(
    params: Query, /, *, context: ToolContext, limit: int = 3, **rest: object
) -> ToolResult[Answer]: ...


def with_qualified_names(
    it: Query, *, context: contexts.ToolContext
) -> results.ToolResult[Answer]: ...


def with_strings(
    params: "Query",  # noqa: UP037 - the test needs the quotes
    *,
    context: ToolContext,
) -> ToolResult["Answer"]: ...  # noqa: UP037 - as above


def any_kind(params: P, *, context: ToolContext) -> ToolResult[P]: ...


class Library(Generic[P]):
    def look_up(self, params: Query, *, context: ToolContext) -> ToolResult[Answer]: ...

    def __call__(self, params: Query, *, context: ToolContext) -> ToolResult[Answer]: ...


def sized(n: int, params: Query, *, context: ToolContext) -> ToolResult[Answer]: ...


@functools.wraps(look_up)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return look_up(*args, **kwargs)


def evaluated(params, *, context): ...


evaluated.__annotations__ = {
    "params": Query,
    "context": ToolContext,
    "return": ToolResult["Answer"],
}


async def fetch(params: Query, *, context: ToolContext) -> ToolResult[Answer]: ...


@functools.wraps(fetch)
def fetched(*args: Any, **kwargs: Any) -> Any:
    return asyncio.run(fetch(*args, **kwargs))


@pytest.mark.parametrize(
    "handler",
    [
        None,
        look_up,
        on_anything,
        on_protocol,
        narrowly,
        in_either_way,
        with_options,
        with_qualified_names,
        with_strings,
        any_kind,
        Library().look_up,
        Library(),
        functools.partial(sized, 3),
        wrapped,
        fetched,
        evaluated,
    ],
)
def test_any_callable_of_params_and_context_is_a_handler(handler: Any) -> None:
    assert built(handler=handler).handler is handler


def test_classes_that_are_local_to_a_function_are_matched_by_name() -> None:
    @dataclass
    class Query:  # hides the module's class, as far as a reader can see
        text: str

    @dataclass
    class Found:
        text: str

    def handle(params: Query, *, context: ToolContext) -> ToolResult[tuple[Found, ...]]: ...

    tool = Tool[Query, tuple[Found, ...]](name="t", description="d", handler=handle)

    assert tool.params_type is Query


def test_local_classes_cannot_be_inferred() -> None:
    @dataclass
    class Found:
        text: str

    def handle(params: None, *, context: ToolContext) -> ToolResult[Found]: ...

    with pytest.raises(PromptValidationError, match="cannot be resolved"):
        Tool(name="t", description="d", handler=handle)


# Handlers that are refused


def without_context(params: Query) -> ToolResult[Answer]: ...
def with_positional_context(params: Query, context: ToolContext) -> ToolResult[Answer]: ...
def with_open_keywords(params: Query, **context: ToolContext) -> ToolResult[Answer]: ...
def without_params(*, context: ToolContext) -> ToolResult[Answer]: ...
def with_open_params(*params: Query, context: ToolContext) -> ToolResult[Answer]: ...
def with_needs(params: Query, *, context: ToolContext, limit: int) -> ToolResult[Answer]: ...
def of_other_params(params: Answer, *, context: ToolContext) -> ToolResult[Answer]: ...
def of_narrow_params(params: NarrowQuery, *, context: ToolContext) -> ToolResult[Answer]: ...
def of_other_context(params: Query, *, context: Query) -> ToolResult[Answer]: ...
def with_other_result(params: Query, *, context: ToolContext) -> ToolResult[Query]: ...
def with_plain_result(params: Query, *, context: ToolContext) -> Answer: ...
def with_bare_result(params: Query, *, context: ToolContext) -> ToolResult: ...
def with_maybe_result(params: Query, *, context: ToolContext) -> ToolResult[Answer] | None: ...
def with_unknown_result(params: Query, *, context: ToolContext) -> ToolResult[Nowhere]: ...  # noqa: F821 - the test needs an unknown name
def with_unknown_object(params: Query, *, context: ToolContext): ...


with_unknown_object.__annotations__["return"] = ToolResult["Nowhere"]


def unannotated_params(params, *, context: ToolContext) -> ToolResult[Answer]: ...
def unannotated_context(params: Query, *, context) -> ToolResult[Answer]: ...
def unannotated_result(params: Query, *, context: ToolContext): ...
async def asynchronous(params: Query, *, context: ToolContext) -> ToolResult[Answer]: ...
async def generating(params: Query, *, context: ToolContext) -> ToolResult[Answer]:
    yield


class Patient:
    async def __call__(self, params: Query, *, context: ToolContext) -> ToolResult[Answer]: ...


@pytest.mark.behaviour(3)
@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (without_context, "no keyword-only parameter 'context'"),
        (with_positional_context, "takes params, context"),
        (with_open_keywords, "no keyword-only parameter 'context'"),
        (without_params, "takes none"),
        (with_open_params, "one positional parameter"),
        (with_needs, "do not pass: limit"),
        (of_other_params, "takes Answer, but the tool's params are Query"),
        (of_narrow_params, "takes NarrowQuery"),
        (of_other_context, "takes Query as its context"),
        (with_other_result, r"returns ToolResult\[Query\], but the tool's result is Answer"),
        (with_plain_result, "return Answer"),
        (with_bare_result, "return ToolResult"),
        (with_maybe_result, "is annotated to return"),
        (with_unknown_result, "Nowhere.*cannot be resolved"),
        (with_unknown_object, "Nowhere.*cannot be resolved"),
        (unannotated_params, "does not annotate its parameter 'params'"),
        (unannotated_context, "does not annotate its context"),
        (unannotated_result, "does not annotate its return value"),
        (asynchronous, "asynchronous"),
        (generating, "asynchronous"),
        (Patient(), "asynchronous"),
        (dict.fromkeys, "one positional parameter"),
        (min, "no readable signature"),
        ("look_up", "is not a function"),
    ],
)
def test_a_handler_with_another_signature_is_refused(
    handler: Callable[..., object], problem: str
) -> None:
    with pytest.raises(PromptValidationError, match=problem) as caught:
        built(handler=handler)

    assert (caught.value.tool, caught.value.field) == ("look_up", "handler")


@pytest.mark.behaviour(3)
def test_the_refusal_shows_the_right_signature() -> None:
    hint = refused(handler=without_context).hint

    assert "(params: Query, *, context: ToolContext) -> ToolResult[Answer]" in hint


# Examples


def test_valid_examples_are_kept_as_a_tuple() -> None:
    example = ToolExample(description="One", input=Query("a"), output=LongAnswer("b"))

    assert built(examples=[example]).examples == (example,)


@pytest.mark.behaviour(3)
@pytest.mark.parametrize(
    ("example", "field", "problem"),
    [
        (ToolExample(description="One", input=Answer("a"), output=Answer("b")), ".input",
         "the example's input is of type Answer, not Query"),
        (ToolExample(description="One", input=Query("a"), output="b"), ".output",
         "the example's output is of type str, not Answer"),
        (ToolExample(description="One", input=Query("a"), output=None), ".output", "is None"),
        (ToolExample(description=" ", input=Query("a"), output=Answer("b")), ".description",
         "0 characters"),
        (ToolExample(description="x" * 201, input=Query("a"), output=Answer("b")), ".description",
         "201 characters"),
        ({"description": "One"}, "", "is dict, not a ToolExample"),
    ],
)  # fmt: skip
def test_an_invalid_example_is_refused(example: object, field: str, problem: str) -> None:
    good = ToolExample(description="Good", input=Query("a"), output=Answer("b"))

    error = refused(examples=(good, example))

    assert problem in error.reason
    assert (error.tool, error.field) == ("look_up", f"examples[1]{field}")
    assert "ToolExample(" in error.hint


def test_an_example_that_its_tool_would_refuse_is_refused() -> None:
    @dataclass(frozen=True)
    class Limited:
        size: int = field(metadata={"ge": 1})

    def example(size: object) -> ToolExample[Limited, None]:
        return ToolExample(description="One", input=Limited(cast("Any", size)), output=None)

    assert Tool[Limited, None](name="t", description="d", examples=(example(1),)).examples
    for size, problem in ((0, "size"), ("1", "size")):
        with pytest.raises(PromptValidationError) as caught:
            Tool[Limited, None](name="t", description="d", examples=(example(size),))
        assert caught.value.field == "examples[0].input"
        assert problem in caught.value.reason


def test_example_of_a_tool_without_params_has_none_as_input() -> None:
    example = ToolExample[None, None](description="Only", input=None, output=None)

    assert Tool[None, None](name="t", description="d", examples=(example,)).examples == (example,)


# A tool as a value


def test_a_tool_is_frozen_but_replace_makes_a_changed_copy() -> None:
    tool = built()

    with pytest.raises(FrozenInstanceError):
        tool.name = "other"
    copied = replace(tool, description="Something else.")

    assert (copied.description, copied.params_type) == ("Something else.", Query)
    assert tool.description == A_DESCRIPTION


def test_a_pickled_tool_comes_back_with_its_types() -> None:
    for tool in (built(), Tool(name="t", description="d", handler=look_up)):
        copied = pickle.loads(pickle.dumps(tool))

        assert isinstance(copied, Tool)
        assert (copied.name, copied.handler, copied.params_type) == (tool.name, look_up, Query)


class LookUp(Tool[Query, Answer]):
    __slots__ = ()


def test_a_subclass_of_a_tool_has_its_types() -> None:
    assert LookUp(name="t", description="d").result_type is Answer


# Annotations


def test_annotations_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="both read_only and destructive"):
        ToolAnnotations(read_only=True, destructive=True)


def test_an_override_of_the_description_keeps_the_annotations() -> None:
    tool = built(annotations=ToolAnnotations(read_only=True))
    assert replace(tool, description="Other words.").annotations == tool.annotations
    assert built().annotations == ToolAnnotations()
