"""Where foreign code runs, and what isolates it.

``Sandbox`` is the protocol; ``SANDBOXES`` holds the kinds that there are, by name. Importing this
package loads none of them.
"""

from .backends import (
    DEFAULT_SANDBOX,
    NO_SANDBOX,
    SANDBOXES,
    SandboxBackend,
    SandboxConfig,
    SandboxFactory,
    SandboxImage,
    SandboxImages,
    SandboxImageState,
    SandboxPlace,
    SandboxRegistry,
)
from .findings import Finding
from .isolation import IsolationReport, Layer, Probe
from .protocol import (
    CapturedOutput,
    ExecRequest,
    ExecResult,
    OutputObserver,
    PythonRequest,
    Sandbox,
    StreamName,
)

__all__ = [
    "DEFAULT_SANDBOX",
    "NO_SANDBOX",
    "SANDBOXES",
    "CapturedOutput",
    "ExecRequest",
    "ExecResult",
    "Finding",
    "IsolationReport",
    "Layer",
    "OutputObserver",
    "Probe",
    "PythonRequest",
    "Sandbox",
    "SandboxBackend",
    "SandboxConfig",
    "SandboxFactory",
    "SandboxImage",
    "SandboxImageState",
    "SandboxImages",
    "SandboxPlace",
    "SandboxRegistry",
    "StreamName",
]
