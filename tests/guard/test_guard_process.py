"""A simulated agent that reports its calls by the hook script, to a real guard process."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from guard_rig import Agent, git, repository

from wink_workspace.serde.json_values import bounded_json

FILES = {"a.txt": b"a\n", "b.txt": b"b\n", "src/c.py": b"c = 1\n", ".gitignore": b"/data/\n"}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    source = repository(tmp_path, FILES)
    (source / ".env").write_text("KEY=1\n")
    (source / "data").mkdir()
    (source / "data/x.csv").write_text("1\n")
    (source / "untracked.txt").write_text("mine\n")
    agent = Agent(tmp_path)
    agent.guarded()
    yield agent
    process = agent.process_id()
    if process is not None:
        os.kill(process, signal.SIGTERM)


def test_each_call_is_an_entry_and_edits_in_between_are_external(agent: Agent) -> None:
    with agent.conversation():
        agent.edit("a.txt", "agent\n")
        (agent.source / "b.txt").write_text("person\n")
        agent.shell("mkdir new && echo 1 >new/d.txt")
        agent.call(lambda: None, "Read", file_path=str(agent.source / "a.txt"))
    agent.wait_for_end()
    assert agent.entries() == [
        ("Write", ["a.txt"]),
        ("external", ["b.txt"]),
        ("Bash", ["new", "new/d.txt"]),
        ("Read", []),
    ]


def test_person_saves_another_file_while_an_edit_is_open(agent: Agent) -> None:
    with agent.conversation():
        call = agent.begin("Edit", file_path=str(agent.source / "a.txt"))
        (agent.source / "a.txt").write_text("agent\n")
        (agent.source / "b.txt").write_text("person\n")
        agent.end(call)
    agent.wait_for_end()
    assert agent.entries() == [("Edit", ["a.txt"]), ("external", ["b.txt"])]


def test_reset_and_removal_of_untracked_and_ignored_files_are_taken_back(agent: Agent) -> None:
    with agent.conversation():
        agent.edit("a.txt", "agent\n")
        agent.shell("git reset -q --hard && git clean -fdxq && rm -rf src")
        assert not (agent.source / "data/x.csv").exists()
        with agent.opened() as workspace:
            workspace.undo(uncertain=True)
            workspace.restore_discarded(workspace.discarded()[0].discard)
        agent.edit("a.txt", "again\n")
    agent.wait_for_end()
    assert (agent.source / "untracked.txt").read_text() == "mine\n"
    assert (agent.source / "src/c.py").read_text() == "c = 1\n"
    assert (agent.source / "data/x.csv").read_text() == "1\n"
    assert (agent.source / ".env").read_text() == "KEY=1\n"
    tools = [tool for tool, _ in agent.entries()]
    assert tools == ["Write", "Bash", "undo", "restore", "Write"]


def test_call_without_an_end_ends_with_its_turn(agent: Agent) -> None:
    with agent.conversation():
        agent.begin("Bash", command="make")
        (agent.source / "a.txt").write_text("made\n")
        agent.report("Stop")
        agent.edit("b.txt", "agent\n")
    agent.wait_for_end()
    assert agent.entries() == [("Bash", ["a.txt"]), ("Write", ["b.txt"])]


def test_calls_of_two_subagents_that_overlap_share_an_entry(agent: Agent) -> None:
    with agent.conversation():
        one = agent.begin("Bash", command="one")
        two = agent.begin("Bash", command="two")
        (agent.source / "a.txt").write_text("who?\n")
        agent.end(one)
        agent.end(two)
    agent.wait_for_end()
    assert agent.entries() == [("Bash", []), ("Bash", []), ("Bash", ["a.txt"])]
    with agent.reader() as reader:
        shared = next(reader.log())
        assert [*reader.record(shared).event.uncertain_paths] == ["a.txt"]


def test_killed_process_loses_nothing_and_the_next_event_starts_another(agent: Agent) -> None:
    agent.report("SessionStart")
    agent.edit("a.txt", "one\n")
    call = agent.begin("Bash", command="sed")
    (agent.source / "b.txt").write_text("two\n")
    process = agent.process_id()
    assert process is not None
    os.kill(process, signal.SIGKILL)
    agent.end(call)
    agent.edit("a.txt", "three\n")
    agent.report("SessionEnd")
    agent.wait_for_end()
    assert agent.entries() == [("Write", ["a.txt"]), ("external", ["b.txt"]), ("Write", ["a.txt"])]


def test_keys_of_the_environment_are_in_no_entry(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "sk-0123456789")
    with agent.conversation():
        agent.shell("echo sk-0123456789")
    agent.wait_for_end()
    with agent.reader() as reader:
        record = str(reader.record(next(reader.log())).event)
    assert "sk-0123456789" not in record
    assert "[PROVIDER_API_KEY]" in record


def test_key_at_the_end_of_what_is_kept_is_redacted_before_the_text_is_cut() -> None:
    text = "x" * 16_380 + "sk-0123456789"
    kept = str(bounded_json([text], lambda each: each.replace("sk-0123456789", "[KEY]")))
    assert "sk-" not in kept


def test_two_conversations_at_once_lose_nothing(agent: Agent, tmp_path: Path) -> None:
    other = Agent(tmp_path, session="s2")

    def edits(one: Agent, name: str) -> None:
        for n in range(5):
            one.edit(name, f"{n}\n")

    with agent.conversation(), other.conversation(), ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(edits, agent, "a.txt"), pool.submit(edits, other, "b.txt")]:
            done.result()
    agent.wait_for_end()
    entries = sorted(agent.entries())
    assert entries == [("Write", ["a.txt"])] * 5 + [("Write", ["b.txt"])] * 5


def test_event_that_arrives_while_the_process_ends_starts_another(agent: Agent) -> None:
    for n in range(5):
        with agent.conversation():
            agent.edit("a.txt", f"{n}\n")
    agent.wait_for_end()
    assert agent.entries() == [("Write", ["a.txt"])] * 5


def test_project_that_is_not_guarded_is_left_alone(agent: Agent, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    agent.source = other
    assert agent.report("PreToolUse", tool_name="Bash", tool_input={}) == "{}"
    assert [info.source for info in agent.storage.all()] == [str(tmp_path / "source")]


def test_user_repository_and_files_of_the_project_are_not_written(agent: Agent) -> None:
    before = git(agent.source, "status", "--porcelain", "--ignored")
    with agent.conversation():
        agent.shell("true")
    agent.wait_for_end()
    assert git(agent.source, "status", "--porcelain", "--ignored") == before


def test_only_the_user_can_read_what_hooks_report(agent: Agent) -> None:
    with agent.conversation():
        for path in agent.pipes.directory.iterdir():
            if path.name in ("bell", "hook", "owner"):
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    assert not stat.S_IMODE(agent.pipes.directory.stat().st_mode) & 0o077


def test_event_that_is_not_json_is_answered_and_does_no_harm(agent: Agent) -> None:
    import subprocess

    done = subprocess.run(
        ["/bin/sh", str(agent.pipes.script), "claude-code"],
        input="{", text=True, capture_output=True, timeout=30, check=True,
    )  # fmt: skip
    assert done.stdout == "{}"
    with agent.conversation():
        agent.edit("a.txt", "agent\n")
    agent.wait_for_end()
    assert agent.entries() == [("Write", ["a.txt"])]
