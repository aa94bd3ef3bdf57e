"""Navigation in a JSON Schema: references, unions, children."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, cast

__all__ = [
    "Node",
    "alternatives",
    "child",
    "choices",
    "free_values",
    "in_words",
    "json_text",
    "reachable",
    "reference",
    "resolved",
    "takes_null",
]

# Schemas are read and rewritten key by key; a typed model would add nothing.
Node: TypeAlias = dict[str, Any]
"""A JSON Schema, or a part of one."""

_REFERENCE = "#/$defs/"


def reference(node: Node) -> str | None:
    """The name of the definition that *node* refers to."""
    target = node.get("$ref")
    return target.removeprefix(_REFERENCE) if target else None


def resolved(
    node: Node, definitions: Mapping[str, Node], *, keep: frozenset[str] = frozenset()
) -> Node:
    """*node*, or the node that it refers to; keywords beside a reference take precedence.

    References to the names in *keep* are not followed.
    """
    while (name := reference(node)) and name not in keep:
        beside = {keyword: value for keyword, value in node.items() if keyword != "$ref"}
        node = definitions[name] | beside
    return node


def reachable(node: Node, definitions: Mapping[str, Node]) -> set[str]:
    """The names of all definitions that *node* refers to, directly or through others."""
    reached: set[str] = set()
    waiting = list(_references(node))
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _references(definitions[name])
    return reached


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        keywords = cast("Node", node)
        target = keywords.get("$ref")
        if isinstance(target, str) and target.startswith(_REFERENCE):
            yield target.removeprefix(_REFERENCE)
        for value in keywords.values():
            yield from _references(value)
    elif isinstance(node, list):
        for item in cast("list[object]", node):
            yield from _references(item)


def alternatives(node: Node, definitions: Mapping[str, Node]) -> Iterator[Node]:
    """The members of a union, at any depth, or *node* alone; references are followed."""
    node = resolved(node, definitions)
    members = node.get("anyOf") or node.get("oneOf")
    if members is None:
        yield node
        return
    for member in members:
        yield from alternatives(member, definitions)


def child(node: Node, step: str | int) -> Node | None:
    """The schema of the member at *step*, a key or an index, of a value of *node*."""
    if isinstance(step, int):
        fixed = node.get("prefixItems", ())
        return fixed[step] if step < len(fixed) else node.get("items")
    named: Node | None = node.get("properties", {}).get(step)
    return named if named is not None else free_values(node)


def free_values(node: Node) -> Node | None:
    """The schema of the values of a mapping, or ``None``."""
    values = node.get("additionalProperties")
    return cast("Node", values) if isinstance(values, dict) else None


def choices(node: Node) -> list[Any] | None:
    """The constants that *node* allows, or ``None`` if it allows more."""
    return [node["const"]] if "const" in node else node.get("enum")


def takes_null(node: Node, definitions: Mapping[str, Node]) -> bool:
    """Whether null is one of the values that *node* describes."""
    return any(_is_null(each) for each in alternatives(node, definitions))


def _is_null(node: Node) -> bool:
    constants = choices(node)
    if constants is not None:
        return None in constants
    return node.get("type", "null") == "null"  # without a type any value is allowed


def in_words(node: Node, definitions: Mapping[str, Node], *, depth: int = 2) -> str:
    """The type of *node* as a phrase; describes the items of at most *depth* nested arrays."""
    phrases = [_one_in_words(each, definitions, depth) for each in alternatives(node, definitions)]
    return " or ".join(dict.fromkeys(phrases))


def _one_in_words(node: Node, definitions: Mapping[str, Node], depth: int) -> str:
    constants = choices(node)
    if constants is not None:
        return " or ".join(map(json_text, constants))
    kind = node.get("type", "anything")
    if kind == "array" and depth and node.get("items"):
        items = in_words(node["items"], definitions, depth=depth - 1)
        return (
            f"array of {items}"
            if items.startswith(kind) or " or " not in items
            else f"array of ({items})"
        )
    if kind == "object" and "properties" in node:
        return f"{node.get('title', '')} object".strip()
    return f"{kind} ({node['format']})" if "format" in node else kind


def json_text(value: object) -> str:
    """A value from a schema, as JSON."""
    return json.dumps(value, ensure_ascii=False)
