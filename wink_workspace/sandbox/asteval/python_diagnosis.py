"""The findings of ``doctor`` about isolated Python: each isolation layer, and the probes."""

from __future__ import annotations

from wink_workspace.errors import SandboxError
from wink_workspace.sandbox.isolation_report import Finding, IsolationReport, Layer

from .evaluation_limits import AstevalConfig
from .evaluator import probe_isolation
from .layers import LAYERS


def examine(config: AstevalConfig) -> tuple[Finding, ...]:
    """A finding for each layer, and one for all probes. Starts a server and ends it."""
    part = config.backend
    try:
        report = probe_isolation(config)
    except SandboxError as error:
        return (Finding(part, "server", "missing", error.message, error.hint),)
    layers = (_layer_finding(layer, config) for layer in report.layers)
    return (*layers, _probes_finding(report, part))


def _layer_finding(layer: Layer, config: AstevalConfig) -> Finding:
    part = config.backend
    if layer.is_active:
        return Finding(part, layer.name, "good", layer.detail or LAYERS[layer.name])
    is_required = layer.name in config.required_layers
    return Finding(
        part,
        layer.name,
        "missing" if is_required else "limited",
        layer.detail,
        "Python is not evaluated without it."
        if is_required
        else "It is optional: other layers forbid the same.",
    )


def _probes_finding(report: IsolationReport, part: str) -> Finding:
    if report.holes:
        named = ", ".join(hole.name for hole in report.holes)
        return Finding(part, "probes", "missing", f"not stopped: {named}", "Please report it.")
    return Finding(part, "probes", "good", f"{len(report.probes)} probes, all stopped")
