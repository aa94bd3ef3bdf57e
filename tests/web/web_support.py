"""A workspace with a history that tries to become markup."""

from __future__ import annotations

import base64
import http.client
import os
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from model_server import ModelServer, Step

from wink_workspace.attempts import AttemptContext, Attempts, LocalEngine, Score
from wink_workspace.clock import TokenUsage
from wink_workspace.workspace import Workspace, WorkspaceStorage

CANARY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
HOSTILE = f"{CANARY}</pre></td>&amp;{{{{ 7 * 7 }}}} \x1b[31mred\x1b[0m \u202ertl\u202c \x00\x7f"
SECRET = "correct-horse-battery-staple"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NAME = "<b onclick=x>&'\"#?%41 \u202e.py"
NOT_UTF_8 = os.fsdecode(b"caf\xe9.txt")


def make_history(directory: Path) -> tuple[WorkspaceStorage, str]:
    """A workspace with two branches, hostile names, contents and results; its storage and id."""
    source = directory / "source"
    source.mkdir()
    (source / "app.py").write_text("import os\n\n\ndef f(x):\n    return '<b>' + x\n")
    (source / "pixel.png").write_bytes(PIXEL)
    (source / NOT_UTF_8).write_bytes(b"caf\xe9\n")
    (source / "binary.bin").write_bytes(bytes(range(256)))
    storage = WorkspaceStorage(directory / "state" / "wink-workspace")
    with Workspace.create(source, storage=storage) as workspace:
        name = workspace.info.id
        edit(workspace, "app.py", "import os\n\n\ndef f(x):\n    return '<i>' + x\n", "first")
        workspace.fork("try")
        edit(workspace, NAME, f"# {HOSTILE}\nx = '{CANARY}'\n", f"{HOSTILE} {SECRET}")
        edit(workspace, "long.txt", "x" * 1_000_000 + "\n", "long")
    with Workspace.open(name, storage=storage, branch="try") as workspace:
        edit(workspace, "app.py", "import os\n\n\ndef f(x):\n    return x\n", "other")
    return storage, name


def edit(workspace: Workspace, path: str, content: str, result: str) -> None:
    """One committed call."""
    with workspace.call(f"edit {result}", params={"path": path, "content": content}) as call:
        call.files.write_text(path, content)
        call.result(result)


def attempt(context: AttemptContext) -> None:
    """Spend some tokens and write the number of the attempt; the fourth one fails."""
    usage = TokenUsage(input_tokens=1_000 * context.number, output_tokens=10)
    with context.budget.turn() as turn:
        turn.record(usage)
    with context.workspace.call(f"try {context.number}") as call:
        call.files.write_text("attempt.txt", f"{context.number}\n{CANARY}\n")
        call.result("written")
    if context.number == 4:
        raise ValueError(CANARY)


def score(fork: Workspace) -> Score:
    """The number that the attempt wrote; the third one passes."""
    number = int(fork.files.read_bytes("attempt.txt").split()[0])
    return Score(number / 10, passed=number == 3, detail=f"{number} {HOSTILE} {SECRET}")


def attempts_of(workspace: Workspace) -> Attempts:
    """Five attempts that were not begun."""
    return Attempts(workspace, n=5, seed=1, about={"task": HOSTILE}, engine=LocalEngine(workers=1))


_RUNS = "document.title='owned'"
_ATTACKS = [
    *(f"<script>{_RUNS}</script>", f"<img src=x onerror={_RUNS}>", f"<svg onload={_RUNS}>"),
    *(f'" onmouseover="{_RUNS}" autofocus onfocus="{_RUNS}', f"' onload='{_RUNS}", "</pre>"),
    *("</textarea>", "</title>", "</script>", "<!--", "-->", "<![CDATA[", "]]>", "<base href=//x>"),
    *("{{ 7 * 7 }}", "{% raw %}", "{# x #}", "${7*7}", "&lt;script&gt;", "&#60;b&#62;", "&amp;"),
    *(f"javascript:{_RUNS}", "data:text/html,<b>", f'<iframe srcdoc="<script>{_RUNS}</script>">'),
    *(f"<a href=javascript:{_RUNS}>", "<form action=/w/x/move method=post><button autofocus>"),
    *(f'<x hx-get="/" hx-trigger="load" hx-on:load="{_RUNS}">', "<meta http-equiv=refresh>"),
    *("\x1b[31m", "\x1b]0;owned\x07", "\x1b[2J", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028"),
    *("\x00", "\x7f", "\x85", "\r", "\t", "\ud800", "\U000e0041", "\n@@ -1 +1 @@\n", "\n+++ b/x\n"),
    *("\ndata: x\n\nevent: line\n", "%3Cscript%3E", "\\u003cscript\\u003e", "x" * 3_000),
]


def fuzzed_places(storage: WorkspaceStorage, name: str, *, n: int, seed: int) -> Iterator[str]:
    """Make *n* // 5 entries of random attacks; the places of *n* pages that show them."""
    chance = random.Random(seed)

    def text(n_parts: int) -> str:
        return "".join(chance.choice(_ATTACKS) for _ in range(n_parts))

    def file_name() -> str:
        unsafe = text(2).translate({0: None, ord("/"): "|", 0xD800: None})
        return (unsafe.encode()[:200].decode("utf-8", "ignore").strip(". ") or "x") + ".py"

    with Workspace.open(name, storage=storage) as workspace:
        for n_entry in range(n // 5):
            path, content = file_name(), text(8).encode("utf-8", "surrogatepass")
            content += b"y" * 10_000_000 if n_entry == 0 else b""
            with workspace.call(text(3)[:200] or "x", params={text(2): text(4)}) as call:
                call.files.write_bytes(path, content)
                call.result(text(6))
            url = quote(path.encode())
            yield f"/w/{name}?entry={workspace.head.id}"
            yield f"/w/{name}?entry={workspace.head.id}&view=split&q={quote(text(1), errors='replace')}"
            yield f"/w/{name}/files/{workspace.head.id}/{url}"
            yield f"/w/{name}/compare?from={workspace.head.id}&to=1&view={quote(file_name())}"
            yield f"/w/{name}/files/{workspace.head.id}"


class HeldModel(ModelServer):
    """A model that answers at once, or after ``hold`` only when it is released."""

    def __init__(self, *steps: Step) -> None:
        super().__init__(*steps)
        self._may_answer = threading.Event()
        self._may_answer.set()

    def hold(self) -> None:
        self._may_answer.clear()

    def release(self) -> None:
        self._may_answer.set()

    def take(self, asked: dict[str, Any], headers: dict[str, str]) -> tuple[int, Step]:
        self._may_answer.wait(60)
        return super().take(asked, headers)

    def __exit__(self, *_: object) -> None:
        self.release()
        super().__exit__()


@dataclass
class Server:
    """A process that serves the pages, a browser's cookie for it, and where its link leads."""

    process: subprocess.Popen[str]
    host: str
    cookie: str
    start: str

    def send(self, place: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        """The status and the body of an answer, on a connection of its own."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.host}"}
        try:
            if form is None:
                connection.request("GET", place, headers=headers)
            else:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                connection.request("POST", place, urlencode(form), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def form_token(self, workspace: str) -> str:
        """The token of the forms of a page."""
        found = re.search(r'name="token" value="([^"]*)"', self.send(f"/w/{workspace}")[1])
        assert found
        return found[1]


@contextmanager
def serving(
    storage: WorkspaceStorage, *arguments: str, variables: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """The command ``ui --write``, with more *variables*; it is killed at the end."""
    home = str(storage.state_dir.parent)
    process = subprocess.Popen(
        [Path(sys.prefix, "bin", "wink-workspace"), "ui", "--write", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": home, "XDG_STATE_HOME": home, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout
        with process.stdout:
            link = process.stdout.readline().strip()
        host, _, place = link.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", f"/{place}")
        answer = connection.getresponse()
        answer.read()
        connection.close()
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        yield Server(process, host, cookie, answer.headers["Location"])
    finally:
        process.kill()
        process.wait()
