"""Shared helpers for tests of confined Python: sandboxes, and checks for leaks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wink_workspace.filesystem import Filesystem, MemoryFilesystem, parse_path
from wink_workspace.sandbox.asteval import (
    AstevalConfig,
    AstevalSandbox,
    Evaluation,
    EvaluationRequest,
    PythonConfig,
)

CONFIGS = {"asteval": AstevalConfig, "python": PythonConfig}


@contextmanager
def opened(interpreter: str = "asteval", **config: object) -> Iterator[AstevalSandbox]:
    """Open a sandbox for the block."""
    sandbox = AstevalSandbox(CONFIGS[interpreter](**config))
    try:
        yield sandbox
    finally:
        sandbox.close()


def evaluate(
    sandbox: AstevalSandbox,
    code: str,
    files: Filesystem | None = None,
    *,
    reads: tuple[str, ...] = (),
    writes: tuple[str, ...] = (),
    **names: object,
) -> Evaluation:
    """Evaluate *code*; paths are text, names are keywords."""
    request = EvaluationRequest(
        code=code,
        names=names,
        reads=tuple(map(parse_path, reads)),
        writes=tuple(map(parse_path, writes)),
    )
    return sandbox.evaluate(request, MemoryFilesystem() if files is None else files)


def n_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def children_of(pid: int) -> set[int]:
    """Return the child processes of *pid*, including zombies."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.add(int(entry.name))
    return found


def server_pid(sandbox: AstevalSandbox) -> int:
    """Return the process id of the sandbox's server; start it if necessary."""
    sandbox.report  # noqa: B018 - the access starts it
    assert sandbox._server is not None
    return sandbox._server.pid
