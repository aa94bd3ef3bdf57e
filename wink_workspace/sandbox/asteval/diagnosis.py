"""The findings of ``doctor`` about isolated Python: each isolation layer, and the probes."""

from __future__ import annotations

from typing import Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.sandbox.findings import Finding
from wink_workspace.sandbox.isolation import IsolationReport, Layer

from .config import AstevalConfig
from .host import probe_isolation
from .layers import LAYERS

__all__ = ["examine"]

_PART: Final = "asteval"


def examine(environment: Environment) -> tuple[Finding, ...]:
    """A finding for each layer, and one for all probes. Starts a server and ends it."""
    del environment  # the server does not get it
    try:
        report = probe_isolation()
    except SandboxError as error:
        return (Finding(_PART, "server", "missing", error.message, error.hint),)
    return (*(_layer_finding(layer) for layer in report.layers), _probes_finding(report))


def _layer_finding(layer: Layer) -> Finding:
    if layer.is_active:
        return Finding(_PART, layer.name, "good", layer.detail or LAYERS[layer.name])
    is_required = layer.name in AstevalConfig().required_layers
    return Finding(
        _PART,
        layer.name,
        "missing" if is_required else "limited",
        layer.detail,
        "Python is not evaluated without it."
        if is_required
        else "It is optional: other layers forbid the same.",
    )


def _probes_finding(report: IsolationReport) -> Finding:
    if report.holes:
        named = ", ".join(hole.name for hole in report.holes)
        return Finding(_PART, "probes", "missing", f"not stopped: {named}", "Please report it.")
    return Finding(_PART, "probes", "good", f"{len(report.probes)} probes, all stopped")
