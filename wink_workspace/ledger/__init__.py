"""A workspace's history: every call is one commit of a private git repository.

``Ledger`` opens it. ``Branch`` reads a branch, ``BranchWriter`` appends to it. ``trees`` stores
files as git trees, ``SessionStore`` a session's STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .entries.discards import Discarded, Dropped, DroppedFile, discard_changes, find_discarded
    from .entries.documents import Document, Documents
    from .entries.effects import Effect, EffectJournal
    from .entries.history import (
        Branch,
        EntryKind,
        LogEntry,
        Reverted,
        Revertible,
        lost_ref,
        merge_base,
        read_entry,
    )
    from .entries.pending import CallTimes, PendingMark
    from .entries.records import LoggedEvent, Record
    from .entries.reviewing import tree_diff
    from .exchange.bundle_format import Bundle, BundleLimits, BundleSize, read_bundle, write_bundle
    from .exchange.foreign import ForeignHead, tracked_names
    from .exchange.git_discovery import (
        DirectoryView,
        DiskView,
        Found,
        LedgerView,
        enclosing_repository,
        found_of,
        is_layout_name,
        is_repository,
        paths_left_behind,
        repositories_in,
    )
    from .exchange.git_links import (
        outside_repositories,
        repository_directories,
    )
    from .exchange.shallow_copy import CopyPaths, FileStamp, ShallowCopy, UserHead, open_user_head
    from .ledger import Ledger
    from .store.compression import run_steps
    from .store.disk import is_disk_full
    from .store.linking import link_objects
    from .store.lock import WriterLock, try_read_lock
    from .store.merge import (
        AppliedChange,
        Merge,
        SideNames,
        SliceMerge,
        applied_changes,
        merge_trees,
        without_lines,
    )
    from .store.names import is_git_directory_name
    from .store.objects import LARGE_BYTES, ObjectStore, PreparedBlob, SeparatePack
    from .store.refs import MAIN_BRANCH
    from .store.session_store import SessionStore
    from .store.trees import (
        EMPTY_DIRECTORY,
        EMPTY_TREE_ID,
        MAX_TREE_DEPTH,
        SOME_DIRECTORY,
        TreeChange,
        TreeEntry,
        build,
        build_directories,
        diff,
        entries_at,
        entry_at,
        entry_of,
        file_changes,
        file_state,
        links_in,
        names_in,
        tree_steps,
        walk,
        with_paths_from,
    )
    from .upkeep.collection import Steps, has_lost_objects, no_steps
    from .upkeep.retention import Forgotten, Maintenance, Retention
    from .writing import BranchWriter, Draft

__all__ = [
    "EMPTY_DIRECTORY",
    "EMPTY_TREE_ID",
    "LARGE_BYTES",
    "MAIN_BRANCH",
    "MAX_TREE_DEPTH",
    "SOME_DIRECTORY",
    "AppliedChange",
    "Branch",
    "BranchWriter",
    "Bundle",
    "BundleLimits",
    "BundleSize",
    "CallTimes",
    "CopyPaths",
    "DirectoryView",
    "Discarded",
    "DiskView",
    "Document",
    "Documents",
    "Draft",
    "Dropped",
    "DroppedFile",
    "Effect",
    "EffectJournal",
    "EntryKind",
    "FileStamp",
    "ForeignHead",
    "Forgotten",
    "Found",
    "Ledger",
    "LedgerView",
    "LogEntry",
    "LoggedEvent",
    "Maintenance",
    "Merge",
    "ObjectStore",
    "PendingMark",
    "PreparedBlob",
    "Record",
    "Retention",
    "Reverted",
    "Revertible",
    "SeparatePack",
    "SessionStore",
    "ShallowCopy",
    "SideNames",
    "SliceMerge",
    "Steps",
    "TreeChange",
    "TreeEntry",
    "UserHead",
    "WriterLock",
    "applied_changes",
    "build",
    "build_directories",
    "diff",
    "discard_changes",
    "enclosing_repository",
    "entries_at",
    "entry_at",
    "entry_of",
    "file_changes",
    "file_state",
    "find_discarded",
    "found_of",
    "has_lost_objects",
    "is_disk_full",
    "is_git_directory_name",
    "is_layout_name",
    "is_repository",
    "link_objects",
    "links_in",
    "lost_ref",
    "merge_base",
    "merge_trees",
    "names_in",
    "no_steps",
    "open_user_head",
    "outside_repositories",
    "paths_left_behind",
    "read_bundle",
    "read_entry",
    "repositories_in",
    "repository_directories",
    "run_steps",
    "tracked_names",
    "tree_diff",
    "tree_steps",
    "try_read_lock",
    "walk",
    "with_paths_from",
    "without_lines",
    "write_bundle",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
