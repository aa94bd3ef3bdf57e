"""A scorer that gives no score: the attempt fails, and its error says who is the cause."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attempt_functions as do
import pytest
from fake_sandbox import FakeConfig, registered

from wink_workspace.attempts import AttemptOutcome, Attempts, CommandScore, LocalEngine
from wink_workspace.errors import ScorerError
from wink_workspace.workspace import Workspace

PASSED = "<testsuite>" + '<testcase name="t"/>' * 4 + "</testsuite>"
HALF = PASSED.replace('<testcase name="t"/>' * 2, "<testcase><failure/></testcase>" * 2, 1)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a\n")
    with registered(), Workspace.temporary(tmp_path / "source") as opened:
        yield opened


def score(*command: str) -> CommandScore:
    return CommandScore(command, junit="report.xml", sandbox=FakeConfig())


@pytest.mark.behaviour(165)
def test_a_score_is_the_part_of_the_tests_that_passed_and_skipped_ones_did_not(
    workspace: Workspace,
) -> None:
    assert score("put", "report.xml", HALF)(workspace).value == 0.5
    skipping = HALF.replace("<failure/>", "<skipped/>")
    assert score("put", "report.xml", skipping)(workspace).value == 0.5


@pytest.mark.behaviour(165)
@pytest.mark.parametrize(
    "report",
    ["", "<testsuites/>", "<testsuite", PASSED.replace("/>", "><skipped/></testcase>"),
     '<!DOCTYPE x [<!ENTITY a "b">]>' + PASSED],
    ids=["none", "empty", "broken", "all skipped", "entities"],
)  # fmt: skip
def test_a_report_of_the_attempt_is_no_report_and_without_one_there_is_no_score(
    workspace: Workspace, report: str
) -> None:
    workspace.files.write_text("report.xml", PASSED)
    command = ("put", "report.xml", report) if report else ("cat", "a")
    with pytest.raises(ScorerError, match="no test that ran") as caught:
        score(*command)(workspace)
    assert caught.value.kind == "no tests"


@pytest.mark.behaviour(165)
def test_an_attempt_that_makes_its_scorer_fail_has_failed_and_is_not_the_best(
    workspace: Workspace, tmp_path: Path
) -> None:
    scorer = partial(do.score_unless_broken, str(tmp_path / "log"))
    attempts = Attempts(workspace, n=3, engine=LocalEngine(workers=1))
    results = list(attempts.run(do.break_scorer, score=scorer))
    assert [result.outcome for result in results] == [
        AttemptOutcome.FINISHED, AttemptOutcome.FAILED, AttemptOutcome.FAILED,
    ]  # fmt: skip
    for result in results[1:]:
        assert result.error.startswith("the attempt made its scorer fail")
        assert "no score here" in result.error
    assert attempts.best == results[0]
    runs = (tmp_path / "log").read_text().splitlines()
    assert runs == ["['notes.md']", "['broken']", "[]", "['broken']"], "the start is scored once"


@pytest.mark.behaviour(165)
def test_a_scorer_that_fails_in_the_same_way_on_the_unchanged_files_is_the_cause(
    workspace: Workspace,
) -> None:
    attempts = Attempts(workspace, n=1)
    (result,) = attempts.run(do.break_scorer, score=score("put", "other.xml", PASSED))
    assert result.outcome is AttemptOutcome.FAILED
    assert result.error.startswith("the scorer: ScorerError: report.xml has no test that ran")
