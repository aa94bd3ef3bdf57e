"""Attempts and scorers of the tests; at the top level, so that they can be sent to workers."""

from __future__ import annotations

import logging
import os
import signal
from decimal import Decimal
from pathlib import Path
from time import sleep

from wink_workspace.attempts import AttemptContext, Score
from wink_workspace.clock import TokenUsage
from wink_workspace.workspace import Workspace

PASSING = (5, 17, 29)
PACKAGE = {
    "calc/__init__.py": "",
    "calc/core.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return add(a, a)\n",
    "README.md": "one\ntwo\nthree\n",
}


def edit(
    context: AttemptContext, old: str = "a - b", new: str = "", path: str = "calc/core.py"
) -> None:
    """Replace text in one call."""
    with context.workspace.call("edit") as call:
        context.workspace.files.edit(path, old, new)
        call.result("edited")


def solve(context: AttemptContext) -> None:
    """Three of 32 find the right code, in two calls and one turn; safe to continue."""
    with context.budget.turn() as turn:
        turn.record(TokenUsage(10, 1), Decimal("0.01"))
    if b"a - b" in context.workspace.files.read_bytes("calc/core.py"):
        wrong = context.random.choice(["a * b", "a // b", "b - a"])
        edit(context, new="a + b" if context.number in PASSING else wrong)
    if not context.workspace.files.exists("notes.md"):
        with context.workspace.call("note") as call:
            context.workspace.files.write_bytes("notes.md", b"%d\n" % context.number)
            call.result("noted")


def tests_pass(workspace: Workspace) -> Score:
    """Whether the package adds; writes into its fork, which must not be kept."""
    workspace.files.write_bytes("scored.txt", b"x")
    names: dict[str, object] = {}
    exec(workspace.files.read_bytes("calc/core.py"), names)
    found = [names["double"](n) for n in range(1, 4)]  # type: ignore[operator]
    return Score(sum(got == 2 * n for n, got in enumerate(found, 1)), found == [2, 4, 6])


def edit_readme(context: AttemptContext) -> None:
    """Attempts 1 and 2 edit different lines, attempt 3 the line of attempt 1."""
    old = {1: "one", 2: "three", 3: "one"}[context.number]
    edit(context, old, f"{old} by {context.number}", "README.md")


def die_once(context: AttemptContext) -> None:
    """Commit a call; in the first epoch die inside the next one."""
    if not context.workspace.files.exists("first"):
        with context.workspace.call("first") as call:
            context.workspace.files.write_bytes("first", b"1")
            call.result("")
        with context.workspace.call("second"):
            context.workspace.files.write_bytes("lost", b"1")
            os.kill(os.getpid(), signal.SIGKILL)
    with context.workspace.call("second") as call:
        context.workspace.files.write_bytes("second", b"1")
        call.result("")


def die_once_later(folder: str, context: AttemptContext) -> None:
    """Commit calls; the worker dies once, before the third."""
    for name in ("first", "second", "third"):
        if name == "third" and not Path(folder, "died").exists():
            context.check()
            Path(folder, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if not context.workspace.files.exists(name):
            with context.workspace.call(name) as call:
                context.workspace.files.write_bytes(name, b"%d" % os.getpid())
                call.result("")


def stop_once(folder: str, context: AttemptContext) -> None:
    """The first worker is stopped by a signal; the second one lets it continue."""
    marker = Path(folder, "stopped")
    is_first = not marker.exists()
    with context.workspace.call("work") as call:
        context.workspace.files.write_bytes("worker", b"first" if is_first else b"second")
        call.result("")
    if is_first:
        marker.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        os.kill(int(marker.read_text()), signal.SIGCONT)


def log_lines(context: AttemptContext) -> None:
    """Log one line below the usual level, one of a program, one of this package, and one of Ray."""
    logging.getLogger("program").info("not shown")
    logging.getLogger("program").warning("%d", "cannot be formatted")
    logging.getLogger("program").warning("line\n%d \x1b[31m", context.number)
    logging.getLogger("wink_workspace.x").error("failed")
    logging.getLogger("ray.worker").error("not sent")


def log_much(context: AttemptContext) -> None:
    """Log more than is sent."""
    for n in range(1_100):
        logging.getLogger("program").warning("%d %s", n, "x" * 10_000)


def score_logs(workspace: Workspace) -> float:
    """A scorer that does not end, and logs."""
    while True:
        logging.getLogger("program").warning("%s", "x" * 1_000)


def always_die(context: AttemptContext) -> None:
    """End the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


def spend(context: AttemptContext) -> None:
    """Spend 100 tokens a turn, until the budget ends the attempt."""
    while True:
        with context.budget.turn(TokenUsage(100)) as turn:
            turn.record(TokenUsage(100))


def call_forever(context: AttemptContext) -> None:
    """Attempt 1 ends; the others make calls until they are stopped."""
    n = 0
    while context.number > 1:
        n += 1
        with context.workspace.call("count") as call:
            context.workspace.files.write_bytes("n", b"%d" % n)
            context.workspace.files.write_bytes("same", b"%d" % n)
            call.result("")


def continue_each_round(context: AttemptContext) -> None:
    """One line for each round."""
    old = context.workspace.files.read_bytes("README.md")
    with context.workspace.call("round") as call:
        context.workspace.files.write_bytes("README.md", old + b"round %d\n" % context.round)
        call.result("")


def branch_twice(context: AttemptContext) -> None:
    """The roots branch into two; every attempt appends its path."""
    old = context.workspace.files.read_bytes("README.md")
    with context.workspace.call("path") as call:
        context.workspace.files.write_bytes("README.md", old + context.path.encode() + b"\n")
        call.result("")
    if "." not in context.path:
        context.branch(2)


def score_number(workspace: Workspace) -> float:
    """The length of the readme."""
    return float(len(workspace.files.read_bytes("README.md")))


def score_raises(workspace: Workspace) -> float:
    """A broken scorer."""
    raise RuntimeError("no score\nhere")


def score_hangs(workspace: Workspace) -> float:
    """A scorer that does not end."""
    while True:
        sleep(3_600)


def score_prints(workspace: Workspace) -> float:
    """A scorer that prints 1 GiB."""
    block = b"x" * (1 << 24)
    for _ in range(64):
        os.write(1, block)
    return 1.0


def read_tree(root: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def break_scorer(context: AttemptContext) -> None:
    """Every attempt but the first one adds the file on which ``score_unless_broken`` fails."""
    with context.workspace.call("work"):
        name = "notes.md" if context.number == 1 else "broken"
        context.workspace.files.write_bytes(name, b"x")


def score_unless_broken(log: str, workspace: Workspace) -> float:
    """Notes each run in the file *log*, with what the attempt did."""
    state = [name for name in ("notes.md", "broken") if workspace.files.exists(name)]
    with Path(log).open("a") as file:
        file.write(f"{state}\n")
    if workspace.files.exists("broken"):
        raise RuntimeError("no score here")
    return -1.0
