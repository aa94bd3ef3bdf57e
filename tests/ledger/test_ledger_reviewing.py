"""Diffs of trees in the ledger: equal to those of git, and correct when long texts are split."""

from __future__ import annotations

import random
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_support import at, new_ledger, script, stored, tree
from random_cases import examples

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.diff import ChangedLines, DiffLimits, spans_in_pieces
from wink_workspace.filesystem.model import FileKind
from wink_workspace.ledger import (
    EMPTY_TREE_ID,
    TreeEntry,
    build,
    diff,
    tree_diff,
)
from wink_workspace.ledger.store.packs import encode_object


def spans_of(old: list[bytes], new: list[bytes], piece_lines: int) -> list[ChangedLines]:
    return spans_in_pieces(b"".join(old), b"".join(new), piece_lines=piece_lines)


@given(data=st.data(), piece_lines=st.sampled_from([4, 10, 30, 10_000]))
@settings(max_examples=examples(120), deadline=None)
def test_the_spans_turn_one_text_into_the_other_for_any_split(
    data: st.DataObject, piece_lines: int
) -> None:
    noise = random.Random(data.draw(st.integers(0, 10_000)))
    old = [b"%d\n" % noise.randrange(30) for _ in range(noise.randrange(1, 60))]
    new = [line for line in old if noise.random() > 0.1]
    for _ in range(noise.randrange(6)):
        new.insert(noise.randrange(len(new) + 1), b"%d\n" % noise.randrange(60))
    if noise.random() < 0.3:
        new = new[len(new) // 2 :] + new[: len(new) // 2]
    new += [b"tail"] * noise.randrange(2)
    spans = spans_of(old, new, piece_lines)
    rebuilt: list[bytes] = []
    end = 0
    for span in spans:
        rebuilt += [*old[end : span.old.start], *new[span.new.start : span.new.stop]]
        end = span.old.stop
    assert [*rebuilt, *old[end:]] == new
    assert all(a.old.stop < b.old.start for a, b in pairwise(spans))


def test_a_long_text_is_split_at_unique_lines_and_has_the_shortest_diff() -> None:
    old = [b"%d\n" % n for n in range(1_000)]
    new = [line for n, line in enumerate(old) if n % 10]
    whole, split = (spans_of(old, new, n) for n in (2_000, 400))
    assert split == whole
    assert len(whole) == 100
    same = [b"a\n", b"b\n"] * 500
    (replaced,) = spans_of(same, [*same[1:], b"c\n"], 400)
    assert replaced.old.stop - replaced.old.start == 1_000, "no line occurs once"


def test_a_diff_of_two_trees_equals_that_of_git(tmp_path: Path) -> None:
    noise = random.Random(4)
    lines = [b"%d\n" % noise.randrange(40) for _ in range(400)]
    edited = list(lines)
    for _ in range(12):
        edited[noise.randrange(400)] = b"\tnew %d\n" % noise.randrange(9)
        edited.insert(noise.randrange(400), b"}\n\n")
    with new_ledger(tmp_path) as ledger:
        store = ledger.store
        before = tree(store, {"a.c": b"".join(lines), "b": b"b\n", "d/run": b"#!/bin/sh\n"})
        after = build(
            store,
            before,
            {
                at("a.c"): stored(store, b"".join(edited) + b"tail"),
                at("b"): None,
                at("d/run"): stored(store, script(b"#!/bin/sh\n")),
                at("empty"): stored(store, b""),
                at("new"): stored(store, b"new\n"),
            },
        )
        compared = tree_diff(store, diff(store, before, after))
        shown, counts = compared.text(), list(compared.line_counts())
    git = ["git", f"--git-dir={tmp_path / 'ledger.git'}", "diff", "--no-renames", before, after]
    wanted, stat = (
        subprocess.run([*git, option], check=True, capture_output=True, text=True).stdout
        for option in ("--abbrev=7", "--numstat")
    )
    assert shown == re.sub(r"^(@@ .* @@).*$", r"\1", wanted, flags=re.MULTILINE)
    assert [
        f"{each.n_added}\t{each.n_removed}\t{path}"
        for path, each in zip(compared.paths, filter(None, counts), strict=True)
    ] == stat.splitlines()


def test_an_object_that_is_too_large_is_not_read_and_a_missing_one_is_damage(
    tmp_path: Path,
) -> None:
    with new_ledger(tmp_path) as ledger:
        store = ledger.store
        content = random.Random(0).randbytes(20_000)
        large = TreeEntry(FileKind.FILE, encode_object("blob", content).id)
        lost = TreeEntry(FileKind.FILE, "0" * 39 + "1")
        root = build(store, EMPTY_TREE_ID, {at("large"): large, at("small"): stored(store, b"1")})
        changes = list(diff(store, EMPTY_TREE_ID, root))
        with pytest.raises(LedgerDamagedError):
            tree_diff(store, changes).text()
        store.write_blob(content)
        limited = tree_diff(store, changes, limits=DiffLimits(path_bytes=5)).text()
        assert limited.startswith("large: 20 KiB, not shown\ndiff --git a/small b/small\n")
        damaged = build(store, EMPTY_TREE_ID, {at("lost"): lost})
        with pytest.raises(LedgerDamagedError):
            tree_diff(store, diff(store, EMPTY_TREE_ID, damaged)).text()
