"""A process that runs the attempts of a workspace, or continues them: coordinator.py STATE [RUN]."""

from __future__ import annotations

import sys
from pathlib import Path

import attempt_functions as do

from wink_workspace.attempts import Attempts, LocalEngine
from wink_workspace.workspace import Workspace, WorkspaceStorage


def main(state: str) -> None:
    """Run 8 attempts; a line for each that ends."""
    storage = WorkspaceStorage(Path(state))
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        runs = Attempts.run_ids(workspace)
        engine = LocalEngine(workers=2)
        if runs:
            attempts = Attempts.open(workspace, runs[0], engine=engine)
        else:
            attempts = Attempts(workspace, n=8, seed=3, engine=engine)
        print("ready", flush=True)
        for result in attempts.run(do.solve, score=do.tests_pass):
            print(result.number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
