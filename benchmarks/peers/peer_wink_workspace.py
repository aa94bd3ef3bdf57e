"""wink_workspace: the file tools of a workspace on disk, called as in a run.

The time of a call has everything: arguments parsed, policies checked, handler, diff, session,
record, commit. Commands run in the Podman sandbox, and are not measured without it.
"""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from time import sleep

from protocol import COMMAND, EDITS, FILE, TAKEN_BACK, n_succeeded, serve, timed

from wink_workspace import PodmanSandboxSection, Prompt, ScriptedAdapter, ToolCall, ToolExecutor
from wink_workspace.errors import SandboxError
from wink_workspace.prompt import MarkdownSection, Tool, ToolContext, ToolResult
from wink_workspace.runtime import CallOutcome
from wink_workspace.workspace import Workspace, WorkspaceStorage

RACILY_CLEAN_S = 2.1  # until then a file is racily clean, and each read hashes it


def write_and_fail(params: None, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write_text(FILE, TAKEN_BACK)
    return ToolResult.error("this always fails")


FAILING = Tool[None, None](name="write_and_fail", description="Fail.", handler=write_and_fail)


class WinkWorkspace:
    def start(self, root: Path) -> None:
        self.numbers = count(1)
        storage = WorkspaceStorage(Path(tempfile.mkdtemp(dir=root.parent)))
        self.workspace = Workspace.create(root, storage=storage)
        own = MarkdownSection(title="Own", template="Own tools.", tools=(FAILING,))
        prompt = Prompt(ns="bench", key="peers", sections=[own, PodmanSandboxSection()])
        prompt.bind(resources=self.workspace.resources)
        prompt.resources.__enter__()
        prompt.install(self.workspace.session)
        self.executor = ToolExecutor(
            prompt=prompt,
            rendered_prompt=prompt.render(session=self.workspace.session),
            adapter=ScriptedAdapter(()),
            session=self.workspace.session,
        )
        sleep(RACILY_CLEAN_S)
        self._call("read_file", file_path=FILE)

    def path(self, name: str) -> Path:
        return self.workspace.files_path / name

    def write(self, text: str) -> float:
        return timed(lambda: self._succeed("write_file", file_path=FILE, content=text))

    def write_and_fail(self) -> float:
        return timed(lambda: self._call("write_and_fail"))

    def edit_twice(self) -> int:
        return n_succeeded([lambda old=old, new=new: self._edit(old, new) for old, new in EDITS])

    def undo_command(self) -> float | str:
        try:
            self.workspace.sandbox()
        except SandboxError as error:
            return f"commands need Podman and its images: {error}"
        self._succeed("shell_execute", command=COMMAND)
        seconds = timed(self.workspace.undo)
        self._call("read_file", file_path=FILE)
        return seconds

    def _edit(self, old: str, new: str) -> bool:
        edit = {"old_string": old, "new_string": new}
        return self._call("edit_file", file_path=FILE, **edit).result.success

    def _succeed(self, name: str, **arguments: object) -> None:
        outcome = self._call(name, **arguments)
        assert outcome.result.success, outcome.text

    def _call(self, name: str, **arguments: object) -> CallOutcome:
        return self.executor.execute(ToolCall.of(name, arguments, id=f"c{next(self.numbers)}"))


if __name__ == "__main__":
    serve(WinkWorkspace())
