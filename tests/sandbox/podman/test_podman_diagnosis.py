"""What ``doctor`` finds on machines that lack something; on this one, see the commands' tests."""

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
from wink_workspace.sandbox.findings import Finding
from wink_workspace.sandbox.podman import PodmanConfig, PodmanService, diagnosis
from wink_workspace.sandbox.podman.containers import Host
from wink_workspace.sandbox.podman.images import recipe

NO_PROGRAMS = Environment(variables={"PATH": "/nowhere"})


def one(findings: Iterable[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.name == name]
    return found


def test_without_podman_nothing_else_is_looked_at() -> None:
    (found,) = diagnosis.examine(NO_PROGRAMS)
    assert (found.name, found.state) == ("podman", "missing")
    assert "apt-get install podman" in found.fix


def test_an_engine_that_does_not_start_is_said_with_the_way_to_mend_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "podman").chmod(0o755)
    variables = {"PATH": str(tmp_path), "CONTAINER_HOST": f"unix://{tmp_path}/none.sock"}
    findings = diagnosis.examine(Environment(variables=variables))
    assert findings[-1].name == "engine"
    assert "unset CONTAINER_HOST" in findings[-1].fix


@pytest.mark.parametrize(("text", "state"), [("0\n", "missing"), ("15000\n", "good")])
def test_a_kernel_without_user_namespaces_is_of_no_use(
    text: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "most").write_text(text)
    # The file is the kernel's, below /proc/sys.
    monkeypatch.setattr(diagnosis, "_MOST_NAMESPACES", tmp_path / "most")
    assert one(diagnosis._kernel(), "user namespaces").state == state


def test_a_kernel_that_says_nothing_of_namespaces_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file is the kernel's, below /proc/sys.
    monkeypatch.setattr(diagnosis, "_MOST_NAMESPACES", tmp_path / "none")
    assert one(diagnosis._kernel(), "user namespaces").state == "missing"


def test_filters_of_system_calls_are_narrowed_if_there_is_a_list_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "installed_list", lambda: None)
    assert one(diagnosis._kernel(), "seccomp").state == "limited"
    # The file is the kernel's, below /proc.
    monkeypatch.setattr(diagnosis, "_FILTERS", tmp_path / "none")
    assert one(diagnosis._kernel(), "seccomp").state == "missing"


@pytest.mark.parametrize(
    ("lines", "state"),
    [("", "missing"), ("{name}:300000:65536\n", "good"), ("# {name}\nother:1:1\n", "missing")],
)
def test_an_ordinary_user_needs_ids_to_map(
    lines: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "subuid"
    file.write_text(lines.format(name=pwd.getpwuid(os.geteuid()).pw_name))
    # The files are the machine's, below /etc.
    monkeypatch.setattr(diagnosis, "_SUBORDINATE", (file,))
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 1_000_000)
    monkeypatch.setattr(diagnosis.pwd, "getpwuid", lambda _: pwd.getpwnam("root"))
    file.write_text(lines.format(name="root"))
    monkeypatch.setattr(diagnosis.shutil, "which", lambda _: None)
    findings = list(diagnosis._ids())
    assert one(findings, "subordinate ids").state == state
    assert one(findings, "newuidmap").state == "missing"


@pytest.mark.parametrize(("lines", "state"), [("", "missing"), ("1000000:300000:65536\n", "good")])
def test_a_user_without_a_name_needs_ids_to_map_as_any_other(
    lines: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subuid").write_text(lines)
    # The files are the machine's, below /etc.
    monkeypatch.setattr(diagnosis, "_SUBORDINATE", (tmp_path / "subuid",))
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 1_000_000)
    found = one(diagnosis._ids(), "subordinate ids")
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
def test_ids_of_roots_containers_are_to_be_nobody_elses(
    line: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "subuid").write_text(f"{line}\n")
    # The files are the machine's, below /etc.
    monkeypatch.setattr(diagnosis, "_SUBORDINATE", (tmp_path / "subuid", tmp_path / "none"))
    monkeypatch.setattr(diagnosis.os, "geteuid", lambda: 0)
    found = one(diagnosis._ids(), "ids of containers")
    assert found.state == state
    assert ("someone" in found.detail) == (state == "limited")


def test_storage_that_copies_images_whole_is_named_with_what_to_install() -> None:
    assert diagnosis._storage("overlay", "/store", False).state == "good"
    rootless, of_root = (diagnosis._storage("vfs", "/store", is_root) for is_root in (False, True))
    assert (rootless.state, of_root.state) == ("limited", "limited")
    assert "apt-get install fuse-overlayfs" in rootless.fix
    assert "~/.config/containers/storage.conf" in rootless.fix
    assert "/etc/containers/storage.conf" in of_root.fix


def test_limits_that_no_cgroup_keeps_are_named_with_what_that_means() -> None:
    findings = list(diagnosis._limits(PodmanConfig(), Host(False, frozenset({"pids"}))))
    assert one(findings, "pids limit").state == "good"
    assert one(findings, "memory limit").state == "limited"
    assert "every processor" in one(findings, "cpu limit").detail
    assert one(findings, "workspace size").state == "limited"


def test_limits_of_the_user_below_what_is_wanted_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    findings = list(diagnosis._limits(PodmanConfig(), Host(True, frozenset())))
    assert "4,096 wanted" in one(findings, "open files").detail
    assert "256 wanted" in one(findings, "processes").detail


class Store:
    """Has one image, of an older recipe."""

    def __init__(self, environment: Environment) -> None:
        self.broken = environment is NO_PROGRAMS

    def find(self, reference: str) -> SandboxImage | None:
        if self.broken:
            raise SandboxUnavailableError("the store is locked")
        is_there = reference == recipe("python").reference
        return SandboxImage(reference, "1", 1, "older") if is_there else None


def test_images_that_are_missing_or_old_are_named_with_the_command_that_builds_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(diagnosis, "ImageStore", Store)
    findings = list(diagnosis._images(Environment()))
    assert one(findings, "image python").state == "limited"
    assert one(findings, "image minimal").fix == "Run `wink-workspace image build minimal`."
    broken = list(diagnosis._images(NO_PROGRAMS))
    assert {finding.detail for finding in broken} == {"the store is locked"}
    assert all("podman image ls" in finding.fix for finding in broken)


def test_what_builds_images_here_is_named_when_it_is_missing() -> None:
    (found,) = diagnosis._building(NO_PROGRAMS)
    assert "mmdebstrap and busybox" in found.detail


@pytest.mark.parametrize(
    "error",
    [
        IsolationError("the sandbox does not hold"),
        SandboxUnavailableError("the container does not start"),
        SandboxBrokenError("the inside of the sandbox ended"),
    ],
)
def test_walls_that_are_not_up_are_told_with_what_to_do_other_than_look_again(
    error: SandboxError,
) -> None:
    def prove() -> int:
        raise error

    found = diagnosis._probes(prove, "localhost/image:1")
    assert (found.state, found.detail) == ("missing", error.message)
    assert "podman run --rm --network=none localhost/image:1 true" in found.fix
    assert "doctor" not in found.fix


def test_walls_that_lack_an_image_are_told_with_how_to_get_it() -> None:
    def prove() -> int:
        raise SandboxUnavailableError("there is no image", hint="Build it.")

    assert diagnosis._probes(prove, "localhost/image:1").fix == "Build it."


def test_an_engine_that_fails_to_start_is_told_with_who_knows_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # An engine that listens where one usually does would be used instead.
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

    found = one(diagnosis._engine(Service()), "podman")  # type: ignore[arg-type]  # a stand-in
    assert (found.state, found.detail) == ("missing", "3.4.4")
