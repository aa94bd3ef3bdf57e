from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_desk import Desk


@pytest.fixture
def user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    user = Desk(tmp_path, capsys, monkeypatch)
    yield user
    user.close()
