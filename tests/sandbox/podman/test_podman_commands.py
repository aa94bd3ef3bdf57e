"""The commands that need an engine: ``doctor``, ``exec``, ``image``, and the demonstration."""

from __future__ import annotations

import io
import json
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
from wink_workspace.sandbox.podman import DEFAULT_IMAGE, PodmanConfig, PodmanService, images
from wink_workspace.sandbox.podman.containers import (
    OWNER_LABEL,
    Container,
    Host,
    container_spec,
    new_name,
)
from wink_workspace.sandbox.podman.owners import Owner
from wink_workspace.sandbox.podman.sandbox import PodmanSandbox
from wink_workspace.sandbox.podman.service import EngineError

pytestmark = pytest.mark.xdist_group("podman-commands")

Shell = Callable[..., str]


@pytest.fixture
def shell(
    environment: Environment,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> Shell:
    """Runs a command that must end with ``code``, and gives what it printed on both streams."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments: object, code: int = 0) -> str:
        ended = main([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        said = (captured.out + captured.err).decode()
        assert ended == code, said
        return said

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


def test_doctor_finds_what_sandboxes_need_on_this_machine(shell: Shell) -> None:
    found = {finding["name"]: finding for finding in json.loads(shell("doctor", "--json"))}
    assert found["isolation"]["state"] == "good"
    assert found["image python"]["state"] == "good"
    assert found["workspace size"]["state"] == "limited", "there is no quota"
    assert all(finding["fix"] for finding in found.values() if finding["state"] != "good")


def test_doctor_says_for_people_what_is_missing_and_what_to_do(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = shell("doctor", code=1)
    assert "not on the PATH" in said
    assert "apt-get install podman" in said


def test_images_are_listed_and_not_built_again(shell: Shell) -> None:
    assert DEFAULT_IMAGE in shell("image", "list")
    listed = json.loads(shell("image", "list", "--json"))
    assert {image["state"] for image in listed if image["size_bytes"]} == {"current"}
    assert DEFAULT_IMAGE in shell("image", "build")
    assert json.loads(shell("image", "build", "minimal", "--json"))[0]["recipe_digest"]


def test_an_unknown_image_and_one_base_for_two_are_wrong_usage(shell: Shell) -> None:
    assert "there is no image" in shell("image", "build", "huge", code=2)
    assert "a base is for one image" in shell("image", "build", "--base", "debian", code=2)


def test_exec_passes_output_and_exit_code_on_and_keeps_what_was_done(
    shell: Shell, workspace: str
) -> None:
    script = "echo out; echo err >&2; echo b > b.txt; exit 7"
    said = shell("exec", workspace, "--", "sh", "-c", script, code=7)
    assert "out\n" in said
    assert "err\n" in said
    assert "+b" in shell("diff", workspace)
    assert entries(shell, workspace) == [("exec: Exit code 7", "committed")]


def test_exec_shows_a_terminal_no_escape_sequence_and_a_pipe_every_byte(
    shell: Shell, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printf = ("sh", "-c", r"printf 'a\033]0;owned\007\r\nb\rc\342\202\254\n'; printf '\233x' >&2")
    assert "a\x1b]0;owned\x07\r\nb\rc" in shell(
        "exec", workspace, "--", *printf[:2], printf[2].rpartition(";")[0]
    )
    with monkeypatch.context() as streams, terminal(streams) as shown:
        assert main(["exec", workspace, "--", *printf]) == 0
        said = shown().decode()
    assert "a\ufffd]0;owned\ufffd\r\nb\r\nc€" in said
    assert "\x1b" not in said
    assert "\x9b" not in said


def test_exec_with_rollback_undoes_what_ends_with_another_code(
    shell: Shell, workspace: str
) -> None:
    script = "echo b > b.txt; exit 7"
    said = shell("exec", workspace, "--rollback", "--", "sh", "-c", script, code=7)
    assert "undone" in said
    assert shell("diff", workspace) == ""


def test_exec_that_runs_too_long_is_ended_and_undone(shell: Shell, workspace: str) -> None:
    script = "echo b > b.txt; sleep 600"
    said = shell("exec", workspace, "--timeout", "0.5", "--", "sh", "-c", script, code=124)
    assert "undone" in said
    assert shell("diff", workspace) == ""
    assert entries(shell, workspace)[0][1] == "rolled_back"


def test_exec_tells_by_which_signal_a_command_ended(shell: Shell, workspace: str) -> None:
    shell("exec", workspace, "--", "sh", "-c", "kill -SEGV $$", code=128 + 11)


def test_exec_ends_as_a_shell_does_for_a_program_that_cannot_be_run(
    shell: Shell, workspace: str
) -> None:
    said = shell("exec", workspace, "--", "no-such-program", code=127)
    assert "'no-such-program' cannot be run: No such file" in said
    said = shell("exec", workspace, "--", "./a.txt", code=126)
    assert "'./a.txt' cannot be run: Permission denied" in said
    assert "chmod +x" in said
    shell("exec", workspace, "--", "sh", "-c", "no-such-program", code=127)


def test_exec_in_an_image_that_is_not_there_says_how_to_get_it(
    shell: Shell, workspace: str
) -> None:
    said = shell("exec", workspace, "--image", "localhost/none:1", "--", "true", code=1)
    assert "image build" in said


def test_exec_reads_what_the_command_line_is_given(
    shell: Shell, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.TextIOWrapper(io.BytesIO(b"given\n"))
    monkeypatch.setattr(sys, "stdin", given)
    assert "given" in shell("exec", workspace, "--stdin", "--", "cat")


class Endless(io.RawIOBase):
    """Input that never ends, as of a pipe that somebody forgot."""

    def readable(self) -> bool:
        return True

    def readinto(self, into: memoryview) -> int:
        into[:] = bytes(len(into))
        return len(into)


def test_exec_does_not_read_on_when_it_was_given_more_than_a_command_may_have(
    shell: Shell, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = io.TextIOWrapper(io.BufferedReader(Endless()))
    monkeypatch.setattr(sys, "stdin", given)
    said = shell("exec", workspace, "--stdin", "--", "cat", code=2)
    assert "longer than 268,435,456 bytes" in said


def test_the_demonstration_runs_a_packages_own_tests_and_undoes_what_broke_them(
    shell: Shell, tmp_path: Path
) -> None:
    said = shell("demo", "--build", "--patch", tmp_path / "demo.patch")
    assert "undo of entry" in said
    assert "the tests pass again, and every file is as it was" in said


def test_gc_removes_the_containers_of_processes_that_are_dead(
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
    made: list[str] = []
    for _ in range(10):  # any sandbox that starts removes it, too, and another test may start one
        container = Container(service, {**spec, "name": new_name(), "labels": labels}, timeout_s=60)
        made.append(container.name)
        removed = json.loads(shell("gc", workspace, "--json"))["containers_removed"]
        with pytest.raises(EngineError, match="no such container"):
            service.request("GET", f"/containers/{container.name}/json")
        if container.name in removed:
            break
    else:
        pytest.fail(f"gc says of none of {made} that it removed it")


def test_gc_without_an_engine_cleans_the_history_alone(
    shell: Shell, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert json.loads(shell("gc", workspace, "--json"))["containers_removed"] == []


class FailingImages(images.PodmanImages):
    """Images whose builds produce nothing."""

    n_builds = 0

    def build(self, name: str, **options: object) -> None:
        self.n_builds += 1

    def find(self, name: str) -> None:
        return None


def test_demo_names_the_missing_image_and_builds_it_only_with_the_option() -> None:
    console = Console(file=io.StringIO(), width=300)
    missing = FailingImages(Environment())
    for build in (False, True):
        assert not demo.play_tests(console, missing, build=build)
        assert missing.n_builds == build
    assert "Run `wink-workspace image build`" in console.file.getvalue()


def test_the_demonstration_says_before_its_first_command_that_no_container_starts(
    monkeypatch: pytest.MonkeyPatch, environment: Environment
) -> None:
    def cannot_start(*_: object) -> None:
        raise SandboxUnavailableError("the container does not start: no room")

    # An engine that is well and starts nothing cannot be had on demand.
    monkeypatch.setattr(PodmanSandbox, "_start", cannot_start)
    console = Console(file=io.StringIO(), width=300)
    assert not demo.play_tests(console, images.PodmanImages(environment), build=False)
    said = console.file.getvalue()
    assert "The sandbox podman is not used here: the container does not start: no room" in said
    assert "shell_execute" not in said


def test_the_demonstration_says_which_package_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda _: None)
    console = Console(file=io.StringIO(), width=300)
    assert not demo.play_tests(console, images.PodmanImages(Environment()), build=False)
    assert "pip install pyflakes" in console.file.getvalue()


def test_an_image_of_another_version_is_listed_as_such(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "IMAGE_VERSION", "0")
    listed = {
        image["reference"]: image["state"] for image in json.loads(shell("image", "list", "--json"))
    }
    assert listed[DEFAULT_IMAGE] == "of another version"
    assert listed["localhost/wink-workspace/python:0"] == "missing"
