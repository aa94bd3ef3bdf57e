"""What a command that ran in a sandbox looks like to a model."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from wink_workspace.sandbox import CapturedOutput, ExecResult

__all__ = ["CommandOutput", "CommandStream", "stopped_summary"]

_STOPPED: Final = "Everything it started was ended, and what it changed was undone."


@dataclass(frozen=True, slots=True)
class CommandStream:
    """What a command wrote to one stream, as text; bytes that are no UTF-8 are escaped.

    If it was too much, ``n_missing`` bytes between ``text`` and ``tail`` are left out, and the
    file ``whole`` holds the first ``n_whole`` bytes of all.
    """

    text: str = ""
    tail: str = ""
    n_missing: int = 0
    whole: str | None = None
    n_whole: int = 0

    @classmethod
    def of(cls, output: CapturedOutput) -> CommandStream:
        """What is kept of a stream, as text."""
        if not output.n_missing:
            return cls(_text(output.head + output.tail))
        return cls(
            _text(output.head), _text(output.tail), output.n_missing, output.whole, output.n_whole
        )

    def __bool__(self) -> bool:
        return bool(self.text or self.tail or self.n_missing)

    def render(self) -> str:
        """The text, with a line in the place of what is missing."""
        if not self.n_missing:
            return self.text
        where = ""
        if self.whole is not None:
            where = f"; the first {self.n_whole:,} bytes of all are in {self.whole}"
        return f"{self.text}\n[… {self.n_missing:,} bytes left out{where} …]\n{self.tail}"


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """How a command ended and what it wrote.

    One of ``exit_code`` and ``signal`` is set.
    """

    exit_code: int | None = 0
    signal: int | None = None
    stdout: CommandStream = CommandStream()
    stderr: CommandStream = CommandStream()

    @classmethod
    def of(cls, result: ExecResult) -> CommandOutput:
        """What *result* says."""
        return cls(
            result.exit_code,
            result.signal,
            CommandStream.of(result.stdout),
            CommandStream.of(result.stderr),
        )

    @property
    def succeeded(self) -> bool:
        """Whether it ended as commands do that found nothing wrong."""
        return self.exit_code == 0

    def summary(self) -> str:
        """How it ended, in a few words."""
        if self.signal is None:
            return f"Exit code {self.exit_code}"
        name = ""
        with suppress(ValueError):
            name = f" ({signal.Signals(self.signal).name})"
        return f"Ended by signal {self.signal}{name}"

    def render(self) -> str:
        """What it wrote; its errors apart, if there are both."""
        if not self.stderr:
            return self.stdout.render() or "(no output)"
        errors = f"stderr:\n{self.stderr.render()}"
        return f"stdout:\n{self.stdout.render()}\n{errors}" if self.stdout else errors


def stopped_summary(result: ExecResult, timeout_s: float) -> str | None:
    """Why the sandbox ended a command, and what that means; ``None`` if it did not."""
    if result.timed_out:
        return f"Timed out after {timeout_s:g} s. {_STOPPED}"
    if result.stopped is not None:
        return f"Stopped: {result.stopped}. {_STOPPED}"
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
