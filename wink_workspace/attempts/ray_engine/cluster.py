"""The calls to Ray from the coordinator's side, with errors of ours.

Ray's own retries are off in all of them, and nothing here chooses a node: Ray places the tasks by
their resources on any of the nodes that passed the inspection.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import ray as typed_in_part
from ray.exceptions import RayError

from wink_workspace.attempts.attempt_context import one_line
from wink_workspace.attempts.engine_protocol import AttemptTask
from wink_workspace.errors import ClusterError

from .mailbox import BaseMissing, Finished, Key, Mail, Mailbox, NodeBase, Requirements
from .node import work

# ------------------------------------------------------------------------------------- inspection


def make_inspector() -> Callable[[dict[str, Any]], str]:
    """A function for a node that may have another version of this package, or none.

    It returns why the node cannot be used, or an empty text. Ray sends a function that is defined
    in another one by value, so it must not use any name of this module.
    """

    def inspect(wanted: dict[str, Any]) -> str:
        import sys
        from importlib.metadata import PackageNotFoundError, version

        python = "{}.{}".format(*sys.version_info)
        if python != wanted["python"]:
            return f"it has Python {python}, not {wanted['python']}"
        try:
            found = version("wink-workspace")
        except PackageNotFoundError:
            return "wink-workspace is not installed there"
        if found != wanted["version"]:
            return f"it has wink-workspace {found}, not {wanted['version']}"
        try:
            from .node import missing_parts
        except Exception as error:  # noqa: BLE001 - the boundary to another installation
            return f"wink-workspace cannot be loaded there: {type(error).__name__}: {error}"
        return missing_parts(wanted)

    return inspect


# ---------------------------------------------------------------------------------------- cluster


Ref: TypeAlias = Any
"""A reference of Ray, whose type differs between its two kinds of connections."""

_NODE: Final = "ray.io/node-id"
_CONNECT_S: Final = 10.0
_HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What a client of gRPC sends first: RFC 9113, section 3.4. The server answers with SETTINGS."""
_FRAME_BYTES: Final = 9
_TLS_ALERT: Final = b"\x15"
_TAKE_S: Final = 30.0


ray: Any = typed_in_part


@dataclass(frozen=True, slots=True)
class Lost:
    """A task without a result, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The resources of one task, as Ray counts them."""

    cpus: float
    memory_bytes: int
    resources: Mapping[str, float]

    def slots(self, available: Mapping[str, float]) -> int:
        """How many such tasks fit on a node with these resources."""
        wanted = {"CPU": self.cpus, "memory": float(self.memory_bytes), **self.resources}
        return min(
            int(available.get(name, 0.0) / amount) for name, amount in wanted.items() if amount
        )


@contextmanager
def _reachable() -> Generator[None]:
    """Raise ``ClusterError`` for whatever Ray raises when the cluster does not answer."""
    try:
        yield
    except (RayError, OSError, RuntimeError, SystemExit) as error:
        raise ClusterError(
            f"the Ray cluster does not answer: {one_line(error)}",
            hint="When it runs again, resume the run: finished attempts are kept.",
        ) from error


class Cluster:
    """A connection to a Ray cluster.

    Args:
        address: As for ``ray.init``; empty for the connection that the program made, or, without
            one, the cluster of this machine.
        runtime_env: As for ``ray.init``, for a new connection.

    Raises:
        ClusterError: If it cannot be reached, or has other versions.
    """

    def __init__(self, address: str, runtime_env: Mapping[str, Any] | None) -> None:
        self._is_ours = bool(address) or not ray.is_initialized()
        if self._is_ours:
            _connect(address or "auto", runtime_env)
        self._inspect: Any = ray.remote(num_cpus=0, max_retries=0)(make_inspector())
        self._work: Any = ray.remote(max_retries=0)(work)
        self._mailbox: Any = None
        self.mail: Ref = None
        self.open_mailbox()

    def open_mailbox(self) -> None:
        """Start a mailbox, also in place of one that died."""
        with _reachable():
            actor: Any = ray.remote(num_cpus=0, max_restarts=0, max_concurrency=10_000)(Mailbox)
            # Beside this program if it is on a node: then no other node can take it away
            here = ray.get_runtime_context().get_node_id()
            selector = {_NODE: here} if here in self.nodes() else {}
            self._mailbox = actor.options(label_selector=selector).remote()
            self.mail = self._mailbox.take.remote(_TAKE_S)

    def nodes(self) -> dict[str, Mapping[str, Any]]:
        """The nodes that are alive, by id: their resources, and the name of each machine."""
        with _reachable():
            return {
                node["NodeID"]: {
                    "resources": node["Resources"],
                    "name": node["NodeManagerHostname"],
                }
                for node in ray.nodes()
                if node["Alive"]
            }

    def inspect(self, node: str, requirements: Requirements) -> Ref:
        """Begin to inspect a node; see ``inspected``."""
        with _reachable():
            return self._inspect.options(label_selector={_NODE: node}).remote(requirements.fields())

    def inspected(self, inspection: Ref) -> str:
        """Why a node cannot be used, or an empty text; waits."""
        try:
            return ray.get(inspection)
        except RayError as error:
            return f"it cannot be inspected: {one_line(error)}"

    def put(self, value: object) -> Ref:
        """Store a value in the cluster; each node fetches it once."""
        with _reachable():
            return ray.put(value)

    def submit(
        self,
        rules: Ref,
        task: AttemptTask,
        more: bytes,
        base: NodeBase | None,
        *,
        options: TaskOptions,
        nodes: Collection[str],
    ) -> Ref:
        """Start a task on one of *nodes*; it waits there for its resources."""
        with _reachable():
            return self._work.options(
                name=f"attempt {task.number}",
                num_cpus=options.cpus,
                memory=options.memory_bytes or None,
                resources=dict(options.resources),
                label_selector={_NODE: f"in({','.join(sorted(nodes))})"},
            ).remote(rules, task, more, base, self._mailbox)

    def wait(self, refs: Collection[Ref], timeout_s: float) -> list[Ref]:
        """Those that have ended; waits up to *timeout_s* for one."""
        with _reachable():
            ready, waiting = ray.wait(list(refs), timeout=timeout_s, fetch_local=False)
            if ready and waiting:  # one more look: others may have ended, too
                ready += ray.wait(waiting, num_returns=len(waiting), timeout=0, fetch_local=False)[
                    0
                ]
            return ready

    def result(self, ref: Ref) -> Finished | BaseMissing | Lost:
        """The result of a task that has ended."""
        try:
            return ray.get(ref)
        except RayError as error:
            return Lost(one_line(getattr(error, "cause", None) or error))

    def take_mail(self) -> list[Mail] | None:
        """The messages of ``mail``, which is ready; ``None`` if the mailbox died."""
        try:
            mail = cast("list[Mail]", ray.get(self.mail))
        except RayError:
            return None
        self.mail = self._mailbox.take.remote(_TAKE_S)
        return mail

    def answer(self, key: Key, answer: str) -> None:
        """Answer the request of a task."""
        self._mailbox.answer.remote(key, answer)

    def stop(self, keys: list[Key] | None = None) -> None:
        """Have tasks, or all, end between two calls."""
        self._mailbox.stop.remote(keys)

    def cancel(self, ref: Ref, *, force: bool) -> None:
        """End a task that has not begun; with *force*, kill the worker of one that has."""
        with suppress(RayError, OSError, RuntimeError):
            ray.cancel(ref, force=force)

    def disconnect(self) -> None:
        """End the mailbox, and the connection if it was made here."""
        with suppress(RayError, OSError, RuntimeError):
            ray.kill(self._mailbox)
        self._mailbox = self.mail = None
        if self._is_ours:
            ray.shutdown()


def _connect(address: str, runtime_env: Mapping[str, Any] | None) -> None:
    _check_port(address)
    try:
        ray.init(
            address=address,
            runtime_env=dict(runtime_env or {}),
            log_to_driver=False,
            logging_level=logging.WARNING,
        )
    except (RayError, OSError, RuntimeError, ValueError, SystemExit) as error:
        raise ClusterError(
            f"no connection to the Ray cluster {address!r}: {one_line(error)}",
            hint="Start one with `ray start --head`, and use its Python and its version of Ray.",
        ) from error


def _check_port(address: str) -> None:
    """Raise ``ClusterError`` unless a server of gRPC answers at once.

    Without this, Ray tries for minutes to reach a port that is closed or silent, and then exits.
    """
    host, _, port = address.removeprefix("ray://").partition("/")[0].rpartition(":")
    if not port.isdecimal():
        return
    where = host.strip("[]"), int(port)
    try:
        with socket.create_connection(where, timeout=_CONNECT_S) as connection:
            connection.sendall(_HTTP2_PREFACE)
            answer = connection.recv(_FRAME_BYTES)
    except ConnectionResetError:  # as a server with TLS may do
        return
    except (OSError, OverflowError) as error:
        raise _unreachable(address, str(error)) from error
    is_settings = answer[3:4] == b"\x04"
    if answer and not is_settings and answer[:1] != _TLS_ALERT:
        raise _unreachable(address, "another kind of server is there")


def _unreachable(address: str, reason: str) -> ClusterError:
    return ClusterError(
        f"no connection to the Ray cluster {address!r}: {reason}",
        hint="Start one with `ray start --head`, or correct the address.",
    )
