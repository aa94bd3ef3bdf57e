"""Write the workspaces that later versions must open: ``python write_workspaces.py FOLDER``.

One archive for each mode, ``<version>-<mode>.tar.xz``, has a state directory with one workspace. It is
written once for each release, as root, and never changed. The overlay changes and adds files but
deletes none: an archive cannot hold what an overlay makes of a deleted file.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from wink_workspace import (
    MarkdownSection,
    ModelTurn,
    PlanningToolsSection,
    Prompt,
    ScriptedAdapter,
    ToolCall,
    VfsToolsSection,
)
from wink_workspace.workspace import Workspace, WorkspaceStorage

FILES = {
    "README.md": "# Shop\n",
    "shop/__init__.py": "",
    "shop/total.py": "def total(prices, discount):\n    return sum(prices) * discount\n",
    "run.sh": "#!/bin/sh\npython -m shop\n",
    "latin-1.txt": "gr\u00fcn\n",
}


def write_source(folder: Path) -> None:
    """The directory that the workspace was made of."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1" if name == "latin-1.txt" else "utf-8"))
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("README.md")


def write_history(workspace: Workspace) -> None:
    """A run of an agent, a failed call, an undo, an external edit, a fork and its merge."""
    prompt = Prompt(
        ns="compatibility",
        key="run",
        sections=[
            MarkdownSection(title="Task", template="Fix the total."),
            VfsToolsSection(),
            PlanningToolsSection(),
        ],
    )
    prompt.bind(resources=workspace.resources)
    plan = ToolCall(
        "planning_setup_plan", objective="Fix the total", initial_steps=["Fix", "Check"]
    )
    read = ToolCall("read_file", file_path="shop/total.py")
    edit = ToolCall(
        "edit_file",
        file_path="shop/total.py",
        old_string="* discount",
        new_string="* (1 - discount)",
    )
    write = ToolCall("write_file", file_path="NOTES.md", content="Notes\n")
    missing = ToolCall("read_file", file_path="none.py")
    turns = [ModelTurn(tool_calls=[plan, read, edit, missing, write]), ModelTurn("Fixed.")]
    ScriptedAdapter(turns).evaluate(prompt, session=workspace.session)
    workspace.undo()  # of NOTES.md
    try:
        with workspace.call("half done"):
            workspace.files.write_bytes("half.txt", b"half\n")
            raise ValueError("stopped")
    except ValueError:
        pass
    workspace.files.write_bytes("external.txt", b"by a person\n")
    write_in_fork(workspace, "try", "fork\n")
    workspace.merge("try")
    write_in_fork(workspace, "open", "changed\n")


def write_in_fork(workspace: Workspace, name: str, text: str) -> None:
    """One call in a new fork."""
    storage = WorkspaceStorage(workspace.folder.state_dir)
    workspace.fork(name)
    with (
        Workspace.open(workspace.info.id, storage=storage, branch=name) as fork,
        fork.call("in a fork"),
    ):
        fork.files.write_bytes("fork.txt", text.encode())


def main(folder: Path) -> None:
    """Write the archives."""
    for mode in ("copy", "overlay"):
        with tempfile.TemporaryDirectory() as place:
            source, state = Path(place, "source"), Path(place, "state")
            write_source(source)
            storage = WorkspaceStorage(state)
            with Workspace.create(source, storage=storage, mode=mode) as workspace:
                write_history(workspace)
            archive = folder / f"{version('wink-workspace')}-{mode}.tar.xz"
            with tarfile.open(archive, "w:xz", preset=9) as files:
                files.add(state, "state")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
