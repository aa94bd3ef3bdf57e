"""Evaluation of Python without a container: in an isolated process of its own.

``AstevalConfig`` chooses asteval as the interpreter, ``PythonConfig`` Python itself.

``AstevalSandbox`` is the host's side. Importing this package loads neither asteval nor the
libraries for the isolation; only the server, which is another process, loads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .evaluation import CodeError as CodeError
    from .evaluation import EndReason as EndReason
    from .evaluation import Evaluation as Evaluation
    from .evaluation import EvaluationRequest as EvaluationRequest
    from .evaluation import EvaluationUsage as EvaluationUsage
    from .evaluation import ShownValue as ShownValue
    from .evaluation_limits import AstevalConfig as AstevalConfig
    from .evaluation_limits import PythonConfig as PythonConfig
    from .evaluator import AstevalSandbox as AstevalSandbox
    from .evaluator import probe_isolation as probe_isolation
    from .layers import LAYERS as LAYERS
    from .layers import REQUIRED_LAYERS as REQUIRED_LAYERS

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
