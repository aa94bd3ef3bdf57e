"""A server that sandboxes must not reach, published on the loopback by testcontainers."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from wink_workspace.environment import Environment

SECRET = "the server's answer"
LONGEST_RUN_S = 3_600


@dataclass(frozen=True)
class PublishedServer:
    """The port of the server, which listens on the host's loopback only."""

    VARIABLE: ClassVar = "WINK_TESTS_SERVER"

    port: int

    @classmethod
    def parse(cls, text: str) -> PublishedServer:
        return cls(int(text))

    @property
    def text(self) -> str:
        return str(self.port)

    def answer(self) -> str:
        """Return its answer to a client that can reach it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=10) as response:
            return response.read().decode()


@contextmanager
def published_server_in(
    image: str, environment: Environment, folder: Path
) -> Generator[PublishedServer]:
    """Serve from a container of *image* until the block ends; if we are killed, for an hour."""
    with (
        _engine(environment, folder / "engine.sock") as engine,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("DOCKER_HOST", f"unix://{engine}")
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        patch.setenv("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.wait_strategies import LogMessageWaitStrategy

        port = _free_port()
        serve = (
            f'echo "{SECRET}" > /tmp/index.html && '
            f"exec timeout {LONGEST_RUN_S} python3 -u -m http.server 8080 --directory /tmp"
        )
        container = (
            DockerContainer(image)
            .with_kwargs(network_mode="slirp4netns", auto_remove=True)
            .with_command(["sh", "-c", serve])
            .waiting_for(LogMessageWaitStrategy("Serving HTTP"))
        )
        container.ports = {"8080/tcp": ("127.0.0.1", port)}
        with container:
            yield PublishedServer(port)


@contextmanager
def _engine(environment: Environment, path: Path) -> Generator[Path]:
    """Run a service until the block ends, without an idle timeout."""
    command = ["podman", "system", "service", "--time=0", f"unix://{path}"]
    with subprocess.Popen(command, env=dict(environment.variables)) as process:
        try:
            while not path.exists():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
                assert process.poll() is None, "the engine's service did not start"
            yield path
        finally:
            process.terminate()


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])
