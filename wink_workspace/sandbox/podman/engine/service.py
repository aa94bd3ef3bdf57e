"""The connection to a Podman engine: to a running one, or to one that we start and stop.

If ``CONTAINER_HOST`` names a socket, that one is used; otherwise one of the usual sockets. If none
answers, ``podman system service`` is started on a private socket. Our own service stops when it is
closed and when the interpreter ends. It also ends by itself after a while without connections, so
it does not survive a killed process for long.

The engine must run on this machine, because containers mount directories of it.

Requests use ``http.client``: a library with sessions and retries takes 45 ms to load, which is more
than every request of a command together.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import stat
import subprocess  # noqa: TID251 - the engine is a process
import tempfile
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode, urlsplit

from wink_workspace._module_lock import ModuleLock
from wink_workspace.clock import SYSTEM_CLOCK, Cancellation, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError, SandboxUnavailableError
from wink_workspace.system_packages import install_hint

from .engine_conf import EngineSettings

_API_VERSION: Final = "4.0.0"
_IDLE_S: Final = 15
"""How long our own service runs without connections."""
_START_TIMEOUT_S: Final = 20.0
_ENDING_S: Final = 0.5
_REQUEST_TIMEOUT_S: Final = 60.0
_MOST_HEAD_BYTES: Final = 65_536
_END_OF_HEAD: Final = b"\r\n\r\n"
_FOLDER_PREFIX: Final = "wink-workspace-podman-"


class EngineError(SandboxError):
    """The engine refused a request.

    Attributes:
        status: The HTTP status; 404 if the object does not exist.
    """

    code = "sandbox-engine"

    def __init__(self, message: str, *, status: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class PodmanService:
    """A Podman engine, used through its REST socket.

    Args:
        environment: The variables with ``CONTAINER_HOST`` and the user's directories.
        clock: Measures time limits.
        cancellation: Ends the wait for an engine that is started.
        waits: Whether to wait until it answers; otherwise the first request waits.

    Safe to use from several threads.

    Raises:
        SandboxUnavailableError: If no engine runs and none can be started.
        CallCancelledError: If *cancellation* is cancelled meanwhile.
    """

    def __init__(
        self,
        environment: Environment,
        *,
        clock: Clock = SYSTEM_CLOCK,
        cancellation: Cancellation | None = None,
        waits: bool = True,
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._lock = threading.RLock()
        self._own: _OwnService | None = None
        self.socket_path = self._find()
        of_own = self._own is not None and os.geteuid() == 0
        self._is_root = of_own or (self._own is None and self.socket_path.stat().st_uid == 0)
        if waits:
            self.wait_until_ready(cancellation or Cancellation())

    @property
    def is_own(self) -> bool:
        """Whether we started it."""
        return self._own is not None

    @property
    def is_root(self) -> bool:
        """Whether the engine runs as root, and so can map containers to ids of their own."""
        return self._is_root

    def wait_until_ready(self, cancellation: Cancellation) -> None:
        """Wait until an engine that we started answers.

        Raises:
            SandboxUnavailableError: If it does not start.
            CallCancelledError: If *cancellation* is cancelled meanwhile; the engine has ended.
        """
        with self._lock:
            if self._own is not None:
                self._own.wait_until_ready(self._clock, cancellation)

    def close(self) -> None:
        """Stop the engine if we started it. May be called again."""
        with self._lock:
            if self._own is not None:
                self._own.stop()

    # Requests

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> Any:
        """Send a request; returns the parsed JSON of the answer, ``None`` if it has none.

        *path* is that of the engine's API without its version. *params* are those of the query, by
        name, and *body* is sent as JSON.

        Raises:
            EngineError: If the engine refuses it.
            SandboxUnavailableError: If it does not answer.
        """
        with self._lock:
            if self._own is not None and not self._own.is_running:
                self._restart()
            self.wait_until_ready(Cancellation())
            try:
                return self._send(method, path, params, body, timeout_s)
            except SandboxUnavailableError:
                if self._own is None or not self._own.has_ended():
                    raise
            self._restart()  # it was idle and ended during this request
            return self._send(method, path, params, body, timeout_s)

    def hijack(self, path: str, *, timeout_s: float) -> socket.socket:
        """A connection that, after a request of *path*, carries a container's streams.

        Another request must have been answered before.

        Raises:
            EngineError: If the engine refuses.
            SandboxUnavailableError: If it does not answer.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(str(self.socket_path))
            connection.sendall(
                f"POST /v{_API_VERSION}/libpod{path} HTTP/1.1\r\nHost: engine\r\n"
                "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
            )
            _read_upgrade(connection)
        except OSError as error:
            connection.close()
            raise self._unavailable(str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        timeout_s: float,
    ) -> Any:
        query = f"?{urlencode(params)}" if params else ""
        connection = _Connection(self.socket_path, timeout_s)
        try:
            connection.request(
                method,
                f"/v{_API_VERSION}/libpod{path}{query}",
                body=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            answer = response.read()
        except (http.client.HTTPException, OSError) as error:
            raise self._unavailable(str(error) or type(error).__name__) from error
        finally:
            connection.close()
        if response.status >= 400:
            reason = _reason(answer.decode("utf-8", "replace"))
            raise EngineError(f"Podman refused {method} {path}: {reason}", status=response.status)
        with suppress(ValueError):  # a few answers are plain text without information
            return json.loads(answer)
        return None

    def _unavailable(self, why: str) -> SandboxUnavailableError:
        return SandboxUnavailableError(f"Podman does not answer at {self.socket_path}: {why}")

    # Finding and starting

    def _find(self) -> Path:
        given = self._environment.variables.get("CONTAINER_HOST", "")
        if given:
            path = _socket_of(given)
            if not _answers(path):
                raise SandboxUnavailableError(
                    f"no engine answers at CONTAINER_HOST={given}",
                    hint="Start that engine, or unset CONTAINER_HOST to have one started.",
                )
            return path
        for path in self._usual_sockets():
            if _answers(path):
                return path
        self._own = _OwnService(self._environment)
        return self._own.socket_path

    def _usual_sockets(self) -> tuple[Path, ...]:
        if os.geteuid() == 0:
            return (Path("/run/podman/podman.sock"),)
        runtime = self._environment.variables.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
        return (Path(runtime) / "podman" / "podman.sock",)

    def _restart(self) -> None:
        self.close()
        self._own = _OwnService(self._environment)
        self.socket_path = self._own.socket_path
        self._own.wait_until_ready(self._clock, Cancellation())


class _Connection(http.client.HTTPConnection):
    """A connection to the socket *path*."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("engine", timeout=timeout_s)
        self._path = str(path)
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(self._path)


class _OwnService:
    """A ``podman system service`` on a private socket, which may not answer yet."""

    def __init__(self, environment: Environment) -> None:
        program = shutil.which("podman", path=environment.variables.get("PATH"))
        if program is None:
            raise SandboxUnavailableError(
                "there is no podman on the PATH", hint=install_hint("podman")
            )
        _sweep_folders()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
        self.socket_path = self._folder / "podman.sock"
        self._log = self._folder / "log"
        variables = dict(environment.variables)
        variables.pop("CONTAINER_HOST", None)  # even an empty value makes podman a client
        if "CONTAINERS_CONF" not in variables:
            settings = EngineSettings.for_this_machine(path=variables.get("PATH", os.defpath))
            variables["CONTAINERS_CONF"] = str(settings.write(self._folder))
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603 - no shell, and no argument comes from outside
                    [
                        program,
                        "system",
                        "service",
                        "--time",
                        str(_IDLE_S),
                        f"unix://{self.socket_path}",
                    ],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SandboxUnavailableError(f"podman cannot be started: {error}") from error
        self.stop = weakref.finalize(self, _stop, self._process, self._folder, os.getpid())
        self._is_ready = False

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def has_ended(self) -> bool:
        """Whether it has ended; waits a moment, as it closes its socket shortly before its end."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        return not self.is_running

    def wait_until_ready(self, clock: Clock, cancellation: Cancellation) -> None:
        """See ``PodmanService.wait_until_ready``; after an error the process has ended."""
        if self._is_ready:
            return
        try:
            until_s = clock.monotonic_s() + _START_TIMEOUT_S
            while not _answers(self.socket_path):
                cancellation.check()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.005)
                if not self.is_running or clock.monotonic_s() > until_s:
                    output = self._log.read_text(errors="replace")[-2_000:].strip()
                    raise SandboxUnavailableError(f"podman's service did not start: {output}")
        except BaseException:
            self.stop()
            raise
        self._is_ready = True


def _stop(process: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child leaves it to its parent
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _sweep_folders() -> None:
    """Remove the directories of killed owners; their services have ended by themselves."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        pid = folder.name.removeprefix(_FOLDER_PREFIX).split("-")[0]
        with suppress(OSError):
            if folder.lstat().st_uid != os.geteuid() or Path(f"/proc/{pid}").exists():
                continue
            if not _answers(
                folder / "podman.sock"
            ):  # otherwise its owner runs in another pid namespace
                shutil.rmtree(folder, ignore_errors=True)


def _socket_of(url: str) -> Path:
    parts = urlsplit(url)
    if parts.scheme not in ("unix", "http+unix") or not parts.path:
        raise SandboxUnavailableError(
            f"CONTAINER_HOST={url} is not a socket of this machine",
            hint="Sandboxes need local directories: use unix:///run/podman/podman.sock.",
        )
    return Path(parts.path)


def _answers(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.settimeout(5)
            trial.connect(str(path))
    except OSError:
        return False
    return True


def _read_upgrade(connection: socket.socket) -> None:
    """Read the head of the engine's answer, but no byte after it.

    What has arrived is looked at before it is read: to read single bytes takes a tenth of a second
    while another thread loads modules.
    """
    head = b""
    while not head.endswith(_END_OF_HEAD):
        found = connection.recv(_MOST_HEAD_BYTES, socket.MSG_PEEK)
        if not found or len(head) > _MOST_HEAD_BYTES:
            raise OSError("the engine closed the connection")
        end = (head + found).find(_END_OF_HEAD)
        n_bytes = len(found) if end < 0 else end + len(_END_OF_HEAD) - len(head)
        head += connection.recv(n_bytes)
    status = int(head.split(b" ", 2)[1])
    if status not in (101, 200):
        text = connection.recv(_MOST_HEAD_BYTES).decode("utf-8", "replace")
        raise EngineError(f"Podman refused to attach: {_reason(text)}", status=status)


def _reason(text: str) -> str:
    """The message in the body of an error."""
    with suppress(ValueError, TypeError, AttributeError):
        body = cast("Mapping[str, object]", json.loads(text))
        return str(body.get("message") or body.get("cause") or text)
    return text[:2_000] or "no reason given"


_shared: weakref.WeakValueDictionary[tuple[int, tuple[str, ...]], PodmanService] = (
    weakref.WeakValueDictionary()
)
_shared_lock = ModuleLock()


def shared_service(
    environment: Environment,
    *,
    clock: Clock = SYSTEM_CLOCK,
    cancellation: Cancellation | None = None,
    waits: bool = True,
) -> PodmanService:
    """The service that this process shares for this environment; it stops with its last user.

    With *waits*, one that is started answers when this returns.

    Raises:
        SandboxUnavailableError: If no engine runs and none can be started.
        CallCancelledError: If *cancellation* is cancelled while one is started.
    """
    names = ("CONTAINER_HOST", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "CONTAINERS_CONF", "HOME")
    key = (os.getpid(), tuple(environment.variables.get(name, "") for name in names))
    with _shared_lock.now:
        service = _shared.get(key)
        if service is None:
            service = _shared[key] = PodmanService(environment, clock=clock, waits=False)
    if waits:
        service.wait_until_ready(cancellation or Cancellation())
    return service
