"""``call.json``: the record of an entry, stored beside its files and STATE.

::

    {"schema": 1, "type": "ToolInvoked", "data": {...}}

The records of a branch are the LOG of the workspace. Parameters and results of tools are read as
plain JSON, since their types may have changed or no longer exist.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any, Final, cast

from wink_workspace import serde
from wink_workspace.errors import LedgerDamagedError, UsageError
from wink_workspace.serde import JsonValue
from wink_workspace.session import (
    ExternalChange,
    Outcome,
    PolicyVerdict,
    ToolInvoked,
    WorkspaceRestored,
)

LoggedEvent = ToolInvoked | ExternalChange | WorkspaceRestored

_SCHEMA: Final = 1
_MAX_REPR_CHARS: Final = 10_000
_encode = json.JSONEncoder().encode


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an entry.

    ``type`` is the name of the dumped class and ``data`` its JSON. ``event`` is the parsed event
    if its class is one of the three of the LOG, with ``params`` and ``value`` as JSON.
    """

    type: str
    data: JsonValue
    event: LoggedEvent | None = None


def dump_record(record: object) -> bytes:
    """*record* as the content of ``call.json``.

    A field without a JSON form is stored as its ``repr``, because writing a record must not fail.
    """
    document = {"schema": _SCHEMA, "type": type(record).__name__, "data": _dumped(record)}
    return _encode(document).encode() + b"\n"


def _dumped(value: object) -> JsonValue:
    try:
        return serde.dump(value)
    except UsageError:
        if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _dumped(getattr(value, field.name)) for field in fields(value)}
        return {"repr": repr(value)[:_MAX_REPR_CHARS]}


def parse_record(content: bytes) -> Record:
    """Parse the output of ``dump_record``.

    Raises:
        LedgerDamagedError: If *content* is damaged or has another version.
    """
    try:
        document = json.loads(content)
        if document["schema"] != _SCHEMA:
            raise ValueError(f"schema version {document['schema']!r}")
        kind, data = str(document["type"]), cast("JsonValue", document["data"])
        read = _READERS.get(kind)
        return Record(kind, data, None if read is None else read(cast("Any", data)))
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerDamagedError(f"a record in the ledger cannot be read: {error!r}") from error


# Not `serde.parse`: file names may have lone surrogates, which it refuses in input from outside.
# `Any`: our own `dump_record` wrote the values.


def _tool_invoked(data: Mapping[str, Any]) -> ToolInvoked:
    typed: dict[str, Any] = {
        **data,
        "outcome": Outcome(data["outcome"]),
        "started_at": datetime.fromisoformat(data["started_at"]),
        "decisions": tuple(PolicyVerdict(**verdict) for verdict in data["decisions"]),
        "notes": tuple(data.get("notes", ())),
        "outside_effects": tuple(data.get("outside_effects", ())),
        "uncertain_paths": tuple(data.get("uncertain_paths", ())),
    }
    return ToolInvoked(**typed)


def _external_change(data: Mapping[str, Any]) -> ExternalChange:
    return ExternalChange(paths=tuple(data["paths"]), at=datetime.fromisoformat(data["at"]))


def _workspace_restored(data: Mapping[str, Any]) -> WorkspaceRestored:
    return WorkspaceRestored(
        reason=data["reason"],
        paths=tuple(data["paths"]),
        at=datetime.fromisoformat(data["at"]),
    )


_READERS: dict[str, Callable[[Mapping[str, Any]], LoggedEvent]] = {
    "ToolInvoked": _tool_invoked,
    "ExternalChange": _external_change,
    "WorkspaceRestored": _workspace_restored,
}
