"""A client of the MCP server runs commands in the container of its workspace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wink_workspace.clock import Cancellation
from wink_workspace.mcp_server import Catalog, HostedWorkspace
from wink_workspace.mcp_server.hosting import Answer, WorkspaceProvider
from wink_workspace.sections import PodmanSandboxSection
from wink_workspace.workspace import Workspace

WATCHDOG_S = 120.0


@contextmanager
def hosted(tmp_path: Path) -> Iterator[HostedWorkspace]:
    (tmp_path / "app.py").write_text("print('hello')\n")
    provider = WorkspaceProvider(lambda _: Workspace.temporary(tmp_path))
    hosted = HostedWorkspace(provider, Catalog([PodmanSandboxSection()], operations=True))
    try:
        yield hosted
    finally:
        hosted.close().result(WATCHDOG_S)


def call(hosted: HostedWorkspace, name: str, **arguments: object) -> Answer:
    pending_answer = hosted.call(name, arguments, cancellation=Cancellation())
    return pending_answer.result(WATCHDOG_S)


def test_client_runs_a_command_and_undoes_it(tmp_path: Path, python_image: str) -> None:
    del python_image  # the fixture builds it
    with hosted(tmp_path) as server_workspace:
        ran = call(
            server_workspace, "shell_execute", command="python3 app.py > out.txt && cat out.txt"
        )
        assert ran.success, ran.text
        assert "hello" in ran.text
        assert "hello" in call(server_workspace, "read_file", file_path="out.txt").text
        assert call(server_workspace, "workspace_undo").success
        assert not call(server_workspace, "read_file", file_path="out.txt").success


class CancelledDuringStart(Cancellation):
    """Cancelled from the fourth check on, which is made while the container starts."""

    def __init__(self) -> None:
        self.n_looks = 0

    @property
    def cancelled(self) -> bool:
        self.n_looks += 1
        return self.n_looks > 3


def test_call_cancelled_while_its_container_starts_is_not_run(
    tmp_path: Path, python_image: str
) -> None:
    del python_image  # the fixture builds it
    cancellation = CancelledDuringStart()
    with hosted(tmp_path) as server_workspace:
        pending_answer = server_workspace.call(
            "shell_execute", {"command": "echo x"}, cancellation=cancellation
        )
        answer = pending_answer.result(WATCHDOG_S)
        assert answer.text == "Tool 'shell_execute' was cancelled, and changed nothing."
        assert call(server_workspace, "shell_execute", command="echo x").success


def test_cancelled_command_ends_with_all_its_processes_and_is_undone(
    tmp_path: Path, python_image: str
) -> None:
    del python_image  # the fixture builds it
    cancellation = Cancellation()
    n_beats = 0

    def beat() -> None:
        nonlocal n_beats
        n_beats += 1
        if n_beats > 1:  # the first is from the call, the next from the command's output
            cancellation.cancel()

    endless = {"command": "touch new; sleep 1000 & echo begun; sleep 1000", "timeout_s": 600}
    with hosted(tmp_path) as server_workspace:
        pending_answer = server_workspace.call(
            "shell_execute", endless, cancellation=cancellation, on_beat=beat
        )
        ended = pending_answer.result(WATCHDOG_S)
        assert not ended.success
        assert ended.text.startswith("Stopped: it was cancelled. All its processes were killed")
        assert "begun" in ended.text
        left = call(
            server_workspace, "shell_execute", command="ls; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
        )
        assert "app.py" in left.text
        assert "new" not in left.text
        assert "sleep" not in left.text
