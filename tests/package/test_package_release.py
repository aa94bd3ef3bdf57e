"""What `make release` builds: the same bytes twice, and a library that works without its source."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from script_files import script

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("release")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return script("release")


@pytest.fixture(scope="module")
def built(release: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    folders = [tmp_path_factory.mktemp("dist") for _ in range(2)]
    sums = [release.build(folder, "1700000000") for folder in folders]
    return [
        {str(folder / name): sum_ for name, sum_ in each.items()}
        for folder, each in zip(folders, sums, strict=True)
    ]


def test_two_builds_are_equal(built: list[dict[str, str]]) -> None:
    first, second = ({Path(path).name: sum_ for path, sum_ in each.items()} for each in built)
    assert first == second
    assert [name.rpartition(".")[2] for name in first] == ["whl", "gz"]


def test_a_wheel_has_the_program_the_recipes_and_the_manual_page(
    built: list[dict[str, str]],
) -> None:
    (wheel,) = (path for path in built[0] if path.endswith(".whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "wink_workspace/py.typed" in names
    assert "wink_workspace/sandbox/podman/recipes/python/Containerfile" in names
    assert any(name.endswith("share/man/man1/wink-workspace.1") for name in names)
    assert not [name for name in names if "/tests/" in name or name.startswith("tests/")]


def test_the_library_of_a_wheel_passes_the_smoke_test_of_a_release(
    release: ModuleType, built: list[dict[str, str]], tmp_path: Path
) -> None:
    (wheel,) = (path for path in built[0] if path.endswith(".whl"))
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path)}
    where = "import wink_workspace; print(wink_workspace.__file__)\n"
    done = subprocess.run(
        [sys.executable, "-c", where + release.SMOKE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "installed"))


@pytest.mark.parametrize(
    ("version", "message"),
    [("9.9.9", "pyproject.toml has version"), ("0.1.0", "CHANGELOG.md has no section 0.1.0")],
)
def test_a_release_that_the_files_do_not_describe_is_refused(
    release: ModuleType, version: str, message: str
) -> None:
    with pytest.raises(release.ReleaseError, match=message):
        release.check_state(version, may_differ=True)


def test_a_version_without_three_numbers_is_refused(
    release: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main(["1.0"]) == 2
    assert "make release VERSION=" in capsys.readouterr().err


def test_the_lock_has_each_dependency_of_the_project_in_a_version_that_it_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {
        "runtime.txt": project["dependencies"],
        "dev.txt": [*project["dependencies"], *extras["dev"]],
        "all.txt": [*project["dependencies"], *extras["models"], *extras["mcp"], *extras["web"]],
        "lowest.txt": [*project["dependencies"], *extras["models"], *extras["mcp"], *extras["web"]],
    }
    for lock, requirements in wanted.items():
        text = (ROOT / "requirements" / lock).read_text()
        assert "://" not in text, "a lock names no address"
        locked = dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;]+)", text, re.MULTILINE))
        for each in map(Requirement, requirements):
            version = locked.get(each.name.lower().replace("_", "-"))
            assert version is not None, f"{lock} lacks {each.name}: run make lock"
            assert each.specifier.contains(version, prereleases=True), (
                f"{lock}: {each.name} {version}"
            )
        n_packages = len(locked)
        assert text.count("--hash=sha256:") >= n_packages > 30


def test_every_licence_is_known_to_be_compatible(capsys: pytest.CaptureFixture[str]) -> None:
    assert script("licences").main() == 0, capsys.readouterr().out
