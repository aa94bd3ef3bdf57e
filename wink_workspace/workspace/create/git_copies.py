"""Copies of the newest history of sources, which git in a sandbox reads.

Each is one of the ``SharedFolders`` below ``<state>/git/``: its ``objects/`` are those of git, and
its ``template/`` is the git directory that each call begins with.

Rule 1: a copy never changes. It is made when a workspace is created, and shared by all workspaces
with the same commit, tags, rules and base. The file ``git`` of a workspace names it.
Rule 2: a copy that a process uses is not deleted before the process ends: its containers show it.
Rule 3: ``.git`` at the top of such a workspace is a file that we write, and no tool and no history
sees that name. A command may change it; it is written again after the command. No git of the host
runs in a workspace.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import (
    CopyPaths,
    FileStamp,
    Ledger,
    UserHead,
    open_user_head,
    walk,
)
from wink_workspace.sandbox.git_directory import (
    GIT_DIRECTORY_FILE,
    GIT_OBJECTS_PATH,
)
from wink_workspace.workspace.place.path_rules import (
    GIT_RULE,
    OUTPUT_FOLDER,
    ImportConfig,
    PathRules,
)
from wink_workspace.workspace.place.shared_folders import SharedFolders
from wink_workspace.workspace.place.storage import WorkspaceFolder

from .bases import BaseStore

_log = logging.getLogger(__name__)

_GIT: Final = WorkspacePath((".git",))
_FORMAT: Final = 1
_USER_ID: Final = 1_000
_Stamps = Callable[[Parts, str], FileStamp | None]


class GitCopies:
    """The copies of a state directory."""

    _held: ClassVar[dict[Path, int]] = {}
    """The lock of each copy that this process uses, until it ends."""

    def __init__(self, state_dir: Path) -> None:
        self._folders = SharedFolders(state_dir / "git", f"{_FORMAT}-*")

    def find(self, name: str) -> Path | None:
        """The copy of this name, for this process; ``None`` if there is none."""
        with self._folders.claimed():
            path = self._folders.root / name
            if path not in self._held:
                lock = self._folders.hold(path)
                if lock is None:
                    return None
                self._held[path] = lock
        return path

    def make(self, name: str, fill: Callable[[Path], None]) -> None:
        """Make the copy *name* with *fill*, which writes it into a directory, unless it exists.

        Raises what *fill* raises; nothing is left then.
        """
        if self.find(name) is not None:
            return
        with self._folders.making() as made:
            fill(made.path)
            _make_readable(made.path)
            with self._folders.claimed():
                path = self._folders.root / name
                if not path.exists():  # no other process was faster
                    self._held[path] = made.place(path)
        self.find(name)

    def collect(self) -> int:
        """Delete the copies that no workspace names and no process uses; how many.

        Raises:
            FilesystemError: If a copy cannot be locked or retired; the next call tries again.
        """
        return self._folders.collect(self._named)

    def _named(self) -> set[str]:
        names: set[str] = set()
        for path in self._folders.root.with_name("workspaces").glob("*/git"):
            with suppress(FileNotFoundError):
                names.add(path.read_text(encoding="ascii").strip())
        return names


def copy_git(
    source: Path, folder: WorkspaceFolder, rules: PathRules, *, config: ImportConfig, clock: Clock
) -> PathRules:
    """Copy the newest history of a source for a new workspace; its rules, which then hide ``.git``.

    Without a repository, or if it cannot be copied, nothing happens; the reason is logged.
    """
    depth = config.git_depth
    if not depth:
        return rules
    try:
        head = open_user_head(source, config.trusted_by(source))
        if head is None:
            return rules
        name = _name(head, rules, folder, depth)
        unrecorded = rules.unrecorded()

        def fill(path: Path) -> None:
            assert head is not None  # noqa: S101 - checked above
            copied = head.copy(
                path,
                CopyPaths(GIT_OBJECTS_PATH, _USER_ID, str(OUTPUT_FOLDER)),
                depth=depth,
                hides=lambda parts, is_directory: (
                    unrecorded is not None and unrecorded.hides(parts, is_directory=is_directory)
                ),
                stamps=_stamps(folder),
                clock=clock,
            )
            _log.info("copied %d commits of %s", copied.n_commits, source)

        GitCopies(folder.state_dir).make(name, fill)
    except (UsageError, LedgerError, OSError) as error:
        _log.warning("git in the sandbox has no history of %s: %s", source, error)
        return rules
    folder.git.write_text(f"{name}\n", encoding="ascii")
    return replace(rules, excluded=(*rules.excluded, GIT_RULE))


def write_git_file(files: Path) -> None:
    """Write ``.git`` into the files of a workspace, unless it is there as we write it.

    Raises:
        FilesystemError: If it cannot be written.
    """
    with DiskTree(files, make_accessible=True) as tree:
        entry = tree.entry(_GIT)
        is_ours = (
            entry is not None
            and entry.kind is FileKind.FILE
            and entry.n_links == 1
            and entry.mode == 0o644
            and entry.size_bytes == len(GIT_DIRECTORY_FILE)
        )
        if is_ours:
            with tree.open(_GIT) as file:
                is_ours = file.read() == GIT_DIRECTORY_FILE
        if not is_ours:
            if entry is not None:
                tree.remove(_GIT)
            tree.put_file(_GIT, [GIT_DIRECTORY_FILE])


def _name(head: UserHead, rules: PathRules, folder: WorkspaceFolder, depth: int) -> str:
    base = folder.base.read_text(encoding="utf-8") if folder.base.is_file() else ""
    about = repr((head.digest, rules, base, depth))
    return f"{_FORMAT}-{hashlib.sha256(about.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


def _stamps(folder: WorkspaceFolder) -> _Stamps:
    """The statuses of the files of the base that the workspace begins with.

    A copy has none: its forks have files of their own. Without them, git reads each file.
    """
    if not folder.base.is_file():
        return lambda _parts, _id: None
    base = BaseStore(folder.state_dir, SYSTEM_CLOCK).named(folder.base.read_text(encoding="utf-8"))
    index = None if base is None else base.index()
    if base is None or index is None:
        return lambda _parts, _id: None
    with Ledger(folder.ledger) as ledger:
        contents = {path.parts: entry.id for path, entry in walk(ledger.store, base.tree)}
    base.release()

    def stamp(parts: Parts, content: str) -> FileStamp | None:
        found = index.get(parts[:-1], parts[-1]) if contents.get(parts) == content else None
        if found is None:
            return None
        return FileStamp(found.changed_ns, found.modified_ns, found.inode, found.size_bytes)

    return stamp


def _make_readable(directory: Path) -> None:
    """Let the users of containers read it, whatever the umask is."""
    directory.chmod(0o755)
    for path in (directory / "objects", directory / "template"):
        path.chmod(0o755)
        for each in path.rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o444)
