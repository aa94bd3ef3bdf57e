"""A sandbox backend for tests: commands are small Python functions that run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from wink_workspace.clock import SYSTEM_CLOCK, Clock
from wink_workspace.environment import Environment
from wink_workspace.sandbox import (
    SANDBOXES,
    CapturedOutput,
    ExecRequest,
    ExecResult,
    Finding,
    IsolationReport,
    OutputObserver,
    Sandbox,
    SandboxBackend,
    SandboxConfig,
    SandboxContext,
)
from wink_workspace.sections import SandboxSection, command_tools


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeConfig(SandboxConfig):
    """``greeting`` is the start of all output."""

    backend: ClassVar[str] = "fake"

    greeting: str = "fake"

    def __reduce__(self) -> tuple[Callable[[str], FakeConfig], tuple[str]]:
        """In another process, which gets this by pickle, the backend is registered, too."""
        return config_of_registered, (self.greeting,)


@dataclass
class FakeSandbox(Sandbox):
    """Runs ``put NAME TEXT``, ``cat NAME``, ``find NAME TEXT`` and ``stall NAME``; others fail.

    ``find`` ends with 125 if there is no such file, and with 1 if it does not contain the text.
    ``stall`` writes a file and reaches its time limit.
    """

    place: SandboxContext
    config: FakeConfig
    is_closed: bool = False

    @property
    def report(self) -> IsolationReport:
        return IsolationReport()

    @property
    def shell(self) -> tuple[str, ...]:
        return ("run",)

    def run(self, request: ExecRequest, *, observer: OutputObserver | None = None) -> ExecResult:
        words = " ".join(request.argv).removeprefix("run ").split(" ", 2)
        content, code = b"", 0
        match words:
            case ["put", name, text]:
                (self.place.files / name).write_text(text)
            case ["cat", name]:
                content = (self.place.files / name).read_bytes()
            case ["find", name, text]:
                file = self.place.files / name
                code = (0 if text in file.read_text() else 1) if file.exists() else 125
            case ["stall", name]:
                (self.place.files / name).write_text("half")
                code = None
            case _:
                code = 1
        output = self.config.greeting.encode() + b": " + content + request.stdin
        if observer is not None:
            observer("stdout", output)
        captured = CapturedOutput(output, n_bytes=len(output))
        return ExecResult(
            exit_code=code,
            signal=None,
            stdout=captured,
            stderr=CapturedOutput(),
            duration_s=0,
            timed_out=code is None,
        )

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeBackend:
    """Creates the backend and records what it did."""

    created: list[FakeSandbox] = field(default_factory=list)
    cleaned: list[Path] = field(default_factory=list)

    def create(
        self,
        context: SandboxContext,
        *,
        config: FakeConfig,
        environment: Environment | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Sandbox:
        self.created.append(FakeSandbox(context, config))
        return self.created[-1]

    def end_leftover(self, notes: Path) -> str:
        self.cleaned.append(notes)
        return "last output"

    @property
    def backend(self) -> SandboxBackend[FakeConfig]:
        return SandboxBackend(
            name="fake",
            config=FakeConfig,
            section=lambda config: SandboxSection(
                config, "`shell_execute` knows put and cat.", tools=command_tools(with_python=False)
            ),
            create=self.create,
            examine=lambda _: (Finding("fake", "engine", "good", "it is in memory"),),
            sweep=lambda _: ("fake-container",),
            end_leftover=self.end_leftover,
        )


@contextmanager
def registered(make: Callable[[], FakeBackend] = FakeBackend) -> Iterator[FakeBackend]:
    """Register the backend for the block."""
    machine = make()
    unregister = SANDBOXES.register(machine.backend)
    try:
        yield machine
    finally:
        unregister()


def config_of_registered(greeting: str) -> FakeConfig:
    if "fake" not in SANDBOXES.names():
        SANDBOXES.register(FakeBackend().backend)
    return FakeConfig(greeting=greeting)
