"""Each number that a public function or dataclass takes has a unit: in its name, or in the text."""

from __future__ import annotations

import dataclasses
import inspect
import re

import pytest
from docs_names import find
from test_docs_raises import functions

pytestmark = pytest.mark.xdist_group("frameworks")

NUMBER = re.compile(r"(?:int|float)(?: \| None)?")
UNIT_IN_NAME = re.compile(
    r"(?:^|_)(?:s|ms|ns|bytes|chars|tokens|usd|lines|files|calls|days|turns|entries|results|paths|cpus)$"
    r"|^(?:n|max|most|least)_|^(?:lines|tokens|turns)$"
)
WITHOUT_UNIT = re.compile(
    r"(?:^|_)(?:number|id|index|position|line|column|port|pid|inode|fd|mode|permissions|signal|status"
    r"|exit_code|code|epoch|seed|depth|mark|thread|start|end|version|attempt|round|retries|processes)$"
)
"""Ordinals, identifiers, codes, file modes, and counts of what the name says."""

UNIT_IN_TEXT = re.compile(
    r"seconds?|bytes?|[KMG]iB|count|number|characters?|lines?|tokens?|dollars?|percent|parts? of|hours?"
    r"|minutes?|days|most|how many|times|generations|from 0|from 1|between 0|fraction of"
    r"|occurrences|in a row|descriptor|without a unit",
    re.IGNORECASE,
)


def without_unit(text: str, signature: inspect.Signature) -> list[str]:
    """The parameters that are numbers of which neither name nor text gives a unit."""
    return [
        parameter.name
        for parameter in signature.parameters.values()
        if NUMBER.fullmatch(str(parameter.annotation))
        and not UNIT_IN_NAME.search(parameter.name)
        and not WITHOUT_UNIT.search(parameter.name)
        and not UNIT_IN_TEXT.search(sentence_about(text, parameter.name))
    ]


def sentence_about(text: str, name: str) -> str:
    """The entry of a parameter with its indented lines, or the sentence that names it."""
    entry = re.search(rf"^( *){name}: .*(?:\n\1 +.*)*", text, re.MULTILINE)
    if entry:
        return entry[0]
    return " ".join(
        each for each in re.split(r"(?<=[.;])\s", text) if re.search(rf"\b{name}\b", each)
    )


def described(name: str) -> str:
    """What a model reads about the fields of a tool's parameters."""
    owner = find(name.removesuffix(".__init__"))
    if not dataclasses.is_dataclass(owner):
        return ""
    texts = {each.name: each.metadata.get("description") for each in dataclasses.fields(owner)}
    return "\n".join(f"{field}: {text}" for field, text in texts.items() if text)


def test_numbers_of_the_public_api_have_units() -> None:
    wrong = {
        name: without_unit(f"{text}\n{described(name)}", inspect.signature(function))
        for name, function, text in functions()
    }
    assert len(wrong) > 800
    assert {name: parameters for name, parameters in wrong.items() if parameters} == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Wait.", ["wait"]),
        ("Wait.\n\nArgs:\n    wait: Seconds until\n        it ends.", []),
        ("Wait at most *wait* seconds.", []),
        ("Count bytes. Then *wait*.", ["wait"]),
    ],
)
def test_a_number_without_a_unit_is_found(text: str, expected: list[str]) -> None:
    parameter = inspect.Parameter("wait", inspect.Parameter.KEYWORD_ONLY, annotation="float")
    assert without_unit(text, inspect.Signature([parameter])) == expected
