"""Importing serde does not import pydantic."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from wink_workspace import serde
serde.dump_json({"a": [1]})
serde.map_strings(["a"], str.upper)
assert not [name for name in sys.modules if name.startswith("pydantic")]
serde.parse(int, 3)
assert "pydantic" in sys.modules
"""


def test_pydantic_is_imported_by_the_first_parse() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
