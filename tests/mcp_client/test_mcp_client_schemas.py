"""Types made from the schemas of foreign servers."""

from __future__ import annotations

import json
from types import NoneType
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from random_cases import examples

from wink_workspace import serde
from wink_workspace.errors import ParseError, SchemaError
from wink_workspace.mcp_client.foreign_schemas import arguments_of, params_type_of, printable


def sent(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments_of(serde.parse(params_type_of("T", schema), arguments))


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NODE = {"$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"}}}}}


@pytest.mark.parametrize(
    ("node", "good", "bad"),
    [
        ({"type": "string"}, "a", 1),
        ({"type": "integer"}, 1, 1.5),
        ({"type": "number"}, 1.5, "1"),
        ({"type": "boolean"}, True, 0),
        ({"enum": ["a", 2, None]}, 2, "2"),
        ({"const": "a"}, "a", "b"),
        ({"type": ["string", "null"]}, "a", 1),
        ({"type": "array", "items": {"type": "integer"}}, [1], ["a"]),
        ({"type": "array"}, [1, "a", {}], "a"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 3, 1.5),
        ({"oneOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, {"v": 1}, {"w": 1}),
        ({"$ref": "#/$defs/n", "description": "a node"}, {"v": 1}, {"v": "a"}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "b"}),
        ({"type": "object"}, {"a": [1, {"b": None}]}, 1),
        (of(inner={"type": "string"}), {"inner": "a"}, {"other": "a"}),
        ({"allOf": [{"type": "string"}]}, {"any": "thing"}, object()),
        (True, [None], object()),
    ],
)
def test_part_of_a_schema_accepts_what_it_describes(node: Any, good: Any, bad: Any) -> None:
    schema = {**of(x=node), **NODE, "required": ["x"]}
    assert sent(schema, {"x": good}) == {"x": good}
    with pytest.raises(ParseError):
        sent(schema, {"x": bad})


def test_field_that_was_not_given_is_not_sent_and_a_required_null_is() -> None:
    schema = {**of(a={"type": ["string", "null"]}, b={"type": "string"}), "required": ["a"]}
    assert sent(schema, {"a": None}) == {"a": None}
    with pytest.raises(ParseError, match="a: is required"):
        sent(schema, {})


@pytest.mark.parametrize("name", ["max-results", "class", "_x", "größe", "field_0_", "self", "a b"])
def test_property_keeps_its_name_whatever_it_is(name: str) -> None:
    schema = of(**{name: {"type": "integer"}})
    assert sent(schema, {name: 1}) == {name: 1}
    assert list(serde.schema(params_type_of("T", schema))["properties"]) == [name]


def test_descriptions_and_defaults_reach_the_model() -> None:
    made = params_type_of("T", of(n={"type": "integer", "description": "How many.", "default": 5}))
    assert serde.field_descriptions(made)["n"].description == (
        "How many. If left out, the server uses 5."
    )


def test_tool_without_properties_has_no_parameters() -> None:
    assert params_type_of("T", {"type": "object"}) is NoneType
    assert arguments_of(None) == {}


def deep(n_levels: int) -> Any:
    return {"type": "string"} if not n_levels else of(x=deep(n_levels - 1))


EXPANDING = {
    **of(x={"$ref": "#/$defs/d0"}),
    "$defs": {
        f"d{n}": of(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"})
        for n in range(40)
    },
}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "string"}, "does not describe an object"),
        ({"type": "object", "properties": []}, "does not describe an object"),
        (of(x=deep(30)), "levels"),
        (of(x={"$ref": "#/properties/x"}), "leads nowhere"),
        (of(x={"$ref": "#/nothing/here"}), "leads nowhere"),
        (of(x={"$ref": "https://example.org/s"}), "leads nowhere"),
        (of(x={"$ref": 3}), "leads nowhere"),
        (EXPANDING, "parts|levels"),
        (of(x={"enum": list(range(1_000))}), "choices"),
        (of(x={"enum": []}), "choices"),
        (of(**{"n" * 200: {}}), "has the name"),
        (of(**{"": {}}), "has the name"),
        (of(**{"a-b": {}, "field_0_": {}}), "cannot be fields"),
        (of(**{f"p{n}": {} for n in range(1_100)}), "parts"),
    ],
)
def test_schema_that_is_too_large_or_leads_out_of_itself_is_refused(
    schema: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SchemaError, match=problem):
        params_type_of("T", schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "anyOf",
                    "enum",
                    "const",
                    "$ref",
                    "required",
                    "a",
                    "b",
                ]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
        | st.sampled_from(["string", "object", "array", "#/properties", "#/properties/a"])
    ),
    max_leaves=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_any_schema_gives_a_type_or_is_refused(properties: dict[str, Any]) -> None:
    try:
        made = params_type_of("T", of(**properties))
    except SchemaError:
        reject()
    serde.provider_schema(made)
    json.dumps(serde.schema(made))


def test_invisible_characters_are_removed() -> None:
    assert printable("a\u202eb\x1b[0m\U000e0041\tc\n", 100) == "ab[0m\tc\n"
    assert printable("abcdef", 3) == "abc [… 3 characters left out]"
