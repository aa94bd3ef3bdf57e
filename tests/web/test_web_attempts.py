"""The page of attempts as text: the table and the plot of runs that really ran."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from web_support import CANARY, SECRET, attempt, attempts_of, score

from wink_workspace.attempts import Attempts, AttemptStatus, RunStatus, read_runs
from wink_workspace.attempts.engine_protocol import Cost, Score
from wink_workspace.web.actions import Actions
from wink_workspace.web.application import make_app
from wink_workspace.web.attempts_page import HEIGHT, WIDTH, run_item
from wink_workspace.web.pages import Pages
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[WorkspaceStorage, str]:
    """A workspace with five attempts, of which three finished in the first run."""
    root = tmp_path_factory.mktemp("attempts")
    (root / "source").mkdir()
    (root / "source/a.txt").write_text("a\n")
    storage = WorkspaceStorage(root / "state")
    with Workspace.create(root / "source", storage=storage) as workspace:
        list(attempts_of(workspace).run(attempt, score=score))
        return storage, workspace.info.id


def pages_of(storage: WorkspaceStorage) -> Pages:
    return Pages(storage, lambda text: text.replace(SECRET, "[redacted]"))


def cells(page: str) -> list[list[str]]:
    """The text of each cell of each row."""
    rows = re.findall(r'<tr class="row">(.*?)</tr>', page, re.DOTALL)
    return [
        [
            " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split())
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        ]
        for row in rows
    ]


@pytest.mark.behaviour(185)
def test_the_table_has_every_attempt_and_the_plot_every_score(
    ran: tuple[WorkspaceStorage, str],
) -> None:
    storage, name = ran
    page = TestClient(make_app(pages_of(storage))[0]).get(f"/w/{name}/attempts").text
    found = [row[:5] for row in cells(page)]
    assert found == [
        ["1", "finished", "0.1, not passed", "1", "1,010"],
        ["2", "finished", "0.2, not passed", "1", "2,010"],
        ["3", "finished, best", "0.3, passed", "1", "3,010"],
        ["4", "failed", "", "1", "4,010"],
        ["5", "finished", "0.5, not passed", "1", "5,010"],
    ]
    assert "ValueError" in cells(page)[3][7]
    titles = [unescape(each) for each in re.findall(r"<title>(Attempt .*?)</title>", page)]
    assert titles == [
        f"Attempt {n}: score {n / 10:g}, {1000 * n + 10} tokens" for n in (1, 2, 3, 5)
    ]
    assert CANARY not in page
    assert SECRET not in page
    assert page.count('class="point passed best"') == 1


def test_an_attempt_is_compared_with_another_and_kept(
    ran: tuple[WorkspaceStorage, str],
) -> None:
    storage, name = ran
    pages = pages_of(storage)
    actions = Actions(pages, lambda which: Workspace.open(which.partition("/")[0], storage=storage))
    client = TestClient(make_app(pages, actions=actions, form_token="t")[0])
    page = client.get(f"/w/{name}/attempts").text
    assert len(re.findall("Keep…", page)) == 4
    branches = re.findall(r'name="from" value="([^"]*)"', page)
    compared = client.get(f"/w/{name}/compare?from={branches[0]}&to={branches[2]}").text
    assert "attempt.txt" in compared
    form = {"action": ["merge"], "branch": ["main"], "other": [branches[2]]}
    shown = actions.preview(name, form)
    assert shown is not None
    actions.move(name, {key: [value] for key, value in shown.fields.items()})
    with WorkspaceReader(storage.folder(name)) as reader:
        assert reader.content(reader.head, "attempt.txt", limit_bytes=99).startswith(b"3\n")
        assert reader.head.subject.startswith(f"merge of {branches[2]}")


def test_a_run_that_does_not_exist_and_a_workspace_without_runs_have_a_page(
    tmp_path: Path,
) -> None:
    (tmp_path / "source").mkdir()
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(tmp_path / "source", storage=storage) as workspace:
        name = workspace.info.id
        client = TestClient(make_app(pages_of(storage))[0])
        assert "There are no attempts" in client.get(f"/w/{name}/attempts").text
        assert client.get(f"/w/{name}/attempts?run=none").status_code == 404
        runs = [Attempts(workspace, n=1) for _ in range(2)]
        for each in runs:
            list(each.run(attempt))
    page = client.get(f"/w/{name}/attempts?run={runs[0].run_id}").text
    assert f"Run {runs[0].run_id} on main" in page
    assert f"run={runs[1].run_id}" in page
    assert "<svg" not in page, "no attempt has a score"


@pytest.mark.parametrize(
    ("values", "costs"),
    [
        ([0.0], [0]),
        ([5.0, 5.0], [1, 1]),
        ([-1e300, 1e300], [0, 10**18]),
        ([-1.7e308, 1.7e308], [0, 1]),
        ([1.0, 1.0 + 2.3e-16], [1, 10**30]),
        ([1e300, 1e300], [0, 0]),
        ([1e-9, 2e-9, 3e-9], [1, 2, 3]),
        ([-100.0, 0.5], [10, 20]),
    ],
)
def test_every_point_and_tick_is_inside_the_plot(
    ran: tuple[WorkspaceStorage, str], values: list[float], costs: list[int]
) -> None:
    storage, name = ran
    with WorkspaceReader(storage.folder(name)) as reader:
        (run,) = read_runs(reader)
    attempts = tuple(
        AttemptStatus(number=n + 1, score=Score(value, passed=False), cost=Cost(usd=Decimal(cost)))
        for n, (value, cost) in enumerate(zip(values, costs, strict=True))
    )
    shown: RunStatus = replace(run, attempts=attempts)
    plot = run_item(shown, str).plot
    assert plot is not None
    assert len(plot.points) == len(values)
    for point in plot.points:
        assert 0 <= point.x <= WIDTH
        assert 0 <= point.y <= HEIGHT
    assert 2 <= len(plot.y_ticks) <= 8
    assert 2 <= len(plot.x_ticks) <= 8
    assert len({place for place, _ in plot.y_ticks}) == len(plot.y_ticks)
