"""Layers of derived paths, which a branch on an overlay and its forks share.

::

    <workspace>/frozen/<name>/files/    derived paths, in their directories; nothing changes them
    <branch>/layers                     the names of the branch's layers, the topmost first
    <branch>/layers.stale               paths in them that a fork deletes when it begins

A fork needs what the history does not have, such as a ``node_modules`` that a call installed. So
the branch is unmounted, its derived paths are renamed into a new layer, and both are mounted over
it. Nothing is copied, whatever the size. What either changes later is in its own layer alone.

Rule 1: only derived paths are moved. The files of a branch still differ from the tree of its base
only where its own layer has an entry; see ``overlay_branches``.
Rule 2: the branch names a layer before the layer exists, and each path is moved by one rename. So a
crash at any step leaves each path in one of both layers, and the mount shows it.
Rule 3: a path stays in the branch's own layer if a lower layer would show it wrongly there: a
directory above it hides the lower layers, and one of them has that directory; or it was renamed.
Rule 4: layers are not folded into one another: that would copy them. A branch with ``MOST_LAYERS``
keeps later paths in its own layer, and its forks begin without them.
Rule 5: no process has the files of the branch open from the choice of the paths until it is mounted
again. Otherwise a link could take the place of a directory, and lead the rename out of the layer.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wink_workspace._kill_points import KillPoint, passed
from wink_workspace.filesystem import WorkspacePath, parse_path
from wink_workspace.filesystem.disk.descriptors import Listing
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.os_errors import translate_os_error
from wink_workspace.filesystem.overlay.mounting import FILES, MOST_LAYERS
from wink_workspace.ledger.store.disk import write_whole
from wink_workspace.workspace.place.path_rules import Unrecorded
from wink_workspace.workspace.place.storage import WorkspaceFolder

_OPAQUE: Final = ".overlay.opaque"
_REDIRECT: Final = ".overlay.redirect"


def layers_of(folder: WorkspaceFolder) -> list[Path]:
    """The layers of a branch, the topmost first; each has the directory ``files``."""
    named = (folder.frozen / name for name in folder.layer_names())
    return [layer for layer in named if (layer / FILES).is_dir()]


def notice_layers(folder: WorkspaceFolder, unrecorded: Unrecorded) -> None:
    """Let *unrecorded* have seen what is in the layers of a branch: no tracker looks there."""
    for layer in layers_of(folder):
        list(_tops(layer / FILES, unrecorded))


def give_layers(
    branch: WorkspaceFolder,
    fork: WorkspaceFolder,
    stale: Sequence[WorkspacePath],
    *,
    durable: bool,
) -> None:
    """Let a new fork name the layers of its parent, and delete what is *stale* in them."""
    names = branch.layer_names()
    if names:
        fork.branch_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(_stale(fork), "\0".join(map(str, stale)).encode(), durable=durable)
        _write(fork.layers, names, durable=durable)


def delete_stale(folder: WorkspaceFolder, files: DiskTree) -> None:
    """Delete in the files of a new fork what its parent does not have; may be repeated."""
    with suppress(FileNotFoundError):
        for name in filter(None, _stale(folder).read_text(encoding="utf-8").split("\0")):
            path = parse_path(name)
            if files.entry(path) is not None:
                files.remove(path)


def is_shared(folder: WorkspaceFolder, path: WorkspacePath) -> bool:
    """Whether the layers of a branch have a derived path."""
    return _is_shown([layer / FILES for layer in layers_of(folder)], path)


def unrecorded_names(listing: Listing, unrecorded: Unrecorded) -> list[str]:
    """The unrecorded entries in a directory of a layer, with the marks of those deleted."""
    return [
        name
        for name, status in listing.entries
        if unrecorded.hides((*listing.parts, name), is_directory=stat.S_ISDIR(status.st_mode))
        or (_is_deletion(status) and unrecorded.hides((*listing.parts, name)))
    ]


def _is_deletion(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


@dataclass(frozen=True, slots=True)
class DerivedLayer:
    """What moves from a branch's own layer into a new one that its forks share.

    Attributes:
        folder: The branch.
        tops: The paths to move, with everything below them.
        uncovered: Directories above them whose marks hide nothing, and are removed.
        stale: Paths of which the layers show another state than the branch: forks delete them.
    """

    folder: WorkspaceFolder
    tops: tuple[WorkspacePath, ...]
    uncovered: tuple[WorkspacePath, ...]
    stale: tuple[WorkspacePath, ...]

    @classmethod
    def planned(
        cls,
        folder: WorkspaceFolder,
        base: Path,
        files: DiskTree,
        unrecorded: Unrecorded,
        *,
        copied: Collection[WorkspacePath],
        can_move: bool = True,
    ) -> DerivedLayer:
        """What should move: nothing if the branch has as many layers as it can have.

        Args:
            folder: The branch.
            base: The files of its base.
            files: Its files.
            unrecorded: The rules.
            copied: Small paths, which a fork has a copy of; they move only if a layer has them.
            can_move: Whether the branch can be unmounted; otherwise nothing moves.
        """
        upper, layers = folder.upper / FILES, [layer / FILES for layer in layers_of(folder)]
        tops: list[WorkspacePath] = []
        uncovered: set[WorkspacePath] = set()
        can_move = can_move and len(layers) + 2 <= MOST_LAYERS
        own = set(_tops(upper, unrecorded))
        for path in sorted(own) if can_move else ():
            hiding = _hiding(upper, path, [*layers, base])
            is_new = not _is_deleted(upper, path) and path not in copied
            if hiding is not None and (is_new or _is_shown(layers, path)):
                tops.append(path)
                uncovered.update(hiding)
        below = {path for layer in layers for path in _tops(layer, unrecorded)}
        stale = [
            path
            for path in sorted(below.difference(tops))
            if _is_shown(layers, path)
            and (
                path in own
                or _hiding(upper, path, [*layers, base]) is None
                or files.entry(path) is None
            )
        ]
        return cls(folder, tuple(tops), tuple(sorted(uncovered)), tuple(stale))

    def fill(self, *, durable: bool) -> None:
        """Move the paths; the branch is not mounted. Those that the system keeps stay.

        Raises:
            FilesystemError: If the layer cannot be made.
        """
        folder, upper = self.folder, self.folder.upper / FILES
        name = secrets.token_hex(8)
        _write(folder.layers, [name, *folder.layer_names()], durable=durable)
        passed(KillPoint.LAYER_NAMED)
        layer = folder.frozen / name
        with translate_os_error(layer):
            folder.frozen.mkdir(mode=0o755, exist_ok=True)
            _make_like(layer, folder.upper)
            _make_like(layer / FILES, upper)
            for directory in self.uncovered:
                _remove_mark(upper / str(directory))
            for top in self.tops:
                for above in map(str, top.ancestors()):
                    if not (layer / FILES / above).is_dir():
                        _make_like(layer / FILES / above, upper / above)
            for top in self.tops:
                with suppress(OSError):  # a directory of another user, of an ordinary user's Podman
                    (upper / str(top)).rename(layer / FILES / str(top))
                    passed(KillPoint.DERIVED_FROZEN)


def _stale(folder: WorkspaceFolder) -> Path:
    return folder.layers.with_suffix(".stale")


def _write(file: Path, names: Sequence[str], *, durable: bool) -> None:
    write_whole(file, "".join(f"{name}\n" for name in names).encode(), durable=durable)


def _tops(layer: Path, unrecorded: Unrecorded) -> Iterator[WorkspacePath]:
    """The topmost derived paths in a layer, with the marks of those deleted."""
    with DiskTree(layer) as tree:
        for listing in tree.listings(unreadable=lambda _: None):
            names = unrecorded_names(listing, unrecorded)
            for name in names:
                if not unrecorded.is_excluded((*listing.parts, name)):
                    yield WorkspacePath((*listing.parts, name))
            listing.entries[:] = [entry for entry in listing.entries if entry[0] not in names]


def _hiding(upper: Path, top: WorkspacePath, lower: Sequence[Path]) -> list[WorkspacePath] | None:
    """The directories above *top* with marks that hide nothing in the layers below.

    ``None`` if one of them hides something, or *top* or one of them was renamed.
    """
    found: list[WorkspacePath] = []
    for above in (*top.ancestors(), top):
        try:
            names = os.listxattr(upper / str(above), follow_symlinks=False)
        except OSError:  # it is in a lower layer
            break
        if any(name.endswith(_REDIRECT) for name in names):
            return None
        if above != top and any(name.endswith(_OPAQUE) for name in names):
            if _is_shown(lower, above):
                return None
            found.append(above)
    return found


def _is_shown(layers: Sequence[Path], path: WorkspacePath) -> bool:
    """Whether the topmost of *layers* with a path has more than the mark that it was deleted."""
    for layer in layers:
        with suppress(FileNotFoundError, NotADirectoryError):
            return not _is_deletion((layer / str(path)).lstat())
    return False


def _is_deleted(layer: Path, path: WorkspacePath) -> bool:
    return _is_deletion((layer / str(path)).lstat())


def _remove_mark(directory: Path) -> None:
    for space in ("trusted", "user"):
        with suppress(OSError):  # it has one of both
            os.removexattr(directory, f"{space}{_OPAQUE}")


def _make_like(directory: Path, model: Path) -> None:
    """Make a directory with the owner and the permissions of another one."""
    status = model.stat()
    directory.mkdir()
    os.chown(directory, status.st_uid, status.st_gid)
    directory.chmod(stat.S_IMODE(status.st_mode))
