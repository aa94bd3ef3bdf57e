"""No module imports itself through others; import-linter checks the same for packages."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def packages_run(importer: str, imported: str) -> set[str]:
    """The packages whose ``__init__`` Python runs for an import, without those of *importer*."""
    names = imported.split(".")
    above = {".".join(names[:n]) for n in range(1, len(names))}
    return {package for package in above if not f"{importer}.".startswith(f"{package}.")}


def import_cycle(package: str) -> list[str] | None:
    """A cycle of modules of *package*, each importing the next; empty if there is none.

    Imports for type checkers, imports in functions and those of a package's ``__init__`` count.
    """
    graph = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    imports: dict[str, set[str]] = {}
    for module in graph.modules:
        direct = graph.find_modules_directly_imported_by(module)
        imports[module] = direct.union(*(packages_run(module, each) for each in direct))
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return None


def test_no_module_imports_itself_through_others() -> None:
    assert import_cycle("wink_workspace") is None


IMPORTS = {
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\n",
    "in a function": "def f():\n    from .b import B\n",
    "of the package's __init__": "from specimen import B\n",
    "of a module whose package needs the importer": "from .inner import leaf\n",
}


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS)
def test_check_finds_a_cycle_that_python_accepts(
    imports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specimen/inner").mkdir(parents=True)
    for name, text in {
        "__init__.py": "from .b import B\n",
        "a.py": imports,
        "b.py": "from . import a\n\n\nclass B: ...\n",
        "inner/__init__.py": "from specimen.b import B\n",
        "inner/leaf.py": "",
    }.items():
        (tmp_path / "specimen" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = import_cycle("specimen")
    assert found is not None
    assert {"specimen.a", "specimen.b"} <= set(found)


def test_check_accepts_imports_without_a_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "straight").mkdir()
    (tmp_path / "straight/__init__.py").write_text("from .a import A\n")
    (tmp_path / "straight/a.py").write_text("from .b import B\nA = B\n")
    (tmp_path / "straight/b.py").write_text("B = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_cycle("straight") is None
