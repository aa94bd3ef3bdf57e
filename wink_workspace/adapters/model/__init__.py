"""Models of any provider that pydantic-ai knows: the only door to that library.

Rule 1: only the wire is pydantic-ai's. Tools are run by our executor, turns asked for by our
loop, and retries waited for by our clock; the libraries below are told to try once.
Rule 2: what ends a run is a ``PromptEvaluationError`` with a phase and a hint, and nothing that
an environment keeps secret is in its text. No exception of a library hangs on it: those hold
requests, and requests hold keys.
Rule 3: pydantic-ai is imported when a ``ModelAdapter`` is made, never before.
Rule 4: requests run on a thread of their own with its own event loop, so that Ctrl-C and a
deadline interrupt the waiting and never the library, and so that one who has an event loop may
call this, too.
"""

from .adapter import ModelAdapter, ModelEvent, Retrying, TextDelta
from .retrying import RetryLimits

__all__ = ["ModelAdapter", "ModelEvent", "RetryLimits", "Retrying", "TextDelta"]
