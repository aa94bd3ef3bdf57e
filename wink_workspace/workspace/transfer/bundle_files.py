"""Workspaces as files: ``export_workspace`` writes one, ``import_workspace`` makes one of it.

A bundle has the history: every entry with its files, STATE and record, the forks, and the discards
if they are asked for. It has no derived or excluded paths, so no ``.env`` and no key files. It also
has no sandboxes, no services, no recorded runs, and not what was applied to the source.

Rule 1: an export is written under a temporary name, and appears complete or not at all.
Rule 2: an imported workspace appears when its whole history has been checked; before that, its
folder is one that ``WorkspaceStorage.sweep`` deletes.
Rule 3: a bundle does not choose the source. It may come from anywhere, and ``apply`` would write
to the directory that it names.
Rule 4: a bundle does not choose the path rules, or ``sync`` would record the source's ``.env``.
They are those of a new workspace of the source, and a history that records other paths is refused.
Only a node takes them from the bundle that its own run sent.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, Literal, cast

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.errors import BundleError, SessionError, UsageError, WinkError
from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.descriptors import Parts
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    MAIN_BRANCH,
    Bundle,
    BundleLimits,
    BundleSize,
    Ledger,
    SessionStore,
    diff,
    read_bundle,
    write_bundle,
)
from wink_workspace.ledger.store.disk import sync
from wink_workspace.session import Session
from wink_workspace.workspace.branch.recorded_branch import (
    IMPORTED_BRANCH,
    forks_of,
    require_branch,
)
from wink_workspace.workspace.create.importing import open_source
from wink_workspace.workspace.create.source_survey import survey
from wink_workspace.workspace.files.checkout import check_out
from wink_workspace.workspace.place.path_rules import ImportConfig, PathRules, Unrecorded, anchored
from wink_workspace.workspace.place.storage import (
    WorkspaceFolder,
    WorkspaceInfo,
    WorkspaceMode,
    WorkspaceStorage,
)
from wink_workspace.workspace.place.workspace_config import WorkspaceConfig
from wink_workspace.workspace.workspace import Workspace

_NO_SOURCE: Final = "no-source"
_NO_NAMELESS_FILES: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
_UNFINISHED: Final = ".wink-workspace-export-"


def export_workspace(
    which: str | Workspace,
    file: str | os.PathLike[str],
    *,
    storage: WorkspaceStorage | None = None,
    branch: str | None = None,
    discards: bool = False,
    config: WorkspaceConfig | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> BundleSize:
    """Write a workspace to one file; edits that no call made are committed first.

    Args:
        which: The id, or the beginning of it; or a workspace that is open.
        file: Where; an existing file is replaced when the new one is complete.
        storage: Where workspaces are stored, ``WorkspaceStorage.default()`` when omitted; not used
            for an open workspace.
        branch: Only this branch, which is the main branch of the bundle; all of them when omitted.
        discards: Include what rollbacks, recoveries and undos discarded.
        config: The settings with which branches are opened.
        clock: The time.

    Raises:
        UsageError: If there is no such workspace, or *file* cannot be written.
        EntryMissingError: If there is no such branch.
        LedgerBusyError: If another process has one of the branches open; the message names it.
        LedgerError: If an object cannot be read.
    """
    opened = which if isinstance(which, Workspace) else None
    folder = _folder_of(which, storage)
    with Ledger(folder.ledger, clock=clock) as ledger:
        names = (MAIN_BRANCH, *forks_of(ledger)) if branch is None else (branch,)
        require_branch(ledger, names[0])
    for name in names:
        _commit_edits(folder.of_branch(name), name, opened, discards=discards, config=config)
    with Ledger(folder.ledger, clock=clock) as ledger, _replaced(Path(file)) as output:
        heads = ledger.heads((*names, IMPORTED_BRANCH), discards=discards)
        if branch is not None:
            main = ledger.heads((MAIN_BRANCH,), discards=False)
            heads[next(iter(main))] = heads.pop(next(iter(heads)))
        about = manifest_of(folder.info())
        return write_bundle(ledger.store, output, heads, about=about, at=clock.now())


def import_workspace(
    file: str | os.PathLike[str],
    *,
    storage: WorkspaceStorage | None = None,
    source: str | os.PathLike[str] | None = None,
    mode: WorkspaceMode | Literal["auto"] = "auto",
    limits: BundleLimits | None = None,
    config: WorkspaceConfig | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> WorkspaceInfo:
    """Make a new workspace of a bundle, with all of its history; open it by the id of the result.

    Args:
        file: The bundle; it need not be trusted.
        storage: Where workspaces are stored; ``WorkspaceStorage.default()`` when omitted.
        source: The directory that ``apply`` writes to. Without one, nothing can be applied.
        mode: ``overlay``, ``copy`` or ``auto``, as for ``Workspace.create``.
        limits: What the bundle may have.
        config: Its ``imported`` says which paths of the source are not recorded.
        clock: The time.

    Raises:
        BundleError: If it is damaged, newer, not allowed, or cannot be read to its end; nothing is
            left then.
        UsageError: If *file* cannot be opened, or *source* is not a directory.
        SourceTooLargeError: If *source* exceeds a limit of *config*.
        MountError: If the system does not support the overlay that was asked for, or *source*
            cannot be read.
        FilesystemError: If the workspace cannot be written; nothing is left then.
        LedgerError: If the history cannot be written; nothing is left then.
    """
    storage = storage or WorkspaceStorage.default()
    if mode == "auto":
        mode = storage.default_mode()
    if mode == "overlay":
        storage.require_overlays()
    elif mode != "copy":
        raise UsageError(f"a bundle cannot be imported {mode!r}", hint="Use auto, overlay or copy.")
    target = _checked_source(source, storage)
    with _opened(Path(file)) as opened, translate_os_error(storage.state_dir):
        return new_workspace(
            opened,
            storage,
            source=target,
            mode=mode,
            rules=_rules_of(target, (config or WorkspaceConfig()).imported),
            limits=limits or BundleLimits(),
            clock=clock,
        )


def new_workspace(
    file: BinaryIO,
    storage: WorkspaceStorage,
    *,
    source: Path | None = None,
    mode: WorkspaceMode | None = None,
    rules: PathRules | None = None,
    limits: BundleLimits,
    clock: Clock,
) -> WorkspaceInfo:
    """As ``import_workspace``, from an open file; the bundle is trusted if *rules* are omitted."""
    mode = mode or storage.default_mode()

    def fill(folder: WorkspaceFolder) -> WorkspaceInfo:
        Ledger.create(folder.ledger)
        with Ledger(folder.ledger, clock=clock) as ledger:
            try:
                bundle = read_bundle(ledger.store, file, limits=limits)
            except OSError as error:
                raise BundleError(
                    f"the bundle cannot be read: {error.strerror or error}"
                ) from error
            own_rules = _rules_in(bundle)  # also checked where they are not used
            _adopt(ledger, bundle)
            own_rules = own_rules if rules is None else _checked_rules(ledger, rules, source)
            head = ledger.branch().head
            if mode == "copy" and head is not None:
                check_out(ledger.store, head, folder, is_new=True)
        target = source or folder.path / _NO_SOURCE
        return WorkspaceInfo(folder.path.name, str(target), clock.now(), mode, rules=own_rules)

    return storage.add(fill)


def _folder_of(which: str | Workspace, storage: WorkspaceStorage | None) -> WorkspaceFolder:
    if isinstance(which, Workspace):
        return which._folder.of_branch(MAIN_BRANCH)  # noqa: SLF001 - the same package
    return (storage or WorkspaceStorage.default()).folder(which)


def _commit_edits(
    folder: WorkspaceFolder,
    name: str,
    opened: Workspace | None,
    *,
    discards: bool,
    config: WorkspaceConfig | None,
) -> None:
    """Commit the edits in the files of a branch, if it has files yet."""
    if not (folder.upper.is_dir() or folder.files.is_dir()):
        return
    with ExitStack() as closing:
        if opened is None or opened.branch_name != name:
            made = Workspace(folder.of_branch(MAIN_BRANCH), branch=name, config=config)
            opened = closing.enter_context(made)
        opened.commit_edits()
        if discards:
            opened.discarded()  # records those that the history does not have yet


def manifest_of(info: WorkspaceInfo) -> dict[str, object]:
    """What a bundle says about its workspace, beside the history."""
    return {
        "id": info.id,
        "source": info.source,
        "created_at": info.created_at.isoformat(),
        "mode": info.mode,
        "rules": asdict(info.rules),
    }


def _rules_of(source: Path | None, config: ImportConfig) -> PathRules:
    """The rules of a new workspace of *source*; without one, of an empty directory."""
    with TemporaryDirectory() as empty:
        directory = source or Path(empty)
        with open_source(directory) as tree:
            return survey(directory, tree, config).rules


def _rules_in(bundle: Bundle) -> PathRules:
    try:
        return PathRules.of_json(cast("dict[str, Any]", bundle.about["rules"]))
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise BundleError(f"the path rules of the bundle cannot be read: {error!r}") from error


def _adopt(ledger: Ledger, bundle: Bundle) -> None:
    """Make the refs, and check that the workspace can be opened with them."""
    ledger.adopt(bundle.refs, bundle.boundary)
    for name in (MAIN_BRANCH, IMPORTED_BRANCH):
        if name != MAIN_BRANCH and not ledger.has_fork(name):
            raise BundleError(f"the bundle has no branch {name!r}")
    for name in (MAIN_BRANCH, *ledger.forks()):
        head = ledger.branch(name).head
        if head is None:
            raise BundleError(f"the bundle has no branch {name!r}")
        try:
            SessionStore(ledger.store).load(Session(), head.session)
        except (SessionError, ValueError, RecursionError) as error:
            raise BundleError(
                f"the session of the branch {name} cannot be read: {error}"
            ) from error
    ledger.discarded()


def _checked_rules(ledger: Ledger, rules: PathRules, source: Path | None) -> PathRules:
    """*rules*, which hide nothing that the history records: without a source, that is content.

    Raises:
        BundleError: If the rules of *source* hide such a path.
    """
    unrecorded, found = Unrecorded(rules), set[Parts]()
    roots = [each.files for each in ledger.discarded()]
    for name in (MAIN_BRANCH, *forks_of(ledger)):
        roots += [entry.files for entry in ledger.branch(name).log()]
    for before, after in pairwise((EMPTY_TREE_ID, *roots)):
        for change in diff(ledger.store, before, after):
            if (after := change.after) is not None and (
                top := unrecorded.top(
                    change.path.parts, is_directory=after.kind is FileKind.DIRECTORY
                )
            ):
                found.add(top)
    if found and source is not None:
        raise BundleError(
            f"the bundle records {WorkspacePath(min(found))}, which a"
            f" workspace of {source} does not record",
            hint="Import it without a source, and take its changes as a patch.",
        )
    return replace(rules, content=(*rules.content, *map(anchored, sorted(found))))


def _checked_source(
    source: str | os.PathLike[str] | None, storage: WorkspaceStorage
) -> Path | None:
    if source is None:
        return None
    path = Path(source).absolute()
    if not path.is_dir():
        raise UsageError(
            f"{path} is not a directory", hint="Name the directory that `apply` shall write to."
        )
    storage.check_outside(path)
    return path


@contextmanager
def _opened(file: Path) -> Generator[BinaryIO]:
    """The file for reading; ``UsageError`` if it cannot be opened."""
    try:
        if not file.is_file():
            raise FileNotFoundError(0, "there is no such file")
        opened = file.open("rb")
    except OSError as error:
        raise _file_error("read", file, error) from error
    with opened:
        yield opened


@contextmanager
def _replaced(file: Path) -> Generator[BinaryIO]:
    """A new file that replaces *file* at the end of the block, or is deleted if it raises."""
    try:
        if file.exists() and not file.is_file():
            raise FileExistsError(0, "it is not a regular file")
        unfinished = file.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
        try:
            with _nameless(unfinished) as output:
                yield output
                output.flush()
                os.fsync(output.fileno())
                if not unfinished.exists():
                    # Without a descriptor Python calls link, which does not follow the link
                    fd = output.fileno()
                    os.link(f"/proc/self/fd/{fd}", unfinished, src_dir_fd=fd)
            passed(KillPoint.BUNDLE_WRITTEN)
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)
        sync(file.parent)
    except OSError as error:
        if isinstance(error, WinkError):
            raise
        raise _file_error("written", file, error) from error


def _nameless(unfinished: Path) -> BinaryIO:
    """A file that only its user can read, and that ends with the process unless it gets a name.

    Where the filesystem has no such files, it has the name *unfinished*.
    """
    try:
        flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
        descriptor = os.open(unfinished.parent, flags, 0o600)
    except OSError as error:
        if error.errno not in _NO_NAMELESS_FILES:
            raise
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(unfinished, flags, 0o600)
    return os.fdopen(descriptor, "wb+")


def _file_error(act: str, file: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{file} cannot be {act}: {error.strerror or error}",
        hint="Name a file in a directory that you can use, on a disk with free space.",
    )
