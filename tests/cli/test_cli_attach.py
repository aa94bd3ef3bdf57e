"""``run --attach``, and what other processes send to a run: messages, and a request to stop."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_user import DONE, READ, SHORT_RUN, CliUser
from model_server import KEY, ModelServer, Step, Turn
from screens import TASK, Project

from wink_workspace.workspace import RecordedRun, RunAbout, Workspace
from wink_workspace.workspace.runs.live_runs import PublishedRun, RunInProgress


class MeddlingServer(ModelServer):
    """Calls functions of the test before it answers requests, by their number."""

    def __init__(self, *steps: Step, meddle: Mapping[int, Callable[[], object]]) -> None:
        super().__init__(*steps)
        self._meddle = meddle

    def take(self, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Step]:
        number, step = super().take(asked, headers)
        if number in self._meddle:
            self._meddle[number]()
        return number, step

    def texts_of_user(self, request: int) -> list[str]:
        """What the user says in the n-th request."""
        return [
            block["text"]
            for message in self.requests[request - 1]["messages"]
            if message["role"] == "user"
            for block in message["content"]
            if block["type"] == "text"
        ]


def the_run(user: CliUser) -> RunInProgress:
    (run,) = RunInProgress.all(user.storage)
    return run


def send(user: CliUser, message: str) -> None:
    with closing(the_run(user)) as run:
        run.send(message)


@pytest.mark.behaviour(178)
def test_another_terminal_shows_the_running_command_each_call_and_the_end() -> None:
    with tempfile.TemporaryDirectory(prefix="screens-", dir="/tmp") as folder:
        project = Project(Path(folder))
        arguments = ("run", TASK, "--repo", project.source, "--script", project.script)
        with project.screen(*arguments, "--sandbox", "screen", columns=80) as running:
            running.wait_for(lambda text: "shell_execute: wait" in text)
            with project.screen("run", "--attach", columns=80) as attached:
                during = attached.wait_for(lambda text: "1 failed" in text)
                project.go_on.touch()
                after = attached.end()
            running.wait_for(lambda text: "[y,n,p,d,m,?]" in text)
            running.type("n")
            running.end()
    assert f"workspace {project_id(during)}, process " in during
    assert TASK[:60] in during
    assert "✓ edit_file" in during, "calls before it was attached are shown, too"
    assert "+print('hello')" in during
    assert "shell_execute: wait" in during
    assert "\x1b[31m1 failed" not in attached.received
    assert "20 lines" not in after
    assert "✓ shell_execute" in after
    assert after.rstrip().endswith("the run has ended")


def project_id(screen: str) -> str:
    return screen.split("workspace ")[1].split(",")[0]


@pytest.mark.behaviour(178)
def test_attaching_to_nothing_says_so(user: CliUser) -> None:
    user.serve(*SHORT_RUN)
    user.run("--yes")
    places = {
        "": (),
        " over ": ("--repo", user.source),
        " in ": ("--workspace", user.workspaces[0]),
    }
    for where, place in places.items():
        user("run", "--attach", *place, fails=2)
        assert f"no run is in progress{where}" in user.err
        assert "--resume" in user.err


def test_attaching_with_other_options_is_refused(user: CliUser) -> None:
    user("run", "Fix.", "--attach", "--repo", user.source, fails=2)
    assert "--attach only watches a run" in user.err


def test_one_of_several_runs_has_to_be_named(user: CliUser) -> None:
    published: list[PublishedRun] = []
    for _ in range(2):
        with Workspace.create(user.source, storage=user.storage) as workspace:
            folder = user.storage.folder(workspace.info.id)
            published.append(PublishedRun(RecordedRun.begin(folder, RunAbout("t", "", "none", 1))))
    user("run", "--attach", fails=2)
    assert "2 runs are in progress" in user.err
    assert all(which in user.err for which in user.workspaces)
    for run in published:
        run.end()


@pytest.mark.behaviour(179)
def test_message_reaches_the_model_after_its_turn(user: CliUser) -> None:
    server = MeddlingServer(*SHORT_RUN, meddle={1: lambda: send(user, "Be polite.")})
    user.serve_by(server)
    user.run("--yes")
    assert "Be polite." not in server.texts_of_user(1)
    assert server.texts_of_user(2)[-1] == "Be polite."
    assert server.texts_of_user(3).count("Be polite.") == 1
    assert "> Be polite." in user.err


@pytest.mark.behaviour(179)
def test_message_during_the_last_turn_continues_the_run(user: CliUser) -> None:
    server = MeddlingServer(
        Turn("Reading.", (READ,)), DONE, Turn("Done, politely."),
        meddle={2: lambda: send(user, "And politely.")},
    )  # fmt: skip
    user.serve_by(server)
    assert "Done, politely." in user.run()
    assert server.texts_of_user(3)[-1] == "And politely."


@pytest.mark.behaviour(179)
def test_stopped_run_continues_with_its_message_when_it_is_resumed(user: CliUser) -> None:
    interrupted = MeddlingServer(
        Turn("Reading.", (READ,)), DONE,
        meddle={1: lambda: send(user, "Be polite."), 2: lambda: the_run(user).stop()},
    )  # fmt: skip
    user.serve_by(interrupted)
    user.run(fails=130)
    assert "interrupted" in user.err
    assert list(RunInProgress.all(user.storage)) == []

    user.serve(DONE)
    user("run", "--repo", user.source, "--resume", "--yes")
    assert "Be polite." in json.dumps(user.server.requests[0]["messages"])


def test_secret_in_a_message_reaches_neither_the_model_nor_the_disk(user: CliUser) -> None:
    server = MeddlingServer(*SHORT_RUN, meddle={1: lambda: send(user, f"Use {KEY}.")})
    user.serve_by(server)
    user.run("--yes")
    assert "Use [" in server.texts_of_user(2)[-1]
    (which,) = user.workspaces
    for path in user.storage.folder(which).runs.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()
