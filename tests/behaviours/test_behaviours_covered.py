"""Every numbered behaviour has a test, or is listed here with the part of the project it waits for."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SUITES = TESTS.parent / "wink_workspace" / "testing"
MARK = re.compile(r"pytest\.mark\.behaviour\(([\d,\s]+)\)")

WAITING: dict[str, set[int]] = {}


def covered() -> set[int]:
    return {
        int(number)
        for file in (*TESTS.rglob("*.py"), *SUITES.rglob("*.py"))
        for group in MARK.findall(file.read_text(encoding="utf-8"))
        for number in group.split(",")
        if number.strip()
    }


def test_every_behaviour_has_a_test_or_waits_for_a_named_part() -> None:
    missing = set(range(1, 69)) - covered() - set().union(*WAITING.values())
    assert not missing, f"behaviours without a test: {sorted(missing)}"


def test_no_behaviour_that_has_a_test_is_still_listed_as_waiting() -> None:
    assert not covered() & set().union(*WAITING.values())


def test_marks_name_behaviours_that_exist() -> None:
    assert covered() <= set(range(1, 69))
