"""A user's directory whose filesystem ignores the case of names, or their Unicode form."""

from __future__ import annotations

from pathlib import Path

import pytest
from ignored_case import Normal, fold_case, fold_form, ignoring
from in_place_rig import begun, source_of
from workspace_support import created, state

from wink_workspace.errors import WinkError
from wink_workspace.filesystem import DiskTree, parse_path
from wink_workspace.workspace import Workspace

RENAMES = pytest.mark.parametrize(
    ("before", "after", "normal"),
    [
        ("README.md", "Readme.md", fold_case),
        ("README", "readme", fold_case),
        ("makefile", "MAKEFILE", fold_case),
        ("docs/index.md", "Docs/index.md", fold_case),
        ("caf\u00e9.txt", "cafe\u0301.txt", fold_form),
    ],
)


def names(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@RENAMES
def test_apply_of_a_branch_that_changes_the_case_of_a_name_renames_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, normal: Normal
) -> None:
    with created(tmp_path, {before: "text\n", "1": "x"}) as workspace:
        files = state(tmp_path).folder(workspace.info.id).files
        (files / after).parent.mkdir(exist_ok=True)
        (files / before).rename(files / after)
        if (files / before).parent != files:
            (files / before).parent.rmdir()
        ignoring(monkeypatch, tmp_path / "source", normal)
        applied = workspace.apply()
        assert set(applied.paths) >= {before, after}
    assert names(tmp_path / "source") == {after, "1"}
    assert (tmp_path / "source" / after).read_text() == "text\n"


def test_apply_of_two_names_that_the_source_takes_for_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with created(tmp_path, {"README.md": "text\n"}) as workspace:
        files = state(tmp_path).folder(workspace.info.id).files
        (files / "Readme.md").write_text("other\n")
        (files / "new.txt").write_text("new\n")
        ignoring(monkeypatch, tmp_path / "source")
        with pytest.raises(WinkError, match=r"Readme\.md"):
            workspace.apply()
    assert names(tmp_path / "source") == {"README.md"}
    assert (tmp_path / "source/README.md").read_text() == "text\n"


@RENAMES
def test_restore_in_place_to_an_entry_before_a_change_of_case_renames_the_file_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, normal: Normal
) -> None:
    source = source_of(tmp_path)
    with begun(tmp_path, {before: b"text\n", "1": b"x"}) as workspace:
        ignoring(monkeypatch, source, normal)
        first = next(workspace.log()).id
        rename(source, before, after)
        assert sorted(edited(workspace)) == sorted([before, after])
        workspace.restore(first)
        assert names(source) == {before, "1"}
        assert (source / before).read_text() == "text\n"


def rename(source: Path, before: str, after: str) -> None:
    """As a user does it: the topmost part that differs."""
    for old, new in zip(Path(before).parts, Path(after).parts, strict=True):
        if old != new:
            (source / old).rename(source / new)


def edited(workspace: Workspace) -> list[str]:
    """Commit the external edits; the paths of files that they changed."""
    with workspace.call("look"):
        pass
    return [str(change.path) for change in workspace.changes()]


def test_move_to_a_name_in_the_other_case_keeps_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text("text\n")
    ignoring(monkeypatch, tmp_path)
    with DiskTree(tmp_path) as tree:
        tree.move(parse_path("README.md"), parse_path("Readme.md"))
    assert names(tmp_path) == {"Readme.md"}


def test_lookups_list_no_directory_where_the_case_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("README.md", "rEADME.MD", "sub/caf\u00e9.txt", "sub/1"):
        (tmp_path / name).write_text(name)
    listed: list[str] = []
    with DiskTree(tmp_path) as tree:
        assert tree.entry(parse_path("README.md")) is not None
        assert tree.entry(parse_path("sub/caf\u00e9.txt")) is not None
        monkeypatch.setattr("os.listdir", listed.append)
        for name in ("README.md", "rEADME.MD", "sub/1", "sub/caf\u00e9.txt"):
            assert tree.entry(parse_path(name)) is not None
        assert tree.entry(parse_path("Readme.md")) is None
    assert listed == []
