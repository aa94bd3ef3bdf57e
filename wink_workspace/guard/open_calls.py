"""Whose a change is, when calls of an agent overlap and people save files meanwhile.

Rule 1: a call that can change only the files that it names (an edit) has the changes of these.
Rule 2: a call that can change anything (a shell command) may have every other change that was
found when it ended. A person may have made it, too, so it is *uncertain*.
Rule 3: if several such calls overlapped, it is unknown which of them made a change. It belongs to
one entry that names them all, made when the last of them has ended.
Rule 4: what no open call can have changed is an external edit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wink_workspace.filesystem import WorkspacePath


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCall:
    """A tool call that an agent program reports.

    Attributes:
        id: Its id in the program.
        tool: The program's name of the tool.
        params: Its arguments, as JSON.
        session: The conversation.
        paths: The paths that it names.
        is_broad: Whether it can change other paths, too.
        began_s: When it began, on the monotonic clock.
    """

    id: str
    tool: str
    params: object = None
    session: str = ""
    paths: tuple[WorkspacePath, ...] = ()
    is_broad: bool = True
    began_s: float = 0.0

    def names(self, path: WorkspacePath) -> bool:
        """Whether *path* is one that it names, is below one, or is a new parent of one."""
        return any(path.is_below(each) or each.is_below(path) for each in self.paths)


@dataclass(frozen=True, slots=True)
class Share:
    """Changes of one call, or of several that cannot be separated."""

    calls: tuple[ObservedCall, ...]
    paths: tuple[WorkspacePath, ...] = ()
    uncertain: tuple[WorkspacePath, ...] = ()


class OpenCalls:
    """The calls that began and did not end."""

    def __init__(self) -> None:
        self._open: dict[str, ObservedCall] = {}
        self._overlapping: list[ObservedCall] = []  # ended, while another one was open
        self._disputed: set[WorkspacePath] = set()  # named by several calls

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, call_id: object) -> bool:
        return call_id in self._open

    def begin(self, call: ObservedCall) -> None:
        """Add a call."""
        self._open[call.id] = call

    def of_session(self, session: str) -> list[str]:
        """The ids of the open calls of a conversation."""
        return [call.id for call in self._open.values() if call.session == session]

    def end(self, call_id: str, changed: Sequence[WorkspacePath]) -> list[Share]:
        """End a call; what is to be recorded, the call's own share first.

        Args:
            call_id: A call that began.
            changed: All paths that no entry has yet.
        """
        call = self._open.pop(call_id)
        others = [each for each in self._open.values() if each.is_broad or each.paths]
        own = [path for path in changed if path not in self._disputed and call.names(path)]
        disputed = {path for path in own if any(other.names(path) for other in others)}
        self._disputed |= disputed
        own = [path for path in own if path not in disputed]
        if others:
            self._overlapping.append(call)
            return [Share((call,), tuple(own))]
        together = [*self._overlapping, call]
        broad = tuple(each for each in together if each.is_broad)
        rest = _without(changed, own)
        unsure = rest if broad else [path for path in rest if path in self._disputed]
        authors = broad or tuple(
            each for each in together if any(each.names(path) for path in unsure)
        )
        self._overlapping.clear()
        self._disputed.clear()
        if authors == (call,):
            return [Share((call,), tuple(sorted([*own, *unsure])), tuple(unsure))]
        shares = [Share((call,), tuple(own))]
        if unsure:
            shares.append(Share(authors, tuple(unsure), tuple(unsure)))
        return shares


def _without(paths: Iterable[WorkspacePath], left: Iterable[WorkspacePath]) -> list[WorkspacePath]:
    excluded = frozenset(left)
    return [path for path in paths if path not in excluded]
