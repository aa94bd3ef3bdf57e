"""The tests and the programs that they start reach no other machine."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from loopback import package_registries

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")

INTERFACES = "import socket; print([name for _, name in socket.if_nameindex()])"


def interfaces() -> str:
    command = [sys.executable, "-c", INTERFACES]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_programs_see_the_loopback_interface_only() -> None:
    assert interfaces() == "['lo']"
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(interfaces).result() == "['lo']"


def test_package_clients_see_the_network_of_the_machine() -> None:
    own = Path("/proc/thread-self/ns/net").readlink()
    with package_registries():
        assert Path("/proc/thread-self/ns/net").readlink() != own
    assert Path("/proc/thread-self/ns/net").readlink() == own
    assert interfaces() == "['lo']"
