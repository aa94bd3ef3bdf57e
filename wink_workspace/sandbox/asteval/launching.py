"""How the server is started: by exec, isolated, with only the folders that it needs.

``-I`` keeps the environment, the current directory and the user's own packages out of it, ``-S``
the start-up files of site-packages; the folders of the few packages that it loads are named
one by one.
"""

from __future__ import annotations

import contextlib
import importlib.util
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

from .config import AstevalConfig

__all__ = ["ServerProcess"]

# asteval loads numpy where it finds it, so it must not find one that nobody has asked for
_START: Final = (
    "import sys; n = int(sys.argv[1]); sys.path[:0] = sys.argv[2:2 + n];"
    " sys.argv[-1] == 'numpy' or sys.modules.update(numpy=None, numpy_financial=None);"
    " from wink_workspace.sandbox.asteval.inside.server import main; main(sys.argv[2 + n:])"
)
_PACKAGES: Final = ("wink_workspace", "asteval", "landlock", "pyseccomp")
_NEEDED: Final = frozenset({"wink_workspace", "asteval"})
_HELLO_BYTES_MAX: Final = 65_536
_SAID_CHARS: Final = 2_000
_END_S = 2.0
# numpy's libraries start threads unless told not to; forking would not be sound then
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ServerProcess:
    """A running server. It ends with this object, and with this process, however that ends."""

    def __init__(self, config: AstevalConfig) -> None:
        use_numpy = config.use_numpy
        program, folders = _interpreter(), _folders(("numpy",) if use_numpy else ())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control: Final = ours
        self._said: IO[bytes] = os.fdopen(os.memfd_create("wink-asteval-stderr"), "w+b")
        with theirs, ExitStack() as opened:
            opened.enter_context(ours)
            opened.enter_context(self._said)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [
                    *(program, "-I", "-S", "-c", _START, str(len(folders)), *folders),
                    *(str(theirs.fileno()), str(os.getpid()), str(config.memory_bytes)),
                    *(str(config.timeout_s), str(config.start_timeout_s)),
                    "numpy" if use_numpy else "",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                cwd="/",
                env={**_where_libpython_is(), **(_ONE_THREAD if use_numpy else {})},
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            opened.pop_all()  # the process has them now, and ends with them
        self.end = weakref.finalize(self, _end, self._process, ours, self._said)

    @property
    def pid(self) -> int:
        """Its process id, while it lives."""
        return self._process.pid

    def hello(self, *, timeout_s: float) -> bytes:
        """The first thing it says, when it is ready.

        Raises:
            SandboxUnavailableError: If it says nothing in time, or ends.
        """
        self.control.settimeout(timeout_s)
        try:
            said = self.control.recv(_HELLO_BYTES_MAX)
        except TimeoutError:
            self.end()
            raise SandboxUnavailableError(
                f"the asteval server was not ready after {timeout_s:g} s"
            ) from None
        except OSError:
            said = b""
        self.control.settimeout(None)
        if not said:
            reason = self._last_words()
            self.end()
            raise SandboxUnavailableError(f"the asteval server did not start: {reason}")
        return said

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace").strip()[-_SAID_CHARS:] or "no reason"


def _interpreter() -> str:
    if not sys.executable:
        raise SandboxUnavailableError(
            "this Python does not know its own program", hint="Run it as `python`."
        )
    return sys.executable


def _where_libpython_is() -> dict[str, str]:
    """What lets a Python find its own library that we may have found by a variable.

    Nothing for a Python without one. No variable of ours is handed on for it.
    """
    try:
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # no /proc; most need nothing
        return {}
    for line in mapped.splitlines():
        place = Path(line.partition("/")[2])
        if place.name.startswith("libpython"):
            return {"LD_LIBRARY_PATH": f"/{place.parent}"}
    return {}


def _folders(more: tuple[str, ...]) -> list[str]:
    """Where the packages that the server loads are, as this process would find them."""
    found: list[str] = []
    for name in (*_PACKAGES, *more):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            if name in _NEEDED or name in more:
                raise SandboxUnavailableError(
                    f"the package {name} is not installed", hint=f"Install it: pip install {name}"
                )
            continue
        place = Path(spec.origin)
        folder = place.parent.parent if spec.submodule_search_locations else place.parent
        found.append(str(folder))
    return list(dict.fromkeys(found))


def _end(process: subprocess.Popen[bytes], control: socket.socket, said: IO[bytes]) -> None:
    """Let it go, and see that it went."""
    control.close()
    said.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
