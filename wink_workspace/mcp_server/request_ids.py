"""The ids of the requests that are not answered yet.

The library routes answers by id: with two requests of one id, a client gets the answer of one as
that of the other. The protocol forbids it, and whoever brings a request asks here first.

Rule 1: an id is taken before the library sees the request. ``7`` and ``"7"`` are one id, as they
are for the library.
Rule 2: it is free again when the request's handler has ended, however it ended. That may be long
after the connection that brought the request was closed.
"""

from __future__ import annotations

from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId

__all__ = ["RequestIds"]


class RequestIds:
    """The ids in use, for each session."""

    def __init__(self) -> None:
        self._taken: set[tuple[str | None, RequestId]] = set()

    def take(self, session: str | None, number: RequestId) -> bool:
        """Whether *number* was free in *session*; it is in use now."""
        key = (session, coerce_request_id(number))
        is_free = key not in self._taken
        self._taken.add(key)
        return is_free

    def free(self, session: str | None, number: RequestId) -> None:
        """Let *number* be used again."""
        self._taken.discard((session, coerce_request_id(number)))
