"""Dataclasses to JSON and back, and their JSON Schemas: the only door to pydantic.

Rule 1: parsing is strict. These are accepted: an integer for a float, an array for a tuple or a
set, a string for an enum, a path, bytes (base64), a date or a time. Nothing else is coerced:
``true`` and ``3.9`` are not integers, a number is not a string, and an unknown field is refused
unless ``extra="ignore"`` is given.
Rule 2: an error lists every problem at once, each with its path, in sentences for a model.
Rule 3: ``parse`` accepts what ``dump`` writes. So ``dump`` leaves out fields with ``init=False``,
and properties unless ``computed=True`` is given.
Rule 4: pydantic is imported when a type is first parsed or described, never before; what writes
JSON loads nothing of what parses it.

A field's ``metadata`` may have ``description`` and pydantic's constraints (``ge``,
``max_length``, ``pattern``, …); they are enforced and included in the schemas. An ``alias`` is the
field's name in JSON and in schemas; ``parse`` also accepts the field's own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .dumping import dump as dump
    from .dumping import dump_json as dump_json
    from .json_values import JsonValue as JsonValue
    from .json_values import map_strings as map_strings
    from .json_values import well_formed as well_formed
    from .parsing import Extra as Extra
    from .parsing import parse as parse
    from .parsing import parse_json as parse_json
    from .schemas import ParamDescription as ParamDescription
    from .schemas import field_descriptions as field_descriptions
    from .schemas import schema as schema
    from .strict import provider_schema as provider_schema
    from .strict import without_defaulted_nulls as without_defaulted_nulls

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
