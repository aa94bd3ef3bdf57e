"""What the clients of this machine are asked for a project; the clients are fakes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox.podman.debian import DebianPackages
from wink_workspace.sandbox.podman.fetching import ImageFacts, PackageFetcher
from wink_workspace.sandbox.podman.programs import Programs
from wink_workspace.sandbox.podman.requirements import Requirements

FACTS = ImageFacts("3.11.2", "2.36", "x86_64")
PIP = """\
#!/bin/sh
for word; do echo "$word"; done >> "$NOTES/pip"
pwd > "$NOTES/cwd"
[ -e "$NOTES/message" ] && { cat "$NOTES/message"; exit 1; }
cp requirements.txt "$NOTES/asked"; cp locked.txt "$NOTES/locked"; touch x-1-py3-none-any.whl
"""
NPM = """\
#!/bin/sh
echo "$*" >> "$NOTES/npm"; ls -A > "$NOTES/seen"; pwd > "$NOTES/cwd"; mkdir -p node_modules/a
"""
APT = """\
#!/bin/sh
case " $* " in
    *" indextargets "*) echo "bookworm deb http://mirror.invalid/debian/ bookworm main"; exit ;;
esac
echo "$*" >> "$NOTES/apt"
for word; do
    case "$word" in
        --option=Dir::State::status=*) cp "${word##*=}" "$NOTES/status" ;;
        --option=Dir::Etc::sourcelist=*) cp "${word##*=}" "$NOTES/sources" ;;
        --option=Dir::Cache::archives=*) archives="${word##*=}" ;;
    esac
done
[ -e "$NOTES/message" ] && { cat "$NOTES/message"; exit 100; }
touch "$archives/a_1_amd64.deb" "$archives/lock"
"""


class Machine:
    """Fake clients, the notes of their calls, and a cache."""

    def __init__(self, folder: Path) -> None:
        self.notes = folder / "notes"
        self.directory = folder / "programs"
        self.cache = folder / "cache"
        self.notes.mkdir()
        self.directory.mkdir()
        for name in ("sh", "cat", "cp", "touch", "echo", "ls", "mkdir"):
            (self.directory / name).symlink_to(str(shutil.which(name)))
        self.programs = Programs(
            Environment(variables={"PATH": str(self.directory), "NOTES": str(self.notes)})
        )
        self.fetcher = PackageFetcher(self.programs, self.cache)
        self.lines: list[str] = []

    def install(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(0o755)

    def note(self, name: str) -> list[str]:
        file = self.notes / name
        return file.read_text().splitlines() if file.exists() else []

    def python(self, *lines: str, builds: tuple[str, ...] = (), again: bool = False) -> Path:
        wanted = Requirements(lines)
        return self.fetcher.python(wanted, builds, FACTS, self.lines.append, again=again)

    def leftovers(self) -> list[str]:
        return [path.name for path in self.cache.glob("unfinished*")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.install("pip3", PIP)
    machine.install("npm", NPM)
    machine.install("apt-get", APT)
    return machine


# Python


def test_pip_gets_only_wheels_for_the_image_and_no_directory_of_the_project(
    machine: Machine,
) -> None:
    folder = machine.python("b==1", "a", builds=("flit_core<4",))
    asked = machine.note("pip")
    assert "--only-binary=:all:" in asked
    assert "--python-version=3.11.2" in asked
    assert {"--abi=cp311", "--abi=abi3", "--abi=none"} <= set(asked)
    assert "--platform=manylinux_2_36_x86_64" in asked
    assert "--platform=manylinux_2_37_x86_64" not in asked
    assert asked[-2:] == ["--", "flit_core<4"]
    assert machine.note("asked") == ["b==1", "a"]
    assert machine.note("cwd")[0].startswith(str(machine.cache))
    assert sorted(path.name for path in folder.iterdir()) == [
        "constraints.txt",
        "locked.txt",
        "requirements.txt",
        "x-1-py3-none-any.whl",
    ]
    assert folder.stat().st_mode & 0o777 == 0o755
    assert not machine.leftovers()


def test_packages_of_a_lock_are_fetched_without_looking_for_what_they_need(
    machine: Machine,
) -> None:
    wanted = Requirements(locked=("a==1 --hash=sha256:00", "b==2"))
    machine.fetcher.python(wanted, (), FACTS, machine.lines.append)
    assert machine.note("pip").count("download") == 1
    assert machine.note("pip")[-2:] == ["--no-deps", "--requirement=locked.txt"]
    assert machine.note("locked") == list(wanted.locked)


def test_equal_requirements_are_downloaded_once(machine: Machine) -> None:
    first = machine.python("a")
    n_asked = len(machine.note("pip"))
    assert machine.python("a") == first
    assert len(machine.note("pip")) == n_asked
    assert machine.python("a", "b") != first
    assert machine.python("a", again=True) == first
    assert len(machine.note("pip")) == 3 * n_asked


def test_a_requirement_without_a_wheel_is_named(machine: Machine) -> None:
    (machine.notes / "message").write_text("ERROR: No matching distribution found for old==1\n")
    with pytest.raises(UsageError, match=r"old==1 has no wheel for Python 3\.11") as caught:
        machine.python("old==1")
    assert "wheels" in caught.value.hint
    assert not machine.leftovers()


def test_other_failures_of_pip_are_reported_and_nothing_is_cached(machine: Machine) -> None:
    (machine.notes / "message").write_text("no route\n")
    with pytest.raises(SandboxUnavailableError, match="no route"):
        machine.python("a")
    (machine.notes / "message").unlink()
    assert machine.python("a").is_dir()
    for name in ("pip3", "npm"):
        (machine.directory / name).unlink()
    with pytest.raises(SandboxUnavailableError, match="no pip"):
        machine.python("c")
    with pytest.raises(SandboxUnavailableError, match="no npm"):
        machine.fetcher.node("{}", '{"packages": {}}', machine.lines.append)


# Node


def locked(**entry: object) -> str:
    usual = {
        "version": "1.0.0",
        "resolved": "https://registry.npmjs.org/a/-/a-1.0.0.tgz",
        "integrity": "sha512-x",
    }
    path = str(entry.pop("path", "node_modules/a"))
    return json.dumps({"packages": {"": {"name": "p"}, path: {**usual, **entry}}})


def test_npm_runs_no_script_and_sees_only_the_two_files(machine: Machine) -> None:
    folder = machine.fetcher.node("{}", locked(), machine.lines.append)
    assert "ci --ignore-scripts" in machine.note("npm")[0]
    assert machine.note("seen") == ["package-lock.json", "package.json"]
    assert machine.note("cwd")[0].startswith(str(machine.cache))
    assert (folder / "node_modules/a").is_dir()
    assert machine.fetcher.node("{}", locked(), machine.lines.append) == folder
    assert len(machine.note("npm")) == 1
    without_address = locked(resolved="")  # npm can be configured to leave it out
    assert machine.fetcher.node("{}", without_address, machine.lines.append) != folder


@pytest.mark.parametrize(
    "lock",
    [
        locked(resolved="git+ssh://git@evil.invalid/a.git#1"),
        locked(resolved="https://evil.invalid/a.tgz"),
        locked(resolved="https://registry.npmjs.org.evil.invalid/a.tgz"),
        locked(resolved="file:../a"),
        locked(resolved="http://registry.npmjs.org/a.tgz"),
        locked(integrity=""),
        locked(version=""),
        locked(path="../outside"),
        locked(path="packages/a"),
        locked(path="node_modules/../../a"),
        '{"lockfileVersion": 1, "dependencies": {}}',
        "[]",
        "{",
    ],
)
def test_a_lock_that_names_another_place_is_refused_before_npm_runs(
    machine: Machine, lock: str
) -> None:
    with pytest.raises(UsageError, match=r"package-lock\.json"):
        machine.fetcher.node("{}", lock, machine.lines.append)
    assert not machine.note("npm")


# Agent programs


@pytest.mark.behaviour(208)
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("claude-code", "node_modules/@anthropic-ai/claude-code-linux-x64/claude"),
        ("codex", "node_modules/@openai/codex-linux-x64/vendor/x86_64-linux/bin/codex"),
        ("opencode", "node_modules/opencode-linux-x64-baseline/bin/opencode"),
    ],
)
def test_an_agent_program_is_the_locked_one_of_npm_and_no_script_of_it_runs(
    machine: Machine, name: str, program: str
) -> None:
    machine.install("npm", f"{NPM}mkdir -p {program}; cp *.json $NOTES\n")
    fetched = machine.fetcher.agent(name, machine.lines.append)
    assert (fetched.program, (fetched.folder / program).exists()) == (program, True)
    assert "ci --ignore-scripts" in machine.note("npm")[0]
    wanted = json.loads((machine.notes / "package.json").read_text())["optionalDependencies"]
    locked = json.loads((machine.notes / "package-lock.json").read_text())["packages"]
    versions = {path: entry["version"] for path, entry in locked.items() if path}
    assert versions == {
        f"node_modules/{package}": version.rpartition("@")[2] for package, version in wanted.items()
    }
    assert machine.fetcher.agent(name, machine.lines.append) == fetched
    assert len(machine.note("npm")) == 1


def test_an_agent_program_that_npm_does_not_have_for_this_machine_is_an_error(
    machine: Machine,
) -> None:
    with pytest.raises(SandboxUnavailableError, match="npm has no program of codex"):
        machine.fetcher.agent("codex", machine.lines.append)


# Debian


def test_apt_sees_the_packages_of_the_image_and_the_mirrors_of_this_machine(
    machine: Machine,
) -> None:
    debian = DebianPackages(machine.programs, machine.cache)
    folder = debian.fetch(["make", "gcc"], "Package: a\n", machine.lines.append)
    assert [path.name for path in folder.iterdir()] == ["a_1_amd64.deb"]
    assert machine.note("status") == ["Package: a"]
    assert machine.note("sources") == ["deb http://mirror.invalid/debian/ bookworm main"]
    update, install = machine.note("apt")
    assert update.endswith("--download-only update")
    assert install.endswith("--download-only install make gcc")
    assert debian.fetch(["gcc", "make"], "Package: a\n", machine.lines.append) == folder
    assert len(machine.note("apt")) == 2
    assert debian.fetch(["gcc"], "Package: b\n", machine.lines.append) != folder


def test_a_package_that_debian_lacks_is_reported(machine: Machine) -> None:
    (machine.notes / "message").write_text("E: Unable to locate package gccc\n")
    debian = DebianPackages(machine.programs, machine.cache)
    with pytest.raises((UsageError, SandboxUnavailableError), match="gccc"):
        debian.fetch(["gccc"], "", machine.lines.append)
    assert not machine.leftovers()
