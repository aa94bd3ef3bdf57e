"""Start of the server process: with exec, isolated, and with only the import paths that it needs.

``-I`` excludes the environment, the current directory and the user's own packages, ``-S`` the
start-up files of site-packages. The import paths of the few packages that the server loads are
passed as an argument.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Final

from wink_workspace.companion import Companion
from wink_workspace.errors import SandboxUnavailableError

from .evaluation_limits import AstevalConfig

# asteval loads numpy if it is installed, so it is hidden unless the configuration enables it
_START: Final = (
    "import json, sys; options = json.loads(sys.argv.pop()); sys.path[:0] = options.pop('paths');"
    " options['use_numpy'] or sys.modules.update(numpy=None, numpy_financial=None);"
    " from wink_workspace.sandbox.asteval.inside.fork_server import main; main(**options)"
)
_PACKAGES: Final = ("wink_workspace", "asteval", "landlock", "pyseccomp")
_OPTIONAL: Final = frozenset({"landlock", "pyseccomp"})  # without them a layer is missing
_HELLO_BYTES_MAX: Final = 65_536
# numpy's libraries start threads by default, and forking is not safe with threads
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ServerProcess:
    """A running server. It ends with this object, or when this process ends or is killed."""

    def __init__(self, config: AstevalConfig) -> None:
        use_numpy = config.use_numpy
        if use_numpy is None:
            use_numpy = importlib.util.find_spec("numpy") is not None
        packages = [name for name in _PACKAGES if name != "asteval" or config.backend == name]
        if not sys.executable:
            raise SandboxUnavailableError(
                "this Python does not know the path of its own program (sys.executable is empty)",
                hint="Run it as `python`.",
            )
        options = {
            "paths": _import_paths([*packages, *(["numpy"] if use_numpy else [])]),
            "host_pid": os.getpid(),
            "interpreter": config.backend,
            "use_numpy": use_numpy,
            "memory_bytes": config.memory_bytes,
            "timeout_s": config.timeout_s,
            "start_timeout_s": config.start_timeout_s,
        }
        self._process = Companion(
            lambda channel: ["-c", _START, json.dumps({**options, "control": channel})],
            keeps_output=True,
            variables={**_library_path(), **(_ONE_THREAD if use_numpy else {})},
        )
        self.control: Final = self._process.channel
        self.end: Final = self._process.end

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
            reason = self._process.output() or "it printed no error"
            self.end()
            raise SandboxUnavailableError(f"the asteval server did not start: {reason}")


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
