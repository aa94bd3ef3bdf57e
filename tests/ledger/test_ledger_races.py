"""Two processes at one ledger, of which one is stopped at the worst instant."""

from __future__ import annotations

from pathlib import Path

from ledger_support import NOW, assert_clean, call, contents, imported, new_ledger, reopened, tree

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.ledger import Retention


def test_a_pack_that_another_process_is_sealing_is_not_deleted(tmp_path: Path) -> None:
    """It began to write after the collection found that it was alone."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        fork = ledger.fork("other", imported(writer, {"f": b"0"}))
        assert fork.head is not None
    with reopened(tmp_path) as collector, reopened(tmp_path) as other:
        job = collector._deleting(Retention(), NOW)
        next(job)
        with other.write("other") as writer:
            files = tree(other.store, {"f": b"1", "g": b"new"})
            call(writer, files)

            def collect(point: KillPoint) -> None:
                if point is KillPoint.OPEN_PACK_LINKED:
                    for _ in job:
                        pass

            with calling(collect):
                other.store.open_packs.seal()
    with reopened(tmp_path) as ledger:
        head = ledger.branch("other").head
        assert head is not None
        assert contents(ledger.store, head.files) == {"f": b"1", "g": b"new"}
    assert_clean(tmp_path)
