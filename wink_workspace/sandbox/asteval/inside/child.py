"""One evaluation in a process of its own, from its isolation to its result.

The order matters: the child isolates itself and reports its layers, and the host sends the code
only if it accepts the report. Whatever runs in this process after that is not trusted.
"""

from __future__ import annotations

import ast
import contextlib
import io
import math
import mmap
import os
import random
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NoReturn, TextIO, cast

from wink_workspace.sandbox.asteval.pipe_frames import SIZES, PipeFrame, encode_frame, frame_sizes
from wink_workspace.sandbox.isolation_report import Layer

from .files import SOURCE, WorkspaceFiles, refusal
from .main_program import MainProgram
from .python_probes import run_probes

# ----------------------------------------------------------------------------------------- values

# Encoding of a value for the host: a bounded ``repr``, and JSON if the value allows it.
#
# Lists and tuples are both arrays in JSON. A value that is too large, too deep, or of another type
# has only a ``repr``. The ``repr`` may be the code's own function, and raise an exception.


_MOST_ITEMS: Final = 2_000
_MOST_LEVELS: Final = 20
_MOST_BITS: Final = 1_024


def as_fields(value: object, *, most_chars: int) -> dict[str, object]:
    """The fields of *value* in a frame: ``repr``, ``n_missing`` and, if possible, ``json``."""
    text, n_missing = bounded_repr(value, most_chars=most_chars)
    fields: dict[str, object] = {"repr": text, "n_missing": n_missing}
    if _room_left(value, most_chars) and _is_json(value):
        fields["json"] = value
    return fields


def bounded_repr(value: object, *, most_chars: int) -> tuple[str, int]:
    """The ``repr``, cut to *most_chars*, and the least number of characters that are missing."""
    n_beyond = 0
    if type(value) is str and len(value) > most_chars:
        n_beyond = len(value) - most_chars
        value = value[:most_chars]
    try:
        # Python's own repr, unless it would be far longer than the limit
        text = repr(value) if _room_left(value, most_chars * 4) else _repr(most_chars).repr(value)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the code's own __repr__ may raise anything
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return _printable(text[:most_chars]), max(0, len(text) - most_chars) + n_beyond


def _room_left(value: object, room: int, level: int = 0) -> int:
    """The characters of *room* that remain after *value*; 0 if it does not fit."""
    if room <= 0 or level > _MOST_LEVELS:
        return 0
    kind = type(value)
    if isinstance(value, str | bytes | bytearray):
        return max(0, room - len(value))
    if isinstance(value, int):
        return max(0, room - value.bit_length() // 3 - 1)
    if kind is dict:
        items: Any = chain.from_iterable(cast("dict[object, object]", value).items())
    elif kind in (list, tuple, set, frozenset):
        items = value
    else:
        return max(0, room - 8)
    for item in items:
        room = _room_left(item, room - 2, level + 1)
        if not room:
            return 0
    return room


def _repr(most_chars: int) -> reprlib.Repr:
    """A ``Repr`` with limits near *most_chars*."""
    bounded = reprlib.Repr()
    bounded.maxlevel = _MOST_LEVELS
    for name in ("list", "tuple", "dict", "set", "frozenset", "deque", "array"):
        setattr(bounded, f"max{name}", _MOST_ITEMS)
    for name in ("string", "long", "other"):
        setattr(bounded, f"max{name}", most_chars + 1)
    return bounded


def _printable(text: str) -> str:
    """*text* with lone surrogates escaped, because files and terminals cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _is_json(value: Any) -> bool:
    kind = cast("type[object]", type(value))
    if kind is int:
        return value.bit_length() <= _MOST_BITS
    if kind is float:
        return math.isfinite(value)
    if kind is str:
        return value.isascii() or _printable(value) == value
    if kind is dict:
        return all(type(key) is str and _is_json(key) for key in value) and all(
            map(_is_json, value.values())
        )
    return value is None or kind is bool or (kind in (list, tuple) and all(map(_is_json, value)))


# ------------------------------------------------------------------------------------------ child


_OUTPUT_CHUNK_BYTES: Final = 32_768
_ANSWER_BYTES_MAX: Final = 2**31
_MOST_GLOBALS: Final = 100
_RESERVE_BYTES: Final = 4 * 1_048_576


class Channel:
    """The child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(
        self, kind: str, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> None:
        """Send a frame, all of it."""
        data = memoryview(encode_frame(kind, fields, body))
        while data:
            data = data[os.write(self._descriptor, data) :]

    def receive(self) -> PipeFrame:
        """The next frame; raises ``EOFError`` if the host has closed the pipe."""
        sizes = frame_sizes(self._read(SIZES.size), body_bytes_max=_ANSWER_BYTES_MAX)
        return PipeFrame.parse(*map(self._read, sizes))

    def ask(self, kind: str, fields: Mapping[str, object], body: bytes = b"") -> bytes:
        """Send a request and return the host's answer; raises the host's refusal."""
        self.send(kind, fields, body)
        answer = self.receive()
        if answer.kind != "answer":
            raise refusal(answer.fields)
        return answer.body

    def _read(self, n_bytes: int) -> bytes:
        pieces: list[bytes] = []
        while n_bytes:
            piece = os.read(self._descriptor, min(n_bytes, 1_048_576))
            if not piece:
                raise EOFError("the host has closed the pipe")
            pieces.append(piece)
            n_bytes -= len(piece)
        return b"".join(pieces)


class _Output(io.RawIOBase):
    """A stream of bytes that are sent to the host immediately."""

    def __init__(self, channel: Channel, name: str) -> None:
        super().__init__()
        self._channel = channel
        self.name = f"<{name}>"
        self._kind = name

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        sent = bytes(data[:_OUTPUT_CHUNK_BYTES])
        self._channel.send(self._kind, body=sent)
        return len(sent)


def _text_stream(channel: Channel, name: str) -> TextIO:
    """A text stream that is sent to the host line by line."""
    buffered = io.BufferedWriter(_Output(channel, name), _OUTPUT_CHUNK_BYTES)
    return io.TextIOWrapper(buffered, "utf-8", "backslashreplace", "\n", line_buffering=True)


def answer_host(channel: Channel, layers: Sequence[Layer], program: MainProgram) -> None:
    """Report the isolation layers, and do what the host requests: an evaluation or the probes."""
    channel.send(
        "ready", {"layers": [[layer.name, layer.is_active, layer.detail] for layer in layers]}
    )
    _warm_up(program)
    request = channel.receive()
    if request.kind == "probe":
        probes = [[probe.name, probe.was_stopped, probe.detail] for probe in run_probes()]
        channel.send("probed", {"probes": probes})
        return
    reserve = mmap.mmap(
        -1, _RESERVE_BYTES
    )  # address space, released so that an out-of-memory error can be reported
    try:
        evaluation = _Evaluation(channel, program, request.fields)
        fields = evaluation.outcome()
        evaluation.flush()
    except MemoryError:
        reserve.close()
        fields = {"outcome": "memory"}
    channel.send("done", fields)


def _warm_up(program: MainProgram) -> None:
    """Evaluate something small before the request arrives.

    A forked process copies each page at its first write, and counting references is a write. That
    is most of the time of a short evaluation.
    """
    random.seed()  # otherwise all children have the server's state
    program.warm_up()
    PipeFrame.parse(encode_frame("done", as_fields((3, "0"), most_chars=100))[SIZES.size :], b"")


class _Evaluation:
    """Runs the code and makes the fields of its result."""

    def __init__(self, channel: Channel, program: MainProgram, request: Mapping[str, Any]) -> None:
        self._code: str = request["code"]
        self._globals: dict[str, Any] = request["globals"]
        self._value_chars: int = request["value_chars"]
        self._program = program
        self._files = WorkspaceFiles(channel.ask, write_bytes=request["write_bytes"])
        self._stdout = sys.stdout = _text_stream(channel, "stdout")
        self._stderr = sys.stderr = _text_stream(channel, "stderr")

    def flush(self) -> None:
        """Send the output that is still buffered."""
        for stream in (self._stdout, self._stderr):
            with contextlib.suppress(ValueError):  # the code has closed it
                stream.flush()

    def outcome(self) -> dict[str, object]:
        """Run the code; the fields of the last frame."""
        try:
            tree = self._parsed()
            self._program.provide(self._globals, self._files)
            value, is_expression = self._program.evaluate(tree)
            self._files.send_all()
            fields: dict[str, object] = {"outcome": "value", "globals": self._bound()}
            if is_expression and value is not None:
                fields["value"] = as_fields(value, most_chars=self._value_chars)
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - any exception of the code is a result
            return {"outcome": "error", "error": self._error(error)}
        return fields

    def _parsed(self) -> ast.Module:
        try:
            return ast.parse(self._code, SOURCE)
        except (ValueError, RecursionError, MemoryError) as error:
            # The parser raises MemoryError if code is nested too deeply
            raise SyntaxError(str(error) or "the code is nested too deeply") from error

    def _bound(self) -> dict[str, object]:
        """The last global names that hold values, and these values."""
        shown = self._program.shown()
        kept = list(shown.items())[-_MOST_GLOBALS:]
        most_chars = max(self._value_chars // 10, 1)
        return {name: as_fields(value, most_chars=most_chars) for name, value in kept}

    def _error(self, error: BaseException) -> dict[str, object]:
        line, column = self._program.position(error)
        try:
            message = str(error.msg if isinstance(error, SyntaxError) else error)
        except Exception:  # noqa: BLE001 - the code's own __str__ may raise anything
            message = "its __str__ failed"
        lines = self._code.splitlines()
        return {
            "type": type(error).__name__[:200],
            "message": message[:4_000].encode("utf-8", "backslashreplace").decode(),
            "line": line,
            "column": column,
            "text": lines[line - 1][:1_000] if 0 < line <= len(lines) else "",
        }


def run_child(work: Callable[[], None]) -> NoReturn:
    """Run *work* and end the process without running any of the server's clean-up."""
    code = 70
    try:
        work()
        code = 0
    except BaseException:  # noqa: BLE001, S110 - it cannot be reported; the host sees the exit code
        pass
    finally:
        os._exit(code)
