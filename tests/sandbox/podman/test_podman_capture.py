"""What is kept of output: its ends in the result, and all of it, up to a bound, in a file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from wink_workspace.sandbox.podman.capture import Capture, last_output
from wink_workspace.sandbox.protocol import CapturedOutput


def captured(
    pieces: list[bytes], *, limit_bytes: int, folder: Path | None = None, file_bytes: int = 1_000
) -> tuple[CapturedOutput, dict[str, bytes]]:
    """What is kept of *pieces* on standard output, and which files were published."""
    published: dict[str, bytes] = {}

    def publish(stream: str, file: Path) -> str:
        published[stream] = file.read_bytes()
        return f"{stream}.txt"

    capture = Capture(limit_bytes=limit_bytes, file_bytes=file_bytes, folder=folder, observer=None)
    for piece in pieces:
        capture("stdout", piece)
    kept, _ = capture.finished(publish)
    capture.discard()
    return kept, published


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 60))
def test_head_and_tail_are_the_ends_and_what_is_missing_is_counted(
    pieces: list[bytes], limit: int
) -> None:
    whole = b"".join(pieces)
    kept, _ = captured(pieces, limit_bytes=limit)
    assert kept.n_bytes == len(whole)
    assert whole.startswith(kept.head)
    assert whole.endswith(kept.tail)
    assert len(kept.head) + len(kept.tail) == min(limit, len(whole))
    assert kept.n_missing == max(0, len(whole) - limit)


def test_much_output_in_large_pieces_keeps_its_end() -> None:
    kept, _ = captured([b"a" * 200_000, b"b" * 200_000], limit_bytes=10)
    assert (kept.head, kept.tail, kept.n_missing) == (b"aaaaa", b"bbbbb", 399_990)


def test_all_of_it_is_published_only_when_a_part_is_missing(tmp_path: Path) -> None:
    kept, published = captured([b"0123456789"], limit_bytes=10, folder=tmp_path)
    assert (kept.whole, published) == (None, {})
    kept, published = captured([b"0123456789", b"a"], limit_bytes=10, folder=tmp_path)
    assert (kept.whole, kept.n_whole) == ("stdout.txt", 11)
    assert published == {"stdout": b"0123456789a"}
    assert not list(tmp_path.iterdir())


def test_a_file_never_grows_beyond_its_bound(tmp_path: Path) -> None:
    kept, published = captured([b"x" * 999, b"y" * 999], limit_bytes=10, folder=tmp_path)
    assert kept.n_whole == 1_000
    assert published == {"stdout": b"x" * 999 + b"y"}


def test_what_was_written_can_be_read_by_who_comes_after_a_crash(tmp_path: Path) -> None:
    capture = Capture(limit_bytes=10, file_bytes=10_000, folder=tmp_path, observer=None)
    capture("stdout", b"x" * 5_000 + b"nearly done\n")
    capture("stderr", b"a warning \xff\n")
    said = last_output(tmp_path)
    assert said.endswith("nearly done\nstderr: a warning \ufffd")
    assert len(said) < 5_000
    Capture(limit_bytes=10, file_bytes=10, folder=tmp_path, observer=None)
    assert last_output(tmp_path) == "", "the next command begins anew"
    capture.discard()


def test_an_observer_hears_of_each_piece_as_it_comes() -> None:
    heard: list[tuple[str, bytes]] = []
    capture = Capture(
        limit_bytes=1, file_bytes=1, folder=None, observer=lambda *piece: heard.append(piece)
    )
    capture("stdout", b"one")
    capture("stderr", b"two")
    assert heard == [("stdout", b"one"), ("stderr", b"two")]
    assert capture.n_bytes == 6
