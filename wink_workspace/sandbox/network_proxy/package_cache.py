"""Files of packages whose digest their registry has stated, for all projects of a user.

Rule 1: only the proxy writes here. A file is stored as the registry has sent it for a URL, over TLS
and whole, and only if the registry has stated its digest: in an index that the proxy has passed on,
or, as repositories of Maven do, in a header. A container cannot choose what is stored for a URL.
Rule 2: an index is never stored, so that nothing new is missed.
Rule 3: a file is found by its URL and the user's credentials for it. Its name ends with its own
digest, which is checked again before it is used.

Indexes are not parsed, because their authors are strangers: only digests are looked for in them.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import Final

from .proxy_requests import Fetch

NO_CACHE: Final = Path("/dev/null")
"""No directory, so that nothing is found or stored."""
_MOST_BYTES: Final = 4_294_967_296
_MOST_HELD_BYTES: Final = 134_217_728
_MOST_DIGESTS: Final = 500_000
_FILES: Final = {
    "pypi": re.compile(r".+\.(whl|whl\.metadata|tar\.gz|tar\.bz2|zip)"),
    "npm": re.compile(r".+/-/[^/]+\.tgz"),
    "crates": re.compile(r".+(\.crate|/\d[^/]*/download)"),
    "maven": re.compile(r"(?!.*SNAPSHOT).+\.(jar|pom|war|aar|zip|module)"),
}
"""The paths of files that never change. Go's client keeps its own digests; Debian's has no TLS."""
_DIGEST: Final = re.compile(rb"\b[0-9a-f]{64}\b|\bsha512-[0-9A-Za-z+/]{86}==")
"""Those of Python and cargo are SHA-256; npm's are SHA-512."""


class PackageCache:
    """The files in one directory, and the digests in the indexes that its proxy has passed on.

    Args:
        folder: The directory; it is made with the first file, for the user alone.
        most_bytes: How many bytes of files are kept; those that were not used longest go first.
    """

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._stated: set[bytes] = set()
        self._n_held = 0

    def find(self, fetch: Fetch) -> bytes | None:
        """The file that a request asks for; ``None`` if it is not here."""
        for path in self._folder.glob(f"{_key(fetch)}.*") if _is_file(fetch) else ():
            with suppress(OSError):
                data = path.read_bytes()
                if path.suffix[1:] == hashlib.sha256(data).hexdigest():
                    path.touch()
                    return data
        return None

    @contextmanager
    def taking(
        self, fetch: Fetch, status: int, headers: Mapping[str, str]
    ) -> Generator[Callable[[bytes], None]]:
        """A function for the pieces of an answer, which has ended at the end of the block."""
        is_shared = fetch.is_shared and status == 200
        data = bytearray()

        def take(piece: bytes) -> None:
            if is_shared and self._n_held + len(piece) <= _MOST_HELD_BYTES:
                data.extend(piece)
                self._n_held += len(piece)

        try:
            yield take
            if is_shared and _is_file(fetch):
                is_whole = headers.get("content-length") == str(len(data))
                if is_whole and self._is_stated(data, headers.get("x-checksum-sha1", "")):
                    self._store(_key(fetch), data)
            elif len(self._stated) < _MOST_DIGESTS:
                self._stated.update(_DIGEST.findall(data))
        finally:
            self._n_held -= len(data)

    def _is_stated(self, data: bytearray, sha1: str) -> bool:
        sha512 = b"sha512-" + b64encode(hashlib.sha512(data).digest())
        own = {hashlib.sha256(data).hexdigest().encode(), sha512}
        own_sha1 = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        return own_sha1 == sha1 or not own.isdisjoint(self._stated)

    def _store(self, key: str, data: bytearray) -> None:
        folder = self._folder
        with suppress(OSError):  # of the disk, or because another process removes a file
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            Path(file.name).rename(folder / f"{key}.{hashlib.sha256(data).hexdigest()}")
            newest = sorted(folder.iterdir(), key=lambda path: -path.stat().st_mtime_ns)
            sizes = accumulate(path.stat().st_size for path in newest)
            for path, n_bytes in zip(newest, sizes, strict=True):
                if n_bytes > self._most_bytes:
                    path.unlink()


def _is_file(fetch: Fetch) -> bool:
    pattern = _FILES.get(fetch.route.name)
    return fetch.is_shared and pattern is not None and bool(pattern.fullmatch(fetch.target))


def _key(fetch: Fetch) -> str:
    return hashlib.sha256(f"{fetch.url} {fetch.route.header}".encode()).hexdigest()
