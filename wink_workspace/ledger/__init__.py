"""A workspace's history: every call is one commit of a private git repository.

``Ledger`` opens it. ``Branch`` reads a branch, ``BranchWriter`` appends to it. ``trees`` stores
files as git trees, ``SessionStore`` a session's STATE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wink_workspace._lazy import lazy

if TYPE_CHECKING:
    from .entries.discards import Discarded as Discarded
    from .entries.discards import Dropped as Dropped
    from .entries.discards import DroppedFile as DroppedFile
    from .entries.discards import discard_changes as discard_changes
    from .entries.discards import find_discarded as find_discarded
    from .entries.documents import Document as Document
    from .entries.documents import Documents as Documents
    from .entries.effects import Effect as Effect
    from .entries.effects import EffectJournal as EffectJournal
    from .entries.history import Branch as Branch
    from .entries.history import EntryKind as EntryKind
    from .entries.history import LogEntry as LogEntry
    from .entries.history import Revertible as Revertible
    from .entries.history import lost_ref as lost_ref
    from .entries.history import merge_base as merge_base
    from .entries.history import read_entry as read_entry
    from .entries.pending import CallTimes as CallTimes
    from .entries.pending import PendingMark as PendingMark
    from .entries.records import Record as Record
    from .entries.reviewing import tree_diff as tree_diff
    from .exchange.bundle_format import Bundle as Bundle
    from .exchange.bundle_format import BundleLimits as BundleLimits
    from .exchange.bundle_format import BundleSize as BundleSize
    from .exchange.bundle_format import read_bundle as read_bundle
    from .exchange.bundle_format import write_bundle as write_bundle
    from .exchange.foreign import ForeignHead as ForeignHead
    from .exchange.foreign import tracked_names as tracked_names
    from .exchange.git_discovery import DirectoryView as DirectoryView
    from .exchange.git_discovery import DiskView as DiskView
    from .exchange.git_discovery import Found as Found
    from .exchange.git_discovery import LedgerView as LedgerView
    from .exchange.git_discovery import enclosing_repository as enclosing_repository
    from .exchange.git_discovery import found_of as found_of
    from .exchange.git_discovery import is_layout_name as is_layout_name
    from .exchange.git_discovery import is_repository as is_repository
    from .exchange.git_discovery import paths_left_behind as paths_left_behind
    from .exchange.git_discovery import repositories_in as repositories_in
    from .exchange.git_links import outside_repositories as outside_repositories
    from .exchange.git_links import repository_directories as repository_directories
    from .exchange.shallow_copy import CopyPaths as CopyPaths
    from .exchange.shallow_copy import FileStamp as FileStamp
    from .exchange.shallow_copy import ShallowCopy as ShallowCopy
    from .exchange.shallow_copy import UserHead as UserHead
    from .exchange.shallow_copy import open_user_head as open_user_head
    from .ledger import Ledger as Ledger
    from .store.compression import run_steps as run_steps
    from .store.disk import is_disk_full as is_disk_full
    from .store.linking import link_objects as link_objects
    from .store.lock import WriterLock as WriterLock
    from .store.lock import try_read_lock as try_read_lock
    from .store.merge import AppliedChange as AppliedChange
    from .store.merge import Merge as Merge
    from .store.merge import SideNames as SideNames
    from .store.merge import applied_changes as applied_changes
    from .store.merge import merge_trees as merge_trees
    from .store.merge import without_lines as without_lines
    from .store.names import is_git_directory_name as is_git_directory_name
    from .store.objects import LARGE_BYTES as LARGE_BYTES
    from .store.objects import ObjectStore as ObjectStore
    from .store.objects import PreparedBlob as PreparedBlob
    from .store.objects import SeparatePack as SeparatePack
    from .store.refs import MAIN_BRANCH as MAIN_BRANCH
    from .store.session_store import SessionStore as SessionStore
    from .store.trees import EMPTY_DIRECTORY as EMPTY_DIRECTORY
    from .store.trees import EMPTY_TREE_ID as EMPTY_TREE_ID
    from .store.trees import MAX_TREE_DEPTH as MAX_TREE_DEPTH
    from .store.trees import SOME_DIRECTORY as SOME_DIRECTORY
    from .store.trees import TreeChange as TreeChange
    from .store.trees import TreeEntry as TreeEntry
    from .store.trees import build as build
    from .store.trees import build_directories as build_directories
    from .store.trees import diff as diff
    from .store.trees import entries_at as entries_at
    from .store.trees import entry_at as entry_at
    from .store.trees import entry_of as entry_of
    from .store.trees import file_changes as file_changes
    from .store.trees import file_state as file_state
    from .store.trees import links_in as links_in
    from .store.trees import names_in as names_in
    from .store.trees import tree_steps as tree_steps
    from .store.trees import walk as walk
    from .store.trees import with_paths_from as with_paths_from
    from .upkeep.collection import Steps as Steps
    from .upkeep.collection import has_lost_objects as has_lost_objects
    from .upkeep.collection import no_steps as no_steps
    from .upkeep.retention import Forgotten as Forgotten
    from .upkeep.retention import Maintenance as Maintenance
    from .upkeep.retention import Retention as Retention
    from .writing import BranchWriter as BranchWriter
    from .writing import Draft as Draft

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__)
