"""Commands for images without Python: each gets a container of its own.

Slower than the runner, by what it takes to make a container and to remove it, and as tight: the
end of a container is the end of all that is in it, and nothing inside has to be believed. What
it cannot tell apart is an exit code above 128 from a signal.
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
from wink_workspace.sandbox.protocol import StreamName

from .config import PodmanConfig
from .containers import Container, Host, LiveContainer, container_spec, new_name
from .frames import EngineParser, FrameError
from .service import PodmanService
from .stream import WATCH_S, Ending, Limits

__all__ = ["DirectRunner"]

_RECEIVE_BYTES: Final = 262_144
_SIGKILL: Final = 9
_ENTER: Final = 'cd "$0" || exit 126; exec "$@"'
_ENTER_MERGED: Final = f"{_ENTER} 2>&1"


@dataclass(frozen=True, slots=True)
class DirectRunner:
    """Runs each command as the first process of a new container.

    Attributes:
        service: The engine.
        config: The limits.
        host: What the machine can do.
        workspace: The directory.
        noted: Told of each container that runs, and of its end by ``None``.
        clock: The time.
    """

    service: PodmanService
    config: PodmanConfig
    host: Host
    workspace: Path
    noted: Callable[[LiveContainer | None], None]
    clock: Clock

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
        """Run a command to its end; its container is gone then.

        *cwd* is an absolute path of the container.

        Raises:
            SandboxUnavailableError: If there is no such image, or no shell in it.
            SandboxBrokenError: If the engine does not tell how it went.
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
        spec["remove"] = False  # its exit code is asked for when it has ended
        init = shutil.which("catatonit")
        if init is not None:
            spec |= {"init": True, "init_path": init}
        container = Container(self.service, spec, timeout_s=self.config.start_timeout_s)
        try:
            with container.attached() as connection:
                self.noted(container.start())
                ended = _Following(connection, stdin, sink, self.clock).until_end(limits)
            return ended or Ending(exit_code=container.exit_code())
        finally:
            container.end()
            self.noted(None)


class _Following:
    """Gives a command its input and takes its output, both as they can be had."""

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

    def until_end(self, limits: Limits) -> Ending | None:
        """Follow it; how it was ended, ``None`` if it ended by itself."""
        until_s = self._clock.monotonic_s() + limits.timeout_s
        while True:
            self._give()
            remaining_s = until_s - self._clock.monotonic_s()
            if remaining_s <= 0:
                return Ending(signal=_SIGKILL, timed_out=True)
            stopped = limits.watch()
            if stopped is not None:
                return Ending(signal=_SIGKILL, stopped=stopped)
            poll = select.poll()
            poll.register(self._connection, select.POLLIN | (select.POLLOUT if self._left else 0))
            events = poll.poll(min(remaining_s, WATCH_S) * 1_000)
            if events and events[0][1] & ~select.POLLOUT and not self._take():
                return None

    def _give(self) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # it need not read what it is given
            while self._left:
                self._left = self._left[self._connection.send(self._left) :]
        if not self._left and not self._closed:
            self._closed = True
            with suppress(OSError):
                self._connection.shutdown(SHUT_WR)

    def _take(self) -> bool:
        """Take what there is; whether there may be more."""
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
