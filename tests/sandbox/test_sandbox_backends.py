"""The registry of sandboxes: ours, those of packages and of a program, and who asks for them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from cli_user import CliUser
from fake_sandbox import FakeConfig, FakeMachine, registered

from wink_workspace import ModelTurn, Prompt, ScriptedAdapter, ToolCall
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.mcp_server import Catalog
from wink_workspace.prompt import MarkdownSection
from wink_workspace.sandbox import SANDBOXES, SandboxBackend, SandboxConfig
from wink_workspace.sandbox.asteval import AstevalConfig
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import Workspace, WorkspaceStorage


@pytest.fixture
def fake() -> Iterator[FakeMachine]:
    with registered() as machine:
        yield machine


@pytest.fixture
def desk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliUser:
    return CliUser(tmp_path, capsys, monkeypatch)


def state(tmp_path: Path) -> WorkspaceStorage:
    return WorkspaceStorage(tmp_path / "state")


def created(tmp_path: Path) -> Workspace:
    """A workspace of a directory with one file."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    return Workspace.create(source, storage=state(tmp_path))


# The registry


@pytest.mark.parametrize(
    ("name", "tools", "runs_commands"),
    [
        ("podman", {"shell_execute", "evaluate_python"}, True),
        ("asteval", {"evaluate_python"}, False),
        ("fake", {"shell_execute"}, True),
    ],
)
def test_a_backend_offers_the_tools_that_it_can_serve_and_no_others(
    fake: FakeMachine, name: str, tools: set[str], runs_commands: bool
) -> None:
    backend = SANDBOXES.get(name)
    section = backend.section(backend.config())
    assert {tool.name for tool in section.tools()} == tools
    assert (backend.create is not None) == runs_commands
    assert SANDBOXES.of_config(backend.config()) is backend


def test_all_backends_are_listed_by_name_and_can_be_had(fake: FakeMachine) -> None:
    assert SANDBOXES.names() == ("podman", "asteval", "fake")
    assert [backend.name for backend in SANDBOXES] == ["podman", "asteval", "fake"]


def test_a_backend_that_is_taken_away_is_unknown_and_the_error_names_those_that_there_are() -> None:
    with registered():
        pass
    with pytest.raises(UsageError, match="no sandbox 'fake'") as caught:
        SANDBOXES.get("fake")
    assert "podman, asteval, none" in caught.value.hint


def test_a_name_that_is_taken_is_refused(fake: FakeMachine) -> None:
    with pytest.raises(UsageError, match="a sandbox 'fake' already"):
        SANDBOXES.register(fake.backend)


class PodmanLike(SandboxConfig):
    backend: ClassVar[str] = "podman"


class NoneLike(SandboxConfig):
    backend: ClassVar[str] = "none"


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("podman-2", PodmanLike, "not the configuration of the sandbox 'podman-2'"),
        ("Podman", PodmanLike, "'Podman' cannot be the name"),
        ("none", NoneLike, "'none' cannot be the name"),
        ("", NoneLike, "'' cannot be the name"),
        ("fake", SandboxConfig, "SandboxConfig is not the configuration"),
    ],
)
def test_a_backend_that_nobody_could_find_is_refused(
    name: str, config: type[SandboxConfig], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        SandboxBackend(
            name=name, config=config, section=lambda _: MarkdownSection(title="T", template="")
        )


def test_neither_workspaces_nor_the_command_load_a_backend_that_is_not_asked_for() -> None:
    code = (
        "import sys, wink_workspace.workspace, wink_workspace.cli, wink_workspace.cli.app\n"
        "from wink_workspace.sandbox import SANDBOXES\n"
        "SANDBOXES.names()\n"
        "print(*(name for name in sys.modules if name.endswith(('podman', 'asteval'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


# Packages that add one


def install(folder: Path, name: str, module: str) -> None:
    """A package with an entry point, as an installer would leave it."""
    (folder / f"{name}_sandbox.py").write_text(module)
    metadata = folder / f"{name}_sandbox-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}-sandbox\nVersion: 1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[wink_workspace.sandboxes]\n{name} = {name}_sandbox:BACKEND\n"
    )


WORKS = """
from dataclasses import dataclass
from typing import ClassVar
from wink_workspace.prompt import MarkdownSection
from wink_workspace.sandbox import SandboxBackend, SandboxConfig

@dataclass(frozen=True)
class Config(SandboxConfig):
    backend: ClassVar[str] = "installed"

BACKEND = SandboxBackend(
    name="installed", config=Config, section=lambda _: MarkdownSection(title="I", template="Hi.")
)
"""


def test_a_package_adds_a_sandbox_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "installed", WORKS)
    monkeypatch.syspath_prepend(tmp_path)
    assert "installed_sandbox" not in sys.modules
    assert SANDBOXES.names() == ("podman", "asteval", "installed")
    assert "installed_sandbox" not in sys.modules, "listing loads nothing"
    assert SANDBOXES.get("installed").section(None).title == "I"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import no_such_library", "cannot be loaded: ModuleNotFoundError"),
        ("raise RuntimeError('broken')", "cannot be loaded: RuntimeError: broken"),
        ("BACKEND = 1", "is not a SandboxBackend of that name"),
        (WORKS, "is not a SandboxBackend of that name"),
    ],
    ids=["library", "error", "value", "name"],
)
def test_a_package_that_offers_no_backend_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, said: str
) -> None:
    monkeypatch.delitem(sys.modules, "wrong_sandbox", raising=False)
    install(tmp_path, "wrong", module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SandboxUnavailableError, match=said) as caught:
        SANDBOXES.get("wrong")
    assert "wrong_sandbox:BACKEND" in caught.value.hint


def test_doctor_and_gc_report_a_package_that_cannot_be_loaded_and_go_on(
    desk: CliUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SANDBOXES, "_own", {})  # to examine those takes seconds
    monkeypatch.delitem(sys.modules, "wrong_sandbox", raising=False)
    install(tmp_path, "wrong", "raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    with registered():
        findings = json.loads(desk("doctor", "--json", fails=1))
        assert [(each["part"], each["state"]) for each in findings] == [
            ("wrong", "missing"),
            ("fake", "good"),
        ]
        which = desk("new", desk.source).partition(":")[0]
        assert json.loads(desk("gc", which, "--json"))["containers_removed"] == ["fake-container"]
    assert "leftovers of the sandbox wrong cannot be removed" in desk.err


def test_a_package_cannot_take_the_name_of_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "podman", WORKS)
    monkeypatch.syspath_prepend(tmp_path)
    assert SANDBOXES.names() == ("podman", "asteval")
    assert SANDBOXES.get("podman").create is not None


# Workspaces


def test_a_workspace_runs_the_sandbox_that_a_section_names(
    tmp_path: Path, fake: FakeMachine
) -> None:
    with created(tmp_path) as workspace:
        config = FakeConfig(greeting="hello")
        prompt = Prompt[None](ns="t", key="p", sections=[fake.backend.section(config)])
        prompt.bind(resources=workspace.resources)
        turns = [
            ModelTurn(
                tool_calls=(
                    ToolCall("shell_execute", command="put new text"),
                    ToolCall("shell_execute", command="cat new", stdin="!"),
                )
            ),
            ModelTurn("Done."),
        ]
        ScriptedAdapter[None](turns).evaluate(prompt, session=workspace.session)
        called = workspace.session[ToolInvoked].all()
        assert [call.text for call in called][1] == "Exit code 0\n\nhello: text!"
        assert [str(change.path) for change in workspace.changes()] == ["new"]
        assert workspace.sandbox() is fake.made[0], "the one that it has"
    assert fake.made[0].is_closed


def test_a_workspace_that_is_given_another_configuration_ends_the_sandbox_before(
    tmp_path: Path, fake: FakeMachine
) -> None:
    with created(tmp_path) as workspace:
        first = workspace.sandbox(FakeConfig())
        assert workspace.sandbox(FakeConfig()) is first
        second = workspace.sandbox(FakeConfig(greeting="other"))
        assert [made.is_closed for made in fake.made] == [True, False]
        assert second is fake.made[1]


def test_a_workspace_refuses_a_sandbox_that_runs_no_commands(tmp_path: Path) -> None:
    with created(tmp_path) as workspace:
        with pytest.raises(UsageError, match="'asteval' runs no commands") as caught:
            workspace.sandbox(AstevalConfig())
        assert "podman" in caught.value.hint


def left_by_a_killed_process(tmp_path: Path) -> tuple[str, Path]:
    """The id of a workspace whose process died while it had a sandbox, and the note."""
    with created(tmp_path) as workspace:
        workspace.sandbox(FakeConfig())
        note = workspace._folder.sandbox / "backend"
        content = note.read_text()
    assert not note.exists(), "what was closed is forgotten"
    note.write_text(content)
    return workspace.info.id, note


def test_whoever_opens_a_workspace_has_its_backend_end_what_a_killed_process_left(
    tmp_path: Path, fake: FakeMachine
) -> None:
    which, note = left_by_a_killed_process(tmp_path)
    for _ in range(2):
        with Workspace.open(which, storage=state(tmp_path)):
            assert fake.ended == [note.parent], "once"


def test_a_workspace_whose_backend_is_gone_is_not_opened_before_it_is_back(tmp_path: Path) -> None:
    with registered():
        which, note = left_by_a_killed_process(tmp_path)
    with pytest.raises(SandboxUnavailableError, match="'fake' may still run") as caught:
        Workspace.open(which, storage=state(tmp_path))
    assert str(note) in caught.value.hint
    with registered() as machine, Workspace.open(which, storage=state(tmp_path)):
        assert machine.ended == [note.parent]


# Commands and servers


def test_a_run_in_another_sandbox_plays_its_tools(
    desk: CliUser, tmp_path: Path, fake: FakeMachine
) -> None:
    turns = tmp_path / "turns.jsonl"
    call = {"name": "shell_execute", "arguments": {"command": "put made by-fake"}}
    turns.write_text(json.dumps({"tool_calls": [call]}) + '\n{"text": "Done."}\n')
    report = desk(
        "run", "--repo", desk.source, "--script", turns, "--sandbox", "fake", "--json", "--yes"
    )
    assert json.loads(report)["changed_paths"] == ["made"]
    assert (desk.source / "made").read_text() == "by-fake"


def test_exec_runs_in_the_sandbox_that_is_named(desk: CliUser, fake: FakeMachine) -> None:
    which = desk("new", str(desk.source)).partition(":")[0]
    desk("exec", which, "--sandbox", "fake", "--", "put", "made", "text")
    assert desk("exec", which, "--sandbox", "fake", "--", "cat", "made") == "fake: text"
    assert "exec" in desk("log", which)
    desk("exec", which, "--sandbox", "fake", "--", "fail", fails=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sandbox", "docker"], "no sandbox 'docker'"),
        (["--sandbox", "asteval"], "'asteval' runs no commands"),
        (["--sandbox", "fake", "--image", "debian"], "'fake' has no images"),
    ],
)
def test_exec_refuses_what_the_sandbox_cannot_do(
    desk: CliUser, fake: FakeMachine, options: list[str], said: str
) -> None:
    which = desk("new", str(desk.source)).partition(":")[0]
    desk("exec", which, *options, "--", "true", fails=2)
    assert said in desk.err


def test_a_run_with_an_unknown_sandbox_is_wrong_usage(desk: CliUser) -> None:
    desk("run", "Task", "--repo", desk.source, "--sandbox", "docker", fails=2)
    assert "no sandbox 'docker'. Use one of podman, asteval, none." in desk.err


def test_a_server_offers_the_tools_of_another_sandbox(fake: FakeMachine) -> None:
    from wink_workspace.cli.serving import served_sections

    offer = Catalog(served_sections("fake", in_place=False))
    names = {tool.name for tool in offer.tools}
    assert {"read_file", "shell_execute"} <= names
    assert "evaluate_python" not in names


def test_a_backend_that_says_nothing_of_the_machine_has_no_findings() -> None:
    backend = SandboxBackend(
        name="podman", config=PodmanLike, section=lambda _: MarkdownSection(title="T", template="")
    )
    environment = Environment.from_os()
    assert backend.examine(environment) == backend.sweep(environment) == ()
    assert backend.end_leftover(Path("/nonexistent")) == ""
