"""The documentation site: complete, without external requests, readable in a browser."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from browser import chromium, serious_findings
from docs_pages import PAGES, ROOT
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.xdist_group("docs-site")

HAS_ADDRESS = re.compile(r"""(?:src|href)=["']?(?:https?:)?//[^"'> ]*""")
LINK_OF_TEXT = re.compile(r"<a [^>]*>")


@pytest.fixture(scope="module")
def hooks() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "scripts"))
    yield importlib.import_module("docs_hooks")
    sys.path.remove(str(ROOT / "scripts"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning, such as a broken link or anchor, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.prefix, "bin", "mkdocs"), "build", "--strict", "-q", "-d", str(folder)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.new_page()


@pytest.mark.soak
def test_every_public_name_has_an_entry_in_the_reference(site: Path, hooks: ModuleType) -> None:
    packages = hooks.public_packages()
    assert len(packages) > 15
    missing = [
        f"{package}.{name}"
        for package, names in packages.items()
        for entries in [(site / "reference" / "api" / f"{package}.html").read_text()]
        for name in names
        if f'id="{package}.{name}"' not in entries
    ]
    assert missing == []


@pytest.mark.soak
def test_a_page_asks_nothing_of_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        without_links = LINK_OF_TEXT.sub("", page.read_text())
        assert HAS_ADDRESS.findall(without_links) == [], page.name


TABLES = ("index.md", "glossary.md")
"""Pages that are looked up, and the page from which the others are chosen."""


def test_a_page_begins_with_what_its_reader_will_know_or_be_able_to_do() -> None:
    folders = (ROOT / "docs", ROOT / "docs" / "howto")
    texts = {page.name: page.prose for page in PAGES if page.path.parent in folders}
    assert len(texts) > 20
    beginning = re.compile(r"# .+\n\n(?:After|With) this page\b|# Tutorial")
    wrong = [name for name, text in texts.items() if not beginning.match(text)]
    assert sorted(name for name in wrong if not name.endswith(TABLES)) == []


def test_pages_of_the_repository_link_to_pages_of_the_site(hooks: ModuleType) -> None:
    lead = hooks.site_link
    assert lead("docs/howto", "../configuration.md") == "../configuration.md"
    assert lead("docs", "design/") == "design/index.md"
    assert lead("docs", "../examples/06_attempts.py") == "examples/06_attempts.md"
    assert lead("docs/reference", "../../CHANGELOG.md") == "../changelog.md"
    assert lead("", "docs/mcp.md", there="howto/x.md") == "../mcp.md"
    assert lead("docs", "../tests/conftest.py") is None


@pytest.mark.soak
def test_pages_are_readable_in_a_browser_and_search_works_in_a_folder(
    site: Path, page: Page
) -> None:
    problems: list[str] = []
    requested: set[str] = set()
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requested.add(request.url))
    shown = Path(os.environ.get("SCREENSHOTS") or site)
    for name in (
        "index",
        "concepts",
        "reference/command",
        "reference/api/wink_workspace.workspace",
    ):
        for width in (360, 1_280):
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"file://{site}/{name}.html")
            if name == "concepts":
                expect(page.locator("div.mermaid")).to_have_count(3)
            page.screenshot(path=shown / f"docs-{name.replace('/', '-')}-{width}.png")
            overflow = "document => document.scrollWidth - document.clientWidth"
            assert page.locator("html").evaluate(overflow) <= 0, (name, width)
        assert serious_findings(page) == [], name
    page.locator("input.md-search__input").first.fill("preview_merge")
    expect(page.locator(".md-search-result__item").first).to_contain_text("preview_merge")
    assert problems == []
    assert [url for url in requested if not url.startswith(("file:", "data:", "blob:"))] == []
