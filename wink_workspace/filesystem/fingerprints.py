"""Content hashes of files, links and directories, the same for every backend.

A fingerprint covers what a workspace stores for a path and nothing else, so equal trees have
equal fingerprints in every backend. Content of a mount that is not loaded is an exception.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

__all__ = [
    "directory_fingerprint",
    "file_fingerprint",
    "link_fingerprint",
    "remote_fingerprint",
]


def file_fingerprint(chunks: Iterable[bytes], *, executable: bool) -> str:
    """The hash of a file whose content is *chunks*, joined."""
    digest = hashlib.sha256(b"executable\0" if executable else b"file\0")
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def remote_fingerprint(identity: str) -> str:
    """The hash of content that is not loaded, from the *identity* of its source."""
    return hashlib.sha256(b"remote\0" + _encoded(identity)).hexdigest()


def link_fingerprint(target: str) -> str:
    """The hash of a link."""
    return hashlib.sha256(b"link\0" + _encoded(target)).hexdigest()


def directory_fingerprint(children: Iterable[tuple[str, str]]) -> str:
    """The hash of a directory from its entries' names and fingerprints, in any order."""
    digest = hashlib.sha256(b"directory\0")
    for name, fingerprint in sorted(children):
        digest.update(_encoded(name) + b"\0" + fingerprint.encode() + b"\0")
    return digest.hexdigest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
