"""Complete JSON Schemas, and the descriptions of fields."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, cast, get_origin

from wink_workspace.errors import SchemaError, UsageError

from .dumping import dump
from .json_values import JsonValue
from .nodes import Node, in_words, json_text, reachable, resolved
from .validators import UNSUPPORTED_HINT, adapter, per_type
from .value_names import first_sentence, type_name

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema

__all__ = ["ParamDescription", "complete_schema", "field_descriptions", "schema"]


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
