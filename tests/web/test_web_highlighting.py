"""Code with colours: what the library needs to do it right."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pygments import lexers

from wink_workspace.web.highlighting import highlighted


def test_threads_use_the_library_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It builds the rules of a language in attributes of a class, at the first use."""
    events: list[str] = []
    found: list[list[str]] = []
    get_lexer: Any = lexers.get_lexer_for_filename
    other = threading.Thread(target=lambda: found.append(highlighted("other.py", ["x = 1"])))

    def slow(path: str, **options: Any) -> Any:
        events.append(f"begin {path}")
        if path == "one.py":
            other.start()
            other.join(0.3)  # long enough for it to come here, if nothing keeps it from that
        lexer = get_lexer(path, **options)
        events.append(f"end {path}")
        return lexer

    monkeypatch.setattr(lexers, "get_lexer_for_filename", slow)
    found.append(highlighted("one.py", ["x = 1"]))
    other.join()
    assert events == ["begin one.py", "end one.py", "begin other.py", "end other.py"]
    assert found[0] == found[1] != ["x = 1"]
