"""A chunked map behaves as a dictionary, and shares the parts without a change."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.session import ChunkedMap, InnerNode, Leaf, MapPart

keys = st.one_of(st.text(max_size=3), st.integers(0, 400).map("src/file_{}.py".format))
steps = st.lists(
    st.one_of(
        st.dictionaries(keys, st.integers(0, 3), max_size=90),
        st.sets(keys, max_size=90),
    ),
    max_size=12,
)


def shape(part: MapPart[int] | None) -> object:
    if isinstance(part, InnerNode):
        return [shape(below) for below in part.parts], len(part)
    return None if part is None else dict(part.items)


def all_parts(part: MapPart[int]) -> set[int]:
    found = {id(part)}
    if isinstance(part, InnerNode):
        found |= {each for below in part.parts if below is not None for each in all_parts(below)}
    return found


@given(steps)
def test_any_changes_give_the_same_as_a_dictionary_and_the_same_parts_as_a_new_map(
    steps: list[dict[str, int] | set[str]],
) -> None:
    plain: dict[str, int] = {}
    chunked = ChunkedMap[int]()
    for step in steps:
        before, plain_before = chunked, dict(plain)
        if isinstance(step, dict):
            plain |= step
            chunked = chunked.updated(step)
        else:
            plain = {key: value for key, value in plain.items() if key not in step}
            chunked = chunked.without(step)
        assert chunked == plain
        assert before == plain_before
        assert (chunked is before) == (plain == plain_before)
        assert len(chunked) == len(plain)
        assert all(chunked.get(key) == plain.get(key) for key in ("", "src/file_1.py", *plain))
        assert shape(chunked.root) == shape(ChunkedMap(plain).root)
        assert list(chunked) == list(ChunkedMap(dict(reversed(plain.items()))))


@pytest.mark.parametrize(("n_keys", "n_levels"), [(10, 1), (100, 2), (2_000, 2), (100_000, 3)])
def test_a_change_of_one_key_makes_new_parts_only_on_the_way_to_it(
    n_keys: int, n_levels: int
) -> None:
    chunked = ChunkedMap((f"src/file_{n}.py", n) for n in range(n_keys))
    for changed in (chunked.updated({"src/file_7.py": -1}), chunked.without(["src/file_7.py"])):
        assert len(all_parts(changed.root) - all_parts(chunked.root)) == n_levels


def test_parts_have_at_most_64_keys_and_are_the_same_in_every_process() -> None:
    chunked = ChunkedMap((f"src/file_{n}.py", n) for n in range(500))
    assert isinstance(chunked.root, InnerNode)
    assert all(isinstance(part, Leaf) and len(part) <= 64 for part in chunked.root.parts if part)
    program = "from wink_workspace.session import ChunkedMap\n"
    program += "print(*ChunkedMap((f'src/file_{n}.py', n) for n in range(500)))"
    order = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert order.stdout.decode().split() == list(chunked)


def test_a_chunked_map_is_shared_and_equal_to_any_mapping_with_the_same_items() -> None:
    chunked = ChunkedMap({"a": 1, "b": 2})
    assert ChunkedMap(chunked).root is chunked.root
    assert chunked == {"b": 2, "a": 1}
    assert hash(chunked) == hash(ChunkedMap({"b": 2, "a": 1}))
    assert "c" not in chunked
    assert repr(chunked).startswith("ChunkedMap({")
