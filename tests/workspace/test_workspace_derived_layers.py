"""Forks of branches on overlays share derived paths through layers, and change only their own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from test_workspace_adversary_full_disk import on_a_small_disk
from workspace_rig import die, folder, made, reopened, storage

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import LedgerBusyError
from wink_workspace.filesystem.overlay.mounting import MOST_LAYERS, overlay_support
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.create import derived_layers

BIG = b"x" * 2_000_000


@pytest.fixture(autouse=True)
def _needs_overlays(tmp_path: Path) -> None:
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)


def installed(workspace: Workspace, *paths: str, content: bytes = BIG) -> None:
    with workspace.call("install") as call:
        for path in paths:
            call.files.write_bytes(path, content)


def test_fork_has_what_a_call_installed_and_changes_only_its_own(tmp_path: Path) -> None:
    with made(tmp_path, {"app.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/big.js", "node_modules/a/small.js")
        fork = workspace.fork("try")
        assert fork.left_out == ()
        with fork.open() as other:
            assert other.diff() == ""
            installed(other, "node_modules/big.js", content=b"fork")
            with other.call("remove") as call:
                call.files.delete("node_modules/a", recursive=True)
        installed(workspace, "node_modules/new.js", content=b"parent")
        assert workspace.files.read_bytes("node_modules/big.js") == BIG
        assert workspace.files.exists("node_modules/a/small.js")
        with workspace.branches.open("try") as other:
            assert other.files.read_bytes("node_modules/big.js") == b"fork"
            assert not other.files.exists("node_modules/a")
            assert not other.files.exists("node_modules/new.js")


def test_files_of_the_source_are_shared_too_and_nothing_is_copied(tmp_path: Path) -> None:
    with made(tmp_path, {"app.js": b"1", "node_modules/big.js": BIG}, mode="overlay") as workspace:
        workspace.fork("one").open().close()
        inodes = [path.stat().st_ino for path in tmp_path.rglob("state/**/big.js")]
        workspace.fork("two").open().close()
        assert [path.stat().st_ino for path in tmp_path.rglob("state/**/big.js")] == inodes
        assert len(inodes) == 1


def test_fork_does_not_have_what_its_parent_deleted_after_an_earlier_fork(tmp_path: Path) -> None:
    with made(tmp_path, {"packages/a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/big.js", "packages/node_modules/big.js")
        workspace.fork("before")
        with workspace.call("remove") as call:
            call.files.delete("node_modules", recursive=True)
            call.files.delete("packages/node_modules", recursive=True)
        with workspace.fork("after").open() as after:
            assert not after.files.exists("node_modules")
            assert not after.files.exists("packages/node_modules")
        with workspace.branches.open("before") as before:
            assert before.files.read_bytes("packages/node_modules/big.js") == BIG


def test_large_directory_replaced_by_a_small_one_is_the_small_one_in_a_fork(tmp_path: Path) -> None:
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/big.js")
        workspace.fork("before")
        with workspace.call("replace") as call:
            call.files.delete("node_modules", recursive=True)
            call.files.write_text("node_modules/small.js", "1")
        with workspace.fork("after").open() as after:
            assert [*tree(after)] == ["a.js", "node_modules/small.js"]


def test_directories_that_a_call_made_do_not_hide_the_layer(tmp_path: Path) -> None:
    with made(tmp_path, {"packages/a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "packages/new/deep/node_modules/big.js")
        installed(workspace, "packages/new/main.js", content=b"1")
        with workspace.fork("try").open() as fork:
            assert fork.files.read_bytes("packages/new/deep/node_modules/big.js") == BIG
            assert fork.files.read_bytes("packages/new/main.js") == b"1"
        assert workspace.files.read_bytes("packages/new/deep/node_modules/big.js") == BIG
        with pytest.raises(RuntimeError), workspace.call("fail") as call:
            call.files.write_text("packages/new/main.js", "2")
            raise RuntimeError("no")
        assert workspace.files.read_bytes("packages/new/main.js") == b"1"


def test_path_that_a_layer_would_show_wrongly_is_named_as_left_out(tmp_path: Path) -> None:
    """Its directory hides one of the base, or was one of the base before it was renamed."""
    files = {"packages/a/x.js": b"1", "lib/y.js": b"1", "old/z.js": BIG}
    with made(tmp_path, files, mode="overlay") as workspace:
        with workspace.call("replace") as call:
            call.files.delete("packages/a", recursive=True)
            call.files.write_bytes("packages/a/node_modules/big.js", BIG)
            call.files.move("old", "lib/node_modules")
        with workspace.fork("try").open() as fork:
            left = [str(path) for path in workspace.fork("more").left_out]
            shown = [path for path in left if fork.files.exists(path)]
        assert "packages/a/node_modules" in left
        assert shown == []
        assert workspace.files.read_bytes("packages/a/node_modules/big.js") == BIG
        assert not workspace.files.exists("packages/a/x.js")
        assert workspace.files.read_bytes("lib/node_modules/z.js") == BIG


def test_running_service_keeps_what_changed_since_the_last_fork_out_of_a_new_one(
    tmp_path: Path,
) -> None:
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/big.js", ".venv/big.o")
        assert workspace.fork("before").left_out == ()
        installed(workspace, ".venv/new.o")
        workspace._sandbox.released = lambda: nullcontext(("web",))  # type: ignore[method-assign] - a service runs
        fork = workspace.fork("during")
        assert [str(path) for path in fork.left_out] == [".venv"]
        assert fork.held_by == ("web",)
        with fork.open() as during:
            assert [*tree(during)] == ["a.js", "node_modules/big.js"]
        assert workspace.files.exists(".venv/new.o")


def test_layers_end_with_the_last_branch_that_names_them(tmp_path: Path) -> None:
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        with workspace.fork("try").open() as fork:
            installed(fork, "node_modules/big.js")
            fork.fork("child")
        frozen = folder(tmp_path).frozen
        (layer,) = frozen.iterdir()
        workspace.branches.delete("try")
        with workspace.branches.open("child") as child:
            assert child.files.read_bytes("node_modules/big.js") == BIG
        workspace.branches.delete("child")
        assert list(frozen.iterdir()) == []
        layer.mkdir()  # of a process that was killed before the branch named it
        workspace.maintain()
        assert list(frozen.iterdir()) == []


@pytest.mark.parametrize("garbage", [b"\xff\x00\n", b"../upper\n", b"0123456789abcdef\n", b""])
def test_damaged_list_of_layers_loses_only_what_was_shared(tmp_path: Path, garbage: bytes) -> None:
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/big.js")
        workspace.fork("try")
    folder(tmp_path).of_branch("try").layers.write_bytes(garbage)
    with reopened(tmp_path, branch="try") as fork:
        assert [*tree(fork)] == ["a.js"]
        assert fork.diff() == ""
    with reopened(tmp_path) as workspace:
        assert workspace.files.read_bytes("node_modules/big.js") == BIG


@pytest.mark.parametrize("most", [8, pytest.param(MOST_LAYERS, marks=pytest.mark.soak)])
def test_branch_with_too_many_layers_leaves_the_new_paths_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(derived_layers, "MOST_LAYERS", most)
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        left: list[int] = []
        for n in range(most):
            installed(workspace, f"packages/{n}/node_modules/big.js")
            left.append(len(workspace.fork(f"try-{n}").left_out))
        assert left[0] == 0
        assert left[-1] > 0
        assert workspace.files.read_bytes("packages/0/node_modules/big.js") == BIG
    with reopened(tmp_path, branch=f"try-{left.index(1) - 1}") as fork:
        assert fork.files.read_bytes("packages/0/node_modules/big.js") == BIG


@pytest.mark.parametrize(
    ("point", "nth"), [("layer-named", 1), ("derived-frozen", 1), ("derived-frozen", 2)]
)
@pytest.mark.parametrize("is_killed", [False, True])
def test_interrupted_fork_leaves_the_files_as_they_were(
    tmp_path: Path, point: str, nth: int, *, is_killed: bool
) -> None:
    workspace = made(tmp_path, {"a.js": b"1", "packages/b.js": b"1"}, mode="overlay")
    installed(workspace, "node_modules/big.js", "packages/node_modules/big.js")
    n_passed = 0

    def interrupt(passed: KillPoint) -> None:
        nonlocal n_passed
        n_passed += passed == point
        if passed == point and n_passed == nth:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), calling(interrupt):
        workspace.fork("try")
    if is_killed:
        die(workspace)
        workspace = reopened(tmp_path)
    with workspace:
        for path in ("node_modules/big.js", "packages/node_modules/big.js"):
            assert workspace.files.read_bytes(path) == BIG
        assert workspace.diff() == ""
        with workspace.fork("try").open() as fork:
            for path in ("node_modules/big.js", "packages/node_modules/big.js"):
                assert fork.files.read_bytes(path) == BIG


def test_directory_that_a_command_replaces_by_a_link_until_the_last_moment_moves_nothing_outside(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside/node_modules/host.js"
    outside.parent.mkdir(parents=True)
    outside.touch()
    with made(tmp_path, {"packages/a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "packages/node_modules/big.js")

        @contextmanager
        def released() -> Generator[bool]:
            packages = workspace._opened.tree.root / "packages"
            shutil.rmtree(packages)
            packages.symlink_to(tmp_path / "outside")
            yield True

        workspace._sandbox.released = released  # type: ignore[method-assign] - a command ends
        workspace.fork("try").open().close()
    assert outside.exists()


OTHER_PROCESS = """
import sys
from workspace_rig import reopened
from pathlib import Path
with reopened(Path(sys.argv[1]), branch=sys.argv[2]) as workspace:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        fork = workspace.fork(sys.argv[3])
        with fork.open() as other:
            print(len(other.files.read_bytes("node_modules/big.js")), flush=True)
    finally:
        print("done", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def other_process(tmp_path: Path, branch: str, fork: str) -> Generator[subprocess.Popen[str]]:
    """A process that has a branch open, and forks it at the next line that it gets."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path), branch, fork],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_processes_fork_branches_with_the_same_layers_at_one_time(tmp_path: Path) -> None:
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/big.js")
        for name in ("one", "two"):
            workspace.fork(name)
        identifier = workspace.info.id
    with ExitStack() as stack:
        processes = [
            stack.enter_context(other_process(tmp_path, name, f"{name}-fork"))
            for name in ("one", "two")
        ]
        for process in processes:
            say(process)
        with pytest.raises(LedgerBusyError):
            Workspace.delete(identifier, storage=storage(tmp_path))
        with reopened(tmp_path) as workspace:
            installed(workspace, "node_modules/more.js")
            workspace.fork("three")
            workspace.maintain()
            with pytest.raises(LedgerBusyError):
                workspace.branches.delete("one")
            for process in processes:
                say(process)
                assert process.communicate()[0] == f"{len(BIG)}\ndone\n"
            workspace.branches.delete("one")
            workspace.branches.delete("two")
            workspace.maintain()
            with workspace.branches.open("one-fork") as fork:
                assert [*tree(fork)] == ["a.js", "node_modules/big.js"]


def test_fork_of_a_fork_keeps_its_layers_while_both_parents_lose_them(tmp_path: Path) -> None:
    """One is deleted, the other deletes the paths, and a collection runs while it is open."""
    names = {"a.js", "node_modules/of-child.js", "node_modules/of-main.js"}
    with made(tmp_path, {"a.js": b"1"}, mode="overlay") as workspace:
        installed(workspace, "node_modules/of-main.js")
        workspace.fork("child")
    with reopened(tmp_path, branch="child") as child:
        installed(child, "node_modules/of-child.js")
        child.fork("grandchild")
    with reopened(tmp_path, branch="grandchild") as grandchild:
        with reopened(tmp_path) as workspace:
            workspace.branches.delete("child")
            with workspace.call("remove") as call:
                call.files.delete("node_modules", recursive=True)
            workspace.maintain()
        assert tree(grandchild).keys() == names
        with grandchild.fork("last").open() as last:
            assert tree(last).keys() == names
        assert grandchild.diff() == ""
    with reopened(tmp_path, branch="grandchild") as grandchild:
        assert tree(grandchild).keys() == names


FULL_DISK = """
import itertools, sys
from pathlib import Path
from workspace_rig import made, reopened
from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import WinkError
from wink_workspace.filesystem.overlay.mounting import overlay_support

here = Path(sys.argv[1])
if not overlay_support(here).available:
    sys.exit("skip")
large = {f"p{n}/node_modules/big.js": bytes([n]) * 200_000 for n in range(3)}
failed = 0
with made(here, {f"p{n}/a.js": b"1" for n in range(3)}, mode="overlay") as workspace:
    with workspace.call("install") as call:
        for path, content in large.items():
            call.files.write_bytes(path, content)
    for n in range(4):
        filler = (here / "filler").open("wb", buffering=0)
        def fill(point):
            if n == 0 or point is KillPoint.LAYER_NAMED and n == 1 or point is KillPoint.DERIVED_FROZEN and n == 2:
                try:
                    while filler.write(b"x" * 4_096):
                        pass
                except OSError:
                    pass
        try:
            with calling(fill):
                if n == 0:
                    fill(None)
                workspace.fork(f"try-{n}")
        except WinkError as error:
            failed += 1
            print(type(error).__name__, error)
        filler.truncate(0)
        for path, content in large.items():
            assert workspace.files.read_bytes(path) == content, (n, path)
        assert workspace.diff() == ""
    with workspace.fork("last").open() as fork:
        for path, content in large.items():
            assert fork.files.read_bytes(path) == content, path
with reopened(here) as workspace:
    for path, content in large.items():
        assert workspace.files.read_bytes(path) == content
assert failed, "the disk was never full"
"""


def test_full_disk_at_any_step_of_a_fork_loses_nothing(tmp_path: Path) -> None:
    done = on_a_small_disk(tmp_path, FULL_DISK)
    if done.stderr.strip() == "skip":
        pytest.skip("no overlays on a small disk here")
    assert done.returncode == 0, done.stdout + done.stderr


# Random changes of several branches, beside plain copies of their files


NAMES = ("a.txt", "b.txt", "sub/c.txt", "node_modules/a/i.js", "node_modules/b/i.js", "big.log")
PLACES = ("", "packages/p/", "packages/q/", "new/deep/")


def tree(workspace: Workspace) -> dict[str, bytes]:
    """All files, derived ones included."""
    assert workspace._opened.mount is not None
    top = workspace._opened.tree.root
    found: dict[str, bytes] = {}
    for directory, names, files in os.walk(top):
        names[:] = [name for name in names if name != ".wink"]
        for name in files:
            path = Path(directory, name)
            found[str(path.relative_to(top))] = path.read_bytes()
    return found


def step(workspace: Workspace, source: random.Random) -> None:
    """A call that changes files as a command does."""
    with workspace.call("step"):
        for _ in range(source.randint(1, 4)):
            path = workspace._opened.tree.root / (source.choice(PLACES) + source.choice(NAMES))
            with suppress(OSError):  # a file is in the place of a directory, or nothing is there
                what = source.choice(("write", "write", "write", "delete", "remove", "move"))
                is_top = path.parent == workspace._opened.tree.root
                match "delete" if is_top and what != "write" else what:
                    case "write":
                        path.parent.mkdir(parents=True, exist_ok=True)
                        size = source.choice((1, 10, 1_200_000))
                        path.write_bytes(bytes([source.randrange(256)]) * size)
                    case "delete":
                        path.unlink()
                    case "remove":
                        shutil.rmtree(path.parent)
                    case _:
                        path.parent.rename(
                            path.parents[1] / source.choice(("moved", "node_modules"))
                        )


@pytest.mark.share(6)
@pytest.mark.parametrize("seed", range(60))
def test_forks_equal_copies_after_random_changes(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    start = {"a.txt": b"1", "packages/p/b.txt": b"1", "packages/q/sub/c.txt": b"1"}
    expected: dict[str, dict[str, bytes]] = {}
    with ExitStack() as opened:
        branches = {"main": opened.enter_context(made(tmp_path, start, mode="overlay"))}
        for n in range(30):
            name = source.choice([*branches])
            workspace = branches[name]
            if source.random() < 0.3 and len(branches) < 8:
                fork = workspace.fork(f"fork-{n}")
                assert tree(workspace) == expected.get(name, tree(workspace))
                left = [str(path) for path in fork.left_out]
                branches[fork.name] = other = opened.enter_context(fork.open())
                here = tree(workspace)
                expected[fork.name] = {
                    path: content
                    for path, content in here.items()
                    if not any(path == top or path.startswith(f"{top}/") for top in left)
                }
                assert tree(other) == expected[fork.name], f"step {n}"
                assert other.head.files == workspace.head.files
            else:
                step(workspace, source)
            expected[name] = tree(workspace)
            for other, files in expected.items():
                assert tree(branches[other]) == files, f"{other} changed in step {n}"
    for name, files in expected.items():
        with reopened(tmp_path, branch=name) as workspace:
            assert tree(workspace) == files
            assert not workspace.maintain().forgotten
