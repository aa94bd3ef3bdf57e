"""How a container runs commands: in one container for all, or in a new one for each.

``Commands`` is the protocol that ``PodmanSandbox`` uses. This module also encodes requests for the
runner, and runs probe programs as commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from wink_workspace.clock import Cancellation
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.filesystem import parse_path
from wink_workspace.sandbox.podman.engine.containers import WORKSPACE_PATH
from wink_workspace.sandbox.podman.transport.container_frames import request_payload
from wink_workspace.sandbox.podman.transport.stream import Ending, Limits
from wink_workspace.sandbox.sandbox_protocol import ExecRequest, PythonRequest, StreamName

from .direct import DirectRunner
from .image_settings import VARIABLES
from .proof import ProbeRun, not_probed

__all__ = [
    "CANCELLED",
    "Commands",
    "DirectCommands",
    "arguments_of",
    "encoded",
    "payload_of",
    "probe_run",
]

CANCELLED: Final = "it was cancelled"
_PROOF_TIMEOUT_S: Final = 60.0
_PROOF_BYTES: Final = 65_536


class Commands(Protocol):
    """Runs commands in containers."""

    @property
    def shell(self) -> str:
        """The path of a shell in the container."""
        ...

    def run(
        self,
        request: ExecRequest | PythonRequest,
        env: Mapping[str, str],
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
    ) -> Ending:
        """Run a command and wait until it ends; *sink* gets its output."""
        ...

    @property
    def end(self) -> Callable[[], object]:
        """End every container; may be called again."""
        ...


class DirectCommands:
    """Runs each command in a container of its own, for images without Python."""

    shell = "/bin/sh"

    def __init__(self, runner: DirectRunner) -> None:
        self._runner = runner

    def run(
        self,
        request: ExecRequest | PythonRequest,
        env: Mapping[str, str],
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
    ) -> Ending:
        """Run a command; raises ``SandboxUnavailableError`` for Python code."""
        if isinstance(request, PythonRequest):
            raise SandboxUnavailableError(
                f"the image {self._runner.config.image} has no Python",
                hint="Run a program that it has, or use an image with Python.",
            )
        if request.terminal:
            raise SandboxUnavailableError(
                f"the image {self._runner.config.image} has no Python, and so no terminals",
                hint="Run the command without a terminal, or use an image with Python.",
            )
        return self._runner.run(
            request.argv,
            cwd=_path_inside(request.cwd),
            env=env,
            stdin=request.stdin,
            merge_stderr=request.merge_stderr,
            limits=limits,
            sink=sink,
        )

    def end(self) -> None:
        """Do nothing: the container of each command has ended with it."""


def probe_run(
    commands: Commands, cancellation: Cancellation, *, in_shell: bool = False
) -> ProbeRun:
    """A function that runs a probe program as a command, and returns its output.

    It raises ``IsolationError`` if the program prints nothing, and ``CallCancelledError``.
    """

    def run(program: str, variables: Mapping[str, str]) -> str:
        printed, errors = bytearray(), bytearray()

        def sink(stream: StreamName, data: bytes) -> None:
            kept = printed if stream == "stdout" else errors
            if len(kept) < _PROOF_BYTES:
                kept.extend(data)

        request = (
            ExecRequest(argv=("/bin/sh", "-c", program), cwd="/")
            if in_shell
            else PythonRequest(code=program, cwd="/")
        )
        limits = Limits(_PROOF_TIMEOUT_S, lambda: CANCELLED if cancellation.cancelled else None)
        ending = commands.run(request, {**VARIABLES, **variables}, limits, sink)
        cancellation.check()
        if not printed:
            raise not_probed(ending, bytes(errors), _PROOF_TIMEOUT_S)
        return printed.decode("utf-8", "replace")

    return run


# Requests


def payload_of(request: ExecRequest | PythonRequest, env: Mapping[str, str]) -> bytes:
    """A request as the runner gets it.

    Raises:
        UsageError: If something in it is not valid Unicode, or its directory leaves the workspace.
    """
    return request_payload(
        cwd=_path_inside(request.cwd),
        env=env,
        stdin_bytes=len(request.stdin),
        merge_stderr=isinstance(request, ExecRequest) and request.merge_stderr,
        terminal=isinstance(request, ExecRequest) and request.terminal,
        arguments=arguments_of(request),
    )


def arguments_of(request: ExecRequest | PythonRequest) -> list[bytes]:
    """The program and its arguments, or the code."""
    if isinstance(request, PythonRequest):
        return [request.code.encode("utf-8", "surrogatepass")]
    return [encoded(argument) for argument in request.argv]


def encoded(text: str) -> bytes:
    """*text* in UTF-8; raises ``UsageError`` for lone surrogates."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{text[:80]!r} is not valid Unicode", hint="Remove lone surrogates."
        ) from error


def _path_inside(cwd: str) -> str:
    """A directory as an absolute path in the container; a relative one is in the workspace."""
    if not cwd.startswith("/"):
        return "/".join((WORKSPACE_PATH, *parse_path(cwd).parts))
    if "\0" in cwd:
        raise UsageError(f"the directory {cwd!r} contains a NUL", hint="Remove the '\\0'.")
    encoded(cwd)
    return cwd
