"""Evaluation of Python without a container: in an isolated process of its own.

``AstevalConfig`` chooses asteval as the interpreter, ``PythonConfig`` Python itself.

``AstevalSandbox`` is the host's side. Importing this package loads neither asteval nor the
libraries for the isolation; only the server, which is another process, loads them.
"""

from .evaluation import (
    CodeError,
    EndReason,
    Evaluation,
    EvaluationRequest,
    EvaluationUsage,
    ShownValue,
)
from .evaluation_limits import AstevalConfig, PythonConfig
from .evaluator import AstevalSandbox, probe_isolation
from .layers import LAYERS, REQUIRED_LAYERS

__all__ = [
    "LAYERS",
    "REQUIRED_LAYERS",
    "AstevalConfig",
    "AstevalSandbox",
    "CodeError",
    "EndReason",
    "Evaluation",
    "EvaluationRequest",
    "EvaluationUsage",
    "PythonConfig",
    "ShownValue",
    "probe_isolation",
]
