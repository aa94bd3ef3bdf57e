"""The pages as text: what they show, what they refuse, and that no content becomes markup."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from web_support import CANARY, NAME, NOT_UTF_8, PIXEL, SECRET, edit, make_history

from wink_workspace.ledger.store.repository import GitRepository
from wink_workspace.prompt import ToolResult
from wink_workspace.web.application import make_app
from wink_workspace.web.pages import Pages, diff_rows, image_type
from wink_workspace.workspace import (
    RecordedRun,
    RunAbout,
    Workspace,
    WorkspaceReader,
    WorkspaceStorage,
    summaries,
)

History = tuple[WorkspaceStorage, str]
ALLOWED_SCRIPTS = {"/static/htmx.min.js", "/static/ui.js"}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    return make_history(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="module")
def client(history: History) -> TestClient:
    return TestClient(client_app(history[0]))


def client_app(storage: WorkspaceStorage):
    return make_app(Pages(storage, lambda text: text.replace(SECRET, "[redacted]")))[0]


class Markup(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: set[str] = set()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if tag == "script":
            self.scripts.add(given.get("src") or "inline")
        self.handlers += [name for name in given if name.startswith("on")]


def assert_harmless(text: str) -> None:
    found = Markup(text)
    assert found.scripts <= ALLOWED_SCRIPTS
    assert found.handlers == []
    assert "b" not in found.tags
    assert SECRET not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&amp;49" not in text, "a template was evaluated"


def entries(client: TestClient, name: str) -> list[str]:
    return re.findall(r'data-id="([0-9a-f]{40})"', client.get(f"/w/{name}").text)


@pytest.mark.behaviour(149)
def test_no_page_lets_content_become_markup(client: TestClient, history: History) -> None:
    _, name = history
    hostile = quote(NAME.replace("%", "%25").encode())  # the test client decodes twice
    pages = ["/", "/?q=" + quote(CANARY), f"/w/{name}", f"/w/{name}?q=" + quote(CANARY)]
    for entry in entries(client, name):
        pages += [f"/w/{name}?entry={entry}", f"/w/{name}?entry={entry}&view=split"]
        pages += [f"/w/{name}/entry/{entry}", f"/w/{name}/files/{entry}"]
    pages += [f"/w/{name}/files/main/{hostile}", f"/w/{name}/files/main/long.txt"]
    pages += [f"/w/{name}/files/main/binary.bin", f"/w/{name}/compare?from=1&to=main"]
    pages += [f"/w/{name}/compare?from=1&to=main&view=split"]
    for page in pages:
        answer = client.get(page)
        assert answer.status_code == 200, page
        assert_harmless(answer.text)
    shown = client.get(f"/w/{name}/files/main/{hostile}").text
    assert "&lt;script&gt;" in shown


@pytest.mark.parametrize(
    "place",
    [
        *("w/none", "w/%2e%2e", "w/zz", "nothing", "w/{}/entry/1x", "w/{}/entry/" + "0" * 40),
        *("w/{}/entry/999999", "w/{}?entry=no", "w/{}/files/9999", "w/{}/go/?n=x", "w/{}/go/"),
        *("w/{}/rows?after=x", "w/{}/rows?after=~" + "0" * 40, "w/{}/compare?from=1&to=none"),
        *("w/{}/image/1/missing.png", "w/{}/image/main/..%2f..%2fetc%2fpasswd"),
        "w/{}/image/main/" + quote(CANARY),
        "static/../app.py",
    ],
)
def test_what_does_not_exist_gets_a_page_that_says_so(
    client: TestClient, history: History, place: str
) -> None:
    answer = client.get(f"/{place.format(history[1])}")
    assert answer.status_code in (404, 500)
    assert_harmless(answer.text)
    assert "Traceback" not in answer.text
    assert "cannot be shown" in answer.text or place.startswith("static")


def test_a_file_with_a_line_end_in_its_name_is_shown(tmp_path: Path) -> None:
    storage, name = make_history(tmp_path)
    with Workspace.open(name, storage=storage) as workspace:
        edit(workspace, "two\nlines\n.txt\n", "content\n", "odd")
    with TestClient(client_app(storage)) as client:
        shown = client.get(
            f"/w/{name}/files/main/{quote('two' + chr(10) + 'lines' + chr(10))}.txt%0A"
        )
        assert "content" in shown.text
        assert "two lines .txt" in shown.text


def test_a_file_that_does_not_exist_at_an_entry_is_named(
    client: TestClient, history: History
) -> None:
    answer = client.get(f"/w/{history[1]}/files/1/long.txt")
    assert answer.status_code == 200
    assert "long.txt is not a file after entry 1" in answer.text


def test_only_images_are_sent_as_they_are(client: TestClient, history: History) -> None:
    _, name = history
    answer = client.get(f"/w/{name}/image/main/pixel.png")
    assert (answer.content, answer.headers["content-type"]) == (PIXEL, "image/png")
    assert client.get(f"/w/{name}/image/main/app.py").status_code == 415
    assert [image_type(start) for start in (b"<svg ", b"\xff\xd8\xffx", b"RIFF1234WEBP", b"")] == [
        *("", "image/jpeg", "image/webp", ""),
    ]


def test_the_lines_of_a_file_name_the_entries_that_wrote_them(
    client: TestClient, history: History
) -> None:
    _, name = history
    found = client.get(f"/w/{name}/files/try/app.py").text
    writers = re.findall(r'title="([^"]*)">(\d+)</a>', found)
    assert [int(number) for _, number in writers] == [1, 3]
    assert client.get(f"/w/{name}/files/main/{quote(os.fsencode(NOT_UTF_8))}").status_code == 200


def test_the_slider_goes_to_the_entry_with_a_number(client: TestClient, history: History) -> None:
    _, name = history
    answer = client.get(f"/w/{name}/go/app.py?n=1")
    assert answer.status_code == 200
    assert "After entry 1" in answer.text
    assert "&lt;b&gt;" in answer.text


def test_search_finds_tasks_and_entries(client: TestClient, history: History) -> None:
    _, name = history
    assert name in client.get(f"/?q={name[:5].upper()}").text
    assert "No workspace matches" in client.get("/?q=nothing-like-this").text
    found = client.get(f"/w/{name}?q=OTHER").text
    assert found.count('<li class="row') == 1
    assert "No entry matches" in client.get(f"/w/{name}?q=nothing-like-this").text


@pytest.mark.behaviour(150)
def test_pages_of_a_timeline_continue_where_the_one_before_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, name = make_history(tmp_path)
    with Workspace.open(name, storage=storage) as workspace:
        for n in range(5):
            workspace.fork(f"fork-{n}")
            edit(workspace, "n.txt", f"{n}\n", str(n))
    with WorkspaceReader(storage.folder(name)) as reader:
        whole = [(row.entry.id, row.lanes, row.branches) for row in reader.timeline()]
        pages = []
        cursor = ""
        while True:
            row = next(reader.timeline(after=cursor))
            pages.append((row.entry.id, row.lanes, row.branches))
            cursor = row.after
            if not cursor:
                break
        numbers = [reader.entry_of_any_branch(entry).number for entry, _, _ in whole]
    assert pages == whole
    assert numbers == sorted(numbers, reverse=True)
    assert len({entry for entry, _, _ in whole}) == len(whole) == 10
    monkeypatch.setattr("wink_workspace.web.pages.ROWS_PER_PAGE", 4)
    with TestClient(client_app(storage)) as client:
        text, shown = client.get(f"/w/{name}").text, []
        while True:
            shown += re.findall(r'data-id="([0-9a-f]{40})"', text)
            more = re.search(r'hx-get="([^"]*/rows[^"]*)"', text)
            if more is None:
                break
            text = client.get(more[1].replace("&amp;", "&")).text
    assert shown == [entry for entry, _, _ in whole]


def rows_of(text: str) -> list[list[str]]:
    """The words of each row of a timeline, newest first."""
    rows = re.findall(r'<li class="row.*?</li>', text, re.DOTALL)
    return [re.sub(r"<[^>]*>", " ", row).split() for row in rows]


@pytest.mark.behaviour(194)
def test_external_edits_that_follow_each_other_are_one_row_until_each_is_wanted(
    tmp_path: Path,
) -> None:
    storage, name = make_history(tmp_path)
    with Workspace.open(name, storage=storage) as workspace:
        for n in range(3):
            workspace.files.write_text("own.txt", f"{n}\n")
            workspace.commit_edits()
        edit(workspace, "n.txt", "n\n", "n")
        workspace.files.write_text("own.txt", "last\n")
        workspace.commit_edits()
    with TestClient(client_app(storage)) as client:
        folded = rows_of(client.get(f"/w/{name}").text)
        assert [row[1] for row in folded[:4]] == ["9", "8", "5\u20137", "4"]
        assert folded[2][-1] == "external"
        assert "3 external edits" in " ".join(folded[2])
        each = rows_of(client.get(f"/w/{name}?fold=no").text)
        assert [row[1] for row in each[:6]] == ["9", "8", "7", "6", "5", "4"]
        assert "fold=no" in client.get(f"/w/{name}?fold=no").text


@pytest.mark.behaviour(194)
def test_rows_have_the_duration_and_marks_of_calls_and_an_undo_links_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, name = make_history(tmp_path)
    with Workspace.open(name, storage=storage) as workspace:
        with workspace.call("fetch", params={"command": "curl x"}) as call:
            call.files.write_text("x", "x")
            call.tool_result = ToolResult.ok("done", outside_effects=("network: 1 request",))
        undone = workspace.undo()
        fetched = workspace.entry(undone.target or 0)
    with TestClient(client_app(storage)) as client:
        rows = rows_of(client.get(f"/w/{name}").text)
        assert rows[1][-5:-3] == ["sandbox", "network"]
        assert rows[1][-2:] == ["s", "committed"]
        assert (
            f'?entry={fetched.id}">entry {fetched.number}<'
            in client.get(f"/w/{name}/entry/{undone.id}").text
        )
        limit = "wink_workspace.web.pages._MAX_RECORD_BYTES"  # a real one needs a large record
        monkeypatch.setattr(limit, 10)
        assert "sandbox" not in client.get(f"/w/{name}").text


def test_a_row_and_its_entry_have_the_tokens_and_the_words_of_their_turn(tmp_path: Path) -> None:
    """Once for a turn; a call whose id is not unique has none."""
    storage, name = make_history(tmp_path)
    folder = storage.folder(name)
    with Workspace.open(name, storage=storage) as workspace:
        after = workspace.head.number
        run = RecordedRun.begin(folder, RunAbout("Fix it", "m", "none", after))
        for call_id in ("c-1", "c-2", "again", "again"):
            with workspace.call(f"write {call_id}", call_id=call_id) as call:
                call.files.write_text("x", f"{call_id} {workspace.head.number}")
        first = workspace.entry(after + 1).id
    calls = [[{"name": "w", "id": "c-1"}, {"name": "w", "id": "c-2"}]]
    calls += [[{"name": "w", "id": "again"}]] * 2
    usage = {"input_tokens": 1_000, "output_tokens": 234}
    turns = [{"text": f"I see {CANARY}", "tool_calls": each, "usage": usage} for each in calls]
    run.script.write_text("".join(f"{json.dumps(turn)}\n" for turn in turns))
    with TestClient(client_app(storage)) as client:
        rows = rows_of(client.get(f"/w/{name}").text)
        assert ["1,234" in row for row in rows[:4]] == [False, False, False, True]
        entry = client.get(f"/w/{name}/entry/{first}").text
        assert "1,000 tokens in, 234 out" in entry
        assert "I see &lt;script&gt;" in entry
        run.script.write_text("{half")
        assert "tokens" not in client.get(f"/w/{name}").text


def test_the_list_counts_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, name = make_history(tmp_path)
    client = TestClient(client_app(storage))
    (row,) = re.findall(r'<tr class="row">.*?</tr>', client.get("/").text, re.DOTALL)
    n_changes, size = re.findall(r'<td class="n">([^<]*)</td>', row)
    assert (n_changes, size.endswith("+")) == ("3", False)
    for limit in ("_MOST_CHANGES", "_MOST_FILES"):  # real ones need thousands of files
        monkeypatch.setattr(summaries, limit, 2)
    (row,) = re.findall(r'<tr class="row">.*?</tr>', client.get("/").text, re.DOTALL)
    n_changes, size = re.findall(r'<td class="n">([^<]*)</td>', row)
    assert (n_changes, size.endswith("+")) == ("2+", True)
    assert "to apply" in row
    exact = summaries.summary_of(storage, storage.folder(name).info())
    assert (exact.n_changes, exact.has_more_changes, exact.has_more_bytes) == (3, False, False)


@pytest.mark.behaviour(195)
def test_a_page_reads_as_much_of_a_long_history_as_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wink_workspace.web.pages.ROWS_PER_PAGE", 20)
    storage, name = make_history(tmp_path)
    n_reads: list[int] = []
    read = GitRepository.read

    def counted(self: GitRepository, object_id: str) -> tuple[str, bytes]:
        n_reads[-1] += 1
        return read(self, object_id)

    monkeypatch.setattr(GitRepository, "read", counted)
    found: list[tuple[int, int]] = []
    with TestClient(client_app(storage)) as client:
        for n_more in (40, 400):
            n_reads.append(0)
            with Workspace.open(name, storage=storage) as workspace:
                for n in range(n_more):
                    edit(workspace, "n.txt", f"{n}\n", str(n))
                newest = workspace.head.id
            for place in (f"/w/{name}", f"/w/{name}/entry/{newest}"):
                n_reads.append(0)
                assert client.get(place).status_code == 200
            found.append((n_reads[-2], n_reads[-1]))
    assert found[0] == found[1]
    assert found[0][0] > 20


def test_side_by_side_puts_changed_lines_beside_each_other() -> None:
    lines = [
        "diff --git a/x b/x",
        "--- a/x",
        "+++ b/x",
        "@@ -1,3 +1,3 @@",
        " a",
        "--- b",
        "+++ c",
        "+d",
    ]
    lines += ["\\ No newline at end of file", "diff --git a/y b/y"]
    rows = [(row.kind, row.old, row.new) for row in diff_rows(lines, side_by_side=True)]
    assert rows[4:8] == [
        ("same", "a", "a"),
        ("both", "-- b", "++ c"),
        ("add", "", "d"),
        ("head", lines[-2], lines[-2]),
    ]
    assert [row[0] for row in rows[:4]] == ["head"] * 4
    plain = [(row.kind, row.old or row.new) for row in diff_rows(lines, side_by_side=False)]
    assert plain[5:8] == [("del", "-- b"), ("add", "++ c"), ("add", "d")]


def test_a_damaged_workspace_gets_a_page_and_the_list_stays(tmp_path: Path) -> None:
    storage, name = make_history(tmp_path)
    head = storage.folder(name).ledger / "refs/heads/main"
    head.write_text("0" * 40 + "\n")
    with TestClient(client_app(storage)) as client:
        answer = client.get(f"/w/{name}")
        assert answer.status_code in (404, 500)
        assert "cannot be shown" in answer.text
        assert "damaged" in client.get("/").text
