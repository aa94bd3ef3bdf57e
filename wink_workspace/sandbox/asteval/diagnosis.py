"""What ``doctor`` tells of walled Python: each layer of the wall, and what was tried against it."""

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
    """A finding for each layer, and one for all attempts; a server is started and ended."""
    del environment  # the server gets none of it
    try:
        report = probe_isolation()
    except SandboxError as error:
        return (Finding(_PART, "server", "missing", error.message, error.hint),)
    return (*(_of_layer(layer) for layer in report.layers), _of_attempts(report))


def _of_layer(layer: Layer) -> Finding:
    if layer.is_up:
        return Finding(_PART, layer.name, "good", layer.detail or LAYERS[layer.name])
    is_required = layer.name in AstevalConfig().required_layers
    return Finding(
        _PART,
        layer.name,
        "missing" if is_required else "limited",
        layer.detail,
        "No Python is evaluated without it."
        if is_required
        else "Nothing gets through for the lack of it; other layers stop the same.",
    )


def _of_attempts(report: IsolationReport) -> Finding:
    n_tried = len(report.probes)
    if report.holes:
        named = ", ".join(hole.name for hole in report.holes)
        return Finding(_PART, "attempts", "missing", f"not stopped: {named}", "Report it, please.")
    return Finding(_PART, "attempts", "good", f"{n_tried} attempts to get out, all stopped")
