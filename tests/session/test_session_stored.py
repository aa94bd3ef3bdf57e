"""The stored form: JSON with a version; loading restores equal values or changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.errors import SessionError, SnapshotError, SnapshotVersionError
from wink_workspace.session import Session, SliceKind, append_all


class Visibility(Enum):
    FULL = "full"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...] = ()
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class Overrides:
    sections: Mapping[str, Visibility] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    n: int


def fresh() -> Session:
    session = Session()
    session[Plan].declare()
    session[Overrides].declare(kind=SliceKind.STATE)
    session[Entry].register(Entry, append_all, kind=SliceKind.LOG)
    return session


def filled() -> Session:
    session = fresh()
    due = datetime(2025, 3, 4, 5, tzinfo=UTC)
    session[Plan].seed([Plan(), Plan((Step("write"), Step("test", True)), due)])
    session[Overrides].seed(Overrides({"guide.rules": Visibility.FULL}))
    session.dispatch(Entry(1))
    return session


@pytest.mark.behaviour(35)
def test_state_loaded_into_another_session_is_equal_and_has_no_log() -> None:
    session, other = filled(), fresh()
    other.load_state(session.dump_state())
    assert other[Plan].all() == session[Plan].all()
    assert other[Overrides].all() == session[Overrides].all()
    assert other[Entry].all() == ()
    assert other.dump_state() == session.dump_state()


plans = st.builds(
    Plan,
    st.lists(st.builds(Step, st.text(st.characters(exclude_categories=["Cs"])), st.booleans())).map(
        tuple
    ),
    st.none() | st.datetimes(timezones=st.just(UTC)),
)


@given(st.lists(plans, max_size=3))
def test_any_values_survive_the_round_trip(values: list[Plan]) -> None:
    session, other = fresh(), fresh()
    session[Plan].seed(values)
    other.load_state(session.dump_state())
    assert other[Plan].all() == tuple(values)


def test_the_text_has_a_version_and_one_array_for_each_slice_with_values() -> None:
    session = fresh()
    session[Plan].seed(Plan((Step("write"),)))
    session[Overrides].seed(Overrides())
    session[Overrides].clear()
    document = json.loads(session.dump_state())
    assert document["schema"] == 1
    assert list(document["slices"]) == [f"{__name__}:Plan"]


def test_loading_empties_the_slices_that_the_text_does_not_name() -> None:
    session = filled()
    session.load_state(fresh().dump_state())
    assert (session[Plan].all(), session[Overrides].all()) == ((), ())
    assert session[Entry].all() == (Entry(1),)


@pytest.mark.behaviour(35)
@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_version_is_refused_and_changes_nothing(version: object) -> None:
    session = filled()
    before = session.snapshot().state
    with pytest.raises(SnapshotVersionError, match=f"has schema version {version!r}") as caught:
        session.load_state(json.dumps({"schema": version, "slices": {}, "new": "field"}))
    assert caught.value.hint
    assert session.snapshot().state is before


PLAN = f"{__name__}:Plan"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "the document must be an object, not list"),
        ('{"schema": 1}', "'slices' must be an object, not NoneType"),
        ('{"schema": 1, "slices": []}', "'slices' must be an object, not list"),
        (f'{{"schema": 1, "slices": {{"{PLAN}": 7}}}}', f"slice '{PLAN}'"),
        (f'{{"schema": 1, "slices": {{"{PLAN}": [{{"steps": 7}}]}}}}', f"slice '{PLAN}'"),
        (f'{{"schema": 1, "slices": {{"{PLAN}": [{{}}, {{"unknown": 1}}]}}}}', f"slice '{PLAN}'"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_and_changes_nothing(text: str, problem: str) -> None:
    session = filled()
    before = session.snapshot().state
    with pytest.raises(SnapshotError) as caught:
        session.load_state(text)
    assert problem in caught.value.message
    assert "dump_state" in caught.value.hint
    assert session.snapshot().state is before


@pytest.mark.parametrize("name", ["os:system", f"{__name__}:Step", f"{__name__}:Entry"])
def test_a_class_that_is_not_a_known_state_slice_raises_with_a_hint(name: str) -> None:
    """A class is never imported because a text names it, and a LOG slice is not loaded."""
    session = filled()
    before = session.snapshot().state
    document = json.loads(session.dump_state())
    document["slices"][name] = []
    with pytest.raises(SnapshotError, match=f"has a slice '{name}'") as caught:
        session.load_state(json.dumps(document))
    assert "declare" in caught.value.hint
    assert session.snapshot().state is before


def test_two_classes_of_one_name_cannot_be_stored() -> None:
    def make() -> type:
        @dataclass(frozen=True)
        class SameName:
            n: int = 0

        return SameName

    session = Session()
    for slice_type in (make(), make()):
        session[slice_type].seed(slice_type())
    with pytest.raises(SessionError, match=r"two slices are called .*SameName'") as caught:
        session.dump_state()
    assert caught.value.hint
