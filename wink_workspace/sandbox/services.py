"""Services: processes that outlive the call that started them, such as a development server.

Rule 1: a service has a container, or the like, of its own. So the rule for commands stays: all
their processes are dead when their call ends.
Rule 2: a service sees the workspace read-only, except the paths that it declares, which must be
derived paths: the history records no change of a service.
Rule 3: a service ends with ``stop``, with its sandbox, and with the process that opened it. A
rollback freezes it, and does not undo what it did meanwhile.
Rule 4: a fork has services of its own, over its own files.

A sandbox that has no services has ``Sandbox.services`` equal to ``None``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from wink_workspace.clock import Cancellation
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import parse_path

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_READY_PORT: Final = re.compile(r"port ([0-9]{1,5})")
_MOST_READY_CHARS: Final = 1_000
_MOST_WRITES: Final = 16
_MOST_PORT: Final = 65_535

ServiceState = Literal["starting", "running", "ended"]
"""``running``: the service is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """A service to start.

    Attributes:
        name: Its name in the branch: up to 32 lower-case letters, digits, ``_`` and ``-``, a letter
            first.
        command: One or more lines of shell.
        ready: When it is ready: ``"port 8000"`` if it listens on that port, a regular expression if
            a line of its output matches, ``""`` as soon as it runs.
        writes: Derived paths of the workspace that it may change. Missing ones are created as
            directories.
        port: The TCP port on which commands and ``wink-workspace port`` reach it; by default the
            one of *ready*, if that names one.
        cwd: The working directory, relative to the workspace's root.
        env: Variables in addition to the sandbox's own.

    Raises:
        UsageError: If a value is not allowed.
    """

    name: str
    command: str
    ready: str = ""
    writes: tuple[str, ...] = ()
    port: int | None = None
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise UsageError(
                f"{self.name!r} cannot be the name of a service",
                hint="Use up to 32 lower-case letters, digits, '_' and '-', a letter first.",
            )
        if not self.command.strip() or "\0" in self.command:
            raise UsageError(
                f"the service {self.name} has no command, or one with a NUL",
                hint="Pass one or more lines of shell.",
            )
        if len(self.ready) > _MOST_READY_CHARS:
            raise UsageError(
                f"ready has {len(self.ready):,} characters, {_MOST_READY_CHARS:,} are allowed",
                hint="Use a shorter expression, or 'port N'.",
            )
        for port in (self.port, self.ready_port):
            if port is not None and not 1 <= port <= _MOST_PORT:
                raise UsageError(
                    f"{port} is not a port", hint=f"Use a number from 1 to {_MOST_PORT}."
                )
        if len(self.writes) > _MOST_WRITES:
            raise UsageError(
                f"the service {self.name} has {len(self.writes)} paths to write,"
                f" {_MOST_WRITES} are allowed",
                hint="Name a directory that contains them.",
            )
        for path in (self.cwd, *self.writes):
            parse_path(path)

    @property
    def ready_port(self) -> int | None:
        """The port that *ready* names, if it does."""
        found = _READY_PORT.fullmatch(self.ready)
        return None if found is None else int(found[1])

    @property
    def reachable_port(self) -> int | None:
        """The port on which it is reached; ``None`` if it is not reached."""
        return self.port or self.ready_port


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """How a service is.

    Attributes:
        config: What was started.
        state: See ``ServiceState``.
        exit_code, signal: How its command ended, if it did so by itself.
        reason: Why the sandbox ended it, in a sentence.
    """

    config: ServiceConfig
    state: ServiceState
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLog:
    """The newest output of a service, both streams together; ``n_missing`` bytes came before it."""

    status: ServiceStatus
    output: bytes
    n_missing: int = 0


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where the host reaches a service."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The address for a browser."""
        return f"http://{self.host}:{self.port}/"


class Services(ABC):
    """The services of one sandbox. Methods may be called by any thread."""

    @abstractmethod
    def start(
        self, config: ServiceConfig, *, cancellation: Cancellation | None = None
    ) -> ServiceStatus:
        """Start a service and wait until it is ready.

        Raises:
            UsageError: If its name or port is taken, there are too many services, or it wants to
                write a path that is not derived.
            ServiceError: If it ended, or was not ready in time; it is stopped then.
            CallCancelledError: If *cancellation* is cancelled meanwhile; it is stopped then.
            SandboxError: If the sandbox cannot start it.
        """

    @abstractmethod
    def stop(self, name: str) -> ServiceStatus:
        """End a service with all its processes, and forget it; raises ``UsageError`` if unknown."""

    @abstractmethod
    def log(self, name: str, *, limit_bytes: int = 16_384) -> ServiceLog:
        """The newest output of a service, also of an ended one.

        Raises:
            UsageError: If there is no such service.
        """

    @abstractmethod
    def listed(self) -> tuple[ServiceStatus, ...]:
        """All services that were started and not stopped, in the order of their start."""

    @abstractmethod
    def known(self, name: str) -> ServiceConfig | None:
        """A service that can be started by its name alone.

        It is declared in the configuration, or it was started in this branch or its parent.
        """

    @abstractmethod
    def expose(self, name: str, *, port: int | None = None) -> ServiceAddress:
        """Let the host reach a service, on a loopback address that only this service has.

        A browser does not send the cookies of other local servers to it.

        Args:
            name: The service.
            port: The port on the host; by default that of the service.

        Raises:
            UsageError: If there is no such service, it has no port, or the host's port is taken.
        """

    @abstractmethod
    def frozen(self) -> AbstractContextManager[None]:
        """A block in which no service runs; they continue after it."""
