"""The pages in Debian's chromium, served by the command, on a history that tries to run scripts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.request import url2pathname

import pytest
import random_cases
from browser import AXE, serious_findings
from cli_user import ANTHROPIC
from model_server import Turn
from playwright.sync_api import Page, Route, expect, sync_playwright
from web_support import (
    HOSTILE,
    NAME,
    HeldModel,
    attempt,
    attempts_of,
    edit,
    fuzzed_places,
    make_history,
    score,
)

from wink_workspace.workspace import (
    RecordedRun,
    RunAbout,
    Workspace,
    WorkspaceReader,
    WorkspaceStorage,
)
from wink_workspace.workspace.runs.live_runs import CallBegan, CallOutput, PublishedRun

pytestmark = pytest.mark.xdist_group("browser")

SIZES = [(360, 740), (1_280, 800), (1_920, 1_080)]


@dataclass
class Site:
    """A server that runs, and a page of a browser that has opened its link."""

    storage: WorkspaceStorage
    workspace: str
    address: str
    page: Page
    process: subprocess.Popen[str]
    problems: list[str]
    requested: set[str]
    model: HeldModel


@pytest.fixture(scope="module")
def model() -> Iterator[HeldModel]:
    with HeldModel() as server:
        yield server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, model: HeldModel) -> Iterator[Site]:
    chromium = shutil.which("chromium")
    if chromium is None:
        if os.environ.get("CI"):
            pytest.fail("chromium is missing")
        pytest.skip("chromium is not installed; scripts/setup installs it")
    root = tmp_path_factory.mktemp("site")
    storage, name = make_history(root)
    command = [Path(sys.prefix, "bin", "wink-workspace"), "ui", "--write", "--open"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "XDG_STATE_HOME": f"{root}/state"}
    environment |= model.variables | {"BROWSER": "echo %s"}  # it gets a file that leads to the link
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    opened_page = process.stdout.readline().strip()
    file = Path(url2pathname(opened_page.removeprefix("file://")))
    assert file.stat().st_mode & 0o777 == 0o600
    (address,) = re.findall(r"url=(http://[0-9.:]+)/", file.read_text())
    problems: list[str] = []
    requested: set[str] = set()
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
            page = browser.new_page()
            page.on("console", lambda message: problems.append(message.text))
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("dialog", lambda dialog: problems.append(dialog.message))
            page.goto(opened_page)
            page.wait_for_url(f"{address}/")
            page.on("request", lambda request: requested.add(request.url))
            yield Site(storage, name, address, page, process, problems, requested, model)
            browser.close()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        process.stdout.close()


@pytest.fixture
def page(site: Site) -> Iterator[Page]:
    """The page; nothing may have gone wrong on it, and it may have asked only its own server."""
    site.problems.clear()
    yield site.page
    assert site.problems == []
    assert all(url.startswith(f"{site.address}/") for url in site.requested)
    assert site.page.title() != "owned"


def opened(site: Site, place: str = "") -> Page:
    site.page.goto(f"{site.address}/w/{site.workspace}{place}")
    return site.page


@pytest.mark.behaviour(151)
def test_a_person_finds_an_entry_by_keys_and_reads_it(site: Site, page: Page) -> None:
    page.goto(f"{site.address}/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#live")).to_have_text("live")
    for _ in range(3):
        page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("#detail h3").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?entry=[0-9a-f]{40}$"))
    expect(page.locator('.rows a[aria-current="true"]')).to_have_count(1)
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.locator("#search").blur()
    page.keyboard.press("u")
    expect(page).to_have_title("Workspaces")


@pytest.mark.behaviour(149)
def test_hostile_names_and_contents_are_shown_as_text(site: Site, page: Page) -> None:
    opened(site, "/files/main")
    page.get_by_role("link", name=re.compile("onclick=x")).click()
    expect(page.locator("table.code")).to_contain_text("<script>document.title='owned'</script>")
    expect(page).to_have_title(re.compile(re.escape("<b onclick=x>&'\"#?%41 \\u202e.py")))
    assert "\u202e" in NAME
    opened(site)
    for n in range(page.locator("li.row a").count()):
        number = page.locator("li.row .number").nth(n).inner_text()
        page.locator("li.row a").nth(n).click()
        expect(page.locator("#detail h2 .number")).to_have_text(number)
    expect(page.locator("#detail img")).to_have_count(0)


@pytest.mark.behaviour(151)
def test_a_new_entry_appears_while_the_page_is_open(site: Site, page: Page) -> None:
    """There are more rows than the newest ones, for which the page asks."""
    with Workspace.open(site.workspace, storage=site.storage) as workspace:
        for n in range(60):
            edit(workspace, "live.txt", f"{n}\n", "before it is open")
    opened(site)
    expect(page.locator("#live")).to_have_text("live")
    n_rows = page.locator("li.row").count()
    with Workspace.open(site.workspace, storage=site.storage) as workspace:
        edit(workspace, "live.txt", "live\n", "while it is open")
    expect(page.locator("li.row")).to_have_count(n_rows + 1)
    expect(page.locator("li.row").first).to_contain_text("while it is open")
    expect(page.locator("li.row").first.locator(".branch")).to_have_text("main")
    expect(page.locator("li.row").nth(1).locator(".branch")).to_have_count(0)
    ids = [row.get_attribute("data-id") for row in page.locator("li.row").all()]
    assert len(set(ids)) == len(ids)
    expect(page.locator("li.more")).to_have_count(0)


@pytest.mark.behaviour(151)
def test_a_new_entry_appears_though_the_server_failed_once(site: Site, page: Page) -> None:
    opened(site)
    expect(page.locator("#live")).to_have_text("live")
    page.route("**/rows*", lambda route: route.fulfill(status=500), times=1)
    with Workspace.open(site.workspace, storage=site.storage) as workspace:
        edit(workspace, "live.txt", "after a failure\n", "after a failure")
    expect(page.locator("li.row").first).to_contain_text("after a failure")
    assert len(site.problems) == 1
    assert "500" in site.problems.pop()


def test_a_slider_goes_back_in_time_and_an_image_is_shown(site: Site, page: Page) -> None:
    opened(site, "/files/main/app.py")
    expect(page.locator("table.code")).to_contain_text("'<i>'")
    page.locator("#n").fill("1")
    page.locator("#n").dispatch_event("change")
    expect(page.locator("main")).to_contain_text("After entry 1:")
    expect(page.locator("table.code")).to_contain_text("'<b>'")
    opened(site, "/files/main/pixel.png")
    assert page.locator("main img").evaluate("image => image.naturalWidth") == 1


@pytest.mark.behaviour(172)
def test_a_person_undoes_a_call_after_seeing_what_changes(site: Site, page: Page) -> None:
    with Workspace.open(site.workspace, storage=site.storage) as workspace:
        edit(workspace, "undone.txt", "to be undone\n", "for the undo")
    opened(site)
    page.get_by_role("button", name="Undo…").click()
    expect(page.locator("pre.diff")).to_contain_text("-to be undone")
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.locator("#detail h2")).to_contain_text("undo of entry")
    with WorkspaceReader(site.storage.folder(site.workspace)) as reader:
        assert page.locator("pre.diff").inner_text().replace("\n", "") == (
            reader.review_of(reader.head).text().replace("\n", "")
        )


@pytest.mark.behaviour(173)
@pytest.mark.parametrize("scripts", ["held-back", "as-usual"])
def test_a_cleared_box_is_not_applied_though_the_scripts_ran_later(
    site: Site, page: Page, scripts: str
) -> None:
    """The box is cleared before any script of the page has run."""
    wanted, cleared = f"{scripts}-wanted.txt", f"{scripts}-cleared.txt"
    with Workspace.open(site.workspace, storage=site.storage) as workspace:
        edit(workspace, wanted, "wanted\n", wanted)
        edit(workspace, cleared, "cleared\n", cleared)
    held: list[Route] = []
    opened(site)
    if scripts == "held-back":
        page.route("**/static/*.js", lambda route: held.append(route))
    page.get_by_role("button", name="Apply…", exact=True).click(no_wait_after=True)
    file = page.locator("fieldset", has_text=cleared)
    file.locator("input.whole").uncheck()
    expect(file.locator(".hunks")).to_be_hidden()
    assert bool(held) is (scripts == "held-back")
    for route in held:
        route.continue_()
    page.unroute_all(behavior="wait")
    page.wait_for_load_state("load")
    expect(file.locator("input.whole")).not_to_be_checked()
    page.get_by_role("button", name="Apply the chosen changes").click()
    expect(page.locator("h1")).to_contain_text("applied")
    source = Path(site.storage.folder(site.workspace).info().source)
    assert (source / wanted).exists()
    assert not (source / cleared).exists()


@pytest.mark.behaviour(185)
def test_attempts_appear_while_the_page_is_open(site: Site, page: Page) -> None:
    with Workspace.open(site.workspace, storage=site.storage) as workspace:
        running = attempts_of(workspace).run(attempt, score=score)
        next(running)
        opened(site, "/attempts")
        expect(page.locator("#live")).to_have_text("live")
        page.locator("input[name=from]").first.check()
        list(running)
    expect(page.locator("tr.row", has_text="finished")).to_have_count(4)
    expect(page.locator("tr.row", has_text="failed")).to_have_count(1)
    expect(page.locator("circle")).to_have_count(4)
    expect(page.locator("input[name=from]").first).to_be_checked()
    expect(page.locator("input[name=from]").first).to_be_focused()
    page.locator("input[name=to]").nth(2).check()
    page.get_by_role("button", name="Compare the chosen two").click()
    expect(page.locator("pre.diff")).to_contain_text("attempt.txt")
    assert "token" not in page.url


@pytest.mark.behaviour(187)
def test_a_run_is_watched_until_it_ends(site: Site, page: Page) -> None:
    folder = site.storage.folder(site.workspace)
    about = RunAbout(f"Fix {HOSTILE}", "m", "none", 1)
    run = PublishedRun(RecordedRun.begin(folder, about))
    run.publish(CallBegan(tool="shell_execute", subject=HOSTILE))
    opened(site)
    page.get_by_role("link", name="watch it").click()
    expect(page.locator("#live")).to_have_text("live")
    run.publish(CallOutput(lines=(HOSTILE, "last line")))
    expect(page.locator("#run li")).to_have_count(2)
    expect(page.locator("#run .output")).to_contain_text("last line")
    assert serious_findings(page) == []
    page.locator("#message").fill("Use the other file.")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("#live")).to_have_text("live")
    assert run.messages() == ("Use the other file.",)
    page.locator("#message").fill("Not sent yet")
    run.end("the budget is used up")
    expect(page.locator("#run .end")).to_contain_text("the budget is used up")
    expect(page.locator("#live")).to_have_text("The run is over.")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
    expect(page.locator("#message")).to_have_value("Not sent yet")
    expect(page.locator("#next")).to_contain_text("--resume")
    page.reload()
    expect(page.locator("#next")).to_contain_text("the budget is used up")


@pytest.mark.behaviour(213)
def test_a_run_that_has_ended_is_continued_with_a_message(site: Site, page: Page) -> None:
    """Two clicks start one run; its words and its end appear on the page."""
    folder = site.storage.folder(site.workspace)
    run = RecordedRun.begin(folder, RunAbout(f"Fix {HOSTILE}", ANTHROPIC, "none", 1))
    run.script.write_text(json.dumps({"text": f"First answer. {HOSTILE}"}) + "\n")
    site.model.hold()
    site.model.steps.append(Turn("Second answer."))
    opened(site)
    page.get_by_role("link", name="Newest run").click()
    expect(page.locator("#run")).to_contain_text("First answer.")
    assert serious_findings(page) == []
    page.locator("#message").fill("And the tests?")
    page.get_by_role("button", name="Send and continue").dblclick(no_wait_after=True)
    expect(page.locator("#live")).to_have_text("live", timeout=60_000)
    expect(page.get_by_role("button", name="Stop the run")).to_be_visible()
    site.model.release()
    expect(page.locator("#live")).to_have_text("The run is over.")
    expect(page.locator("#run")).to_contain_text("Second answer.")
    expect(page.get_by_role("button", name="Send and continue")).to_be_visible()
    newest = RecordedRun.newest(folder)
    assert newest is not None
    assert (newest.number, newest.about.message) == (run.number + 1, "And the tests?")
    assert len(site.model.requests) == 1


@pytest.mark.behaviour(149)
@pytest.mark.parametrize("n", [15, pytest.param(500, marks=pytest.mark.soak)])
def test_no_page_of_random_attacks_runs_a_script(site: Site, page: Page, n: int) -> None:
    """A script that the policy of the page blocks counts, too: the browser writes a message."""
    source = site.storage.folder(site.workspace).info().source
    with Workspace.create(source, storage=site.storage) as workspace:
        name = workspace.info.id
    n_pages = 0
    for place in list(fuzzed_places(site.storage, name, n=n, seed=n)):
        answer = page.goto(site.address + place, wait_until="domcontentloaded")
        assert answer is not None
        assert answer.status == 200, place
        assert page.evaluate("document.scripts.length") == 2, place
        assert page.title() != "owned"
        assert site.problems == [], place
        n_pages += 1
    assert n_pages == n


@pytest.mark.soak
def test_the_pictures_in_the_readme_are_made_of_these_pages(
    site: Site, page: Page, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """They are written to the directory that the variable README_PICTURES names."""
    pictures = Path(os.environ.get("README_PICTURES") or tmp_path)
    source = Path(tempfile.mkdtemp(prefix="calculator-"))  # its path is in the picture
    request.addfinalizer(lambda: shutil.rmtree(source))
    (source / "parser.py").write_text("def line_of(error):\n    return error.lineno - 1\n")
    with Workspace.create(source, storage=site.storage) as workspace:
        name = workspace.info.id
        with workspace.call("read", params={"file_path": "parser.py"}) as call:
            call.result("    1  def line_of(error):\n    2      return error.lineno - 1")
        fixed = "def line_of(error):\n    return error.lineno\n"
        edit(workspace, "parser.py", fixed, "parser.py: line numbers begin with 1")
        edit(workspace, "test_parser.py", "from parser import line_of\n", "test_parser.py")
        workspace.undo()
        workspace.fork("docs")
        with Workspace.open(name, storage=site.storage, branch="docs") as docs:
            edit(docs, "README.md", "# Calculator\n\nErrors name the line.\n", "README.md")
        workspace.files.write_text("notes.txt", "mine\n")
        edit(workspace, "parser.py", fixed + "\n\nFIRST_LINE = 1\n", "parser.py: name the number")
        shown = workspace.entry(3).id
    page.set_viewport_size({"width": 1_240, "height": 900})
    page.emulate_media(color_scheme="light")
    page.goto(f"{site.address}/w/{name}?entry={shown}")
    expect(page.locator("#live")).to_have_text("live")
    page.screenshot(path=pictures / "ui-timeline.png")
    page.set_viewport_size({"width": 1_240, "height": 540})
    page.get_by_role("button", name="Apply…", exact=True).click()
    page.wait_for_url("**/choose")
    page.screenshot(path=pictures / "ui-apply.png")
    sizes = [(pictures / f"ui-{each}.png").stat().st_size for each in ("timeline", "apply")]
    assert all(1_000 < size < 150_000 for size in sizes)


@pytest.mark.parametrize(
    ("scheme", "sizes"),
    [
        ("dark", SIZES[:1]),
        pytest.param("light", SIZES, marks=pytest.mark.soak),
        pytest.param("dark", SIZES, marks=pytest.mark.soak),
    ],
)
def test_pages_fit_their_width_and_have_no_serious_barrier(
    site: Site, page: Page, scheme: str, sizes: list[tuple[int, int]]
) -> None:
    """Screenshots of the pages are in the directory that the variable SCREENSHOTS names."""
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail("axe-core is missing")
        pytest.skip("axe-core is not installed; scripts/setup installs it with npm")
    places = {
        "list": "/",
        "timeline": f"/w/{site.workspace}?entry=main&view=split",
        "files": f"/w/{site.workspace}/files/main",
        "file": f"/w/{site.workspace}/files/main/app.py",
        "attempts": f"/w/{site.workspace}/attempts",
        "run": f"/w/{site.workspace}/run",
        "compare": f"/w/{site.workspace}/compare?from=1&to=try",
    }
    page.emulate_media(color_scheme=scheme)
    for name, place in random_cases.some(places.items(), 3):
        for width, height in sizes:
            page.set_viewport_size({"width": width, "height": height})
            page.goto(site.address + place)
            shoot(page, name, width, scheme)
        found = serious_findings(page)
        assert found == [], f"{name}: {found}"
    for button, name in (("Undo…", "preview"), ("Apply…", "apply")):
        for width, height in sizes:
            page.set_viewport_size({"width": width, "height": height})
            opened(site)
            page.get_by_role("button", name=button, exact=True).click()
            page.wait_for_url(f"**/{'preview' if name == 'preview' else 'choose'}")
            shoot(page, name, width, scheme)
        assert serious_findings(page) == [], name


def shoot(page: Page, name: str, width: int, scheme: str) -> None:
    """Take a screenshot, if it is wanted, of a page that must not be wider than the window."""
    overflow = "document => document.scrollWidth - document.clientWidth"
    assert page.locator("html").evaluate(overflow) <= 0, (name, width)
    if shown := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(shown) / f"{name}-{width}-{scheme}.png")
