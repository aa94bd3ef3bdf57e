"""Start of the server process: with exec, isolated, and with only the import paths that it needs.

``-I`` excludes the environment, the current directory and the user's own packages, ``-S`` the
start-up files of site-packages. The import paths of the few packages that the server loads are
passed as an argument.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess  # noqa: TID251 - a sandbox starts processes
import sys
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from wink_workspace.errors import SandboxUnavailableError

from .evaluation_limits import AstevalConfig

__all__ = ["ServerProcess"]

# asteval loads numpy if it is installed, so it is hidden unless the configuration enables it
_START: Final = (
    "import json, sys; options = json.loads(sys.argv.pop()); sys.path[:0] = options.pop('paths');"
    " options['use_numpy'] or sys.modules.update(numpy=None, numpy_financial=None);"
    " from wink_workspace.sandbox.asteval.inside.fork_server import main; main(**options)"
)
_PACKAGES: Final = ("wink_workspace", "asteval", "landlock", "pyseccomp")
_OPTIONAL: Final = frozenset({"landlock", "pyseccomp"})  # without them a layer is missing
_HELLO_BYTES_MAX: Final = 65_536
_STDERR_CHARS: Final = 2_000
_END_S = 2.0
# numpy's libraries start threads by default, and forking is not safe with threads
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ServerProcess:
    """A running server. It ends with this object, or when this process ends or is killed."""

    def __init__(self, config: AstevalConfig) -> None:
        use_numpy = config.use_numpy
        if use_numpy is None:
            use_numpy = importlib.util.find_spec("numpy") is not None
        packages = [name for name in _PACKAGES if name != "asteval" or config.backend == name]
        program = _interpreter()
        options = {
            "paths": _import_paths([*packages, *(["numpy"] if use_numpy else [])]),
            "host_pid": os.getpid(),
            "interpreter": config.backend,
            "use_numpy": use_numpy,
            "memory_bytes": config.memory_bytes,
            "timeout_s": config.timeout_s,
            "start_timeout_s": config.start_timeout_s,
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control: Final = ours
        self._stderr: IO[bytes] = os.fdopen(os.memfd_create("wink-asteval-stderr"), "w+b")
        with theirs, ExitStack() as opened:
            opened.enter_context(ours)
            opened.enter_context(self._stderr)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [
                    *(program, "-I", "-S", "-c", _START),
                    json.dumps({**options, "control": theirs.fileno()}),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                cwd="/",
                env={**_library_path(), **(_ONE_THREAD if use_numpy else {})},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            opened.pop_all()  # from here on, self.end closes them
        self.end = weakref.finalize(self, _end, self._process, ours, self._stderr)

    @property
    def pid(self) -> int:
        """Its process id, while it lives."""
        return self._process.pid

    def hello(self, *, timeout_s: float) -> None:
        """Wait for its first message, which means that it is ready.

        Raises:
            SandboxUnavailableError: If it sends none in time, or ends.
        """
        self.control.settimeout(timeout_s)
        try:
            message = self.control.recv(_HELLO_BYTES_MAX)
        except TimeoutError:
            self.end()
            raise SandboxUnavailableError(
                f"the asteval server was not ready after {timeout_s:g} s"
            ) from None
        except OSError:
            message = b""
        self.control.settimeout(None)
        if not message:
            reason = self._last_output()
            self.end()
            raise SandboxUnavailableError(f"the asteval server did not start: {reason}")

    def _last_output(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._stderr.seek(0)
        return (
            self._stderr.read().decode("utf-8", "replace").strip()[-_STDERR_CHARS:]
            or "it printed no error"
        )


def _interpreter() -> str:
    if not sys.executable:
        raise SandboxUnavailableError(
            "this Python does not know the path of its own program (sys.executable is empty)",
            hint="Run it as `python`.",
        )
    return sys.executable


def _library_path() -> dict[str, str]:
    """The ``LD_LIBRARY_PATH`` with which the server finds libpython, if this Python uses one.

    It is made from the library that this process has loaded, not copied from its environment.
    """
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # no /proc; most Pythons do not need it
        return {}
    for line in mapped.splitlines():
        path = Path(line.partition("/")[2])
        if path.name.startswith("libpython"):
            return {"LD_LIBRARY_PATH": f"/{path.parent}"}
    return {}


def _import_paths(packages: list[str]) -> list[str]:
    """The directories from which this process imports the packages that the server needs."""
    found: list[str] = []
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            if name not in _OPTIONAL:
                raise SandboxUnavailableError(
                    f"the package {name} is not installed", hint=f"Install it: pip install {name}"
                )
            continue
        origin = Path(spec.origin)
        directory = origin.parent.parent if spec.submodule_search_locations else origin.parent
        found.append(str(directory))
    return list(dict.fromkeys(found))


def _end(process: subprocess.Popen[bytes], control: socket.socket, stderr: IO[bytes]) -> None:
    """Close the server's control socket, at which it ends, and wait; kill it if it does not."""
    control.close()
    stderr.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
