"""Work at another machine: a base that travels once, thin starts, and thin results."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from overlay_files import close_shown
from workspace_rig import assert_fsck_clean, calls
from workspace_support import created, state, write

from wink_workspace.errors import BundleError, UsageError
from wink_workspace.ledger import BundleLimits, Ledger
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.transfer.node_cache import (
    NodeCache,
    pack_base,
    pack_result,
    pack_start,
    receive_result,
)

MANY: dict[str, str | bytes | None] = {
    f"d{n % 20}/sub{n % 7}/{n}.txt": f"line {n}\n" * 40 for n in range(1_000)
}


def base_of(workspace: Workspace) -> io.BytesIO:
    file = io.BytesIO()
    pack_base(workspace, file)
    file.seek(0)
    return file


def attempt(node: NodeCache, workspace: Workspace, text: str) -> tuple[int, bytes]:
    """Write one file in a fork at the node; the bytes that travelled, and the result."""
    start = pack_start(workspace)
    with node.start(workspace.head.files, start) as (fork, entry):
        with fork.call("edit"):
            fork.files.write_bytes("d3/sub3/3.txt", text.encode())
        fork.files.write_bytes("more.txt", b"an edit that no call made")
        result = pack_result(fork, entry, about={"score": 7})
    return len(start) + len(result), result


@pytest.mark.behaviour(156)
def test_a_second_fork_of_the_same_files_sends_less_than_20_kib(tmp_path: Path) -> None:
    node = NodeCache(tmp_path / "node")
    with created(tmp_path, MANY) as workspace:
        with calls(workspace) as call:
            call("planning_setup_plan", objective="Try", initial_steps=["one"])
        base = base_of(workspace)
        start = workspace.head
        node.add(start.files, base)
        assert node.has(start.files)
        assert base.tell() > 40_000
        found = []
        for text in ("first\n", "second\n"):
            n_bytes, result = attempt(node, workspace, text)
            assert n_bytes < 20 * 1_024
            head, about = receive_result(workspace._ledger, result, start)
            workspace._ledger.fork(text.strip(), head)
            found.append((head.number - start.number, about))
        assert found == [(2, {"score": 7})] * 2
    folder = state(tmp_path).folder(workspace.info.id)
    assert_fsck_clean(folder.ledger)
    for name in ("first", "second"):
        with Workspace.open(workspace.info.id, storage=state(tmp_path), branch=name) as fork:
            assert fork.files.read_bytes("d3/sub3/3.txt") == f"{name}\n".encode()
            assert fork.files.read_bytes("more.txt") == b"an edit that no call made"
            assert "Try" in fork.session.dump_state()
            fork.undo()
            assert fork.files.read_bytes("d3/sub3/3.txt") == b"line 3\n" * 40
    (info,) = node.storage.all()
    with Workspace.open(info.id, storage=node.storage) as kept:
        assert kept.forks() == ()
    close_shown()


def test_a_later_entry_with_the_same_files_needs_no_other_base(tmp_path: Path) -> None:
    node = NodeCache(tmp_path / "node")
    with created(tmp_path, {"a.txt": "a"}) as workspace:
        node.add(workspace.head.files, base_of(workspace))
        with calls(workspace) as call:
            call("planning_setup_plan", objective="Later", initial_steps=["one"])
        with node.start(workspace.head.files, pack_start(workspace)) as (fork, entry):
            assert entry.id == workspace.head.id
            assert "Later" in fork.session.dump_state()
            assert fork.files.read_bytes("a.txt") == b"a"


@pytest.mark.behaviour(157)
def test_bases_that_were_used_least_recently_are_deleted_above_the_budget(tmp_path: Path) -> None:
    node = NodeCache(tmp_path / "node", budget_bytes=1)
    with created(tmp_path, {"a.txt": "a"}) as workspace:
        one = workspace.head.files
        first, start = base_of(workspace), pack_start(workspace)
        node.add(one, first)
        write(workspace, **{"b.txt": "b"})
        two = workspace.head.files
        with node.start(one, start) as (fork, _):  # a base in use stays
            node.add(two, base_of(workspace))
            assert (node.has(one), node.has(two)) == (True, True)
            assert fork.files.read_bytes("a.txt") == b"a"
        write(workspace, **{"c.txt": "c"})
        node.add(workspace.head.files, base_of(workspace))
        assert [node.has(each) for each in (one, two, workspace.head.files)] == [False, False, True]
        with pytest.raises(UsageError, match="has no base"):
            with node.start(one, start):
                pass
    close_shown()


def test_a_base_that_another_process_deletes_during_a_collection_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, node = NodeCache(tmp_path / "node"), NodeCache(tmp_path / "node", budget_bytes=1)
    with created(tmp_path, {"a.txt": "a"}) as workspace:
        trees: list[str] = []
        for name in ("one", "two", "three"):
            write(workspace, **{name: name})
            trees.append(workspace.head.files)
            large.add(trees[-1], base_of(workspace))
        real = NodeCache._size_bytes

        def size_of_deleted(cache: NodeCache, files: str) -> int:
            n_bytes = real(cache, files)
            if cache is node and files == trees[0]:
                assert large._delete(large._path(files))
            return n_bytes

        # While the collection looks at one base after the other
        monkeypatch.setattr(NodeCache, "_size_bytes", size_of_deleted)
        node.add(trees[-1], base_of(workspace))
        assert [node.has(each) for each in trees] == [False, False, True]
    close_shown()


def test_what_belongs_to_another_history_is_refused(tmp_path: Path) -> None:
    node = NodeCache(tmp_path / "node")
    with created(tmp_path / "1", {"a.txt": "a"}) as one, created(tmp_path / "2", {"b": "b"}) as two:
        with pytest.raises(BundleError, match="does not have the files"):
            node.add(one.head.files, base_of(two))
        assert list(node.storage.all()) == []
        node.add(one.head.files, base_of(one))
        with pytest.raises(BundleError):
            with node.start(one.head.files, pack_start(two)):
                pass
        _, result = attempt_small(node, one)
        with pytest.raises(BundleError):
            receive_result(two._ledger, result, two.head)
        write(one, **{"later.txt": "l"})
        with pytest.raises(BundleError, match="does not follow"):
            receive_result(one._ledger, result, one.head)
    close_shown()


def attempt_small(node: NodeCache, workspace: Workspace) -> tuple[int, bytes]:
    with node.start(workspace.head.files, pack_start(workspace)) as (fork, entry):
        write(fork, **{"x.txt": "x"})
        result = pack_result(fork, entry)
    return len(result), result


def test_two_forks_are_open_at_once_and_the_fork_of_a_dead_process_is_deleted(
    tmp_path: Path,
) -> None:
    node = NodeCache(tmp_path / "node")
    with created(tmp_path, {"a.txt": "a"}) as workspace:
        files, start = workspace.head.files, pack_start(workspace)
        node.add(files, base_of(workspace))
        (info,) = node.storage.all()
        with Ledger(node.storage.folder(info.id).ledger) as ledger:
            node._adopt(ledger, files, "work-dead", start, b"", BundleLimits())
        with (
            node.start(files, start) as (one, _),
            NodeCache(tmp_path / "node").start(files, start) as (other, _),
        ):
            with one.call("edit"):
                one.files.write_bytes("a.txt", b"one")
            assert other.files.read_bytes("a.txt") == b"a"
            assert len(other.forks()) == 2
        with Workspace.open(info.id, storage=node.storage) as base:
            assert base.forks() == ()
    close_shown()
