"""Checks the isolation of a sandbox with probes, before anything else may run in it.

The modules ``probes`` and ``workspace_probes`` run inside: the first before the container has a
workspace, the second after it got one. The host takes part: it creates a secret file outside of the
container, and listens on its own loopback and on an abstract socket. A connection there is a hole,
whatever the container reports. A probe without a report counts as one that succeeded.
"""

from __future__ import annotations

import json
import marshal
import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from wink_workspace.errors import IsolationError
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.inside import network_probes, probes, workspace_probes
from wink_workspace.sandbox.isolation_report import IsolationReport, Layer, Probe
from wink_workspace.sandbox.network import NetworkRules
from wink_workspace.sandbox.transport.container_frames import COMPILED
from wink_workspace.sandbox.transport.stream import Ending

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink


_MOST_LINES: Final = 100

SEE_PATHS: Final = probes.see_paths_of_the_host.__name__.replace("_", " ")
"""The probe that finds paths of the host, which some sandboxes cannot hide."""

ProbeRun = Callable[[str, Mapping[str, str]], str]
"""Runs a program in the container with variables, and returns its output."""


def prove(
    run: ProbeRun,
    layers: tuple[Layer, ...],
    *,
    bound: Iterable[str],
    skipped: Container[str] = (),
    host: HostProbes | None = None,
) -> IsolationReport:
    """Run all probes of a sandbox that apply.

    Args:
        run: Runs a program in the sandbox.
        layers: Its layers.
        bound: The paths where files of the host are mounted.
        skipped: The names of probes whose results do not count.
        host: For a sandbox over the programs of this machine, whose interpreter is ours.
    """
    expected = [name for name in map(_name, probes.PROBES) if name not in skipped]
    if host is not None:
        expected += host.names
    with _canaries(with_listeners=True) as canaries:
        variables = {
            **canaries.variables,
            "WINK_BOUND": " ".join(path.replace(" ", r"\040") for path in bound),
        }
        if host is None:
            printed = run(_source(probes), variables)
        else:
            printed = run(host.program, {**variables, **host.variables})
        results = [*_results(printed, expected), canaries.check()]
    return IsolationReport(layers, tuple(results))


class HostProbes:
    """The probes of a sandbox that shows programs and paths of this machine.

    Args:
        variables: What the probes need to know of it.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        from wink_workspace.sandbox.inside import host_probes  # on use: containers have others

        self.variables = variables
        self.names = list(map(_name, host_probes.PROBES))
        self.program = compiled_program(probes, host_probes)


def compiled_program(*modules: ModuleType) -> str:
    """A program that runs *modules* one after the other, in an interpreter of our version."""
    codes = (marshal.dumps(compiled(Path(str(each.__file__)))).hex() for each in modules)
    return COMPILED + "\n".join(codes)


def compiled(path: Path) -> CodeType:
    """The code of a module, from the file that Python keeps beside its source."""
    code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    assert code is not None  # noqa: S101 - it is a source
    return code


def prove_workspace(
    run: ProbeRun,
    *,
    overlay: int | None,
    writes: Sequence[str] | None = None,
    n_mounts: int,
    path: str = WORKSPACE_PATH,
) -> tuple[Probe, ...]:
    """Run all probes of the workspace's mount; for sandboxes with Python.

    Args:
        run: Runs a program in the container.
        overlay: Which of the mounts is that of a branch on an overlay; ``None`` for a copy.
        writes: If the workspace is read-only, the directories of it that are not.
        n_mounts: How many mounts there are in the workspace.
        path: Where it is.
    """
    own_path = path != WORKSPACE_PATH  # there our interpreter runs the probes
    with _canaries(with_listeners=False) as canaries:
        variables = {
            **canaries.variables,
            "WINK_OVERLAY": "" if overlay is None else str(overlay),
            "WINK_N_MOUNTS": str(n_mounts),
            "WINK_WORKSPACE": path,
            **({} if writes is None else {"WINK_WRITES": "\n".join(("", *writes))}),
        }
        program = compiled_program(workspace_probes) if own_path else _source(workspace_probes)
        printed = run(program, variables)
    return tuple(_results(printed, list(map(_name, workspace_probes.PROBES))))


def prove_network(run: ProbeRun, link: NetworkLink, rules: NetworkRules) -> tuple[Probe, ...]:
    """Run all probes of the network list.

    Args:
        run: Runs a program in the container.
        link: The proxy. It connects nowhere meanwhile, and remembers what it would have connected.
        rules: The list that was configured.
    """
    from wink_workspace.sandbox.network_proxy.routes import (
        PROXY_PORT,  # on use: most sandboxes have no network
    )

    listed = min(map(str, rules.hosts), default="")
    with link.probing() as canary:
        variables = {
            "WINK_PROXY_PORT": str(PROXY_PORT),
            "WINK_LISTED": listed,
            "WINK_LIST": json.dumps(rules.lines()),
        }
        printed = run(_source(network_probes), variables)
    results = _results(printed, list(map(_name, network_probes.PROBES)))
    reached = ", ".join(sorted(set(canary.reached)))
    detail = f"reached: {reached}" if reached else "nothing reached"
    return (*results, Probe("reach a host through the proxy", not reached, detail))


def _results(printed: str, expected: list[str]) -> list[Probe]:
    reported = dict(_reported(printed))
    return [reported.get(name, Probe(name, False, "no answer")) for name in expected]


def refuse_holes(report: IsolationReport) -> None:
    """Raise ``IsolationError`` if a probe of *report* succeeded."""
    if report.holes:
        found = "; ".join(f"{hole.name}: {hole.detail}" for hole in report.holes)
        raise IsolationError(f"the sandbox is not isolated, nothing was run in it: {found}")


def not_probed(ending: Ending, errors: bytes, timeout_s: float) -> IsolationError:
    """The error for a probe program that printed nothing."""
    if ending.refused is not None:
        how = f"was not started ({os.strerror(ending.exit_code or 0)})"
    elif ending.timed_out:
        how = f"printed nothing for {timeout_s:g} seconds"
    elif ending.signal is not None:
        how = f"was killed by signal {ending.signal}"
    else:
        how = f"ended with exit code {ending.exit_code}"
    output = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return IsolationError(
        f"the isolation could not be probed, nothing was run: the probe program {how}"
        + (f", with the error {output[:300]!r}" if output else ""),
        hint="It needs some memory, processes and open files: raise PodmanConfig.memory_bytes,"
        " n_processes or n_open_files, or the limits of the user (`ulimit -n`, `ulimit -u`).",
    )


def _name(probe: Callable[[], str | None]) -> str:
    return probe.__name__.replace("_", " ")


def _source(module: ModuleType) -> str:
    return Path(str(module.__file__)).read_text(encoding="utf-8")


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


class _Canaries:
    """A file and listeners on the host that the probes must not reach."""

    def __init__(self, folder: Path, listeners: Mapping[str, socket.socket]) -> None:
        self._listeners = listeners
        self._canary = folder / "secret"
        self._secret = secrets.token_hex(16)
        self._canary.write_text(self._secret, encoding="ascii")
        self._canary.chmod(0o644)  # readable for all, so that only the isolation can hide it
        port, abstract = "0", ""
        if listeners:
            port = str(cast("tuple[str, int]", listeners["loopback"].getsockname())[1])
            abstract = cast("bytes", listeners["abstract"].getsockname())[1:].decode("ascii")
        self.variables = {
            "WINK_CANARY": str(self._canary),
            "WINK_PORT": port,
            "WINK_ABSTRACT": abstract,
        }

    def check(self) -> Probe:
        """Whether the container has reached a listener or changed the file."""
        reached = [name for name, listener in self._listeners.items() if _was_reached(listener)]
        if self._canary.read_text(encoding="ascii") != self._secret:
            reached.append("secret")
        name = "reach the canaries of the host"
        return Probe(
            name, not reached, f"reached: {', '.join(reached)}" if reached else "nothing reached"
        )


@contextmanager
def _canaries(*, with_listeners: bool) -> Generator[_Canaries]:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="wink-canary-")))
        folder.chmod(0o755)
        listeners: dict[str, socket.socket] = {}
        if with_listeners:
            for name, family, address in (
                ("loopback", socket.AF_INET, ("127.0.0.1", 0)),
                ("abstract", socket.AF_UNIX, f"\0wink-{secrets.token_hex(8)}"),
            ):
                listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                listener.bind(address)
                listener.listen()
                listener.setblocking(False)
                listeners[name] = listener
        yield _Canaries(folder, listeners)


def _was_reached(listener: socket.socket) -> bool:
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return False
    connection.close()
    return True
