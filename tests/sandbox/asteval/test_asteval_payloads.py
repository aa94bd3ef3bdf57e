"""Escape attempts have no effect: in asteval, and in plain Python in the same sandbox.

Only the isolation protects the files, sockets and process that are attacked: an ordinary user may
read, write and reach them. ``test_an_attempt_has_its_effect_without_isolation`` proves that for
each attempt with an effect.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from asteval_payloads import LOADED, OWN, PAYLOADS, PUBLIC, Payload
from asteval_support import children_of, evaluate, opened, server_pid

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.sandbox.asteval import AstevalSandbox, Evaluation

SECRET = "SECRET" + "-content"  # in two parts: the server must not have it in its memory


@dataclass(frozen=True, slots=True)
class Host:
    """The targets of the attacks."""

    secret: Path
    target: Path
    listeners: tuple[socket.socket, ...]
    unix: str

    @property
    def names(self) -> dict[str, object]:
        return {
            "secret": str(self.secret),
            "target": str(self.target),
            "port": self.listeners[0].getsockname()[1],
            "unix": self.unix,
        }

    def effects(self, output: str) -> set[str]:
        """Return the effects since the last call, and revert them."""
        found = {"read"} if SECRET in output else set()
        if os.path.lexists(self.target):
            found.add("write")
            shutil.rmtree(self.target) if self.target.is_dir() else self.target.unlink()
        for listener in self.listeners:
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                continue
            found.add("connect")
        return found


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="wink-host-")))
        folder.chmod(0o777)
        secret = folder / "secret.txt"
        secret.write_text(SECRET)
        secret.chmod(0o644)
        listeners = (socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX))
        for listener in listeners:
            opened.enter_context(listener)
            listener.setblocking(False)
        unix = str(folder / "socket")
        listeners[1].bind(unix)
        listeners[1].listen()
        Path(unix).chmod(0o777)
        yield Host(secret, folder / "target", listeners, unix)


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[dict[str, AstevalSandbox]]:
    with opened("asteval", timeout_s=3.0) as first, opened("python", timeout_s=3.0) as second:
        yield {"asteval": first, "python": second}


def all_output(evaluation: Evaluation) -> str:
    return repr((evaluation.stdout, evaluation.stderr, evaluation.value, evaluation.error,
                 {**evaluation.names}))  # fmt: skip


def test_the_number_of_attempts_does_not_shrink() -> None:
    assert len(PUBLIC) >= 15
    assert len(OWN) >= 40
    assert len(LOADED) >= 22
    assert len({payload.name for payload in PAYLOADS}) == len(PAYLOADS)


@pytest.mark.behaviour(61)
@pytest.mark.share(100)
@pytest.mark.parametrize("interpreter", ["asteval", "python"])
@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: payload.name)
def test_an_attempt_has_no_effect_and_the_next_evaluation_works(
    payload: Payload, interpreter: str, host: Host, sandboxes: dict[str, AstevalSandbox]
) -> None:
    sandbox = sandboxes[interpreter]
    server = server_pid(sandbox)
    files = MemoryFilesystem({"a.txt": "inside"})
    code = getattr(payload, interpreter)
    evaluation = evaluate(sandbox, code, files, parent=server, **host.names)
    assert host.effects(all_output(evaluation)) == set()
    assert evaluation.error is None or evaluation.error.type != "AssertionError", evaluation.error
    assert server_pid(sandbox) == server, "the server lives"
    assert len(children_of(server)) == 1, "only the spare child is left"
    assert files.read_text("a.txt").text == "inside"
    assert len(files.list()) == 1
    assert evaluate(sandbox, "6 * 7").value.json == 42


@pytest.mark.share(10)
@pytest.mark.parametrize(
    "payload", [each for each in PAYLOADS if each.effect], ids=lambda payload: payload.name
)
def test_an_attempt_has_its_effect_without_isolation(payload: Payload, host: Host) -> None:
    given = "".join(f"{name} = {value!r}\n" for name, value in host.names.items())
    done = subprocess.run(
        [sys.executable, "-c", f"{given}{payload.python}"], capture_output=True, text=True,
        timeout=60, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert payload.effect in host.effects(done.stdout), done.stderr


@pytest.mark.behaviour(61)
def test_code_sees_no_environment_modules_or_names_of_the_host(
    sandboxes: dict[str, AstevalSandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox = sandboxes["python"]
    monkeypatch.setenv("WINK_TEST_TOKEN", SECRET)
    code = """
import gc, os, sys
left_behind = "left-behind"
sys.modules["textwrap"].dedent = None
os.environ["X"] = "1"
print(dict(os.environ), [m for m in sys.modules if m.startswith(("pytest", "_pytest"))])
print([x for x in gc.get_objects() if type(x) is dict and "WINK_TEST_TOKEN" in x])
"""
    evaluation = evaluate(sandbox, code)
    assert evaluation.stdout == "{'X': '1'} []\n[]\n"
    fresh = evaluate(
        sandbox,
        "import os, textwrap\nprint(textwrap.dedent(' a'), dict(os.environ), 'left_behind' in dir())",
    )
    assert fresh.stdout == "a {} False\n"
    assert os.environ["WINK_TEST_TOKEN"] == SECRET
