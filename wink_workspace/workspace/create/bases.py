"""Bases: immutable checkouts of one tree each, shared by the workspaces of a state directory.

::

    <state>/bases/                          its ``SharedFolders``
        <format>-<owner>-<times>-<tree>/    a base
            root/files/             the files; root/ is the lower layer of every mount
            root/held/              empty; in a mount, the place for what is moved aside
            objects.git/            the objects of the tree, if it was made from a source
            index                   the statuses of the files as of their creation
            complete                what is known of it; written last
        sources/<key>               the statuses of a source's files when a base was made of it

Rule 1: a base never changes, and no container can write it: containers see it through a mount.
Rule 2: a process uses a base until it releases the ``Base``. From then on the ``base`` file of a
branch must name it.
Rule 3: a base whose files do not have the statuses of its index is *damaged*. It is never used,
and made again from the ledger under the same name. Each use checks some statuses; ``verify`` checks
all, and the first use after a restart of the machine also reads all files and compares hashes. So
is a base with a pack of objects that is missing or cut; ``verify`` reads every object on demand.
It takes the file ``complete`` from a damaged base, and nothing else: ``repair`` may need its files.
Rule 4: <times> is a hash of the modification times of the files, which are those of the source. So
sources share a base only if contents and times are equal; a workspace has up to 1,000 files with
other times in its own layer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from wink_workspace._descriptors import closed_with
from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    FilesystemError,
    LedgerError,
)
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.changes.index import IndexedTree, Status, read_note, status_of
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.fingerprint_cache import racy_from_ns
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.git_binary import git_hash, object_header
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.ledger import (
    SOME_DIRECTORY,
    Ledger,
    ObjectStore,
    TreeChange,
    TreeEntry,
    build,
    build_directories,
    diff,
    entry_at,
    link_objects,
    walk,
)
from wink_workspace.ledger.store.disk import sync, sync_filesystem
from wink_workspace.ledger.store.git_tree import GitTree
from wink_workspace.sandbox.git_directory import give_to_sandbox, host_owner
from wink_workspace.workspace.files.checkout import write_files
from wink_workspace.workspace.files.disk_entries import UNKNOWN_CONTENT, content_of, same_content
from wink_workspace.workspace.files.seen_statuses import SourceTimes, save_source_times
from wink_workspace.workspace.place.path_rules import (
    ImportConfig,
    NotImported,
    PathRules,
    Progress,
    no_progress,
)
from wink_workspace.workspace.place.shared_folders import NewFolder, SharedFolders
from wink_workspace.workspace.place.storage import WorkspaceFolder

if TYPE_CHECKING:
    from .importing import Imported
    from .source_survey import Survey

_log = logging.getLogger(__name__)

_FORMAT: Final = 1
_REMEMBERED_FORMAT: Final = 4
_STORED_SAMPLE: Final = 256
_SAMPLE: Final = 64
_CHECKSUM_BYTES: Final = 20
_MAX_CHANGED_FILES: Final = 1_000
_MAX_CHANGED_BYTES: Final = 64 * 1_048_576
_MAX_COMPARED: Final = 8
_MAX_DIFFERENCES: Final = 10_000
_MANY: Final = 50
_Changes = dict[WorkspacePath, TreeEntry | None]


class Base:
    """A base that this process uses; it is not deleted before ``release``.

    Attributes:
        tree: The id of its tree.
        path: Its directory.
    """

    def __init__(self, tree: str, path: Path, lock: int) -> None:
        self.tree = tree
        self.path = path
        self._lock = lock
        self._finalizer = closed_with(self, lock)

    @property
    def name(self) -> str:
        """The line with which the ``base`` file of a branch names it."""
        return self.path.name

    @property
    def lower(self) -> Path:
        """The lower layer for a mount, with the directories ``files`` and ``held``."""
        return self.path / "root"

    @property
    def files(self) -> Path:
        """The directory with its files."""
        return self.lower / "files"

    @property
    def objects(self) -> Path:
        """The git directory with the objects of its tree."""
        return self.path / "objects.git"

    @property
    def has_objects(self) -> bool:
        """Whether there is one: a base that was built from a ledger has none."""
        return self.objects.is_dir()

    def index(self) -> FileIndex | None:
        """The statuses of its files; ``None`` if that file is damaged."""
        return FileIndex.load(self.path / "index")

    def has_changed_sample(self) -> bool:
        """Whether one of some entries, not always the same, does not have its first status."""
        try:
            sample = read_note(self.path / "index")["sample"]
            files = os.fspath(self.files)
            for (*parts, name), status in secrets.SystemRandom().sample(
                sample, min(_SAMPLE, len(sample))
            ):
                if status_of(os.lstat("/".join((files, *parts, name)))) != tuple(status):
                    return True
        except (OSError, ValueError, KeyError):  # the last two: the index itself is damaged
            return True
        return False

    def has_changed(self) -> bool:
        """Whether any status is not that of the index."""
        index = self.index()
        if index is None:
            return True
        try:
            with DiskTree(self.files) as files:
                return bool(IndexedTree(files, index, SYSTEM_CLOCK).look_at_all())
        except FilesystemError:
            return True

    def has_other_contents(self) -> bool:
        """Whether the hash of all files is not that of its tree; reads every file."""
        try:
            with DiskTree(self.files) as files:
                return hash_files(files) != self.tree
        except (FilesystemError, ValueError):  # the latter: an entry that no tree can have
            return True

    def has_cut_objects(self) -> bool:
        """Whether a pack of its objects is missing, cut, or not the one of its index."""
        try:
            for index in (self.objects / "objects/pack").glob("*.idx"):
                with index.open("rb") as rows, index.with_suffix(".pack").open("rb") as pack:
                    rows.seek(-2 * _CHECKSUM_BYTES, os.SEEK_END)
                    pack.seek(-_CHECKSUM_BYTES, os.SEEK_END)
                    if rows.read(_CHECKSUM_BYTES) != pack.read():
                        return True
        except OSError:
            return True
        return False

    def damage(self, store: ObjectStore | None = None) -> tuple[str, ...]:
        """The files whose content, or object, is not that of its tree; reads all of them.

        ``objects.git`` stands for damage that hides which files it is about, and ``.`` for any
        other. *store* has the tree, for a base without objects.
        """
        from wink_workspace.ledger.upkeep.damage import ObjectCheck

        found: set[str] = set()
        try:
            with ExitStack() as opened:
                if self.has_objects:
                    own = opened.enter_context(Ledger(self.objects)).store
                    found.update(ObjectCheck(own).lost_in(self.tree))
                    store = store or own
                found.update(self._differing(store) if store is not None else ())
        except LedgerError:
            found.add(self.objects.name)
        if not found and self.has_other_contents():
            found.add(".")
        return tuple(sorted(found))

    def _differing(self, store: ObjectStore) -> Iterator[str]:
        with DiskTree(self.files) as files:
            for path, entry in walk(store, self.tree):
                is_same = entry.kind is FileKind.DIRECTORY
                with suppress(FilesystemError):
                    is_same = is_same or content_of(files, files.entry(path)) == entry
                if not is_same:
                    yield str(path)

    @property
    def is_in_place(self) -> bool:
        """Whether it still has its name; another process may have retired it."""
        try:
            return os.path.samestat(os.fstat(self._lock), (self.path / "lock").stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Stop using it; may be called again."""
        self._finalizer()


@dataclass(frozen=True, slots=True)
class ImportedBase:
    """A source that was read, and a base that equals it or is near it.

    ``tree`` is the source's tree, and ``found`` what its walk found. ``changed`` are the paths in
    which it differs from the base: the caller writes them into the branch's own layer.
    """

    base: Base
    tree: str
    report: Imported
    found: Survey
    changed: tuple[WorkspacePath, ...] = ()


@dataclass(frozen=True, slots=True)
class _KnownSource:
    """The statuses of a source's files when they were those of the tree of a base."""

    base: Base
    index: FileIndex
    report: Imported


class BaseStore:
    """The bases of a state directory.

    Args:
        state_dir: The state directory of the program.
        clock: The time, to compare with change times.
        durable: Whether a base survives a loss of power from the moment it is returned.
    """

    def __init__(
        self,
        state_dir: str | os.PathLike[str],
        clock: Clock = SYSTEM_CLOCK,
        *,
        durable: bool = False,
    ) -> None:
        self._root = Path(state_dir) / "bases"
        self._folders = SharedFolders(self._root, f"{_FORMAT}-*-*")
        self._claimed = self._folders.claimed
        self._clock = clock
        self._durable = durable

    # Finding

    def find(self, tree: str, name: str = "") -> Base | None:
        """A base of *tree*, if possible *name*; ``None`` if there is none, or if it is damaged."""
        with self._claimed():
            paths = sorted(self._paths_of(tree), key=lambda path: path.name != name)
            base = next(filter(None, (_hold(tree, path) for path in paths)), None)
        if base is None or self._is_sound(base):
            return base
        _log.warning("%s is damaged; it is made again when it is needed", base.path)
        base.release()
        return None

    def named(self, name: str) -> Base | None:
        """The base that a ``base`` file names; ``None`` as for ``find``."""
        base = self.find(name.strip().rpartition("-")[2], name.strip())
        if base is None or base.name == name.strip():
            return base
        base.release()
        return None

    def nearest(self, tree: str, store: ObjectStore, name: str = "") -> Base | None:
        """The base from which *tree* differs least, of those whose tree *store* has.

        If possible, it is *name*. Only some bases are compared, the newest ones first. If there is
        one candidate, *store* may lack directories of its tree: retention deletes each object for
        itself.
        """
        if (found := self.find(tree, name)) is not None:
            return found
        found_at: list[tuple[int, Path]] = []
        for path in self._all():
            with suppress(FileNotFoundError):  # another process retired it
                found_at.append((path.stat().st_mtime_ns, path))
        trees = (_tree_of(path) for _, path in sorted(found_at, reverse=True))
        known = list(islice((each for each in trees if each in store.repository), _MAX_COMPARED))
        if len(known) > 1:
            n_differences: dict[str, int] = {}
            for each in known:
                with suppress(LedgerError):  # the store lacks directories of it
                    differences = islice(diff(store, each, tree), _MAX_DIFFERENCES)
                    n_differences[each] = sum(1 for _ in differences)
            known = sorted(n_differences, key=n_differences.__getitem__)
        return next(filter(None, (self.find(each, name) for each in known)), None)

    # Making

    def import_source(
        self,
        source: Path,
        ledger_dir: Path,
        *,
        config: ImportConfig | None = None,
        progress: Progress = no_progress,
    ) -> ImportedBase:
        """A base for the directory *source*; its objects are in the ledger afterwards.

        Its times are stored beside the ledger.

        If a base was made of this source before and few files differ, only those are read.

        Args:
            source: A directory.
            ledger_dir: The directory of a ledger that is not open.
            config: What to import; the defaults when omitted.
            progress: Called with the number of files and bytes copied so far.

        Raises:
            SourceTooLargeError: If *source* exceeds a limit of *config*; nothing was copied.
            MountError: If *source* is not a readable directory.
            FilesystemError: If the base cannot be written; nothing is left then.
            LedgerError: If objects cannot be written; no base is left then.
        """
        from .importing import open_source
        from .source_survey import open_survey

        racy_ns = racy_from_ns(self._clock)
        config = config or ImportConfig()
        with open_source(source) as whole, open_survey(source, whole, config) as walk:
            remembered = _Remembered(self._root / "sources" / _key(source, walk.first_rules))
            found = walk.run(racy_ns=racy_ns)
            if not whole.keeps_times:
                found.index.doubt_newest()
        with open_source(source, NotImported(found.rules.unrecorded())) as original:
            known = remembered.known(self, found.rules)
            if known is not None:
                reused = self._reused(original, known, found, remembered, ledger_dir)
                if reused is not None:
                    return reused
                known.base.release()
            return self._copied(original, source, found, remembered, ledger_dir, progress)

    def _reused(
        self,
        original: DiskTree,
        known: _KnownSource,
        found: Survey,
        remembered: _Remembered,
        ledger_dir: Path,
    ) -> ImportedBase | None:
        """The result for a source that was imported before; ``None`` if too much changed."""
        changes = _SourceChanges(original, known, found.index)
        if not changes.find():
            return None
        link_objects(known.base.objects, ledger_dir, durable=self._durable)
        tree, changed = known.base.tree, tuple[TreeChange, ...]()
        n_files = n_bytes = 0
        if changes.found:
            with Ledger(ledger_dir, durable=self._durable) as ledger:
                tree = changes.write(ledger.store)
                ledger.store.sync()
                changed = tuple(diff(ledger.store, known.base.tree, tree))
                n_files, n_bytes = _growth(ledger.store, changed)
        report = changes.report(n_files, n_bytes)
        save_source_times(ledger_dir, found.index, tree, changes.found)
        if (newer := changes.newer()) is not None:
            remembered.save(newer, known.base, known.report, found.rules)
        paths = tuple(change.path for change in changed)
        return ImportedBase(known.base, tree, report, found, paths)

    def _copied(
        self,
        original: DiskTree,
        source: Path,
        found: Survey,
        remembered: _Remembered,
        ledger_dir: Path,
        progress: Progress,
    ) -> ImportedBase:
        from .importing import SourceCopy

        racy_ns = racy_from_ns(self._clock)
        with self._making() as made:
            Ledger.create(made.objects)
            with DiskTree(made.files) as copy, Ledger(made.objects) as ledger:
                copied = SourceCopy(original, copy, ledger.store, progress)
                made.tree = copied.run()
            made.keep_index(copied.seen)
            base = self._place(made)
        link_objects(base.objects, ledger_dir, durable=self._durable)
        save_source_times(ledger_dir, found.index, base.tree)
        report = copied.report(source)
        originals = copied.originals
        originals.doubt(racy_ns)
        if not original.keeps_times:
            originals.doubt_newest()
        remembered.save(originals, base, report, found.rules)
        return ImportedBase(base, base.tree, report, found)

    def build(self, store: ObjectStore, tree: str, times: SourceTimes | None = None) -> Base:
        """A base of *tree*, written from the ledger with *times*.

        Without *times*, it is any that is not damaged, if there is one.

        Raises:
            FilesystemError: If it cannot be written; nothing is left then.
            LedgerError: If an object cannot be read; nothing is left then.
        """
        if not (times and times.are_known) and (found := self.find(tree)) is not None:
            return found
        with self._making() as made:
            made.tree = tree
            with DiskTree(made.files) as files:
                seen = write_files(files, store, tree, times)
            made.keep_index(seen)
            return self._place(made)

    @contextmanager
    def _making(self) -> Generator[_Unfinished]:
        """A new directory for a base; deleted if it was not placed."""
        with self._folders.making() as folder:
            made = _Unfinished(folder)
            made.prepare()
            yield made

    def _place(self, made: _Unfinished) -> Base:
        """Give a finished base its name, or return the one of a process that was faster."""
        passed(KillPoint.BASE_FILLED)
        if self._durable:
            with translate_os_error(made.path):
                sync_filesystem(made.path)
        made.complete(is_synced=self._durable)
        path = self._root / f"{_FORMAT}-{made.owner}-{made.times}-{made.tree}"
        with self._claimed():
            existing = _hold(made.tree, path)
            if existing is not None:
                if self._is_sound(existing):
                    if not existing.has_objects and made.objects.is_dir():
                        made.objects.rename(existing.objects)
                    return existing
                existing.release()
            if path.exists():
                self._folders.retire(path)
            base = Base(made.tree, path, made.folder.place(path))
        with ExitStack() as on_error:
            on_error.callback(base.release)
            if self._durable:
                with translate_os_error(self._root):
                    sync(self._root)
            passed(KillPoint.BASE_PLACED)
            on_error.pop_all()
        return base

    # Damage

    def _is_sound(self, base: Base) -> bool:
        """Whether it seems undamaged; all files are read once after each start of the machine."""
        about, boot = _about(base.path), _boot_id()
        is_checked = about.get("boot") == boot
        if not about or (base.has_changed_sample() if is_checked else base.has_changed()):
            return False
        if base.has_cut_objects():
            return False
        if not is_checked:
            # A status says nothing of the bytes: a loss of power or a bad disk changes them alone
            _log.info("reading the files of %s for the first time since this boot", base.path)
            if base.has_other_contents():
                return False
            _note_about(base.path, about | {"boot": boot})
        if self._durable and not about.get("is_synced"):
            with translate_os_error(base.path):
                sync_filesystem(base.path)
            _note_about(base.path, about | {"boot": boot, "is_synced": True})
        return True

    def verify(
        self,
        *,
        contents: bool = False,
        names: Collection[str] | None = None,
        store: ObjectStore | None = None,
    ) -> dict[str, tuple[str, ...]]:
        """Check the status of every file of every base; the damaged ones by name.

        A damaged base is not used any more, and made again when it is needed.

        Args:
            contents: Read every file and every object, too, and compare its hash; the result is
                then that of ``Base.damage``, and otherwise without paths.
            names: Check only these bases.
            store: Has the trees of these bases.
        """
        damaged: dict[str, tuple[str, ...]] = {}
        for path in self._all():
            if names is not None and path.name not in names:
                continue
            with self._claimed():
                base = _hold(_tree_of(path), path)
            if base is None:
                continue
            paths = base.damage(store) if contents else ()
            if paths or base.has_changed() or base.has_cut_objects():
                damaged[path.name] = paths
                with self._claimed():
                    if base.is_in_place:  # otherwise another process has made it again
                        (path / "complete").unlink(missing_ok=True)
            base.release()
        return damaged

    # Garbage collection

    def collect(self, in_use: Callable[[], set[str]]) -> int:
        """Delete what no branch uses and what dead processes left; the number of bases deleted.

        A base that a process uses stays.

        Args:
            in_use: The names of the bases that branches name; called when no other process can
                find or make a base.

        Raises:
            FilesystemError: If a base cannot be locked or retired; the next call tries again.
        """
        n_retired = self._folders.collect(in_use)
        for path in (self._root / "sources").glob("*"):
            _Remembered(path).drop_without_base(self._root)
        return n_retired

    def named_by_branches(self) -> set[str]:
        """The names in the ``base`` files of all workspaces, also of unfinished ones.

        Raises:
            FilesystemError: If such a file cannot be read; then nothing may be deleted.
        """
        workspaces = self._root.with_name("workspaces")
        names: set[str] = set()
        for path in (*workspaces.glob("*/base"), *workspaces.glob("*/forks/*/base")):
            with suppress(FileMissingError), translate_os_error(path):  # its branch was deleted
                names.add(path.read_text().strip())
        return names

    def disk_bytes(self) -> int:
        """The size of the files and objects of all bases, as of their creation."""
        return sum(int(_about(path).get("disk_bytes", 0)) for path in self._all())

    # Names

    def _paths_of(self, tree: str) -> Iterator[Path]:
        """Where the base of *tree* may be: the system may not let us change the owner of files."""
        owners = (host_owner(), os.geteuid())
        for owner in dict.fromkeys(owner for owner in owners if owner is not None):
            yield from self._root.glob(f"{_FORMAT}-{owner}-*-{tree}")

    def _all(self) -> Iterator[Path]:
        """The directories of all bases of this format."""
        return self._folders.all()


@dataclass(slots=True)
class _Unfinished:
    """A base that this process makes, under a temporary name."""

    folder: NewFolder
    tree: str = ""
    times: str = ""
    n_bytes: int = 0

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def files(self) -> Path:
        return self.path / "root" / "files"

    @property
    def objects(self) -> Path:
        return self.path / "objects.git"

    @property
    def owner(self) -> int:
        return self.files.stat().st_uid

    def prepare(self) -> None:
        """Make the directories of the lower layer."""
        for path in (self.path / "root", self.files, self.path / "root" / "held"):
            path.mkdir()
            path.chmod(0o755)  # whatever the umask is
            give_to_sandbox(path)

    def keep_index(self, index: FileIndex) -> None:
        """Store the statuses of everything written."""
        times = hashlib.sha256()
        every: list[tuple[Parts, Status]] = []
        for directory, entries in sorted(index.directories.items()):
            for name, at in sorted(entries.items()):
                every.append(((*directory, name), at))
                if stat.S_ISREG(at.mode):
                    times.update(f"{(*directory, name)!r} {at.modified_ns}\n".encode())
        sample = secrets.SystemRandom().sample(every, min(_STORED_SAMPLE, len(every)))
        index.save(self.path / "index", note={"sample": sample})
        self.times = times.hexdigest()[:16]
        self.n_bytes = index.n_bytes
        if self.objects.is_dir():
            self.n_bytes += sum(path.lstat().st_size for path in self.objects.rglob("*"))

    def complete(self, *, is_synced: bool) -> None:
        """Store what is known of it."""
        about = {"boot": _boot_id(), "is_synced": is_synced, "disk_bytes": self.n_bytes}
        _write_about(self.path, about)


class _TreeHashes:
    """Computes the ids of trees; *keep* is called with each and the content."""

    def __init__(self, keep: Callable[[str, bytes], object]) -> None:
        self._keep = keep

    def write_tree(self, tree: GitTree) -> str:
        content = b"".join(tree.rows)
        tree_id = git_hash(object_header("tree", len(content)) + content).hexdigest()
        self._keep(tree_id, content)
        return tree_id


class _SourceChanges:
    """The paths of a source that differ, also only in time, from the base that was made of it.

    *seen* has the statuses as of a moment ago.

    Attributes:
        found: The paths with their present entries; the ids are not in any ledger yet.
    """

    def __init__(self, original: DiskTree, known: _KnownSource, seen: FileIndex) -> None:
        self._original = original
        self._seen = seen
        self._known = known
        self._skipped: set[WorkspacePath] = set()
        self.found: _Changes = {}
        self._equal: set[WorkspacePath] = set()

    def find(self) -> bool:
        """Look for them; ``False`` if there are so many that a new base is better."""
        index = self._seen
        dirty = self._known.index.differences(index)
        if not dirty:
            return True
        n_bytes = 0
        with Ledger(self._known.base.objects) as ledger:
            candidates = set(dirty.paths)
            for prefix in dirty.prefixes:
                candidates.update(self._below(ledger.store, prefix))
            for path in sorted(candidates):
                n_bytes += self._compare(ledger.store, path)
                if len(self.found) > _MAX_CHANGED_FILES or n_bytes > _MAX_CHANGED_BYTES:
                    return False
        self._equal = candidates - self.found.keys() - self._skipped
        return True

    def newer(self) -> FileIndex | None:
        """The statuses to remember, if some changed though the content did not; *seen* changes."""
        index = self._seen
        if self._equal:
            changed_meanwhile = {path for path in self._equal if not self._is_as_seen(path)}
            for path in self.found.keys() | self._skipped | changed_meanwhile:
                # Let the next import compare it again
                index.copy(self._known.index, path.parts[:-1], path.name)
        return index if self._equal else None

    def _below(self, store: ObjectStore, prefix: WorkspacePath) -> Iterator[WorkspacePath]:
        """*prefix* and everything that is or was below it."""
        yield prefix
        before = entry_at(store, self._known.base.tree, prefix)
        if before is not None and before.kind is FileKind.DIRECTORY:
            yield from (path for path, _ in walk(store, before.id, prefix))
        listings = self._original.listings(
            prefix, unreadable=lambda parts: self._skipped.add(WorkspacePath(prefix.parts + parts))
        )
        with suppress(FileMissingError, DirectoryExpectedError):
            for listing in listings:
                for name, _ in listing.entries:
                    yield WorkspacePath((*prefix.parts, *listing.parts, name))

    def _compare(self, store: ObjectStore, path: WorkspacePath) -> int:
        """Add *path* if it differs; the bytes that are to be written."""
        before = entry_at(store, self._known.base.tree, path)
        n_bytes, now = self._now(path)
        if same_content(before, now) and self._has_equal_time(path):
            return 0
        self.found[path] = now
        return n_bytes

    def _has_equal_time(self, path: WorkspacePath) -> bool:
        """Whether a file has the time of the base; other paths always have."""
        if not path.parts:
            return True
        known = self._known.index.get(path.parts[:-1], path.name)
        seen = self._seen.get(path.parts[:-1], path.name)
        if known is None or seen is None or not stat.S_ISREG(seen.mode):
            return True
        return known.modified_ns == seen.modified_ns

    def _now(self, path: WorkspacePath) -> tuple[int, TreeEntry | None]:
        """The size and the entry of a path; no entry if it cannot be imported."""
        try:
            there = self._original.entry(path)
            now = content_of(self._original, there)
        except FilesystemError:
            there, now = None, UNKNOWN_CONTENT
        if now == UNKNOWN_CONTENT:
            self._skipped.add(path)
            now = None
        return 0 if there is None else there.size_bytes, now

    def _is_as_seen(self, path: WorkspacePath) -> bool:
        """Whether the status of *path* is that of the walk, so that it belongs to what was read."""
        if not path.parts:
            return True
        try:
            now = self._original.statuses(path.parent, [path.name]).get(path.name)
        except FilesystemError:
            now = None
        seen = self._seen.get(path.parts[:-1], path.name)
        return seen == (None if now is None else status_of(now))

    def write(self, store: ObjectStore) -> str:
        """Write the objects; the tree of the source."""
        with store.bulk() if len(self.found) > _MANY else nullcontext():
            for path, entry in self.found.items():
                self.found[path] = self._written(store, path, entry)
        return build(store, self._known.base.tree, self.found)

    def _written(
        self, store: ObjectStore, path: WorkspacePath, entry: TreeEntry | None
    ) -> TreeEntry | None:
        try:
            there = self._original.entry(path)
            if entry is None or there is None or there.kind is not entry.kind:
                return None  # it was deleted, or replaced since it was compared
            match entry.kind:
                case FileKind.DIRECTORY:
                    return SOME_DIRECTORY
                case FileKind.SYMLINK:
                    target = (there.target or "").encode("utf-8", "surrogateescape")
                    return TreeEntry(FileKind.SYMLINK, store.write_blob(target))
                case FileKind.FILE:
                    with self._original.open(path) as file:
                        blob = store.write_blob_from(file.fileno())
                    return TreeEntry(FileKind.FILE, blob, there.executable)
        except FilesystemError:
            self._skipped.add(path)
            return None

    def report(self, n_files: int, n_bytes: int) -> Imported:
        """What was imported, given how many more files and bytes than the base has."""
        from .importing import Imported

        before = self._known.report
        return Imported(
            before.source,
            before.n_files + n_files,
            before.n_bytes + n_bytes,
            tuple(sorted(map(str, self._skipped))),
        )


def _growth(store: ObjectStore, changes: Iterable[TreeChange]) -> tuple[int, int]:
    """By how many files and bytes a tree grew."""
    n_files = n_bytes = 0
    for change in changes:
        for entry, sign in ((change.before, -1), (change.after, 1)):
            if entry is not None and entry.kind is FileKind.FILE:
                n_files += sign
                n_bytes += sign * store.size_bytes(entry.id)
    return n_files, n_bytes


class _Remembered:
    """The file with the statuses of a source's files when a base was made of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _stored(self) -> tuple[FileIndex | None, dict[str, Any]]:
        return FileIndex.load_noted(self._path) or (None, {})

    def known(self, bases: BaseStore, rules: PathRules) -> _KnownSource | None:
        """What it says; ``None`` if it had other rules, or if its base is not usable."""
        from .importing import Imported

        index, note = self._stored
        if index is None or note["rules"] != repr(rules):
            return None
        base = bases.named(note["base"])
        if base is None or not base.has_objects:
            return None
        report = Imported(note["source"], note["n_files"], note["n_bytes"])
        return _KnownSource(base, index, report)

    def save(self, index: FileIndex, base: Base, report: Imported, rules: PathRules) -> None:
        """Replace it; a failure is logged, as it costs only time."""
        note = {"base": base.name, "rules": repr(rules), **asdict(report)}
        try:
            self._path.parent.mkdir(exist_ok=True, mode=0o700)
            index.save(self._path, note=note)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._path, error)
        passed(KillPoint.SOURCE_INDEXED)

    def drop_without_base(self, bases: Path) -> None:
        """Delete it if its base does not exist."""
        try:
            named = str(read_note(self._path).get("base"))
        except (OSError, ValueError):
            named = ""
        if not (named and (bases / named).is_dir()):
            self._path.unlink(missing_ok=True)


def _key(source: Path, first_rules: PathRules) -> str:
    """The name of the file with the statuses of *source*."""
    about = "\0".join(
        (str(source.absolute()), repr(first_rules), str(host_owner()), str(_REMEMBERED_FORMAT))
    )
    return hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class CollectedBases:
    """What a collection of bases did.

    ``damaged`` has the damaged paths by the names of the damaged bases, which are made again when
    they are needed; see ``BaseStore.verify``.
    ``disk_bytes`` is the size of the bases that are kept.
    """

    n_deleted: int
    damaged: Mapping[str, tuple[str, ...]]
    disk_bytes: int


def collect_bases(
    state_dir: Path, *, checks_statuses: bool = True, checks_contents: bool = False
) -> CollectedBases:
    """Delete the bases that no branch uses, and check the others; see ``BaseStore.verify``."""
    bases = BaseStore(state_dir)
    damaged: dict[str, tuple[str, ...]] = {}
    if checks_statuses or checks_contents:
        damaged = bases.verify(contents=checks_contents)
    n_deleted = bases.collect(bases.named_by_branches)
    return CollectedBases(n_deleted, damaged, bases.disk_bytes())


def hash_files(
    files: DiskTree,
    keep: Callable[[WorkspacePath, TreeEntry], object] = lambda _path, _entry: None,
    keep_tree: Callable[[str, bytes], object] = lambda _id, _content: None,
) -> str:
    """The root of everything in *files*, without what cannot be read, or be in a tree.

    *keep* is called with each file and link, and may raise ``FilesystemError``; *keep_tree* with
    the id and the content of each directory.
    """
    directories: dict[Parts, dict[str, TreeEntry]] = {(): {}}
    for listing in files.listings(unreadable=lambda _parts: None):
        entries = directories.setdefault(listing.parts, {})
        for name, _ in listing.entries:
            path = WorkspacePath((*listing.parts, name))
            with suppress(FilesystemError):
                entry = content_of(files, files.entry(path))
                if entry is not None and entry != UNKNOWN_CONTENT:
                    entries[name] = entry
                    if entry.kind is not FileKind.DIRECTORY:
                        keep(path, entry)
    return build_directories(_TreeHashes(keep_tree), directories)


def is_unread(folder: WorkspaceFolder) -> bool:
    """Whether the files of the base of a branch were not read since the machine started."""
    try:
        path = folder.state_dir / "bases" / folder.base.read_text().strip()
    except OSError:
        return False
    return _about(path).get("boot") != _boot_id()


# Locks and notes


def _hold(tree: str, path: Path) -> Base | None:
    """Use the base at *path*, for a caller that has the claims; ``None`` if there is none."""
    lock = SharedFolders.hold(path) if (path / "complete").is_file() else None
    return None if lock is None else Base(tree, path, lock)


def _tree_of(path: Path) -> str:
    return path.name.rpartition("-")[2]


def _boot_id() -> str:
    """Distinguishes the starts of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _about(path: Path) -> dict[str, Any]:  # Any: read back as it was written
    """What is known of the base at *path*; empty if it is damaged."""
    try:
        about: object = json.loads((path / "complete").read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", about) if isinstance(about, dict) else {}


def _write_about(path: Path, about: Mapping[str, Any]) -> None:
    # A name of its own: several processes may be the first to use a base after a restart
    unfinished = path / f"complete.{secrets.token_hex(8)}"
    try:
        unfinished.write_text(json.dumps(about))
        if about["is_synced"]:
            sync(unfinished)
        unfinished.replace(path / "complete")
    finally:
        unfinished.unlink(missing_ok=True)
    if about["is_synced"]:
        sync(path)


def _note_about(path: Path, about: Mapping[str, Any]) -> None:
    """Write it for a base in use; a failure is logged, as it costs only a second check."""
    try:
        _write_about(path, about)
    except OSError as error:
        _log.warning("The check of %s cannot be noted: %s", path, error)
