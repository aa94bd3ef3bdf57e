"""Agents of mini-swe-agent in a workspace: each command is one entry."""

from __future__ import annotations

import os
import shlex
import signal
import threading

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.models.test_models import DeterministicModel, make_output
from real_package import ADDED, BROKEN, CHECK, FILE, copy_package

from wink_workspace.integrations.mini_swe_agent import WinkEnvironment
from wink_workspace.session import Outcome
from wink_workspace.workspace import WorkspaceStorage

SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo It is done."


@pytest.fixture
def environment(tmp_path, container):
    storage = WorkspaceStorage(tmp_path / "workspaces")
    source = str(copy_package(tmp_path))
    environment = WinkEnvironment(source=source, storage=storage, sandbox=container, timeout_s=20)
    yield environment
    environment.close()


def append(text: str) -> str:
    return f"cat >> {FILE} <<'END'\n{text}\nEND"


def agent_of(environment: WinkEnvironment, *commands: str) -> DefaultAgent:
    outputs = [make_output("", [{"command": command}]) for command in commands]
    templates = {"system_template": "You edit.", "instance_template": "{{task}}"}
    model = DeterministicModel(outputs=outputs)
    return DefaultAgent(model, environment, cost_limit=0, **templates)


def test_an_agent_breaks_a_package_goes_back_and_ends_right(environment) -> None:
    workspace, check = environment.workspace, shlex.join(CHECK)
    agent = agent_of(environment, append(ADDED), append(BROKEN), check, SUBMIT)
    for _ in range(3):
        agent.step()
    assert "SyntaxError" in agent.messages[-1]["content"]
    broken = workspace.head
    assert broken.outcome is Outcome.COMMITTED  # a command that fails stays an entry
    workspace.restore(broken.number - 2)
    result = agent_of(environment, check, SUBMIT).run("Go on.")
    assert result == {"exit_status": "Submitted", "submission": "It is done.\n"}
    assert ADDED.encode() in workspace.files.read_bytes(FILE)
    assert b"Broken" not in workspace.files.read_bytes(FILE)
    saved = agent.serialize()["info"]["config"]["environment"]
    assert (saved["workspace"], saved["entry"]) == (workspace.info.id, workspace.head.number)


def test_a_command_that_fails_keeps_its_changes_and_one_that_is_ended_does_not(
    environment,
) -> None:
    workspace = environment.workspace
    before = workspace.head.number
    failed = environment.execute({"command": "echo kept > notes; echo wrong >&2; exit 3"})
    assert failed == {"output": "wrong\n", "returncode": 3, "exception_info": ""}
    assert workspace.head.number == before + 1
    assert workspace.files.read_bytes("notes") == b"kept\n"
    environment.config = type(environment.config)(timeout_s=0.5)
    ended = environment.execute({"command": "echo > trace; echo so far; sleep 60"})
    assert (ended["output"], ended["returncode"]) == ("so far\n", -1)
    assert "0.5 s" in ended["exception_info"]
    assert not workspace.files.exists("trace")
    assert workspace.head.outcome is Outcome.ROLLED_BACK


def test_ctrl_c_leaves_the_state_between_two_calls(environment) -> None:
    environment.execute({"command": "echo kept > notes"})
    timer = threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        environment.execute({"command": "echo > trace; sleep 60"})
    timer.join()
    assert environment.workspace.files.read_bytes("notes") == b"kept\n"
    assert not environment.workspace.files.exists("trace")


def test_a_workspace_is_opened_again_by_its_id_and_long_output_is_cut(
    environment, tmp_path, container
) -> None:
    found = environment.workspace.info.id
    environment.execute({"command": "echo kept > notes"})
    environment.close()
    storage = WorkspaceStorage(tmp_path / "workspaces")
    again = WinkEnvironment(workspace=found, storage=storage, sandbox=container, output_bytes=20)
    try:
        output = again.execute({"command": "cat notes; seq 100"})["output"]
        assert output.startswith("kept\n")
        assert "bytes left out" in output
        assert again.get_template_vars(task="x")["task"] == "x"
    finally:
        again.close()
