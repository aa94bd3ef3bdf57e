"""One branch of a workspace as its ledger has it: the newest entry, the base and the changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from wink_workspace.errors import EntryMissingError, LedgerDamagedError, UsageError
from wink_workspace.ledger import MAIN_BRANCH, Branch, Ledger, LogEntry, ObjectStore, lost_ref
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace.changes.applied_trees import AppliedTrees
from wink_workspace.workspace.place.shared_folders import delete_tree
from wink_workspace.workspace.place.storage import (
    WorkspaceFolder,
    WorkspaceInfo,
    collect_layers,
)

if TYPE_CHECKING:
    from wink_workspace.workspace.changes.changeset import ChangeSet


# ---------------------------------------------------------------------------------------- forking

# The branches of a workspace beside its main branch.
#
# The branch ``imported`` is not a fork. It ends at the import and never grows, so that retention
# keeps the original files.


IMPORTED_BRANCH: Final = "imported"
"""The branch that keeps the first entry."""


def imported_entry(ledger: Ledger) -> LogEntry:
    """The entry of the import; ``EntryMissingError`` if the import did not finish."""
    entry = ledger.branch(IMPORTED_BRANCH).head
    if entry is None:
        raise EntryMissingError("this history has no import")
    return entry


def forks_of(ledger: Ledger) -> tuple[str, ...]:
    """The names of all forks, sorted."""
    return tuple(name for name in ledger.forks() if name != IMPORTED_BRANCH)


def require_branch(ledger: Ledger, name: str) -> None:
    """Raise ``EntryMissingError`` unless *name* is the main branch or a fork."""
    if name != MAIN_BRANCH and (name == IMPORTED_BRANCH or not ledger.has_fork(name)):
        forks = ", ".join(forks_of(ledger)) or "none"
        raise EntryMissingError(f"there is no fork {name!r}", hint=f"The forks are: {forks}.")


def head_of(ledger: Ledger, branch: str) -> LogEntry:
    """The newest entry of a branch.

    Raises:
        EntryMissingError: If there is no such fork, or it has no entry.
    """
    require_branch(ledger, branch)
    head = ledger.branch(branch).head
    if head is None:
        raise EntryMissingError(f"the branch {branch!r} has no entry")
    return head


def delete_fork(
    folder: WorkspaceFolder,
    ledger: Ledger,
    name: str,
    *,
    first: Callable[[], object] = lambda: None,
) -> None:
    """Delete a fork of the workspace in *folder*, and its files.

    *first* is called while no process can open the fork; the fork stays if it raises.

    Raises:
        EntryMissingError: If there is no such fork.
        LedgerBusyError: If another process has it open.
    """
    branch_dir = folder.of_branch(name).branch_dir
    deleted = branch_dir.with_name(f"{name}~")  # not a valid name of a fork

    def delete_files() -> None:
        first()
        delete_tree(deleted)
        with suppress(FileNotFoundError):  # it was never opened
            branch_dir.rename(deleted)  # all at once: missing files would look like deletions
        delete_tree(deleted)
        collect_layers(folder)
        with suppress(LedgerDamagedError):  # the next apply reports it
            AppliedTrees(folder.applied).forget(name)

    ledger.delete_fork(name, first=delete_files)


# -------------------------------------------------------------------------------- recorded branch


class RecordedBranch(NamedTuple):
    """What the ledger has of one branch; ``applied`` is the file of ``AppliedTrees``."""

    info: WorkspaceInfo
    ledger: Ledger
    branch: Branch
    applied: Path

    @property
    def store(self) -> ObjectStore:
        """The objects of all branches."""
        return self.ledger.store

    @property
    def name(self) -> str:
        """The name of the branch."""
        return self.branch.ref.rpartition("/")[2]

    @property
    def is_in_place(self) -> bool:
        """Whether the files are the user's own directory; those of a fork are a copy."""
        return self.info.mode == "in_place" and self.name == MAIN_BRANCH

    def refuse_in_place(self, what: str, hint: str) -> None:
        """Raise ``UsageError`` if the files are the user's own directory.

        Args:
            what: What such files cannot be, with a preposition for "anything".
            hint: What to do instead.
        """
        if self.is_in_place:
            raise UsageError(
                f"the files of workspace {self.info.id} are those of {self.info.source} itself, "
                f"and cannot be {what} anything",
                hint=hint,
            )

    @property
    def head(self) -> LogEntry:
        """The newest entry; ``LedgerDamagedError`` if there is none."""
        head = self.branch.head
        if head is None:
            raise lost_ref(MAIN_BRANCH, f"the workspace {self.info.id} has no history")
        return head

    def imported(self) -> LogEntry:
        """The entry of the import; raises as ``imported_entry``."""
        return imported_entry(self.ledger)

    def base_files(self) -> str:
        """The root that the changes of this branch are relative to.

        That is the last synced state, or else the import. For a fork of a workspace in place,
        whose source keeps changing, it is the entry at which the fork left the main branch.
        """
        if self.head.base:
            return self.head.base
        if self.info.mode != "in_place" or self.is_in_place:
            return self.imported().files
        main = self.ledger.branch(MAIN_BRANCH)
        for entry in self.branch.log():
            common = main.at(entry.number)
            if common is not None and common.id == entry.id:
                return common.files
        return self.imported().files

    def changeset(
        self, base: str, wanted: str, *, include_ignored: bool, limit: int | None = None
    ) -> ChangeSet:
        """The changes from the root *base* to the root *wanted*, with the source's ignore rules.

        Args:
            base: The old files.
            wanted: The new files.
            include_ignored: Include created files that the rules ignore.
            limit: The most changes to look at; the result cannot be applied then.
        """
        from wink_workspace.workspace.changes.changeset import (
            ChangeSet,  # on use: with diffs it takes 20 ms to load
        )
        from wink_workspace.workspace.changes.source_rules import open_source_filter, rules_in

        imported = self.imported().files
        applied: Iterable[str] = ()
        with suppress(LedgerDamagedError):  # the next apply reports it
            applied = AppliedTrees(self.applied).referenced
        with open_source_filter(
            Path(self.info.source),
            rules_in(self.store, wanted),
            imported=(self.store, imported),
            known=[imported, *(root for root in applied if root in self.store.repository)],
            include_ignored=include_ignored,
        ) as source_filter:
            return ChangeSet.between(self.store, base, wanted, source_filter, limit=limit)

    def outside_effects(self, number: int | None) -> tuple[str, ...]:
        """The effects of an entry outside of the workspace; none if there is no *number*."""
        event = self._event(number)
        return event.outside_effects if isinstance(event, ToolInvoked) else ()

    def uncertain_paths(self, number: int | None) -> tuple[str, ...]:
        """The paths that changed while the call ran, and perhaps not by it."""
        event = self._event(number)
        return tuple(event.uncertain_paths) if isinstance(event, ToolInvoked) else ()

    def _event(self, number: int | None) -> object:
        return None if number is None else self.branch.record(self.branch.find(number)).event
