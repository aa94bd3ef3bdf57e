"""Which paths may have moved, without walking the tree.

A *tracker* collects what may have changed below a root and hands it over, in ``drain``, as a
``Dirty``. Rule 1: a path that changed before ``drain`` was called is in its answer; paths
that did not change may be. Rule 2: whoever changes something through this package says so
with ``note``, also when the change failed half-way.

What no tracker sees, and why that is bearable:

* Writes through a shared memory mapping of a process that still runs. They show once the
  mapping is gone; a drain that decides something comes after the death of all processes of
  a call.
* Writes to a file of the workspace through a hard link outside of it, made while nobody was
  looking. Confined code sees nothing outside and cannot make one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wink_workspace.filesystem.paths import ROOT, WorkspacePath

if TYPE_CHECKING:
    from .index import FileIndex

__all__ = ["ChangeTracker", "Dirty", "Noted"]


@dataclass(frozen=True, slots=True)
class Dirty:
    """What may have changed.

    ``paths`` stand for themselves alone (a directory among them came, went or changed its
    mode; its entries are listed apart), ``prefixes`` for themselves and everything that is or
    was below. ``reason`` is set when it took more than the notes and the events to know:
    then all entries were looked at, or, if ``everything``, nothing is known at all.
    """

    paths: frozenset[WorkspacePath] = frozenset()
    prefixes: frozenset[WorkspacePath] = frozenset()
    reason: str | None = None

    @classmethod
    def all(cls, reason: str) -> Dirty:
        """Everything, as nothing is known, and why."""
        return cls(prefixes=frozenset((ROOT,)), reason=reason)

    @property
    def everything(self) -> bool:
        """Whether any path may have changed."""
        return ROOT in self.prefixes

    def __bool__(self) -> bool:
        return bool(self.paths or self.prefixes)

    def __or__(self, other: Dirty) -> Dirty:
        if not other and other.reason is None:
            return self
        if not self and self.reason is None:
            return other
        reasons = [each.reason for each in (self, other) if each.reason is not None]
        return Dirty(
            self.paths | other.paths, self.prefixes | other.prefixes, "; ".join(reasons) or None
        )

    def covers(self, path: WorkspacePath) -> bool:
        """Whether *path* may have changed."""
        if path in self.paths or path in self.prefixes:
            return True
        return any(ancestor in self.prefixes for ancestor in path.ancestors())


_NOTHING = Dirty()


class Noted:
    """What somebody said has changed."""

    def __init__(self) -> None:
        self._paths: set[WorkspacePath] = set()
        self._prefixes: set[WorkspacePath] = set()

    def add(self, path: WorkspacePath, *, below: bool) -> None:
        """Note *path*, with *below* also everything under it."""
        (self._prefixes if below else self._paths).add(path)

    def take(self) -> Dirty:
        """All that was noted, which is forgotten here."""
        if not self._paths and not self._prefixes:
            return _NOTHING
        taken = Dirty(frozenset(self._paths), frozenset(self._prefixes))
        self._paths.clear()
        self._prefixes.clear()
        return taken


class ChangeTracker(Protocol):
    """Knows what may have changed below one root.

    ``n_visited`` counts the entries that were looked at so far.
    """

    @property
    def n_visited(self) -> int:
        """How many entries were looked at so far."""
        ...

    @property
    def index(self) -> FileIndex | None:
        """What everything looked like in the last drain, to be stored; ``None`` if unknown."""
        ...

    def drain(self) -> Dirty:
        """What may have changed since the last drain; the next one begins here.

        Whoever cannot use the answer hands it back with ``note``.
        """
        ...

    def note(self, path: WorkspacePath, *, below: bool = False) -> None:
        """Count *path*, with *below* also everything under it, as changed."""
        ...

    def expect(self, name: str) -> None:
        """Say that a new file of ours is about to appear under *name*, which nobody can guess."""
        ...

    def made(self, path: WorkspacePath) -> None:
        """Say that the directory *path* is new and ours, so that nothing was in it before."""
        ...

    def left(self, directories: Sequence[WorkspacePath]) -> None:
        """Say that we have moved *directories* out of the root, each with all below it."""
        ...

    def close(self) -> None:
        """Stop tracking."""
        ...
