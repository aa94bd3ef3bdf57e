"""A workspace's tools over the Model Context Protocol, for any client that speaks it.

One client, one workspace: a process that serves over its standard streams has one, and over
HTTP each session gets its own. Every tool call goes through the executor, so it is the same
transaction that it is in a run of our own; here is only the way from a message to a call and
back. This package and the sandbox's input and output are all of the toolkit that is
asynchronous, and ``mcp`` with what comes along with it is imported nowhere else.

Importing this package loads nothing: what a name needs is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .hosting import HostedWorkspace
    from .http import HttpOptions, serve_http
    from .offer import Offer
    from .stdio import serve_stdio

__all__ = ["HostedWorkspace", "HttpOptions", "Offer", "serve_http", "serve_stdio"]

_HOME = {
    "HostedWorkspace": "hosting",
    "HttpOptions": "http",
    "Offer": "offer",
    "serve_http": "http",
    "serve_stdio": "stdio",
}


def __getattr__(name: str) -> object:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
