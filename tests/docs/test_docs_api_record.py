"""The public API is recorded, and the changelog names what differs from the record."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest
from docs_pages import ROOT

pytestmark = pytest.mark.xdist_group("docs-site")


@pytest.fixture(scope="module")
def recording() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("api_record")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def present(recording: ModuleType) -> list[str]:
    """The API as it is; griffe reads every module."""
    return recording.public_api()


def test_the_changelog_names_each_change_of_the_api_since_the_last_release(
    recording: ModuleType, present: list[str]
) -> None:
    assert any(line.startswith("wink_workspace.workspace.Workspace.create(") for line in present)
    record = recording.RECORD.read_text().splitlines()
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert recording.changes_not_named(record, present, changelog) == []


@pytest.mark.parametrize(
    ("before", "after", "text", "n_missing"),
    [
        ("p.A.f(self)", "p.A.f(self, *, x=…)", "## Unreleased\n\n- Some text.\n", 2),
        ("p.A.f(self)", "p.A.f(self, *, x=…)", "## Unreleased\n\n- `A.f` has `x`.\n", 0),
        ("p.A.f(self)", "p.A.f(self, *, x=…)", "## Unreleased\n\n## 1.0\n\n- `A.f`\n", 2),
        ("p.f(a)", "p.f(a)", "## Unreleased\n", 0),
        ("p.f(a)", "p.g(a)", "## Unreleased\n\n- `f` is now `g`.\n", 0),
    ],
)
def test_a_change_that_the_section_of_unreleased_changes_does_not_name_is_found(
    recording: ModuleType, before: str, after: str, text: str, n_missing: int
) -> None:
    assert len(recording.changes_not_named([before], [after], text)) == n_missing


def test_each_way_to_pass_an_argument_is_part_of_the_record(present: list[str]) -> None:
    lines = "\n".join(present)
    assert "wink_workspace.workspace.Workspace.restore(self, which, *, paths=…" in lines
