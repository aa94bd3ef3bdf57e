"""Whether the walls are up, tried from inside before anything else may run.

The attempts are those of ``probes``. The host takes part: it plants a secret outside of the
container and listens on its own loopback and on an abstract socket, and a connection there is
a hole whatever the inside says. An attempt that is not reported counts as one that succeeded.
"""

from __future__ import annotations

import json
import secrets
import socket
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, cast

from wink_workspace.sandbox.walls import Layer, Probe, WallReport

from . import probes
from .config import PodmanConfig
from .containers import Host
from .system_calls import installed_list

__all__ = ["layers", "prove"]

_MOST_LINES: Final = 100


def prove(
    run: Callable[[str, Mapping[str, str]], str], config: PodmanConfig, host: Host
) -> WallReport:
    """Try all that is forbidden.

    Args:
        run: Runs Python code inside, with variables, and gives what it printed.
        config: What is forbidden.
        host: What of it the machine can forbid.
    """
    with_network = config.network == "none"
    expected = [*probes.FILES_AND_PROCESSES, *(probes.NETWORK if with_network else ())]
    with _bait(with_network=with_network) as bait:
        printed = run(_source(), bait.variables)
        reported = dict(_reported(printed))
        names = [attempt.__name__.replace("_", " ") for attempt in expected]
        tried = [reported.get(name, Probe(name, False, "no answer")) for name in names]
        tried.append(bait.taken())
    return WallReport(layers(config, host), tuple(tried))


def layers(config: PodmanConfig, host: Host) -> tuple[Layer, ...]:
    """What is to confine commands, as far as the machine lets us say."""

    def limit(name: str, controller: str, instead: str) -> Layer:
        is_up = controller in host.controllers
        return Layer(
            name, is_up, "" if is_up else f"the engine has no {controller} cgroup; {instead}"
        )

    return (
        Layer(
            "user namespace",
            True,
            "of ids that nobody else has" if host.is_root else "the caller's",
        ),
        Layer("capabilities", True, "none for commands"),
        Layer("no new privileges", True),
        Layer(
            "filter of system calls",
            True,
            "the engine's, narrowed" if installed_list() else "the engine's",
        ),
        Layer("read-only root", True),
        Layer(
            "no network",
            config.network == "none",
            "" if config.network == "none" else f"the network is {config.network}, as configured",
        ),
        limit("memory limit", "memory", "the data of each process is bounded instead"),
        limit("process limit", "pids", "the user's processes are bounded instead"),
        limit("processor limit", "cpu", "nothing bounds it but time"),
        Layer("disk quota", False, "the workspace is watched, and a command that fills it ended"),
    )


def _source() -> str:
    return Path(probes.__file__).read_text(encoding="utf-8")


def _reported(printed: str) -> Iterator[tuple[str, Probe]]:
    for line in printed.splitlines()[:_MOST_LINES]:
        try:
            found: Any = json.loads(line)
        except ValueError:
            continue
        match found:
            case [str(name), bool(stopped), str(detail)]:
                yield name, Probe(name, stopped, detail)
            case _:
                continue


class _Bait:
    """What the attempts are to find on the host, and must not."""

    def __init__(self, folder: Path, listeners: Mapping[str, socket.socket]) -> None:
        self._listeners = listeners
        self._canary = folder / "secret"
        self._secret = secrets.token_hex(16)
        self._canary.write_text(self._secret, encoding="ascii")
        self._canary.chmod(0o644)  # so that it is the wall that keeps it, not the mode
        port, abstract = "0", ""
        if listeners:
            port = str(cast("tuple[str, int]", listeners["loopback"].getsockname())[1])
            abstract = cast("bytes", listeners["abstract"].getsockname())[1:].decode("ascii")
        self.variables = {
            "WINK_CANARY": str(self._canary),
            "WINK_PORT": port,
            "WINK_ABSTRACT": abstract,
        }

    def taken(self) -> Probe:
        """Whether anything of it was touched."""
        came = [name for name, listener in self._listeners.items() if _was_reached(listener)]
        if self._canary.read_text(encoding="ascii") != self._secret:
            came.append("secret")
        name = "reach what the host planted"
        return Probe(name, not came, f"reached: {', '.join(came)}" if came else "nothing reached")


@contextmanager
def _bait(*, with_network: bool) -> Generator[_Bait]:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="wink-bait-")))
        folder.chmod(0o755)
        listeners: dict[str, socket.socket] = {}
        if with_network:
            for name, family, address in (
                ("loopback", socket.AF_INET, ("127.0.0.1", 0)),
                ("abstract", socket.AF_UNIX, f"\0wink-{secrets.token_hex(8)}"),
            ):
                listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listener.bind(address)
                listener.listen()
                listener.setblocking(False)
                listeners[name] = listener
        yield _Bait(folder, listeners)


def _was_reached(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True
