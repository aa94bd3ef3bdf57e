"""Which programs a command and its children start, where and with which input; observed by strace."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_FORKS = ("clone", "clone3", "fork", "vfork")
_STARTS = ("execve", "execveat")
_CALLS = ",".join((*_FORKS, *_STARTS, "chdir", "fchdir", "dup2", "dup3"))
_UNFINISHED = " <unfinished ...>"
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+)(?: /\* (\d+) in strace)?")


@dataclass(frozen=True)
class Started:
    """An attempt to start a program: its path, the call as strace shows it, and the directory.

    ``input`` is the file that was made its standard input, if that was done for this process.
    """

    path: str
    call: str
    directory: str
    input: str | None


def programs_of(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path
) -> list[Started]:
    """Run a command that must succeed; returns what is started outside of containers."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    options = (
        "-f",
        "-y",
        "-s",
        "4096",
        "--seccomp-bpf",
        "--pidns-translation",
        "-o",
        str(log),
        f"-etrace={_CALLS}",
    )
    done = subprocess.run(
        [strace, *options, *command], cwd=cwd, env=dict(env), capture_output=True, timeout=300
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-3_000:]
    return list(_started(log.read_text("utf-8", "replace").splitlines(), str(cwd)))


def _started(lines: Sequence[str], cwd: str) -> Iterator[Started]:
    calls = list(_calls(lines))
    parents = {number: pid for _, pid, name, _, number in calls if name in _FORKS and number > 0}

    def latest(pid: int, at: int, name: str, text: str) -> str | None:
        """The arguments of the last such call before line *at* in a process or its ancestors."""
        while True:
            for line, each, called, arguments, result in reversed(calls):
                is_earlier = line < at and each == pid and result == 0
                if is_earlier and called in name.split() and text in arguments:
                    return arguments
            if pid not in parents:
                return None
            pid = parents[pid]

    for line, pid, name, arguments, _ in calls:
        if name in _STARTS and latest(pid, line, " ".join(_STARTS), '"init"]') is None:
            changed = latest(pid, line, "chdir fchdir", "")
            directory = cwd if changed is None else re.sub(r'^\d+<|[>"]', "", changed)
            given = latest(pid, line, "dup2 dup3", ">, 0")
            path = arguments.split('"')[1] or arguments.partition("<")[2].partition(">")[0]
            yield Started(path, arguments, directory, given)


def _calls(lines: Sequence[str]) -> Iterator[tuple[int, int, str, str, int]]:
    """The line, process, name, arguments and result of each call, in the order of their begins."""
    begun: dict[str, tuple[int, str]] = {}
    found: list[tuple[int, int, str, str, int]] = []
    for number, each in enumerate(lines):
        pid, _, text = each.partition(" ")
        text = text.strip()
        if text.endswith(_UNFINISHED):
            begun[pid] = (number, text.removesuffix(_UNFINISHED))
            continue
        line = number
        if text.startswith("<... "):
            line, first = begun.pop(pid, (number, ""))
            text = first + text.partition(" resumed>")[2]
        if call := _CALL.match(text):
            found.append((line, int(pid), call[1], call[2], int(call[4] or call[3])))
    return iter(sorted(found))
