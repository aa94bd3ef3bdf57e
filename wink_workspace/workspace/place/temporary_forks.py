"""Names of temporary forks: each one names the process that deletes it.

A fork whose process has died is a leftover. A process id that was used again keeps a leftover until
that process has ended, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

__all__ = ["is_temporary", "leftover_forks", "new_temporary_name"]

_NAME: Final = re.compile(r"temporary-(\d+)-\d+")


def new_temporary_name(forks: Collection[str]) -> str:
    """A name for a fork that this process deletes, not one of *forks*."""
    names = (f"temporary-{os.getpid()}-{n}" for n in count(1))
    return next(name for name in names if name not in forks)


def is_temporary(name: str) -> bool:
    """Whether the process that the name of the fork names deletes it."""
    return _NAME.fullmatch(name) is not None


def leftover_forks(forks: Collection[str]) -> Iterator[str]:
    """Those of *forks* that a process which has ended should have deleted."""
    for name in forks:
        match = _NAME.fullmatch(name)
        if match is not None and not _is_running(int(match[1])):
            yield name


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's, or a name that is not ours
        return True
    return True
