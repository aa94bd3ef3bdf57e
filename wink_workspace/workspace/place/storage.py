"""Where workspaces are stored, and what is known of each without opening it.

::

    <state>/workspaces/<id>/
        about.json      what it was made of, and when; written last: a workspace has this file
        owner           locked by the process that makes or removes it
        ledger.git/     its history
        files/          its files, if it is a copy
        ledger.times    the modification times of the source's files; see ``seen_statuses``
        derived/        the last checkpoint of its derived paths
        base            the name of the base that its files begin with, if it is an overlay
        git             the name of the copy of its source's history, if it has one
        upper/          its own layer: files/ has what changed, held/ what rollbacks discarded
        layers          the names of the layers of derived paths that it shares with forks
        frozen/         these layers, of all branches; see ``derived_layers``
        work/           needed by the kernel
        index           statuses of the files when it was last closed; only a hint
        reserve         reserved disk space for a rollback on a full disk
        discarded/      what rollbacks discarded and the history does not have yet
        private         in place: the trees of files that the history does not name
        modes           in place: permissions narrower than the history can record
        applied         what each branch applied to the source
        applied.effects what an interrupted apply had written
        applied.modes   narrow permissions in the source of what an apply removed
        applied.lock    locked during an apply of any branch
        applied.change  locked for an instant when ``applied`` is changed
        used            when a command used it last; see ``last_used``
        sandbox/        which container runs, and the output of its present command
        services.json   the services that were started in it
        runs/<number>/  the task of each run, and the turns of its model
        forks/<name>/   the same for a fork: files/ or base, upper/ and work/, index, reserve,
                        discarded/, sandbox/ and runs/, made when it is first opened; derived/ and
                        layers are made with the fork, and services.json if the parent has services
    <state>/workspaces/claims       locked for an instant when an owner starts or ends
    <state>/bases/                  the bases; see ``bases`` and ``shared_folders``
    <state>/git/                    copies of the history of sources; see ``git_copies``
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import FilesystemError, LedgerBusyError, MountError, UsageError
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.ledger import MAIN_BRANCH, WriterLock
from wink_workspace.ledger.store.disk import sync, write_whole

from .path_rules import PathRules
from .shared_folders import claimed, delete_tree, lock_file

if TYPE_CHECKING:
    from wink_workspace.filesystem.overlay.mounting import OverlaySupport


MODE_VARIABLE: Final = "WINK_WORKSPACE_MODE"
"""The variable that chooses the mode of new workspaces: ``auto``, ``overlay`` or ``copy``."""

_VERSION: Final = 2

_LONGEST_PROBE_S: Final = 3_600

_log = logging.getLogger(__name__)

WorkspaceMode = Literal["overlay", "copy", "in_place"]
"""What a workspace's files are: a shared base with a layer of changes over it, a copy of the
source, or the source itself."""


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """The id, source directory (an absolute path), creation time and mode of a workspace.

    ``inode`` distinguishes the directory of a workspace in place from a later replacement.
    ``rules`` say which paths of a copy are not recorded.
    """

    id: str
    source: str
    created_at: datetime
    mode: WorkspaceMode = "copy"
    inode: int | None = None
    rules: PathRules = field(default_factory=PathRules)


@dataclass(frozen=True, slots=True)
class WorkspaceFolder:
    """The paths of one workspace on the disk; with another *branch*, those of a fork.

    ``path`` is the folder of the workspace with all its branches.
    ``in_place`` is the user's directory, if the workspace is in place.
    """

    path: Path
    branch: str = MAIN_BRANCH
    in_place: Path | None = None

    def of_branch(self, branch: str) -> WorkspaceFolder:
        """The paths of another branch of the same workspace."""
        return replace(self, branch=branch)

    @property
    def branch_dir(self) -> Path:
        """The directory for everything that belongs to this branch alone."""
        return self.path if self.branch == MAIN_BRANCH else self.path / "forks" / self.branch

    @property
    def files(self) -> Path:
        """The directory with the files; a branch on an overlay has no such directory."""
        if self.in_place is not None and self.branch == MAIN_BRANCH:
            return self.in_place
        return self.branch_dir / "files"

    @property
    def state_dir(self) -> Path:
        """The state directory of the program."""
        return self.path.parent.parent

    @property
    def base(self) -> Path:
        """The file that names the base of a branch on an overlay."""
        return self.branch_dir / "base"

    @property
    def git(self) -> Path:
        """The file that names the copy of the source's history, for all branches."""
        return self.path / "git"

    @property
    def git_copy(self) -> Path | None:
        """The copy of the source's history that ``git`` names; ``None`` without one."""
        try:
            name = self.git.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        return self.state_dir / "git" / name

    @property
    def upper(self) -> Path:
        """The branch's own layer, if it is on an overlay."""
        return self.branch_dir / "upper"

    @property
    def work(self) -> Path:
        """The directory beside ``upper`` that the kernel needs."""
        return self.branch_dir / "work"

    @property
    def layers(self) -> Path:
        """The file that names the layers of derived paths below ``upper``."""
        return self.branch_dir / "layers"

    def layer_names(self) -> list[str]:
        """The names of these layers, the topmost first."""
        return _names_in(self.layers)

    @property
    def frozen(self) -> Path:
        """The directory of the layers of derived paths, for all branches."""
        return self.path / "frozen"

    @property
    def index(self) -> Path:
        """The hint about the statuses of the files."""
        return self.branch_dir / "index"

    @property
    def checkpoint(self) -> Path:
        """The last checkpoint of the derived paths."""
        return self.branch_dir / "derived"

    @property
    def reserve(self) -> Path:
        """The file that reserves disk space for a rollback."""
        return self.branch_dir / "reserve"

    @property
    def discarded(self) -> Path:
        """The folder of discards that the history does not have yet."""
        return self.branch_dir / "discarded"

    @property
    def modes(self) -> Path:
        """The file with permissions narrower than the history can record, in place."""
        return self.branch_dir / "modes"

    @property
    def private(self) -> Path:
        """The file with the trees of private paths, in place."""
        return self.path / "private"

    @property
    def sandbox(self) -> Path:
        """The folder with what a recovery has to know of a container."""
        return self.branch_dir / "sandbox"

    @property
    def services(self) -> Path:
        """The file that remembers its services."""
        return self.branch_dir / "services.json"

    @property
    def runs(self) -> Path:
        """The folder of its runs: their tasks, and the turns of their models."""
        return self.branch_dir / "runs"

    @property
    def ledger(self) -> Path:
        """The git directory of the history of all branches."""
        return self.path / "ledger.git"

    @property
    def applied(self) -> Path:
        """The file with what ``apply`` knows of the source."""
        return self.path / "applied"

    @property
    def owner(self) -> Path:
        """The lock of the process that creates or removes it."""
        return self.path / "owner"

    @property
    def is_workspace(self) -> bool:
        """Whether its creation finished and its removal did not begin."""
        return os.path.lexists(self.path / "about.json")

    def info(self) -> WorkspaceInfo:
        """What ``about.json`` says; ``UsageError`` if there is no workspace here."""
        return self._read("about.json")

    def intended(self) -> WorkspaceInfo:
        """As ``info``, for a workspace in place that is being created."""
        return self._read("about.json.new")

    def _read(self, name: str) -> WorkspaceInfo:
        try:
            fields: dict[str, Any] = json.loads((self.path / name).read_bytes())
            version = fields.pop("version")
            if isinstance(version, int) and version > _VERSION:
                raise _NewerFormatError(self.path, version)
            return WorkspaceInfo(
                fields["id"],
                fields["source"],
                datetime.fromisoformat(fields["created_at"]),
                fields["mode"],
                fields["inode"],
                PathRules.of_json(fields["rules"]),
            )
        except _NewerFormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"there is no workspace in {self.path}", hint="List the existing workspaces."
            ) from error

    def write_intended(self, info: WorkspaceInfo) -> None:
        """Record what the folder will become."""
        (self.path / "about.json.new").write_text(_about(info), encoding="utf-8")

    def write_info(self, info: WorkspaceInfo) -> None:
        """Turn the folder into a workspace; it survives a loss of power."""
        with translate_os_error(self.path):
            write_whole(self.path / "about.json", _about(info).encode(), durable=True)
            sync(self.path.parent)


def collect_layers(folder: WorkspaceFolder) -> None:
    """Delete the layers of derived paths that no branch of the workspace names."""
    if not folder.frozen.is_dir():
        return
    present = list(folder.frozen.iterdir())  # before the names: a name is written first
    lists = (folder.path / "layers", *folder.path.glob("forks/*/layers"))
    named = {name for file in lists for name in _names_in(file)}
    for layer in present:
        if layer.name not in named:
            delete_tree(layer)


def _names_in(file: Path) -> list[str]:
    try:
        names = file.read_text(encoding="ascii", errors="replace").split()
    except FileNotFoundError:
        return []
    return [name for name in names if name.isalnum()]  # others are damage


def _about(info: WorkspaceInfo) -> str:
    about = {**asdict(info), "created_at": info.created_at.isoformat(), "version": _VERSION}
    return json.dumps(about, indent=2) + "\n"


class _NewerFormatError(UsageError):
    """A workspace that a newer version of the program made."""

    def __init__(self, path: Path, version: int) -> None:
        super().__init__(
            f"the workspace {path.name} has format {version}, and this program knows formats up to "
            f"{_VERSION}",
            hint="Update wink-workspace, then open it again.",
        )


class WorkspaceStorage:
    """The folder of all workspaces of a user.

    Args:
        state_dir: The state directory of the program; created when first needed.
        clock: The time, for messages to other processes.
    """

    def __init__(self, state_dir: str | os.PathLike[str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._root = Path(state_dir).absolute() / "workspaces"  # mounts need it; cwd may change
        self._clock = clock

    @classmethod
    def default(cls) -> WorkspaceStorage:
        """The storage that the command ``wink-workspace`` uses.

        It is below ``$XDG_STATE_HOME``, or ``~/.local/state``, in ``wink-workspace``.

        Raises:
            UsageError: If neither that variable nor a home directory is known.
        """
        return cls(Environment.from_os().state_dir)

    def default_mode(self) -> WorkspaceMode:
        """The mode of a new workspace whose caller does not choose one.

        Raises:
            UsageError: If the variable ``WINK_WORKSPACE_MODE`` names no such mode.
        """
        wanted = Environment.from_os().variables.get(MODE_VARIABLE, "auto")
        if wanted == "auto":
            return "overlay" if self.overlay_support().available else "copy"
        if wanted not in ("overlay", "copy"):
            raise UsageError(
                f"the variable {MODE_VARIABLE} is {wanted!r}", hint="Use auto, overlay or copy."
            )
        return wanted

    def require_overlays(self) -> None:
        """Raise ``MountError`` if workspaces here cannot be overlays."""
        support = self.overlay_support()
        if not support.available:
            raise MountError(
                f"workspaces in {self._root} cannot be overlays: {support.reason}",
                hint='Use the mode "copy", or "auto", which chooses it.',
            )

    def overlay_support(self) -> OverlaySupport:
        """Whether workspaces here can be overlays, and why."""
        from wink_workspace.filesystem.overlay.mounting import overlay_support

        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        return overlay_support(self._root)

    def all(self) -> Iterator[WorkspaceInfo]:
        """Every workspace, newest first."""
        return self._beginning_with("")

    def _beginning_with(self, which: str) -> Iterator[WorkspaceInfo]:
        """The workspaces whose ids begin with *which*, newest first; others are not read."""
        found: list[WorkspaceInfo] = []
        for path in self._root.iterdir() if self._root.is_dir() else ():
            try:
                if path.name.startswith(which):
                    found.append(WorkspaceFolder(path).info())
            except UsageError:
                continue  # its creation was interrupted
        return iter(sorted(found, key=lambda info: info.created_at, reverse=True))

    def folder(self, which: str) -> WorkspaceFolder:
        """The folder of the workspace with this id, or with the only id that begins with *which*.

        Raises:
            UsageError: If there is none, or more than one.
        """
        ids = [info.id for info in self._beginning_with(which)] if which else []
        if which in ids:
            ids = [which]
        if len(ids) != 1:
            self._refuse_damaged(which)
            known = [info.id for info in self.all()]
            found = f"{len(ids)} workspaces are" if ids else "no workspace is"
            id_, slash, _ = which.partition("/")
            if slash and id_ and any(each.startswith(id_) for each in known):
                hint = "Give the name of a fork apart from the id: branch=…."
            elif known:
                hint = f"The workspaces are: {', '.join(ids or known)}."
            else:
                hint = "Create one from a directory first: `wink-workspace new DIRECTORY`."
            raise UsageError(f"{found} called {which!r}", hint=hint)
        return self.folder_of(WorkspaceFolder(self._root / ids[0]).info())

    def folder_of(self, info: WorkspaceInfo) -> WorkspaceFolder:
        """The folder of a workspace that was listed; another process may have deleted it since."""
        in_place = Path(info.source) if info.mode == "in_place" else None
        return WorkspaceFolder(self._root / info.id, in_place=in_place)

    def _refuse_damaged(self, which: str) -> None:
        """Raise ``UsageError`` if the workspace of that id exists but its note is unreadable."""
        folder = WorkspaceFolder(self._root / (which or "claims"))
        if folder.path.parent == self._root and folder.is_workspace:
            try:
                folder.info()
            except _NewerFormatError:
                raise
            except UsageError:
                pass
            files = folder.upper if folder.base.exists() else folder.files
            raise UsageError(
                f"cannot read {folder.path / 'about.json'}, which describes this workspace",
                hint=f"Its files are in {files} unless it was in place, and its history in "
                f"{folder.ledger}. Copy what you need, then delete {folder.path}.",
            )

    def add(
        self, fill: Callable[[WorkspaceFolder], WorkspaceInfo], *, in_place: Path | None = None
    ) -> WorkspaceInfo:
        """Create a folder and let *fill* make it a workspace; if that raises, nothing is left.

        Folders that dead processes left unfinished are deleted first.

        Args:
            fill: Called with the folder.
            in_place: The user's directory, for a workspace in place.

        Raises:
            UsageError: If *in_place* equals, holds or lies in the directory of another workspace
                in place, or holds or lies in the folder of the workspaces.
            LedgerBusyError: If another process is creating one there; the message names it.
        """
        self.sweep()
        folder = WorkspaceFolder(self._root / secrets.token_hex(6))
        with ExitStack() as owned:
            try:
                with claimed(self._root):
                    if in_place is not None:
                        self._check_available(in_place)
                    folder.path.mkdir(mode=0o700)
                    owned.callback(self._lock_owner(folder).release)
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

    @property
    def state_dir(self) -> Path:
        """The state directory of the program."""
        return self._root.parent

    def sweep(self) -> int:
        """Delete folders whose creation or removal was interrupted; how many.

        Folders whose owner is alive are skipped. What cannot be deleted is logged, and stays.
        """
        dead: list[tuple[WorkspaceFolder, WriterLock]] = []
        with claimed(self._root):
            for folder in self._unfinished():
                with suppress(LedgerBusyError):
                    owner = self._lock_owner(folder)
                    if folder.is_workspace:  # its creation has just ended
                        owner.release()
                    else:
                        dead.append((folder, owner))
        n_deleted = 0
        for folder, owner in dead:
            try:
                self._delete(folder)
                n_deleted += 1
            except FilesystemError as error:
                _log.warning("cannot delete the unfinished workspace %s: %s", folder.path, error)
            finally:
                owner.release()
        self._delete_probes()
        return n_deleted

    def _delete_probes(self) -> None:
        """Delete what processes left that were killed while they looked for overlays."""
        from wink_workspace.filesystem.overlay.mounting import PROBE_PREFIX

        before = self._clock.now().timestamp() - _LONGEST_PROBE_S
        for path in self._root.glob(f"{PROBE_PREFIX}*"):
            with suppress(FileNotFoundError, FilesystemError):  # its process is just deleting it
                if path.stat().st_mtime < before:
                    delete_tree(path)

    def _unfinished(self) -> Iterator[WorkspaceFolder]:
        """The folders with an owner, alive or dead, that are not workspaces."""
        for path in self._root.iterdir():
            folder = WorkspaceFolder(path)
            try:
                is_unfinished = not folder.is_workspace and folder.owner.is_file()
            except PermissionError:  # it belongs to another user
                continue
            if is_unfinished:
                yield folder

    def _lock_owner(self, folder: WorkspaceFolder) -> WriterLock:
        return WriterLock(folder.owner, what=f"the folder {folder.path}", now=self._clock.now())

    def _delete(self, folder: WorkspaceFolder) -> None:
        """Delete a folder that the caller owns, the lock last."""
        for path in folder.path.iterdir() if folder.path.is_dir() else ():
            if path != folder.owner:
                delete_tree(path)
        with claimed(self._root):
            delete_tree(folder.path)

    def _check_available(self, directory: Path) -> None:
        self.check_outside(directory)
        if directory.is_relative_to(self._root.resolve()):
            raise UsageError(
                f"{directory} is in the folder of the workspaces, {self._root}",
                hint="Work in a directory of your own, or open the workspace that it belongs to.",
            )
        # First, since a creation that ends meanwhile is then among the workspaces
        for folder in self._unfinished():
            with suppress(UsageError):  # it is a copy, or its owner died before it recorded this
                other = Path(folder.intended().source)
                if _overlap(directory, other):
                    self._refuse_owned(folder, other)
        for info in self.all():
            if info.mode == "in_place" and _overlap(directory, Path(info.source)):
                raise UsageError(
                    f"the workspace {info.id} is in {info.source} already",
                    hint=f"Work in {info.id}, fork it, or remove it first.",
                )

    def _refuse_owned(self, folder: WorkspaceFolder, directory: Path) -> None:
        """Raise ``LedgerBusyError`` if the owner of an unfinished folder is alive."""
        WriterLock(
            folder.owner,
            what=f"{directory}, where a workspace is being created,",
            now=self._clock.now(),
            hint="Wait until it is finished, then work in that one.",
        ).abandon()

    def check_outside(self, directory: Path) -> None:
        """Raise ``UsageError`` if the folder of the workspaces is in *directory*."""
        if self._root.resolve().is_relative_to(directory.resolve()):
            raise UsageError(
                f"the folder of the workspaces, {self._root}, is in {directory}",
                hint="Name the directory of a project; or keep the workspaces elsewhere: set"
                " XDG_STATE_HOME, or give WorkspaceStorage another directory.",
            )

    def in_place(self, directory: Path) -> WorkspaceInfo | None:
        """The workspace in place whose directory is *directory*, if there is one."""
        mine = (info for info in self.all() if info.mode == "in_place")
        return next((info for info in mine if Path(info.source) == directory.resolve()), None)

    def remove(self, folder: WorkspaceFolder) -> None:
        """Delete a workspace with all it holds; the caller has it open for writing.

        The directory of a workspace in place is not touched.

        Raises:
            LedgerBusyError: If another process is removing it; the message names it.
            FilesystemError: If something cannot be deleted. It is no longer a workspace all the
                same, and ``sweep`` tries again.
        """
        with claimed(self._root):
            owner = self._lock_owner(folder)
        try:
            (folder.path / "about.json").unlink()
            self._delete(folder)
        finally:
            owner.release()


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


_TEMPORARY: Final = "wink-workspace-"
_TEMPORARY_LOCK: Final = "owner.lock"


class TemporaryStorage(WorkspaceStorage):
    """A folder for workspaces that ``delete`` or the end of the interpreter deletes.

    It is not deleted earlier, because a caller may have kept only the files and no reference to
    the workspace. A forked child leaves the deletion to its parent. A process that is killed leaves
    its folder; the next temporary storage of the same user deletes that. The owner holds a lock on
    a file of the folder, which the kernel releases with the process.
    """

    def __init__(self) -> None:
        sweep_temporary()
        self._directory = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
        unlocked = self._directory / f"{_TEMPORARY_LOCK}.new"
        self._lock = lock_file(unlocked)
        unlocked.rename(self._directory / _TEMPORARY_LOCK)  # a sweep never finds it unlocked
        self._owner = os.getpid()
        super().__init__(self._directory)
        atexit.register(self.delete)

    def delete(self) -> None:
        """Delete everything; may be called again."""
        atexit.unregister(self.delete)
        if os.getpid() != self._owner or self._lock is None:
            return
        with suppress(FilesystemError):  # the next sweep tries again
            _delete_temporary(self._directory)
        os.close(self._lock)
        self._lock = None


def sweep_temporary() -> int:
    """Delete the folders of temporary workspaces whose process was killed; how many they were."""
    n_deleted = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        lock = None
        # Another process has just deleted it, or the next sweep tries again
        with suppress(OSError, FilesystemError):
            status = folder.lstat()
            is_ours = status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode)
            if is_ours and (folder / _TEMPORARY_LOCK).exists():
                lock = lock_file(folder / _TEMPORARY_LOCK, waits=False)
            if lock is not None:
                _delete_temporary(folder)
                n_deleted += 1
        if lock is not None:
            os.close(lock)
    return n_deleted


def _delete_temporary(folder: Path) -> None:
    """Delete it, the lock last: a process that is killed here leaves a folder with a lock."""
    for path in folder.iterdir():
        if path.name != _TEMPORARY_LOCK:
            delete_tree(path)
    delete_tree(folder)


# -------------------------------------------------------------------------------- temporary forks

# Names of temporary forks: each one names the process that deletes it.
#
# A fork whose process has died is a leftover. A process id that was used again keeps a leftover
# until that process has ended, too.


_NAME: Final = re.compile(r"temporary-(\d+)-\d+")


def new_temporary_name(forks: Collection[str]) -> str:
    """A name for a fork that this process deletes, not one of *forks*."""
    names = (f"temporary-{os.getpid()}-{n}" for n in count(1))
    return next(name for name in names if name not in forks)


def is_temporary(name: str) -> bool:
    """Whether the process that the name of the fork names deletes it."""
    return _NAME.fullmatch(name) is not None


def leftover_forks(forks: Collection[str]) -> Iterator[str]:
    """Those of *forks* that a process which has ended should have deleted."""
    for name in forks:
        match = _NAME.fullmatch(name)
        if match is not None and not _is_running(int(match[1])):
            yield name


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's, or a name that is not ours
        return True
    return True


def storage_or_default(storage: WorkspaceStorage | None) -> WorkspaceStorage:
    """*storage*, or the default one for ``None``."""
    if storage is None:
        return WorkspaceStorage.default()
    if not isinstance(storage, WorkspaceStorage):  # pyright: ignore[reportUnnecessaryIsInstance] - a path is a common mistake
        raise UsageError(
            f"{storage!r} is not a storage of workspaces", hint="Use WorkspaceStorage(directory)."
        )
    return storage
