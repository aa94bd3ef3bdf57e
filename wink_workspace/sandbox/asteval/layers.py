"""The isolation layers of evaluated Python: their names, and what each one does."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "namespaces": "a network without interfaces, and no view of other processes' IPC",
        "ordinary-user": "if the host runs as root, an account that owns none of its files",
        "no-capabilities": "no privilege in the kernel, whichever account runs it",
        "own-session": "no terminal to type into, no process group to send signals to",
        "dies-with-server": "killed when the server ends, however that ends",
        "empty-environment": "no environment variables and no arguments",
        "closed-descriptors": "no open file except the socket to the host",
        "limits": "memory, processor time, no file sizes, no new descriptors, no processes",
        "no-new-privileges": "no way to gain a privilege by running a program",
        "not-dumpable": "no core dump, and no process of the same account can read its memory",
        "landlock": "no access to paths; with newer kernels, no TCP, abstract sockets or signals",
        "seccomp": "only the system calls of a running interpreter: no files, sockets or processes",
    }
)
"""What each layer does, by name, in the order in which they are reported."""

REQUIRED_LAYERS: Final = frozenset(LAYERS) - {"namespaces", "ordinary-user", "landlock"}
"""The layers that must be active unless a configuration says otherwise.

Seccomp forbids everything that the three other layers forbid. They are a second protection, and
some kernels and containers do not have them.
"""
