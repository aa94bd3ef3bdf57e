"""Python itself as the interpreter: the tool, files through ordinary functions, and settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asteval_support import evaluate, opened
from support import SmallWorkspace, small_workspace

from wink_workspace import serde
from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.prompt import ToolExample
from wink_workspace.sandbox import SANDBOXES
from wink_workspace.sandbox.asteval import AstevalSandbox, EndReason, PythonConfig
from wink_workspace.sections import AstevalParams, AstevalResult, AstevalSection

FILES = {"README.md": "", "src/app.py": "def main():\n    print('hello')\n    return 0\n"}
SECTION = AstevalSection(config=PythonConfig())
(TOOL,) = SECTION.tools()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened("python", timeout_s=5.0, use_numpy=False) as made:
        yield made


@pytest.fixture
def agent(sandbox: AstevalSandbox) -> Iterator[SmallWorkspace]:
    with small_workspace(sections=[AstevalSection(sandbox)], files=FILES) as started:
        yield started


@pytest.mark.parametrize("example", TOOL.examples, ids=lambda example: example.description)
def test_an_example_gives_the_stated_output(
    agent: SmallWorkspace, example: ToolExample[AstevalParams, AstevalResult]
) -> None:
    outcome = agent.call("evaluate_python", serde.dump_json(example.input))
    assert outcome.result.success, outcome.text
    assert outcome.result.value == example.output


def test_the_section_states_what_its_interpreter_supports() -> None:
    assert "whole language" in SECTION.body(None)
    assert "classes" in AstevalSection().body(None)
    assert "from the standard library" in TOOL.description
    backend = SANDBOXES.get("python")
    assert backend.section(backend.config()).body(None) == SECTION.body(None)


def test_classes_and_pathlib_work_on_declared_files(agent: SmallWorkspace) -> None:
    code = """
from dataclasses import dataclass
from pathlib import Path
@dataclass
class Count:
    path: Path
    n: int
counts = [Count(p, len(p.read_text().splitlines())) for p in sorted(Path("src").glob("*.py"))]
Path("out").mkdir()
Path("out/counts.txt").write_text(repr(counts))
"""
    outcome = agent.call("evaluate_python", code=code, reads=["src"], writes=["out/counts.txt"])
    assert outcome.result.success, outcome.text
    assert "wrote out/counts.txt" in outcome.text
    written = agent.filesystem.read_text("out/counts.txt").text
    assert written == "[Count(path=PosixPath('src/app.py'), n=3)]"


@pytest.mark.behaviour(22)
def test_files_and_directories_of_a_failed_program_are_restored(agent: SmallWorkspace) -> None:
    before = agent.state()
    code = (
        "import os\nos.makedirs('a/b')\nopen('a/b/c.txt', 'w').write('x')\nraise KeyError('late')"
    )
    outcome = agent.call("evaluate_python", code=code, writes=["a/b/c.txt"])
    assert "KeyError: 'late'" in outcome.text
    assert "restored" in outcome.text
    assert agent.state() == before


@pytest.mark.parametrize(
    ("code", "error", "expected"),
    [
        ("os.listdir('.')", "PermissionError", "not declared"),
        ("os.listdir('data/a.txt')", "NotADirectoryError", "data/a.txt"),
        ("os.stat('other')", "PermissionError", "not declared"),
        ("Path('other').exists()", "PermissionError", "not declared"),
        ("os.mkdir('made')", "PermissionError", "not declared"),
        ("os.mkdir('new/x.txt')", "PermissionError", "not declared"),
        ("os.mkdir('data')", "PermissionError", "not declared"),
        ("os.makedirs('new'); os.mkdir('new')", "FileExistsError", "new"),
        ("Path('data/a.txt').write_text('')", "PermissionError", "not declared"),
        ("os.remove('data/a.txt')", "PermissionError", "not permitted"),
        ("os.rename('data/a.txt', 'b')", "PermissionError", "not permitted"),
        ("open('/etc/passwd')", "PermissionError", "outside the workspace"),
        ("open('data/../../etc/passwd')", "PermissionError", "outside the workspace"),
        ("open('data/a.txt').write('')", "UnsupportedOperation", "not writable"),
        ("open('new/x.txt', 'w').read()", "UnsupportedOperation", "not readable"),
    ],
)
def test_what_was_not_declared_is_refused_with_pythons_exception(
    sandbox: AstevalSandbox, code: str, error: str, expected: str
) -> None:
    files = MemoryFilesystem({"data/a.txt": "1", "other": "2"})
    found = evaluate(
        sandbox, f"import os\nfrom pathlib import Path\n{code}", files,
        reads=("data",), writes=("new/x.txt",),
    )  # fmt: skip
    assert found.error is not None
    assert (found.error.type, expected in found.error.message) == (error, True), found.error


def test_directories_above_declared_files_and_their_own_metadata_are_visible(
    sandbox: AstevalSandbox,
) -> None:
    files = MemoryFilesystem({"a/b/c.txt": "123", "a/run.sh": "x"})
    files.set_executable("a/run.sh", executable=True)
    code = """
import os
from pathlib import Path
here = Path.cwd()
[(here / "a/b/c.txt").stat().st_size, Path("a").is_dir(), os.access("a", os.R_OK),
 oct(os.stat("a/run.sh").st_mode), Path("a/b/c.txt").resolve().relative_to(here).as_posix(),
 os.path.exists("a/new/d.txt"), Path("a/b/../b/c.txt").read_text(), str(here)]
"""
    found = evaluate(sandbox, code, files, reads=("a/b/c.txt", "a/run.sh"), writes=("a/new/d.txt",))
    assert found.value is not None, found.error
    assert found.value.json == [
        3, True, False, "0o100755", "a/b/c.txt", False, "123", "/workspace",
    ]  # fmt: skip


@pytest.mark.parametrize("call", ["os.stat('a')", "os.listdir('.')", "open('a').read()"])
def test_calls_for_metadata_count_as_file_calls(call: str) -> None:
    with opened("python", file_calls=20, use_numpy=False) as sandbox:
        files = MemoryFilesystem({"a": "1"})
        code = f"import os\nfor _ in range(30):\n    {call}"
        found = evaluate(sandbox, code, files, reads=(".",))
    assert found.error is not None
    assert "more than 20 file calls" in found.error.message


def test_a_listing_counts_as_transferred_bytes() -> None:
    files = MemoryFilesystem({f"file-{n:04}": "" for n in range(500)})
    with opened("python", transfer_bytes=4_096, use_numpy=False) as sandbox:
        found = evaluate(sandbox, "import os\nlen(os.listdir())", files, reads=(".",))
    assert found.error is not None
    assert "more than 4,096 bytes" in found.error.message


def test_output_without_a_line_end_and_unclosed_files_are_complete(sandbox: AstevalSandbox) -> None:
    files = MemoryFilesystem()
    code = "import sys\nfile = open('a', 'w')\nfile.write('kept')\nprint('x', end='')\nsys.stderr.write('y')"
    found = evaluate(sandbox, code, files, writes=("a",))
    assert (found.stdout, found.stderr) == ("x", "y")
    assert files.read_bytes("a") == b"kept"


def test_lines_before_a_kill_are_kept(sandbox: AstevalSandbox) -> None:
    found = evaluate(sandbox, "import ctypes\nprint('one')\nctypes.string_at(0)")
    assert (found.outcome, found.stdout) == (EndReason.KILLED, "one\n")


def test_a_line_of_output_is_one_message(sandbox: AstevalSandbox) -> None:
    """The host counts bytes, not messages, so a message for each value would be slow only."""
    code = """
import sys
raw = sys.stdout.buffer.raw
count, send = [0], raw._channel.send
raw._channel.send = lambda *a, **k: (count.__setitem__(0, count[0] + 1), send(*a, **k))
for n in range(10):
    print(n, n, n)
count[0]
"""
    found = evaluate(sandbox, code)
    assert found.value is not None, found.error
    assert found.value.json == 10


def test_each_evaluation_has_random_states_of_its_own() -> None:
    pytest.importorskip("numpy")
    code = "import random\nimport numpy as np\n[random.random(), float(np.random.rand())]"
    with opened("python", timeout_s=10.0) as sandbox:
        values = [evaluate(sandbox, code).value.json for _ in range(3)]
    assert len({value for pair in values for value in pair}) == 6


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import asyncio\nasync def f(): await asyncio.Event().wait()\nasyncio.run(f())",
         "RuntimeError: the event loop would wait forever"),
        ("import asyncio\nasync def f(): await asyncio.to_thread(print)\nasyncio.run(f())",
         "RuntimeError: can't start new thread"),
        ("import requests", "No module named 'requests' here"),
        ("import os.nothing", "No module named 'os.nothing'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(sandbox: AstevalSandbox, code: str, expected: str) -> None:
    assert expected in str(evaluate(sandbox, code).error)


def test_its_server_loads_no_asteval_and_no_numpy_unless_wanted(sandbox: AstevalSandbox) -> None:
    code = (
        "import sys\n[sys.modules.get(name) is not None for name in ('asteval', 'numpy', 'json')]"
    )
    assert evaluate(sandbox, code).value.json == [False, False, True]


def test_given_names_and_results_are_those_of_the_module(sandbox: AstevalSandbox) -> None:
    found = evaluate(
        sandbox, "class A: pass\nimport math\ndef f(): pass\nn = x + 1\nsorted(globals())", x=1
    )
    assert {*found.names} == {"x", "n"}
    assert {"A", "f", "x", "__name__"} <= {*found.value.json}
