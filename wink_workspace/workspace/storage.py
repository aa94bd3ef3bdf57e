"""Where workspaces live, and what is known of each without opening it.

::

    <state>/workspaces/<id>/
        about.json      what it was made of, and when; written last: without it this is no workspace
        owner           locked by the process that makes or removes it
        ledger.git/     its history
        files/          its files, unless it is in place
        index           what the files looked like when it was last closed; only a hint
        reserve         room on the disk, for a rollback that finds no other
        discarded/      what rollbacks threw away and the history does not have yet
        modes           of one in place: what gives fewer rights than its history can tell
        applied         what each branch applied to the source
        applied.effects what an apply that was cut short had written
        applied.modes   what gave fewer rights in the source when an apply removed it
        applied.lock    locked while something is applied, by whichever line
        sandbox/        which container runs, and what its present command has written
        runs/<number>/  what each run was asked, and the turns of its model
        forks/<name>/   files/, index, reserve, discarded/, sandbox/ and runs/ of a fork, made when
                        it is first opened
    <state>/workspaces/claims       locked for the instants in which owners come and go
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import FilesystemError, LedgerBusyError, UsageError
from wink_workspace.filesystem import WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.ledger import MAIN_BRANCH, WriterLock

__all__ = [
    "TemporaryStorage",
    "WorkspaceFolder",
    "WorkspaceInfo",
    "WorkspaceMode",
    "WorkspaceStorage",
    "delete_tree",
]

_VERSION: Final = 1
_log = logging.getLogger(__name__)

WorkspaceMode = Literal["copy", "in_place"]
"""Whether a workspace's files are a copy of its source, or the source itself."""


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """What a workspace is: its id, the directory it was made of or is in, and when.

    ``inode`` tells the directory of one in place from another that takes its place later.
    """

    id: str
    source: str
    created_at: datetime
    mode: WorkspaceMode = "copy"
    inode: int | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceFolder:
    """The places of one workspace on the disk; with a *line* other than the main one, a fork's.

    ``in_place`` is the user's directory, if the workspace is in it and not a copy of it.
    """

    path: Path
    branch: str = MAIN_BRANCH
    in_place: Path | None = None

    def of_branch(self, branch: str) -> WorkspaceFolder:
        """The places of another line of the same workspace."""
        return replace(self, branch=branch)

    @property
    def own(self) -> Path:
        """The directory of what belongs to this line alone."""
        return self.path if self.branch == MAIN_BRANCH else self.path / "forks" / self.branch

    @property
    def files(self) -> Path:
        """The directory that holds the files."""
        if self.in_place is not None and self.branch == MAIN_BRANCH:
            return self.in_place
        return self.own / "files"

    @property
    def index(self) -> Path:
        """The hint of what the files looked like."""
        return self.own / "index"

    @property
    def reserve(self) -> Path:
        """What takes up room until a rollback needs it."""
        return self.own / "reserve"

    @property
    def discarded(self) -> Path:
        """What rollbacks threw away and the history does not have yet."""
        return self.own / "discarded"

    @property
    def modes(self) -> Path:
        """What gives fewer rights than the history can tell, in place."""
        return self.own / "modes"

    @property
    def sandbox(self) -> Path:
        """What has to be known of a container after a crash."""
        return self.own / "sandbox"

    @property
    def runs(self) -> Path:
        """What its runs were asked, and the turns of their models."""
        return self.own / "runs"

    @property
    def ledger(self) -> Path:
        """The git directory of the history, of all lines."""
        return self.path / "ledger.git"

    @property
    def applied(self) -> Path:
        """What ``apply`` knows of the source."""
        return self.path / "applied"

    @property
    def owner(self) -> Path:
        """The lock of the process that makes or removes it."""
        return self.path / "owner"

    @property
    def is_workspace(self) -> bool:
        """Whether it was made to the end and nobody has begun to remove it."""
        return os.path.lexists(self.path / "about.json")

    def info(self) -> WorkspaceInfo:
        """What is written of it; ``UsageError`` if there is no workspace here."""
        return self._read("about.json")

    def intended(self) -> WorkspaceInfo:
        """As ``info``, of one that is being made in place."""
        return self._read("about.json.new")

    def _read(self, name: str) -> WorkspaceInfo:
        try:
            fields: dict[str, Any] = json.loads((self.path / name).read_bytes())
            if fields.pop("version") != _VERSION:
                raise ValueError("another version")
            return WorkspaceInfo(
                fields["id"],
                fields["source"],
                datetime.fromisoformat(fields["created_at"]),
                fields.get("mode", "copy"),
                fields.get("inode"),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"there is no workspace in {self.path}", hint="List the ones that there are."
            ) from error

    def write_intended(self, info: WorkspaceInfo) -> None:
        """Say what the folder is to become."""
        about = {**asdict(info), "created_at": info.created_at.isoformat(), "version": _VERSION}
        text = json.dumps(about, indent=2) + "\n"
        (self.path / "about.json.new").write_text(text, encoding="utf-8")

    def write_info(self, info: WorkspaceInfo) -> None:
        """Make the folder a workspace."""
        self.write_intended(info)
        (self.path / "about.json.new").rename(self.path / "about.json")


class WorkspaceStorage:
    """The folder of all workspaces of a user.

    Args:
        state_dir: Where the program keeps its state; made when first needed.
        clock: The time, for the messages to others.
    """

    def __init__(self, state_dir: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = Path(state_dir) / "workspaces"
        self._clock = clock

    @classmethod
    def default(cls) -> WorkspaceStorage:
        """The storage that the command ``wink-workspace`` uses, too.

        It is below ``$XDG_STATE_HOME``, or ``~/.local/state``, in ``wink-workspace``.

        Raises:
            UsageError: If neither that variable nor a home directory is known.
        """
        return cls(Environment.from_os().state_dir)

    def all(self) -> Iterator[WorkspaceInfo]:
        """Every workspace, newest first."""
        found: list[WorkspaceInfo] = []
        for path in self._root.iterdir() if self._root.is_dir() else ():
            try:
                found.append(WorkspaceFolder(path).info())
            except UsageError:
                continue  # a folder whose making was interrupted
        return iter(sorted(found, key=lambda info: info.created_at, reverse=True))

    def folder(self, which: str) -> WorkspaceFolder:
        """The folder of the workspace with this id, or the only one whose id begins so.

        Raises:
            UsageError: If there is none, or more than one.
        """
        known = [info.id for info in self.all()]
        ids = [id_ for id_ in known if which and id_.startswith(which)]
        if which in ids:
            ids = [which]
        if len(ids) != 1:
            self._refuse_damaged(which)
            found = f"{len(ids)} workspaces are" if ids else "no workspace is"
            id_, slash, _ = which.partition("/")
            if slash and id_ and any(each.startswith(id_) for each in known):
                hint = "The name of a fork goes apart from the id: branch=…."
            elif known:
                hint = f"There are: {', '.join(ids or known)}."
            else:
                hint = "Make one of a directory first: `wink-workspace new DIRECTORY`."
            raise UsageError(f"{found} called {which!r}", hint=hint)
        folder = WorkspaceFolder(self._root / ids[0])
        info = folder.info()
        return replace(folder, in_place=Path(info.source)) if info.mode == "in_place" else folder

    def _refuse_damaged(self, which: str) -> None:
        """Raise ``UsageError`` if there is a workspace of that id that does not say what it is."""
        folder = WorkspaceFolder(self._root / (which or "claims"))
        if folder.path.parent == self._root and folder.is_workspace:
            raise UsageError(
                f"the note {folder.path / 'about.json'}, which says what this workspace is, "
                "cannot be read",
                hint=f"Its files are in {folder.files} unless it was in place, and its history in "
                f"{folder.ledger}. Take what you need, then delete {folder.path}.",
            )

    def add(
        self, fill: Callable[[WorkspaceFolder], WorkspaceInfo], *, in_place: Path | None = None
    ) -> WorkspaceInfo:
        """Make a folder and let *fill* make it a workspace; if that raises, nothing is left.

        What others left of folders when they died is deleted before.

        Args:
            fill: Given the folder.
            in_place: The directory that the workspace will be in, for one in place.

        Raises:
            UsageError: If *in_place* is, holds, or lies in, a directory in which one is already,
                or where workspaces are kept; the message names it.
            LedgerBusyError: If another process is just making one there; the message says which.
        """
        self.sweep()
        folder = WorkspaceFolder(self._root / secrets.token_hex(6))
        with ExitStack() as owned:
            try:
                with self._instant():
                    if in_place is not None:
                        self._check_free(in_place)
                    folder.path.mkdir(mode=0o700)
                    owned.callback(self._own(folder).release)
                    if in_place is not None:
                        now = self._clock.now()
                        intended = WorkspaceInfo(folder.path.name, str(in_place), now, "in_place")
                        folder.write_intended(intended)
                info = fill(folder)
                folder.write_info(info)
            except BaseException:
                with suppress(FilesystemError):
                    self._delete(folder)
                raise
        return info

    def sweep(self) -> int:
        """Delete what is left of folders whose making or removal was interrupted; how many.

        Only of those whose owner is dead. What cannot be deleted is said, and stays.
        """
        dead: list[tuple[WorkspaceFolder, WriterLock]] = []
        with self._instant():
            for folder in self._unfinished():
                with suppress(LedgerBusyError):
                    dead.append((folder, self._own(folder)))
        n_deleted = 0
        for folder, owner in dead:
            try:
                self._delete(folder)
                n_deleted += 1
            except FilesystemError as error:
                _log.warning("What is left of the workspace %s stays: %s", folder.path, error)
            finally:
                owner.release()
        return n_deleted

    @contextmanager
    def _instant(self) -> Generator[None]:
        """Hold off others who make or remove workspaces; not for longer than a few system calls."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._root / "claims").open("wb") as claims:
            fcntl.flock(claims, fcntl.LOCK_EX)
            yield

    def _unfinished(self) -> Iterator[WorkspaceFolder]:
        """The folders that an owner has, or had when it died, and that are no workspaces."""
        for path in self._root.iterdir():
            folder = WorkspaceFolder(path)
            if folder.owner.is_file() and not folder.is_workspace:
                yield folder

    def _own(self, folder: WorkspaceFolder) -> WriterLock:
        return WriterLock(folder.owner, what=f"the folder {folder.path}", now=self._clock.now())

    def _delete(self, folder: WorkspaceFolder) -> None:
        """Delete a folder of which the caller is the owner, the lock last."""
        for path in folder.path.iterdir() if folder.path.is_dir() else ():
            if path != folder.owner:
                delete_tree(path)
        with self._instant():
            delete_tree(folder.path)

    def _check_free(self, place: Path) -> None:
        self.check_apart(place)
        if place.is_relative_to(self._root.resolve()):
            raise UsageError(
                f"{place} is in the folder of the workspaces, {self._root}",
                hint="Work in a directory of your own, or open the workspace that it is of.",
            )
        for info in self.all():
            if info.mode == "in_place" and _overlap(place, Path(info.source)):
                raise UsageError(
                    f"the workspace {info.id} is in {info.source} already",
                    hint=f"Work in {info.id}, fork it, or remove it first.",
                )
        for folder in self._unfinished():
            with suppress(UsageError):  # it is a copy, or dead before it could say anything
                other = Path(folder.intended().source)
                if _overlap(place, other):
                    self._refuse_owned(folder, other)

    def _refuse_owned(self, folder: WorkspaceFolder, place: Path) -> None:
        """Raise ``LedgerBusyError`` if the owner of an unfinished folder is alive."""
        WriterLock(
            folder.owner,
            what=f"{place}, where a workspace is just being made,",
            now=self._clock.now(),
            hint="Wait until it is made, then work in that one.",
        ).abandon()

    def check_apart(self, place: Path) -> None:
        """Raise ``UsageError`` if the folder of the workspaces is in *place*."""
        if self._root.resolve().is_relative_to(place.resolve()):
            raise UsageError(
                f"the folder of the workspaces, {self._root}, is in {place}",
                hint="Keep the workspaces elsewhere: set XDG_STATE_HOME, or give WorkspaceStorage"
                " another directory.",
            )

    def in_place(self, place: Path) -> WorkspaceInfo | None:
        """The workspace that is in the directory *place*, if there is one."""
        mine = (info for info in self.all() if info.mode == "in_place")
        return next((info for info in mine if Path(info.source) == place.resolve()), None)

    def remove(self, folder: WorkspaceFolder) -> None:
        """Delete a workspace with all it holds; the caller has it open for writing.

        One in place is outside of the directory that it is in, of which nothing is deleted.

        Raises:
            LedgerBusyError: If another process is removing it; the message says which.
            FilesystemError: If something stays; it is no workspace any more all the same, and
                ``sweep`` tries it again.
        """
        with self._instant():
            owner = self._own(folder)
        try:
            (folder.path / "about.json").unlink()
            self._delete(folder)
        finally:
            owner.release()


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


class TemporaryStorage(WorkspaceStorage):
    """A folder for workspaces that goes with ``delete``, at the latest when the interpreter ends.

    It does not go earlier, however little of it is still referred to: somebody may have kept
    only the files. A forked child leaves it to its parent.
    """

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="wink-workspace-"))
        self._owner = os.getpid()
        super().__init__(self._place)
        atexit.register(self.delete)

    def delete(self) -> None:
        """Delete everything; once is enough."""
        atexit.unregister(self.delete)
        if os.getpid() == self._owner and self._place.is_dir():
            with suppress(FilesystemError):  # the system's own cleaning of temporary files is left
                delete_tree(self._place)


def delete_tree(path: Path) -> None:
    """Delete a directory that is there or not, whatever the modes inside of it.

    Raises:
        FilesystemError: If something stays.
    """
    if not path.parent.is_dir():
        return
    above = DiskTree(path.parent)
    try:
        above.remove(WorkspacePath((path.name,)))
    finally:
        above.close()
