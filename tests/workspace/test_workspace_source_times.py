"""The modification times of files: those of the source until a call changes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from workspace_rig import calls, doing, folder, made, reopened, storage

from wink_workspace.workspace import Workspace, WorkspaceConfig

OLD_NS = 1_500_000_000_123_456_789
FILES = {
    "a.c": b"int a;\n",
    "a.o": b"stale\n",
    "d/b.c": b"int b;\n",
    "node_modules/p/index.js": b"derived\n",
}
each_mode = pytest.mark.parametrize("mode", ["overlay", "copy"])


def aged(root: Path, *, step_ns: int = 1_000_000_000) -> None:
    """Give each file below *root* a time of its own; the order is not that of the names."""
    files = sorted((path for path in root.rglob("*") if path.is_file()), reverse=True)
    for n, path in enumerate(files):
        os.utime(path, ns=(OLD_NS, OLD_NS + n * step_ns))


def times(root: Path) -> dict[str, int]:
    return {
        os.fspath(path.relative_to(root)): path.stat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file()
    }


def shown(workspace: Workspace) -> dict[str, int]:
    return times(workspace._opened.tree.root)


def source_in(directory: Path, prepare: Callable[[Path], None] = aged) -> Path:
    source = directory / "source"
    for name, content in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    prepare(source)
    return source


@each_mode
def test_files_have_the_times_of_the_source_and_only_changed_ones_are_newer(
    tmp_path: Path, mode: str
) -> None:
    source = source_in(tmp_path)
    original = times(source)
    with made(tmp_path, mode=mode) as workspace:
        assert shown(workspace) == original
        write = doing(lambda: workspace.files.write_text("a.c", "int c;\n"))
        undone = doing(
            lambda: workspace.files.write_text("d/b.c", "x\n"), name="undone", fails=True
        )
        with calls(workspace, write, undone) as call:
            call("act")
            call("undone")
        found = shown(workspace)
        assert found["a.c"] > max(original.values())
        assert found["d/b.c"] >= original["d/b.c"]
        assert {**found, "a.c": 0, "d/b.c": 0} == {**original, "a.c": 0, "d/b.c": 0}
        workspace.fork("later")
    with reopened(tmp_path, branch="later") as fork:
        found = shown(fork)
        assert found["a.c"] > max(original.values())
        assert {**found, "a.c": 0} == {**original, "a.c": 0}


def test_sources_with_equal_contents_share_a_base_only_if_their_times_are_equal(
    tmp_path: Path,
) -> None:
    for name, step_ns in (("one", 10**9), ("same", 10**9), ("other", 2 * 10**9)):
        source = source_in(tmp_path / name, lambda root, n=step_ns: aged(root, step_ns=n))
        with Workspace.create(source, storage=storage(tmp_path), mode="overlay") as workspace:
            assert shown(workspace) == times(source)
    assert len(list((tmp_path / "state" / "bases").glob("1-*"))) == 2


def test_files_that_were_only_touched_since_have_the_new_times_over_the_same_base(
    tmp_path: Path,
) -> None:
    source = source_in(tmp_path)
    made(tmp_path, mode="overlay").close()
    for newest_ns in (OLD_NS + 10**12, OLD_NS + 2 * 10**12):
        os.utime(source / "a.o", ns=(OLD_NS, newest_ns))
        with Workspace.create(source, storage=storage(tmp_path), mode="overlay") as workspace:
            assert shown(workspace) == times(source)
            workspace.fork("f")
            which = workspace.info.id
        with Workspace.open(which, storage=storage(tmp_path), branch="f") as fork:
            assert shown(fork) == times(source)
    assert len(list((tmp_path / "state" / "bases").glob("1-*"))) == 1


def test_a_new_base_of_a_branch_keeps_the_times_of_unchanged_files(tmp_path: Path) -> None:
    original = times(source_in(tmp_path))
    with made(tmp_path, mode="overlay") as workspace, workspace.call("many") as call:
        for n in range(20):
            call.files.write_text(f"new/{n}.txt", "x\n")
    (base,) = (tmp_path / "state" / "bases").glob("1-*")
    with reopened(tmp_path, config=WorkspaceConfig(fold_above=10)) as workspace:
        assert folder(tmp_path).base.read_text().strip() != base.name
        assert {**shown(workspace), **original} == shown(workspace)
    for damaged in (tmp_path / "state" / "bases").glob("1-*"):
        (damaged / "root" / "files" / "a.c").unlink()
    assert base.exists()
    with reopened(tmp_path) as workspace:
        assert {**shown(workspace), **original} == shown(workspace)


@each_mode
def test_an_edit_that_keeps_size_and_modification_time_is_recorded(
    tmp_path: Path, mode: str
) -> None:
    source_in(tmp_path)
    with made(tmp_path, mode=mode) as workspace:
        path = workspace._opened.tree.root / "a.c"
        before = path.stat()
        path.write_bytes(b"int z;\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_bytes("a.c") == b"int z;\n"
        assert "+int z;" in workspace.diff()
