"""What an evaluation is asked, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.sandbox.isolation import IsolationReport
from wink_workspace.serde import JsonValue

_SHOWN_CHARS: Final = 160

__all__ = [
    "CodeError",
    "Evaluation",
    "EvaluationRequest",
    "EvaluationUsage",
    "Outcome",
    "ShownValue",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """Code to evaluate.

    Attributes:
        code: Python; the value is that of its last statement, if that is an expression.
        names: Names that the code finds, with values that JSON can hold.
        reads: Files that it may read; a directory stands for all that lies below it.
        writes: Files that it may make, or replace: exactly these. One that is among *reads*, too,
            must have been read by this code before it replaces what is there.
        interpreter: ``asteval``; or ``python``, Python itself, which is how the wall is tested.
            The same wall is around both.
    """

    code: str
    names: Mapping[str, JsonValue] = field(default_factory=lambda: MappingProxyType({}))
    reads: tuple[WorkspacePath, ...] = ()
    writes: tuple[WorkspacePath, ...] = ()
    interpreter: Literal["asteval", "python"] = "asteval"


class Outcome(StrEnum):
    """How an evaluation ended."""

    VALUE = "value"
    """It came to its end."""

    ERROR = "error"
    """The code is no Python, or raised."""

    DEADLINE = "deadline"
    """It was killed when its time, or its time on a processor, was over."""

    MEMORY = "memory"
    """It wanted more memory than it may take."""

    OUTPUT = "output"
    """It was killed because it printed more than it may."""

    CANCELLED = "cancelled"
    """It was killed because nobody wanted it any more."""

    KILLED = "killed"
    """It died otherwise, such as of a signal."""


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value: its ``repr``, how many characters of it are missing at least, and JSON.

    ``json`` holds it as far as JSON can, lists for tuples; ``is_json`` tells whether it does.
    """

    text: str
    n_missing: int = 0
    json: JsonValue = None
    is_json: bool = False

    def __str__(self) -> str:
        return f"{self.text}… ({self.n_missing:,} more)" if self.n_missing else self.text


@dataclass(frozen=True, slots=True)
class CodeError:
    """What the code raised, and where: line and column from 1, 0 where that is not known."""

    type: str
    message: str
    line: int = 0
    column: int = 0
    text: str = ""

    def __str__(self) -> str:
        """The line, a caret below the column, and the error."""
        what = f"{self.type}: {self.message}" if self.message else self.type
        if not self.line:
            return what
        cut = max(0, self.column - 1 - _SHOWN_CHARS // 2) if len(self.text) > _SHOWN_CHARS else 0
        text, column = self.text[cut : cut + _SHOWN_CHARS], self.column - cut
        # Tabs stay, so that the caret stands below what it means
        before = "".join("\t" if char == "\t" else " " for char in text[: column - 1])
        caret = f"\n    {before}^" if 0 < column <= len(text) + 1 else ""
        return f"line {self.line}:\n    {text}{caret}\n{what}"


@dataclass(frozen=True, slots=True)
class EvaluationUsage:
    """What an evaluation took; 0 where the system did not tell."""

    duration_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """How an evaluation ended, and all that it left.

    Attributes:
        outcome: Only with ``VALUE`` is there a value, and only then are effects meant to stay.
        detail: In words why it did not come to its end; empty if it did, or if it raised.
        value: Of the last expression; ``None`` if there is none, or it is ``None``.
        error: What the code raised.
        stdout: What was printed, also by code that was killed.
        stderr: The same for errors.
        names: The code's global names that hold values, at its end.
        reads: Files that it read, in the order in which it did so first.
        writes: Files that it wrote, likewise.
        usage: Time and memory.
        isolation: The layers that were up around this very evaluation, and what the server's start
            proved of them.
    """

    outcome: Outcome
    detail: str = ""
    value: ShownValue | None = None
    error: CodeError | None = None
    stdout: str = ""
    stderr: str = ""
    names: Mapping[str, ShownValue] = field(default_factory=lambda: MappingProxyType({}))
    reads: tuple[WorkspacePath, ...] = ()
    writes: tuple[WorkspacePath, ...] = ()
    usage: EvaluationUsage = field(default_factory=EvaluationUsage)
    isolation: IsolationReport = field(default_factory=IsolationReport)
