"""TLS greetings: those of the system's library, and ones that no library sends."""

from __future__ import annotations

import ssl
import struct
from contextlib import suppress

RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")


def real_hello(name: str | None) -> bytes:
    """What the system's TLS library sends to a server of this name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack("!HH", kind, len(content)) + content


def server_name(*names: str, kind: int = 0) -> bytes:
    entries = b"".join(
        struct.pack("!BH", kind, len(each.encode())) + each.encode() for each in names
    )
    return extension(0, struct.pack("!H", len(entries)) + entries)


def hello(*extensions: bytes, tail: bytes = b"") -> bytes:
    """The message of a greeting."""
    joined = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += struct.pack("!H", len(joined)) + joined + tail
    return b"\x01" + len(body).to_bytes(3, "big") + body


def records(message: bytes, *, kind: int = 22, size: int = 16_384) -> bytes:
    """A message in records of at most *size* bytes."""
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(struct.pack("!BHH", kind, 0x0301, len(each)) + each for each in pieces)


def answer(random: bytes = bytes(32)) -> bytes:
    """A server's answer, as far as it is looked at."""
    body = b"\x03\x03" + random + bytes(10)
    return records(b"\x02" + len(body).to_bytes(3, "big") + body)


LISTED = "api.test"
OTHER = "evil.test"

REFUSED = {
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n",
    "a second CONNECT": b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "SSL 2": b"\x80\x2e\x01\x00\x02" + bytes(40),
    "another server name": records(hello(server_name(OTHER))),
    "no server name": records(hello(extension(10, b"\0\2\0\x1d"))),
    "no extensions": records(b"\x01\x00\x00\x29\x03\x03" + bytes(32) + b"\0\0\2\x13\1\1\0"),
    "an address as server name": records(hello(server_name("127.0.0.1"))),
    "a longer server name": records(hello(server_name("api.test.evil.test"))),
    "a server name with a final dot": records(hello(server_name("api.test."))),
    "a server name with a NUL": records(hello(server_name("api.test\0.evil.test"))),
    "an empty server name": records(hello(server_name(""))),
    "a server name in UTF-8": records(hello(server_name("àpi.test"))),
    "two server names": records(hello(server_name(LISTED, OTHER))),
    "two extensions of server names": records(hello(server_name(LISTED), server_name(OTHER))),
    "a server name of another kind": records(hello(server_name(LISTED, kind=1))),
    "ECH": records(hello(server_name(LISTED), extension(0xFE0D, bytes(40)))),
    "encrypted SNI of a draft": records(hello(server_name(LISTED), extension(0xFFCE, bytes(40)))),
    "bytes after the extensions": records(hello(server_name(LISTED), tail=b"x")),
    "a length that is too long": records(b"\x01\xff\xff\xff" + hello(server_name(LISTED))[4:]),
    "two messages in a record": records(hello(server_name(LISTED)) + hello(server_name(OTHER))),
    "another message first": records(b"\x0b\0\0\0" + hello(server_name(LISTED))),
    "application data first": records(b"x", kind=23) + records(hello(server_name(LISTED))),
    "an alert first": records(b"\1\0", kind=21) + records(hello(server_name(LISTED))),
    "an empty record first": b"\x16\x03\x01\0\0" + records(hello(server_name(LISTED))),
    "a greeting of 20,000 bytes": records(hello(server_name(LISTED), extension(21, bytes(20_000)))),
    "a record of 30,000 bytes": b"\x16\x03\x01\x75\x30" + bytes(30_000),
}
"""What must not open a tunnel to ``LISTED``."""
