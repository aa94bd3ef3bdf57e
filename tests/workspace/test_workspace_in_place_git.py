"""The user's own repository is never written or shown, and is not part of a workspace in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import random_cases
from in_place_rig import begun, files_of, fingerprint_of, git, repository, source_of
from workspace_rig import Picture, assert_same, calls, doing, folder, reopened

from wink_workspace.errors import FileMissingError, GitRepositoryError, ReadOnlyError, UsageError
from wink_workspace.filesystem import Filesystem
from wink_workspace.ledger import EntryKind, Ledger, walk
from wink_workspace.workspace import Workspace

FILES = {"a.txt": b"one\n", "sub/b.txt": b"b\n"}
SPELLINGS = (
    ".git",
    ".GIT",
    ".Git",
    "git~1",
    "GIT~1",
    ".git ",
    ".git.",
    ".git. .",
    ".git::$INDEX_ALLOCATION",
    ".g\u200cit",
    "\ufeff.git",
    "./.git",
    ".//.git/",
)


def kept_paths(workspace: Workspace) -> set[str]:
    """Every path in the newest entry's files."""
    with Ledger(folder_of(workspace)) as ledger:
        head = next(ledger.branch().log())
        return {str(path) for path, _ in walk(ledger.store, head.files)}


def folder_of(workspace: Workspace) -> Path:
    return workspace._folder.ledger


@pytest.mark.behaviour(31)
@pytest.mark.sweep
def test_users_git_is_byte_identical_after_many_calls_in_place(tmp_path: Path) -> None:
    source = repository(tmp_path, FILES)
    (source / ".git/hooks/pre-commit").write_bytes(b"#!/bin/sh\nexit 1\n")
    git(source, "branch", "other")
    (source / "a.txt").write_bytes(b"uncommitted\n")
    git(source, "add", "a.txt")
    before = fingerprint_of(source / ".git")
    with begun(tmp_path) as workspace:

        def fail() -> None:
            workspace.files.write_text("spoilt", "x")
            workspace.files.write_text(".git/index", "x")

        with calls(workspace, doing(fail, fails=True)) as call:
            for n in random_cases.some(range(200), 30):
                call("write_file", file_path=f"n/{n % 20}/{n}.txt", content=f"{n}")
                call("act")
                call("rm", path=f"n/{n % 20}/{n}.txt")
                call("write_file", file_path=".git/HEAD", content="x")
                call("grep", pattern="ref: ")
        workspace.undo()
        workspace.restore(2)
        workspace.maintain()
        n_entries = next(workspace.log()).number
    assert n_entries >= 150
    assert fingerprint_of(source / ".git") == before
    assert git(source, "status", "--porcelain") == "M  a.txt\n?? n/\n"


@pytest.mark.behaviour(41)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_git_is_read_or_written(tmp_path: Path, spelling: str) -> None:
    source = repository(tmp_path, FILES)
    before = fingerprint_of(source)
    with begun(tmp_path) as workspace:
        files = workspace.files
        path = f"{spelling}/config"
        for read in (files.read_bytes, files.stat, files.list, files.open):
            with pytest.raises((FileMissingError, UsageError)):
                read(path)
        assert not files.exists(spelling)
        for write in (
            lambda: files.write_text(path, "x"),
            lambda: files.write_text(spelling, "x"),
            lambda: files.mkdir(spelling),
            lambda: files.mkdir(f"{spelling}/hooks"),
            lambda: files.symlink(spelling, "sub"),
            lambda: files.symlink(f"{spelling}/l", "x"),
            lambda: files.move("sub", spelling),
            lambda: files.move("a.txt", path),
            lambda: files.apply_patch(f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"),
        ):
            with pytest.raises(GitRepositoryError):
                write()
        for change in (
            lambda: files.delete(spelling, recursive=True),
            lambda: files.move(spelling, "stolen"),
            lambda: files.edit(path, "bare", "x"),
            lambda: files.set_executable(path, True),
        ):
            with pytest.raises(FileMissingError):
                change()
        assert [entry.path.name for entry in files.list()] == ["a.txt", "sub"]
        assert not files.grep("repositoryformatversion").matches
        assert not files.glob("**/config").paths
    assert fingerprint_of(source) == before


def test_link_to_git_is_refused(tmp_path: Path) -> None:
    source = repository(tmp_path, FILES)
    (source / "door").symlink_to(".git")
    (source / "sub/key").symlink_to("../.git/config")
    before = fingerprint_of(source / ".git")
    with begun(tmp_path) as workspace:
        files: Filesystem = workspace.files
        for act in (
            lambda: files.read_bytes("door/config"),
            lambda: files.read_bytes("sub/key"),
            lambda: files.list("door"),
            lambda: files.write_text("door/config", "x"),
            lambda: files.write_text("sub/key", "x"),
            lambda: files.write_text("door/hooks/post-checkout", "x"),
            lambda: files.delete("door/config"),
            lambda: files.set_executable("sub/key", True),
        ):
            with pytest.raises((FileMissingError, GitRepositoryError)):
                act()
        files.delete("door")  # the link itself belongs to the workspace
    assert fingerprint_of(source / ".git") == before


def test_hard_link_to_a_file_of_git_is_written_without_writing_git(tmp_path: Path) -> None:
    source = repository(tmp_path, FILES)
    os.link(source / ".git/config", source / "config")
    before = (source / ".git/config").read_bytes(), (source / ".git/config").stat().st_mode
    with begun(tmp_path) as workspace:
        workspace.files.set_executable("config", True)
        workspace.files.write_text("config", "x")
    assert (
        (source / ".git/config").read_bytes(),
        (source / ".git/config").stat().st_mode,
    ) == before


def test_git_directory_is_not_in_the_history_and_its_changes_make_no_entries(
    tmp_path: Path,
) -> None:
    source = repository(tmp_path, FILES)
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("ls")
        git(source, "tag", "t")
        git(source, "gc", "-q")
        git(source, "commit", "-q", "--allow-empty", "-m", "more")
        call("ls")
        assert EntryKind.EXTERNAL not in [entry.kind for entry in workspace.log()]
        assert kept_paths(workspace) == {"a.txt", "sub", "sub/b.txt"}


def without_modes(shown: Picture) -> Picture:
    """The same without modes."""
    return {path: (kind, 0, content) for path, (kind, _, content) in shown.items()}


def linked_worktree(tmp_path: Path) -> Path:
    """``.git`` is a file that points to another repository."""
    main = repository(tmp_path / "main", FILES)
    git(main, "worktree", "add", "-q", str(source_of(tmp_path)))
    return main / ".git"


def submodule(tmp_path: Path) -> Path:
    """``.git`` is a file whose path goes up and then down."""
    repository(tmp_path / "library", FILES)
    above = repository(tmp_path / "above", {"x": b"x"})
    library = str(source_of(tmp_path / "library"))
    git(above, "-c", "protocol.file.allow=always", "submodule", "add", "-q", library, "lib")
    (tmp_path / "source").symlink_to(above / "lib")
    return above / ".git"


def link_inside(tmp_path: Path) -> Path:
    """``.git`` is a link to a directory of another name beside it."""
    source = repository(tmp_path, FILES)
    (source / ".git").rename(source / "real.git")
    (source / ".git").symlink_to("real.git")
    return source / "real.git"


def file_inside(tmp_path: Path) -> Path:
    """``.git`` is a file that points to a directory below."""
    source = repository(tmp_path, FILES)
    (source / "deep").mkdir()
    (source / ".git").rename(source / "deep/.bare")
    (source / ".git").write_text("gitdir: ./deep/.bare\n")
    return source / "deep/.bare"


def link_outside(tmp_path: Path) -> Path:
    """``.git`` is a link to a directory outside."""
    source = repository(tmp_path, FILES)
    (source / ".git").rename(tmp_path / "elsewhere.git")
    (source / ".git").symlink_to(tmp_path / "elsewhere.git")
    return tmp_path / "elsewhere.git"


def no_repository(tmp_path: Path) -> Path:
    """The directory has no repository."""
    for name, content in FILES.items():
        (source_of(tmp_path) / name).parent.mkdir(parents=True, exist_ok=True)
        (source_of(tmp_path) / name).write_bytes(content)
    return source_of(tmp_path) / ".git"


@pytest.mark.parametrize(
    "kind",
    [linked_worktree, submodule, link_inside, file_inside, link_outside, no_repository],
)
def test_repository_of_any_kind_is_inaccessible(
    tmp_path: Path, kind: Callable[[Path], Path]
) -> None:
    own = kind(tmp_path)
    source = source_of(tmp_path)
    pointer = source / ".git"
    before = (own.exists() and fingerprint_of(own), pointer.is_file() and pointer.read_bytes())
    with begun(tmp_path) as workspace:
        inside = own.is_relative_to(source) and own.exists()
        paths = [".git", ".git/HEAD"]
        if inside:
            paths += [str(own.relative_to(source)), f"{own.relative_to(source)}/HEAD"]
        for path in paths:
            assert not workspace.files.exists(path)
            with pytest.raises(GitRepositoryError):
                workspace.files.write_text(path, "x")
            with pytest.raises(GitRepositoryError):
                workspace.files.write_text(f"{path}/more", "x")
            with pytest.raises(FileMissingError):
                workspace.files.delete(path, recursive=True)
        if own.parent != source and inside:
            with pytest.raises(ReadOnlyError, match="cannot be moved or removed"):
                workspace.files.delete("deep", recursive=True)
            with pytest.raises(ReadOnlyError, match="cannot be moved or removed"):
                workspace.files.move("deep", "moved")
        with calls(workspace) as call:
            call("write_file", file_path="n.txt", content="x")
        workspace.undo()
        kept = kept_paths(workspace)
    assert kept == {"a.txt", "sub", "sub/b.txt"} | ({"deep"} if kind is file_inside else set())
    assert (
        own.exists() and fingerprint_of(own),
        pointer.is_file() and pointer.read_bytes(),
    ) == before


def test_repository_that_the_user_moves_is_inaccessible_from_the_next_call(
    tmp_path: Path,
) -> None:
    source = repository(tmp_path, FILES)
    with begun(tmp_path) as workspace, calls(workspace) as call:
        call("ls")
        (source / ".git").rename(source / "real.git")
        (source / ".git").write_text("gitdir: real.git\n")
        call("ls")
        assert not workspace.files.exists("real.git")
        assert not call("write_file", file_path="real.git/x", content="x").result.success
        (source / "b.txt").write_bytes(b"x")
        call("ls")
        assert "real.git" not in kept_paths(workspace)


def test_workspace_inside_a_git_directory_is_refused(tmp_path: Path) -> None:
    source = repository(tmp_path, FILES)
    git(tmp_path, "clone", "-q", "--bare", str(source), "bare.git")
    from workspace_rig import storage

    for path in (source / ".git", source / ".git/hooks", tmp_path / "bare.git"):
        with pytest.raises(UsageError, match="repository"):
            Workspace.create(path, storage=storage(tmp_path), mode="in_place")
    (source / ".git").rename(tmp_path / "moved.git")
    assert list(storage(tmp_path).all()) == []


@pytest.mark.behaviour(31)
def test_nested_repository_can_be_read_deleted_and_restored_but_not_written(
    tmp_path: Path,
) -> None:
    source = source_of(tmp_path)
    repository(tmp_path / "sub-of", FILES)
    (tmp_path / "source").mkdir()
    source_of(tmp_path / "sub-of").rename(source / "lib")
    with begun(tmp_path) as workspace:
        before = files_of(tmp_path)
        files = workspace.files
        assert files.read_text("lib/.git/HEAD").text.startswith("ref:")
        for path in ("lib/.git/config", "lib/.git/hooks/x", "new/.GIT/config", "lib/sub/.git"):
            with pytest.raises(ReadOnlyError, match="repository"):
                files.write_text(path, "x")
        with pytest.raises(ReadOnlyError, match="repository"):
            files.edit("lib/.git/config", "bare", "x")
        files.mkdir("evil/hooks")
        with pytest.raises(ReadOnlyError, match="repository"):
            files.move("evil", "lib/sub/.git")
        files.delete("evil", recursive=True)
        remove = doing(lambda: files.delete("lib", recursive=True), fails=True)
        with calls(workspace, remove) as call:
            call("act")
            assert_same(before, files_of(tmp_path))
            call("rm", path="lib")
            assert not (source / "lib").exists()
        workspace.undo()  # objects are writable now, although git makes them read-only
        assert_same(without_modes(before), without_modes(files_of(tmp_path)))
        git(source / "lib", "fsck", "--strict")
    with reopened(tmp_path) as workspace:
        assert workspace.files.exists("lib/.git/HEAD")
    assert folder(tmp_path).ledger.is_dir()
