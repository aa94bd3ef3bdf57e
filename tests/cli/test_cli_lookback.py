"""``bisect``, ``blame`` and ``fork --at`` from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from cli_user import CliUser
from fake_sandbox import registered

from wink_workspace.workspace import Workspace, WorkspaceStorage


@pytest.fixture(autouse=True)
def _fake() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture
def name(user: CliUser) -> str:
    """A workspace whose file ``f`` had ``good`` until entry 4."""
    name = user("new", user.source).split(":")[0]
    storage = WorkspaceStorage(user.tmp_path / "state/wink-workspace")
    with Workspace.open(name, storage=storage) as workspace:
        for text in ("good 1\n", "good 2\nmore\n", "bad\nmore\n", "bad\nmore\nend\x1b[0m\n"):
            with workspace.call("edit_file"):
                workspace.files.write_text("f", text)
    return name


BISECT = ("--sandbox", "fake", "--", "find", "f", "good")


@pytest.mark.behaviour(111)
def test_bisect_names_the_entry_that_broke_a_command(user: CliUser, name: str) -> None:
    shown = user("bisect", name, *BISECT)
    assert "first failing entry: 4  edit_file" in shown
    assert "last passing entry:  3  edit_file" in shown
    assert f"see: wink-workspace show {name} 4" in shown
    assert shown.startswith("fake:\n"), "what the command printed there"
    assert user.err.splitlines()[0].startswith("entry 5 failed (exit code 1): edit_file")
    found = json.loads(user("bisect", name, "--json", "--good", "2", *BISECT))
    assert [each["number"] for each in found["suspects"]] == [4]
    assert found["last_passed"] == 3
    assert found["output"].startswith("fake:")
    assert [each["verdict"] for each in found["tests"]] == ["failed", "passed", "failed"]


@pytest.mark.behaviour(111)
def test_bisect_refuses_a_command_that_works_and_says_so(user: CliUser, name: str) -> None:
    user("bisect", name, "--sandbox", "fake", "--", "cat", "f", fails=2)
    assert "does not fail at the newest entry, 5: it passed" in user.err


@pytest.mark.behaviour(111)
def test_bisect_without_an_older_entry_that_works_says_so(user: CliUser, name: str) -> None:
    shown = user("bisect", name, "--sandbox", "fake", "--", "unknown")
    assert "first failing entry: 1  " in shown
    assert "no older entry is kept" in shown
    shown = user("bisect", name, "--sandbox", "fake", "--", "find", "f", "bad 2")
    assert "one of these, as tests were skipped" in shown


@pytest.mark.behaviour(110)
def test_blame_shows_the_entry_of_each_line(user: CliUser, name: str) -> None:
    lines = user("blame", name, "f").splitlines()
    assert [line.split(" ")[0] for line in lines] == ["4", "3", "5"]
    assert lines[2].endswith("edit_file  3) end\ufffd[0m")
    assert user("blame", name, "f", "--at", "2").splitlines()[0].startswith("2 ")
    found = json.loads(user("blame", name, "f", "--json"))
    assert (found[0]["line"], found[0]["entry"], found[0]["tool"]) == (1, 4, "edit_file")
    user("blame", name, "missing", fails=1)
    assert "missing is not in entry 5" in user.err


def test_fork_at_an_older_entry_has_its_files(user: CliUser, name: str) -> None:
    user("fork", name, "old", "--at", "2")
    storage = WorkspaceStorage(user.tmp_path / "state/wink-workspace")
    with Workspace.open(name, storage=storage, branch="old") as fork:
        assert fork.files.read_text("f").text == "good 1"
        assert fork.head.number == 2
    user("fork", name, "none", "--at", "99", fails=1)
    assert "99" in user.err
