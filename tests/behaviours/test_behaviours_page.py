"""``docs/reference/behaviours.md`` links every numbered behaviour to tests that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "behaviours.md"
MARK = re.compile(r"pytest\.mark\.behaviour\(([\d,\s]+)\)")
STATEMENT = re.compile(r"^\*\*(\d+)\. ", re.MULTILINE)
LINK = re.compile(r"^- \[`([^`]+)`\]\(\.\./\.\./([^)]+)\)$", re.MULTILINE)


def linked() -> list[tuple[int, list[tuple[str, str]]]]:
    """Every number of the page with its links: the name of the test, and its file."""
    _, *parts = STATEMENT.split(PAGE.read_text(encoding="utf-8"))
    return [
        (int(number), LINK.findall(text))
        for number, text in zip(parts[::2], parts[1::2], strict=True)
    ]


@cache
def defined_in(file: Path) -> frozenset[str]:
    """The tests that *file* defines, as pytest names them."""

    def find(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from find(node.body, f"{prefix}{node.name}::")
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{prefix}{node.name}"

    return frozenset(find(ast.parse(file.read_text(encoding="utf-8")).body, ""))


def marked() -> set[int]:
    """The numbers that tests are marked with."""
    files = [
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "wink_workspace" / "testing").rglob("*.py"),
    ]
    groups = (group for file in files for group in MARK.findall(file.read_text(encoding="utf-8")))
    return {int(number) for group in groups for number in group.split(",") if number.strip()}


def test_numbers_count_up_from_one_without_a_gap() -> None:
    numbers = [number for number, _ in linked()]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(numbers) >= 90, "numbers are stable: none may be removed"


@pytest.mark.parametrize(("number", "links"), linked())
def test_every_number_is_linked_to_tests_that_exist(
    number: int, links: list[tuple[str, str]]
) -> None:
    assert links, f"behaviour {number} has no test"
    for name, file in links:
        assert name in defined_in(ROOT / file), f"{file}::{name} does not exist"


def test_marks_of_tests_are_numbers_of_the_page() -> None:
    assert marked() <= {number for number, _ in linked()}
