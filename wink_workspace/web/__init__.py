"""Workspaces as pages in a browser, served on this machine only.

``serve_web`` serves a list of workspaces, the timeline of each one, its entries, and its files at
any entry. Another process may have a workspace open. The pages change something only if the caller
allows it, and only what they showed first.

The package imports ``starlette``, ``uvicorn``, ``jinja2`` and ``pygments``, of the extra ``web``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .application import serve_web as serve_web

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
