"""Commands in images without Python: each command gets a container of its own.

This is slower than the runner, because each command creates and removes a container. It is as
strict: the end of a container ends every process in it, and nothing inside has to be trusted. It
cannot distinguish an exit code above 128 from a signal.
"""

from __future__ import annotations

import select
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import SHUT_WR, socket
from typing import Final

from wink_workspace.clock import Clock
from wink_workspace.errors import SandboxBrokenError
from wink_workspace.sandbox.git_directory import GIT_PATH, HISTORY_PATH
from wink_workspace.sandbox.podman.engine.containers import (
    Container,
    Host,
    LiveContainer,
    container_spec,
    new_name,
)
from wink_workspace.sandbox.podman.engine.podman_config import PodmanConfig
from wink_workspace.sandbox.podman.engine.service import PodmanService
from wink_workspace.sandbox.podman.transport.container_frames import EngineParser, FrameError
from wink_workspace.sandbox.podman.transport.stream import WATCH_S, Ending, Limits
from wink_workspace.sandbox.sandbox_protocol import StreamName

__all__ = ["CommandStreams", "DirectRunner"]

_RECEIVE_BYTES: Final = 262_144
_SIGKILL: Final = 9
_BEGIN_GIT: Final = (
    f"[ ! -d {HISTORY_PATH}/template ] || cp -R {HISTORY_PATH}/template {GIT_PATH} 2>/dev/null;"
)
"""Does nothing if the image has no ``cp``; then it has no git."""
_ENTER: Final = f'{_BEGIN_GIT} cd "$0" || exit 126; exec "$@"'
_ENTER_MERGED: Final = f"{_ENTER} 2>&1"


@dataclass(frozen=True, slots=True)
class DirectRunner:
    """Runs each command as the first process of a new container.

    Attributes:
        service: The engine.
        config: The limits.
        host: What the machine provides.
        workspace: The directory that the engine mounts; ``None`` if *on_container* mounts it.
        on_container: Is called with each container before its first process starts, and with
            ``None`` when it has ended.
        clock: Measures time limits.
        with_init: Whether an init is the first process, if this machine has one. It needs a
            directory ``/run`` of the image in which the engine can make a file.
    """

    service: PodmanService
    config: PodmanConfig
    host: Host
    workspace: Path | None
    on_container: Callable[[LiveContainer | None], None]
    clock: Clock
    with_init: bool = True

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes,
        merge_stderr: bool,
        limits: Limits,
        sink: Callable[[StreamName, bytes], None],
    ) -> Ending:
        """Run a command and wait until it ends; its container is removed then.

        *cwd* is an absolute path in the container.

        Raises:
            SandboxUnavailableError: If the image does not exist, or has no shell.
            SandboxBrokenError: If the engine does not report how the command ended.
        """
        user = f"{self.config.user_id}:{self.config.user_id}"
        spec = container_spec(
            self.config,
            host=self.host,
            name=new_name(),
            workspace=self.workspace,
            command=("/bin/sh", "-c", _ENTER_MERGED if merge_stderr else _ENTER, cwd, *argv),
            user=user,
            env=env,
        )
        spec["remove"] = False  # its exit code is read after its end
        init = shutil.which("catatonit") if self.with_init else None
        if init is not None:
            spec |= {"init": True, "init_path": init}
        container = Container(self.service, spec, timeout_s=self.config.start_timeout_s)
        try:
            with container.attach() as connection:
                container.start(self.on_container)
                killed = CommandStreams(connection, stdin, sink, self.clock).run(limits)
            return killed or Ending(exit_code=container.exit_code())
        finally:
            container.end()
            self.on_container(None)


class CommandStreams:
    """Writes a command's input and reads its output."""

    def __init__(
        self,
        connection: socket,
        stdin: bytes,
        sink: Callable[[StreamName, bytes], None],
        clock: Clock,
    ) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._left = memoryview(stdin)
        self._closed = False
        self._sink = sink
        self._clock = clock
        self._engine = EngineParser()

    def run(self, limits: Limits) -> Ending | None:
        """Transfer data until the end; ``None`` if the command ended by itself."""
        until_s = self._clock.monotonic_s() + limits.timeout_s
        while True:
            self._write()
            remaining_s = until_s - self._clock.monotonic_s()
            if remaining_s <= 0:
                return Ending(signal=_SIGKILL, timed_out=True)
            stopped = limits.watch()
            if stopped is not None:
                return Ending(signal=_SIGKILL, stopped=stopped)
            poll = select.poll()
            poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._left else 0))
            events = poll.poll(min(remaining_s, WATCH_S) * 1_000)
            if events and events[0][1] & ~select.POLLOUT and not self._read():
                return None

    def _write(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # the command need not read its input
            while self._left:
                self._left = self._left[self._connection.send(self._left) :]
        if not self._left and not self._closed:
            self._closed = True
            with suppress(OSError):
                self._connection.shutdown(SHUT_WR)

    def _read(self) -> bool:
        """Read the available output; returns whether there may be more."""
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except OSError as error:
            raise SandboxBrokenError(f"the stream of a command was cut off: {error}") from error
        try:
            for stream, piece in self._engine.feed(data):
                self._sink("stdout" if stream == 1 else "stderr", piece)
        except FrameError as error:
            raise SandboxBrokenError(error.message) from error
        return bool(data)
