"""The first example of the README."""

from __future__ import annotations

import ast
import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_first_example_has_at_most_fifteen_lines_and_defines_no_function() -> None:
    first = re.search(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert first is not None
    lines = first[1].splitlines()
    assert len(lines) <= 15
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    assert not [node for node in ast.walk(ast.parse(first[1])) if isinstance(node, defined)]
