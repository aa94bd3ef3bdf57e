"""Every test can fail: tests in forms that cannot fail are refused.

Ruff refuses two more: an assertion about a tuple (F631) and one with `or True` (SIM222).
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
SUITES = TESTS.parent / "wink_workspace" / "testing"
WIDE = {"Exception", "BaseException", "WinkError"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources() -> dict[str, str]:
    files = sorted([*TESTS.rglob("*.py"), *SUITES.rglob("*.py")])
    return {str(path.relative_to(TESTS.parent)): path.read_text(encoding="utf-8") for path in files}


def facts_of(function: Function) -> tuple[bool, set[str]]:
    """Whether it asserts, raises or runs a program that must succeed; its calls and parameters."""
    checks, names = False, {argument.arg for argument in function.args.args}
    for node in ast.walk(function):
        match node:
            case ast.Assert() | ast.Raise() | ast.keyword(arg="check", value=ast.Constant(True)):
                checks = True
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    return checks or bool(names & {"raises", "fail"}), names


@cache
def checking() -> frozenset[str]:
    """The names of functions that check something, directly or in functions that they call."""
    nodes = (node for source in sources().values() for node in ast.walk(ast.parse(source)))
    found = [(node.name, *facts_of(node)) for node in nodes if isinstance(node, Function)]
    names = {name for name, checks, _ in found if checks}
    while new := {name for name, _, calls in found if calls & names} - names:
        names |= new
    return frozenset(names)


def unchecking_tests(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for scope in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for each in scope.body:
            if isinstance(each, Function) and each.name.startswith("test_"):
                checks, calls = facts_of(each)
                if not checks and not calls & checking():
                    yield f"line {each.lineno}: {each.name} checks nothing"


def properties_that_return(source: str) -> Iterator[str]:
    for each in ast.walk(ast.parse(source)) if "given(" in source else ():
        if isinstance(each, Function) and any(
            ast.unparse(decorator).startswith("given(") for decorator in each.decorator_list
        ):
            for node in ast.walk(each):
                if isinstance(node, ast.Return) and node.value is None:
                    yield f"line {node.lineno}: {each.name} returns; reject the case instead"


def wide_expectations(source: str) -> Iterator[str]:
    is_candidate = re.search(rf"raises\([^=]*\b({'|'.join(WIDE)})\b", source)
    for node in ast.walk(ast.parse(source)) if is_candidate else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises":
            given = [each for arg in node.args for each in ast.walk(arg)]
            expected = {each.id for each in given if isinstance(each, ast.Name)}
            if expected & WIDE and not any(each.arg == "match" for each in node.keywords):
                yield f"line {node.lineno}: {ast.unparse(node)} takes almost any error"


@pytest.mark.parametrize("check", [properties_that_return, unchecking_tests, wide_expectations])
def test_every_test_can_fail(check) -> None:
    assert [f"{name} {each}" for name, source in sources().items() for each in check(source)] == []


@pytest.mark.parametrize(
    ("source", "check"),
    [
        ("def test_a(): print()", unchecking_tests),
        ("class TestA:\n def test_a(self): print()", unchecking_tests),
        ("@given(x)\ndef test_a(x):\n if x: return\n assert x", properties_that_return),
        ("with pytest.raises(Exception): f()", wide_expectations),
        ("with pytest.raises((OSError, WinkError)): f()", wide_expectations),
    ],
)
def test_a_test_that_cannot_fail_is_reported(source: str, check) -> None:
    assert len(list(check(source))) == 1


def test_a_parametrised_test_without_cases_is_an_error(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getini("empty_parameter_set_mark") == "fail_at_collect"
