"""A workspace with a history that tries to become markup."""

from __future__ import annotations

import base64
import os
from pathlib import Path

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
