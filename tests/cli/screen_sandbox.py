"""A sandbox for screens: commands print fixed output, and one waits for a file to appear."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wink_workspace.sandbox import (
    SANDBOXES,
    CapturedOutput,
    ExecRequest,
    ExecResult,
    IsolationReport,
    OutputObserver,
    Sandbox,
    SandboxBackend,
    SandboxConfig,
    SandboxContext,
)
from wink_workspace.sections import SandboxSection, command_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenConfig(SandboxConfig):
    backend: ClassVar[str] = "screen"

    def __reduce__(self) -> tuple[Callable[[], ScreenConfig], tuple[()]]:
        """In another process, which gets this by pickle, the backend is registered, too."""
        return config_of_registered, ()


class ScreenSandbox(Sandbox):
    """``tests`` fails with 20 lines; ``wait`` prints, and ends when the test allows it.

    ``check`` succeeds if the program says hello.
    """

    def __init__(self, context: SandboxContext, **_: object) -> None:
        self._context = context

    @property
    def report(self) -> IsolationReport:
        return IsolationReport()

    @property
    def shell(self) -> tuple[str, ...]:
        return ("run",)

    def run(self, request: ExecRequest, *, observer: OutputObserver | None = None) -> ExecResult:
        name = request.argv[-1].partition(" ")[0]
        text = (self._context.files / "src/app.py").read_text()
        lines = [f"test {n} passed" for n in range(19)] + ["\x1b[31m1 failed\x1b[0m"]
        output = "".join(f"{line}\n" for line in lines).encode()
        if observer is not None:
            observer("stdout", output)
        while name == "wait" and not Path(os.environ["SCREEN_GO_ON"]).exists():
            time.sleep(0.01)  # for the test, which has seen the output
        captured = CapturedOutput(output, n_bytes=len(output))
        return ExecResult(
            exit_code=int(name == "tests" or (name == "check" and "hello" not in text)),
            signal=None,
            stdout=captured,
            stderr=CapturedOutput(),
            duration_s=0,
        )

    def close(self) -> None:
        pass


def config_of_registered() -> ScreenConfig:
    if "screen" not in SANDBOXES.names():
        SANDBOXES.register(BACKEND)
    return ScreenConfig()


BACKEND = SandboxBackend(
    name="screen",
    config=ScreenConfig,
    section=lambda config: SandboxSection(
        config, "Commands.", tools=command_tools(with_python=False)
    ),
    create=ScreenSandbox,
)


@contextmanager
def registered() -> Generator[None]:
    unregister = SANDBOXES.register(BACKEND)
    try:
        yield
    finally:
        unregister()
