"""Schemas for the strict modes of providers, and the inverse conversion of arguments.

Strict modes guarantee that a model's arguments have the right shape, but support only a part of
JSON Schema: no defaults, no optional fields, no objects with arbitrary keys. What a strict schema
cannot express is added to the descriptions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, cast

from wink_workspace.counts import counted

from .json_values import JsonValue
from .schemas import (
    Node,
    ParamDescription,
    alternatives,
    child,
    choices,
    complete_schema,
    field_descriptions,
    free_values,
    in_words,
    json_text,
    reachable,
    resolved,
    takes_null,
)


def provider_schema(
    type_: object, *, descriptions: Mapping[str, ParamDescription] | None = None
) -> dict[str, JsonValue]:
    """The schema of *type_* for the strict modes of OpenAI and Anthropic.

    It has only ``type``, ``properties``, ``required``, ``additionalProperties: false``,
    ``items``, ``enum``, ``anyOf``, ``description``, common formats, and ``$ref`` for recursive
    types (which Anthropic refuses). Constraints and defaults are in the descriptions. Every field
    is required; one with a default may be null.

    A mapping becomes an array of ``key``/``value`` entries, and a value of any type may be a
    scalar or an array of scalars. Pass the arguments of a model through
    ``without_defaulted_nulls`` before ``parse``.

    Args:
        type_: The type.
        descriptions: By field name, descriptions that replace those of ``field_descriptions``;
            real types and defaults stay.

    Raises:
        SchemaError: As ``schema``.
    """
    own = field_descriptions(type_)
    changed = {name: new for name, new in (descriptions or {}).items() if new != own[name]}
    root = _redescribed(complete_schema(type_), changed)
    definitions: dict[str, Node] = root.get("$defs", {})
    recursive = frozenset(
        name for name in definitions if name in reachable(definitions[name], definitions)
    )
    strict = _Strict(definitions, recursive)
    converted = strict.node(root)
    for name, new in changed.items():
        if new.type != own[name].type:
            fields = converted["properties"]
            fields[name] = _with_notes(fields[name], f"Type: {new.type}")
    shared = {name: strict.node(definitions[name]) for name in sorted(recursive)}
    if used := reachable(converted, shared):
        converted["$defs"] = {name: node for name, node in shared.items() if name in used}
    return converted


_DEFAULT_IN_WORDS = "defaultInWords"
"""An internal keyword for a default from an override; it is not in converted schemas."""


def _redescribed(root: Node, changed: Mapping[str, ParamDescription]) -> Node:
    """*root* with the changed descriptions and defaults; *root* itself if there are none."""
    if not changed:
        return root
    fields = {
        name: {**root["properties"][name], "description": new.description}
        | ({_DEFAULT_IN_WORDS: new.default} if new.default else {})
        for name, new in changed.items()
    }
    return {**root, "properties": {**root["properties"], **fields}}


_FORMATS = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")
)
"""The string formats that both strict modes enforce."""

_SCALARS: tuple[Node, ...] = tuple(
    {"type": kind} for kind in ("string", "number", "boolean", "null")
)
_ANYTHING: Node = {
    "anyOf": [*_SCALARS, {"type": "array", "items": {"anyOf": list(_SCALARS)}}],
    "description": "A scalar, or an array of scalars.",
}

_CONSTRAINTS: Mapping[str, Callable[[Any], str]] = {
    "minimum": lambda limit: f"At least {limit}.",
    "maximum": lambda limit: f"At most {limit}.",
    "exclusiveMinimum": lambda limit: f"Greater than {limit}.",
    "exclusiveMaximum": lambda limit: f"Less than {limit}.",
    "multipleOf": lambda factor: f"A multiple of {factor}.",
    "minLength": lambda n: f"At least {counted(n, 'character')}.",
    "maxLength": lambda n: f"At most {counted(n, 'character')}.",
    "pattern": lambda pattern: f"Matches the regular expression {pattern} .",
    "minItems": lambda n: f"At least {counted(n, 'item')}.",
    "maxItems": lambda n: f"At most {counted(n, 'item')}.",
    "uniqueItems": lambda _: "Order and repetition have no meaning.",
    "contentEncoding": lambda encoding: f"Encoded as {encoding}.",
}


def _constraints(node: Node) -> list[str]:
    return [write(node[keyword]) for keyword, write in _CONSTRAINTS.items() if keyword in node]


@dataclass(frozen=True, slots=True)
class _Strict:
    """Converts nodes of a complete schema; references to *recursive* names stay."""

    definitions: Mapping[str, Node]
    recursive: frozenset[str]

    def node(self, given: Node) -> Node:
        node = resolved(given, self.definitions, keep=self.recursive)
        notes = [] if "prefixItems" in node else _constraints(node)
        return _with_notes(self._body(node), node.get("description", ""), *notes)

    def _body(self, node: Node) -> Node:
        if "$ref" in node:
            return {"$ref": node["$ref"]}
        if members := node.get("anyOf") or node.get("oneOf"):
            return _union([self.node(member) for member in members])
        if (constants := choices(node)) is not None:
            return _enumeration(constants)
        match node.get("type"):
            case "object":
                return self._fields(node) if "properties" in node else self._entries(node)
            case "array":
                return self._array(node)
            case None:
                return copy.deepcopy(_ANYTHING)
            case kind:
                shape = {"format": node["format"]} if node.get("format") in _FORMATS else {}
                return {"type": kind, **shape}

    def _fields(self, node: Node) -> Node:
        required = node.get("required", ())
        fields = cast("dict[str, Node]", node["properties"])
        return _closed_object(
            {
                name: self.node(field) if name in required else self._optional(field)
                for name, field in fields.items()
            }
        )

    def _optional(self, field: Node) -> Node:
        """A field with a default: null selects it, unless null is itself a valid value."""
        strict = self.node(field)
        if choices(field) == [field.get("default")]:  # the tag of a union member
            return strict
        default = field.get(_DEFAULT_IN_WORDS)
        if default is None and "default" in field:
            default = json_text(field["default"])
        note = "" if default is None else f"Default: {default}"
        if takes_null(field, self.definitions):
            return _with_notes(strict, note)
        notes = strict.pop("description", "")
        nullable = _union([strict, {"type": "null"}])
        return _with_notes(nullable, notes, f"{note} (null selects it)" if note else _NULL_NOTE)

    def _entries(self, node: Node) -> Node:
        """A mapping, as an array of its entries."""
        key = self.node({"type": "string"} | node.get("propertyNames", {}))
        value = self.node(free_values(node) or {})
        return {
            "type": "array",
            "items": _closed_object({"key": key, "value": value}),
            "description": "A mapping, as an array of entries with distinct keys.",
        }

    def _array(self, node: Node) -> Node:
        fixed = cast("list[Node]", node.get("prefixItems", []))
        if not fixed:
            return {"type": "array", "items": self.node(node.get("items", {}))}
        order = ", ".join(in_words(item, self.definitions) for item in fixed)
        array = {"type": "array", "items": _union([self.node(item) for item in fixed])}
        return _with_notes(array, f"Exactly these, in this order: {order}.")


_NULL_NOTE = "Null selects the default"


def _closed_object(properties: dict[str, Node]) -> Node:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _with_notes(node: Node, *notes: str) -> Node:
    """*node* with *notes* added to its description."""
    texts = [text.strip() for text in (node.get("description", ""), *notes)]
    sentences = [text if text[-1] in ".!?:;" else f"{text}." for text in texts if text]
    if not sentences:
        return node
    if "$ref" in node:  # $ref allows no other keywords beside it
        node = {"anyOf": [node]}
    return node | {"description": " ".join(sentences)}


def _union(members: Iterable[Node]) -> Node:
    """The union of *members* as one node, flattened and without duplicates."""
    flat: list[Node] = []
    for member in members:
        inner = cast("list[Node]", member["anyOf"]) if member.keys() == {"anyOf"} else [member]
        flat += [each for each in inner if each not in flat]
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def _enumeration(constants: Iterable[Any]) -> Node:
    """*constants* as a union of enums, one for each JSON type."""
    by_type: dict[str, list[Any]] = {}
    for constant in constants:
        by_type.setdefault(_JSON_TYPES[type(constant)], []).append(constant)
    return _union(
        {"type": kind} if kind == "null" else {"type": kind, "enum": same}
        for kind, same in by_type.items()
    )


def without_defaulted_nulls(type_: object, data: Mapping[str, Any]) -> dict[str, Any]:
    """*data*, arguments for ``provider_schema(type_)``, converted for ``parse`` at any depth.

    A null is left out if the field has a default and its type excludes ``None``. An array of
    distinct ``key``/``value`` entries becomes a mapping if the schema has one there. All else is
    unchanged, also mistakes: ``parse`` reports them.

    Raises:
        SchemaError: As ``schema``.
    """
    root = complete_schema(type_)
    try:
        return dict(_restored(root, data, root.get("$defs", {})))
    except RecursionError:  # too deep for parse as well, which reports it
        return dict(data)


def _restored(node: Node, data: Any, definitions: Mapping[str, Node]) -> Any:
    matching = _matching_node(node, data, definitions)
    if matching is None:
        return data
    if isinstance(data, Mapping):
        return _restored_object(matching, cast("Mapping[str, Any]", data), definitions)
    items = cast("list[Any]", data)
    if matching["type"] == "array":
        return [
            _restored(child(matching, n) or {}, item, definitions) for n, item in enumerate(items)
        ]
    values = free_values(matching) or {}
    return {entry["key"]: _restored(values, entry["value"], definitions) for entry in items}


def _restored_object(
    node: Node, data: Mapping[str, Any], definitions: Mapping[str, Node]
) -> dict[str, Any]:
    required = node.get("required", ())
    restored: dict[str, Any] = {}
    for name, item in data.items():
        field = child(node, name) or {}
        if item is not None or name in required or takes_null(field, definitions):
            restored[name] = _restored(field, item, definitions)
    return restored


def _matching_node(node: Node, data: Any, definitions: Mapping[str, Node]) -> Node | None:
    """The member of *node* that matches *data*, or ``None``.

    An array of entries matches a mapping if there is one, but never a dataclass.
    """
    nodes = list(alternatives(node, definitions))
    objects = [each for each in nodes if each.get("type") == "object"]
    if isinstance(data, Mapping):
        matches = [each for each in objects if _fields_match(each, cast("Mapping[str, Any]", data))]
        return next(iter([*matches, *objects]), None)
    if not isinstance(data, list):
        return None
    mappings = [each for each in objects if "properties" not in each]
    if mappings and _are_entries(cast("list[Any]", data)):
        return mappings[0]
    return next((each for each in nodes if each.get("type") == "array"), None)


def _are_entries(items: list[Any]) -> bool:
    if not all(isinstance(item, dict) and {*item} == {"key", "value"} for item in items):
        return False
    keys = [item["key"] for item in items]
    return all(isinstance(key, str) for key in keys) and len({*keys}) == len(keys)


def _fields_match(node: Node, data: Mapping[str, Any]) -> bool:
    """Whether *data* has only fields of *node*, and the tags that *node* requires."""
    fields = cast("dict[str, Node] | None", node.get("properties"))
    return fields is None or all(
        name in fields and _is_choice(fields[name], item) for name, item in data.items()
    )


def _is_choice(field: Node, value: Any) -> bool:
    constants = choices(field)
    return constants is None or value in constants
