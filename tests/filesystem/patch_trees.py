"""File trees as values for tests of patches: written to disk, compared by git, drawn at random."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hypothesis import strategies as st

from wink_workspace.filesystem.model import FileChange, FileKind, FileState
from wink_workspace.filesystem.patch import PatchPlan, parse_patch, plan_patch
from wink_workspace.filesystem.paths import WorkspacePath, parse_path

Tree = Mapping[WorkspacePath, FileState]

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
}


def file(data: bytes | str, *, executable: bool = False) -> FileState:
    return FileState(FileKind.FILE, data.encode() if isinstance(data, str) else data, executable)


def link(target: str) -> FileState:
    return FileState(FileKind.SYMLINK, os.fsencode(target))


def tree(files: Mapping[str, FileState | bytes | str]) -> dict[WorkspacePath, FileState]:
    return {
        parse_path(path): state if isinstance(state, FileState) else file(state)
        for path, state in files.items()
    }


def reader(files: Tree) -> Callable[[WorkspacePath], FileState | None]:
    """A read function for ``plan_patch``; a directory exists if a file is below it."""
    directories = {above for path in files for above in path.ancestors()}

    def read(path: WorkspacePath) -> FileState | None:
        return files.get(path) or (FileState(FileKind.DIRECTORY) if path in directories else None)

    return read


def plan(text: str, files: Mapping[str, FileState | bytes | str] | Tree) -> PatchPlan:
    if any(isinstance(path, str) for path in files):
        files = tree(files)  # type: ignore[arg-type] - the keys are texts
    return plan_patch(parse_patch(text), reader(files))  # type: ignore[arg-type] - the keys are paths


def patched(text: str, files: Tree) -> dict[WorkspacePath, FileState]:
    """The tree after our planner has applied a patch."""
    return apply_changes(plan(text, files).changes, files)


def apply_changes(changes: Iterable[FileChange], files: Tree) -> dict[WorkspacePath, FileState]:
    """Apply the changes one by one; each must fit the tree at its turn."""
    result = dict(files)
    for change in changes:
        current = reader(result)(change.path)
        became_empty = current is None and change.before == FileState(FileKind.DIRECTORY)
        assert current == change.before or became_empty, change
        result.pop(change.path, None)
        if change.after is not None:
            assert not any(above in result for above in change.path.ancestors()), change
            result[change.path] = change.after
    return result


def changes_between(before: Tree, after: Tree) -> list[FileChange]:
    paths = before.keys() | after.keys()
    changes = (FileChange(path, before.get(path), after.get(path)) for path in paths)
    return [change for change in changes if change.before != change.after]


# ------------------------------------------------------------------------------------- on disk


def write_tree(root: Path, files: Tree) -> None:
    root.mkdir(parents=True)
    for path, state in files.items():
        target = root / str(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if state.kind is FileKind.SYMLINK:
            target.symlink_to(os.fsdecode(state.data))
        else:
            target.write_bytes(state.data)
            target.chmod(0o755 if state.executable else 0o644)


def read_tree(root: Path) -> dict[WorkspacePath, FileState]:
    files: dict[WorkspacePath, FileState] = {}
    for directory, names, file_names in os.walk(root):
        for name in [*file_names, *names]:
            entry = Path(directory, name)
            path = WorkspacePath(entry.relative_to(root).parts)
            if entry.is_symlink():
                files[path] = link(os.readlink(entry))  # noqa: PTH115 - keeps non-UTF-8 bytes
            elif entry.is_file():
                executable = bool(entry.stat().st_mode & 0o100)
                files[path] = file(entry.read_bytes(), executable=executable)
    return files


def run(command: list[str], *, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    data = stdin.encode("utf-8", "surrogateescape")
    return subprocess.run(
        command, cwd=cwd, input=data, env=_ENVIRONMENT, capture_output=True, check=False
    )


def git_applied(
    patch: str, files: Tree, directory: Path, *options: str
) -> dict[WorkspacePath, FileState]:
    """The tree after ``git apply``, which checks everything before it writes."""
    write_tree(directory, files)
    done = run(["git", "apply", "--whitespace=nowarn", *options, "-"], cwd=directory, stdin=patch)
    assert done.returncode == 0, done.stderr.decode()
    return read_tree(directory)


def gnu_patched(patch: str, files: Tree, directory: Path) -> dict[WorkspacePath, FileState]:
    """The tree after ``patch -p1``."""
    write_tree(directory, files)
    done = run(["patch", "-p1", "--no-backup-if-mismatch", "-f"], cwd=directory, stdin=patch)
    assert done.returncode == 0, done.stdout.decode()
    return read_tree(directory)


def git_diff(before: Tree, after: Tree, directory: Path, *options: str) -> str:
    """The output of ``git diff`` for two trees."""
    assert run(["git", "init", "-q", "--bare", "git"], cwd=directory).returncode == 0
    ids = [_store_tree(directory, "before", before), _store_tree(directory, "after", after)]
    done = run(["git", "--git-dir=git", "diff", *options, *ids], cwd=directory)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape")


def _store_tree(directory: Path, name: str, files: Tree) -> str:
    """Store a tree in the repository and return its id."""
    write_tree(directory / name, files)
    git = ["git", f"--git-dir={directory}/git", f"--work-tree={directory / name}"]
    assert run([*git, "add", "-A", "-f", "."], cwd=directory / name).returncode == 0
    return run([*git, "write-tree"], cwd=directory).stdout.decode().strip()


def gnu_diff(before: Tree, after: Tree, directory: Path, *options: str) -> str:
    """The output of GNU diff for two trees."""
    write_tree(directory / "before", before)
    write_tree(directory / "after", after)
    done = run(["diff", "-ruNa", *options, "before", "after"], cwd=directory)
    assert done.returncode < 2, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape")


# ---------------------------------------------------------------------------------- at random

_WORDS = ["", "}", "    return x", "def f():", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "-- ", "\\ No"]
_LINE = st.sampled_from(_WORDS) | st.text("ab é\t\x0c\x1c\u2028", max_size=4)
_END = st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"])
_NAMES = ["a", "b", "c.py", "d e", "ü", 'q"u', "t\tab", "new\nline", "b\\s", "é\u202e", " x ", "-f"]
_NAME = st.sampled_from(_NAMES)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(st.tuples(_LINE, _END), max_size=14))
    text = "".join(line + end for line, end in lines) + draw(st.sampled_from(["", "", "tail"]))
    return text.encode() + draw(st.sampled_from([b"", b"", b"", b"\xff\xe9"]))


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.split(b"\n")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines)))
        new = [line.encode() for line in draw(st.lists(_LINE, max_size=2))]
        lines[at : at + draw(st.integers(0, 2))] = new
    return b"\n".join(lines)


@st.composite
def trees(draw: st.DrawFn, *, textual: bool = False) -> dict[WorkspacePath, FileState]:
    data = texts() if textual else texts() | st.binary(max_size=300) | st.just(b"\0\1" * 40)
    files = st.builds(FileState, st.just(FileKind.FILE), data, st.booleans())
    links = st.builds(link, st.sampled_from(["../up", "/abs", "none", "gone/x"]))
    paths = st.lists(_NAME, min_size=1, max_size=2).map(lambda names: WorkspacePath(tuple(names)))
    drawn = draw(st.dictionaries(paths, files | links, max_size=5))
    return _without_clashes(drawn)


def _without_clashes(files: Tree) -> dict[WorkspacePath, FileState]:
    return {
        path: state
        for path, state in files.items()
        if not any(above in files for above in path.ancestors())
    }


@st.composite
def tree_pairs(draw: st.DrawFn, *, textual: bool = False) -> tuple[Tree, Tree]:
    """Two trees: the second has the files of the first unchanged, edited, moved or deleted."""
    before = draw(trees(textual=textual))
    after: dict[WorkspacePath, FileState] = {}
    for path, state in before.items():
        change = draw(st.sampled_from(["same", "edit", "move", "edit and move", "mode", "delete"]))
        if change == "delete":
            continue
        if "edit" in change and state.kind is FileKind.FILE:
            state = FileState(state.kind, draw(edited(state.data)), state.executable)
        if change == "mode" and state.kind is FileKind.FILE:
            state = FileState(state.kind, state.data, not state.executable)
        after[WorkspacePath((*path.parts[:-1], draw(_NAME))) if "move" in change else path] = state
    after |= draw(trees(textual=textual))
    return before, _without_clashes(after)
