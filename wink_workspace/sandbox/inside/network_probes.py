"""Probes of the network list, run inside a container by the user of commands.

Like ``probes``, this file is sent to the container as a whole, and a probe that is stopped raises
``OSError`` or returns ``None``. While these probes run, the proxy connects nowhere; the host
reports it if the proxy would have.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable

PORT = int(os.environ.get("WINK_PROXY_PORT", "0"))
LISTED = os.environ.get("WINK_LISTED", "")
ACTIVE = os.environ.get("WINK_LIST", "[]")
UNLISTED = "unlisted.invalid:443"


def opened() -> socket.socket:
    """A connection to the proxy."""
    proxy = socket.create_connection(("127.0.0.1", PORT), 10)
    proxy.settimeout(10)
    return proxy


def answer(proxy: socket.socket, request: str) -> str:
    """The head of the answer to a request."""
    proxy.sendall(request.encode())
    received = b""
    while b"\r\n\r\n" not in received:
        piece = proxy.recv(65536)
        if not piece:
            break
        received += piece
    return received.decode("latin-1")


def status(proxy: socket.socket, request: str) -> str:
    """The status of the answer to a request; an ``OSError`` if there is none."""
    words = answer(proxy, request).split()
    if len(words) < 2:
        raise ConnectionResetError("no answer")
    return words[1]


def tunnel(target: str) -> str:
    """A request for a tunnel."""
    return f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"


def found(targets: list[str], request: Callable[[str], str]) -> str | None:
    """What was answered with another status than a refusal."""
    for target in targets:
        with opened() as proxy:
            got = status(proxy, request(target))
        if not got.startswith("4"):
            return f"{target} was answered with {got}"
    return None


def hello(name: str) -> bytes:
    """A TLS greeting with a server name."""
    host = name.encode()
    names = struct.pack("!HBH", len(host) + 3, 0, len(host)) + host
    extensions = struct.pack("!HH", 0, len(names)) + names
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    body += struct.pack("!H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(message)) + message


def in_tunnel(data: bytes) -> str | None:
    """Send *data* through a tunnel to a listed host; only a TLS alert may come back."""
    if not LISTED:
        return None
    with opened() as proxy:
        if status(proxy, tunnel(LISTED)) != "200":
            return f"the listed host {LISTED} is refused"
        proxy.sendall(data)
        got = proxy.recv(65536)
    return f"the answer is {got[:40]!r}" if got and got[0] != 21 else None


def reach_an_unlisted_host() -> str | None:
    """Open a tunnel to a host that is not listed, and request a page of it."""
    page = "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\n\r\n"
    return found([UNLISTED, "localhost:443"], tunnel) or found([UNLISTED], page.format)


def reach_an_address() -> str | None:
    """Open a tunnel to addresses instead of a name, in several spellings."""
    port = LISTED.rpartition(":")[2] or "443"
    spellings = ("127.0.0.1", "169.254.169.254", "2130706433", "0x7f.1", "127.1", "[::1]")
    return found([f"{each}:{port}" for each in spellings], tunnel)


def use_another_server_name() -> str | None:
    """Greet another server than the one that the tunnel is for."""
    return in_tunnel(hello(UNLISTED.partition(":")[0]))


def relay_a_tunnel() -> str | None:
    """Ask for a second tunnel inside the first."""
    return in_tunnel(tunnel(UNLISTED).encode())


def find_another_list() -> str | None:
    """Compare the list that the proxy applies with the configured one."""
    host = "list.wink.internal"
    with opened() as proxy:
        text = answer(proxy, f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n")
        text += "".join(iter(lambda: proxy.recv(65536).decode("latin-1"), ""))
    active = text.partition("\r\n\r\n")[2].strip()
    return None if json.loads(active) == json.loads(ACTIVE) else f"the list is {active[:200]}"


PROBES = (
    reach_an_unlisted_host,
    reach_an_address,
    use_another_server_name,
    relay_a_tunnel,
    find_another_list,
)


def main() -> None:
    """Run every probe and print the results."""
    for probe in PROBES:
        try:
            hole = probe()
            stopped, detail = not hole, hole or "nothing found"
        except OSError as error:
            stopped, detail = probe is not find_another_list, error.strerror or str(error)
        except Exception as error:
            stopped, detail = False, f"the probe failed: {error!r}"
        name = probe.__name__.replace("_", " ")
        sys.stdout.write(json.dumps([name, stopped, str(detail)[:300]]) + "\n")


if __name__ == "__main__":
    main()
