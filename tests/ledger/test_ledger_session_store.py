"""A session's STATE in the ledger: written in chunks, only what changed, and read back."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from pathlib import Path

import pytest
from ledger_support import call, imported, made, tree

from wink_workspace import serde
from wink_workspace.errors import SessionError, SnapshotError, SnapshotVersionError
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
from wink_workspace.session import ReplaceAt, Session, SliceKind, SliceWritten


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
    with made(tmp_path) as ledger:
        yield ledger


def knowing(*types: type) -> Session:
    session = Session()
    for slice_type in types:
        session[slice_type].declare()
    return session


def filled(n_notes: int = 200) -> Session:
    session = knowing(Note, Plan)
    session[Note].seed([Note(f"note {n}\n") for n in range(n_notes)])
    session[Plan].seed(Plan("caf\u00e9", ("one", "two")))
    return session


def cost(ledger: Ledger, store: SessionStore, session: Session) -> int:
    before = ledger.store.n_written
    store.write(session)
    return ledger.store.n_written - before


@pytest.mark.behaviour(35)
def test_what_was_written_is_read_back(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session = knowing(Note, Plan)
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


def test_the_same_state_gives_the_same_root_whatever_way_it_came_about(ledger) -> None:
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


def test_a_value_that_stays_is_not_turned_into_json_again(ledger, monkeypatch) -> None:
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


def test_writing_goes_on_from_what_was_loaded(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = knowing(Note, Plan), SessionStore(ledger.store)
    store.load(session, root)
    assert (store.write(session), cost(ledger, store, session)) == (root, 0)
    session[Note].append(Note("one more"))
    assert cost(ledger, store, session) == 4


def test_log_slices_are_not_kept(ledger) -> None:
    session = filled()
    session[Opaque].declare(kind=SliceKind.LOG)
    session[Opaque].append(Opaque(object()))
    assert SessionStore(ledger.store).write(session) == SessionStore(ledger.store).write(filled())


# What the session does not know


def test_an_unknown_slice_is_reported_and_kept(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = knowing(Note), SessionStore(ledger.store)
    assert store.load(session, root) == (f"{__name__}:Plan",) == store.unknown
    assert store.write(session) == root
    session[Note].append(Note("more"))
    again = knowing(Plan)
    SessionStore(ledger.store).load(again, store.write(session))
    assert again[Plan].all() == filled()[Plan].all()


def test_a_slice_that_becomes_known_later_is_given_to_the_session(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = knowing(Note), SessionStore(ledger.store)
    store.load(session, root)
    assert store.adopt(session) == ()
    session[Plan].declare()
    assert store.adopt(session) == (f"{__name__}:Plan",)
    assert session.dump_state() == filled().dump_state()
    assert (store.unknown, store.write(session)) == ((), root)


def test_a_slice_that_has_values_of_its_own_by_then_keeps_those(ledger) -> None:
    root = SessionStore(ledger.store).write(filled())
    session, store = knowing(Note), SessionStore(ledger.store)
    store.load(session, root)
    session[Plan].seed(Plan("mine"))
    assert store.adopt(session) == ()
    assert session[Plan].all() == (Plan("mine"),)
    store.write(session)
    assert store.unknown == ()


def test_a_class_is_never_imported_on_the_word_of_the_ledger(ledger) -> None:
    trap = tree(ledger.store, {"antigravity:main/00000000": b"{}\n", "schema": b"1\n"})
    assert SessionStore(ledger.store).load(knowing(), trap) == ("antigravity:main",)


# What cannot be


def test_another_schema_version_is_refused_and_changes_nothing(ledger) -> None:
    session, store = filled(), SessionStore(ledger.store)
    for root in (tree(ledger.store, {"schema": b"2\n"}), EMPTY_TREE_ID):
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
    with pytest.raises(SessionError, match=r"Opaque' cannot be kept"):
        SessionStore(ledger.store).write(session)


def test_two_slices_of_one_name_are_refused(ledger) -> None:
    session = Session()
    for _ in range(2):
        twin = make_dataclass("Twin", [("n", int)], frozen=True)
        session[twin].append(twin(1))
    with pytest.raises(SessionError, match="two slices are called"):
        SessionStore(ledger.store).write(session)


def test_nothing_is_taken_for_written_after_objects_were_deleted(ledger) -> None:
    """State that no commit refers to is deleted by maintenance, so it has to be written again."""
    session, store = filled(), SessionStore(ledger.store)
    root = store.write(session)
    with ledger.write() as writer:
        imported(writer, {})
        ledger.maintain(Retention())
        assert root not in ledger.store.repository
        entry = call(writer, EMPTY_TREE_ID, session=store.write(session))
    assert entry.session == root
    again = knowing(Note, Plan)
    SessionStore(ledger.store).load(again, root)
    assert again.dump_state() == session.dump_state()
