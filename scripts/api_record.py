"""The public API as lines of text, and what differs from the record of the last release.

The public API is what the packages list in ``__all__``, with the public members of classes. griffe
reads it from the source; nothing is called.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module  # noqa: TID251 - packages are found by name
from pathlib import Path

import griffe

import wink_workspace

__all__ = ["RECORD", "changes_not_named", "public_api", "public_packages"]

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "reference" / "api.txt"
_PRIVATE = re.compile(r"(^|\.)_")


def public_packages() -> dict[str, list[str]]:
    """Each package with public names, and these names in order."""
    found = {wink_workspace.__name__: list(wink_workspace.__all__)}
    for info in pkgutil.walk_packages(wink_workspace.__path__, "wink_workspace."):
        if info.ispkg and ".inside" not in info.name and not _PRIVATE.search(info.name):
            names = getattr(import_module(info.name), "__all__", ())
            if names:
                found[info.name] = list(names)
    return found


def public_api() -> list[str]:
    """One line for each public name and each public member of a class, sorted."""
    loaded = griffe.load("wink_workspace", search_paths=[ROOT], allow_inspection=False)
    lines: set[str] = set()
    for package, names in public_packages().items():
        parts = package.split(".")[1:]
        for name in names:
            found = loaded[[*parts, name]] if parts else loaded[name]
            target = found.final_target if found.is_alias else found
            lines.update(_lines(f"{package}.{name}", target))
    return sorted(lines)


def _lines(path: str, found: griffe.Object | griffe.Alias) -> Iterator[str]:
    if found.is_function:
        yield f"{path}{_signature(found)}"
    elif found.is_class:
        public = (base for base in found.bases if not _PRIVATE.search(_full_name(base)))
        bases = ", ".join(str(base) for base in public)
        yield f"{path}({bases}): class"
        for name, member in found.members.items():
            if not name.startswith("_") or name == "__init__":
                yield from _lines(f"{path}.{name}", member)
    elif found.is_attribute and "property" in found.labels:
        yield f"{path} -> {found.annotation}: property"
    else:
        yield path


def _full_name(base: str | griffe.Expr) -> str:
    return base if isinstance(base, str) else base.canonical_path


def _signature(function: griffe.Object | griffe.Alias) -> str:
    shown: list[str] = []
    seen_keyword_only = False
    for each in function.parameters:
        if each.kind is griffe.ParameterKind.keyword_only and not seen_keyword_only:
            seen_keyword_only = True
            if not any(other.startswith("*") for other in shown):
                shown.append("*")
        stars = {
            griffe.ParameterKind.var_positional: "*",
            griffe.ParameterKind.var_keyword: "**",
        }.get(each.kind, "")
        default = "=…" if each.default is not None and not stars else ""
        shown.append(f"{stars}{each.name}{default}")
        seen_keyword_only |= stars == "*"
    return f"({', '.join(shown)})"


def changes_not_named(record: list[str], present: list[str], changelog: str) -> list[str]:
    """The lines that differ from the record and whose name the changelog does not have.

    A name counts as named if its last part, or the class that has it, is in backticks in the
    section of what is not released yet.
    """
    section = changelog.partition("## Unreleased")[2].partition("\n## ")[0]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", section))))
    differing = {*record} ^ {*present}
    return sorted(line for line in differing if not words & {*_names(line)})


def _names(line: str) -> Iterator[str]:
    """The public name of a line, and its member."""
    path = re.split(r"[( ]", line, maxsplit=1)[0].split(".")
    first = next((n for n, part in enumerate(path) if part[:1].isupper()), len(path) - 1)
    yield from path[first:]
