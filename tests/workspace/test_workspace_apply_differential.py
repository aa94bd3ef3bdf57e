"""Random changes on both sides: no merge loses a version that the user saved.

The agent and the user delete, rename, edit and replace files and directories of the same tree.
After each merge, every version that the user saved is byte for byte at its path or in a file
beside it, or its lines are part of a merged text. What only the agent changed is as the agent
left it, unless a conflict names it.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from workspace_support import state

from wink_workspace.errors import ConflictError
from wink_workspace.workspace import Workspace

NAMES = ("a", "b", "d", "e")
Files = dict[str, tuple[str, bytes]]


def files_of(root: Path) -> Files:
    """The kind and the content of every path."""
    found: Files = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = "link", os.fsencode(path.readlink())
        elif path.is_dir():
            found[name] = "directory", b""
        else:
            found[name] = "program" if os.access(path, os.X_OK) else "file", path.read_bytes()
    return found


class Editor:
    """Makes random changes to a directory; each writes a content that no other change writes."""

    def __init__(self, chosen: random.Random, who: str) -> None:
        self.chosen = chosen
        self.who = who
        self.n_contents = 0

    def content(self) -> bytes:
        self.n_contents += 1
        text = "".join(f"{self.who}-{self.n_contents}-{n}\n" for n in range(8))
        return text.encode() + (b"\0" if self.chosen.random() < 0.2 else b"")

    def path(self, root: Path) -> Path:
        depth = self.chosen.choice((1, 2, 2, 3))
        return root.joinpath(*self.chosen.choices(NAMES, k=depth))

    def make(self, root: Path) -> None:
        for _ in range(self.chosen.randint(3, 9)):
            self.write(self.path(root))

    def write(self, path: Path) -> None:
        with suppress(OSError):  # something else is there; another step has more luck
            path.parent.mkdir(parents=True, exist_ok=True)
            match self.chosen.randint(0, 9):
                case 0:
                    path.symlink_to(f"{self.who}-{self.chosen.randint(0, 99)}")
                case 1:
                    path.mkdir()
                case _:
                    path.write_bytes(self.content())

    def edit(self, path: Path) -> None:
        if path.is_symlink() or not path.is_file():
            return
        lines = path.read_bytes().splitlines(keepends=True)
        if self.chosen.random() < 0.2:
            path.chmod(path.stat().st_mode ^ 0o111)
        elif lines and self.chosen.random() < 0.8:
            lines[self.chosen.randrange(len(lines))] = self.content().splitlines(True)[0]
            path.write_bytes(b"".join(lines))
        else:
            path.write_bytes(self.content())

    def step(self, root: Path) -> None:
        there = sorted(root.rglob("*"))
        if not there or self.chosen.random() < 0.2:
            self.write(self.path(root))
            return
        path = self.chosen.choice(there)
        match self.chosen.randint(0, 5):
            case 0 | 1:
                self.delete(path)
            case 2:
                with suppress(OSError):
                    path.rename(self.path(root))
            case 3:
                self.delete(path)
                self.write(path / self.chosen.choice(NAMES) if self.chosen.random() < 0.5 else path)
            case _:
                files = [each for each in there if each.is_file()]
                self.edit(self.chosen.choice(files or [path]))

    def delete(self, path: Path) -> None:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)


def assert_kept(base: Files, user: Files, agent: Files, after: Files) -> None:
    """Every version of *user* that is not in *base* is in *after*."""
    for path, saved in user.items():
        known, other, present = base.get(path), agent.get(path), after.get(path)
        beside = {content for name, content in after.items() if name.startswith(f"{path}.orig")}
        if saved[0] == "directory" or saved in {known, present, *beside}:
            continue
        assert present is not None, f"{path} is lost"
        assert other not in (None, known), f"{path} was overwritten without a reason"
        files = {"file", "program"}
        assert files >= {saved[0], other[0], present[0]}, f"{path} is lost"
        if known is not None and known[1] in (saved[1], other[1]):  # one side set only the mode
            assert present[1] == (other[1] if known[1] == saved[1] else saved[1]), path
            assert present[0] == (other[0] if known[0] == saved[0] else saved[0]), path
            continue
        assert b"\0" not in saved[1] + other[1], f"{path} is not text, and was merged"
        assert b"<<<<<<< " not in present[1], f"{path} has markers and no copy beside it"
        lines, before = saved[1].splitlines(), (known or ("", b""))[1].splitlines()
        added = [line for line in lines if line not in before]
        assert [line for line in present[1].splitlines() if line in added] == added, path
        assert not {*before}.difference(lines).intersection(present[1].splitlines()), path


def assert_taken(base: Files, user: Files, agent: Files, after: Files, conflicts: set[str]) -> None:
    """What only the agent changed is in *after*, except below a conflict or above one."""
    for path in base.keys() | agent.keys():
        known, wanted = base.get(path), agent.get(path)
        if known == wanted or user.get(path) != known or "directory" in (known or wanted or ())[:1]:
            continue
        above = {path, *(str(parent) for parent in Path(path).parents)}
        if above & conflicts:
            continue
        if wanted is None:
            assert after.get(path) is None or after[path][0] == "directory", path
        else:
            assert after.get(path) == wanted, path


class Case:
    """A workspace of a random source, with changes of the agent and of the user."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.directory = directory
        self.source = directory / "source"
        self.source.mkdir(parents=True)
        Editor(self.chosen, "base").make(self.source)
        self.base = files_of(self.source)

    def edit(self, who: str, root: Path) -> Files:
        """Make one to four changes; the files after them."""
        editor = Editor(self.chosen, who)
        for _ in range(self.chosen.randint(1, 4)):
            editor.step(root)
        return files_of(root)

    def open(self, branch: str = "main") -> Workspace:
        storage = state(self.directory)
        if not list(storage.all()):
            return Workspace.create(self.source, storage=storage, mode="copy")
        (info,) = storage.all()
        return Workspace.open(info.id, storage=storage, branch=branch)


def check_apply(case: Case) -> None:
    with case.open() as workspace:
        agent = case.edit("agent", workspace._folder.files)
        user = case.edit("user", case.source)
        conflicts = set[str]()
        try:
            workspace.apply()
        except ConflictError:
            assert files_of(case.source) == user
            applied = workspace.apply(merge=True)
            assert applied.conflicts
            conflicts = {each.path for each in applied.conflicts}
        after = files_of(case.source)
        assert_kept(case.base, user, agent, after)
        assert_taken(case.base, user, agent, after, conflicts)
        check_later_apply(case, workspace, after)


def check_later_apply(case: Case, workspace: Workspace, before: Files) -> None:
    """A second apply keeps the edits and the deletions since the first one.

    A path that is as it was imported was reset, and is applied again, as is a mode.
    """
    agent = case.edit("agent later", workspace._folder.files)
    user = case.edit("user later", case.source)
    applied = workspace.apply(merge=True)
    edits = {path: saved for path, saved in user.items() if saved != case.base.get(path)}
    contents = map(without_modes, (before, edits, agent, files_of(case.source)))
    assert_kept(*contents)
    deleted = {
        path
        for path in before.keys() - user.keys()
        if agent.get(path) == before[path] and before[path][0] != "directory"
    }
    assert deleted.isdisjoint(applied.added), f"{deleted} deleted by the user, and applied again"


def without_modes(files: Files) -> Files:
    return {
        path: ("file" if kind == "program" else kind, data) for path, (kind, data) in files.items()
    }


def check_sync(case: Case) -> None:
    with case.open() as workspace:
        here = case.edit("agent", workspace._folder.files)
        check_move(workspace, workspace.sync, case.base, here, case.edit("user", case.source))


def check_merge(case: Case) -> None:
    with case.open() as workspace:
        workspace.fork("other")
        with case.open("other") as other:
            theirs = case.edit("agent", other._folder.files)
            other.commit_edits()
        here = case.edit("user", workspace._folder.files)
        check_move(workspace, lambda: workspace.merge("other"), case.base, here, theirs)


def check_undo(case: Case) -> None:
    with case.open() as workspace:
        with workspace.call("agent"):
            agent = case.edit("agent", workspace._folder.files)
        here = case.edit("user", workspace._folder.files)
        if agent != case.base:
            check_move(workspace, workspace.undo, agent, here, case.base)


def check_move(
    workspace: Workspace, move: Callable[[], object], base: Files, here: Files, theirs: Files
) -> None:
    """The merge of *theirs* keeps every version that is *here*, or changes nothing."""
    try:
        move()
    except ConflictError:
        assert files_of(workspace._folder.files) == here
        return
    after = files_of(workspace._folder.files)
    assert_kept(base, here, theirs, after)
    assert_taken(base, here, theirs, after, set())


@pytest.mark.behaviour(86)
@pytest.mark.parametrize(
    "n_cases", [12, pytest.param(5_000, marks=[pytest.mark.soak, pytest.mark.timeout(7_200)])]
)
@pytest.mark.parametrize("check", [check_apply, check_sync, check_merge, check_undo])
def test_no_merge_loses_a_version_that_a_person_saved(
    tmp_path: Path, check: Callable[[Case], None], n_cases: int
) -> None:
    for seed in range(n_cases):
        case = Case(tmp_path / str(seed), seed)
        try:
            check(case)
        except BaseException as error:
            error.add_note(f"in the case with the seed {seed}")
            raise
        shutil.rmtree(case.directory)
