"""Apply makes one new branch in the source's repository and changes nothing else there."""

from __future__ import annotations

from pathlib import Path

import pytest
from workspace_support import git, make_tree, state, tree_of, write

from wink_workspace.errors import ConflictError, LedgerError, UsageError
from wink_workspace.workspace import Workspace


def repository(tmp_path: Path) -> Path:
    source = make_tree(
        tmp_path / "source",
        {
            "a.txt": "1\n2\n3\n4\n5\n6\n7\n",
            "run.sh": "#!/bin/sh\n",
            ".gitignore": "*.log\n",
            "d/e": "e",
        },
    )
    git(source, "init", "-q", "-b", "main")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    return source


def opened(tmp_path: Path) -> tuple[Workspace, Path]:
    workspace = Workspace.create(tmp_path / "source", storage=state(tmp_path))
    return workspace, state(tmp_path).folder(workspace.info.id).files


def test_the_branch_is_head_with_our_changes_and_nothing_else_changes(tmp_path: Path) -> None:
    source = repository(tmp_path)
    workspace, files = opened(tmp_path)
    with workspace:
        write(workspace, **{"new/x": "x\n", "noise.log": "n", ".gitattributes": "* text\n"})
        (files / "a.txt").write_text("1\n2\nthree\n4\n5\n6\n7\n")
        (files / "run.sh").chmod(0o644)
        (files / "d/e").unlink()
        (files / "l").symlink_to("a.txt")
        before = tree_of(source)
        applied = workspace.apply("branch", branch="ours/one")
    assert applied.left_out == ("noise.log",)
    assert git(source, "rev-parse", "ours/one").strip() == applied.commit
    assert git(source, "rev-parse", "ours/one^") == git(source, "rev-parse", "HEAD")
    raw = git(source, "diff", "--summary", "--name-status", "main", "ours/one").split("\n")
    assert raw[:6] == ["A\t.gitattributes", "M\ta.txt", "D\td/e", "A\tl", "A\tnew/x", "M\trun.sh"]
    git(source, "fsck", "--strict")
    after = tree_of(source)
    written = {path for path in after if after[path] != before.get(path)}
    allowed = (".git/objects", ".git/refs/heads/ours", ".git/logs")
    assert all(path.startswith(allowed) for path in written), written
    assert before.keys() <= after.keys()


def test_a_branch_needs_only_a_name_and_may_have_a_message(tmp_path: Path) -> None:
    source = repository(tmp_path)
    workspace, files = opened(tmp_path)
    with workspace:
        (files / "a.txt").write_text("ours\n2\n3\n4\n5\n6\n7\n")
        applied = workspace.source.apply_to_branch("one")
        workspace.source.apply_to_branch("two", message="Change the first line")
        with pytest.raises(UsageError):
            workspace.source.apply_to_branch("one")
    assert (applied.branch, applied.paths) == ("one", ("a.txt",))
    message = git(source, "log", "-1", "--format=%B", "one").strip()
    assert message.startswith(f"Changes of workspace {workspace.info.id}, entry ")
    assert git(source, "log", "-1", "--format=%B", "two").strip() == "Change the first line"
    assert git(source, "show", "one:a.txt") == git(source, "show", "two:a.txt")


def test_uncommitted_work_of_the_user_is_not_in_the_commit(tmp_path: Path) -> None:
    source = repository(tmp_path)
    (source / "a.txt").write_text("1\n2\n3\n4\n5\n6\nmine\n")
    workspace, files = opened(tmp_path)
    with workspace:
        (files / "a.txt").write_text("ours\n2\n3\n4\n5\n6\nmine\n")
        workspace.apply("branch", branch="b")
    assert git(source, "show", "b:a.txt") == "ours\n2\n3\n4\n5\n6\n7\n"


def test_an_edit_over_uncommitted_work_is_a_conflict_and_makes_no_branch(tmp_path: Path) -> None:
    source = repository(tmp_path)
    (source / "a.txt").write_text("1\n2\n3\n4\n5\n6\nmine\n")
    workspace, files = opened(tmp_path)
    with workspace:
        (files / "a.txt").write_text("1\n2\n3\n4\n5\n6\nours\n")
        with pytest.raises(ConflictError, match=r"a\.txt"):
            workspace.apply("branch", branch="b")
    assert git(source, "branch", "--list", "b") == ""


def test_a_file_deleted_in_the_workspace_and_changed_in_the_source_is_a_conflict(
    tmp_path: Path,
) -> None:
    source = repository(tmp_path)
    workspace, files = opened(tmp_path)
    (source / "d/e").write_text("changed")
    git(source, "commit", "-qam", "two")
    with workspace:
        (files / "d/e").unlink()
        with pytest.raises(ConflictError, match="d/e"):
            workspace.apply("branch", branch="b")


def test_a_mode_changed_in_the_source_and_a_content_in_the_workspace_are_both_kept(
    tmp_path: Path,
) -> None:
    source = repository(tmp_path)
    workspace, files = opened(tmp_path)
    (source / "a.txt").chmod(0o755)
    git(source, "commit", "-qam", "two")
    with workspace:
        (files / "a.txt").write_text("ours\n")
        (files / "a.txt").chmod(0o644)
        (files / "run.sh").chmod(0o644)
        workspace.apply("branch", branch="b")
    assert git(source, "ls-tree", "b", "a.txt").startswith("100755")
    assert git(source, "ls-tree", "b", "run.sh").startswith("100644")
    assert git(source, "show", "b:a.txt") == "ours\n"


@pytest.mark.parametrize(
    ("branch", "says"),
    [
        ("main", "already"),
        ("bad..name", "not a valid branch name"),
        ("-x", "not a valid branch name"),
    ],
)
def test_a_taken_or_impossible_name_is_refused(tmp_path: Path, branch: str, says: str) -> None:
    source = repository(tmp_path)
    workspace, _ = opened(tmp_path)
    before = tree_of(source)
    with workspace, pytest.raises(UsageError, match=says):
        workspace.apply("branch", branch=branch)
    assert tree_of(source) == before


def test_a_lock_of_the_branch_is_named_and_not_removed(tmp_path: Path) -> None:
    source = repository(tmp_path)
    workspace, files = opened(tmp_path)
    (files / "a.txt").write_text("ours\n")
    lock = source / ".git/refs/heads/b.lock"
    lock.touch()
    with workspace:
        with pytest.raises(LedgerError, match=r"b\.lock") as caught:
            workspace.apply("branch", branch="b")
        assert "delete it" in caught.value.hint
        assert lock.exists()
        lock.unlink()
        workspace.apply("branch", branch="b")
    assert git(source, "show", "b:a.txt") == "ours\n"


def test_a_source_without_repository_or_commit_is_refused(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", {"a": "a"})
    workspace, _ = opened(tmp_path)
    with workspace:
        with pytest.raises(UsageError, match="not the top"):
            workspace.apply("branch", branch="b")
        git(source, "init", "-q")
        with pytest.raises(UsageError, match="no commit"):
            workspace.apply("branch", branch="b")


def test_files_inside_a_submodule_or_a_git_directory_are_left_out(tmp_path: Path) -> None:
    source = repository(tmp_path)
    git(source, "clone", "-q", ".", "module")
    git(source, "add", "module")
    git(source, "commit", "-qm", "module")
    workspace, files = opened(tmp_path)
    with workspace:
        (files / "module/a.txt").write_text("changed\n")
        (files / "module/.git/config").write_text("evil")
        (files / "b\\c").write_text("x")
        write(workspace, **{"d/.git/hooks/post": "evil", "y": "y"})
        applied = workspace.apply("branch", branch="b")
    assert applied.paths == ("y",)
    assert set(applied.left_out) == {
        "b\\c",
        "d/.git",
        "module/.git/config",
        "module/a.txt",
    }


@pytest.mark.behaviour(30)
def test_global_ignore_file_of_the_user_does_not_affect_the_branch(tmp_path: Path) -> None:
    import pygit2
    from pygit2.enums import ConfigLevel

    repository(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/ignore").write_text("y\n")
    (tmp_path / "home/.gitconfig").write_text(f"[core]\nexcludesFile = {tmp_path}/home/ignore\n")
    workspace, _ = opened(tmp_path)
    before = pygit2.settings.search_path[ConfigLevel.GLOBAL]
    pygit2.settings.search_path[ConfigLevel.GLOBAL] = str(tmp_path / "home")
    try:
        with workspace:
            write(workspace, y="y")
            assert workspace.apply("branch", branch="b").paths == ("y",)
    finally:
        pygit2.settings.search_path[ConfigLevel.GLOBAL] = before


@pytest.mark.parametrize("how", ["autocrlf", "eol", "text", "edited"])
def test_line_ends_that_git_converts_are_stored_as_git_stores_them(
    tmp_path: Path, how: str
) -> None:
    source = repository(tmp_path)
    (source / "b.txt").write_bytes(b"one\ntwo\n")
    if how == "autocrlf":
        git(source, "config", "core.autocrlf", "true")
    elif how != "edited":
        rule = {"eol": "*.txt eol=crlf\n", "text": "*.txt text eol=crlf\n"}[how]
        (source / ".gitattributes").write_text(rule)
    git(source, "add", "-A")
    git(source, "commit", "-qm", "two")
    for name in ("a.txt", "b.txt"):
        (source / name).write_bytes((source / name).read_bytes().replace(b"\n", b"\r\n"))
    workspace, _ = opened(tmp_path)
    with workspace:
        workspace.files.edit("a.txt", "4", "four")
        workspace.files.write_bytes("new.txt", b"n\r\n")
        workspace.files.write_bytes("new.bin", b"n\0\r\n")
        applied = workspace.apply("branch", branch="ours")
    assert applied.paths == ("a.txt", "new.bin", "new.txt")
    assert git(source, "diff", "--numstat", "HEAD", "ours", "--", "a.txt") == "1\t1\ta.txt\n"
    size = "3" if how == "edited" else "2"
    assert git(source, "cat-file", "-s", "ours:new.txt").strip() == size
    assert git(source, "cat-file", "-s", "ours:new.bin").strip() == "4"


def test_path_that_a_filter_would_convert_is_left_out_and_no_filter_runs(tmp_path: Path) -> None:
    source = repository(tmp_path)
    (source / ".gitattributes").write_text("*.bin filter=lfs\na.txt ident\n")
    git(source, "config", "filter.lfs.clean", f"touch {tmp_path / 'ran'}; cat")
    git(source, "config", "filter.lfs.required", "true")
    workspace, _ = opened(tmp_path)
    with workspace:
        workspace.files.write_text("x.bin", "large")
        workspace.files.edit("a.txt", "4", "four")
        workspace.files.write_text("d/e", "changed")
        applied = workspace.apply("branch", branch="ours")
    assert applied.paths == ("d/e",)
    assert applied.filtered == applied.left_out == ("a.txt", "x.bin")
    assert not (tmp_path / "ran").exists()
