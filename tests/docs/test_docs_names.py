"""What the documentation names exists, and what it shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from wink_workspace.sandbox.podman import probes

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
CITED = re.compile(r"`([\w/]+\.py)::([\w.]+)`")
LINKED = re.compile(r"\]\((?!https?:)([^)#]+)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
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


def test_the_commands_of_a_workspace_on_disk_work_one_after_the_other(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## On disk\n")[2]
    found = SHELL.search(text)
    assert found is not None
    first, _, rest = found[1].partition("\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "app.py").write_text("print('hello')\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(tmp_path), "PATH": path}
    environment.pop("XDG_STATE_HOME", None)

    def run(script: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = run(first).partition(":")[0]
    run(rest.replace("3f1", made))
    assert (tmp_path / "project" / "NEW.md").read_text() == "Hi"


def test_the_page_on_security_counts_what_a_container_has_to_prove() -> None:
    n_inside = len([*probes.FILES_AND_PROCESSES, *probes.NETWORK])
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert f"{n_inside + 1} are made before the first command" in text, "and one by the host"
