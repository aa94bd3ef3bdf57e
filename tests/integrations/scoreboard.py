"""Run the suites of frameworks on a workspace and on their own local backends; write the results.

``make scoreboard`` writes benchmarks/scoreboard.md. A suite is run by a process of its own, and only what
pytest reports is counted.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from integrations_forbidden import FORBIDDEN

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "benchmarks" / "scoreboard.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A suite that a framework publishes.

    Attributes:
        name: Its name in the package.
        distribution: The package that has it.
        ours: The file that runs it on a workspace.
        local: The file that runs it on the framework's own local backend.
        backend: The name of that backend.
    """

    name: str
    distribution: str
    ours: str
    local: str
    backend: str


SUITES: Final = (
    Suite(
        name="WorkspaceBackendSuite",
        distribution="pydantic-ai-slim",
        ours="test_integrations_pydantic_ai_suite.py",
        local="suite_pydantic_ai.py",
        backend="LocalWorkspaceBackend",
    ),
    Suite(
        name="SandboxIntegrationTests",
        distribution="langchain-tests",
        ours="test_integrations_deepagents_suite.py",
        local="suite_deepagents.py",
        backend="LocalShellBackend",
    ),
    Suite(
        name="self_check",
        distribution="inspect-ai",
        ours="test_integrations_inspect_ai_suite.py",
        local="suite_inspect_ai.py",
        backend="LocalSandboxEnvironment",
    ),
    Suite(
        name="fsspec.tests.abstract",
        distribution="fsspec",
        ours="test_integrations_fsspec_abstract.py",
        local="suite_fsspec.py",
        backend="LocalFileSystem",
    ),
)


@dataclass(frozen=True, slots=True)
class Result:
    """How many cases of a suite passed, and how many did not: failed, or skipped by the suite."""

    n_passed: int
    n_failed: int
    n_skipped: int

    def __str__(self) -> str:
        parts = [f"{self.n_passed} of {self.n_passed + self.n_failed + self.n_skipped}"]
        return ", ".join(parts + ([f"{self.n_skipped} skipped"] if self.n_skipped else []))


def run(path: Path) -> Result:
    """The result of a file of tests. A case that is expected to fail counts as failed.

    Raises:
        SystemExit: If no case was run.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-W", "default"),
                *("-o", "python_files=*.py", f"--junitxml={report}", str(path)),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if not report.exists():
            sys.exit(done.stdout + done.stderr)
        result = counted(report.read_text(encoding="utf-8"))
    if not result.n_passed:
        sys.exit(f"{path.name}: no case passed\n{done.stdout[-3_000:]}")
    return result


def counted(report: str) -> Result:
    """The result in a report in the format of JUnit."""
    outcomes = {"passed": 0, "failed": 0, "skipped": 0}
    for case in ET.fromstring(report).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcomes["failed"] += 1
        elif skipped is None:
            outcomes["passed"] += 1
        else:
            is_expected = skipped.get("type") == "pytest.xfail"
            outcomes["failed" if is_expected else "skipped"] += 1
    return Result(outcomes["passed"], outcomes["failed"], outcomes["skipped"])


def page(results: dict[str, tuple[Result, Result]]) -> str:
    """The page for the results of each suite by its name: on a workspace, and on the local backend."""
    rows = [
        f"| {each.distribution} {version(each.distribution)} | {each.name} "
        f"| {results[each.name][0]} | {results[each.name][1]} | {each.backend} |"
        for each in SUITES
    ]
    by_reason: dict[str, list[str]] = {}
    for case, reason in FORBIDDEN.items():
        by_reason.setdefault(reason, []).append(case.partition("::")[2])
    cases = [f"- {reason}: {', '.join(names)}" for reason, names in by_reason.items()]
    return "\n".join(
        (
            "# Scoreboard",
            "",
            "How many cases of the suites that frameworks publish pass: on a workspace, and on the",
            "framework's own local backend, which has no isolation and no undo. `make scoreboard` runs",
            "them on your machine and writes this page. A suite skips what a backend does not offer. The",
            "OpenAI Agents SDK and mini-swe-agent publish no suite.",
            "",
            "| Package | Suite | Workspace | Local | Local backend |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## Cases that cannot pass on a workspace",
            "",
            "`make test` fails if another case fails, and also if one of these passes.",
            "",
            *cases,
            "",
        )
    )


def main() -> None:
    """Run all suites, and write the page."""
    here = Path(__file__).parent
    results: dict[str, tuple[Result, Result]] = {}
    for suite in SUITES:
        results[suite.name] = run(here / suite.ours), run(here / "local_backends" / suite.local)
        print(suite.name, *results[suite.name], sep="\t")
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
