"""The layers of the wall around evaluated Python: their names, and what each one stops."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["LAYERS", "REQUIRED_LAYERS"]

LAYERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "namespaces": "a network without interfaces, and no view of other processes' IPC",
        "ordinary-user": "an account that owns nothing of ours, where we are root",
        "no-capabilities": "no privilege of the kernel, whoever runs it",
        "own-session": "no terminal to type into, no process group to signal",
        "dies-with-server": "killed when the server ends, however that ends",
        "empty-environment": "no variable of ours, no arguments",
        "closed-descriptors": "no open file but the one socket to the host",
        "limits": "memory, processor time, no file sizes, no new descriptors, no processes",
        "no-new-privileges": "no way to gain a privilege by running a program",
        "not-dumpable": "no core dump, and nobody of the same account may look inside",
        "landlock": "no path at all, and with newer kernels no TCP, abstract socket or signal",
        "seccomp": "only the system calls of a running interpreter: no files, sockets, processes",
    }
)
"""Name to what the layer is for, in the order in which they go up."""

REQUIRED_LAYERS: Final = frozenset(LAYERS) - {"namespaces", "ordinary-user", "landlock"}
"""What must be up unless a configuration says otherwise.

The three others stop nothing that seccomp would let through. They are a second lock, and not
every kernel or container has them.
"""
