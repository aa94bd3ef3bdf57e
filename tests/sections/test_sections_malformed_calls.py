"""Malformed calls: each gets one helpful answer and changes nothing.

Every row is one call in the same workspace, with text that the answer must contain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from support import contents, small_workspace

from wink_workspace.filesystem import (
    Filesystem,
    FilesystemLimits,
    MemoryFilesystem,
    parse_path,
)
from wink_workspace.prompt import Section
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection
from wink_workspace.session import Outcome

LIMITS = FilesystemLimits(write_bytes=1_000, search_timeout_s=0.2)
LONGEST_ANSWER = 6_000

Arguments = Mapping[str, object] | str

UNKNOWN_TOOLS: list[tuple[str, Arguments, str]] = [
    ("reed_file", {}, "Did you mean read_file"),
    ("READ_FILE", {}, "There is no tool named 'READ_FILE'"),
    ("", {}, "There is no tool named ''"),
    ("read_file\n", {}, "There is no tool named"),
    ("x" * 10_000, {}, "Tools: "),
]
NOT_OBJECTS: list[tuple[str, Arguments, str]] = [
    ("ls", '{"path": ', "is not valid JSON"),
    ("ls", "{'path': 'src'}", "is not valid JSON"),
    ("ls", '{"path": "src"} and more', "is not valid JSON"),
    ("ls", '{"path": NaN}', "NaN is not a JSON value"),
    ("ls", '{"path": "a", "path": "b"}', "given twice"),
    ("ls", "[" * 100_000, "nested too deeply"),
    ("ls", '["src"]', "must be an object, not an array"),
    ("ls", '"src"', "must be an object, not the string 'src'"),
    ("ls", "7", "must be an object, not the integer 7"),
    ("ls", "null", "must be an object, not null"),
]
WRONG_TYPES: list[tuple[str, Arguments, str]] = [
    ("read_file", {}, "file_path: is required"),
    ("read_file", {"path": "src/app.py"}, "did you mean 'file_path'"),
    ("read_file", {"file_path": "src/app.py", "encoding": "utf-8"}, "not a known field"),
    ("read_file", {"file_path": 7}, "must be a string, not the integer 7"),
    ("read_file", {"file_path": None}, "must be a string, not null"),
    ("read_file", {"file_path": ["src/app.py"]}, "must be a string, not an array"),
    ("read_file", {"file_path": {"path": "src/app.py"}}, "must be a string, not an object"),
    ("read_file", {"file_path": "src/app.py", "offset": "1"}, "must be an integer"),
    ("read_file", {"file_path": "src/app.py", "offset": 3.9}, "must be an integer"),
    ("read_file", {"file_path": "src/app.py", "offset": True}, "must be an integer, not true"),
    ("edit_file", {"file_path": 1, "old_string": 2, "new_string": 3}, "new_string: must be"),
    (
        "edit_file",
        {"file_path": "a", "old_string": "b", "new_string": "c", "replace_all": "yes"},
        "must be true or false",
    ),
    ("write_file", {"file_path": "new", "content": {"a": 1}}, "must be a string, not an object"),
    ("planning_setup_plan", {"objective": "x", "initial_steps": "one"}, "must be an array"),
    ("planning_setup_plan", {"objective": "x", "initial_steps": [1]}, "initial_steps[0]: must be"),
    ("planning_update_step", {"step_id": "1", "status": "done"}, "must be an integer"),
    ("planning_update_step", {"step_id": 1, "status": "finished"}, "'in_progress'"),
    ("planning_read_plan", {"plan": 1}, "not a known field"),
]
OUT_OF_RANGE: list[tuple[str, Arguments, str]] = [
    ("read_file", {"file_path": "src/app.py", "offset": -1}, "must be at least 1"),
    ("read_file", {"file_path": "src/app.py", "offset": 0}, "must be at least 1"),
    ("read_file", {"file_path": "src/app.py", "limit": 0}, "must be at least 1"),
    ("read_file", {"file_path": "src/app.py", "offset": 4}, "has no line 4"),
    ("read_file", {"file_path": "src/app.py", "offset": 10**40}, "has no line"),
    ("read_file", {"file_path": "src/app.py", "offset": 10**5_000}, "too many digits"),
    ("write_file", {"file_path": "new", "content": "é" * 501}, "1002 bytes for new, at most 1000"),
    ("write_file", {"file_path": "new", "content": "x" * 5_000_000}, "at most 1000"),
    ("grep", {"pattern": ""}, "at least 1 character"),
    ("grep", {"pattern": "x" * 10_000}, "at most 1000"),
    ("glob", {"pattern": "*" * 10_000}, "at most 1000"),
    ("glob", {"pattern": "{a,b}" * 20}, "Use fewer braces"),
    ("planning_setup_plan", {"objective": " \n"}, "the objective has 0 characters"),
    ("planning_setup_plan", {"objective": "x" * 501}, "the objective has 501 characters"),
    ("planning_add_step", {"steps": []}, "at least 1 item"),
    ("planning_add_step", {"steps": ["fine", ""]}, "step 2 has 0 characters"),
    ("planning_add_step", {"steps": ["x" * 1_000_000]}, "must have 1 to 500"),
    ("planning_update_step", {"step_id": 0, "status": "done"}, "must be at least 1"),
    ("planning_update_step", {"step_id": 9, "status": "done"}, "Use one of its step ids: 1, 2"),
    ("planning_update_step", {"step_id": 1}, "neither a title nor a status"),
    ("planning_update_step", {"step_id": 1, "title": "\t"}, "the title has 0 characters"),
]
PATHS: list[tuple[str, Arguments, str]] = [
    (name, {**more, field: path}, words)
    for name, field, more in (
        ("read_file", "file_path", {}),
        ("write_file", "file_path", {"content": ""}),
        ("ls", "path", {}),
        ("rm", "path", {}),
        ("mv", "destination", {"source": "README.md"}),
    )
    for path, words in (
        ("../secret", "leads outside the workspace"),
        ("src/../../secret", "leads outside the workspace"),
        ("/etc/passwd", "leads outside the workspace"),
        ("a\0b", "NUL"),
        ("src\\app.py", "Separate names with '/'"),
        ("\ud800", "lone surrogates"),
        ("x" * 256, "at most 255"),
        ("x/" * 65, "at most 64"),
        ("x/" * 5_000, "at most 4,096 characters"),
    )
]
FILES: list[tuple[str, Arguments, str]] = [
    ("read_file", {"file_path": "src/ap.py"}, "Did you mean src/app.py?"),
    ("read_file", {"file_path": "src"}, "Name a file inside the directory"),
    ("read_file", {"file_path": ""}, "Name a file inside the directory"),
    ("read_file", {"file_path": "README.md/x"}, "Name a directory"),
    ("read_file", {"file_path": "data.bin"}, "not text"),
    ("read_file", {"file_path": "loop"}, "they may loop"),
    ("read_file", {"file_path": "outside"}, "outside leads outside the workspace"),
    ("write_file", {"file_path": "outside", "content": ""}, "outside leads outside the workspace"),
    ("ls", {"path": "README.md"}, "Name a directory"),
    ("ls", {"path": "nowhere"}, "List the directory"),
    ("write_file", {"file_path": "UNREAD.md", "content": ""}, "was not read yet; read it first"),
    ("write_file", {"file_path": "src", "content": ""}, "src is a directory"),
    ("write_file", {"file_path": "README.md/x", "content": ""}, "README.md is not a directory"),
    ("write_file", {"file_path": "new", "content": "\ud800"}, "lone surrogates"),
    ("rm", {"path": "nowhere"}, "List the directory"),
    ("rm", {"path": "."}, "Name a path below it"),
    ("mv", {"source": "nowhere", "destination": "x"}, "List the directory"),
    ("mv", {"source": "README.md", "destination": "src/app.py"}, "src/app.py exists already"),
    ("mv", {"source": "README.md", "destination": "src"}, "'src/README.md'"),
    ("mv", {"source": "src", "destination": "src/inner"}, "Choose a destination outside of it"),
    ("mv", {"source": ".", "destination": "x"}, "Name a path below it"),
]


def edit(old: str, new: str, file_path: str = "src/app.py") -> Arguments:
    return {"file_path": file_path, "old_string": old, "new_string": new}


def patch(*lines: str) -> Arguments:
    return {"patch": "\n".join(lines) + "\n"}


GOOD_HUNK = ("--- a/src/app.py", "+++ b/src/app.py", "@@ -1 +1 @@", "-one", "+1")
CHANGES: list[tuple[str, Arguments, str]] = [
    ("edit_file", edit("missing", "x"), "Read the file and copy the text"),
    ("edit_file", edit("tow", "x"), "2 | two"),
    ("edit_file", edit("twice", "x"), "Add lines around it until it is unique"),
    ("edit_file", edit("one", "one"), "the old and the new text are the same"),
    ("edit_file", edit("", "x"), "the text to replace is empty"),
    ("edit_file", edit("one", "x", "UNREAD.md"), "was not read yet; read it first"),
    ("edit_file", edit("one", "x", "src/nap.py"), "Did you mean src/app.py?"),
    ("edit_file", edit("one", "x" * 2_000), "at most 1000"),
    ("edit_file", edit("one", "x", "data.bin"), "was not read yet; read it first"),
    ("apply_patch", {"patch": ""}, "there is no patch"),
    ("apply_patch", {"patch": "change one to two, please"}, "there is no patch"),
    ("apply_patch", {"patch": "\0" * 1_000}, "there is no patch"),
    ("apply_patch", patch(*GOOD_HUNK[:3]), "patch line 3"),
    ("apply_patch", patch(*GOOD_HUNK[:3], "-eleven", "+1"), "src/app.py, hunk 1"),
    ("apply_patch", patch(*GOOD_HUNK, "@@ -3 +3 @@", "-missing", "+x"), "src/app.py, hunk 2"),
    (
        "apply_patch",
        patch("--- a/../x", "+++ b/../x", "@@ -1 +1 @@", "-a", "+b"),
        "leads outside the workspace",
    ),
    (
        "apply_patch",
        patch("--- a/no", "+++ b/no", "@@ -1 +1 @@", "-a", "+b"),
        "no (patch line 1): it does not exist",
    ),
    (
        "apply_patch",
        patch("--- /dev/null", "+++ b/UNREAD.md", "@@ -0,0 +1 @@", "+x"),
        "UNREAD.md was not read",
    ),
    (
        "apply_patch",
        patch("--- a/UNREAD.md", "+++ /dev/null", "@@ -1 +0,0 @@", "-one"),
        "UNREAD.md was not read",
    ),
    ("apply_patch", patch("*** Begin Patch", "*** Update File: src/app.py"), "patch line 2"),
    (
        "apply_patch",
        patch("*** Begin Patch", "*** Delete File: no", "*** End Patch"),
        "no (patch line 2): it does not exist",
    ),
    (
        "apply_patch",
        patch(
            *("diff --git a/README.md b/README.md/x", "similarity index 100%"),
            *("rename from README.md", "rename to README.md/x"),
            *("diff --git a/README.md/x b/README.md", "similarity index 100%"),
            *("rename from README.md/x", "rename to README.md"),
        ),
        "README.md/x (patch line 5): it does not exist",
    ),
    ("glob", {"pattern": ""}, "the glob pattern is empty"),
    ("glob", {"pattern": "/etc/*"}, "leads outside the workspace"),
    ("glob", {"pattern": "../*"}, "leads outside the workspace"),
    ("glob", {"pattern": "*", "path": "nowhere"}, "List the directory"),
    ("glob", {"pattern": "*", "path": "README.md"}, "Name a directory"),
    ("grep", {"pattern": "("}, "missing ) at position 1"),
    ("grep", {"pattern": "x", "path": "nowhere"}, "List the directory"),
    ("grep", {"pattern": "x", "glob": "../*"}, "leads outside the workspace"),
    ("grep", {"pattern": "x", "path": "outside"}, "outside leads outside the workspace"),
]

CALLS = [
    *UNKNOWN_TOOLS,
    *NOT_OBJECTS,
    *WRONG_TYPES,
    *OUT_OF_RANGE,
    *PATHS,
    *FILES,
    *CHANGES,
]


def workspace() -> MemoryFilesystem:
    files = MemoryFilesystem(
        {
            "README.md": "text\n",
            "UNREAD.md": "one\n",
            "src/app.py": "one\ntwo\ntwice twice\n",
            "data.bin": b"\x00\xff",
            "hostile.txt": "x" * 5_000,
        },
        limits=LIMITS,
    )
    files.symlink("loop", "loop")
    files._symlink(parse_path("outside"), "../../etc/passwd")  # the public method refuses it
    return files


def sections() -> list[Section[None]]:
    return [VfsToolsSection(), PlanningToolsSection()]


@pytest.mark.behaviour(14, 15, 19, 27, 46)
@pytest.mark.parametrize(
    ("name", "arguments", "words"), CALLS, ids=[words for _, _, words in CALLS]
)
def test_a_malformed_call_is_answered_once_with_a_hint_and_changes_nothing(
    name: str, arguments: Arguments, words: str
) -> None:
    with small_workspace(sections=sections(), filesystem=workspace()) as agent:
        for path in ("README.md", "src/app.py"):
            assert agent.call("read_file", file_path=path).result.success
        agent.call("planning_setup_plan", objective="Survive", initial_steps=["One", "Two"])
        state = (agent.filesystem.snapshot(), agent.session.dump_state())
        n_records = len(agent.records)

        outcome = agent.call(name, arguments)

        assert not outcome.result.success
        assert words in outcome.text
        assert len(outcome.text) < LONGEST_ANSWER
        assert agent.records[n_records:] == (outcome.event,)
        assert outcome.event.outcome is Outcome.ROLLED_BACK
        assert (agent.filesystem.snapshot(), agent.session.dump_state()) == state
        assert agent.filesystem.snapshot() is state[0]


@pytest.mark.behaviour(14)
def test_arguments_as_text_and_as_an_object_get_the_same_refusal() -> None:
    with small_workspace(sections=sections(), filesystem=workspace()) as agent:
        for name, arguments, _ in WRONG_TYPES:
            as_object = agent.call(name, arguments).text
            assert agent.call(name, json.dumps(arguments)).text == as_object


@pytest.mark.behaviour(14)
def test_all_problems_are_in_one_answer() -> None:
    with small_workspace(sections=sections()) as agent:
        answer = agent.call("edit_file", {"file_path": 1, "old": "x", "replace_all": 1}).text
    for name in ("file_path", "old", "old_string", "new_string", "replace_all"):
        assert f"{name}: " in answer


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("spelling", ["./a.txt", "a.txt/", "x/.././a.txt", ".//a.txt"])
def test_a_path_spelling_reaches_its_file_or_is_refused(spelling: str) -> None:
    with small_workspace(sections=sections(), files={"a.txt": "here\n"}) as agent:
        before = contents(agent.filesystem)
        outcome = agent.call("read_file", file_path=spelling)
        assert outcome.result.success == (".." not in spelling)
        assert contents(agent.filesystem) == before


def test_a_failed_call_keeps_the_empty_filesystem_of_a_new_workspace() -> None:
    with small_workspace(sections=sections()) as agent:
        files = agent.prompt.resources.get(Filesystem)
        assert not agent.call("write_file", file_path="../x", content="").result.success
        assert files is agent.prompt.resources.get(Filesystem)
        assert contents(files) == {}
