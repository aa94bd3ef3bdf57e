"""Package clients of this machine, with the settings that those of a sandbox get.

Their registries are loopback servers. A client that is not installed is not tested here; the
long tests run those of Debian in a container.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from proxy_machine import ProxyMachine, http
from registry_servers import answers, crate_files, go_files, maven_files

from wink_workspace.sandbox.network_proxy.routes import (
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
        assert command[0] != "npm" or not os.environ.get("CI"), "run scripts/setup"
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


GRADLE_SETTINGS = """\
pluginManagement { repositories { maven { url "https://plugins.gradle.org/m2/" } } }
"""
GRADLE_PROJECT = """\
buildscript {
    repositories { maven { url "https://plugins.gradle.org/m2/" } }
    dependencies { classpath "test:greeting:1.2" }
}
repositories { mavenCentral() }
configurations { used }
dependencies { used "test:greeting:1.2" }
task show { doLast { println configurations.used.singleFile.name } }
"""


def test_gradle_reads_everything_from_the_repository(
    proxy: ProxyMachine, home: Path, tmp_path: Path
) -> None:
    pom = (
        "<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId>"
        "<artifactId>greeting</artifactId><version>1.2</version></project>"
    )
    files = {"test/greeting/1.2/greeting-1.2.pom": pom}
    repository = write(tmp_path / "maven", files)
    with zipfile.ZipFile(repository / "test/greeting/1.2/greeting-1.2.jar", "w"):
        pass
    proxy.reset(cache=tmp_path / "packages")
    proxy.answers["maven.test"] = answers(maven_files(repository))
    project = write(tmp_path / "project", {"build.gradle": GRADLE_PROJECT})
    write(project, {"settings.gradle": GRADLE_SETTINGS})
    command = ("gradle", "--no-daemon", "--quiet", "show")
    options = f"-Duser.home={home}"
    done = run(proxy, home, project, *command, GRADLE_OPTS=options)
    assert done.stdout == "greeting-1.2.jar\n", done.stderr
    assert proxy.reached.connections


def test_npm_installs_from_its_lock_file_what_another_container_has_fetched(
    proxy: ProxyMachine, home: Path, tmp_path: Path
) -> None:
    proxy.reset(cache=tmp_path / "packages")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        content = b'{"name": "greeting", "version": "1.2.0"}'
        member = tarfile.TarInfo("package/package.json")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    public = f"https://npm.test:{proxy.tls_port}/greeting/-/greeting-1.2.0.tgz"
    digest = base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    version = {
        "name": "greeting",
        "version": "1.2.0",
        "dist": {"tarball": public, "integrity": f"sha512-{digest}"},
    }
    index = {"dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": version}, "name": "greeting"}
    files = {
        "greeting": json.dumps(index).encode(),
        "greeting/-/greeting-1.2.0.tgz": packed.getvalue(),
    }
    proxy.answers["npm.test"] = answers(files.get)
    manifest = {"name": "p", "version": "1.0.0", "dependencies": {"greeting": "^1.0.0"}}
    project = write(tmp_path / "project", {"package.json": json.dumps(manifest)})
    for command, cache in (("install", "one"), ("ci", "two")):
        done = run(proxy, home, project, "npm", command, npm_config_cache=f"{home}/{cache}")
        assert done.returncode == 0, done.stderr
        assert (project / "node_modules/greeting/package.json").exists()
    locked = json.loads((project / "package-lock.json").read_text())
    assert locked["packages"]["node_modules/greeting"]["resolved"] == public
    asked = [head.split()[1] for head in proxy.reached.heads]
    assert asked == [b"/greeting", b"/greeting/-/greeting-1.2.0.tgz"]


def test_what_pip_has_fetched_is_there_for_other_containers(
    proxy: ProxyMachine, home: Path, tmp_path: Path
) -> None:
    proxy.reset(cache=tmp_path / "packages")
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("greeting.py", "")
        folder = "greeting-1.2.0.dist-info"
        archive.writestr(
            f"{folder}/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.2.0\n"
        )
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
    name = "greeting-1.2.0-py3-none-any.whl"
    link = f"../../files/{name}#sha256={hashlib.sha256(wheel.getvalue()).hexdigest()}"
    page = f'<!DOCTYPE html><a href="{link}">{name}</a>'
    served = {
        "/root/simple/greeting/": http(page, "Content-Type: text/html"),
        f"/root/files/{name}": http(wheel.getvalue()),
    }
    proxy.answers["pypi.test"] = lambda head: served[head.split()[1].decode()]
    options = ("--no-deps", "--no-cache-dir", f"--dest={home}")
    command = (sys.executable, "-m", "pip", "download", *options, "greeting==1.2.0")
    done = run(proxy, home, home, *command)
    assert done.returncode == 0, done.stderr
    n_connections = proxy.reached.connections
    assert wheel.getvalue() in proxy.get(f"http://pypi.wink.internal/root/files/{name}")
    assert proxy.reached.connections == n_connections == 2
