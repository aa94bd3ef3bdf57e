"""Commands as tool calls: all of a call happens, or it leaves no trace.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from podman_machine import listed_containers
from support import executor_of
from workspace.workspace_rig import assert_same, picture

from wink_workspace import (
    Prompt,
    Sandbox,
    ToolCall,
    Workspace,
    WorkspaceStorage,
)
from wink_workspace.clock import Deadline, ManualClock
from wink_workspace.environment import Environment
from wink_workspace.runtime import CallOutcome
from wink_workspace.sandbox import ExecRequest, ExecResult, NetworkRules, SecretHost
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService
from wink_workspace.sandbox.podman.engine.containers import WORKSPACE_LABEL
from wink_workspace.sections import CommandOutput, PodmanSandboxSection
from wink_workspace.serde import dump

pytestmark = pytest.mark.xdist_group("podman")

FILES = {
    "README.md": "",
    "src/app.py": "def main():\n    print('hello')\n    return 0\n",
    ".gitignore": "*.log\nbuild/\n",
    "ignored.log": "kept though ignored\n",
    "build/out.o": "\0\1",
    "nested/.git/config": "[core]\n\tbare = false\n",
    "nested/.git/hooks/pre-commit": "#!/bin/sh\n",
    "nested/file": "x\n",
    "empty/": "",
}


def source(folder: Path) -> Path:
    for name, content in FILES.items():
        path = folder / "source" / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "source" / "nested/.git/hooks/pre-commit").chmod(0o755)
    return folder / "source"


@dataclass
class CommandWorkspace:
    """A workspace and a function that makes calls in it."""

    workspace: Workspace
    call: Callable[..., CallOutcome]

    @property
    def files(self) -> Path:
        return self.workspace._folder.files

    def shell(self, command: str, **options: object) -> CallOutcome:
        return self.call("shell_execute", command=command, **options)

    def state(self) -> tuple[object, str]:
        return picture(self.files), self.workspace.session.dump_state()

    def leftovers(self) -> str:
        """Return the processes and temporary files that a command finds at its start."""
        shell = (
            "for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || echo $p; done; ls -A /tmp /dev/shm"
        )
        result = self.workspace.sandbox().run(ExecRequest(argv=("/bin/sh", "-c", shell)))
        return result.stdout.head.decode()


NOTHING_LEFT = "/proc/1\n/dev/shm:\n\n/tmp:\n"


@contextmanager
def calls(
    workspace: Workspace, section: PodmanSandboxSection | None = None, **options: Any
) -> Iterator[CommandWorkspace]:
    prompt = Prompt[None](ns="t", key="p", sections=[section or PodmanSandboxSection()])
    prompt.bind(resources=workspace.resources)
    ids = iter(range(1_000_000))
    with prompt.resources:
        prompt.install(workspace.session)
        executor = executor_of(prompt, workspace.session, **options)
        yield CommandWorkspace(
            workspace,
            lambda name, /, **arguments: executor.execute(
                ToolCall.of(name, arguments, id=f"c{next(ids)}-{id(executor)}")
            ),
        )


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> Generator[Workspace]:
    """A workspace for tests that leave it unchanged."""
    with Workspace.temporary(source(tmp_path_factory.mktemp("calls"))) as workspace:
        yield workspace


@pytest.fixture
def commands(tmp_path: Path, environment: Environment) -> Iterator[CommandWorkspace]:
    storage = WorkspaceStorage(tmp_path / "state")
    with (
        Workspace.create(source(tmp_path), storage=storage) as workspace,
        calls(workspace) as commands,
    ):
        yield commands


def containers_of(workspace: Workspace) -> list[str]:
    service = PodmanService(Environment.from_os())
    try:
        listed = listed_containers(service, f"{WORKSPACE_LABEL}={workspace._folder.files}")
        return [found["Id"] for found in listed]
    finally:
        service.close()


# Effects that are kept


def test_the_effects_of_a_command_are_one_entry(commands: CommandWorkspace) -> None:
    outcome = commands.shell("echo new > src/new; rm README.md; mkdir -p a/b; chmod +x src/app.py")
    assert outcome.text == "Exit code 0\n\n(no output)"
    entry = next(iter(commands.workspace.log(limit=1)))
    changed = {str(change.path) for change in commands.workspace.changes_of(entry)}
    assert changed == {"src/new", "README.md", "src/app.py", "a", "a/b"}
    commands.workspace.undo()
    assert commands.workspace.changes() == ()
    assert (commands.files / "README.md").exists()


def test_a_nonzero_exit_code_is_a_result_and_effects_are_kept(commands: CommandWorkspace) -> None:
    outcome = commands.shell("echo x > made; echo out; echo why >&2; exit 3")
    assert outcome.result.success
    assert outcome.text == "Exit code 3\n\nstdout:\nout\n\nstderr:\nwhy\n"
    assert (commands.files / "made").exists()


def test_a_command_that_fills_a_small_directory_gets_the_keys_that_make_it_larger(
    commands: CommandWorkspace,
) -> None:
    for directory in ("/tmp", "/dev/shm"):
        outcome = commands.shell(f"head -c 200M /dev/zero >{directory}/full")
        assert "No space left on device" in outcome.text
        assert "limits.tmp and limits.shm" in outcome.text


def test_python_that_raises_is_a_result(commands: CommandWorkspace) -> None:
    outcome = commands.call("evaluate_python", code="open('made', 'w').write('x')\n1 / 0")
    assert outcome.result.success
    assert "ZeroDivisionError" in outcome.text
    assert (commands.files / "made").read_text() == "x"


def test_commands_and_file_tools_see_the_same_files(commands: CommandWorkspace) -> None:
    commands.call("write_file", file_path="by_tool.txt", content="from the tool\n")
    assert "from the tool" in commands.shell("cat by_tool.txt && echo more >> by_tool.txt").text
    assert "more" in commands.call("read_file", file_path="by_tool.txt").text
    commands.shell("echo changed > by_tool.txt")
    refused = commands.call(
        "edit_file", file_path="by_tool.txt", old_string="changed", new_string="x"
    )
    assert not refused.result.success, "a command changed the file, so it must be read again"


def test_file_tools_start_no_container(commands: CommandWorkspace) -> None:
    assert commands.call("ls").result.success
    assert not (commands.workspace._folder.sandbox / "container.json").exists()
    commands.shell("true")
    assert (commands.workspace._folder.sandbox / "container.json").exists()


def test_a_container_is_reused_by_the_next_prompt(commands: CommandWorkspace) -> None:
    commands.shell("true")
    sandbox = commands.workspace.sandbox()
    with calls(commands.workspace) as other:
        other.shell("true")
    assert commands.shell("true").result.success
    assert commands.workspace.sandbox() is sandbox
    assert len(containers_of(commands.workspace)) == 1


def test_a_section_with_another_configuration_gets_another_container(
    commands: CommandWorkspace,
) -> None:
    commands.shell("true")
    with calls(commands.workspace, PodmanSandboxSection(PodmanConfig(env={"OWN": "x"}))) as other:
        assert "OWN=x" in other.shell("env").text
    assert len(containers_of(commands.workspace)) == 1


@pytest.mark.behaviour(62)
def test_long_output_is_truncated_and_can_be_read_from_a_file(commands: CommandWorkspace) -> None:
    outcome = commands.shell(r"seq 1 100000; printf '\377'")
    assert (
        "bytes left out; the first 588,896 bytes of the output are in .wink-output/stdout.txt"
        in outcome.text
    )
    window = commands.call("read_file", file_path=".wink-output/stdout.txt", offset=77_777, limit=1)
    assert "77777" in window.text
    assert commands.workspace.changes() == (), "output files are not changes"
    assert commands.workspace.apply().paths == ()


# Calls that leave no trace


HARMFUL_COMMANDS = {
    "files that git would ignore": "echo x > new.log; rm ignored.log; rm -r build; mkdir build",
    "read-only files": "echo x >> src/app.py; chmod 444 src/app.py README.md; chmod 555 src",
    "directories without permissions": "mkdir -p locked/in; touch locked/in/f; chmod 000 locked/in locked src",
    "the root itself": "rm -rf ..?* .[!.]* *; touch only; chmod 000 .",
    "a nested repository": "cd nested && rm -r .git && git init -q . && git config core.fsmonitor /bin/evil"
    " && echo evil > .git/hooks/post-checkout && chmod +x .git/hooks/* && git add . "
    "&& git -c user.name=a -c user.email=b commit -qm x",
    "a repository at the top": "git init -q . && git config core.hooksPath evil",
    "files and directories that change places": "rm -r src; echo x > src; rm README.md; mkdir README.md; mv nested moved; touch moved/more",
    "links of all kinds": "ln -s /etc/passwd a; ln -s ../../../.. b; rm -r src; ln -s nested src; ln README.md c",
    "names that are odd": r"touch $(printf 'a\nb') $(printf '\377') ' ' -- -rf; mkdir .GIT; touch '.git '",
    "files that cannot be stored": "mkfifo p; python3 -c \"import socket; socket.socket(1).bind('s')\"; chmod 4755 src/app.py",
    "a file full of holes": "truncate -s 50000000 large; dd if=/dev/zero of=README.md bs=1 count=1 seek=100000 2>&1",
    "a mapping that outlives its file": "python3 -c \"import mmap,os; f=open('src/app.py','r+b'); m=mmap.mmap(f.fileno(),0); os.unlink('src/app.py'); m[0:1]=b'X'\"",
    "many files": "mkdir m; cd m; for i in 1 2 3 4 5; do mkdir $i; (cd $i; touch $(seq 1 400)); done",
    "a process in the background": "(while :; do echo x >> src/app.py; echo y > late; done) & sleep 0.05",
    "leftovers elsewhere": "mkdir -p /tmp/a/b; chmod 000 /tmp/a; echo x > /dev/shm/x; setsid sleep 1000 &",
}  # fmt: skip


@pytest.mark.parametrize("command", HARMFUL_COMMANDS.values(), ids=HARMFUL_COMMANDS.keys())
def test_a_command_that_is_rolled_back_leaves_no_trace(shared: Workspace, command: str) -> None:
    section = PodmanSandboxSection(rollback_on_nonzero_exit=True)
    with calls(shared, section) as commands:
        # The first command adds to the session state, so it runs before the comparison.
        assert commands.shell("true").result.success
        before = commands.state()
        outcome = commands.shell(f"{command}\nexit 7")
        assert outcome.text.startswith("Exit code 7. Its changes were undone."), outcome.text
        after = commands.state()
        assert_same(before[0], after[0])
        assert before[1] == after[1]
        assert commands.leftovers() == NOTHING_LEFT


def test_a_tree_deeper_than_a_path_can_name_leaves_no_trace(shared: Workspace) -> None:
    code = "import os\nfor n in range(2100):\n    os.mkdir('d'); os.chdir('d')\nopen('f', 'w')\n"
    section = PodmanSandboxSection(rollback_on_nonzero_exit=True)
    with calls(shared, section) as commands:
        before = commands.state()
        outcome = commands.shell("python3 -; exit 7", stdin=code)
        assert not outcome.result.success
        assert_same(before[0], commands.state()[0])


@pytest.mark.behaviour(60)
def test_a_command_that_times_out_fails_its_call_and_reports_its_output(
    shared: Workspace,
) -> None:
    with calls(shared) as commands:
        before = commands.state()
        outcome = commands.shell("echo begun; rm -r src; sleep 1000", timeout_s=2)
        assert not outcome.result.success
        assert outcome.text.startswith("Timed out after 2 s. All its processes were killed")
        assert outcome.text.endswith("begun\n")
        assert commands.state() == before
        assert commands.leftovers() == NOTHING_LEFT


def test_the_output_file_of_a_failed_call_is_removed(shared: Workspace) -> None:
    with calls(shared, PodmanSandboxSection(rollback_on_nonzero_exit=True)) as commands:
        assert not commands.shell("seq 1 100000; exit 1").result.success
        assert not (commands.files / ".wink-output").exists()


def test_sparse_files_that_are_too_large_fail_the_call(
    tmp_path: Path, environment: Environment
) -> None:
    """Sparse files use no disk space, so the disk watch usually does not stop the command.

    It may look earlier if another process fills the disk at the same time.
    """
    config = PodmanConfig(workspace_bytes=2_000_000)
    with Workspace.temporary(source(tmp_path)) as workspace:
        with calls(workspace, PodmanSandboxSection(config)) as commands:
            before = commands.state()
            outcome = commands.shell("for i in 1 2 3; do truncate -s 1000000 $i; done")
            assert re.search("Stopped: (it left 3,000,|the workspace grew)", outcome.text)
            assert commands.state() == before


def test_the_deadline_of_a_run_ends_a_command(shared: Workspace) -> None:
    clock = ManualClock()
    with calls(shared, deadline=Deadline.after(0.4, clock=clock)) as commands:
        outcome = commands.shell("sleep 1000", timeout_s=500)
        assert outcome.text.startswith("Timed out after 0.4 s.")


# Mistakes of a model, and failures


def test_an_invalid_request_is_answered(shared: Workspace) -> None:
    with calls(shared) as commands:
        assert "outside the workspace" in commands.shell("true", cwd="../up").text
        assert "cannot be entered" in commands.shell("true", cwd="missing").text
        assert "command" in commands.shell("").text
        assert not commands.shell("true", timeout_s=-1).result.success


@dataclass
class FailingSandbox(Sandbox):
    """A sandbox that always raises *error*."""

    error: Exception

    @property
    def report(self):
        raise self.error

    def run(self, request: ExecRequest, *, observer: object = None) -> ExecResult:
        raise self.error

    def close(self) -> None:
        pass


def test_a_broken_sandbox_fails_the_call_and_not_the_run() -> None:
    from support import small_workspace

    from wink_workspace.errors import SandboxBrokenError

    section = PodmanSandboxSection(files=False)
    broken = FailingSandbox(SandboxBrokenError("it fell silent"))
    with small_workspace(sections=[section], resources={Sandbox: broken}) as agent:
        outcome = agent.call("shell_execute", command="true")
        assert outcome.text.startswith("it fell silent. Call again: a new sandbox is started.")
        assert "cannot evaluate Python" in agent.call("evaluate_python", code="1").text


def text_of(*sections: PodmanSandboxSection) -> str:
    prompt = Prompt[None](ns="t", key="p", sections=sections)
    prompt.bind(resources={Sandbox: FailingSandbox(RuntimeError("no command runs"))})
    return prompt.render().text


def test_two_sections_with_different_prefixes_have_distinct_tools() -> None:
    sections = [PodmanSandboxSection(), PodmanSandboxSection(prefix="big_")]
    names = {tool.name for section in sections for tool in section.tools()}
    assert {"shell_execute", "big_shell_execute", "read_file", "big_read_file"} <= names
    text = text_of(*sections)
    assert "`big_shell_execute`" in text


NETWORK = NetworkRules(
    allowed=("pypi", "api.example.org:443"),
    secrets=(SecretHost(name="tracker", host="tracker.test:443", value="Bearer 0123456789"),),
)


def test_the_text_states_the_limits_that_apply() -> None:
    config = PodmanConfig(timeout_s=7, memory_bytes=512 * 1_048_576, network=NETWORK)
    text = text_of(PodmanSandboxSection(config, rollback_on_nonzero_exit=True))
    assert "7 seconds per command" in text
    assert "512 MiB of memory" in text
    assert "`pypi (read only)`, `api.example.org:443`" in text
    assert "`http://tracker.wink.internal` leads to tracker.test:443, with its secret." in text
    assert "Bearer" not in text
    assert "its changes are undone" in text


@pytest.mark.parametrize("name", ["shell_execute", "evaluate_python"])
def test_an_example_gives_the_stated_output(shared: Workspace, name: str) -> None:
    (tool,) = (each for each in PodmanSandboxSection().tools() if each.name == name)
    with calls(shared) as commands:
        for example in tool.examples:
            outcome = commands.call(name, **dump(example.input))
            assert outcome.result.value == example.output
            assert isinstance(outcome.result.value, CommandOutput)


# Concurrency


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def work(folder: Path, name: str, n_commands: int, problems: list[str]) -> None:
    """Run commands that detect any effect of another workspace."""
    folder.mkdir()
    try:
        with Workspace.temporary(source(folder)) as workspace, calls(workspace) as commands:
            for number in range(n_commands):
                text = commands.shell(
                    f"echo {name}{number} >> own; tail -1 own; cat *.mark 2>&1"
                ).text
                if f"{name}{number}\n" not in text or "No such file" not in text:
                    problems.append(text)
            lines = (commands.files / "own").read_text().splitlines()
            if lines != [f"{name}{number}" for number in range(n_commands)]:
                problems.append(f"{name}: {lines}")
            if len(containers_of(workspace)) != 1:
                problems.append(f"{name} does not have exactly one container")
    except Exception as error:  # noqa: BLE001 - reported by the test
        problems.append(repr(error))


def run_at_once(folder: Path, n_workspaces: int, n_commands: int) -> None:
    warm = PodmanService(Environment.from_os())
    warm.close()
    problems: list[str] = []
    before = open_descriptors()
    threads = [
        threading.Thread(target=work, args=(folder / str(n), f"w{n}-", n_commands, problems))
        for n in range(n_workspaces)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[:3]
    assert open_descriptors() <= before + 4, "at most 4 pooled connections stay open"


def test_concurrent_workspaces_are_isolated_and_leak_nothing(
    tmp_path: Path, environment: Environment
) -> None:
    run_at_once(tmp_path, n_workspaces=4, n_commands=50)


@pytest.mark.soak
def test_many_concurrent_workspaces_are_isolated_and_leak_nothing(
    tmp_path: Path, environment: Environment
) -> None:
    run_at_once(tmp_path, n_workspaces=8, n_commands=500)


def test_files_belong_to_the_user_of_the_sandbox(commands: CommandWorkspace) -> None:
    owner = 2_100_001_000 if os.geteuid() == 0 else os.geteuid()
    commands.call("write_file", file_path="deep/by_tool", content="x")
    commands.shell("echo more >> deep/by_tool; mkdir by_command; touch by_command/f")
    commands.workspace.undo()
    commands.workspace.redo()
    for path in commands.files.rglob("*"):
        if not path.is_symlink():
            assert path.lstat().st_uid == owner, path


def test_a_copy_owned_by_root_is_given_to_the_user_of_the_sandbox(
    commands: CommandWorkspace,
) -> None:
    """Such as copies by an older release, which belonged to root."""
    if os.geteuid():
        pytest.skip("an ordinary user's files are the sandbox's")
    for path in (commands.files, *commands.files.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
    assert commands.shell("echo x >> src/app.py").text.startswith("Exit code 0")


def test_a_fork_has_its_own_container(commands: CommandWorkspace, tmp_path: Path) -> None:
    commands.shell("echo main > where")
    commands.workspace.fork("other")
    storage = WorkspaceStorage(tmp_path / "state")
    with (
        Workspace.open(commands.workspace.info.id, storage=storage, branch="other") as fork,
        calls(fork) as fork_commands,
    ):
        assert fork_commands.shell("cat where; echo fork > where").text == "Exit code 0\n\nmain\n"
        assert commands.shell("cat where").text == "Exit code 0\n\nmain\n"
        assert containers_of(fork) != containers_of(commands.workspace)
    assert replace(fork._folder, branch="main") != fork._folder


def test_a_fork_shares_what_a_command_installed_and_both_go_on(
    tmp_path: Path, environment: Environment
) -> None:
    storage = WorkspaceStorage(tmp_path / "state")
    install = (
        "mkdir -p node_modules/a && head -c 3000000 /dev/zero > node_modules/a/big && echo 1 > v"
    )
    with (
        Workspace.create(source(tmp_path), storage=storage, mode="overlay") as workspace,
        calls(workspace) as commands,
    ):
        assert commands.shell(install).text.startswith("Exit code 0")
        fork = workspace.fork("other")
        assert fork.left_out == ()
        with fork.open() as other, calls(other) as fork_commands:
            change = "echo 2 > node_modules/a/new; rm node_modules/a/big; ls node_modules/a; cat v"
            assert fork_commands.shell(change).text == "Exit code 0\n\nnew\n1\n"
            assert commands.shell("ls node_modules/a; echo 3 > v").text == "Exit code 0\n\nbig\n"
            moved = fork_commands.shell("mv node_modules/a node_modules/b && ls node_modules/b")
            assert moved.text == "Exit code 0\n\nnew\n"
        assert workspace.files.read_bytes("v") == b"3\n"
        assert commands.shell("mv node_modules/a node_modules/c && ls node_modules").text.endswith(
            "c\n"
        )
