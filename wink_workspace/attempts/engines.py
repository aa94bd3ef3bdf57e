"""Engines by their addresses, as the command ``attempts`` takes them."""

from __future__ import annotations

from wink_workspace.errors import UsageError
from wink_workspace.sandbox import SandboxConfig

from .engine_protocol import Engine
from .local_engine import LocalEngine

_RAY = "ray://"


def engine_at(
    address: str, *, workers: int | None = None, sandbox: SandboxConfig | None = None
) -> Engine:
    """The engine at an address; nothing is started.

    Args:
        address: ``local`` for processes of this machine, ``ray://HOST:PORT`` for a Ray cluster.
        workers: How many attempts run at the same time, by default as the engine has it.
        sandbox: A sandbox that must work on each node of a cluster.

    Raises:
        UsageError: If there is no such engine.
    """
    if address == "local":
        return LocalEngine() if workers is None else LocalEngine(workers=workers)
    if address.startswith(_RAY):
        from .ray_engine import RayEngine

        return RayEngine(address=address, workers=workers or 0, sandbox=sandbox)
    raise UsageError(
        f"there is no engine {address!r}", hint="Use local, or ray://HOST:PORT for a Ray cluster."
    )
