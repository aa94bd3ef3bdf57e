"""References in the documentation: links, anchors, and repository paths in backticks."""

from __future__ import annotations

import re
from functools import cache

from docs_pages import PAGES, ROOT, Page

FOREIGN_FILES = {
    "conftest.py": "any pytest suite's",
    "noxfile.py": "nox's",
    "setup.py": "setuptools'",
    "sitecustomize.py": "Python's",
}
GENERATED = {ROOT / "docs/reference/api/index.md", ROOT / "docs/design/index.md"}
"""Pages that only the site has; its build checks the links to them."""
_FOLDERS = ("benchmarks/", "docs/", "examples/", "images/", "scripts/", "tests/", "wink_workspace/")


def broken_links(page: Page) -> list[str]:
    problems: list[str] = []
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        if path in GENERATED:
            continue
        if target and not path.exists():
            problems.append(f"{page.name}: no file {link}")
        elif anchor and path.suffix != ".md":
            problems.append(f"{page.name}: {link} names a heading of what is no page")
        elif anchor and anchor not in _anchors_of(page, path):
            problems.append(f"{page.name}: no heading {link}")
    return problems


def _anchors_of(page: Page, path: object) -> frozenset[str]:
    for each in (page, *PAGES):
        if each.path == path:
            return each.anchors
    return frozenset()


@cache
def _python_files() -> frozenset[str]:
    folders = ("benchmarks", "examples", "tests", "wink_workspace")
    return frozenset(
        f"/{path.relative_to(ROOT)}" for folder in folders for path in (ROOT / folder).rglob("*.py")
    )


def missing_paths(page: Page) -> list[str]:
    """Spans that look like a path of this repository but do not exist."""
    return [
        f"{page.name}:{line}: there is no {path}"
        for line, span in page.spans
        if re.fullmatch(r"[\w./*-]+(::[\w.]+)?", span)
        and (path := span.partition("::")[0])
        and not _is_there(path)
    ]


def _is_there(path: str) -> bool:
    if path.startswith(_FOLDERS):
        return any(ROOT.glob(path.rstrip("/")))
    if path.endswith(".py") and "*" not in path:
        return path in FOREIGN_FILES or any(each.endswith(f"/{path}") for each in _python_files())
    return True
