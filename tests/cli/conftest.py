from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_user import CliUser


@pytest.fixture
def user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliUser]:
    user = CliUser(tmp_path, capsys, monkeypatch)
    yield user
    user.close()
