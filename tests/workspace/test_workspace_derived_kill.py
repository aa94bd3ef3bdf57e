"""``kill -9`` while derived paths are rolled back, recovered or kept as a checkpoint."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import random_cases
from kill_rig import FORMS, Server, copied
from workspace_rig import assert_same, folder, made, picture, reopened

from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.session import Outcome
from wink_workspace.workspace import ImportConfig, WorkspaceConfig

FILES = {
    "a.txt": b"line\n",
    "run.sh": b"#!/bin/sh\n",
    "node_modules/a/index.js": b"1\n",
    "node_modules/b/index.js": b"2\n",
    ".venv/bin/python": b"#!\n",
    ".env": b"SECRET\n",
}
POINTS = [("derived-removed", n) for n in (1, 2, 3)] + [("derived-restored", n) for n in (1, 2, 3)]


@pytest.fixture(scope="module", params=FORMS)
def template(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    directory = tmp_path_factory.mktemp("derived")
    config = WorkspaceConfig(imported=ImportConfig(on_rollback="restore"))
    made(directory, FILES, config=config, mode=request.param).close()
    return directory


@pytest.mark.parametrize(("point", "nth"), [("damage", 1), *POINTS])
def test_recovery_restores_derived_paths_whenever_the_call_or_its_rollback_was_killed(
    server: Server, template: Path, tmp_path: Path, point: str, nth: int
) -> None:
    directory = copied(template, tmp_path / "killed")
    before = picture(folder(directory).files)
    assert server.run(directory, "derived", [point, nth]) == signal.SIGKILL
    with reopened(directory) as workspace:
        head = next(workspace.log())
        assert (head.tool, head.outcome) == ("damage-derived", Outcome.UNKNOWN)
    assert_same(before, picture(folder(directory).files))


@pytest.mark.parametrize("point", POINTS)
def test_recovery_that_is_killed_too_restores_derived_paths_the_next_time(
    server: Server, template: Path, tmp_path: Path, point: tuple[str, int]
) -> None:
    directory = copied(template, tmp_path / "killed")
    before = picture(folder(directory).files)
    assert server.run(directory, "derived", ["damage", 1]) == signal.SIGKILL
    assert server.run(directory, "open", list(point)) == signal.SIGKILL
    reopened(directory).close()
    assert_same(before, picture(folder(directory).files))


@pytest.mark.parametrize("point", ["checkpoint-copied", "checkpoint-replaced", "system-call"])
def test_checkpoint_killed_at_any_step_is_the_old_or_the_new_one(
    server: Server, template: Path, tmp_path: Path, point: str
) -> None:
    found: set[bytes] = set()
    reference = copied(template, tmp_path / "reference")
    assert server.run(reference, "checkpoint") == 0
    n_passed = json.loads((reference / "passed").read_text())[point]
    for nth in sorted({1, max(1, n_passed // 2), *range(max(1, n_passed - 6), n_passed + 1)}):
        directory = copied(template, tmp_path / "killed")
        ended = server.run(directory, "checkpoint", [point, nth])
        if point == "system-call" and nth > n_passed - 6:  # the times of files change the number
            assert ended in (signal.SIGKILL, 0)
        else:
            assert ended == signal.SIGKILL
        with reopened(directory) as workspace:
            kept = picture(folder(directory).checkpoint)
            assert kept[b"node_modules/b/index.js"][2] == b"2\n"
            found.add(kept[b".env"][2])
            with pytest.raises(RuntimeError), workspace.call("break") as call:
                call.files.delete(".env")
                raise RuntimeError("no")
            assert workspace.files.read_bytes(".env") == kept[b".env"][2]
    assert found == {b"SECRET\n", b"CHANGED\n"} if n_passed > 1 else {b"SECRET\n"}


@pytest.mark.sweep
def test_fork_killed_at_any_step_leaves_the_derived_paths_to_its_parent(
    server: Server, tmp_path: Path
) -> None:
    support = overlay_support(tmp_path)
    if not support.available:
        pytest.skip(support.reason)
    (tmp_path / "template").mkdir()
    large = dict.fromkeys(("node_modules/big.js", "pkg/.venv/big.so"), b"x" * 1500000)
    made(tmp_path / "template", {**FILES, "pkg/a.py": b"", **large}, mode="overlay").close()
    reference = copied(tmp_path / "template", tmp_path / "reference")
    assert server.run(reference, "share") == 0
    n_passed = json.loads((reference / "passed").read_text())["system-call"]
    steps = [("layer-named", 1), ("derived-frozen", 1), ("derived-frozen", 2)]
    steps += [
        ("system-call", nth) for nth in range(1, n_passed + 1, 3 if random_cases.in_soak else 40)
    ]
    for step in steps:
        directory = copied(tmp_path / "template", tmp_path / "killed")
        assert server.run(directory, "share", list(step)) in (signal.SIGKILL, 0)
        with reopened(directory) as workspace:
            assert workspace.diff() == ""
            assert all(workspace.files.read_bytes(name) == large[name] for name in large)
            with workspace.fork("after").open() as fork:
                assert all(fork.files.read_bytes(path) == large[path] for path in large)
