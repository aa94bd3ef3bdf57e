"""Code in the documentation runs: every block of Python, and the commands of the README."""

from __future__ import annotations

import ast
import inspect
import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from docs_names import public
from docs_pages import PAGES, ROOT, Block, Page, sample

from wink_workspace.cli import main


def drawing(text: str) -> str:
    """A block without a language; Python in it would not be run by any check."""
    with pytest.raises(SyntaxError):
        ast.parse(text)
    return text


READERS = {
    "": drawing,
    "json": json.loads,
    "python": ast.parse,
    "sh": str,
    "text": drawing,
    "toml": tomllib.loads,
}
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in page.blocks)]


def run_blocks(page: Page, module: ModuleType) -> None:
    """Run the blocks in order in *module*; of a block that needs a network, only its imports."""
    for block in page.blocks:
        if block.language == "python":
            tree = ast.parse(block.text)
            if block.reason_not_to_run:
                tree.body = [
                    each for each in tree.body if isinstance(each, ast.Import | ast.ImportFrom)
                ]
            name = f"{page.name} line {block.line}"
            exec(compile(tree, name, "exec", dont_inherit=True), vars(module))
            if block.reason_not_to_run:
                assert wrong_arguments(block, module) == [], name


def wrong_arguments(block: Block, module: ModuleType) -> list[str]:
    """Arguments in calls of public functions in *block* that those functions do not accept."""
    problems: list[str] = []
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            path = ast.unparse(node.func).split(".")
            called: object = vars(module).get(path[0])
            for part in path[1:]:
                called = getattr(called, part, None)
            if called is None and isinstance(node.func, ast.Attribute):
                called = getattr(public().get("ProviderAdapter"), node.func.attr, None)
            if called is not None and (
                keywords := [each.arg for each in node.keywords if each.arg]
            ):
                taken = inspect.signature(called).parameters  # type: ignore[arg-type]
                problems += [
                    f"{path[-1]} takes no {each}" for each in keywords if each not in taken
                ]
    return problems


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_of_a_page_runs_in_order_in_one_namespace(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # where dataclasses look up their types
    run_blocks(page, module)


def test_every_code_block_has_a_language_and_parses() -> None:
    blocks = [(page, block) for page in PAGES for block in page.blocks]
    assert len(blocks) > 30
    for page, block in blocks:
        where = f"{page.name} line {block.line}"
        assert block.language in READERS, f"{where}: {block.language!r} is no language we check"
        assert READERS[block.language](block.text), where


def test_a_page_whose_python_fails_is_reported() -> None:
    failing = sample("```python\nx = 1\n```\ntext\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_blocks(failing, ModuleType("example"))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("from wink_workspace import Nothing", ImportError),
        ("from wink_workspace import Budget\nBudget(none=1)", AssertionError),
        ("def", SyntaxError),
    ],
)
def test_a_block_that_is_not_run_is_still_checked(code: str, error: type[Exception]) -> None:
    page = sample(f"<!-- not run: needs a key -->\n```python\n{code}\n```\n")
    assert page.blocks[0].reason_not_to_run == "needs a key"
    with pytest.raises(error):
        run_blocks(page, ModuleType("example"))


def test_blocks_are_run_unless_a_comment_right_before_gives_a_reason() -> None:
    page = sample("<!-- not run: needs a key -->\n\nSome text.\n\n```python\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError):
        run_blocks(page, ModuleType("example"))
    assert sum(bool(block.reason_not_to_run) for page in PAGES for block in page.blocks) <= 1


def test_the_commands_of_a_workspace_on_disk_work_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (readme,) = (page for page in PAGES if page.name == "README.md")
    line = readme.text.splitlines().index("## On disk")
    text = next(each.text for each in readme.blocks if each.language == "sh" and each.line > line)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "app.py").write_text("print('hello')\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    made, n_commands, others = "3f1", 0, ""
    for line_of_shell in text.splitlines(keepends=True):
        if not line_of_shell.startswith("wink-workspace "):
            others += line_of_shell
            continue
        if others:
            subprocess.run(["sh", "-ec", others], check=True)
            others = ""
        words = shlex.split(line_of_shell.replace("3f1", made), comments=True)[1:]
        assert main([str(Path(word).expanduser()) for word in words]) == 0, line_of_shell
        printed = capsys.readouterr().out
        if words[0] == "new":
            made = printed.partition(":")[0]
        n_commands += 1
    assert n_commands > 10
    assert others == ""
    assert (tmp_path / "project" / "NEW.md").read_text() == "Hi"


def test_examples_are_pages_of_the_documentation() -> None:
    assert {page.path for page in PAGES} >= set((ROOT / "examples").glob("*.py"))
