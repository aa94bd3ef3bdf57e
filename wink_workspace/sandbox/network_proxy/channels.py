"""The connections of a command, carried over the stream of its container. It does no I/O.

::

    container:  CONNECTION  FROM_CONNECTION*  CONNECTION_ENDED?  CONNECTION_CLOSED
                with CONNECTION_ACKED anywhere between the first and the last
    host:       TO_CONNECTION*  END_CONNECTION?  DROP_CONNECTION?
                with ACK_CONNECTION anywhere

Each payload begins with the number of the connection, four bytes. The container counts them from 1
in each command. A side may have sent ``WINDOW_BYTES`` that the other side has not acknowledged, so
neither has to hold more, and a slow connection does not delay the others. Each direction ends on
its own. When both have ended, after an error, or when the host drops it, the runner closes the
connection; it ignores what the host sent to it before it knew.

The container's side is hostile: any frame that is not next in this grammar raises ``FrameError``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from wink_workspace.sandbox.transport.container_frames import (
    MOST_PAYLOAD_BYTES,
    FrameError,
    Kind,
)

WINDOW_BYTES: Final = 131_072
MOST_CONNECTIONS: Final = 64
_NUMBER: Final = struct.Struct("!I")
_ACK: Final = struct.Struct("!II")
MOST_PIECE_BYTES: Final = MOST_PAYLOAD_BYTES - _NUMBER.size

Message = tuple[Kind, bytes]
"""A frame to send: its kind and payload."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened on a connection.

    ``CONNECTION``: it is new. ``FROM_CONNECTION``: it sent ``data``. ``CONNECTION_ENDED``: it sends
    no more. ``CONNECTION_ACKED``: more can be sent to it. ``CONNECTION_CLOSED``: it is gone.
    """

    kind: Kind
    connection: int
    data: bytes = b""


@dataclass(slots=True)
class _Channel:
    credit: int = WINDOW_BYTES
    unacknowledged: int = 0
    ended: bool = False
    is_dropped: bool = False
    peer_ended: bool = False


class Channels:
    """The host's end of all connections of one command."""

    def __init__(self) -> None:
        self._channels: dict[int, _Channel] = {}
        self._n_opened = 0

    def receive(self, kind: Kind, payload: bytes) -> Event | None:
        """What a frame of the container means; ``None`` if it is about a dropped one.

        Raises:
            FrameError: If it is not next in the grammar.
        """
        if len(payload) < _NUMBER.size:
            raise FrameError(f"a {kind.name} names no connection")
        (number,) = _NUMBER.unpack_from(payload)
        if kind is Kind.CONNECTION:
            return self._open(number, payload)
        channel = self._channels.get(number)
        if channel is None:
            raise FrameError(f"{kind.name} of the connection {number}, which is not open")
        data = b""
        match kind:
            case Kind.FROM_CONNECTION if not channel.peer_ended:
                data = payload[_NUMBER.size :]
                channel.unacknowledged += len(data)
                if not data or channel.unacknowledged > WINDOW_BYTES:
                    raise FrameError(f"the connection {number} sent more than its window")
            case Kind.CONNECTION_ENDED if len(payload) == _NUMBER.size and not channel.peer_ended:
                channel.peer_ended = True
            case Kind.CONNECTION_ACKED if len(payload) == _ACK.size:
                n_bytes = _ACK.unpack(payload)[1]
                channel.credit += n_bytes
                if not n_bytes or channel.credit > WINDOW_BYTES:
                    raise FrameError(f"the connection {number} acknowledged {n_bytes} bytes")
            case Kind.CONNECTION_CLOSED if len(payload) == _NUMBER.size:
                del self._channels[number]
            case _:
                raise FrameError(f"an invalid {kind.name}")
        if channel.is_dropped and kind is not Kind.CONNECTION_CLOSED:
            return None
        return Event(kind, number, data)

    def _open(self, number: int, payload: bytes) -> Event:
        if len(payload) != _NUMBER.size or number != self._n_opened + 1:
            raise FrameError(f"a connection has the number {number}")
        if len(self._channels) >= MOST_CONNECTIONS:
            raise FrameError(f"more than {MOST_CONNECTIONS} connections are open")
        self._n_opened = number
        self._channels[number] = _Channel()
        return Event(Kind.CONNECTION, number)

    def credit(self, connection: int) -> int:
        """How many bytes can be sent to it now; 0 also if it is closed."""
        channel = self._channels.get(connection)
        return 0 if channel is None or channel.ended else min(channel.credit, MOST_PIECE_BYTES)

    def is_open(self, connection: int) -> bool:
        """Whether more can be sent to it, now or later."""
        channel = self._channels.get(connection)
        return channel is not None and not channel.ended

    def send(self, connection: int, data: bytes) -> Message:
        """The frame that sends *data*, of at most ``credit`` bytes."""
        if not 0 < len(data) <= self.credit(connection):
            raise ValueError(f"{len(data)} bytes cannot be sent now")
        self._channels[connection].credit -= len(data)
        return Kind.TO_CONNECTION, _NUMBER.pack(connection) + data

    def acknowledge(self, connection: int, n_bytes: int) -> Message | None:
        """The frame that lets the connection send *n_bytes* more; ``None`` if it does not."""
        channel = self._channels.get(connection)
        if channel is None or channel.peer_ended or channel.is_dropped or not n_bytes:
            return None
        channel.unacknowledged -= n_bytes
        return Kind.ACK_CONNECTION, _ACK.pack(connection, n_bytes)

    def end(self, connection: int) -> Message | None:
        """The frame that ends our direction; ``None`` if it has ended."""
        channel = self._channels.get(connection)
        if channel is None or channel.ended:
            return None
        channel.ended = True
        return Kind.END_CONNECTION, _NUMBER.pack(connection)

    def drop(self, connection: int) -> Message | None:
        """The frame that closes the connection; ``None`` if it is closed."""
        channel = self._channels.get(connection)
        if channel is None or channel.is_dropped:
            return None
        channel.ended = channel.is_dropped = True
        return Kind.DROP_CONNECTION, _NUMBER.pack(connection)
