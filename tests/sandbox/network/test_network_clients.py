"""Package clients of this machine, with the settings that those of a sandbox get.

Their registries are loopback servers. A client that is not installed is not tested here; the
long tests run those of Debian in a container.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from proxy_machine import ProxyMachine
from registry_servers import answers, crate_files, go_files, maven_files

from wink_workspace.sandbox.podman.network.routes import (
    PROXY_PORT,
    client_files,
    client_variables,
)


@pytest.fixture(scope="module")
def proxy() -> Iterator[ProxyMachine]:
    with closing(ProxyMachine()) as machine:
        yield machine


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(
    machine: ProxyMachine, home: Path, project: Path, *command: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a client as in a sandbox whose proxy is that of *machine*."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **variables}
    env["RUSTUP_HOME"] = os.environ.get("RUSTUP_HOME", f"{Path.home()}/.rustup")
    ours, used = f"{PROXY_PORT}", f"{machine.proxy_port}"
    lead = {
        name: value.replace(ours, used)
        for name, value in client_variables(machine.rules, machine.registries).items()
    }
    write(
        Path("/"),
        {
            path: text.replace(ours, used)
            for path, text in client_files(machine.rules, machine.registries, env).items()
        },
    )
    return subprocess.run(
        command, cwd=project, env={**lead, **env}, capture_output=True, text=True, timeout=120
    )


def test_cargo_builds_with_a_crate_of_the_registry(
    proxy: ProxyMachine, home: Path, tmp_path: Path
) -> None:
    crate = {
        "Cargo.toml": '[package]\nname = "greeting"\nversion = "1.2.0"\nedition = "2021"\n',
        "src/lib.rs": 'pub fn greeting() -> &\'static str { "hello" }\n',
    }
    sources = [write(tmp_path / "crate", crate)]
    proxy.reset(cache=tmp_path / "packages")
    origin = f"https://crates.test:{proxy.tls_port}"
    proxy.answers["crates.test"] = answers(crate_files(origin, sources).get)
    project = write(
        tmp_path / "project",
        {
            "Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\n[dependencies]\ngreeting = "1"\n',
            "src/main.rs": 'fn main() { println!("{}", greeting::greeting()); }\n',
        },
    )
    for n in range(2):
        done = run(proxy, home, project, "cargo", "check", "--quiet", CARGO_HOME=f"{home}/{n}")
        assert done.returncode == 0, done.stderr
    asked = [head.split()[1] for head in proxy.reached.heads]
    assert asked.count(b"/api/index/config.json") == 2
    assert asked.count(b"/api/v1/crates/greeting/1.2.0/download") == 1  # then from the cache
    lock = (project / "Cargo.lock").read_text()
    assert 'source = "registry+https://github.com/rust-lang/crates.io-index"' in lock


def test_go_builds_with_a_module_that_its_checksum_database_knows(
    proxy: ProxyMachine, home: Path, tmp_path: Path
) -> None:
    module = {
        "go.mod": "module example.test/greeting\n\ngo 1.16\n",
        "greeting.go": 'package greeting\n\nconst Text = "hello"\n',
    }
    modules = {
        "example.test/greeting@v1.2.0": write(tmp_path / "module", module),
        "example.test/other@v1.0.0": None,
    }
    files, sums, key = go_files(modules)
    proxy.answers.update({"go.test": answers(files.get), "sum.test": answers(sums.get)})
    project = write(
        tmp_path / "project",
        {
            "go.mod": "module example.test/p\n\ngo 1.16\n\nrequire example.test/greeting v1.2.0\n",
            "main.go": 'package main\n\nimport "example.test/greeting"\n\n'
            "func main() { println(greeting.Text) }\n",
        },
    )
    command = ("go", "mod", "download", "all")
    done = run(proxy, home, project, *command, GOSUMDB=key, GOFLAGS="-modcacherw")
    assert done.returncode == 0, done.stderr
    assert "example.test/greeting v1.2.0 h1:" in (project / "go.sum").read_text()
    assert any(b"/lookup/example.test/greeting@v1.2.0" in each for each in proxy.reached.heads)

    shutil.rmtree(home)
    (project / "go.sum").unlink()
    other = files["example.test/greeting/@v/v1.2.0.mod"] + b"\n// changed\n"
    files["example.test/greeting/@v/v1.2.0.mod"] = other
    done = run(proxy, home, project, *command, GOSUMDB=key, GOFLAGS="-modcacherw")
    assert "SECURITY ERROR" in done.stderr


def test_maven_reads_a_parent_project_from_the_repository(
    proxy: ProxyMachine, home: Path, tmp_path: Path
) -> None:
    pom = (
        "<project><modelVersion>4.0.0</modelVersion>{}<packaging>pom</packaging>"
        "<artifactId>{}</artifactId></project>"
    )
    group = "<groupId>test</groupId><version>1.2</version>"
    repository = {"test/parent/1.2/parent-1.2.pom": pom.format(group, "parent")}
    proxy.answers["maven.test"] = answers(maven_files(write(tmp_path / "maven", repository)))
    parent = f"<parent>{group}<artifactId>parent</artifactId><relativePath/></parent>"
    project = write(tmp_path / "project", {"pom.xml": pom.format(parent, "p")})
    options = (f"-Duser.home={home}", "-B", "--strict-checksums", "-q")
    done = run(proxy, home, project, "mvn", *options, "validate")
    assert done.returncode == 0, done.stdout
    found = home / ".m2/repository/test/parent/1.2/_remote.repositories"
    assert "parent-1.2.pom>central=" in found.read_text()
