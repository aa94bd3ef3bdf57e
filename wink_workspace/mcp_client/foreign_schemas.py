"""Types of parameters, made from the JSON Schemas of a foreign server.

A schema becomes a dataclass, so that arguments are parsed, described and recorded as those of every
other tool. Types, names, required fields and constants are checked here; the server checks
everything else, such as patterns. A part that has no equivalent accepts any JSON.

Rule 1: the server is not trusted. References lead only into the schema itself, and what they expand
to counts: a schema of a few lines may not make a million types.
Rule 2: a field that is not required is sent only if it was given.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from functools import reduce
from types import NoneType
from typing import Any, Final, Literal, cast

from wink_workspace import serde
from wink_workspace.errors import SchemaError

_MOST_NODES: Final = 1_000
_MOST_LEVELS: Final = 12
_MOST_CHOICES: Final = 256
_MOST_NAME_CHARS: Final = 128
_DESCRIPTION_CHARS: Final = 1_000
_SCALARS: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}
_UNPRINTABLE: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff"
    "\\ufff9-\\ufffb\\U000e0000-\\U000e0fff]"
)
_Node = Mapping[str, Any]


def printable(text: str, limit: int | None = None) -> str:
    """*text* without control and invisible characters, cut to *limit* characters."""
    clean = _UNPRINTABLE.sub("", text.replace("\r\n", "\n"))
    if limit is None or len(clean) <= limit:
        return clean
    return f"{clean[:limit]} [… {len(clean) - limit:,} characters left out]"


def params_type_of(name: str, schema: _Node) -> type[Any]:
    """The dataclass for the arguments of a tool; ``NoneType`` if it has none.

    Args:
        name: The name of the class, an identifier.
        schema: The JSON Schema that the server sent.

    Raises:
        SchemaError: If it does not describe an object, or is too large or too deep.
    """
    made = _Types(schema).of_object(name, schema, level=0)
    serde.schema(made)  # raises for a combination that pydantic does not support
    return made


def arguments_of(params: object) -> dict[str, Any]:
    """The arguments to send: *params* as JSON, without fields that were not given."""
    return {} if params is None else cast("dict[str, Any]", _sent(params))


def _sent(value: Any) -> Any:
    if is_dataclass(value):
        return {
            each.metadata.get("alias", each.name): _sent(getattr(value, each.name))
            for each in fields(value)
            if each.default is MISSING or getattr(value, each.name) is not None
        }
    if isinstance(value, Mapping):
        return {key: _sent(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_sent(item) for item in cast("Sequence[Any]", value)]
    return value


class _Types:
    """Makes the types of one schema."""

    def __init__(self, root: _Node) -> None:
        self._root = root
        self._n_nodes = 0

    def of_object(self, name: str, node: object, *, level: int) -> type[Any]:
        """The dataclass of an object with known properties; ``NoneType`` if there are none."""
        node = self._resolved(node)
        properties = node.get("properties", {})
        if node.get("type", "object") != "object" or not isinstance(properties, dict):
            raise SchemaError("the schema does not describe an object", hint=_HINT)
        if not properties:
            return NoneType
        required = node.get("required", [])
        known = cast("dict[str, object]", properties)
        made = [
            self._field(f"{name}_{n}", each, described, level, required=each in required)
            for n, (each, described) in enumerate(known.items(), start=1)
        ]
        names = _identifiers(known)
        ordered = sorted(zip(names, made, strict=True), key=lambda pair: pair[1][2])
        try:
            return make_dataclass(
                name,
                [(own, type_, make()) for own, (type_, make, _) in ordered],
                frozen=True,
                slots=True,
                kw_only=True,
            )
        except (TypeError, ValueError) as error:
            raise SchemaError(f"the properties cannot be fields: {error}", hint=_HINT) from error

    def _field(
        self, name: str, key: str, node: object, level: int, *, required: bool
    ) -> tuple[Any, Callable[[], Any], bool]:
        """Type and field of a property, and whether it has a default."""
        if not isinstance(key, str) or not 1 <= len(key) <= _MOST_NAME_CHARS:  # pyright: ignore[reportUnnecessaryIsInstance] - of a foreign schema
            raise SchemaError(f"a property has the name {key!r}", hint=_HINT)
        type_ = self._of(name, node, level + 1)
        described = self._resolved(node)
        metadata: dict[str, Any] = {"alias": key}
        text = described.get("description")
        parts = [printable(text, _DESCRIPTION_CHARS)] if isinstance(text, str) else []
        if "default" in described:
            default = serde.dump_json(described["default"])
            parts.append(printable(f"If left out, the server uses {default}.", _DESCRIPTION_CHARS))
        if parts:
            metadata["description"] = " ".join(parts)
        if required:
            return type_, lambda: field(metadata=metadata), False
        return type_ | None, lambda: field(default=None, metadata=metadata), True

    def _of(self, name: str, node: object, level: int) -> Any:
        """The type of *node*."""
        node = self._resolved(node)
        if level > _MOST_LEVELS:
            raise SchemaError(f"the schema has more than {_MOST_LEVELS} levels", hint=_HINT)
        constants = [node["const"]] if "const" in node else node.get("enum")
        if isinstance(constants, list):
            return _literal(cast("list[object]", constants))
        members = node.get("anyOf") or node.get("oneOf")
        if not isinstance(members, list):
            kinds = node.get("type")
            listed = cast("list[object]", kinds) if isinstance(kinds, list) else []
            members = [{**node, "type": kind} for kind in listed]
        if members:
            nodes = cast("list[object]", members)
            types = [self._of(f"{name}_{n}", each, level + 1) for n, each in enumerate(nodes)]
            return reduce(lambda one, other: one | other, types)
        match node.get("type"):
            case "array":
                return tuple[self._of(name, node.get("items", {}), level + 1), ...]
            case "object" if node.get("properties"):
                return self.of_object(name, node, level=level)
            case "object":
                values = node.get("additionalProperties")
                return Mapping[str, self._of(name, cast("object", values), level + 1)]
            case str() as kind if kind in _SCALARS:
                return _SCALARS[kind] if kind != "null" else NoneType
            case _:
                return _ANYTHING

    def _resolved(self, node: object) -> _Node:
        """*node*, or what its references lead to."""
        seen = 0
        while True:
            self._n_nodes += 1
            if self._n_nodes > _MOST_NODES:
                raise SchemaError(f"the schema has more than {_MOST_NODES:,} parts", hint=_HINT)
            if not isinstance(node, dict):
                return {}  # true: anything
            known = cast("dict[str, Any]", node)
            target = known.get("$ref")
            if target is None:
                return known
            seen += 1
            if seen > _MOST_LEVELS or not isinstance(target, str) or not target.startswith("#/"):
                raise SchemaError(f"the reference {target!r} leads nowhere", hint=_HINT)
            beside = {key: value for key, value in known.items() if key != "$ref"}
            found = self._found(target)
            node = {**cast("_Node", found), **beside} if isinstance(found, dict) else found

    def _found(self, target: str) -> Any:
        found: Any = self._root
        for step in target.removeprefix("#/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise SchemaError(f"the reference {target!r} leads nowhere", hint=_HINT)
            found = cast("dict[str, Any]", found)[name]
        return found


_HINT: Final = "Leave the tool out: name the tools that you want with tools=…."
_ANYTHING: Final = serde.JsonValue


def _literal(constants: list[object]) -> Any:
    if not 1 <= len(constants) <= _MOST_CHOICES:
        raise SchemaError(
            f"a value has {len(constants)} choices, not 1 to {_MOST_CHOICES}", hint=_HINT
        )
    if not all(isinstance(each, str | int | bool | None) for each in constants):
        return _ANYTHING
    return Literal[tuple(constants)]  # type: ignore[valid-type] - the constants of the schema


def _identifiers(names: Mapping[str, object]) -> list[str]:
    """A name for each field: its own if Python accepts it and no other has it."""
    return [
        name
        if name.isidentifier()
        and name.isascii()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        else f"field_{n}_"
        for n, name in enumerate(names)
    ]
