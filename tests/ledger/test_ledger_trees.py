"""Files as git trees: built from changes, compared where ids differ, exact in every byte."""

from __future__ import annotations

import os
import random
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_support import (
    DIRECTORY,
    assert_clean,
    at,
    call,
    contents,
    git,
    link,
    new_ledger,
    script,
    state,
    stored,
    tree,
)
from random_cases import examples

from wink_workspace.errors import LedgerDamagedError, LedgerError, LimitExceededError, UsageError
from wink_workspace.filesystem.diff import render_diff
from wink_workspace.filesystem.model import FileChange, FileKind, FileState
from wink_workspace.filesystem.paths import ROOT, WorkspacePath
from wink_workspace.ledger import (
    EMPTY_DIRECTORY,
    EMPTY_TREE_ID,
    LARGE_BYTES,
    SOME_DIRECTORY,
    Ledger,
    ObjectStore,
    TreeEntry,
    build,
    diff,
    entry_at,
    file_changes,
    file_state,
    walk,
    with_paths_from,
)
from wink_workspace.ledger.store.trees import additions

NOISE = random.Random(0).randbytes(300_000)
"""Incompressible content."""

MIXED = {
    "README.md": b"# hi\r\nthere\r\n",
    "empty": b"",
    "run.sh": script(b"#!/bin/sh\n"),
    "dangling": link("nowhere/at/all"),
    "absolute": link("/etc/passwd"),
    "looping": link("looping"),
    "src": DIRECTORY,
    "src/deep": DIRECTORY,
    "src/deep/er": DIRECTORY,
    "src/deep/er/data.bin": bytes(range(256)) * 40,
    "src.txt": b"sorts between src and src/",
    "src-2": DIRECTORY,
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    with new_ledger(tmp_path_factory.mktemp("trees")) as ledger:
        yield ledger


@pytest.fixture
def store(ledger: Ledger) -> ObjectStore:
    return ledger.store


@pytest.mark.behaviour(29)
def test_contents_modes_links_and_empty_directories_survive_a_round_trip(store) -> None:
    assert contents(store, tree(store, MIXED)) == MIXED


def test_the_same_files_have_the_same_root_in_any_order(store) -> None:
    assert tree(store, MIXED) == tree(store, dict(reversed(MIXED.items())))


def test_the_root_is_the_one_that_git_would_write(store, tmp_path) -> None:
    """So a workspace's tree can be compared with a commit of the project it came from."""
    files = {
        **{name: data for name, data in MIXED.items() if data != DIRECTORY},
        ".gitignore": b"*.pyc\n",
        "a.b": b"",
        "a/b": b"",
        "a-b": b"",
    }
    for name, data in files.items():
        write_on_disk(tmp_path / name, state(data))
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null"}
    for command in ("init -q .", "add -A", "write-tree"):
        done = subprocess.run(
            ["git", *command.split()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=True,
        )
    assert tree(store, files) == done.stdout.decode().strip()


def write_on_disk(path: Path, kept: FileState) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kept.kind is FileKind.SYMLINK:
        path.symlink_to(kept.data.decode())
    else:
        path.write_bytes(kept.data)
        path.chmod(0o755 if kept.executable else 0o644)


# Building


def test_a_change_writes_only_the_content_and_the_directories_above_it(store) -> None:
    files = {
        f"d{n}/e{m}/f{k}.txt": b"%d" % k for n in range(10) for m in range(3) for k in range(3)
    }
    base = tree(store, files)
    before = store.n_written
    changed = build(store, base, {at("d4/e1/f2.txt"): stored(store, b"new")})
    assert store.n_written - before == 1 + 3  # the content, then e1, d4 and the root
    assert contents(store, changed) == {**contents(store, base), "d4/e1/f2.txt": b"new"}


@pytest.mark.behaviour(38)
def test_a_change_without_effect_writes_nothing(store) -> None:
    base = tree(store, MIXED)
    same = {at("src/deep/er"): SOME_DIRECTORY, at("gone/too"): None, at("gone"): None}
    before = store.n_written
    assert build(store, base, {**same, at("empty"): entry_at(store, base, at("empty"))}) == base
    assert build(store, base, {}) == base
    assert store.n_written == before


def test_a_directory_that_loses_its_last_entry_stays_and_may_be_removed(store) -> None:
    base = tree(store, {"a/b/c": b""})
    emptied = build(store, base, {at("a/b/c"): None})
    assert contents(store, emptied) == {"a": DIRECTORY, "a/b": DIRECTORY}
    assert contents(store, build(store, emptied, {at("a/b"): None})) == {"a": DIRECTORY}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"a": DIRECTORY}, {"a": DIRECTORY, "a/x": b"1", "f": b"2"}),
        ({"f": DIRECTORY}, {"a": DIRECTORY, "a/x": b"1", "f": DIRECTORY}),
        ({"a": b"3"}, {"a": b"3", "f": b"2"}),
        ({"f/y": b"3"}, {"a": DIRECTORY, "a/x": b"1", "f": DIRECTORY, "f/y": b"3"}),
        ({"f": link("a")}, {"a": DIRECTORY, "a/x": b"1", "f": link("a")}),
        ({"a/x": script(b"1")}, {"a": DIRECTORY, "a/x": script(b"1"), "f": b"2"}),
    ],
)
def test_an_entry_may_be_replaced_by_one_of_another_kind(store, changes, expected) -> None:
    assert contents(store, tree(store, changes, tree(store, {"a/x": b"1", "f": b"2"}))) == expected


def test_a_directory_may_be_removed_and_made_again_in_one_step(store) -> None:
    base = tree(store, {"a/old": b"1", "b": b"2"})
    new = stored(store, b"3")
    expected = {"a": DIRECTORY, "a/new": b"3", "b": b"2"}
    assert contents(store, build(store, base, {at("a"): None, at("a/new"): new})) == expected
    assert (
        contents(store, build(store, base, {at("a"): EMPTY_DIRECTORY, at("a/new"): new}))
        == expected
    )


def test_a_whole_directory_is_added_by_its_id(store) -> None:
    source = tree(store, {"lib/one": b"1", "lib/two": b"2"})
    added = build(store, EMPTY_TREE_ID, {at("copy"): entry_at(store, source, at("lib"))})
    assert contents(store, added) == {"copy": DIRECTORY, "copy/one": b"1", "copy/two": b"2"}
    assert build(store, added, {ROOT: TreeEntry(FileKind.DIRECTORY, source)}) == source


def test_an_entry_below_a_file_of_the_same_step_is_refused(store) -> None:
    changes = {at("a"): stored(store, b""), at("a/b"): stored(store, b"")}
    with pytest.raises(UsageError, match="'b' cannot be inside a file"):
        build(store, EMPTY_TREE_ID, changes)
    assert entry_at(store, build(store, EMPTY_TREE_ID, {**changes, at("a/b"): None}), at("a"))


@pytest.mark.parametrize("entry", [None, TreeEntry(FileKind.FILE, EMPTY_TREE_ID)])
def test_the_root_is_always_a_directory(store, entry) -> None:
    with pytest.raises(UsageError, match="must be a directory"):
        build(store, EMPTY_TREE_ID, {ROOT: entry})


def test_directories_nest_up_to_the_limit(store) -> None:
    deep = WorkspacePath(("d",) * 256)
    root = build(store, EMPTY_TREE_ID, {deep: stored(store, b"bottom")})
    assert list(walk(store, root))[-1][0] == deep
    assert len(list(diff(store, EMPTY_TREE_ID, root))) == 256
    with pytest.raises(LimitExceededError, match="257 segments"):
        build(store, EMPTY_TREE_ID, {deep / "d": SOME_DIRECTORY})
    assert build(store, root, {deep / "d": None}) == root, "the path does not exist"


# Random files and changes

NAMES = st.sampled_from(["a", "b", "a.b", "a-", "git~1", ".git", "%", "é"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
STATES = st.one_of(
    st.binary(max_size=3),
    st.binary(max_size=2).map(script),
    st.sampled_from([DIRECTORY, link("x")]),
)
CHANGES = st.lists(st.tuples(PATHS, st.one_of(st.none(), STATES)), max_size=8)


def apply_change(
    files: dict[str, bytes | FileState], path: str, new: bytes | FileState | None
) -> None:
    """Make the same change to a plain dictionary, as on a disk."""
    parts = path.split("/")
    for above in ("/".join(parts[:n]) for n in range(1, len(parts))):
        if files.get(above) != DIRECTORY:
            if new is None:
                return
            files[above] = DIRECTORY
    if not (new == DIRECTORY and files.get(path) == DIRECTORY):
        for below in [name for name in files if name.startswith(path + "/")]:
            del files[below]
    files.pop(path, None)
    if new is not None:
        files[path] = new


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(CHANGES, min_size=1, max_size=3))
def test_changes_one_by_one_or_together_give_the_same_as_plain_dictionaries(ledger, steps) -> None:
    store = ledger.store
    root, files = EMPTY_TREE_ID, {}
    for changes in steps:
        before, known = root, dict(files)
        for path, new in changes:
            apply_change(files, path, new)
            root = build(store, root, {at(path): None if new is None else stored(store, new)})
        assert contents(store, root) == files
        moved = {
            str(change.path): (change.before, change.after)
            for change in file_changes(store, diff(store, before, root))
        }
        assert moved == {
            name: (optional(known.get(name)), optional(files.get(name)))
            for name in known | files
            if optional(known.get(name)) != optional(files.get(name))
        }
        together = {at(path): entry_at(store, root, at(path)) for path in moved}
        assert build(store, before, as_directories(together)) == root


def optional(content: bytes | FileState | None) -> FileState | None:
    return None if content is None else state(content)


def as_directories(changes: dict[WorkspacePath, TreeEntry | None]) -> dict:
    return {
        path: SOME_DIRECTORY if entry and entry.kind is FileKind.DIRECTORY else entry
        for path, entry in changes.items()
    }


# Comparing


def test_a_comparison_lists_every_changed_path_in_order(store) -> None:
    before = tree(store, {"a/x": b"1", "b": b"2", "c": b"3", "d": b"4", "same/y": b"5"})
    after = build(
        store,
        before,
        {
            at("a"): None,
            at("b"): stored(store, script(b"2")),
            at("c"): SOME_DIRECTORY,
            at("d"): stored(store, b"new"),
            at("e/f"): stored(store, b"6"),
        },
    )
    found = [
        (str(change.path), change.before and change.before.kind, change.after and change.after.kind)
        for change in diff(store, before, after)
    ]
    file, directory = FileKind.FILE, FileKind.DIRECTORY
    assert found == [
        ("a", directory, None),
        ("a/x", file, None),
        ("b", file, file),
        ("c", file, directory),
        ("d", file, file),
        ("e", None, directory),
        ("e/f", None, file),
    ]


def test_a_comparison_reads_only_what_differs(store) -> None:
    files = {f"d{n}/f{k}": b"%d" % k for n in range(20) for k in range(20)}
    before = tree(store, files)
    after = build(store, before, {at("d7/f7"): stored(store, b"new")})
    store.forget()
    read: list[str] = []
    original = store.repository.read
    store.repository.read = lambda object_id: read.append(object_id) or original(object_id)  # type: ignore[method-assign] - counts
    try:
        assert [str(change.path) for change in diff(store, before, after)] == ["d7/f7"]
    finally:
        del store.repository.read
    assert len(read) == 4  # two roots, two directories, no content


def test_changes_render_as_a_patch(store) -> None:
    before = tree(store, {"a.txt": b"one\n"})
    after = build(store, before, {at("a.txt"): stored(store, b"two\n")})
    patch = render_diff(file_changes(store, diff(store, before, after)))
    assert "--- a/a.txt" in patch
    assert "+two" in patch


def test_contents_of_changes_are_read_lazily(store) -> None:
    missing = TreeEntry(FileKind.FILE, "0" * 40)
    root = build(store, EMPTY_TREE_ID, {at("a"): stored(store, b"1"), at("b"): missing})
    changes = file_changes(store, diff(store, EMPTY_TREE_ID, root))
    assert next(changes) == FileChange(at("a"), None, state(b"1"))
    with pytest.raises(LedgerDamagedError, match="0000"):
        next(changes)


# Partial restores


@pytest.mark.behaviour(68)
def test_restoring_some_paths_changes_only_those_paths(store) -> None:
    old = tree(store, {"a/x": b"1", "a/y": b"1", "b": b"1", "gone/z": b"1"})
    new = tree(store, {"a/x": b"2", "a/y": b"2", "b": b"2", "made": b"2"})
    restored = with_paths_from(store, new, old, [at("a/x"), at("gone"), at("made"), at("never")])
    assert contents(store, restored) == {
        "a": DIRECTORY,
        "a/x": b"1",
        "a/y": b"2",
        "b": b"2",
        "gone": DIRECTORY,
        "gone/z": b"1",
    }


# Contents


def test_a_lookup_does_not_follow_files_or_links(store) -> None:
    root = tree(store, {"f": b"", "l": link("d"), "d/x": b""})
    assert [entry_at(store, root, at(path)) for path in ("f/x", "l/x", "d/y")] == [None] * 3
    assert entry_at(store, root, at("d/x")) == TreeEntry(FileKind.FILE, stored(store, b"").id)


def test_a_file_descriptor_is_read_from_its_position(store, tmp_path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    with (tmp_path / "f").open("rb", buffering=0) as file:
        file.seek(4)
        assert store.read(store.write_blob_from(file.fileno())) == b"456789"
        assert file.tell() == 10


@pytest.mark.behaviour(54)
@pytest.mark.parametrize("pattern", [b"0123456789abcde\n", NOISE[:16]], ids=["text", "noise"])
def test_a_large_file_is_stored_and_read_in_chunks(store, tmp_path, pattern) -> None:
    size = 4 * LARGE_BYTES
    with (tmp_path / "large").open("wb") as file:
        for _ in range(size >> 20):
            file.write(pattern * (1 << 16))
    with (tmp_path / "large").open("rb", buffering=0) as file:
        tracemalloc.start()
        blob = store.write_blob_from(file.fileno())
        n_bytes = sum(len(chunk) for chunk in store.chunks(blob))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (n_bytes, store.size_bytes(blob)) == (size, size)
    assert peak < LARGE_BYTES
    assert store.repository.header(blob) == ("blob", size)


@pytest.mark.parametrize("content", [b"", b"x", b"y" * 5_000_000, NOISE], ids=len)
def test_joined_chunks_are_the_content(store, content) -> None:
    assert b"".join(store.chunks(store.write_blob(content))) == content


def test_a_file_that_shrinks_while_it_is_read_is_refused(store, tmp_path) -> None:
    (tmp_path / "f").write_bytes(bytes(LARGE_BYTES))
    with (tmp_path / "f").open("rb") as file, pytest.raises(LedgerError, match="changed while"):
        for _ in store.blob_steps(file.fileno()):
            os.truncate(tmp_path / "f", 1)
    assert not list(store.packs.directory.glob("tmp_*"))


def test_a_descriptor_that_cannot_be_read_is_a_ledger_error(store) -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(LedgerError, match="cannot be read"):
            store.write_blob_from(reader)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_content_above_the_limit_is_not_read_as_a_whole(store) -> None:
    entry = stored(store, b"123456")
    assert file_state(store, entry, limit_bytes=6) == state(b"123456")
    with pytest.raises(LimitExceededError, match="6 bytes, but at most 5"):
        file_state(store, entry, limit_bytes=5)


def test_a_change_above_the_limit_is_named(store) -> None:
    before, after = tree(store, {}), tree(store, {"d/large": b"123456", "small": b"1"})
    with pytest.raises(LimitExceededError, match=r"^d/large cannot be read as a whole: .* 6 bytes"):
        list(file_changes(store, diff(store, before, after), limit_bytes=5))


def test_an_object_of_another_kind_is_damage(store) -> None:
    root = tree(store, {"a": b"1"})
    with pytest.raises(LedgerDamagedError, match="is a tree, not a blob"):
        store.read(root)
    odd = store.write("tree", b"160000 sub\0" + bytes(20))
    with pytest.raises(LedgerDamagedError, match="not a tree of a ledger"):
        store.tree(odd)


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_damage_is_noticed_when_a_content_is_read_in_chunks(store, tmp_path, damage) -> None:
    (tmp_path / "f").write_bytes(random.Random(damage).randbytes(LARGE_BYTES))
    with (tmp_path / "f").open("rb") as file:
        blob = store.write_blob_from(file.fileno())
    assert sum(map(len, store.chunks(blob))) == LARGE_BYTES
    pack = max(store.packs.directory.glob("*.pack"), key=lambda path: path.stat().st_mtime_ns)
    with pack.open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        if damage == "cut":
            file.truncate()
        else:
            file.write(b"changed")
    with pytest.raises(LedgerDamagedError, match="is damaged"):
        list(store.chunks(blob))


def test_cached_trees_are_bounded_by_their_number_of_entries(store) -> None:
    store.most_cached = 10
    roots = [tree(store, {f"{n}-{k}": b"" for k in range(4)}) for n in range(9)]
    assert len(store._trees) == 2
    assert [len(contents(store, root)) for root in roots] == [4] * 9


# Bulk writes


def test_many_objects_are_written_as_one_pack_that_git_accepts(tmp_path: Path) -> None:
    files = {f"d{n % 7}/f{n}": b"%d\n" % n * (n % 50) for n in range(500)}
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        with ledger.store.bulk(), ledger.store.bulk():
            root = tree(ledger.store, {**files, "noise": NOISE, "again": NOISE, "empty": DIRECTORY})
        call(writer, root)
        found = contents(ledger.store, root)
        assert {name: found[name] for name in files} == files
        assert found["noise"] == found["again"] == NOISE
        packed = entry_at(ledger.store, root, at("d2/f9"))
        assert list(ledger.store.chunks(packed.id)) == [files["d2/f9"]]
        sizes = [size for pack in ledger.store.packs.listed() for size in pack.disk_bytes.values()]
        assert sum(size > len(NOISE) for size in sizes) == 1
    assert_clean(tmp_path)
    packs = list((tmp_path / "ledger.git/objects/pack").iterdir())
    # One for the bulk, and one for the entry
    assert sorted(path.suffix for path in packs) == [".idx", ".idx", ".pack", ".pack"]
    for pack in packs:
        git(tmp_path, "verify-pack", str(pack.with_suffix(".idx")))


def test_a_commit_inside_a_bulk_write_is_refused(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        with ledger.store.bulk(), pytest.raises(LedgerError, match="inside a bulk"):
            call(writer, tree(ledger.store, {"a": b"1"}))
        assert writer.refresh() is None


def test_a_bulk_write_that_fails_or_is_empty_leaves_nothing(store) -> None:
    before = sorted(store.repository.directory.rglob("*"))
    with pytest.raises(ZeroDivisionError), store.bulk(), store.bulk():
        store.write_blob(b"only in a pack that never was")
        raise ZeroDivisionError
    with store.bulk():
        pass
    assert sorted(store.repository.directory.rglob("*")) == before


def test_many_changes_of_a_directory_at_once_equal_the_same_changes_one_by_one(
    tmp_path: Path,
) -> None:
    chance = random.Random(14)
    with new_ledger(tmp_path) as ledger:
        store = ledger.store
        blob = store.write_blob(b"content")
        kinds = [None, TreeEntry(FileKind.FILE, blob), TreeEntry(FileKind.FILE, blob, True)]
        kinds += [TreeEntry(FileKind.SYMLINK, blob), EMPTY_DIRECTORY]
        root = EMPTY_TREE_ID
        for _ in range(5):
            changes = {
                WorkspacePath((name,)): chance.choice(kinds)
                for name in chance.sample(["a", "a.b", "a0", *map(str, range(150))], 100)
            }
            one_by_one = root
            for path, entry in changes.items():
                one_by_one = build(store, one_by_one, {path: entry})
            root = build(store, root, changes)
            assert root == one_by_one
            assert build(store, root, changes) == root


NAMES = ("a", "b", "a/x", "a/y", "a/y/z", "b/x", "c/x/y", "c-", "c.d")


def some_files(chance: random.Random) -> dict[str, bytes]:
    """Files at some of ``NAMES``, none below another one."""
    chosen = [name for name in NAMES if chance.random() < 0.5]
    return {
        name: b"%d" % chance.randrange(2)
        for name in chosen
        if not any(other.startswith(f"{name}/") for other in chosen)
    }


@pytest.mark.parametrize("seed", range(60))
def test_additions_are_the_paths_that_a_diff_finds(store, seed: int) -> None:
    chance = random.Random(seed)
    before, after = (tree(store, some_files(chance)) for _ in range(2))
    changes = list(diff(store, before, after))
    added = {change.path: change.after for change in changes if change.after is not None}
    removed = [change.path for change in changes if change.after is None]
    assert additions(store, before, after) == (build(store, EMPTY_TREE_ID, added), removed)


def test_a_closed_ledger_keeps_no_trees_in_memory(tmp_path) -> None:
    ledger = new_ledger(tmp_path)
    root = tree(ledger.store, {f"file-{n}.txt": b"x" for n in range(2_000)})
    ledger.store.forget()
    tracemalloc.start()
    try:
        assert len(ledger.store.tree(root).rows) == 2_000
        cached, _ = tracemalloc.get_traced_memory()
        ledger.close()
        assert tracemalloc.get_traced_memory()[0] < cached / 2
    finally:
        tracemalloc.stop()
