"""Runs without a model: turns read from a file, or written to one while another adapter works.

A script is JSON Lines, one turn a line, blank lines allowed::

    {"text": "Looking.", "tool_calls": [{"name": "ls", "arguments": {"path": "."}}]}
    {"text": "Done."}

``id`` of a call, ``tool_calls`` and ``usage`` may be left out. A nested evaluation takes its
turns from the same script, in the order in which they happen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from typing_extensions import TypeVar

from wink_workspace import serde
from wink_workspace.clock import TokenUsage
from wink_workspace.errors import ParseError, PromptEvaluationError, ScriptError, UsageError
from wink_workspace.runtime import ToolCall
from wink_workspace.wording import counted

from .core import ProviderAdapter
from .messages import ModelRequest, ModelTurn, UserMessage

__all__ = ["ScriptRecorder", "ScriptedAdapter", "load_script"]

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
    """The turns in a script file.

    Raises:
        ScriptError: If it cannot be read, or a line is no turn; names the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ScriptError(
            f"the script {os.fspath(path)!r} cannot be read: {why}",
            hint="Name a readable UTF-8 file of JSON lines.",
        ) from error
    turns: list[ModelTurn] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                turn = serde.parse_json(_Turn, line, what=f"{os.fspath(path)} line {number}")
            except ParseError as error:
                raise ScriptError(error.message, hint="Each line is one turn.") from error
            turns.append(_model_turn(turn, len(turns) + 1))
    return tuple(turns)


def _model_turn(turn: _Turn, number: int) -> ModelTurn:
    calls = [ToolCall.of(call.name, call.arguments, id=call.id or "") for call in turn.tool_calls]
    return ModelTurn(turn.text, tuple(calls), turn.usage).with_call_ids(number)


class ScriptedAdapter(ProviderAdapter[OutputT]):
    """Answers with the turns of a script, one after the other.

    Args:
        turns: The turns, from ``load_script`` or made by hand.
        options: As for ``ProviderAdapter``.

    Raises:
        UsageError: If one of them is no ``ModelTurn``.
    """

    provider_name = model_name = "scripted"

    def __init__(self, turns: Iterable[ModelTurn], **options: Any) -> None:
        super().__init__(**options)
        self._turns = tuple(turns)
        self._n_played = 0
        for turn in cast("tuple[object, ...]", self._turns):  # easily written by hand
            if not isinstance(turn, ModelTurn):
                form = "tool_calls=(call,)" if isinstance(turn, ToolCall) else "text"
                raise UsageError(
                    f"{turn!r:.80} is no turn of a model", hint=f"Write it as ModelTurn({form})."
                )

    @property
    def n_left(self) -> int:
        """Turns not played yet."""
        return len(self._turns) - self._n_played

    def complete(self, request: ModelRequest) -> ModelTurn:
        """The next turn.

        Raises:
            PromptEvaluationError: If the script is over (phase ``"request"``).
        """
        if not self.n_left:
            raise PromptEvaluationError(
                f"the script is over after {counted(self._n_played, 'turn')}, but the run is not",
                phase="request",
                hint=self._what_is_missing(request),
            )
        turn = self._turns[self._n_played]
        self._n_played += 1
        return turn

    def _what_is_missing(self, request: ModelRequest) -> str:
        """What to put into the script, which was over when *request* came."""
        match request.messages[-1:]:
            case () if self._turns:
                return "Put its turns into the script, too, or give it an adapter of its own."
            case (UserMessage(text),):
                return f"Its last answer was sent back: {text}"
            case _:
                return "End the script with a turn that calls no tool."


class ScriptRecorder(ProviderAdapter[OutputT]):
    """Another adapter, with every turn it takes appended to a script.

    The file is created, or emptied, at once; a turn is on disk before its calls run. What the
    adapter redacts is redacted here, too, and is what a replay then calls with.

    Args:
        adapter: Takes the turns.
        path: The script.
        append: Go on with a script that is there, instead of emptying it.
        on_native: Told each turn's number, from 1, and its own form as JSON, before the turn is
            written; ``None`` if it has none, or one that redacting would spoil.
    """

    def __init__(
        self,
        adapter: ProviderAdapter[OutputT],
        path: str | os.PathLike[str],
        *,
        append: bool = False,
        on_native: Callable[[int, str | None], None] | None = None,
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
        with self._path.open("a+" if append else "w+", encoding="utf-8") as file:
            file.seek(0)
            self._n_turns = sum(1 for line in file if line.strip())

    def complete(self, request: ModelRequest) -> ModelTurn:
        """The other adapter's turn, recorded."""
        turn = self._adapter.complete(request).with_call_ids(self._n_turns + 1)
        self._n_turns += 1
        if self._on_native is not None:
            self._on_native(self._n_turns, self._native_to_keep(turn))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_line(turn, self.redact) + "\n")
        return turn

    def dump_native(self, native: object) -> str | None:
        """The other adapter's."""
        return self._adapter.dump_native(native)

    def load_native(self, text: str) -> object:
        """The other adapter's."""
        return self._adapter.load_native(text)

    def _native_to_keep(self, turn: ModelTurn) -> str | None:
        native = self._adapter.dump_native(turn.native)
        if native is None or self.redact is None:
            return native
        content = json.loads(native)
        return native if serde.map_strings(content, self.redact) == content else None


def _line(turn: ModelTurn, redact: Callable[[str], str] | None) -> str:
    """*turn* as ``load_script`` reads it; what only its adapter understands is left out."""
    calls = tuple(_Call(call.name, _arguments(call), call.id) for call in turn.tool_calls)
    kept = _Turn(turn.text, calls, turn.usage)
    return serde.dump_json(kept if redact is None else serde.map_strings(kept, redact))


def _arguments(call: ToolCall) -> dict[str, Any] | str:
    return call.arguments if isinstance(call.arguments, str) else dict(call.arguments)
