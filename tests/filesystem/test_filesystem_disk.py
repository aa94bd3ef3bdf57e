"""What ``DiskFilesystem`` does beyond the contract of filesystems."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_fixtures import deep_tree, later, path_of

from wink_workspace.errors import FilesystemError, LinkError, UsageError
from wink_workspace.filesystem import (
    DiskFilesystem,
    DiskTree,
    FileChange,
    FileKind,
    FileState,
    MemoryFilesystem,
    render_diff,
)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DiskFilesystem]:
    with DiskFilesystem(tmp_path, clock=later()) as opened:
        yield opened


# Entries made by other programs


def test_changes_by_other_programs_are_seen_at_once(files: DiskFilesystem, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("theirs")
    assert files.read_text("d/f").text == "theirs"
    files.write_text("d/f", "ours")
    assert (tmp_path / "d" / "f").read_text() == "ours"
    (tmp_path / "d" / "f").unlink()
    assert not files.exists("d/f")


@pytest.mark.behaviour(43)
@pytest.mark.behaviour(44)
def test_pipe_is_listed_deleted_and_replaced_but_not_read(
    files: DiskFilesystem, tmp_path: Path
) -> None:
    for name in ("pipe", "other"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "text").write_text("found\n")
    assert [(entry.path.name, entry.kind) for entry in files.list()] == [
        ("other", FileKind.FILE),
        ("pipe", FileKind.FILE),
        ("text", FileKind.FILE),
    ]
    with pytest.raises(FilesystemError, match="is a pipe"):
        files.read_bytes("pipe")
    found = files.grep("found")
    assert ([match.path.name for match in found.matches], found.n_unreadable) == (["text"], 2)
    files.delete("pipe")
    files.write_text("other", "a file")
    assert [entry.path.name for entry in files.list()] == ["other", "text"]


@pytest.mark.behaviour(42)
def test_links_made_by_other_programs_do_not_lead_outside(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "absolute").symlink_to(tmp_path)
    (root / "upwards").symlink_to("..")
    (root / "proc").symlink_to("/proc/self/cwd")
    with DiskFilesystem(root) as files:
        for name in ("absolute", "upwards", "proc"):
            for call in (files.list, files.read_bytes, lambda path: files.write_text(path, "x")):
                with pytest.raises(LinkError):
                    call(f"{name}/x")
    assert list(tmp_path.iterdir()) == [root]


@pytest.mark.behaviour(193)
def test_an_absolute_link_of_a_command_leads_to_the_workspace(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "link").symlink_to("/workspace/folder/target")
    (root / "top").symlink_to("/workspace")
    (root / "upwards").symlink_to("/workspace/../etc/passwd")
    (root / "other").symlink_to("/workspaces/x")
    with DiskFilesystem(root) as files:
        files.write_text("top/folder/link", "through two links")
        assert files.read_bytes("folder/target") == b"through two links"
        assert str(files.resolve("top/folder/link")) == "folder/target"
        assert str(files.resolve("top/missing")) == "missing"
        for name in ("upwards", "other"):
            with pytest.raises(LinkError):
                files.read_bytes(name)


def test_tree_deeper_than_any_path_can_be_searched_and_deleted(
    files: DiskFilesystem, tmp_path: Path
) -> None:
    with deep_tree(tmp_path, 300):
        assert len(files.glob("**/file").paths) == 1
        assert sum(1 for _ in files.walk()) == 301
        files.delete("deep", recursive=True)
        assert files.list() == ()


# Large files


@pytest.mark.behaviour(54)
def test_reading_parts_of_a_gibibyte_neither_loads_nor_hashes_it(
    files: DiskFilesystem, tmp_path: Path
) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"".join(b"line %d\n" % n for n in range(20_000)))
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"the end")
    tracemalloc.start()
    try:
        assert files.read_text("huge", offset=10, limit=10).lines[0] == "line 10"
        assert files.read_bytes("huge", offset=1 << 30, limit=3) == b"the"
        before = files.fingerprint("huge")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000
    assert files.fingerprints.n_hashed_bytes == 0
    with (tmp_path / "huge").open("r+b") as file:
        file.write(b"LINE")
    assert files.fingerprint("huge") != before


def test_content_is_written_and_appended_in_chunks(tmp_path: Path) -> None:
    chunk = bytes(1_000_000)
    with DiskTree(tmp_path) as tree:
        tracemalloc.start()
        try:
            tree.put_file(path_of("f"), (chunk for _ in range(40)))
            tree.write_file(path_of("f"), (chunk for _ in range(2)), mode="append")
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (tmp_path / "f").stat().st_size == 42_000_000
    assert peak_bytes < 5_000_000


# Fingerprints


def test_file_is_hashed_once_until_it_changes(files: DiskFilesystem, tmp_path: Path) -> None:
    for n in range(10):
        files.write_text(f"d/{n}", "1234567890")
    first = files.fingerprint()
    assert files.fingerprints.n_hashed_bytes == 100
    assert files.fingerprint() == first
    assert files.fingerprints.n_hashed_bytes == 100
    (tmp_path / "d" / "3").write_text("1234567 90")
    assert files.fingerprint() != first
    assert files.fingerprints.n_hashed_bytes == 110
    same = MemoryFilesystem({f"d/{n}": "1234567 90" if n == 3 else "1234567890" for n in range(10)})
    assert files.fingerprint() == same.fingerprint()


def test_file_is_hashed_again_if_a_server_may_give_its_next_change_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskTree, "keeps_times", False)
    with DiskFilesystem(tmp_path, clock=later()) as files:
        files.write_text("f", "1234567890")
        assert files.fingerprint("f") == files.fingerprint("f")
        assert files.fingerprints.n_hashed_bytes == 20


def test_racily_clean_file_is_hashed_again(tmp_path: Path) -> None:
    with DiskFilesystem(tmp_path) as files:
        files.write_text("f", "1234567890")
        assert files.fingerprint("f") == files.fingerprint("f")
        assert files.fingerprints.n_hashed_bytes == 20


def test_fingerprints_cover_pipes_and_trees_of_any_depth(
    files: DiskFilesystem, tmp_path: Path
) -> None:
    with deep_tree(tmp_path, 1_500):
        deep = files.fingerprint()
    os.mkfifo(tmp_path / "pipe")
    assert len({deep, files.fingerprint(), files.fingerprint("pipe")}) == 3
    with pytest.raises(FileNotFoundError):
        files.fingerprint("missing")


# History


class Recorded:
    """A history that answers with its arguments."""

    def snapshot(self) -> object:
        return "token"

    def restore(self, token: object) -> None:
        self.restored = token

    def changes(self, before: object, after: object | None = None) -> tuple[FileChange, ...]:
        return (FileChange(path_of(f"{before}-{after}"), None, FileState(FileKind.FILE, b"x\n")),)

    def diff(self, before: object, after: object | None = None) -> str:
        return render_diff(self.changes(before, after))


def test_without_a_history_snapshots_are_refused_with_a_hint(
    files: DiskFilesystem,
) -> None:
    for call in (files.snapshot, lambda: files.restore("token"), lambda: files.diff("token")):
        with pytest.raises(UsageError, match="no history") as caught:
            call()
        assert "Workspace" in caught.value.hint


def test_history_provides_snapshots(tmp_path: Path) -> None:
    history = Recorded()
    with DiskFilesystem(tmp_path, history=history) as files:
        files.restore(files.snapshot())
        assert history.restored == "token"
        assert "+++ b/1-2" in files.diff(1, 2)


def test_tree_of_the_caller_stays_open(tmp_path: Path) -> None:
    with DiskTree(tmp_path) as tree:
        DiskFilesystem(tree).close()
        tree.put_file(path_of("f"), [b"x"])
    assert (tmp_path / "f").read_bytes() == b"x"
