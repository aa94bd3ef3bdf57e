"""What the documentation names exists, and what it shows runs."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
CITED = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
LINKED = re.compile(r"\]\((?!https?:)([^)#]+)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_that_a_page_cites_exists(page: Path) -> None:
    for file, name in CITED.findall(page.read_text(encoding="utf-8")):
        found: object = import_module(file.removesuffix(".py").replace("/", "."))
        for part in name.split("."):
            found = getattr(found, part)


def test_the_walk_through_one_call_cites_names_in_at_least_five_files() -> None:
    text = (ROOT / "docs/one-call.md").read_text(encoding="utf-8")
    assert len({file for file, _ in CITED.findall(text)}) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_exists(page: Path) -> None:
    prose = CODE.sub("", page.read_text(encoding="utf-8"))
    for target in LINKED.findall(prose):
        assert (page.parent / target).exists(), f"{page.name} links {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")  # one for all blocks: later ones go on from earlier ones
    monkeypatch.setitem(sys.modules, "example", module)  # where dataclasses look their types up
    for number, code in enumerate(PYTHON.findall(page.read_text(encoding="utf-8"))):
        compiled = compile(code, f"{page.name} example {number}", "exec", dont_inherit=True)
        exec(compiled, vars(module))
