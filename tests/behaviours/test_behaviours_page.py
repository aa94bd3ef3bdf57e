"""Every numbered behaviour of ``docs/reference/behaviours.md`` has a test that carries its number."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "behaviours.md"
MARK = re.compile(r"pytest\.mark\.behaviour\(([\d,\s]+)\)")
STATEMENT = re.compile(r"^\*\*(\d+)\. ", re.MULTILINE)


def stated() -> list[int]:
    """The numbers of the page."""
    return [int(number) for number in STATEMENT.findall(PAGE.read_text(encoding="utf-8"))]


def marked() -> set[int]:
    """The numbers that tests are marked with."""
    files = [
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "wink_workspace" / "testing").rglob("*.py"),
    ]
    groups = (group for file in files for group in MARK.findall(file.read_text(encoding="utf-8")))
    return {int(number) for group in groups for number in group.split(",") if number.strip()}


def test_numbers_count_up_from_one_without_a_gap() -> None:
    numbers = stated()
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(numbers) >= 90, "numbers are stable: none may be removed"


def test_every_number_has_a_test_and_every_mark_a_number() -> None:
    assert marked() == set(stated())
