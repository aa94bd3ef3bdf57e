"""Detection of repositories, compared with the installed git."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from wink_workspace.filesystem import FileKind, WorkspacePath
from wink_workspace.filesystem.disk.tree import DiskTree
from wink_workspace.filesystem.paths import ROOT
from wink_workspace.ledger import (
    DiskView,
    Found,
    enclosing_repository,
    is_layout_name,
    is_repository,
    repositories_in,
)

OID = b"0123456789abcdefABCDEF0123456789abcdef01"
HEADS = (
    b"", b"ref:", b"ref:refs", b"ref:refs/", b"ref: refs/heads/main\n", b"ref: \t\r\n refs/x",
    b"ref:\vrefs/x", b"ref:\frefs/x", b"ref:\0refs/x", b"Ref: refs/x", b" ref: refs/x",
    b"\xef\xbb\xbfref: refs/x", b"ref: heads/x", b"ref: /refs/x", b"ref: refs",
    b"ref:" + b" " * 246 + b"refs/", b"ref:" + b" " * 247 + b"refs/",
    OID, OID[:39], OID + b"0", OID + b"\n", OID + b" x", b"\n" + OID, b"g" + OID, OID[:39] + b"g",
    OID[:20] + b"\0" + OID[:20], OID + OID[:24], b"x" * 5_000,
)  # fmt: skip


def is_found_by_git(directory: Path) -> bool:
    """Whether git finds a repository in *directory*, in the most permissive environment."""
    done = subprocess.run(
        ["git", "rev-parse", "--git-dir"],
        cwd=directory,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CEILING_DIRECTORIES": str(directory.parent),
            "GIT_OBJECT_DIRECTORY": str(directory),
        },
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def is_found_here(directory: Path) -> bool:
    with DiskTree(directory) as tree:
        return is_repository(DiskView(tree), ROOT)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """*content* with one byte inserted, removed or replaced."""
    at = rng.randrange(len(content) + 1)
    new = bytes([rng.choice(b"ref: /\n\0aF09g")])
    return content[:at] + rng.choice((b"", new)) + content[at + rng.randrange(2) :]


def test_head_files_are_accepted_as_by_git(tmp_path: Path) -> None:
    rng = random.Random(12)
    (tmp_path / "refs").mkdir()
    valid = [head for head in HEADS if head.startswith((b"ref", OID))]
    answers = set[bool]()
    for head in (*HEADS, *(damaged(rng.choice(valid), rng) for _ in range(60))):
        (tmp_path / "HEAD").write_bytes(head)
        assert is_found_here(tmp_path) == is_found_by_git(tmp_path), head
        answers.add(is_found_here(tmp_path))
    assert answers == {True, False}


def test_head_links_are_accepted_as_by_git(tmp_path: Path) -> None:
    (tmp_path / "refs").mkdir()
    (tmp_path / "file").write_text("ref: refs/x")
    for target in ("refs/x", "refs/", "refs", "./refs/x", "file", "refs/../file", "xrefs/x"):
        (tmp_path / "HEAD").symlink_to(target)
        assert is_found_here(tmp_path) == is_found_by_git(tmp_path), target
        (tmp_path / "HEAD").unlink()


LAYOUTS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "refs": (lambda d: (d / "refs").mkdir(), True),
    "program": (lambda d: (d / "refs").touch(0o755), True),
    "file": (lambda d: (d / "refs").touch(0o644), True),
    "link": (lambda d: (d / "refs").symlink_to("/"), True),
    "link to nothing": (lambda d: (d / "refs").symlink_to("nothing"), True),
    "reftable": (lambda d: (d / "reftable").mkdir(), True),
    "commondir": (
        lambda d: ((d / "commondir").write_text("c"), (d / "c/refs").mkdir(parents=True)),
        True,
    ),
    "objects": (lambda d: (d / "objects").mkdir(), False),
    "other case": (lambda d: (d / "Refs").mkdir(), False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_accepted_by_git_are_repositories(tmp_path: Path, name: str) -> None:
    """So are some that git would accept after a ``chmod``, or once a link has a target."""
    make, expected = LAYOUTS[name]
    (tmp_path / "HEAD").write_bytes(OID)
    make(tmp_path)
    assert is_found_here(tmp_path) is expected
    assert expected or not is_found_by_git(tmp_path)


@dataclass
class View:
    """Files by path; a directory is ``None``."""

    files: Mapping[str, bytes | None]

    def names(self, directory: WorkspacePath) -> set[str]:
        paths = (WorkspacePath(tuple(path.split("/"))) for path in self.files)
        return {path.name for path in paths if path.parent == directory}

    def common_directories(self) -> dict[WorkspacePath, WorkspacePath]:
        return {}

    def look(self, path: WorkspacePath) -> Found | None:
        if str(path) not in self.files:
            return None
        content = self.files[str(path)]
        if content is None:
            return Found(FileKind.DIRECTORY)
        return Found(FileKind.FILE, lambda: content)


def path(text: str) -> WorkspacePath:
    return WorkspacePath(tuple(text.split("/")))


def test_changed_paths_are_reported_with_their_repository() -> None:
    view = View({"own": None, "own/HEAD": OID, "own/refs": None, "d": None, "d/refs": None})
    changes = View(
        {
            "own/config": b"", "own/hooks": None, "d/HEAD": OID, "d/config": b"", "x/.GIT/y": b"",
            "new": None, "new/Head.": OID, "new/ref\u017f": None, "new/deep": None, "fine": b"",
        }
    )  # fmt: skip
    found = repositories_in(view, {path(name): changes.look(path(name)) for name in changes.files})
    assert {str(at): str(repository) for at, repository in found.items()} == {
        "own/config": "own", "own/hooks": "own", "d/HEAD": "d", "x/.GIT/y": "x/.GIT",
        "new": "new", "new/Head.": "new", "new/ref\u017f": "new", "new/deep": "new",
    }  # fmt: skip
    assert enclosing_repository(view, path("own")) == path("own")
    assert enclosing_repository(view, path("d/refs/x")) is None


def test_removal_never_completes_a_repository() -> None:
    view = View({"HEAD": OID, "refs": None})
    assert repositories_in(View({"refs": None}), {path("HEAD"): None}) == {}
    after = {path("HEAD"): None, path("refs/x"): Found(FileKind.FILE)}
    assert set(repositories_in(view, after)) == set(after), "the repository is there before"


def test_layout_names_are_recognised_in_every_spelling() -> None:
    for name in ("HEAD", "head", "refs", "REFS", "reftable", "commondir", "HEAD.", "refs::$DATA"):
        assert is_layout_name(name)
    for name in ("HEADS", "ref", "config", "objects", "HEAD.txt", ".HEAD", "", "\u4e2d"):
        assert not is_layout_name(name)
