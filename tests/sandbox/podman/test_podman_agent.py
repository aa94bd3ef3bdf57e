"""``run --agent``: a program in a container, with a provider behind the proxy, is recorded."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import iniconfig
import pytest
import trustme
from loopback import package_registries
from model_server import KEY, Call, HangingTurn, ModelServer, Step, Turn

from wink_workspace.agents import AgentProgram
from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.ledger import EntryKind
from wink_workspace.sandbox.podman.building.images import ImageStore
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage

pytestmark = pytest.mark.xdist_group("podman")

FILE = "iniconfig/exceptions.py"
CHECK = "python3 -B -c \"import iniconfig; print('passed')\""
HOME = "HOME=/workspace/.wink-agent/home"
EVIL = "python3 -c \"import urllib.request as u; u.urlopen('http://evil.test')\""
WINK = Path(sys.executable).with_name("wink-workspace")
STAND_IN = Path(__file__).parents[2] / "agents/stand_in.py"
SETTINGS = """
private = ["localhost"]

[secrets.{name}]
host = "localhost:{port}"
variable = "PROVIDER_KEY"
header = "{header}"
url-variable = "PROVIDER_URL"
"""


def edit(old: str, new: str, **more: object) -> Call:
    return Call("edit", {"file_path": FILE, "old": old, "new": new, **more})


def shell(command: str) -> Call:
    return Call("shell", {"command": command})


@dataclass
class Machine:
    """A project, a configuration of the user, and a provider on loopback with its own authority."""

    root: Path
    tls: ssl.SSLContext

    @property
    def variables(self) -> dict[str, str]:
        return {
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "SSL_CERT_FILE": str(self.root / "ca.pem"),
            "PROVIDER_KEY": KEY,
        }

    @property
    def arguments(self) -> list[str]:
        return self.arguments_of("python3 agent.py")

    def arguments_of(self, agent: str) -> list[str]:
        return ["run", "Fix it.", "--repo", str(self.root / "source"), "--agent", agent]

    def provider(
        self, *steps: Step, name: str = "provider", header: str = "x-api-key"
    ) -> ModelServer:
        server = ModelServer(*steps, aside=Turn("A title"), tls=self.tls)
        folder = self.root / "config/wink-workspace"
        folder.mkdir(parents=True, exist_ok=True)
        settings = SETTINGS.format(port=server.port, name=name, header=header)
        (folder / "config.toml").write_text(settings)
        return server

    @property
    def workspace(self) -> str:
        (info,) = WorkspaceStorage(self.root / "state/wink-workspace").all()
        return info.id

    def opened(self) -> Workspace:
        storage = WorkspaceStorage(self.root / "state/wink-workspace")
        return Workspace.open(self.workspace, storage=storage)

    def holds_no_key(self) -> bool:
        paths = [path for path in (self.root / "state").rglob("*") if path.is_file()]
        return len(paths) > 5 and not any(KEY.encode() in path.read_bytes() for path in paths)


@pytest.fixture
def machine(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    source = tmp_path / "source"
    shutil.copytree(Path(iniconfig.__file__).parent, source / "iniconfig")
    shutil.copy(STAND_IN, source / "agent.py")
    machine = Machine(tmp_path, tls)
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    return machine


def subjects(workspace: Workspace) -> list[str]:
    return [f"{each.kind}: {each.subject}" for each in reversed(list(workspace.log()))][1:]


@pytest.mark.behaviour(206)
def test_edits_and_tests_of_an_agent_program_are_entries_and_one_is_undone(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("", (edit("# one", "# two"), edit("# two", "# three"))),
        Turn("", (shell(CHECK), shell("env; cat /proc/*/environ"))),
        Turn("", (shell(EVIL),)),
        Turn("All done."),
    )
    with machine.provider(*steps) as provider:
        assert main([*machine.arguments, "--patch", str(machine.root / "p")]) == 0

    out, err = capfd.readouterr()
    assert "All done." in out
    assert err.count("✓ python3 edit") == 3
    with machine.opened() as workspace:
        assert [subject[:72] for subject in subjects(workspace)] == [
            *["call: python3 edit: iniconfig/exceptions.py"] * 3,
            f"call: python3 shell: {CHECK}"[:72],
            "call: python3 shell: env; cat /proc/*/environ",
            f"call: python3 shell: {EVIL}"[:72],
            "call: python3: Exit code 0",
        ]
        answers = [message["content"] for message in provider.requests[-1]["messages"]]
        assert '"output": "passed\\n"' in answers[4]
        assert "PROVIDER_URL=http://provider.wink.internal" in answers[5]
        assert "403" in answers[6]
        (effect,) = workspace.record(workspace.head).event.outside_effects
        assert effect.startswith("network: 5 requests to provider.wink.internal, ")
        workspace.undo()
        assert "+# two" in workspace.diff()
        assert workspace.files.read_text(".wink-agent/home/session").lines == ("Fix it.",)
    assert all(headers["x-api-key"] == KEY for headers in provider.headers)
    assert KEY not in out + err + str(answers) + (machine.root / "p").read_text()
    assert machine.holds_no_key()


@pytest.mark.behaviour(207)
def test_a_killed_run_keeps_its_entries_and_its_last_edit_is_an_external_one(
    machine: Machine,
) -> None:
    reached: list[int] = []

    def kill() -> None:
        process.kill()
        reached.append(1)

    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("", (edit("msg: Final", "# two\n    msg: Final", silent=True),)),
        HangingTurn(Turn("Now"), n_events=1, then=kill),
    )
    with machine.provider(*steps):
        command = [str(WINK), *machine.arguments]
        process = subprocess.Popen(command, env={**os.environ, **machine.variables})
        assert process.wait(120) == -signal.SIGKILL

    assert reached
    _check_kept(machine)


@pytest.mark.behaviour(210)
def test_a_run_of_an_agent_program_is_resumed_in_its_workspace_within_its_limits(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    first = Turn("", (edit("class Parse", "# one\nclass Parse"),))
    second = Turn("", (edit("# one", "# two"),))
    with machine.provider(first, second, Turn("All done.")) as provider:
        assert main([*machine.arguments, "--max-turns", "1"]) == 1
        err = capfd.readouterr().err
        resume = [
            "run",
            "--workspace",
            machine.workspace,
            "--agent",
            "python3 agent.py",
            "--resume",
        ]
        assert f"resume with: wink-workspace {' '.join(resume)}".replace(
            "python3 agent.py", "'python3 agent.py'"
        ) in " ".join(err.split())

        assert main(resume) == 2
        assert "has reached its limit" in capfd.readouterr().err
        assert len(provider.requests) == 1

        assert main([*resume, "--max-turns", "9", "--yes"]) == 0
        out, err = capfd.readouterr()
        assert "All done." in out
        assert "python3 has no session that it can continue, so it starts again" in err
        assert [each["content"] for each in provider.requests[-1]["messages"][:1]] == ["Fix it."]

        assert main(resume) == 2
        assert "has ended" in capfd.readouterr().err
    with machine.opened() as workspace:
        assert [subject[:20] for subject in subjects(workspace)] == [
            *["call: python3 edit: "] * 2,
            "call: python3: Exit ",
        ]


@pytest.mark.behaviour(211)
def test_attempts_of_an_agent_program_are_scored_each_in_a_fork_of_its_own(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("First."),
        Turn("", (edit("class Parse", "# two\nclass Parse"),)),
        Turn("Second."),
    )
    source = machine.root / "source"
    command = [*("attempts", "Fix it.", "--repo", str(source), "-n", "2", "--workers", "1")]
    command += [*("--agent", "python3 agent.py", "--keep", "best", "--score")]
    with machine.provider(*steps):
        assert main([*command, f"grep -q '# two' {FILE}", "--json"]) == 0

    out, err = capfd.readouterr()
    run = json.loads(out)
    assert [each["passed"] for each in run["attempts"]] == [False, True], err
    assert [each["n_calls"] for each in run["attempts"]] == [2, 2]
    with machine.opened() as workspace:
        diff = workspace.diff()
        assert "+# two" in diff
        assert "+# one" not in diff
    assert "# two" not in (source / FILE).read_text()
    assert KEY not in out + err
    assert machine.holds_no_key()


@pytest.mark.behaviour(211)
def test_a_killed_worker_of_an_attempt_with_an_agent_program_loses_no_entry(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill() -> None:
        (worker,) = multiprocessing.active_children()
        worker.kill()

    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        HangingTurn(Turn("Now"), n_events=1, then=kill),
        Turn("", (edit("# one", "# one\n# two"),)),
        Turn("Done."),
    )
    command = ["attempts", "Fix it.", "--repo", str(machine.root / "source"), "-n", "1", "--json"]
    command += [*("--workers", "1", "--agent", "python3 agent.py", "--keep", "best")]
    with machine.provider(*steps):
        assert main([*command, "--score", f"grep -q '# two' {FILE}"]) == 0

    out, err = capfd.readouterr()
    (attempt,) = json.loads(out)["attempts"]
    assert (attempt["passed"], attempt["epoch"], attempt["n_calls"]) == (True, 2, 3), err
    with machine.opened() as workspace:
        diff = workspace.diff()
        assert "+# one\n+# two" in diff
    assert KEY not in out + err
    assert machine.holds_no_key()


def test_a_second_agent_program_on_a_workspace_is_refused_and_the_first_loses_nothing(
    machine: Machine,
) -> None:
    seconds: list[subprocess.CompletedProcess[str]] = []

    def start_second() -> None:
        command = [
            "run",
            "Fix it.",
            "--workspace",
            machine.workspace,
            "--agent",
            "python3 agent.py",
        ]
        variables = {**os.environ, **machine.variables}
        seconds.append(
            subprocess.run([WINK, *command], env=variables, capture_output=True, text=True)
        )
        first.kill()

    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("", (edit("msg: Final", "# two\n    msg: Final", silent=True),)),
        HangingTurn(Turn("Now"), n_events=1, then=start_second),
    )
    with machine.provider(*steps) as provider:
        command = [str(WINK), *machine.arguments]
        first = subprocess.Popen(command, env={**os.environ, **machine.variables})
        assert first.wait(120) == -signal.SIGKILL

    (second,) = seconds
    assert second.returncode == 1
    error = " ".join(second.stderr.split())
    assert f"process {first.pid}" in error
    assert "resume with" not in error
    assert len(provider.requests) == 3
    _check_kept(machine)


@pytest.mark.behaviour(207)
def test_a_killed_container_ends_the_run_and_nothing_is_lost(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill() -> None:
        os.kill(_pid_in_container(), signal.SIGKILL)

    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("", (edit("msg: Final", "# two\n    msg: Final", silent=True),)),
        HangingTurn(Turn("Now"), n_events=1, then=kill),
    )
    with machine.provider(*steps):
        assert main(machine.arguments) == 1
    assert "the runner in the sandbox" in capfd.readouterr().err
    _check_kept(machine)


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
        pid = _pid_in_container(program.executable)
        found.append({text: _places_in_container(pid, text) for text in (KEY, HOME, "# three")})
        if killed == "host":
            process.kill()
        else:
            os.kill(pid, signal.SIGKILL)

    steps = TURNS[name](FILE)
    last: Step = HangingTurn(Turn("Now"), n_events=1, then=kill) if killed else Turn("All done.")
    with machine.provider(*steps, last, **place) as provider:
        command = [str(WINK), *machine.arguments_of(name), "--yes"]
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


def _pid_in_container(program: str = "agent.py") -> int:
    """The first process of the container that runs the agent."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").split()
            name = program.rpartition("/")[2].encode()
            if not {name, program.encode()} & set(words[:2]):
                continue
            pid = int(process.name)
            while pid > 1:
                status = Path(f"/proc/{pid}/status").read_text()
                if status.split("NSpid:\t")[1].splitlines()[0].split()[1:] == ["1"]:
                    return pid
                pid = int(status.split("PPid:\t")[1].split()[0])
        except OSError:
            continue
    raise AssertionError("the agent does not run")


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


def _check_kept(machine: Machine) -> None:
    with machine.opened() as workspace:
        workspace.commit_edits()  # as the next call does
        kinds = [(entry.kind, entry.outcome) for entry in workspace.log()]
        assert kinds[:2] == [(EntryKind.EXTERNAL, None), (EntryKind.CALL, Outcome.COMMITTED)]
        assert "+    # two" in workspace.diff()
        assert workspace.discarded() == ()
        workspace.undo()
        assert "# one" not in workspace.diff()
        assert "+    # two" in workspace.diff()
    assert machine.holds_no_key()
