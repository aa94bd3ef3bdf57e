"""A repair restores what can be read anywhere, names the rest, and nothing damaged is served."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from test_workspace_adversary_full_disk import on_a_small_disk
from workspace_rig import Picture, assert_fsck_clean, folder, made, picture, reopened, storage

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.cli import main
from wink_workspace.errors import EntryMissingError, LedgerBusyError, LedgerDamagedError
from wink_workspace.filesystem.changes import FileIndex
from wink_workspace.filesystem.changes.index import read_note, status_of
from wink_workspace.ledger import Ledger, LogEntry
from wink_workspace.ledger.entries.commits import parse_commit
from wink_workspace.ledger.store.packs import Packs
from wink_workspace.ledger.upkeep.damage import LostObject, ObjectCheck
from wink_workspace.workspace import Repaired, repair_workspace

FILES = {f"d{n % 7}/{n}.txt": b"%d\n" % n * 30 for n in range(200)}


def repaired(directory: Path) -> Repaired:
    return repair_workspace(folder(directory).path.name, storage=storage(directory))


def lost_in(directory: Path) -> tuple[LostObject, ...]:
    with Ledger(folder(directory).ledger) as ledger:
        return ObjectCheck(ledger.store).lost()


def with_history(directory: Path, **options: object) -> dict[bytes, tuple[str, int, bytes]]:
    """A closed workspace with some entries; its files."""
    with made(directory, FILES, **options) as workspace:
        for n in range(4):
            with workspace.call(f"write {n}"):
                workspace.files.write_text(f"new{n}.txt", f"new {n}\n" * 200)
        return picture(workspace.files.tree.root)


def restarted(directory: Path) -> None:
    """Make every check of a base one of an earlier boot."""
    for note in directory.glob("state/bases/*/complete"):
        note.write_text(note.read_text().replace('"boot": "', '"boot": "an earlier one '))


def flip(path: Path, at: float = 0.5) -> None:
    """Change one byte, as a bad disk would: the status stays, and links of the file see it, too."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(content)
    path.chmod(status.st_mode)


def flip_object(directory: Path, content: bytes) -> None:
    """Change one byte of a blob, which does not shrink, in each pack that has it."""
    found = [(path, path.read_bytes().find(content[:100])) for path in packs(directory)]
    found = [(path, at) for path, at in found if at >= 0]
    assert found
    for path, at in found:
        flip(path, (at + 50_000) / path.stat().st_size)


def flip_in_base(base: Path, name: str) -> None:
    """As ``flip``, and the status of the file is that of its index."""
    path = base / "root/files" / name
    flip(path)
    index = FileIndex.load(base / "index")
    assert index is not None
    index.put(tuple(name.split("/")[:-1]), {path.name: status_of(path.lstat())}, sys.maxsize)
    index.save(base / "index", note=read_note(base / "index") | {"sample": []})


def base_of(directory: Path) -> Path:
    (base,) = (
        path for path in directory.glob("state/bases/*") if (path / "root").is_dir()
        and not path.name.startswith("old-")
    )  # fmt: skip
    return base


def packs(directory: Path) -> list[Path]:
    """The packs of the ledger, the largest one first; that is the one of the base."""
    found = folder(directory).ledger.glob("objects/pack/pack-*.pack")
    return sorted(found, key=lambda path: -path.stat().st_size)


def assert_is_as_before(directory: Path, before: dict[bytes, tuple[str, int, bytes]]) -> None:
    assert lost_in(directory) == ()
    assert_fsck_clean(folder(directory).ledger)
    restarted(directory)
    with reopened(directory) as workspace:
        assert picture(workspace.files.tree.root) == before
        assert workspace.maintain().ran
    assert_fsck_clean(folder(directory).ledger)


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_nothing_is_changed_in_a_sound_workspace(tmp_path: Path, mode: str) -> None:
    before = with_history(tmp_path, mode=mode)
    listed = sorted(folder(tmp_path).ledger.rglob("*.pack"))
    assert repaired(tmp_path) == Repaired(0, 0, 0, {}, {}, ())
    assert sorted(folder(tmp_path).ledger.rglob("*.pack")) == listed
    assert_is_as_before(tmp_path, before)


def test_an_open_workspace_is_refused(tmp_path: Path) -> None:
    with made(tmp_path, FILES), pytest.raises(LedgerBusyError, match="in use by process"):
        repaired(tmp_path)


def test_one_changed_byte_among_2000_files_of_a_base_is_never_served(tmp_path: Path) -> None:
    files = {f"{n % 40}/{n}.txt": b"%d\n" % n for n in range(2_000)}
    made(tmp_path, files, mode="overlay").close()
    flip_in_base(base_of(tmp_path), "7/1007.txt")
    restarted(tmp_path)
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_text("7/1007.txt").lines == ("1007",)


def test_a_changed_byte_in_a_file_of_a_base_is_named_and_the_base_made_again(
    tmp_path: Path,
) -> None:
    before = with_history(tmp_path, mode="overlay")
    base = base_of(tmp_path)
    flip_in_base(base, "d3/10.txt")
    assert repaired(tmp_path).bases == {base.name: ("d3/10.txt",)}
    assert repaired(tmp_path) == Repaired(0, 0, 0, {}, {}, ())
    assert_is_as_before(tmp_path, before)


@pytest.mark.share(4)
@pytest.mark.parametrize("mode", ["overlay", "copy"])
@pytest.mark.parametrize("how", ["changed", "cut", "index", "cut without index"])
def test_damaged_packs_are_replaced_with_what_is_read_again(
    tmp_path: Path, mode: str, how: str
) -> None:
    before = with_history(tmp_path, mode=mode)
    (pack, *_) = packs(tmp_path)
    if "index" in how:
        pack.with_suffix(".idx").unlink()
    if how == "changed":
        flip(pack)
    elif "cut" in how:
        pack.chmod(0o644)
        with pack.open("r+b") as file:
            file.truncate(pack.stat().st_size // 2)
    done = repaired(tmp_path)
    if how == "index":
        assert done == Repaired(1, 0, 0, {}, {}, ())
    else:
        assert (done.n_packs, bool(done.n_objects), done.lost) == (1, True, ())
    assert_is_as_before(tmp_path, before)


def test_a_changed_byte_in_the_objects_of_a_base_is_restored_from_its_files(
    tmp_path: Path,
) -> None:
    """The pack is one file with two names: that of the base and that of the ledger."""
    before = with_history(tmp_path, mode="overlay")
    base = base_of(tmp_path)
    (pack,) = base.glob("objects.git/objects/pack/*.pack")
    flip(pack, 0.2)
    for path in (tmp_path / "source").rglob("*.txt"):
        path.unlink()  # so only the files of the base are left
    done = repaired(tmp_path)
    assert done.bases.keys() == {base.name}
    assert done.n_objects >= 1
    assert done.lost == ()
    assert_is_as_before(tmp_path, before)
    made(tmp_path, FILES).close()


def test_what_cannot_be_read_anywhere_is_named_and_never_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"d/gone.bin": random.Random(1).randbytes(100_000)}
    with made(tmp_path, {**FILES, **lost}, mode="overlay") as workspace:
        with workspace.call("one"):
            workspace.files.write_text("one.txt", "one\n")
        workspace.fork("other")
    flip_object(tmp_path, lost["d/gone.bin"])
    base = base_of(tmp_path)
    flip_in_base(base, "d/gone.bin")
    (tmp_path / "source/d/gone.bin").unlink()
    restarted(tmp_path)
    with pytest.raises(LedgerDamagedError, match=r"d/gone\.bin.*wink-workspace repair"):
        reopened(tmp_path)
    expected = (LostObject("main", "files/d/gone.bin", 1, 2),)
    assert lost_in(tmp_path) == expected
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/wink-workspace").symlink_to(tmp_path / "state")
    which = folder(tmp_path).path.name
    assert main(["gc", "--verify", which]) == 1
    printed = " ".join(capsys.readouterr().err.split())
    assert "cannot be read: entries 1 to 2 of main files/d/gone.bin" in printed
    assert f'run "wink-workspace repair {which}"' in printed
    done = repaired(tmp_path)
    assert done.lost == expected
    assert done.bases == {base.name: ("d/gone.bin",)}
    branches = ("imported", "main", "other")
    assert done.removed == dict.fromkeys(branches, ("files/d/gone.bin",))
    for branch in ("main", "other"):
        with reopened(tmp_path, branch=branch) as workspace:
            assert not workspace.files.exists("d/gone.bin")
            assert workspace.files.read_text("one.txt").lines == ("one",)
            assert workspace.files.read_text("d3/10.txt").lines == ("10",) * 30
            assert workspace.maintain().ran
    assert main(["repair", which]) == 0
    printed = capsys.readouterr().out
    assert "cannot be read: entries 1 to 2 of main files/d/gone.bin" in printed
    assert "0 objects read again; 1 path lost" in printed
    assert main(["repair", which, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lost"] == [asdict(each) for each in expected]


def test_a_lost_old_version_costs_only_the_entries_that_had_it(tmp_path: Path) -> None:
    content = random.Random(2).randbytes(100_000)
    with made(tmp_path, FILES) as workspace:
        for n, each in enumerate((content, content, b"new")):
            with workspace.call(f"{n}"):
                workspace.files.write_bytes("large", each)
                workspace.files.write_text("other", f"{n}\n")
        before = picture(workspace.files.tree.root)
    flip_object(tmp_path, content)
    done = repaired(tmp_path)
    assert (done.removed, done.lost) == ({}, (LostObject("main", "files/large", 2, 3),))
    with reopened(tmp_path) as workspace:
        assert picture(workspace.files.tree.root) == before
        with pytest.raises(LedgerDamagedError, match="wink-workspace repair"):
            workspace.content(workspace.entry(2), "large", limit_bytes=200_000)
    (tmp_path / "source/found again").write_bytes(content)
    assert repaired(tmp_path).n_objects == 1
    assert lost_in(tmp_path) == ()


@pytest.mark.parametrize("at", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_changed_byte_in_the_pack_of_calls_ends_in_no_wrong_file(
    tmp_path: Path, at: float
) -> None:
    before = with_history(tmp_path)
    flip(packs(tmp_path)[-1], at)
    done = repaired(tmp_path)
    assert done.n_packs == 1
    gone = {path.encode() for path in done.removed.get("main", ())}
    with reopened(tmp_path) as workspace:
        found = picture(workspace.files.tree.root)
        assert found == {
            path: each for path, each in before.items() if b"files/" + path not in gone
        }


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "point",
    [
        *(KillPoint.PACK_WRITTEN, KillPoint.PACK_INVALIDATED, KillPoint.BASE_FILLED),
        *(KillPoint.FOLDER_RETIRED, KillPoint.BASE_PLACED, KillPoint.BASE_NAMED),
    ],
)
def test_a_repair_that_ends_at_any_step_can_be_repeated(tmp_path: Path, point: KillPoint) -> None:
    before = with_history(tmp_path, mode="overlay")
    flip(packs(tmp_path)[0], 0.2)
    reached: list[KillPoint] = []

    def stop(passed: KillPoint) -> None:
        if passed is point:
            reached.append(passed)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), calling(stop):
        repaired(tmp_path)
    assert reached
    assert repaired(tmp_path).lost == ()
    assert_is_as_before(tmp_path, before)


@dataclass(frozen=True)
class Prepared:
    """A closed workspace to copy; *entries* are those of the main branch, the first one first."""

    directory: Path
    entries: list[LogEntry]
    files: Picture

    def copied(self, to: Path) -> Path:
        shutil.copytree(self.directory / "state", to / "state", symlinks=True)
        return to


@pytest.fixture(scope="module", params=["overlay", pytest.param("copy", marks=pytest.mark.soak)])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    directory = tmp_path_factory.mktemp("prepared")
    with made(directory, FILES, mode=request.param) as workspace:
        for n in range(12):
            with workspace.call(f"write {n}"):
                workspace.files.write_text(f"new{n % 5}.txt", f"value {n}\n" * 50)
            if n == 6:
                workspace.fork("other")
        entries = [*workspace.log()][::-1]
        files = picture(workspace.files.tree.root)
    with reopened(directory, branch="other") as other, other.call("in other"):
        other.files.write_text("other.txt", "other\n")
    return Prepared(directory, entries, files)


def lose(directory: Path, *object_ids: str) -> None:
    """Change some bytes of objects in each pack that has them."""
    found = 0
    for pack in packs(directory):
        offsets = Packs(pack.parent.parent).load(pack.with_suffix(".idx")).offsets
        content = bytearray(pack.read_bytes())
        for at in (offsets[each] for each in object_ids if each in offsets):
            content[at + 4 : at + 12] = bytes(8)
            found += 1
        pack.chmod(0o600)
        pack.write_bytes(content)
    assert found >= len(object_ids)


def root_of(directory: Path, entry: LogEntry) -> str:
    with Ledger(folder(directory).ledger) as ledger:
        return parse_commit(entry.id, ledger.store.read(entry.id, "commit")).tree


def assert_usable(directory: Path, known: Prepared, done: Repaired) -> list[LogEntry]:
    """Everything works but reading what the repair named; the entries of main, oldest first."""
    named = {each.path for each in done.lost} | {
        path for each in done.removed.values() for path in each
    }
    again = repaired(directory)
    assert (again.n_indexes, again.n_packs, again.n_objects) == (0, 0, 0)
    assert (again.bases, again.removed) == ({}, {})
    assert {each for each in again.lost if not each.path} == set()
    assert {each.path for each in again.lost} <= named
    lost = {n for each in again.lost for n in range(each.first, each.last + 2)}
    with reopened(directory) as workspace:
        assert workspace.diff() is not None
        kept = [*workspace.log()][::-1]
        assert [entry.number for entry in kept] == [*range(kept[0].number, kept[-1].number + 1)]
        for entry in kept:
            assert workspace.record(entry) is not None
            if entry.number not in lost:
                workspace.review_of(entry)
        present = picture(workspace.files.tree.root)
        assert known.files | present == known.files, "a file has another content"
        missing = {path.decode() for path in known.files.keys() - present.keys()}
        assert {f"files/{path}" for path in missing} <= named
        with workspace.call("after the repair"):
            workspace.files.write_text("after.txt", "after\n")
        workspace.undo()
        assert not workspace.files.exists("after.txt")
        workspace.fork("again")
        assert workspace.maintain().ran
    with reopened(directory, branch="other") as other, other.call("write"):
        other.files.write_text("after.txt", "after\n")
    assert {each.path for each in lost_in(directory)} <= named
    return kept


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("number", "part"),
    [(1, "commit"), (7, "root"), (7, "record"), (7, "files"), (13, "commit"), (13, "root")],
)
def test_a_history_with_a_lost_entry_ends_before_it_or_begins_after_it(
    prepared: Prepared, tmp_path: Path, number: int, part: str
) -> None:
    entries = prepared.entries
    entry = entries[number - 1]
    directory = prepared.copied(tmp_path)
    parts = {"commit": entry.id, "record": entry.record_id, "files": entry.files}
    lose(directory, parts.get(part) or root_of(directory, entry))
    done = repaired(directory)
    if done.n_objects and not done.lost:  # the files have it
        assert part == "files"
    else:
        first, last = (13, 0) if number == 13 else (1, number)
        assert LostObject("main", "", first, last) in done.lost
    kept = assert_usable(directory, prepared, done)
    if not done.lost:
        assert kept[: len(entries)] == entries
    elif number == 13:
        assert kept == entries[:12]
    else:
        assert kept == entries[number:]
        with reopened(directory) as workspace, pytest.raises(EntryMissingError):
            workspace.entry(number)


def test_a_lost_discard_and_a_lost_branch_do_not_stop_others(tmp_path: Path) -> None:
    with made(tmp_path, FILES, mode="copy") as workspace:
        with pytest.raises(ZeroDivisionError), workspace.call("fails"):
            workspace.files.write_text("discarded.txt", "discarded\n")
            raise ZeroDivisionError
        workspace.fork("other")
        (discarded,) = workspace.discarded()
        before = picture(workspace.files.tree.root)
    with reopened(tmp_path, branch="other") as other:
        with other.call("in other"):
            other.files.write_text("other.txt", "other\n")
        lost_file, head = picture(other.files.tree.root)[b"other.txt"], other.head
    lose(tmp_path, discarded.changed, head.id)
    done = repaired(tmp_path)
    assert done.lost == (
        LostObject("forks/other", "", head.number, 0),
        LostObject(discarded.ref.removeprefix("refs/wink/"), "", 1, 0),
    )
    assert repaired(tmp_path) == Repaired(0, 0, 0, {}, {}, ())
    assert_is_as_before(tmp_path, before)
    with reopened(tmp_path, branch="other") as workspace:
        assert picture(workspace.files.tree.root)[b"other.txt"] == lost_file
        assert workspace.discarded() == ()


_DAMAGE: dict[str, Callable[[Path, random.Random], object]] = {
    "flipped": lambda path, rnd: flip(path, rnd.random()),
    "cut": lambda path, rnd: path.write_bytes(
        path.read_bytes()[: rnd.randrange(path.stat().st_size)]
    ),
    "deleted": lambda path, _: path.unlink(),
    "garbage": lambda path, rnd: path.write_bytes(rnd.randbytes(rnd.randrange(1, 3_000))),
    "a link": lambda path, _: (
        path.rename(path.with_name("elsewhere")).exists() and path.symlink_to("elsewhere")
    ),
    "a dead link": lambda path, _: path.unlink() or path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("seed", [*range(5), pytest.param(range(5, 210), marks=pytest.mark.soak)])
def test_whatever_files_of_objects_are_damaged_what_is_left_is_usable(
    prepared: Prepared, tmp_path: Path, seed: int | range
) -> None:
    for n in [seed] if isinstance(seed, int) else seed:
        rnd, directory = random.Random(n), tmp_path / f"{n}"
        prepared.copied(directory)
        objects = [
            path
            for path in sorted((directory / "state").rglob("*"))
            if path.is_file() and path.stat().st_size and {"objects", "open"} & {*path.parts}
        ]
        for path in rnd.sample(objects, k=rnd.choice((1, 1, 2, 3))):
            path.chmod(0o600)
            how = rnd.choice(list(_DAMAGE))
            print(n, how, path.relative_to(directory), path.stat().st_size)
            _DAMAGE[how](path, rnd)
        restarted(directory)
        done = repaired(directory)
        kept = assert_usable(directory, prepared, done)
        known = {entry.id for entry in prepared.entries}
        assert done.lost or known <= {entry.id for entry in kept}
        shutil.rmtree(directory)


@pytest.mark.parametrize("kind", ["pack", "idx"])
def test_a_link_in_place_of_a_pack_is_replaced_by_what_it_leads_to(
    prepared: Prepared, tmp_path: Path, kind: str
) -> None:
    directory = prepared.copied(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    paths = [pack.with_suffix(f".{kind}") for pack in packs(directory)]
    for path in paths:
        path.rename(elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)
    done = repaired(directory)
    assert (done.n_indexes + done.n_packs, done.lost) == (len(paths), ())
    shutil.rmtree(elsewhere)
    assert assert_usable(directory, prepared, done) == prepared.entries


def test_a_pack_of_which_only_the_checksum_is_damaged_loses_nothing(
    prepared: Prepared, tmp_path: Path
) -> None:
    directory = prepared.copied(tmp_path)
    for pack in packs(directory):
        flip(pack, 1 - 1 / pack.stat().st_size)
    done = repaired(directory)
    assert (done.n_packs, done.lost) == (len(packs(directory)), ())
    assert assert_usable(directory, prepared, done) == prepared.entries


_FULL = """
import os, random, sys
from pathlib import Path
from test_workspace_repair import *
from wink_workspace.errors import WinkError

here, most = Path(sys.argv[1]), int(sys.argv[2])
def fill(free):
    with (here / "filler").open("wb", buffering=0) as filler:
        try:
            while filler.write(b"x" * 4_096):
                pass
        except OSError:
            filler.truncate(max(0, filler.tell() - free))
with made(here, {f"{n}": b"%d" % n * 99 for n in range(40)}, mode="copy") as workspace:
    for n in range(4):
        with workspace.call(f"{n}"):
            workspace.files.write_bytes("new", random.Random(n).randbytes(40_000))
    entries = [*workspace.log()]
pack = max(packs(here), key=lambda each: each.stat().st_mtime_ns)
lose(here, entries[2].id)
readable = len(ObjectCheck(Ledger(folder(here).ledger).store).readable_entries())
n_full = 0
for free in range(0, most, 12_288):
    fill(free)
    try:
        done = repaired(here)
    except WinkError as error:
        assert "No space left" in str(error), error
        n_full += 1
        left = ObjectCheck(Ledger(folder(here).ledger).store).readable_entries()
        assert len(left) >= readable
    else:
        break
assert n_full
(here / "filler").unlink()
again = repaired(here)
with reopened(here) as workspace:
    assert [*workspace.log()] == entries[:2], [*workspace.log()]
    assert workspace.files.read_bytes("new")
    assert workspace.maintain().ran
print(n_full, done)
"""


def test_a_repair_on_a_full_disk_takes_nothing_and_works_once_there_is_space(
    tmp_path: Path,
) -> None:
    done = on_a_small_disk(tmp_path, _FULL, "1000000")
    assert done.returncode == 0, done.stderr
