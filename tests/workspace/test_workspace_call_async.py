"""``async with workspace.call(…)``: one call of a task, beside other tasks of its loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from workspace_support import make_tree

from wink_workspace.clock import Cancellation
from wink_workspace.errors import CallCancelledError, SessionError
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.temporary(make_tree(tmp_path / "source", {"a.py": "a = 1\n"})) as opened:
        yield opened


def program(body: Callable[[], Coroutine[object, object, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):  # so that a deadlock fails the test
            await body()

    asyncio.run(bounded())


def subjects(workspace: Workspace) -> list[str]:
    return [entry.subject for entry in reversed(list(workspace.log()))][1:]


def test_a_block_that_waits_is_one_entry_and_other_tasks_run_meanwhile(
    workspace: Workspace,
) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with workspace.call("first") as call:
            call.files.write_text("one", "1")
            entered.set()
            await go_on.wait()
            call.files.write_text("two", "2")

    async def second() -> None:
        await entered.wait()
        asyncio.get_running_loop().call_soon(go_on.set)
        async with workspace.call("second") as call:
            assert call.files.exists("two"), "it ran inside the first one"
            call.files.write_text("three", "3")

    async def third() -> None:
        await entered.wait()
        await workspace.run_async(workspace.files.delete, "one", label="third")

    async def body() -> None:
        await asyncio.gather(first(), second(), third())

    program(body)
    assert subjects(workspace)[0].startswith("first")
    assert sorted(name.split(":")[0] for name in subjects(workspace)) == [
        "first",
        "second",
        "third",
    ]
    assert sorted(str(change.path) for change in workspace.changes()) == ["three", "two"]


def test_a_call_inside_the_block_of_the_same_task_is_a_savepoint(workspace: Workspace) -> None:
    async def body() -> None:
        async with workspace.call("outer") as outer:
            outer.files.write_text("kept", "x")
            with pytest.raises(ValueError):
                async with workspace.call("inner") as inner:
                    inner.files.write_text("lost", "x")
                    await asyncio.sleep(0)
                    raise ValueError
            with workspace.call("plain") as plain:
                plain.files.write_text("also kept", "x")
            workspace.run(outer.files.delete, "a.py")

    program(body)
    assert len(subjects(workspace)) == 1
    assert [str(change.path) for change in workspace.changes()] == ["a.py", "also kept", "kept"]


def test_a_cancelled_task_is_rolled_back_and_the_next_one_runs(workspace: Workspace) -> None:
    async def body() -> None:
        entered = asyncio.Event()

        async def endless() -> None:
            async with workspace.call("endless") as call:
                call.files.delete("a.py")
                entered.set()
                await asyncio.Event().wait()

        running = asyncio.create_task(endless())
        await entered.wait()
        waiting = asyncio.create_task(workspace.run_async(int, label="waits"))
        given_up = asyncio.create_task(workspace.run_async(int, label="given up"))
        await asyncio.sleep(0)
        given_up.cancel()
        running.cancel()
        for cancelled in (running, given_up):
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        assert await waiting == 0

    program(body)
    assert workspace.files.exists("a.py")
    assert [entry.outcome for entry in workspace.log()][:2] == [
        Outcome.COMMITTED, Outcome.ROLLED_BACK,
    ]  # fmt: skip
    assert [name.split(":")[0] for name in subjects(workspace)] == ["endless", "waits"]


def test_ctrl_c_in_the_block_undoes_it(workspace: Workspace) -> None:
    async def main() -> None:
        async with workspace.call("slow") as call:
            call.files.delete("a.py")
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert workspace.files.exists("a.py")
    assert workspace.head.outcome is Outcome.ROLLED_BACK
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    workspace.run(workspace.files.delete, "a.py")
    assert not workspace.files.exists("a.py")


def test_calls_of_two_workspaces_on_one_loop_may_end_in_any_order(
    workspace: Workspace, tmp_path: Path
) -> None:
    async def main(one: Workspace, other: Workspace) -> None:
        overlapping, first_ended = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with one.call("first") as call:
                await overlapping.wait()
                call.files.delete("a.py")
            first_ended.set()

        task = asyncio.create_task(first())
        await asyncio.sleep(0)
        async with other.call("second") as call:
            overlapping.set()
            await first_ended.wait()
            call.files.delete("a.py")
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        await task

    with Workspace.temporary(tmp_path / "source") as other:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main(workspace, other))
        assert workspace.head.outcome is Outcome.COMMITTED
        assert not workspace.files.exists("a.py")
        assert other.head.outcome is Outcome.ROLLED_BACK
        assert other.files.exists("a.py")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_cancellation_fails_the_block_at_its_end(workspace: Workspace) -> None:
    async def body() -> None:
        cancellation = Cancellation()
        with pytest.raises(CallCancelledError):
            async with workspace.call("unwanted", cancellation=cancellation) as call:
                call.files.delete("a.py")
                cancellation.cancel()

    program(body)
    assert workspace.files.exists("a.py")


@pytest.mark.parametrize("way", ["tasks", "threads", "run_async"])
def test_calls_of_what_the_block_starts_are_savepoints_that_take_turns(
    workspace: Workspace, way: str
) -> None:
    def append(name: str) -> None:
        before = workspace.files.read_bytes("log").decode()
        workspace.files.write_text(name, "x")
        workspace.files.write_text("log", f"{before}{name}\n")
        if name == "fails":
            raise ValueError(name)

    async def in_task(name: str) -> None:
        async with workspace.call(name):
            await asyncio.sleep(0)
            append(name)

    ways: dict[str, Callable[[str], Coroutine[object, object, None]]] = {
        "tasks": in_task,
        "threads": lambda name: asyncio.to_thread(workspace.run, append, name),
        "run_async": lambda name: workspace.run_async(append, name),
    }

    async def body() -> None:
        async with workspace.call("block") as call:
            call.files.write_text("log", "")
            names = ("one", "fails", "two")
            answers = await asyncio.gather(*map(ways[way], names), return_exceptions=True)
            assert [type(answer) for answer in answers] == [type(None), ValueError, type(None)]

    program(body)
    assert [name.split(":")[0] for name in subjects(workspace)] == ["block"]
    assert sorted(workspace.files.read_bytes("log").split()) == [b"one", b"two"]
    assert [str(change.path) for change in workspace.changes()] == ["log", "one", "two"]


def test_a_call_that_began_in_a_block_which_has_ended_is_its_own(workspace: Workspace) -> None:
    over = asyncio.Event()

    async def late() -> int:
        await over.wait()
        return await workspace.run_async(int, label="after")

    async def body() -> None:
        async with workspace.call("parent"):
            started_inside = asyncio.create_task(late())
        over.set()
        assert await started_inside == 0

    program(body)
    assert [name.split(":")[0] for name in subjects(workspace)] == ["parent", "after"]


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_savepoint_that_is_open_when_its_block_ends_is_rolled_back_with_it(
    workspace: Workspace, in_thread: bool
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def late() -> None:
        with workspace.call("late") as call:
            call.files.write_text("late", "x")
            begun.set()
            assert go_on.wait(20)

    async def late_task() -> None:
        async with workspace.call("late") as call:
            call.files.write_text("late", "x")
            begun.set()
            while not go_on.is_set():
                await asyncio.sleep(0)

    async def body() -> None:
        with pytest.raises(SessionError, match="begun inside this one has not ended"):
            async with workspace.call("block") as call:
                call.files.delete("a.py")
                started = asyncio.create_task(asyncio.to_thread(late) if in_thread else late_task())
                while not begun.is_set():
                    await asyncio.sleep(0)
        assert not workspace.files.exists("late")
        await workspace.run_async(workspace.files.write_text, "next", "x")
        go_on.set()
        with pytest.raises(SessionError, match="the call around this one has ended"):
            await started

    program(body)
    with pytest.raises(KeyboardInterrupt), workspace.call("interrupted"):
        signal.raise_signal(signal.SIGINT)
    assert workspace.files.exists("a.py")
    assert [str(change.path) for change in workspace.changes()] == ["next"]


def test_a_thread_of_the_block_can_change_state(workspace: Workspace) -> None:
    @dataclass(frozen=True)
    class Note:
        text: str

    async def body() -> None:
        async with workspace.call("block"):
            await asyncio.to_thread(workspace.session[Note].append, Note("kept"))
        with pytest.raises(ValueError):
            async with workspace.call("fails"):
                await asyncio.to_thread(workspace.session[Note].append, Note("lost"))
                raise ValueError

    program(body)
    assert workspace.session[Note].all() == (Note("kept"),)


def test_a_plain_call_of_another_task_is_refused_while_a_block_is_open(
    workspace: Workspace,
) -> None:
    """It would block the loop while it waits, and is not part of the other task's call."""

    async def body() -> None:
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def holder() -> None:
            async with workspace.call("holder"):
                entered.set()
                await go_on.wait()

        holding = asyncio.create_task(holder())
        await entered.wait()
        with pytest.raises(SessionError, match="another task of this event loop is inside a call"):
            workspace.run(workspace.files.delete, "a.py")
        with pytest.raises(SessionError, match="another task"):
            workspace.undo()
        go_on.set()
        await holding
        workspace.run(int, label="after")

    program(body)
    assert [name.split(":")[0] for name in subjects(workspace)] == ["holder", "after"]
    assert workspace.files.exists("a.py")


def test_a_workspace_works_with_one_event_loop_after_another(workspace: Workspace) -> None:
    for n in range(2):
        asyncio.run(workspace.run_async(workspace.files.write_text, f"{n}", "x", label=f"run {n}"))
    assert [name.split(":")[0] for name in subjects(workspace)] == ["run 0", "run 1"]
