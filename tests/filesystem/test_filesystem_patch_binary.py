"""Binary patches: we read those of git, git reads ours, and damaged ones are refused."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_trees import changes_between, file, git_applied, git_diff, patched, plan, run, tree
from random_cases import examples

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.diff import render_diff
from wink_workspace.filesystem.git_binary import apply_delta, blob_id, encode_lines, inflate

NOISE = random.Random(1).randbytes(5_000)
CHANGED = NOISE[:2_000] + b"\0new\0" + NOISE[1_000:]


def binary_patch(old: bytes, new: bytes, *, method: str = "literal", packed: bytes = b"") -> str:
    """A patch for the file ``f``; *packed* replaces the new content as its data."""
    data = packed or new
    lines = b"".join(encode_lines([data])).decode().removesuffix("\n")
    return (
        f"diff --git a/f b/f\nindex {blob_id(old)}..{blob_id(new)} 100644\n"
        f"GIT binary patch\n{method} {len(data)}\n{lines}\n\n"
    )


def refused(patch: str, data: bytes) -> str:
    with pytest.raises(PatchError) as error:
        plan(patch, {"f": data})
    return error.value.message


@pytest.mark.parametrize(("old", "new"), [(NOISE, CHANGED), (b"\0", CHANGED), (CHANGED, b"\0")])
def test_binary_changes_made_by_git_apply(old: bytes, new: bytes) -> None:
    """Git writes the first of these as a delta."""
    before, after = tree({"f": old}), tree({"f": new})
    with TemporaryDirectory() as directory:
        text = git_diff(before, after, Path(directory), "--binary")
    assert ("delta" in text) == (old == NOISE)
    assert patched(text, before) == after


@given(old=st.binary(max_size=200), new=st.binary(max_size=200))
@settings(max_examples=examples(30), deadline=None)
def test_git_applies_and_reverses_our_binary_changes(old: bytes, new: bytes) -> None:
    before, after = tree({"f": b"\0" + old}), tree({"f": b"\0\0" + new})
    text = render_diff(changes_between(before, after))
    with TemporaryDirectory() as directory:
        assert git_applied(text, before, Path(directory, "forth")) == after
        assert git_applied(text, after, Path(directory, "back"), "--reverse") == before


def test_large_binary_content_is_split_into_lines() -> None:
    text = render_diff(changes_between({}, tree({"f": NOISE + b"\0"})))
    assert max(map(len, text.split("\n")[4:])) <= 66
    assert patched(text, {}) == tree({"f": NOISE + b"\0"})


@pytest.mark.parametrize(
    "index", ["", "index 1234567..89abcde\n", f"index {'0' * 40}..{'1' * 40}\n"]
)
def test_a_binary_change_of_other_content_is_refused(index: str) -> None:
    """Only the ids show whether the patch was made for this file."""
    patch = f"diff --git a/f b/f\n{index}GIT binary patch\nliteral 0\nHcmV?d00001\n\n"
    assert "its content is not the one" in refused(patch, b"old")


def test_sha_256_ids_are_compared_too() -> None:
    name = blob_id(b"old", n_digits=64)
    patch = (
        f"diff --git a/f b/f\nindex {name}..{name}\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n"
    )
    assert plan(patch, {"f": b"old"}).changes[0].after == file(b"")
    assert "its content is not the one" in refused(patch, b"new")


def test_a_binary_file_is_deleted_only_with_its_content() -> None:
    before = tree({"f": NOISE + b"\0"})
    text = render_diff(changes_between(before, {}))
    assert patched(text, before) == {}
    assert "its content is not the one" in refused(text, b"other\0")


# --------------------------------------------------------------------------------------- deltas

SOURCE = b"0123456789"


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        (b"\x0a\x03\x03abc", b"abc"),
        (b"\x0a\x05\x91\x02\x05", b"23456"),
        (b"\x0a\x0a\x90\x0a", SOURCE),
        (b"\x0a\x06\x02ab\x91\x06\x04", b"ab6789"),
        (b"\x0a\x00", b""),
    ],
)
def test_a_delta_copies_and_inserts(delta: bytes, expected: bytes) -> None:
    assert apply_delta(delta, SOURCE, max_bytes=100) == expected


def test_a_delta_copies_64_kib_where_it_names_no_size() -> None:
    source = bytes(range(256)) * 300
    delta = b"\x80\xd8\x04" + b"\x81\x80\x04" + b"\x81\x01" + b"\x01!"
    assert apply_delta(delta, source, max_bytes=100_000) == source[1:65_537] + b"!"


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (b"", "damaged"),
        (b"\xff" * 20, "damaged"),
        (b"\x0a", "damaged"),
        (b"\x0b\x01\x01a", "made for 11 bytes of content, not 10"),
        (b"\x0a\x65\x01a", "makes 101 bytes of content, at most 100 allowed"),
        (b"\x0a\x02\x01a", "damaged"),
        (b"\x0a\x01\x02ab", "damaged"),
        (b"\x0a\x05\x05ab", "damaged"),
        (b"\x0a\x05\x91\x08\x05", "damaged"),
        (b"\x0a\x05\x91\x08", "damaged"),
        (b"\x0a\x05\x9f", "damaged"),
        (b"\x0a\x01\x00\x01a", "damaged"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(delta: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_delta(delta, SOURCE, max_bytes=100)
    patch = binary_patch(SOURCE, b"", method="delta", packed=delta or b"\0")
    if delta:
        assert "f (patch line 1): the binary change does not fit" in refused(patch, SOURCE)


COPIES = st.tuples(st.integers(0, 9), st.integers(1, 10)).filter(lambda copy: sum(copy) <= 10)
INSTRUCTIONS = st.binary(min_size=1, max_size=60) | COPIES


@given(instructions=st.lists(INSTRUCTIONS, max_size=8), more=st.integers(-1, 1))
def test_a_delta_gives_what_its_instructions_say_up_to_the_limit(
    instructions: list[bytes | tuple[int, int]], more: int
) -> None:
    """*more* is the error of the stated size, in bytes."""
    expected = delta = b""
    for each in instructions:
        if isinstance(each, bytes):
            delta, expected = delta + bytes([len(each)]) + each, expected + each
        else:
            at, n_bytes = each
            delta += bytes([0x91, at, n_bytes])
            expected += SOURCE[at : at + n_bytes]
    stated = max(0, len(expected) + more)
    size = bytes([stated]) if stated < 128 else bytes([stated % 128 | 128, stated // 128])
    delta = b"\x0a" + size + delta
    if stated == len(expected) <= 20:
        assert apply_delta(delta, SOURCE, max_bytes=20) == expected
    else:
        with pytest.raises(ValueError, match=r"damaged|at most 20 allowed"):
            apply_delta(delta, SOURCE, max_bytes=20)


@given(delta=st.binary(max_size=12))
@settings(max_examples=examples(200))
def test_a_random_delta_is_refused_or_makes_the_stated_size(delta: bytes) -> None:
    assert outcome_of(delta) in (delta[:1], "it is damaged", "it makes too much")


def outcome_of(delta: bytes) -> bytes | str:
    """The size of the result, as the byte that states it, or why *delta* is refused."""
    try:
        return bytes([len(apply_delta(b"\x0a" + delta, SOURCE, max_bytes=100))])
    except ValueError as error:
        if "damaged" in str(error):
            return "it is damaged"
        return "it makes too much" if "at most 100 allowed" in str(error) else str(error)


def test_inflating_stops_when_the_stated_size_is_exceeded() -> None:
    packed = zlib.compress(bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(ValueError, match="does not inflate to the stated 10 bytes"):
        inflate(packed, 10)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_one_limit_bounds_all_binary_content_of_a_patch() -> None:
    """A delta of a few bytes may ask for megabytes, and a patch may hold thousands."""
    source = bytes(16_000_000)
    size = b"\x80\xc8\xd0\x07"
    delta = size + size + b"\xf0" + len(source).to_bytes(3, "little")  # copy it all
    section = binary_patch(source, source, method="delta", packed=delta)
    copies = "".join(
        section.replace("a/f b/f\n", f"a/f b/c{n}\ncopy from f\ncopy to c{n}\n") for n in range(9)
    )
    assert "bytes of content, at most" in refused(copies, source)


def test_our_blob_ids_equal_those_of_git(tmp_path: Path) -> None:
    done = run(["git", "hash-object", "--stdin"], cwd=tmp_path, stdin="text\n")
    assert done.stdout.decode().strip() == blob_id(b"text\n")
