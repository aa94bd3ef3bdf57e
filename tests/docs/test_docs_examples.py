"""Code in the documentation runs: every block of Python, and the commands of the README."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from docs_names import public
from docs_pages import PAGES, ROOT, Block, Page, sample
from shell_pages import run_shell, shell_of


def drawing(text: str) -> str:
    """A block without a language; Python in it would not be run by any check."""
    with pytest.raises(SyntaxError):
        ast.parse(text)
    return text


READERS = {
    "": drawing,
    "json": json.loads,
    "mermaid": str,  # drawn in a browser by the test of the site
    "python": ast.parse,
    "sh": str,
    "text": drawing,
    "toml": tomllib.loads,
}
FRAMEWORKS = "docs/integrations.md"
"""The page whose examples load all frameworks."""
WITH_PYTHON = [
    pytest.param(page, marks=[pytest.mark.xdist_group("frameworks")] * (page.name == FRAMEWORKS))
    for page in PAGES
    if any(block.language == "python" for block in page.blocks)
]


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


# inspect_ai leaves streams of its display to the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_of_a_page_runs_in_order_in_one_namespace(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "inspect_ai" in page.text:
        request.getfixturevalue("left_streams")
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
    assert sum(bool(block.reason_not_to_run) for page in PAGES for block in page.blocks) <= 2


def test_the_commands_of_a_workspace_on_disk_work_one_after_the_other(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "project").mkdir()
    (home / "project" / "app.py").write_text("print('hello')\n")
    run_shell(shell_of("docs/guide.md", "## On disk"), home, capsys)
    assert (home / "project" / "NEW.md").read_text() == "Hi"


def test_the_page_on_fixing_a_bug_works_as_written(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = run_shell(shell_of("docs/howto/fix-a-bug.md"), home, capsys)
    assert "NOTES.md" in printed
    assert sorted(each.name for each in (home / "shop").iterdir()) == ["shop.py"]
    assert "(1 - discount)" in (home / "shop" / "shop.py").read_text()


def test_the_page_on_untrusted_code_works_in_isolated_python(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shell_of("docs/howto/untrusted-code.md", "## In isolated Python")
    assert run_shell(text, home, capsys).splitlines()[-1] == "42"


def test_the_commands_on_excluded_and_derived_paths_work(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project" / "data").mkdir(parents=True)
    (home / "project" / "data" / "big.bin").write_bytes(b"1")
    monkeypatch.chdir(home / "project")
    printed = run_shell(
        shell_of("docs/configuration.md", "## Excluded and derived paths"), home, capsys
    )
    assert printed.count("a copy of") == 5


def test_the_commands_on_bundles_work(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project").mkdir()
    (home / "project" / "app.py").write_text("print('hello')\n")
    made = "wink-workspace new project\nwink-workspace fork 3f1 try-2\n"
    run_shell(made + shell_of("docs/scale.md", "## A whole workspace"), home, capsys)
    assert (home / "work" / ".git").exists(), "plain git cloned it"


RUN_BY_TESTS = {
    ("docs/guide.md", "cd ~/project"),
    ("docs/configuration.md", "wink-workspace new ."),
    ("docs/howto/fix-a-bug.md", "mkdir shop"),
    ("docs/howto/fix-a-bug.md", "cd shop"),
    ("docs/howto/fix-a-bug.md", "wink-workspace log"),
    ("docs/howto/fix-a-bug.md", "wink-workspace undo"),
    ("docs/howto/agent-programs.md", "mkdir typo"),
    ("docs/howto/untrusted-code.md", "mkdir data"),
    ("docs/howto/untrusted-code.md", "wink-workspace image build"),
    ("docs/scale.md", "cd ~/project"),
}
"""Blocks that a test runs as written, by the beginning of their first line."""

NOT_RUN = {
    "it removes the images that other tests use": {
        ("docs/howto/uninstall.md", "wink-workspace list"),
    },
    "it is the development of this project itself": {
        ("CONTRIBUTING.md", "make test"),
    },
    "it asks a model of a provider": {
        ("README.md", "cd project"),
        ("docs/guide.md", "pip install '.[models]'"),
        ("docs/attempts.md", "export ANTHROPIC_API_KEY"),
        ("docs/howto/agent-programs.md", "wink-workspace image build"),
        ("docs/howto/agent-programs.md", "wink-workspace run --agent"),
        ("docs/howto/agent-programs.md", 'wink-workspace run "Fix'),
        ("docs/howto/agent-programs.md", "wink-workspace attempts"),
        ("docs/howto/ci.md", "pip install"),
        ("docs/sandboxes.md", "wink-workspace eval"),
        ("docs/tutorial.md", "cd shop"),
        ("docs/ui.md", "wink-workspace run"),
    },
    "it is a program of others, or a server that runs until Ctrl-C": {
        ("docs/howto/guard.md", "cd project"),
        ("docs/howto/guard.md", "wink-workspace log"),
        ("docs/guide.md", "claude mcp add"),
        ("docs/mcp.md", "wink-workspace mcp"),
        ("docs/scale.md", "export RAY_USAGE_STATS_ENABLED"),
        ("docs/ui.md", "pip install"),
    },
    "tests of images and containers run these commands on other projects": {
        ("docs/guide.md", "cd ~/project"),
        ("docs/sandboxes.md", "wink-workspace exec"),
        ("docs/howto/project.md", "cd ~/project"),
        ("docs/howto/project.md", "wink-workspace image build --base"),
        ("docs/howto/project.md", "wink-workspace image build --requirements"),
        ("docs/sandboxes.md", "cd click-"),
        ("docs/sandboxes.md", "wink-workspace image prune"),
    },
    "make release runs it in clean environments": {
        ("README.md", "pip install"),
        ("docs/index.md", "pip install"),
    },
}
"""The other blocks, by the reason; their commands and options are checked by name."""


def test_every_shell_block_is_run_by_a_test_or_has_a_reason() -> None:
    known = RUN_BY_TESTS.union(*NOT_RUN.values())
    blocks = [
        (page.name, block.text.partition("\n")[0])
        for page in PAGES
        for block in page.blocks
        if block.language == "sh" and page.name.startswith(("README", "CONTRIBUTING", "docs/"))
    ]
    missing = [
        (name, line)
        for name, line in blocks
        if not any(name == page and line.startswith(start) for page, start in known)
    ]
    gone = [
        (page, start)
        for page, start in known
        if not any(name == page and line.startswith(start) for name, line in blocks)
    ]
    assert (missing, gone) == ([], [])


def test_examples_are_pages_of_the_documentation() -> None:
    assert {page.path for page in PAGES} >= set((ROOT / "examples").glob("*.py"))
