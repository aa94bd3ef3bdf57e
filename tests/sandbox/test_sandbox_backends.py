"""The registry of sandboxes: built-in backends, those of packages and programs, and their users."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from cli_user import CliUser
from fake_sandbox import FakeBackend, FakeConfig, registered

from wink_workspace import ModelTurn, Prompt, ScriptedAdapter, ToolCall
from wink_workspace.cli.sandbox.sandbox_options import check_sandbox
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.filesystem.overlay.mounting import OverlaySupport
from wink_workspace.mcp_server import Catalog
from wink_workspace.prompt import MarkdownSection
from wink_workspace.sandbox import SANDBOXES, SandboxBackend, SandboxConfig, backends
from wink_workspace.sandbox.asteval import AstevalConfig
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import Workspace, WorkspaceStorage


@pytest.fixture
def fake() -> Iterator[FakeBackend]:
    with registered() as backend:
        yield backend


@pytest.fixture
def user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliUser:
    return CliUser(tmp_path, capsys, monkeypatch)


def state(tmp_path: Path) -> WorkspaceStorage:
    return WorkspaceStorage(tmp_path / "state")


def created(tmp_path: Path) -> Workspace:
    """Create a workspace of a directory with one file."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    return Workspace.create(source, storage=state(tmp_path))


# The registry

SERVICE_TOOLS = ("start_service", "service_logs", "stop_service")


@pytest.mark.parametrize(
    ("name", "tools", "runs_commands"),
    [
        ("podman", {"shell_execute", "evaluate_python", *SERVICE_TOOLS}, True),
        ("asteval", {"evaluate_python"}, False),
        ("python", {"evaluate_python"}, False),
        ("fake", {"shell_execute"}, True),
    ],
)
def test_a_backend_offers_only_tools_that_it_can_run(
    fake: FakeBackend, name: str, tools: set[str], runs_commands: bool
) -> None:
    backend = SANDBOXES.get(name)
    section = backend.section(backend.config())
    assert {tool.name for tool in section.tools()} == tools
    assert (backend.create is not None) == runs_commands
    assert SANDBOXES.of_config(backend.config()) is backend


def test_all_backends_are_listed_by_name_and_can_be_loaded(fake: FakeBackend) -> None:
    assert SANDBOXES.names() == ("podman", "bubblewrap", "asteval", "python", "fake")
    assert [backend.name for backend in SANDBOXES] == [
        "podman",
        "bubblewrap",
        "asteval",
        "python",
        "fake",
    ]


def test_an_unregistered_backend_is_unknown_and_the_error_lists_the_others() -> None:
    with registered():
        pass
    with pytest.raises(UsageError, match="no sandbox 'fake'") as caught:
        SANDBOXES.get("fake")
    assert "podman, bubblewrap, asteval, python, none" in caught.value.hint


def test_a_duplicate_name_is_refused(fake: FakeBackend) -> None:
    with pytest.raises(UsageError, match="a sandbox named 'fake' already"):
        SANDBOXES.register(fake.backend)


class PodmanLike(SandboxConfig):
    backend: ClassVar[str] = "podman"


class NoneLike(SandboxConfig):
    backend: ClassVar[str] = "none"


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("podman-2", PodmanLike, "not the configuration of the sandbox 'podman-2'"),
        ("Podman", PodmanLike, "'Podman' cannot be the name"),
        ("none", NoneLike, "'none' cannot be the name"),
        ("", NoneLike, "'' cannot be the name"),
        ("fake", SandboxConfig, "SandboxConfig is not the configuration"),
    ],
)
def test_a_backend_with_an_invalid_name_or_configuration_is_refused(
    name: str, config: type[SandboxConfig], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        SandboxBackend(
            name=name, config=config, section=lambda _: MarkdownSection(title="T", template="")
        )


def test_unused_backends_are_not_imported_by_workspaces_or_commands() -> None:
    code = (
        "import sys, wink_workspace.workspace, wink_workspace.cli, wink_workspace.cli.app\n"
        "from wink_workspace.sandbox import SANDBOXES\n"
        "SANDBOXES.names()\n"
        "print(*(name for name in sys.modules if name.endswith(('podman', 'asteval'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize("name", [*SANDBOXES.built_in, "fake", "none", "auto"])
def test_a_known_name_is_checked_without_the_list_of_packages(
    fake: FakeBackend, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read it takes longer than to load a backend."""
    # Private: the only reader of the list.
    monkeypatch.setattr(backends, "_installed", lambda: pytest.fail("the packages were read"))
    check_sandbox(name)


# Packages that add a backend


def install(folder: Path, name: str, module: str) -> None:
    """Create a package with an entry point, as an installer does."""
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
    assert SANDBOXES.names() == ("podman", "bubblewrap", "asteval", "python", "installed")
    assert "installed_sandbox" not in sys.modules, "listing does not load it"
    assert SANDBOXES.get("installed").section(None).title == "I"


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("import no_such_library", "cannot be loaded: ModuleNotFoundError"),
        ("raise RuntimeError('broken')", "cannot be loaded: RuntimeError: broken"),
        ("BACKEND = 1", "is not a SandboxBackend of that name"),
        (WORKS, "is not a SandboxBackend of that name"),
    ],
    ids=["library", "error", "value", "name"],
)
def test_an_entry_point_without_a_backend_is_reported_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, expected: str
) -> None:
    monkeypatch.delitem(sys.modules, "wrong_sandbox", raising=False)
    install(tmp_path, "wrong", module)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SandboxUnavailableError, match=expected) as caught:
        SANDBOXES.get("wrong")
    assert "wrong_sandbox:BACKEND" in caught.value.hint


def test_doctor_and_gc_report_a_package_that_cannot_be_loaded_and_continue(
    user: CliUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SANDBOXES, "_built_in", {})  # examining the built-in ones takes seconds
    monkeypatch.delitem(sys.modules, "wrong_sandbox", raising=False)
    install(tmp_path, "wrong", "raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    with registered():
        findings = json.loads(user("doctor", "--json"))
        first = [each["part"] for each in findings[:-2]]
        assert (first[0], first[-1]) == ("project", "forks")
        assert [(each["part"], each["state"]) for each in findings[-2:]] == [
            ("wrong", "missing"),
            ("fake", "good"),
        ]
        workspace_id = user("new", user.source).partition(":")[0]
        assert json.loads(user("gc", workspace_id, "--json"))["containers_removed"] == [
            "fake-container"
        ]
        assert "leftovers of the sandbox wrong cannot be removed" in user.err
        monkeypatch.setenv("WINK_WORKSPACE_SANDBOX", "wrong")
        user("doctor", fails=1)
        monkeypatch.setenv("WINK_WORKSPACE_SANDBOX", "fake")
        assert "code can run in: fake" in user("doctor"), "the others are optional"


@pytest.mark.parametrize(
    ("available", "expected"), [(True, ("overlay", "good")), (False, ("copy", "limited"))]
)
def test_doctor_says_whether_forks_are_overlays_or_copies_and_why(
    user: CliUser, monkeypatch: pytest.MonkeyPatch, available: bool, expected: tuple[str, str]
) -> None:
    support = OverlaySupport(available, "the reason")
    monkeypatch.setattr(SANDBOXES, "_built_in", {})  # examining the built-in ones takes seconds
    monkeypatch.setattr(WorkspaceStorage, "overlay_support", lambda _: support)
    findings = json.loads(user("doctor", "--json"))
    (finding,) = (each for each in findings if each["part"] == "forks")
    assert (finding["name"], finding["state"]) == expected
    assert "the reason" in finding["detail"]
    assert bool(finding["fix"]) != available


def test_a_package_cannot_use_the_name_of_a_built_in_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "podman", WORKS)
    monkeypatch.syspath_prepend(tmp_path)
    assert SANDBOXES.names() == ("podman", "bubblewrap", "asteval", "python")
    assert SANDBOXES.get("podman").create is not None


# Workspaces


def test_a_workspace_runs_the_sandbox_that_a_section_names(
    tmp_path: Path, fake: FakeBackend
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
        assert workspace.sandbox() is fake.created[0], "a workspace has one sandbox"
    assert fake.created[0].is_closed


def test_a_new_configuration_closes_the_previous_sandbox(tmp_path: Path, fake: FakeBackend) -> None:
    with created(tmp_path) as workspace:
        first = workspace.sandbox(FakeConfig())
        assert workspace.sandbox(FakeConfig()) is first
        second = workspace.sandbox(FakeConfig(greeting="other"))
        assert [created.is_closed for created in fake.created] == [True, False]
        assert second is fake.created[1]


def test_a_workspace_refuses_a_sandbox_that_runs_no_commands(tmp_path: Path) -> None:
    with created(tmp_path) as workspace:
        with pytest.raises(UsageError, match="'asteval' runs no commands") as caught:
            workspace.sandbox(AstevalConfig())
        assert "podman" in caught.value.hint


def left_by_a_killed_process(tmp_path: Path) -> tuple[str, Path]:
    """Return the id of a workspace whose process died with a sandbox, and the note."""
    with created(tmp_path) as workspace:
        workspace.sandbox(FakeConfig())
        note = workspace._folder.sandbox / "backend"
        content = note.read_text()
    assert not note.exists(), "close removes the note"
    note.write_text(content)
    return workspace.info.id, note


def test_opening_a_workspace_cleans_up_the_sandbox_of_a_killed_process(
    tmp_path: Path, fake: FakeBackend
) -> None:
    workspace_id, note = left_by_a_killed_process(tmp_path)
    for _ in range(2):
        with Workspace.open(workspace_id, storage=state(tmp_path)):
            assert fake.cleaned == [note.parent], "once"


def test_a_workspace_with_a_leftover_sandbox_does_not_open_without_its_backend(
    tmp_path: Path,
) -> None:
    with registered():
        workspace_id, note = left_by_a_killed_process(tmp_path)
    with pytest.raises(SandboxUnavailableError, match="'fake' may still run") as caught:
        Workspace.open(workspace_id, storage=state(tmp_path))
    assert str(note) in caught.value.hint
    with registered() as backend, Workspace.open(workspace_id, storage=state(tmp_path)):
        assert backend.cleaned == [note.parent]


# Commands and servers


def test_a_scripted_run_uses_the_tools_of_the_named_sandbox(
    user: CliUser, tmp_path: Path, fake: FakeBackend
) -> None:
    turns = tmp_path / "turns.jsonl"
    call = {"name": "shell_execute", "arguments": {"command": "put created by-fake"}}
    turns.write_text(json.dumps({"tool_calls": [call]}) + '\n{"text": "Done."}\n')
    report = user(
        "run", "--repo", user.source, "--script", turns, "--sandbox", "fake", "--json", "--yes"
    )
    assert json.loads(report)["changed_paths"] == ["created"]
    assert (user.source / "created").read_text() == "by-fake"


def test_exec_runs_in_the_named_sandbox(user: CliUser, fake: FakeBackend) -> None:
    workspace_id = user("new", str(user.source)).partition(":")[0]
    user("exec", workspace_id, "--sandbox", "fake", "--", "put", "created", "text")
    assert user("exec", workspace_id, "--sandbox", "fake", "--", "cat", "created") == "fake: text"
    assert "exec" in user("log", workspace_id)
    user("exec", workspace_id, "--sandbox", "fake", "--", "fail", fails=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--sandbox", "docker"], "no sandbox 'docker'"),
        (["--sandbox", "asteval"], "'asteval' runs no commands"),
        (["--sandbox", "fake", "--image", "debian"], "'fake' has no images"),
    ],
)
def test_exec_refuses_options_that_the_sandbox_does_not_support(
    user: CliUser, fake: FakeBackend, options: list[str], expected: str
) -> None:
    workspace_id = user("new", str(user.source)).partition(":")[0]
    user("exec", workspace_id, *options, "--", "true", fails=2)
    assert expected in user.err


def test_a_run_with_an_unknown_sandbox_is_wrong_usage(user: CliUser) -> None:
    user("run", "Task", "--repo", user.source, "--sandbox", "docker", fails=2)
    assert "no sandbox 'docker'. Use one of podman, bubblewrap, asteval, python, none." in user.err


def test_a_server_offers_the_tools_of_another_sandbox(fake: FakeBackend) -> None:
    from wink_workspace.cli.serve.mcp_command import served_sections

    catalog = Catalog(served_sections("fake", in_place=False))
    names = {tool.name for tool in catalog.tools}
    assert {"read_file", "shell_execute"} <= names
    assert "evaluate_python" not in names


def test_a_backend_without_examine_has_no_findings() -> None:
    backend = SandboxBackend(
        name="podman", config=PodmanLike, section=lambda _: MarkdownSection(title="T", template="")
    )
    environment = Environment.from_os()
    assert backend.examine(environment) == backend.sweep(environment) == ()
    assert backend.end_leftover(Path("/nonexistent")) == ""


# A sandbox that cannot be ended


def test_a_workspace_is_closed_although_its_sandbox_cannot_be_ended(
    tmp_path: Path, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise SandboxUnavailableError("the engine does not answer")

    workspace = created(tmp_path)
    sandbox = workspace.sandbox(FakeConfig())
    with monkeypatch.context() as patched:
        patched.setattr(sandbox, "close", fail)
        with pytest.raises(SandboxUnavailableError, match="does not answer"):
            workspace.close()
    with Workspace.open(workspace.info.id, storage=state(tmp_path)):
        assert len(fake.cleaned) == 1, "opening it ends what still runs"
    workspace.close()
    assert fake.created[0].is_closed


def test_another_sandbox_waits_for_the_end_of_the_one_before(
    tmp_path: Path, fake: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise SandboxUnavailableError("the engine does not answer")

    with created(tmp_path) as workspace:
        first = workspace.sandbox(FakeConfig())
        with monkeypatch.context() as patched:
            patched.setattr(first, "close", fail)
            for _ in range(2):
                with pytest.raises(SandboxUnavailableError, match="does not answer"):
                    workspace.sandbox(FakeConfig(greeting="other"))
        assert len(fake.created) == 1
        workspace.sandbox(FakeConfig(greeting="other"))
        assert fake.created[0].is_closed
