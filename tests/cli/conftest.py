from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_rig import RunRig


@pytest.fixture
def user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunRig]:
    user = RunRig(tmp_path, capsys, monkeypatch)
    yield user
    user.close()
