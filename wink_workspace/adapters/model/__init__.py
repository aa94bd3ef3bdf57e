"""Models of every provider that pydantic-ai supports. Only this package imports that library.

Rule 1: pydantic-ai only sends requests. Our executor runs the tools, our loop requests turns, and
our clock waits for retries; the libraries below are configured not to retry.
Rule 2: every error is a ``PromptEvaluationError`` with a phase and a hint. Its text holds no
secret of the environment. It is not chained to exceptions of libraries, because those hold
requests, and requests hold keys.
Rule 3: creating a ``ModelAdapter`` imports pydantic-ai; nothing else does.
Rule 4: requests run on a separate thread with its own event loop. So Ctrl-C and a deadline
interrupt the waiting and not the library, and a caller may have its own event loop.
"""

from .adapter import ModelAdapter, ModelEvent, Retrying, TextDelta
from .retrying import RetryLimits

__all__ = ["ModelAdapter", "ModelEvent", "RetryLimits", "Retrying", "TextDelta"]
