"""The beginning of a workspace: a copy of a directory, and the first entry of its history.

Each file is read once: its content is written into the copy, hashed and packed. The index of the
copy has the statuses that the system reported at the write. They stay valid because no other
process knows of the copy before the import has ended.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from wink_workspace.clock import Clock
from wink_workspace.errors import FilesystemError, MountError, UsageError
from wink_workspace.filesystem import FileKind
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.disk.copying import CopiedEntry, CopiedPart, TreeCopy
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree, HiddenPaths
from wink_workspace.ledger import (
    SOME_DIRECTORY,
    BranchWriter,
    Draft,
    EntryKind,
    Ledger,
    LogEntry,
    ObjectStore,
    PreparedBlob,
    SessionStore,
    TreeEntry,
    build_directories,
)
from wink_workspace.sandbox.git_directory import give_to_sandbox
from wink_workspace.session import Session
from wink_workspace.workspace.branch.recorded_branch import IMPORTED_BRANCH
from wink_workspace.workspace.files.derived_paths import copy_derived, import_checkpoint
from wink_workspace.workspace.files.seen_statuses import (
    finish_index,
    save_last_seen,
    save_source_times,
)
from wink_workspace.workspace.place.path_rules import (
    OWN_REPOSITORY,
    ImportConfig,
    NotImported,
    PathRules,
    Progress,
    no_progress,
)
from wink_workspace.workspace.place.storage import WorkspaceFolder

from .source_survey import Survey, survey

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Imported:
    """The record of a workspace's first entry.

    ``skipped`` are the paths that could not be read, or that are not files, directories or links.
    The source's own ``.git`` is not copied and not listed.
    """

    source: str
    n_files: int
    n_bytes: int
    skipped: tuple[str, ...] = ()


def import_copy(
    source: Path,
    folder: WorkspaceFolder,
    clock: Clock,
    *,
    config: ImportConfig | None = None,
    progress: Progress = no_progress,
) -> PathRules:
    """Copy the files and begin the history with them; which paths it does not record.

    Raises:
        SourceTooLargeError: If the source exceeds a limit of *config*; nothing was copied.
        MountError: If it cannot be read.
    """
    config = config or ImportConfig()
    with open_source(source) as whole:
        found = survey(source, whole, config)
    unrecorded = found.rules.unrecorded()
    folder.files.mkdir()
    give_to_sandbox(folder.files)
    Ledger.create(folder.ledger)
    with (
        open_source(source, NotImported(unrecorded)) as original,
        DiskTree(folder.files) as copy,
        Ledger(folder.ledger, clock=clock) as ledger,
        ledger.write() as writer,
    ):
        copied = SourceCopy(original, copy, ledger.store, progress)
        root = copied.run()
        entry = begin_history(ledger, writer, root, copied.report(source), clock)
        save_source_times(folder.ledger, found.index, root)
        copy_derived_of(source, folder.checkpoint, copy, found, config)
        save_last_seen(folder.index, finish_index(copied.seen, folder.path), entry)
    return found.rules


def begin_history(
    ledger: Ledger,
    writer: BranchWriter,
    root: str,
    report: Imported,
    clock: Clock,
    *,
    what: str = "import of",
) -> LogEntry:
    """Make the tree *root* the first entry of a new ledger, and the only one of ``imported``.

    The packs with its objects stay as long as the ledger, and do not count towards the budget.
    """
    ledger.store.open_packs.seal()
    ledger.store.packs.keep()
    entry = writer.append(
        Draft(
            kind=EntryKind.IMPORT,
            subject=f"{what} {report.source}",
            files=root,
            session=SessionStore(ledger.store).write(Session(clock=clock)),
            record=report,
            at=clock.now(),
        )
    )
    ledger.fork(IMPORTED_BRANCH, entry)
    return entry


def copy_derived_of(
    source: Path, checkpoint: Path, copy: DiskTree, found: Survey, config: ImportConfig
) -> None:
    """Copy the derived paths of *source* into *copy*, and make the first checkpoint of them.

    Raises:
        FilesystemError: If they cannot be written.
    """
    if not found.derived:
        return
    with open_source(source) as whole:
        skipped = copy_derived(whole, copy, found.derived)
    if skipped:
        _log.warning("derived paths that could not be copied: %s", ", ".join(skipped[:20]))
    everything = config.on_rollback == "restore"
    import_checkpoint(checkpoint, copy, found.derived, everything=everything)


def open_source(source: Path, hidden: HiddenPaths = OWN_REPOSITORY) -> DiskTree:
    """The directory *source*, without what is not imported.

    Raises:
        MountError: If it is not a readable directory.
    """
    try:
        return DiskTree(source, hidden=hidden)
    except (FilesystemError, UsageError) as error:
        raise MountError(
            f"cannot copy {source}: {error.message}",
            hint="Name a directory that exists and can be read.",
        ) from error


class SourceCopy:
    """A copy in the making: its objects, its tree and the statuses of its entries.

    ``keep`` and ``keep_large`` are those of ``ContentStore``.

    Args:
        original: The directory to read.
        copy: The empty directory to fill.
        store: Receives the objects.
        progress: Called repeatedly.

    Attributes:
        seen: The statuses of the copy.
        originals: The statuses of the originals, each taken before its content was read.
    """

    def __init__(
        self, original: DiskTree, copy: DiskTree, store: ObjectStore, progress: Progress
    ) -> None:
        self.seen = FileIndex()
        self.originals = FileIndex()
        self._copying = TreeCopy(original, copy, self)
        self._store = store
        self._progress = progress
        self._entries: dict[Parts, dict[str, TreeEntry]] = {(): {}}
        self._skipped: list[str] = []
        self._n_files = 0
        self._n_bytes = 0

    def keep(self, content: bytes) -> PreparedBlob | str:
        """The object of a small file; may be called in any thread."""
        return self._store.prepare_blob(content)

    def keep_large(self, file: int) -> PreparedBlob | str:
        """The id of the object of a large file."""
        return self._store.write_blob_from(file)

    def run(self) -> str:
        """Copy everything; the root of its tree."""
        with self._store.bulk():
            for part in self._copying.run():
                self._add(part)
                self._progress(self._n_files, self._n_bytes)
            return build_directories(self._store, self._entries)

    def report(self, source: Path) -> Imported:
        """What was copied."""
        return Imported(str(source), self._n_files, self._n_bytes, tuple(sorted(self._skipped)))

    def _add(self, part: CopiedPart[PreparedBlob | str]) -> None:
        self._skipped += part.skipped
        self.seen.put_listing(part.directory, [(at.name, at.status) for at in part.entries])
        self.originals.put_listing(part.directory, [(at.name, at.original) for at in part.entries])
        entries = self._entries.setdefault(part.directory, {})
        for entry in part.entries:
            entries[entry.name] = self._tree_entry(entry)

    def _tree_entry(self, entry: CopiedEntry[PreparedBlob | str]) -> TreeEntry:
        if entry.target is not None:
            target = entry.target.encode("utf-8", "surrogateescape")
            return TreeEntry(FileKind.SYMLINK, self._store.write_blob(target))
        if entry.kept is None:
            return SOME_DIRECTORY
        self._n_files += 1
        self._n_bytes += entry.status.st_size
        blob = entry.kept if isinstance(entry.kept, str) else self._store.write_prepared(entry.kept)
        return TreeEntry(FileKind.FILE, blob, bool(entry.status.st_mode & 0o100))
