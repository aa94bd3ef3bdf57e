"""A process that writes to one branch of a workspace: ``branch_writer.py STORAGE ID BRANCH BUDGET CALLS``.

Each call writes 200,000 bytes of noise. ``CALLS`` is their number, or 0 to write until the input
ends.
"""

from __future__ import annotations

import random
import select
import sys
from pathlib import Path

from wink_workspace.ledger import Retention
from wink_workspace.workspace import Workspace, WorkspaceConfig, WorkspaceStorage

NOISE_BYTES = 200_000


def main(storage: str, workspace_id: str, branch: str, budget_bytes: int, n_calls: int) -> None:
    config = WorkspaceConfig(retention=Retention(budget_bytes=budget_bytes))
    noise = random.Random(branch)
    with Workspace.open(
        workspace_id, branch=branch, storage=WorkspaceStorage(Path(storage)), config=config
    ) as workspace:
        n = 0
        while n < n_calls or (not n_calls and not select.select([0], [], [], 0)[0]):
            content = noise.randbytes(NOISE_BYTES)
            n += 1
            with workspace.call("write", params={"n": n}) as call:
                call.files.write_bytes(f"{n % 3}.bin", content)
                call.result("written")
        assert workspace.files.read_bytes(f"{n % 3}.bin") == content
        print(n)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
