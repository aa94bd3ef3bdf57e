"""A simulated agent: it reports its calls by the script that the hooks of real programs run."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wink_workspace.guard.guarded_project import GuardedProject
from wink_workspace.guard.hook_pipes import HookPipes, ask
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": os.environ["PATH"],
    **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(directory: Path, *arguments: str) -> str:
    """The output of a git command."""
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=directory, env=GIT, check=True, capture_output=True, text=True
    ).stdout


def repository(directory: Path, files: Mapping[str, bytes]) -> Path:
    """A repository with *files* committed, in ``directory/source``."""
    source = directory / "source"
    for name, content in files.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    for command in ("init -q -b main", "add -A", "commit -q -m start"):
        git(source, *command.split())
    return source


class Agent:
    """One conversation in ``directory/source``."""

    def __init__(
        self, directory: Path, *, program: str = "claude-code", session: str = "s1"
    ) -> None:
        self.source = directory / "source"
        self.state = directory / "state"
        self.program, self.session = program, session
        self.storage = WorkspaceStorage(self.state)
        self.pipes = HookPipes(self.state / "guard")
        self._numbers = iter(range(1_000_000))

    def guarded(self) -> None:
        """Record the project, as ``wink-workspace guard`` does."""
        self.pipes.prepare()
        project = GuardedProject(self.storage, self.source)
        _ = project.workspace
        project.release()

    def report(self, event: str, **fields: Any) -> str:
        """Run the hook; what it prints."""
        given = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.source)}
        done = subprocess.run(
            ["/bin/sh", str(self.pipes.script), self.program],
            input=json.dumps(given | fields),
            text=True,
            capture_output=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    def begin(self, tool: str, **params: Any) -> dict[str, Any]:
        call = {
            "tool_name": tool, "tool_input": params,
            "tool_use_id": f"{self.session}-{next(self._numbers)}",
        }  # fmt: skip
        self.report("PreToolUse", **call)
        return call

    def end(self, call: dict[str, Any], **more: Any) -> None:
        self.report("PostToolUse", **call, tool_response={"done": True}, **more)

    def call(self, work: Callable[[], object], tool: str = "Bash", **params: Any) -> None:
        call = self.begin(tool, **params)
        work()
        self.end(call)

    def edit(self, name: str, text: str) -> None:
        path = self.source / name

        def work() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        self.call(work, "Write", file_path=str(path))

    def shell(self, command: str) -> None:
        self.call(
            lambda: subprocess.run(["sh", "-c", command], cwd=self.source, check=True),
            command=command,
        )

    @contextmanager
    def conversation(self) -> Iterator[Agent]:
        self.report("SessionStart", source="startup")
        try:
            yield self
        finally:
            self.report("SessionEnd", reason="exit")

    # Looking

    def process_id(self) -> int | None:
        try:
            return int((self.pipes.directory / "pid").read_text())
        except (OSError, ValueError):
            return None

    def wait_for_end(self) -> None:
        until = time.monotonic() + 20
        while self.process_id() is not None:
            assert time.monotonic() < until, "the guard process did not end"
            time.sleep(0.02)

    def reader(self) -> WorkspaceReader:
        (info,) = self.storage.all()
        return WorkspaceReader(self.storage.folder(info.id))

    def entries(self) -> list[tuple[str, list[str]]]:
        """Each entry, oldest first: its kind or tool, and the files that it changed."""
        with self.reader() as reader:
            return [
                (each.tool or str(each.kind), [str(at.path) for at in reader.changes_of(each)])
                for each in reversed([*reader.log()])
            ][1:]

    def opened(self) -> Workspace:
        """The workspace, as a command of the user opens it."""
        ask(self.pipes.directory, {"release": True})
        (info,) = self.storage.all()
        return Workspace.open(info.id, storage=self.storage)
