"""The server that sandboxes must not reach does answer on the host."""

from __future__ import annotations

from published_server import SECRET, PublishedServer


def test_the_published_server_answers_on_the_loopback(published_server: PublishedServer) -> None:
    assert published_server.answer().strip() == SECRET
