"""Importing the session loads no heavy library."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from dataclasses import dataclass
import wink_workspace.session as s

@dataclass(frozen=True)
class Note:
    text: str

session = s.Session()
session[Note].append(Note("a"))
session.restore(session.snapshot())
print("pydantic" in sys.modules)
"""


def test_importing_and_using_a_session_loads_no_pydantic() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
