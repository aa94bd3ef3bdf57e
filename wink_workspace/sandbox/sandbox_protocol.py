"""The sandbox protocol: requests, results, and what every sandbox guarantees.

Rule 1: when ``run`` returns or raises, every process that the command started is dead.
Rule 2: a command that fails is a result. A sandbox raises only if it cannot run the command.
Rule 3: nothing from inside a sandbox is trusted. Sizes are bounded, and output is bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from wink_workspace.clock import Cancellation
from wink_workspace.errors import SandboxUnavailableError

from .isolation_report import IsolationReport
from .network import NetworkRequest

if TYPE_CHECKING:
    from .services import Services

StreamName = Literal["stdout", "stderr"]
OutputObserver = Callable[[StreamName, bytes], None]
"""Is called with each piece of output when it arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A command to run.

    Attributes:
        argv: The program and its arguments; the sandbox's own ``PATH`` is searched.
        cwd: Its working directory. A relative path is below the workspace's root, an absolute one
            is a path in the sandbox, such as ``/tmp`` of a container. ``.`` is the root, unless
            the container's image has a ``WORKDIR`` in the workspace.
        env: Variables in addition to the sandbox's own.
        stdin: Its standard input, followed by the end of file.
        timeout_s: After this time it is killed, with every process that it started.
        cancellation: Kills it likewise when it is cancelled.
        output_bytes: How much of each stream is kept, half from its head and half from its tail.
        merge_stderr: Whether standard error goes to standard output, in the order written. The
            result's ``stderr`` is empty then.
        terminal: Whether its standard streams are a terminal of 80 columns and 24 lines. All its
            output is in the result's ``stdout``, and it has no input.
        watch: Is called on the caller's thread, some 50 times a second, while the command runs. A
            text ends the command for that reason, and an exception is raised by ``run``.
    """

    argv: tuple[str, ...]
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stdin: bytes = b""
    timeout_s: float = 30.0
    cancellation: Cancellation | None = None
    output_bytes: int = 65_536
    merge_stderr: bool = False
    terminal: bool = False
    watch: Callable[[], str | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRequest:
    """Python code to run in a process of its own, whose interpreter may have been started before.

    The code is ``__main__``, can import modules in *cwd*, and shares no state with later requests.
    If its last statement is an expression, its value is printed as in an interactive session.
    ``env`` has variables in addition to the sandbox's own. ``stdin`` and the other attributes are
    those of ``ExecRequest``.
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
    """What was kept of one output stream.

    ``head`` and ``tail`` are the first and last bytes, ``n_bytes`` is the length of the whole
    stream. If it was cut, ``whole`` is a path in the workspace with its first ``n_whole`` bytes.
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

    Exactly one of ``exit_code`` and ``signal`` is set. ``timed_out`` is true if the sandbox sent
    the signal because the time limit was reached. ``stopped`` is a sentence with any other reason
    for which the sandbox ended it, such as a full disk or a cancellation. ``network`` are the
    requests that it made, also refused ones; ``network_list`` is what it could reach, one entry
    each, and empty without a network.
    """

    exit_code: int | None
    signal: int | None
    stdout: CapturedOutput
    stderr: CapturedOutput
    duration_s: float
    timed_out: bool = False
    stopped: str | None = None
    network: tuple[NetworkRequest, ...] = ()
    network_list: tuple[str, ...] = ()


class Sandbox(ABC):
    """Runs code that is not trusted, with the files of one workspace.

    It is a base class and not a protocol because resources are looked up by type.
    """

    @property
    @abstractmethod
    def report(self) -> IsolationReport:
        """The isolation layers, and the probes that were made."""

    @abstractmethod
    def run(self, request: ExecRequest, *, observer: OutputObserver | None = None) -> ExecResult:
        """Run a command and wait until it ends.

        Raises:
            UsageError: If the request is invalid: no such directory, a NUL, or too long.
            CallCancelledError: If it is cancelled before it begins.
            SandboxError: If the sandbox failed, or violated the protocol and was ended.
        """

    def evaluate(
        self, request: PythonRequest, *, observer: OutputObserver | None = None
    ) -> ExecResult:
        """Run Python code and wait until it ends.

        Raises:
            SandboxUnavailableError: If the sandbox has no Python; otherwise as ``run``.
        """
        del request, observer
        raise SandboxUnavailableError(
            "this sandbox cannot evaluate Python", hint="Run a program of the image instead."
        )

    def start(self, cancellation: Cancellation | None = None) -> None:  # noqa: B027 - most have nothing to start
        """Start the sandbox before the first command needs it; does nothing if it is running.

        Raises:
            CallCancelledError: If *cancellation* is cancelled meanwhile; nothing stays running.
            SandboxError: If it cannot be started.
        """

    def interact(
        self,
        argv: Sequence[str] = (),
        *,
        env: Mapping[str, str] = MappingProxyType({}),
        cancellation: Cancellation | None = None,
    ) -> ExecResult:
        """Run a program with the standard streams of this process, and wait until it ends.

        If they are a terminal, the program has one of its own. There is no time limit.

        Args:
            argv: The program and its arguments; the sandbox's shell by default.
            env: Variables in addition to the sandbox's own.
            cancellation: Kills it when it is cancelled.

        Returns:
            How it ended, without its output.

        Raises:
            UsageError: If the program cannot be started.
            SandboxUnavailableError: If the sandbox has no such way.
            SandboxError: If the sandbox failed or ended the program; its effects are unknown.
        """
        del argv, env, cancellation
        raise SandboxUnavailableError(
            "this sandbox has no interactive programs", hint="Run single commands instead."
        )

    def paused(self) -> AbstractContextManager[bool]:
        """A block in which no process of the running command runs, for use in its ``watch``.

        Yields whether that is so; not every system can stop them.
        """
        return nullcontext(False)

    def released(self) -> AbstractContextManager[tuple[str, ...]]:
        """A block in which no command has the files open, or begins; the next one waits.

        Yields the names of the running services, which stay and have them open.
        """
        return nullcontext(())

    @property
    def services(self) -> Services | None:
        """Processes that outlive a call; ``None`` if this sandbox has none."""
        return None

    @property
    def shell(self) -> tuple[str, ...]:
        """The program that runs a shell command, and its arguments before the command."""
        return ("/bin/sh", "-c")

    @abstractmethod
    def close(self) -> None:
        """End the sandbox and every process in it. May be called again."""
