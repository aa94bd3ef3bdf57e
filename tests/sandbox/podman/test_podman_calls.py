"""Commands as tool calls: they fully happen, or leave no trace in files, session and processes.

By root and, in ``test_podman_rootless``, by an ordinary user.
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
from workspace.workspace_rig import assert_same, picture

from wink_workspace import (
    Prompt,
    Sandbox,
    ScriptedAdapter,
    ToolCall,
    ToolExecutor,
    Workspace,
    WorkspaceStorage,
)
from wink_workspace.clock import Deadline, ManualClock
from wink_workspace.environment import Environment
from wink_workspace.runtime import CallOutcome
from wink_workspace.sandbox import ExecRequest, ExecResult
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService
from wink_workspace.sandbox.podman.containers import WORKSPACE_LABEL
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
class Rig:
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
        """What a command finds of the ones before it, beside files."""
        shell = (
            "for p in /proc/[0-9]*; do [ ${p#/proc/} = $$ ] || echo $p; done; ls -A /tmp /dev/shm"
        )
        result = self.workspace.sandbox().run(ExecRequest(argv=("/bin/sh", "-c", shell)))
        return result.stdout.head.decode()


NOTHING_LEFT = "/proc/1\n/dev/shm:\n\n/tmp:\n"


@contextmanager
def calls(
    workspace: Workspace, section: PodmanSandboxSection | None = None, **options: Any
) -> Iterator[Rig]:
    prompt = Prompt[None](ns="t", key="p", sections=[section or PodmanSandboxSection()])
    prompt.bind(resources=workspace.resources)
    ids = iter(range(1_000_000))
    with prompt.resources:
        prompt.install(workspace.session)
        executor = ToolExecutor(
            prompt=prompt,
            rendered_prompt=prompt.render(session=workspace.session),
            adapter=ScriptedAdapter(()),
            session=workspace.session,
            **options,
        )
        yield Rig(
            workspace,
            lambda name, /, **arguments: executor.execute(
                ToolCall.of(name, arguments, id=f"c{next(ids)}-{id(executor)}")
            ),
        )


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, environment: Environment
) -> Generator[Workspace]:
    """One workspace for the tests that leave it as it was."""
    with Workspace.temporary(source(tmp_path_factory.mktemp("calls"))) as workspace:
        yield workspace


@pytest.fixture
def rig(tmp_path: Path, environment: Environment) -> Iterator[Rig]:
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(source(tmp_path), storage=storage) as workspace, calls(workspace) as rig:
        yield rig


def containers_of(workspace: Workspace) -> list[str]:
    service = PodmanService(Environment.from_os())
    try:
        filters = f'{{"label": ["{WORKSPACE_LABEL}={workspace._folder.files}"]}}'
        listed = service.request(
            "GET", "/containers/json", params={"all": "true", "filters": filters}
        )
        return [found["Id"] for found in listed]
    finally:
        service.close()


# What is kept


def test_a_commands_effects_are_one_entry_of_the_history(rig: Rig) -> None:
    outcome = rig.shell("echo new > src/new; rm README.md; mkdir -p a/b; chmod +x src/app.py")
    assert outcome.text == "Exit code 0\n\n(no output)"
    entry = next(iter(rig.workspace.log(limit=1)))
    changed = {str(change.path) for change in rig.workspace.changes_of(entry)}
    assert changed == {"src/new", "README.md", "src/app.py", "a", "a/b"}
    rig.workspace.undo()
    assert rig.workspace.changes() == ()
    assert (rig.files / "README.md").exists()


def test_a_code_other_than_zero_is_a_result_whose_effects_stay(rig: Rig) -> None:
    outcome = rig.shell("echo x > made; echo out; echo why >&2; exit 3")
    assert outcome.result.success
    assert outcome.text == "Exit code 3\n\nstdout:\nout\n\nstderr:\nwhy\n"
    assert (rig.files / "made").exists()


def test_python_that_raises_is_a_result_too(rig: Rig) -> None:
    outcome = rig.call("evaluate_python", code="open('made', 'w').write('x')\n1 / 0")
    assert outcome.result.success
    assert "ZeroDivisionError" in outcome.text
    assert (rig.files / "made").read_text() == "x"


def test_commands_and_file_tools_see_the_same_files(rig: Rig) -> None:
    rig.call("write_file", file_path="by_tool.txt", content="from the tool\n")
    assert "from the tool" in rig.shell("cat by_tool.txt && echo more >> by_tool.txt").text
    assert "more" in rig.call("read_file", file_path="by_tool.txt").text
    rig.shell("echo changed > by_tool.txt")
    refused = rig.call("edit_file", file_path="by_tool.txt", old_string="changed", new_string="x")
    assert not refused.result.success, "it must be read again: a command has changed it"


def test_file_tools_start_no_container(rig: Rig) -> None:
    assert rig.call("ls").result.success
    assert not (rig.workspace._folder.sandbox / "container.json").exists()
    rig.shell("true")
    assert (rig.workspace._folder.sandbox / "container.json").exists()


def test_a_container_stays_warm_from_one_prompt_to_the_next(rig: Rig) -> None:
    rig.shell("true")
    sandbox = rig.workspace.sandbox()
    with calls(rig.workspace) as other:
        other.shell("true")
    assert rig.shell("true").result.success
    assert rig.workspace.sandbox() is sandbox
    assert len(containers_of(rig.workspace)) == 1


def test_a_section_may_ask_for_another_container(rig: Rig) -> None:
    rig.shell("true")
    with calls(rig.workspace, PodmanSandboxSection(PodmanConfig(env={"OWN": "x"}))) as other:
        assert "OWN=x" in other.shell("env").text
    assert len(containers_of(rig.workspace)) == 1


@pytest.mark.behaviour(62)
def test_output_that_is_too_much_is_cut_and_can_be_read_whole(rig: Rig) -> None:
    outcome = rig.shell(r"seq 1 100000; printf '\377'")
    assert (
        "bytes left out; the first 588,896 bytes of all are in .wink-output/stdout.txt"
        in outcome.text
    )
    window = rig.call("read_file", file_path=".wink-output/stdout.txt", offset=77_777, limit=1)
    assert "77777" in window.text
    assert rig.workspace.changes() == (), "it is nothing that was done"
    assert rig.workspace.apply().paths == ()


# What leaves no trace


TROUBLE = {
    "files that git would ignore": "echo x > new.log; rm ignored.log; rm -r build; mkdir build",
    "read-only files": "echo x >> src/app.py; chmod 444 src/app.py README.md; chmod 555 src",
    "directories that nobody may enter": "mkdir -p locked/in; touch locked/in/f; chmod 000 locked/in locked src",
    "the root itself": "rm -rf ..?* .[!.]* *; touch only; chmod 000 .",
    "a nested repository": "cd nested && rm -r .git && git init -q . && git config core.fsmonitor /bin/evil"
    " && echo evil > .git/hooks/post-checkout && chmod +x .git/hooks/* && git add . "
    "&& git -c user.name=a -c user.email=b commit -qm x",
    "a repository at the top": "git init -q . && git config core.hooksPath evil",
    "files and directories that change places": "rm -r src; echo x > src; rm README.md; mkdir README.md; mv nested moved; touch moved/more",
    "links of all kinds": "ln -s /etc/passwd a; ln -s ../../../.. b; rm -r src; ln -s nested src; ln README.md c",
    "names that are odd": r"touch $(printf 'a\nb') $(printf '\377') ' ' -- -rf; mkdir .GIT; touch '.git '",
    "what cannot be kept": "mkfifo p; python3 -c \"import socket; socket.socket(1).bind('s')\"; chmod 4755 src/app.py",
    "a file full of holes": "truncate -s 50000000 large; dd if=/dev/zero of=README.md bs=1 count=1 seek=100000 2>&1",
    "a mapping that outlives its file": "python3 -c \"import mmap,os; f=open('src/app.py','r+b'); m=mmap.mmap(f.fileno(),0); os.unlink('src/app.py'); m[0:1]=b'X'\"",
    "many files": "mkdir m; cd m; for i in 1 2 3 4 5; do mkdir $i; (cd $i; touch $(seq 1 400)); done",
    "what goes on in the background": "(while :; do echo x >> src/app.py; echo y > late; done) & sleep 0.05",
    "leftovers elsewhere": "mkdir -p /tmp/a/b; chmod 000 /tmp/a; echo x > /dev/shm/x; setsid sleep 1000 &",
}  # fmt: skip


@pytest.mark.parametrize("command", TROUBLE.values(), ids=TROUBLE.keys())
def test_a_command_that_fails_its_call_leaves_no_trace(shared: Workspace, command: str) -> None:
    section = PodmanSandboxSection(rollback_on_nonzero_exit=True)
    with calls(shared, section) as rig:
        assert rig.shell("true").result.success  # so that the session knows what it will know
        before = rig.state()
        outcome = rig.shell(f"{command}\nexit 7")
        assert outcome.text.startswith("Exit code 7. What it changed was undone."), outcome.text
        after = rig.state()
        assert_same(before[0], after[0])
        assert before[1] == after[1]
        assert rig.leftovers() == NOTHING_LEFT


def test_a_tree_of_three_thousand_levels_leaves_no_trace(shared: Workspace) -> None:
    code = "import os\nfor n in range(3000):\n    os.mkdir('d'); os.chdir('d')\nopen('f', 'w')\n"
    section = PodmanSandboxSection(rollback_on_nonzero_exit=True)
    with calls(shared, section) as rig:
        before = rig.state()
        outcome = rig.shell("python3 -; exit 7", stdin=code)
        assert not outcome.result.success
        assert_same(before[0], rig.state()[0])


@pytest.mark.behaviour(60)
def test_a_command_that_runs_out_of_time_fails_its_call_and_tells_what_it_had_said(
    shared: Workspace,
) -> None:
    with calls(shared) as rig:
        before = rig.state()
        outcome = rig.shell("echo begun; rm -r src; sleep 1000", timeout_s=2)
        assert not outcome.result.success
        assert outcome.text.startswith("Timed out after 2 s. Everything it started was ended")
        assert outcome.text.endswith("begun\n")
        assert rig.state() == before
        assert rig.leftovers() == NOTHING_LEFT


def test_whole_output_goes_with_the_call_that_failed(shared: Workspace) -> None:
    with calls(shared, PodmanSandboxSection(rollback_on_nonzero_exit=True)) as rig:
        assert not rig.shell("seq 1 100000; exit 1").result.success
        assert not (rig.files / ".wink-output").exists()


def test_files_full_of_holes_that_are_too_much_to_keep_fail_the_call(
    tmp_path: Path, environment: Environment
) -> None:
    """They take no room on the disk, so that nothing stops them before they are done, unless
    somebody else fills it at the same time and the watch looks for that reason."""
    config = PodmanConfig(workspace_bytes=2_000_000)
    with Workspace.temporary(source(tmp_path)) as workspace:
        with calls(workspace, PodmanSandboxSection(config)) as rig:
            before = rig.state()
            outcome = rig.shell("for i in 1 2 3; do truncate -s 1000000 $i; done")
            assert re.search("Stopped: (it left 3,000,|the workspace grew)", outcome.text)
            assert rig.state() == before


def test_the_deadline_of_a_run_ends_a_command(shared: Workspace) -> None:
    clock = ManualClock()
    with calls(shared, deadline=Deadline.after(0.4, clock=clock)) as rig:
        outcome = rig.shell("sleep 1000", timeout_s=500)
        assert outcome.text.startswith("Timed out after 0.4 s.")


# What a model can get wrong, and what can break


def test_a_request_that_cannot_be_run_is_answered(shared: Workspace) -> None:
    with calls(shared) as rig:
        assert "outside the workspace" in rig.shell("true", cwd="../up").text
        assert "cannot be entered" in rig.shell("true", cwd="missing").text
        assert "command" in rig.shell("").text
        assert not rig.shell("true", timeout_s=-1).result.success


@dataclass
class Breaking(Sandbox):
    """A sandbox that fails."""

    error: Exception

    @property
    def report(self):
        raise self.error

    def run(self, request: ExecRequest, *, observer: object = None) -> ExecResult:
        raise self.error

    def close(self) -> None:
        pass


def test_a_sandbox_that_breaks_fails_the_call_and_not_the_run() -> None:
    from support import small_workspace

    from wink_workspace.errors import SandboxBrokenError

    section = PodmanSandboxSection(files=False)
    broken = Breaking(SandboxBrokenError("it fell silent"))
    with small_workspace(sections=[section], resources={Sandbox: broken}) as agent:
        outcome = agent.call("shell_execute", command="true")
        assert outcome.text.startswith("it fell silent. Call again: a new one is started.")
        assert "cannot evaluate Python" in agent.call("evaluate_python", code="1").text


def text_of(*sections: PodmanSandboxSection) -> str:
    prompt = Prompt[None](ns="t", key="p", sections=sections)
    prompt.bind(resources={Sandbox: Breaking(RuntimeError("no command runs"))})
    return prompt.render().text


def test_prefixes_keep_sections_apart() -> None:
    sections = [PodmanSandboxSection(), PodmanSandboxSection(prefix="big_")]
    names = {tool.name for section in sections for tool in section.tools()}
    assert {"shell_execute", "big_shell_execute", "read_file", "big_read_file"} <= names
    text = text_of(*sections)
    assert "`big_shell_execute`" in text


def test_the_words_tell_the_limits_that_hold() -> None:
    config = PodmanConfig(timeout_s=7, memory_bytes=512 * 1_048_576, network="slirp4netns")
    text = text_of(PodmanSandboxSection(config, rollback_on_nonzero_exit=True))
    assert "7 seconds a command" in text
    assert "512 MiB of memory" in text
    assert "There is a network." in text
    assert "what it did is undone" in text


@pytest.mark.parametrize("name", ["shell_execute", "evaluate_python"])
def test_an_example_gives_the_stated_output(shared: Workspace, name: str) -> None:
    (tool,) = (each for each in PodmanSandboxSection().tools() if each.name == name)
    with calls(shared) as rig:
        for example in tool.examples:
            outcome = rig.call(name, **dump(example.input))
            assert outcome.result.value == example.output
            assert isinstance(outcome.result.value, CommandOutput)


# Several at once


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def work(folder: Path, name: str, n_commands: int, problems: list[str]) -> None:
    """Commands that would notice anything of another workspace."""
    folder.mkdir()
    try:
        with Workspace.temporary(source(folder)) as workspace, calls(workspace) as rig:
            for number in range(n_commands):
                text = rig.shell(f"echo {name}{number} >> own; tail -1 own; cat *.mark 2>&1").text
                if f"{name}{number}\n" not in text or "No such file" not in text:
                    problems.append(text)
            lines = (rig.files / "own").read_text().splitlines()
            if lines != [f"{name}{number}" for number in range(n_commands)]:
                problems.append(f"{name}: {lines}")
            if len(containers_of(workspace)) != 1:
                problems.append(f"{name} has not one container")
    except Exception as error:  # noqa: BLE001 - told by the test
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
    assert open_descriptors() <= before + 4, "connections that are kept for the next request"


def test_workspaces_at_once_do_not_meet_and_leak_nothing(
    tmp_path: Path, environment: Environment
) -> None:
    run_at_once(tmp_path, n_workspaces=4, n_commands=50)


@pytest.mark.soak
def test_many_workspaces_at_once_do_not_meet_and_leak_nothing(
    tmp_path: Path, environment: Environment
) -> None:
    run_at_once(tmp_path, n_workspaces=8, n_commands=500)


def test_files_belong_to_who_works_in_the_sandbox(rig: Rig) -> None:
    owner = 2_100_001_000 if os.geteuid() == 0 else os.geteuid()
    rig.call("write_file", file_path="deep/by_tool", content="x")
    rig.shell("echo more >> deep/by_tool; mkdir by_command; touch by_command/f")
    rig.workspace.undo()
    rig.workspace.redo()
    for path in rig.files.rglob("*"):
        if not path.is_symlink():
            assert path.lstat().st_uid == owner, path


def test_a_copy_that_was_made_by_others_is_given_to_the_sandbox(rig: Rig) -> None:
    """As those of an older release, which belonged to root."""
    if os.geteuid():
        pytest.skip("an ordinary user's files are the sandbox's")
    for path in (rig.files, *rig.files.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
    assert rig.shell("echo x >> src/app.py").text.startswith("Exit code 0")


def test_a_fork_has_a_container_of_its_own(rig: Rig, tmp_path: Path) -> None:
    rig.shell("echo main > where")
    rig.workspace.fork("other")
    storage = WorkspaceStorage(tmp_path / "state")
    with (
        Workspace.open(rig.workspace.info.id, storage=storage, branch="other") as fork,
        calls(fork) as aside,
    ):
        assert aside.shell("cat where; echo fork > where").text == "Exit code 0\n\nmain\n"
        assert rig.shell("cat where").text == "Exit code 0\n\nmain\n"
        assert containers_of(fork) != containers_of(rig.workspace)
    assert replace(fork._folder, branch="main") != fork._folder
