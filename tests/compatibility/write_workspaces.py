"""Write the workspaces that later versions must open: ``python write_workspaces.py FOLDER NAME``.

One archive for each mode, ``NAME-<mode>.tar.xz``, has a state directory with one workspace, and
``NAME-<mode>.json`` all that it holds. NAME is the version, with a letter for a format between two
releases. They are written as root, and never changed. The overlay changes and adds files but
deletes none: an archive cannot hold what an overlay makes of a deleted file.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from wink_workspace import (
    Filesystem,
    MarkdownSection,
    ModelTurn,
    PlanningToolsSection,
    Prompt,
    ScriptedAdapter,
    ToolCall,
    VfsToolsSection,
)
from wink_workspace.filesystem import FileKind, FileState
from wink_workspace.ledger import LogEntry
from wink_workspace.workspace import Workspace, WorkspaceMode, WorkspaceStorage

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
    with workspace.call("nested") as call:
        workspace.files.write_bytes("outer.txt", b"outer\n")
        with workspace.call("inner"):
            workspace.files.write_bytes("inner.txt", b"inner\n")
        call.result({"n_files": 2})
    workspace.undo()
    workspace.redo()
    newest = workspace.head.number
    workspace.restore(2)  # the files and the plan of an early entry
    workspace.restore(newest)
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


def contents(workspace: Workspace) -> dict[str, object]:
    """All that *workspace* holds, as JSON: the entries and files of each branch, and discards."""
    branches = {name: list(workspace.log_of(name)) for name in workspace.heads()}
    return {
        "branches": {
            name: {
                "entries": [each.id for each in entries],
                "files": files_of(workspace.files_at(entries[0])),
            }
            for name, entries in branches.items()
        },
        "entries": {
            each.id: entry_of(workspace, each) for entries in branches.values() for each in entries
        },
        "discards": [
            {
                "id": each.id,
                "number": each.discard,
                "reason": each.reason,
                "call": each.call_id,
                "after": each.number,
                "files": {
                    str(change.path): state_of(change.after)
                    for change in workspace.discarded_changes(each)
                },
            }
            for each in workspace.discarded()
        ],
    }


def entry_of(workspace: Workspace, entry: LogEntry) -> dict[str, object]:
    """An entry with its record, and both sides of each file that it changed."""
    record = json.dumps(workspace.record(entry).data, sort_keys=True)
    return {
        "number": entry.number,
        "kind": entry.kind.value,
        "subject": entry.subject,
        "at": entry.at.isoformat(),
        "tool": entry.tool,
        "call": entry.call_id,
        "outcome": entry.outcome,
        "target": entry.target,
        "merged": entry.merged,
        "session": entry.session,
        "record": hashlib.sha256(record.encode()).hexdigest(),  # has paths of a machine
        "changes": {
            str(each.path): [state_of(each.before), state_of(each.after)]
            for each in workspace.changes_of(entry)
        },
    }


def state_of(state: FileState | None) -> str | None:
    """A path on one side of a change: its kind, whether it is executable, and its bytes."""
    if state is None:
        return None
    bits = "x" if state.executable else "-"
    return f"{state.kind.value} {bits} {state.data.decode('latin-1')}"


def files_of(files: Filesystem) -> dict[str, str]:
    """The bytes of each file, as latin-1; directories and links are among the changes."""
    return {
        str(each.path): files.read_bytes(each.path).decode("latin-1")
        for each in files.walk()
        if each.kind is FileKind.FILE
    }


def main(folder: Path, name: str, *, modes: Iterable[WorkspaceMode] = ("copy", "overlay")) -> None:
    """Write the archives."""
    for mode in modes:
        with tempfile.TemporaryDirectory() as place:
            source, state = Path(place, "source"), Path(place, "state")
            write_source(source)
            storage = WorkspaceStorage(state)
            with Workspace.create(source, storage=storage, mode=mode) as workspace:
                write_history(workspace)
                held = contents(workspace)
            text = json.dumps(held, indent=1, sort_keys=True)
            (folder / f"{name}-{mode}.json").write_text(text + "\n")
            with tarfile.open(folder / f"{name}-{mode}.tar.xz", "w:xz", preset=9) as files:
                files.add(state, "state")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
