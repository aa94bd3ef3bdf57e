"""A network namespace with loopback only, for the tests and every program that they start.

Other tools, servers, clients and browsers then reach no other machine, whatever they try. Only a
block of ``package_registries`` leaves it: what package clients fetch is part of the set-up.

A namespace needs root, as in CI. As an ordinary user the tests run in the network of the machine.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager

_CLONE_NEWNET = 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_libc = ctypes.CDLL(None, use_errno=True)
_before: int | None = None
"""The network namespace in which the tests were started."""


def enter() -> bool:
    """Move this thread, and what it starts, to a new namespace; whether that is allowed."""
    global _before
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    if _libc.unshare(_CLONE_NEWNET) != 0:
        os.close(before)
        return False
    _before = before
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        _, flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
    return True


@contextmanager
def package_registries() -> Generator[None]:
    """Let what this thread starts in the block use the machine's network, for package clients."""
    if _before is None:
        yield
        return
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _move(_before)
        yield
    finally:
        _move(own)
        os.close(own)


def _move(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
