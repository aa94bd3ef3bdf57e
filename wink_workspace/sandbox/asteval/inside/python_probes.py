"""Probes: an isolated child attempts everything that the isolation forbids, before it gets code.

A probe that succeeds is a hole, and the host then refuses to run anything. A probe that fails for
another reason than a refusal counts as a hole, too. Each probe is harmless if it succeeds.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import mmap
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Final

from wink_workspace.sandbox.isolation_report import Probe

_libc: Final = ctypes.CDLL(None, use_errno=True)

_PTRACE_SEIZE: Final = 0x4206  # unlike PTRACE_ATTACH, it does not stop the process
_FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EAGAIN, errno.EMFILE})
_PR_SET_DUMPABLE: Final = 4
_CLONE_NEWUSER: Final = 0x10000000
# These have the same number on all architectures
_IO_URING_SETUP: Final = 425
_PIDFD_OPEN: Final = 434
_OPENAT2: Final = 437
_LANDLOCK_CREATE_RULESET: Final = 444
_DESCRIPTORS_TRIED: Final = 1_024


def run_probes() -> Iterator[Probe]:
    """Run every probe in turn."""
    for name, attempt in _ATTEMPTS.items():
        try:
            success = attempt()
        except OSError as error:
            yield Probe(name, was_stopped=error.errno in _FORBIDDEN, detail=_error_name(error))
        except RuntimeError as error:  # Python raises it if it cannot start a thread
            yield Probe(name, was_stopped=True, detail=str(error))
        else:
            yield Probe(name, was_stopped=success == "", detail=success)


def _error_name(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def _call(result: int) -> str:
    """Raise the error of a C library call that failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return "it succeeded"


def _opened(path: str, flags: int) -> str:
    os.close(os.open(path, flags, 0o600))
    return f"opened {path}"


def _new_process() -> str:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "forked"


def _other_descriptors() -> str:
    """Look for open descriptors by reading 0 bytes, as only read and write are allowed."""
    opened: list[int] = []
    for descriptor in range(_DESCRIPTORS_TRIED):
        try:
            os.read(descriptor, 0)
        except OSError:
            continue
        opened.append(descriptor)
    return "" if len(opened) == 1 else f"descriptors {opened} are open"


def _environment() -> str:
    names = sorted(os.environ)  # noqa: TID251 - this process's own, which must be empty
    return ", ".join(names)


def _memory_of_parent() -> str:
    buffer = ctypes.create_string_buffer(8)
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    return _call(_libc.process_vm_readv(os.getppid(), vector, 1, vector, 1, 0))


def _executable_memory() -> str:
    mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC).close()
    return "mapped"


def _executable_later() -> str:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return _call(_libc.mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, mmap.PROT_EXEC))


def _socket(family: int, kind: int) -> Callable[[], str]:
    def attempt() -> str:
        socket.socket(family, kind).close()
        return "created"

    return attempt


def _socket_pair() -> str:
    for end in socket.socketpair():
        end.close()
    return "created"


def _raised_limit() -> str:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    except ValueError as error:  # how Python translates EPERM here
        raise PermissionError(errno.EPERM, str(error)) from error
    return "raised"


def _done(function: Callable[..., object], *arguments: object) -> Callable[[], str]:
    def attempt() -> str:
        function(*arguments)
        return "it succeeded"

    return attempt


def _library(name: str, *arguments: object) -> Callable[[], str]:
    return lambda: _call(getattr(_libc, name)(*arguments))


_ATTEMPTS: Final[dict[str, Callable[[], str]]] = {
    "read a file": lambda: _opened("/etc/passwd", os.O_RDONLY),
    "read its own memory map": lambda: _opened("/proc/self/maps", os.O_RDONLY),
    "open a device": lambda: _opened("/dev/null", os.O_RDWR),
    "write a file": lambda: _opened("/tmp/.wink-canary", os.O_WRONLY | os.O_CREAT),  # noqa: S108 - must be writable to all
    "open a path with openat2": _library("syscall", _OPENAT2, -100, b"/", None, 0),
    "create a file in memory": _done(os.memfd_create, "canary"),
    "list a directory": _done(os.listdir, "/"),
    "stat a path": _done(os.stat, "/"),
    "create a directory": _done(os.mkdir, "/tmp/.wink-canary-directory"),  # noqa: S108 - as above
    "delete a path": _done(os.unlink, "/tmp/.wink-canary"),  # noqa: S108 - as above
    "change the directory": _done(os.chdir, "/"),
    "open a TCP socket": _socket(socket.AF_INET, socket.SOCK_STREAM),
    "open a UDP socket": _socket(socket.AF_INET6, socket.SOCK_DGRAM),
    "open a Unix socket": _socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "open a netlink socket": _socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "create a socket pair": _socket_pair,
    "create a pipe": _done(os.pipe),
    "use another descriptor": _other_descriptors,
    "duplicate a descriptor": _done(os.dup, 0),
    "start a process": _new_process,
    "start a thread": _done(_thread.start_new_thread, int, ()),
    "run a program": _done(os.execv, "/bin/true", ["true"]),
    "signal the server": lambda: _done(os.kill, os.getppid(), 0)(),
    "signal every process": _done(os.kill, -1, signal.SIGCONT),
    "leave its session": _done(os.setpgid, 0, 0),
    "trace the server": lambda: _call(_libc.ptrace(_PTRACE_SEIZE, os.getppid(), 0, 0)),
    "read the server's memory": _memory_of_parent,
    "open a descriptor of the server": lambda: _call(_libc.syscall(_PIDFD_OPEN, os.getppid(), 0)),
    "read the environment": _environment,
    "map executable memory": _executable_memory,
    "make memory executable": _executable_later,
    "raise a limit": _raised_limit,
    "change its account": _done(os.setuid, 0),
    "become dumpable": _library("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0),
    "create a user namespace": _library("unshare", _CLONE_NEWUSER),
    "mount something": _library("mount", b"none", b"/", b"no-such-type", 0, None),
    "share memory": _library("shmget", 0, 4_096, 0o1600),
    "create an I/O ring": _library("syscall", _IO_URING_SETUP, 1, ctypes.create_string_buffer(120)),
    "create a Landlock ruleset": _library("syscall", _LANDLOCK_CREATE_RULESET, None, 0, 1),
    "set a timer": _done(signal.setitimer, signal.ITIMER_REAL, 0.0),
}
