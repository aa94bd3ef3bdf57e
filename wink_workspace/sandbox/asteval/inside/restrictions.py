"""Isolation: how a process restricts itself so that hostile code in it can do no harm.

Theory: we assume that the code has escaped from asteval and runs native code. The child must then
still be able only to compute, within limits, and to write to one socket. The filter of system
calls alone ensures that: it allows no call that opens, connects, executes, signals or changes
limits. Everything that the interpreter may need is therefore loaded before. The other layers
forbid the same with other parts of the kernel.

Rule 1: ``prepare`` does the slow work once, in the server. ``confine_server`` restricts the server.
``confine_child`` restricts a child, in well under a millisecond, before it receives any code.
Rule 2: a layer that cannot be activated is reported with the reason. The host decides whether it
requires that layer.
Rule 3: no restriction can be removed later.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from wink_workspace.sandbox.isolation_report import Layer
from wink_workspace.system_packages import install_hint

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_SECCOMP_MODE_FILTER: Final = 2
_BINARY_TREE: Final = 2
_CAPABILITY_VERSION_3: Final = 0x20080522

_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_EMPTY_NAMESPACES: Final = _CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS

_LANDLOCK_NETWORK: Final = 0b11  # bind and connect of TCP, since ABI 4
_LANDLOCK_SCOPES: Final = 0b11  # abstract sockets and signals, since ABI 6

_NOBODY: Final = 65_534
_PROT_EXEC: Final = 4
_LAST_DESCRIPTOR: Final = 2**31 - 2

ALLOWED_CALLS: Final = (
    *("read", "write", "close"),  # on the one open socket
    *(
        "brk",
        "munmap",
        "mremap",
        "madvise",
    ),  # mmap and mprotect are allowed, too, without PROT_EXEC
    *("futex", "sched_yield", "getrandom", "restart_syscall"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack"),
    *("clock_gettime", "clock_getres", "gettimeofday", "time", "times", "getrusage"),
    *("clock_nanosleep", "nanosleep"),
    *("getpid", "gettid", "getuid", "geteuid", "getgid", "getegid"),
    *("exit", "exit_group"),
)
"""The system calls that a child may make; every other call fails with EPERM."""


class _SocketFilter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_void_p))


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (("sets", ctypes.c_uint32 * 6),)


class _CannotError(Exception):
    """A layer cannot be activated; the message has the reason and a remedy."""


_Step = Callable[[], str]
"""Activates a layer; returns a detail of it."""


@dataclass(slots=True)
class Isolation:
    """The parts of the isolation that can be prepared before a child exists."""

    _filter_calls: _Step
    _restrict_paths: _Step
    _own_bytes: int
    _server_layers: tuple[Layer, ...] = ()

    @classmethod
    def prepare(cls) -> Isolation:
        """Compile the filter of system calls and create the Landlock ruleset."""
        return cls(_prepared(_compiled_filter), _prepared(_made_ruleset), _address_space_bytes())

    def confine_server(self) -> tuple[Layer, ...]:  # pragma: no cover - see below
        """Restrict the server, and so its children; returns the layers that this provides.

        Call it once, after everything that must be read from files has been read.
        """
        isolated = _attempt("namespaces", _leave_namespaces)
        user = _attempt("ordinary-user", _become_ordinary)
        if not isolated.is_active:
            isolated = _attempt("namespaces", _leave_namespaces_as_user)
        os.chdir("/")
        self._server_layers = (isolated, user)
        return self._server_layers

    def confine_child(
        self, *, channel: int, parent: int, memory_bytes: int, timeout_s: float
    ) -> tuple[Layer, ...]:  # pragma: no cover - see below
        """Restrict this process, a child that has just been forked; returns all layers.

        Args:
            channel: The one descriptor that stays open.
            parent: The parent process; the child is killed when it ends.
            memory_bytes: Memory that may be allocated in addition to the present use.
            timeout_s: Time limit of an evaluation; the limit of processor time is slightly above.
        """
        return (
            *self._server_layers,
            _attempt("own-session", _leave_session),
            _attempt("dies-with-server", lambda: _die_with(parent)),
            _attempt("empty-environment", _empty_environment),
            _attempt("no-new-privileges", lambda: _prctl(_PR_SET_NO_NEW_PRIVS, 1)),
            _attempt("landlock", self._restrict_paths),
            _attempt("closed-descriptors", lambda: _close_all_but(channel)),
            _attempt("limits", lambda: _limit(self._own_bytes + memory_bytes, timeout_s)),
            _attempt("no-capabilities", _drop_capabilities),
            _attempt("not-dumpable", lambda: _prctl(_PR_SET_DUMPABLE, 0)),
            _attempt("seccomp", self._filter_calls),
        )


def _attempt(name: str, step: _Step) -> Layer:
    try:
        return Layer(name, is_active=True, detail=step())
    except _CannotError as error:
        return Layer(name, is_active=False, detail=str(error))
    except (OSError, ValueError) as error:
        return Layer(name, is_active=False, detail=f"{type(error).__name__}: {error}")


def _prepared(make: Callable[[], _Step]) -> _Step:
    """What *make* makes, or a step that raises the reason why it cannot be made."""
    try:
        return make()
    except (_CannotError, OSError) as error:
        reason = str(error) if isinstance(error, _CannotError) else f"the kernel refuses: {error}"

    def cannot() -> NoReturn:
        raise _CannotError(reason)

    return cannot


def _check(result: int, what: str) -> str:  # pragma: no cover - see below
    """Raise the error of a C library call that failed; otherwise return an empty detail."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return ""


def _prctl(option: int, value: int) -> str:  # pragma: no cover - see below
    return _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


# Once, in the server. A process that has restricted itself cannot write coverage data, hence the
# `no cover` marks. Tests check these functions by what the restricted processes can do.


def _leave_namespaces() -> str:  # pragma: no cover - see above
    """Enter new namespaces without a user namespace, which requires a privilege."""
    _check(_libc.unshare(_EMPTY_NAMESPACES), "unshare")
    return "network, IPC, UTS"


def _leave_namespaces_as_user() -> str:  # pragma: no cover - see above
    _check(_libc.unshare(_CLONE_NEWUSER | _EMPTY_NAMESPACES), "unshare")
    _drop_capabilities()
    return "user, network, IPC, UTS"


def _become_ordinary() -> str:  # pragma: no cover - see above
    """Give up the account root, which owns files even without its privileges."""
    if os.getuid() != 0 and os.geteuid() != 0:
        return f"uid {os.getuid()}, the host's own"
    os.setgroups([])
    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    return f"uid {_NOBODY}"


def _address_space_bytes() -> int:
    """The address space that the interpreter itself uses."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no pathlib in here
            return int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 256 * 1_048_576  # no /proc; this is more than it uses


def _compiled_filter() -> _Step:
    try:
        import pyseccomp  # pyright: ignore[reportMissingTypeStubs] - it has none
    except ImportError as error:
        raise _CannotError(f"{error}; run `pip install pyseccomp`") from error
    except RuntimeError as error:  # raised at import if its shared library is missing
        raise _CannotError(f"{error}. {install_hint('libseccomp')}") from error
    library = cast("Any", pyseccomp)  # it is not typed
    rules = library.SyscallFilter(library.ERRNO(errno.EPERM))
    rules.set_attr(library.Attr.ACT_BADARCH, library.KILL_PROCESS)
    rules.set_attr(
        library.Attr.CTL_OPTIMIZE, _BINARY_TREE
    )  # the kernel runs the filter for every call
    for name in ALLOWED_CALLS:
        if library.resolve_syscall(library.Arch.NATIVE, name) >= 0:  # some architectures lack it
            rules.add_rule(library.ALLOW, name)
    not_executable = library.Arg(2, library.MASKED_EQ, _PROT_EXEC, 0)
    for name in ("mmap", "mprotect"):
        rules.add_rule(library.ALLOW, name, not_executable)
    with os.fdopen(os.memfd_create("wink-asteval-filter"), "w+b") as file:
        rules.export_bpf(file)
        file.seek(0)
        program = file.read()
    code = ctypes.create_string_buffer(program, len(program))
    loaded = _SocketFilter(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))

    def activate() -> str:  # pragma: no cover - see above
        _check(
            _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(loaded), 0, 0),
            "seccomp",
        )
        return f"{len(ALLOWED_CALLS) + 2} calls allowed, all others fail with EPERM"

    return activate


def _made_ruleset() -> _Step:
    """Restricts a process by a ruleset that handles every right and grants none."""
    try:
        import landlock  # pyright: ignore[reportMissingTypeStubs] - it has none
        from landlock import plumbing  # pyright: ignore[reportMissingTypeStubs] - as above
    except ImportError as error:
        raise _CannotError(f"{error}; run `pip install landlock`") from error
    library = cast("Any", plumbing)  # it has no types

    class Attributes(library.RulesetAttr):
        _fields_ = (("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))

    ctypes.set_errno(0)  # the library would report an older error as its own
    try:
        version = library.landlock_abi_version()
        handled = Attributes(
            library.FSAccess.all(),
            _LANDLOCK_NETWORK if version >= 4 else 0,
            _LANDLOCK_SCOPES if version >= 6 else 0,
        )
        # An older kernel knows only the first fields
        size = 24 if version >= 6 else 16 if version >= 4 else 8
        ruleset: int = library.get_create_ruleset()(ctypes.byref(handled), size, 0)
        restrict_self = library.get_restrict_self()
    except landlock.LandlockError as error:
        raise _CannotError(
            f"the kernel has no Landlock ({' '.join(str(error).split())})"
        ) from error
    scopes = ", TCP" * (version >= 4) + ", abstract sockets, signals" * (version >= 6)

    def activate() -> str:  # pragma: no cover - see above
        ctypes.set_errno(0)
        restrict_self(ruleset, 0)
        return f"ABI {version}: files{scopes}"

    return activate


# In each child


def _leave_session() -> str:  # pragma: no cover - see above
    os.setsid()
    return ""


def _die_with(parent: int) -> str:  # pragma: no cover - see above
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the prctl
        os._exit(1)
    return ""


def _empty_environment() -> str:  # pragma: no cover - see above
    os.environ.clear()  # noqa: TID251 - this process's own environment
    return ""


def _close_all_but(channel: int) -> str:  # pragma: no cover - see above
    os.closerange(0, channel)
    os.closerange(channel + 1, _LAST_DESCRIPTOR)
    return ""


def _limit(address_space_bytes: int, timeout_s: float) -> str:  # pragma: no cover - see above
    cpu_s = math.ceil(timeout_s) + 1
    for what, value in (
        (resource.RLIMIT_AS, address_space_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (most, most))
    return f"{address_space_bytes:,} bytes of addresses, {cpu_s} s of processor time"


def _drop_capabilities() -> str:  # pragma: no cover - see above
    number = 0
    while (
        _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) == 0
    ):  # fails with EPERM if it is not permitted
        number += 1
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    none = _Capabilities()
    return _check(_libc.capset(ctypes.byref(header), ctypes.byref(none)), "capset")
