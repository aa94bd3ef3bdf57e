"""The commands that need an engine: ``doctor``, ``exec``, ``image``, and the demonstration."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support import terminal

from wink_workspace.cli import demo, main
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.podman import DEFAULT_IMAGE, PodmanConfig, PodmanService
from wink_workspace.sandbox.podman.building import images
from wink_workspace.sandbox.podman.building.image_catalog import PodmanImages
from wink_workspace.sandbox.podman.engine.containers import (
    OWNER_LABEL,
    Container,
    Host,
    Owner,
    container_spec,
    new_name,
)
from wink_workspace.sandbox.podman.engine.service import EngineError
from wink_workspace.sandbox.podman.podman_sandbox import PodmanSandbox

pytestmark = pytest.mark.xdist_group("podman-commands")

Shell = Callable[..., str]


@pytest.fixture
def shell(
    environment: Environment,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    """Run a command that must exit with ``code``; return its output on both streams."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments: object, code: int = 0) -> str:
        exit_code = main([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        output = (captured.out + captured.err).decode()
        assert exit_code == code, output
        return output

    return run


@pytest.fixture
def workspace(shell: Shell, tmp_path: Path) -> str:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.txt").write_text("a\n")
    return shell("new", tmp_path / "source").partition(":")[0]


def entries(shell: Shell, workspace: str) -> list[tuple[str, str]]:
    return [
        (entry["subject"], entry["outcome"])
        for entry in json.loads(shell("log", workspace, "--json"))
        if entry["kind"] == "call"
    ]


def test_doctor_reports_the_requirements_of_sandboxes(shell: Shell) -> None:
    found = {finding["name"]: finding for finding in json.loads(shell("doctor", "--json"))}
    assert found["isolation"]["state"] == "good"
    assert found["image python"]["state"] == "good"
    assert found["workspace size"]["state"] == "limited", "there is no quota"
    assert all(finding["fix"] for finding in found.values() if finding["state"] != "good")


def test_doctor_without_podman_reports_how_to_install_it(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    output = shell("doctor", code=1)  # a variable names the sandbox
    assert "not on the PATH" in output
    assert "code can run in: bubblewrap, asteval, python" in output
    monkeypatch.delenv("WINK_WORKSPACE_SANDBOX")
    assert "apt-get install podman" in shell("doctor"), "the others are enough"
    assert "apt-get install podman" in output


def test_images_are_listed_and_not_rebuilt(shell: Shell) -> None:
    assert DEFAULT_IMAGE in shell("image", "list")
    listed = json.loads(shell("image", "list", "--json"))
    states = {image["reference"]: image["state"] for image in listed if image["created_s"]}
    assert states[DEFAULT_IMAGE] == "current"
    assert DEFAULT_IMAGE in shell("image", "build")
    assert json.loads(shell("image", "build", "python", "--json"))[0]["recipe_digest"]


def test_an_unknown_image_and_a_base_for_two_images_are_wrong_usage(shell: Shell) -> None:
    assert "there is no image" in shell("image", "build", "huge", code=2)
    assert "a base is for one image" in shell(
        "image", "build", "python", "build", "--base", "debian", code=2
    )


def test_exec_passes_on_output_and_exit_code_and_keeps_effects(
    shell: Shell, workspace: str
) -> None:
    script = "echo out; echo err >&2; echo b > b.txt; exit 7"
    output = shell("exec", workspace, "--", "sh", "-c", script, code=7)
    assert "out\n" in output
    assert "err\n" in output
    assert "+b" in shell("diff", workspace)
    assert entries(shell, workspace) == [("exec: Exit code 7", "committed")]


COUNTED = """
import atexit, json, sys
started = []

def note(event, arguments):
    if event == "subprocess.Popen":
        started.append(arguments[0].replace(sys.executable, "python"))

sys.addaudithook(note)
from wink_workspace.cli import main
code = main(["exec", sys.argv[1], "--", "true"])
print(json.dumps([code, started, sorted(sys.modules)]))
"""


NOT_OF_EXEC = (
    "adapters.core", "filesystem.diff.rendering", "filesystem.memory", "prompt.prompt",
    "prompt.section", "prompt.tool", "runtime.executor", "workspace.applying",
    "workspace.changeset", "workspace.entry_files",
)  # fmt: skip


def test_exec_starts_one_engine_and_loads_what_it_needs(workspace: str) -> None:
    """Counts, because times differ: each process takes 5 to 100 ms, and 10 modules about 5."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, workspace], check=True, capture_output=True, text=True
    )
    code, started, modules = json.loads(done.stdout)
    assert (code, done.stderr) == (0, "")
    names = sorted(Path(each).name for each in started)
    assert names == ["nsenter", "podman", "python"]
    own = [name for name in modules if name.startswith("wink_workspace.")]
    assert not {*own} & {f"wink_workspace.{name}" for name in NOT_OF_EXEC}
    assert len(own) <= 260, own


@pytest.mark.behaviour(109)
def test_exec_makes_a_workspace_of_a_directory_or_uses_a_temporary_one(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "project"
    source.mkdir()
    (source / "a.txt").write_text("of the project\n")
    monkeypatch.chdir(source)
    script = "cat a.txt; echo changed >a.txt; exit 3"
    assert "of the project" in shell("exec", "--temporary", "--", "sh", "-c", script, code=3)
    assert "does not exist" in shell("exec", "./missing", "--", "true", code=2)
    assert json.loads(shell("list", "--json")) == []
    assert "of the project" in shell("exec", "--", "sh", "-c", script, code=3)
    assert "changed" in shell("exec", source, "--", "cat", "a.txt")
    assert len(json.loads(shell("list", "--json"))) == 1
    assert (source / "a.txt").read_text() == "of the project\n"


def test_exec_removes_escape_sequences_on_a_terminal_but_not_in_a_pipe(
    shell: Shell, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printf = ("sh", "-c", r"printf 'a\033]0;owned\007\r\nb\rc\342\202\254\n'; printf '\233x' >&2")
    assert "a\x1b]0;owned\x07\r\nb\rc" in shell(
        "exec", workspace, "--", *printf[:2], printf[2].rpartition(";")[0]
    )
    with monkeypatch.context() as streams, terminal(streams) as shown:
        assert main(["exec", workspace, "--", *printf]) == 0
        output = shown().decode()
    assert "a\ufffd]0;owned\ufffd\r\nb\r\nc€" in output
    assert "\x1b" not in output
    assert "\x9b" not in output


def test_exec_with_rollback_undoes_a_nonzero_exit(shell: Shell, workspace: str) -> None:
    script = "echo b > b.txt; exit 7"
    output = shell("exec", workspace, "--rollback", "--", "sh", "-c", script, code=7)
    assert "undone" in output
    assert shell("diff", workspace) == ""


def test_exec_that_times_out_is_ended_and_undone(shell: Shell, workspace: str) -> None:
    script = "echo b > b.txt; sleep 600"
    output = shell("exec", workspace, "--timeout", "0.5", "--", "sh", "-c", script, code=124)
    assert "undone" in output
    assert shell("diff", workspace) == ""
    assert entries(shell, workspace)[0][1] == "rolled_back"


def test_exec_exits_with_128_plus_the_signal(shell: Shell, workspace: str) -> None:
    shell("exec", workspace, "--", "sh", "-c", "kill -SEGV $$", code=128 + 11)


def test_exec_exits_127_or_126_if_a_program_cannot_be_run(shell: Shell, workspace: str) -> None:
    output = shell("exec", workspace, "--", "no-such-program", code=127)
    assert "'no-such-program' cannot be run: No such file" in output
    output = shell("exec", workspace, "--", "./a.txt", code=126)
    assert "'./a.txt' cannot be run: Permission denied" in output
    assert "chmod +x" in output
    shell("exec", workspace, "--", "sh", "-c", "no-such-program", code=127)


def test_exec_in_a_missing_image_reports_how_to_build_it(shell: Shell, workspace: str) -> None:
    output = shell("exec", workspace, "--image", "localhost/none:1", "--", "true", code=1)
    assert "image build" in output


def test_exec_with_stdin_passes_on_standard_input(
    shell: Shell, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.TextIOWrapper(io.BytesIO(b"given\n"))
    monkeypatch.setattr(sys, "stdin", given)
    assert "given" in shell("exec", workspace, "--stdin", "--", "cat")


class EndlessInput(io.RawIOBase):
    """Input that never ends, such as a pipe that is never closed."""

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:
        into[:] = bytes(len(into))
        return len(into)


def test_exec_stops_reading_input_at_the_limit(
    shell: Shell, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.TextIOWrapper(io.BufferedReader(EndlessInput()))
    monkeypatch.setattr(sys, "stdin", given)
    output = shell("exec", workspace, "--stdin", "--", "cat", code=2)
    assert "longer than 268,435,456 bytes" in output


def test_demo_tests_a_package_in_a_container_and_undoes_what_broke_it(
    shell: Shell, tmp_path: Path
) -> None:
    output = shell("demo", "--patch", tmp_path / "demo.patch")
    assert "5 failed, 8 passed" in output
    assert "undo of entry" in output
    assert "the tests pass again, and the package is as it was" in output


def test_gc_removes_the_containers_of_dead_processes(
    shell: Shell, workspace: str, service: PodmanService, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    spec = container_spec(
        PodmanConfig(),
        host=Host.of(service),
        name=new_name(),
        workspace=tmp_path / "files",
        command=("sleep", "600"),
    )
    dead = replace(Owner.this_process(), started=1)
    labels = {**spec["labels"], OWNER_LABEL: str(dead)}
    created: list[str] = []
    for _ in range(10):  # another test may start a sandbox, which removes it first
        container = Container(service, {**spec, "name": new_name(), "labels": labels}, timeout_s=60)
        created.append(container.name)
        removed = json.loads(shell("gc", workspace, "--json"))["containers_removed"]
        with pytest.raises(EngineError, match="no such container"):
            service.request("GET", f"/containers/{container.name}/json")
        if container.name in removed:
            break
    else:
        pytest.fail(f"gc reports none of {created} as removed")


def test_gc_without_an_engine_removes_no_containers(
    shell: Shell, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert json.loads(shell("gc", workspace, "--json"))["containers_removed"] == []


class FailingImages(PodmanImages):
    """Images whose builds produce nothing."""

    n_builds = 0

    def build(self, name: str, **options: object) -> None:
        self.n_builds += 1

    def find(self, name: str) -> None:
        return None


def test_demo_builds_a_missing_image_unless_the_option_forbids_it() -> None:
    console = Console(file=io.StringIO(), width=300)
    missing = FailingImages(Environment())
    for build in (False, True):
        assert not demo.play_tests(console, missing, build=build)
        assert missing.n_builds == build
    assert "Run `wink-workspace image build`" in console.file.getvalue()


def test_demo_reports_before_its_first_command_that_no_container_starts(
    monkeypatch: pytest.MonkeyPatch, environment: Environment
) -> None:
    def cannot_start(*_: object) -> None:
        raise SandboxUnavailableError("the container does not start: no room")

    # A healthy engine that starts no container cannot be produced on demand.
    monkeypatch.setattr(PodmanSandbox, "_start", cannot_start)
    console = Console(file=io.StringIO(), width=300)
    assert not demo.play_tests(console, PodmanImages(environment), build=False)
    output = console.file.getvalue()
    assert "The sandbox podman is not used here: the container does not start: no room" in output
    assert "shell_execute" not in output


def test_demo_reports_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    console = Console(file=io.StringIO(), width=300)
    assert not demo.play_tests(console, PodmanImages(Environment()), build=False)
    assert "pip install fsspec" in console.file.getvalue()


def test_an_image_of_another_version_is_listed_with_that_state(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "IMAGE_VERSION", "0")
    listed = {
        image["reference"]: image["state"] for image in json.loads(shell("image", "list", "--json"))
    }
    assert listed[DEFAULT_IMAGE] == "of another version"
    assert listed["localhost/wink-workspace/python:0"] == "missing"
