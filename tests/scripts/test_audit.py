"""``scripts/audit`` counts a part without data as neither a success nor a finding."""

from __future__ import annotations

import json
from types import ModuleType

import pytest
from script_files import script


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    return script("audit")


def python_report(*packages: dict[str, object]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


CLEAN = {"name": "h11", "version": "0.16.0", "vulns": []}
SKIPPED = {"name": "local", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE = {
    "name": "old",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}


def test_a_report_of_pip_audit_is_split_into_findings_audited_and_unknown(
    audit: ModuleType,
) -> None:
    part = audit.of_python(python_report(CLEAN, SKIPPED, VULNERABLE), "")
    assert part.findings == (
        "old 1.0: PYSEC-1, fixed in 1.1",
        "old 1.0: PYSEC-2, fixed in no version yet",
    )
    assert (part.n_packages, part.without_data) == (2, ("local",))


def test_a_report_of_npm_has_findings_or_the_answer_of_the_registry(audit: ModuleType) -> None:
    problems = {"ws": {"range": "<8.17.1", "severity": "high"}}
    total = {"dependencies": {"total": 7}}
    found = audit.of_npm(json.dumps({"vulnerabilities": problems, "metadata": total}), "")
    assert (found.findings, found.n_packages) == (("ws <8.17.1: high",), 7)
    refused = audit.of_npm(json.dumps({"message": "405 Method Not Allowed"}), "")
    assert refused.without_data == ("405 Method Not Allowed",)
    assert audit.of_npm("", "npm is not installed").without_data == ("npm is not installed",)


def test_pip_audit_without_a_report_leaves_its_last_message(audit: ModuleType) -> None:
    part = audit.of_python("", "Traceback\nConnectionError: no route to host\n")
    assert part.without_data == ("ConnectionError: no route to host",)


@pytest.mark.parametrize(
    ("packages", "licences_allowed", "code"),
    [
        ([CLEAN], True, 0),
        ([CLEAN, SKIPPED], True, 3),
        ([CLEAN], False, 1),
        ([VULNERABLE, SKIPPED], True, 1),
    ],
)
def test_the_exit_code_distinguishes_findings_from_missing_data(
    audit: ModuleType, packages: list[dict[str, object]], licences_allowed: bool, code: int
) -> None:
    part = audit.of_python(python_report(*packages), "")
    assert audit.exit_code([part], licences_allowed=licences_allowed) == code
