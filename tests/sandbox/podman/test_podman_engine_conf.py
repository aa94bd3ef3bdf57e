"""The settings of our own engine: they suit the machine; the user's settings stay unchanged."""

from __future__ import annotations

import resource
import tomllib
from pathlib import Path

import pytest

from wink_workspace.sandbox.podman.engine import engine_conf
from wink_workspace.sandbox.podman.engine.engine_conf import EngineSettings


def test_settings_are_written_as_valid_toml(tmp_path: Path) -> None:
    settings = EngineSettings(runtime="runc", cgroup_manager="cgroupfs", n_files=64, n_processes=32)
    parsed = tomllib.loads(settings.write(tmp_path).read_text())
    assert parsed["engine"] == {
        "runtime": "runc",
        "cgroup_manager": "cgroupfs",
        "events_logger": "file",
    }
    assert parsed["containers"] == {"default_ulimits": ["nofile=64:64", "nproc=32:32"]}


def test_unset_settings_are_omitted() -> None:
    settings = EngineSettings(runtime=None, cgroup_manager=None, n_files=64, n_processes=32)
    assert tomllib.loads(settings.text)["engine"] == {"events_logger": "file"}


def test_a_requested_runtime_is_used() -> None:
    assert EngineSettings.for_this_machine(path="", runtime="runsc").runtime == "runsc"


def test_an_installed_runtime_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The real folders may hold a runtime.
    monkeypatch.setattr(engine_conf, "_SYSTEM_PATH", str(tmp_path))
    assert EngineSettings.for_this_machine(path="").runtime is None
    (tmp_path / "crun").touch(0o755)
    assert EngineSettings.for_this_machine(path="").runtime == "crun"


def test_limits_do_not_exceed_those_of_the_caller() -> None:
    settings = EngineSettings.for_this_machine(path="/usr/bin")
    for limit, value in (
        (resource.RLIMIT_NOFILE, settings.n_files),
        (resource.RLIMIT_NPROC, settings.n_processes),
    ):
        hard = resource.getrlimit(limit)[1]
        assert value > 0
        assert hard == resource.RLIM_INFINITY or value <= hard


@pytest.mark.parametrize(("hard", "allowed"), [(resource.RLIM_INFINITY, 4096), (100, 100)])
def test_a_lower_hard_limit_is_kept(
    hard: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (hard, hard))
    assert EngineSettings.for_this_machine(path="").n_files == allowed
