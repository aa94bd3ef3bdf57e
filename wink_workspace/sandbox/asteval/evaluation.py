"""The request and the result of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from wink_workspace.filesystem import WorkspacePath
from wink_workspace.sandbox.isolation_report import IsolationReport
from wink_workspace.serde import JsonValue

_SHOWN_CHARS: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """Code to evaluate.

    Attributes:
        code: Python. The value is that of the last statement, if that is an expression.
        names: Global names of the code, with values that JSON can represent.
        reads: Files that the code may read; a directory includes everything below it.
        writes: Files that it may create or replace, without directories. The code must read an
            existing file that is also in *reads* before it replaces it.
    """

    code: str
    names: Mapping[str, JsonValue] = field(default_factory=lambda: MappingProxyType({}))
    reads: tuple[WorkspacePath, ...] = ()
    writes: tuple[WorkspacePath, ...] = ()


class EndReason(StrEnum):
    """How an evaluation ended."""

    VALUE = "value"
    """It finished."""

    ERROR = "error"
    """The code is not valid Python, or it raised an exception."""

    DEADLINE = "deadline"
    """It was killed at its time limit, or at the limit of its processor time."""

    MEMORY = "memory"
    """It reached its memory limit."""

    OUTPUT = "output"
    """It was killed because it printed more than its limit."""

    CANCELLED = "cancelled"
    """It was killed because the caller cancelled it."""

    KILLED = "killed"
    """It died for another reason, such as a signal."""


@dataclass(frozen=True, slots=True)
class ShownValue:
    """A value: its ``repr``, the least number of characters missing from it, and its JSON form.

    ``json`` is valid if ``is_json`` is true. Tuples are lists in it.
    """

    text: str
    n_missing: int = 0
    json: JsonValue = None
    is_json: bool = False

    def __str__(self) -> str:
        return f"{self.text}… ({self.n_missing:,} more)" if self.n_missing else self.text


@dataclass(frozen=True, slots=True)
class CodeError:
    """The exception that the code raised, and where: line and column from 1, or 0 if unknown."""

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
        # Keep tabs, so that the caret is below its column
        before = "".join("\t" if char == "\t" else " " for char in text[: column - 1])
        caret = f"\n    {before}^" if 0 < column <= len(text) + 1 else ""
        return f"line {self.line}:\n    {text}{caret}\n{what}"


@dataclass(frozen=True, slots=True)
class EvaluationUsage:
    """The time and memory of an evaluation; 0 if the system did not report it."""

    duration_s: float = 0.0
    cpu_s: float = 0.0
    max_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        outcome: How it ended. Unless it is ``VALUE`` there is no value, and the caller should
            roll the writes back.
        detail: Why it was ended; empty if it finished or raised an exception.
        value: The value of the last expression; ``None`` if there is none, or if it is ``None``.
        error: The exception that the code raised.
        stdout: Its standard output, also if it was killed.
        stderr: Its standard error, also if it was killed.
        names: The global names that hold values at the end.
        reads: Files that it read, in the order of the first read.
        writes: Files that it wrote, in the order of the first write.
        usage: Time and memory.
        isolation: The layers that were active in this evaluation, and the probes that were made
            when the server started.
    """

    outcome: EndReason
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
