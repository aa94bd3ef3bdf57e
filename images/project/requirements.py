"""Prints what a ``pyproject.toml`` requires, for pip or uv. It runs in a build step only.

Taken are the project's dependencies, and its extras and dependency groups called dev, test, testing
or tests. This file is copied into the step and runs there with the Python of the image.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

NAMES = ("dev", "test", "testing", "tests")


def normal(requirement: str) -> str:
    """The name of a requirement in its normal form."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def print_requirements(how: str, path: str) -> None:
    """Print lines of requirements, or with ``options`` the options of uv for the same."""
    try:
        import tomllib as toml
    except ImportError:  # before Python 3.11, pip brings its own
        from pip._vendor import tomli as toml  # pyright: ignore[reportPrivateImportUsage] - only where tomllib is missing
    data = toml.loads(Path(path).read_text(encoding="utf-8"))
    project, groups = data.get("project", {}), data.get("dependency-groups", {})
    extras = project.get("optional-dependencies", {})
    if how == "options":
        lines = [f"--extra={name}" for name in NAMES if name in extras]
        lines += [f"--group={name}" for name in NAMES if name in groups]
        sys.stdout.write(" ".join(lines))
        return
    lines = [*project.get("dependencies", ()), *(line for n in NAMES for line in extras.get(n, ()))]
    todo, seen = list(NAMES), set[str]()
    while todo:
        name = todo.pop()
        for entry in () if name in seen else groups.get(name, ()):
            if isinstance(entry, str):
                lines.append(entry)
            else:
                todo.append(entry["include-group"])
        seen.add(name)
    itself = normal(project.get("name", ""))
    sys.stdout.writelines(f"{line}\n" for line in lines if normal(line) != itself)


if __name__ == "__main__":
    print_requirements(*sys.argv[1:])
