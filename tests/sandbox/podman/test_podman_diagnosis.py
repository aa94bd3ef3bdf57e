"""What ``doctor`` reports on machines that lack something; test_podman_commands tests this one."""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Iterable
from pathlib import Path

import pytest

from wink_workspace.environment import Environment
from wink_workspace.errors import (
    IsolationError,
    SandboxBrokenError,
    SandboxError,
    SandboxUnavailableError,
)
from wink_workspace.sandbox import SandboxImage
from wink_workspace.sandbox.isolation_report import Finding
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService
from wink_workspace.sandbox.podman import podman_diagnosis as diagnosis
from wink_workspace.sandbox.podman.engine.containers import Host

NO_PROGRAMS = Environment(variables={"PATH": "/nowhere"})


def finding_named(findings: Iterable[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def test_without_podman_nothing_else_is_examined() -> None:
    (found,) = diagnosis.examine(NO_PROGRAMS)
    assert (found.name, found.state) == ("podman", "missing")
    assert "apt-get install podman" in found.fix


def test_an_engine_that_does_not_answer_is_reported_with_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    variables = {"PATH": str(tmp_path), "CONTAINER_HOST": f"unix://{tmp_path}/none.sock"}
    findings = diagnosis.examine(Environment(variables=variables))
    assert findings[-1].name == "engine"
    assert "unset CONTAINER_HOST" in findings[-1].fix


@pytest.mark.parametrize(("text", "state"), [("0\n", "missing"), ("15000\n", "good")])
def test_a_kernel_without_user_namespaces_is_reported_as_missing(
    text: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "most").write_text(text)
    # The real file belongs to the kernel, in /proc/sys.
    monkeypatch.setattr(diagnosis, "_MOST_NAMESPACES", tmp_path / "most")
    assert finding_named(diagnosis._kernel(), "user namespaces").state == state


def test_a_kernel_without_the_namespace_setting_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real file belongs to the kernel, in /proc/sys.
    monkeypatch.setattr(diagnosis, "_MOST_NAMESPACES", tmp_path / "none")
    assert finding_named(diagnosis._kernel(), "user namespaces").state == "missing"


def test_seccomp_without_an_installed_list_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "installed_list", lambda: None)
    assert finding_named(diagnosis._kernel(), "seccomp").state == "limited"
    # The real file belongs to the kernel, in /proc.
    monkeypatch.setattr(diagnosis, "_FILTERS", tmp_path / "none")
    assert finding_named(diagnosis._kernel(), "seccomp").state == "missing"


@pytest.mark.parametrize(
    ("lines", "state"),
    [("", "missing"), ("{name}:300000:65536\n", "good"), ("# {name}\nother:1:1\n", "missing")],
)
def test_an_ordinary_user_needs_subordinate_ids(
    lines: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "subuid"
    file.write_text(lines.format(name=pwd.getpwuid(os.geteuid()).pw_name))
    # The real files are in /etc.
    monkeypatch.setattr(diagnosis, "_SUBORDINATE", (file,))
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 1_000_000)
    monkeypatch.setattr(diagnosis.pwd, "getpwuid", lambda _: pwd.getpwnam("root"))
    file.write_text(lines.format(name="root"))
    monkeypatch.setattr(diagnosis.shutil, "which", lambda _: None)
    findings = list(diagnosis._ids())
    assert finding_named(findings, "subordinate ids").state == state
    assert finding_named(findings, "newuidmap").state == "missing"


@pytest.mark.parametrize(("lines", "state"), [("", "missing"), ("1000000:300000:65536\n", "good")])
def test_a_user_without_a_name_needs_subordinate_ids(
    lines: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subuid").write_text(lines)
    # The real files are in /etc.
    monkeypatch.setattr(diagnosis, "_SUBORDINATE", (tmp_path / "subuid",))
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 1_000_000)
    found = finding_named(diagnosis._ids(), "subordinate ids")
    assert found.state == state
    assert "1000000 has" in found.detail


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("someone:2147483647:2147483648", "good"),
        ("someone:2100000000:65536", "limited"),
        ("someone:100000:2100000001", "limited"),
        ("someone:100000:65536", "good"),
        ("", "good"),
    ],
)
def test_container_ids_of_root_that_are_assigned_to_a_user_are_reported(
    line: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subuid").write_text(f"{line}\n")
    # The real files are in /etc.
    monkeypatch.setattr(diagnosis, "_SUBORDINATE", (tmp_path / "subuid", tmp_path / "none"))
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 0)
    found = finding_named(diagnosis._ids(), "ids of containers")
    assert found.state == state
    assert ("someone" in found.detail) == (state == "limited")


def test_vfs_storage_is_reported_with_what_to_install() -> None:
    assert diagnosis._storage("overlay", "/store", False).state == "good"
    rootless, of_root = (diagnosis._storage("vfs", "/store", is_root) for is_root in (False, True))
    assert (rootless.state, of_root.state) == ("limited", "limited")
    assert "apt-get install fuse-overlayfs" in rootless.fix
    assert "~/.config/containers/storage.conf" in rootless.fix
    assert "/etc/containers/storage.conf" in of_root.fix


def test_limits_without_a_cgroup_are_reported_with_their_consequence() -> None:
    findings = list(diagnosis._limits(PodmanConfig(), Host(False, frozenset({"pids"}))))
    assert finding_named(findings, "pids limit").state == "good"
    assert finding_named(findings, "memory limit").state == "limited"
    assert "every processor" in finding_named(findings, "cpu limit").detail
    assert finding_named(findings, "workspace size").state == "limited"


def test_user_limits_that_are_too_low_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    findings = list(diagnosis._limits(PodmanConfig(), Host(True, frozenset())))
    assert "4,096 wanted" in finding_named(findings, "open files").detail
    assert "256 wanted" in finding_named(findings, "processes").detail


class FakeImageStore:
    """An image store with an image of an older recipe, or none."""

    has_it = True

    def __init__(self, environment: Environment) -> None:
        self.broken = environment is NO_PROGRAMS

    def find(self, reference: str) -> SandboxImage | None:
        if self.broken:
            raise SandboxUnavailableError("the store is locked")
        return SandboxImage(reference, "1", 1, "older") if self.has_it else None


def test_missing_and_outdated_images_are_reported_with_the_build_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diagnosis, "ImageStore", FakeImageStore)
    findings = list(diagnosis._images(Environment()))
    assert finding_named(findings, "image python").state == "limited"
    monkeypatch.setattr(FakeImageStore, "has_it", False)
    (missing,) = diagnosis._images(Environment())
    assert (missing.state, missing.fix) == ("missing", "Run `wink-workspace image build python`.")
    broken = list(diagnosis._images(NO_PROGRAMS))
    assert {finding.detail for finding in broken} == {"the store is locked"}
    assert all("podman image ls" in finding.fix for finding in broken)


def test_missing_build_programs_are_reported() -> None:
    (found,) = diagnosis._building(NO_PROGRAMS)
    assert "mmdebstrap" in found.detail


@pytest.mark.parametrize(
    "error",
    [
        IsolationError("the sandbox does not hold"),
        SandboxUnavailableError("the container does not start"),
        SandboxBrokenError("the inside of the sandbox ended"),
    ],
)
def test_failed_isolation_is_reported_with_a_fix_other_than_doctor(
    error: SandboxError,
) -> None:
    def prove() -> int:
        raise error

    found = diagnosis._probes(prove, "localhost/image:1")
    assert (found.state, found.detail) == ("missing", error.message)
    assert "podman run --rm --network=none localhost/image:1 true" in found.fix
    assert "doctor" not in found.fix


def test_isolation_without_an_image_is_reported_with_how_to_build_it() -> None:
    def prove() -> int:
        raise SandboxUnavailableError("there is no image", hint="Build it.")

    assert diagnosis._probes(prove, "localhost/image:1").fix == "Build it."


def test_an_engine_that_fails_to_start_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An engine at the default socket would be used instead.
    monkeypatch.setattr(PodmanService, "_usual_sockets", lambda _: ())
    (tmp_path / "podman").write_text("#!/bin/sh\necho no room\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/bin"}
    found = diagnosis.examine(Environment(variables=variables))[-1]
    assert (found.name, found.state) == ("engine", "missing")
    assert "no room" in found.detail
    assert "podman info" in found.fix


def test_an_engine_that_is_too_old_is_not_used() -> None:
    class Service:
        is_root = is_own = True

        def request(self, method: str, path: str) -> object:
            return {
                "version": {"Version": "3.4.4"},
                "host": {"ociRuntime": {"name": "crun"}},
                "store": {"graphDriverName": "overlay", "graphRoot": "/var"},
            }

    found = finding_named(diagnosis._engine(Service()), "podman")  # type: ignore[arg-type]  # a stand-in
    assert (found.state, found.detail) == ("missing", "3.4.4")
