"""Runs without a model: turns are read from a script, or recorded to one.

A script is JSON Lines, one turn per line; blank lines are allowed::

    {"text": "Looking.", "tool_calls": [{"name": "ls", "arguments": {"path": "."}}]}
    {"text": "Done."}

``tool_calls``, ``usage`` and the ``id`` of a call are optional. A nested evaluation takes its
turns from the same script, in the order of execution.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from typing_extensions import TypeVar

from wink_workspace import serde
from wink_workspace.clock import TokenUsage
from wink_workspace.counts import counted
from wink_workspace.errors import ParseError, PromptEvaluationError, ScriptError, UsageError
from wink_workspace.runtime import ToolCall

from .core import ProviderAdapter
from .messages import ModelRequest, ModelTurn, UserMessage

OutputT = TypeVar("OutputT", default=Any)


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict[str, Any])
    id: str | None = None


@dataclass(frozen=True, slots=True)
class _Turn:
    text: str = ""
    tool_calls: tuple[_Call, ...] = ()
    usage: TokenUsage = field(default_factory=TokenUsage)


def load_script(path: str | os.PathLike[str]) -> tuple[ModelTurn, ...]:
    """Return the turns of the script file *path*, which has one JSON object on each line.

    Raises:
        ScriptError: If it cannot be read, or a line is not a turn; names the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")  # not at U+2028 in a text
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ScriptError(
            f"cannot read the script {os.fspath(path)!r}: {why}",
            hint="Name a readable UTF-8 file of JSON lines.",
        ) from error
    turns: list[ModelTurn] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                turn = serde.parse_json(_Turn, line, what=f"{os.fspath(path)} line {number}")
            except ParseError as error:
                raise ScriptError(
                    error.message, hint="Write one turn per line, as a JSON object."
                ) from error
            turns.append(_model_turn(turn, len(turns) + 1))
    return tuple(turns)


def _model_turn(turn: _Turn, number: int) -> ModelTurn:
    calls = [ToolCall.of(call.name, call.arguments, id=call.id or "") for call in turn.tool_calls]
    return ModelTurn(turn.text, tuple(calls), turn.usage).with_call_ids(number)


class ScriptedAdapter(ProviderAdapter[OutputT]):
    """Answers with the turns of a script, in order.

    Args:
        turns: The turns, from ``load_script`` or made by hand.
        options: As for ``ProviderAdapter``.

    Raises:
        UsageError: If one of them is not a ``ModelTurn``.
    """

    provider_name = model_name = "scripted"

    def __init__(self, turns: Iterable[ModelTurn], **options: Any) -> None:
        super().__init__(**options)
        self._turns = tuple(turns)
        self._n_played = 0
        for turn in cast("tuple[object, ...]", self._turns):  # callers may build them by hand
            if not isinstance(turn, ModelTurn):
                form = "tool_calls=(call,)" if isinstance(turn, ToolCall) else "text"
                raise UsageError(
                    f"{turn!r:.80} is not a ModelTurn", hint=f"Write it as ModelTurn({form})."
                )

    @property
    def n_left(self) -> int:
        """The number of turns not played yet."""
        return len(self._turns) - self._n_played

    def complete(self, request: ModelRequest) -> ModelTurn:
        """Return the next turn; a script has no summaries, so there is a fixed text for one.

        Raises:
            PromptEvaluationError: If no turn is left, with phase ``"request"``.
        """
        if request.n_summarised:
            return ModelTurn("(A script has no summary of its turns.)")
        if not self.n_left:
            raise PromptEvaluationError(
                f"the script ended after {counted(self._n_played, 'turn')}, but the run did not",
                phase="request",
                hint=self._hint_for(request),
            )
        turn = self._turns[self._n_played]
        self._n_played += 1
        return turn

    def _hint_for(self, request: ModelRequest) -> str:
        """Return a hint what to add to the script, which has no turn for *request*."""
        match request.messages[-1:]:
            case () if self._turns:
                return "Add the turns of this run to the script, or give it an adapter of its own."
            case (UserMessage(text),):
                return f"Its last answer was sent back: {text}"
            case _:
                return "End the script with a turn that calls no tool."


class ScriptRecorder(ProviderAdapter[OutputT]):
    """Wraps an adapter and appends each of its turns to a script.

    The file is created, or truncated, immediately. A turn is written before its calls run. The
    adapter's redaction applies to the script, so a replay uses the redacted arguments.

    Args:
        adapter: The adapter that supplies the turns.
        path: The script.
        append: Append to an existing script instead of truncating it.
        on_native: Called before each turn is written, with its number from 1 and its native
            form as JSON; ``None`` if it has none, or if redaction would change it.
        on_summary: Called with each summary, which is not a turn of the script, and the number of
            turns that it replaces.
    """

    def __init__(
        self,
        adapter: ProviderAdapter[OutputT],
        path: str | os.PathLike[str],
        *,
        append: bool = False,
        on_native: Callable[[int, str | None], None] | None = None,
        on_summary: Callable[[int, ModelTurn], None] | None = None,
    ) -> None:
        super().__init__(
            limits=adapter.limits,
            heartbeat=adapter.heartbeat,
            redact=adapter.redact,
            traces_content=adapter.traces_content,
        )
        self.provider_name, self.model_name = adapter.provider_name, adapter.model_name
        self._adapter = adapter
        self._path = Path(path)
        self._on_native = on_native
        self._on_summary = on_summary
        with self._path.open("a+" if append else "w+", encoding="utf-8") as file:
            file.seek(0)
            self._n_turns = sum(1 for line in file if line.strip())

    def complete(self, request: ModelRequest) -> ModelTurn:
        """Record and return the next turn of the wrapped adapter."""
        turn = self._adapter.complete(request)
        if request.n_summarised:
            if self._on_summary is not None:
                text = turn.text if self.redact is None else self.redact(turn.text)
                self._on_summary(request.n_summarised, replace(turn, text=text))
            return turn
        turn = turn.with_call_ids(self._n_turns + 1)
        self._n_turns += 1
        if self._on_native is not None:
            self._on_native(self._n_turns, self._native_without_secrets(turn))
        rest = f"{_line(turn, self.redact)}\n".encode()
        with self._path.open("ab", buffering=0) as file:
            n_bytes = file.tell()
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(n_bytes)  # half a turn could not be read
                raise
        return turn

    def context_tokens(self) -> int | None:
        """Delegate to the wrapped adapter."""
        return self._adapter.context_tokens()

    def dump_native(self, native: object) -> str | None:
        """Delegate to the wrapped adapter."""
        return self._adapter.dump_native(native)

    def load_native(self, text: str) -> object:
        """Delegate to the wrapped adapter."""
        return self._adapter.load_native(text)

    def _native_without_secrets(self, turn: ModelTurn) -> str | None:
        native = self._adapter.dump_native(turn.native)
        if native is None or self.redact is None:
            return native
        content = json.loads(native)
        return native if serde.map_strings(content, self.redact) == content else None


def _line(turn: ModelTurn, redact: Callable[[str], str] | None) -> str:
    """Return *turn* in the format of ``load_script``, without its native form."""
    calls = tuple(_Call(call.name, _arguments(call), call.id) for call in turn.tool_calls)
    recorded = _Turn(turn.text, calls, turn.usage)
    return serde.dump_json(recorded if redact is None else serde.map_strings(recorded, redact))


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    return call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
