"""Dataclasses to JSON and back, and their JSON Schemas: the only door to pydantic.

Rule 1: parsing is strict as JSON is. An integer may fill a float, an array a tuple or a
set, a string an enum, a path, bytes (base64) or a moment in time. Nothing else is coerced:
``true`` and ``3.9`` are no integers, a number is no string, and an unknown field is refused
unless ``extra="ignore"`` says to leave it out.
Rule 2: a refusal lists every problem at once, each with its path, in words for a model.
Rule 3: ``dump`` writes what ``parse`` takes. So it leaves out fields with ``init=False``, and
properties unless ``computed=True`` asks for them.
Rule 4: pydantic is imported when a type is first parsed or described, never before.

A field's ``metadata`` may hold ``description`` and pydantic's constraints (``ge``,
``max_length``, ``pattern``, …); they are enforced, and they reach the schemas. With an
``alias`` the field goes by that name in JSON and in schemas; ``parse`` takes its own name too.
"""

from __future__ import annotations

from .dumping import dump, dump_json
from .json_values import JsonValue
from .parsing import Extra, parse, parse_json
from .schemas import ParamDescription, field_descriptions, schema
from .strict import provider_schema, without_defaulted_nulls
from .strings import map_strings

__all__ = [
    "Extra",
    "JsonValue",
    "ParamDescription",
    "dump",
    "dump_json",
    "field_descriptions",
    "map_strings",
    "parse",
    "parse_json",
    "provider_schema",
    "schema",
    "without_defaulted_nulls",
]
