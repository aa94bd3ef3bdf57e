"""Malformed data from a hostile child ends only that child.

The code runs as plain Python and writes to the socket between child and host.
"""

from __future__ import annotations

import json
import marshal
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from asteval_support import children_of, evaluate, opened, server_pid
from hypothesis import given, reject
from hypothesis import strategies as st

from wink_workspace.errors import SandboxBrokenError
from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.sandbox.asteval import AstevalSandbox, EndReason, Evaluation
from wink_workspace.sandbox.asteval import evaluator as host
from wink_workspace.sandbox.asteval.pipe_frames import (
    PipeFrame,
    PipeFrameError,
    encode_frame,
    frame_sizes,
)

TALK = """
import os
def channel():
    for descriptor in range(4096):
        try:
            os.write(descriptor, b"")
            return descriptor
        except OSError:
            pass
descriptor = channel()
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[AstevalSandbox]:
    with opened("python", use_numpy=False, timeout_s=1.0, code_chars=2_000_000) as made:
        yield made


def sent(sandbox: AstevalSandbox, data: bytes, then: str = "os._exit(0)") -> Evaluation:
    """Let the child send *data*, then run *then*."""
    code = f"{TALK}data = {data!r}\nwhile data: data = data[os.write(descriptor, data):]\n{then}"
    return evaluate(sandbox, code, MemoryFilesystem())


def frame(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">II", len(text), len(body)) + text + body


def done(**fields: object) -> bytes:
    return frame({"kind": "done", **fields})


VALUE = {"repr": "1", "n_missing": 0}
ERROR = {"type": "E", "message": "m", "line": 1, "column": 1, "text": "t"}


class Canary:
    """Creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return open, ("wink-unpickled", "w")


BROKEN = {
    "a pickle": pickle.dumps(Canary()),
    "a pickle as the header": frame(pickle.dumps(Canary())),
    "a pickle as the kind": frame({"kind": pickle.dumps(Canary(), 0).decode()}),
    "a pickle as the value": done(outcome="value", value=pickle.dumps(Canary(), 0).decode()),
    "marshalled code": frame(marshal.dumps(compile("1", "", "eval"))),
    "a stat without path": frame({"kind": "stat"}),
    "a list of a list": frame({"kind": "list", "path": ["."]}),
    "an endless directory": frame({"kind": "mkdir", "path": "a/" * 100_000}),
    "not a frame": b"hello, this is not a frame",
    "a huge header": struct.pack(">II", 2**32 - 1, 0),
    "a huge body": struct.pack(">II", 2, 2**32 - 1) + b"{}",
    "not JSON": frame(b"not json"),
    "not UTF-8": frame(b'{"kind": "\xff\xfe"}'),
    "not an object": frame([1, 2]),
    "no kind": frame({"a": 1}),
    "a kind that is not text": frame({"kind": 7}),
    "an unknown kind": frame({"kind": "exec", "code": "1"}),
    "another ready": frame({"kind": "ready", "layers": []}),
    "a forged isolation report": frame({"kind": "probed", "probes": []}),
    "not a number": frame(b'{"kind": "done", "outcome": "value", "value": NaN}'),
    "an infinite number": frame(
        b'{"kind": "done", "outcome": "value", "globals": {}, "value":'
        b' {"repr": "1", "n_missing": 0, "json": [1e999]}}'
    ),
    "a duplicate kind": frame(b'{"kind": "stdout", "kind": "exec"}'),
    "deep JSON": frame(b'{"kind": "done", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "a giant integer": frame(b'{"kind": "done", "x": ' + b"9" * 100_000 + b"}"),
    "a read without path": frame({"kind": "read"}),
    "a read of a number": frame({"kind": "read", "path": 7}),
    "a read of an endless path": frame({"kind": "read", "path": "a" * 200_000}),
    "a write without mode": frame({"kind": "write", "path": "a"}),
    "a write with an unknown mode": frame({"kind": "write", "path": "a", "mode": "rw"}),
    "no outcome": done(),
    "an unknown outcome": done(outcome="victory"),
    "a malformed value": done(outcome="value", value=7, globals={}),
    "a value without repr": done(outcome="value", value={"n_missing": 0}, globals={}),
    "a repr that is not text": done(outcome="value", value={**VALUE, "repr": 1}, globals={}),
    "an endless repr": done(outcome="value", value={**VALUE, "repr": "x" * 200_000}, globals={}),
    "a deeply nested value": done(
        outcome="value", globals={}, value={**VALUE, "json": json.loads("[" * 60 + "]" * 60)}
    ),
    "a length that is not a number": done(
        outcome="value", value={**VALUE, "n_missing": "1"}, globals={}
    ),
    "a negative length": done(outcome="value", value={**VALUE, "n_missing": -1}, globals={}),
    "no names": done(outcome="value"),
    "malformed names": done(outcome="value", globals=[1]),
    "a name without value": done(outcome="value", globals={"x": 1}),
    "too many names": done(outcome="value", globals={f"x{n}": VALUE for n in range(201)}),
    "no error": done(outcome="error"),
    "a malformed error": done(outcome="error", error="oops"),
    "a line that is not a number": done(outcome="error", error={**ERROR, "line": True}),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_malformed_messages_end_only_the_child(data: bytes, sandbox: AstevalSandbox) -> None:
    server = server_pid(sandbox)
    with pytest.raises(SandboxBrokenError):
        sent(sandbox, data, then="while True: pass")
    assert not Path("wink-unpickled").exists()
    assert len(children_of(server)) == 1
    assert evaluate(sandbox, "6 * 7").value.json == 42
    assert server_pid(sandbox) == server


ENDS = {
    "half a frame, then nothing": (struct.pack(">II", 100, 0), "while True: pass", "deadline"),
    "half a frame, then the end": (struct.pack(">II", 100, 0), "os._exit(0)", "killed"),
    "an exit without an answer": (b"", "os._exit(3)", "killed"),
    "a closed channel": (b"", "os.close(descriptor)\nwhile True: pass", "killed"),
    "empty output forever": (
        b"", f"while True: os.write(descriptor, {frame({'kind': 'stdout'})!r})", "deadline",
    ),
    "requests without reading the answers": (
        b"", f"while True: os.write(descriptor, {frame({'kind': 'read', 'path': 'a'})!r})",
        "deadline",
    ),
    "a flood of output": (
        b"",
        f"while True: os.write(descriptor, {frame({'kind': 'stderr'}, b'x' * 60_000)!r})",
        "output",
    ),
    "a frame that arrives byte by byte": (
        struct.pack(">II", 4_000_000, 0),
        "import time\nwhile True: os.write(descriptor, b' ') and time.sleep(0.001)",
        "deadline",
    ),
    "a crash": (b"", "import ctypes\nctypes.string_at(0)", "killed"),
    "a reported lack of memory": (done(outcome="memory"), "while True: pass", "memory"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "then", "outcome"), ENDS.values(), ids=ENDS)
def test_a_child_that_does_not_end_is_killed(
    data: bytes, then: str, outcome: str, sandbox: AstevalSandbox
) -> None:
    server = server_pid(sandbox)
    evaluation = sent(sandbox, data, then)
    assert evaluation.outcome == outcome
    assert evaluation.detail
    if outcome == "deadline":
        assert evaluation.detail == "it was killed at its time limit of 1 s", "killed by the host"
    assert len(children_of(server)) == 1
    assert evaluate(sandbox, "6 * 7").value.json == 42


def test_the_signal_that_killed_a_child_is_reported(sandbox: AstevalSandbox) -> None:
    assert "SIGSEGV" in sent(sandbox, b"", "import ctypes\nctypes.string_at(0)").detail


def test_a_forged_answer_is_accepted_and_later_data_is_ignored(
    sandbox: AstevalSandbox,
) -> None:
    """A child may send any value; its code can choose the value anyway."""
    forged = done(outcome="value", value={**VALUE, "json": {"a": ["\ud800é"]}}, globals={})
    evaluation = sent(sandbox, forged + b"rubbish", then="while True: pass")
    assert evaluation.outcome is EndReason.VALUE
    assert evaluation.value.json == {"a": ["?é"]}
    assert evaluation.stdout == ""


def test_a_write_after_the_answer_is_ignored(sandbox: AstevalSandbox) -> None:
    files = MemoryFilesystem()
    answer = done(outcome="value", globals={})
    late = frame({"kind": "write", "path": "a", "mode": "overwrite"}, b"late")
    code = (
        f"{TALK}os.write(descriptor, {answer + late!r})\nwhile True: os.write(descriptor, {late!r})"
    )
    evaluation = evaluate(sandbox, code, files, writes=("a",))
    assert (evaluation.outcome, evaluation.writes) == (EndReason.VALUE, ())
    assert not files.list()


def test_a_forged_write_is_checked_against_the_declared_paths(sandbox: AstevalSandbox) -> None:
    files = MemoryFilesystem()
    write = frame({"kind": "write", "path": "../../etc/cron.d/x", "mode": "overwrite"}, b"boom")
    code = f"{TALK}os.write(descriptor, {write!r})\nprint(os.read(descriptor, 4096))"
    evaluation = evaluate(sandbox, code, files, writes=("a",))
    assert "leads outside the workspace" in evaluation.stdout
    assert not files.list()


TEXT = st.text(st.characters(exclude_categories=()))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
)
SENT_VALUES = st.fixed_dictionaries(
    {"repr": TEXT | ANYTHING, "n_missing": st.integers(0, 9) | ANYTHING},
    optional={"json": ANYTHING},
)


@given(sent_value=SENT_VALUES)
def test_any_value_is_refused_or_can_be_stored(sent_value: object) -> None:
    header = json.dumps(
        {"kind": "done", "value": sent_value, "globals": {"x": sent_value}}
    ).encode()
    try:
        fields = PipeFrame.parse(header, b"").fields
        value, names = host._value(fields["value"]), host._names(fields["globals"])
    except (PipeFrameError, SandboxBrokenError):
        reject()
    assert names == {"x": value}
    assert json.dumps([value.text, value.json], ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("fields", [{}, {"a": [1, "é", None]}])
@pytest.mark.parametrize("body", [b"", b"\x00\xff" * 9])
def test_a_decoded_frame_equals_the_encoded_one(fields: dict[str, object], body: bytes) -> None:
    data = encode_frame("kind", fields, body)
    sizes = frame_sizes(data[:8], body_bytes_max=100)
    header = data[8 : 8 + sizes[0]]
    assert len(data) == 8 + sum(sizes)
    assert PipeFrame.parse(header, data[8 + sizes[0] :]) == PipeFrame(
        "kind", {"kind": "kind", **fields}, body
    )


def test_a_frame_above_the_limits_is_not_encoded() -> None:
    with pytest.raises(PipeFrameError):
        encode_frame("kind", {"a": "x" * 5_000_000})
    with pytest.raises(ValueError, match="JSON"):
        encode_frame("kind", {"a": float("nan")})
