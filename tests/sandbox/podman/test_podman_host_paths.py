"""The list of mounts in a container shows no path of the host.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from podman_machine import mounted_place, sandbox_place

from wink_workspace.environment import Environment
from wink_workspace.errors import IsolationError, MountError
from wink_workspace.filesystem.overlay.mounting import Mounter, overlay_support
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.commands.command_config import ReadOnlyMount
from wink_workspace.sandbox.commands.live_container import LiveContainer
from wink_workspace.sandbox.git_directory import WORKSPACE_PATH
from wink_workspace.sandbox.inside import probes
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox, PodmanService
from wink_workspace.sandbox.podman.commands.waiting import WaitingContainers
from wink_workspace.sandbox.podman.engine import containers as containers_module
from wink_workspace.sandbox.podman.engine.containers import (
    Container,
    Host,
    container_spec,
    new_name,
    sweep,
)

pytestmark = pytest.mark.xdist_group("podman-waiting")

ALL = "cat /proc/self/mountinfo /proc/1/mountinfo /proc/mounts"
LAYER = "hidden paths of the host"


@pytest.fixture
def folder(tmp_path: Path, environment: Environment) -> Path:
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    WaitingContainers.shared().close()  # one of an earlier test would not be as this test asks
    return tmp_path


@pytest.fixture
def stores(environment: Environment) -> list[str]:
    """Directories of the engine and of the user; the root directory may be the home of root."""
    shown = subprocess.run(
        ["podman", "info", "--format", "{{.Store.GraphRoot}} {{.Store.RunRoot}}"],
        capture_output=True,
        text=True,
        check=True,
        env=dict(environment.variables) | {"HOME": str(environment.home)},
    )
    return [*shown.stdout.split(), f"{environment.home}/"]


def shell(sandbox: PodmanSandbox, command: str) -> str:
    result = sandbox.run(ExecRequest(argv=("/bin/sh", "-c", command)))
    assert result.exit_code == 0, result
    return result.stdout.head.decode()


def is_hidden(sandbox: PodmanSandbox) -> bool:
    (layer,) = (each for each in sandbox.report.layers if each.name == LAYER)
    return layer.is_active


@pytest.mark.behaviour(120)
def test_a_command_sees_no_path_of_the_host_in_the_list_of_mounts(
    folder: Path, stores: list[str]
) -> None:
    with closing(PodmanSandbox(mounted_place(folder))) as sandbox:
        mounts = shell(sandbox, ALL)
        assert is_hidden(sandbox)
    assert [path for path in (*stores, str(folder)) if path in mounts] == []
    assert " /etc/hosts " in mounts
    assert "overlay-containers" not in mounts


@pytest.mark.behaviour(120)
def test_only_what_is_bound_shows_its_path(folder: Path, stores: list[str]) -> None:
    (folder / "bound file").write_text("of the host\n")
    (folder / "bound").mkdir()
    config = PodmanConfig(
        mounts=(
            ReadOnlyMount(str(folder / "bound file"), "/mnt/a file"),
            ReadOnlyMount(str(folder / "bound"), "/mnt/bound"),
        )
    )
    with closing(PodmanSandbox(sandbox_place(folder), config=config)) as sandbox:
        assert shell(sandbox, "cat '/mnt/a file'; ls /mnt; test -d /mnt/bound") == (
            "of the host\na file\nbound\n"
        )
        mounts = shell(sandbox, ALL)
        assert is_hidden(sandbox)
    assert [path for path in stores if path in mounts] == []
    shown = {line.split(" ")[4] for line in mounts.splitlines() if f"/{folder.name}/" in line}
    assert shown == {WORKSPACE_PATH, "/mnt/bound", r"/mnt/a\040file"}


def test_the_new_root_shows_the_same_files_and_is_read_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = (
        "cd /; find . -xdev -maxdepth 2 -not -path './proc/*' -not -path './sys/*'"
        " -printf '%p %m %U %G %l\\n' | sort; cat /etc/passwd /etc/hostname;"
        " touch /new /etc/hosts 2>&1 || grep -c ' / ro,' /proc/self/mountinfo"
    )
    with closing(PodmanSandbox(mounted_place(folder, "new"))) as sandbox:
        new = shell(sandbox, look)
    monkeypatch.setattr(containers_module, "hide_host_paths", lambda *_: "not in this test")
    with closing(PodmanSandbox(mounted_place(folder, "old"))) as sandbox:
        assert shell(sandbox, look) == new
    assert "./etc/hosts" in new


# What the probes find


@pytest.mark.behaviour(121)
def test_a_container_that_shows_paths_although_they_were_hidden_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers_module, "hide_host_paths", lambda *_: None)
    sandbox = PodmanSandbox(mounted_place(folder))
    with closing(sandbox), pytest.raises(IsolationError, match="see paths of the host: "):
        shell(sandbox, "true")


@pytest.mark.behaviour(121)
def test_a_machine_that_cannot_hide_paths_reports_it_and_runs_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = mounted_place(folder)

    def refused(*_: object, **__: object) -> None:
        raise MountError("cannot mount a new root: refused")

    monkeypatch.setattr(Mounter, "hide_paths", refused)
    with closing(PodmanSandbox(place)) as sandbox:
        assert shell(sandbox, "echo runs") == "runs\n"
        (layer,) = (each for each in sandbox.report.missing if each.name == LAYER)
        assert layer.detail == "cannot mount a new root: refused"
        assert "see paths of the host" not in {each.name for each in sandbox.report.probes}


LINE = "112 104 254:0 {root} {point} ro,nosuid - {kind} {source} {options}"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"root": "/run/hosts", "point": "/etc"}, "the mount on /etc is of /run/hosts"),
        ({"options": "ro,lowerdir=/var/l/A:/var/l/B"}, "the mount on / shows /var/l/A"),
        ({"options": "ro,lowerdir=.:/var/l/B"}, "the mount on / shows /var/l/B"),
        ({"source": "/dev/sda1"}, "the mount on / shows /dev/sda1"),
        ({"root": "/files", "point": "/work\\040space/sub"}, None),
        ({"root": "/files", "point": "/workspaces"}, "the mount on /workspaces is of /files"),
        ({"root": "/0"}, None),
        ({"kind": "cgroup", "root": "/user.slice/a"}, None),
        ({"kind": "tmpfs", "root": "/null", "point": "/dev/null"}, None),
        ({"options": "ro,lowerdir=.:workspace/empty"}, None),
    ],
)
def test_a_line_of_the_list_of_mounts_shows_a_path_or_not(
    monkeypatch: pytest.MonkeyPatch, fields: Mapping[str, str], found: str | None
) -> None:
    monkeypatch.setattr(probes, "BOUND", ["/workspace", "/work\\040space"])
    monkeypatch.setattr(probes, "is_device", lambda path: path == "/dev/null")
    usual = {"root": "/", "point": "/", "kind": "overlay", "source": "none", "options": "rw"}
    assert probes.path_of_the_host(LINE.format(**{**usual, **fields}) + "\n") == found


# Failures on the way


HIDE = """
import errno, json, os, signal, sys
from pathlib import Path
from wink_workspace.filesystem.overlay import mounter

pid, how = int(sys.argv[1]), sys.argv[2]
request = {"pid": pid, "path": "/workspace", "keep": ["/workspace"], "unchanging": []}
real = mounter._system_call

def mounts():
    return Path(f"/proc/{pid}/mountinfo").read_text()

def attempt(n):
    left = n
    def system_call(number, *arguments):
        nonlocal left
        left -= how == "fail" or number == mounter._MOVE_MOUNT
        if left == 0 and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if left == 0:
            raise OSError(errno.EINVAL, "injected")
        return real(number, *arguments)
    mounter._system_call = system_call
    try:
        mounter._hide(request, [])
    except OSError as error:
        return error.errno
    return 0

if how == "kill":
    attempt(int(sys.argv[3]))
else:
    before, n = mounts(), 1
    while attempt(n):
        assert mounts() == before, f"changed when call {n} failed"
        n += 1
    assert mounts() != before
    print(n)
"""


def hide(pid: int, *how: str) -> str:
    """Replace the root of a container in a process with faults."""
    command = [sys.executable, "-c", HIDE, str(pid), *how]
    if os.geteuid():
        command = ["podman", "unshare", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def created(service: PodmanService, image: str, **more: Any) -> Generator[Container]:
    spec = container_spec(
        PodmanConfig(image=image),
        host=Host.of(service),
        name=new_name(),
        workspace=None,
        command=("/bin/sh", "-c", f"{ALL}; ls -R /run"),
    )
    spec["mounts"] = [*spec["mounts"], *more.get("mounts", ())]
    container = Container(service, {**spec, "remove": False}, timeout_s=60)
    try:
        yield container
    finally:
        container.end()


@pytest.mark.behaviour(122)
def test_a_failure_at_any_step_leaves_the_container_as_it_was(
    service: PodmanService, python_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def with_faults(pid: int, *_: object) -> None:
        tried.append(hide(pid, "fail"))

    monkeypatch.setattr(containers_module, "hide_host_paths", with_faults)
    with created(service, python_image) as container:
        container.start()
        assert service.request("POST", f"/containers/{container.id}/wait") == 0
    assert int(tried[0]) > 20


@pytest.mark.behaviour(122)
@pytest.mark.parametrize("mounted", ["copies", "root", "all"])
@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_a_container_whose_root_was_replaced_in_part_gets_no_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mounted: str, mode: str
) -> None:
    """The process that replaces the root is killed after a mount covers the workspace."""
    n_moves = {"copies": "2", "root": "3", "all": "6"}[mounted]

    def killed(pid: int, *_: object) -> str:
        hide(pid, "kill", n_moves)
        return "it was killed"

    monkeypatch.setattr(containers_module, "hide_host_paths", killed)
    place = mounted_place(folder) if mode == "overlay" else sandbox_place(folder)
    with closing(PodmanSandbox(place)) as sandbox:
        with pytest.raises(IsolationError, match=r"workspace: "):
            shell(sandbox, "true")
    assert place.notes is not None
    assert list(place.notes.iterdir()) == []


@pytest.mark.behaviour(122)
def test_the_program_that_makes_mounts_may_die_before_it_hides_paths(
    folder: Path, environment: Environment
) -> None:
    place = mounted_place(folder)
    pid = Mounter.shared().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with closing(PodmanSandbox(place)) as sandbox:
        assert is_hidden(sandbox)


VICTIM = """
import json, os, signal, sys
from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService
from wink_workspace.sandbox.podman.engine import containers
from wink_workspace.sandbox.podman.engine.containers import Container, Host, container_spec, new_name
from wink_workspace.sandbox.commands.live_container import started_ticks

hide = containers.hide_host_paths

def hide_and_die(pid, spec, directory):
    shown = hide(pid, spec, directory)
    print(json.dumps([spec["name"], pid, started_ticks(pid), shown]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

containers.hide_host_paths = hide_and_die
service = PodmanService(Environment.from_os())
spec = container_spec(
    PodmanConfig(image=sys.argv[1]), host=Host.of(service), name=new_name(), workspace=None,
    command=("/bin/sh", "-c", "sleep 1000"),
)
Container(service, spec, timeout_s=60).start()
"""


@pytest.mark.behaviour(122)
def test_a_container_whose_owner_is_killed_with_its_root_replaced_leaves_no_mount(
    service: PodmanService, python_image: str, environment: Environment
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, python_image], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    *fields, shown = json.loads(done.stdout)
    container = LiveContainer(*fields)
    assert shown is None
    merged = service.request("GET", f"/containers/{container.name}/json")["GraphDriver"]["Data"]
    sweep(service)
    assert container.ends_within(60)
    assert merged["MergedDir"] not in Path("/proc/self/mountinfo").read_text()
    assert not Path(merged["MergedDir"]).is_dir()


def test_a_directory_that_the_engine_binds_by_itself_is_left_out(
    service: PodmanService, python_image: str, folder: Path
) -> None:
    """Some engines bind the host's secrets in every container."""
    (folder / "key").write_text("secret")
    secrets = {
        "type": "bind",
        "source": str(folder),
        "destination": "/run/secrets",
        "options": ["ro", "bind", "private"],
    }
    with created(service, python_image, mounts=[secrets]) as container:
        container._spec = {**container._spec, "mounts": container._spec["mounts"][:-1]}
        with container.attach() as connection:
            container.start()
            output = b"".join(iter(lambda: connection.recv(65_536), b"")).decode(errors="replace")
    assert str(folder) not in output
    assert output.rstrip().endswith("/run/secrets:")


def test_a_mount_program_of_an_earlier_user_namespace_is_replaced_by_a_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounter, made = Mounter(), list[int]()
    mounter.privileged = False
    first = mounter.pid

    def request(what: Mapping[str, object], *_: object) -> None:
        made.append(len(made))
        if len(made) == 1:
            raise MountError("refused") from PermissionError()

    monkeypatch.setattr(mounter, "request", request)
    mounter.hide_paths(1, "/tmp", keep=[])
    assert made == [0, 1]
    assert first is not None
    assert mounter.pid is None
