"""The time of a tool call here and in comparable tools: the same work, in turns, on one machine.

Run by ``make bench-peers``; needs Python 3.12 or newer and, the first time, the package index. Each
tool gets its own virtual environment beside this file, and a process that answers requests
(``protocol.py``). It asserts nothing. README.md explains the columns.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

HERE = Path(__file__).parent
ROUNDS = 20
EDIT_ROUNDS = 50
EARLIER_LIMIT_S = 75
PHASE_LIMIT_S = 6  # of one tool in one phase; after that it is skipped
LIMIT_S = {1_000: 200, 10_000: 80}  # by number of files; after that all processes are killed
WIDTH = 1_000  # files a directory


@dataclass(frozen=True)
class Tool:
    """One row: the package to install, and how its process is started."""

    name: str
    package: str
    script: str
    mode: str = ""
    n_earlier: int = 2_000

    @property
    def venv(self) -> Path:
        return HERE / f".venv-{self.script.removeprefix('peer_').removesuffix('.py')}"


TOOLS = (
    Tool("plain Python", "", "peer_plain.py"),
    Tool("wink_workspace", "wink-workspace", "peer_wink_workspace.py"),
    Tool("weakincentives", "weakincentives==0.27.0", "peer_weakincentives.py"),
    Tool("deepagents, backend", "deepagents==0.7.32", "peer_deepagents.py", "backend"),
    Tool("deepagents, agent", "deepagents==0.7.32", "peer_deepagents.py", "agent"),
    Tool("openai-agents", "openai-agents==0.24.0", "peer_openai_agents.py"),
    Tool(
        name="openai-agents, snapshots",
        package="openai-agents==0.24.0",
        script="peer_openai_agents.py",
        mode="snapshots",
        n_earlier=20,  # each of them packs all files
    ),
)


@dataclass
class Row:
    """The results of one tool."""

    times: dict[str, list[float]] = field(default_factory=dict)
    as_before: dict[str, list[bool]] = field(default_factory=dict)
    edits: Counter[str] = field(default_factory=Counter)
    undone: Counter[tuple[str, ...]] = field(default_factory=Counter)
    n_earlier: int = 0
    errors: list[str] = field(default_factory=list)


class Process:
    """A process with one tool in its own directory."""

    def __init__(self, tool: Tool, row: Row, root: Path) -> None:
        self.tool, self.row = tool, row
        self.root = root
        self.spent_s: Counter[str] = Counter()
        self.child = subprocess.Popen(
            [tool.venv / "bin/python", HERE / tool.script, tool.mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(root.parent / "stderr").open("w"),
            text=True,
            env=os.environ
            | {
                "OPENAI_AGENTS_DISABLE_TRACING": "1",
                "LANGSMITH_TRACING": "false",
                "TMPDIR": str(root.parent),
            },
        )

    def send(self, do: str, **arguments: object) -> None:
        assert self.child.stdin is not None
        with suppress(BrokenPipeError):  # the missing answer is reported
            print(json.dumps({"do": do, **arguments}), file=self.child.stdin, flush=True)

    def answer(self) -> Any:
        """The tool's answer; None after an error, which is added to its row."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        answer = json.loads(line) if line else {"error": "ended before it answered"}
        if "error" in answer:
            self.row.errors.append(answer["error"])
        return answer.get("answer")

    def ask(self, do: str, **arguments: object) -> Any:
        self.send(do, **arguments)
        return self.answer()

    def close(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            self.child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.child.kill()


def in_turns(processes: list[Process], do: str, phase: str, n_rounds: int) -> Iterator[tuple]:
    """Each process and its answer, one after the other in each round."""
    for _ in range(n_rounds):
        for process in processes:
            if process.row.errors or process.spent_s[phase] > PHASE_LIMIT_S:
                continue
            answer = process.ask(do)
            if answer is None:
                continue
            seconds = answer["seconds"] if isinstance(answer, dict) and "seconds" in answer else 0
            process.spent_s[phase] += answer if isinstance(answer, float) else seconds
            yield process, answer


def measure_writes(processes: list[Process], phase: str) -> None:
    for process, seconds in in_turns(processes, "write", phase, ROUNDS):
        process.row.times.setdefault(phase, []).append(seconds)


def measure_failures(processes: list[Process], phase: str) -> None:
    for process, answer in in_turns(processes, "fail", phase, ROUNDS):
        process.row.times.setdefault(phase, []).append(answer["seconds"])
        process.row.as_before.setdefault(phase, []).append(answer["as_before"])


def make_earlier_calls(processes: list[Process]) -> None:
    """Make them in parallel, because they are not measured."""
    for process in processes:
        process.send("repeat", times=process.tool.n_earlier, limit_s=EARLIER_LIMIT_S)
    for process in processes:
        process.row.n_earlier = process.answer() or 0


def measure_edits(processes: list[Process]) -> None:
    for process, outcome in in_turns(processes, "edit_twice", "edits", EDIT_ROUNDS):
        process.row.edits[outcome] += 1


def measure_undo(processes: list[Process]) -> None:
    for process, answer in in_turns(processes, "undo_command", "undo", ROUNDS):
        if "seconds" in answer:
            process.row.times.setdefault("undo", []).append(answer["seconds"])
            process.row.undone[tuple(answer["right"])] += 1


@contextmanager
def opened(rows: dict[Tool, Row], scratch: Path, n_files: int) -> Iterator[list[Process]]:
    """A process for each tool, in a directory of *n_files* files, 20 lines each."""
    processes: list[Process] = []
    for tool, row in rows.items():
        if row.errors:
            continue
        directory = scratch / f"{n_files}-{tool.name.replace(' ', '-').replace(',', '')}"
        fill(directory / "work", n_files)
        processes.append(Process(tool, row, directory / "work"))
    watchdog = threading.Timer(LIMIT_S[n_files], lambda: [each.child.kill() for each in processes])
    watchdog.start()
    try:
        for process in processes:
            process.ask("start", root=str(process.root))
        for _ in range(3):
            for process in processes:
                process.ask("write")
        yield processes
    finally:
        watchdog.cancel()
        for process in processes:
            process.close()


def fill(root: Path, n_files: int) -> None:
    for n in range(n_files):
        folder = root / f"d{n // WIDTH}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{n % WIDTH}.txt").write_text(f"file {n}\n" * 20)


def set_up() -> None:
    """Create missing virtual environments."""
    python = newest_python()
    for tool in TOOLS:
        if not (tool.venv / "bin/python").exists():
            subprocess.run([python, "-m", "venv", tool.venv], check=True)
        if tool.package and not (tool.venv / ".ready").exists():
            what = ["-e", str(HERE.parent.parent)] if "==" not in tool.package else [tool.package]
            pip = [tool.venv / "bin/python", "-m", "pip", "install", "-q"]
            subprocess.run([*pip, "--disable-pip-version-check", *what], check=True)
            (tool.venv / ".ready").touch()


def newest_python() -> str:
    """An interpreter that supports all of the tools.

    Raises:
        SystemExit: If there is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    for minor in (13, 12):
        found = [f"python3.{minor}", *map(str, pyenv.glob(f"3.{minor}.*/bin/python"))]
        for python in [sys.executable, *found]:
            check = f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))"
            asked = [python, "-c", check]
            if shutil.which(python) and not subprocess.run(asked, capture_output=True).returncode:
                return python
    raise SystemExit("weakincentives needs Python 3.12 or 3.13, and neither is installed")


def cell(row: Row, phase: str) -> str:
    """Median and minimum in milliseconds, and the number of rounds if some were skipped."""
    times = row.times.get(phase, [])
    if not times:
        return "none"
    few = f", {len(times)} of {ROUNDS}" if len(times) < ROUNDS else ""
    return f"{1e3 * median(times):,.1f} ({1e3 * min(times):,.1f}{few})"


def failure(row: Row, phase: str) -> str:
    seen = set(row.as_before.get(phase, []))
    word = {(True,): "yes", (False,): "no"}.get(tuple(seen), "not always")
    return f"{word}, {cell(row, phase)}" if seen else "none"


def undone(row: Row) -> str:
    if not row.undone:
        return "none"
    (right, _), *others = row.undone.most_common()
    word = "yes" if len(right) == 3 else ("only " + ", ".join(right) if right else "no")
    return f"{'not always' if others else word}, {cell(row, 'undo')}"


def new_file_ms(directory: Path) -> float:
    """The time of one new file, which recent deletions increase on ext4."""
    times: list[float] = []
    for n in range(50):
        start = perf_counter()
        (directory / f"new-{n}").touch()
        times.append(1e3 * (perf_counter() - start))
    return median(times)


def show(rows: dict[Tool, Row], new_file_ms: float) -> None:
    version = [TOOLS[0].venv / "bin/python", "-V"]
    python = subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip()
    load = f"load {os.getloadavg()[1]:.1f} in the last five minutes"
    print(f"{python}, {os.cpu_count()} cores, {load}, {new_file_ms:.3f} ms for a new file\n")
    heads = ("first calls", "after 2,000 more", "failed, 1,000 files", "failed, 10,000 files")
    print("| |", " | ".join((*heads, "two edits: both / refused / lost / torn", "undo")), "|")
    print("|---" * 7 + "|")
    for tool, row in rows.items():
        later = cell(row, "later") + ("" if row.n_earlier == 2_000 else f" after {row.n_earlier:,}")
        edits = " / ".join(str(row.edits[kind]) for kind in ("both", "refused", "lost", "torn"))
        failed = [failure(row, "fail 1,000"), failure(row, "fail 10,000")]
        cells = (tool.name, cell(row, "first"), later, *failed, edits, undone(row))
        print("|", " | ".join(cells), "|")
    for tool, row in rows.items():
        for error in row.errors:
            print(f"\n{tool.name}: {error}")


def main() -> None:
    set_up()
    rows = {tool: Row() for tool in TOOLS}
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        with opened(rows, Path(scratch), 1_000) as processes:
            new_ms = new_file_ms(Path(scratch))
            measure_writes(processes, "first")
            make_earlier_calls(processes)
            measure_writes(processes, "later")
            measure_failures(processes, "fail 1,000")
            measure_edits(processes)
            measure_undo(processes)
        with opened(rows, Path(scratch), 10_000) as processes:
            measure_failures(processes, "fail 10,000")
        show(rows, new_ms)


if __name__ == "__main__":
    main()
