"""A runner at the other end of a stream: it is probed, and then runs commands.

A sandbox starts the runner inside its isolation, calls ``prove``, and ends everything if that
raises.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.clock import Cancellation
from wink_workspace.environment import Environment
from wink_workspace.sandbox.isolation_report import IsolationReport, Layer, Probe
from wink_workspace.sandbox.network import NetworkRules
from wink_workspace.sandbox.sandbox_protocol import ExecRequest, PythonRequest, StreamName
from wink_workspace.sandbox.transport.container_frames import Kind
from wink_workspace.sandbox.transport.stream import Ending, Limits, RunnerStream, StreamRelay

from .command_runs import CANCELLED, VARIABLES, payload_of
from .live_container import LiveContainer
from .proof import HostProbes, ProbeRun, not_probed, prove, prove_network, refuse_holes

if TYPE_CHECKING:
    from wink_workspace.sandbox.network_proxy.link import NetworkLink

    from .interaction import Interaction


BOOT: Final = (
    "python3",
    "-I",
    "-c",
    (
        "import os, sys\n"
        "source, left = b'', int(sys.argv[2])\n"
        "while left > len(source):\n"
        "    source += os.read(0, left - len(source)) or os._exit(0)\n"
        "exec(compile(source, '<runner>', 'exec'))"
    ),
)
"""Reads the runner's source from the stream. Process listings would show it as an argument."""
_PROBE_TIMEOUT_S: Final = 60.0
_PROBE_BYTES: Final = 65_536


class ProbedRunner:
    """A runner, and what was found out about its isolation.

    Args:
        stream: Leads to the runner.
        network: The connections of its commands; ``None`` for none.

    Attributes:
        report: The layers of the isolation, and the probes that were made.
        shell: The path of its shell.
        live: Its process, which is the first one of the sandbox.
        end: Ends it with every process in the sandbox; may be called again. It is also called when
            this object is deleted and when the interpreter ends.
    """

    shell: str
    live: LiveContainer
    end: weakref.finalize[..., Any]

    def __init__(self, stream: RunnerStream, network: NetworkLink | None) -> None:
        self._stream = stream
        self._network = network
        self.report = IsolationReport()

    def prove(
        self,
        layers: tuple[Layer, ...],
        cancellation: Cancellation,
        *,
        bound: Iterable[str],
        skipped: Container[str] = (),
        host: HostProbes | None = None,
    ) -> None:
        """Run the probes of the sandbox; see ``proof.prove``.

        Raises:
            IsolationError: If a probe succeeded.
            CallCancelledError: If *cancellation* is cancelled meanwhile.
        """
        run = self.probe_run(cancellation)
        self.report = prove(run, layers, bound=bound, skipped=skipped, host=host)
        refuse_holes(self.report)

    def prove_network(
        self, network: NetworkLink, rules: NetworkRules, cancellation: Cancellation
    ) -> None:
        """Run the probes of the network list; raises as ``prove``."""
        self.add_probes(prove_network(self.probe_run(cancellation), network, rules))

    def add_probes(self, found: Iterable[Probe]) -> None:
        """Add probes to the report; raises ``IsolationError`` if one succeeded."""
        self.report = IsolationReport(self.report.layers, (*self.report.probes, *found))
        refuse_holes(self.report)

    def run(
        self,
        request: ExecRequest | PythonRequest,
        env: Mapping[str, str],
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
        typed: Interaction | None = None,
    ) -> Ending:
        """Run a command and wait until it ends; *sink* gets its output.

        *typed* sends its input while it runs.
        """
        network = self._network
        relays: tuple[StreamRelay, ...] = () if typed is None else (typed,)
        kind = Kind.RUN if isinstance(request, ExecRequest) else Kind.PYTHON
        if network is not None:
            env, relays = network.environment(env), (*relays, network)
        payload = payload_of(request, env, None if typed is None else typed.size)
        run = partial(self._stream.run, kind, payload, stdin=request.stdin, limits=limits)
        if network is None:
            return run(sink=sink, relays=relays)
        network.begin()
        try:
            ending = run(sink=sink, relays=relays)
        finally:
            requests = network.end()
        return replace(ending, network=requests)

    def probe_run(self, cancellation: Cancellation) -> ProbeRun:
        """A function that runs a probe program as a command, and returns its output.

        It raises ``IsolationError`` if the program prints nothing, and ``CallCancelledError``.
        """

        def run(program: str, variables: Mapping[str, str]) -> str:
            printed, errors = bytearray(), bytearray()

            def sink(stream: StreamName, data: bytes) -> None:
                kept = printed if stream == "stdout" else errors
                if len(kept) < _PROBE_BYTES:
                    kept.extend(data)

            request = PythonRequest(code=program, cwd="/")
            limits = Limits(_PROBE_TIMEOUT_S, lambda: CANCELLED if cancellation.cancelled else None)
            ending = self.run(request, {**VARIABLES, **variables}, limits, sink)
            cancellation.check()
            if not printed:
                raise not_probed(ending, bytes(errors), _PROBE_TIMEOUT_S)
            return printed.decode("utf-8", "replace")

        return run


def link_of(rules: NetworkRules, environment: Environment | None) -> NetworkLink | None:
    """The proxy of a sandbox with *rules*; ``None`` without a network list."""
    if not rules:
        return None
    from wink_workspace.sandbox.network_proxy.link import (
        NetworkLink,  # on use: most sandboxes have no network
    )

    return NetworkLink.of(rules, environment or Environment.from_os())


RUNNER: Final = Path(__file__).parents[1] / "inside" / "runner.py"


def runner_source() -> bytes:
    """The source of the runner, which is sent through the stream."""
    return RUNNER.read_bytes()
