"""Check handlers: ``def handle(params: P, *, context: ToolContext) -> ToolResult[R]``.

Annotations are resolved as Python does it, in the module that defines the handler. A name that
cannot be resolved there means the tool's own type of that name: a class that is local to a
function, or a name imported for type checking only.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from wink_workspace.errors import PromptValidationError

from ._generics import type_name
from ._values import assignable
from .tool_context import ToolContext
from .tool_result import ToolResult

_SHAPE = "def handle(params: {params}, *, context: ToolContext) -> ToolResult[{result}]: ..."
_QUALIFIERS = re.compile(r"\b(?:[^\W\d]\w*\.)+")


@dataclass(frozen=True, slots=True)
class HandlerTypes:
    """The types of a handler's params and of its result's value; ``NoneType`` for ``None``."""

    params: Any
    result: Any


def read_handler(handler: Callable[..., object], *, tool: str) -> HandlerTypes:
    """The types in the annotations of *handler*.

    Raises:
        PromptValidationError: If the handler has another shape, or its annotations cannot be
            resolved.
    """
    return _Inspection(handler, tool, None).types()


def check_handler(handler: Callable[..., object], expected: HandlerTypes, *, tool: str) -> None:
    """Refuse a handler whose types do not match those of its tool.

    As for a type checker, a handler may take a base class of the params and return a subclass of
    the result.
    """
    inspection = _Inspection(handler, tool, expected)
    found = inspection.types()
    if not assignable(expected.params, found.params):
        raise inspection.refusal(
            f"takes {type_name(found.params)}, but the tool's params are "
            f"{type_name(expected.params)}"
        )
    if not assignable(found.result, expected.result):
        raise inspection.refusal(
            f"returns ToolResult[{type_name(found.result)}], but the tool's result is "
            f"{type_name(expected.result)}"
        )


class _Inspection:
    """Checks one handler."""

    def __init__(
        self, handler: Callable[..., object], tool: str, expected: HandlerTypes | None
    ) -> None:
        self._tool = tool
        self._expected = expected
        if not callable(handler):
            raise self.refusal(f"is not a function: {handler!r}")
        self._handler = handler
        self._module = getattr(_function_of(handler, wrapped=True), "__globals__", {})

    def refusal(self, message: str) -> PromptValidationError:
        expected = self._expected
        shape = _SHAPE.format(
            params=type_name(expected.params) if expected else "Params",
            result=type_name(expected.result) if expected else "Result",
        )
        return PromptValidationError(
            f"the handler {message}", tool=self._tool, field="handler", hint=f"Write it as {shape}"
        )

    def types(self) -> HandlerTypes:
        """The types in the annotations; raises if the signature is wrong."""
        signature = self._signature()
        params = self._only_positional(signature)
        context = self._context(signature)
        context_type = self._resolved(context.annotation, "its context")
        if not assignable(ToolContext, context_type):
            raise self.refusal(f"takes {type_name(context_type)} as its context")
        return HandlerTypes(
            params=self._resolved(params.annotation, f"its parameter {params.name!r}"),
            result=self._result(self._resolved(signature.return_annotation, "its return value")),
        )

    def _signature(self) -> inspect.Signature:
        function = _function_of(self._handler, wrapped=False)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise PromptValidationError(
                "the handler is asynchronous",
                tool=self._tool,
                field="handler",
                hint="Make it synchronous; use asyncio.run inside it to run coroutines.",
            )
        try:
            return inspect.signature(self._handler)
        except (TypeError, ValueError) as error:
            raise self.refusal("has no readable signature") from error

    def _only_positional(self, signature: inspect.Signature) -> inspect.Parameter:
        keyword_kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        positional = [p for p in signature.parameters.values() if p.kind not in keyword_kinds]
        if len(positional) != 1 or positional[0].kind is inspect.Parameter.VAR_POSITIONAL:
            names = ", ".join(p.name for p in positional) or "none"
            raise self.refusal(f"must take one positional parameter, but takes {names}")
        return positional[0]

    def _context(self, signature: inspect.Signature) -> inspect.Parameter:
        keywords = {
            name: p
            for name, p in signature.parameters.items()
            if p.kind is inspect.Parameter.KEYWORD_ONLY
        }
        context = keywords.pop("context", None)
        if context is None:
            raise self.refusal("has no keyword-only parameter 'context'")
        needed = [name for name, p in keywords.items() if p.default is inspect.Parameter.empty]
        if needed:
            raise self.refusal(
                f"has required keyword parameters that calls do not pass: {', '.join(needed)}"
            )
        return context

    def _result(self, returned: object) -> object:
        """The ``R`` of ``ToolResult[R]``, or of a union of such."""
        arms = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
        if not all(get_origin(arm) is ToolResult for arm in arms):
            raise self.refusal(f"is annotated to return {type_name(returned)}")
        return Union[tuple(get_args(arm)[0] for arm in arms)]  # noqa: UP007 - computed arms

    def _resolved(self, annotation: object, what: str) -> object:
        if annotation is inspect.Signature.empty:
            raise self.refusal(f"does not annotate {what}")
        names = self._known_names()
        spellings = [annotation]
        if isinstance(annotation, str):
            spellings.append(_QUALIFIERS.sub("", annotation))
        for spelling in spellings:
            carrier = SimpleNamespace(__annotations__={"it": spelling})
            try:
                return get_type_hints(carrier, self._module, names)["it"]
            except Exception:  # noqa: BLE001, S112 - annotations are code and raise anything
                continue
        raise self.refusal(f"annotates {what} with {annotation!r}, which cannot be resolved")

    def _known_names(self) -> Mapping[str, object]:
        """The tool's types by name: local classes, and those that the module does not define."""
        known: dict[str, Any] = {"ToolContext": ToolContext, "ToolResult": ToolResult}
        if self._expected is not None:
            for class_ in _classes_in(self._expected.params, self._expected.result):
                known[class_.__name__] = class_
        return {
            name: class_
            for name, class_ in known.items()
            if name not in self._module or "<locals>" in class_.__qualname__
        }


def _classes_in(*types: object) -> list[type]:
    """Every class that is one of *types*, or a type argument of one."""
    found: list[type] = []
    for type_ in types:
        if isinstance(type_, type) and type_ is not NoneType:
            found.append(type_)
        found += _classes_in(get_origin(type_), *get_args(type_)) if get_args(type_) else []
    return found


def _function_of(handler: Any, *, wrapped: bool) -> Any:
    """The function inside partials, methods and callable objects; with *wrapped*, inside wrappers.

    Whether a handler is asynchronous depends on the function that is called. Its annotations come
    from the wrapped one.
    """
    while True:
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        elif wrapped and hasattr(handler, "__wrapped__"):
            handler = handler.__wrapped__
        elif inspect.isroutine(handler) or isinstance(handler, type):
            return handler
        else:
            handler = type(handler).__call__
