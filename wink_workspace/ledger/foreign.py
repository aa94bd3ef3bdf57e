"""One new branch in a repository that is not ours: the only code that writes to one.

Rule 1: what is there stays as it is. HEAD, index, working tree, configuration and every other
ref are not touched, no hook runs; a branch of the same name is a refusal. Written are objects
and one ref.
Rule 2: the branch is one commit on top of HEAD. Its tree is HEAD's with our changes alone:
where HEAD has something else than what was imported (uncommitted work was imported too, or
HEAD moved), the two are merged three-way, and a path that cannot be is a ``ConflictError``.
Rule 3: what git would not take from its user is left out, and said so: paths inside a
``.git``, a submodule or another repository, what would complete a repository in HEAD's files or
in those of the working tree, names that git refuses, and ignored files that HEAD does not have.
Which are ignored the caller says: libgit2 crashes on some rules, such as ``!//``.
Rule 4: a lock that is there is never deleted, not even one that we left when we were killed:
nobody can tell it from that of a git at work.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import ConflictError, LedgerError, UsageError
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath

from .git_discovery import DiskView, Found, paths_left_behind
from .names import stored_name
from .objects import ObjectStore
from .trees import TreeChange, TreeEntry

if TYPE_CHECKING:
    import pygit2

__all__ = ["NewBranch", "create_branch"]

_NAME: Final = "wink_workspace"
_ADDRESS: Final = "wink_workspace@localhost"
_SUBMODULE: Final = 0o160000
_LINK: Final = 0o120000
_PLAIN: Final = 0o100644
_EXECUTABLE: Final = 0o100755
_LOCKED: Final = (
    "If no git is at work there, one that was killed left the lock: delete it, try again."
)
_KEPT_AS_THEY_ARE: Final = frozenset((".gitattributes", ".gitmodules"))


@dataclass(frozen=True, slots=True)
class NewBranch:
    """A branch that was made: its commit, what it changes, and what had to be left out."""

    commit: str
    paths: tuple[str, ...]
    left_out: tuple[str, ...]


def create_branch(
    store: ObjectStore,
    directory: Path,
    name: str,
    changes: Iterable[TreeChange],
    *,
    message: str,
    at: datetime,
    ignores: Callable[[WorkspacePath], bool],
) -> NewBranch:
    """Make the branch *name* in the repository whose working tree is *directory*.

    Args:
        store: Where the contents of *changes* are.
        directory: The top of a working tree.
        name: The branch's name, without ``refs/heads/``.
        changes: What to change, each path once.
        message: The commit's message.
        at: The commit's time.
        ignores: Whether the repository ignores a file that HEAD does not have.

    Raises:
        UsageError: If there is no repository, it has no commit, or *name* is taken or invalid.
        ConflictError: If HEAD has other changes at one of the paths; nothing was written.
        LedgerError: If something cannot be read or written; there is no branch then.
    """
    import pygit2

    from .repository import _failures, _own_configuration_only

    ref = f"refs/heads/{name}"
    what = f"the branch {name!r} cannot be made in {directory}"
    with _own_configuration_only():
        repository = _opened(directory)
    _check(repository, directory, name, what)
    with _failures(what), DiskTree(directory) as disk:
        head = repository.head.peel(pygit2.Commit)
        changes = list(changes)
        plain = ((at.path, at.after) for at in changes if not any(map(_is_refused, at.path.parts)))
        views = (DiskView(disk), _CommitView(repository, head))
        theirs = paths_left_behind(store, views, plain)
        building = _TreeBuilding(store, repository, head, theirs, ignores)
        for change in changes:
            building.add(change)
        tree = building.finished()
        who = pygit2.Signature(_NAME, _ADDRESS, int(at.timestamp()), 0)
        commit = repository.create_commit(None, who, who, message, tree, [head.id])
        try:
            repository.references.create(ref, commit, force=False)
        except OSError as error:
            raise LedgerError(f"{what}: {error}", hint=_LOCKED) from error
    return NewBranch(str(commit), tuple(building.changed), tuple(building.left_out))


def _opened(directory: Path) -> pygit2.Repository:
    import pygit2
    from pygit2.enums import RepositoryOpenFlag

    try:
        return pygit2.Repository(str(directory), RepositoryOpenFlag.NO_SEARCH)
    except pygit2.GitError as error:
        raise UsageError(
            f"{directory} is not the top of a git repository: {error}",
            hint="Apply to the working tree, or write a patch.",
        ) from error


def _check(repository: pygit2.Repository, directory: Path, name: str, what: str) -> None:
    """Refuse what the caller can mend, before anything is written."""
    import pygit2

    from .repository import _failures

    ref = f"refs/heads/{name}"
    with _failures(what):
        is_valid = pygit2.reference_is_valid_name(ref) and not name.startswith("-")
        is_taken = is_valid and repository.references.get(ref) is not None
        is_empty = repository.head_is_unborn
    if not is_valid:
        raise UsageError(f"{name!r} cannot be a branch", hint="Use letters, digits and '-'.")
    if is_taken:
        raise UsageError(f"there is a branch {name!r} already", hint="Choose another name.")
    if is_empty:
        raise UsageError(f"{directory} has no commit yet", hint="Commit there first.")


class _CommitView:
    """The files of a commit; implements ``DirectoryView``."""

    def __init__(self, repository: pygit2.Repository, commit: pygit2.Commit) -> None:
        self._repository = repository
        self._tree = commit.tree

    def names(self, directory: WorkspacePath) -> Iterable[str]:
        import pygit2

        there = self._at(directory)
        if not isinstance(there, pygit2.Tree):
            return ()
        return [entry.name for entry in there if entry.name is not None]

    def common_directories(self) -> Mapping[WorkspacePath, WorkspacePath]:
        return {}

    def look(self, path: WorkspacePath) -> Found | None:
        there = self._at(path)
        if there is None:
            return None
        if there.filemode not in (_PLAIN, _EXECUTABLE, _LINK):
            return Found(FileKind.DIRECTORY)
        kind = FileKind.SYMLINK if there.filemode == _LINK else FileKind.FILE
        return Found(kind, lambda: bytes(self._repository.odb.read(there.id)[1]))

    def _at(self, path: WorkspacePath) -> pygit2.Object | None:
        if not path.parts:
            return self._tree
        try:
            return self._tree[str(path)]
        except KeyError:
            return None


class _TreeBuilding:
    """HEAD's tree with changes, in an index that is only in memory.

    Changes of the paths *theirs* are left out.
    """

    def __init__(
        self,
        store: ObjectStore,
        repository: pygit2.Repository,
        head: pygit2.Commit,
        theirs: Container[WorkspacePath],
        ignores: Callable[[WorkspacePath], bool],
    ) -> None:
        import pygit2

        self._store = store
        self._repository = repository
        self._theirs = theirs
        self._ignores = ignores
        self._head = head.tree
        self._index = pygit2.Index()
        self._index.read_tree(head.tree)
        self._conflicts: list[str] = []
        self._steps: dict[str, TreeEntry | None] = {}
        self.left_out: list[str] = []

    @property
    def changed(self) -> list[str]:
        """The paths that differ from HEAD."""
        return sorted(self._steps)

    def add(self, change: TreeChange) -> None:
        """Merge one change into HEAD's tree; directories come with what is in them."""
        before, after = (_unless_directory(each) for each in (change.before, change.after))
        path = str(change.path)
        if before == after:
            self.left_out.append(path)  # an empty directory
            return
        if self._is_left_out(change.path):
            self.left_out.append(path)
            return
        head = self._at_head(path)
        if head in (before, None) or head == after:
            merged = after
        elif before is None or after is None or not before.kind is after.kind is head.kind:
            self._conflicts.append(path)
            return
        else:
            merged = self._merged(path, before, head, after)
        if merged != head:
            self._steps[path] = merged

    def finished(self) -> pygit2.Oid:
        """The id of the tree, written to the repository."""
        import pygit2
        from pygit2.enums import FileMode

        conflicts = {*self._conflicts, *self._in_the_way()}
        if conflicts:
            raise ConflictError(
                f"the last commit has other changes in: {', '.join(sorted(conflicts))}",
                hint="Commit what is there, or take the changes as a patch.",
            )
        for path, entry in self._steps.items():
            if entry is None:
                self._index.remove(path)
        for path, entry in self._steps.items():
            if entry is not None:
                blob = self._repository.create_blob(self._store.read(entry.id))
                self._index.add(pygit2.IndexEntry(path, blob, FileMode(_mode(entry))))
        return self._index.write_tree(self._repository)

    def _in_the_way(self) -> Iterator[str]:
        """HEAD's files where we have directories, and its directories where we have files.

        What goes with our changes is none; of the rest libgit2 would drop one or the other.
        """
        import pygit2

        going = {path for path, entry in self._steps.items() if entry is None}
        for path in self._steps.keys() - going:
            above = (path[:end] for end, letter in enumerate(path) if letter == "/")
            yield from (file for file in above if file in self._index and file not in going)
            if path in self._head and isinstance(there := self._head[path], pygit2.Tree):
                n_going = sum(gone.startswith(f"{path}/") for gone in going)
                if n_going < _n_files(there):
                    yield path

    def _is_left_out(self, path: WorkspacePath) -> bool:
        if path in self._theirs or any(_is_refused(name) for name in path.parts):
            return True
        above = (str(ancestor) for ancestor in (*path.ancestors(), path) if ancestor.parts)
        if any(entry in self._index and self._index[entry].mode == _SUBMODULE for entry in above):
            return True
        return str(path) not in self._index and self._ignores(path)

    def _at_head(self, path: str) -> TreeEntry | None:
        if path not in self._index:
            return None
        entry = self._index[path]
        kind = FileKind.SYMLINK if entry.mode == _LINK else FileKind.FILE
        return TreeEntry(kind, str(entry.id), executable=entry.mode == _EXECUTABLE)

    def _merged(self, path: str, base: TreeEntry, head: TreeEntry, ours: TreeEntry) -> TreeEntry:
        """All of them files, or all links; a conflict is noted, and then anything is returned."""
        executable = ours.executable if base.executable == head.executable else head.executable
        if head.id in (base.id, ours.id):
            return TreeEntry(head.kind, ours.id, executable)
        if base.id == ours.id:
            return TreeEntry(head.kind, self._copied(head), executable)
        merged = None
        if head.kind is FileKind.FILE:
            merged = self._store.repository.merge_blobs(base.id, self._copied(head), ours.id)
        if merged is None:
            self._conflicts.append(path)
            return head
        return TreeEntry(head.kind, merged, executable)

    def _copied(self, head: TreeEntry) -> str:
        """The id of HEAD's content, which is in our own store then."""
        return self._store.write_blob(bytes(self._repository.odb.read(head.id)[1]))


def _n_files(tree: pygit2.Tree) -> int:
    """How many files, links and submodules there are in it."""
    import pygit2

    return sum(_n_files(entry) if isinstance(entry, pygit2.Tree) else 1 for entry in tree)


def _unless_directory(entry: TreeEntry | None) -> TreeEntry | None:
    return None if entry is None or entry.kind is FileKind.DIRECTORY else entry


def _is_refused(name: str) -> bool:
    if name in _KEPT_AS_THEY_ARE:
        return False
    return stored_name(name) != name.encode("utf-8", "surrogateescape")


def _mode(entry: TreeEntry) -> int:
    if entry.kind is FileKind.SYMLINK:
        return _LINK
    return _EXECUTABLE if entry.executable else _PLAIN
