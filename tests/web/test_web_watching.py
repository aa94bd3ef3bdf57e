"""How pages notice a change: with few reads, and without missing one."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from starlette.testclient import TestClient
from web_support import edit, make_history

from wink_workspace.errors import UsageError
from wink_workspace.web import watching
from wink_workspace.web.application import make_app
from wink_workspace.web.pages import Pages, TimelinePage
from wink_workspace.web.watching import Watch, Watches
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage


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


def changes_after(storage: WorkspaceStorage, name: str, place: str, **headers: str) -> list[str]:
    """The events that a stream begins with, before any wait."""
    app, stop = make_app(Pages(storage, str))
    stop()  # the stream ends at its first wait
    text = TestClient(app).get(f"/w/{name}/events{place}", headers=headers).text
    return re.findall(r"^id: (\w+)\nevent: changed$", text, re.MULTILINE)


@pytest.mark.behaviour(203)
def test_what_was_committed_before_a_page_listened_or_while_it_did_not_is_reported(
    tmp_path: Path,
) -> None:
    """A page names the state that it shows; after a break the browser names the last event."""
    storage, name = make_history(tmp_path)
    page = TestClient(make_app(Pages(storage, str))[0]).get(f"/w/{name}").text
    shown = re.findall(r"/events(\?known=\w+)", page)[0]
    assert changes_after(storage, name, shown) == []
    with Workspace.open(name, storage=storage) as workspace:
        edit(workspace, "n.txt", "1\n", "before the page listens")
    (first,) = changes_after(storage, name, shown)
    assert changes_after(storage, name, shown, **{"last-event-id": first}) == []
    with Workspace.open(name, storage=storage) as workspace:
        edit(workspace, "n.txt", "2\n", "while the server was restarted")
    (second,) = changes_after(storage, name, shown, **{"last-event-id": first})
    assert second != first
    assert changes_after(storage, name, "") == []


@pytest.mark.behaviour(186)
def test_pages_that_ask_for_the_rows_of_one_state_share_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, name = make_history(tmp_path)
    client = TestClient(make_app(Pages(storage, str))[0])
    n_rendered: list[str] = []
    real = Pages.timeline

    def counted(pages: Pages, reader: WorkspaceReader, **options: str) -> TimelinePage:
        n_rendered.append(reader.info.id)
        return real(pages, reader, **options)

    monkeypatch.setattr(Pages, "timeline", counted)
    for state in ("0" * 32, "1" * 32):
        answers = {client.get(f"/w/{name}/rows?q=&state={state}").text for _ in range(10)}
        assert len(answers) == 1
    assert len(n_rendered) == 2
    client.get(f"/w/{name}/rows?q=other&state={'1' * 32}")
    client.get(f"/w/{name}/rows?q=")
    client.get(f"/w/{name}/rows?q=&state=../x")
    assert len(n_rendered) == 5
    for n in range(20):
        client.get(f"/w/{name}/rows?q=&state={n:032x}")
    client.get(f"/w/{name}/rows?q=&state={'0' * 32}")
    assert len(n_rendered) == 5 + 20 + 1 - 1, "only the newest answers are kept"
