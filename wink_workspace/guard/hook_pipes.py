"""How hooks reach the guard process: files and named pipes in a directory of mode 0700.

A hook must start in a millisecond, where Python takes thirty and other clients may be missing. So
it is a script of ``sh`` that writes its event to a file, rings the pipe ``bell``,
and reads one line from a pipe of its own::

    <state>/guard/
        hook            the script
        pid             of the guard process that answers
        owner           locked while a guard process lives
        bell            a pipe with a byte for each event
        N.PROGRAM.event what the program gave to its hook
        N.answer        a pipe for the answer

Rule 1: a script that finds no process starts one, which finds the event by itself.
Rule 2: a process that is about to end deletes ``pid`` first, and then looks for events once more.
Rule 3: files of another user are not read.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shlex
import stat
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from wink_workspace.errors import UsageError

_SCRIPT: Final = """\
#!/bin/sh
# Written by `wink-workspace guard`. Reports an event of an agent program, and prints the answer.
cd {directory} 2>/dev/null || exit 0
n=$$
[ ! -e "$n.answer" ] || rm -f "$n.answer"
mkfifo -m 600 "$n.answer" && cat >"$n.new" && mv "$n.new" "$n.$1.event" || exit 0
exec 3<>"$n.answer"
unset PYTHONPATH PYTHONHOME
pid=
read -r pid 2>/dev/null <pid
line=
read -r line 2>/dev/null <"/proc/${{pid:-x}}/cmdline"
case $line in
*guard_process*) ;;
*) {python} -m wink_workspace.guard.guard_process {directory} >/dev/null 2>&1 3>&- & ;;
esac
echo 1<>bell
read -r answer <&3
printf '%s' "$answer"
"""
_MOST_EVENT_BYTES: Final = 67_108_864
_BELL_BYTES: Final = 4_096
_LOOK_S: Final = 0.05
_MOST_LOOKS: Final = 200


@dataclass(frozen=True, slots=True)
class HookEvent:
    """What a hook reported, and where it waits for the answer."""

    program: str
    fields: dict[str, Any]
    answer: Path


class HookPipes:
    """The directory; ``prepare`` makes it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bell = -1

    @property
    def script(self) -> Path:
        """The script that hooks run, with the name of the program as its argument."""
        return self.directory / "hook"

    def prepare(self) -> None:
        """Make the directory, the bell and the script, or write the script again."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        with suppress(FileExistsError):
            os.mkfifo(self.directory / "bell", 0o600)
        text = _SCRIPT.format(
            directory=shlex.quote(str(self.directory)), python=shlex.quote(sys.executable)
        )
        new = self.script.with_name("hook.new")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o700)
        new.replace(self.script)

    # The process

    @contextmanager
    def owned(self) -> Generator[bool]:
        """Be the process that answers, inside the block; false if there is one already.

        One that is about to end is waited for: it may have missed the last event.
        """
        file = os.open(self.directory / "owner", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not self._became_owner(file):
                yield False
                return
            self.bell = os.open(self.directory / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self.announce()
            yield True
            self.withdraw()
            os.close(self.bell)
        finally:
            os.close(file)

    def _became_owner(self, file: int) -> bool:
        for _ in range(_MOST_LOOKS):
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if (self.directory / "pid").exists():
                return False
            threading.Event().wait(_LOOK_S)
        return False

    def announce(self) -> None:
        """Let scripts know this process."""
        (self.directory / "pid").write_text(f"{os.getpid()}\n", encoding="ascii")

    def withdraw(self) -> None:
        """Let the next script start another process."""
        (self.directory / "pid").unlink(missing_ok=True)

    def waiting(self, timeout_s: float) -> list[HookEvent]:
        """The events that arrive next, or have arrived; none after *timeout_s*."""
        if select.select([self.bell], [], [], timeout_s)[0]:
            with suppress(BlockingIOError):
                os.read(self.bell, _BELL_BYTES)
        return self.arrived()

    def arrived(self) -> list[HookEvent]:
        """The events whose files are complete, oldest first."""
        paths = [*self.directory.glob("*.event")]
        found: list[tuple[int, HookEvent]] = []
        for path in paths:
            event = self._read(path)
            if event is not None:
                found.append(event)
        return [event for _, event in sorted(found, key=lambda each: each[0])]

    def _read(self, path: Path) -> tuple[int, HookEvent] | None:
        number, program = path.stem.partition(".")[::2]
        answer = path.with_name(f"{number}.answer")
        try:
            status = path.lstat()
            if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
                return None
            with path.open("rb") as file:
                fields: object = json.loads(file.read(_MOST_EVENT_BYTES))
            path.unlink()
        except (OSError, ValueError, RecursionError):
            with suppress(OSError):
                path.unlink()
            reply(answer, {})
            return None
        if not isinstance(fields, dict):
            reply(answer, {})
            return None
        return status.st_mtime_ns, HookEvent(program, fields, answer)  # pyright: ignore[reportUnknownArgumentType] - JSON


def reply(answer: Path, value: object) -> None:
    """Answer the hook that waits at *answer*; one that waits no longer is ignored."""
    with suppress(OSError):
        pipe = os.open(answer, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(pipe, (json.dumps(value) + "\n").encode())
        finally:
            os.close(pipe)
    with suppress(OSError):
        answer.unlink()


def ask(directory: Path, fields: dict[str, Any], *, timeout_s: float = 5.0) -> object:
    """Ask a running guard process; ``None`` if there is none, or if it does not answer in time.

    Raises:
        UsageError: If *directory* cannot be written.
    """
    try:
        pid = int((directory / "pid").read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    answer = directory / f"{os.getpid()}.answer"
    try:
        os.mkfifo(answer, 0o600)
        pipe = os.open(answer, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        new = answer.with_suffix(".new")
        new.write_text(json.dumps(fields), encoding="utf-8")
        new.replace(answer.with_suffix(".guard.event"))
        bell = os.open(directory / "bell", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(bell, b"\n")
        os.close(bell)
    except OSError as error:
        raise UsageError(
            f"the guard process cannot be asked: {error}", hint=f"Check the rights of {directory}."
        ) from error
    try:
        if not select.select([pipe], [], [], timeout_s)[0]:
            return None
        return json.loads(os.read(pipe, _BELL_BYTES))
    finally:
        os.close(pipe)
        answer.unlink(missing_ok=True)
