"""``kill -9`` while old history is deleted, and while changes are applied to the source.

The workspace does not change. Its history may be shorter, but is complete from its oldest entry
on. The source may have a part of the changes: opening the workspace reports this, and the next
``apply`` finishes it or, after an undo, reverts it.
"""

from __future__ import annotations

import logging
import random
import signal
from itertools import pairwise
from pathlib import Path

import pytest
import random_cases
from kill_rig import FORMS, Server, Stage, copied, spread, staged
from kill_server import LITTLE_BYTES, state_of
from workspace_rig import (
    Picture,
    assert_fsck_clean,
    assert_same,
    calls,
    folder,
    made,
    picture,
    reopened,
)
from workspace_support import git, make_tree

from wink_workspace.errors import LedgerError
from wink_workspace.ledger import Retention, file_state, walk
from wink_workspace.workspace import WorkspaceConfig

LITTLE = WorkspaceConfig(retention=Retention(budget_bytes=LITTLE_BYTES))

EVERY = pytest.param(None, marks=pytest.mark.soak, id="every")
"""All system calls, and as many random times."""
POINTS = ("boundary-moved", "discard-forgotten", "pack-written", "pack-deleted")

FILES: dict[str, str | bytes | None] = {
    "a.txt": "one\ntwo\nthree\n",
    "run.sh": "#!/bin/sh\n",
    "dir/b.txt": "b\n",
    "dir/sub/c.bin": bytes(range(256)) * 1_000,
    "same.txt": "same\n",
    "link": "-> a.txt",
    "empty": None,
}


# Old history


@pytest.fixture(scope="module", params=FORMS)
def cleaning(
    server: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Stage:
    template = tmp_path_factory.mktemp("gc") / "template"
    template.mkdir()
    made(template, {"a.txt": b"line\n", "run.sh": b"#!/bin/sh\n"}, mode=request.param).close()
    for _ in range(2):
        assert server.run(template, "calls") == 0
    (template / "oracle").unlink()
    stage = staged(server, template, "gc")
    assert all(stage.passed[point] for point in POINTS)
    return stage


def assert_whole(directory: Path, stage: Stage) -> int:
    """The kept entries are the newest ones, and complete; returns their number."""
    (number,) = stage.states
    before = picture(folder(directory).files)
    with reopened(directory) as workspace, calls(workspace):
        assert state_of(workspace, folder(directory).files) == stage.states[number]
        entries = list(workspace.log())
        assert entries[0].number == number
        assert all(newer.parent == older.id for newer, older in pairwise(entries))
        store = workspace._ledger.store
        roots = [entry.files for entry in entries]
        roots += [found.files for found in workspace._ledger.discarded()]
        for root in dict.fromkeys(roots):
            assert all(file_state(store, entry) for _, entry in walk(store, root))
        for entry in entries:
            workspace.record(entry)
        workspace._sessions.load(workspace.session, entries[-1].session)
    assert_same(before, picture(folder(directory).files))
    assert_fsck_clean(folder(directory).ledger)
    return len(entries)


def assert_cleans(server: Server, stage: Stage, directory: Path, kill: object) -> int:
    copied(stage.template, directory)
    signal_number = server.run(directory, "gc", kill)
    n_left = assert_whole(directory, stage)
    with reopened(directory, config=LITTLE) as workspace:
        assert workspace.maintain().disk_bytes <= LITTLE_BYTES
    assert assert_whole(directory, stage) <= n_left
    return signal_number


@pytest.mark.sweep
def test_gc_killed_at_any_of_its_steps_leaves_a_whole_history(
    server: Server, cleaning: Stage, tmp_path: Path
) -> None:
    for point in POINTS:
        for nth in random_cases.some(spread(cleaning.passed[point], 3), 1):
            ended_by = assert_cleans(server, cleaning, tmp_path / "killed", [point, nth])
            # Records contain times, so the number of steps differs a little between runs.
            assert ended_by == signal.SIGKILL or nth > 1


@pytest.mark.parametrize("times", [3, EVERY])
def test_gc_killed_at_system_calls_and_at_random_leaves_a_whole_history(
    server: Server, cleaning: Stage, tmp_path: Path, times: int | None
) -> None:
    directory, times = tmp_path / "killed", times or cleaning.passed["system-call"]
    chosen = random.Random(times)
    for nth in spread(cleaning.passed["system-call"] * 9 // 10, times):
        assert assert_cleans(server, cleaning, directory, ["system-call", nth]) == signal.SIGKILL
    for _ in range(times):
        assert_cleans(server, cleaning, directory, chosen.uniform(0.0, cleaning.seconds))


# The source


@pytest.fixture(scope="module", params=FORMS)
def applying(
    server: Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Stage:
    """Apply every kind of change to a source that is a git repository."""
    template = tmp_path_factory.mktemp("apply") / "template"
    source = make_tree(template / "source", FILES)
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    with made(template, mode=request.param) as workspace:
        files = workspace.files.tree.root
        (files / "a.txt").write_text("one\nTWO\nthree\n")
        (files / "run.sh").chmod(0o644)
        for path in ("dir/b.txt", "dir/sub/c.bin", "link"):
            (files / path).unlink()
        (files / "dir/sub").rmdir()
        (files / "dir/sub").write_text("a file now\n")
        (files / "link").symlink_to("elsewhere")
        (files / "empty").rmdir()
        (files / "empty").symlink_to("/nowhere")
        make_tree(files / "new", {"deep/x": "#!/bin/sh\nx\n", "void": None})
        with calls(workspace) as call:
            call("ls")
    return staged(server, template, "apply")


def shown(directory: Path) -> Picture:
    """The source without its ``.git``."""
    found = picture(directory / "source")
    return {path: what for path, what in found.items() if path.split(b"/")[0] != b".git"}


def assert_applies(
    server: Server, stage: Stage, directory: Path, kill: object, caplog: pytest.LogCaptureFixture
) -> int:
    """After the kill the source has some of the changes, each of them complete."""
    copied(stage.template, directory)
    before, after = shown(directory), picture(folder(directory).files)
    repository = picture(directory / "source/.git")
    signal_number = server.run(directory, "apply", kill)
    part = shown(directory)
    for path, there in part.items():
        if b".wink-tmp-" not in path:
            assert there in (before.get(path), after.get(path)), path
    for path in before.keys() | after.keys():
        assert path in part or before.get(path) != after.get(path), path
    (number,) = stage.states
    caplog.clear()
    with reopened(directory) as workspace, calls(workspace):
        assert state_of(workspace, folder(directory).files) == stage.states[number]
        assert workspace.log(limit=1).__next__().number == number
        if part not in (before, after):
            assert workspace.source.has_unfinished_apply
            assert "apply again" in caplog.text
        if chosen_to_finish(signal_number, part):
            workspace.apply()
            assert_same(after, shown(directory))
        else:
            workspace.restore(1)
            workspace.apply()
            assert_same(before, shown(directory))
        assert not workspace.source.has_unfinished_apply
    assert_same(repository, picture(directory / "source/.git"))
    assert_fsck_clean(folder(directory).ledger)
    return signal_number


def chosen_to_finish(signal_number: int, part: Picture) -> bool:
    """Alternate between finishing and reverting, so that each is tested in about half of the cases."""
    return signal_number == 0 or len(part) % 2 == 0


@pytest.mark.parametrize("times", [9, EVERY])
def test_apply_killed_at_system_calls_and_at_random_is_reported_and_finished_or_reverted(
    server: Server,
    applying: Stage,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    times: int | None,
) -> None:
    directory, times = tmp_path / "killed", times or applying.passed["system-call"]
    caplog.set_level(logging.WARNING)
    chosen = random.Random(times)
    n_unfinished = 0
    for nth in spread(applying.passed["system-call"], times):
        kill = ["system-call", nth]
        assert assert_applies(server, applying, directory, kill, caplog) == signal.SIGKILL
        n_unfinished += "apply again" in caplog.text
    for _ in range(times // 3):
        kill = chosen.uniform(0.0, applying.seconds)
        assert_applies(server, applying, directory, kill, caplog)
    assert n_unfinished > times // 8


@pytest.mark.parametrize("times", [3, pytest.param(300, marks=pytest.mark.soak)])
def test_apply_to_a_branch_killed_at_random_leaves_a_whole_branch_or_none(
    server: Server, applying: Stage, tmp_path: Path, times: int
) -> None:
    """Git's lock of the branch may be left; only the user can know that its owner is dead."""
    chosen, directory = random.Random(times), tmp_path / "killed"
    for _ in range(times):
        copied(applying.template, directory)
        before, source = shown(directory), directory / "source"
        head = git(source, "rev-parse", "HEAD")
        server.run(directory, "branch", chosen.uniform(0.0, applying.seconds))
        assert_same(before, shown(directory))
        assert git(source, "rev-parse", "HEAD") == head
        assert git(source, "status", "--short") == ""
        lock = source / ".git/refs/heads/made.lock"
        with reopened(directory) as workspace:
            if "made" not in git(source, "branch", "--list", "made"):
                if lock.exists():
                    with pytest.raises(LedgerError, match=r"made\.lock"):
                        workspace.apply("branch", branch="made")
                    lock.unlink()
                workspace.apply("branch", branch="made")
        assert git(source, "fsck", "--strict", "--no-dangling") == ""
        assert git(source, "show", "made:a.txt") == "one\nTWO\nthree\n"
        assert git(source, "show", "made:new/deep/x") == "#!/bin/sh\nx\n"
