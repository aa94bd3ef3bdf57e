"""Retention: how much history is kept, by age and by size on disk.

Removing old entries moves the boundary of the history. Commits before the boundary are no longer
part of the history, also for plain git (the boundary is its *shallow* commits). No commit changes
its id. Then old discards lose their refs, and ``collection.py`` deletes unreachable objects. The
boundary moves by one rename. A crash before it removes nothing; after a crash behind it, later
maintenance removes the rest. Maintenance is a generator that pauses often: it runs in small steps
between calls, while other processes write.

The newest entry of every branch is always kept, whatever its age and size.

Age is measured by the history's own times, so that a clock that jumps forward does not make entries
old. The times of all entries and discards, and the current time, are sorted. A gap of at most one
day counts. A longer gap counts only if the short gaps after it add up to at least one day;
otherwise the clock may have jumped. See ``_too_old_before``.

What is about to be removed is noted in ``wink/forgotten.json``, which ``log`` shows.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.counts import counted
from wink_workspace.errors import (
    EntryMissingError,
    LedgerDamagedError,
    UsageError,
)
from wink_workspace.ledger.entries.commits import parse_commit
from wink_workspace.ledger.entries.discards import DISCARDED_REFS, discarded_at
from wink_workspace.ledger.entries.documents import DOCUMENT_REFS
from wink_workspace.ledger.entries.history import Branch, LogEntry, lost_ref, read_entry
from wink_workspace.ledger.store.disk import write_whole
from wink_workspace.ledger.store.leases import DeletionLock
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.refs import MAIN_BRANCH

from .collection import GarbageCollection, disk_bytes, finding_sizes, objects_of

_log = logging.getLogger(__name__)

_TRUSTED_GAP: Final = timedelta(days=1)
"""The longest gap that counts as it is; also the total of short gaps that confirms a longer one."""
_LOW_WATER: Final = 0.8
"""The part of the budget to which the history is reduced when it exceeds the budget."""
_ATTEMPTS: Final = 3
_MOST_TRIES: Final = 1_000
_MAX_AGE_DAYS: Final = 36_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The limits of the history.

    Args:
        max_age_days: Older entries and discards are removed, at most 36,500. A gap of more than
            one day is counted only after later entries cover one more day.
        budget_bytes: If the history takes more on disk, without the imported files, the oldest
            entries and discards are removed until it takes four fifths of this. The files of a
            bundle count. Meanwhile it can take an eighth more than
            this, and what each writer's last two calls wrote. A pack of more than a 16th of this,
            which ``gc`` makes, exists twice while it is rewritten.
        discard_bytes: The maximum of bytes of discarded files to keep for one failed call, and
            for all that wait to be recorded; the smallest files are kept first, and those of
            the newest call.
    """

    max_age_days: float = 30.0
    budget_bytes: int = 2 * 1_073_741_824
    discard_bytes: int = 268_435_456

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:  # also if it is not a number
                raise UsageError(f"{name} is {getattr(self, name)}", hint="Use a positive number.")
        if self.max_age_days > _MAX_AGE_DAYS:  # the time before it might not be a date
            raise UsageError(
                f"max_age_days is more than {_MAX_AGE_DAYS:,}",
                hint="Use a smaller number of days.",
            )


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What maintenance did; ``ran`` is false if another process is doing maintenance now.

    ``disk_bytes`` is the size of the history now, ``freed_bytes`` by how much it shrank.
    ``forgotten_up_to`` is the time of the newest entry that was removed, ``reason`` says why.
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
        """What was removed and why, in a sentence; empty if nothing was."""
        if not self.reason:
            return ""
        n_entries = counted(self.n_entries_forgotten, "entry", "entries")
        n_discards = counted(self.n_discards_forgotten, "discard")
        if self.forgotten_up_to is not None:
            n_entries += f" up to {self.forgotten_up_to:%Y-%m-%d %H:%M} UTC"
        return f"{n_entries} and {n_discards} forgotten: {self.reason}"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What retention removed from a branch: its entries up to a number, and why."""

    up_to_number: int
    up_to: datetime
    at: datetime
    reason: str


def maintaining(
    retention: Retention,
    now: datetime,
    collection: GarbageCollection,
) -> Generator[None, None, Maintenance]:
    """Remove entries over the limits, join packs and delete garbage.

    It pauses often and may be abandoned at any pause. Other processes may write meanwhile.

    Args:
        retention: What is kept.
        now: The time.
        collection: How garbage is deleted.

    Raises:
        LedgerError: If an object cannot be read, written or deleted, or ``other_trees`` raises it.
    """
    store = collection.store
    refs = store.repository.refs()
    if refs and f"refs/heads/{MAIN_BRANCH}" not in refs:  # all its objects would be deleted
        raise lost_ref(MAIN_BRANCH, "nothing of the history is deleted")
    collection.other_trees()  # if they are unknown, it raises before anything is removed
    before = candidates = yield from _candidates(store)
    before_bytes = disk_bytes(store)
    oldest = _too_old_before([each.noted for each in before.values()], now, retention)
    limit_bytes, size_bytes = math.inf, before_bytes
    if before_bytes > retention.budget_bytes:
        limit_bytes = retention.budget_bytes * _LOW_WATER
    # Repeated, because kept objects can grow: a delta whose base is deleted is stored in full.
    for _ in range(_ATTEMPTS):
        kept = yield from _commits_to_keep(store, candidates, oldest, limit_bytes)
        reason = _reason([before[name] for name in before.keys() - kept.keys()], oldest, retention)
        if not collection.is_alone:
            collection.forgotten = yield from _objects_only_in(store, candidates, kept)
        _note_forgotten(store, before, kept, now, reason)
        yield from _remove_others(store, collection.lock, candidates, kept)
        collection.spared = store.repository.boundary()  # of an earlier maintenance, if it stayed
        yield from collection.run(len(kept))
        candidates, size_bytes = (yield from _candidates(store)), disk_bytes(store)
        if size_bytes <= retention.budget_bytes:
            break
        limit_bytes = min(limit_bytes, retention.budget_bytes) * _LOW_WATER
    removed = [before[name] for name in before.keys() - candidates.keys()]
    return Maintenance(
        ran=True,
        n_entries_forgotten=sum(not each.is_discarded for each in removed),
        n_discards_forgotten=sum(each.is_discarded for each in removed),
        disk_bytes=size_bytes,
        freed_bytes=max(0, before_bytes - size_bytes),
        forgotten_up_to=max(
            (each.noted for each in removed if not each.is_discarded), default=None
        ),
        reason=_reason(removed, oldest, retention),
    )


def _too_old_before(times: Iterable[datetime], now: datetime, retention: Retention) -> datetime:
    """The time before which entries are removed; the module explains how age is measured."""
    keeps = timedelta(days=retention.max_age_days)
    later, age, trusted = now, timedelta(), timedelta()
    for time in sorted((time for time in times if time <= now), reverse=True):
        gap = later - time
        if gap <= _TRUSTED_GAP:
            trusted += gap
        if gap <= _TRUSTED_GAP or trusted >= _TRUSTED_GAP:
            if age + gap > keeps:
                return later - (keeps - age)
            age += gap
        later = time
    return datetime.min.replace(tzinfo=UTC)


def _reason(removed: Collection[_Candidate], oldest: datetime, retention: Retention) -> str:
    n_old = sum(each.at < oldest for each in removed)
    reasons: list[str] = []
    if n_old:
        reasons.append(f"{n_old:,} older than {retention.max_age_days:g} days")
    if len(removed) > n_old:
        reasons.append(
            f"{len(removed) - n_old:,} over the limit of {retention.budget_bytes:,} bytes"
        )
    return ", ".join(reasons)


def _note_forgotten(
    store: ObjectStore,
    before: dict[str, _Candidate],
    kept: dict[str, _Candidate],
    now: datetime,
    reason: str,
) -> None:
    """Note what is about to be removed from each branch; an extra note is harmless."""
    if not reason:
        return
    refs = store.repository.refs()
    notes = forgotten_in(store.repository.directory)
    notes = {ref: note for ref, note in notes.items() if ref in refs}
    for ref, commit_id in refs.items():
        following = before.get(commit_id)
        while following is not None and following.id in kept and not following.is_discarded:
            following = before.get(following.parent or "")
        if following is not None and not following.is_discarded:
            notes[ref] = Forgotten(following.number, following.noted, now, reason)
    document = {
        ref: [note.up_to_number, note.up_to.isoformat(), note.at.isoformat(), note.reason]
        for ref, note in notes.items()
    }
    path, content = _notes_path(store.repository.directory), json.dumps(document).encode()
    try:
        write_whole(path, content, durable=store.durable)
    except OSError as error:  # continue, since deleting history frees a full disk
        _log.warning("%s cannot be written (%s): %s", path, error.strerror, reason)


def forgotten_in(directory: Path) -> dict[str, Forgotten]:
    """What retention last removed from each branch, by ref; a damaged file counts as empty."""
    try:
        read: dict[str, Any] = json.loads(_notes_path(directory).read_bytes())
        return {
            ref: Forgotten(n, datetime.fromisoformat(up_to), datetime.fromisoformat(at), reason)
            for ref, (n, up_to, at, reason) in read.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _notes_path(directory: Path) -> Path:
    return directory / "wink" / "forgotten.json"


def has_too_old(store: ObjectStore, retention: Retention, now: datetime) -> bool:
    """Whether the history has entries older than *retention* keeps.

    A cheap test before ``maintaining``, which also looks at discards and gaps: it reads only the
    oldest entry of each branch. If nothing was removed yet, all branches have the same one.
    """
    oldest = now - timedelta(days=retention.max_age_days)
    refs = store.repository.refs()
    heads = {refs[name] for name in refs if not name.startswith((DISCARDED_REFS, DOCUMENT_REFS))}
    ends = store.repository.boundary()
    if ends:
        return any(read_entry(store, end).at < oldest for end in ends - heads)
    first = Branch(store, f"refs/heads/{MAIN_BRANCH}").at(1)
    return first is not None and first.at < oldest and heads != {first.id}


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A commit that is kept at present.

    ``noted`` is its recorded time. ``at`` is never earlier than the ``at`` of an older commit. So
    keeping the newest keeps whole chains, and one wrong clock does not remove other commits.
    """

    id: str
    at: datetime
    noted: datetime
    number: int
    parent: str | None
    is_head: bool = False
    is_discarded: bool = False


def _candidates(store: ObjectStore) -> Generator[None, None, dict[str, _Candidate]]:
    """Every commit of every branch by its id, and every discard by its ref."""
    found: dict[str, _Candidate] = {}
    for ref, commit_id in store.repository.refs().items():
        yield
        if ref.startswith(DOCUMENT_REFS):  # not history
            continue
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
        branch: list[LogEntry] = []
        for entry in takewhile(lambda entry: entry.id not in found, Branch(store, ref).log()):
            branch.append(entry)
            yield
        for entry in reversed(branch):
            older = found.get(entry.parent or "")
            at = entry.at if older is None else max(entry.at, older.at)
            found[entry.id] = _Candidate(entry.id, at, entry.at, entry.number, entry.parent)
        if commit_id in found:  # otherwise the branch moved meanwhile
            found[commit_id] = replace(found[commit_id], is_head=True)
    return found


def _commits_to_keep(
    store: ObjectStore, candidates: dict[str, _Candidate], oldest: datetime, limit_bytes: float
) -> Generator[None, None, dict[str, _Candidate]]:
    """The commits to keep: the heads, then the newest others up to *limit_bytes*."""
    sizes = dict[str, int]()
    if limit_bytes < math.inf:
        sizes = yield from finding_sizes(store)
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
            for known in objects_of(store, candidate.id, seen):
                used += sizes.get(known, 0)
                yield
        if candidate.is_head or (candidate.at >= oldest and used <= limit_bytes):
            kept[name] = candidate
    return kept


def _objects_only_in(
    store: ObjectStore, candidates: dict[str, _Candidate], kept: dict[str, _Candidate]
) -> Generator[None, None, set[str]]:
    """The objects of the commits that are to be removed; some may belong to kept ones, too.

    With them, what interrupted maintenance left of commits that it removed.
    """
    found: set[str] = set()
    for name, candidate in candidates.items():
        if name not in kept:
            for _ in objects_of(store, candidate.id, found):
                yield
    for end in store.repository.boundary():
        with suppress(LedgerDamagedError, EntryMissingError):  # the rest is deleted
            following = parse_commit(end, store.read(end, "commit")).parent
            while following is not None and following not in found:
                for _ in objects_of(store, following, found):
                    yield
                following = parse_commit(following, store.read(following, "commit")).parent
    return found


def _remove_others(
    store: ObjectStore,
    lock: DeletionLock,
    candidates: dict[str, _Candidate],
    kept: dict[str, _Candidate],
) -> Iterator[None]:
    """Move the boundary, then delete the refs of discards that are not kept.

    Nothing is removed if a branch was made meanwhile at an entry that is not kept.
    """
    removed = {candidate.id for name, candidate in candidates.items() if name not in kept}
    ends = frozenset(
        candidate.id
        for candidate in kept.values()
        if candidate.parent is not None and candidate.parent not in kept
    )
    for _ in range(_MOST_TRIES if ends != store.repository.boundary() else 0):
        with lock.exclusively() as is_locked:
            if is_locked:
                heads = store.repository.refs()
                if any(
                    not ref.startswith(DISCARDED_REFS) and head in removed
                    for ref, head in heads.items()
                ):
                    return
                store.repository.set_boundary(ends)
                passed(KillPoint.BOUNDARY_MOVED)
                break
        yield
    for ref, candidate in candidates.items():
        if candidate.is_discarded and ref not in kept:
            store.repository.delete_ref(ref)
            passed(KillPoint.DISCARD_FORGOTTEN)
            yield
