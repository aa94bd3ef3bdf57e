"""The client of the program that carries connections to services.

Rule 1: the program runs while this process does, and a forked child does not use it.
Rule 2: both ends of a way are named by sandboxes that run. The program refuses the network of
this machine as the end of a way.
"""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any, Final

from wink_workspace.companion import Companion
from wink_workspace.errors import SandboxError, UsageError

from .live_container import LiveContainer

_PROGRAM: Final = Path(__file__).parents[1] / "inside" / "relay_program.py"
_MAX_BYTES: Final = 65_536
_TIMEOUT_S: Final = 20.0


class Relay:
    """Listeners whose connections end in sandboxes. Methods may be called by any thread.

    Nothing is started before the first ``listen``. The program ends with ``end``, with this object,
    with the interpreter, and with the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Companion | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the program, if it runs."""
        program = self._running
        return None if program is None or not program.is_running else program.pid

    def listen(
        self,
        start: LiveContainer | None,
        host: str,
        port: int,
        target: LiveContainer,
        target_port: int,
    ) -> tuple[int, int]:
        """Accept connections on an address; each one is connected to a port of *target*.

        Args:
            start: The sandbox in whose network the address is; ``None`` for this machine.
            host: A loopback address, such as ``127.0.0.1``.
            port: The port; 0 for any.
            target: The sandbox to connect to, on its loopback.
            target_port: Its port.

        Returns:
            The number of the listener, and its port.

        Raises:
            UsageError: If the port is taken, or needs a privilege.
            SandboxError: If a sandbox has ended, or the program failed.
        """
        request: dict[str, object] = {
            "do": "listen",
            "host": host,
            "port": port,
            "to": target.pid,
            "to_port": target_port,
        }
        if start is not None:
            request["from"] = start.pid
        answer = self._request(request)
        if answer.get("errno") in (errno.EADDRINUSE, errno.EACCES):
            raise UsageError(
                f"port {port} of {host} cannot be used: {answer['text']}", hint="Use another port."
            )
        if "errno" in answer:
            raise SandboxError(f"a service cannot be reached on port {port}: {answer['text']}")
        # The sandboxes still run, so the process ids were not those of other processes.
        if not all(each.is_running for each in (start, target) if each is not None):
            self.close(int(answer["id"]))
            raise SandboxError("a service cannot be reached: its sandbox has ended")
        return int(answer["id"]), int(answer["port"])

    def close(self, listener: int) -> None:
        """End a listener with its connections; does nothing if the program has ended."""
        if self.pid is not None:
            self._request({"do": "close", "id": listener})

    def end(self) -> None:
        """End the program with all listeners. May be called again."""
        with self._lock:
            program, self._running = self._running, None
        if program is not None:
            program.end()

    def _request(self, request: dict[str, object]) -> dict[str, Any]:
        with self._lock:
            if self._running is None or not self._running.is_running:
                self._running = _started()
            program = self._running
            try:
                program.channel.send(json.dumps(request).encode())
                packet = program.channel.recv(_MAX_BYTES)
                if packet:
                    return json.loads(packet)
                why = "it ended"
            except (OSError, ValueError) as error:
                why = str(error)
            except BaseException:
                self._running = None  # an answer that was not read would be taken for the next one
                program.end()
                raise
            self._running = None
            program.end()
        raise SandboxError(f"the program that carries connections to services failed: {why}")


def _started() -> Companion:
    try:
        program = Companion(lambda channel: [str(_PROGRAM), str(channel)])
    except OSError as error:
        raise SandboxError(
            f"the program that carries connections to services cannot be started: {error}"
        ) from error
    program.channel.settimeout(_TIMEOUT_S)
    return program
