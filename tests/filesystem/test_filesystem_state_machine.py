"""Random operations on ``MemoryFilesystem`` and on a plain dict give the same result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from random_cases import examples

from wink_workspace.errors import (
    DirectoryExpectedError,
    DirectoryNotEmptyError,
    FileExpectedError,
    FileMissingError,
    FilesystemError,
    PathExistsError,
    UsageError,
)
from wink_workspace.filesystem import FileKind, FileState, MemoryFilesystem
from wink_workspace.testing.filesystem_contract import contents

DIRECTORY = FileState(FileKind.DIRECTORY)
NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
DATA = st.sampled_from([b"", b"one\n", b"two\r\n", b"\0"])
Tree = dict[str, FileState]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def below(tree: Tree, path: str) -> list[str]:
    return [each for each in tree if each == path or each.startswith(path + "/")]


def require(condition: object, error: type[Exception]) -> None:
    if not condition:
        raise error(f"the model says {error.__name__}")


def find_parent_file(tree: Tree, path: str) -> bool:
    above = parent_of(path)
    return bool(above) and (
        (above in tree and tree[above].kind is FileKind.FILE) or find_parent_file(tree, above)
    )


def add(tree: Tree, path: str, state: FileState) -> None:
    """Put something at *path*, with the directories it needs."""
    require(not find_parent_file(tree, path), DirectoryExpectedError)
    above = parent_of(path)
    while above:
        tree.setdefault(above, DIRECTORY)
        above = parent_of(above)
    tree[path] = state


def existing(tree: Tree, path: str) -> FileState:
    require(not find_parent_file(tree, path), DirectoryExpectedError)
    require(path in tree, FileMissingError)
    return tree[path]


def file_at(tree: Tree, path: str) -> FileState:
    state = existing(tree, path)
    require(state.kind is FileKind.FILE, FileExpectedError)
    return state


class FilesAndModel(RuleBasedStateMachine):
    """The model has no links; the contract suite covers them."""

    @initialize()
    def start(self) -> None:
        self.files = MemoryFilesystem()
        self.model: Tree = {}
        self.saved: list[tuple[object, Tree]] = []

    def both(self, real: Callable[[], object], model: Callable[[Tree], None]) -> None:
        """Do one operation on both: both succeed, or fail with one error and change nothing."""
        changed = dict(self.model)
        try:
            model(changed)
        except (FilesystemError, UsageError) as error:
            with pytest.raises(type(error)):
                real()
        else:
            real()
            self.model = changed

    @rule(path=PATHS, data=DATA, mode=st.sampled_from(["overwrite", "create", "append"]))
    def write(self, path: str, data: bytes, mode: str) -> None:
        def model(tree: Tree) -> None:
            before = tree.get(path, FileState(FileKind.FILE))
            require(path not in tree or mode != "create", PathExistsError)
            require(before.kind is FileKind.FILE, FileExpectedError)
            kept = before.data if mode == "append" else b""
            add(tree, path, FileState(FileKind.FILE, kept + data, before.executable))

        self.both(lambda: self.files.write_bytes(path, data, mode=mode), model)

    @rule(path=PATHS, recursive=st.booleans())
    def delete(self, path: str, recursive: bool) -> None:
        def model(tree: Tree) -> None:
            existing(tree, path)
            gone = below(tree, path)
            require(recursive or gone == [path], DirectoryNotEmptyError)
            for each in gone:
                del tree[each]

        self.both(lambda: self.files.delete(path, recursive=recursive), model)

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        def model(tree: Tree) -> None:
            require(tree.get(path, DIRECTORY) == DIRECTORY, PathExistsError)
            add(tree, path, DIRECTORY)

        self.both(lambda: self.files.mkdir(path), model)

    @rule(source=PATHS, destination=PATHS, overwrite=st.booleans())
    def move(self, source: str, destination: str, overwrite: bool) -> None:
        def model(tree: Tree) -> None:
            moved = existing(tree, source)
            if source == destination and overwrite:
                return
            there = tree.get(destination)
            replaces = overwrite and DIRECTORY not in (there, moved)
            require(there is None or replaces, PathExistsError)
            require(not destination.startswith(source + "/"), UsageError)
            states = {path: tree.pop(path) for path in below(tree, source)}
            for path, state in states.items():
                add(tree, destination + path.removeprefix(source), state)

        self.both(lambda: self.files.move(source, destination, overwrite=overwrite), model)

    @rule(path=PATHS, executable=st.booleans())
    def set_executable(self, path: str, executable: bool) -> None:
        def model(tree: Tree) -> None:
            tree[path] = FileState(FileKind.FILE, file_at(tree, path).data, executable)

        self.both(lambda: self.files.set_executable(path, executable), model)

    @rule(path=PATHS, name=NAMES)
    def patch(self, path: str, name: str) -> None:
        """Move a file by a patch to a free name; directories that become empty are removed."""

        def model(tree: Tree) -> None:
            state = tree.pop(path, DIRECTORY)
            free = path != name and tree.get(name, DIRECTORY) == DIRECTORY
            free = free and below(tree, name) in ([], [name])
            free = free and (name not in tree or path.startswith(name + "/"))
            require(free and state.kind is FileKind.FILE, FilesystemError)
            add(tree, name, state)
            above = parent_of(path)
            while above and below(tree, above) == [above] and tree[above] == DIRECTORY:
                del tree[above]
                above = parent_of(above)

        text = f"diff --git a/{path} b/{name}\nrename from {path}\nrename to {name}\n"
        self.both(lambda: self.files.apply_patch(text), model)

    @rule()
    def snapshot(self) -> None:
        self.saved.append((self.files.snapshot(), dict(self.model)))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        if self.saved:
            token, model = data.draw(st.sampled_from(self.saved))
            changes = self.files.changes(token)
            assert {str(change.path): change.before for change in changes} == {
                path: model.get(path)
                for path in model.keys() | self.model.keys()
                if model.get(path) != self.model.get(path)
            }
            self.files.restore(token)
            self.model = dict(model)

    @invariant()
    def files_are_what_the_model_says(self) -> None:
        if hasattr(self, "files"):
            assert contents(self.files) == self.model


FilesAndModel.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=25, deadline=None
)
TestFilesAndModel = FilesAndModel.TestCase
