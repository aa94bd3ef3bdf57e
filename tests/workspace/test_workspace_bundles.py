"""Bundles: a workspace in one file, and a workspace made of one."""

from __future__ import annotations

import errno
import io
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import pytest
from overlay_files import close_shown
from workspace_rig import assert_fsck_clean, calls, doing
from workspace_support import GIT, created, make_tree, state, tree_of, write

from wink_workspace.errors import (
    BundleError,
    EntryMissingError,
    FilesystemError,
    LedgerBusyError,
    MountError,
    UsageError,
)
from wink_workspace.ledger import BundleLimits, Ledger, read_bundle, write_bundle
from wink_workspace.workspace import (
    ImportConfig,
    Workspace,
    WorkspaceConfig,
    WorkspaceFolder,
    WorkspaceReader,
    WorkspaceStorage,
    export_workspace,
    import_workspace,
)

LARGE = 8 * 1_048_576 + 11
FILES: dict[str, str | bytes | None] = {
    "a.txt": "one\n" * 400,
    "run.sh": "#!/bin/sh\n",
    "d/link": "-> ../a.txt",
    "empty": None,
    "name\udcff.txt": "not UTF-8",
    ".gitattributes": "* text\n",
    "noise.bin": bytes((n * n * 2_654_435_761 >> 13) & 255 for n in range(40_000)),
    "large.bin": b"large\n" * (LARGE // 6),
    ".env": "SECRET=1\n",
}
AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with a workspace that has a fork, an undo and a discard, and its bundle."""
    directory = tmp_path_factory.mktemp("exported")
    with created(directory, FILES) as workspace:
        write(workspace, **{"a.txt": "two\n" * 400, "b.txt": "b"})
        workspace.fork("try-2")
        with calls(workspace, doing(lambda: discard(workspace), name="fail", fails=True)) as call:
            call("fail")
            call("planning_setup_plan", objective="Export", initial_steps=["one"])
        write(workspace, **{"c.txt": "c"})
        workspace.undo()
        with Workspace.open(workspace.info.id, storage=state(directory), branch="try-2") as fork:
            write(fork, **{"fork.txt": "f"})
        workspace.files.write_bytes("edited.txt", b"by a person")
    export_workspace(
        workspace.info.id, directory / "w.bundle", storage=state(directory), discards=True
    )
    yield directory
    close_shown()


def discard(workspace: Workspace) -> None:
    (workspace.files_path / "lost.txt").write_text("kept as a discard")


def original(directory: Path, branch: str = "main") -> WorkspaceReader:
    (info,) = state(directory).all()
    return WorkspaceReader(state(directory).folder(info.id), branch=branch)


def described(reader: WorkspaceReader) -> list[tuple[object, ...]]:
    return [(e.id, e.number, e.kind, e.subject, e.files, e.session) for e in reader.log()]


@pytest.mark.behaviour(153)
@pytest.mark.parametrize("mode", ["copy", "auto"])
def test_an_imported_workspace_has_the_history_forks_discards_and_files(
    exported: Path, tmp_path: Path, mode: str
) -> None:
    info = import_workspace(exported / "w.bundle", storage=WorkspaceStorage(tmp_path), mode=mode)
    folder = WorkspaceStorage(tmp_path).folder(info.id)
    for branch in ("main", "try-2"):
        with original(exported, branch) as before, WorkspaceReader(folder, branch=branch) as after:
            assert described(after) == described(before)
            assert after.forks() == ("try-2",)
            assert [d.id for d in after.discarded()] == [d.id for d in before.discarded()] != []
    assert_fsck_clean(folder.ledger)
    with Workspace.open(info.id, storage=WorkspaceStorage(tmp_path)) as workspace:
        source = tree_of(exported / "source")
        found = tree_of(workspace.files_path)
        unchanged = [n for n in FILES if n not in ("a.txt", ".env")]
        assert {n: found[n] for n in unchanged} == {n: source[n] for n in unchanged}
        assert workspace.files.read_text("edited.txt").text == "by a person"
        assert not workspace.files.exists(".env")
        assert "Export" in workspace.session.dump_state()
        workspace.redo()
        assert workspace.files.exists("c.txt")
        workspace.restore_discarded(1)
        assert workspace.files.read_text("lost.txt").text == "kept as a discard"
        workspace.undo()
        workspace.restore(1)
        assert workspace.files.read_bytes("a.txt") == b"one\n" * 400
    close_shown()


@pytest.mark.behaviour(153)
def test_plain_git_clones_a_bundle_and_finds_no_fault(exported: Path, tmp_path: Path) -> None:
    subprocess.run(
        ["git", "clone", "-q", "--bare", exported / "w.bundle", tmp_path / "clone"],
        env=GIT,
        check=True,
    )
    clone = ["git", "-C", tmp_path / "clone"]
    subprocess.run([*clone, "fsck", "--strict"], env=GIT, check=True)
    log = subprocess.run(
        [*clone, "log", "--format=%H"], env=GIT, check=True, capture_output=True, text=True
    )
    with original(exported) as reader:
        assert log.stdout.split() == [entry.id for entry in reader.log()]


def test_one_branch_alone_becomes_the_main_branch(exported: Path, tmp_path: Path) -> None:
    (info,) = state(exported).all()
    export_workspace(info.id, tmp_path / "f", storage=state(exported), branch="try-2")
    imported = import_workspace(tmp_path / "f", storage=WorkspaceStorage(tmp_path / "s"))
    with WorkspaceReader(WorkspaceStorage(tmp_path / "s").folder(imported.id)) as after:
        with original(exported, "try-2") as before:
            assert described(after) == described(before)
        assert after.forks() == ()
        assert after.discarded() == ()


def test_a_history_that_retention_shortened_is_imported_from_its_oldest_entry(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": "0"}) as workspace:
        write(workspace, **{f"{n}.txt": str(n) for n in range(4)})
        oldest = next(e for e in workspace.log() if e.number == 3)
    folder = state(tmp_path).folder(workspace.info.id)
    with Ledger(folder.ledger) as ledger:
        ledger.store.repository.set_boundary([oldest.id])
    export_workspace(workspace.info.id, tmp_path / "w", storage=state(tmp_path))
    storage = WorkspaceStorage(tmp_path / "other")
    info = import_workspace(tmp_path / "w", storage=storage)
    with Workspace.open(info.id, storage=storage) as imported:
        assert [entry.number for entry in imported.log()] == [5, 4, 3]
        imported.undo()
        assert not imported.files.exists("3.txt")


def test_the_source_is_chosen_by_the_one_who_imports(exported: Path, tmp_path: Path) -> None:
    storage = WorkspaceStorage(tmp_path / "s")
    without = import_workspace(exported / "w.bundle", storage=storage)
    assert not Path(without.source).exists()
    with Workspace.open(without.id, storage=storage) as workspace:
        with pytest.raises((UsageError, MountError), match="no-source"):
            workspace.apply()
    target = tmp_path / "target"
    subprocess.run(["cp", "-a", exported / "source", target], check=True)
    info = import_workspace(exported / "w.bundle", storage=storage, source=target)
    with Workspace.open(info.id, storage=storage) as workspace:
        workspace.apply()
    assert (target / "b.txt").read_text() == "b"
    assert (target / ".env").exists()
    assert not (exported / "source" / "b.txt").exists()


@pytest.mark.parametrize("mode", ["copy", "auto"])
def test_a_bundle_does_not_choose_which_paths_of_the_source_are_recorded(
    tmp_path: Path, mode: Literal["copy", "auto"]
) -> None:
    all_recorded = WorkspaceConfig(imported=ImportConfig(propose_derived=False))
    with created(tmp_path, {"a.txt": "1"}, config=all_recorded) as workspace:
        write(workspace, **{"b.txt": "2"})
        export_workspace(workspace, tmp_path / "f")
    mine = make_tree(tmp_path / "mine", {"a.txt": "1", ".env": "MINE", "node_modules/x": "x"})
    storage = WorkspaceStorage(tmp_path / "s")
    info = import_workspace(tmp_path / "f", storage=storage, source=mine, mode=mode)
    with Workspace.open(info.id, storage=storage) as workspace:
        (mine / "a.txt").write_text("3")
        workspace.sync()
        assert workspace.files.read_text("a.txt").text == "3"
        assert not workspace.files.exists(".env")
        workspace.apply()
    assert tree_of(mine).keys() == {"a.txt", "b.txt", ".env", "node_modules", "node_modules/x"}
    assert (mine / ".env").read_text() == "MINE"


def test_a_bundle_that_records_what_the_source_does_not_is_imported_only_without_it(
    tmp_path: Path,
) -> None:
    all_recorded = WorkspaceConfig(imported=ImportConfig(propose_derived=False))
    files = {"a.txt": "1", "d/.env": "THEIRS"}
    with created(tmp_path, files, config=all_recorded) as workspace:
        write(workspace, **{"a.txt": "2"})
        export_workspace(workspace, tmp_path / "f")
    mine = make_tree(tmp_path / "mine", {"a.txt": "1"})
    storage = WorkspaceStorage(tmp_path / "s")
    with pytest.raises(BundleError, match=r"records d/\.env, which a workspace of .*mine does not"):
        import_workspace(tmp_path / "f", storage=storage, source=mine)
    assert list(storage.all()) == []
    info = import_workspace(tmp_path / "f", storage=storage)
    with Workspace.open(info.id, storage=storage) as workspace:
        assert workspace.commit_edits() is None
        with workspace.call("edit") as call:
            call.files.write_text("d/.env", "changed")
        workspace.undo()
        assert workspace.files.read_text("d/.env").text == "THEIRS"


def test_an_open_workspace_is_exported_with_its_newest_edits(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a"}) as workspace:
        workspace.files.write_bytes("b.txt", b"edit")
        with pytest.raises(LedgerBusyError):
            export_workspace(workspace.info.id, tmp_path / "w", storage=state(tmp_path))
        assert not (tmp_path / "w").exists()
        export_workspace(workspace, tmp_path / "w")
    info = import_workspace(tmp_path / "w", storage=WorkspaceStorage(tmp_path / "other"))
    with Workspace.open(info.id, storage=WorkspaceStorage(tmp_path / "other")) as imported:
        assert imported.files.read_text("b.txt").text == "edit"


# What is refused


def refused(data: bytes, tmp_path: Path, **limits: int) -> BundleError:
    """The error of an import, after which nothing is left."""
    (tmp_path / "bad").write_bytes(data)
    storage = WorkspaceStorage(tmp_path / "s")
    with pytest.raises(BundleError) as caught:
        import_workspace(
            tmp_path / "bad", storage=storage, limits=BundleLimits(**limits), mode="copy"
        )
    assert list(storage.all()) == []
    assert [path.name for path in (tmp_path / "s" / "workspaces").iterdir()] == ["claims"]
    return caught.value


@pytest.mark.behaviour(154)
def test_a_bundle_with_any_byte_changed_or_cut_off_is_refused(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": "a\n" * 200}) as workspace:
        write(workspace, **{"a.txt": "a\n" * 199 + "b\n"})
    export_workspace(workspace.info.id, tmp_path / "w", storage=state(tmp_path))
    data = (tmp_path / "w").read_bytes()
    for at in (*range(0, 700, 13), *range(700, len(data), 97), len(data) - 1):
        refused(data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :], tmp_path)
    for end in (0, 5, 16, 200, len(data) // 2, len(data) - 1):
        refused(data[:end], tmp_path)
    refused(data + b"more", tmp_path)


@pytest.mark.behaviour(154)
def test_a_newer_format_is_named_and_another_git_bundle_is_not_imported(
    exported: Path, tmp_path: Path
) -> None:
    data = (exported / "w.bundle").read_bytes()
    newer = refused(data.replace(b"refs/wink/bundle/1\n", b"refs/wink/bundle/7\n"), tmp_path)
    assert "format 7" in str(newer)
    assert "Update" in newer.hint
    foreign = refused(b"# v2 git bundle\n" + b"0" * 40 + b" refs/heads/main\n\nPACK", tmp_path)
    assert "not one of a workspace" in str(foreign)
    assert "not a bundle" in str(refused(b"\x7fELF", tmp_path))


@pytest.mark.behaviour(154)
@pytest.mark.parametrize(
    "limits",
    [{"most_objects": 20}, {"most_bytes": 10_000}, {"most_files": 4}, {"most_entry_bytes": 999}],
)
def test_a_bundle_above_a_limit_is_refused(
    exported: Path, tmp_path: Path, limits: dict[str, int]
) -> None:
    error = refused((exported / "w.bundle").read_bytes(), tmp_path, **limits)
    assert "trust" in error.hint


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"file": "missing"}, "there is no such file"),
        ({"source": "missing"}, "is not a directory"),
        ({"mode": "in_place"}, "cannot be imported"),
    ],
)
def test_an_import_with_a_wrong_argument_leaves_nothing(
    exported: Path, tmp_path: Path, options: dict[str, str], error: str
) -> None:
    storage = WorkspaceStorage(tmp_path / "s")
    given = {"file": exported / "w.bundle", **options}
    with pytest.raises(UsageError, match=error):
        import_workspace(**given, storage=storage)  # pyright: ignore[reportArgumentType]
    assert list(storage.all()) == []


def test_a_full_disk_at_an_import_is_not_reported_as_an_unreadable_bundle(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(WorkspaceFolder, "write_info", fail)
    with pytest.raises(FilesystemError, match="No space left on device") as caught:
        import_workspace(exported / "w.bundle", storage=WorkspaceStorage(tmp_path), mode="copy")
    assert "w.bundle" not in str(caught.value)
    assert "Make room on the disk" in caught.value.hint
    assert list(WorkspaceStorage(tmp_path).all()) == []


def test_a_bundle_that_cannot_be_read_to_its_end_is_refused(tmp_path: Path) -> None:
    unreadable = Path("/proc/self/mem")  # it can be opened, but has no first byte
    with pytest.raises(BundleError, match="the bundle cannot be read: Input/output error"):
        import_workspace(unreadable, storage=WorkspaceStorage(tmp_path), mode="copy")
    assert list(WorkspaceStorage(tmp_path).all()) == []


def test_an_export_that_cannot_be_written_leaves_no_file(exported: Path, tmp_path: Path) -> None:
    (info,) = state(exported).all()
    (tmp_path / "directory").mkdir()
    for name in ("directory", "missing/w"):
        with pytest.raises(UsageError, match="cannot be written"):
            export_workspace(info.id, tmp_path / name, storage=state(exported))
    with pytest.raises(EntryMissingError, match="there is no fork 'none'"):
        export_workspace(info.id, tmp_path / "w", storage=state(exported), branch="none")
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


# Thin bundles


def test_a_thin_bundle_has_only_what_the_receiver_lacks(tmp_path: Path) -> None:
    many = {f"d{n % 20}/{n}.txt": f"{n}\n" * 50 for n in range(1_000)}
    with created(tmp_path, many) as workspace:
        first = workspace.head.id
    folder = state(tmp_path).folder(workspace.info.id)
    Ledger.create(tmp_path / "node.git")
    with Ledger(folder.ledger) as ledger, Ledger(tmp_path / "node.git") as node:
        whole, thin = io.BytesIO(), io.BytesIO()
        write_bundle(ledger.store, whole, {"refs/heads/main": first}, about={}, at=AT)
        whole.seek(0)
        found = read_bundle(node.store, whole, limits=BundleLimits())
        node.store.repository.set_boundary(found.boundary)
    with Workspace.open(workspace.info.id, storage=state(tmp_path)) as workspace:
        write(workspace, **{"d3/3.txt": "changed\n" * 50, "new.txt": "n"})
        head = workspace.head
    with Ledger(folder.ledger) as ledger, Ledger(tmp_path / "node.git") as node:
        size = write_bundle(
            ledger.store, thin, {"refs/heads/main": head.id}, about={"n": 1}, at=AT, since=[first]
        )
        assert size.n_commits == 2
        assert thin.tell() < 8_192
        thin.seek(0)
        found = read_bundle(node.store, thin, limits=BundleLimits(), since=[first])
        assert found.refs == {"refs/heads/main": head.id}
        assert found.about == {"n": 1}
        node.adopt(found.refs, found.boundary)
        assert node.branch().head == head
    assert_fsck_clean(tmp_path / "node.git")
    Ledger.create(tmp_path / "empty.git")
    with Ledger(tmp_path / "empty.git") as empty:
        thin.seek(0)
        with pytest.raises(
            BundleError, match=r"continues a history that is not here|cannot be read"
        ):
            read_bundle(empty.store, thin, limits=BundleLimits(), since=[])
