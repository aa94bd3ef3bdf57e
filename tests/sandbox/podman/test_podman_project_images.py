"""Images of projects: what steps can reach, what commands find, and what is built again.

The packages come from a server on loopback.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from loopback import package_registries
from package_server import PackageServer, package_server
from podman_machine import sandbox_place

from wink_workspace.cli import main
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox import ExecRequest, ImageRecipe, SandboxImage
from wink_workspace.sandbox.podman import PodmanConfig, PodmanSandbox
from wink_workspace.sandbox.podman.building import project_images
from wink_workspace.sandbox.podman.building.image_names import LAYER, newest_image, project_name
from wink_workspace.sandbox.podman.building.images import ImageStore, recipe
from wink_workspace.sandbox.podman.building.project_images import (
    ProjectImages,
    check_containerfile,
    copy_source,
    source_digest,
)

pytestmark = pytest.mark.xdist_group("podman-projects")

ATTEMPTS = """\
import json, os, pathlib, socket, urllib.request

def connect(family, address):
    with socket.socket(family) as client:
        client.settimeout(2)
        client.connect(address)

def write(path):
    pathlib.Path(path).write_text("x")

attempts = {
    "connect to the host": lambda: connect(socket.AF_INET, ("127.0.0.1", 631)),
    "find a route": lambda: pathlib.Path("/proc/net/route").read_text().splitlines()[1],
    "resolve a name": lambda: socket.getaddrinfo("package.invalid", 443),
    "ask another host": lambda: urllib.request.urlopen("http://package.invalid/"),
    "send to a registry": lambda: urllib.request.urlopen(os.environ["PIP_INDEX_URL"], b"x"),
    "find another project": lambda: os.listdir("/fetched"),
    "change a program": lambda: write("/usr/bin/env"),
    "add a program": lambda: write("/usr/local/bin/python3"),
    "become root": lambda: os.setuid(0),
    "mount": lambda: os.chroot("/tmp"),
    "read a secret": lambda: pathlib.Path("/workspace/.env").read_text(),
    "read a password": lambda: pathlib.Path("/workspace/.netrc").read_text(),
    "read the history": lambda: os.listdir("/workspace/.git"),
    "use the host's packages": lambda: os.listdir("/workspace/node_modules"),
}
done = {}
for name, attempt in attempts.items():
    try:
        attempt()
        done[name] = "DONE"
    except Exception as error:
        done[name] = type(error).__name__
out = pathlib.Path("/opt/project/attempts.json")
out.write_text(json.dumps(done))
forged = pathlib.Path("/opt/project/bin/python3")
python = forged.with_name("python")
python.unlink()
python.symlink_to("real")
forged.rename(forged.with_name("real"))
forged.write_text("#!/bin/sh\\necho forged\\n")
forged.chmod(0o755)
os.symlink("/etc/hostname", "/opt/project/link")
pathlib.Path("/workspace/left").write_text("x")
"""
SET_UP = ("/usr/bin/python3 attempts.py", "echo second >/opt/project/second")


@pytest.fixture(scope="module")
def packages() -> Generator[PackageServer]:
    """A server with one package as a wheel, and one as a source distribution."""
    with package_server() as server:
        server.add_python("wink-tests-dependency", {"wink_tests_dependency.py": "answer = 42\n"})
        server.add_python("wink-tests-built", {"setup.py": SETUP_PY, "n.txt": "43"}, sdist=True)
        yield server


SETUP_PY = """\
from setuptools import setup
open("wink_tests_built.py", "w").write("answer = " + open("n.txt").read())
setup(name="wink-tests-built", version="1.0", py_modules=["wink_tests_built"])
"""


@pytest.fixture(scope="module")
def machine(environment: Environment, packages: PackageServer) -> Environment:
    """The environment of clients that know only that server."""
    return replace(environment, variables={**environment.variables, **packages.variables})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    files = {
        "requirements.txt": "-r requirements/base.txt\nwink-tests-dependency==1.0\n",
        "requirements/base.txt": "wink-tests-built\n",
        "attempts.py": ATTEMPTS,
        "test_it.py": "from wink_tests_dependency import answer\ndef test_it(): assert answer == 42\n",
        ".env": "SECRET=1\n",
        ".netrc": "password\n",
        ".env.example": "SECRET=\n",
        ".git/config": "[core]\n",
        "node_modules/a/index.js": "1\n",
        "certs/server.pem": "public\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def images(machine: Environment, tmp_path_factory: pytest.TempPathFactory) -> ProjectImages:
    """With a cache of its own, and the root filesystems of the usual one."""
    with package_registries():
        ImageStore(machine).build(recipe("node"))
    cache = tmp_path_factory.mktemp("cache")
    for archive in ImageStore(machine).cache.glob("*.tar"):
        (cache / archive.name).symlink_to(archive)
    return ProjectImages(machine, ImageStore(machine, cache=cache))


RECIPE = ImageRecipe(requirements=("requirements.txt",), set_up=SET_UP)


@pytest.fixture(scope="module")
def built(images: ProjectImages, source: Path) -> Generator[SandboxImage]:
    """The image of the project; the images that the tests made are removed at the end."""
    before = all_images(images)
    yield images.build(RECIPE, source)
    images.store.programs.podman("rmi", "--force", *(all_images(images) - before))


def all_images(images: ProjectImages) -> set[str]:
    listed = images.store.programs.podman("image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
    return {name for name in listed.splitlines() if "/project-" in name or LAYER in name}


@pytest.fixture(scope="module")
def sandbox(
    built: SandboxImage, tmp_path_factory: pytest.TempPathFactory
) -> Generator[PodmanSandbox]:
    place = sandbox_place(tmp_path_factory.mktemp("sandbox"))
    with closing(PodmanSandbox(place, config=PodmanConfig(image=built.reference))) as sandbox:
        yield sandbox


def output(sandbox: PodmanSandbox, command: str, **options: object) -> str:
    result = sandbox.run(ExecRequest(argv=("/bin/sh", "-c", command), **options))
    assert result.exit_code == 0, result
    return result.stdout.head.decode()


def steps_of(
    images: ProjectImages, recipe: ImageRecipe, source: Path
) -> tuple[SandboxImage, list[str]]:
    """The image, and everything that its build ran or fetched."""
    lines: list[str] = []
    image = images.build(recipe, source, progress=lines.append)
    return image, [line for line in lines if line.startswith(("step:", "STEP 1"))]


# What a step can reach


@pytest.mark.behaviour(107)
def test_set_up_has_registries_to_read_no_other_network_no_privilege_and_no_secret(
    sandbox: PodmanSandbox,
) -> None:
    done = json.loads(output(sandbox, "cat /opt/project/attempts.json"))
    assert len(done) == 14
    assert "DONE" not in done.values(), done


@pytest.mark.behaviour(106)
def test_commands_find_the_requirements_and_what_set_up_made(sandbox: PodmanSandbox) -> None:
    files = sandbox._context.files
    (files / "test_it.py").write_text(
        "def test_it():\n    import wink_tests_dependency as d, wink_tests_built as b\n"
        "    assert (d.answer, b.answer) == (42, 43)\n"
    )
    assert "1 passed" in output(sandbox, "pytest -q -p no:cacheprovider")
    assert output(sandbox, "cat /opt/project/second; echo $VIRTUAL_ENV") == "second\n/opt/project\n"
    assert output(sandbox, "ls") == "test_it.py\n"


@pytest.mark.behaviour(107)
def test_commands_cannot_change_the_image_and_set_up_cannot_replace_the_runner(
    sandbox: PodmanSandbox,
) -> None:
    """Set-up put another python3 first on the PATH; the runner is still the one of Debian."""
    assert output(sandbox, "python3") == "forged\n"
    assert not sandbox.report.holes
    assert len(sandbox.report.probes) > 15
    result = sandbox.run(ExecRequest(argv=("/bin/sh", "-c", "echo x >/opt/project/second")))
    assert result.exit_code != 0


# What is built again


@pytest.mark.behaviour(108)
def test_a_second_build_runs_and_fetches_nothing_and_asks_the_engine_once(
    images: ProjectImages, built: SandboxImage, source: Path, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    podman = tmp_path / "podman"
    podman.write_text(
        f'#!/bin/sh\necho "$*" >>{calls}\nexec {images.store.programs.find("podman")} "$@"\n'
    )
    podman.chmod(0o755)
    variables = images.environment.variables
    watched = replace(
        images.environment, variables={**variables, "PATH": f"{tmp_path}:{variables['PATH']}"}
    )
    again = ProjectImages(watched, ImageStore(watched, cache=images.store.cache))
    again.store.forget_use([built.reference])
    assert steps_of(again, RECIPE, source) == (built, [])
    assert again.store.used_s(built.reference) > 0
    assert [line.split()[:2] for line in calls.read_text().splitlines()] == [["image", "ls"]]
    found = images.store.find(newest_image(source))
    assert found is not None
    assert (found.id, found.source) == (built.id, str(source))
    assert images.store.find(newest_image(source / "certs")) is None


@pytest.mark.behaviour(108)
def test_a_change_repeats_only_the_steps_that_it_concerns(
    images: ProjectImages, built: SandboxImage, source: Path
) -> None:
    longer = replace(RECIPE, set_up=(*SET_UP, "echo third >/opt/project/third"))
    third, steps = steps_of(images, longer, source)
    assert [step[:12] for step in steps] == ["step: echo t", "STEP 1/4: FR"]
    assert third.id != built.id
    (source / ".env").write_text("SECRET=2\n")
    (source / "node_modules/a/index.js").write_text("2\n")
    assert steps_of(images, longer, source) == (third, [])
    (source / "certs/server.pem").write_text("other\n")
    _, steps = steps_of(images, longer, source)
    assert [step[:12] for step in steps] == [
        "step: /usr/b",
        "step: echo s",
        "step: echo t",
        "STEP 1/4: FR",
    ]
    (source / "certs/server.pem").write_text("public\n")
    assert steps_of(images, RECIPE, source) == (built, [])
    assert images.store.find(newest_image(source)).id == built.id


def test_a_failed_step_reports_its_output_and_leaves_nothing(
    images: ProjectImages, built: SandboxImage, source: Path
) -> None:
    before = sorted(images.steps.iterdir())
    failing = replace(RECIPE, set_up=("echo begun; echo wrong >&2; mkdir -m 0 x; exit 3",))
    with pytest.raises(SandboxUnavailableError, match=r"exit code 3.*begun; wrong") as caught:
        images.build(failing, source)
    assert "/opt/project" in caught.value.hint
    assert sorted(images.steps.iterdir()) == before
    assert not list(images.store.cache.glob("unfinished*"))
    assert images.store.find(newest_image(source)).id == built.id


@pytest.mark.behaviour(145)
def test_remains_of_a_killed_build_are_removed_and_give_the_same_image(
    images: ProjectImages, built: SandboxImage, source: Path
) -> None:
    left = [images.store.cache / "unfinished-x", images.store.cache / "fetched/unfinished-y"]
    for folder in left:
        (folder / "below").mkdir(parents=True)
        (folder / "below").chmod(0)
    assert steps_of(images, RECIPE, source) == (built, [])
    assert not any(folder.exists() for folder in left)


@pytest.mark.behaviour(144)
def test_a_link_in_the_place_of_a_package_file_shows_no_file_of_the_host(
    images: ProjectImages, built: SandboxImage, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    secret = tmp_path / "credentials.json"
    secret.write_text('{"token": "hidden"}')
    (folder / "package-lock.json").symlink_to(secret)
    recipe = ImageRecipe(lock="package-lock.json")
    with pytest.raises(UsageError, match=r"package-lock\.json cannot be read") as caught:
        images.build(recipe, folder)
    assert "hidden" not in str(caught.value)
    (folder / "requirements.txt").write_text("-r dev-requirements.txt")
    (folder / "dev-requirements.txt").symlink_to(secret)
    recipe = ImageRecipe(requirements=("requirements.txt",))
    with pytest.raises(SandboxUnavailableError, match="No such file") as caught:
        images.build(recipe, folder)
    assert "hidden" not in str(caught.value)


@pytest.mark.behaviour(142)
def test_a_build_refuses_files_that_are_not_what_was_confirmed(
    images: ProjectImages, source: Path
) -> None:
    for confirmed in ({}, {"requirements.txt": "0" * 64}):
        with pytest.raises(UsageError, match=r"requirements\.txt is not what was confirmed"):
            images.build(RECIPE, source, confirmed=confirmed)


@pytest.mark.behaviour(145)
def test_a_source_that_changes_during_its_build_leaves_no_result_for_the_old_one(
    images: ProjectImages, built: SandboxImage, tmp_path: Path
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "data").write_text("before")
    recipe = ImageRecipe(base=built.reference, set_up=("cp data /opt/project/data",))
    before = sorted(images.steps.iterdir())

    def change(line: str) -> None:
        if line.startswith("step:"):
            (folder / "data").write_text("after")

    with pytest.raises(UsageError, match="has changed while the image was built"):
        images.build(recipe, folder, progress=change)
    assert sorted(images.steps.iterdir()) == before


def test_a_base_that_does_not_exist_is_not_pulled(images: ProjectImages, source: Path) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"there is no image localhost/none:1"):
        images.build(ImageRecipe(base="localhost/none:1"), source)
    with pytest.raises(UsageError, match="is not a directory"):
        images.build(ImageRecipe(), source / "none")


def test_a_containerfile_is_refused_if_root_would_run_it(
    images: ProjectImages, source: Path
) -> None:
    if os.geteuid():
        pytest.skip("this is about root")
    with pytest.raises(SandboxUnavailableError, match="not built by root"):
        images.build(ImageRecipe(containerfile="test_it.py"), source)


@pytest.mark.parametrize(
    "text",
    [
        "FROM a\nADD https://x.invalid/a /a\n",
        "FROM a\nadd \\\n  https://x.invalid/a /a\n",
        "FROM a\nONBUILD ADD b /b\n",
        "FROM a\nRUN --network=host id\n",
        "FROM a\nRUN --mount=type=cache,target=/c id\n",
        "FROM a\n run --security=insecure id\n",
        "# escape=`\nFROM a\n",
    ],
)
def test_a_containerfile_that_downloads_by_itself_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Containerfile: "):
        check_containerfile(text, "Containerfile")


@pytest.mark.behaviour(144)
@pytest.mark.parametrize(
    "text",
    [
        "# a comment \\\nADD https://example.invalid/x /x",
        "AD\\\nD https://example.invalid/x /x",
        "RUN \\\n# a comment\n--network=host id",
        "RUN \\\n\n--network=host id",
        "RUN\x0c--network=host id",
        "RU\\\nN --network=host id",
        "\ufeffADD https://example.invalid/x /x",
        "# escape\t=`\nRUN `\n--network=host id",
        "ADD\\\n https://example.invalid/x /x",
        "RUN id \\\r\n&& id\r\nADD a b",
    ],
)
def test_a_containerfile_cannot_hide_an_instruction(text: str) -> None:
    with pytest.raises(UsageError, match="Containerfile: "):
        check_containerfile(f"FROM a\n{text}\n", "Containerfile")


def test_an_ordinary_containerfile_is_accepted() -> None:
    text = "# a comment\nFROM a\nCOPY . /a\nRUN apk --no-cache \\\n  fix\n"
    assert check_containerfile(text, "Containerfile") is None


# Node packages


def write_lock(folder: Path, packages: Mapping[str, object]) -> None:
    """A package.json and a package-lock.json with these entries."""
    top = {"name": "p", "version": "1.0.0", "dependencies": dict.fromkeys(packages, "1.0.0")}
    (folder / "package.json").write_text(json.dumps(top))
    entries = {"": top, **{f"node_modules/{name}": each for name, each in packages.items()}}
    lock = {**top, "lockfileVersion": 3, "requires": True, "packages": entries}
    (folder / "package-lock.json").write_text(json.dumps(lock))


@pytest.mark.behaviour(106)
def test_scripts_of_node_packages_run_in_the_step(
    images: ProjectImages, built: SandboxImage, packages: PackageServer, tmp_path: Path
) -> None:
    entry = packages.add_node(
        "wink-tests-node",
        {"index.js": "module.exports = require('./made.js')\n"},
        scripts={"install": "echo 'module.exports = 42' >made.js"},
    )
    source, place = tmp_path / "source", tmp_path / "place"
    source.mkdir()
    place.mkdir()
    write_lock(source, {"wink-tests-node": entry})
    image = images.build(ImageRecipe(base="node", lock="package-lock.json"), source)
    config = PodmanConfig(image=image.reference)
    with closing(PodmanSandbox(sandbox_place(place), config=config)) as sandbox:
        assert output(sandbox, "node -p 'require(\"wink-tests-node\")'") == "42\n"


@pytest.mark.behaviour(106)
@pytest.mark.share(1)
@pytest.mark.parametrize("is_bundled", [True, False])
def test_a_lock_with_a_repository_starts_no_program_of_this_machine(
    images: ProjectImages, built: SandboxImage, tmp_path: Path, is_bundled: bool
) -> None:
    """Npm clones it with git, and runs what the repository's own settings name."""
    source, programs = tmp_path / "source", tmp_path / "programs"
    source.mkdir()
    programs.mkdir()
    entry = {
        "version": "1.0.0",
        "resolved": f"git+file://{tmp_path}/repository#{'0' * 40}",
        "inBundle": is_bundled,
    }
    write_lock(source, {"evil": entry})
    for name in ("npm", "git", "node", "pip", "pip3"):
        (programs / name).write_text(f"#!/bin/sh\necho $0 >>{tmp_path}/started\n")
        (programs / name).chmod(0o755)
    variables = images.environment.variables
    watched = replace(
        images.environment, variables={**variables, "PATH": f"{programs}:{variables['PATH']}"}
    )
    again = ProjectImages(watched, ImageStore(watched, cache=images.store.cache))
    with pytest.raises(SandboxUnavailableError, match="install the Node packages"):
        again.build(ImageRecipe(base="node", lock="package-lock.json"), source)
    assert not (tmp_path / "started").exists()


# Agent programs

AGENT = '#!/bin/sh\necho "an agent, $1"\n'
AGENTS = {
    "claude-code": ("@anthropic-ai/claude-code-linux-x64", "claude"),
    "codex": ("@openai/codex-linux-x64", "vendor/x/bin/codex"),
}


@pytest.mark.behaviour(208)
def test_an_image_has_the_agent_programs_of_its_recipe_and_serves_recipes_with_fewer(
    images: ProjectImages,
    built: SandboxImage,
    packages: PackageServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, other, place = (tmp_path / name for name in ("source", "other", "place"))
    for folder in (source, other, place):
        folder.mkdir()
    for agent, (name, program) in AGENTS.items():
        lock = packages.add_node(name, {program: AGENT})
        (tmp_path / "agents" / agent).mkdir(parents=True)
        write_lock(tmp_path / "agents" / agent, {name: lock})
    monkeypatch.setattr(project_images, "recipe_folder", tmp_path.joinpath)
    agents = images
    plain = ImageRecipe(set_up=("mkdir -p /opt/project/bin; cp /bin/false /opt/project/bin/codex",))
    both = plain.with_agents(("codex", "claude-code"))

    image, steps = steps_of(agents, both, source)

    fetched = [step for step in steps if "fetch the agent" in step]
    assert [each.rpartition(" ")[2] for each in fetched] == ["claude-code", "codex"]
    assert set(image.agents) == {"claude-code", "codex"}
    assert built.agents == ()
    for each_recipe in (both, plain, *(plain.with_agents((each,)) for each in image.agents)):
        found = agents.store.find(newest_image(source, each_recipe))
        assert found is not None
        assert found.id == image.id
    config = PodmanConfig(image=image.reference)
    with closing(PodmanSandbox(sandbox_place(place), config=config)) as sandbox:
        assert output(sandbox, "claude 1; codex 2") == "an agent, 1\nan agent, 2\n"
        assert output(sandbox, "stat -c %u:%a $(readlink -f $(which claude))") == "0:755\n"
    assert steps_of(agents, both, source) == (image, [])

    _, steps = steps_of(agents, ImageRecipe().with_agents(both.agents), other)
    assert [step[:9] for step in steps] == ["STEP 1/5:"]  # the programs are in the store

    agents.build(replace(both, agents=("codex",)), source)  # a new image
    assert agents.store.find(newest_image(source, plain.with_agents(("claude-code",)))) is None


# The source


def test_the_copy_of_a_source_has_no_secrets_history_or_caches(
    source: Path, tmp_path: Path
) -> None:
    (source / "link").symlink_to("/etc/hostname")
    os.mkfifo(source / "pipe")
    try:
        copy_source(source, tmp_path / "copy", None)
    finally:
        (source / "link").unlink()
        (source / "pipe").unlink()
    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert copied == {
        *(".env.example", "attempts.py", "certs", "certs/server.pem", "link"),
        *("requirements", "requirements/base.txt", "requirements.txt", "test_it.py"),
    }
    assert (tmp_path / "copy/link").is_symlink()


def test_the_digest_of_a_source_covers_names_kinds_contents_and_modes(tmp_path: Path) -> None:
    def digest_after(change: Callable[[], object]) -> str:
        change()
        return source_digest(tmp_path)

    file = tmp_path / "a"
    digests = [
        digest_after(lambda: file.write_text("1")),
        digest_after(lambda: file.write_text("2")),
        digest_after(lambda: file.chmod(0o755)),
        digest_after(lambda: file.rename(tmp_path / "b")),
        digest_after(lambda: (tmp_path / "c").mkdir()),
        digest_after(lambda: (tmp_path / "d").symlink_to("b")),
    ]
    assert len(set(digests)) == len(digests)
    assert source_digest(tmp_path) == digests[-1]


# The commands


def test_exec_uses_the_image_of_the_project_and_list_shows_it(
    built: SandboxImage,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def shell(*arguments: str, code: int = 0) -> str:
        exit_code = main(list(arguments))
        captured = capfdbinary.readouterr()
        assert exit_code == code, captured
        return (captured.out + captured.err).decode()

    workspace = shell("new", str(source)).partition(":")[0]
    assert "second" in shell("exec", workspace, "--", "cat", "/opt/project/second")
    listed = {each["reference"]: each for each in json.loads(shell("image", "list", "--json"))}
    assert listed[built.reference]["state"] == f"for {source}"
    assert listed[built.reference]["created_s"] > 0
    assert not [name for name in listed if name.startswith(LAYER) or name.endswith(":current")]
    assert project_name(source) in shell("image", "list")
    message = shell("image", "build", "python", "--packages", "make", code=2)
    assert "options for a project" in message
