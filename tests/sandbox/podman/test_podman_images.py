"""How images are found and built: from the cache, from this machine's packages, or a registry's.

The programs are stand-ins that note how they are called; the real ones build the images that all
other tests use.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.sandbox.podman import images
from wink_workspace.sandbox.podman.images import ImageStore, Recipe, recipe

PODMAN = """\
#!/bin/sh
echo "$*" >> "$NOTES/podman"
case "$1 $2" in
    "image ls") cat "$NOTES/listed" 2>/dev/null || echo "[]" ;;
    build*) [ -e "$NOTES/fails" ] && { echo "step 3 went wrong"; exit 9; }
        cp "$NOTES/built" "$NOTES/listed" 2>/dev/null
        echo "STEP 1/1" ;;
esac
exit 0
"""
MMDEBSTRAP = """\
#!/bin/sh
echo "$*" > "$NOTES/mmdebstrap"
for word; do
    case "$word" in
        --aptopt=*) cp "${word#--aptopt=}" "$NOTES/options" ;;
        *.tar) touch "$word" ;;
        */sources.list) cp "$word" "$NOTES/sources" ;;
    esac
done
"""
APT_GET = """\
#!/bin/sh
echo "bookworm deb http://mirror.invalid/debian/ bookworm main"
echo "bookworm-security deb http://mirror.invalid/security/ bookworm-security main"
echo "trixie deb http://mirror.invalid/debian/ trixie main"
"""
APT_CONFIG = """\
#!/bin/sh
echo 'Acquire::http::Proxy "http://proxy.invalid/";'
echo 'DPkg::Post-Invoke:: "rm -rf /";'
"""


class Machine:
    """A folder of programs, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "programs"
        self.notes = folder / "notes"
        self.programs.mkdir()
        self.notes.mkdir()
        for name in ("sh", "cat", "cp", "touch", "echo"):
            (self.programs / name).symlink_to(str(shutil.which(name)))
        self.install("podman", PODMAN)
        self.store = ImageStore(
            Environment(variables={"PATH": str(self.programs), "NOTES": str(self.notes)}),
            cache=folder / "cache",
        )

    def install(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def will_have(self, wanted: Recipe) -> None:
        """The engine has the image once it is built."""
        labels = {"wink-workspace.recipe": wanted.digest}
        entry = {"Id": "1", "Size": 7, "Names": [wanted.reference], "Labels": labels}
        (self.notes / "built").write_text(json.dumps([entry]))

    def asked(self, of: str = "podman") -> list[str]:
        file = self.notes / of
        return file.read_text().splitlines() if file.exists() else []

    def builds(self) -> list[str]:
        return [line for line in self.asked() if line.startswith("build ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def python(machine: Machine) -> Recipe:
    wanted = recipe("python")
    machine.will_have(wanted)
    return wanted


def test_an_image_that_is_as_its_recipe_says_is_not_built_again(
    machine: Machine, python: Recipe
) -> None:
    built = machine.store.build(python)
    assert (built.reference, built.size_bytes) == (python.reference, 7)
    assert machine.store.is_current(python)
    assert machine.store.build(python) == built
    assert len(machine.builds()) == 1
    machine.store.build(python, rebuild=True)
    assert len(machine.builds()) == 2


def test_debian_comes_from_the_mirrors_of_this_machine_and_the_way_that_it_reaches_them(
    machine: Machine, python: Recipe
) -> None:
    machine.install("mmdebstrap", MMDEBSTRAP)
    machine.install("apt-get", APT_GET)
    machine.install("apt-config", APT_CONFIG)
    told: list[str] = []
    machine.store.build(python, progress=told.append)
    assert (machine.notes / "sources").read_text().splitlines() == [
        "deb http://mirror.invalid/debian/ bookworm main",
        "deb http://mirror.invalid/security/ bookworm-security main",
    ]
    assert machine.asked("options") == ['Acquire::http::Proxy "http://proxy.invalid/";']
    assert "ripgrep" in machine.asked("mmdebstrap")[0]
    assert "STEP 1/1" in told
    (build,) = machine.builds()
    assert "--network=none" in build
    assert f"BASE=localhost/wink-workspace/python-base:{python.digest}" in build


def test_without_apt_debian_comes_from_where_it_usually_does(
    machine: Machine, python: Recipe
) -> None:
    machine.install("mmdebstrap", MMDEBSTRAP)
    machine.store.build(python)
    assert not (machine.notes / "sources").exists()


def test_a_root_filesystem_in_the_cache_is_used_by_every_store(
    machine: Machine, python: Recipe
) -> None:
    machine.store.cache.mkdir()
    archive = machine.store.cache / f"python-{python.digest}.tar"
    archive.touch()
    machine.store.build(python)
    assert any(line.startswith(f"import --quiet {archive}") for line in machine.asked())
    assert not (machine.notes / "mmdebstrap").exists()


@pytest.mark.parametrize("name", ["python", "minimal"])
def test_where_no_root_filesystem_can_be_made_a_registry_is_asked(
    name: str, machine: Machine
) -> None:
    wanted = recipe(name)
    machine.will_have(wanted)
    machine.install("busybox", "#!/bin/sh\n")  # not a static program
    machine.store.build(wanted)
    (build,) = machine.builds()
    assert "--pull=missing" in build
    assert "BASE=" not in build


def test_a_base_that_is_asked_for_is_pulled(machine: Machine, python: Recipe) -> None:
    machine.install("mmdebstrap", MMDEBSTRAP)
    machine.store.build(python, base="debian:bookworm-slim")
    (build,) = machine.builds()
    assert "BASE=debian:bookworm-slim" in build
    assert "--pull=missing" in build


def test_a_static_busybox_of_this_machine_becomes_the_small_image(machine: Machine) -> None:
    busybox = shutil.which("busybox")
    if busybox is None or not images._is_static(Path(busybox)):
        pytest.skip("no static busybox is installed")
    wanted = recipe("minimal")
    machine.will_have(wanted)
    (machine.programs / "busybox").symlink_to(busybox)
    machine.store.build(wanted)
    first = (machine.store.cache / f"minimal-{wanted.digest}.tar").read_bytes()
    machine.store.build(wanted, rebuild=True)
    assert (machine.store.cache / f"minimal-{wanted.digest}.tar").read_bytes() == first


def test_a_program_that_needs_libraries_is_not_static() -> None:
    assert not images._is_static(Path(sys.executable).resolve())


def test_a_build_that_fails_says_what_the_builder_said_last(
    machine: Machine, python: Recipe
) -> None:
    (machine.notes / "fails").touch()
    with pytest.raises(SandboxUnavailableError, match="step 3 went wrong"):
        machine.store.build(python)


def test_a_root_filesystem_that_is_not_finished_is_not_kept(
    machine: Machine, python: Recipe
) -> None:
    machine.install("mmdebstrap", f"{MMDEBSTRAP}\necho no space left; exit 1\n")
    with pytest.raises(SandboxUnavailableError, match="no space left") as caught:
        machine.store.build(python)
    assert "--base" in caught.value.hint
    assert "newuidmap" not in caught.value.hint
    assert [path.name for path in machine.store.cache.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    "said",
    [
        "E: unable to pick chroot mode automatically (use --mode for manual selection)",
        "unshare: unshare failed: Operation not permitted",
        "E: invalid value in /etc/subuid",
    ],
)
def test_a_user_without_the_rights_to_make_a_root_filesystem_is_told_what_is_needed(
    machine: Machine, python: Recipe, said: str
) -> None:
    machine.install("mmdebstrap", f"#!/bin/sh\necho '{said}' >&2; exit 1\n")
    with pytest.raises(SandboxUnavailableError, match="for lack of permissions") as caught:
        machine.store.build(python)
    assert said in caught.value.message
    assert "newuidmap" in caught.value.hint
    assert "--base debian:bookworm-slim" in caught.value.hint


def test_an_interrupted_build_ends_its_program(machine: Machine, python: Recipe) -> None:
    machine.install("mmdebstrap", "#!/bin/sh\necho $$ > $NOTES/pid; echo going; exec sleep 600\n")
    (machine.programs / "sleep").symlink_to(str(shutil.which("sleep")))

    def interrupt(line: str) -> None:
        if line == "going":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        machine.store.build(python, progress=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(machine.asked("pid")[0]), 0)


def test_an_image_that_somebody_removes_meanwhile_is_no_image(
    machine: Machine, python: Recipe
) -> None:
    (machine.notes / "built").unlink()
    with pytest.raises(SandboxUnavailableError, match="is gone"):
        machine.store.build(python)


def test_an_engine_that_refuses_or_does_not_answer_is_not_available(
    machine: Machine, python: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("podman", "#!/bin/sh\necho storage is locked >&2; exit 125\n")
    with pytest.raises(SandboxUnavailableError, match="storage is locked"):
        machine.store.all()
    # The real wait for an answer that never comes is spent in full.
    monkeypatch.setattr(images, "_LONGEST_QUERY_S", 0.05)
    machine.install("podman", "#!/bin/sh\nread line < $NOTES/fifo\n")
    os.mkfifo(machine.notes / "fifo")
    with pytest.raises(SandboxUnavailableError, match="did not answer"):
        machine.store.find(python.reference)


def test_without_podman_there_is_no_store(machine: Machine) -> None:
    (machine.programs / "podman").unlink()
    with pytest.raises(SandboxUnavailableError, match="no podman"):
        machine.store.all()


def test_a_recipe_changes_with_what_it_copies_and_not_with_its_notes(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(recipe("minimal").folder, folder)
    before = Recipe("own", folder).digest
    (folder / "README.md").write_text("notes")
    assert Recipe("own", folder).digest == before
    (folder / "prepare").write_text("other")
    assert Recipe("own", folder).digest != before


def test_the_cache_is_the_users_unless_another_is_named(tmp_path: Path) -> None:
    environment = Environment(variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert ImageStore(environment).cache == tmp_path / "wink-workspace" / "images"
