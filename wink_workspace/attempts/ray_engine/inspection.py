"""The function that a node runs before any work is sent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["make_inspector"]


def make_inspector() -> Callable[[dict[str, Any]], str]:
    """A function for a node that may have another version of this package, or none.

    It returns why the node cannot be used, or an empty text. Ray sends a function that is defined
    in another one by value, so it must not use any name of this module.
    """

    def inspect(wanted: dict[str, Any]) -> str:
        import sys
        from importlib.metadata import PackageNotFoundError, version

        python = "{}.{}".format(*sys.version_info)
        if python != wanted["python"]:
            return f"it has Python {python}, not {wanted['python']}"
        try:
            found = version("wink-workspace")
        except PackageNotFoundError:
            return "wink-workspace is not installed there"
        if found != wanted["version"]:
            return f"it has wink-workspace {found}, not {wanted['version']}"
        try:
            from .node import missing_parts
        except Exception as error:  # noqa: BLE001 - the boundary to another installation
            return f"wink-workspace cannot be loaded there: {type(error).__name__}: {error}"
        return missing_parts(wanted)

    return inspect
