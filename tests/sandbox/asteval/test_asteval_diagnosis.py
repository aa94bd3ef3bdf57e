"""What ``doctor`` reports about the isolation of Python."""

from __future__ import annotations

import pytest

from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox import IsolationReport, Layer, Probe
from wink_workspace.sandbox.asteval import LAYERS, AstevalConfig
from wink_workspace.sandbox.asteval import python_diagnosis as diagnosis


def test_every_layer_and_the_probes_are_reported_as_good_here() -> None:
    findings = diagnosis.examine(AstevalConfig())
    assert [finding.name for finding in findings] == [*LAYERS, "probes"]
    assert all(finding.detail for finding in findings)
    assert not [finding for finding in findings if finding.state == "missing"]
    assert "all stopped" in findings[-1].detail


@pytest.mark.parametrize(
    ("layer", "state", "fix"),
    [("seccomp", "missing", "not evaluated"), ("landlock", "limited", "other layers")],
)
def test_a_missing_layer_is_reported_with_its_consequence(
    layer: str, state: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = IsolationReport((Layer(layer, is_active=False, detail="no kernel"),), ())
    monkeypatch.setattr(diagnosis, "probe_isolation", lambda config: report)
    first, _ = diagnosis.examine(AstevalConfig())
    assert (first.state, first.detail) == (state, "no kernel")
    assert fix in first.fix


def test_a_probe_that_succeeded_is_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    report = IsolationReport((), (Probe("read a file", was_stopped=False),))
    monkeypatch.setattr(diagnosis, "probe_isolation", lambda config: report)
    (found,) = diagnosis.examine(AstevalConfig())
    assert found.state == "missing"
    assert "read a file" in found.detail


def test_a_server_that_cannot_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(config: AstevalConfig) -> IsolationReport:
        raise SandboxUnavailableError("no Python")

    monkeypatch.setattr(diagnosis, "probe_isolation", unavailable)
    (found,) = diagnosis.examine(AstevalConfig())
    assert (found.name, found.state, found.detail) == ("server", "missing", "no Python")
