"""The result of a tool, and its text for the model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from typing import Generic, Never, Protocol, TypeVar, runtime_checkable
from weakref import WeakSet

from wink_workspace import serde

from ._generics import strictly_frozen

_log = logging.getLogger(__name__)
_warned_types: WeakSet[type] = WeakSet()

R_co = TypeVar("R_co", covariant=True)
V = TypeVar("V")


@runtime_checkable
class ToolRenderableResult(Protocol):
    """A value with its own text for the model."""

    def render(self) -> str:
        """The text that the model sees; the same text every time."""
        ...


@dataclass(frozen=True, slots=True)
class ToolImage:
    """The whole image file ``data``, for a model or client that takes images.

    A result has one if its value has it as the attribute ``image``. Its text must say what it is.
    """

    media_type: str
    data: bytes = field(repr=False)

    @staticmethod
    def of(value: object) -> ToolImage | None:
        """The image of a result with this *value*, if it has one."""
        image = getattr(value, "image", None)
        return image if isinstance(image, ToolImage) else None


@strictly_frozen
@dataclass(frozen=True, slots=True)
class ToolResult(Generic[R_co]):
    """The result of one call, returned by its handler.

    Attributes:
        message: A short text for the model: what was done, or why not and what to do next.
        value: The typed result. A success carries a value of the tool's result type, or ``None``
            if the message says all; a failure carries ``None``, or details of the error.
        success: ``False`` rolls the call back.
        exclude_value_from_context: Show the model only the message, not the value; events and the
            ledger still record the value. For large values, not for secrets.
        outside_effects: What a rollback or an undo cannot take back, one line each, such as
            requests over the network. They are recorded also if the call fails.
        whole: The whole result as text, if the value has only a part of it. A workspace stores it
            as a file, and the model gets the path. It is not recorded.
    """

    message: str
    value: R_co | None = None
    success: bool = True
    exclude_value_from_context: bool = False
    outside_effects: tuple[str, ...] = ()
    whole: str = ""

    @staticmethod
    def ok(
        value: V,
        message: str = "",
        *,
        exclude_value_from_context: bool = False,
        outside_effects: tuple[str, ...] = (),
        whole: str = "",
    ) -> ToolResult[V]:
        """A success."""
        return ToolResult(
            message,
            value,
            exclude_value_from_context=exclude_value_from_context,
            outside_effects=outside_effects,
            whole=whole,
        )

    @staticmethod
    def error(message: str) -> ToolResult[Never]:
        """A failure without a value; say in *message* what to do next."""
        return ToolResult(message, success=False)

    def render(self) -> str:
        """The value as text: its own ``render()`` if it has one, else JSON.

        A string stays as it is, and ``None`` is ``""``. If ``render()`` raises or does not return
        a string, that is logged and JSON is used. JSON leaves out fields that are ``None``.

        Raises:
            UsageError: If JSON is used and the value contains something without a JSON form.
        """
        value: object = self.value
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        render: object = getattr(value, "render", None)
        if callable(render):
            text = _rendered(type(value), render)
            if text is not None:
                return text
        elif is_dataclass(value) and not self.exclude_value_from_context:
            _warn_once(type(value))
        return serde.dump_json(value, exclude_none=True)

    def provider_text(self, rendered: str | None = None) -> str:
        """What the model sees: the message, a blank line, the rendered value.

        Only one of the two if they are equal or the other is empty; only the message with
        ``exclude_value_from_context``.

        Args:
            rendered: An earlier result of ``render()``, to avoid running it again.
        """
        if self.exclude_value_from_context:
            return self.message
        value = self.render() if rendered is None else rendered
        if not value or value == self.message:
            return self.message
        return f"{self.message}\n\n{value}" if self.message else value


def _rendered(type_: type, render: Callable[[], object]) -> str | None:
    """The text of a value's own ``render()``, or ``None`` if that is faulty."""
    try:
        text = render()
    except Exception:  # noqa: BLE001 - a faulty render() must not fail a call that succeeded
        _log.exception("%s.render() raised; the model sees JSON", type_.__qualname__)
        return None
    if isinstance(text, str):
        return text
    given = type(text).__qualname__
    _log.error("%s.render() gave %s; the model sees JSON", type_.__qualname__, given)
    return None


def _warn_once(type_: type) -> None:
    if type_ not in _warned_types:
        _warned_types.add(type_)
        _log.warning("%s has no render(); the model sees JSON", type_.__qualname__)
