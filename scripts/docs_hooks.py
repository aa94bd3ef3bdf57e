"""What the documentation site has beyond the pages of ``docs/``: a hook of mkdocs.

It adds a page for each public package, a page for each example, and the changelog. The pages of
``docs/`` are also read in the repository, where they link to files outside of ``docs/``; on the
site such a link leads to the added page, or becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from importlib import import_module  # noqa: TID251 - packages are found by name
from pathlib import Path
from typing import Any

from api_record import public_packages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
COPIES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "report-a-vulnerability.md",
    "images/README.md": "reference/recipes.md",
}
"""Pages of the repository that are pages of the site, too."""

SHIM = "assets/iframe-worker.shim.js"
"""Lets the search work in a folder without a server."""

_LINK = re.compile(r"\[(?P<label>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, page in COPIES.items():
        _add(files, config, page, (ROOT / name).read_text(encoding="utf-8"))
    for program in sorted((ROOT / "examples").glob("*.py")):
        text = program.read_text(encoding="utf-8")
        _add(files, config, _example(program.name), f"# {program.name}\n\n```python\n{text}```\n")
    packages = public_packages()
    for package, names in packages.items():
        _add(files, config, _api(package), _api_page(package, names))
    _add(files, config, "reference/api/index.md", _api_index(packages))
    _add(files, config, "design/index.md", _design_index())
    return files


def _add(files: Files, config: MkDocsConfig, path: str, text: str) -> None:
    files.append(File.generated(config, path, content=text))


def _example(name: str) -> str:
    return f"examples/{name.removesuffix('.py')}.md"


def _api(package: str) -> str:
    return f"reference/api/{package}.md"


def _api_page(package: str, names: list[str]) -> str:
    """The package's own docstring, then each public name."""
    own = f"::: {package}\n    options: {{members: false, show_root_heading: false}}\n"
    entries = "\n".join(f"::: {package}.{name}\n" for name in sorted(names, key=str.lower))
    return f"# {package}\n\n{own}\n{entries}"


def _api_index(packages: dict[str, list[str]]) -> str:
    rows = "".join(
        f"| [`{package}`]({package}.md) | {_first_line(package)} |\n" for package in packages
    )
    return (
        "# Python API\n\nEvery public name, by package. Names that are not listed are private.\n\n"
        f"| Package | Contents |\n|---|---|\n{rows}"
    )


def _first_line(package: str) -> str:
    return (import_module(package).__doc__ or "").strip().partition("\n")[0]


def _design_index() -> str:
    pages = sorted((ROOT / "docs" / "design").glob("[0-9]*.md"))
    rows = "".join(f"- [{_title(page)}]({page.name})\n" for page in pages)
    return f"# Design records\n\nChoices that are hard to undo, with their reasons.\n\n{rows}"


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:  # Any: what mkdocs passes
    """Lead links that leave ``docs/`` to pages of the site."""
    here = page.file.src_uri
    source = next((name for name, copy in COPIES.items() if copy == here), f"docs/{here}")

    def replaced(link: re.Match[str]) -> str:
        label, target = link["label"], link["target"]
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        there = site_link(posixpath.dirname(source), target, there=here)
        if there is not None:
            return f"[{label}]({there}{link['anchor'] or ''})"
        return label if target.lstrip("./") in label else f"{label} (`{target.lstrip('./')}`)"

    return _outside_of_code(markdown, replaced)


def site_link(folder: str, target: str, *, there: str | None = None) -> str | None:
    """Where a link leads on the site; ``None`` if that file is not a page of it.

    Args:
        folder: The folder of the page in the repository.
        target: The link in that page.
        there: The page's path on the site, where it is not the one in ``docs/``.
    """
    path = posixpath.normpath(posixpath.join(folder, target))
    if path == "README.md":
        found = "index.md"
    elif path in COPIES:
        found = COPIES[path]
    elif re.fullmatch(r"examples/\w+\.py", path):
        found = _example(posixpath.basename(path))
    elif path.startswith("docs/") or not (ROOT / path).exists():  # mkdocs reports what is missing
        found = path.removeprefix("docs/") + ("/index.md" if (ROOT / path).is_dir() else "")
    else:
        return None
    here = posixpath.dirname(there) if there is not None else folder.removeprefix("docs").strip("/")
    return posixpath.relpath(found, here or ".")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Replace what the theme fixes: the address of a script, and a dialog without a name."""
    del config
    folder = posixpath.dirname(page.file.dest_uri) or "."
    return _fixed(output, posixpath.relpath(SHIM, folder))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages of the theme, such as that for a missing page."""
    del template_name, config
    return _fixed(output_content, f"/{SHIM}")


def _fixed(html: str, shim: str) -> str:
    named = 'data-md-component="search" role="dialog" aria-label="Search"'
    html = html.replace('data-md-component="search" role="dialog"', named)
    return html.replace("https://unpkg.com/iframe-worker/shim", shim)


def _outside_of_code(markdown: str, replaced: Any) -> str:
    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if index % 2 else _LINK.sub(replaced, part) for index, part in enumerate(parts)
    )
