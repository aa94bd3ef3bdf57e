"""The result of a sandboxed command, in the form that a model reads."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from wink_workspace.sandbox import CapturedOutput, ExecResult, NetworkRequest
from wink_workspace.sandbox.network import outside_effects

_MOST_PROBLEMS: Final = 5
_STOPPED: Final = "All its processes were killed, and its changes were undone."


@dataclass(frozen=True, slots=True)
class CommandStream:
    """The output of a command on one stream, as text; bytes that are not UTF-8 are escaped.

    If it was cut, ``n_missing`` bytes between ``text`` and ``tail`` are left out, and the file
    ``whole`` has the first ``n_whole`` bytes of the stream.
    """

    text: str = ""
    tail: str = ""
    n_missing: int = 0
    whole: str | None = None
    n_whole: int = 0

    @classmethod
    def of(cls, output: CapturedOutput) -> CommandStream:
        """The captured output as text."""
        if not output.n_missing:
            return cls(_text(output.head + output.tail))
        return cls(
            _text(output.head), _text(output.tail), output.n_missing, output.whole, output.n_whole
        )

    def __bool__(self) -> bool:
        return bool(self.text or self.tail or self.n_missing)

    def render(self) -> str:
        """The text, with a line in place of the missing part."""
        if not self.n_missing:
            return self.text
        where = ""
        if self.whole is not None:
            where = f"; the first {self.n_whole:,} bytes of the output are in {self.whole}"
        return f"{self.text}\n[… {self.n_missing:,} bytes left out{where} …]\n{self.tail}"


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """How a command ended, and its output.

    One of ``exit_code`` and ``signal`` is set, or ``service`` if it goes on as a service of that
    name. ``network`` are its requests, also refused ones; ``network_list`` is what it could reach.
    """

    exit_code: int | None = 0
    signal: int | None = None
    stdout: CommandStream = CommandStream()
    stderr: CommandStream = CommandStream()
    service: str | None = None
    network: tuple[NetworkRequest, ...] = ()
    network_list: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: ExecResult) -> CommandOutput:
        """The output of *result*."""
        return cls(
            result.exit_code,
            result.signal,
            CommandStream.of(result.stdout),
            CommandStream.of(result.stderr),
            network=result.network,
            network_list=result.network_list,
        )

    @property
    def outside_effects(self) -> tuple[str, ...]:
        """What no rollback takes back: one line for each host to which it sent something."""
        return outside_effects(self.network)

    @property
    def succeeded(self) -> bool:
        """Whether its exit code is 0."""
        return self.exit_code == 0

    def summary(self) -> str:
        """How it ended, in a few words."""
        if self.service is not None:
            return f"Runs as the service {self.service}"
        if self.signal is None:
            return f"Exit code {self.exit_code}"
        name = ""
        with suppress(ValueError):
            name = f" ({signal.Signals(self.signal).name})"
        return f"Ended by signal {self.signal}{name}"

    def render(self) -> str:
        """Its output, with headings if it has standard error; then what the network refused."""
        if self.service is not None:
            return f"It runs in the background, as the service {self.service}."
        text = self.stdout.render() or "(no output)"
        if self.stderr:
            errors = f"stderr:\n{self.stderr.render()}"
            text = f"stdout:\n{self.stdout.render()}\n{errors}" if self.stdout else errors
        if not self.succeeded and _NO_SPACE in text:
            text += f"\n{_ABOUT_SPACE}"
        problems = list(dict.fromkeys(each.problem for each in self.network if each.problem))
        if not problems:
            return text
        shown = problems[:_MOST_PROBLEMS]
        if len(problems) > len(shown):
            shown.append(f"{len(problems) - len(shown):,} more")
        return "\n".join((text, "network:", *(f"- {each}" for each in shown)))


_NO_SPACE: Final = "No space left on device"
_ABOUT_SPACE: Final = """\
The directories /tmp and /dev/shm are small, and emptied after each command. Write to the \
workspace, or ask the user for more (limits.tmp and limits.shm in wink-workspace.toml)."""


def stopped_summary(result: ExecResult, timeout_s: float) -> str | None:
    """Why the sandbox ended a command, and the consequence; ``None`` if it did not."""
    if result.timed_out:
        return f"Timed out after {timeout_s:g} s. {_STOPPED}"
    if result.stopped is not None:
        return f"Stopped: {result.stopped}. {_STOPPED}"
    return None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
