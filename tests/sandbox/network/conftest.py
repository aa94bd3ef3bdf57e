"""Fixtures of the network tests: a proxy on loopback, and servers that it may or may not reach."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pytest
from proxy_machine import ProxyMachine


@pytest.fixture(scope="session")
def machine() -> Generator[ProxyMachine]:
    with closing(ProxyMachine()) as machine:
        yield machine


@pytest.fixture
def proxy(machine: ProxyMachine) -> ProxyMachine:
    """The shared proxy, with nothing recorded yet."""
    machine.reset()
    return machine
