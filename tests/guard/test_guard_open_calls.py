"""Whose a change is, when calls overlap."""

from __future__ import annotations

from wink_workspace.filesystem import WorkspacePath, parse_path
from wink_workspace.guard import ObservedCall
from wink_workspace.guard.open_calls import OpenCalls, Share

A, B, C, D = map(parse_path, ("a.txt", "b.txt", "c.txt", "new/deep/d.txt"))


def edit(name: str, *paths: WorkspacePath) -> ObservedCall:
    return ObservedCall(id=name, tool="Edit", paths=paths, is_broad=False)


def bash(name: str) -> ObservedCall:
    return ObservedCall(id=name, tool="Bash")


def test_edit_has_what_it_names_and_the_rest_is_external() -> None:
    calls = OpenCalls()
    call = edit("1", A)
    calls.begin(call)
    assert calls.end("1", [A, B]) == [Share((call,), (A,))]
    assert not calls


def test_new_parents_belong_to_the_call_that_names_the_file() -> None:
    calls = OpenCalls()
    call = edit("1", D)
    calls.begin(call)
    changed = [parse_path("new"), parse_path("new/deep"), D]
    assert calls.end("1", changed) == [Share((call,), tuple(changed))]


def test_command_has_every_change_and_all_are_uncertain() -> None:
    calls = OpenCalls()
    call = bash("1")
    calls.begin(call)
    assert calls.end("1", [A, B]) == [Share((call,), (A, B), (A, B))]


def test_edit_during_a_command_has_its_own_and_the_command_the_rest() -> None:
    calls = OpenCalls()
    command, change = bash("1"), edit("2", A)
    calls.begin(command)
    calls.begin(change)
    assert calls.end("2", [A, B]) == [Share((change,), (A,))]
    assert calls.end("1", [B, C]) == [Share((command,), (B, C), (B, C))]


def test_commands_that_overlapped_share_one_entry() -> None:
    calls = OpenCalls()
    one, two = bash("1"), bash("2")
    calls.begin(one)
    calls.begin(two)
    assert calls.end("1", [A]) == [Share((one,))]
    assert calls.end("2", [A, B]) == [Share((two,)), Share((one, two), (A, B), (A, B))]


def test_file_that_two_edits_name_belongs_to_both() -> None:
    calls = OpenCalls()
    one, two = edit("1", A), edit("2", A, B)
    calls.begin(one)
    calls.begin(two)
    assert calls.end("1", [A]) == [Share((one,))]
    assert calls.end("2", [A, B, C]) == [Share((two,), (B,)), Share((one, two), (A,), (A,))]


def test_call_that_changes_nothing_does_not_hold_others_up() -> None:
    calls = OpenCalls()
    calls.begin(ObservedCall(id="task", tool="Task", is_broad=False))
    command = bash("1")
    calls.begin(command)
    assert calls.end("1", [A]) == [Share((command,), (A,), (A,))]
    assert calls.of_session("") == ["task"]
