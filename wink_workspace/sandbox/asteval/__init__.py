"""Python evaluated without a container: asteval in a process of its own, behind a wall.

``AstevalSandbox`` is the host's side. Importing this package loads neither asteval nor what the
wall is made of; only the server, another process, does.
"""

from .config import AstevalConfig
from .evaluation import (
    CodeError,
    Evaluation,
    EvaluationRequest,
    EvaluationUsage,
    Outcome,
    ShownValue,
)
from .host import AstevalSandbox, probe_isolation
from .layers import LAYERS, REQUIRED_LAYERS

__all__ = [
    "LAYERS",
    "REQUIRED_LAYERS",
    "AstevalConfig",
    "AstevalSandbox",
    "CodeError",
    "Evaluation",
    "EvaluationRequest",
    "EvaluationUsage",
    "Outcome",
    "ShownValue",
    "probe_isolation",
]
