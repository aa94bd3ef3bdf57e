"""Checks that a tunnel is TLS to the host it was opened for. It does no I/O and no cryptography.

States: HELLO -> ANSWER -> (HELLO_AGAIN ->) OPEN. Nothing of the client is passed on before its
greeting (ClientHello) was checked as a whole. After it nothing more is passed on until the server
has answered: it may ask for a second greeting (HelloRetryRequest, RFC 8446), which is not encrypted
either, and must name the same host. From OPEN on, the bytes are encrypted and are passed on unread.

Refused are: bytes that are not TLS, a greeting without a server name or with another one, with two
names, with an encrypted greeting (ECH), and one that is cut off, too long or malformed.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from wink_workspace.errors import WinkError

MOST_HELLO_BYTES: Final = 16_384
"""The longest greeting, with the frames of its records."""
_MOST_ANSWER_BYTES: Final = 65_536
_MOST_RECORD_BYTES: Final = 16_384
_MOST_HELD_BYTES: Final = 131_072

_CHANGE_CIPHER: Final = 20
_HANDSHAKE: Final = 22
_APPLICATION: Final = 23
_CLIENT_HELLO: Final = 1
_SERVER_HELLO: Final = 2
_SERVER_NAME: Final = 0
_ENCRYPTED_HELLO: Final = frozenset({0xFE0D, 0xFFCE, 0xFE08, 0xFE09, 0xFE0A, 0xFE0B, 0xFE0C})
"""The number of ECH, and those of its drafts."""
_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random number of a ServerHello that is a HelloRetryRequest."""


class TlsRefusedError(WinkError):
    """A tunnel that is not TLS to its host."""

    code = "tls-refused"
    default_hint = "Connect with TLS to the host that the tunnel was opened for, by its name."


class _State(Enum):
    HELLO = auto()
    ANSWER = auto()
    HELLO_AGAIN = auto()
    OPEN = auto()


class TlsInspector:
    """Watches both directions of a tunnel to *host*, which is in its normal form."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._state = _State.HELLO
        self._held = bytearray()
        self._answer = bytearray()

    @property
    def is_checked(self) -> bool:
        """Whether the greeting was complete and names the host."""
        return self._state is not _State.HELLO

    @property
    def is_open(self) -> bool:
        """Whether bytes are passed on without being looked at."""
        return self._state is _State.OPEN

    def from_client(self, data: bytes) -> bytes:
        """What can be passed on to the server, now that the client has sent *data*.

        Raises:
            TlsRefusedError: If the tunnel must be closed.
        """
        if self._state is _State.OPEN:
            return data
        self._held += data
        match self._state:
            case _State.HELLO:
                n_bytes = self._checked_hello()
                if not n_bytes:
                    return b""
                self._state = _State.ANSWER
                return self._release(n_bytes)
            case _State.HELLO_AGAIN:
                return self._release_second()
            case _:
                if len(self._held) > _MOST_HELD_BYTES:
                    raise TlsRefusedError("the client does not wait for the server's answer")
                return b""

    def from_server(self, data: bytes) -> bytes:
        """What can be passed on to the server, now that the server has sent *data*.

        The data of the server itself is always passed on to the client.
        """
        if self._state is not _State.ANSWER:
            return b""
        self._answer += data
        is_retry = _is_retry(self._answer)
        if is_retry is None and len(self._answer) < _MOST_ANSWER_BYTES:
            return b""
        self._answer.clear()
        if is_retry:
            self._state = _State.HELLO_AGAIN
            return self._release_second()
        self._state = _State.OPEN
        return self._release(len(self._held))

    def _release_second(self) -> bytes:
        n_bytes = self._checked_hello(again=True)
        if not n_bytes:
            return b""
        self._state = _State.OPEN
        return self._release(len(self._held))

    def _release(self, n_bytes: int) -> bytes:
        released = bytes(self._held[:n_bytes])
        del self._held[:n_bytes]
        return released

    def _checked_hello(self, *, again: bool = False) -> int:
        """The length of the held records with a whole greeting of the host; 0 if it is not whole.

        Before a second greeting, a client may send early data and a compatibility record.
        """
        message = bytearray()
        at = 0
        for kind, start, end in _records(self._held):
            if again and not message and kind in (_CHANGE_CIPHER, _APPLICATION):
                continue
            if kind != _HANDSHAKE or start == end:
                raise TlsRefusedError("the client sent something other than a TLS greeting")
            message += self._held[start:end]
            at = end
            if message[0] != _CLIENT_HELLO:
                raise TlsRefusedError("the client did not begin with a TLS greeting")
            if len(message) >= 4:
                length = int.from_bytes(message[1:4], "big")
                if length > MOST_HELLO_BYTES or len(message) > length + 4:
                    raise TlsRefusedError("the TLS greeting has an invalid length")
                if len(message) == length + 4:
                    _check_hello(bytes(message[4:]), self._host)
                    return at
        if len(self._held) > (_MOST_HELD_BYTES if again else MOST_HELLO_BYTES):
            raise TlsRefusedError("the TLS greeting is too long")
        return 0


def _records(data: bytearray) -> Iterator[tuple[int, int, int]]:
    """The kind, start and end of each complete record; raises if it cannot be TLS."""
    at = 0
    while at < len(data):
        if data[at] not in (_CHANGE_CIPHER, 21, _HANDSHAKE, _APPLICATION):
            raise TlsRefusedError("the client sent something other than TLS")
        if len(data) - at < 5:
            return
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at + 1] != 3 or length > _MOST_RECORD_BYTES + 256:
            raise TlsRefusedError("the client sent something other than TLS")
        end = at + 5 + length
        if end > len(data):
            return
        yield data[at], at + 5, end
        at = end


def _is_retry(answer: bytearray) -> bool | None:
    """Whether a server asks for a second greeting; ``None`` if its answer is not long enough."""
    message = bytearray()
    at = 0
    while at + 5 <= len(answer):
        length = int.from_bytes(answer[at + 3 : at + 5], "big")
        if answer[at] != _HANDSHAKE:
            return False
        message += answer[at + 5 : at + 5 + length]
        at += 5 + length
        if message and message[0] != _SERVER_HELLO:
            return False
        if len(message) >= 38:
            return bytes(message[6:38]) == _RETRY
    return None


# The greeting


class _Reader:
    """Reads a greeting from its start to its end; raises ``TlsRefusedError`` if it is cut off."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, n_bytes: int) -> bytes:
        if n_bytes > len(self.left):
            raise TlsRefusedError("the TLS greeting is malformed")
        taken, self.left = self.left[:n_bytes], self.left[n_bytes:]
        return taken

    def number(self, n_bytes: int) -> int:
        return int.from_bytes(self.take(n_bytes), "big")

    def vector(self, n_length_bytes: int) -> _Reader:
        return _Reader(self.take(self.number(n_length_bytes)))

    def check_end(self) -> None:
        if self.left:
            raise TlsRefusedError("the TLS greeting is malformed")


def _check_hello(body: bytes, host: str) -> None:
    """Check that a greeting names exactly *host*."""
    hello = _Reader(body)
    hello.take(2 + 32)  # version and random number
    for n_length_bytes in (1, 2, 1):  # session, cipher suites, compression methods
        hello.vector(n_length_bytes)
    if not hello.left:
        raise TlsRefusedError("the TLS greeting has no server name")
    extensions = hello.vector(2)
    hello.check_end()
    found: dict[int, _Reader] = {}
    while extensions.left:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind in found:
            raise TlsRefusedError("the TLS greeting repeats an extension")
        found[kind] = content
    if _ENCRYPTED_HELLO & found.keys():
        raise TlsRefusedError("the TLS greeting is encrypted (ECH)")
    if _SERVER_NAME not in found:
        raise TlsRefusedError("the TLS greeting has no server name")
    names = found[_SERVER_NAME].vector(2)
    found[_SERVER_NAME].check_end()
    kind, name = names.number(1), names.vector(2).left
    names.check_end()
    if kind != 0 or name.lower() != host.encode("ascii"):
        shown = name[:80].decode("ascii", "replace")
        raise TlsRefusedError(f"the TLS greeting names {shown!r} instead of {host}")
