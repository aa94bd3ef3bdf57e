"""Sandboxes for code that is not trusted, and the report of their isolation.

``Sandbox`` is the protocol; ``SANDBOXES`` has the backends by name. Importing this package loads
no backend.
"""

from .backends import (
    DEFAULT_SANDBOX,
    NO_SANDBOX,
    SANDBOXES,
    SandboxBackend,
    SandboxConfig,
    SandboxContext,
    SandboxFactory,
    SandboxImage,
    SandboxImages,
    SandboxImageState,
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
    "SandboxContext",
    "SandboxFactory",
    "SandboxImage",
    "SandboxImageState",
    "SandboxImages",
    "SandboxRegistry",
    "StreamName",
]
