"""Small trees of files as values, for tests of patches: on disk, under git, and drawn at random."""

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
    """What ``plan_patch`` reads with; directories are there as far as they have files."""
    directories = {above for path in files for above in path.ancestors()}

    def read(path: WorkspacePath) -> FileState | None:
        return files.get(path) or (FileState(FileKind.DIRECTORY) if path in directories else None)

    return read


def plan(text: str, files: Mapping[str, FileState | bytes | str] | Tree) -> PatchPlan:
    if any(isinstance(path, str) for path in files):
        files = tree(files)  # type: ignore[arg-type] - one of two forms, just found out
    return plan_patch(parse_patch(text), reader(files))  # type: ignore[arg-type] - as above


def patched(text: str, files: Tree) -> dict[WorkspacePath, FileState]:
    """The tree after our own way of applying a patch."""
    return carried_out(plan(text, files).changes, files)


def carried_out(changes: Iterable[FileChange], files: Tree) -> dict[WorkspacePath, FileState]:
    """Do the changes one by one, each of which must be possible at its turn."""
    result = dict(files)
    for change in changes:
        stands = reader(result)(change.path)
        became_empty = stands is None and change.before == FileState(FileKind.DIRECTORY)
        assert stands == change.before or became_empty, change
        result.pop(change.path, None)
        if change.after is not None:
            assert not any(above in result for above in change.path.ancestors()), change
            result[change.path] = change.after
    return result


def changes_between(before: Tree, after: Tree) -> list[FileChange]:
    paths = before.keys() | after.keys()
    changes = (FileChange(path, before.get(path), after.get(path)) for path in paths)
    return [change for change in changes if change.before != change.after]


# --------------------------------------------------------------------------------- on the disk


def write_tree(root: Path, files: Tree) -> None:
    root.mkdir(parents=True)
    for path, state in files.items():
        place = root / str(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if state.kind is FileKind.SYMLINK:
            place.symlink_to(os.fsdecode(state.data))
        else:
            place.write_bytes(state.data)
            place.chmod(0o755 if state.executable else 0o644)


def read_tree(root: Path) -> dict[WorkspacePath, FileState]:
    files: dict[WorkspacePath, FileState] = {}
    for directory, names, file_names in os.walk(root):
        for name in [*file_names, *names]:
            place = Path(directory, name)
            path = WorkspacePath(place.relative_to(root).parts)
            if place.is_symlink():
                files[path] = link(os.readlink(place))  # noqa: PTH115 - keeps non-UTF-8 bytes
            elif place.is_file():
                executable = bool(place.stat().st_mode & 0o100)
                files[path] = file(place.read_bytes(), executable=executable)
    return files


def run(command: list[str], *, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    data = stdin.encode("utf-8", "surrogateescape")
    return subprocess.run(
        command, cwd=cwd, input=data, env=_ENVIRONMENT, capture_output=True, check=False
    )


def git_applied(
    patch: str, files: Tree, place: Path, *options: str
) -> dict[WorkspacePath, FileState]:
    """The tree after ``git apply``, which checks everything before it begins."""
    write_tree(place, files)
    done = run(["git", "apply", "--whitespace=nowarn", *options, "-"], cwd=place, stdin=patch)
    assert done.returncode == 0, done.stderr.decode()
    return read_tree(place)


def gnu_patched(patch: str, files: Tree, place: Path) -> dict[WorkspacePath, FileState]:
    """The tree after ``patch -p1``."""
    write_tree(place, files)
    done = run(["patch", "-p1", "--no-backup-if-mismatch", "-f"], cwd=place, stdin=patch)
    assert done.returncode == 0, done.stdout.decode()
    return read_tree(place)


def git_diff(before: Tree, after: Tree, place: Path, *options: str) -> str:
    """What git itself says is between two trees."""
    assert run(["git", "init", "-q", "--bare", "git"], cwd=place).returncode == 0
    ids = [_stored(place, "before", before), _stored(place, "after", after)]
    done = run(["git", "--git-dir=git", "diff", *options, *ids], cwd=place)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape")


def _stored(place: Path, name: str, files: Tree) -> str:
    """Put a tree into the repository; its id."""
    write_tree(place / name, files)
    git = ["git", f"--git-dir={place}/git", f"--work-tree={place / name}"]
    assert run([*git, "add", "-A", "-f", "."], cwd=place / name).returncode == 0
    return run([*git, "write-tree"], cwd=place).stdout.decode().strip()


def gnu_diff(before: Tree, after: Tree, place: Path, *options: str) -> str:
    """What GNU diff says is between two trees."""
    write_tree(place / "before", before)
    write_tree(place / "after", after)
    done = run(["diff", "-ruNa", *options, "before", "after"], cwd=place)
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
    """Two trees: the second has some files of the first as they were, edited, moved or gone."""
    before = draw(trees(textual=textual))
    after: dict[WorkspacePath, FileState] = {}
    for path, state in before.items():
        fate = draw(st.sampled_from(["same", "edit", "move", "edit and move", "mode", "gone"]))
        if fate == "gone":
            continue
        if "edit" in fate and state.kind is FileKind.FILE:
            state = FileState(state.kind, draw(edited(state.data)), state.executable)
        if fate == "mode" and state.kind is FileKind.FILE:
            state = FileState(state.kind, state.data, not state.executable)
        after[WorkspacePath((*path.parts[:-1], draw(_NAME))) if "move" in fate else path] = state
    after |= draw(trees(textual=textual))
    return before, _without_clashes(after)
