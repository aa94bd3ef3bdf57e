"""A public function documents each error that it raises itself."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

import pytest
from docs_names import documented

from wink_workspace.errors import UsageError, WinkError

pytestmark = pytest.mark.xdist_group("frameworks")

REFERENCE = re.compile(r"\b(?:[Aa]s(?: in)?|[Ss]ee) ``[\w.]+``")
"""A docstring that names the function which has the whole description."""


def functions() -> Iterator[tuple[str, Callable[..., object], str]]:
    """Each public function and method with its documentation; that of `__init__` is the class's."""
    named = [each for each in documented() if inspect.isfunction(each) or isinstance(each, type)]
    values = {f"{each.__module__}.{each.__qualname__}": each for each in named}
    for name, value in values.items():
        if inspect.isfunction(value):
            yield name, value, value.__doc__ or ""
        elif isinstance(value, type) and not issubclass(value, BaseException):
            for member, found in vars(value).items():
                function = (
                    found.__func__ if isinstance(found, classmethod | staticmethod) else found
                )
                function = function.fget if isinstance(function, property) else function
                if not inspect.isfunction(function) or not is_documented(member, function):
                    continue
                own = value.__doc__ if member == "__init__" else function.__doc__
                yield f"{name}.{member}", function, own or ""


def is_documented(name: str, function: Callable[..., object]) -> bool:
    ours = function.__module__.startswith("wink_workspace")  # not the methods that dataclasses make
    return ours and (name == "__init__" or not name.startswith("_"))


def raised_by(function: Callable[..., object]) -> set[str]:
    """The names of our errors in its own `raise` statements; functions inside of it do not count."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except OSError:  # made by a decorator
        return set()
    return {name for name in _raised(tree.body[0]) if _is_ours(function, name)}


def _raised(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.Raise) and isinstance(child.exc, ast.Call):
            yield ast.unparse(child.exc.func)
        yield from _raised(child)


def _is_ours(function: Callable[..., object], name: str) -> bool:
    found = inspect.unwrap(function).__globals__.get(name)
    return isinstance(found, type) and issubclass(found, WinkError)


def undocumented(function: Callable[..., object], text: str) -> list[str]:
    if REFERENCE.search(text):
        return []
    return sorted(name for name in raised_by(function) if not re.search(rf"\b{name}\b", text))


def test_a_public_function_documents_the_errors_that_it_raises() -> None:
    found = list(functions())
    assert len(found) > 800
    assert sum(bool(raised_by(function)) for _, function, _ in found) > 100
    wrong = {name: undocumented(function, text) for name, function, text in found}
    assert {name: errors for name, errors in wrong.items() if errors} == {}


def _raises_two() -> None:
    def inner() -> None:
        raise WinkError("not counted")

    inner()
    raise UsageError("counted")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do it.", ["UsageError"]),
        ("Do it.\n\nRaises:\n    UsageError: Always.", []),
        ("Do it; raises as ``other``.", []),
    ],
)
def test_an_error_that_the_text_lacks_is_found(text: str, expected: list[str]) -> None:
    assert undocumented(_raises_two, text) == expected
