"""Complete JSON Schemas, and the descriptions of fields."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_origin

from wink_workspace.errors import SchemaError, UsageError

from .dumping import dump
from .json_values import JsonValue, first_sentence, type_name
from .validators import UNSUPPORTED_HINT, adapter, per_type

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema


# ------------------------------------------------------------------------------------------ nodes


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


# ---------------------------------------------------------------------------------------- schemas


def schema(type_: object) -> dict[str, JsonValue]:
    """The complete JSON Schema of what ``parse`` accepts for *type_*.

    It has descriptions, constraints and defaults (the default of a factory only if that is a
    built-in collection). Objects of dataclasses are closed. Types that are used in several places
    or recursively are under ``$defs``. ``None`` gives an empty closed object.

    Raises:
        SchemaError: If the type is not supported, or has no JSON Schema.
    """
    return copy.deepcopy(complete_schema(type_))


@per_type
def complete_schema(type_: Any) -> Node:
    """The result of ``schema`` without a copy; do not change it."""
    from pydantic import PydanticUserError

    if type_ is None or type_ is NoneType:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    pydantic_type = adapter(type_)
    try:
        array = pydantic_type.json_schema(schema_generator=_generator())
    except PydanticUserError as error:
        raise SchemaError(
            f"{type_name(type_)} has no JSON Schema: {first_sentence(error)}", hint=UNSUPPORTED_HINT
        ) from error
    definitions: dict[str, Node] = array.get("$defs", {})
    root = resolved(array["items"], definitions)
    names = sorted(reachable(root, definitions))
    return root | ({"$defs": {name: definitions[name] for name in names}} if names else {})


@lru_cache(maxsize=1)
def _generator() -> type[GenerateJsonSchema]:
    """Pydantic's generator with the defaults and bytes of ``dump``, and only init fields."""
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import PydanticSerializationError

    class Generator(GenerateJsonSchema):
        def emit_warning(self, kind: Any, detail: str) -> None:
            """Do not warn: leaving out a default without a JSON form is documented."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            del schema
            return False  # it would repeat the field's name

        def field_is_present(self, field: Any) -> bool:
            return field.get("init", True) and super().field_is_present(field)

        def get_default_value(self, schema: Any) -> Any:
            factory: Any = schema.get("default_factory")
            if (get_origin(factory) or factory) in (list, tuple, dict, set, frozenset):
                return factory()
            return super().get_default_value(schema)

        def encode_default(self, dft: Any) -> Any:
            try:
                return dump(dft)
            except UsageError as error:
                raise PydanticSerializationError(str(error)) from error

        def dataclass_schema(self, schema: Any) -> Node:
            node = {**super().dataclass_schema(schema), "additionalProperties": False}
            return node | _documentation(schema["cls"])

        def bytes_schema(self, schema: Any) -> Node:
            node = super().bytes_schema(schema)
            del node["format"]
            return node | {"contentEncoding": "base64"}

    return Generator


def _documentation(kind: type[Any]) -> Node:
    """A dataclass's docstring, unless it is the signature that Python generates."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return {"description": text} if text and not text.startswith(f"{kind.__name__}(") else {}


@dataclass(frozen=True, slots=True)
class ParamDescription:
    """Description, type and default of one field.

    Args:
        description: From the field's metadata, or ``""``.
        type: In words: ``integer``, ``array of string``, ``"a" or "b"``.
        default: As JSON; ``None`` if the field is required, ``""`` if a factory gives the default.
    """

    description: str
    type: str
    default: str | None = None

    @property
    def required(self) -> bool:
        """Whether a value must be given."""
        return self.default is None


@per_type
def field_descriptions(type_: object) -> Mapping[str, ParamDescription]:
    """The descriptions of the fields of *type_*, by name in order; empty if it has none.

    Raises:
        SchemaError: As ``schema``.
    """
    root = complete_schema(type_)
    required = root.get("required", ())
    described: dict[str, ParamDescription] = {}
    for name, node in cast("dict[str, Node]", root.get("properties", {})).items():
        default = json_text(node["default"]) if "default" in node else ""
        described[name] = ParamDescription(
            description=node.get("description", ""),
            type=in_words(node, root.get("$defs", {})),
            default=None if name in required else default,
        )
    return MappingProxyType(described)
