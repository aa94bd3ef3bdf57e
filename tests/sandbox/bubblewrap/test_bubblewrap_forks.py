"""``npm test`` in forks of a workspace whose ``node_modules`` a call installed."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from sandbox.real_projects import NODE_PROJECT, write

from wink_workspace import BubblewrapConfig, Workspace, WorkspaceStorage
from wink_workspace.environment import Environment
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.sandbox import ExecRequest, ExecResult

pytestmark = [
    pytest.mark.xdist_group("bubblewrap"),
    pytest.mark.skipif(not shutil.which("npm"), reason="needs npm"),
]

ONCE = "module.exports = f => { let made; return () => (made = made || [f()])[0]; };\n"
INSTALL = "npm install --offline --no-audit --no-fund --loglevel=error"
FILE_BYTES = 10_000_000


def packed(files: dict[str, bytes]) -> bytes:
    """A package of npm."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def project_of_npm(source: Path) -> None:
    """A project that needs a package in its own directory."""
    about = json.loads(NODE_PROJECT["package.json"])
    about["dependencies"] = {"once": "file:vendor/once.tgz"}
    write(source, {**NODE_PROJECT, "package.json": json.dumps(about)})
    package = {
        "package.json": b'{"name": "once", "version": "1.4.0", "main": "once.js"}',
        "once.js": ONCE.encode(),
        "large.bin": os.urandom(2_000_000),
    }
    (source / "vendor").mkdir()
    (source / "vendor/once.tgz").write_bytes(packed(package))


def shell(workspace: Workspace, command: str) -> ExecResult:
    request = ExecRequest(argv=("sh", "-ec", command), timeout_s=120)
    return workspace.sandbox(BubblewrapConfig()).run(request)


def disk_bytes(folder: Path) -> int:
    """What a directory takes on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in (folder, *folder.rglob("*")))


@pytest.mark.parametrize(
    ("n_forks", "n_files"), [(2, 1), pytest.param(100, 500, marks=pytest.mark.soak)]
)
def test_npm_test_runs_in_forks_of_a_workspace_whose_packages_a_call_installed(
    tmp_path: Path, environment: Environment, n_forks: int, n_files: int
) -> None:
    """In ``make soak`` there are 100 forks of 5 GB, which share all of it."""
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    project_of_npm(tmp_path / "source")
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tmp_path / "source", storage=storage, mode="overlay") as workspace:
        with workspace.call("npm install"):
            result = shell(workspace, INSTALL)
            assert result.exit_code == 0, result
            for n in range(n_files):
                path = workspace._opened.tree.root / f"node_modules/once/large-{n}.bin"
                with path.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        assert [str(change.path) for change in workspace.changes()] == ["package-lock.json"]
        for n in range(n_forks):
            fork = workspace.fork(f"try-{n}")
            assert fork.left_out == ()
            assert disk_bytes(workspace._folder.of_branch(fork.name).branch_dir) <= 65_536
            with fork.open() as other:
                result = shell(other, "npm test")
                assert result.exit_code == 0, (n, result)
                assert b"# pass 2" in result.stdout.head + result.stdout.tail
                if n == 0:
                    change = "echo 'module.exports = f => f' > node_modules/once/once.js"
                    assert shell(other, f"{change}; npm test").exit_code == 1
        assert shell(workspace, "npm test").exit_code == 0
        layers = list(workspace._folder.frozen.iterdir())
        assert len(layers) == 1
        assert disk_bytes(layers[0]) >= n_files * FILE_BYTES
