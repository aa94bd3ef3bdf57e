"""What the table of mounts says about a directory; see proc(5) for its format.

Some filesystems are known to keep two rules for times: this machine sets them, and each change of a
name changes the times of its directory, too. Others may not: times of a network filesystem are
those of a server, whose clock may be late, and FAT and filesystems in buckets have directories
whose times stay. A filesystem that is not known is treated as one of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["keeps_times", "prefix_of_points_below", "read_mounts"]

_KEEP_TIMES: Final = frozenset(
    (
        *("bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2"),
        *("overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "ubifs", "xfs", "zfs"),
    )
)


def read_mounts() -> str:
    """The lines of the table.

    Raises:
        OSError: If it cannot be read.
    """
    return Path("/proc/self/mountinfo").read_text(errors="replace")


def prefix_of_points_below(root: Path) -> str:
    """What the mount points below *root*, which has no links, begin with in the table."""
    escaped = "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in str(root))
    return escaped.rstrip("/") + "/"


def keeps_times(directory: int) -> bool:
    """Whether all filesystems at and below an open directory are known to keep the rules above.

    A mount that is not in the table is a detached one: an overlay of ours, on a filesystem that
    keeps them.
    """
    try:
        about = Path(f"/proc/self/fdinfo/{directory}").read_text()
        below = prefix_of_points_below(Path(f"/proc/self/fd/{directory}").readlink())
        mounts = read_mounts()
    except OSError:
        return False
    mount_id = about.partition("mnt_id:")[2].split(maxsplit=1)[:1]
    kinds: list[str] = []
    for mount in mounts.splitlines():
        fields, _, kind = mount.partition(" - ")
        at = fields.split()
        if at[:1] == mount_id or at[4].startswith(below):
            kinds.append(kind.split(maxsplit=1)[0])
    return _KEEP_TIMES.issuperset(kinds)
