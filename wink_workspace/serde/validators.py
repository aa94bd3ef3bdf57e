"""Pydantic's validators with one configuration, cached for each type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache, wraps
from itertools import permutations
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar, cast

from wink_workspace.errors import SchemaError

from .json_values import first_sentence, type_name

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import CoreConfig, SchemaValidator


T = TypeVar("T")

UNSUPPORTED_HINT = "Use dataclasses, collections, unions, enums and scalars in its annotations."


def per_type(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """*make* with a cache of 1,024 types."""
    cached = lru_cache(maxsize=1024)(make)

    @wraps(make)
    def lookup(type_: Any) -> T:
        try:
            hash(type_)
        except TypeError:  # Annotated[…] with unhashable metadata
            return make(type_)
        return cached(type_)

    return lookup


@per_type
def validator(type_: Any) -> SchemaValidator:
    """A validator of an array with one *type_*; raises as ``adapter``."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(_exact(adapter(type_).core_schema), _CONFIG)


# The configuration of ``adapter``, for values outside of dataclasses.
_CONFIG: CoreConfig = {
    "strict": True,
    "extra_fields_behavior": "forbid",
    "allow_inf_nan": False,
    "val_json_bytes": "base64",
    "validate_by_name": True,
    "validate_by_alias": True,
}


@per_type
def adapter(type_: Any) -> TypeAdapter[list[Any]]:
    """Pydantic's adapter of an array with one *type_*.

    Pydantic does not accept a configuration for a dataclass itself, but a dataclass inherits that
    of the type around it; hence the array. The alternative, setting ``__pydantic_config__`` on
    classes of users, would be visible to them.

    Raises:
        SchemaError: If pydantic does not support the type.
    """
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter
    from pydantic_core import SchemaError as CoreSchemaError

    config = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        val_json_bytes="base64",
        validate_by_name=True,
        validate_by_alias=True,
    )
    try:
        listed: Any = GenericAlias(
            list, type_
        )  # type checkers do not accept a type built at run time
        made: TypeAdapter[list[Any]] = TypeAdapter(listed, config=config)
        if not made.pydantic_complete:
            made.rebuild(raise_errors=True)
    except NameError as error:
        raise SchemaError(
            f"{type_name(type_)} cannot be parsed into: its module does not define"
            f" {error.name!r}, a name in its annotations",
            hint="Define or import the names in a class's annotations at module level.",
        ) from error
    except (PydanticUserError, CoreSchemaError, TypeError, ValueError) as error:
        raise SchemaError(
            f"{type_name(type_)} cannot be parsed into: {first_sentence(error)}",
            hint=UNSUPPORTED_HINT,
        ) from error
    return made


_OPAQUE = frozenset(("cls", "config", "default", "expected", "members", "metadata"))
"""The keys of a core schema whose values do not contain schemas."""


def _exact(node: Any) -> Any:
    """A core schema whose literals and enums also compare the types of constants.

    Pydantic's own accept ``true`` and ``1.0`` for ``Literal[1]``, and 1 for ``Literal["1"]``.
    """
    if isinstance(node, (list, tuple)):
        parts = cast("Sequence[Any]", node)
        return type(parts)(map(_exact, parts))  # pyright: ignore[reportCallIssue] - a list or a tuple
    if not isinstance(node, dict):
        return node
    schema = {
        key: part if key in _OPAQUE else _exact(part)
        for key, part in cast("dict[str, Any]", node).items()
    }
    match schema.get("type"):
        case "literal":
            return _exact_choice(schema, schema["expected"])
        case "enum" if not _has_missing_hook(schema["cls"]):
            return _exact_choice(schema, [member.value for member in schema["members"]])
        case _:
            return schema


def _has_missing_hook(enum: type[Enum]) -> bool:
    return any("_missing_" in vars(base) for base in enum.__mro__ if base is not Enum)


def _exact_choice(schema: dict[str, Any], constants: Sequence[Any]) -> dict[str, Any]:
    def check(given: object, choose: Callable[[object], Any]) -> Any:
        chosen = choose(given)
        constant = chosen.value if isinstance(chosen, Enum) else chosen
        if (_kind(given), _kind(constant)) in _CONFUSIONS:
            raise _wrong_choice(constants)
        return chosen

    function = {"type": "no-info", "function": check}
    outside = {"ref": schema.pop("ref")} if "ref" in schema else {}
    return {"type": "function-wrap", "function": function, "schema": schema, **outside}


_SCALARS = (bool, int, float, str)
_CONFUSIONS = {*permutations(_SCALARS, 2)} - {(int, float)}
"""The type of a given value, and the type of a constant that pydantic accepts it for."""


def _kind(value: object) -> type | None:
    return next((kind for kind in _SCALARS if isinstance(value, kind)), None)


def _wrong_choice(constants: Sequence[Any]) -> Exception:
    from pydantic_core import PydanticKnownError

    *most, last = map(repr, constants)
    expected = f"{', '.join(most)} or {last}" if most else last
    return PydanticKnownError("literal_error", {"expected": expected})
