"""How pages notice a change: with few reads, and without missing one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from web_support import edit, make_history

from wink_workspace.errors import UsageError
from wink_workspace.web import watching
from wink_workspace.web.pages import Pages
from wink_workspace.web.watching import Watch, Watches
from wink_workspace.workspace import Workspace


@pytest.mark.behaviour(186)
def test_ten_pages_read_a_workspace_once_for_each_change_and_never_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, name = make_history(tmp_path)
    pages = Pages(storage, str)
    watches = Watches(pages.ledger, pages.live_state)
    assert watches.of(name) is watches.of(name)
    watch = watches.of(name)

    async def look_of_ten() -> set[int]:
        found: list[int] = []

        async def one() -> None:
            found.append(await watch.look())

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(one)
        return set(found)

    async def walk() -> None:
        for _ in range(3):  # within the time of one look
            assert await look_of_ten() == {1}
        assert watch.n_reads == 1
        monkeypatch.setattr(watching, "LOOK_S", 0.0)
        for _ in range(3):
            assert await look_of_ten() == {1}
        assert watch.n_reads == 2, "once more after the first difference, then never"
        for n in range(3):
            with Workspace.open(name, storage=storage) as workspace:
                edit(workspace, "n.txt", f"{n}\n", str(n))
            before = watch.version
            assert await watch.look() == before + 1
        with Workspace.open(name, storage=storage) as workspace:
            workspace.fork("a-fork")
        before = watch.version
        assert await watch.look() == before + 1
        await look_of_ten()
        n_reads = watch.n_reads
        for _ in range(5):
            await look_of_ten()
        assert watch.n_reads == n_reads

    anyio.run(walk)


@pytest.mark.behaviour(186)
def test_a_change_within_the_resolution_of_the_clock_is_found_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of the directory do not move: only the second read can find the change."""
    (tmp_path / "refs/heads").mkdir(parents=True)
    monkeypatch.setattr(watching, "LOOK_S", 0.0)
    present = ["first"]
    watch = Watch(tmp_path, lambda: present[0])

    async def walk() -> None:
        assert await watch.look() == 1
        present[0] = "second"
        assert await watch.look() == 2

    anyio.run(walk)


def test_a_deleted_workspace_is_an_error_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, name = make_history(tmp_path)
    monkeypatch.setattr(watching, "LOOK_S", 0.0)
    pages = Pages(storage, str)
    watch = Watches(pages.ledger, pages.live_state).of(name)

    async def walk() -> None:
        assert await watch.look() == 1
        Workspace.delete(name, storage=storage)
        for _ in range(3):
            with pytest.raises(UsageError):
                await watch.look()

    anyio.run(walk)


def test_the_watches_of_the_newest_hundred_workspaces_are_kept(tmp_path: Path) -> None:
    watches = Watches(lambda _: tmp_path, lambda _: None)
    first = watches.of("first")
    kept = watches.of("kept")
    for n in range(99):
        watches.of(str(n))
        assert watches.of("kept") is kept
    assert watches.of("first") is not first
