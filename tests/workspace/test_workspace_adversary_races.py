"""Two processes use the same workspace, and one of them removes it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from workspace_support import created

from wink_workspace.errors import LedgerError
from wink_workspace.ledger import Ledger


def test_workspace_deleted_while_it_is_opened_is_not_created_again(
    tmp_path: Path,
) -> None:
    """Its folder would have only two lock files, and would never be deleted."""
    with created(tmp_path, {"a.txt": "a\n"}) as workspace:
        folder = workspace._folder
    with Ledger(folder.ledger) as ledger:
        shutil.rmtree(folder.path)  # like `rm` in another process, at the worst moment
        with pytest.raises(LedgerError, match="No such file"):
            ledger.write()
    assert not folder.path.exists()
