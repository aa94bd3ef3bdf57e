"""All references in the repository lead to files in the repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".cfg", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yml", ""}
TOPS = ("wink_workspace", "tests", "docs", "examples", "benchmarks", "images", "scripts", ".ci")
OUTSIDE = re.compile(r"§|\b[Ii]ssues? \d+\b|\bspecs/\d|\bDESIGN\b")
PAGE = re.compile(r"\b[A-Z][A-Z_]*\.md\b")
"""A Markdown file in capitals, as prose and code refer to it."""


def files() -> Iterator[Path]:
    """Every text file of the repository but this one."""
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in SUFFIXES and not path.name.startswith(".coverage"):
            yield path
    for top in TOPS:
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix in SUFFIXES and path != Path(__file__):
                yield path


def matches_of(pattern: re.Pattern[str]) -> list[tuple[Path, str]]:
    """Every match of *pattern* in the repository, with its file."""
    found: list[tuple[Path, str]] = []
    for path in files():
        text = path.read_bytes().decode("utf-8", "replace")
        found.extend((path, match[0]) for match in pattern.finditer(text))
    return found


def test_nothing_refers_to_a_section_or_an_issue_of_another_document() -> None:
    assert matches_of(OUTSIDE) == []


@pytest.mark.parametrize("text", ["see DESIGN §6", "as in §2", "issue 12", "specs/000"])
def test_a_reference_to_another_document_is_found(text: str) -> None:
    assert OUTSIDE.search(text)


def test_named_pages_in_capitals_exist() -> None:
    """Tests name such files as data, and so do examples; projects of others have three of them."""
    others = {"NEW.md", "NOTES.md", "AGENTS.md", "CLAUDE.md", "LICENSE.md"}
    tests = ROOT / "tests"
    named = {name for path, name in matches_of(PAGE) if not path.is_relative_to(tests)}
    missing = {name for name in named - others if not (ROOT / name).exists()}
    assert missing == set()
