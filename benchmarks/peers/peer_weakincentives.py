"""weakincentives: handlers inside its public ``tool_transaction``, over its ``HostFilesystem``.

Its own loops need the program of a model's vendor, which would run the tools. So this script does
the steps of a call as documented: the transaction, the handler, the ``ToolInvoked`` event. It
neither parses arguments nor checks policies, which favours it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from protocol import COMMAND, EDITS, FILE, TAKEN_BACK, n_succeeded, serve, timed
from weakincentives.filesystem import Filesystem, HostFilesystem
from weakincentives.prompt import MarkdownSection, Prompt, PromptTemplate, ToolResult
from weakincentives.runtime import (
    InProcessDispatcher,
    Session,
    ToolInvoked,
    create_snapshot,
    restore_snapshot,
    tool_transaction,
)


class WeakIncentives:
    def start(self, root: Path) -> None:
        self.root = root
        self.files = HostFilesystem(str(root))
        self.session = Session(dispatcher=InProcessDispatcher())
        section = MarkdownSection(title="Own", key="own", template="Own tools.")
        prompt = Prompt(PromptTemplate(ns="bench", key="peers", sections=[section]))
        prompt.bind(resources={Filesystem: self.files})
        prompt.resources.__enter__()
        self.resources = prompt.resources.context

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, text: str) -> float:
        return timed(lambda: self._call("write", lambda: self._written(text)))

    def write_and_fail(self) -> float:
        def handler() -> ToolResult[None]:
            self.files.write(FILE, TAKEN_BACK)
            return ToolResult.error("this always fails")

        return timed(lambda: self._call("write_and_fail", handler))

    def edit_twice(self) -> int:
        return n_succeeded([lambda old=old, new=new: self._edit(old, new) for old, new in EDITS])

    def undo_command(self) -> float:
        snapshot = create_snapshot(self.session, self.resources)
        subprocess.run(["/bin/sh", "-c", COMMAND], cwd=self.root, check=True)
        return timed(lambda: restore_snapshot(self.session, self.resources, snapshot))

    def _written(self, text: str) -> ToolResult[None]:
        self.files.write(FILE, text)
        return ToolResult.ok(None, message="written")

    def _edit(self, old: str, new: str) -> bool:
        def handler() -> ToolResult[None]:
            return self._written(self.files.read(FILE).content.replace(old, new))

        return self._call("edit", handler).success

    def _call(self, name: str, handler: Callable[[], ToolResult[None]]) -> ToolResult[None]:
        with tool_transaction(self.session, self.resources, tag=name) as snapshot:
            result = handler()
            if not result.success:
                restore_snapshot(self.session, self.resources, snapshot)
        self.session.dispatcher.dispatch(
            ToolInvoked(
                prompt_name="peers",
                adapter="bench",
                name=name,
                params=None,
                result=result,
                session_id=self.session.session_id,
                created_at=datetime.now(UTC),
            )
        )
        return result


if __name__ == "__main__":
    serve(WeakIncentives())
