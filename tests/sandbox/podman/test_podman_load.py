"""Many workspaces with containers at once: they are isolated, and nothing is left at the end."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from podman_machine import listed_containers
from support import executor_of

from wink_workspace import Prompt, ToolCall, ToolExecutor, Workspace
from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman import PodmanService
from wink_workspace.sandbox.podman.engine.containers import WORKSPACE_LABEL
from wink_workspace.sections import CommandOutput, PodmanSandboxSection
from wink_workspace.workspace import WorkspaceStorage

pytestmark = pytest.mark.xdist_group("podman-load")


@contextmanager
def shell(workspace: Workspace) -> Iterator[ToolExecutor]:
    prompt = Prompt[None](ns="tests", key="load", sections=[PodmanSandboxSection()])
    prompt.bind(resources=workspace.resources)
    with prompt.resources:
        prompt.install(workspace.session)
        yield executor_of(prompt, workspace.session)


def work(worker: int, n_commands: int, source: Path, storage: WorkspaceStorage) -> str:
    """Run commands that write their name and leave a process; return the container's name."""
    with Workspace.create(source, storage=storage) as workspace, shell(workspace) as executor:
        for n in range(n_commands):
            word = f"{worker}-{n}"
            command = f"cat /tmp/mark 2>&1; echo {word} | tee -a log /tmp/mark; sleep 600 &"
            call = ToolCall.of("shell_execute", {"command": command}, id=f"call-{n}")
            output = executor.execute(call).result.value
            assert isinstance(output, CommandOutput)
            assert output.stdout.text == f"cat: /tmp/mark: No such file or directory\n{word}\n"
        folder = workspace._folder
        expected = "".join(f"{worker}-{n}\n" for n in range(n_commands))
        assert (folder.files / "log").read_text() == expected
        return json.loads((folder.sandbox / "container.json").read_text())["name"]


def inotify_watches() -> int:
    infos = names_in(Path("/proc/self/fdinfo"))
    texts = [
        info.read_text() for info in map(Path("/proc/self/fdinfo").joinpath, infos) if info.exists()
    ]
    return sum(text.count("inotify wd:") for text in texts)


def open_files() -> int:
    return len(names_in(Path("/proc/self/fd")))


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def processes_of(names: list[str]) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        found += [line for name in names if name in line]
    return found


def containers_below(service: PodmanService, folder: Path) -> list[str]:
    listed = listed_containers(service, WORKSPACE_LABEL)
    return [
        found["Id"] for found in listed if found["Labels"][WORKSPACE_LABEL].startswith(str(folder))
    ]


@pytest.mark.parametrize(
    ("n_workspaces", "n_commands"),
    [(4, 20), pytest.param(8, 500, marks=pytest.mark.soak)],
)
def test_concurrent_workspaces_with_containers_are_isolated_and_leak_nothing(
    n_workspaces: int,
    n_commands: int,
    environment: Environment,
    service: PodmanService,
    tmp_path: Path,
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("x\n")
    storage = WorkspaceStorage(tmp_path / "state")
    work(99, 1, source, storage)  # loads what is loaded only once
    gc.collect()
    before = open_files(), inotify_watches()

    with ThreadPoolExecutor(n_workspaces) as pool:
        jobs = [pool.submit(work, n, n_commands, source, storage) for n in range(n_workspaces)]
        names = [job.result() for job in jobs]

    gc.collect()
    after = open_files(), inotify_watches()
    assert after[0] <= before[0], (
        "files stay open"
    )  # one of an earlier test may be closed meanwhile
    assert after[1] <= before[1], "watches stay"
    assert len(set(names)) == n_workspaces
    assert containers_below(service, tmp_path) == []
    assert processes_of(names) == []
    for info in storage.all():
        assert names_in(storage.folder(info.id).sandbox) == []
        Workspace.delete(info.id, storage=storage)
    assert list(storage.all()) == []
    assert names_in(tmp_path / "state" / "workspaces") == ["claims"]
