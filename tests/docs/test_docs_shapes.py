"""Parameters, fields and results of the public API are described where their type is not enough.

That is so for collections, mappings, functions, bytes and `object`, and for text with a grammar.
A mapping needs its keys, and a tuple of different types its parts.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator

import pytest
from docs_names import documented, find
from test_docs_raises import REFERENCE, functions
from test_docs_units import sentence_about

OPAQUE = re.compile(
    r"\b(?:Mapping|dict|Sequence|list|tuple|Iterable|Iterator|Collection|set|frozenset|Callable"
    r"|bytes|object|Any)\b"
)
WITH_GRAMMAR = re.compile(r"(?:^|_)(?:path|paths|pattern|glob|which|tag|source|folder|directory)$")
"""Names of texts with a grammar: paths, patterns, and what chooses an entry or a branch."""

MAPPING = re.compile(r"\b(?:Mapping|dict)\[")
KEYS = re.compile(r"\b(?:by|each|every|per|keys?|names?|to|JSON|[Vv]ariables)\b")
PARTS = re.compile(r"\b(?:and|with|pairs?|its|their)\b")


def entries() -> Iterator[tuple[str, inspect.Signature, str, str]]:
    """Each public function and method, its own text, and what else a reader of its entry sees.

    For a method that is the text of its class, and of the same method in base classes.
    """
    for name, function, text in functions():
        owner = find(name.rpartition(".")[0])
        if dataclasses.is_dataclass(owner) and name.endswith(".__init__"):
            continue  # its parameters are the fields
        classes = owner.__mro__[:-1] if isinstance(owner, type) else ()
        methods = [vars(each).get(function.__name__) for each in classes]
        around = "\n".join(each.__doc__ or "" for each in (*classes, *methods) if each)
        yield name, inspect.signature(function), text, around


def undescribed(signature: inspect.Signature, text: str, around: str = "") -> list[str]:
    """The parameters that need a description and have none, and ``return`` for the result."""
    if REFERENCE.search(text):
        return []
    text = f"{text}\n{around}"
    found = [
        each.name
        for each in signature.parameters.values()
        if not each.name.startswith("_") and not is_described(text, each.name, str(each.annotation))
    ]
    result = str(signature.return_annotation)
    without_keys = MAPPING.search(result) and not KEYS.search(text)
    without_parts = has_parts(result) and not PARTS.search(text)
    return [*found, "return"] if without_keys or without_parts else found


def is_described(text: str, name: str, annotation: str) -> bool:
    is_text = re.search(r"\bstr\b|\bPath\b", annotation) and WITH_GRAMMAR.search(name)
    if not OPAQUE.search(annotation) and not is_text:
        return True
    about = sentence_about(text, name)
    return bool(about and (not MAPPING.search(annotation) or KEYS.search(about)))


def has_parts(annotation: str) -> bool:
    """Whether it has a tuple of different types."""
    found = re.findall(r"\btuple\[([^\[\]]*)\]", annotation)
    return any("," in each and not each.endswith("...") for each in found)


def fields() -> Iterator[tuple[str, str, str, str]]:
    """Each field of a public dataclass: the class, its name, its type and its description."""
    classes = {each for each in documented() if isinstance(each, type)}
    for owner in sorted(classes, key=lambda each: each.__qualname__):
        if dataclasses.is_dataclass(owner):
            texts = _texts_of_fields(owner)
            of_classes = "\n".join(each.__doc__ or "" for each in owner.__mro__[:-1])
            for field in dataclasses.fields(owner):
                if not field.name.startswith("_"):
                    about = f"{of_classes}\n{texts.get(field.name, '')}"
                    if field.metadata:  # a key of the settings, or the parameter of a tool
                        about += f"\n{field.name}: {dict(field.metadata)}"
                    yield owner.__qualname__, field.name, str(field.type), about


def _texts_of_fields(owner: type) -> dict[str, str]:
    """The text below each field, with the name of the field."""
    texts: dict[str, str] = {}
    for each in reversed(owner.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, after in zip(definition.body, definition.body[1:], strict=False):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                    value=ast.Constant(value=str(text))
                ):
                    texts[name] = f"{name}: {text}"
                case _:
                    pass
    return texts


def test_parameters_and_results_of_the_public_api_are_described() -> None:
    found = {name: undescribed(*entry) for name, *entry in entries()}
    assert len(found) > 800
    assert {name: parameters for name, parameters in found.items() if parameters} == {}


def test_fields_of_public_dataclasses_are_described() -> None:
    found = list(fields())
    assert len(found) > 900
    wrong = [
        f"{owner}.{name}"
        for owner, name, annotation, text in found
        if not is_described(text, name, annotation)
    ]
    assert wrong == []


def _takes(rows: dict[str, list[int]], path: str, n: int) -> tuple[str, int]:
    return f"{rows}{path}", n


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Do it.", ["rows", "path", "return"]),
        ("Do it with *rows*.", ["rows", "path"]),
        ("The name of *path* and its number.\n\nArgs:\n    rows: Those of each name.", []),
        ("As ``other``.", []),
    ],
)
def test_a_parameter_without_a_description_is_found(text: str, expected: list[str]) -> None:
    assert undescribed(inspect.signature(_takes), text) == expected
