"""Where foreign code runs, and what walls it in.

``Sandbox`` is the protocol. Importing this package loads no engine.
"""

from .protocol import (
    CapturedOutput,
    ExecRequest,
    ExecResult,
    OutputObserver,
    PythonRequest,
    Sandbox,
    StreamName,
)
from .walls import Layer, Probe, WallReport

__all__ = [
    "CapturedOutput",
    "ExecRequest",
    "ExecResult",
    "Layer",
    "OutputObserver",
    "Probe",
    "PythonRequest",
    "Sandbox",
    "StreamName",
    "WallReport",
]
