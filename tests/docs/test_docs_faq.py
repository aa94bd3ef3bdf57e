"""The page of questions from the issues of similar tools answers each one and leads further."""

from __future__ import annotations

import re

import pytest
from docs_pages import PAGES

(PAGE,) = (page for page in PAGES if page.name == "docs/faq.md")
QUESTIONS = [part.strip() for part in PAGE.text.split("\n## ")[1:]]


def test_there_are_twenty_questions() -> None:
    assert len(QUESTIONS) == 20
    assert all(re.match(r"[^\n]+[?.]\n", question) for question in QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_has_its_issues_and_a_link_to_the_whole_answer(question: str) -> None:
    _, issues, answer = question.split("\n\n", 2)
    assert re.fullmatch(
        r"\*(?:[\w-]+ \d+(?:, | and |(?=\*))(?:\d+(?:, | and |(?=\*)))*)+\*", issues
    )
    assert re.search(r"\]\((?:[\w-]+/)*[\w-]+\.md(?:#[\w-]+)?\)", answer), (
        "the links are checked, too"
    )
