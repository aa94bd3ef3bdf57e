"""Apply is a three-way merge: it keeps what other branches or people changed in the source."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from workspace_support import created, executor, git, make_tree, state, tree_of, write

from wink_workspace.errors import ConflictError, UsageError
from wink_workspace.workspace import Workspace

LINES = "".join(f"{n}\n" for n in range(1, 21))


def with_lines(lines: str = LINES, /, **texts: str) -> str:
    """*lines* with line n replaced for each ``l<n>``."""
    found = lines.splitlines()
    for name, text in texts.items():
        found[int(name[1:]) - 1] = text
    return "\n".join(found) + "\n"


def call_edit(workspace: Workspace, path: str, old: str, new: str) -> None:
    """One committed call that replaces a line."""
    with executor(workspace) as call:
        call("read_file", file_path=path)
        call("edit_file", file_path=path, old_string=f"\n{old}\n", new_string=f"\n{new}\n")
    assert f"\n{new}\n" in workspace.files.read_text(path).text


def fork(workspace: Workspace, tmp_path: Path, name: str) -> Workspace:
    if name not in workspace.forks():
        workspace.fork(name)
    return Workspace.open(workspace.info.id, storage=state(tmp_path), branch=name)


def committed(tmp_path: Path) -> Path:
    """The source as a repository with everything committed."""
    source = tmp_path / "source"
    if not (source / ".git").exists():
        git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "all", "--allow-empty")
    return source


def test_second_fork_keeps_the_changes_of_the_first_and_the_commits_of_the_user(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = committed(tmp_path)
        for name, line in (("one", 2), ("two", 18)):
            with fork(workspace, tmp_path, name) as branch:
                branch.files.write_text("a.txt", with_lines(**{f"l{line}": name}))
                write(branch, **{f"{name}.txt": f"{name}\n"})
                assert branch.apply().paths == ("a.txt", f"{name}.txt")
            committed(tmp_path)
        assert sorted(path for path in tree_of(source) if ".git" not in path) == [
            *("a.txt", "one.txt", "two.txt"),
        ]
        assert (source / "a.txt").read_text() == with_lines(l2="one", l18="two")


@pytest.mark.parametrize("how", ["stash -u", "reset --hard", "checkout -q ."])
def test_changes_that_the_source_lost_are_applied_again(tmp_path: Path, how: str) -> None:
    with created(tmp_path, {"a.txt": LINES, "b.txt": "b\n"}) as workspace:
        source = committed(tmp_path)
        write(workspace, **{"new.txt": "new\n"})
        workspace.files.write_text("a.txt", with_lines(l2="ours"))
        workspace.files.delete("b.txt")
        workspace.apply()
        git(source, *how.split())
        applied = workspace.apply()
        assert set(applied.paths) >= {"a.txt", "b.txt"}
        assert (source / "a.txt").read_text() == with_lines(l2="ours")
        assert (source / "new.txt").read_text() == "new\n"
        assert not (source / "b.txt").exists()


def test_undo_reverts_only_applied_changes_that_are_still_in_the_source(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = tmp_path / "source"
        write(workspace, **{"gone.txt": "1\n", "kept.txt": "2\n"})
        call_edit(workspace, "a.txt", "2", "ours")
        workspace.apply()
        make_tree(source, {"a.txt": with_lines(l2="ours", l18="of a person")})
        (source / "gone.txt").unlink()
        workspace.restore(1)
        applied = workspace.apply()
        assert (applied.changed, applied.removed) == (("a.txt",), ("kept.txt",))
        assert (source / "a.txt").read_text() == with_lines(l18="of a person")


def test_lines_that_a_person_wrote_beside_ours_stay_and_ours_still_merge(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = tmp_path / "source"
        call_edit(workspace, "a.txt", "2", "ours")
        workspace.apply()
        make_tree(source, {"a.txt": with_lines(l2="ours", l10="of a person")})
        call_edit(workspace, "a.txt", "18", "ours, later")
        assert workspace.apply().changed == ("a.txt",)
        assert (source / "a.txt").read_text() == with_lines(
            l2="ours", l10="of a person", l18="ours, later"
        )


def test_edit_of_an_applied_change_stays_and_is_reported(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = tmp_path / "source"
        write(workspace, **{"new.txt": LINES})
        call_edit(workspace, "a.txt", "2", "ours")
        call_edit(workspace, "a.txt", "6", "ours")
        workspace.apply()
        make_tree(
            source,
            {"new.txt": with_lines(l3="polished"), "a.txt": with_lines(l2="polished", l6="ours")},
        )
        call_edit(workspace, "a.txt", "18", "later")
        applied = workspace.apply()
        assert applied.changed == ("a.txt",)
        assert applied.edited == ("a.txt", "new.txt")
        assert (source / "new.txt").read_text() == with_lines(l3="polished")
        assert (source / "a.txt").read_text() == with_lines(l2="polished", l6="ours", l18="later")


@pytest.mark.behaviour(86)
def test_conflict_is_shown_by_hunk_and_changes_nothing(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES, "b.txt": "b\n"}) as workspace:
        source = tmp_path / "source"
        workspace.files.write_text("a.txt", with_lines(l5="ours"))
        write(workspace, **{"new.txt": "new\n"})
        make_tree(source, {"a.txt": "0\n" + with_lines(l5="of a person")})
        before = tree_of(source)
        with pytest.raises(ConflictError) as caught:
            workspace.apply()
        (conflict,) = caught.value.conflicts
        assert (conflict.path, conflict.reason) == ("a.txt", "was changed since, in the same lines")
        (hunk,) = conflict.hunks
        assert (hunk.base_line, hunk.ours_line, hunk.theirs_line) == (5, 6, 5)
        assert (hunk.base, hunk.ours, hunk.theirs) == ("5\n", "of a person\n", "ours\n")
        assert "<<<<<<< source\nof a person\n||||||| before\n5\n=======\nours\n" in (
            caught.value.details
        )
        assert tree_of(source) == before


def test_merge_writes_the_clean_part_and_markers(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES, "b.bin": "\0b\n"}) as workspace:
        source = tmp_path / "source"
        workspace.files.write_text("a.txt", with_lines(l5="ours", l18="clean"))
        workspace.files.write_text("b.bin", "\0ours\n")
        write(workspace, **{"new.txt": "new\n"})
        make_tree(source, {"a.txt": with_lines(l5="of a person"), "b.bin": "\0of a person\n"})
        applied = workspace.apply(merge=True)
        marked = "<<<<<<< source\nof a person\n=======\nours\n>>>>>>> workspace"
        assert (source / "a.txt").read_text() == with_lines(l5=marked, l18="clean")
        assert (source / "b.bin").read_text() == "\0of a person\n"
        assert (source / "new.txt").exists()
        assert [(each.path, bool(each.hunks)) for each in applied.conflicts] == [
            *(("a.txt", True), ("b.bin", False)),
        ]


def test_resolved_markers_are_not_a_conflict_again_unless_the_source_was_reset(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = tmp_path / "source"
        call_edit(workspace, "a.txt", "5", "ours")
        make_tree(source, {"a.txt": with_lines(l5="of a person")})
        workspace.apply(merge=True)
        make_tree(source, {"a.txt": with_lines(l5="resolved")})
        assert workspace.apply().edited == ("a.txt",)
        call_edit(workspace, "a.txt", "18", "later")
        workspace.apply()
        assert (source / "a.txt").read_text() == with_lines(l5="resolved", l18="later")
        make_tree(source, {"a.txt": with_lines(l5="of a person")})
        with pytest.raises(ConflictError):
            workspace.apply()


def test_all_kinds_of_entries_are_merged(tmp_path: Path) -> None:
    """Bits, links, directories, replaced kinds, and names that are not UTF-8."""
    odd = os.fsdecode(b"odd-\xff")
    before: dict[str, str | bytes | None] = {
        "run.sh": "#!/bin/sh\n1\n2\n3\n4\n",
        "link": "-> a",
        "dir/x": "x\n",
        "dir/y": "y\n",
        "to_dir": "f\n",
        "to_file/x": "x\n",
        odd: LINES,
        "old.txt": LINES,
        "void": None,
    }
    with created(tmp_path, before) as workspace:
        source, files = tmp_path / "source", workspace._folder.files
        (files / "run.sh").chmod(0o644)
        (files / "link").unlink()
        (files / "link").symlink_to("b")
        (files / "dir/x").unlink()
        (files / "to_dir").unlink()
        make_tree(files / "to_dir", {"deep/x": "x\n"})
        (files / "to_file/x").unlink()
        (files / "to_file").rmdir()
        (files / "to_file").write_text("f\n")
        (files / odd).write_text(with_lines(l2="ours"))
        (files / "old.txt").rename(files / "renamed.txt")
        (files / "void").rmdir()
        (source / "run.sh").write_text("#!/bin/sh\n1\n2\n3\nfour\n")
        (source / odd).write_text(with_lines(l18="theirs"))
        make_tree(source, {"dir/z": "z\n"})
        workspace.apply()
        assert (source / "run.sh").read_text().endswith("four\n")
        assert not (source / "run.sh").stat().st_mode & 0o111
        assert (source / odd).read_text() == with_lines(l2="ours", l18="theirs")
        expected = tree_of(files)
        for path in ("run.sh", odd):
            expected[path] = tree_of(source)[path]
        expected["dir/z"] = tree_of(source)["dir/z"]
        assert tree_of(source) == expected


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param({"d/x": "x\n"}, {"d": "a file\n"}, id="directory against file"),
        pytest.param({"d": "a file\n"}, {"d/x": "x\n"}, id="file against directory"),
        pytest.param({"d": "-> a"}, {"d": "-> b"}, id="two links"),
        pytest.param({"d": "1\n"}, {"d": "2\n"}, id="two files"),
        pytest.param({"d": "1\n"}, {"d": "-> a"}, id="file against link"),
    ],
)
def test_path_created_with_different_content_on_both_sides_is_a_conflict(
    tmp_path: Path, ours: dict[str, str], theirs: dict[str, str]
) -> None:
    with created(tmp_path, {"a": "a\n"}) as workspace:
        make_tree(workspace._folder.files, {**ours, "other": "o\n"})
        before = tree_of(make_tree(tmp_path / "source", theirs))
        with pytest.raises(ConflictError, match=r"other changes in: d"):
            workspace.apply()
        assert tree_of(tmp_path / "source") == before


def test_applied_names_added_changed_removed_and_already_present_paths(tmp_path: Path) -> None:
    with created(tmp_path, {"a": "a\n", "b": "b\n", "c": "c\n"}) as workspace:
        write(workspace, new="n\n")
        workspace.files.write_text("a", "A\n")
        workspace.files.write_text("c", "C\n")
        workspace.files.delete("b")
        make_tree(tmp_path / "source", {"c": "C\n"})
        applied = workspace.apply()
        assert (applied.added, applied.changed, applied.removed, applied.already_there) == (
            *(("new",), ("a",)),
            *(("b",), ("c",)),
        )
        again = workspace.apply()
        assert (again.paths, again.already_there) == ((), ("a", "b", "c", "new"))


def test_patch_and_branch_and_directory_report_the_same_paths(tmp_path: Path) -> None:
    with created(tmp_path, {"a": "a\n", "d/b": "b\n"}) as workspace:
        source = committed(tmp_path)
        write(workspace, **{"new/deep/x": "n\n"})
        workspace.files.write_text("a", "A\n")
        workspace.files.delete("d/b")
        patch, branch = workspace.apply("patch"), workspace.apply("branch", branch="b")
        directory = workspace.apply()
        assert patch.paths == branch.paths == directory.paths
        assert git(source, "show", "b:new/deep/x") == "n\n"


def test_branch_reverts_a_change_that_was_applied_committed_and_undone(tmp_path: Path) -> None:
    with created(tmp_path, {"a": "a\n"}) as workspace:
        source = committed(tmp_path)
        write(workspace, b="b\n", c="c\n")
        workspace.apply()
        committed(tmp_path)
        workspace.undo()
        workspace.apply("branch", branch="undone")
        assert git(source, "ls-tree", "--name-only", "undone").split() == ["a", "b"]


def test_the_trees_that_a_refused_sync_recorded_can_be_read_by_another_branch(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = committed(tmp_path)
        with fork(workspace, tmp_path, "one") as one, fork(workspace, tmp_path, "two") as two:
            write(two, **{"new.txt": "new\n"})
            write(one, **{"own.txt": "own\n"})
            one.apply()
            one.files.write_text("a.txt", with_lines(l2="ours"))
            (source / "a.txt").write_text(with_lines(l2="theirs"))
            with pytest.raises(ConflictError):
                one.sync()
            assert two.apply().paths == ("new.txt",)


def test_merge_keeps_the_version_before_the_markers_beside_each_file(tmp_path: Path) -> None:
    with created(tmp_path, {"a.txt": LINES, "d/x": "x\n", "d/y": "y\n"}) as workspace:
        source, files = tmp_path / "source", workspace._folder.files
        (files / "a.txt").write_text(with_lines(l5="ours"))
        make_tree(source, {"a.txt": with_lines(l5="of a person"), "a.txt.orig": "older\n"})
        make_tree(source, {"d/x": "saved\n"})
        shutil.rmtree(files / "d")
        applied = workspace.apply(merge=True)
        assert (source / "a.txt.orig1").read_text() == with_lines(l5="of a person")
        assert (source / "a.txt.orig").read_text() == "older\n"
        assert (source / "d/x").read_text() == "saved\n"
        assert applied.paths == ("a.txt", "d/y")
        reasons = {each.path: each.reason for each in applied.conflicts}
        assert reasons["a.txt"].endswith("; the version before is in a.txt.orig1")
        assert reasons["d/x"] == "was changed since, and would be deleted"


def test_what_was_deleted_from_the_source_after_an_apply_is_not_applied_again(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES, "b.txt": LINES}) as workspace:
        source = tmp_path / "source"
        write(workspace, **{"new/x.txt": "x\n", "new/y.txt": "y\n"})
        call_edit(workspace, "a.txt", "2", "ours")
        call_edit(workspace, "b.txt", "2", "ours")
        workspace.apply()
        shutil.rmtree(source / "new")
        (source / "a.txt").unlink()
        assert workspace.source.preview().paths == ()
        call_edit(workspace, "b.txt", "18", "later")
        applied = workspace.apply()
        assert applied.paths == ("b.txt",)
        assert applied.edited == ("a.txt", "new/x.txt", "new/y.txt")
        assert [*tree_of(source)] == ["b.txt"]
        assert workspace.apply().paths == ()
        with executor(workspace) as call:
            call("write_file", file_path="new/z.txt", content="z\n")
        assert workspace.apply().paths == ("new/z.txt",)
        write(workspace, **{"new/x.txt": "changed\n"})
        with pytest.raises(ConflictError, match=r"new/x\.txt"):
            workspace.apply()


def test_undo_of_an_apply_reverts_it_and_keeps_what_the_user_changed_since(tmp_path: Path) -> None:
    before = {"a.txt": LINES, "gone/b.txt": "b\n", "secret": "s\n"}
    with created(tmp_path, before) as workspace:
        source = tmp_path / "source"
        (source / "secret").chmod(0o600)
        call_edit(workspace, "a.txt", "2", "ours")
        write(workspace, **{"new/x.txt": "x\n", "new/y.txt": "y\n"})
        workspace.files.delete("gone", recursive=True)
        workspace.files.delete("secret")
        imported = tree_of(source)
        workspace.apply()
        workspace.apply()  # changes nothing, so it is not what is undone
        make_tree(source, {"a.txt": with_lines(l2="ours", l18="of a person"), "new/z.txt": "z\n"})
        undone = workspace.source.undo_apply()
        assert undone.paths == ("a.txt", "gone/b.txt", "new/x.txt", "new/y.txt", "secret")
        make_tree(source, {"a.txt": with_lines(l18="of a person")})
        expected = {**imported, "a.txt": tree_of(source)["a.txt"]}
        assert {path: found for path, found in tree_of(source).items() if "new" not in path} == (
            expected
        )
        assert [str(path.relative_to(source)) for path in source.glob("new/*")] == ["new/z.txt"]
        assert not workspace.files.exists("gone")
        with pytest.raises(UsageError, match="nothing that the branch 'main' applied"):
            workspace.source.undo_apply()
        assert workspace.maintain().ran
        assert workspace.apply().paths == undone.paths


def test_undo_of_an_apply_reports_edits_of_the_same_lines_and_changes_nothing(
    tmp_path: Path,
) -> None:
    with created(tmp_path, {"a.txt": LINES}) as workspace:
        source = tmp_path / "source"
        call_edit(workspace, "a.txt", "2", "ours")
        workspace.apply()
        call_edit(workspace, "a.txt", "18", "later")
        workspace.apply()
        make_tree(source, {"a.txt": with_lines(l2="ours", l18="of a person")})
        edited = tree_of(source)
        with pytest.raises(ConflictError, match=r"a\.txt"):
            workspace.source.undo_apply()
        assert tree_of(source) == edited
        make_tree(source, {"a.txt": with_lines(l2="ours", l18="later")})
        workspace.source.undo_apply()
        assert (source / "a.txt").read_text() == with_lines(l2="ours")
        workspace.source.undo_apply()
        assert (source / "a.txt").read_text() == LINES


def test_union_attribute_keeps_the_lines_of_both_sides(tmp_path: Path) -> None:
    before = {
        ".gitattributes": "*.md merge=union\nNOTES.md -merge\n",
        "docs/.gitattributes": "/c.txt merge=union\n",
        **dict.fromkeys(("a.md", "NOTES.md", "docs/b.md", "docs/c.txt", "c.txt"), "1\n"),
    }
    with created(tmp_path, before) as workspace:
        source = tmp_path / "source"
        write(workspace, **{"new.md": "agent\n"})
        make_tree(source, {"new.md": "user\n"})
        for name in ("a.md", "docs/b.md", "docs/c.txt"):
            workspace.files.write_text(name, "1\nagent\n")
            make_tree(source, {name: "1\nuser\n"})
        workspace.apply()
        for name in ("a.md", "docs/b.md", "docs/c.txt"):
            assert (source / name).read_text() == "1\nuser\nagent\n"
        assert (source / "new.md").read_text() == "user\nagent\n"
        assert workspace.apply().paths == ()
        make_tree(source, {"a.md": "0\n1\nuser\nagent\n"})
        assert workspace.apply().paths == ()
        workspace.source.undo_apply()
        assert (source / "a.md").read_text() == "0\n1\nuser\n"
        for name in ("NOTES.md", "c.txt"):
            workspace.files.write_text(name, "1\nagent\n")
            make_tree(source, {name: "1\nuser\n"})
        with pytest.raises(ConflictError, match=r"in: NOTES\.md, c\.txt"):
            workspace.apply()
