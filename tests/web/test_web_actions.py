"""The forms of the pages: what they show is what they do, through the checks of a real request."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from web_support import SECRET, edit

from wink_workspace.clock import ManualClock
from wink_workspace.web.actions import Actions
from wink_workspace.web.application import make_app
from wink_workspace.web.browser_sessions import AccessGuard
from wink_workspace.web.pages import Pages
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage

ADDRESS = "127.9.8.7:4321"
LINES = [f"line {n}\n" for n in range(40)]


@dataclass
class WritableSite:
    """A workspace, and a browser that may change it."""

    storage: WorkspaceStorage
    name: str
    source: Path
    browser: TestClient

    def open(self, branch: str = "main") -> Workspace:
        return Workspace.open(self.name, storage=self.storage, branch=branch)

    def files(self, branch: str = "main") -> dict[str, bytes]:
        with self.open(branch) as workspace:
            paths = [str(path) for path in workspace.files.glob("*").paths]
            return {path: workspace.files.read_bytes(path) for path in paths}

    def post(self, place: str, /, **fields: str) -> tuple[int, str]:
        """Send a form with the token; the status and the page."""
        return self.send(place, {"branch": "main", **fields, "token": "form-token"})

    def send(self, place: str, fields: Mapping[str, str]) -> tuple[int, str]:
        answer = self.browser.post(f"/w/{self.name}/{place}", data=dict(fields))
        if answer.status_code == 303:
            assert self.browser.get(answer.headers["location"]).status_code == 200
        return answer.status_code, answer.text


def fields_of(page: str) -> dict[str, str]:
    """What a browser sends for the confirming form of a page, nothing changed in it."""
    form = page[page.index("<main>") :]
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        given = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if given.get("type") != "checkbox" or " checked" in tag:
            found[unescape(given["name"])] = unescape(given.get("value", "on"))
    return found


@pytest.fixture
def site(tmp_path: Path) -> WritableSite:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("".join(LINES))
    (source / "b.txt").write_text("b\n")
    storage = WorkspaceStorage(tmp_path / "state" / "wink-workspace")
    with Workspace.create(source, storage=storage) as workspace:
        name = workspace.info.id
        changed = ["first\n", *LINES[1:-1], "last\n"]
        edit(workspace, "a.txt", "".join(changed), "two hunks")
        edit(workspace, "b.txt", "B\n", "another file")
    pages = Pages(storage, lambda text: text.replace(SECRET, "[redacted]"))

    def open_workspace(name: str) -> Workspace:
        workspace, _, branch = name.partition("/")
        return Workspace.open(workspace, storage=storage, branch=branch or "main")

    app, _ = make_app(pages, actions=Actions(pages, open_workspace), form_token="form-token")
    guard = AccessGuard(app, ManualClock(), form_token="form-token")
    guard.address = ADDRESS
    headers = {"origin": f"http://{ADDRESS}"}
    browser = TestClient(
        guard,
        base_url=f"http://{ADDRESS}",
        headers=headers,
        client=("127.0.0.1", 5),
        follow_redirects=False,
    )
    browser.get(guard.link())
    return WritableSite(storage, name, source, browser)


def shown_diff(page: str) -> str:
    found = re.search(r'<pre class="diff">(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    lines = re.findall(r"<span[^>]*>(.*?)</span>", found[1], re.DOTALL)
    return "".join(f"{unescape(line)}\n" for line in lines)


@pytest.mark.behaviour(172)
@pytest.mark.parametrize("action", ["undo", "redo", "restore", "merge"])
def test_the_preview_equals_what_the_action_does(site: WritableSite, action: str) -> None:
    with site.open() as workspace:
        first = workspace.entry(1).id
        if action == "redo":
            workspace.undo()
        workspace.fork("try")
    with site.open("try") as workspace:
        edit(workspace, "c.txt", "c\n", "on the fork")
    status, page = site.post("preview", action=action, entry=first, other="try")
    assert status == 200
    before = site.files()
    status, _ = site.send("move", fields_of(page))
    assert status == 303
    with WorkspaceReader(site.storage.folder(site.name)) as reader:
        assert shown_diff(page) == reader.review_of(reader.head).text()
        assert reader.head.kind.value == action
    assert site.files() != before


@pytest.mark.behaviour(172)
def test_an_action_is_refused_if_the_workspace_changed_since_it_was_shown(
    site: WritableSite,
) -> None:
    _, page = site.post("preview", action="undo")
    with site.open() as workspace:
        edit(workspace, "c.txt", "c\n", "meanwhile")
    before = site.files()
    status, answer = site.send("move", fields_of(page))
    assert status == 409
    assert "Nothing was changed" in answer
    assert "changed since its changes were shown" in answer
    assert site.files() == before


@pytest.mark.behaviour(172)
def test_edits_outside_of_calls_are_kept_and_shown_before_an_undo(site: WritableSite) -> None:
    _, page = site.post("preview", action="undo")
    with site.open() as workspace:
        workspace.files.write_text("own.txt", "mine\n")
    assert site.send("move", fields_of(page))[0] == 409
    _, page = site.post("preview", action="undo")
    assert site.send("move", fields_of(page))[0] == 303
    assert site.files()["own.txt"] == b"mine\n"
    assert site.files()["b.txt"] == b"b\n"


@pytest.mark.behaviour(173)
@pytest.mark.share(4)
@pytest.mark.parametrize(
    ("cleared", "wanted"),
    [
        ((), ("first", "last", "B")),
        (("file.0",), ("line 0", "line 39", "B")),
        (("file.1",), ("first", "last", "b")),
        (("hunk.0.0",), ("line 0", "last", "B")),
        (("hunk.0.1", "file.1"), ("first", "line 39", "b")),
        (("hunk.0.0", "hunk.0.1"), ("line 0", "line 39", "B")),
        (("hunk.1.0",), ("first", "last", "b")),
    ],
)
def test_exactly_the_chosen_files_and_hunks_are_applied(
    site: WritableSite, cleared: tuple[str, ...], wanted: tuple[str, str, str]
) -> None:
    _, page = site.post("choose", target="worktree")
    form = fields_of(page)
    assert set(cleared) <= set(form)
    status, answer = site.send("apply", {k: v for k, v in form.items() if k not in cleared})
    assert status == 200, answer
    first, last, b = wanted
    lines = (site.source / "a.txt").read_text().splitlines()
    assert (lines[0], lines[-1]) == (first, last)
    assert lines[1:-1] == [line.rstrip() for line in LINES[1:-1]]
    assert (site.source / "b.txt").read_text() == f"{b}\n"
    _, rest = site.post("choose", target="worktree")
    site.send("apply", fields_of(rest))
    assert (site.source / "a.txt").read_text().startswith("first\n")
    assert (site.source / "b.txt").read_text() == "B\n"


@pytest.mark.behaviour(173)
def test_nothing_is_applied_if_nothing_is_chosen_or_the_source_changed(site: WritableSite) -> None:
    _, page = site.post("choose", target="worktree")
    form = fields_of(page)
    none = {name: value for name, value in form.items() if not name.startswith("file.")}
    assert site.send("apply", none)[0] == 409
    (site.source / "b.txt").write_text("other\n")
    status, answer = site.send("apply", form)
    assert status == 409
    assert "b.txt" in answer
    assert (site.source / "a.txt").read_text() == "".join(LINES)


def test_changes_are_applied_to_a_new_git_branch(site: WritableSite) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(
            command, cwd=site.source, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "start")
    _, page = site.post("choose", target="branch")
    status, answer = site.send("apply", {**fields_of(page), "name": "from-page"})
    assert status == 200, answer
    assert git("show", "from-page:b.txt") == "B\n"
    assert (site.source / "b.txt").read_text() == "b\n"


def test_a_fork_begins_at_an_entry_also_while_another_process_has_the_workspace_open(
    site: WritableSite,
) -> None:
    with site.open() as workspace:
        first = workspace.entry(1).id
        assert site.post("fork", name="early", entry=first)[0] == 303
    assert site.files("early")["b.txt"] == b"b\n"
    assert site.post("fork", name="again", entry=first)[0] == 303
    status, answer = site.post("fork", name="again", entry=first)
    assert (status, "again" in answer) == (409, True)


def test_a_page_says_who_has_the_workspace_open_and_what_to_do(site: WritableSite) -> None:
    with site.open():
        for action in ("preview", "choose"):
            status, answer = site.post(action, action="undo", target="worktree")
            assert status == 409
            assert "in use by" in answer
            assert "Nothing was changed" in answer


def test_a_conflict_is_shown_by_hunk_and_changes_nothing(site: WritableSite) -> None:
    with site.open() as workspace:
        workspace.files.write_text("b.txt", "mine\n")
    status, answer = site.post("preview", action="undo")
    assert status == 409
    assert "mine" in answer
    assert site.files()["b.txt"] == b"mine\n"


@pytest.mark.share(5)
@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("preview", {"action": "format"}),
        ("preview", {}),
        ("preview", {"action": "undo", "branch": "none"}),
        ("preview", {"action": "undo", "branch": "../main"}),
        ("preview", {"action": "restore", "entry": "f" * 40}),
        ("preview", {"action": "merge", "other": "main"}),
        ("preview", {"action": "redo"}),
        ("fork", {"name": "x", "entry": "0" * 40}),
        ("fork", {"name": "../x", "entry": "main"}),
        ("apply", {"base": "x", "wanted": "y", "file.0": "on"}),
        ("move", {"action": "undo", "after": "x", "files": "y"}),
    ],
)
def test_a_form_with_wrong_fields_changes_nothing(
    site: WritableSite, action: str, fields: dict[str, str]
) -> None:
    before = site.files()
    status, answer = site.post(action, **fields)
    assert status == 409
    assert "Nothing was changed" in answer
    assert "Traceback" not in answer
    assert site.files() == before
    assert (site.source / "b.txt").read_text() == "b\n"


def test_a_merge_without_changes_says_that_there_is_nothing(site: WritableSite) -> None:
    with site.open() as workspace:
        workspace.fork("same")
    assert "Nothing to merge" in site.post("preview", action="merge", other="same")[1]


def test_pages_that_only_read_have_no_form_that_writes(site: WritableSite) -> None:
    reading = TestClient(make_app(Pages(site.storage, str))[0])
    for page in (f"/w/{site.name}", f"/w/{site.name}?entry=main"):
        assert 'method="post"' not in reading.get(page).text
        assert 'method="post"' in site.browser.get(page).text
    assert reading.post(f"/w/{site.name}/preview").status_code == 404


def test_very_many_changes_are_left_to_the_command(
    site: WritableSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = "wink_workspace.web.actions._MAX_HUNK_CHARS"  # the real limits need very many files
    monkeypatch.setattr(limits, 10)
    page = site.post("choose", target="worktree")[1]
    form = fields_of(page)
    assert not [name for name in form if name.startswith("hunk.")]
    monkeypatch.setattr("wink_workspace.web.actions._MAX_FILES", 1)  # as above
    status, answer = site.post("choose", target="worktree")
    assert (status, "wink-workspace apply" in answer) == (409, True)
    assert site.send("apply", form)[0] == 200
    assert (site.source / "b.txt").read_text() == "B\n"
