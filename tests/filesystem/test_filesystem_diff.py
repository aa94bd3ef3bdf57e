"""What ``render_diff`` writes is applied by git, by GNU patch and by ourselves, to the byte."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from patch_trees import (
    Tree,
    changes_between,
    git_applied,
    gnu_patched,
    patched,
    tree_pairs,
)

from wink_workspace.filesystem.diff import render_diff

BOUNDED = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def diff(before: Tree, after: Tree) -> str:
    return render_diff(changes_between(before, after))


@given(pair=tree_pairs())
@BOUNDED
def test_git_apply_turns_the_first_tree_into_the_second(pair: tuple[Tree, Tree]) -> None:
    before, after = pair
    text = diff(before, after)
    with TemporaryDirectory() as place:
        result = git_applied(text, before, Path(place, "work")) if text else before
    assert result == after


@given(pair=tree_pairs())
@settings(BOUNDED, max_examples=300)
def test_our_own_planner_turns_the_first_tree_into_the_second(pair: tuple[Tree, Tree]) -> None:
    before, after = pair
    if any("\\" in str(path) for path in before.keys() | after.keys()):
        return  # no caller may name such a path
    text = diff(before, after)
    assert (patched(text, before) if text else before) == after


@given(pair=tree_pairs(textual=True))
@BOUNDED
def test_gnu_patch_turns_the_first_tree_into_the_second_where_all_is_text(
    pair: tuple[Tree, Tree],
) -> None:
    before, after = pair
    inner = {above for path in [*before, *after] for above in path.ancestors()}
    if inner & (before.keys() | after.keys()):
        return  # a path that is a directory on one side is beyond it
    text = diff(before, after)
    with TemporaryDirectory() as place:
        result = gnu_patched(text, before, Path(place, "work")) if text else before
    assert result == after
