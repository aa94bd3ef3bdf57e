"""``report``: one page with every call, in which nothing of a workspace becomes markup."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from wink_workspace import Prompt, VfsToolsSection
from wink_workspace.adapters import ModelTurn, ScriptedAdapter, ScriptRecorder
from wink_workspace.cli import main
from wink_workspace.clock import TokenUsage
from wink_workspace.runtime import ToolCall
from wink_workspace.workspace import RecordedRun, RunAbout, Workspace, WorkspaceStorage

SECRET = 'correct-"horse"-battery\\staple'
HOSTILE = (
    "<script>document.title='owned'</script><img src=http://192.0.2.1/x onerror=alert(1)>"
    "</pre></details>&amp;{{ 7 * 7 }} \x1b[31mred\x1b[0m \u202eright-to-left\u202c nul:\x00 \x7f"
)
LONG = "x" * 50_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run with hostile texts, a failed call and an undo."""
    root = tmp_path_factory.mktemp("report")
    (root / "source").mkdir()
    (root / "source" / "app.py").write_text("print('helo')\n")
    storage = WorkspaceStorage(root / "state" / "wink-workspace")
    prompt = Prompt[None](ns="tests", key="report", sections=[VfsToolsSection()])
    calls = [
        ToolCall.of("read_file", {"file_path": "app.py"}, id="c1"),
        ToolCall.of(
            "edit_file",
            {"file_path": "app.py", "old_string": "helo", "new_string": "hello"},
            id="c2",
        ),
        ToolCall.of("read_file", {"file_path": f"missing {HOSTILE[:60]}"}, id="c3"),
        ToolCall.of("write_file", {"file_path": "h.html", "content": HOSTILE[:-6]}, id="c4"),
        ToolCall.of("write_file", {"file_path": "s.txt", "content": f"a = {SECRET}\n"}, id="c5"),
        ToolCall.of("write_file", {"file_path": "long.txt", "content": LONG}, id="c6"),
        ToolCall.of("no_such_tool", {"nul": HOSTILE}, id="c7"),
    ]
    with Workspace.create(root / "source", storage=storage) as workspace:
        about = RunAbout(f"Fix <b>it</b>, with {SECRET}", "test:model", "none", 1)
        run = RecordedRun.begin(storage.folder(workspace.info.id), about)
        turns = [
            ModelTurn("I <i>read</i> first.", calls, TokenUsage(12_345, 67)),
            ModelTurn("Done & dusted.", (), TokenUsage(1, 2)),
        ]
        prompt.bind(resources=workspace.resources)
        recorder = ScriptRecorder(ScriptedAdapter(turns), run.script)
        recorder.evaluate(prompt, session=workspace.session)
        workspace.undo()
        which = workspace.info.id
    command = [
        sys.executable,
        "-c",
        "import sys; from wink_workspace.cli import main; sys.exit(main())",
    ]
    kept = {k: v for k, v in os.environ.items() if k.startswith(("COVERAGE", "PYTHON", "PATH"))}
    done = subprocess.run(
        [*command, "report", which],
        env={**kept, "XDG_STATE_HOME": str(root / "state"), "HOME": str(root), "MY_KEY": SECRET},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode("utf-8")


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


@pytest.mark.behaviour(133)
def test_b973_page_shows_every_call_with_outcome_arguments_output_diff_and_tokens(
    page: str,
) -> None:
    assert page.count("<details") == 9, "the import, seven calls and an undo"
    assert page.count('"outcome committed"') == 5
    assert page.count('"outcome rolled-back"') == 2
    for text in (
        "print(&#39;helo&#39;)", "file_path: app.py", "new_string: hello", "12,345 tokens in, 67 out",
        "There is no tool named", "I &lt;i&gt;read&lt;/i&gt; first.",
        "Done &amp; dusted.", '<span class="add">+print(&#39;hello&#39;)</span>',
        '<span class="del">-print(&#39;helo&#39;)</span>', "test:model",
    ):  # fmt: skip
        assert text in page, text


@pytest.mark.behaviour(134)
def test_b974_page_has_no_script_loads_nothing_and_escapes_all_content(page: str) -> None:
    elements = Elements()
    elements.feed(page)
    assert elements.tags.isdisjoint({"script", "img", "link", "iframe", "a", "i", "b", "object"})
    assert elements.attributes <= {
        "lang", "charset", "http-equiv", "content", "name", "class", "id",
    }  # fmt: skip
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)
    text = html.unescape(page)
    assert r"\u001b[31mred" in text
    assert r"\u202eright-to-left" in text
    assert "{{ 7 * 7 }}" in text
    assert "nul:" in text
    assert max(map(len, text.splitlines())) < 10_000
    assert "more characters in this line" in text


@pytest.mark.behaviour(134)
def test_b974_page_contains_no_secret_in_any_encoding_that_it_uses(page: str) -> None:
    for form in (SECRET, html.escape(SECRET), SECRET.replace("\\", "\\\\"), "battery"):
        assert form not in page
        assert form not in html.unescape(page)
    assert page.count("[MY_KEY]") >= 3, "the task, the arguments and the diff"


@pytest.mark.behaviour(134)
def test_b974_browser_shows_the_page_without_running_anything(page: str, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing")
        pytest.skip("chromium is not installed; scripts/setup installs it")
    (tmp_path / "run.html").write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            (tmp_path / "run.html").as_uri(),
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=120,
    )  # fmt: skip
    dom = done.stdout.decode()
    assert re.search(r"<title>Workspace [0-9a-f]+</title>", dom), "no script changed the title"
    assert dom.count("<details") == 9
    assert "<script" not in dom
    assert "<img" not in dom
    assert "print('hello')" in dom


def test_report_without_its_library_names_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for name in ("wink_workspace.report", "wink_workspace.report.reported"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.with_name("state")))
    assert main(["new", "."]) == 0
    assert main(["report"]) == 2
    assert "wink-workspace[report]" in capsys.readouterr().err
