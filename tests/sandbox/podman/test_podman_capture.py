"""Captured output: head and tail in the result, all of it, up to a limit, in a file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.sandbox.commands.capture import Capture, last_output
from wink_workspace.sandbox.sandbox_protocol import CapturedOutput


def captured(
    pieces: list[bytes], *, limit_bytes: int, folder: Path | None = None, file_bytes: int = 1_000
) -> tuple[CapturedOutput, dict[str, bytes]]:
    """Capture *pieces* of standard output; return the result and the published files."""
    published: dict[str, bytes] = {}

    def publish(stream: str, file: Path) -> str:
        published[stream] = file.read_bytes()
        return f"{stream}.txt"

    capture = Capture(limit_bytes=limit_bytes, file_bytes=file_bytes, folder=folder, observer=None)
    for piece in pieces:
        capture("stdout", piece)
    result, _ = capture.finished(publish)
    capture.discard()
    return result, published


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 60))
def test_head_and_tail_are_kept_and_missing_bytes_counted(pieces: list[bytes], limit: int) -> None:
    whole = b"".join(pieces)
    result, _ = captured(pieces, limit_bytes=limit)
    assert result.n_bytes == len(whole)
    assert whole.startswith(result.head)
    assert whole.endswith(result.tail)
    assert len(result.head) + len(result.tail) == min(limit, len(whole))
    assert result.n_missing == max(0, len(whole) - limit)


def test_long_output_in_large_pieces_keeps_its_tail() -> None:
    result, _ = captured([b"a" * 200_000, b"b" * 200_000], limit_bytes=10)
    assert (result.head, result.tail, result.n_missing) == (b"aaaaa", b"bbbbb", 399_990)


def test_whole_output_is_published_only_if_the_result_is_truncated(tmp_path: Path) -> None:
    result, published = captured([b"0123456789"], limit_bytes=10, folder=tmp_path)
    assert (result.whole, published) == (None, {})
    result, published = captured([b"0123456789", b"a"], limit_bytes=10, folder=tmp_path)
    assert (result.whole, result.n_whole) == ("stdout.txt", 11)
    assert published == {"stdout": b"0123456789a"}
    assert not list(tmp_path.iterdir())


def test_an_output_file_never_exceeds_its_limit(tmp_path: Path) -> None:
    result, published = captured([b"x" * 999, b"y" * 999], limit_bytes=10, folder=tmp_path)
    assert result.n_whole == 1_000
    assert published == {"stdout": b"x" * 999 + b"y"}


def test_output_can_be_read_after_a_crash(tmp_path: Path) -> None:
    capture = Capture(limit_bytes=10, file_bytes=10_000, folder=tmp_path, observer=None)
    capture("stdout", b"x" * 5_000 + b"nearly done\n")
    capture("stderr", b"a warning \xff\n")
    output = last_output(tmp_path)
    assert output.endswith("nearly done\nstderr: a warning \ufffd")
    assert len(output) < 5_000
    Capture(limit_bytes=10, file_bytes=10, folder=tmp_path, observer=None)
    assert last_output(tmp_path) == "", "the next command starts empty"
    capture.discard()


def test_an_observer_receives_each_piece_immediately() -> None:
    received: list[tuple[str, bytes]] = []
    capture = Capture(
        limit_bytes=1, file_bytes=1, folder=None, observer=lambda *piece: received.append(piece)
    )
    capture("stdout", b"one")
    capture("stderr", b"two")
    assert received == [("stdout", b"one"), ("stderr", b"two")]
    assert capture.n_bytes == 6
