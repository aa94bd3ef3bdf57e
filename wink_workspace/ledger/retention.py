"""How much of the past is kept: by age, and by the room it takes.

Forgetting moves the boundary of the history: commits before it are no longer part of it, in
plain git's eyes too (they are its *shallow* commits), and no commit changes its id. Then
``collection.py`` deletes what nothing leads to. Moving the boundary is one rename; dying before
it forgets nothing, dying after it leaves only objects to delete.

The newest entry of every line is always kept, whatever its age and size.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from wink_workspace.errors import UsageError

from .collection import Steps, collect, disk_bytes, no_steps, objects_of, room_by_object
from .discards import DISCARDED_REFS, discarded_at
from .history import MAIN_LINE, Line, lost_ref, read_entry
from .kill_points import KillPoint, KillPoints, no_kill_points
from .objects import ObjectStore

__all__ = ["Maintenance", "Retention", "maintain"]

_LOW_WATER: Final = 0.8
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept for sure, if there is room; see DESIGN §6 for the defaults.

    Args:
        max_age_days: Entries and thrown-away files older than that are forgotten.
        budget_bytes: Above that room on the disk, the oldest are forgotten, until four fifths
            of it are in use.
    """

    max_age_days: float = 30.0
    budget_bytes: int = 2 * 1_073_741_824

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What was done; ``ran`` is false if others were at work, and then nothing was.

    ``disk_bytes`` is what the history takes now, ``freed_bytes`` how much less that is.
    """

    ran: bool
    n_entries_forgotten: int = 0
    n_discards_forgotten: int = 0
    disk_bytes: int = 0
    freed_bytes: int = 0


def maintain(
    store: ObjectStore,
    retention: Retention,
    now: datetime,
    *,
    trees: Collection[str] = (),
    steps: Steps = no_steps,
    kill_points: KillPoints = no_kill_points,
) -> Maintenance:
    """Forget what is too old or too much, and pack the rest; for those who are alone.

    *trees* are kept whatever is forgotten, as ``collect`` says.

    Raises:
        LedgerError: If something cannot be read, written or deleted.
    """
    _check_main_line(store)
    before = candidates = _candidates(store)
    taken_bytes = disk_bytes(store)
    oldest = now - timedelta(days=retention.max_age_days)
    limit_bytes, room_bytes = math.inf, 0
    # More than once, as what is left may take more room than it did: a delta whose base is
    # gone is none.
    for _ in range(_ATTEMPTS):
        kept = _kept(store, candidates, oldest, limit_bytes)
        _forget_all_but(store, kept, kill_points)
        collect(store, len(kept), trees=trees, steps=steps, kill_points=kill_points)
        candidates, room_bytes = _candidates(store), disk_bytes(store)
        if room_bytes <= retention.budget_bytes:
            break
        limit_bytes = min(limit_bytes, retention.budget_bytes) * _LOW_WATER
    gone = before.keys() - candidates.keys()
    return Maintenance(
        ran=True,
        n_entries_forgotten=sum(not before[name].is_discarded for name in gone),
        n_discards_forgotten=sum(before[name].is_discarded for name in gone),
        disk_bytes=room_bytes,
        freed_bytes=max(0, taken_bytes - room_bytes),
    )


def has_too_old(store: ObjectStore, retention: Retention, now: datetime) -> bool:
    """Whether the history goes back further than *retention* keeps; reads its ends alone."""
    oldest = now - timedelta(days=retention.max_age_days)
    refs = store.repository.refs()
    heads = {name: refs[name] for name in refs if not name.startswith(DISCARDED_REFS)}
    ends = store.repository.boundary()
    if ends:
        return any(read_entry(store, end).at < oldest for end in ends.difference(heads.values()))
    entries = [read_entry(store, head) for head in heads.values()]
    return any(entry.at < oldest for entry in entries if entry.parent is None)


def _check_main_line(store: ObjectStore) -> None:
    """Raise ``LedgerDamagedError`` if its ref is lost: all that it led to would be deleted."""
    refs = store.repository.refs()
    if refs and f"refs/heads/{MAIN_LINE}" not in refs:
        raise lost_ref(MAIN_LINE, "nothing of the history is deleted")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A commit that is kept at present.

    ``at`` is never earlier than that of a commit before it, whatever the clock said; so keeping
    the newest ones keeps whole chains, and one that a wrong clock made old takes none with it.
    """

    id: str
    at: datetime
    number: int
    parent: str | None
    is_head: bool = False
    is_discarded: bool = False


def _candidates(store: ObjectStore) -> dict[str, _Candidate]:
    """Every commit of every line by its id, and thrown-away files by their ref."""
    found: dict[str, _Candidate] = {}
    for ref, commit_id in store.repository.refs().items():
        if ref.startswith(DISCARDED_REFS):
            discarded = discarded_at(store, ref, commit_id)
            found[ref] = _Candidate(
                commit_id, discarded.at, discarded.number, None, is_discarded=True
            )
            continue
        line = takewhile(lambda entry: entry.id not in found, Line(store, ref).log())
        for entry in reversed([*line]):
            older = found.get(entry.parent or "")
            at = entry.at if older is None else max(entry.at, older.at)
            found[entry.id] = _Candidate(entry.id, at, entry.number, entry.parent)
        found[commit_id] = replace(found[commit_id], is_head=True)
    return found


def _kept(
    store: ObjectStore, candidates: dict[str, _Candidate], oldest: datetime, limit_bytes: float
) -> dict[str, _Candidate]:
    """What stays: the heads, then the newest of the rest as long as there is room for it."""
    room = room_by_object(store) if limit_bytes < math.inf else {}
    seen: set[str] = set()
    used = 0
    kept: dict[str, _Candidate] = {}
    newest_first = sorted(
        candidates.items(),
        key=lambda item: (item[1].is_head, item[1].at, item[1].number),
        reverse=True,
    )
    for name, candidate in newest_first:
        if limit_bytes < math.inf and used <= limit_bytes:
            used += sum(room.get(known, 0) for known in objects_of(store, candidate.id, seen))
        if candidate.is_head or (candidate.at >= oldest and used <= limit_bytes):
            kept[name] = candidate
    return kept


def _forget_all_but(
    store: ObjectStore, kept: dict[str, _Candidate], kill_points: KillPoints
) -> None:
    ends = frozenset(
        candidate.id
        for candidate in kept.values()
        if candidate.parent is not None and candidate.parent not in kept
    )
    if ends != store.repository.boundary():
        store.repository.set_boundary(ends)
        kill_points(KillPoint.BOUNDARY_MOVED)
    for ref in store.repository.refs(DISCARDED_REFS):
        if ref not in kept:
            store.repository.delete_ref(ref)
            kill_points(KillPoint.DISCARD_FORGOTTEN)
