"""Text that UTF-8 cannot encode, and line separators in text: no run ends because of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from cli_user import FIX, READ, WIRES, CliUser
from model_server import Call, Turn

from wink_workspace.adapters import load_script
from wink_workspace.errors import ScriptError
from wink_workspace.workspace import RecordedRun

SEPARATED = "one\u2028two\u2029three\x85four"
LATIN_1 = "int a = 1; // caf\xe9\nint b = 2;\n".encode("latin-1")
PATCH = "--- a/g.c\n+++ b/g.c\n@@ -1,2 +1,2 @@\n int a = 1; // x\n-int b = 2;\n+int b = 3;\n"
TURNS = (
    Turn(f"I \ud83d think. {SEPARATED}", (READ, Call("read_file", {"file_path": "g.c"}))),
    Turn("", (Call("read_\ud83d", {"file_path": "g.c"}),)),
    Turn("", (Call("write_file", '{"file_path": "n", "content": "a\\ud83d b"}'),)),
    Turn("", (Call("apply_patch", {"patch": PATCH}), FIX)),
    Turn("Done \ud83d."),
)


@pytest.fixture
def user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliUser]:
    user = CliUser(tmp_path, capsys, monkeypatch)
    (user.source / "g.c").write_bytes(LATIN_1)
    yield user
    user.close()


@pytest.mark.parametrize("model", WIRES[:2])
def test_a_lone_surrogate_ends_no_run_and_reaches_no_request_record_or_screen(
    user: CliUser, model: str
) -> None:
    server = user.serve(*TURNS, Turn("Again."))
    shown = user("run", "Fix \udce9.", "--repo", user.source, "--model", model, "--yes")
    shown += user.err
    shown += user("run", "--repo", user.source, "--resume", "--message", "Go \udcff on", "--yes")
    assert len(server.requests) == len(TURNS) + 1
    asked = json.dumps(server.requests[-1], ensure_ascii=False)
    for text in ("Fix \ufffd.", "I \ufffd think.", "caf\xe9", "Done \ufffd.", "Go \ufffd on"):
        assert text in asked
    assert "lone surrogates" in asked, "an argument is refused, and not changed"
    folder = user.storage.folder(user.workspaces[0])
    shown.encode()
    kept = [user.records(user.workspaces[0]).split("\n")]
    kept += [path.read_text().split("\n") for path in folder.runs.rglob("*.jsonl")]
    kept += [[path.read_text()] for path in folder.runs.rglob("*.json")]
    for text in (asked, *filter(None, chain.from_iterable(kept))):
        json.dumps(json.loads(text), ensure_ascii=False).encode()


def test_a_run_whose_texts_have_line_separators_is_read_again(user: CliUser) -> None:
    user.serve(Turn(SEPARATED, (READ,)), Turn(SEPARATED))
    user.run("--yes")
    server = user.serve(Turn("Again."))
    user("run", "--repo", user.source, "--resume", "--message", SEPARATED, "--yes")
    assert json.dumps(server.requests[0], ensure_ascii=False).count("two\u2029three") == 3
    newest = RecordedRun.newest(user.storage.folder(user.workspaces[0]))
    assert newest is not None
    assert newest.previous is not None
    assert [turn.text for turn in newest.previous.turns()] == [SEPARATED, SEPARATED]


def test_a_script_with_an_escaped_lone_surrogate_is_refused_with_its_line(tmp_path: Path) -> None:
    script = tmp_path / "turns.jsonl"
    script.write_text('{"text": "\\ud83d\\ude00"}\n{"text": "a\\ud83d b"}\n')
    with pytest.raises(ScriptError, match="line 2: text: must be valid Unicode"):
        load_script(script)
