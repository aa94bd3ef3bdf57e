"""A workspace's files and history as resources.

::

    workspace://files/{path}        a file, percent-encoded
    workspace://history             the newest entries, as JSON
    workspace://history/{number}    one entry in full, with its diff, as JSON
    workspace://diff                the differences from the source

Reading a resource is not a call: it leaves no record, and policies do not count the file as read.
Links are followed as the file tools follow them, so never outside the workspace. The content is
redacted, like the results of calls.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from mcp_types import (
    BlobResourceContents,
    ListResourcesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from wink_workspace.errors import LimitExceededError, UsageError
from wink_workspace.filesystem import FileKind, parse_path

if TYPE_CHECKING:
    from wink_workspace.filesystem import Diff, FileStat
    from wink_workspace.ledger import LogEntry
    from wink_workspace.workspace import Workspace


_SCHEME: Final = "workspace://"
_FILES: Final = f"{_SCHEME}files/"
_HISTORY: Final = f"{_SCHEME}history"
_DIFF: Final = f"{_SCHEME}diff"
_PAGE_SIZE: Final = 500
_MAX_ENTRIES: Final = 100
_MAX_BYTES: Final = 4 * 1_048_576

TEMPLATES: Final = (
    ResourceTemplate(
        name="file", uri_template=f"{_FILES}{{+path}}", description="A file of the workspace."
    ),
    ResourceTemplate(
        name="history entry",
        uri_template=f"{_HISTORY}/{{number}}",
        description="One entry of the history: the call, its result and its diff.",
        mime_type="application/json",
    ),
)
"""Templates of addresses that a client can read without listing them."""

_FIXED: Final = (
    Resource(
        name="history",
        uri=_HISTORY,
        description=f"The newest {_MAX_ENTRIES} entries of the history.",
        mime_type="application/json",
    ),
    Resource(
        name="diff",
        uri=_DIFF,
        description="The differences from the source, as a git-style diff.",
        mime_type="text/x-diff",
    ),
)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a resource."""

    data: str | bytes
    mime_type: str


def list_resources(
    workspace: Workspace, cursor: str | None, redact: Callable[[str], str]
) -> ListResourcesResult:
    """A page of resources: history and diff first, then the files by path, with *redact*ed names.

    Raises:
        UsageError: If *cursor* was not made by this function.
    """
    after = None if cursor is None else _path_of(cursor)
    found = _files_after(workspace, after)
    page = list(islice(found, _PAGE_SIZE))
    more = next(found, None) is not None
    return ListResourcesResult(
        resources=[
            *(_FIXED if after is None else ()),
            *(_listed(stat, redact) for stat in page),
        ],
        next_cursor=_quoted(str(page[-1].path)) if more else None,
    )


def read_resource(
    workspace: Workspace, uri: str, redact: Callable[[str], str]
) -> ReadResourceResult | None:
    """The content of *uri*, *redact*ed; ``None`` if no template or fixed address matches it.

    Raises:
        FilesystemError, EntryMissingError: If there is no such file or entry, or the file has
            more than 4 MiB.
        UsageError: If the address of a file is not percent-encoded.
    """
    content = _content(workspace, uri)
    if content is None:
        return None
    if isinstance(content.data, str):
        text = TextResourceContents(uri=uri, mime_type=content.mime_type, text=redact(content.data))
        return ReadResourceResult(contents=[text])
    # "surrogateescape" keeps bytes that are not UTF-8, so only secrets change
    redacted = redact(content.data.decode("utf-8", "surrogateescape"))
    blob = base64.b64encode(redacted.encode("utf-8", "surrogateescape")).decode()
    return ReadResourceResult(
        contents=[BlobResourceContents(uri=uri, mime_type=content.mime_type, blob=blob)]
    )


def _content(workspace: Workspace, uri: str) -> _Content | None:
    if uri.startswith(_FILES):
        return _file(workspace, _path_of(uri.removeprefix(_FILES)))
    if uri == _DIFF:
        return _Content(_diff_text(workspace.changeset().review()), "text/x-diff")
    if uri == _HISTORY:
        entries = workspace.log(limit=_MAX_ENTRIES)
        return _Content(_json([_entry_fields(each) for each in entries]), "application/json")
    number = uri.removeprefix(f"{_HISTORY}/")
    if number != uri and number.isascii() and number.isdigit():
        return _Content(_json(_entry_in_full(workspace, int(number))), "application/json")
    return None


def _file(workspace: Workspace, path: str) -> _Content:
    stat = workspace.files.stat(path)
    if stat.size_bytes > _MAX_BYTES:
        raise LimitExceededError(
            f"{path} has {stat.size_bytes:,} bytes; a resource may have at most {_MAX_BYTES:,}",
            hint="Read part of the file with a tool.",
        )
    data = workspace.files.read_bytes(path)
    guessed, _ = mimetypes.guess_type(path)
    try:
        return _Content(data.decode(), guessed or "text/plain")
    except UnicodeDecodeError:
        return _Content(data, guessed or "application/octet-stream")


def _files_after(workspace: Workspace, after: str | None) -> Iterator[FileStat]:
    last = () if after is None else parse_path(after).parts
    for stat in workspace.files.walk():
        if stat.kind is FileKind.FILE and stat.path.parts > last:
            yield stat


def _listed(stat: FileStat, redact: Callable[[str], str]) -> Resource:
    mime_type, _ = mimetypes.guess_type(str(stat.path))
    return Resource(
        name=redact(str(stat.path)),
        uri=_FILES + _quoted(str(stat.path)),
        mime_type=mime_type,
        size=stat.size_bytes,
    )


def _entry_fields(entry: LogEntry) -> dict[str, object]:
    from .operations import HistoryEntry  # on use: the tools are listed without it

    return {**asdict(HistoryEntry.of(entry)), "uri": f"{_HISTORY}/{entry.number}"}


def _entry_in_full(workspace: Workspace, number: int) -> dict[str, object]:
    entry = workspace.entry(number)
    # The first entry adds every file; clients can read the files themselves.
    diff = "" if entry.parent is None else _diff_text(workspace.review_of(entry))
    return {
        **_entry_fields(entry),
        "record": workspace.record(entry).data,
        "diff": diff or workspace.lost_changes(entry),
    }


def _diff_text(diff: Diff) -> str:
    text, n_more = diff.head(_MAX_BYTES)
    return text + (f"\n({n_more:,} more characters)\n" if n_more else "")


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


def _quoted(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"))


def _path_of(quoted: str) -> str:
    try:
        return unquote_to_bytes(quoted).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{quoted!r} is not percent-encoded",
            hint="Use an address from the resource list, or percent-encode a path in UTF-8.",
        ) from error
