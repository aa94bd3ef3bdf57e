"""A process that runs attempts on a cluster, or continues them: STATE ADDRESS CACHE."""

from __future__ import annotations

import sys
from pathlib import Path

import attempt_functions as do
from ray_cluster import set_variables

from wink_workspace.attempts import Attempts, RayEngine
from wink_workspace.workspace import Workspace, WorkspaceStorage


def main(state: str, address: str, cache: str) -> None:
    """Run 8 attempts; a line for each that ends."""
    set_variables()
    storage = WorkspaceStorage(Path(state))
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        runs = Attempts.run_ids(workspace)
        engine = RayEngine(address=address, cache=cache, progress_s=0, stop_s=5)
        if runs:
            attempts = Attempts.open(workspace, runs[0], engine=engine, lease_s=20)
        else:
            attempts = Attempts(workspace, n=8, seed=3, engine=engine, lease_s=20)
        print("ready", flush=True)
        for result in attempts.run(do.solve, score=do.tests_pass):
            print(result.number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
