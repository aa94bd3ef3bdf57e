"""``run --agent`` in every sandbox: its test modules import these tests.

A program with a provider behind the proxy is recorded. A module has the fixture ``backend``, the
configuration of its sandbox.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import iniconfig
import pytest
import trustme
from model_server import KEY, Call, HangingTurn, ModelServer, Step, Turn

from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.ledger import EntryKind
from wink_workspace.sandbox.commands.command_config import CommandConfig
from wink_workspace.session import Outcome
from wink_workspace.workspace import Workspace, WorkspaceStorage

FILE = "iniconfig/exceptions.py"
CHECK = "python3 -B -c \"import iniconfig; print('passed')\""
EVIL = "python3 -c \"import urllib.request as u; u.urlopen('http://evil.test')\""
MAIN = "import sys; from wink_workspace.cli import main; sys.exit(main(sys.argv[1:]))"
WINK = (sys.executable, "-c", MAIN)
STAND_IN = Path(__file__).parents[1] / "agents/stand_in.py"
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
    sandbox: str

    @property
    def variables(self) -> dict[str, str]:
        return {
            "WINK_WORKSPACE_SANDBOX": self.sandbox,
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
def machine(
    environment: Environment,
    backend: CommandConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Machine:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(tls)
    source = tmp_path / "source"
    shutil.copytree(Path(iniconfig.__file__).parent, source / "iniconfig")
    shutil.copy(STAND_IN, source / "agent.py")
    machine = Machine(tmp_path, tls, backend.backend)
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
        command = [*WINK, *machine.arguments]
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
            subprocess.run([*WINK, *command], env=variables, capture_output=True, text=True)
        )
        first.kill()

    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("", (edit("msg: Final", "# two\n    msg: Final", silent=True),)),
        HangingTurn(Turn("Now"), n_events=1, then=start_second),
    )
    with machine.provider(*steps) as provider:
        command = [*WINK, *machine.arguments]
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
def test_a_killed_sandbox_ends_the_run_and_nothing_is_lost(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill() -> None:
        os.kill(pid_in_sandbox(), signal.SIGKILL)

    steps = (
        Turn("", (edit("class Parse", "# one\nclass Parse"),)),
        Turn("", (edit("msg: Final", "# two\n    msg: Final", silent=True),)),
        HangingTurn(Turn("Now"), n_events=1, then=kill),
    )
    with machine.provider(*steps):
        assert main(machine.arguments) == 1
    assert "the runner in the sandbox" in capfd.readouterr().err
    _check_kept(machine)


def pid_in_sandbox(program: str = "agent.py") -> int:
    """The first process of the sandbox that runs the agent."""
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
