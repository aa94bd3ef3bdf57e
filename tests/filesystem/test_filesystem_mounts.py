"""Mounts show the allowed files, and never follow a link out of their source."""

from __future__ import annotations

import os
import socket
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec import AbstractFileSystem

from wink_workspace.errors import (
    FilesystemError,
    InvalidPathError,
    LimitExceededError,
    LinkError,
    MountError,
    ReadOnlyError,
    UsageError,
)
from wink_workspace.filesystem import (
    FilesystemLimits,
    HostMount,
    MemoryFilesystem,
    UrlMount,
    WorkspacePath,
)
from wink_workspace.filesystem.mounts import HostTree
from wink_workspace.testing.filesystem_contract import MUTATORS


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host directory with files of several kinds, and a secret file beside it."""
    root = tmp_path / "host"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "a.py").write_text("import os\n")
    (root / "src" / "deep" / "b.py").write_bytes(b"x\r\n")
    (root / "image.png").write_bytes(b"\x89PNG\0\xff")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (tmp_path / "secret.txt").write_text("secret")
    return root


@pytest.fixture
def remote() -> Iterator[str]:
    """The URL of a tree in fsspec's own memory filesystem."""
    files = fsspec.filesystem("memory")
    files.pipe({"/mounted/a.txt": b"a\n", "/mounted/d/b.txt": b"b\n", "/mounted/d/c.bin": b"\0"})
    files.mkdir("/mounted/void")
    yield "memory://mounted"
    files.rm("/mounted", recursive=True)


def paths(files: MemoryFilesystem, path: str = ".") -> list[str]:
    return [str(entry.path) for entry in files.walk(path)]


# Host directories


@pytest.mark.behaviour(52)
def test_host_directory_is_copied_with_bits_links_and_empty_directories(host: Path) -> None:
    (host / "link").symlink_to("src/a.py")
    (host / os.fsdecode(b"caf\xe9")).write_bytes(b"latin")
    files = MemoryFilesystem(mounts=[HostMount(host, at="repo")])
    assert files.read_bytes("repo/src/deep/b.py") == b"x\r\n"
    assert files.read_bytes("repo/link") == b"import os\n"
    assert files.stat("repo/run.sh").executable
    assert not files.stat("repo/src/a.py").executable
    assert files.list("repo/empty") == ()
    assert files.read_bytes(WorkspacePath(("repo", "caf\udce9"))) == b"latin"
    report = files.mount_reports[0]
    assert (str(report.at), report.n_files, report.n_bytes) == ("repo", 5, 10 + 3 + 6 + 10 + 5)
    assert report.source == str(host)


def test_host_directory_is_a_copy(host: Path) -> None:
    files = MemoryFilesystem(mounts=[HostMount(host)])
    files.write_text("src/a.py", "changed")
    (host / "run.sh").write_text("changed")
    assert (host / "src" / "a.py").read_text() == "import os\n"
    assert files.read_bytes("run.sh") == b"#!/bin/sh\n"


@pytest.mark.behaviour(42)
@pytest.mark.behaviour(52)
def test_links_on_the_host_are_not_followed_out(host: Path, tmp_path: Path) -> None:
    (host / "absolute").symlink_to(tmp_path / "secret.txt")
    (host / "relative").symlink_to("../secret.txt")
    (host / "directory").symlink_to("..")
    (host / "loop").symlink_to("loop")
    files = MemoryFilesystem(mounts=[HostMount(host)])
    assert "secret.txt" not in paths(files)
    assert files.grep("secret").matches == ()
    for path in ("absolute", "relative", "directory/secret.txt", "loop"):
        with pytest.raises(LinkError):
            files.read_bytes(path)
    assert files.stat("relative", follow=False).target == "../secret.txt"


@pytest.mark.behaviour(52)
def test_directory_swapped_for_a_link_is_not_entered(host: Path, tmp_path: Path) -> None:
    tree = HostTree(host)
    secret = tmp_path / "outside"
    secret.mkdir()
    (secret / "a.py").write_text("secret")
    assert tree.names(WorkspacePath(("src",))) == ["a.py", "deep"]
    (host / "src").rename(host / "was")
    (host / "src").symlink_to(secret)
    for call in (tree.names, tree.stat, tree.open):
        with pytest.raises(OSError, match=r"directory|symbolic"):
            call(WorkspacePath(("src", "a.py")))
    with pytest.raises(OSError, match=r"directory|symbolic"):
        tree.names(WorkspacePath(("src",)))


@pytest.mark.behaviour(52)
def test_file_swapped_for_a_link_or_a_pipe_is_not_opened(host: Path) -> None:
    tree = HostTree(host)
    (host / "link").symlink_to("run.sh")
    os.mkfifo(host / "pipe")
    for name in ("link", "pipe", "empty"):
        with pytest.raises(OSError, match=r"No such device|directory|symbolic"):
            tree.open(WorkspacePath((name,)))


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["*.py"], [], "src src/a.py src/deep src/deep/b.py"),
        (["src/*.py"], [], "src src/a.py"),
        (["src"], ["deep/"], "src src/a.py"),
        (["deep"], [], "src src/deep src/deep/b.py"),
        ([], ["*.py", "*.png", "empty"], "run.sh src src/deep"),
        ([], ["src/**", "*.png"], "empty run.sh src"),
        (["*.py"], ["**/deep"], "src src/a.py"),
        (["nothing"], [], ""),
    ],
)
def test_globs_select_the_mounted_files(
    host: Path, include: list[str], exclude: list[str], expected: str
) -> None:
    files = MemoryFilesystem(mounts=[HostMount(host, include=include, exclude=exclude)])
    assert paths(files) == expected.split()


@pytest.mark.behaviour(46)
@pytest.mark.behaviour(52)
def test_host_mount_over_budget_is_refused_with_the_limit_and_the_value(host: Path) -> None:
    with pytest.raises(MountError, match=r"29 or more bytes .* at most 28 allowed") as caught:
        HostMount(host, max_bytes=28).load()
    assert caught.value.hint
    assert HostMount(host, max_bytes=29).load().report.n_bytes == 29
    with pytest.raises(MountError, match=r"7 or more files .* at most 6 allowed"):
        HostMount(host, max_files=6).load()
    assert HostMount(host, max_files=7).load().report.n_files == 4


@pytest.mark.behaviour(52)
def test_file_longer_than_its_stated_size_is_refused_at_the_limit() -> None:
    """Files in /proc state a size of 0 but have content."""
    with pytest.raises(MountError, match="at most 1 allowed"):
        HostMount("/proc/self", include=["cmdline"], exclude=["*/"], max_bytes=1).load()


@pytest.mark.behaviour(52)
@pytest.mark.parametrize("path", ["missing", "host/run.sh", "host/run.sh/x"])
def test_host_path_that_is_missing_or_not_a_directory_is_refused(host: Path, path: str) -> None:
    with pytest.raises(MountError, match=path) as caught:
        MemoryFilesystem(mounts=[HostMount(host.parent / path)])
    assert caught.value.hint


@pytest.mark.behaviour(52)
def test_host_path_outside_the_allowed_roots_is_refused(host: Path, tmp_path: Path) -> None:
    allowed = [tmp_path / "host" / "src", tmp_path / "ho"]
    (host / "src" / "out").symlink_to(tmp_path)
    for outside in (host, tmp_path, "/", host / "src" / "..", host / "src" / "out"):
        with pytest.raises(MountError, match="outside"):
            HostMount(outside, allowed_roots=allowed).load()
    with pytest.raises(MountError, match="outside"):
        HostMount(host, allowed_roots=[]).load()
    assert HostMount(host / "src" / "deep", allowed_roots=allowed).load().report.n_files == 1
    assert HostMount(host / "src", allowed_roots=["/"], exclude=["out"]).load().report.n_files == 2


@pytest.mark.behaviour(52)
def test_special_files_are_listed_and_do_not_break_the_mount(host: Path) -> None:
    os.mkfifo(host / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(host / "socket"))
        files = MemoryFilesystem(mounts=[HostMount(host)])
    skipped = {str(skip.path): skip.reason for skip in files.mount_reports[0].skipped}
    assert sorted(skipped) == ["pipe", "socket"]
    assert "neither a file" in skipped["pipe"]
    assert files.read_bytes("image.png") == b"\x89PNG\0\xff"


@pytest.mark.behaviour(52)
def test_unreadable_file_and_directory_are_listed_and_do_not_break_the_mount() -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        root.chmod(0o755)
        for name in ("closed", "open"):
            (root / name).write_text(name)
            (root / f"{name}.d").mkdir()
        (root / "closed").chmod(0)
        (root / "closed.d").chmod(0)
        user = os.geteuid()
        os.seteuid(user or 65_534)
        try:
            mounted = HostMount(root).load()
        finally:
            os.seteuid(user)
    skipped = {str(skip.path): skip.reason for skip in mounted.report.skipped}
    assert skipped == dict.fromkeys(["closed", "closed.d"], "Permission denied")
    assert mounted.report.n_files == 1


def test_tree_that_is_too_deep_is_left_out_at_the_limit(host: Path) -> None:
    deep = host.joinpath(*"a" * 63)
    deep.mkdir(parents=True)
    (deep / "kept").write_text("x")
    files = MemoryFilesystem(mounts=[HostMount(host)])
    assert files.read_bytes("/".join("a" * 63) + "/kept") == b"x"
    lower = MemoryFilesystem(mounts=[HostMount(host, at="one/level")])
    assert "64 segments" in lower.mount_reports[0].skipped[0].reason


def test_mounts_and_files_join_and_nothing_is_replaced(host: Path) -> None:
    mounts = [HostMount(host / "src", at="lib"), HostMount(host / "empty", at="lib/deep")]
    files = MemoryFilesystem({"lib/deep/new.py": "new"}, mounts=mounts)
    assert paths(files) == ["lib", "lib/a.py", "lib/deep", "lib/deep/b.py", "lib/deep/new.py"]
    with pytest.raises(MountError, match=r"lib/a\.py"):
        MemoryFilesystem(mounts=[HostMount(host / "src", at="lib")] * 2)
    with pytest.raises(InvalidPathError):
        HostMount(host, at="../out").load()


# URLs


def test_url_is_read_when_it_is_needed_and_never_written(remote: str) -> None:
    source = fsspec.filesystem("memory")
    files = MemoryFilesystem(mounts=[UrlMount(remote, "far", mode="copy-on-write")])
    source.pipe("/mounted/late.txt", b"late\n")
    assert paths(files, "far") == [
        "far/a.txt",
        "far/d",
        "far/d/b.txt",
        "far/d/c.bin",
        "far/late.txt",
        "far/void",
    ]
    assert [str(match.path) for match in files.grep("a|b").matches] == [
        "far/a.txt",
        "far/d/b.txt",
        "far/late.txt",
    ]
    files.edit("far/d/b.txt", "b", "B")
    files.write_text("far/new.txt", "new")
    files.delete("far/a.txt")
    files.move("far", "moved")
    assert files.read_bytes("moved/d/b.txt") == b"B\n"
    assert source.cat("/mounted/d/b.txt") == b"b\n"
    assert source.exists("/mounted/a.txt")
    assert not source.exists("/mounted/new.txt")


def test_remote_file_stays_as_it_was_first_read(remote: str) -> None:
    files = MemoryFilesystem(mounts=[UrlMount(remote, "far", mode="copy-on-write")])
    assert files.read_text("far/a.txt").lines == ("a",)
    fsspec.filesystem("memory").pipe("/mounted/a.txt", b"changed\n")
    assert files.edit("far/a.txt", "a", "b").n_replaced == 1
    assert files.read_bytes("far/a.txt") == b"b\n"


def test_snapshot_and_changes_span_url_mounts(remote: str) -> None:
    files = MemoryFilesystem(mounts=[UrlMount(remote, "far", mode="copy-on-write")])
    token, fingerprint = files.snapshot(), files.fingerprint()
    files.write_text("far/a.txt", "changed\n")
    assert "-a\n+changed" in files.diff(token)
    assert files.fingerprint() != fingerprint
    files.restore(token)
    assert files.read_bytes("far/a.txt") == b"a\n"
    assert files.fingerprint() == fingerprint


@pytest.mark.behaviour(53)
def test_read_only_mount_refuses_every_change_before_and_after_a_restore(remote: str) -> None:
    mount = UrlMount(remote, "data/far")
    files = MemoryFilesystem({"file.txt": "text\n"}, mounts=[mount])
    token = files.snapshot()
    files.write_text("data/other", "free")
    for _ in range(2):
        for name, call in MUTATORS.items():
            target = (
                "data/far/new"
                if name in ("create", "move to", "mkdir", "symlink")
                else "data/far/a.txt"
            )
            with pytest.raises(ReadOnlyError):
                call(files, target)
        for path in ("data", "data/far"):
            with pytest.raises(ReadOnlyError):
                files.delete(path, recursive=True)
            with pytest.raises(ReadOnlyError):
                files.move(path, "elsewhere")
        assert files.read_bytes("data/far/a.txt") == b"a\n"
        files.restore(token)


def test_single_file_and_archive_can_be_mounted(remote: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("top/inner.txt", "zipped\n")
    mounts = [
        UrlMount(f"{remote}/a.txt", "one.txt"),
        UrlMount(f"zip://::file://{tmp_path}/a.zip", "zip"),
    ]
    files = MemoryFilesystem(mounts=mounts)
    assert files.read_bytes("one.txt") == b"a\n"
    assert files.read_text("zip/top/inner.txt").lines == ("zipped",)
    with pytest.raises(MountError, match="root"):
        MemoryFilesystem(mounts=[UrlMount(f"{remote}/a.txt", ".")])
    with pytest.raises(MountError, match="not empty"):
        MemoryFilesystem(mounts=[mounts[0], UrlMount(remote, ".")])
    assert paths(MemoryFilesystem(mounts=[UrlMount(remote, ".")]))[0] == "a.txt"


@pytest.mark.behaviour(42)
def test_links_in_a_local_url_are_links_and_not_followed_out(host: Path, tmp_path: Path) -> None:
    (host / "out").symlink_to(tmp_path)
    (host / "secret").symlink_to(tmp_path / "secret.txt")
    (host / "in").symlink_to("src/a.py")
    os.mkfifo(host / "pipe")
    files = MemoryFilesystem(mounts=[UrlMount(f"file://{host}", "far")])
    assert files.read_bytes("far/in") == b"import os\n"
    assert files.stat("far/run.sh").executable
    assert files.fingerprint("far/src/a.py") != files.fingerprint("far/run.sh")
    for path in ("far/secret", "far/out/secret.txt"):
        with pytest.raises(LinkError):
            files.read_bytes(path)
    assert not files.exists("far/pipe")


@pytest.mark.behaviour(42)
def test_file_of_a_local_url_swapped_for_a_link_is_not_read(host: Path, tmp_path: Path) -> None:
    files = MemoryFilesystem(mounts=[UrlMount(f"file://{host}", "far")])
    assert files.stat("far/src/a.py").size_bytes == 10
    (host / "src" / "a.py").unlink()
    (host / "src" / "a.py").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(MountError, match=r"a\.py"):
        files.read_bytes("far/src/a.py")
    (host / "src" / "deep").rename(host / "was")
    (host / "src" / "deep").symlink_to(tmp_path)
    with pytest.raises(MountError, match="deep"):
        files.list("far/src/deep")


@pytest.mark.behaviour(52)
def test_url_that_cannot_be_opened_is_refused_without_its_password() -> None:
    for url in ("memory://no/such", "nosuch://me:hunter2@host/x", "file:///no/such/place"):
        with pytest.raises(MountError, match="cannot mount") as caught:
            MemoryFilesystem(mounts=[UrlMount(url, "far")])
        assert "hunter2" not in str(caught.value)
        assert caught.value.hint


def test_url_that_fails_later_raises_an_error_with_the_path(remote: str) -> None:
    files = MemoryFilesystem(mounts=[UrlMount(remote, "far")])
    assert len(files.list("far")) == 3
    fsspec.filesystem("memory").rm("/mounted/a.txt")
    with pytest.raises(FilesystemError, match=r"cannot read /mounted/a\.txt"):
        files.read_bytes("far/a.txt")
    assert files.grep("x").n_unreadable == 1


def test_limits_apply_to_mounted_files(remote: str) -> None:
    limits = FilesystemLimits(write_bytes=1)
    files = MemoryFilesystem(mounts=[UrlMount(remote, "far", mode="copy-on-write")], limits=limits)
    with pytest.raises(LimitExceededError, match=r"2 bytes.*at most 1"):
        files.edit("far/a.txt", "a", "b")
    files.set_executable("far/a.txt", True)
    assert files.stat("far/a.txt").executable
    assert files.read_bytes("far/a.txt") == b"a\n"


class OddRemote(AbstractFileSystem):
    """A remote with quirks of real ones: it lists the directory itself, omits sizes, has links."""

    protocol = "odd"
    cachable = False

    def info(self, path: str, **_: object) -> dict[str, object]:
        return {"name": path, "size": 0, "type": "directory"}

    def ls(self, path: str, detail: bool = True, **_: object) -> list[dict[str, object]]:
        if path != "top":
            raise RuntimeError("the server is on fire")
        return [
            {"name": "top/", "size": 0, "type": "directory"},
            {"name": "top/unsized", "size": None, "type": "file"},
            {"name": "top/link", "size": 7, "type": "link", "destination": "unsized"},
            {"name": "top/..", "size": 0, "type": "directory"},
            {"name": "top/" + "x" * 300, "size": 0, "type": "file"},
            {"name": "top/burning", "size": 0, "type": "directory"},
        ]

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: object
    ) -> bytes:
        return b"content"


@pytest.fixture
def odd_remote() -> str:
    fsspec.register_implementation("odd", OddRemote, clobber=True)
    return "odd://top"


def test_odd_listing_of_a_remote_shows_the_usable_entries(odd_remote: str) -> None:
    files = MemoryFilesystem(mounts=[UrlMount(odd_remote, "far")])
    assert paths(files, "far") == ["far/burning", "far/link", "far/unsized"]
    assert files.read_bytes("far/link") == b"content"
    with pytest.raises(MountError, match="on fire"):
        files.list("far/burning")


def test_unknown_mode_of_a_mount_is_refused() -> None:
    with pytest.raises(UsageError, match="readonly"):
        UrlMount("memory://x", "x", mode="readonly")
