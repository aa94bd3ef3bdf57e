"""Code with colours: the library runs in a process that ends when it takes too long."""

from __future__ import annotations

import threading

from wink_workspace.web.pages import highlighted


def test_text_on_which_the_library_hangs_is_shown_without_colours() -> None:
    text = "a " * 20_000  # an expression for Java goes back over all of it at each word
    assert highlighted("Main.java", [text, "<b>"]) == [text, "&lt;b&gt;"]
    assert highlighted("Main.java", ["int x;"]) != ["int x;"]


def test_markup_is_the_same_in_every_thread_and_escapes_the_text() -> None:
    found: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(highlighted("a.py", ["<b>", "x = 1"])))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(each == found[0] for each in found)
    assert "<b>" not in found[0][0]
