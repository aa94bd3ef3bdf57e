"""Hints that name the command which installs a missing program."""

from __future__ import annotations

import os

import pytest

from wink_workspace.system_packages import install_hint


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ({"ID": "debian"}, "apt-get install uidmap libseccomp2 podman"),
        ({"ID": "ubuntu", "ID_LIKE": "debian"}, "apt-get install uidmap libseccomp2 podman"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "apt-get install uidmap libseccomp2"),
        ({"ID": "fedora"}, "dnf install shadow-utils libseccomp podman"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install shadow-utils libseccomp"),
        ({"ID": "arch"}, "pacman -S shadow libseccomp podman"),
    ],
)
def test_a_hint_has_the_command_and_the_package_names_of_the_system(
    release: dict[str, str], command: str
) -> None:
    hint = install_hint("newuidmap", "libseccomp", "podman", release=release)
    assert command in hint
    assert ("sudo" in hint) == (os.geteuid() != 0)


@pytest.mark.parametrize("release", [{}, {"ID": "nixos"}])
def test_a_hint_for_another_system_names_the_programs(release: dict[str, str]) -> None:
    hint = install_hint("podman", "npm", release=release)
    assert hint == "Install podman and npm with the package manager of your system."


def test_a_hint_is_for_this_system_by_default() -> None:
    assert "podman" in install_hint("podman")
