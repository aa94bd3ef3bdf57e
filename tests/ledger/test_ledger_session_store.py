"""STATE slices in the ledger: changed chunks are written, and all are read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path

import pytest
from ledger_support import call, imported, new_ledger, stored, tree

from wink_workspace import serde
from wink_workspace.errors import (
    LedgerDamagedError,
    SessionError,
    SnapshotError,
    SnapshotVersionError,
)
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    Ledger,
    Retention,
    SessionStore,
    build,
    entry_at,
    walk,
)
from wink_workspace.session import ChunkedMap, ReplaceAt, Session, SliceKind, SliceWritten


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Plan:
    title: str
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opaque:
    value: object


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path) as ledger:
        yield ledger


def declaring(*types: type) -> Session:
    session = Session()
    for slice_type in types:
        session[slice_type].declare()
    return session


def filled(n_notes: int = 200) -> Session:
    session = declaring(Note, Plan)
    session[Note].seed([Note(f"note {n}\n") for n in range(n_notes)])
    session[Plan].seed(Plan("caf\u00e9", ("one", "two")))
    return session


def cost(ledger: Ledger, store: SessionStore, session: Session) -> int:
    before = ledger.store.n_written
    store.write(session)
    return ledger.store.n_written - before


@pytest.mark.behaviour(35)
def test_written_state_is_read_back(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session = declaring(Note, Plan)
    assert SessionStore(ledger.store).load(session, root) == ()
    assert session.dump_state() == filled().dump_state()


def test_values_are_lines_of_json_that_plain_git_shows(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    names = [str(path) for path, _ in walk(ledger.store, root)]
    assert names[:3] == ["schema", f"{__name__}:Note", f"{__name__}:Note/00000000"]
    plan = entry_at(ledger.store, root, WorkspacePath((f"{__name__}:Plan", "00000000")))
    assert (
        ledger.store.read(plan.id) == '{"title": "caf\u00e9", "steps": ["one", "two"]}\n'.encode()
    )


def test_the_same_state_gives_the_same_root_in_any_order_of_writes(ledger) -> None:
    session = filled(100)
    store = SessionStore(ledger.store)
    store.write(session)
    for n in range(100, 200):
        session[Note].append(Note(f"note {n}\n"))
        store.write(session)
    assert store.write(session) == SessionStore(ledger.store).write(filled(200))


@pytest.mark.behaviour(66)
def test_only_the_chunks_that_changed_are_written(ledger) -> None:
    session, store = filled(), SessionStore(ledger.store)
    store.write(session)
    assert cost(ledger, store, session) == 0
    session[Note].append(Note("one more"))
    above = 1 + 1  # the slice's directory and the root
    assert cost(ledger, store, session) == 1 + above
    session.dispatch(SliceWritten(Note, ReplaceAt(70, Note("changed"))))
    assert cost(ledger, store, session) == 1 + above
    session[Note].clear()
    assert cost(ledger, store, session) == above - 1


def test_an_unchanged_value_is_not_encoded_again(ledger, monkeypatch) -> None:
    session, store = filled(64 + 10), SessionStore(ledger.store)
    store.write(session)
    dumped = []
    original = serde.dump_json
    monkeypatch.setattr(serde, "dump_json", lambda value: dumped.append(value) or original(value))
    session[Note].append(Note("new"))
    store.write(session)
    assert dumped == [Note("new")]


def test_a_rolled_back_state_costs_nothing(ledger) -> None:
    session, store = filled(), SessionStore(ledger.store)
    before = store.write(session)
    token = session.snapshot()
    session[Note].append(Note("of a failed call"))
    session.restore(token)
    assert (store.write(session), cost(ledger, store, session)) == (before, 0)


def test_after_a_load_only_changes_are_written(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = declaring(Note, Plan), SessionStore(ledger.store)
    store.load(session, root)
    assert (store.write(session), cost(ledger, store, session)) == (root, 0)
    session[Note].append(Note("one more"))
    assert cost(ledger, store, session) == 4


def test_log_slices_are_not_written(ledger) -> None:
    session = filled()
    session[Opaque].declare(kind=SliceKind.LOG)
    session[Opaque].append(Opaque(object()))
    assert SessionStore(ledger.store).write(session) == SessionStore(ledger.store).write(filled())


# Maps, and many values


@dataclass(frozen=True)
class Seen:
    title: str
    files: Mapping[str, str] = field(default_factory=ChunkedMap)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", ChunkedMap(self.files))


def seen(n_files: int) -> Session:
    session = declaring(Seen)
    files = {f"src/caf\u00e9_{n}.py": f"{n:040x}" for n in range(n_files)}
    session[Seen].seed(Seen("mine", ChunkedMap(files)))
    return session


def see(session: Session, path: str, content: str) -> None:
    value = session[Seen].latest()
    session[Seen].seed(replace(value, files=value.files.updated({path: content})))


@pytest.mark.behaviour(66)
def test_a_change_of_a_map_writes_as_many_objects_with_100_and_2_000_keys(ledger) -> None:
    costs = []
    for n_files in (100, 2_000):
        session, store = seen(n_files), SessionStore(ledger.store)
        store.write(session)
        see(session, "new.py", "1")
        n_bytes = ledger.store.written_bytes
        n_objects = cost(ledger, store, session)
        costs.append(n_objects)
        assert ledger.store.written_bytes - n_bytes < 8_192
    # one part, the map's directory, the slice's directory and the root
    assert costs == [4, 4]


@pytest.mark.parametrize("n_files", [0, 1, 64, 65, 3_000])
def test_a_map_is_read_back_and_then_only_changes_are_written(ledger, n_files) -> None:
    written = seen(n_files)
    root = SessionStore(ledger.store).write(written)
    session, store = declaring(Seen), SessionStore(ledger.store)
    store.load(session, root)
    assert session[Seen].all() == written[Seen].all()
    assert (store.write(session), cost(ledger, store, session)) == (root, 0)
    see(session, "new.py", "1")
    see(written, "new.py", "1")
    assert store.write(session) == SessionStore(ledger.store).write(written)


def test_a_map_is_shown_by_plain_git_with_one_key_a_line(ledger) -> None:
    root = SessionStore(ledger.store).write(seen(1))
    value, files = (
        ledger.store.read(
            entry_at(ledger.store, root, WorkspacePath((f"{__name__}:Seen", name))).id
        )
        for name in ("00000000", "files.map")
    )
    assert value == b'{"title": "mine", "files": {}}\n'
    assert files == f'"src/caf\u00e9_0.py": "{0:040x}"\n'.encode()


def test_state_of_the_version_before_is_read_and_written_in_the_new_form(ledger) -> None:
    session, store = declaring(Seen, Note), SessionStore(ledger.store)
    value = json.dumps({"title": "mine", "files": {"a.py": "1", "b.py": "2"}})
    notes = [json.dumps({"text": f"{n}"}) for n in range(70 * 64)]
    flat = {
        f"{__name__}:Note/{n:08x}": "".join(f"{each}\n" for each in notes[n * 64 : n * 64 + 64])
        for n in range(70)
    }
    old = {"schema": "1\n", f"{__name__}:Seen/00000000": f"{value}\n", **flat}
    root = tree(ledger.store, {path: text.encode() for path, text in old.items()})
    store.load(session, root)
    assert session[Seen].all() == (Seen("mine", {"a.py": "1", "b.py": "2"}),)
    assert [note.text for note in session[Note].all()] == [f"{n}" for n in range(70 * 64)]
    assert store.write(session) == root
    see(session, "c.py", "3")
    session[Note].append(Note("new"))
    again = declaring(Seen, Note)
    SessionStore(ledger.store).load(again, store.write(session))
    assert again.dump_state() == session.dump_state()
    assert store.write(session) == SessionStore(ledger.store).write(again)


@pytest.mark.behaviour(66)
def test_a_value_is_appended_to_10_000_at_the_cost_of_one_directory_more(ledger) -> None:
    session, store = filled(10_000), SessionStore(ledger.store)
    root = store.write(session)
    n_bytes = ledger.store.written_bytes
    session[Note].append(Note("new"))
    assert cost(ledger, store, session) == 4
    assert ledger.store.written_bytes - n_bytes < 8_192
    loaded, store = declaring(Note, Plan), SessionStore(ledger.store)
    store.load(loaded, root)
    assert loaded.dump_state() == filled(10_000).dump_state()
    loaded[Note].append(Note("new"))
    n_written = ledger.store.n_written
    assert store.write(loaded) == SessionStore(ledger.store).write(session)
    assert n_written


def damaged(ledger: Ledger, root: str, **changes: bytes) -> str:
    """The STATE *root* with other files in the map of ``Seen``."""
    entries = {}
    for name, content in changes.items():
        path = WorkspacePath((f"{__name__}:Seen", "files.map", *name.split("_")[1:]))
        entries[path] = stored(ledger.store, content)
    return build(ledger.store, root, entries)


@pytest.mark.parametrize(
    "changes",
    [
        {"part_00": b""},
        {"part_00": b'"other.py": "1"\n'},
        {"part_40": b'"other.py": "1"\n'},
        {"part_00_01": b'"other.py": "1"\n'},
        {"part": b'"other.py": "1"\n"other.py": "2"\n'},
        {"part": b'"z.py": "1"\n"a.py": "2"\n'},
        {"part": b'"z.py":"1"\n'},
    ],
    ids=["empty", "wrong key", "surplus", "divided", "twice", "order", "spelling"],
)
def test_a_damaged_map_is_refused_and_changes_nothing(ledger, changes) -> None:
    root = damaged(ledger, SessionStore(ledger.store).write(seen(100)), **changes)
    session = seen(3)
    with pytest.raises(LedgerDamagedError):
        SessionStore(ledger.store).load(session, root)
    assert session.dump_state() == seen(3).dump_state()


# Slices that the session has not declared


def test_an_unknown_slice_is_reported_and_kept(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = declaring(Note), SessionStore(ledger.store)
    assert store.load(session, root) == (f"{__name__}:Plan",) == store.unknown
    assert store.write(session) == root
    session[Note].append(Note("more"))
    again = declaring(Plan)
    SessionStore(ledger.store).load(again, store.write(session))
    assert again[Plan].all() == filled()[Plan].all()


def test_a_slice_that_is_declared_later_is_loaded_then(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = declaring(Note), SessionStore(ledger.store)
    store.load(session, root)
    assert store.adopt(session) == ()
    session[Plan].declare()
    assert store.adopt(session) == (f"{__name__}:Plan",)
    assert session.dump_state() == filled().dump_state()
    assert (store.unknown, store.write(session)) == ((), root)


def test_a_slice_with_values_of_its_own_keeps_them_when_it_is_adopted(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = declaring(Note), SessionStore(ledger.store)
    store.load(session, root)
    session[Plan].seed(Plan("mine"))
    assert store.adopt(session) == ()
    assert session[Plan].all() == (Plan("mine"),)
    store.write(session)
    assert store.unknown == ()


def test_a_class_named_in_the_ledger_is_never_imported(ledger) -> None:
    trap = tree(ledger.store, {"antigravity:main/00000000": b"{}\n", "schema": b"1\n"})
    assert SessionStore(ledger.store).load(declaring(), trap) == ("antigravity:main",)


# Errors


def test_another_schema_version_is_refused_and_changes_nothing(ledger) -> None:
    session, store = filled(), SessionStore(ledger.store)
    for root in (tree(ledger.store, {"schema": b"3\n"}), EMPTY_TREE_ID):
        with pytest.raises(SnapshotVersionError, match="schema version"):
            store.load(session, root)
    assert session.dump_state() == filled().dump_state()


def test_a_value_that_does_not_fit_its_class_is_refused_and_changes_nothing(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    path = WorkspacePath((f"{__name__}:Plan", "00000000"))
    bad = ledger.store.write_blob(b'{"titel": "x"}\n')
    entry = entry_at(ledger.store, root, path)
    root = build(ledger.store, root, {path: type(entry)(entry.kind, bad)})
    session = filled(3)
    with pytest.raises(SnapshotError, match="titel"):
        SessionStore(ledger.store).load(session, root)
    assert len(session[Note]) == 3


def test_a_value_without_json_form_names_its_slice(ledger) -> None:
    session = Session()
    session[Opaque].append(Opaque(object()))
    with pytest.raises(SessionError, match=r"Opaque' cannot be stored"):
        SessionStore(ledger.store).write(session)


def test_two_slices_of_one_name_are_refused(ledger) -> None:
    session = Session()
    for _ in range(2):
        slice_type = make_dataclass("SameName", [("n", int)], frozen=True)
        session[slice_type].append(slice_type(1))
    with pytest.raises(SessionError, match="two slices are called"):
        SessionStore(ledger.store).write(session)


def test_state_is_written_again_after_its_objects_were_deleted(ledger) -> None:
    """State that no commit refers to is deleted by maintenance, so it has to be written again."""
    session, store = filled(), SessionStore(ledger.store)
    root = store.write(session)
    with ledger.write() as writer:
        imported(writer, {})
        ledger.maintain(Retention())
        assert root not in ledger.store.repository
        entry = call(writer, EMPTY_TREE_ID, session=store.write(session))
    assert entry.session == root
    again = declaring(Note, Plan)
    SessionStore(ledger.store).load(again, root)
    assert again.dump_state() == session.dump_state()
