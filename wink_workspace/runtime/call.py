"""The request for a tool call, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from wink_workspace import serde
from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    from wink_workspace.prompt import ToolResult
    from wink_workspace.session import Outcome, ToolInvoked


@dataclass(frozen=True, slots=True, init=False)
class ToolCall:
    """A request to run one tool: ``ToolCall("read_file", file_path="app.py")``.

    The name is positional-only, so an argument may have any name: ``ToolCall("tag", name="v1")``.
    ``ToolCall.of`` takes the id, and the arguments as a provider sends them.

    Attributes:
        name: The tool. An unknown name gets a failed result.
        arguments: A mapping, or the provider's JSON text; validated when the call runs.
        id: The provider's id of the call, repeated in the answer. If none is given, it is empty
            until the call runs: the evaluation loop numbers it by turn (``call-2-1`` is the first
            call of the second turn), ``ToolExecutor`` makes a unique one.

    A lone surrogate in the name or the id becomes U+FFFD. Arguments that contain one become JSON
    text with escapes, so that they can be recorded; the call is refused when it runs.
    """

    name: str
    arguments: str | Mapping[str, object]
    id: str

    def __init__(self, name: str, /, **arguments: object) -> None:
        object.__setattr__(self, "name", serde.well_formed(name))
        object.__setattr__(self, "arguments", _encodable(arguments))
        object.__setattr__(self, "id", "")

    @classmethod
    def of(cls, name: str, arguments: str | Mapping[str, object], *, id: str = "") -> Self:  # noqa: A002 - the field's name
        """Make a call with an id, or with *arguments* by name or as JSON text."""
        call = cls(name)
        object.__setattr__(call, "arguments", _encodable(arguments))
        object.__setattr__(call, "id", serde.well_formed(id))
        return call

    def with_id(self, id: str) -> Self:  # noqa: A002 - as above
        """Copy the call with another id."""
        return self.of(self.name, self.arguments, id=id)


def _encodable(arguments: str | Mapping[str, object]) -> str | Mapping[str, object]:
    """*arguments* without lone surrogates, which an escape in JSON text can stand for."""
    if isinstance(arguments, str):
        return arguments.encode("utf-8", "backslashreplace").decode()
    if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a provider may send anything
        return arguments
    try:
        changed = serde.map_strings(arguments, serde.well_formed)
        return arguments if changed is arguments else serde.dump_json(arguments)
    except (UsageError, ValueError, RecursionError):  # not JSON: it is refused when the call runs
        return arguments


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The answer to a call.

    ``text`` is exactly what the model sees, ``event`` the record of the call, and ``result`` what
    its handler returned, or the failure.
    """

    call: ToolCall
    result: ToolResult[Any]
    event: ToolInvoked

    @property
    def text(self) -> str:
        """The text for the model."""
        return self.event.text

    @property
    def outcome(self) -> Outcome:
        """Whether the call was committed."""
        return self.event.outcome
