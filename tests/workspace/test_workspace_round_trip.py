"""A handler changes everything with plain system calls and fails: all of it is rolled back."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest
from workspace_rig import assert_same, calls, doing, folder, made, picture
from workspace_support import git, make_tree

from wink_workspace.ledger import Retention
from wink_workspace.workspace import Workspace, WorkspaceConfig

NAMES = (
    b".GIT",
    b"git~1",
    b"con",
    b"trailing ",
    b"new\nline",
    b"back\\slash",
    b"caf\xe9",
    b"%41",
    b".gitattributes",
    b".gitmodules",
    b"x" * 255,
    b"\xff" * 255,
    b"decomposed-e\xcc\x81",
    b".g\xe2\x80\x8cit",
)


_ACL_ENTRIES = ((0x01, 7, -1), (0x02, 7, 1234), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1))
DEFAULT_ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in _ACL_ENTRIES)
"""What ``setfacl --default --modify user:1234:rwx`` sets, as acl(5) lays it out."""


def furnish(root: Path) -> None:
    """Fill *root* with one path of every kind that a workspace keeps."""
    for name in NAMES:
        (root / os.fsdecode(name)).write_bytes(name)
    (root / "empty" / "inner").mkdir(parents=True)
    for name, target in (("dangling", "no"), ("absolute", "/etc/passwd"), ("loop", "loop")):
        (root / name).symlink_to(target)
    (root / "to-directory").symlink_to("empty")
    (root / "run.sh").write_bytes(b"#!/bin/sh\r\n")
    (root / "run.sh").chmod(0o755)
    (root / "zero").touch()
    (root / "ignored").write_bytes(b"x")
    (root / ".gitignore").write_bytes(b"ignored\n")
    (root / "large").write_bytes(os.urandom(1_048_576) * 20)
    (root / "one").write_bytes(b"shared")
    os.link(root / "one", root / "two")
    for repository in ("nested", "with/submodule"):
        (root / repository / ".git" / "refs").mkdir(parents=True)
        (root / repository / ".git" / "HEAD").write_bytes(b"ref: refs/heads/main\n")
    (root / "with" / ".gitmodules").write_bytes(b'[submodule "../x"]\n\turl = -u./payload\n')
    (root / "module").mkdir()
    (root / "module" / ".git").write_bytes(b"gitdir: ../.git/modules/module\n")


def wreck(root: Path) -> None:
    """Change every path, each in a different way, and add kinds that cannot be kept."""
    for n, path in enumerate(sorted(root.iterdir())):
        if path.is_symlink():
            path.unlink()
            path.write_bytes(b"no link any more")
        elif path.is_dir():
            shutil.rmtree(path)
            if n % 2:
                path.write_bytes(b"no directory any more")
        elif n % 3 == 0:
            path.unlink()
            path.mkdir()
            (path / "inside").write_bytes(b"x")
        elif n % 3 == 1:
            path.write_bytes(path.read_bytes()[:-1] + b"!")
            path.chmod(0o600)
        else:
            path.unlink()
            path.symlink_to("/etc/hostname")
    for name in (b"added", b"\xfe\xfd"):
        (root / os.fsdecode(name)).mkdir(mode=0o700)
    os.mkfifo(root / "pipe")
    (root / "made/.git").mkdir(parents=True)
    (root / "made/.git/config").write_bytes(b"[core]\n\tfsmonitor = touch /tmp/pwned\n")
    (root / "locked/inner").mkdir(parents=True)
    (root / "locked/inner/file").write_bytes(b"x")
    (root / "locked/inner").chmod(0)
    (root / "locked").chmod(0)


@pytest.mark.behaviour(22, 29, 31)
@pytest.mark.parametrize("force_scan", [False, True])
def test_failed_call_that_changed_every_path_leaves_no_trace(
    tmp_path: Path, force_scan: bool
) -> None:
    (tmp_path / "source").mkdir()
    furnish(tmp_path / "source")
    with made(tmp_path, config=WorkspaceConfig(force_scan=force_scan)) as workspace:
        root = folder(tmp_path).files
        before = picture(root)
        imported = picture(tmp_path / "source")
        del imported[b"module/.git"]  # it names a repository that is not imported
        assert_same(imported, before)
        with calls(workspace, doing(lambda: wreck(root), fails=True)) as call:
            for _ in range(2):
                assert not call("act").result.success
                assert_same(before, picture(root))


def noise(path: Path, n_mib: int, seed: int) -> str:
    """Write an incompressible file in pieces; returns the digest of its content."""
    digest, piece = hashlib.sha256(), bytearray(random.Random(seed).randbytes(1_048_576))
    with path.open("wb") as file:
        for n in range(n_mib):
            piece[:8] = n.to_bytes(8, "big")
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.soak
def test_a_file_of_a_gibibyte_comes_back_and_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    before = noise(tmp_path / "source/large", 1_024, seed=1)
    both_fit = WorkspaceConfig(retention=Retention(budget_bytes=4 * 1_024**3))
    with made(tmp_path, config=both_fit) as workspace:
        large = folder(tmp_path).files / "large"
        assert digest_of(large) == before

        def append() -> None:
            with large.open("ab") as file:
                file.write(b"more")

        damage = [
            doing(large.unlink, name="delete", fails=True),
            doing(lambda: os.truncate(large, 5), name="truncate", fails=True),
            doing(append, name="append", fails=True),
            doing(lambda: noise(large, 1_024, seed=2), name="rewrite"),
        ]
        with calls(workspace, *damage) as call:
            for name in ("delete", "truncate", "append"):
                assert not call(name).result.success
                assert digest_of(large) == before, name
            assert call("rewrite").result.success
        after = digest_of(large)
        workspace.undo()
        assert digest_of(large) == before
        workspace.redo()
        assert digest_of(large) == after != before
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert peak_kib < 512 * 1_024


def modes(root: Path) -> None:
    for path in (root / "a", root / "run.sh", root / "sub"):
        path.chmod(0o700 if path.is_dir() else 0o4711)


def hard_links(root: Path) -> None:
    os.link(root / "a", root / "new name")
    (root / "new name").write_bytes(b"changed through another name")


def moves(root: Path) -> None:
    (root / "sub").rename(root / "moved")
    (root / "moved" / "b").rename(root / "a")


def swaps(root: Path) -> None:
    """Names that differ in case, and a file that becomes a directory."""
    (root / "a").rename(root / "A")
    (root / "a").mkdir()
    (root / "A").rename(root / "a" / "a")


@pytest.mark.behaviour(22, 29)
@pytest.mark.parametrize("act", [modes, hard_links, moves, swaps], ids=lambda act: act.__name__)
def test_failed_call_leaves_no_trace(tmp_path: Path, act) -> None:
    with made(tmp_path, {"a": b"1", "sub/b": b"2", "sub/c": b"3", "run.sh": b"#!"}) as workspace:
        root = folder(tmp_path).files
        (root / "run.sh").chmod(0o755)
        before = picture(root)
        with calls(workspace, doing(lambda: act(root), fails=True)) as call:
            call("act")
        assert_same(before, picture(root))


HOSTILE = {
    "GIT_DIR": "/nowhere",
    "GIT_WORK_TREE": "/nowhere",
    "GIT_INDEX_FILE": "/nowhere/index",
    "GIT_OBJECT_DIRECTORY": "/nowhere/objects",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere/alternates",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.autocrlf",
    "GIT_CONFIG_VALUE_0": "true",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_NAMESPACE": "hostile",
}
CONFIG = """
[core]
    autocrlf = true
    eol = crlf
    hooksPath = {home}/hooks
    attributesFile = {home}/attributes
    excludesFile = {home}/ignore
    compression = 0
    sharedRepository = 0777
    bare = false
[init]
    templateDir = {home}/template
    defaultBranch = hostile
    defaultObjectFormat = sha256
[filter "damage"]
    clean = tr a-z A-Z
    smudge = tr a-z A-Z
    required = true
[safe]
    bareRepository = explicit
"""


@pytest.mark.behaviour(30)
def test_git_configuration_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "hooks").mkdir(parents=True)
    (home / "template" / "hooks").mkdir(parents=True)
    for hooks in (home / "hooks", home / "template" / "hooks"):
        for name in ("reference-transaction", "post-commit", "pre-commit"):
            (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
            (hooks / name).chmod(0o755)
    (home / "attributes").write_text("* filter=damage text eol=crlf\n")
    (home / "ignore").write_text("*\n")
    (home / ".gitconfig").write_text(CONFIG.format(home=home))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(home / "template"))
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    attributes = b"* filter=damage text eol=crlf working-tree-encoding=UTF-16 ident export-ignore\n"
    files = {".gitattributes": attributes, "unix.txt": b"a\nb\n", "dos.txt": b"a\r\nb\r\n$Id$\n"}
    with made(tmp_path, files) as workspace:
        root = folder(tmp_path).files
        before = picture(root)
        assert before[b"dos.txt"][2] == files["dos.txt"]

        def damage() -> None:
            for name in files:
                (root / name).write_bytes(b"spoilt\n")

        with calls(workspace, doing(damage, fails=True)) as call:
            call("act")
            assert_same(before, picture(root))
            call("write_file", file_path="new.txt", content="x\r\n")
        workspace.undo()
        workspace.redo()
        assert (root / "new.txt").read_bytes() == b"x\r\n"
    assert not (tmp_path / "hooked").exists()
    assert not list(folder(tmp_path).ledger.glob("hooks/*-*"))
    log = subprocess.run(
        ["git", f"--git-dir={folder(tmp_path).ledger}", "log", "--format=%s", "main"],
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
        },
        capture_output=True,
        check=True,
        text=True,
    )
    assert len(log.stdout.splitlines()) == 5


@pytest.mark.behaviour(31)
@pytest.mark.parametrize("kind", ["ordinary", "bare", "none"])
def test_a_repository_is_copied_unchanged_and_restored(tmp_path: Path, kind: str) -> None:
    """With a submodule, and uncommitted, untracked and ignored files; ``.git`` of each kind."""
    module = make_tree(tmp_path / "module", {"m.txt": "m\n"})
    source = make_tree(tmp_path / "source", {"a.txt": "1\n", ".gitignore": "*.log\n"})
    for repository in (module, source):
        git(repository, "init", "-q")
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "one")
    allowed = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add"]
    git(source, *allowed, str(module), "sub/module")
    make_tree(source, {"a.txt": "uncommitted\n", "new": "untracked\n", "x.log": "ignored\n"})
    if kind == "bare":
        git(source, "config", "core.bare", "true")
    elif kind == "none":
        shutil.rmtree(source / ".git")
    git_before = picture(source / ".git") if kind != "none" else {}
    with made(tmp_path) as workspace:
        root = folder(tmp_path).files
        before = picture(root)
        in_source = picture(source)
        imported = {p: at for p, at in in_source.items() if p.split(b"/")[0] != b".git"}
        del imported[b"sub/module/.git"]  # it names a repository that is not imported
        assert_same(before, imported)

        def damage() -> None:
            (root / "sub/module/m.txt").unlink()
            for name in ("a.txt", "new", "x.log", ".gitmodules"):
                (root / name).write_text("spoilt\n")

        with calls(workspace, doing(damage, fails=True)) as call:
            assert not call("act").result.success
        assert_same(before, picture(root))
    assert (picture(source / ".git") if kind != "none" else {}) == git_before


def test_source_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    furnish(tmp_path / "source")
    before = picture(tmp_path / "source")
    with made(tmp_path) as workspace, calls(workspace) as call:
        call("write_file", file_path="new.txt", content="x")
        workspace.undo()
    assert_same(before, picture(tmp_path / "source"))
    assert isinstance(workspace, Workspace)


def test_rollback_resets_attributes_access_control_lists_and_the_mode_of_the_root(
    tmp_path: Path,
) -> None:
    source = make_tree(tmp_path / "source", {"a": "1", "sub/b": "2"})
    with Workspace.temporary(source) as workspace:
        files = workspace._folder.files
        with pytest.raises(ZeroDivisionError), workspace.call("leave attributes"):
            for path in (files, files / "a", files / "sub", files / "sub/b"):
                os.setxattr(path, "user.left", b"1")
            os.setxattr(files / "sub", "system.posix_acl_default", DEFAULT_ACL)
            (files / "a").chmod(0o444)
            files.chmod(0o700)
            _ = 1 / 0
        for path in (files, files / "a", files / "sub", files / "sub/b"):
            assert os.listxattr(path) == []
        assert stat.S_IMODE(files.stat().st_mode) == 0o755
        assert stat.S_IMODE((files / "a").stat().st_mode) == 0o644
        assert workspace.diff() == ""
