"""openai-agents: its local sandbox, alone or with its snapshot of the workspace around each call.

It takes a snapshot when a session stops, and restores it when the session is resumed, not for each
call. With ``snapshots``, ``stop`` runs before each call, and ``client.resume`` reverts a failed
one: this is its nearest equivalent of a transaction. In both modes the runner, with its turns and
its traces, is left out, which favours it.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Coroutine
from pathlib import Path
from time import perf_counter
from typing import Any

from agents.editor import ApplyPatchOperation
from agents.sandbox import LocalSnapshotSpec, Manifest
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from protocol import COMMAND, EDITS, FILE, TAKEN_BACK, serve


class OpenAIAgents:
    def __init__(self, *, snapshots: bool) -> None:
        self.snapshots = snapshots
        self.runner = asyncio.Runner()
        self.client = UnixLocalSandboxClient()

    def start(self, root: Path) -> None:
        self.root = root
        self._run(self._start(root.parent / "snapshots"))

    def path(self, name: str) -> Path:
        return self.root / name

    def write(self, text: str) -> float:
        return self._timed(self._write(text))

    def write_and_fail(self) -> float:
        return self._timed(self._write_and_fail())

    def edit_twice(self) -> int:
        return self._run(self._edit_twice())

    def undo_command(self) -> float | str:
        if not self.snapshots:
            return "there is none without a snapshot"
        self._run(self.session.stop())
        self._run(self.session.exec(COMMAND))
        return self._timed(self._go_back())

    async def _start(self, snapshots: Path) -> None:
        self.session = await self.client.create(
            manifest=Manifest(root=str(self.root)), snapshot=LocalSnapshotSpec(base_path=snapshots)
        )
        await self.session.start()

    async def _write(self, text: str) -> None:
        if self.snapshots:
            await self.session.stop()
        await self.session.write(Path(FILE), io.BytesIO(text.encode()))

    async def _write_and_fail(self) -> None:
        await self._write(TAKEN_BACK)
        if self.snapshots:
            await self._go_back()

    async def _go_back(self) -> None:
        self.session = await self.client.resume(self.session.state)
        await self.session.start()

    async def _edit_twice(self) -> int:
        if self.snapshots:
            await self.session.stop()
        edits = [self.session.apply_patch(_patch(old, new)) for old, new in EDITS]
        results = await asyncio.gather(*edits, return_exceptions=True)
        return sum(not isinstance(result, BaseException) for result in results)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def _timed(self, work: Coroutine[Any, Any, None]) -> float:
        start = perf_counter()
        self._run(work)
        return perf_counter() - start


def _patch(old: str, new: str) -> ApplyPatchOperation:
    return ApplyPatchOperation(type="update_file", path=FILE, diff=f"@@\n-{old}\n+{new}\n")


if __name__ == "__main__":
    serve(OpenAIAgents(snapshots="snapshots" in sys.argv))
