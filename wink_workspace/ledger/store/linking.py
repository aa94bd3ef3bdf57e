"""Share the object files of one repository with another one on the same filesystem.

Rule 1: a file with objects never changes, so two repositories may have hard links of one file.
Either may delete its own. Between two filesystems the file is copied.
Rule 2: a shared pack is marked by a ``.keep`` file, as git marks packs that it must not repack. It
does not count towards the budget of the ledger: its disk space belongs to the base, and deleting
history cannot free it. So is a pack of the import in a ledger without a base: its objects are
reachable as long as the ledger exists.
"""

from __future__ import annotations

from pathlib import Path

from wink_workspace._kill_points import KillPoint, passed

from .disk import ledger_failures, link_or_copy, sync
from .packs import KEEP, TEMPORARY


def link_objects(source: Path, target: Path, *, durable: bool = False) -> None:
    """Give the git directory *target* every object of the git directory *source*.

    It may be repeated. A crash in the middle leaves objects that no pack index names yet.

    Raises:
        LedgerError: If a file cannot be linked or copied.
    """
    packs, ours = (each / "objects" / "pack" for each in (source, target))
    with ledger_failures(f"the objects of {source} cannot be shared"):
        for path in [*packs.glob("*.pack"), *packs.glob("*.idx")]:  # a pack before its index
            linked = ours / path.name
            if path.suffix == ".idx":
                linked.with_suffix(KEEP).touch()
            link_or_copy(path, linked, prefix=TEMPORARY)
            passed(KillPoint.OBJECTS_LINKED)
        if durable:
            sync(ours)
