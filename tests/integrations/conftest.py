"""Frameworks trace nothing, report nothing and download nothing in the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from integrations_forbidden import FORBIDDEN
from sandbox.podman.podman_machine import build_images, missing_requirement

from wink_workspace import PodmanConfig
from wink_workspace.environment import Environment

HERE = Path(__file__).parent
os.environ.update(
    {
        "INSPECT_DISABLE_TELEMETRY": "1",
        "INSPECT_DISPLAY": "none",
        "LANGSMITH_TRACING": "false",
        "LANGCHAIN_TRACING_V2": "false",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # otherwise importing litellm downloads prices
        "LOGFIRE_SEND_TO_LOGFIRE": "false",
        "MSWEA_SILENT_STARTUP": "1",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
    }
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker load the frameworks; expect the cases that isolation forbids to fail."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.xdist_group("frameworks"))
        for case, reason in FORBIDDEN.items():
            if item.nodeid.endswith(case) or f"{case}[" in item.nodeid:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(scope="session")
def container() -> PodmanConfig:
    """Where commands run; without Podman, tests are skipped with the reason, or fail in CI."""
    environment = Environment.from_os()
    problem = missing_requirement() or build_images(environment)
    if problem and environment.is_ci:
        pytest.fail(f"CI is set, and {problem}", pytrace=False)
    elif problem:
        pytest.skip(problem)
    return PodmanConfig()
