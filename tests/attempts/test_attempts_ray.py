"""Attempts on a Ray cluster of two nodes on this machine."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import random
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import attempt_functions as do
import pytest
from ray_cluster import RayCluster
from test_attempts_ray_kill import Deployment, kill_and_continue

from wink_workspace.attempts import AttemptOutcome, Attempts, AttemptTask, RayEngine
from wink_workspace.attempts.budget import Spending
from wink_workspace.attempts.ray_engine.cluster import make_inspector
from wink_workspace.attempts.ray_engine.mailbox import (
    WIRE_VERSION,
    BaseMissing,
    Finished,
    Mail,
    Mailbox,
    MailKind,
    NodeBase,
    NodeRules,
    Requirements,
)
from wink_workspace.clock import Budget
from wink_workspace.errors import ClusterError, UsageError
from wink_workspace.sandbox.podman import PodmanConfig
from wink_workspace.workspace import Workspace, WorkspaceStorage
from wink_workspace.workspace.transfer.node_cache import pack_base, pack_start

if not os.environ.get("CI"):
    pytest.importorskip("ray", reason="ray has no wheel for this Python; see the extra `ray`")

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.share(6)]


@pytest.fixture
def engine(ray_cluster: RayCluster, tmp_path: Path) -> RayEngine:
    return RayEngine(cache=f"{tmp_path}/node-{{node}}")


def assert_nothing_is_left(tmp_path: Path) -> None:
    """The caches of the nodes have bases without forks."""
    caches = list(tmp_path.glob("node-*"))
    assert caches
    for cache in caches:
        storage = WorkspaceStorage(cache)
        for info in storage.all():
            with Workspace.open(info.id, storage=storage) as base:
                assert base.forks() == ()


def test_the_usage_statistics_and_the_dashboard_of_ray_are_off(ray_cluster: RayCluster) -> None:
    assert ray_cluster.switched_on() == []


@pytest.mark.behaviour(199)
def test_the_best_of_attempts_on_two_nodes_is_kept(
    workspace: Workspace, engine: RayEngine, tmp_path: Path
) -> None:
    attempts = Attempts(workspace, n=8, seed=7, engine=engine)
    results = list(attempts.run(do.solve, score=do.tests_pass))
    assert sorted(result.number for result in results) == list(range(1, 9))
    assert {result.outcome for result in results} == {AttemptOutcome.FINISHED}
    assert [result.number for result in results if result.passed] == [5]
    assert attempts.spent.usage.total_tokens == 8 * 11
    attempts.keep(attempts.best)
    assert b"a + b" in workspace.files.read_bytes("calc/core.py")
    assert workspace.files.read_bytes("notes.md") == b"5\n"
    assert not workspace.files.exists("scored.txt")
    assert len(list(tmp_path.glob("node-*"))) == 2
    assert_nothing_is_left(tmp_path)


@pytest.mark.behaviour(199)
def test_a_budget_ends_attempts_on_nodes_after_at_most_one_turn_more(
    workspace: Workspace, engine: RayEngine
) -> None:
    attempts = Attempts(workspace, n=4, budget=Budget(max_total_tokens=1_050), engine=engine)
    results = list(attempts.run(do.spend))
    assert {result.outcome for result in results} == {AttemptOutcome.STOPPED}
    assert 1_050 <= attempts.spent.usage.total_tokens <= 1_150


@pytest.mark.behaviour(199)
def test_a_lost_attempt_continues_after_the_entries_that_it_sent(
    workspace: Workspace, engine: RayEngine, tmp_path: Path
) -> None:
    engine.progress_s = 0
    attempts = Attempts(workspace, n=1, engine=engine)
    (result,) = attempts.run(partial(do.die_once_later, str(tmp_path)))
    assert (result.outcome, result.epoch) == (AttemptOutcome.FINISHED, 2)
    attempts.keep(result)
    pids = [workspace.files.read_bytes(name) for name in ("first", "second", "third")]
    assert pids[0] != pids[2]
    assert workspace.forks() == (result.branch,)


@pytest.mark.behaviour(205)
def test_what_an_attempt_on_a_node_logs_is_logged_by_the_coordinator(
    workspace: Workspace, engine: RayEngine, caplog: pytest.LogCaptureFixture
) -> None:
    list(Attempts(workspace, n=1, engine=engine).run(do.log_lines))
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("program", "attempt 1: line 1  [31m"),
        ("wink_workspace.x", "attempt 1: failed"),
    ]


@pytest.mark.behaviour(167)
def test_a_worker_that_wakes_after_its_lease_is_refused_and_its_work_is_a_discard(
    workspace: Workspace, engine: RayEngine, tmp_path: Path
) -> None:
    attempts = Attempts(workspace, n=1, engine=engine, lease_s=2)
    (result,) = attempts.run(partial(do.stop_once, str(tmp_path)))
    assert (result.outcome, result.epoch) == (AttemptOutcome.FINISHED, 2)
    attempts.keep(result)
    assert workspace.files.read_bytes("worker") == b"second"
    assert workspace.forks() == (result.branch,)
    (discarded,) = workspace.discarded()
    assert discarded.reason == "late attempt"
    changed = workspace.discarded_changes(discarded)
    assert [str(change.path) for change in changed] == ["worker"]
    assert_nothing_is_left(tmp_path)


@pytest.mark.behaviour(200)
def test_nodes_that_lack_something_get_no_work_and_the_reason_is_given(
    workspace: Workspace, ray_cluster: RayCluster, engine: RayEngine, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "wink_workspace-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: wink-workspace\nVersion: 9.9\n")
    number = ray_cluster.add_node(podman=1, variables={"PYTHONPATH": str(other.parent)})
    try:
        engine.resources = {"podman": 1}
        attempts = Attempts(workspace, n=3, engine=engine)
        assert [result.outcome for result in attempts.run(do.edit_readme)] == ["finished"] * 3
        reasons = sorted(engine.excluded.values())
        assert reasons[0].startswith("it has less resources")  # the head, and one node
        assert reasons[2].startswith("it has wink-workspace 9.9, not ")
        assert len(list(tmp_path.glob("node-*"))) == 1
    finally:
        ray_cluster.kill_node(number)


def test_a_run_that_no_node_can_work_for_is_one_clear_error(
    workspace: Workspace, engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "only_here.py"
    module.write_text("def attempt(context):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here  # type: ignore[import-not-found]  # it was just written

    attempts = Attempts(workspace, n=1, engine=engine)
    with pytest.raises(ClusterError, match="cannot be loaded there: ModuleNotFoundError"):
        list(attempts.run(only_here.attempt))
    assert list(attempts.run(do.edit_readme)) != []  # the run continues with another function
    with pytest.raises(UsageError, match="cannot be sent"):
        list(Attempts(workspace, n=1, engine=engine).run(lambda context: None))


@pytest.mark.behaviour(199)
def test_a_run_of_which_a_node_is_killed_has_the_same_result(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    kill_and_continue(Deployment(tmp_path, ray_cluster), ["node"], random.Random(17))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "ray://[::1]:1"])
def test_a_cluster_that_cannot_be_reached_is_one_clear_error(
    workspace: Workspace, address: str
) -> None:
    attempts = Attempts(workspace, n=1, engine=RayEngine(address=address))
    with pytest.raises(ClusterError, match="no connection to the Ray cluster"):
        list(attempts.run(do.edit_readme))
    assert (Attempts.run_ids(workspace), workspace.forks()) == ((), ())


@pytest.mark.parametrize(
    ("says", "reason"), [(b"", "timed out"), (b"SSH-2.0-x\r\n", "another kind of server")]
)
def test_a_port_at_which_there_is_no_ray_is_one_clear_error(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, says: bytes, reason: str
) -> None:
    from wink_workspace.attempts.ray_engine import cluster

    monkeypatch.setattr(cluster, "_CONNECT_S", 0.2)  # ten seconds otherwise
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionResetError):
                connection.sendall(says)
                while connection.recv(100):  # until the other side ends
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ClusterError, match=reason):
            list(Attempts(workspace, n=1, engine=RayEngine(address=address)).run(do.edit_readme))
        thread.join()


def test_arguments_out_of_range_are_refused() -> None:
    for arguments in ({"cpus": 0.0}, {"resources": {"podman": -1}}, {"workers": -1}):
        with pytest.raises(UsageError):
            RayEngine(**arguments)  # type: ignore[arg-type]  # the values vary


def test_a_node_of_another_python_or_version_is_excluded() -> None:
    inspect = make_inspector()
    here = {"python": "{}.{}".format(*sys.version_info)}
    assert inspect({"python": "2.7"}).endswith("not 2.7")
    assert inspect({**here, "version": "0.0"}).endswith("not 0.0")


@pytest.mark.behaviour(200)
def test_a_second_attempt_on_a_node_sends_less_than_20_kib(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    from wink_workspace.attempts.ray_engine.cluster import Cluster
    from wink_workspace.attempts.ray_engine.node import work

    source = tmp_path / "source"
    for n in range(1_000):
        path = source / f"d{n % 20}" / f"{n}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"line {n}\n" * 40)
    (source / "README.md").write_text("one\ntwo\nthree\n")
    cluster = Cluster("", None)
    with Workspace.temporary(source) as workspace:
        rules = NodeRules(
            plan=Attempts(workspace, n=2)._plan(do.edit_readme, do.score_number),
            files=workspace.head.files,
            start=pack_start(workspace),
            cache=f"{tmp_path}/node-{{node}}",
            cache_bytes=2**30,
            progress_s=0,
        )
        first, second = (
            AttemptTask(number=n, epoch=1, round=0, branch=f"b{n}", path=str(n)) for n in (1, 2)
        )
        assert work(rules, first, b"", None, cluster._mailbox) == BaseMissing()
        file = io.BytesIO()
        pack_base(workspace, file)
        packed, size = file.getvalue(), 1_000
        parts = [cluster.put(packed[at : at + size]) for at in range(0, len(packed), size)]
        base = NodeBase(parts=parts, part_bytes=size, n_bytes=len(packed))
        assert isinstance(work(rules, first, b"", base, cluster._mailbox), Finished)
        found = work(rules, second, b"", None, cluster._mailbox)  # the base is there
        assert isinstance(found, Finished)
        assert found.result.score is not None
        assert len(packed) > 40_000
        assert len(pickle.dumps((rules, second))) + len(pickle.dumps(found)) < 20 * 1_024
    cluster.disconnect()
    assert_nothing_is_left(tmp_path)


def test_a_node_without_podman_image_overlay_or_the_same_messages_is_excluded(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wink_workspace.attempts.ray_engine.node import missing_parts

    wanted = Requirements(
        python="",
        version="",
        wire=WIRE_VERSION,
        functions=pickle.dumps((do.solve, None, 1.0)),
        cache=str(tmp_path),
        sandbox="podman",
        image=PodmanConfig().image,
        needs_overlay=False,
    ).fields()
    assert "messages" in missing_parts({**wanted, "wire": 0})
    assert missing_parts({**wanted, "sandbox": ""}) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_parts(wanted) == "podman cannot be used: podman: not on the PATH"
    (tmp_path / "file").touch()
    on_file = {**wanted, "needs_overlay": True, "cache": f"{tmp_path}/file/cache"}
    assert missing_parts(on_file).startswith("NotADirectoryError")


def test_mail_waits_for_the_coordinator_and_answers_for_their_worker() -> None:
    async def talk() -> None:
        box, key = Mailbox(), (1, 1)
        assert await box.take(0.001) == []
        asked = asyncio.create_task(box.request(Mail(MailKind.REQUEST, key, Spending())))
        first = asyncio.create_task(box.until_stopped(key, "first"))
        second = asyncio.create_task(box.until_stopped(key, "second"))
        assert [mail.kind for mail in await box.take(10)] == [MailKind.REQUEST]
        await box.leave("first")  # the same task was started twice, and the second one goes on
        assert not await first
        await box.answer(key, "granted")
        await box.answer(key, "granted")
        assert await asked == "granted"
        await box.stop([(2, 1)])
        assert not second.done()
        await box.stop()
        assert await second
        assert await box.until_stopped((3, 1), "later")
        await box.leave("unknown")

    asyncio.run(talk())


@pytest.mark.soak
def test_a_thousand_attempts_on_two_nodes_leave_nothing_behind(
    workspace: Workspace, engine: RayEngine, tmp_path: Path
) -> None:
    attempts = Attempts(workspace, n=1_000, engine=engine)
    kib = []
    for result in attempts.run(do.continue_each_round):
        assert result.outcome is AttemptOutcome.FINISHED
        kib.append(own_memory_kib())
    assert len(attempts.results) == len(workspace.forks()) == 1_000
    # A plain loop of Ray takes 5 MiB for its first 1,000 tasks; a result is about 2 KiB
    assert kib[-1] - kib[200] < 12 * 1_024
    assert_nothing_is_left(tmp_path)


def own_memory_kib() -> int:
    """The memory of this process without files that it maps, such as packs of the history."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])
