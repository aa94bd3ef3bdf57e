"""A branch: entries are appended, read back and found, and cannot be forged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ledger_support import (
    DIRECTORY,
    NOW,
    assert_clean,
    at,
    call,
    contents,
    git,
    imported,
    new_ledger,
    reopened,
    stored,
    tree,
)
from random_cases import examples

from wink_workspace.errors import (
    EntryMissingError,
    LedgerDamagedError,
    LedgerError,
    LedgerMovedError,
    UsageError,
)
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    BranchWriter,
    Draft,
    EntryKind,
    Ledger,
    LogEntry,
    Revertible,
    build,
)
from wink_workspace.ledger.entries.commits import Commit, format_commit
from wink_workspace.ledger.entries.history import skip_number
from wink_workspace.ledger.store.repository import GitRepository
from wink_workspace.session import (
    ExternalChange,
    Outcome,
    PolicyVerdict,
    ToolInvoked,
    WorkspaceRestored,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    with new_ledger(tmp_path) as ledger:
        yield ledger


def invoked(**fields: object) -> ToolInvoked:
    return replace(
        ToolInvoked(
            call_id="call-1",
            tool="write_file",
            prompt="p",
            params={"path": "a"},
            success=True,
            message="done",
            value=None,
            rendered_text="",
            text="done",
            outcome=Outcome.COMMITTED,
            started_at=NOW,
            duration_s=0.25,
            decisions=(PolicyVerdict(policy="reads", allowed=True, reason=""),),
        ),
        **fields,
    )


def writer_with_calls(ledger: Ledger, *texts: bytes) -> tuple:
    """A writer whose branch has an import and a call for each of *texts*, written to ``f``."""
    writer = ledger.write()
    imported(writer, {"f": b"0"})
    for n, text in enumerate(texts, 1):
        call(writer, tree(ledger.store, {"f": text}, writer.head.files), call_id=f"call-{n}")
    return writer, *reversed(list(writer.log()))


# Appending and reading


def test_an_entry_has_every_field_of_its_draft(ledger) -> None:
    with ledger.write() as writer:
        first = imported(writer, {})
        entry = writer.append(
            Draft(
                kind=EntryKind.CALL,
                subject="write_file a\nsecond line",
                files=tree(ledger.store, {"a": b"1"}),
                session=tree(ledger.store, {"s": b"2"}),
                record=invoked(),
                at=NOW + timedelta(seconds=1.5),
                tool="write_file",
                call_id="call-1",
                outcome=Outcome.COMMITTED,
            )
        )
    assert (first.number, first.parent, first.kind) == (1, None, EntryKind.IMPORT)
    assert (entry.number, entry.parent, entry.kind) == (2, first.id, EntryKind.CALL)
    assert (entry.tool, entry.call_id, entry.outcome) == ("write_file", "call-1", Outcome.COMMITTED)
    assert (entry.subject, entry.at) == ("write_file a second line", NOW + timedelta(seconds=1))
    assert contents(ledger.store, entry.files) == {"a": b"1"}
    assert contents(ledger.store, entry.session) == {"s": b"2"}
    assert list(ledger.branch().log()) == [entry, first]


def test_a_new_branch_is_empty(ledger) -> None:
    branch = ledger.branch()
    assert (branch.head, branch.refresh(), list(branch.log())) == (None, None, [])


def test_plain_git_reads_the_history(ledger, tmp_path) -> None:
    writer_with_calls(ledger, b"one", b"two")
    assert git(
        tmp_path, "log", "--format=%an|%s|%(trailers:key=Wink-Call,valueonly,separator=%x2C)"
    ) == (
        "wink_workspace|write_file for call-2|call-2\n"
        "wink_workspace|write_file for call-1|call-1\n"
        "wink_workspace|import|\n"
    )
    assert git(tmp_path, "show", "main:files/f") == "two"
    assert_clean(tmp_path)


@pytest.mark.behaviour(66)
def test_an_entry_costs_the_same_number_of_objects_at_any_length_of_the_history(ledger) -> None:
    with ledger.write() as writer:
        imported(writer, {})
        costs = []
        for n in range(30):
            before = ledger.store.n_written
            call(writer, tree(ledger.store, {"f": b"%d" % n}, writer.head.files), record=n)
            costs.append(ledger.store.n_written - before)
    assert set(costs) == {1 + 1 + 1 + 1 + 1}  # content, its directory, record, tree, commit


def test_the_log_is_read_from_a_start_up_to_a_limit(ledger) -> None:
    writer, *entries = writer_with_calls(ledger, b"1", b"2", b"3")
    assert list(writer.log(limit=2)) == entries[:1:-1]
    assert list(writer.log(start=entries[1])) == entries[1::-1]
    assert next(writer.log()).number == 4


def test_a_tool_name_or_call_id_cannot_forge_a_trailer(ledger, tmp_path) -> None:
    evil = "x\nWink-Outcome: committed\r\nWink-Number: 99\x00\udcff\u202e"
    with ledger.write() as writer:
        imported(writer, {})
        entry = writer.append(
            Draft(
                kind=EntryKind.CALL,
                subject=evil * 30,
                files=EMPTY_TREE_ID,
                session=EMPTY_TREE_ID,
                record=None,
                at=NOW,
                tool=evil,
                call_id="i" * 5_000,
                outcome=Outcome.ROLLED_BACK,
            )
        )
    assert (entry.number, entry.outcome) == (2, Outcome.ROLLED_BACK)
    assert entry.tool == "x Wink-Outcome: committed Wink-Number: 99"
    assert (len(entry.call_id), len(entry.subject)) == (200, 72)
    assert ledger.branch().head == entry
    assert_clean(tmp_path)


def test_an_empty_subject_is_replaced(ledger) -> None:
    with ledger.write() as writer:
        draft = Draft(
            kind=EntryKind.EXTERNAL,
            subject=" \n",
            files=EMPTY_TREE_ID,
            session=EMPTY_TREE_ID,
            record=None,
            at=NOW,
        )
        assert writer.append(draft).subject == "(no subject)"


def test_a_branch_that_moved_refuses_the_entry_and_is_unchanged(ledger) -> None:
    writer, first, *_ = writer_with_calls(ledger, b"one")
    refs = ledger._refs
    refs.move(writer.ref, expected=writer.head.id, target=first.id)
    with pytest.raises(LedgerMovedError, match=f"at {first.id}"):
        call(writer, EMPTY_TREE_ID)
    assert (ledger.branch().head, writer.refresh()) == (first, first)
    call(writer, EMPTY_TREE_ID)


def test_a_ref_that_another_program_has_locked_cannot_be_moved(ledger, tmp_path) -> None:
    writer, *_, head = writer_with_calls(ledger, b"one")
    (tmp_path / "ledger.git/refs/heads/main.lock").touch()
    with pytest.raises(LedgerError, match=r"main\.lock exists"):
        call(writer, EMPTY_TREE_ID)
    assert ledger.branch().head == head


def test_entries_are_appended_on_a_filesystem_without_hard_links(
    ledger, tmp_path, monkeypatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    writer, *_, head = writer_with_calls(ledger, b"one", b"two")
    assert ledger.branch().head == head == writer.head
    assert_clean(tmp_path)


def test_a_ref_lock_that_could_not_be_written_does_not_block_later_moves(
    ledger, monkeypatch
) -> None:
    writer, *_, head = writer_with_calls(ledger, b"one")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        for attempt in (lambda: call(writer, EMPTY_TREE_ID), lambda: ledger.fork("a", head)):
            with pytest.raises(LedgerError, match="No space left"):
                attempt()
    ledger.fork("a", head)
    assert call(writer, EMPTY_TREE_ID).parent == head.id


def test_packed_refs_are_read(ledger, tmp_path) -> None:
    writer, *_, head = writer_with_calls(ledger, b"one")
    git(tmp_path, "pack-refs", "--all")
    assert not (tmp_path / "ledger.git/refs/heads/main").exists()
    assert ledger.branch().head == head
    assert call(writer, EMPTY_TREE_ID).parent == head.id


# Finding


def test_entries_are_found_by_number_and_by_a_prefix_of_their_id(ledger) -> None:
    writer, *entries = writer_with_calls(ledger, b"1", b"2")
    for entry in entries:
        for which in (entry.number, str(entry.number), entry.id, entry.id[:12].upper()):
            assert writer.find(which) == entry


def test_an_entry_whose_id_begins_with_digits_is_found_by_them(ledger) -> None:
    writer, *_ = writer_with_calls(ledger)
    while not writer.head.id[:4].isdecimal():  # one id in seven, always the same
        call(writer, EMPTY_TREE_ID, call_id=writer.head.id)
    assert int(writer.head.id[:4]) > writer.head.number
    assert writer.find(writer.head.id[:4]) == writer.head


@pytest.mark.parametrize(
    "which", [0, 4, "17", pytest.param("9" * 5_000, id="digits"), "beef", "abc", "zzzz", ""]
)
def test_an_entry_that_does_not_exist_is_not_found(ledger, which) -> None:
    writer, *_ = writer_with_calls(ledger, b"1")
    with pytest.raises(EntryMissingError, match="no entry"):
        writer.find(which)


def test_an_ambiguous_id_is_refused(ledger) -> None:
    writer, *_ = writer_with_calls(ledger)
    seen: set[str] = set()
    while writer.head.id[:4] not in seen:  # some hundred entries, always the same
        seen.add(writer.head.id[:4])
        call(writer, EMPTY_TREE_ID, call_id=str(len(seen)))
    with pytest.raises(EntryMissingError, match="several entries"):
        writer.find(writer.head.id[:4])
    assert writer.find(writer.head.id[:12]) == writer.head


# Records


# Entries by number


def commits_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the commits that are read from now on."""
    read: list[str] = []
    real = GitRepository.read

    def reading(repository: GitRepository, object_id: str) -> tuple[str, bytes]:
        kind, content = real(repository, object_id)
        if kind == "commit":
            read.append(object_id)
        return kind, content

    monkeypatch.setattr(GitRepository, "read", reading)
    return read


def test_the_number_of_a_skip_follows_from_two_older_ones() -> None:
    """So the next one is known without reading."""
    assert [skip_number(n) for n in range(1, 12)] == [0, 1, 2, 1, 4, 5, 4, 1, 8, 9, 8]
    for number in range(3, 5_000):
        parent = number - 1
        assert skip_number(number) in (parent, skip_number(skip_number(parent)))


def test_any_of_many_entries_is_found_by_its_number_after_reading_a_few(
    ledger, monkeypatch
) -> None:
    with ledger.write() as writer:
        for n in range(1_000):
            call(writer, EMPTY_TREE_ID, call_id=f"call-{n}")
    branch = ledger.branch()
    entries = list(branch.log())
    read = commits_read(ledger, monkeypatch)
    for entry in entries:
        read.clear()
        assert branch.find(entry.number) == entry
        assert len(read) <= 24
    assert branch.at(0) is branch.at(1_001) is None
    assert branch.at(500, start=branch.find(499)) is None


def test_an_entry_is_appended_without_reading_others(ledger, monkeypatch) -> None:
    with ledger.write() as writer:
        read = commits_read(ledger, monkeypatch)
        for n in range(300):
            call(writer, EMPTY_TREE_ID, call_id=f"call-{n}")
        assert read == []
        writer.find(1)
        del read[:]
    with ledger.write() as writer:
        for n in range(300):
            call(writer, EMPTY_TREE_ID, call_id=f"call-{n}")
    assert len(read) <= 2 * 9  # some of the first session, each once
    assert len(set(read)) == len(read)


@given(
    n_old=st.integers(0, 30),
    runs=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    boundary=st.none() | st.integers(0, 120),
    fork_at=st.none() | st.integers(0, 120),
)
@settings(max_examples=examples(60), deadline=None)
@example(n_old=20, runs=[20, 20], boundary=25, fork_at=None)
@example(n_old=0, runs=[20, 20], boundary=30, fork_at=10)
@example(n_old=0, runs=[20, 20], boundary=10, fork_at=30)
def test_every_entry_that_is_kept_is_found_by_its_number_and_no_other(
    n_old: int, runs: list[int], boundary: int | None, fork_at: int | None
) -> None:
    """With entries of older versions, closed and opened again, cut by retention, on a fork."""
    with TemporaryDirectory() as directory, new_ledger(Path(directory)) as ledger:
        with ledger.write() as writer:
            for _ in range(n_old):
                with pytest.MonkeyPatch.context() as monkeypatch:
                    # Older versions wrote entries without skips
                    monkeypatch.setattr(writer, "_skips_after", lambda head: [])
                    call(writer, EMPTY_TREE_ID)
        for n_entries in runs:
            with ledger.write() as writer:
                for _ in range(n_entries):
                    call(writer, EMPTY_TREE_ID)
        main = ledger.branch()
        branch = main
        if fork_at is not None and fork_at < main.head.number:
            ledger.fork("other", main.find(fork_at + 1))
            with ledger.write("other") as writer:
                for _ in range(9):
                    call(writer, EMPTY_TREE_ID, call_id="fork")
            branch = ledger.branch("other")
        last = branch.head.number
        if boundary is not None and boundary < main.head.number:
            ledger.store.repository.set_boundary([main.find(boundary + 1).id])
        kept = {entry.number: entry for entry in branch.log()}
        assert {n: branch.at(n) for n in range(last + 2)} == {
            n: kept.get(n) for n in range(last + 2)
        }
        assert all(branch.kept(entry.id) == entry for entry in kept.values())


def test_a_skip_to_the_wrong_entry_is_damage(ledger) -> None:
    with ledger.write() as writer:
        entries = [call(writer, EMPTY_TREE_ID, call_id=f"call-{n}") for n in range(10)]
        writer._skips[0:2] = [writer._skips[0], (8, entries[3].id), (4, entries[3].id)]
        forged = [call(writer, EMPTY_TREE_ID) for _ in range(8)]
        assert any(entry.skip for entry in forged)
        with pytest.raises(LedgerDamagedError, match="is not number"):
            for n in range(1, 18):
                writer.find(n)


@dataclass(frozen=True)
class Receipt:
    path: str
    size: int


@pytest.mark.parametrize(
    "event",
    [
        invoked(
            params={"path": "a", "n": [1, None]}, value={"lines": ["x"]}, error="Trace", depth=2
        ),
        invoked(outcome=Outcome.UNKNOWN, message="caf\udce9", decisions=()),
        ExternalChange(paths=("a", "caf\udce9"), at=NOW),
        WorkspaceRestored(reason="undo", paths=(), at=NOW),
    ],
)
def test_a_log_event_is_read_back_unchanged(ledger, event) -> None:
    with ledger.write() as writer:
        record = writer.record(call(writer, EMPTY_TREE_ID, record=event))
    assert (record.event, record.type) == (event, type(event).__name__)


def test_parameters_and_values_are_read_back_as_plain_json(ledger) -> None:
    with ledger.write() as writer:
        event = invoked(params=Receipt("a", 1), value=(Receipt("b", 2),))
        found = writer.record(call(writer, EMPTY_TREE_ID, record=event)).event
    assert found.params == {"path": "a", "size": 1}
    assert found.value == [{"path": "b", "size": 2}]


def test_any_other_record_is_kept_with_the_name_of_its_type(ledger) -> None:
    with ledger.write() as writer:
        record = writer.record(call(writer, EMPTY_TREE_ID, record=Receipt("a", 1)))
    assert (record.type, record.data, record.event) == ("Receipt", {"path": "a", "size": 1}, None)


def test_a_value_without_json_form_does_not_stop_the_record(ledger) -> None:
    with ledger.write() as writer:
        event = invoked(value=[object()], params={"kept": True})
        found = writer.record(call(writer, EMPTY_TREE_ID, record=event)).event
    assert found.params == {"kept": True}
    assert "object object" in found.value["repr"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"schema": 2, "type": "x", "data": 1}',
        b'{"schema": 1, "type": "ToolInvoked", "data": {}}',
    ],
)
def test_a_malformed_record_is_damage(ledger, text) -> None:
    with ledger.write() as writer:
        entry = replace(imported(writer, {}), record_id=ledger.store.write_blob(text))
        with pytest.raises(LedgerDamagedError, match="record"):
            writer.record(entry)


def test_a_commit_that_is_not_an_entry_is_damage(ledger) -> None:
    store = ledger.store
    other = store.write(
        "commit",
        b"tree %s\nauthor a <b> 0 +0000\ncommitter a <b> 0 +0000\n\nx\n" % EMPTY_TREE_ID.encode(),
    )
    refs = ledger._refs
    refs.move("refs/heads/main", expected=None, target=other)
    with pytest.raises(LedgerDamagedError, match="is not an entry"):
        ledger.branch()
    without_files = commit_without_files(ledger, Kind="call", Number="1")
    refs.move("refs/heads/main", expected=other, target=without_files)
    with pytest.raises(LedgerDamagedError, match="is not an entry"):
        ledger.branch()
    for content in (b"", b"x" * 50):
        wrong = store.write("commit", content)
        refs.move("refs/heads/main", expected=store.repository.ref("refs/heads/main"), target=wrong)
        with pytest.raises(LedgerDamagedError, match="is not a commit"):
            ledger.branch()


# Undo and redo


def test_undoing_an_entry_reverts_its_changes_and_keeps_later_ones(ledger) -> None:
    with ledger.write() as writer:
        imported(writer, {"a": b"1\n2\n3\n4\n5\n", "b": b"b"})
        target = call(
            writer, tree(ledger.store, {"a": b"ONE\n2\n3\n4\n5\n", "new": b"n"}, writer.head.files)
        )
        call(
            writer, tree(ledger.store, {"a": b"ONE\n2\n3\n4\nFIVE\n", "b": b"B"}, writer.head.files)
        )
        reverted = writer.reverted(target)
    assert contents(ledger.store, reverted.files.tree) == {"a": b"1\n2\n3\n4\nFIVE\n", "b": b"B"}
    assert reverted.files.conflicts == ()
    assert ledger.branch().head.number == 3  # nothing was changed


def test_an_undo_that_is_undone_gives_the_same_files_again(ledger) -> None:
    writer, _, target = writer_with_calls(ledger, b"one")
    undone = writer.reverted(target).files.tree
    undo = writer.append(step(EntryKind.UNDO, undone, target))
    assert contents(ledger.store, undone) == {"f": b"0"}
    assert writer.reverted(undo).files.tree == target.files


def test_later_changes_of_the_same_lines_are_a_conflict(ledger) -> None:
    writer, _, target, _ = writer_with_calls(ledger, b"one", b"two")
    reverted = writer.reverted(target)
    assert reverted.files.tree is None
    assert [str(conflict) for conflict in reverted.files.conflicts] == [
        "f was changed since, in the same lines"
    ]


def test_the_first_entry_cannot_be_undone(ledger) -> None:
    writer, first = writer_with_calls(ledger)
    with pytest.raises(EntryMissingError, match="no entry before entry 1"):
        writer.reverted(first)


def step(kind: EntryKind, files: str, target) -> Draft:
    return Draft(
        kind=kind,
        subject=f"{kind} {target.number}",
        files=files,
        session=EMPTY_TREE_ID,
        record=None,
        at=NOW,
        target=target.number,
    )


@pytest.mark.behaviour(84)
def test_what_can_be_undone_and_redone_follows_from_the_history(ledger) -> None:
    writer, _, one, two = writer_with_calls(ledger, b"one", b"two")
    assert [found.entry for found in writer._in_force()] == [two, one]
    undo_two = writer.append(step(EntryKind.UNDO, one.files, two))
    undo_one = writer.append(step(EntryKind.UNDO, one.files, one))
    assert ([found.entry for found in writer._in_force()], list(writer.undone())) == (
        [],
        [undo_one, undo_two],
    )
    writer.append(step(EntryKind.REDO, one.files, one))
    assert ([found.entry for found in writer._in_force()], list(writer.undone())) == (
        [one],
        [undo_two],
    )
    three = call(writer, EMPTY_TREE_ID, call_id="three")
    call(writer, EMPTY_TREE_ID, call_id="failed", outcome=Outcome.ROLLED_BACK)
    assert ([found.entry for found in writer._in_force()], list(writer.undone())) == (
        [three, one],
        [undo_two],
    )


def changed(entry: LogEntry) -> bool:
    return entry.call_id != "reads"


def found_by_a_plain_walk(writer: BranchWriter) -> tuple[LogEntry | None, LogEntry | None]:
    """What to undo and what to redo, from every entry that is kept."""
    newest: dict[int | None, LogEntry] = {}
    to_undo = to_redo = None
    for entry in writer.log():
        if entry.kind in (EntryKind.UNDO, EntryKind.REDO):
            is_newest = newest.setdefault(entry.target, entry) is entry
            if is_newest and entry.kind is EntryKind.UNDO:
                to_redo = to_redo or entry
        elif changed(entry) and (
            entry.outcome is Outcome.COMMITTED or entry.kind is EntryKind.RESTORE
        ):
            last = newest.get(entry.number)
            if last is None or last.kind is EntryKind.REDO:
                to_undo = to_undo or entry
    return to_undo, to_redo


def named(writer: BranchWriter) -> Revertible | None:
    """The entry in the middle of all that can be undone by name, those refused by ``changed``, too."""
    found: list[Revertible] = []
    for entry in writer.log():
        with suppress(EntryMissingError):
            found.append(writer.to_undo_named(entry))
    return found[len(found) // 2] if found else None


STEPS = st.sampled_from(
    [
        *("call", "read", "restore", "undo", "undo", "redo"),
        *("undo named", "undo as in older versions"),
    ]
)


@given(st.lists(STEPS, max_size=40), st.integers(0, 60))
@settings(max_examples=examples(60), deadline=None)
@example(["call"] * 3 + ["undo"] * 3 + ["redo", "call", "redo", "undo", "undo", "undo"], 60)
@example(["call"] * 4 + (["undo"] * 4 + ["redo"] * 4) * 2 + ["undo"] * 3, 60)
@example(["call", "read"] * 5 + ["undo"] * 5 + ["redo"] * 2, 12)
def test_undo_and_redo_find_the_same_entries_as_a_walk_of_the_whole_history(
    steps: list[str], forgotten_at: int
) -> None:
    with TemporaryDirectory() as directory, new_ledger(Path(directory)) as ledger:
        writer, _ = writer_with_calls(ledger)
        for n, name in enumerate(steps):
            undo, redo = writer.to_undo(changed), writer.to_redo()
            found = (undo and undo.entry, redo and redo.entry)
            assert found == found_by_a_plain_walk(writer)
            chosen = {"redo": redo, "undo named": named(writer)}.get(name, undo)
            if name == "restore":
                writer.append(step(EntryKind.RESTORE, EMPTY_TREE_ID, writer.head))
            elif name in ("call", "read"):
                call(writer, EMPTY_TREE_ID, call_id="reads" if name == "read" else "writes")
            elif chosen is not None:
                kind = EntryKind.REDO if name == "redo" else EntryKind.UNDO
                target = chosen.entry.number if kind is EntryKind.UNDO else chosen.entry.target
                known = "" if name.endswith("versions") else chosen.continue_at
                draft = step(kind, EMPTY_TREE_ID, chosen.entry)
                writer.append(replace(draft, target=target, continue_at=known))
            if n == forgotten_at:
                *_, end = writer.log(limit=n // 3 + 1)
                ledger.store.repository.set_boundary([end.id])


# Forks and discards


def test_a_fork_has_the_history_up_to_its_base_and_then_its_own(ledger) -> None:
    writer, first, one, two = writer_with_calls(ledger, b"one", b"two")
    fork = ledger.fork("try-2", one)
    assert (list(fork.log()), ledger.forks()) == ([one, first], ("try-2",))
    with ledger.write("try-2") as other:
        entry = call(other, EMPTY_TREE_ID, call_id="in the fork")
    assert (entry.number, entry.parent) == (3, one.id)
    assert writer.refresh() == two


@pytest.mark.parametrize(
    "name", ["", "main", "a/b", "../x", ".x", "x.", "a..b", "x.lock", "-x", "a b", "x" * 65, "é"]
)
def test_an_invalid_name_of_a_fork_is_refused(ledger, name) -> None:
    _, first = writer_with_calls(ledger)
    with pytest.raises(UsageError):
        ledger.fork(name, first)


def test_an_existing_fork_cannot_be_made_and_a_missing_one_cannot_be_opened(ledger) -> None:
    _, first = writer_with_calls(ledger)
    ledger.fork("a", first)
    with pytest.raises(UsageError, match="the branch 'a' exists already"):
        ledger.fork("a", first)
    with pytest.raises(EntryMissingError, match="The forks are: a"):
        ledger.branch("b")
    with pytest.raises(UsageError, match="main branch cannot be deleted"):
        ledger.delete_fork("main")
    with ledger.write("a") as writer:
        writer.begin("never finished", "shell", NOW)
    ledger.delete_fork("a")
    assert ledger.forks() == ()
    ledger.fork("a", first)
    with ledger.write("a") as writer:
        assert writer.pending() is None


def test_discarded_files_are_kept_under_a_ref(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        imported(writer, {})
        lost = tree(ledger.store, {"draft": b"precious", "empty": DIRECTORY})
        first = writer.discard(lost, reason="rolled back", call_id="toolu/../~x", at=NOW)
        later = writer.discard(lost, reason="undo", call_id="", at=NOW + timedelta(1))
    assert first.ref == "refs/wink/discarded/20250101T000000.000000Z-toolu%2F%2E%2E%2F%7Ex"
    assert later.ref.endswith("-unknown")
    assert ledger.discarded() == (later, first)
    assert (first.reason, first.call_id, first.number) == ("rolled back", "toolu/../~x", 1)
    assert contents(ledger.store, first.files) == {"draft": b"precious", "empty": DIRECTORY}
    assert git(tmp_path, "show", f"{first.ref}:files/draft") == "precious"
    assert_clean(tmp_path)


def test_discarding_the_same_files_again_keeps_them_once_beside_other_files(ledger) -> None:
    with ledger.write() as writer:
        one, two = tree(ledger.store, {"f": b"1"}), tree(ledger.store, {"f": b"2"})
        refs = [
            writer.discard(files, reason="crash", call_id="c", at=NOW).ref
            for files in (one, one, two, two, one)
        ]
    assert refs == [refs[0], refs[0], refs[0] + "-2", refs[0] + "-2", refs[0]]


def test_a_discarded_ref_without_files_is_damage(ledger) -> None:
    ledger.store.sync()
    ledger._refs.move("refs/wink/discarded/x", expected=None, target=commit_without_files(ledger))
    with pytest.raises(LedgerDamagedError, match="refs/wink/discarded/x is not a discard"):
        ledger.discarded()


def commit_without_files(ledger: Ledger, **trailers: str) -> str:
    root = tree(ledger.store, {"x": b""})
    return ledger.store.write("commit", format_commit(Commit(root, None, NOW, "x", trailers)))


# Opening


def test_a_ledger_is_created_once_and_opened_only_where_it_exists(tmp_path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, {"a": b"1"})
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(tmp_path / "ledger.git")
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(tmp_path)
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger.create(tmp_path / "missing" / "ledger.git")
    with reopened(tmp_path) as ledger:
        assert contents(ledger.store, ledger.branch().head.files) == {"a": b"1"}


def test_leftovers_of_a_killed_creation_do_not_block_a_new_ledger(tmp_path) -> None:
    (tmp_path / "ledger.git.new" / "objects").mkdir(parents=True)
    with new_ledger(tmp_path) as ledger:
        assert ledger.branch().head is None
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.git"]
    assert (tmp_path / "ledger.git").stat().st_mode & 0o077 == 0


def test_call_json_is_json(ledger, tmp_path) -> None:
    with ledger.write() as writer:
        call(
            writer,
            build(ledger.store, EMPTY_TREE_ID, {at("a"): stored(ledger.store, b"")}),
            record=invoked(),
        )
    assert json.loads(git(tmp_path, "show", "main:call.json"))["data"]["tool"] == "write_file"


def test_a_durable_commit_has_everything_on_the_device_before_the_ref_names_it(
    tmp_path, monkeypatch
):
    """The order of syncs: mark, pack, objects and their rows, value and name of the ref."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()).removeprefix(str(tmp_path)))
        real(fd)

    with new_ledger(tmp_path, durable=True) as ledger, ledger.write() as writer:
        monkeypatch.setattr(os, "fsync", fsync)
        writer.begin("call-1", "write_file", NOW)
        marked, synced[:] = list(synced), []
        with ledger.store.bulk():
            root = tree(ledger.store, {"a": b"1"})
        packed, synced[:] = list(synced), []
        entry = call(writer, root)
    assert marked == [f"/ledger.git/wink/lines/main{name}" for name in ("/pending.new", "")]
    assert [Path(path).suffix for path in packed] == [".pack", ".idx", ""]
    assert packed[-1] == "/ledger.git/objects/pack"
    directory, *objects, value, names = synced[: synced.index("/ledger.git/refs/heads") + 1]
    assert entry.number == 1
    assert directory == "/ledger.git/wink/open"
    assert [Path(path).suffix for path in objects] == [".pack", ".rows"]
    assert "spare" in value
    assert names == "/ledger.git/refs/heads"
    assert "fsync" not in (tmp_path / "ledger.git/config").read_text()


@pytest.mark.parametrize("durable", [False, True])
def test_packs_written_by_libgit2_are_synced(tmp_path, monkeypatch, durable):
    synced: set[str] = set()
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    with new_ledger(tmp_path, durable=durable) as ledger:
        blobs = [ledger.store.write_blob(b"%d" % n) for n in range(9)]
        ledger.store.open_packs.seal()
        before = set((tmp_path / "ledger.git/objects").glob("pack/pack-*"))
        monkeypatch.setattr(os, "fsync", fsync)
        ledger.store.repository.pack(blobs)
        packed = set((tmp_path / "ledger.git/objects").glob("pack/pack-*")) - before
        monkeypatch.undo()
    written = {*packed, *(path.parent for path in packed)}
    assert len(written) == 3
    assert synced == {str(path) for path in written}


def test_a_sync_that_fails_after_the_ref_moved_does_not_fail_the_commit(tmp_path, monkeypatch):
    """The call must not be rolled back: the history has it as committed."""
    with new_ledger(tmp_path, durable=True) as ledger, ledger.write() as writer:
        real = os.fsync

        def fsync(fd: int) -> None:
            if str(Path(f"/proc/self/fd/{fd}").readlink()).endswith("refs/heads"):
                raise OSError(5, "Input/output error")
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)
        entry = imported(writer, {"a": b"1"})
        assert ledger.branch().head == entry == writer.head


def test_refs_can_be_listed_while_another_process_deletes_forks(ledger: Ledger) -> None:
    """A reader sees each ref or not, and never reports damage."""
    with ledger.write() as writer:
        head = imported(writer, {"a": b"1"})
    ledger.fork("stays", head)
    directory = ledger.store.repository.directory
    script = (
        "import itertools, os, pathlib, sys\n"
        "folder = pathlib.Path(sys.argv[1], 'refs/wink/forks')\n"
        "print('ready', flush=True)\n"
        "for n in itertools.count():\n"
        "    path = folder / f'fork-{n % 20}'\n"
        "    new = pathlib.Path(sys.argv[1], 'new-ref')\n"
        "    new.write_text(sys.argv[2] + chr(10))\n"
        "    new.rename(path)\n"
        "    path.unlink()\n"
    )
    command = [sys.executable, "-c", script, str(directory), head.id]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            for _ in range(300):
                assert "stays" in ledger.forks()
        finally:
            process.kill()
