"""What ``doctor`` tells of the wall around Python."""

from __future__ import annotations

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox import IsolationReport, Layer, Probe
from wink_workspace.sandbox.asteval import LAYERS, diagnosis


def test_every_layer_and_the_attempts_are_found_here() -> None:
    findings = diagnosis.examine(Environment())
    assert [finding.name for finding in findings] == [*LAYERS, "probes"]
    assert all(finding.detail for finding in findings)
    assert not [finding for finding in findings if finding.state == "missing"]
    assert "all stopped" in findings[-1].detail


@pytest.mark.parametrize(
    ("layer", "state", "fix"),
    [("seccomp", "missing", "not evaluated"), ("landlock", "limited", "other layers")],
)
def test_a_layer_that_is_not_up_says_what_that_means(
    layer: str, state: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = IsolationReport((Layer(layer, is_active=False, detail="no kernel"),), ())
    monkeypatch.setattr(diagnosis, "probe_isolation", lambda: report)
    first, _ = diagnosis.examine(Environment())
    assert (first.state, first.detail) == (state, "no kernel")
    assert fix in first.fix


def test_a_hole_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    report = IsolationReport((), (Probe("read a file", was_stopped=False),))
    monkeypatch.setattr(diagnosis, "probe_isolation", lambda: report)
    (found,) = diagnosis.examine(Environment())
    assert found.state == "missing"
    assert "read a file" in found.detail


def test_a_server_that_cannot_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> IsolationReport:
        raise SandboxUnavailableError("no Python")

    monkeypatch.setattr(diagnosis, "probe_isolation", unavailable)
    (found,) = diagnosis.examine(Environment())
    assert (found.name, found.state, found.detail) == ("server", "missing", "no Python")
