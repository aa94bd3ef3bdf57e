"""Helpers of the kill tests: the server, workspaces to copy with their expected states, checks."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kill_server import state_of
from overlay_files import close_shown
from workspace_rig import assert_fsck_clean, calls, folder, made, picture, reopened

from wink_workspace.filesystem import FileKind
from wink_workspace.ledger import Discarded, Ledger, file_state, walk
from wink_workspace.session import Outcome

FORMS = ("copy", pytest.param("overlay", marks=pytest.mark.soak))
"""The modes of the workspaces that are killed; ``test_workspace_overlay`` has a few short tests."""


class Server:
    """The process that runs calls in children and kills them; *script* is beside this file."""

    def __init__(self, script: str = "kill_server.py") -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, directory: Path, work: str, kill: object = None) -> int:
        """Run *work*; returns the number of the signal that ended it."""
        assert self._process.stdin
        assert self._process.stdout
        close_shown()  # the child mounts the branch
        request = {"directory": str(directory), "work": work, "kill": kill}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


@dataclass(frozen=True)
class Stage:
    """A workspace to copy, the work to do in it, its states by entry number, and the time it takes."""

    template: Path
    work: str
    states: dict[int, Any]
    passed: dict[str, int]
    seconds: float


def staged(server: Server, template: Path, work: str) -> Stage:
    """Do the work once without a kill."""
    reference = copied(template, template.with_name(template.name + "-reference"))
    with reopened(reference) as workspace, calls(workspace):
        (head,) = workspace.log(limit=1)
        states = {head.number: state_of(workspace, folder(reference).files)}
    copied(template, reference)  # opening it made packs, which the copies to kill do not have
    started = time.perf_counter()
    assert server.run(reference, work) == 0
    seconds = time.perf_counter() - started
    states |= oracle(reference)
    passed = json.loads((reference / "passed").read_text())
    assert len(set(states.values())) > len(states) // 2
    return Stage(template, work, states, passed, seconds)


def staged_calls(server: Server, template: Path, mode: str) -> Stage:
    """A workspace with the *mode*, and the mixed calls as its work."""
    files = {f"d{n}/{n}.txt": b"content\n" for n in range(20)}
    made(template, {"a.txt": b"line\n", "run.sh": b"#!/bin/sh\n", **files}, mode=mode).close()
    return staged(server, template, "calls")


def oracle(directory: Path) -> dict[int, str]:
    """The recorded states, by entry number."""
    path = directory / "oracle"
    lines = path.read_text().splitlines() if path.exists() else []
    return {int(number): state for number, _, state in (line.partition(" ") for line in lines)}


def copied(template: Path, target: Path) -> Path:
    """A copy of a workspace with its source."""
    close_shown()  # perhaps of an earlier copy of the same name
    shutil.rmtree(target, ignore_errors=True)
    # An overlay's own layer has device nodes and attributes, which only the program keeps.
    subprocess.run(["cp", "-a", template, target], check=True)
    copy, source = folder(target), target / "source"
    info = replace(copy.info(), source=str(source))
    if info.mode == "in_place":
        info = replace(info, inode=source.stat().st_ino)
    copy.write_info(info)
    if copy.upper.is_dir():  # makes the base again: its copy is not the checkout that it was
        with reopened(target):
            pass
        close_shown()
    return target


def spread(n: int, times: int) -> list[int]:
    """At most *times* numbers from 1 to *n*, evenly spread, including both ends."""
    return sorted({1 + round(k * (n - 1) / max(1, times - 1)) for k in range(times)})


def kill_times(times: int, *, soak: int) -> pytest.MarkDecorator:
    """Parametrize a test with the number of kills and a seed; in soak it has four seeds more."""
    more = [pytest.param(soak, seed, marks=pytest.mark.soak) for seed in (2, 3, 4, 5)]
    return pytest.mark.parametrize(("times", "seed"), [(times, 1), *more])


def kills_at_random(
    server: Server, stage: Stage, directory: Path, *, times: int, seed: int
) -> Iterator[None]:
    """Yield after each kill at a random time; *directory* has what the kill left."""
    chosen = random.Random(seed)
    for _ in range(times):
        copied(stage.template, directory)
        server.run(directory, stage.work, chosen.uniform(0.0, stage.seconds))
        yield


def assert_recovers(directory: Path, stage: Stage) -> None:
    """The workspace opens in the last recorded state or the next one."""
    interrupted = picture(folder(directory).files)
    last = max(oracle(directory), default=min(stage.states))
    with reopened(directory) as workspace, calls(workspace):
        (head,) = workspace.log(limit=1)
        state = state_of(workspace, folder(directory).files)
    if head.outcome is Outcome.UNKNOWN:
        assert state == stage.states[head.number - 1]
        assert head.number in (last + 1, last + 2)
    else:
        assert state == stage.states[head.number]
        assert head.number in (last, last + 1)
    recovered = picture(folder(directory).files)
    if recovered != interrupted:
        assert content_of(interrupted) in discarded(directory)
    with reopened(directory) as workspace:
        assert next(workspace.log()).id == head.id
    assert picture(folder(directory).files) == recovered
    assert_fsck_clean(folder(directory).ledger)


def content_of(shown: dict[bytes, tuple[str, int, bytes]]) -> dict[bytes, bytes]:
    return {path: content for path, (kind, _, content) in shown.items() if kind == "file"}


def discarded(directory: Path, *reasons: str) -> list[dict[bytes, bytes]]:
    """The contents of the discards with one of *reasons*, by default an interruption."""
    with Ledger(folder(directory).ledger) as ledger:

        def contents(found: Discarded) -> dict[bytes, bytes]:
            kept: dict[bytes, bytes] = {}
            for path, entry in walk(ledger.store, found.files):
                if entry.kind is FileKind.FILE:
                    state = file_state(ledger.store, entry)
                    assert state is not None
                    kept["/".join(path.parts).encode("utf-8", "surrogateescape")] = state.data
            return kept

        wanted = reasons or ("interrupted",)
        return [contents(found) for found in ledger.discarded() if found.reason in wanted]
