"""Cases of frameworks' own suites that our isolation forbids, each with the reason.

The keys are parts of the ids that pytest shows. Such a case must fail: one that passes, or that no
longer exists, is reported as a failure.
"""

from __future__ import annotations

FORBIDDEN: dict[str, str] = {}
