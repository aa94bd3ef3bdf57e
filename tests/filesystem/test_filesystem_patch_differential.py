"""Patches are applied as intended or refused, compared with four other tools.

``patch_cases`` has the cases with their right results, ``patch_peers`` the other tools. Each tool
gets a case in a form that it accepts, which favours it. A malformed patch in another form is sent
to it well formed, with right line numbers. ``git merge-file`` gets no patch but the whole file,
before and after the edit.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from patch_cases import Case, make_case, make_cases
from patch_peers import PEERS, Task, why_no_codex
from patch_trees import file, patched

from wink_workspace.errors import WinkError
from wink_workspace.filesystem.paths import parse_path

pytestmark = pytest.mark.xdist_group("patch-differential")

CODEX = "codex apply_patch"
SEED = "suite"
N_CASES = 600
STEPS = {"git merge-file": 4, CODEX: 8}
"""These tools get one case in so many: they need a process for each case or each refusal."""

Results = Mapping[str, bytes | None]


def our_result(data: bytes, case: Case) -> bytes | None:
    """The content after the patch, or ``None`` if it is refused."""
    path = parse_path(case.path)
    try:
        return patched(case.text, {path: file(data)})[path].data
    except WinkError:
        return None


def task(peer: str, case: Case, data: bytes) -> Task:
    """The case in a form that *peer* accepts."""
    if peer == CODEX:
        takes, other = not case.is_unified, case.envelope
    else:  # a patch without "a/" and "b/" needs another option, which is not compared here
        takes, other = case.is_unified and "bare names" not in case.kind, case.unified
    text = case.text if takes else other
    is_alone = takes and case.is_garbled
    return Task(case.path, data, text, is_alone, case.base, case.edited)


@functools.cache
def cases() -> Sequence[Case]:
    return tuple(make_cases(N_CASES, seed=SEED))


@functools.cache
def our_results() -> Results:
    return {case.path: our_result(case.file, case) for case in cases()}


@functools.cache
def results_of(peer: str) -> Results:
    some = cases()[:: STEPS.get(peer, 1)]
    return PEERS[peer]([task(peer, case, case.file) for case in some])


def verdict(case: Case, result: bytes | None) -> str:
    if result is None or result == case.file:
        return "refused"
    if result not in case.right:
        return "wrong"
    return "right" if case.intended is not None else "right, arguable"


def count_verdicts(some: Iterable[Case], results: Results) -> Counter[str]:
    return Counter(verdict(case, results[case.path]) for case in some)


def describe_wrong_results(some: Iterable[Case], results: Results, *, n_shown: int = 3) -> str:
    """The wrong results, the smallest ones in full."""
    wrong = [case for case in some if verdict(case, results[case.path]) == "wrong"]
    wrong.sort(key=lambda case: len(case.file) + len(case.text))
    shown = [case.described(results[case.path] or b"") for case in wrong[:n_shown]]
    return "\n\n".join([*shown, f"{len(wrong)} wrong: {[case.seed for case in wrong]}"])


def test_no_patch_has_an_unintended_result() -> None:
    """Patches for files that changed meanwhile, or with a model's mistakes, or both."""
    n_wrong = count_verdicts(cases(), our_results())["wrong"]
    assert n_wrong == 0, describe_wrong_results(cases(), our_results())


def applied_again(some: Iterable[Case]) -> tuple[int, int]:
    """How many patches we and git apply to a file that has the intended result already."""
    chosen = [case for case in some if case.intended is not None]
    tasks = [task("git apply", case, case.intended or b"") for case in chosen]
    by_git = PEERS["git apply"](tasks)
    ours = {case.path: our_result(case.intended or b"", case) for case in chosen}
    unchanged = {case.path: (None, case.intended) for case in chosen}
    n_ours, n_git = (
        sum(result not in unchanged[path] for path, result in results.items())
        for results in (ours, by_git)
    )
    return n_ours, n_git


def test_insertions_sent_twice_are_applied_no_more_often_than_by_git() -> None:
    inserting = [case for case in cases() if case.only_inserts]
    assert len(inserting) > N_CASES // 8
    n_ours, n_git = applied_again(inserting)
    assert n_ours <= n_git
    assert 0 < n_git < len(inserting) // 4


def test_other_patches_that_we_applied_are_applied_again_no_more_often_than_by_git() -> None:
    """Replaced or removed lines may also be elsewhere, and then match only there."""
    results = our_results()
    others = [case for case in cases() if case.intended and not case.only_inserts]
    applied = [case for case in others if results[case.path] == case.intended]
    assert len(applied) > N_CASES // 8
    n_ours, n_git = applied_again(applied)
    assert n_ours <= n_git


@pytest.mark.parametrize("peer", PEERS)
def test_more_patches_are_applied_as_intended_than_by_another_tool(peer: str) -> None:
    if peer == CODEX and why_no_codex():
        pytest.skip(why_no_codex())
    some = [case for case in cases() if case.path in results_of(peer)]
    theirs = count_verdicts(some, results_of(peer))
    ours = count_verdicts(some, our_results())
    print(f"{peer}: {dict(theirs)}\nours: {dict(ours)}")
    assert ours["right"] > theirs["right"] > 0


# -------------------------------------------------------------------------- checks of the cases


def test_the_cases_find_the_wrong_results_of_tools_that_guess() -> None:
    """GNU patch guesses with fuzz; cases without a wrong result of it would prove nothing."""
    assert count_verdicts(cases(), results_of("GNU patch"))["wrong"] > N_CASES // 50


def test_a_merge_that_knows_the_base_agrees_with_what_the_cases_call_right() -> None:
    """``git merge-file`` shares no code with us or the cases: it compares three whole files."""
    some = [case for case in cases() if case.path in results_of("git merge-file")]
    counts = count_verdicts(some, results_of("git merge-file"))
    assert counts["right"] > len(some) // 3
    assert counts["wrong"] < counts["right"] // 50


def test_every_patch_makes_the_edit_of_the_file_that_its_writer_saw() -> None:
    """GNU patch decides, but not with missing context, which it takes for the end of the file."""
    some = [case for case in cases()[::4] if "missing context" not in case.kind]
    results = PEERS["GNU patch"]([Task(case.path, case.base, case.unified) for case in some])
    assert [case.seed for case in some if results[case.path] != case.edited] == []


def test_few_results_are_right_only_by_the_literal_statements_of_the_patch() -> None:
    lenient = [c for c in cases() if our_results()[c.path] in c.literal - c.results]
    assert len(lenient) < N_CASES // 50


def test_most_cases_have_one_right_result_and_many_have_none() -> None:
    n_single = sum(case.intended is not None for case in cases())
    n_refused = sum(not case.results for case in cases())
    assert n_single > N_CASES // 2
    assert n_refused > N_CASES // 20


def test_a_seed_makes_the_same_case_again() -> None:
    for case in cases()[::100]:
        assert make_case(case.seed) == case


def test_peers_give_the_same_results_alone_and_together() -> None:
    """Cases share a process to save time; that must not change their results."""
    some = cases()[:24]
    for peer in ("git apply", "GNU patch", *([] if why_no_codex() else [CODEX])):
        tasks = [task(peer, case, case.file) for case in some]
        alone = {key: result for one in tasks for key, result in PEERS[peer]([one]).items()}
        assert PEERS[peer](tasks) == alone


def test_a_patch_that_git_cannot_parse_does_not_affect_the_others_in_its_batch() -> None:
    tasks = [task("git apply", case, case.file) for case in cases()[:24]]
    broken = Task("broken.py", b"a\n", "--- a/broken.py\n+++ b/broken.py\n@@ -1,1 +-1,0 @@\n-a\n")
    results = PEERS["git apply"]([*tasks[:12], broken, *tasks[12:]])
    assert results == {**PEERS["git apply"](tasks), "broken.py": None}


def test_no_hunk_of_a_case_begins_before_the_first_line() -> None:
    """With wrong numbers and lines removed before, the new start would fall below zero."""
    case = make_case("first-4519")  # the library of Python differs between versions
    assert case is not None
    assert "wrong numbers" in case.kind
    assert "@@ -1,7 +1,11 @@" in case.text
    assert "+-" not in case.text


# -------------------------------------------------------------------------------- the long version


@pytest.mark.soak
@pytest.mark.timeout(7_200)
def test_50_000_patches_are_applied_as_intended_or_refused() -> None:
    """As above, also with the source files of Python's standard library."""
    ours, theirs = ({peer: Counter[str]() for peer in PEERS} for _ in range(2))
    wrong: list[str] = []
    n_again = n_again_by_git = 0
    for part in range(25):
        some = tuple(make_cases(2_000, seed=f"soak-{part}", with_library=True))
        results = {case.path: our_result(case.file, case) for case in some}
        if count_verdicts(some, results)["wrong"]:
            wrong.append(describe_wrong_results(some, results, n_shown=1))
        for peer in PEERS:
            if peer == CODEX and why_no_codex():
                continue
            chosen = some[:: STEPS.get(peer, 1)]
            ours[peer] += count_verdicts(chosen, results)
            tasks = [task(peer, case, case.file) for case in chosen]
            theirs[peer] += count_verdicts(chosen, PEERS[peer](tasks))
        n_ours, n_git = applied_again(case for case in some if case.only_inserts)
        n_again, n_again_by_git = n_again + n_ours, n_again_by_git + n_git
    for peer in PEERS:
        print(f"{peer}: {dict(theirs[peer])}\nours on the same cases: {dict(ours[peer])}")
    print(f"insertions applied again: ours {n_again}, git {n_again_by_git}")
    assert not wrong, "\n\n".join(wrong)
    assert n_again <= n_again_by_git
    assert all(ours[peer]["right"] > theirs[peer]["right"] for peer in PEERS if theirs[peer])
