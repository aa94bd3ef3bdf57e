"""The cost of one warm call on disk, counted in calls of Python functions."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from workspace_rig import Call, calls, made

from wink_workspace.clock import ManualClock
from wink_workspace.filesystem import DiskTree
from wink_workspace.filesystem.changes.inotify import InotifyTracker
from wink_workspace.filesystem.changes.scan import ScanTracker
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.runtime import ToolExecutor
from wink_workspace.workspace import WorkspaceMode

MOST_CALLS = {"copy": 897, "overlay": 901}  # nine objects are appended, each by one call
MOST_CALLS_OF_A_READ = 536
MOST_READS = 2
LOOKS_BEFORE = 1
EDITED = "src/main.py"
FILES = {f"src/module_{n}.py": b"import sys\n\nx = %d\n" % n for n in range(20)}
DRAINS = {InotifyTracker.drain.__code__, ScanTracker.drain.__code__}


@pytest.fixture(params=["copy", "overlay"])
def mode(request: pytest.FixtureRequest, tmp_path: Path) -> WorkspaceMode:
    """Return both forms of a workspace that is not in place."""
    if request.param == "overlay" and not (support := overlay_support(tmp_path)).available:
        pytest.skip(support.reason)
    return request.param


@dataclass
class CallPath:
    """The functions that ran inside ``ToolExecutor.execute``."""

    functions: Counter[CodeType] = field(default_factory=Counter[CodeType])
    n_c_calls: int = 0
    n_reads: int = 0
    looks_before: int = 0

    def __str__(self) -> str:
        files = {code.co_filename for code in self.functions}
        return (
            f"{self.functions.total()} Python calls of {len(self.functions)} functions in "
            f"{len(files)} files, {self.n_c_calls} calls of C functions, {self.n_reads} reads "
            f"of the file, {self.looks_before} looks before the handler"
        )


def traced(act: Callable[[], object]) -> CallPath:
    """Run *act*, and count what it does inside of ``ToolExecutor.execute``."""
    path = CallPath()
    outermost: FrameType | None = None
    in_handler = False

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal outermost, in_handler
        code = frame.f_code
        if outermost is None:
            if event != "call" or code is not ToolExecutor.execute.__code__:
                return
            outermost = frame
        if event == "call":
            path.functions[code] += 1
            path.n_reads += code is DiskTree.open.__code__ and str(frame.f_locals["path"]) == EDITED
            in_handler |= code is Filesystem.edit.__code__
            path.looks_before += code in DRAINS and not in_handler
        elif event == "c_call":
            path.n_c_calls += 1
        elif event == "return" and frame is outermost:
            sys.setprofile(None)

    gc.disable()  # its callbacks would be counted
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return path


def edit(call: Call, n: int) -> None:
    edits = {"old_string": f"x = {n}\n", "new_string": f"x = {n + 1}\n"}
    assert call("edit_file", file_path=EDITED, **edits).result.success


def test_warm_edit_stays_within_its_budget_of_calls_reads_and_drains(
    tmp_path: Path, mode: WorkspaceMode, record_property: Callable[[str, object], None]
) -> None:
    clock = ManualClock(datetime.now(UTC) + timedelta(hours=1))  # so that no file is racily clean
    files = {**FILES, EDITED: b"import sys\n\nx = 0\n"}
    with made(tmp_path, files, clock=clock, mode=mode) as workspace, calls(workspace) as call:
        assert call("read_file", file_path=EDITED).result.success
        for n in range(5):
            edit(call, n)
        paths = [traced(lambda n=n: edit(call, n)) for n in range(5, 8)]
    path = min(paths, key=lambda path: path.functions.total())
    report = str(path)
    record_property("call_path", report)
    assert path.n_reads <= MOST_READS, report
    assert path.looks_before == LOOKS_BEFORE, report
    assert path.functions.total() <= MOST_CALLS[mode], report


def test_warm_read_stays_within_its_budget_of_calls_and_opens_the_file_once(
    tmp_path: Path, mode: WorkspaceMode, record_property: Callable[[str, object], None]
) -> None:
    clock = ManualClock(datetime.now(UTC) + timedelta(hours=1))
    with (
        made(tmp_path, {**FILES, EDITED: b"import sys\n"}, clock=clock, mode=mode) as workspace,
        calls(workspace) as call,
    ):

        def read() -> None:
            assert call("read_file", file_path=EDITED).result.success

        for _ in range(5):
            read()
        paths = [traced(read) for _ in range(3)]
    path = min(paths, key=lambda path: path.functions.total())
    report = str(path)
    record_property("read_path", report)
    assert path.functions[ToolExecutor.execute.__code__] == 1
    assert path.n_reads == 1, report
    assert path.looks_before == LOOKS_BEFORE + 1, report  # and one after the handler
    assert path.functions.total() <= MOST_CALLS_OF_A_READ, report
