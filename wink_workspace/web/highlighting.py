"""Code with colours, as markup in which the library escapes every character of the text.

Rule 1: the library runs in a process of its own. Its expressions can take time that grows with the
square of a text, and nothing ends them in a thread.
Rule 2: that process has a limit of time for each file, and of memory. If it ends, the text is shown
without colours, and the next file gets a new process. It ends with this process.
"""

from __future__ import annotations

import atexit
import html
import json
import resource
import signal
import subprocess  # noqa: TID251 - see rule 1
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

import pygments
from pygments import lexers
from pygments.formatters.html import HtmlFormatter
from pygments.util import ClassNotFound

from wink_workspace._module_lock import ModuleLock

_pygments: Final = cast("Any", pygments)  # its types leave out most parameters
_lexers: Final = cast("Any", lexers)
_OPTIONS: Final = {"stripnl": False, "ensurenl": False}
_LIMIT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 30
_lock: Final = ModuleLock()
_running: list[subprocess.Popen[bytes]] = []


def highlighted(path: str, lines: Sequence[str]) -> list[str]:
    """The markup of the lines of a file; its name decides the language."""
    with _lock.now:
        markup = _answer(json.dumps([path, "\n".join(lines)]))
    found = html.escape("\n".join(lines)) if markup is None else markup
    rows = found.split("\n")[: len(lines)]
    return rows + [""] * (len(lines) - len(rows))


def code_style(name: str) -> str:
    """The rules of a colour scheme for elements of the class ``code``."""
    formatter: Any = HtmlFormatter[str](style=name)
    return str(formatter.get_style_defs(".code"))


def _answer(request: str) -> str | None:
    """The answer of the process, which is started at the first use; ``None`` if it ended."""
    try:
        if not _running:
            _running.append(
                subprocess.Popen(  # noqa: S603 - our own interpreter and module
                    [sys.executable, "-I", "-m", __name__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C in a terminal is not for it
                    cwd="/",
                )
            )
        (process,) = _running
        assert process.stdin is not None  # noqa: S101 - it has pipes
        assert process.stdout is not None  # noqa: S101 - as above
        process.stdin.write(request.encode() + b"\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = b""
    if not line:
        _end()
    return str(json.loads(line)) if line else None


@atexit.register
def _end() -> None:
    while _running:
        with _running.pop() as process:
            process.kill()


def _serve() -> None:
    """Answer each line of the input, a path and a text, with a line of markup."""
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    formatter = HtmlFormatter[str](nowrap=True)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)  # its signal ends the process
        path, text = json.loads(line)
        try:
            lexer = _lexers.get_lexer_for_filename(path, **_OPTIONS)
        except (ClassNotFound, ValueError):
            lexer = _lexers.get_lexer_by_name("text", **_OPTIONS)
        markup: str = _pygments.highlight(text, lexer, formatter)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(markup) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
