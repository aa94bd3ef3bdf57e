"""The error tree: codes, hints, and the built-in exceptions that callers may catch instead."""

from __future__ import annotations

import re

import pytest

from wink_workspace import errors
from wink_workspace.errors import (
    ParseError,
    PathEscapeError,
    Problem,
    PromptEvaluationError,
    PromptValidationError,
    RollbackError,
    ToolValidationError,
    UsageError,
    VisibilityExpansionRequired,
    WinkError,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, WinkError)
]

BUILT_INS = {
    "UsageError": ValueError,
    "MissingExtraError": ImportError,
    "DeadlineExceededError": TimeoutError,
    "UnboundResourceError": LookupError,
    "FileMissingError": FileNotFoundError,
    "PathExistsError": FileExistsError,
    "FileExpectedError": IsADirectoryError,
    "DirectoryExpectedError": NotADirectoryError,
    "DirectoryNotEmptyError": OSError,
    "ReadOnlyError": PermissionError,
    "LinkError": OSError,
    "BinaryFileError": ValueError,
    "PatternError": ValueError,
    "SearchTimeoutError": TimeoutError,
}


def test_every_error_is_exported() -> None:
    assert {error.__name__ for error in CLASSES} <= set(errors.__all__)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = {error.code for error in CLASSES}
    assert len(codes) == len(CLASSES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", code) for code in codes)


def test_the_tree_in_the_docstring_is_complete() -> None:
    """Each class is below its base, with its built-in exception in brackets."""
    drawn: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for line in errors.__doc__.partition("::")[2].splitlines():
        if found := re.fullmatch(r"    ([ |]*)(?:\+-- )?(\w+)(?: \((\w+)\))?(?:  .*)?", line):
            level = (len(found[1]) + 4) // 5 if "+--" in line else 0
            del above[level:]
            drawn[found[2]] = (above[-1] if above else "Exception", found[3] or "")
            above.append(found[2])
    assert drawn == {
        error.__name__: (
            error.__bases__[0].__name__,
            BUILT_INS[error.__name__].__name__ if error.__name__ in BUILT_INS else "",
        )
        for error in CLASSES
    }


@pytest.mark.parametrize(("name", "built_in"), BUILT_INS.items())
def test_an_error_with_a_python_equivalent_can_be_caught_as_that(name, built_in) -> None:
    with pytest.raises(built_in) as caught:
        raise getattr(errors, name)("a.txt is not there", hint="Look elsewhere.")
    assert str(caught.value) == "a.txt is not there. Look elsewhere."


def test_the_text_is_the_message_and_then_the_hint() -> None:
    assert str(WinkError("it broke", hint="Mend it.")) == "it broke. Mend it."
    assert str(WinkError("it broke")) == "it broke"
    assert str(ToolValidationError("no such step")) == "no such step"


def test_the_default_hint_of_a_class_may_be_replaced_or_left_out() -> None:
    assert errors.PatchError("hunk 2 does not apply").hint == errors.PatchError.default_hint != ""
    assert errors.PatchError("hunk 2", hint="Use another.").hint == "Use another."
    assert str(errors.PatchError("hunk 2", hint="")) == "hunk 2"


def test_a_parse_error_lists_every_problem_with_its_path() -> None:
    problems = [Problem("steps[2].title", "is missing"), Problem("", "must be an object")]
    error = ParseError("arguments of 'plan'", problems)
    assert error.problems == tuple(problems)
    assert error.message == "arguments of 'plan': steps[2].title: is missing; must be an object"
    assert error.hint == ParseError.default_hint


def test_a_path_that_escapes_is_a_usage_error_with_the_path() -> None:
    error = PathEscapeError("../x")
    assert (error.given, error.message) == ("../x", "'../x' leads outside the workspace")
    assert isinstance(error, UsageError)
    assert "relative" in error.hint


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "it is wrong"),
        ({"section_path": ["Guide", "Rules"]}, "section Guide > Rules: it is wrong"),
        ({"tool": "rm", "field": "path"}, "tool 'rm', field 'path': it is wrong"),
        (
            {"section_path": ("Guide",), "tool": "rm", "field": "name"},
            "section Guide, tool 'rm', field 'name': it is wrong",
        ),
    ],
)
def test_a_prompt_validation_error_names_the_known_section_tool_and_field(place, text) -> None:
    error = PromptValidationError("it is wrong", **place)
    assert (error.message, error.reason) == (text, "it is wrong")
    assert error.section_path == tuple(place.get("section_path", ()))
    assert (error.tool, error.field) == (place.get("tool"), place.get("field"))


def test_an_evaluation_error_says_in_which_phase_the_run_ended() -> None:
    error = PromptEvaluationError("too late", phase="tool", prompt_name="main", hint="Hurry.")
    assert (error.phase, error.prompt_name, str(error)) == ("tool", "main", "too late. Hurry.")


def test_a_request_to_open_sections_has_sections_reason_and_problems() -> None:
    request = VisibilityExpansionRequired(["a.b", "c"], reason="needed", problems={"x": "unknown"})
    assert (request.section_keys, request.reason) == (("a.b", "c"), "needed")
    assert request.problems == {"x": "unknown"}
    assert request.message == "sections to open: a.b, c"
    assert VisibilityExpansionRequired(["a"]).problems == {}


def test_a_rollback_error_keeps_every_failure_in_order() -> None:
    failures = [OSError("first"), ValueError("second")]
    error = RollbackError("2 of 3 could not be restored", failures)
    assert error.failures == tuple(failures)
    assert error.hint
