"""Container settings sent to the engine, and the removal of containers of dead owners."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox.commands.live_container import started_ticks
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService, ReadOnlyMount
from wink_workspace.sandbox.podman.engine.containers import (
    OWNER_LABEL,
    Container,
    Host,
    Owner,
    container_spec,
    new_name,
    sweep,
)
from wink_workspace.sandbox.podman.engine.service import EngineError

ROOT = Host(is_root=True, controllers=frozenset({"memory", "pids", "cpu"}))
ROOTLESS = Host(is_root=False, controllers=frozenset())


def spec(config: PodmanConfig | None = None, *, host: Host = ROOT, name: str = "x"):
    return container_spec(
        config or PodmanConfig(),
        host=host,
        name=name,
        workspace=Path("/w"),
        command=("sleep", "100"),
    )


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("host", [ROOT, ROOTLESS], ids=["root", "rootless"])
def test_every_container_is_requested_with_all_isolation_layers(host: Host) -> None:
    requested = spec(host=host)
    assert requested["netns"] == {"nsmode": "none"}
    assert requested["cap_drop"] == ["all"]
    assert set(requested["cap_add"]) == {"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
    assert requested["no_new_privileges"] is True
    assert requested["read_only_filesystem"] is True
    assert requested["log_configuration"] == {"driver": "none"}, "output would fill the host's disk"
    limits = {limit["type"]: limit["hard"] for limit in requested["r_limits"]}
    assert limits["nproc"] <= 256
    assert limits["core"] == 0
    assert all("nosuid" in mount["options"] for mount in requested["mounts"])


def test_root_gives_containers_unused_host_ids() -> None:
    mapping = spec(host=ROOT)["idmappings"]["UIDMap"]
    assert mapping == [{"container_id": 0, "host_id": 2_100_000_000, "size": 65_536}]
    assert spec(host=ROOTLESS)["userns"] == {"nsmode": "keep-id", "value": "uid=1000,gid=1000"}


def test_without_cgroups_the_memory_of_each_process_is_limited() -> None:
    assert "resource_limits" not in spec(host=ROOTLESS)
    kinds = {limit["type"] for limit in spec(host=ROOTLESS)["r_limits"]}
    assert "data" in kinds
    assert spec(host=ROOT)["resource_limits"]["memory"]["limit"] == 2**30


def test_a_read_only_mount_is_mounted_read_only() -> None:
    config = PodmanConfig(mounts=(ReadOnlyMount("/opt/cache", "/mnt/cache"),))
    mount = spec(config)["mounts"][-1]
    assert (mount["source"], mount["destination"]) == ("/opt/cache", "/mnt/cache")
    assert {"ro", "nosuid", "nodev"} <= set(mount["options"])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: PodmanConfig(cpus=0),
        lambda: PodmanConfig(memory_bytes=-1),
        lambda: PodmanConfig(user_id=65_536),
        lambda: PodmanConfig(env={"A=B": "c"}),
        lambda: PodmanConfig(env={"A": "\0"}),
        lambda: ReadOnlyMount("relative", "/mnt"),
        lambda: ReadOnlyMount("/a/../b", "/mnt"),
        lambda: ReadOnlyMount("/a", "/workspace"),
    ],
)
def test_an_invalid_configuration_is_refused(wrong) -> None:
    with pytest.raises(UsageError):
        wrong()


@pytest.mark.parametrize(
    ("name", "least"),
    [("n_processes", 16), ("n_open_files", 16), ("memory_bytes", 16 * 1_048_576), ("cpus", 0.01)],
)
def test_a_limit_that_is_too_low_is_refused_with_the_minimum(name: str, least: float) -> None:
    assert getattr(PodmanConfig(**{name: least}), name) == least
    with pytest.raises(UsageError, match=f"{name} is .*too small to start") as caught:
        PodmanConfig(**{name: least * 0.9 if least < 1 else least - 1})
    assert caught.value.hint == f"Use at least {least:,}."


# Owners


def test_an_owner_differs_from_another_process_with_the_same_pid() -> None:
    ours = Owner.this_process()
    assert Owner.parse(str(ours)) == ours
    assert not ours.is_dead
    assert replace(ours, started=ours.started + 1).is_dead
    assert replace(ours, boot="of another day").is_dead
    assert not replace(ours, namespace="0", started=0).is_dead, (
        "an owner in another namespace may be alive"
    )
    assert Owner.parse("someone") is None
    assert Owner.parse("a/b/c/d") is None


@contextmanager
def mortal_owner() -> Iterator[Owner]:
    """An owner that lives until the block ends; then any test may remove its containers."""
    with subprocess.Popen(["sleep", "600"]) as process:
        started = started_ticks(process.pid)
        assert started is not None
        try:
            yield replace(Owner.this_process(), pid=process.pid, started=started)
        finally:
            process.kill()


# Real containers


def made(service: PodmanService, image: str, owner: Owner | str) -> Container:
    requested = spec(PodmanConfig(image=image), host=Host.of(service), name=new_name())
    requested["mounts"] = []
    requested["labels"][OWNER_LABEL] = str(owner)
    return Container(service, requested, timeout_s=60)


def exists(service: PodmanService, container: Container) -> bool:
    try:
        service.request("GET", f"/containers/{container.id}/exists")
    except EngineError:
        return False
    return True


@pytest.mark.behaviour(63)
def test_sweep_removes_containers_of_dead_owners_only(
    service: PodmanService, python_image: str
) -> None:
    ours, strange = (
        made(service, python_image, owner) for owner in (Owner.this_process(), "of another version")
    )
    with mortal_owner() as owner:
        left = made(service, python_image, owner)
        left.start()
        assert left.name not in sweep(service)
    try:
        sweep(service)  # another test may have removed it already
        assert [exists(service, each) for each in (left, ours, strange)] == [False, True, True]
    finally:
        for each in (left, ours, strange):
            each.end()
    assert not exists(service, ours)


def test_ending_a_container_twice_is_allowed(service: PodmanService, python_image: str) -> None:
    container = made(service, python_image, Owner.this_process())
    container.end()
    container.end()


def test_a_missing_image_is_reported_with_how_to_build_it(service: PodmanService) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"no image localhost/none.*image build"):
        made(service, "localhost/none:1", Owner.this_process())


def test_a_command_that_is_not_in_the_image_does_not_start(
    service: PodmanService, python_image: str
) -> None:
    requested = spec(PodmanConfig(image=python_image), host=Host.of(service), name=new_name())
    requested["mounts"], requested["entrypoint"] = [], ["/no/such/program"]
    container = Container(service, requested, timeout_s=60)
    try:
        with pytest.raises(SandboxUnavailableError):
            container.attach()
    finally:
        container.end()


# The engine


def environment_with(**variables: str) -> Environment:
    known = Environment.from_os()
    return replace(known, variables={**known.variables, **variables})


def test_our_own_engine_ends_when_its_service_closes(environment: Environment) -> None:
    service = PodmanService(environment_with(CONTAINER_HOST=""))
    folder = service.socket_path.parent
    assert service.request("GET", "/version")["Version"]
    service.close()
    assert not folder.exists()
    service.close()


def test_our_own_engine_is_restarted_after_it_ended(environment: Environment) -> None:
    service = PodmanService(environment_with(CONTAINER_HOST=""))
    try:
        own = service._own
        assert own is not None
        own._process.kill()
        own._process.wait()
        own.socket_path.unlink()  # as the engine does when it ends by itself
        assert service.is_root == (os.geteuid() == 0)
        assert service.request("GET", "/version")["Version"]
    finally:
        service.close()


def test_a_request_is_repeated_if_our_own_engine_ends_during_it(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = PodmanService(environment_with(CONTAINER_HOST=""))
    original = service._send

    def ends_first(*arguments: Any) -> Any:
        own = service._own
        assert own is not None
        own._process.kill()
        # Only the first request fails.
        monkeypatch.setattr(service, "_send", original)
        raise SandboxUnavailableError("it was cut off")

    try:
        # The engine must end between the check for it and the request.
        monkeypatch.setattr(service, "_send", ends_first)
        assert service.request("GET", "/version")["Version"]
    finally:
        service.close()


@pytest.mark.parametrize(
    "host", ["tcp://127.0.0.1:1", "ssh://somebody@example.invalid/run/podman.sock", "unix:///none"]
)
def test_a_remote_or_missing_engine_is_refused(host: str) -> None:
    with pytest.raises(SandboxUnavailableError, match="CONTAINER_HOST"):
        PodmanService(environment_with(CONTAINER_HOST=host))


def test_a_missing_podman_is_reported(tmp_path: Path) -> None:
    nowhere = environment_with(CONTAINER_HOST="", PATH=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
    with pytest.raises(SandboxUnavailableError, match="no podman on the PATH"):
        PodmanService(nowhere)


def test_an_engine_that_does_not_start_is_reported_with_its_output(tmp_path: Path) -> None:
    program = tmp_path / "podman"
    program.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    program.chmod(0o755)
    environment = environment_with(
        CONTAINER_HOST="", PATH=f"{tmp_path}:/usr/bin:/bin", XDG_RUNTIME_DIR=str(tmp_path)
    )
    with pytest.raises(SandboxUnavailableError, match="no room"):
        PodmanService(environment)
