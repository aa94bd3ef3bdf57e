"""Excluded and derived paths of a copy: present for programs, and not part of the history."""

from __future__ import annotations

import errno
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_sandbox import FakeConfig, registered
from workspace_rig import Call, assert_fsck_clean, calls, doing, folder, made, reopened, storage
from workspace_support import git

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.clock import ManualClock
from wink_workspace.errors import ConflictError, LedgerBusyError, SourceTooLargeError, UsageError
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.ledger import CallTimes, EntryKind, Ledger, walk
from wink_workspace.sandbox import ExecRequest
from wink_workspace.workspace import ImportConfig, Workspace, WorkspaceConfig
from wink_workspace.workspace.files import derived_paths

SECRET = b"TOKEN=keep-me-out-of-the-history\n"
PROJECT = {
    "src/app.py": b"print('hi')\n",
    "README.md": b"# App\n",
    "node_modules/left-pad/index.js": b"module.exports = 1\n",
    "packages/a/node_modules/b/index.js": b"2\n",
    ".venv/bin/python": b"#!/bin/sh\n",
    "src/__pycache__/app.pyc": b"\0",
    ".env": SECRET,
    ".env.example": b"TOKEN=\n",
    "keys/server.pem": b"-----BEGIN PRIVATE KEY-----\n",
}
RECORDED = {"src/app.py", "README.md", ".env.example"}


@pytest.fixture(params=["copy", "overlay"])
def form(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each form of a workspace that is not in place."""
    name: str = request.param
    support = overlay_support(tmp_path)
    if name == "overlay" and not support.available:
        pytest.skip(support.reason)
    return name


def config(**options: Any) -> WorkspaceConfig:
    return WorkspaceConfig(imported=ImportConfig(**options))


def recorded(directory: Path, branch: str = "main") -> set[str]:
    """The files of the newest entry, as the history has them."""
    with Ledger(folder(directory).ledger) as ledger:
        head = ledger.branch(branch).head
        assert head is not None
        return {str(path) for path, entry in walk(ledger.store, head.files) if entry.kind == "file"}


def history_has(directory: Path, content: bytes) -> bool:
    """Whether any object of the ledger, reachable or not, contains *content*."""
    objects = subprocess.run(
        ["git", "-C", folder(directory).ledger, "cat-file", "--batch-all-objects", "--batch"],
        capture_output=True,
        check=True,
    )
    return content in objects.stdout


@pytest.mark.behaviour(91)
def test_derived_paths_are_in_the_copy_and_not_in_the_history(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT) as workspace:
        for name, content in PROJECT.items():
            assert workspace.files.read_bytes(name) == content
        assert workspace.diff() == ""
    assert recorded(tmp_path) == RECORDED
    assert not history_has(tmp_path, SECRET.strip())
    assert_fsck_clean(folder(tmp_path).ledger)


@pytest.mark.behaviour(92)
def test_excluded_paths_are_not_copied_and_not_read_as_deleted(tmp_path: Path) -> None:
    files = {**PROJECT, "data/huge.bin": b"x" * 100, "a/b/clip.mp4": b"video"}
    with made(tmp_path, files, config=config(exclude=("/data", "*.mp4"))) as workspace:
        assert not workspace.files.exists("data")
        assert not workspace.files.exists("a/b/clip.mp4")
        assert workspace.diff() == ""
        with workspace.call("edit") as call:
            call.files.write_text("README.md", "# New\n")
        assert workspace.apply().paths == ("README.md",)
        assert workspace.sync() is None
    assert (tmp_path / "source/data/huge.bin").read_bytes() == b"x" * 100
    assert (tmp_path / "source/a/b/clip.mp4").read_bytes() == b"video"


@pytest.mark.parametrize("pattern", ["", "!a", "#a", "/", "*", "**"])
def test_pattern_that_matches_nothing_or_everything_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="exclude"):
        ImportConfig(exclude=(pattern,))


def test_calls_that_write_derived_paths_commit_without_them(tmp_path: Path) -> None:
    def install() -> None:
        root = folder(tmp_path).files
        (root / "node_modules/new").mkdir()
        (root / "node_modules/new/index.js").write_bytes(b"new")
        (root / "tools/node_modules").mkdir(parents=True)
        (root / "tools/run.py").write_bytes(b"1\n")
        (root / ".env.local").write_bytes(SECRET)

    with made(tmp_path, PROJECT) as workspace, calls(workspace, doing(install)) as call:
        assert call("act").result.success
        assert call("write_file", file_path=".env.test", content="SECRET=1").result.success
        assert recorded(tmp_path) == {*RECORDED, "tools/run.py"}
        assert [str(change.path) for change in workspace.changeset().reported] == ["tools/run.py"]
    assert not history_has(tmp_path, SECRET.strip())
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_bytes("node_modules/new/index.js") == b"new"
        assert len(list(workspace.log())) == 3


@pytest.mark.behaviour(91)
def test_rules_stay_as_they_were_at_new_whatever_a_call_writes(tmp_path: Path) -> None:
    files = {"src/app.py": b"1\n", "dist/app.js": b"content\n"}
    with made(tmp_path, files) as workspace:
        with workspace.call("ignore") as call:
            call.files.write_text(".gitignore", "dist/\nsrc/\n")
            call.files.write_text("src/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55")
        with workspace.call("build") as call:
            call.files.write_text("dist/app.js", "changed\n")
            call.files.write_text("src/app.py", "2\n")
    with reopened(tmp_path) as workspace:
        names = {str(change.path) for change in workspace.changeset().reported}
        assert {"dist/app.js", "src/app.py"} <= names


def test_ignored_build_directories_and_tagged_caches_are_derived(tmp_path: Path) -> None:
    files = {
        ".gitignore": b"build/\n/dist\n",
        "build/out.o": b"1",
        "lib/build/out.o": b"2",
        "dist/app.js": b"3",
        "lib/dist/app.js": b"content",
        "target/x": b"content: not ignored",
        "cache/CACHEDIR.TAG": b"Signature: 8a477f597d28d172789f06886806bc55\n",
        "cache/x": b"4",
        "fake/CACHEDIR.TAG": b"something else",
    }
    with made(tmp_path, files) as workspace:
        assert workspace.files.read_bytes("lib/build/out.o") == b"2"
        workspace.files.write_text("later/build/x", "derived: ignored at any depth")
    expected = {".gitignore", "lib/dist/app.js", "target/x", "fake/CACHEDIR.TAG"}
    assert recorded(tmp_path) == expected


@pytest.mark.behaviour(91)
def test_what_git_tracks_is_content_whatever_its_name(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name, content in {
        "dist/app.js": b"1",
        "dist/__pycache__/x.pyc": b"2",
        "certs/test.pem": b"3",
        "certs/own.pem": b"4",
        ".gitignore": b"dist/\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    git(source, "init", "-q")
    git(source, "add", "-f", "dist/app.js", "certs/test.pem", ".gitignore")
    with made(tmp_path) as workspace, workspace.call("edit") as call:
        call.files.write_text("dist/new.js", "5")
    assert recorded(tmp_path) == {"dist/app.js", "dist/new.js", "certs/test.pem", ".gitignore"}


def test_what_a_submodule_or_a_nested_repository_tracks_is_content(tmp_path: Path) -> None:
    source, library = tmp_path / "source", tmp_path / "library"
    for repository in (library, source / "nested"):
        (repository / "certs").mkdir(parents=True)
        (repository / "certs/test.pem").write_bytes(b"1")
        git(repository, "init", "-q")
        git(repository, "add", ".")
        git(repository, "commit", "-qm", "1")
        (repository / "certs/own.pem").write_bytes(b"2")
    git(source, "init", "-q")
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "sub")
    (source / "sub/certs/own.pem").write_bytes(b"3")
    made(tmp_path).close()
    found = {name for name in recorded(tmp_path) if name.endswith(".pem")}
    assert found == {"nested/certs/test.pem", "sub/certs/test.pem"}


def test_without_a_proposal_only_the_given_paths_are_derived(tmp_path: Path) -> None:
    options = {"propose_derived": False, "derived": ("/src/gen",)}
    files = {**PROJECT, "src/gen/x.py": b"1"}
    with made(tmp_path, files, config=config(**options)) as workspace:
        assert workspace.files.read_bytes("src/gen/x.py") == b"1"
    assert recorded(tmp_path) == set(PROJECT)


@pytest.mark.behaviour(93)
def test_source_over_a_limit_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    files = {**PROJECT, "data/raw/big.bin": b"x" * 50_000, "data/small": b"y" * 100}
    with pytest.raises(SourceTooLargeError, match=r"data/raw/big\.bin \(49 KiB\)") as refused:
        made(tmp_path, files, config=config(most_bytes=10_000))
    assert all(flag in (refused.value.hint or "") for flag in ("--exclude", "--derived"))
    with pytest.raises(SourceTooLargeError, match=r"more than 2 files.*src \(1 file\)"):
        made(tmp_path, files, config=config(most_files=2))
    assert list(storage(tmp_path).all()) == []
    made(tmp_path, files, config=config(most_bytes=10_000, derived=("data",))).close()


def test_cache_directory_with_a_special_name_is_derived_and_its_neighbour_is_not(
    tmp_path: Path,
) -> None:
    names = ("cache ", "c*", "[a]", "new\nline", "back\\slash", "!a", "#a", "-")
    tag = b"Signature: 8a477f597d28d172789f06886806bc55"
    files = {f"{name}/CACHEDIR.TAG": tag for name in names}
    content = {f"{name}/x": b"1" for name in ("cache", "cc", "a", "back")}
    with made(tmp_path, files | content) as workspace:
        assert {str(path) for path in workspace.derived_paths()} == set(names)
    assert recorded(tmp_path) == content.keys()


# Rollback and recovery


def failing_install(root: Path) -> Any:
    def install() -> None:
        (root / "node_modules/half").mkdir()
        (root / "node_modules/half/index.js").write_bytes(b"half")
        (root / ".env").write_bytes(b"TOKEN=stolen\n")
        (root / "src/app.py").write_bytes(b"broken")

    return install


def test_rollback_drops_what_the_call_added_and_restores_small_secrets(tmp_path: Path) -> None:
    large = {**PROJECT, "node_modules/large.js": b"x" * 2_000_000}
    with made(tmp_path, large) as workspace, calls(workspace) as call:
        root = folder(tmp_path).files
        with pytest.raises(RuntimeError), workspace.call("install") as doing_it:
            failing_install(root)()
            doing_it.files.write_text(".env.local", "X=1")
            raise RuntimeError("no")
        assert call("read_file", file_path="src/app.py").result.success
        assert (root / "src/app.py").read_bytes() == PROJECT["src/app.py"]
        assert not (root / "node_modules/half").exists()
        assert not (root / ".env.local").exists()
        assert (root / ".env").read_bytes() == SECRET
        assert (root / "node_modules/large.js").stat().st_size == 2_000_000
        assert (root / "node_modules/left-pad/index.js").exists()
        entry = next(entry for entry in workspace.log() if entry.tool == "install")
        notes = " ".join(workspace.record(entry).data["notes"])
        assert "node_modules/half" in notes
        assert "restored from the last checkpoint: .env" in notes
    assert not history_has(tmp_path, b"stolen")


@pytest.mark.parametrize("outer_fails", [False, True])
def test_failed_call_inside_another_restores_derived_paths_as_they_were_when_it_began(
    tmp_path: Path, *, outer_fails: bool, form: str
) -> None:
    with made(tmp_path, PROJECT, mode=form) as workspace:
        files = workspace.files
        with suppress(RuntimeError), workspace.call("outer"):
            with pytest.raises(RuntimeError), workspace.call("first"):
                files.write_text(".env", "first")
                raise RuntimeError("no")
            assert files.read_bytes(".env") == SECRET
            files.write_text(".env", "outer")
            files.write_text("node_modules/outer.js", "outer")
            files.delete("keys/server.pem")
            with workspace.call("middle"):
                files.write_text(".env.middle", "middle")
                with pytest.raises(RuntimeError), workspace.call("inner"):
                    files.write_text(".env", "inner")
                    files.write_text(".env.middle", "inner")
                    files.write_text(".env.inner", "inner")
                    files.write_text("keys/other.pem", "inner")
                    files.delete("node_modules", recursive=True)
                    raise RuntimeError("no")
            assert files.read_text(".env").lines == ("outer",)
            assert files.read_text(".env.middle").lines == ("middle",)
            assert files.read_text("node_modules/outer.js").lines == ("outer",)
            assert files.read_bytes("node_modules/left-pad/index.js") == b"module.exports = 1\n"
            assert not any(map(files.exists, (".env.inner", "keys/server.pem", "keys/other.pem")))
            if outer_fails:
                raise RuntimeError("no")
        assert files.read_bytes(".env") == (SECRET if outer_fails else b"outer")
        assert files.exists("keys/server.pem") is outer_fails
        assert files.exists(".env.middle") is not outer_fails
    assert not list(folder(tmp_path).path.rglob("*.inside-*"))


def test_failed_edit_without_a_derived_change_looks_at_no_derived_path(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT) as workspace:

        def write() -> None:
            workspace.files.write_text(".env.local", "X=1")

        writing = doing(write, fails=True)
        with calls(workspace, writing) as call:
            check_looks(workspace, call)


def check_looks(workspace: Workspace, call: Call) -> None:
    derived = workspace._opened.derived
    assert derived is not None
    arguments = {"file_path": "src/app.py", "old_string": "nowhere", "new_string": "x"}
    assert call("read_file", file_path="src/app.py").result.success
    assert not call("edit_file", **arguments).result.success
    assert derived.n_visited == 0
    assert not call("act").result.success
    assert derived.n_visited > 0


def test_restoring_rollback_restores_what_the_call_deleted_and_changed(tmp_path: Path) -> None:
    large = {**PROJECT, "node_modules/large.js": b"x" * 2_000_000}
    with made(tmp_path, large, config=config(on_rollback="restore")) as workspace:
        root = folder(tmp_path).files
        with pytest.raises(RuntimeError), workspace.call("break") as call:
            call.files.write_text("node_modules/large.js", "short")
            call.files.delete("node_modules/left-pad", recursive=True)
            call.files.delete(".venv", recursive=True)
            call.files.write_text("node_modules/extra.js", "x")
            raise RuntimeError("no")
        assert (root / "node_modules/large.js").stat().st_size == 2_000_000
        for name, content in PROJECT.items():
            assert (root / name).read_bytes() == content
        assert not (root / "node_modules/extra.js").exists()


@pytest.mark.behaviour(94)
def test_rollback_keeps_what_the_call_before_it_wrote_a_moment_ago(tmp_path: Path) -> None:
    """Kernels before Linux 6.13, and most files since, have change times of some milliseconds."""
    with made(tmp_path, PROJECT) as workspace:
        for n in range(40):
            with workspace.call("login") as call:
                call.files.write_text(f".env.{n}", "TOKEN=1")
            with pytest.raises(RuntimeError), workspace.call("fail") as call:
                call.files.write_text(".env.other", "TOKEN=2")
                raise RuntimeError("no")
            assert workspace.files.exists(f".env.{n}")
            assert not workspace.files.exists(".env.other")


def test_files_from_before_the_clock_was_set_back_belong_to_no_call() -> None:
    times = CallTimes(since_ns=1_000, until_ns=2_000)
    assert [times.include(changed_ns) for changed_ns in (999, 1_000, 2_000, 2_001)] == [
        False,
        True,
        True,
        False,
    ]
    set_back_during_the_call = CallTimes(since_ns=1_000, until_ns=500)
    assert not set_back_during_the_call.include(999)
    assert set_back_during_the_call.include(1_001)
    set_back_before_the_call = CallTimes(since_ns=1_000, until_ns=2_000, earlier_ns=1_500)
    assert [set_back_before_the_call.include(changed_ns) for changed_ns in (1_500, 1_501)] == [
        False,
        True,
    ]
    assert not CallTimes(since_ns=1_000, until_ns=1_100, earlier_ns=1_500).include(1_050)


def test_rollback_after_the_clock_was_set_back_keeps_what_an_earlier_call_wrote_or_deleted(
    tmp_path: Path,
) -> None:
    with made(tmp_path, PROJECT) as workspace:
        with workspace.call("login") as call:
            call.files.write_text(".env.local", "TOKEN=1")
            call.files.write_text("node_modules/new/index.js", "1")
            call.files.delete("keys/server.pem")
        with pytest.raises(RuntimeError), workspace.call("fail") as call:
            call.files.write_text(".env.other", "TOKEN=2")
            [mark] = folder(tmp_path).ledger.rglob("main/pending")
            an_hour_ago = set_back(mark)
            raise RuntimeError("no")
        root = folder(tmp_path).files
        assert (root / ".env.local").stat().st_ctime_ns > an_hour_ago
        assert (root / ".env.local").read_text() == "TOKEN=1"
        assert (root / "node_modules/new/index.js").read_text() == "1"
        assert not (root / "keys/server.pem").exists()
        assert not (root / ".env.other").exists()
        entry = next(entry for entry in workspace.log() if entry.tool == "fail")
        assert "clock was set back" in " ".join(workspace.record(entry).data["notes"])


def set_back(mark: Path) -> int:
    """Let the running call have begun an hour ago, before the end of the last one; that time."""
    status = mark.stat()
    an_hour_ago = status.st_mtime_ns - 3_600_000_000_000
    os.utime(mark, ns=(status.st_atime_ns, an_hour_ago))
    return an_hour_ago


def test_rollback_restores_the_secrets_of_a_directory_that_the_call_deleted_or_moved(
    tmp_path: Path,
) -> None:
    files = {"service/app.py": b"1\n", "service/.env": SECRET}
    with made(tmp_path, files) as workspace:
        with pytest.raises(RuntimeError), workspace.call("delete") as call:
            call.files.delete("service", recursive=True)
            raise RuntimeError("no")
        assert workspace.files.read_bytes("service/.env") == SECRET
        with pytest.raises(RuntimeError), workspace.call("move") as call:
            call.files.move("service", "server")
            raise RuntimeError("no")
        assert workspace.files.read_bytes("service/.env") == SECRET
        assert not workspace.files.exists("server")
    assert not history_has(tmp_path, SECRET.strip())


def test_rollback_keeps_a_file_that_took_the_place_of_a_directory_with_derived_paths(
    tmp_path: Path, form: str
) -> None:
    files = {"pkg/code.py": b"1\n", "pkg/node_modules/x.js": b"x\n", ".env": SECRET}
    with made(tmp_path, files, mode=form) as workspace:
        with workspace.call("replace") as call:
            call.files.delete("pkg", recursive=True)
            call.files.write_text("pkg", "precious\n")
        with pytest.raises(RuntimeError), workspace.call("break") as call:
            call.files.write_text("pkg", "broken\n")
            call.files.write_text(".env", "TOKEN=2\n")
            raise RuntimeError("no")
        assert workspace.files.read_bytes("pkg") == b"precious\n"
        assert workspace.files.read_bytes(".env") == SECRET


def test_rollback_restores_a_secret_that_became_a_directory(tmp_path: Path, form: str) -> None:
    with made(tmp_path, {".env": SECRET, "a": b"a"}, mode=form) as workspace:
        with pytest.raises(RuntimeError), workspace.call("break") as call:
            call.files.delete(".env")
            call.files.write_text(".env/deep/x", "y")
            raise RuntimeError("no")
        assert workspace.files.read_bytes(".env") == SECRET
        notes = " ".join(workspace.record(next(workspace.log())).data["notes"])
        assert "restored from the last checkpoint: .env" in notes


def test_rollback_on_a_full_disk_deletes_discards_and_restores_whole_files(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {".env": SECRET, ".npmrc": SECRET, "server.key": b"KEY\n", "a": b"a"}
    real = derived_paths.copy_content
    n_refused = 0

    with made(tmp_path, files, mode=form) as workspace:
        state = folder(tmp_path).path

        def copy_content(source: int, target: int) -> None:
            nonlocal n_refused
            if os.fstat(source).st_size == len(SECRET) and list(state.rglob("held/0")):
                n_refused += 1
                os.write(target, SECRET[:5])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(source, target)

        monkeypatch.setattr(derived_paths, "copy_content", copy_content)
        with pytest.raises(RuntimeError), workspace.call("build") as call:
            for name in files:
                call.files.delete(name)
            call.files.write_text("big", "x" * 10_000)
            raise RuntimeError("no")
        assert n_refused == 2  # the second one was tried, too
        for name, content in files.items():
            assert workspace.files.read_bytes(name) == content
        notes = " ".join(workspace.record(next(workspace.log())).data["notes"])
        assert ".env, .npmrc, server.key" in notes
        assert "the disk is full" in notes


def test_derived_file_that_cannot_be_restored_is_not_left_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_content(source: int, target: int) -> None:
        os.write(target, os.read(source, 5))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with made(tmp_path, {".env": SECRET, "a": b"a"}) as workspace:
        monkeypatch.setattr(derived_paths, "copy_content", copy_content)
        with pytest.raises(RuntimeError), workspace.call("break") as call:
            call.files.write_text(".env", "TOKEN=2\n")
            raise RuntimeError("no")
        assert not workspace.files.exists(".env")
        notes = " ".join(workspace.record(next(workspace.log())).data["notes"])
        assert "could not be rolled back" in notes


def test_checkpoint_is_what_later_rollbacks_restore(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT, config=config(on_rollback="restore")) as workspace:
        with workspace.call("install") as call:
            call.files.write_text("node_modules/new.js", "installed")
            call.files.delete("keys", recursive=True)
        assert "node_modules" in map(str, workspace.checkpoint())
        with pytest.raises(RuntimeError), workspace.call("break") as call:
            call.files.write_text("node_modules/new.js", "broken")
            call.files.write_text(".env", "broken")
            raise RuntimeError("no")
        assert workspace.files.read_bytes("node_modules/new.js") == b"installed"
        assert workspace.files.read_bytes(".env") == SECRET
        assert not workspace.files.exists("keys")


def test_rollback_restores_the_derived_files_as_the_last_committed_call_left_them(
    tmp_path: Path, form: str
) -> None:
    with made(tmp_path, PROJECT, mode=form) as workspace:
        for name in (".env", "packages/.env.local"):
            with workspace.call("edit") as call:
                call.files.write_text(name, "TOKEN=own")
        with pytest.raises(RuntimeError), workspace.call("fail") as call:
            call.files.write_text(".env", "rolled back")
            call.files.delete("packages", recursive=True)
            raise RuntimeError("no")
        assert workspace.files.read_text(".env").text == "TOKEN=own"
        assert workspace.files.read_text("packages/.env.local").text == "TOKEN=own"
    assert not history_has(tmp_path, b"TOKEN=own")


def test_secrets_in_a_rolled_back_directory_do_not_enter_the_history(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT) as workspace, pytest.raises(RuntimeError):
        with workspace.call("scaffold") as call:
            call.files.write_text("service/app.py", "1\n")
            call.files.write_text("service/.env", SECRET.decode())
            call.files.write_text("service/node_modules/x.js", "2\n")
            raise RuntimeError("no")
    with reopened(tmp_path) as workspace:
        (found,) = workspace.discarded()
        assert [str(path) for path in workspace.discarded_paths(found)] == [
            "service",
            "service/app.py",
        ]
    assert not history_has(tmp_path, SECRET.strip())


def test_rollback_of_a_command_drops_what_it_left_in_derived_paths(tmp_path: Path) -> None:
    with registered(), made(tmp_path, PROJECT) as workspace:
        sandbox = workspace.sandbox(FakeConfig())
        with pytest.raises(RuntimeError), workspace.call("command") as call:
            for name in ("node_modules/left.js", "src/app.py", ".env"):
                sandbox.run(ExecRequest(argv=("put", name, "left")))
            call.files.write_text("README.md", "x")
            raise RuntimeError("no")
        assert not workspace.files.exists("node_modules/left.js")
        for name, content in PROJECT.items():
            assert workspace.files.read_bytes(name) == content


def test_change_through_a_hard_link_in_a_derived_path_is_found_at_the_next_opening(
    tmp_path: Path,
) -> None:
    def link() -> None:
        root = folder(tmp_path).files
        (root / "node_modules/alias").hardlink_to(root / "src/app.py")
        (root / "node_modules/alias").write_bytes(b"through the link\n")
        (root / "node_modules/alias").unlink()

    with made(tmp_path, PROJECT) as workspace, calls(workspace, doing(link)) as call:
        assert call("act").result.success
    with reopened(tmp_path) as workspace:
        assert workspace.changeset().paths == ("src/app.py",)


# Diff, apply, undo, sync and forks


def test_diff_apply_and_undo_name_the_derived_paths_that_changed(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT) as workspace:
        assert workspace.changeset().derived == ()
        with workspace.call("install") as call:
            call.files.write_text("node_modules/new/index.js", "1")
            call.files.write_text("README.md", "# New\n")
        assert [str(path) for path in workspace.changeset().derived] == ["node_modules"]
        preview = workspace.source.preview()
        assert (preview.paths, list(map(str, preview.derived))) == (
            ("README.md",),
            ["node_modules"],
        )
        assert workspace.apply(previewed=preview).paths == ("README.md",)
        workspace.undo()
        assert workspace.files.read_bytes("README.md") == b"# App\n"
        assert workspace.files.read_bytes("node_modules/new/index.js") == b"1"
    assert not (tmp_path / "source/node_modules/new").exists()
    with reopened(tmp_path) as workspace:
        assert [str(path) for path in workspace.derived_changes()] == ["node_modules"]


@pytest.mark.behaviour(94)
def test_undo_keeps_the_derived_paths_of_a_directory_that_it_removes(tmp_path: Path) -> None:
    large = {"service/app.py": b"1\n", "service/node_modules/x.js": b"x" * 2_000_000}
    with made(tmp_path, {**large, "service/.env": SECRET}) as workspace:
        with workspace.call("move") as call:
            call.files.move("service", "server")
        workspace.undo()
        assert workspace.files.exists("service/app.py")
        assert not workspace.files.exists("server/app.py")
        assert workspace.files.read_bytes("server/.env") == SECRET
        assert workspace.files.exists("server/node_modules/x.js")
        workspace.redo()
        assert not workspace.files.exists("service")
        assert workspace.files.exists("server/app.py")
        with workspace.call("scaffold") as call:
            call.files.write_text("new/app.py", "1\n")
        with workspace.call("test") as call:
            call.files.write_text("new/__pycache__/app.pyc", "1\n")
        workspace.undo()
        assert not workspace.files.exists("new")


@pytest.mark.behaviour(94)
def test_restore_that_needs_the_place_of_derived_paths_is_refused(tmp_path: Path) -> None:
    with made(tmp_path, {"service": b"a file\n"}) as workspace:
        with workspace.call("replace") as call:
            call.files.delete("service")
            call.files.write_text("service/.env", SECRET.decode())
        with pytest.raises(ConflictError, match=r"service/\.env"):
            workspace.restore(1)
        assert workspace.files.read_bytes("service/.env") == SECRET
        workspace.files.delete("service/.env")
        workspace.restore(1)
        assert workspace.files.read_bytes("service") == b"a file\n"


def test_workspace_opened_again_much_later_knows_its_derived_paths(
    tmp_path: Path, form: str
) -> None:
    """Opening lists only directories that changed, and so finds no derived path in the others."""
    made(tmp_path, {**PROJECT, "src/.env": SECRET}, mode=form).close()
    clock = ManualClock(datetime.now(UTC) + timedelta(hours=1))
    with reopened(tmp_path, clock=clock) as workspace:
        known = workspace.derived_paths()
    with registered(), reopened(tmp_path, clock=clock) as workspace:
        assert workspace._opened.tracker.n_visited < len(PROJECT)
        assert workspace.derived_paths() == known
        workspace.fork("try")
        sandbox = workspace.sandbox(FakeConfig())
        with pytest.raises(RuntimeError), workspace.call("command"):
            sandbox.run(ExecRequest(argv=("put", "node_modules/left-pad/new.js", "left")))
            raise RuntimeError("no")
        assert not workspace.files.exists("node_modules/left-pad/new.js")
    with reopened(tmp_path, branch="try") as fork:
        assert fork.files.read_bytes("src/.env") == SECRET


def test_sync_keeps_derived_paths_of_the_source_out_of_the_history(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT) as workspace:
        source = tmp_path / "source"
        (source / ".env").write_bytes(SECRET * 2)
        (source / ".env.production").write_bytes(SECRET)
        (source / "node_modules/new.js").write_bytes(b"new")
        (source / "README.md").write_bytes(b"# Theirs\n")
        entry = workspace.sync()
        assert entry is not None
        assert [str(change.path) for change in workspace.changes_of(entry)] == ["README.md"]
        assert workspace.files.read_bytes(".env") == SECRET
    assert not history_has(tmp_path, SECRET.strip())


def test_apply_that_deletes_a_directory_keeps_the_derived_paths_in_it(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT) as workspace:
        with workspace.call("delete") as call:
            call.files.delete("src", recursive=True)
        assert workspace.apply().removed == ("src/app.py",)
    assert not (tmp_path / "source/src/app.py").exists()
    assert (tmp_path / "source/src/__pycache__/app.pyc").read_bytes() == b"\0"


def test_fork_begins_with_small_derived_paths_and_names_the_others(tmp_path: Path) -> None:
    large = {**PROJECT, "node_modules/large.js": b"x" * 2_000_000}
    with made(tmp_path, large) as workspace:
        without = workspace.fork("try").left_out
        assert [str(path) for path in without] == ["node_modules"]
    with reopened(tmp_path, branch="try") as fork:
        assert fork.files.read_bytes(".env") == SECRET
        assert fork.files.exists(".venv/bin/python")
        assert not fork.files.exists("node_modules")
        assert fork.diff() == ""
    assert recorded(tmp_path, "try") == RECORDED


def test_fork_of_an_older_entry_has_its_files_and_no_directories_of_later_derived_paths(
    tmp_path: Path, form: str
) -> None:
    with made(tmp_path, {"pkg": b"precious\n", "d/a": b"a"}, mode=form) as workspace:
        with workspace.call("replace") as call:
            call.files.delete("pkg")
            for name in ("pkg/.env", "new/.env", "d/.env"):
                call.files.write_text(name, "TOKEN=1\n")
            call.files.write_text("pkg/code.py", "1\n")
        workspace.fork("old", at=1)
    with reopened(tmp_path, branch="old") as fork:
        assert fork.files.read_bytes("pkg") == b"precious\n"
        assert fork.files.exists("d/.env")
        assert not fork.files.exists("new")
        with fork.call("next"):
            pass
        assert all(entry.kind is not EntryKind.EXTERNAL for entry in fork.log())


def test_interrupted_fork_does_not_exist_without_its_secrets(tmp_path: Path) -> None:
    def interrupt(passed: KillPoint) -> None:
        if passed is KillPoint.CHECKPOINT_COPIED:
            raise KeyboardInterrupt

    with made(tmp_path, {"app.py": b"1\n", ".env": SECRET}) as workspace:
        with pytest.raises(KeyboardInterrupt), calling(interrupt):
            workspace.fork("try")
        assert workspace.forks() == ()
        workspace.fork("try")
        workspace.branches.delete("try")
        with pytest.raises(KeyboardInterrupt), calling(interrupt):
            workspace.fork("try")
        workspace.files.delete(".env")
        workspace.fork("try")
    with reopened(tmp_path, branch="try") as fork:
        assert not fork.files.exists(".env")


def test_in_place_no_path_is_derived(tmp_path: Path) -> None:
    with made(tmp_path, PROJECT, mode="in_place") as workspace:
        assert workspace.derived_paths() == ()
        assert workspace.info.rules.unrecorded() is None


# Shapes


def test_monorepo_import_and_calls_read_the_status_of_no_derived_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for n in range(30):
        directory = source / f"node_modules/package-{n}/lib"
        directory.mkdir(parents=True)
        for k in range(10):
            with (directory / f"{k}.js").open("wb") as file:
                file.truncate(10_000_000)  # 3 GB in all, without a disk block
    with made(tmp_path, {"src/app.py": b"1\n"}) as workspace:
        visited = workspace._opened.tracker.n_visited
        assert visited <= 4
        with workspace.call("install") as call:
            call.files.write_text("node_modules/package-1/lib/new.js", "1")
            call.files.write_text("src/app.py", "2\n")
        assert workspace._opened.tracker.n_visited <= visited + 8
        assert (folder(tmp_path).files / "node_modules/package-9/lib/9.js").stat().st_blocks == 0
    assert recorded(tmp_path) == {"src/app.py"}
    assert sum(path.stat().st_blocks for path in folder(tmp_path).ledger.rglob("*")) < 2_000


def test_directories_that_a_command_makes_in_derived_paths_cause_no_scan(tmp_path: Path) -> None:
    files = {**PROJECT, **{f"src/{n}.py": b"1\n" for n in range(50)}}

    def build() -> None:
        (folder(tmp_path).files / "node_modules/a/b/c").mkdir(parents=True)
        (folder(tmp_path).files / "packages/__pycache__").mkdir()

    with made(tmp_path, files) as workspace, calls(workspace, doing(build)) as call:
        assert call("read_file", file_path="README.md").result.success
        visited = workspace._opened.tracker.n_visited
        assert call("act").result.success
        assert workspace._opened.tracker.n_visited - visited <= 4


def test_sparse_file_stays_sparse_through_import_undo_and_fork(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with (source / "disk.img").open("wb") as file:
        file.write(b"boot" * 1_000)
        file.seek(14_000_000)
        file.write(b"end")
        file.truncate(20_000_000)
    content = (source / "disk.img").read_bytes()
    with made(tmp_path) as workspace:
        copy = folder(tmp_path).files / "disk.img"
        assert copy.stat().st_blocks * 512 < 100_000
        with workspace.call("delete") as call:
            call.files.delete("disk.img")
        workspace.undo()
        assert copy.read_bytes() == content
        assert copy.stat().st_blocks * 512 < 3_000_000
        workspace.fork("try")
    with reopened(tmp_path, branch="try"):
        forked = folder(tmp_path).of_branch("try").files / "disk.img"
        assert forked.read_bytes() == content
        assert forked.stat().st_blocks * 512 < 3_000_000
    assert sum(path.stat().st_size for path in folder(tmp_path).ledger.rglob("*")) < 300_000
    assert_fsck_clean(folder(tmp_path).ledger)


@pytest.mark.parametrize("point", [KillPoint.CHECKPOINT_COPIED, KillPoint.REF_LOCKED])
def test_two_processes_that_make_a_fork_of_one_name_do_not_mix_their_derived_paths(
    tmp_path: Path, form: str, point: KillPoint
) -> None:
    with made(tmp_path, PROJECT, mode=form) as workspace:
        workspace.fork("other")
        with reopened(tmp_path, branch="other") as other:
            workspace.commit_edits()
            other.files.write_bytes(".env", b"OTHER=1\n")
            refused: list[BaseException | None] = []

            def fork_too(passed: KillPoint) -> None:
                if passed == point and not refused:
                    refused.append(None)
                    with ThreadPoolExecutor() as another:
                        refused[0] = another.submit(other.fork, "try").exception()

            with calling(fork_too):
                workspace.fork("try")
            assert isinstance(refused[0], LedgerBusyError)
    with reopened(tmp_path, branch="try") as fork:
        assert fork.files.read_bytes(".env") == SECRET


@pytest.mark.parametrize("given", [("out/",), ()])
def test_a_rule_that_ends_in_a_slash_is_for_directories_only(
    tmp_path: Path, form: str, given: tuple[str, ...]
) -> None:
    """Given, or because the ignore rules of the source end in a slash."""
    files = {"a/out": b"file\n", "b/out/made": b"made\n", "c.txt": b"c\n"}
    if not given:
        files[".gitignore"] = b"out/\n"
        git(tmp_path, "init", "-q", "source")
    with made(tmp_path, files, mode=form, config=config(derived=given)) as workspace:
        assert {"a/out", "c.txt"} <= recorded(tmp_path)
        assert "b/out/made" not in recorded(tmp_path)
        with workspace.call("both kinds"):
            workspace.files.write_text("a/out", "changed\n")
            workspace.files.write_text("out", "new\n")
            workspace.files.write_text("b/out/made", "again\n")
        assert {"a/out", "out"} <= recorded(tmp_path)
        assert "b/out/made" not in recorded(tmp_path)
        with pytest.raises(RuntimeError), workspace.call("replaces a file, and fails"):
            workspace.files.write_text("a/out", "lost\n")
            workspace.files.delete("out")
            workspace.files.write_text("out/made", "made\n")
            raise RuntimeError
        assert workspace.files.read_bytes("a/out") == b"changed\n"
        assert workspace.files.read_bytes("out") == b"new\n"
        with workspace.call("replaces a file"):
            workspace.files.delete("out")
            workspace.files.write_text("out/made", "made\n")
        assert not {"out", "out/made"} & recorded(tmp_path)
        with pytest.raises(ConflictError, match="out would become a file"):
            workspace.undo()
        workspace.files.delete("out", recursive=True)
        with pytest.raises(RuntimeError), workspace.call("replaces a directory, and fails"):
            workspace.files.delete("b/out", recursive=True)
            workspace.files.write_text("b/out", "new\n")
            raise RuntimeError
        assert workspace.files.read_bytes("b/out/made") == b"made\n"  # that of the import
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_bytes("a/out") == b"changed\n"


def test_apply_of_a_file_keeps_a_derived_directory_in_its_place(tmp_path: Path, form: str) -> None:
    with made(tmp_path, {"a": b"1\n"}, mode=form, config=config(derived=("out/",))) as workspace:
        with workspace.call("a file"):
            workspace.files.write_text("out", "new\n")
        theirs = tmp_path / "source/out/mine"
        theirs.parent.mkdir()
        theirs.write_text("mine\n")
        with pytest.raises(ConflictError, match="out"):
            workspace.apply()
        assert workspace.apply(merge=True).paths == ()
        assert theirs.read_text() == "mine\n"
