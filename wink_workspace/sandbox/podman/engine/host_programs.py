"""The programs of this machine that build images: ``podman``, ``apt-get``, ``mmdebstrap``, ``cp``.

They get the caller's variables, so each uses the mirrors, proxies and certificates that it is
configured for. They start in ``/``, and none gets a shell.
"""

from __future__ import annotations

import codecs
import io
import os
import selectors
import shutil
import subprocess  # noqa: TID251 - the engine's own command builds images
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.system_packages import install_hint

from .engine_conf import EngineSettings

Progress = Callable[[str], None]
"""Is called with each line that a build prints."""

_LONGEST_BUILD_S = 1_800
_LONGEST_QUERY_S = 60
_CLEANUP_S = 30
"""How long a program may clean up after SIGTERM before it is killed."""
_READ_BYTES: Final = 65_536
_LAST_LINES: Final = 12
_PERMISSION_MESSAGES: Final = (
    "chroot mode",
    "unshare",
    "uidmap",
    "subuid",
    "need to be root",
    "permitted",
)
_PERMISSION_HINT: Final = (
    "Build as root with all privileges, or as an ordinary user with `newuidmap` (package uidmap),"
    " lines in /etc/subuid and /etc/subgid, and user namespaces; `wink-workspace doctor`"
    " reports which of these is missing. Or start from a public image:"
    " `wink-workspace image build python --base debian:bookworm-slim`."
)
_BUILD_HINT: Final = (
    "Fix the reported error and build again, or start from a public image:"
    " `wink-workspace image build python --base debian:bookworm-slim`."
)
_TIMEOUT_HINT: Final = (
    "See which step its last output names. Check that the package mirrors and registries answer,"
    " then build again."
)


class Programs:
    """Runs the programs that the ``PATH`` of *environment* has."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment

    def find(self, name: str) -> str | None:
        """The path of a program; ``None`` if it is not installed."""
        return shutil.which(name, path=self.environment.variables.get("PATH", os.defpath))

    def podman(self, *arguments: str, progress: Progress | None = None) -> str:
        """Run ``podman`` with our settings; raises as ``run``, or if it is not installed."""
        podman = self.find("podman")
        if podman is None:
            raise SandboxUnavailableError(
                "there is no podman on the PATH", hint=install_hint("podman")
            )
        with tempfile.TemporaryDirectory() as folder:
            path = self.environment.variables.get("PATH", "")
            conf = EngineSettings.for_this_machine(path=path).write(Path(folder))
            return self.run(
                [podman, *arguments], progress=progress, more={"CONTAINERS_CONF": str(conf)}
            )

    def run(
        self,
        command: Sequence[str],
        *,
        progress: Progress | None = None,
        more: Mapping[str, str] | None = None,
    ) -> str:
        """Run a program to its end; returns its output.

        Args:
            command: The program's path and its arguments.
            progress: Is called with each line of both streams. A program without it gets one
                minute and returns its standard output; otherwise it may take half an hour.
            more: Variables in addition to the caller's.

        Raises:
            SandboxUnavailableError: If it fails, or takes longer than that and is ended; the
                message ends with its last output.
        """
        with subprocess.Popen(  # noqa: S603 - found on the caller's own PATH; no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if progress else subprocess.PIPE,
            env={**self.environment.variables, **(more or {})},
            cwd="/",
            text=True,
            errors="replace",
        ) as process:
            if progress is None:
                return _answer(process, command)
            return _watched(process, command, progress)


def _answer(process: subprocess.Popen[str], command: Sequence[str]) -> str:
    try:
        out, err = process.communicate(timeout=_LONGEST_QUERY_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise _failed(command, ["it did not answer"]) from error
    if process.returncode:
        raise _failed(command, err.splitlines())
    return out


def _watched(process: subprocess.Popen[str], command: Sequence[str], progress: Progress) -> str:
    lines: list[str] = []
    until_s = SYSTEM_CLOCK.monotonic_s() + _LONGEST_BUILD_S
    try:
        for line in _lines(process, until_s):
            lines.append(line)
            progress(line)
        process.wait(timeout=max(0.0, until_s - SYSTEM_CLOCK.monotonic_s()))
    except subprocess.TimeoutExpired as error:
        _end(process)
        late = f"it was ended because it took longer than {_LONGEST_BUILD_S / 60:g} minutes"
        raise _failed(command, [*lines, late], hint=_TIMEOUT_HINT) from error
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        raise _failed(command, lines)
    return "\n".join(lines)


def _lines(process: subprocess.Popen[str], until_s: float) -> Generator[str]:
    """The lines of the output as they arrive; ``TimeoutExpired`` if it is still open at *until_s*.

    A read from ``process.stdout`` would have no time limit. Ending the program is not enough to
    end such a read, because a program that it started may keep the output open.
    """
    output = process.stdout
    assert isinstance(output, io.TextIOWrapper)  # noqa: S101 - a pipe, opened as text
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(output.encoding)("replace"), translate=True
    )
    unfinished = ""
    with selectors.DefaultSelector() as selector:
        selector.register(output.fileno(), selectors.EVENT_READ)
        while True:
            left_s = until_s - SYSTEM_CLOCK.monotonic_s()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(process.args, _LONGEST_BUILD_S)
            if not selector.select(left_s):
                continue
            data = os.read(output.fileno(), _READ_BYTES)
            *lines, unfinished = (unfinished + decoder.decode(data, final=not data)).split("\n")
            yield from lines
            if not data:
                break
    if unfinished:
        yield unfinished


def _end(process: subprocess.Popen[str]) -> None:
    """Let the program clean up after itself, as mmdebstrap and podman do, but not without limit."""
    process.terminate()
    try:
        process.wait(timeout=_CLEANUP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _failed(
    command: Sequence[str], lines: Sequence[str], *, hint: str | None = None
) -> SandboxUnavailableError:
    output = "; ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip())
    program = Path(command[0]).name
    if program != "mmdebstrap":
        return SandboxUnavailableError(f"{program} {command[1]} failed: {output}", hint=hint)
    is_not_permitted = any(word in output.casefold() for word in _PERMISSION_MESSAGES)
    why = " for lack of permissions" if is_not_permitted else ""
    return SandboxUnavailableError(
        f"the root filesystem cannot be made{why}; mmdebstrap printed: {output}",
        hint=hint or (_PERMISSION_HINT if is_not_permitted else _BUILD_HINT),
    )
