"""What a client inside gets of an answer from outside. It does no I/O.

Texts in an answer are replaced: links of an index to its own host, so that clients stay on the
proxy, and the value of a secret that a service sends back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from wink_workspace.errors import WinkError

from .routes import Route

__all__ = ["AnswerRefusedError", "Replacer", "answer_headers", "replaces_body"]

_DROPPED: Final = frozenset(
    (
        *("alt-svc", "connection", "keep-alive", "proxy-authenticate", "proxy-connection"),
        *("public-key-pins", "set-cookie", "set-cookie2", "strict-transport-security", "te"),
        *("trailer", "transfer-encoding", "upgrade", "www-authenticate", "clear-site-data"),
    )
)
_INDEX_TYPES: Final = ("text/html", "application/json", "application/vnd.", "application/xhtml+xml")

Headers = Sequence[tuple[str, str]]


class AnswerRefusedError(WinkError):
    """An answer that cannot be passed on."""

    code = "network-answer"


def replaces_body(route: Route, headers: Headers) -> bool:
    """Whether texts are replaced in the body of this answer.

    Raises:
        AnswerRefusedError: If they should be, but the body is compressed.
    """
    values = dict(headers)
    kind = values.get("content-type", "").lower()
    replaces = bool(route.replaced) and (route.replaces_all or kind.startswith(_INDEX_TYPES))
    if replaces and values.get("content-encoding", "identity").lower() != "identity":
        raise AnswerRefusedError("the answer is compressed, though this was not asked for")
    return replaces


def answer_headers(route: Route, headers: Headers, *, replaces: bool) -> list[tuple[str, str]]:
    """The headers for the client: without those of the connection, cookies and challenges.

    A header whose name contains a secret is left out; names are in lower case.
    """
    dropped = _DROPPED | {"content-length", "accept-ranges"} if replaces else _DROPPED
    kept: list[tuple[str, str]] = []
    for name, value in headers:
        is_secret = route.replaces_all and any(
            old.lower() in name.encode("ascii") for old, _ in route.replaced
        )
        if name not in dropped and not is_secret:
            data = value.encode("latin-1")
            for old, new in route.replaced:
                data = data.replace(old, new)
            kept.append((name, data.decode("latin-1")))
    return [*kept, ("Connection", "close")]


class Replacer:
    """Replaces texts in a stream; holds back only what may be the start of one.

    Args:
        replaced: Each text and its replacement. Where several match, the first counts.
    """

    def __init__(self, replaced: Sequence[tuple[bytes, bytes]]) -> None:
        self._new = dict(reversed(replaced))
        self._pattern = re.compile(b"|".join(re.escape(old) for old, _ in replaced))
        self._longest = max(len(old) for old, _ in replaced)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on now."""
        data = self._held + data
        done = bytearray()
        at, end = 0, self._partial(data, 0)
        for match in self._pattern.finditer(data):
            if match.start() >= end:
                break
            done += data[at : match.start()] + self._new[match[0]]
            at = match.end()
            if at > end:
                end = self._partial(data, at)
        self._held = data[end:]
        return bytes(done + data[at:end])

    def finish(self) -> bytes:
        """The rest."""
        return self._pattern.sub(lambda match: self._new[match[0]], self._held)

    def _partial(self, data: bytes, at: int) -> int:
        """Where a text may begin that ends in what follows; the end of *data* if none does."""
        for start in range(max(at, len(data) - self._longest + 1), len(data)):
            rest = data[start:]
            if any(len(rest) < len(old) and old.startswith(rest) for old in self._new):
                return start
        return len(data)
