"""The answer of a change tracker: which paths may have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.paths import ROOT, WorkspacePath

__all__ = ["NOTHING", "Dirty", "NotedChanges"]


@dataclass(frozen=True, slots=True)
class Dirty:
    """The paths that may have changed.

    Each of ``paths`` stands for itself alone: a directory among them was added, deleted or
    changed its mode, and its entries are listed separately. Each of ``prefixes`` stands for
    itself and everything that is or was below it. ``reason`` is set if notes and events were
    not enough: the status of all entries was read, or, if ``everything``, nothing is known.
    ``leaving`` has the sizes in bytes of files that the caller removes (``Leaving.files``), by
    directory and name.
    """

    paths: frozenset[WorkspacePath] = frozenset()
    prefixes: frozenset[WorkspacePath] = frozenset()
    reason: str | None = None
    leaving: Mapping[Parts, Mapping[str, int]] = field(
        default_factory=dict[Parts, Mapping[str, int]], hash=False
    )

    @classmethod
    def all(cls, reason: str) -> Dirty:
        """Everything may have changed, for this reason."""
        return cls(prefixes=frozenset((ROOT,)), reason=reason)

    @property
    def everything(self) -> bool:
        """Whether any path may have changed."""
        return ROOT in self.prefixes

    def __bool__(self) -> bool:
        return bool(self.paths or self.prefixes or self.leaving)

    def __or__(self, other: Dirty) -> Dirty:
        if not (other.paths or other.prefixes or other.reason or other.leaving):
            return self
        if not (self.paths or self.prefixes or self.reason or self.leaving):
            return other
        reason = self.reason or other.reason
        if self.reason and other.reason:
            reason = f"{self.reason}; {other.reason}"
        leaving = {**self.leaving, **other.leaving}
        return Dirty(self.paths | other.paths, self.prefixes | other.prefixes, reason, leaving)

    def covers(self, path: WorkspacePath) -> bool:
        """Whether *path* may have changed."""
        if path in self.paths or path in self.prefixes:
            return True
        if path.parts and path.name in self.leaving.get(path.parts[:-1], ()):
            return True
        return any(ancestor in self.prefixes for ancestor in path.ancestors())


NOTHING = Dirty()


class NotedChanges:
    """The paths noted since the last ``take``."""

    def __init__(self) -> None:
        self._paths: set[WorkspacePath] = set()
        self._prefixes: set[WorkspacePath] = set()

    def add(self, path: WorkspacePath, *, below: bool) -> None:
        """Note *path*, with *below* also everything below it."""
        (self._prefixes if below else self._paths).add(path)

    def take(self) -> Dirty:
        """All noted paths, which are then forgotten."""
        if not self._paths and not self._prefixes:
            return NOTHING
        taken = Dirty(frozenset(self._paths), frozenset(self._prefixes))
        self._paths.clear()
        self._prefixes.clear()
        return taken
