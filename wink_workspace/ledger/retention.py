"""How much of the past is kept: by age, and by the room it takes.

Forgetting moves the boundary of the history: commits before it are no longer part of it, in
plain git's eyes too (they are its *shallow* commits), and no commit changes its id. Then
``collection.py`` deletes what nothing leads to. Moving the boundary is one rename; dying before
it forgets nothing, dying after it leaves only objects to delete.

The newest entry of every line is always kept, whatever its age and size.

Age is measured in time that the history itself has seen pass, so that no clock that jumps forward
makes anything old. Between two successive times of the history (entries, discards, and now) a gap
of up to a day counts as it is. A longer one counts only once the times after it make up another
day: until then it may as well be a clock that jumped. See ``_too_old_before``.

What is forgotten is noted in ``wink/forgotten.json`` before it is, for ``log`` to show.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.errors import UsageError
from wink_workspace.wording import counted

from .collection import Steps, collect, disk_bytes, no_steps, objects_of, room_by_object
from .discards import DISCARDED_REFS, discarded_at
from .disk import write_whole
from .history import MAIN_BRANCH, Branch, lost_ref, read_entry
from .objects import ObjectStore

__all__ = ["Forgotten", "Maintenance", "Retention", "forgotten_in", "has_too_old", "maintain"]

_log = logging.getLogger(__name__)

_SURE_GAP: Final = timedelta(days=1)
"""The longest time between two entries that counts as it is, and the proof of longer ones."""
_LOW_WATER: Final = 0.8
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept for sure, if there is room.

    Args:
        max_age_days: Entries and thrown-away files older than that are forgotten. A time of
            more than a day without entries counts once a day with entries followed it.
        budget_bytes: Above that room on the disk, the oldest are forgotten, until four fifths
            of it are in use.
        discard_bytes: The most that is kept of what one failed call is rolled back from; the
            smallest files are kept first.
    """

    max_age_days: float = 30.0
    budget_bytes: int = 2 * 1_073_741_824
    discard_bytes: int = 268_435_456

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What was done; ``ran`` is false if others were at work, and then nothing was.

    ``disk_bytes`` is what the history takes now, ``freed_bytes`` how much less that is.
    ``forgotten_up_to`` is the time of the newest entry that was forgotten, ``reason`` says why.
    """

    ran: bool
    n_entries_forgotten: int = 0
    n_discards_forgotten: int = 0
    disk_bytes: int = 0
    freed_bytes: int = 0
    forgotten_up_to: datetime | None = None
    reason: str = ""

    @property
    def forgotten(self) -> str:
        """What was forgotten and why, in a sentence; empty if nothing was."""
        if not self.reason:
            return ""
        n_entries = counted(self.n_entries_forgotten, "entry", "entries")
        n_discards = counted(self.n_discards_forgotten, "discard")
        if self.forgotten_up_to is not None:
            n_entries += f" up to {self.forgotten_up_to:%Y-%m-%d %H:%M} UTC"
        return f"{n_entries} and {n_discards} forgotten: {self.reason}"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a line lost to the retention once: its entries up to a number, and why."""

    up_to_number: int
    up_to: datetime
    at: datetime
    reason: str


def maintain(
    store: ObjectStore,
    retention: Retention,
    now: datetime,
    *,
    trees: Collection[str] = (),
    steps: Steps = no_steps,
) -> Maintenance:
    """Forget what is too old or too much, and pack the rest; for those who are alone.

    *trees* are kept whatever is forgotten, as ``collect`` says.

    Raises:
        LedgerError: If something cannot be read, written or deleted.
    """
    _check_main_branch(store)
    before = candidates = _candidates(store)
    taken_bytes = disk_bytes(store)
    oldest = _too_old_before([each.noted for each in before.values()], now, retention)
    limit_bytes, room_bytes = math.inf, 0
    # More than once, as what is left may take more room than it did: a delta whose base is
    # gone is none.
    for _ in range(_ATTEMPTS):
        kept = _kept(store, candidates, oldest, limit_bytes)
        reason = _reason([before[name] for name in before.keys() - kept.keys()], oldest, retention)
        _note_forgotten(store, before, kept, now, reason)
        _forget_all_but(store, kept)
        collect(store, len(kept), trees=trees, steps=steps)
        candidates, room_bytes = _candidates(store), disk_bytes(store)
        if room_bytes <= retention.budget_bytes:
            break
        limit_bytes = min(limit_bytes, retention.budget_bytes) * _LOW_WATER
    gone = [before[name] for name in before.keys() - candidates.keys()]
    return Maintenance(
        ran=True,
        n_entries_forgotten=sum(not each.is_discarded for each in gone),
        n_discards_forgotten=sum(each.is_discarded for each in gone),
        disk_bytes=room_bytes,
        freed_bytes=max(0, taken_bytes - room_bytes),
        forgotten_up_to=max((each.noted for each in gone if not each.is_discarded), default=None),
        reason=_reason(gone, oldest, retention),
    )


def _too_old_before(times: Iterable[datetime], now: datetime, retention: Retention) -> datetime:
    """What is older than that is forgotten; see the module for what counts as age."""
    keeps = timedelta(days=retention.max_age_days)
    later, age, trusted = now, timedelta(), timedelta()
    for time in sorted((time for time in times if time <= now), reverse=True):
        gap = later - time
        if gap <= _SURE_GAP:
            trusted += gap
        if gap <= _SURE_GAP or trusted >= _SURE_GAP:
            if age + gap > keeps:
                return later - (keeps - age)
            age += gap
        later = time
    return datetime.min.replace(tzinfo=UTC)


def _reason(gone: Collection[_Candidate], oldest: datetime, retention: Retention) -> str:
    n_old = sum(each.at < oldest for each in gone)
    reasons: list[str] = []
    if n_old:
        reasons.append(f"{n_old:,} older than {retention.max_age_days:g} days")
    if len(gone) > n_old:
        reasons.append(f"{len(gone) - n_old:,} over the limit of {retention.budget_bytes:,} bytes")
    return ", ".join(reasons)


def _note_forgotten(
    store: ObjectStore,
    before: dict[str, _Candidate],
    kept: dict[str, _Candidate],
    now: datetime,
    reason: str,
) -> None:
    """Note what each line is about to lose; a note of what is kept after all does no harm."""
    if not reason:
        return
    notes = forgotten_in(store.repository.directory)
    for ref, commit_id in store.repository.refs().items():
        following = before.get(commit_id)
        while following is not None and following.id in kept and not following.is_discarded:
            following = before.get(following.parent or "")
        if following is not None and not following.is_discarded:
            notes[ref] = Forgotten(following.number, following.noted, now, reason)
    lines = {
        ref: [note.up_to_number, note.up_to.isoformat(), note.at.isoformat(), note.reason]
        for ref, note in notes.items()
    }
    place, content = _place(store.repository.directory), json.dumps(lines).encode()
    try:
        write_whole(place, content, durable=store.durable)
    except OSError as error:  # deleting history is what makes room on a full disk
        _log.warning("%s cannot be written (%s): %s", place, error.strerror, reason)


def forgotten_in(directory: Path) -> dict[str, Forgotten]:
    """What each line, by its ref, lost to the retention last; a note that is damaged is none."""
    try:
        read: dict[str, Any] = json.loads(_place(directory).read_bytes())
        return {
            ref: Forgotten(n, datetime.fromisoformat(up_to), datetime.fromisoformat(at), reason)
            for ref, (n, up_to, at, reason) in read.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _place(directory: Path) -> Path:
    return directory / "wink" / "forgotten.json"


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


def _check_main_branch(store: ObjectStore) -> None:
    """Raise ``LedgerDamagedError`` if its ref is lost: all that it led to would be deleted."""
    refs = store.repository.refs()
    if refs and f"refs/heads/{MAIN_BRANCH}" not in refs:
        raise lost_ref(MAIN_BRANCH, "nothing of the history is deleted")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A commit that is kept at present.

    ``noted`` is its time. ``at`` is never earlier than that of a commit before it, whatever the
    clock said; so keeping the newest ones keeps whole chains, and one that a wrong clock made old
    takes none with it.
    """

    id: str
    at: datetime
    noted: datetime
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
                commit_id,
                discarded.at,
                discarded.at,
                discarded.number,
                None,
                is_discarded=True,
            )
            continue
        branch = takewhile(lambda entry: entry.id not in found, Branch(store, ref).log())
        for entry in reversed([*branch]):
            older = found.get(entry.parent or "")
            at = entry.at if older is None else max(entry.at, older.at)
            found[entry.id] = _Candidate(entry.id, at, entry.at, entry.number, entry.parent)
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


def _forget_all_but(store: ObjectStore, kept: dict[str, _Candidate]) -> None:
    ends = frozenset(
        candidate.id
        for candidate in kept.values()
        if candidate.parent is not None and candidate.parent not in kept
    )
    if ends != store.repository.boundary():
        store.repository.set_boundary(ends)
        passed(KillPoint.BOUNDARY_MOVED)
    for ref in store.repository.refs(DISCARDED_REFS):
        if ref not in kept:
            store.repository.delete_ref(ref)
            passed(KillPoint.DISCARD_FORGOTTEN)
