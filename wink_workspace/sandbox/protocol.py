"""Running foreign code: what is asked, what comes back, and what every sandbox promises.

Rule 1: when ``run`` returns or raises, every process that the command started is gone.
Rule 2: how a command ended is a value. Only a sandbox that cannot do its work raises.
Rule 3: what a command says of itself is never trusted: sizes are bounded, bytes are bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from wink_workspace.clock import Cancellation
from wink_workspace.errors import SandboxUnavailableError

from .isolation import IsolationReport

__all__ = [
    "CapturedOutput",
    "ExecRequest",
    "ExecResult",
    "OutputObserver",
    "PythonRequest",
    "Sandbox",
    "StreamName",
]

StreamName = Literal["stdout", "stderr"]
OutputObserver = Callable[[StreamName, bytes], None]
"""Told of each piece of output as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A command to run.

    Attributes:
        argv: The program and its arguments; found on the sandbox's own ``PATH``.
        cwd: Where it starts. A relative path is below the workspace's root, an absolute one is
            a path of the sandbox, such as ``/tmp`` of a container.
        env: Variables on top of the sandbox's own.
        stdin: What it can read; then the end of the file.
        timeout_s: When it is killed, with everything it started.
        cancellation: Kills it likewise, as soon as it is not wanted any more.
        output_bytes: How much of each stream is kept, half from its head and half from its tail.
        merge_stderr: Whether standard error goes to standard output, in the order written. The
            result's ``stderr`` is empty then.
    """

    argv: tuple[str, ...]
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stdin: bytes = b""
    timeout_s: float = 30.0
    cancellation: Cancellation | None = None
    output_bytes: int = 65_536
    merge_stderr: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRequest:
    """Python code to run as a program of its own, in an interpreter that may be warm.

    It is ``__main__``, finds the modules in *cwd*, and leaves nothing behind for the next one.
    If its last statement is an expression, its value is printed as an interactive session
    would. The other attributes are those of ``ExecRequest``.
    """

    code: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stdin: bytes = b""
    timeout_s: float = 30.0
    cancellation: Cancellation | None = None
    output_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class CapturedOutput:
    """One stream: what was kept of it.

    ``head`` and ``tail`` are the first and last bytes, ``n_bytes`` counts all that came.
    ``whole`` is where the first ``n_whole`` of them can be read from, a path in the workspace,
    if it was cut.
    """

    head: bytes = b""
    tail: bytes = b""
    n_bytes: int = 0
    whole: str | None = None
    n_whole: int = 0

    @property
    def n_missing(self) -> int:
        """How many bytes between head and tail are missing."""
        return self.n_bytes - len(self.head) - len(self.tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How a command ended.

    Exactly one of ``exit_code`` and ``signal`` is set; ``timed_out`` says that the sandbox sent
    the signal because the time was over. ``stopped`` says in a sentence what else the sandbox
    ended it for: it filled the disk, say, or was cancelled.
    """

    exit_code: int | None
    signal: int | None
    stdout: CapturedOutput
    stderr: CapturedOutput
    duration_s: float
    timed_out: bool = False
    stopped: str | None = None


class Sandbox(ABC):
    """A place where foreign code runs over the files of one workspace.

    A base class, as resources are asked for by type.
    """

    @property
    @abstractmethod
    def report(self) -> IsolationReport:
        """Which walls are up, and what was tried against them."""

    @abstractmethod
    def run(self, request: ExecRequest, *, observer: OutputObserver | None = None) -> ExecResult:
        """Run a command to its end.

        Raises:
            UsageError: If the request cannot be run: no such directory, a NUL, too much.
            CallCancelledError: If it is cancelled before it begins.
            SandboxError: If the sandbox failed, or broke the protocol and was ended.
        """

    def evaluate(
        self, request: PythonRequest, *, observer: OutputObserver | None = None
    ) -> ExecResult:
        """Run Python code to its end; raises as ``run``, and where there is no Python."""
        del request, observer
        raise SandboxUnavailableError(
            "this sandbox cannot evaluate Python", hint="Run a program of the image instead."
        )

    def start(self, cancellation: Cancellation | None = None) -> None:  # noqa: B027 - most have nothing to start
        """Be ready for a command, which else would wait for it; costs nothing when it is.

        Raises:
            CallCancelledError: If *cancellation* says so meanwhile; nothing stays running.
            SandboxError: If it cannot be started.
        """

    @property
    def shell(self) -> tuple[str, ...]:
        """The program that runs a line of text as a command, and what goes before the line."""
        return ("/bin/sh", "-c")

    @abstractmethod
    def close(self) -> None:
        """End it with everything in it. Once is enough."""
