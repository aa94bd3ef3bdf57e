"""Limits of a diff: a file above them is named in one line, and the others are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_trees import (
    Tree,
    changes_between,
    git_applied,
    run,
    texts,
    tree,
    tree_pairs,
    write_tree,
)
from random_cases import examples

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.diff import (
    Diff,
    DiffChange,
    DiffLimits,
    LineCounts,
    Side,
    differing_part,
    in_memory,
)
from wink_workspace.filesystem.model import FileKind, FileState
from wink_workspace.filesystem.patch import parse_patch
from wink_workspace.filesystem.paths import parse_path

MIB = 1_048_576
SMALLEST = DiffLimits(**{field.name: 1 for field in fields(DiffLimits)})

Files = Mapping[str, FileState | bytes | str]


@dataclass(frozen=True)
class Unread:
    """Content with an id and a size, which fails when it is read."""

    id: str = "1" * 40
    size_bytes: int = 65 * MIB

    def read(self) -> bytes:
        raise AssertionError("it was read as a whole")

    def chunks(self) -> Iterator[bytes]:
        raise AssertionError("it was read in chunks")


def diff(before: Files, after: Files, **limits: int) -> Diff:
    changes = in_memory(changes_between(tree(before), tree(after)))
    return Diff(changes, limits=DiffLimits(**limits))


def rendered(shown: Diff, *, full: bool = False) -> tuple[str, tuple[str, ...]]:
    pieces: list[bytes] = []
    left_out = shown.write_to(pieces.append, full=full)
    return b"".join(pieces).decode(), left_out


def test_a_file_above_the_limit_is_one_line_and_is_never_read() -> None:
    big = Side(FileKind.FILE, Unread())
    small = next(in_memory(changes_between(tree({}), tree({"small": "x\n"}))))
    changes = [
        DiffChange(parse_path("big.bin"), None, big),
        DiffChange(parse_path("gone.bin"), big, None),
        DiffChange(parse_path("new\nline"), Side(FileKind.FILE, Unread("2" * 40)), big),
        small,
    ]
    text, left_out = rendered(Diff(changes[2:]))
    assert text.startswith('"new\\nline": 65 MiB, not shown\n')
    assert "+x\n" in text
    assert left_out == ("new\nline",)
    moved, left_out = rendered(Diff(changes[:2]))
    assert "rename from gone.bin\nrename to big.bin\n" in moved
    assert left_out == ()
    text, left_out = rendered(Diff([changes[1]]))
    assert text == "gone.bin: 65 MiB, deleted, not shown\n"


def test_a_file_above_the_line_limit_is_not_compared() -> None:
    old, new = "".join(f"{n}\n" for n in range(20)), "".join(f"-{n}\n" for n in range(20))
    before, after = {"a": old, "b": "x\n", "c": ""}, {"a": new, "b": "y\n", "c": new}
    text, left_out = rendered(diff(before, after, path_lines=19))
    assert "a: 70 bytes, 20 lines, not shown\n" in text
    assert "c: 70 bytes, 20 lines, not shown\n" in text
    assert "-x\n+y\n" in text
    assert left_out == ("a", "c")


def test_only_the_differing_part_of_a_long_text_is_compared_or_counted() -> None:
    lines = [f"{n}\n" for n in range(100_000)]
    changed = [*lines[:50_000], "new\n", *lines[50_000:60_000], *lines[60_001:]]
    shown = diff({"f": "".join(lines)}, {"f": "".join(changed)}, path_lines=10_001)
    assert "@@ -49998,6 +49998,7 @@\n 49997\n 49998\n 49999\n+new\n 50000\n" in shown.text()


def test_all_paths_together_have_a_limit_on_bytes_and_on_compared_lines() -> None:
    before = dict.fromkeys("abc", "1\n2\n3\n4\n")
    after = dict.fromkeys("abc", "5\n6\n7\n8\n")
    _, left_out = rendered(diff(before, after, total_lines=16))
    assert left_out == ("c",)
    assert rendered(diff(before, after, total_bytes=35))[1] == ("c",)
    assert rendered(diff(before, after, total_lines=1, total_bytes=1), full=True)[1] == ()


def test_a_binary_file_has_a_lower_limit() -> None:
    shown = diff({}, {"f.bin": b"\0" * 20, "f.txt": "x" * 20}, path_binary_bytes=19)
    text, left_out = rendered(shown)
    assert left_out == ("f.bin",)
    assert f"+{'x' * 20}\n" in text
    assert "literal 20\n" in rendered(shown, full=True)[0]


def test_files_above_the_rename_limits_are_not_compared_for_renames() -> None:
    before, after = {"a": "same\n" * 9}, {"b": "same\n" * 8 + "x\n"}
    assert "rename from a" in diff(before, after).text()
    assert "rename" not in diff(before, after, rename_bytes=80).text()
    assert "rename" not in diff(before, after, rename_lines=18).text()


def test_a_patch_with_a_path_left_out_is_still_a_patch_of_the_others(tmp_path: Path) -> None:
    before, after = {"a": "1\n", "b": "1\n", "c": "1\n"}, {"a": "2\n", "b": "22222\n", "c": "2\n"}
    text, left_out = rendered(diff(before, after, path_bytes=3))
    assert left_out == ("b",)
    assert git_applied(text, tree(before), tmp_path / "git") == tree({**after, "b": "1\n"})
    assert len(parse_patch(text)) == 2


@given(pair=tree_pairs(), path_bytes=st.sampled_from([1, 20, 1_000]))
@settings(max_examples=examples(20), deadline=None)
def test_a_full_diff_leaves_nothing_out_with_the_smallest_limits(
    pair: tuple[Tree, Tree], path_bytes: int
) -> None:
    before, after = pair
    limits = DiffLimits(path_bytes=path_bytes, path_lines=1, path_binary_bytes=1, total_lines=1)
    text = Diff(in_memory(changes_between(before, after)), limits=limits).text(full=True)
    with TemporaryDirectory() as directory:
        result = git_applied(text, before, Path(directory, "work")) if text else before
    assert result == after


@given(data=st.data(), context_lines=st.integers(0, 3))
@settings(max_examples=examples(80), deadline=None)
def test_outside_the_differing_part_both_texts_are_equal(
    data: st.DataObject, context_lines: int
) -> None:
    old = data.draw(texts())
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(old))] * 2)))
    new = old[:start] + data.draw(texts()) + old[end:]
    part = differing_part(old, new, context_lines)
    before, first = old.split(b"\n"), part.n_lines_before
    head = b"".join(line + b"\n" for line in before[:first])
    tail = old[len(head) + len(part.old) :]
    assert head + part.old + tail == old
    assert head + part.new + tail == new
    inner, lines = part.inner, part.old.splitlines()
    assert inner.old.start == inner.new.start <= context_lines or not lines
    assert min(first, 1) * context_lines <= inner.old.start or old == new


def test_each_limit_must_be_positive() -> None:
    with pytest.raises(UsageError, match="path_lines is 0"):
        DiffLimits(path_lines=0)
    assert rendered(Diff((), limits=SMALLEST)) == ("", ())


def test_a_diffstat_counts_lines_except_of_binary_and_too_long_files() -> None:
    before = {"a": "1\n2\n3\n", "gone": "x\n" * 4, "b": b"\0", "long": "1\n" * 9}
    after = {"a": "1\nnew\n3\n4\n", "moved": "x\n" * 4, "b": b"\1", "long": "2\n" * 9}
    compared = diff(before, after, path_lines=8)
    assert dict(zip(compared.paths, compared.line_counts(), strict=True)) == {
        "a": LineCounts(2, 1),
        "b": LineCounts(is_binary=True),
        "gone": LineCounts(0, 4),
        "long": None,
        "moved": LineCounts(4, 0),
    }


def test_git_apply_3way_merges_the_patch_into_a_drifted_repository_with_the_blobs(
    tmp_path: Path,
) -> None:
    """The full ids give git the merge base; plain ``git apply`` finds no match for the hunk."""
    lines = [f"{n}\n" for n in range(30)]
    before = {"f": "".join(lines)}
    wanted = [*lines[:10], "ours\n", *lines[11:]]
    patch = diff(before, {"f": "".join(wanted)}).text()
    write_tree(tmp_path / "git", tree(before))
    drifted = [*lines[:7], "theirs\n", *lines[8:]]
    for command in (["init", "-q"], ["add", "-A"]):
        assert run(["git", *command], cwd=tmp_path / "git").returncode == 0
    (tmp_path / "git" / "f").write_text("".join(drifted))
    assert run(["git", "add", "-A"], cwd=tmp_path / "git").returncode == 0
    assert run(["git", "apply"], cwd=tmp_path / "git", stdin=patch).returncode != 0
    done = run(["git", "apply", "--3way"], cwd=tmp_path / "git", stdin=patch)
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "git" / "f").read_text() == "".join(
        [*lines[:7], "theirs\n", *lines[8:10], "ours\n", *lines[11:]]
    )
