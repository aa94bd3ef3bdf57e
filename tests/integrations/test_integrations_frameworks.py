"""A missing extra is named, and a version that was not tested gives one warning."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import wink_workspace
from wink_workspace.errors import MissingExtraError
from wink_workspace.integrations.frameworks import FRAMEWORKS, Framework, importing

INTEGRATIONS = Path(wink_workspace.__file__).parent / "integrations"
TWICE = """
import warnings
warnings.simplefilter("always")
from wink_workspace.integrations.frameworks import importing
for _ in range(2):
    with importing("acp"):
        pass
"""


@pytest.mark.behaviour(192)
def test_an_import_without_the_extra_names_the_extra() -> None:
    with pytest.raises(MissingExtraError, match="missing: missing_library") as caught:
        with importing("acp"):
            import missing_library  # noqa: F401 - it does not exist
    assert isinstance(caught.value, ImportError)
    assert "pip install 'wink-workspace[acp]'" in caught.value.hint


@pytest.mark.behaviour(192)
@pytest.mark.parametrize(("release", "warnings"), [("99.0", 1), ("0.12.7", 0), ("0.11.9", 1)])
def test_a_version_that_was_not_tested_gives_one_warning(tmp_path, release, warnings) -> None:
    info = tmp_path / f"agent_client_protocol-{release}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: agent-client-protocol\nVersion: {release}\n")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{TWICE}"],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = f"tested with agent-client-protocol 0.12.1 to 0.12, and {release} is installed"
    assert done.stderr.count(expected) == warnings


@pytest.mark.parametrize(
    ("release", "is_tested"),
    [("0.7.31", False), ("0.7.32", True), ("0.7.40rc1", True), ("0.8.0", False), ("1.0", False)],
)
def test_the_range_ends_with_the_newest_series(release, is_tested) -> None:
    assert Framework("deepagents", "deepagents", "0.7.32", "0.7").is_tested(release) is is_tested


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_the_installed_version_is_tested_and_the_extra_allows_it(framework) -> None:
    assert framework.is_tested(version(framework.distribution))
    requirements = metadata("wink-workspace").get_all("Requires-Dist") or []
    pattern = rf"{framework.distribution}\b.*>={framework.oldest}\b.*extra == '{framework.extra}'"
    assert any(re.match(pattern, each.replace('"', "'")) for each in requirements)


def test_importing_the_package_of_integrations_loads_no_framework() -> None:
    code = (
        "import sys, wink_workspace, wink_workspace.integrations.frameworks\n"
        "print(*sys.modules, sep='\\n')"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    libraries = {"pydantic_ai", "deepagents", "inspect_ai", "agents", "minisweagent", "acp"}
    assert not libraries & set(loaded.stdout.split())
