"""``run --agent`` in a container, also with the real programs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_contract import *  # noqa: F403 - the tests that every sandbox passes
from agent_contract import CHECK, FILE, WINK, Machine, pid_in_sandbox
from loopback import package_registries
from model_server import KEY, Call, HangingTurn, Step, Turn

from wink_workspace.agents import AgentProgram
from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.ledger import EntryKind
from wink_workspace.sandbox.podman import PodmanConfig
from wink_workspace.sandbox.podman.building.images import ImageStore
from wink_workspace.session import Outcome

pytestmark = pytest.mark.xdist_group("podman")

HOME = "HOME=/workspace/.wink-agent/home"


@pytest.fixture
def backend() -> PodmanConfig:
    return PodmanConfig()


@pytest.mark.behaviour(208)
def test_an_agent_program_without_its_image_is_refused_before_anything_is_copied(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    source = machine.root / "source"
    with machine.provider(name="anthropic") as provider:
        assert main(machine.arguments_of("claude-code")) == 2
        err = capfd.readouterr().err
        assert f"no image of {source} has claude-code" in err
        command = f"wink-workspace image build --source {source} --agent claude-code"
        assert command in " ".join(err.split())
        assert not (machine.root / "state").exists()
    assert provider.requests == []


def _claude(file: str) -> tuple[Turn, ...]:
    """A read, three edits and a test run with the tools of Claude Code."""
    path = f"/workspace/{file}"

    def edited(old: str, new: str) -> Turn:
        values = {"file_path": path, "old_string": old, "new_string": new}
        return Turn(calls=(Call("Edit", values),))

    return (
        Turn(calls=(Call("Read", {"file_path": path}),)),
        edited("class Parse", "# one\nclass Parse"),
        edited("# one", "# two"),
        edited("# two", "# three"),
        Turn(calls=(Call("Bash", {"command": CHECK}),)),
    )


def _codex(file: str) -> tuple[Turn, ...]:
    """The same with the one tool of Codex for a model that it does not know."""

    def run(command: str) -> Turn:
        return Turn(calls=(Call("exec_command", {"cmd": command}),))

    return (
        run(f"cat {file}"),
        run(f"sed -i '1i # one' {file}"),
        run(f"sed -i 's/# one/# two/' {file}"),
        run(f"sed -i 's/# two/# three/' {file}"),
        run(CHECK),
    )


def _opencode(file: str) -> tuple[Turn, ...]:
    """The same with the tools of opencode."""
    path = f"/workspace/{file}"

    def edited(old: str, new: str) -> Turn:
        values = {"filePath": path, "oldString": old, "newString": new}
        return Turn(calls=(Call("edit", values),))

    return (
        Turn(calls=(Call("read", {"filePath": path}),)),
        edited("class Parse", "# one\nclass Parse"),
        edited("# one", "# two"),
        edited("# two", "# three"),
        Turn(calls=(Call("bash", {"command": CHECK, "description": "check"}),)),
    )


TURNS = {"claude-code": _claude, "codex": _codex, "opencode": _opencode}


@pytest.fixture
def image_with(machine: Machine, environment: Environment) -> Iterator[Callable[[str], None]]:
    """Builds the image of the project with an agent program, which npm downloads."""
    source = machine.root / "source"

    def build(agent: str) -> None:
        with package_registries():
            assert main(["image", "build", "--source", str(source), "--agent", agent]) == 0

    yield build
    store = ImageStore(environment)
    names = [image.reference for image in store.all() if image.source == str(source)]
    if names:
        store.programs.podman("rmi", "--force", *names)


@pytest.mark.clients
@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("killed", ["", "host", "container"])
def test_calls_of_a_real_agent_program_are_entries_and_a_kill_loses_nothing(
    machine: Machine,
    image_with: Callable[[str], None],
    name: str,
    killed: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    program = AgentProgram.named(name)
    assert program.provider is not None
    place = {"name": program.provider.name, "header": program.provider.header}
    image_with(name)
    found: list[dict[str, list[str]]] = []

    def kill() -> None:
        pid = pid_in_sandbox(program.executable)
        found.append({text: _places_in_container(pid, text) for text in (KEY, HOME, "# three")})
        if killed == "host":
            process.kill()
        else:
            os.kill(pid, signal.SIGKILL)

    steps = TURNS[name](FILE)
    last: Step = HangingTurn(Turn("Now"), n_events=1, then=kill) if killed else Turn("All done.")
    with machine.provider(*steps, last, **place) as provider:
        command = [*WINK, *machine.arguments_of(name), "--yes"]
        command += [] if name == "claude-code" else ["--model", "scripted"]
        process = subprocess.Popen(command, env={**os.environ, **machine.variables})
        code = process.wait(200)
    out, err = capfd.readouterr()

    assert code == {"": 0, "host": -signal.SIGKILL, "container": 1}[killed], err
    with machine.opened() as workspace:
        calls = [each for each in workspace.log() if each.kind is EntryKind.CALL][::-1]
        assert [each.outcome for each in calls] == [Outcome.COMMITTED] * (5 if killed else 6)
        assert all(each.tool.startswith(name) for each in calls)
        assert [workspace.review_of(each).text() != "" for each in calls[:5]] == [
            *(False, True, True, True, False)
        ]
        assert "passed" in str(workspace.record(calls[4]).event.value)
        assert "+# three" in workspace.diff()
        workspace.undo()
        assert "+# two" in workspace.diff()
        assert workspace.discarded() == ()
    assert KEY not in out + err
    assert machine.holds_no_key()
    assert all(KEY in str(headers) for headers in provider.headers)
    for places in found:
        assert places[KEY] == []
        assert any(place.startswith("/proc/") for place in places[HOME])
        assert f"/workspace/{FILE}" in places["# three"]
    assert len(found) == bool(killed)
    if killed == "host":
        with machine.provider(Turn("All done."), **place) as provider:
            command = [*("run", "--workspace", machine.workspace, "--agent", name, "--resume")]
            command += [] if name == "claude-code" else ["--model", "scripted"]
            assert main([*command, "--yes"]) == 0
        conversation = str(provider.requests)
        assert "You were interrupted." in conversation
        assert "Fix it." in conversation  # in the same session
        assert "starts again" not in capfd.readouterr().err


def _places_in_container(pid: int, text: str) -> list[str]:
    """The files of a container that have *text*, and of its processes the arguments and variables."""
    root = Path(f"/proc/{pid}/root")
    processes = [
        str(process / name)
        for process in (root / "proc").glob("[0-9]*")
        for name in ("cmdline", "environ")
    ]
    leave_out = [f"--exclude-dir={name}" for name in ("proc", "sys", "dev")]
    command = ["grep", "-rlsaF", "--devices=skip", *leave_out, "-e", text, f"{root}/", *processes]
    listed = subprocess.run(command, capture_output=True, text=True).stdout
    return [f"/{line.removeprefix(str(root)).lstrip('/')}" for line in listed.splitlines()]
