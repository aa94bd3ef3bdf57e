"""A Rust crate, a Go module and a Maven project with dependencies, built in a sandbox.

The clients are those of Debian, in an image of a project. Their registries are loopback servers,
filled with the sources and artifacts of Debian's packages.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from loopback import package_registries
from podman_machine import sandbox_place
from proxy_machine import LIMITS, ProxyMachine
from registry_servers import answers, crate_files, go_files, maven_files, required

from wink_workspace.environment import Environment
from wink_workspace.sandbox import ExecRequest, ExecResult, NetworkLimits
from wink_workspace.sandbox.git_directory import give_to_sandbox
from wink_workspace.sandbox.image_store import ImageRecipe
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox
from wink_workspace.sandbox.podman.building.image_catalog import PodmanImages
from wink_workspace.sandbox.podman.building.image_names import project_name
from wink_workspace.sandbox.podman.building.images import ImageStore

pytestmark = [pytest.mark.xdist_group("podman-projects"), pytest.mark.soak]

CLIENTS = ("cargo-web", "golang-go", "maven", "default-jdk-headless")
CRATES = ("serde-json", "serde", "itoa", "ryu")
MODULES = ("golang-github-spf13-cobra-dev", "golang-github-spf13-pflag-dev")
MAVEN = ("maven-debian-helper", "libcommons-io-java")
COBRA = "github.com/spf13/cobra@v1.6.1"
"""A module whose ``go.mod`` requires others, as Debian 12 has it."""

RUST_PROJECT = {
    "Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n'
    '[dependencies]\nserde_json = "1"\n',
    "src/main.rs": """\
fn main() {
    let numbers: Vec<i64> = serde_json::from_str("[40, 2]").unwrap();
    println!("the sum is {}", numbers.iter().sum::<i64>());
}
""",
}
GO_PROJECT = {
    "go.mod": "module example.test/p\n\ngo 1.19\n",
    "main.go": """\
package main

import "github.com/spf13/cobra"

func main() {
\trun := func(*cobra.Command, []string) { println("the sum is", 40+2) }
\t(&cobra.Command{Use: "p", Run: run}).Execute()
}
""",
}
MAVEN_PROJECT = {
    "pom.xml": """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>test</groupId>
  <artifactId>sums</artifactId>
  <version>1</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source>
    <maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>commons-io</groupId>
      <artifactId>commons-io</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
""",
    "src/main/java/Sums.java": """\
import org.apache.commons.io.FilenameUtils;

class Sums {
    public static void main(String[] arguments) {
        System.out.println(FilenameUtils.getBaseName("a/the sum is 42.txt"));
    }
}
""",
}


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpacked packages with the content of registries, which need not be installed."""
    root = tmp_path_factory.mktemp("debian")
    downloads = root / "downloads"
    (downloads / "partial").mkdir(parents=True)
    packages = [*(f"librust-{name}-dev" for name in CRATES), *MODULES, *MAVEN]
    options = ["-q", "-y", "--download-only", "--no-install-recommends", "--reinstall"]
    options += ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    options += ["-o", f"Dir::Cache::archives={downloads}"]
    with package_registries():
        subprocess.run(
            ["apt-get", *options, "install", *packages],
            check=True,
            capture_output=True,
            timeout=600,
        )
    for archive in downloads.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, root], check=True, timeout=60)
    return root / "usr/share"


@pytest.fixture(scope="module")
def sandbox(
    debian: Path, environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PodmanSandbox]:
    """A sandbox with the clients, whose registries have the content of Debian's packages."""
    folder = tmp_path_factory.mktemp("registries")
    with package_registries():
        recipe = ImageRecipe(base="build", packages=CLIENTS)
        image = PodmanImages(environment).build_project(recipe, folder)
    limits = NetworkLimits(connections=32, longest_s=LIMITS.longest_s)
    with closing(ProxyMachine()) as machine:
        machine.reset(limits=limits)
        fill(machine, debian)
        config = PodmanConfig(
            image=image.reference, network=machine.rules, memory_bytes=2**31, tmp_bytes=2**30
        )
        sandbox = PodmanSandbox(sandbox_place(folder), config=config)
        sandbox._network_link = machine.link
        with closing(sandbox):
            yield sandbox
    store = ImageStore(environment)
    made = [each for each in store.by_name() if each.startswith(f"{project_name(folder)}:")]
    store.programs.podman("rmi", "--force", *made)


def fill(machine: ProxyMachine, debian: Path) -> None:
    crates = [
        each
        for each in (debian / "cargo/registry").iterdir()
        if each.name.rpartition("-")[0].replace("_", "-") in CRATES
    ]
    origin = f"https://crates.test:{machine.tls_port}"
    machine.answers["crates.test"] = answers(crate_files(origin, crates).get)

    sources = debian / "gocode/src"
    modules: dict[str, Path | None] = {}
    todo = {COBRA}
    while todo:
        module = todo.pop()
        folder = sources / module.partition("@")[0]
        modules[module] = folder if folder.is_dir() else None
        if modules[module] is not None and (folder / "go.mod").exists():
            todo |= required((folder / "go.mod").read_text()) - modules.keys()
    files, sums, key = go_files(modules)
    machine.answers.update({"go.test": answers(files.get), "sum.test": answers(sums.get)})
    machine.registries["go"] = (
        replace(machine.registries["go"][0], variables=(("GOSUMDB", key),)),
        *machine.registries["go"][1:],
    )
    maven = [maven_files(each / "maven-repo") for each in (debian, Path("/usr/share"))]
    machine.answers["maven.test"] = answers(
        lambda path: next(filter(None, (find(path) for find in maven)), None)
    )


def run(sandbox: PodmanSandbox, files: Mapping[str, str], command: str) -> ExecResult:
    """Run a line of shell in a project with *files* alone."""
    for name, text in files.items():
        path = sandbox._context.files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        give_to_sandbox(path)
    return sandbox.run(ExecRequest(argv=("sh", "-c", command), timeout_s=300))


def text_of(result: ExecResult) -> str:
    return b"".join(
        (result.stdout.head, result.stdout.tail, result.stderr.head, result.stderr.tail)
    ).decode()


def test_a_crate_with_dependencies_is_built_and_its_files_come_through_the_proxy(
    sandbox: PodmanSandbox,
) -> None:
    result = run(sandbox, RUST_PROJECT, "cargo run --target-dir /tmp/target")
    assert "the sum is 42\n" in text_of(result), text_of(result)
    paths = {each.path for each in result.network if each.host == "crates.wink.internal"}
    assert "/api/v1/crates/serde/1.0.152/download" in paths


def test_a_module_with_dependencies_is_built_and_its_checksums_come_through_the_proxy(
    sandbox: PodmanSandbox,
) -> None:
    result = run(sandbox, GO_PROJECT, f"go get {COBRA} && go run .")
    assert "the sum is 42\n" in text_of(result), text_of(result)
    paths = {each.path for each in result.network if each.host == "go.wink.internal"}
    assert f"/sumdb/sum.test/lookup/{COBRA}" in paths


def test_a_maven_project_with_a_dependency_is_built(sandbox: PodmanSandbox, debian: Path) -> None:
    version = min(
        each.name for each in (debian / "maven-repo/commons-io/commons-io").glob("[0-9]*")
    )
    files = {name: text.replace("{version}", version) for name, text in MAVEN_PROJECT.items()}
    jar = f"~/.m2/repository/commons-io/commons-io/{version}/commons-io-{version}.jar"
    command = f"mvn -B -q compile && java -cp {jar}:target/classes Sums"
    result = run(sandbox, files, command)
    assert "the sum is 42\n" in text_of(result), text_of(result)
    assert {each.host for each in result.network} == {"maven.wink.internal"}
