"""How images are found and built: from the cache, from package mirrors, or from a registry.

The programs are fakes that record their arguments; the real ones build the images that all other
tests use.
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
from wink_workspace.sandbox.podman.building import images
from wink_workspace.sandbox.podman.building.images import ImageStore, Recipe, recipe
from wink_workspace.sandbox.podman.engine import host_programs as programs

PODMAN = """\
#!/bin/sh
echo "$*" >> "$NOTES/podman"
case "$1 $2" in
    "image ls") if read -r error 2>/dev/null < "$NOTES/vanishes"; then
            [ -e "$NOTES/always" ] || : > "$NOTES/vanishes"
            echo "$error" >&2; exit 125
        fi
        cat "$NOTES/listed" 2>/dev/null || echo "[]" ;;
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


class FakePrograms:
    """A folder of fake programs, and the records of their calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "programs"
        self.notes = folder / "notes"
        self.directory.mkdir()
        self.notes.mkdir()
        for name in ("sh", "cat", "cp", "touch", "echo"):
            (self.directory / name).symlink_to(str(shutil.which(name)))
        self.install("podman", PODMAN)
        self.store = ImageStore(
            Environment(variables={"PATH": str(self.directory), "NOTES": str(self.notes)}),
            cache=folder / "cache",
        )

    def install(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(0o755)

    def add_image(self, wanted: Recipe) -> None:
        """Make the engine report the image as built."""
        labels = {"wink-workspace.recipe": wanted.digest}
        entry = {"Id": "1", "Size": 7, "Names": [wanted.reference], "Labels": labels}
        built = self.notes / "built"
        others = json.loads(built.read_text()) if built.exists() else []
        built.write_text(json.dumps([entry, *others]))

    def calls(self, of: str = "podman") -> list[str]:
        file = self.notes / of
        return file.read_text().splitlines() if file.exists() else []

    def builds(self) -> list[str]:
        return [line for line in self.calls() if line.startswith("build ")]


@pytest.fixture
def fake(tmp_path: Path) -> FakePrograms:
    return FakePrograms(tmp_path)


@pytest.fixture
def python(fake: FakePrograms) -> Recipe:
    wanted = recipe("python")
    fake.add_image(wanted)
    return wanted


def test_images_are_listed_again_if_one_was_deleted_meanwhile(fake: FakePrograms) -> None:
    (fake.notes / "vanishes").write_text("Error: reading image: image not known\n")
    assert fake.store.by_name() == {}
    assert len(fake.calls()) == 2


@pytest.mark.parametrize(("error", "n_calls"), [("image not known", 5), ("no space left", 1)])
def test_listing_images_ends_with_an_error_that_stays(
    fake: FakePrograms, error: str, n_calls: int
) -> None:
    (fake.notes / "vanishes").write_text(f"Error: {error}\n")
    (fake.notes / "always").touch()
    with pytest.raises(SandboxUnavailableError, match=error):
        fake.store.find("python")
    assert len(fake.calls()) == n_calls


def test_a_current_image_is_not_rebuilt(fake: FakePrograms, python: Recipe) -> None:
    built = fake.store.build(python)
    assert (built.reference, built.size_bytes) == (python.reference, 7)
    assert fake.store.is_current(python)
    assert fake.store.build(python) == built
    assert len(fake.builds()) == 1
    fake.store.build(python, rebuild=True)
    assert len(fake.builds()) == 2


def test_debian_is_downloaded_with_the_mirrors_and_proxy_of_this_machine(
    fake: FakePrograms, python: Recipe
) -> None:
    fake.install("mmdebstrap", MMDEBSTRAP)
    fake.install("apt-get", APT_GET)
    fake.install("apt-config", APT_CONFIG)
    progress_lines: list[str] = []
    fake.store.build(python, progress=progress_lines.append)
    assert (fake.notes / "sources").read_text().splitlines() == [
        "deb http://mirror.invalid/debian/ bookworm main",
        "deb http://mirror.invalid/security/ bookworm-security main",
    ]
    assert fake.calls("options") == ['Acquire::http::Proxy "http://proxy.invalid/";']
    assert "ripgrep" in fake.calls("mmdebstrap")[0]
    assert "STEP 1/1" in progress_lines
    (build,) = fake.builds()
    assert "--network=none" in build
    assert f"BASE=localhost/wink-workspace/python-base:{python.digest}" in build


def test_without_apt_debian_is_downloaded_from_the_default_mirror(
    fake: FakePrograms, python: Recipe
) -> None:
    fake.install("mmdebstrap", MMDEBSTRAP)
    fake.store.build(python)
    assert not (fake.notes / "sources").exists()


def test_a_cached_root_filesystem_is_imported(fake: FakePrograms, python: Recipe) -> None:
    fake.store.cache.mkdir()
    archive = fake.store.cache / f"python-{python.digest}.tar"
    archive.touch()
    fake.store.build(python)
    assert any(line.startswith(f"import --quiet {archive}") for line in fake.calls())
    assert not (fake.notes / "mmdebstrap").exists()


def test_a_recipe_with_a_parent_adds_fetched_packages_to_its_image(
    fake: FakePrograms, python: Recipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = recipe("node")
    assert {"nodejs", "npm", *python.packages} <= set(wanted.packages)
    assert wanted.digest != python.digest
    fake.add_image(python)
    fake.add_image(wanted)
    steps: list[tuple[str, str]] = []

    def step(_: object, _kind: str, image: str, command: str, *_more: object, **_options: object):
        steps.append((image, command))
        return tmp_path

    monkeypatch.setattr(images.ImageStore, "filled", step)
    fake.store.build(wanted)
    base, build = fake.builds()
    assert f"--tag {python.reference}" in base
    assert f"BASE={python.reference}" in build
    assert "--network=none" in build
    assert ":/fetched/debian:ro" in build
    ((image, command),) = steps
    assert image == python.reference
    assert "--download-only install nodejs npm\n" in command
    assert not any(line.startswith("untag") for line in fake.calls())


def test_a_recipe_with_a_parent_starts_from_a_requested_base_with_all_packages(
    fake: FakePrograms,
) -> None:
    wanted = recipe("build")
    fake.add_image(wanted)
    fake.store.build(wanted, base="debian:bookworm-slim")
    (build,) = fake.builds()
    assert "BASE=debian:bookworm-slim" in build
    assert "--network=none" not in build
    assert b"ripgrep" in wanted.files["packages.txt"]
    assert b"gcc" in wanted.files["packages.txt"]


def test_without_build_programs_the_base_is_pulled_from_a_registry(
    fake: FakePrograms, python: Recipe
) -> None:
    fake.store.build(python)
    (build,) = fake.builds()
    assert "--pull=missing" in build
    assert "BASE=" not in build


def test_a_requested_base_is_pulled(fake: FakePrograms, python: Recipe) -> None:
    fake.install("mmdebstrap", MMDEBSTRAP)
    fake.store.build(python, base="debian:bookworm-slim")
    (build,) = fake.builds()
    assert "BASE=debian:bookworm-slim" in build
    assert "--pull=missing" in build


def test_a_failed_build_reports_the_last_output_of_the_builder(
    fake: FakePrograms, python: Recipe
) -> None:
    (fake.notes / "fails").touch()
    with pytest.raises(SandboxUnavailableError, match="step 3 went wrong"):
        fake.store.build(python)


def test_an_incomplete_root_filesystem_is_not_cached(fake: FakePrograms, python: Recipe) -> None:
    fake.install("mmdebstrap", f"{MMDEBSTRAP}\necho no space left; exit 1\n")
    with pytest.raises(SandboxUnavailableError, match="no space left") as caught:
        fake.store.build(python)
    assert "--base" in caught.value.hint
    assert "newuidmap" not in caught.value.hint
    assert [path.name for path in fake.store.cache.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    "error",
    [
        "E: unable to pick chroot mode automatically (use --mode for manual selection)",
        "unshare: unshare failed: Operation not permitted",
        "E: invalid value in /etc/subuid",
    ],
)
def test_missing_rights_for_a_root_filesystem_are_reported_with_a_hint(
    fake: FakePrograms, python: Recipe, error: str
) -> None:
    fake.install("mmdebstrap", f"#!/bin/sh\necho '{error}' >&2; exit 1\n")
    with pytest.raises(SandboxUnavailableError, match="for lack of permissions") as caught:
        fake.store.build(python)
    assert error in caught.value.message
    assert "newuidmap" in caught.value.hint
    assert "--base debian:bookworm-slim" in caught.value.hint


def test_an_interrupted_build_kills_its_program(fake: FakePrograms, python: Recipe) -> None:
    fake.install("mmdebstrap", "#!/bin/sh\necho $$ > $NOTES/pid; echo going; exec sleep 600\n")
    (fake.directory / "sleep").symlink_to(str(shutil.which("sleep")))

    def interrupt(line: str) -> None:
        if line == "going":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fake.store.build(python, progress=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(fake.calls("pid")[0]), 0)


def test_an_image_removed_during_its_build_is_reported(fake: FakePrograms, python: Recipe) -> None:
    (fake.notes / "built").unlink()
    with pytest.raises(SandboxUnavailableError, match="is gone"):
        fake.store.build(python)


def test_an_engine_that_fails_or_does_not_answer_is_unavailable(
    fake: FakePrograms, python: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.install("podman", "#!/bin/sh\necho storage is locked >&2; exit 125\n")
    with pytest.raises(SandboxUnavailableError, match="storage is locked"):
        fake.store.all()
    # The real timeout would be spent in full.
    monkeypatch.setattr(programs, "_LONGEST_QUERY_S", 0.05)
    fake.install("podman", "#!/bin/sh\nread line < $NOTES/fifo\n")
    os.mkfifo(fake.notes / "fifo")
    with pytest.raises(SandboxUnavailableError, match="did not answer"):
        fake.store.find(python.reference)


def test_a_build_that_keeps_its_output_open_is_ended_at_the_time_limit(
    fake: FakePrograms, python: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = PODMAN.replace("build*)", f"build*) exec {shutil.which('sleep')} 20;")
    fake.install("podman", podman)
    # The real timeout would be spent in full.
    monkeypatch.setattr(programs, "_LONGEST_BUILD_S", 0)
    with pytest.raises(
        SandboxUnavailableError, match="build failed: it was ended because"
    ) as ended:
        fake.store.build(python)
    assert "mirrors" in ended.value.hint


def test_a_program_that_ignores_sigterm_is_killed_when_its_build_is_abandoned(
    fake: FakePrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survived = tmp_path / "survived"
    program = (
        "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        " print('begun', flush=True); time.sleep(20); pathlib.Path(sys.argv[1]).touch()"
    )

    def abandon(line: str) -> None:
        raise InterruptedError(line)

    # The real timeout would be spent in full.
    monkeypatch.setattr(programs, "_CLEANUP_S", 0)
    with pytest.raises(InterruptedError, match="begun"):
        fake.store.programs.run([sys.executable, "-c", program, str(survived)], progress=abandon)
    assert not survived.exists()


def test_lines_of_a_build_are_reported_whole_and_decoded(fake: FakePrograms) -> None:
    lines: list[str] = []
    program = "import os; os.write(1, b'a\\r\\n\\xc3'); os.write(1, b'\\xa9\\xff\\n\\nend')"
    output = fake.store.programs.run([sys.executable, "-c", program], progress=lines.append)
    assert lines == ["a", "\xe9\ufffd", "", "end"]
    assert output == "\n".join(lines)


def test_without_podman_the_store_is_unavailable(fake: FakePrograms) -> None:
    (fake.directory / "podman").unlink()
    with pytest.raises(SandboxUnavailableError, match="no podman"):
        fake.store.all()


def test_the_digest_of_a_recipe_covers_copied_files_but_not_its_readme(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    shutil.copytree(recipe("python").folder, folder)
    before = Recipe("own", folder).digest
    (folder / "README.md").write_text("notes")
    assert Recipe("own", folder).digest == before
    (folder / "prepare").write_text("other")
    assert Recipe("own", folder).digest != before


def test_the_default_cache_is_the_users(tmp_path: Path) -> None:
    environment = Environment(variables={"XDG_CACHE_HOME": str(tmp_path)})
    assert ImageStore(environment).cache == tmp_path / "wink-workspace" / "images"
