"""A process is killed while a command runs: the next one recovers the workspace.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import executor_of
from workspace.workspace_rig import assert_fsck_clean, assert_same, picture

from wink_workspace import PodmanSandboxSection, Prompt, Workspace, WorkspaceStorage
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError
from wink_workspace.runtime import ToolCall
from wink_workspace.sandbox.commands.leftovers import COMMANDS, end_leftover, note
from wink_workspace.sandbox.commands.live_container import LiveContainer
from wink_workspace.sandbox.podman import PodmanService
from wink_workspace.sandbox.podman.engine.containers import (
    WORKSPACE_LABEL,
    Container,
    Host,
    container_spec,
    new_name,
    remove,
)
from wink_workspace.sandbox.podman.engine.podman_config import PodmanConfig
from wink_workspace.session import Outcome

pytestmark = pytest.mark.xdist_group("podman")

VICTIM = """
import sys
from wink_workspace import *
from wink_workspace.clock import Heartbeat

workspace = Workspace.open(sys.argv[1], storage=WorkspaceStorage(sys.argv[2]))
prompt = Prompt(ns="t", key="p", sections=[PodmanSandboxSection()])
prompt.bind(resources=workspace.resources)
heartbeat = Heartbeat()
with prompt.resources:
    prompt.install(workspace.session)
    executor = ToolExecutor(
        prompt=prompt, rendered_prompt=prompt.render(session=workspace.session),
        adapter=ScriptedAdapter(()), session=workspace.session, heartbeat=heartbeat,
    )
    executor.execute(ToolCall("shell_execute", command="echo 1 > committed"))
    workspace.sandbox().shell
    heartbeat.observe(lambda: print("beat", flush=True))
    executor.execute(ToolCall("shell_execute", command=sys.argv[3]))
"""

BUSY = (
    "echo half > half; rm -r src; chmod 000 empty; echo nearly there;"
    "(setsid sh -c 'while :; do echo x >> late; done' &); sleep 1000"
)


@pytest.fixture
def storage(tmp_path: Path, environment: Environment) -> WorkspaceStorage:
    source = tmp_path / "source"
    (source / "src").mkdir(parents=True)
    (source / "src" / "app.py").write_text("x = 1\n")
    (source / "empty").mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    Workspace.create(source, storage=storage).close()
    return storage


def kill_in_a_command(storage: WorkspaceStorage, command: str) -> None:
    """Kill a process after the command that it runs has produced output."""
    (info,) = storage.all()
    with subprocess.Popen(
        # The victim opens the same storage through XDG_STATE_HOME.
        [sys.executable, "-c", VICTIM, info.id, str(storage._root.parent), command],
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        beats = [victim.stdout.readline() for _ in range(2)]  # one before the call, one in it
        assert beats == ["beat\n", "beat\n"]
        victim.send_signal(signal.SIGKILL)


def containers_of(files: Path) -> list[str]:
    service = PodmanService(Environment.from_os())
    try:
        filters = json.dumps({"label": [f"{WORKSPACE_LABEL}={files}"], "status": ["running"]})
        listed = service.request(
            "GET", "/containers/json", params={"all": "true", "filters": filters}
        )
        return [found["Id"] for found in listed]
    finally:
        service.close()


@pytest.mark.behaviour(63)
def test_a_workspace_is_recovered_after_its_process_was_killed_in_a_command(
    storage: WorkspaceStorage,
) -> None:
    (info,) = storage.all()
    kill_in_a_command(storage, BUSY)
    with Workspace.open(info.id, storage=storage) as workspace:
        files = workspace._folder.files
        assert containers_of(files) == []
        assert (files / "committed").read_text() == "1\n"
        assert (files / "src" / "app.py").exists()
        assert not (files / "half").exists()
        entry = next(iter(workspace.log(limit=1)))
        assert entry.outcome is Outcome.UNKNOWN
        event = workspace.record(entry).event
        assert event is not None
        assert "stdout: nearly there" in event.text
        before = picture(files)
        prompt = Prompt(ns="t", key="p", sections=[PodmanSandboxSection()])
        prompt.bind(resources=workspace.resources)
        with prompt.resources:
            prompt.install(workspace.session)
            executor = executor_of(prompt, workspace.session)
            outcome = executor.execute(ToolCall("shell_execute", command="cat committed; ls"))
            assert outcome.text == "Exit code 0\n\ncommitted\nempty\nsrc\n".replace(
                "\n\n", "\n\n1\n"
            )
        assert_same(before, picture(files))
    assert_fsck_clean(workspace._folder.ledger)
    assert not (workspace._folder.sandbox / "container.json").exists()


# A container that does not end by itself


def start_stubborn_container(service: PodmanService, image: str, files: Path) -> LiveContainer:
    """Start a container that does not notice the end of its owner."""
    spec = container_spec(
        PodmanConfig(image=image),
        host=Host.of(service),
        name=new_name(),
        workspace=files,
        command=("/bin/sh", "-c", "while :; do sleep 1; done"),
    )
    return Container(service, spec, timeout_s=60).start()


def test_a_running_leftover_container_is_ended_when_its_workspace_opens(
    storage: WorkspaceStorage, service: PodmanService, python_image: str
) -> None:
    (info,) = storage.all()
    with Workspace.open(info.id, storage=storage) as workspace:
        folder = workspace._folder
    folder.sandbox.mkdir(exist_ok=True)
    container = start_stubborn_container(service, python_image, folder.files)
    note(folder.sandbox / COMMANDS, container)
    (folder.sandbox / "stdout").write_text("its last output")
    with Workspace.open(info.id, storage=storage):
        assert containers_of(folder.files) == []
    assert list(folder.sandbox.iterdir()) == []


def test_a_leftover_container_that_we_cannot_kill_is_ended_by_the_engine(
    tmp_path: Path, service: PodmanService, python_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user cannot kill its processes, because they belong to other ids."""
    import wink_workspace.sandbox.commands.leftovers as leftovers

    monkeypatch.setattr(leftovers, "kill_first_process", lambda container: None)
    # The real wait would be spent in full.
    monkeypatch.setattr(leftovers, "_END_TIMEOUT_S", 0.2)
    (tmp_path / "files").mkdir()
    container = start_stubborn_container(service, python_image, tmp_path / "files")
    note(tmp_path / COMMANDS, container)
    with pytest.raises(SandboxError, match=f"podman rm --force {container.name}"):
        end_leftover(tmp_path, lambda name: None)
    # The engine needs more time.
    monkeypatch.setattr(leftovers, "_END_TIMEOUT_S", 3.0)
    assert end_leftover(tmp_path, lambda name: remove(service, name)) == ""
    assert not (tmp_path / "container.json").exists()


def test_a_note_of_an_ended_container_needs_no_engine(tmp_path: Path) -> None:
    note(tmp_path / COMMANDS, LiveContainer("gone", 2**22 + 1, 1))
    (tmp_path / "stderr").write_text("last\n")

    def never(name: str) -> None:
        raise AssertionError(name)

    assert end_leftover(tmp_path, never) == "stderr: last"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "a", "pid": "x", "started": 1}', "\0"])
def test_an_unreadable_note_is_ignored(tmp_path: Path, text: str) -> None:
    """A note is replaced atomically, so a truncated note was never valid."""
    (tmp_path / "container.json").write_text(text)
    assert end_leftover(tmp_path, lambda name: None) == ""
