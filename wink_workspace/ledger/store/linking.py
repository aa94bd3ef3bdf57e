"""Share the object files of one repository with another one on the same filesystem.

Rule 1: a file with objects never changes, so two repositories may have hard links of one file.
Either may delete its own. Between two filesystems the file is copied.
Rule 2: a shared pack is marked by a ``.keep`` file, as git marks packs that it must not repack, and
a shared loose object by its second link. They do not count towards the budget of the ledger: their
disk space belongs to the base, and deleting history cannot free it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from wink_workspace._kill_points import KillPoint, passed

from .disk import ledger_failures, link_or_copy, sync
from .packs import KEEP

__all__ = ["link_objects"]


def link_objects(source: Path, target: Path, *, durable: bool = False) -> None:
    """Give the git directory *target* every object of the git directory *source*.

    It may be repeated. A crash in the middle leaves objects that no pack index names yet.

    Raises:
        LedgerError: If a file cannot be linked or copied.
    """
    objects = target / "objects"
    with ledger_failures(f"the objects of {source} cannot be shared"):
        touched: set[Path] = set()
        for path in _files_in(source / "objects"):
            linked = objects / path.relative_to(source / "objects")
            linked.parent.mkdir(exist_ok=True)
            if path.suffix == ".idx":
                linked.with_suffix(KEEP).touch()
            link_or_copy(path, linked, prefix="tmp_obj_")
            touched.add(linked.parent)
            passed(KillPoint.OBJECTS_LINKED)
        if durable:
            for directory in touched:
                sync(directory)


def _files_in(objects: Path) -> Iterator[Path]:
    """Every file with objects; a pack before its index."""
    for directory in sorted(each for each in objects.iterdir() if len(each.name) == 2):
        yield from sorted(directory.iterdir())
    yield from (objects / "pack").glob("*.pack")
    yield from (objects / "pack").glob("*.idx")
