"""Tools: what a model may call, with the types and the words that describe it.

A ``Tool`` is checked when it is built, so that a wrong name, handler or example is an error
of the program's start and never a surprise in the middle of a run. Its schema is built when
first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from wink_workspace import serde

from ._generics import Specialised, firmly_frozen
from .context import ToolContext
from .tool_result import ToolResult

__all__ = ["Tool", "ToolExample", "ToolHandler"]

P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class ToolHandler(Protocol[P_contra, R_co]):
    """The function behind a tool: ``def handle(params, *, context) -> ToolResult``."""

    def __call__(self, params: P_contra, /, *, context: ToolContext) -> ToolResult[R_co]:
        """Do the work. A failed result or an exception undoes all of it."""
        ...


@firmly_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExample(Generic[P, R]):
    """One call and what comes of it, to show a model the way.

    Attributes:
        description: What the call is for, at most 200 characters.
        input: The parameters.
        output: The value that the tool gives for them.
    """

    description: str
    input: P
    output: R


@firmly_frozen
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool(Specialised, Generic[P, R]):
    """Something that a model may call: ``Tool[Params, Result](name=…, …)``."""

    name: str
    description: str
    handler: ToolHandler[P, R] | None = None
    examples: tuple[ToolExample[P, R], ...] = ()
    accepts_overrides: bool = True
    params_type: type[P] = field(init=False)
    result_type: type[R] = field(init=False)

    def parse(self, arguments: Mapping[str, object] | None) -> P:
        """The parameters that *arguments* spell, JSON-strict; ``ParseError`` lists every problem."""
        raise NotImplementedError

    def check_value(self, value: object) -> str | None:
        """What is wrong with *value* as a result, as a sentence; ``None`` when it fits."""
        raise NotImplementedError

    def provider_schema(self) -> dict[str, serde.JsonValue]:
        """The parameters' JSON Schema as strict provider modes want it."""
        raise NotImplementedError

    def param_descriptions(self) -> Mapping[str, serde.ParamDescription]:
        """Description, type and default of each parameter, by name."""
        raise NotImplementedError
