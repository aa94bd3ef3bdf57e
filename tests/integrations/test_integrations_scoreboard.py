"""The scoreboard has the form that its program writes, and agrees with the list of exceptions."""

from __future__ import annotations

import re

import pytest
from integrations_forbidden import FORBIDDEN
from scoreboard import PAGE, SUITES, Result, counted, page

ROW = re.compile(r"\| (\S+) \S+ \| (\S+) \| (.+) \| (.+) \| \w+ \|")
RESULT = re.compile(r"(\d+) of (\d+)(?:, (\d+) skipped)?")


def result_of(text: str) -> Result:
    found = RESULT.fullmatch(text)
    assert found, text
    passed, all_, skipped = (int(each or 0) for each in found.groups())
    return Result(passed, all_ - passed - skipped, skipped)


def committed() -> dict[str, tuple[Result, Result]]:
    rows = [ROW.fullmatch(line) for line in PAGE.read_text().splitlines()]
    return {row[2]: (result_of(row[3]), result_of(row[4])) for row in rows if row}


def test_the_page_has_the_form_that_the_program_writes_with_the_installed_versions() -> None:
    assert page(committed()) == PAGE.read_text()


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_cases_that_fail_on_a_workspace_are_those_in_the_list(suite) -> None:
    names = {
        "WorkspaceBackendSuite": "TestWorkspaceBackend::",
        "SandboxIntegrationTests": "TestWorkspaceSandbox::",
        "self_check": "inspect_ai_suite.py::",
        "fsspec.tests.abstract": "fsspec_abstract.py::",
    }
    listed = [case for case in FORBIDDEN if case.startswith(names[suite.name])]
    assert committed()[suite.name][0].n_failed == len(listed)


def test_expected_failures_count_as_failed_and_skips_apart() -> None:
    report = (
        "<testsuites><testsuite><testcase/><testcase><failure/></testcase><testcase><error/>"
        "</testcase><testcase><skipped type='pytest.xfail'/></testcase><testcase>"
        "<skipped type='pytest.skip'/></testcase></testsuite></testsuites>"
    )
    assert counted(report) == Result(1, 3, 1)
    assert str(counted(report)) == "1 of 5, 1 skipped"
