"""The generated tables of the documentation are those of the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from wink_workspace.project import KEYS

ROOT = Path(__file__).parents[2]


def test_generated_tables_are_current_and_have_every_key() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "write_reference"), "--check"]
    checked = subprocess.run(script, capture_output=True, text=True)
    assert checked.stdout == checked.stderr == "", "run scripts/write_reference"
    assert checked.returncode == 0
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [
        ".".join(key.path) for key in KEYS.values() if f"| `{'.'.join(key.path)}` |" not in page
    ] == []
