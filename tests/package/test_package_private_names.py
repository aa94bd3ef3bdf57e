"""Tests use private names of the package only with a comment that gives the reason.

Patching a private name always needs the comment. Reading one needs it outside of the tests of its
own package: ``tests/ledger`` may read private names of ``wink_workspace.ledger``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("sources")  # they are read once

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "wink_workspace"
_PRIVATE = re.compile(r"(?:.*\.)?(_(?!_)\w+)")
_DEFINED = re.compile(
    r"""
    (?:^ \s* (?:async\ )? (?:def|class) \s+ | ^ \s* | \bself\. )
    (_[A-Za-z]\w*)
    (?= \s* (?: [(:\[] | (?::[^=\n]+)? =[^=] ) )
    """,
    re.MULTILINE | re.VERBOSE,
)
"""A private function, class, variable or attribute where it is made; found faster than by a parser."""
_MAY_TOUCH = re.compile(
    r"(?<!self)(?<!cls)\._[A-Za-z]|['\"]_[A-Za-z]|import .*\b_[A-Za-z]|^    _\w+,$", re.MULTILINE
)
_PUBLIC_ALL_THE_SAME = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
"""Names of the standard library that begin with an underscore to keep out of the way."""


@cache
def owners() -> dict[str, frozenset[str]]:
    """Each private name of the package, with the subpackages that define it."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in _DEFINED.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(part)
    return {name: frozenset(parts) for name, parts in found.items()}


def _names_defined_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Name(ctx=ast.Store()):
            yield node.id
        case ast.Attribute(ctx=ast.Store()):
            yield node.attr
        case _:
            pass


def unexplained(source: str, suite: str) -> list[str]:
    """Each line of *source*, a file of ``tests/SUITE``, that lacks its comment."""
    tree, lines = ast.parse(source), source.splitlines()
    own = {name for node in ast.walk(tree) for name in _names_defined_by(node)}
    found: dict[int, str] = {}
    explained: set[int] = set()
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    for statement in sorted(statements, key=lambda each: each.lineno):
        touches = dict(_touches(statement, own, suite))
        if _has_comment(statement, lines) or statement.lineno - 1 in explained:
            if touches:  # the statements directly below share the comment
                explained.add(statement.end_lineno or statement.lineno)
        else:
            found |= {
                line: f"line {line} {what}, and no comment says why"
                for line, what in touches.items()
            }
    return [found[line] for line in sorted(found)]


def _touches(statement: ast.stmt, own: set[str], suite: str) -> Iterator[tuple[int, str]]:
    for node in _of_this_statement(statement):
        match node:
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr" | "patch")):
                names = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
                for name in names:
                    if isinstance(name, str) and (private := _PRIVATE.fullmatch(name)):
                        yield node.lineno, f"patches {private[1]}"
            case ast.Attribute(attr=name) if name not in own | _PUBLIC_ALL_THE_SAME:
                if suite not in owners().get(name, {suite}):
                    yield node.lineno, f"uses {name} of {', '.join(sorted(owners()[name]))}"
            case ast.ImportFrom(module=str(module)) if module.startswith("wink_workspace."):
                privates = [each.name for each in node.names if _PRIVATE.fullmatch(each.name)]
                if privates and module.split(".")[1] != suite:
                    yield node.lineno, f"imports {', '.join(privates)}"
            case _:
                pass


def _of_this_statement(statement: ast.stmt) -> Iterator[ast.AST]:
    """Its parts, without the statements inside it, which are checked on their own."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def _has_comment(statement: ast.stmt, lines: list[str]) -> bool:
    """Whether there is a comment on its lines or directly above."""
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    here = lines[statement.lineno - 1 : max(last, statement.lineno)]
    above = lines[statement.lineno - 2].strip() if statement.lineno > 1 else ""
    return above.startswith("#") or any("  # " in line for line in here)


FILES = sorted(TESTS.rglob("*.py"))


def test_every_use_of_a_private_name_has_a_comment() -> None:
    sources = {path.relative_to(TESTS): path.read_text(encoding="utf-8") for path in FILES}
    touching = {path: source for path, source in sources.items() if _MAY_TOUCH.search(source)}
    assert len(touching) > 20
    problems = [
        f"{path}: {problem}"
        for path, source in touching.items()
        for problem in unexplained(source, path.parts[0])
    ]
    assert problems == []


@pytest.mark.parametrize(
    "source",
    [
        "monkeypatch.setattr(objects, '_MAX_CACHED_ENTRIES', 1)",
        "monkeypatch.setattr('wink_workspace.ledger.store.objects._MAX_CACHED_ENTRIES', 1)",
        "if True:\n    patched.setattr(objects, '_MAX_CACHED_ENTRIES', 1)",
        "assert workspace._ledger",
        "for each in workspace._ledger:\n    pass  # the comment is not at the place",
        "from wink_workspace.ledger.store.packs import _index",
    ],
)
def test_a_use_without_a_comment_is_reported(source: str) -> None:
    (problem,) = unexplained(source, "cli")
    assert "no comment says why" in problem
    commented = re.sub(
        r"^( *)(?=\S.*(_MAX|_ledger|_index))", r"\1# Why.\n\1", source, flags=re.MULTILINE
    )
    assert unexplained(commented, "cli") == []


def test_own_tests_of_a_package_may_read_its_private_names_but_not_patch_them() -> None:
    assert unexplained("assert objects._MAX_CACHED_ENTRIES", "ledger") == []
    assert unexplained("patched.setattr(objects, '_MAX_CACHED_ENTRIES', 1)", "ledger")
