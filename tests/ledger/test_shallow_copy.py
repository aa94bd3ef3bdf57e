"""The copy of a user's newest history: what is in it, and what is not.

The tests read it with git, as a sandbox does. They run git in repositories that they made only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from wink_workspace.clock import SYSTEM_CLOCK, ManualClock
from wink_workspace.errors import UsageError
from wink_workspace.ledger import CopyPaths, ShallowCopy, open_user_head, outside_repositories

VARIABLES = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_ALLOW_PROTOCOL": "file",
    "LC_ALL": "C",
}


def run(*command: str, cwd: Path, **more: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**VARIABLES, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def git(directory: Path, *arguments: str) -> str:
    return run("git", *arguments, cwd=directory)


def commit(source: Path, name: str, content: str) -> str:
    """Commit one file; return the id of the commit."""
    path = source / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    git(source, "add", "-f", "-A")
    git(source, "commit", "-q", "-m", f"{name}: {content}")
    return git(source, "rev-parse", "HEAD").strip()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", "-b", "trunk")
    for n in range(6):
        commit(source, "file", f"content {n}\n")
    return source


class Copied:
    """A copy, and a git directory as a sandbox makes it of the template."""

    def __init__(self, folder: Path, files: Path, done: ShallowCopy) -> None:
        self.folder = folder
        self.done = done
        self._files = files
        self._git = folder / "git"
        shutil.copytree(folder / "template", self._git)

    def git(self, *arguments: str, **more: str) -> str:
        where = {"GIT_DIR": str(self._git), "GIT_WORK_TREE": str(self._files)}
        return run("git", *arguments, cwd=self._files, **where, **more)

    def has(self, name: str) -> bool:
        """Whether it has the object itself, without replacements."""
        where = {"GIT_DIR": str(self._git), "GIT_NO_REPLACE_OBJECTS": "1"}
        command = ["git", "cat-file", "-e", name]
        return not subprocess.run(
            command, env={**VARIABLES, **where}, capture_output=True
        ).returncode


def copied(
    source: Path,
    into: Path,
    *,
    depth: int = 50,
    hides: Callable[[tuple[str, ...], bool], bool] = lambda _parts, _is_directory: False,
    trusted: Collection[Path] = (),
) -> Copied:
    head = open_user_head(source, trusted)
    assert head is not None
    into.mkdir()
    paths = CopyPaths(str(into / "objects"), 1_000, ".wink-output")
    done = head.copy(
        into, paths, depth=depth, hides=hides, stamps=lambda _parts, _id: None, clock=SYSTEM_CLOCK
    )
    return Copied(into, source, done)


@pytest.mark.behaviour(126)
@pytest.mark.parametrize("depth", [1, 3, 6, 50])
def test_history_ends_at_the_depth_and_older_content_is_not_there(
    source: Path, tmp_path: Path, depth: int
) -> None:
    found = copied(source, tmp_path / "copy", depth=depth)
    n_shown = min(depth, 6)
    assert found.done == ShallowCopy(depth=n_shown, n_commits=n_shown)
    assert found.git("log", "--format=%s").splitlines() == [
        f"file: content {n}" for n in range(5, 5 - n_shown, -1)
    ]
    for n in range(6):
        blob = git(source, "rev-parse", f"HEAD~{5 - n}:file").strip()
        assert found.has(blob) == (n > 5 - n_shown)
        assert found.has(git(source, "rev-parse", f"HEAD~{5 - n}").strip()) == (n > 5 - n_shown)
    assert found.git("status", "--porcelain") == ""
    found.git("fsck", "--full", "--strict")


def test_both_sides_of_merges_count_as_generations(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-q", "-b", "side", "HEAD~3")
    for n in range(3):
        commit(source, "side", f"side {n}\n")
    git(source, "checkout", "-q", "trunk")
    git(source, "merge", "-q", "--no-edit", "side")
    for depth in range(1, 7):
        clone = tmp_path / f"clone{depth}"
        git(tmp_path, "clone", "-q", f"--depth={depth}", f"file://{source}", str(clone))
        found = copied(source, tmp_path / f"copy{depth}", depth=depth)
        assert found.git("log", "--format=%H %P") == git(clone, "log", "--format=%H %P")
        found.git("fsck", "--full", "--strict")


@pytest.mark.behaviour(127)
def test_remotes_hooks_configuration_and_other_refs_are_not_copied(
    source: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ran >> {ran}\n")
    program.chmod(0o755)
    git(source, "tag", "-a", "v1", "-m", "annotated", "HEAD~2")
    git(source, "tag", "light", "HEAD~1")
    git(source, "tag", "old", "HEAD~5")
    (source / "file").write_text("secret of the stash\n")
    git(source, "stash")
    stashed = git(source, "rev-parse", "stash@{0}:file").strip()
    git(source, "branch", "other", "HEAD~4")
    git(source, "remote", "add", "origin", "https://user:password@example.org/x.git")
    for key in ("core.fsmonitor", "core.hooksPath", "filter.f.clean", "filter.f.smudge"):
        git(source, "config", key, str(program))
    git(source, "config", "alias.st", "status")
    (source / ".git/info/attributes").write_text("* filter=f\n")
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction"):
        shutil.copy(program, source / ".git/hooks" / hook)
    found = copied(source, tmp_path / "copy", depth=3)
    assert not ran.exists(), "a program of the repository ran"
    refs = found.git("for-each-ref", "--format=%(refname)").splitlines()
    assert refs == ["refs/heads/trunk", "refs/tags/light", "refs/tags/v1"]
    assert found.git("describe", "--tags", "HEAD~2") == "v1\n"
    assert not found.has(stashed)
    config = (tmp_path / "copy/template/config").read_text()
    assert "password" not in config
    assert sorted(line for line in config.splitlines() if line.startswith("[")) == [
        "[core]",
        "[gc]",
        "[user]",
    ]
    names = {
        str(path.relative_to(tmp_path / "copy/template"))
        for path in (tmp_path / "copy/template").rglob("*")
        if path.is_file()
    }
    files = {"HEAD", "config", "index", "info/exclude", "packed-refs", "shallow"}
    assert names == {*files, "objects/info/alternates"}
    for path in (tmp_path / "copy").rglob("*"):
        assert not path.is_file() or b"password" not in path.read_bytes()


@pytest.mark.behaviour(128)
def test_content_of_unrecorded_paths_is_withheld_and_git_works_without_it(
    source: Path, tmp_path: Path
) -> None:
    commit(source, ".env", "KEY=first\n")
    commit(source, "keys/deploy/id", "secret key\n")
    commit(source, ".env", "KEY=second\n")
    commit(source, "public", "same in both\n")
    commit(source, "keys/deploy/public", "same in both\n")
    hidden = [git(source, "rev-parse", name).strip() for name in ("HEAD:.env", "HEAD~3:.env")]
    hidden += [
        git(source, "rev-parse", name).strip() for name in ("HEAD:keys", "HEAD:keys/deploy/id")
    ]
    found = copied(source, tmp_path / "copy", hides=lambda parts, _: parts[0] in (".env", "keys"))
    for each in hidden:
        assert not found.has(each)
    assert found.has(git(source, "rev-parse", "HEAD:public").strip())
    (source / ".env").unlink()
    shutil.rmtree(source / "keys")
    assert found.git("status", "--porcelain") == "", "the workspace does not have these files"
    shown = found.git("log", "-p", "--format=%s")
    assert "withheld" in shown
    for text in ("KEY", "secret key"):
        assert text not in shown.replace(".env: KEY=", "").replace("id: secret key", "")


def test_content_that_a_visible_path_has_too_is_not_withheld(source: Path, tmp_path: Path) -> None:
    commit(source, "hidden", "both\n")
    commit(source, "visible", "both\n")
    found = copied(source, tmp_path / "copy", hides=lambda parts, _: parts == ("hidden",))
    assert found.git("show", "HEAD:visible") == "both\n"


@pytest.mark.parametrize("kind", ["detached", "worktree", "shallow", "alternates", "packed"])
def test_every_kind_of_repository_is_read(source: Path, tmp_path: Path, kind: str) -> None:
    read, n_shown = source, 6
    match kind:
        case "detached":
            git(source, "checkout", "-q", "--detach", "HEAD~1")
            n_shown = 5
        case "worktree":
            read = tmp_path / "worktree"
            git(source, "worktree", "add", "-q", "-b", "other", str(read))
        case "shallow":
            read, n_shown = tmp_path / "shallow", 2
            git(tmp_path, "clone", "-q", "--depth=2", f"file://{source}", str(read))
        case "alternates":
            read = tmp_path / "shared"
            git(tmp_path, "clone", "-q", "--shared", str(source), str(read))
        case _:
            git(source, "gc", "-q", "--aggressive", "--prune=now")
    trusted = outside_repositories(read)
    assert bool(trusted) is (kind in ("worktree", "alternates"))
    found = copied(read, tmp_path / "copy", trusted=trusted)
    assert found.git("log", "--format=%H") == git(read, "log", "--format=%H")
    assert found.done.n_commits == n_shown
    assert found.git("status", "--porcelain") == ""
    assert found.git("rev-parse", "--abbrev-ref", "HEAD") == git(
        read, "rev-parse", "--abbrev-ref", "HEAD"
    )
    found.git("fsck", "--full", "--strict")


def test_missing_objects_of_a_partial_clone_end_the_history(source: Path, tmp_path: Path) -> None:
    lost = git(source, "rev-parse", "HEAD~3:file").strip()
    (source / ".git/objects" / lost[:2] / lost[2:]).unlink()
    found = copied(source, tmp_path / "copy")
    assert found.done.n_commits == 3
    assert found.git("log", "-p", "--format=%s", "--reverse").startswith("file: content 3")


def test_submodules_are_listed_and_not_entered(source: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    shutil.copytree(source, library)
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "lib")
    git(source, "commit", "-q", "-m", "submodule")
    found = copied(source, tmp_path / "copy")
    (source / "lib/.git").write_text("gitdir: /nowhere\n")
    assert found.git("status", "--porcelain") == ""
    assert "160000" in found.git("ls-files", "-s")


def test_source_without_a_commit_or_repository_has_no_head(tmp_path: Path, source: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert open_user_head(empty) is None
    git(empty, "init", "-q")
    assert open_user_head(empty) is None
    inside = source / "inside"
    inside.mkdir()
    assert open_user_head(inside) is None, "only the top of a working tree has .git"


def test_repository_that_cannot_be_read_is_an_error_with_its_reason(tmp_path: Path) -> None:
    for name in ("sha256", "broken"):
        (tmp_path / name).mkdir()
    git(tmp_path / "sha256", "init", "-q", "--object-format=sha256")
    (tmp_path / "broken/.git").write_text("gitdir: ../nowhere\n")
    for name, reason in (("sha256", "is not the top of"), ("broken", "leads to another directory")):
        with pytest.raises(UsageError, match=reason):
            open_user_head(tmp_path / name)


def test_history_that_takes_too_long_is_cut_or_refused(source: Path, tmp_path: Path) -> None:
    head = open_user_head(source)
    assert head is not None
    clock = ManualClock()
    into = tmp_path / "copy"
    into.mkdir()

    def hides(_parts: tuple[str, ...], _is_directory: bool) -> bool:
        clock.advance(20)
        return False

    done = head.copy(
        into,
        CopyPaths(str(into / "objects"), 1_000, "x"),
        depth=50,
        hides=hides,
        stamps=lambda _parts, _id: None,
        clock=clock,
    )
    assert done.n_commits == 2
