"""Create a branch in the user's repository: the only code that writes to one.

Rule 1: only objects and one ref are written. HEAD, index, working tree, configuration and other
refs do not change, and no hook runs. A branch that exists is an error.
Rule 2: the branch is one commit on top of HEAD, whose tree is HEAD's with our changes only. The
caller merges these with HEAD's files (``captured``). HEAD can differ from what was imported:
the import includes uncommitted work, and HEAD may have moved since.
Rule 3: paths that git would not add are left out: paths inside a ``.git``, a submodule or another
repository; files that would complete a repository in HEAD or in the working tree; names that git
refuses; ignored files that HEAD does not have. The caller evaluates ignore rules, since libgit2
crashes on some of them, such as ``!//``.
Rule 4: no filter runs. A path with the attribute ``filter``, ``ident`` or
``working-tree-encoding`` is left out. Line ends are converted as git does: a file whose lines end
with CR LF in the working tree and with LF in HEAD is compared with CR LF, and stored with LF.
Rule 5: an existing lock is never deleted, not even one that we left when we were killed, because
it cannot be distinguished from the lock of a running git.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.ledger.store.names import stored_name
from wink_workspace.ledger.store.objects import ObjectStore
from wink_workspace.ledger.store.trees import SOME_DIRECTORY, TreeChange, TreeEntry, build, entry_at

from .git_discovery import DiskView, Found, paths_left_behind
from .git_links import open_user_repository

if TYPE_CHECKING:
    import pygit2


_NAME: Final = "wink_workspace"
_ADDRESS: Final = "wink_workspace@localhost"
_SUBMODULE: Final = 0o160000
_LINK: Final = 0o120000
_PLAIN: Final = 0o100644
_EXECUTABLE: Final = 0o100755
_LOCKED_HINT: Final = (
    "If no git is running there, a killed one left the lock: delete it and try again."
)
_ALLOWED_NAMES: Final = frozenset((".gitattributes", ".gitmodules"))
_FILTERS: Final = ("filter", "ident", "working-tree-encoding")
_PLACEHOLDER: Final = b"\0this is a submodule, or what a directory holds besides\n"


class ForeignHead:
    """The last commit of the repository whose working tree is *directory*.

    Args:
        store: The objects of the ledger.
        directory: The top directory of a working tree.
        name: The name of the new branch, without ``refs/heads/``.
        trusted: See ``open_user_repository``.

    Attributes:
        filtered: The paths that ``left_behind`` left out because a filter of git converts them.

    Raises:
        UsageError: If there is no repository, it leads elsewhere or has no commit, or *name* is
            taken or invalid.
        LedgerError: If something cannot be read.
    """

    def __init__(
        self, store: ObjectStore, directory: Path, name: str, trusted: Collection[Path] = ()
    ) -> None:
        import pygit2

        from wink_workspace.ledger.store.libgit2 import git_failures

        self._store = store
        self._directory = directory
        self._ref = f"refs/heads/{name}"
        self.filtered: set[WorkspacePath] = set()
        self._converted: set[WorkspacePath] = set()
        self._what = f"cannot create the branch {name!r} in {directory}"
        self._repository = open_user_repository(directory, trusted)
        _check_branch(self._repository, directory, name, self._what)
        with git_failures(self._what):
            self._head = self._repository.head.peel(pygit2.Commit)
            self._index = pygit2.Index()
            self._index.read_tree(self._head.tree)

    def left_behind(
        self, changes: Sequence[TreeChange], *, ignores: Callable[[WorkspacePath], bool]
    ) -> frozenset[WorkspacePath]:
        """The paths among *changes* that the branch leaves out, by rule 3.

        *ignores* says whether the repository ignores a file that HEAD does not have.
        """
        from wink_workspace.ledger.store.libgit2 import git_failures

        plain = (
            (at.path, at.after) for at in changes if not any(map(_is_refused_by_git, at.path.parts))
        )
        with git_failures(self._what), DiskTree(self._directory) as disk:
            views = (DiskView(disk), _CommitView(self._repository, self._head))
            theirs = paths_left_behind(self._store, views, plain)
            refused = {at.path for at in changes if self._is_left_out(at, ignores)}
        return theirs | refused

    def _is_left_out(self, change: TreeChange, ignores: Callable[[WorkspacePath], bool]) -> bool:
        path = change.path
        if any(_is_refused_by_git(name) for name in path.parts):
            return True
        above = (str(ancestor) for ancestor in (*path.ancestors(), path) if ancestor.parts)
        if any(entry in self._index and self._index[entry].mode == _SUBMODULE for entry in above):
            return True
        is_file = _unless_directory(change.before) or _unless_directory(change.after)
        if is_file and any(self._attribute(path, name) for name in _FILTERS):
            self.filtered.add(path)
            return True
        return bool(is_file) and str(path) not in self._index and ignores(path)

    def _attribute(self, path: WorkspacePath, name: str) -> str | bool | None:
        """The attribute *name* that ``.gitattributes`` give a path; ``None`` if it has none."""
        return self._repository.get_attr(str(path), name)

    def captured(self, base: str, paths: Iterable[WorkspacePath]) -> str:
        """The tree *base* with *paths* and their parents as HEAD has them.

        A file that HEAD does not have stays as in *base*: it was imported before it was
        committed, and a change of it adds it. A directory among *paths* also has a placeholder
        for each of its other names in HEAD.

        Raises:
            LedgerError: If something cannot be read or written.
        """
        from wink_workspace.ledger.store.libgit2 import git_failures

        wanted = set(paths)
        above = {ancestor for path in wanted for ancestor in path.ancestors() if ancestor.parts}
        found: dict[WorkspacePath, TreeEntry | None] = {}
        with git_failures(self._what):
            for path in sorted(wanted | above):
                there = self._entry(path, entry_at(self._store, base, path))
                if there is None:
                    continue
                found[path] = there
                if there == SOME_DIRECTORY and path in wanted:
                    for name in self._names_in(path):
                        inside = path / name
                        if inside not in wanted and entry_at(self._store, base, inside) is None:
                            found[inside] = self._placeholder()
        return build(self._store, base, found)

    def _entry(self, path: WorkspacePath, imported: TreeEntry | None) -> TreeEntry | None:
        """HEAD's entry at *path*, with its content copied to the ledger by rule 4."""
        import pygit2

        name = str(path)
        if name in self._index:
            entry = self._index[name]
            if entry.mode == _SUBMODULE:
                return self._placeholder()
            content = bytes(self._repository.odb.read(entry.id)[1])
            kind = FileKind.SYMLINK if entry.mode == _LINK else FileKind.FILE
            if imported is not None and kind is imported.kind is FileKind.FILE:
                there = self._store.read(imported.id)
                if _ends_lines_with_crlf(there) and not _has_crlf(content):
                    self._converted.add(path)
                    content = content.replace(b"\n", b"\r\n")
            blob = self._store.write_blob(content)
            return TreeEntry(kind, blob, executable=entry.mode == _EXECUTABLE)
        if name in self._head.tree and isinstance(self._head.tree[name], pygit2.Tree):
            return SOME_DIRECTORY
        return None

    def _names_in(self, path: WorkspacePath) -> list[str]:
        import pygit2

        there = self._head.tree[str(path)]
        return [entry.name or "" for entry in there] if isinstance(there, pygit2.Tree) else []

    def _placeholder(self) -> TreeEntry:
        return TreeEntry(FileKind.FILE, self._store.write_blob(_PLACEHOLDER))

    def _stores_lf(self, path: WorkspacePath, content: bytes) -> bool:
        """Whether git would store the CR LF of *content* as LF."""
        if path in self._converted or not _has_crlf(content):
            return path in self._converted
        if str(path) in self._index or b"\0" in content:
            return False
        text, settings = self._attribute(path, "text"), self._repository.config
        if text is None:
            key = "core.autocrlf"
            is_converted = key in settings and settings[key] in ("true", "input")
            return is_converted or bool(self._attribute(path, "eol"))
        return text in (True, "auto")

    def commit(self, changes: Iterable[TreeChange], *, message: str, at: datetime) -> str:
        """Create the branch with one commit of *changes*; return the commit's id.

        Directories need no change of their own: git has only their files.

        Raises:
            LedgerError: If an object cannot be read or written; no branch is created then.
        """
        import pygit2
        from pygit2.enums import FileMode

        from wink_workspace.ledger.store.libgit2 import git_failures

        steps = {change.path: _unless_directory(change.after) for change in changes}
        with git_failures(self._what):
            for path, entry in steps.items():
                if entry is None and str(path) in self._index:
                    self._index.remove(str(path))
            for path, entry in steps.items():
                if entry is not None:
                    content = self._store.read(entry.id)
                    if self._stores_lf(path, content):
                        content = content.replace(b"\r\n", b"\n")
                    blob = self._repository.create_blob(content)
                    mode = FileMode(_mode(entry))
                    self._index.add(pygit2.IndexEntry(str(path), blob, mode))
            tree = self._index.write_tree(self._repository)
            who = pygit2.Signature(_NAME, _ADDRESS, int(at.timestamp()), 0)
            commit = self._repository.create_commit(None, who, who, message, tree, [self._head.id])
            try:
                self._repository.references.create(self._ref, commit, force=False)
            except OSError as error:
                raise LedgerError(f"{self._what}: {error}", hint=_LOCKED_HINT) from error
        return str(commit)


def _has_crlf(content: bytes) -> bool:
    return b"\r\n" in content


def _ends_lines_with_crlf(content: bytes) -> bool:
    """Whether it is a text in which each line ends with CR LF."""
    n_lines = content.count(b"\n")
    return bool(n_lines) and content.count(b"\r\n") == n_lines and b"\0" not in content


def _check_branch(repository: pygit2.Repository, directory: Path, name: str, what: str) -> None:
    """Raise ``UsageError`` for what the caller can fix, before anything is written."""
    import pygit2

    from wink_workspace.ledger.store.libgit2 import git_failures

    ref = f"refs/heads/{name}"
    with git_failures(what):
        is_valid = pygit2.reference_is_valid_name(ref) and not name.startswith("-")
        is_taken = is_valid and repository.references.get(ref) is not None
        is_empty = repository.head_is_unborn
    if not is_valid:
        raise UsageError(
            f"{name!r} is not a valid branch name", hint="Use letters, digits and '-'."
        )
    if is_taken:
        raise UsageError(f"the branch {name!r} exists already", hint="Choose another name.")
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


def _unless_directory(entry: TreeEntry | None) -> TreeEntry | None:
    return None if entry is None or entry.kind is FileKind.DIRECTORY else entry


def _is_refused_by_git(name: str) -> bool:
    if name in _ALLOWED_NAMES:
        return False
    return stored_name(name) != name.encode("utf-8", "surrogateescape")


def _mode(entry: TreeEntry) -> int:
    if entry.kind is FileKind.SYMLINK:
        return _LINK
    return _EXECUTABLE if entry.executable else _PLAIN


def tracked_names(index_file: Path) -> list[str] | None:
    """The paths in a repository's index, sorted; ``None`` if it cannot be read.

    Only the file is read: no configuration, and no repository is opened.
    """
    import pygit2

    if not index_file.is_file():
        return []
    try:
        index = pygit2.Index(str(index_file))
        return sorted(str(index[n].path) for n in range(len(index)))
    except (pygit2.GitError, OSError, ValueError):  # split or sparse, or damaged
        return None
