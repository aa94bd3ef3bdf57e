"""A workspace's history as one HTML page that can be sent to a colleague.

The page is self-contained: it has no script, requests nothing, and is readable in any browser. It
imports ``jinja2``, of the extra ``report``; no other package does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .reported import ReportedHistory as ReportedHistory
    from .reported import write_page as write_page

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
