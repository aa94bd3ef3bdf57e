"""No module imports itself by way of others; import-linter says the same of packages."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def import_cycle(package: str) -> list[str] | None:
    """Modules of *package*, each of which imports the next and the last the first, if any do.

    Imports for type checkers, imports in functions and those of a package's ``__init__`` count.
    """
    graph = grimp.build_graph(package, exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return None


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert import_cycle("wink_workspace") is None


IMPORTS = {
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\n",
    "in a function": "def f():\n    from .b import B\n",
    "of the package's __init__": "from specimen import B\n",
}


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS)
def test_check_finds_a_cycle_that_python_would_not_fail_on(
    imports: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "specimen"
    package.mkdir()
    (package / "__init__.py").write_text("from .b import B\n")
    (package / "a.py").write_text(imports)
    (package / "b.py").write_text("from . import a\n\n\nclass B: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = import_cycle("specimen")
    assert found is not None
    assert {"specimen.a", "specimen.b"} <= set(found)
