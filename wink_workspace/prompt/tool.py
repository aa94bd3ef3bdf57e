"""Tools: named functions that a model may call, with their types and descriptions.

A ``Tool`` is checked when it is built, so that a wrong name, handler or example is found when the
program starts, not in the middle of a run. Its schema is built when it is first needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Generic, Protocol, TypeVar, cast

from wink_workspace import serde
from wink_workspace.errors import PromptValidationError, SchemaError, UsageError

from ._generics import Specialised, strictly_frozen, type_arguments, type_name
from ._handler import HandlerTypes, check_handler, read_handler
from ._values import is_params_type, is_result_type, mismatch
from .tool_context import ToolContext
from .tool_result import ToolResult

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_DESCRIPTION_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnnotations:
    """What a call of a tool may do, for MCP clients and telemetry; ``None`` means unknown.

    Hints, not permissions: policies decide what a call may do.

    Attributes:
        read_only: Whether it never changes files, state, or anything outside the workspace.
        destructive: Whether it may overwrite or delete existing data.
        idempotent: Whether a second call with the same arguments changes nothing more.
        open_world: Whether it reaches beyond the workspace, such as the network.

    Raises:
        UsageError: If it is both ``read_only`` and ``destructive``.
    """

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None

    def __post_init__(self) -> None:
        if self.read_only and self.destructive:
            raise UsageError(
                "a tool cannot be both read_only and destructive", hint="Set one of them to False."
            )


class ToolHandler(Protocol[P_contra, R_co]):
    """The function of a tool: ``def handle(params, *, context) -> ToolResult``."""

    def __call__(self, params: P_contra, /, *, context: ToolContext) -> ToolResult[R_co]:
        """Make the call. A failed result or an exception rolls all of it back."""
        ...


@strictly_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExample(Generic[P, R]):
    """An example call with its result, for the model; the ``Tool`` checks it.

    Attributes:
        description: The purpose of the call, 1 to 200 characters.
        input: The parameters, ``None`` for a tool without parameters.
        output: The value of the result.
    """

    description: str
    input: P
    output: R

    @property
    def arguments(self) -> str:
        """The call's arguments as JSON, without those that equal their defaults."""
        if self.input is None:
            return "{}"
        given = cast("dict[str, serde.JsonValue]", serde.dump(self.input))
        return serde.dump_json(given if not given else _without_defaults(self.input, given))

    @property
    def answer(self) -> str:
        """The value as text for the model."""
        return ToolResult("", self.output, exclude_value_from_context=True).render()


def _without_defaults(
    value: object, given: dict[str, serde.JsonValue]
) -> dict[str, serde.JsonValue]:
    """*given*, the JSON form of the dataclass *value*, without fields that equal a default."""
    own = [member for member in fields(cast("Any", value)) if member.init]
    return {
        key: item
        for member, (key, item) in zip(own, given.items(), strict=True)
        if getattr(value, member.name) != _default_of(member)
    }


def _default_of(member: Field[Any]) -> object:
    return member.default if member.default_factory is MISSING else member.default_factory()


@strictly_frozen
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool(Specialised, Generic[P, R]):
    """A function that a model may call: ``Tool[Params, Result](name=…, description=…, …)``.

    ``P`` is a dataclass, or ``None`` for no parameters; ``R`` is a dataclass, mapping, sequence,
    ``str``, ``None``, or a union of these. Without ``[P, R]`` the types are the handler's.
    Two tools are equal only if they are the same object.

    Attributes:
        name: Unique in its prompt; 1 to 64 of ``a-z``, ``0-9``, ``_`` and ``-``.
        description: For the model; 1 to 200 ASCII characters, stored stripped.
        handler: Any synchronous callable ``(params: P, *, context: ToolContext) ->
            ToolResult[R]``; ``None`` for a tool without a handler.
        examples: Example calls. They follow the description in the tool's definition; the text of
            the tool's section has them with their results.
        accepts_overrides: Whether an override may replace the description.
        annotations: What a call may do; unknown by default.
        params_type: ``P``; ``NoneType`` for no parameters.
        result_type: ``R``.

    Raises:
        PromptValidationError: If one of these is wrong; it names the tool and the field.
    """

    name: str
    description: str
    handler: ToolHandler[P, R] | None = None
    examples: tuple[ToolExample[P, R], ...] = ()
    accepts_overrides: bool = True
    annotations: ToolAnnotations = ToolAnnotations()
    params_type: type[P] = field(init=False)
    result_type: type[R] = field(init=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        types = self._types()
        self._set("description", _described(self.description, tool=self.name))
        self._set("params_type", types.params)
        self._set("result_type", types.result)
        self._set("examples", tuple(self.examples))
        for n, example in enumerate(self.examples):
            self._check_example(n, example)

    def parse(self, arguments: str | Mapping[str, object] | None) -> P:
        """The parameters in *arguments*.

        Args:
            arguments: JSON text or an object from the model, parsed strictly. ``None`` and blank
                text mean no arguments.

        Raises:
            ParseError: If they are not valid; it lists every problem, in sentences for the model.
        """
        what = f"arguments of {self.name}"
        if isinstance(arguments, str):
            text = arguments if arguments.strip() else "{}"
            return serde.parse_json(self.params_type, text, what=what)
        given: Mapping[str, object] = {} if arguments is None else arguments
        return serde.parse(self.params_type, given, what=what)

    def check_value(self, value: object) -> str | None:
        """Why *value* is not of the result type, as a clause; ``None`` if it is.

        The value ``None`` is valid for every tool: the message then says all.
        """
        # the usual cases, and fast
        is_valid = value is None or type(value) is self.result_type
        return None if is_valid else mismatch(value, self.result_type)

    @property
    def provider_description(self) -> str:
        """The description with the example calls, for the tool's definition."""
        lines = [f"- {each.description.strip()}: {each.arguments}" for each in self.examples]
        return "\n".join([self.description, "", "Examples:", *lines]) if lines else self.description

    def provider_schema(self) -> dict[str, serde.JsonValue]:
        """The JSON Schema of the parameters, for the strict modes of providers."""
        return serde.provider_schema(self.params_type)

    def param_descriptions(self) -> Mapping[str, serde.ParamDescription]:
        """Description, type and default of each parameter, by name."""
        return serde.field_descriptions(self.params_type)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _types(self) -> HandlerTypes:
        """The type arguments, or else the handler's types; checked against the handler."""
        written = type_arguments(type(self), Tool)
        handler = cast("Callable[..., object] | None", self.handler)
        if written is not None:
            types = HandlerTypes(*written)
        elif handler is not None:
            types = read_handler(handler, tool=self.name)
        else:
            raise PromptValidationError(
                "the types of the tool's params and result are unknown",
                tool=self.name,
                hint="Write Tool[Params, Result](…), with None for no params or no value.",
            )
        _check_types(types, tool=self.name)
        if written is not None and handler is not None:
            check_handler(handler, types, tool=self.name)
        return types

    def _check_example(self, n: int, example: object) -> None:
        where = f"examples[{n}]"
        if not isinstance(example, ToolExample):
            raise self._wrong(where, f"is {type_name(type(example))}, not a ToolExample")
        example = cast("ToolExample[Any, Any]", example)
        if not 1 <= len(example.description.strip()) <= _DESCRIPTION_CHARS:
            raise self._wrong(
                f"{where}.description",
                f"has {len(example.description.strip())} characters, not 1 to {_DESCRIPTION_CHARS}",
            )
        for part, value, type_ in (
            ("input", example.input, self.params_type),
            ("output", example.output, self.result_type),
        ):
            problem = mismatch(value, type_, what=f"the example's {part}")
            if problem is not None:
                raise self._wrong(f"{where}.{part}", problem)
        try:
            self.parse(example.arguments)
        except SchemaError:  # a later class may define a name; raised again when it is needed
            return
        except UsageError as error:
            raise self._wrong(f"{where}.input", f"a call like this is refused: {error}") from error

    def _wrong(self, where: str, message: str) -> PromptValidationError:
        return PromptValidationError(
            message,
            tool=self.name,
            field=where,
            hint="Write ToolExample(description=…, input=…, output=…), with values of the tool's"
            " types.",
        )


def _check_name(name: object) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise PromptValidationError(
            f"{name!r} is not a valid tool name",
            tool=str(name),
            field="name",
            hint="Use 1 to 64 lowercase letters, digits, '_' and '-', without white space.",
        )


def _described(description: object, *, tool: str) -> str:
    stripped = description.strip() if isinstance(description, str) else ""
    if not 1 <= len(stripped) <= _DESCRIPTION_CHARS or not stripped.isascii():
        found = f"has {len(stripped)} characters" if stripped.isascii() else "is not all ASCII"
        raise PromptValidationError(
            f"the description {found}",
            tool=tool,
            field="description",
            hint=f"Use 1 to {_DESCRIPTION_CHARS} ASCII characters.",
        )
    return stripped


def _check_types(types: HandlerTypes, *, tool: str) -> None:
    if not is_params_type(types.params):
        raise PromptValidationError(
            f"{type_name(types.params)} cannot be the type of params",
            tool=tool,
            field="params_type",
            hint="Use a dataclass, or None for a tool without params.",
        )
    if not is_result_type(types.result):
        raise PromptValidationError(
            f"{type_name(types.result)} cannot be the type of a result",
            tool=tool,
            field="result_type",
            hint="Use a dataclass, a mapping, a sequence, str or None.",
        )
