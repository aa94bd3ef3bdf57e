"""A real terminal for the command: it runs in a pseudo-terminal, and pyte shows its screen."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pexpect
import pyte

RUN = """
import sys
sys.path.insert(0, {tests!r})
from screen_sandbox import registered
from wink_workspace.cli import main
with registered():
    sys.exit(main(sys.argv[1:]))
"""
_TESTS = Path(__file__).parent
_TIMEOUT_S = 120
_ROWS = 60


class Screen:
    """One command in a terminal of *columns* columns."""

    def __init__(self, *arguments: str, columns: int, environment: Mapping[str, str]) -> None:
        self._screen = pyte.Screen(columns, _ROWS)
        self._stream = pyte.Stream(self._screen)
        self.received = ""
        self._child = pexpect.spawn(
            sys.executable,
            ["-c", RUN.format(tests=str(_TESTS)), *arguments],
            env={**os.environ, **environment, "TERM": "xterm-256color", "COLUMNS": str(columns)},
            dimensions=(_ROWS, columns),
            encoding="utf-8",
            timeout=_TIMEOUT_S,
        )

    def wait_for(self, shown: Callable[[str], bool]) -> str:
        """Wait until the screen is as expected; returns it."""
        while not shown(self.text):
            self._feed()
        return self.text

    def type(self, line: str) -> None:
        self._child.sendline(line)

    def end(self) -> str:
        """Wait for the end of the command, which must succeed; returns the screen."""
        try:
            while True:
                self._feed()
        except pexpect.EOF:
            pass
        self._child.close()
        assert self._child.exitstatus == 0, self.text
        return self.text

    def close(self) -> None:
        self._child.close(force=True)

    def _feed(self) -> None:
        self._child.expect(r"(?s).+")
        received = self._child.after
        assert isinstance(received, str)
        self.received += received
        self._stream.feed(received)

    @property
    def text(self) -> str:
        """The lines of the screen without trailing blanks."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip() + "\n"


def normalised(text: str, names: Mapping[str, str]) -> str:
    """*text* with ids, times, sizes and paths replaced by others of the same length."""
    for name, replacement in names.items():
        text = text.replace(name, replacement[: len(name)].ljust(len(name), "_"))
    text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d", "2026-01-01 12:00", text)
    text = re.sub(r"\b\d\d-\d\d \d\d:\d\d:\d\d", "01-01 12:00:00", text)
    text = re.sub(r" +[\d,]+\.\d ms", lambda m: "1.0 ms".rjust(len(m[0])), text)
    text = re.sub(r"\b[0-9a-f]{40}\b", "0" * 40, text)
    text = re.sub(r"elapsed: [^,\n]*", "elapsed: 1.0 s", text)
    return re.sub(r" +[\d,]+ [KMG]iB", lambda m: "9 MiB".rjust(len(m[0])), text)
