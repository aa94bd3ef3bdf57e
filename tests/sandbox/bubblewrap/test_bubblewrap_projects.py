"""Real projects: `exec` is the first command, and their tests give the results of this machine.

Each is run by this user, which is mostly root, and by an ordinary user, whose home has the project and nothing else. The
programs and packages are prepared as by a developer: in the project, or in a directory of tools.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandbox.podman.podman_machine import HOME, OrdinaryUser
from sandbox.real_projects import (
    C_PROJECT,
    DEBIAN,
    GO_PROJECT,
    NODE_PROJECT,
    RUST_PROJECT,
    make_venv,
    npm,
    passed_lines,
    unpack,
    unpack_debian,
    unpacked,
    write,
)

pytestmark = pytest.mark.xdist_group("bubblewrap-projects")

PYTHON = "/usr/bin/python3"
"""An interpreter that every user can run, as virtual environments need it."""
CODE = "import os, sys; os.chdir(sys.argv[1]); "
EXEC = CODE + "from wink_workspace.cli import main; sys.exit(main(['exec', '--', *sys.argv[2:]]))"
HOST = CODE + "os.environ.pop('PYTHONPATH', 0); os.execvp(sys.argv[2], sys.argv[2:])"
VERBOSE = (".venv/bin/python", "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=no")
HTTPX = (
    *("anyio", "brotli", "certifi", "chardet==5.2.0", "click", "cryptography", "cffi", "h11", "h2"),
    *("hpack", "httpcore", "hyperframe", "idna", "iniconfig", "markdown-it-py", "mdurl", "outcome"),
    *("packaging", "pluggy", "pycparser", "pygments", "pytest", "rich<14", "sniffio", "socksio"),
    *("sortedcontainers", "attrs", "trio", "trustme", "typing-extensions", "uvicorn", "zstandard"),
)


@dataclass
class Developer:
    """A user with a project.

    Attributes:
        home: The home, which has the project.
        source: The project.
        variables: What the environment has in addition.
    """

    home: Path
    user: OrdinaryUser | None
    variables: dict[str, str]

    @property
    def source(self) -> Path:
        return self.home / "project"

    def owns(self) -> None:
        """Give the home to the user, when it is complete."""
        if self.user is not None:
            owner = f"{self.user.uid}:{self.user.gid}"
            subprocess.run(["chown", "-R", owner, str(self.home)], check=True, timeout=60)

    def runs(self, code: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run *code* with the path of the project and *command*."""
        more = {"HOME": str(self.home), "PYTHONWARNINGS": "ignore", **self.variables}
        arguments = ("-c", code, str(self.source), *command)
        if self.user is not None:
            libraries = [more.get("LD_LIBRARY_PATH", ""), "/mnt/python/lib"]  # for our interpreter
            more["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))
            return self.user.python(*arguments, more=more)
        return subprocess.run(
            [sys.executable, *arguments],
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def compares(self, results: Callable[[str], set[str]], *command: str) -> set[str]:
        """Run a command in the sandbox, then here; the results, which are the same."""
        self.owns()
        inside = self.runs(EXEC, *command)
        assert "sandbox: bubblewrap" in inside.stderr, inside
        here = self.runs(HOST, *command)
        assert results(inside.stdout) == results(here.stdout), inside.stderr[-2_000:]
        assert inside.returncode == here.returncode
        return results(inside.stdout)


@pytest.fixture(params=["this user", "ordinary user"])
def developer(request: pytest.FixtureRequest, environment: object) -> Iterator[Developer]:
    """A developer with a new home. Pytest shortens names of tests with longer paths."""
    user = None if request.param == "this user" else request.getfixturevalue("ordinary_user")
    above = HOME if user is not None else Path.home() if os.geteuid() else Path("/srv")
    home = above / f"developer-{os.getpid()}"
    home.mkdir(parents=True)
    (home / "project").mkdir()
    try:
        yield Developer(home, user, {})
    finally:
        shutil.rmtree(home)


def outcomes(printed: str) -> set[str]:
    """Each test of pytest with its outcome."""
    found = re.findall(r"^(\S+::.*?) (PASSED|FAILED|SKIPPED|XFAIL|ERROR)\b", printed, re.MULTILINE)
    return {f"{name} {outcome}" for name, outcome in found}


def lines(printed: str) -> set[str]:
    return set(printed.splitlines())


def test_the_first_command_runs_tests_with_the_toolchain_of_this_machine(
    developer: Developer,
) -> None:
    write(developer.source, C_PROJECT)
    test = (
        "import os, pathlib, sys, tempfile, unittest\nclass Test(unittest.TestCase):\n"
        "    def test_environment(self):\n        self.assertIn('.venv', sys.prefix)\n"
        "        tempfile.mkdtemp(dir='/var/tmp'); (pathlib.Path.home() / 'new').mkdir()\n"
        "    def test_variable(self):\n        self.assertEqual(os.environ['CFLAGS'], '-O1')\n"
    )
    write(developer.source, {"test_it.py": test, ".gitignore": ".venv\n"})
    venv = [PYTHON, "-m", "venv", "--without-pip", str(developer.source / ".venv")]
    subprocess.run(venv, check=True, timeout=60)
    developer.variables["CFLAGS"] = "-O1"
    command = "make test && pwd && .venv/bin/python -m unittest -v 2>&1 | grep '\\.\\.\\.'; exit 3"
    found = developer.compares(lines, "sh", "-c", command)
    assert {"ok sum", str(developer.source)} <= found
    assert len([line for line in found if line.endswith("... ok")]) == 2, found


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "packages", "least"),
    [
        ("click==8.5.1", ("pytest", "iniconfig", "packaging", "pluggy", "pygments"), 2_000),
        ("httpx==0.28.1", HTTPX, 1_400),
    ],
)
def test_a_python_project_gives_the_same_results(
    developer: Developer, tmp_path: Path, name: str, packages: tuple[str, ...], least: int
) -> None:
    """Of httpx, tests that resolve a name fail in both places."""
    unpack(name, developer.source, tmp_path)
    make_venv(developer.source / ".venv", developer.source, packages, python=PYTHON)
    assert len(developer.compares(outcomes, *VERBOSE)) > least


@pytest.mark.soak
def test_a_project_of_npm_gives_the_same_results(developer: Developer) -> None:
    write(developer.source, NODE_PROJECT)
    npm(developer.source, "install")
    assert len(developer.compares(passed_lines, "npm", "test")) >= 2


@pytest.mark.soak
@pytest.mark.parametrize(
    ("files", "command", "n_tests"),
    [
        (GO_PROJECT, ("go", "test", "-v", "./..."), 2),
        (RUST_PROJECT, ("cargo", "test", "--offline"), 1),
    ],
    ids=["go", "rust"],
)
def test_a_project_with_debian_compilers_gives_the_same_results(
    developer: Developer, files: dict[str, str], command: tuple[str, ...], n_tests: int
) -> None:
    write(developer.source, files)
    tools = developer.home / ".local/lib/debian"
    developer.variables |= unpacked(tools, *DEBIAN[command[0]])
    assert len(developer.compares(passed_lines, *command)) >= n_tests


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs cmake")
def test_a_project_of_cmake_gives_the_same_results(developer: Developer, tmp_path: Path) -> None:
    unpack_debian("cjson", developer.source, tmp_path)
    build = "cmake -B build . && cmake --build build -j2 && ctest --test-dir build"
    command = f"({build}) 2>&1 | grep -o 'Test *#.*Passed\\|.* tests passed.*'"

    def passed(printed: str) -> set[str]:
        return {re.sub(r" *\.+ *", " ", line) for line in printed.splitlines()}

    assert len(developer.compares(passed, "sh", "-c", command)) > 15
