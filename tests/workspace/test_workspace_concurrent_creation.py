"""Several processes create workspaces at once, and some of them are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from workspace_rig import storage

from wink_workspace.errors import LedgerBusyError, UsageError
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.place.storage import WorkspaceFolder

MAKER = """
import sys
from pathlib import Path
from wink_workspace.clock import SYSTEM_CLOCK
from wink_workspace.workspace import WorkspaceInfo, WorkspaceStorage
def fill(folder):
    folder.files.mkdir()
    (folder.files / "half").write_text("of it")
    print("under way", flush=True)
    sys.stdin.readline()
    return WorkspaceInfo(folder.path.name, str(target), SYSTEM_CLOCK.now(), "in_place")
target = Path(sys.argv[2]) if len(sys.argv) > 2 else None
WorkspaceStorage(sys.argv[1]).add(fill, in_place=target)
"""


@contextmanager
def maker(directory: Path, *target: Path) -> Generator[subprocess.Popen[str]]:
    """A process that is creating a workspace; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER, directory / "state", *target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "under way\n"
        yield process
        process.send_signal(signal.SIGKILL)


def folders(directory: Path) -> set[str]:
    return {path.name for path in (directory / "state/workspaces").iterdir() if path.is_dir()}


def test_next_creation_removes_only_the_leftovers_of_a_killed_one(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with maker(tmp_path):
        (dead,) = folders(tmp_path)
    foreign = tmp_path / "state/workspaces/foreign"
    foreign.mkdir()
    (foreign / "kept.txt").write_text("by another program")
    with (
        maker(tmp_path),
        Workspace.create(tmp_path / "source", storage=storage(tmp_path)) as made,
    ):
        (alive,) = folders(tmp_path) - {made.info.id, "foreign"}
        assert alive != dead
        assert storage(tmp_path).sweep() == 0
        assert (foreign / "kept.txt").exists()
    assert storage(tmp_path).sweep() == 1
    assert folders(tmp_path) == {made.info.id, "foreign"}


def test_leftovers_of_a_killed_removal_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with Workspace.create(tmp_path / "source", storage=storage(tmp_path)) as made:
        which = made.info.id
    remove = (
        "import os, signal, sys\n"
        "from wink_workspace.workspace import Workspace, WorkspaceStorage; from wink_workspace.workspace.place import storage\n"
        "storage.delete_tree = lambda path: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Workspace.delete(sys.argv[2], storage=WorkspaceStorage(sys.argv[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", remove, tmp_path / "state", which], check=False)
    assert done.returncode == -signal.SIGKILL
    assert folders(tmp_path) == {which}
    assert storage(tmp_path).sweep() == 1
    assert folders(tmp_path) == set()


def test_workspace_whose_creation_ends_during_a_sweep_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").mkdir()
    with Workspace.create(tmp_path / "source", storage=storage(tmp_path)) as made:
        which = made.info.id
    listed = WorkspaceFolder(tmp_path / "state/workspaces" / which)
    # As listed before it was complete
    monkeypatch.setattr(WorkspaceStorage, "_unfinished", lambda _: iter([listed]))
    assert storage(tmp_path).sweep() == 0
    with Workspace.open(which, storage=storage(tmp_path)) as opened:
        assert opened.info.id == which


def test_creation_in_place_blocks_only_overlapping_ones_and_is_named_in_their_errors(
    tmp_path: Path,
) -> None:
    for name in ("project/part", "other"):
        (tmp_path / name).mkdir(parents=True)
    project = tmp_path / "project"

    def begun(target: Path) -> Workspace:
        return Workspace.create(target, storage=storage(tmp_path), mode="in_place")

    with maker(tmp_path, project) as process:
        begun(tmp_path / "other").close()
        with pytest.raises(LedgerBusyError, match=f"{project}.*process {process.pid}") as caught:
            begun(project / "part")
        assert "Wait" in caught.value.hint
    begun(project / "part").close()


@pytest.mark.parametrize("listing", ["all", "_unfinished"])
def test_creation_in_place_that_ends_while_another_one_looks_blocks_that_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    real = getattr(WorkspaceStorage, listing)
    with maker(tmp_path, project) as process:

        def list_before_the_end(storage: WorkspaceStorage) -> Iterator[object]:
            found = list(real(storage))
            if sys._getframe(1).f_code.co_name == "_check_available" and process.poll() is None:
                process.communicate("\n")
            return iter(found)

        monkeypatch.setattr(WorkspaceStorage, listing, list_before_the_end)
        with pytest.raises((LedgerBusyError, UsageError), match=f"{project}"):
            Workspace.create(project, storage=storage(tmp_path), mode="in_place")
    assert len(folders(tmp_path)) == 1


def test_leftover_of_a_killed_probe_for_overlays_is_deleted_later(tmp_path: Path) -> None:
    root = tmp_path / "state/workspaces"
    for name in (".wink-overlay-dead", ".wink-overlay-alive"):
        (root / name / "work/work").mkdir(parents=True)
    os.utime(root / ".wink-overlay-dead", (0, 0))
    assert storage(tmp_path).sweep() == 0
    assert folders(tmp_path) == {".wink-overlay-alive"}
