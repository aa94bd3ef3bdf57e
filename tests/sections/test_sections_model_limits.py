"""Limits for models apply to tools, not to the program that uses the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from fake_sandbox import FakeConfig, FakeSandbox
from support import small_workspace

from wink_workspace.errors import LimitExceededError
from wink_workspace.filesystem import Filesystem, FilesystemLimits, MemoryFilesystem, parse_path
from wink_workspace.sandbox import ExecRequest, Sandbox, SandboxContext
from wink_workspace.sandbox.asteval import AstevalConfig, EvaluationRequest
from wink_workspace.sandbox.asteval.file_calls import FileAccess
from wink_workspace.sections import (
    CommandLimits,
    FileToolLimits,
    SandboxSection,
    VfsToolsSection,
    command_tools,
)
from wink_workspace.session import Session
from wink_workspace.workspace import Workspace

MIB = 1_048_576
PATCH = "--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n-first\n+1st\n"


SESSIONS: WeakKeyDictionary[Filesystem, Session] = WeakKeyDictionary()
"""The session of a workspace's files, which has their history."""


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filesystem]:
    if request.param == "memory":
        yield MemoryFilesystem()
        return
    source = tmp_path / "source"
    source.mkdir()
    with Workspace.temporary(source) as workspace:
        SESSIONS[workspace.files] = workspace.session
        yield workspace.files


def test_a_program_may_write_edit_and_patch_beyond_the_limits_of_its_tools(
    files: Filesystem,
) -> None:
    large = "first\n" + "x" * (10 * MIB) + "\nlast\n"
    files.write_text("large", large)
    files.edit("large", "last", "end")
    files.apply_patch(PATCH.format("large"))
    large = files.read_bytes("large").decode()
    assert (large[:4], large[-4:]) == ("1st\n", "end\n")
    with small_workspace(
        sections=[VfsToolsSection(policies=())], filesystem=files, session=SESSIONS.get(files)
    ) as agent:
        for name, arguments in {
            "write_file": {"file_path": "new", "content": "x" * (8 * MIB + 1)},
            "edit_file": {"file_path": "large", "old_string": "end", "new_string": "x"},
            "apply_patch": {"patch": PATCH.replace("first", "1st").format("large")},
        }.items():
            outcome = agent.call(name, **arguments)
            assert not outcome.result.success
            assert "at most 8388608 allowed" in outcome.text, name
        assert agent.call("write_file", file_path="new", content="x" * (8 * MIB)).result.success


@pytest.mark.parametrize(("tool", "filesystem"), [(4, MIB), (MIB, 4)])
def test_the_smaller_limit_of_tool_and_filesystem_applies(tool: int, filesystem: int) -> None:
    files = MemoryFilesystem(limits=FilesystemLimits(write_bytes=filesystem))
    section = VfsToolsSection(files, limits=FileToolLimits(write_bytes=tool))
    with small_workspace(
        sections=[section], filesystem=files, session=SESSIONS.get(files)
    ) as agent:
        assert "4 bytes per write" in agent.prompt.render().text
        assert agent.call("write_file", file_path="a", content="1234").result.success
        text = agent.call("write_file", file_path="b", content="12345").text
        assert "5 bytes for b, at most 4 allowed" in text


def test_code_in_asteval_has_the_write_limit_of_the_tools() -> None:
    files, path = MemoryFilesystem(), parse_path("a")
    access = FileAccess(files, EvaluationRequest(code="", writes=(path,)), AstevalConfig())
    access.write("a", b"x" * MIB, "overwrite")
    with pytest.raises(LimitExceededError, match="at most 1048576 allowed"):
        access.write("a", b"x" * (MIB + 1), "overwrite")


def commands(sandbox: Sandbox, **limits: int) -> Any:
    tools = command_tools(CommandLimits(**limits), with_python=False)
    section = SandboxSection(FakeConfig(), "Commands.", tools=tools)
    return small_workspace(sections=[section], resources={Sandbox: sandbox})


def test_commands_of_a_model_are_limited_and_those_of_a_program_are_not(tmp_path: Path) -> None:
    sandbox = FakeSandbox(SandboxContext(files=tmp_path), FakeConfig())
    with commands(sandbox, stdin_bytes=4, request_bytes=9) as agent:
        call = agent.call
        assert call("shell_execute", command="put a 123", stdin="1234").result.success
        assert "longer than the 4 bytes" in call("shell_execute", command="ls", stdin="12345").text
        assert "10 bytes, 9 are allowed" in call("shell_execute", command="put a 1234").text
        variables = {"NAME": "value"}
        assert "12 bytes, 9 are allowed" in call("shell_execute", command="ls", env=variables).text
        request = ExecRequest(argv=("put", "a", "x" * 20), stdin=b"12345")
        assert sandbox.run(request).exit_code == 0


# Names with a backslash


def test_every_file_tool_accepts_a_name_with_a_backslash(files: Filesystem) -> None:
    files.write_text("a\\b", "first\n")
    with small_workspace(
        sections=[VfsToolsSection()], filesystem=files, session=SESSIONS.get(files)
    ) as agent:
        for name, arguments, expected in [
            ("ls", {}, "a\\b"),
            ("glob", {"pattern": "a\\b"}, "a\\b"),
            ("grep", {"pattern": "first", "path": "a\\b"}, "first"),
            ("read_file", {"file_path": "a\\b"}, "first"),
            ("apply_patch", {"patch": PATCH.format("a\\b")}, "Patched 1 file"),
            ("edit_file", {"file_path": "a\\b", "old_string": "1st", "new_string": "one"}, "+one"),
            ("write_file", {"file_path": "a\\b", "content": "all\n"}, "Overwrote a\\b"),
            ("write_file", {"file_path": "new\\name", "content": ""}, "Created new\\name"),
            ("mv", {"source": "a\\b", "destination": "c\\d"}, "Moved a\\b to c\\d"),
            ("rm", {"path": "c\\d"}, "Deleted c\\d"),
        ]:
            outcome = agent.call(name, **arguments)
            assert outcome.result.success, outcome.text
            assert expected in outcome.text
    assert [entry.path.name for entry in files.list()] == ["new\\name"]


def test_backslashes_as_separators_are_answered_with_the_right_path() -> None:
    files = MemoryFilesystem({"src/app.py": "text"})
    with small_workspace(
        sections=[VfsToolsSection()], filesystem=files, session=SESSIONS.get(files)
    ) as agent:
        read = agent.call("read_file", file_path="src\\app.py")
        assert "Separate names with '/', as in 'src/app.py'." in read.text
        write = agent.call("write_file", file_path="src\\new.py", content="")
        assert not write.result.success
        assert "Separate names with '/', as in 'src/new.py'." in write.text
        escape = agent.call("write_file", file_path="..\\new.py", content="")
        assert "leads outside" in escape.text
    assert [str(entry.path) for entry in files.walk()] == ["src", "src/app.py"]
