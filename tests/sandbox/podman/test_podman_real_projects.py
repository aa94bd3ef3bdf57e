"""Real projects, in `make soak`: `init`, `image build`, and their own tests pass as on this machine.

The source distributions come from PyPI. Compilers, Node, Go, Rust and Java come from the mirrors
of Debian that apt is configured for. On this machine the tests run with loopback only, and Go and Rust
with the same Debian packages, unpacked into a temporary folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from loopback import package_registries
from package_server import package_server
from registry_servers import crate_files, go_files, maven_files
from sandbox.real_projects import (
    C_PROJECT,
    DEBIAN,
    GO_PROJECT,
    NODE_PROJECT,
    PYTEST,
    RUST_PROJECT,
    make_venv,
    npm,
    passed_lines,
    unpack,
    unpack_debian,
    unpacked,
    write,
)
from shell_pages import ROOT

from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.sandbox.podman.building.image_names import project_name
from wink_workspace.sandbox.podman.building.images import ImageStore

pytestmark = [pytest.mark.xdist_group("podman-projects"), pytest.mark.behaviour(109)]

DEBIAN_PYTEST = ("pytest==7.2.1", "pluggy==1.0.0", "iniconfig", "packaging")
"""The pytest of our images, and what it needs."""
PAGE = "docs/howto/project.md"
PYTHON = (3, 11)
"""The version in our images, with which this machine's is compared."""


class User:
    """A user of the command, in a project of hers."""

    def __init__(self, source: Path, capture: pytest.CaptureFixture[bytes]) -> None:
        self.source = source
        self._capture = capture

    def types(self, *arguments: str, code: int | None = 0) -> str:
        """Run the command in the project; returns its standard output."""
        self._capture.readouterr()
        exit_code = main(list(arguments))
        captured = self._capture.readouterr()
        assert code is None or exit_code == code, (captured.out + captured.err).decode()[-3_000:]
        return captured.out.decode()

    def prepares(self) -> None:
        """Make the image of the project, with two commands."""
        self.types("init")
        with package_registries():
            self.types("image", "build")

    def types_page(self, heading: str) -> str:
        """Run the block after *heading* of the page on real projects; returns what it prints."""
        page = (ROOT / PAGE).read_text(encoding="utf-8")
        block = page[page.index(heading) :].partition("```sh\n")[2].partition("```")[0]
        lines = block.replace("\\\n", " ").splitlines()
        commands = [shlex.split(line, comments=True)[1:] for line in lines if line.strip()]
        with package_registries():
            return "".join(self.types(*each, code=None) for each in commands)

    def passed(self, *more: str) -> set[tuple[str, str]]:
        """The tests of a Python project that pass in the sandbox."""
        show = f"{' '.join(PYTEST)} --junitxml=/tmp/r.xml {' '.join(more)} >&2; cat /tmp/r.xml"
        return passed_in(
            self.types("exec", "--temporary", "--", "sh", "-c", show), {"/workspace": "PROJECT"}
        )


@pytest.fixture
def user(
    environment: Environment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> Iterator[User]:
    """A user in a project, whose image is removed at the end."""
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    source = tmp_path / "project"
    source.mkdir()
    monkeypatch.chdir(source)
    yield User(source, capfdbinary)
    store = ImageStore(environment)
    name = project_name(source)
    made = [each for each in store.by_name() if each.startswith(f"{name}:")]
    if made:
        store.programs.podman("rmi", "--force", *made)


def passed_in(report: str, names: Mapping[str, str]) -> set[tuple[str, str]]:
    """The passed tests of a report of pytest; paths in names of tests are replaced."""
    passed: set[tuple[str, str]] = set()
    for case in ET.fromstring(report).iter("testcase"):
        if not any(child.tag in ("failure", "error", "skipped") for child in case):
            name = re.sub(r"/[^\]]*/(?=(site|dist)-packages/)", "", case.attrib["name"])
            name = name.replace("dist-packages/", "site-packages/")
            for path, given in names.items():
                name = name.replace(path, given)
            passed.add((case.attrib.get("classname", ""), name))
    return passed


def passed_here(user: User, python: str, folder: Path, *more: str) -> set[tuple[str, str]]:
    """The tests of a copy of the project that pass on this machine, with loopback only."""
    copy = folder / "copy"
    shutil.copytree(user.source, copy)
    report = folder / "report.xml"
    subprocess.run(
        [python, *PYTEST[1:], f"--junitxml={report}", *more],
        cwd=copy,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"},
        capture_output=True,
        timeout=600,
    )
    return passed_in(report.read_text(), {str(copy): "PROJECT"})


@pytest.mark.soak
def test_a_source_distribution_passes_the_same_tests_as_on_this_machine(
    user: User, tmp_path: Path
) -> None:
    unpack("idna==3.11", user.source, tmp_path)

    user.prepares()

    quick = "--ignore=tests/test_idna_uts46.py"  # 6,000 of its 6,300 tests
    passed = user.passed(quick)
    assert len(passed) > 25
    assert passed == passed_here(user, sys.executable, tmp_path, quick)


@pytest.mark.soak
@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="compares with the image's Python")
@pytest.mark.parametrize(
    ("name", "least"),
    [("click==8.5.1", 2_000), ("markupsafe==3.0.4", 70), ("requests==2.34.2", 600)],
)
def test_a_project_with_dependencies_passes_the_same_tests_as_on_this_machine(
    user: User, tmp_path: Path, request: pytest.FixtureRequest, name: str, least: int
) -> None:
    """Of requests, those that connect to other machines fail in both places."""
    unpack(name, user.source, tmp_path)
    user.prepares()
    passed = user.passed()
    listed = user.types(
        "exec", "--temporary", "--", "pip", "freeze", "--local", "--exclude-editable"
    )
    itself = name.partition("==")[0]
    others = [each for each in listed.split("\n") if each and not each.lower().startswith(itself)]
    venv = Path(tempfile.mkdtemp())  # pytest shortens names with longer paths
    request.addfinalizer(lambda: shutil.rmtree(venv))
    make_venv(venv, user.source, others)
    assert len(passed) > least
    assert passed == passed_here(user, f"{venv}/bin/python", tmp_path)


@pytest.mark.soak
@pytest.mark.skipif(sys.version_info[:2] != PYTHON, reason="compares with the image's Python")
def test_httpx_passes_the_same_tests_as_on_this_machine_with_the_command_of_the_page(
    user: User, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Those that resolve a name fail in both places."""
    unpack("httpx==0.28.1", user.source, tmp_path)
    user.types_page("of httpx")
    passed = user.passed()
    listed = user.types(
        "exec", "--temporary", "--", "pip", "freeze", "--local", "--exclude-editable"
    )
    venv = Path(tempfile.mkdtemp())  # pytest shortens names with longer paths
    request.addfinalizer(lambda: shutil.rmtree(venv))
    make_venv(venv, user.source, [*listed.split(), *DEBIAN_PYTEST])
    assert len(passed) > 1_400
    assert passed == passed_here(user, f"{venv}/bin/python", tmp_path)


@pytest.mark.soak
def test_jq_passes_all_of_its_tests_with_the_commands_of_the_page(
    user: User, tmp_path: Path
) -> None:
    unpack_debian("jq", user.source, tmp_path)
    printed = user.types_page("For jq")
    passed = set(re.findall(r"^PASS: tests/(\w+)$", printed, re.MULTILINE))
    assert passed == {"jqtest", "mantest", "onigtest", "shtest"}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("files", "command", "n_tests"),
    [
        (C_PROJECT, ["make", "test"], 1),
        (NODE_PROJECT, ["npm", "test"], 2),
        (GO_PROJECT, ["go", "test", "-v", "./..."], 2),
        (RUST_PROJECT, ["cargo", "test"], 1),
    ],
    ids=["c", "node", "go", "rust"],
)
def test_projects_in_other_languages_pass_the_same_tests_as_on_this_machine(
    user: User, tmp_path: Path, files: Mapping[str, str], command: list[str], n_tests: int
) -> None:
    write(user.source, files)
    if command[0] == "npm":
        npm(user.source, "install", "--package-lock-only")
    user.prepares()
    passed = passed_lines(user.types("exec", "--temporary", "--", *command))
    assert len(passed) >= n_tests
    copy = tmp_path / "copy"
    shutil.copytree(user.source, copy)
    if command[0] == "npm":
        npm(copy, "ci")
    paths = unpacked(tmp_path / "debian", *DEBIAN.get(command[0], ()))
    done = subprocess.run(
        command,
        cwd=copy,
        env={"HOME": str(tmp_path), **paths},
        check=True,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert passed == passed_lines(done.stdout)


DEPENDENT = {
    "rust": {
        "Cargo.toml": f'{RUST_PROJECT["Cargo.toml"]}[dependencies]\ngreeting = "1"\n',
        "src/main.rs": 'fn main() { println!("{}", greeting::TEXT); }\n',
    },
    "go": {
        "go.mod": "module example.test/p\n\ngo 1.19\n\nrequire example.test/greeting v1.2.0\n",
        "main.go": 'package main\n\nimport "example.test/greeting"\n\n'
        "func main() { print(greeting.Text) }\n",
    },
}
GREETING = {
    "Cargo.toml": '[package]\nname = "greeting"\nversion = "1.2.0"\nedition = "2021"\n',
    "src/lib.rs": 'pub const TEXT: &str = "hello";\n',
    "go.mod": "module example.test/greeting\n\ngo 1.19\n",
    "greeting.go": 'package greeting\n\nconst Text = "hello"\n',
}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("language", "command"),
    [("rust", ["cargo", "run", "--offline"]), ("go", ["go", "run", "."])],
)
def test_a_project_with_a_dependency_is_built_after_init_and_image_build(
    user: User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    command: list[str],
) -> None:
    """The registries are those of this machine's user, who has mirrors on loopback."""
    write(user.source, DEPENDENT[language])
    write(tmp_path / "greeting", GREETING)
    with package_registries(), package_server() as server:
        address = server.address.replace("127.0.0.1", "localhost")
        served = crate_files(address, [tmp_path / "greeting"])
        files, sums, key = go_files({"example.test/greeting@v1.2.0": tmp_path / "greeting"})
        served |= {f"go/{path}": each for path, each in files.items()}
        served |= {f"sum/{path}": each for path, each in sums.items()}
        server.answers = {f"/{path}": each for path, each in served.items()}
        (record,) = (each for path, each in sums.items() if path.startswith("lookup/"))
        write(user.source, {"go.sum": "\n".join(record.decode().split("\n")[1:3]) + "\n"})
        config = '[source.crates-io]\nreplace-with = "own"\n[source.own]\nregistry = "sparse+'
        write(tmp_path / "cargo", {"config.toml": f'{config}{address}/api/index/"\n'})
        monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
        monkeypatch.setenv("GOPROXY", f"{address}/go")
        monkeypatch.setenv("GOSUMDB", f"{key} {address}/sum")
        user.types("init")
        user.types("image", "build")
    printed = user.types("exec", "--temporary", "--", "sh", "-c", f"{shlex.join(command)} 2>&1")
    assert printed.endswith("hello" + "\n" * (language == "rust"))


JAVA_PROJECT = {
    "src/main/java/Sums.java": "class Sums { static int total(int a, int b) { return a + b; } }\n",
    "src/test/java/SumsTest.java": """\
import static org.junit.Assert.assertEquals;

public class SumsTest {
    @org.junit.Test public void adds() { assertEquals(42, Sums.total(40, 2)); }
    @org.junit.Test public void subtracts() { assertEquals(WRONG, Sums.total(40, -2)); }
}
""",
}
POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId>
  <artifactId>sums</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.release>11</maven.compiler.release>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>junit</groupId>
      <artifactId>junit</artifactId>
      <version>4.13.2</version>
      <scope>test</scope>
    </dependency>
  </dependencies>
</project>
"""
GRADLE = """\
apply plugin: "java"
repositories { mavenCentral() }
dependencies { testCompile "junit:junit:4.13.2" }
test.testLogging.events = ["passed", "failed"]
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("file", "text", "command", "passed", "failed"),
    [
        ("pom.xml", POM, "mvn -B test", "Tests run: 2, Failures: 0", "Tests run: 2, Failures: 1"),
        ("build.gradle", GRADLE, "gradle test", "adds PASSED", "subtracts FAILED"),
    ],
    ids=["maven", "gradle"],
)
def test_a_java_project_runs_its_tests_after_init_and_image_build(
    user: User,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    text: str,
    command: str,
    passed: str,
    failed: str,
) -> None:
    """A test that fails does not keep the image from being built."""
    tests = "src/test/java/SumsTest.java"
    write(user.source, {**JAVA_PROJECT, file: text})
    write(user.source, {tests: JAVA_PROJECT[tests].replace("WRONG", "39")})
    unpacked(tmp_path / "debian", "maven-debian-helper", "junit4")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with package_registries(), package_server() as server:
        address = server.address.replace("127.0.0.1", "localhost")
        roots = (tmp_path / "debian/usr/share/maven-repo", Path("/usr/share/maven-repo"))
        found = [maven_files(each) for each in roots]
        server.find = lambda path: next(filter(None, (each(path[1:]) for each in found)), None)
        mirror = f"<mirrorOf>*</mirrorOf><url>{address}/maven2/</url>"
        write(
            tmp_path / "home",
            {
                ".m2/settings.xml": f"<settings><mirrors><mirror>{mirror}</mirror></mirrors></settings>"
            },
        )
        user.types("init")
        user.types("image", "build")
        printed = user.types("exec", "--temporary", "--", *command.split(), code=1)
        assert failed in printed
        write(user.source, {tests: JAVA_PROJECT[tests].replace("WRONG", "38")})
        assert passed in user.types("exec", "--temporary", "--", *command.split())


IS_ODD = """\
const test = require("node:test"), assert = require("node:assert");
const odd = require("NAME");
test("odd", () => assert.ok(odd(3)));
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("lock", "manager", "options"),
    [
        ("yarn.lock", "@yarnpkg/cli-dist@3.8.7", "--mode=update-lockfile"),
        ("yarn.lock", "@yarnpkg/cli-dist@4.9.1", "--mode=update-lockfile"),
        ("yarn.lock", "yarn@1.22.22", "--ignore-scripts"),
        ("pnpm-lock.yaml", "pnpm@9.15.9", "--lockfile-only"),
    ],
)
def test_a_lock_file_of_another_client_of_npm_is_installed(
    user: User, lock: str, manager: str, options: str
) -> None:
    about: dict[str, object] = {
        "name": "p",
        "version": "1.0.0",
        "dependencies": {"is-odd": "3.0.1"},
    }
    about["scripts"] = {"test": "node --test"}
    write(user.source, {"package.json": json.dumps(about), lock: ""})
    write(user.source, {"test.js": IS_ODD.replace("NAME", "is-odd")})
    if lock != "yarn.lock":
        (user.source / lock).unlink()
    client = "pnpm" if manager.startswith("pnpm") else "yarn"
    npm(user.source, "exec", "--yes", f"--package={manager}", "--", client, "install", options)
    shutil.rmtree(user.source / "node_modules", ignore_errors=True)
    (user.source / "package.json").write_text(json.dumps(about))  # without `packageManager`
    user.prepares()
    assert "ok 1 - odd" in user.types("exec", "--temporary", "--", "npm", "test")


@pytest.mark.soak
def test_a_lock_file_of_uv_is_installed(user: User, tmp_path: Path) -> None:
    about = '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\n'
    write(user.source, {"pyproject.toml": f'{about}dependencies = ["click==8.1.7", "idna"]\n'})
    install = [sys.executable, "-m", "pip", "install", "-q", f"--target={tmp_path}/uv", "uv"]
    with package_registries():
        subprocess.run(install, check=True, capture_output=True, timeout=600)
        lock = [f"{tmp_path}/uv/bin/uv", "lock", "--no-cache"]
        subprocess.run(lock, cwd=user.source, check=True, capture_output=True, timeout=600)
    user.prepares()
    code = "import click, idna; print(click.__version__)"
    assert user.types("exec", "--temporary", "--", "python", "-c", code).strip() == "8.1.7"


@pytest.mark.soak
def test_workspaces_of_npm_are_links_to_the_files_of_the_workspace(user: User) -> None:
    files: dict[str, dict[str, object]] = {
        "package.json": {"workspaces": ["packages/*"]},
        "packages/a/package.json": {"name": "a", "dependencies": {"is-odd": "3.0.1"}},
        "packages/b/package.json": {"name": "@p/b", "dependencies": {"a": "*"}},
    }
    write(
        user.source, {name: json.dumps({"version": "1.0.0"} | each) for name, each in files.items()}
    )
    write(user.source, {"packages/a/index.js": 'module.exports = require("is-odd");\n'})
    write(user.source, {"packages/b/index.js": 'module.exports = require("a");\n'})
    write(user.source, {"test.js": IS_ODD.replace("NAME", "@p/b")})
    npm(user.source, "install", "--package-lock-only")
    user.prepares()
    assert "ok 1 - odd" in user.types("exec", "--temporary", "--", "node", "--test")
