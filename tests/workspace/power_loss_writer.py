"""Works in a workspace on a disk whose power goes; stops itself (SIGSTOP) at many instants.

Arguments: the disk, the mode of the workspace, ``durable`` or ``default``, the first instant to
stop at, and how many follow before the next. A line of JSON on stdout acknowledges each step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import wink_workspace.ledger.store.open_packs
from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.ledger import Retention
from wink_workspace.workspace import (
    Workspace,
    WorkspaceConfig,
    WorkspaceStorage,
    export_workspace,
    import_workspace,
)

NAMES = ("a", "b", "c")
N_ROUNDS = 3


def content(name: str, n: int) -> bytes:
    """The content of a file after step *n*; all of it is known from its first line."""
    return f"{name} {n}\n".encode() * 300


class Stops:
    """Stops this process at instants."""

    def __init__(self, first: int, every: int) -> None:
        self._left, self._every = first, every
        self.n_instants = 0

    def __call__(self, point: KillPoint | None = None) -> None:
        self.n_instants += 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            self._left = self._every
        self._left -= 1


class Writer:
    """The steps."""

    def __init__(self, disk: Path, mode: str, *, durable: bool, stop: Stops) -> None:
        self._disk, self._mode, self._stop = disk, mode, stop
        self._storage = WorkspaceStorage(disk / "state")
        retention = Retention(budget_bytes=300_000)
        self._config = WorkspaceConfig(durable=durable, retention=retention)
        self._n = 0

    def acknowledge(self, what: str, workspace: Workspace | None = None) -> None:
        head = None if workspace is None else workspace.head.number
        print(json.dumps({"what": what, "head": head, "n": self._n}), flush=True)
        self._stop()

    def call(self, workspace: Workspace) -> None:
        self._n += 1
        with workspace.call("step") as call:
            for name in NAMES:
                workspace.files.write_bytes(name, content(name, self._n))
            workspace.files.write_bytes(f"new-{self._n}", content("new", self._n))
            call.result("ok")
        self.acknowledge("call", workspace)

    def run(self) -> None:
        self.acknowledge("begun")
        workspace = Workspace.create(
            self._disk / "source", storage=self._storage, mode=self._mode, config=self._config
        )
        self.acknowledge("created", workspace)
        which = workspace.info.id
        for n in range(N_ROUNDS):
            for _ in range(3):
                self.call(workspace)
            workspace.undo()
            self.acknowledge("call", workspace)
            with suppress(ZeroDivisionError), workspace.call("step"):
                workspace.files.write_bytes("a", content("a", 1500))
                raise ZeroDivisionError
            self.acknowledge("call", workspace)
            self.call(workspace)
            if self._mode != "in_place":
                workspace.fork(f"fork-{n}")
                self.acknowledge("forked")
                with workspace.branches.open(f"fork-{n}") as fork:
                    with fork.call("step") as call:
                        fork.files.write_bytes("a", content("a", 1000 + n))
                        call.result("ok")
                workspace.apply()
                self.acknowledge("applied")
            workspace.close()
            self.acknowledge("closed", workspace)
            if self._mode != "in_place":
                bundle = self._disk / f"bundle-{n}"
                export_workspace(which, bundle, storage=self._storage)
                import_workspace(bundle, storage=self._storage)
                self.acknowledge("imported")
            workspace = Workspace.open(which, storage=self._storage, config=self._config)
            self.call(workspace)
            workspace.maintain()
            self.acknowledge("call", workspace)
        workspace.close()
        self.acknowledge("closed", workspace)


def main() -> None:
    disk, mode, durability, first, every = sys.argv[1:]
    wink_workspace.ledger.store.open_packs._MAX_OBJECTS = 40  # sealed between calls, too
    stop = Stops(int(first), int(every))
    with calling(stop):
        Writer(Path(disk), mode, durable=durability == "durable", stop=stop).run()
    print(json.dumps({"what": "ended", "n": stop.n_instants}), flush=True)


if __name__ == "__main__":
    main()
