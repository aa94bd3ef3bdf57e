"""One evaluation in a process of its own, from its isolation to its result.

The order matters: the child isolates itself and reports its layers, and the host sends the code
only if it accepts the report. Whatever runs in this process after that is not trusted.
"""

from __future__ import annotations

import ast
import io
import mmap
import os
import random
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, NoReturn

from wink_workspace.sandbox.asteval.frames import SIZES, Frame, encode_frame, frame_sizes
from wink_workspace.sandbox.isolation import Layer

from .files import WorkspaceFiles, refusal
from .interpreter import Interpreter
from .modules import Namespace
from .probes import run_probes
from .values import as_fields

__all__ = ["Channel", "answer_host", "run_child"]

_OUTPUT_CHUNK_BYTES: Final = 32_768
_ANSWER_BYTES_MAX: Final = 2**31
_MOST_GLOBALS: Final = 100
_RECURSION: Final = 6_000  # about 500 nested calls of the code's own functions
_RESERVE_BYTES: Final = 4 * 1_048_576
_SOURCE: Final = "<code>"


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

    def receive(self) -> Frame:
        """The next frame; raises ``EOFError`` if the host has closed the pipe."""
        sizes = frame_sizes(self._read(SIZES.size), body_bytes_max=_ANSWER_BYTES_MAX)
        return Frame.parse(*map(self._read, sizes))

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


class _Output(io.TextIOBase):
    """A text stream whose content is sent to the host immediately."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        data = text.encode("utf-8", "backslashreplace")
        for start in range(0, len(data), _OUTPUT_CHUNK_BYTES):
            self._channel.send(self._name, body=data[start : start + _OUTPUT_CHUNK_BYTES])
        return len(text)


def answer_host(channel: Channel, layers: Sequence[Layer], interpreter: Interpreter) -> None:
    """Report the isolation layers, and do what the host requests: an evaluation or the probes."""
    channel.send(
        "ready", {"layers": [[layer.name, layer.is_active, layer.detail] for layer in layers]}
    )
    _warm_up(interpreter)
    request = channel.receive()
    if request.kind == "probe":
        probes = [[probe.name, probe.was_stopped, probe.detail] for probe in run_probes()]
        channel.send("probed", {"probes": probes})
        return
    reserve = mmap.mmap(
        -1, _RESERVE_BYTES
    )  # address space, released so that an out-of-memory error can be reported
    try:
        fields = _Evaluation(channel, interpreter, request.fields).outcome()
    except MemoryError:
        reserve.close()
        fields = {"outcome": "memory"}
    channel.send("done", fields)


def _warm_up(interpreter: Interpreter) -> None:
    """Evaluate something small before the request arrives.

    A forked process copies each page at its first write, and counting references is a write. That
    is most of the time of a short evaluation.
    """
    sys.setrecursionlimit(_RECURSION)
    random.seed()  # otherwise all children have the server's state
    tree = ast.parse("def f(x, y=1):\n    return [x + y for x in range(x)]\nf(2), f'{len([])}'")
    value, _ = interpreter.evaluate(tree)
    interpreter.module.names.clear()
    Frame.parse(encode_frame("done", as_fields(value, most_chars=100))[SIZES.size :], b"")


class _Evaluation:
    """Runs the code and makes the fields of its result."""

    def __init__(
        self, channel: Channel, interpreter: Interpreter, request: Mapping[str, Any]
    ) -> None:
        self._code: str = request["code"]
        self._globals: dict[str, Any] = request["globals"]
        self._is_python: bool = request["interpreter"] == "python"
        self._value_chars: int = request["value_chars"]
        self._interpreter = interpreter
        self._files = WorkspaceFiles(channel.ask, write_bytes=request["write_bytes"])
        self._stdout = sys.stdout = _Output(channel, "stdout")
        sys.stderr = _Output(channel, "stderr")

    def outcome(self) -> dict[str, object]:
        """Run the code; the fields of the last frame."""
        try:
            tree = ast.parse(self._code, _SOURCE)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            # The parser raises MemoryError if code is nested too deeply
            return {"outcome": "error", "error": self._syntax_error(error)}
        return self._in_python(tree) if self._is_python else self._in_asteval(tree)

    def _in_asteval(self, tree: ast.Module) -> dict[str, object]:
        interpreter = self._interpreter
        interpreter.builtins.names.update(
            print=self._print,
            open=self._files.open,
            read_text=self._files.read_text,
            write_text=self._files.write_text,
        )
        interpreter.module.names.update(self._globals)

        def position(error: BaseException) -> tuple[int, int]:
            node = interpreter.failed_at
            if node is None and isinstance(error, SyntaxError):
                return error.lineno or 0, error.offset or 0
            return getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1

        return self._ended(lambda: interpreter.evaluate(tree), interpreter.module.names, position)

    def _in_python(self, tree: ast.Module) -> dict[str, object]:
        """Run the code with Python itself, as code that has escaped from asteval would."""
        names: dict[str, Any] = {"__name__": "__main__", **self._globals}
        names["read_text"], names["write_text"] = self._files.read_text, self._files.write_text
        last = tree.body[-1] if tree.body else None
        body = tree.body[:-1] if isinstance(last, ast.Expr) else tree.body

        def run() -> tuple[Any, bool]:
            exec(compile(ast.Module(body, []), _SOURCE, "exec"), names)  # noqa: S102 - see above
            if not isinstance(last, ast.Expr):
                return None, False
            return eval(compile(ast.Expression(last.value), _SOURCE, "eval"), names), True  # noqa: S307 - as above

        def position(error: BaseException) -> tuple[int, int]:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if frame.filename == _SOURCE]
            return (own[-1].lineno or 0, (own[-1].colno or 0) + 1) if own else (0, 0)

        return self._ended(run, names, position)

    def _ended(
        self,
        run: Callable[[], tuple[Any, bool]],
        names: Mapping[str, Any],
        position: Callable[[BaseException], tuple[int, int]],
    ) -> dict[str, object]:
        try:
            value, is_expression = run()
            self._files.send_all()
            fields: dict[str, object] = {"outcome": "value", "globals": self._bound(names)}
            if is_expression and value is not None:
                fields["value"] = as_fields(value, most_chars=self._value_chars)
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - any exception of the code is a result
            return {"outcome": "error", "error": self._error(error, *position(error))}
        return fields

    def _bound(self, names: Mapping[str, Any]) -> dict[str, object]:
        """The last global names and their values, without functions, classes and modules."""
        shown = {
            name: value
            for name, value in names.items()
            if not name.startswith("_")
            and not isinstance(value, Namespace | FunctionType | type)
            and not (callable(value) and self._is_python)
        }
        kept = list(shown.items())[-_MOST_GLOBALS:]
        most_chars = max(self._value_chars // 10, 1)
        return {name: as_fields(value, most_chars=most_chars) for name, value in kept}

    def _print(
        self, *values: object, sep: str = " ", end: str = "\n", file: Any = None, **_: object
    ) -> None:
        """As ``print``; each call sends one frame immediately."""
        line = io.StringIO()
        print(*values, sep=sep, end=end, file=line)
        (self._stdout if file is None else file).write(line.getvalue())

    def _syntax_error(self, error: BaseException) -> dict[str, object]:
        line = getattr(error, "lineno", None) or 0
        column = getattr(error, "offset", None) or 0
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        message = message or "the code is nested too deeply"
        return self._error_fields("SyntaxError", message, line, column)

    def _error(self, error: BaseException, line: int, column: int) -> dict[str, object]:
        try:
            message = str(error)
        except Exception:  # noqa: BLE001 - the code's own __str__ may raise anything
            message = "its __str__ failed"
        if isinstance(error, SyntaxError):
            message = str(error.msg)
        return self._error_fields(type(error).__name__, message, line, column)

    def _error_fields(self, kind: str, message: str, line: int, column: int) -> dict[str, object]:
        lines = self._code.splitlines()
        return {
            "type": kind[:200],
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
