"""The pages of ``wink-workspace ui`` on a long history: 100,000 entries over 50,000 files.

Run by ``make bench``. The server is a process of its own, as for a user; requests go to its
loopback address. The memory of the server after the pages of this file is ``server_peak_mib``.
``WEB_ENTRIES`` and ``WEB_FILES`` make a smaller history for a quick look.
"""

from __future__ import annotations

import http.client
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest
from bench_waiting import source_of

from wink_workspace.filesystem import parse_path
from wink_workspace.filesystem.model import FileKind, FileState
from wink_workspace.ledger import Draft, EntryKind, Ledger, Retention, build, entry_of
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace import Workspace, WorkspaceStorage

N_ENTRIES = int(os.environ.get("WEB_ENTRIES", "100_000"))
N_FILES = int(os.environ.get("WEB_FILES", "50_000"))
N_PAGES = 10
_CALLS_PER_TURN = 1_000
_N_TURNS = 24
_SEED = 19
_MAINTAINED_AFTER = 100
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def path_of(n: int) -> str:
    """The path of a file of ``source_of``."""
    return f"d{n // 10_000}/e{n // 10}/f{n}.txt"


def make_history(directory: Path) -> tuple[WorkspaceStorage, str]:
    """A workspace with many entries, each of which writes one file, and three branches.

    The entries are appended to the ledger, with the records and the maintenance of real calls,
    because that takes a tenth of the time of calls.
    """
    storage = WorkspaceStorage(directory / "state" / "wink-workspace")
    source = source_of(directory / "source", N_FILES)
    with Workspace.create(source, storage=storage, mode="copy") as workspace:
        name = workspace.info.id
        for branch in ("one", "two", "three"):
            workspace.fork(branch)
    folder = storage.folder(name)
    kept = Retention(max_age_days=36_500, budget_bytes=1 << 40)
    newest: dict[str, bytes] = {}
    with Ledger(folder.ledger) as ledger, ledger.write() as writer:
        head = writer.head
        assert head is not None
        for n in range(1, N_ENTRIES):
            path, content = path_of(n % N_FILES), f"file {n % N_FILES}\nedit {n}\n".encode()
            newest[path] = content
            made = entry_of(ledger.store, FileState(FileKind.FILE, content))
            files = build(ledger.store, head.files, {parse_path(path): made})
            head = writer.append(draft_of(n, path, content, files, head.session))
            if n % _MAINTAINED_AFTER == 0:
                ledger.maintain_if_due(kept)
    for path, content in newest.items():
        (folder.files / path).write_bytes(content)
    return storage, name


def draft_of(n: int, path: str, content: bytes, files: str, session: str) -> Draft:
    """The entry of a call that wrote a file."""
    at = _BEGAN + timedelta(seconds=n)
    record = ToolInvoked(
        call_id=f"call-{n}",
        tool="write_file",
        prompt="coder",
        params={"file_path": path, "content": content.decode()},
        success=True,
        message=f"wrote {path}",
        value=None,
        rendered_text=f"wrote {path}, 2 lines",
        text=f"wrote {path}, 2 lines",
        outcome=Outcome.COMMITTED,
        started_at=at,
        duration_s=0.001,
        decisions=(),
    )
    return Draft(
        kind=EntryKind.CALL,
        subject=f"write_file {path}",
        files=files,
        session=session,
        record=record,
        at=at,
        tool="write_file",
        call_id=f"call-{n}",
        outcome=Outcome.COMMITTED,
    )


@dataclass
class Site:
    """A server that runs, with a client that has its cookie."""

    storage: WorkspaceStorage
    workspace: str
    process: subprocess.Popen[str]
    host: str
    cookie: str

    def __post_init__(self) -> None:
        self._connection = http.client.HTTPConnection(self.host, timeout=60)

    def get(self, place: str) -> bytes:
        """The body of a page; redirects are followed."""
        try:
            self._connection.request("GET", place, headers={"Cookie": self.cookie})
            answer = self._connection.getresponse()
        except http.client.RemoteDisconnected:  # the server closed an idle connection
            self._connection.close()
            self._connection.request("GET", place, headers={"Cookie": self.cookie})
            answer = self._connection.getresponse()
        body = answer.read()
        if answer.status == 303:
            return self.get(answer.headers["Location"])
        assert answer.status == 200, (place, answer.status, body[:1_000])
        return body

    def page(self, place: str = "") -> bytes:
        """A page of the workspace."""
        return self.get(f"/w/{self.workspace}{place}")

    def close(self) -> None:
        self._connection.close()

    def peak_mib(self) -> float:
        """The largest memory that the server has had until now, mapped files included."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1_024


def cookie_of(link: str) -> tuple[str, str]:
    """The host of a link, and the cookie that it gives."""
    host, _, place = link.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{place}")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return host, answer.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[WorkspaceStorage, str]:
    return make_history(tmp_path_factory.mktemp("history"))


@pytest.fixture(scope="module")
def site(history: tuple[WorkspaceStorage, str]) -> Iterator[Site]:
    storage, name = history
    environment = {"PATH": os.environ["PATH"], "XDG_STATE_HOME": str(storage.state_dir.parent)}
    process = subprocess.Popen(
        [Path(sys.prefix, "bin", "wink-workspace"), "ui"],
        env=environment | {"HOME": str(storage.state_dir.parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    try:
        site = Site(storage, name, process, *cookie_of(process.stdout.readline().strip()))
        yield site
        site.close()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def _note_memory(request: pytest.FixtureRequest, benchmark, site: Site) -> Iterator[None]:
    """Write the peak of the server's memory beside each time."""
    yield
    benchmark.extra_info["server_peak_mib"] = round(site.peak_mib(), 1)


@pytest.fixture
def numbers() -> Iterator[int]:
    """Numbers of entries, old and new."""
    chance = random.Random(_SEED)
    return iter(lambda: chance.randint(2, N_ENTRIES), None)


def bench_the_list_of_workspaces(benchmark, site: Site) -> None:
    benchmark.pedantic(lambda: site.get("/"), rounds=10, warmup_rounds=1)


def bench_the_first_page_of_a_timeline(benchmark, site: Site) -> None:
    """At most 300 ms."""
    body = benchmark.pedantic(site.page, rounds=20, warmup_rounds=1)
    assert body.count(b"data-id=") >= 50


def bench_older_rows(benchmark, site: Site) -> None:
    """What scrolling loads."""
    after = site.page("/rows").decode().partition("rows?after=")[2].partition('"')[0]
    place = f"/rows?after={after.partition('&')[0]}"
    benchmark.pedantic(lambda: site.page(place), rounds=20, warmup_rounds=1)


def bench_selecting_any_entry(benchmark, site: Site, numbers: Iterator[int]) -> None:
    """At most 100 ms, by its number, as a link names it."""
    benchmark.pedantic(
        lambda number: site.page(f"/entry/{number}"),
        setup=lambda: ((next(numbers),), {}),
        rounds=200,
    )


def bench_a_jump_of_the_slider(benchmark, site: Site, numbers: Iterator[int]) -> None:
    """The root directory after any entry."""
    benchmark.pedantic(
        lambda number: site.page(f"/go/?n={number}"),
        setup=lambda: ((next(numbers),), {}),
        rounds=100,
    )


def bench_a_file_after_any_entry(benchmark, site: Site, numbers: Iterator[int]) -> None:
    """With the entry that wrote each line; the file was changed by one of the last entries."""
    benchmark.pedantic(
        lambda number: site.page(f"/files/{number}/{path_of(number % N_FILES)}"),
        setup=lambda: ((next(numbers),), {}),
        rounds=5,
    )


def bench_differences_of_two_entries(benchmark, site: Site, numbers: Iterator[int]) -> None:
    benchmark.pedantic(
        lambda number: site.page(f"/compare?from={number}&to={max(1, number - 100)}"),
        setup=lambda: ((next(numbers),), {}),
        rounds=20,
    )


def events_of(
    host: str, cookie: str, workspace: str
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    """The stream that a page of a timeline listens to; later changes are in it."""
    connection = http.client.HTTPConnection(host, timeout=600)
    connection.request("GET", f"/w/{workspace}/events", headers={"Cookie": cookie})
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    answer.readline()
    return answer, connection


def wait_for_change(stream: http.client.HTTPResponse) -> str:
    """Read a stream up to the next change; the state that the page asks for."""
    state = ""
    while (line := stream.readline()) != b"event: changed\n":
        state = line.decode().removeprefix("id: ").strip()
    return state


@pytest.fixture(scope="module")
def run(history: tuple[WorkspaceStorage, str]) -> Iterator[Workspace]:
    """The workspace, opened by this process."""
    storage, name = history
    with Workspace.open(name, storage=storage) as workspace:
        yield workspace


def write(workspace: Workspace, n: int) -> None:
    """One committed call."""
    with workspace.call(f"write {n}", params={"file_path": path_of(n), "content": f"{n}"}) as call:
        call.files.write_text(path_of(n), f"written {time.perf_counter_ns()}\n")
        call.result("written")


def bench_a_call_appears_in_an_open_page(benchmark, site: Site, run: Workspace) -> None:
    """From the commit until a page has the new row; at most 500 ms."""
    chance = random.Random(_SEED)
    stream, connection = events_of(site.host, site.cookie, site.workspace)

    def wait() -> None:
        time.sleep(chance.uniform(0.3, 0.7))
        write(run, chance.randrange(N_FILES))

    def appear() -> None:
        state = wait_for_change(stream)
        assert run.head.id.encode() in site.page(f"/rows?q=&state={state}")

    benchmark.pedantic(appear, setup=wait, rounds=40)
    connection.close()
    stream.close()


@contextmanager
def open_pages(site: Site) -> Iterator[None]:
    """Pages that show the timeline, in a process of their own as a browser is."""
    command = [sys.executable, __file__, site.host, site.cookie, site.workspace]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


def show_page(host: str, cookie: str, workspace: str, ready: threading.Semaphore) -> None:
    """What a page does: after a change it asks for its rows, and not again before it has them."""
    stream, _ = events_of(host, cookie, workspace)
    connection = http.client.HTTPConnection(host, timeout=600)
    ready.release()
    while True:
        place = f"/w/{workspace}/rows?q=&state={wait_for_change(stream)}"
        connection.request("GET", place, headers={"Cookie": cookie})
        connection.getresponse().read()


def bench_calls_while_ten_pages_are_open(benchmark, site: Site, run: Workspace) -> None:
    """Calls one after the other, with and without open pages by turns; at most 5 % slower."""
    times: dict[bool, list[float]] = {False: [], True: []}

    def turn(n: int) -> None:
        for _ in range(_CALLS_PER_TURN):
            began = time.perf_counter()
            write(run, n)
            times[n % 2 == 1].append(time.perf_counter() - began)

    for n in range(_CALLS_PER_TURN):  # the first call looks at every file
        write(run, n)
    for n in range(_N_TURNS):
        if n % 2:
            with open_pages(site):
                turn(n)
        else:
            turn(n)
    benchmark.pedantic(lambda: write(run, 0), rounds=10)
    alone, watched = (median(times[each]) for each in (False, True))
    turns = [
        [sum(calls[n : n + _CALLS_PER_TURN]) for n in range(0, len(calls), _CALLS_PER_TURN)]
        for calls in (times[False], times[True])
    ]
    ratio = median(slow / fast for fast, slow in zip(*turns, strict=True))
    benchmark.extra_info |= {
        "alone_us": round(alone * 1e6),
        "ten_pages_us": round(watched * 1e6),
        "slower_percent": round(100 * (watched / alone - 1), 1),
        "slower_percent_of_turns": round(100 * (ratio - 1), 1),
    }


def main(host: str, cookie: str, workspace: str) -> None:
    """Show ten pages until this process is ended."""
    ready = threading.Semaphore(0)
    arguments = (host, cookie, workspace, ready)
    pages = [threading.Thread(target=show_page, args=arguments) for _ in range(N_PAGES)]
    for page in pages:
        page.start()
    for _ in pages:
        ready.acquire()
    print("ready", flush=True)
    for page in pages:
        page.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
