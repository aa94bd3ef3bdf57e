"""Slices: a persistent vector behaves as a list, and shares unchanged values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.errors import UsageError
from wink_workspace.session import (
    CHUNK_VALUES,
    Append,
    Clear,
    Replace,
    ReplaceAt,
    Session,
    SliceOp,
    SliceView,
)


@dataclass(frozen=True, slots=True)
class Note:
    text: str


@dataclass(frozen=True, slots=True)
class LongNote(Note):
    more: str = ""


@dataclass(slots=True)
class Mutable:
    text: str


notes = st.builds(Note, st.text(max_size=3))
operations: st.SearchStrategy[SliceOp[Note]] = st.one_of(
    st.lists(notes, max_size=5).map(lambda values: Append(*values)),
    st.lists(notes, max_size=40).map(Replace),
    st.builds(ReplaceAt, st.integers(0, 50), notes),
    st.just(Clear()),
)


def apply_to_list(model: list[Note], op: SliceOp[Note]) -> list[Note]:
    match op:
        case Append(values=values):
            return [*model, *values]
        case Replace(values=values):
            return list(values)
        case ReplaceAt(position=position, value=value) if position < len(model):
            return [*model[:position], value, *model[position + 1 :]]
        case Clear():
            return []
        case _:
            return model


@given(st.lists(operations, max_size=30))
def test_a_slice_equals_a_plain_list_after_any_operations(
    ops: list[SliceOp[Note]],
) -> None:
    view, model = SliceView(Note), list[Note]()
    older: list[tuple[SliceView[Note], tuple[Note, ...]]] = []
    for op in ops:
        older.append((view, tuple(model)))
        model = apply_to_list(model, op)
        try:
            view = op.apply(view)
        except UsageError:
            assert isinstance(op, ReplaceAt), "only a position may be out of range"
        assert view.all() == tuple(view) == tuple(model)
        assert tuple(reversed(view)) == tuple(reversed(model))
        assert view.latest() == (model[-1] if model else None)
        assert len(view) == len(model)
        assert view.where(lambda note: note.text > "m") == tuple(n for n in model if n.text > "m")
    for view_then, values_then in older:
        assert view_then.all() == values_then, "an operation changed an older view"


@pytest.mark.parametrize(
    ("use", "n_new"),
    [
        (lambda view: Append(Note("a")).apply(view), 1),
        (lambda view: ReplaceAt(5, Note("a")).apply(view), 1),
        (lambda view: Clear().apply(view), 0),
    ],
    ids=["append", "replace one", "clear"],
)
@pytest.mark.parametrize("n_values", [10, 64, 100_000])
def test_an_operation_on_one_value_makes_one_new_chunk_at_any_length(
    n_values: int, use: Callable[[SliceView[Note]], SliceView[Note]], n_new: int
) -> None:
    view = SliceView(Note, [Note("same")] * n_values)
    known = set(map(id, view.chunks))
    new = [chunk for chunk in use(view).chunks if id(chunk) not in known]
    assert len(new) == n_new
    assert all(len(chunk) <= CHUNK_VALUES for chunk in new)


@given(st.lists(st.integers(0, 200), max_size=8))
def test_every_chunk_but_the_last_is_full(lengths: list[int]) -> None:
    view = SliceView(Note)
    for length in lengths:
        view = view.appended(*[Note("a")] * length)
    assert len(view) == sum(lengths) == len(view.all()) == len(list(reversed(view)))
    assert all(len(chunk) == CHUNK_VALUES for chunk in view.chunks[:-1])
    assert all(view.chunks)


@pytest.mark.parametrize("op", [Append(), Clear()])
def test_an_operation_that_changes_nothing_returns_the_same_view(op: SliceOp[Note]) -> None:
    view = SliceView(Note) if isinstance(op, Clear) else SliceView(Note, [Note("a")])
    assert op.apply(view) is view


@pytest.mark.parametrize("position", [-1, 1, 2])
def test_replacing_at_a_position_out_of_range_raises_with_the_number_of_values(
    position: int,
) -> None:
    view = SliceView(Note, [Note("a")])
    with pytest.raises(UsageError, match=f"slice Note has 1 values, none at {position}") as caught:
        ReplaceAt(position, Note("b")).apply(view)
    assert caught.value.hint


@pytest.mark.parametrize("value", ["text", None, LongNote("of a subclass")])
def test_every_write_refuses_a_value_of_another_type(value: object) -> None:
    session = Session()
    session[Note].seed(Note("before"))
    accessor = session[Note]
    for write in (accessor.append, accessor.seed, lambda v: accessor.seed([Note("good"), v])):
        with pytest.raises(UsageError, match=f"Note values, not {type(value).__name__}"):
            write(value)
    assert accessor.all() == (Note("before"),)


@pytest.mark.parametrize("candidate", [str, Mutable, Mutable("x"), Note("x"), "Note", None])
def test_only_a_frozen_dataclass_type_can_be_a_slice(candidate: object) -> None:
    with pytest.raises(UsageError, match="so it cannot be a slice") as caught:
        Session()[candidate]
    assert "@dataclass(frozen=True)" in caught.value.hint


def test_seed_takes_one_value_or_any_iterable_and_replaces_all_values() -> None:
    notes = Session()[Note]
    notes.seed(Note("one"))
    assert notes.all() == (Note("one"),)
    notes.seed(Note(text) for text in "abc")
    assert notes.all() == (Note("a"), Note("b"), Note("c"))
    notes.append(Note("d"))
    assert (len(notes), notes.latest()) == (4, Note("d"))
    assert notes.where(lambda note: note.text < "c") == (Note("a"), Note("b"))
    notes.clear()
    assert (len(notes), notes.latest(), notes.all()) == (0, None, ())


def test_a_seed_whose_iterable_raises_halfway_changes_nothing() -> None:
    notes = Session()[Note]
    notes.seed(Note("before"))
    with pytest.raises(ZeroDivisionError):
        notes.seed(Note(str(1 // n)) for n in (1, 0))
    assert notes.all() == (Note("before"),)


def test_a_view_keeps_its_values_when_the_session_changes() -> None:
    notes = Session()[Note]
    notes.seed(Note("a"))
    view = notes.view()
    notes.append(Note("b"))
    assert view.all() == (Note("a"),)
    assert repr(view) == "SliceView(Note, 1 values)"


def test_reading_a_slice_that_was_never_written_returns_no_values() -> None:
    notes = Session()[Note]
    assert (notes.latest(), notes.all(), len(notes)) == (None, (), 0)


def test_an_operation_may_have_a_type_argument() -> None:
    """`Append[Note](…)` makes typing set an attribute on the instance, which must not raise."""
    view = Append[Note](Note("a")).apply(SliceView(Note))
    view = ReplaceAt[Note](0, Note("b")).apply(view)
    view = Replace[Note]([*view, Note("c")]).apply(view)
    assert view.all() == (Note("b"), Note("c"))
    assert Clear[Note]().apply(view).all() == ()
