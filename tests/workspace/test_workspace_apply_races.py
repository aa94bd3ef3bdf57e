"""A file saved while ``apply`` writes is kept in the source, or is a conflict.

The save happens at each step of an apply in turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from workspace_support import created, make_tree, state, tree_of

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import ConflictError, FilesystemError
from wink_workspace.workspace import Workspace

FILES: dict[str, str | bytes | None] = {
    "a.txt": "one\ntwo\nthree\n",
    "gone.txt": "gone\n",
    "dir/b.txt": "b\n",
    "link": "-> a.txt",
    "same.txt": "same\n",
}
MINE = b"saved by a person, just now\n"


class Person:
    """Acts once, at the n-th step of an apply."""

    def __init__(self) -> None:
        self.act: Callable[[], None] = lambda: None
        self._left = 0

    def acts_at(self, n: int, act: Callable[[], None]) -> None:
        self._left, self.act = n, act

    def __call__(self, point: KillPoint) -> None:
        if point.value.startswith(("effect-", "source-")):
            self._left -= 1
            if self._left == 0:
                self.act()

    @property
    def has_acted(self) -> bool:
        return self._left <= 0


def in_place(path: Path) -> None:
    """Save like an editor that writes into the file itself."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(MINE)


def by_rename(path: Path) -> None:
    """Save like an editor that writes another file, and renames it."""
    path.parent.mkdir(exist_ok=True)
    other = path.with_name(path.name + "~")
    other.write_bytes(MINE)
    other.replace(path)


def change(files: Path) -> None:
    (files / "a.txt").write_text("one\nTWO\nthree\n")
    (files / "gone.txt").unlink()
    (files / "dir/b.txt").unlink()
    (files / "dir").rmdir()
    (files / "link").unlink()
    (files / "link").symlink_to("elsewhere")
    make_tree(files, {"new/x": "x\n"})


def reset(source: Path) -> None:
    """Reset the source to its initial state."""
    for path in sorted(source.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    make_tree(source, FILES)


@pytest.mark.behaviour(86)
@pytest.mark.parametrize(
    ("path", "save"),
    [
        ("a.txt", in_place),
        ("a.txt", by_rename),
        ("gone.txt", by_rename),
        ("dir/other", in_place),
        ("new/x", in_place),
    ],
)
def test_file_saved_at_any_step_of_an_apply_is_kept_and_reported(
    tmp_path: Path, path: str, save: Callable[[Path], None]
) -> None:
    person, source = Person(), tmp_path / "source"
    with created(tmp_path, FILES) as workspace:
        which = workspace.info.id
    before = tree_of(source)
    with calling(person), Workspace(state(tmp_path).folder(which)) as workspace:
        change(workspace._folder.files)
        wanted = tree_of(workspace._folder.files)
        for n in count(1):
            person.acts_at(n, lambda: save(source / path))
            expected = wanted
            try:
                workspace.apply()
            except ConflictError:
                expected = before
            if not person.has_acted:
                break
            after = tree_of(source)
            assert (source / path).read_bytes() == MINE, f"lost at step {n}"
            assert not workspace.source.has_unfinished_apply
            for name in (expected.keys() | after.keys()) - {path, str(Path(path).parent)}:
                assert after.get(name) == expected.get(name), f"{name} at step {n}"
            reset(source)
        assert n > 12


@pytest.mark.parametrize("path", ["a.txt", "gone.txt"])
def test_file_saved_while_an_apply_is_reverted_is_kept(tmp_path: Path, path: str) -> None:
    person, source = Person(), tmp_path / "source"

    def steps(point: KillPoint) -> None:
        person(point)
        if point is KillPoint.SOURCE_WRITTEN:
            raise FilesystemError("the disk is full")

    with created(tmp_path, FILES) as workspace:
        which = workspace.info.id
    with calling(steps), Workspace(state(tmp_path).folder(which)) as workspace:
        change(workspace._folder.files)
        for n in count(1):
            person.acts_at(n, lambda: in_place(source / path))
            with pytest.raises((ConflictError, FilesystemError)):
                workspace.apply()
            if not person.has_acted:
                break
            assert (source / path).read_bytes() == MINE, f"lost at step {n}"
            reset(source)
        assert n > 20


@pytest.mark.parametrize("path", ["a.txt", "gone.txt"])
def test_file_that_another_program_has_open_for_writing_is_a_conflict(
    tmp_path: Path, path: str
) -> None:
    with created(tmp_path, FILES) as workspace:
        source = tmp_path / "source"
        change(workspace._folder.files)
        before = tree_of(source)
        with (source / path).open("ab") as file:
            with pytest.raises(ConflictError, match=rf"{path} is open for writing"):
                workspace.apply()
            assert tree_of(source) == before
            file.write(MINE)
        assert (source / path).read_bytes().endswith(MINE)


def test_write_through_a_descriptor_at_any_step_is_not_lost(tmp_path: Path) -> None:
    person, source = Person(), tmp_path / "source"
    with created(tmp_path, FILES) as workspace:
        which = workspace.info.id
    with calling(person), Workspace(state(tmp_path).folder(which)) as workspace:
        (workspace._folder.files / "a.txt").write_text("one\nTWO\nthree\n")
        for n in count(1):
            file = os.open(source / "a.txt", os.O_WRONLY | os.O_APPEND)

            def write_and_close(file: int = file) -> None:
                os.write(file, MINE)
                os.close(file)

            person.acts_at(n, write_and_close)
            with suppress(ConflictError):
                workspace.apply()
            if not person.has_acted:
                os.close(file)
                break
            assert MINE in (source / "a.txt").read_bytes(), f"lost at step {n}"
            (source / "a.txt").write_text("one\ntwo\nthree\n")
        assert n >= 2
