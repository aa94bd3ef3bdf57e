"""Debian's chromium for tests of pages, and axe, which finds barriers in them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

__all__ = ["AXE", "chromium", "serious_findings"]

AXE = Path(sys.prefix, "mcp-checks", "node_modules", "axe-core", "axe.min.js")

expect.set_options(timeout=30_000)  # a busy machine takes more than the five seconds of playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; the test is skipped where there is none, and fails in CI."""
    program = shutil.which("chromium")
    if program is None or not AXE.exists():
        missing = "chromium" if program is None else "axe-core"
        if os.environ.get("CI"):
            pytest.fail(f"{missing} is missing")
        pytest.skip(f"{missing} is not installed; scripts/setup installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def serious_findings(page: Page) -> list[str]:
    """What axe finds; its script runs in the browser's own world, which no page can reach."""
    session = page.context.new_cdp_session(page)
    tree = session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    world = session.send("Page.createIsolatedWorld", {"frameId": tree})["executionContextId"]

    def run(expression: str) -> object:
        given = {"expression": expression, "contextId": world, "awaitPromise": True}
        answer = session.send("Runtime.evaluate", {**given, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    run(AXE.read_text() + "\n;0")
    found = run(
        "axe.run({preload: false}).then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => v.id + ': ' + v.nodes.map(n => n.html).slice(0, 3).join(' ')))"
    )
    session.detach()
    assert isinstance(found, list)
    return found
