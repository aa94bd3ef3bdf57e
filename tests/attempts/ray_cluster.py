"""A Ray cluster on this machine: a head without processors, and nodes that tests add and kill.

It runs in a process of its own, so that what Ray leaves behind in a process is not in that of the
tests. Usage statistics and dashboard are off, and it listens on the loopback interface only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["RayCluster", "set_variables"]

_LOOPBACK = "127.0.0.1"
_STORE_BYTES = 80 * 2**20
_TESTS = Path(__file__).parent
_SETTINGS = {
    "prestart_worker_first_driver": False,  # each loads Ray for seconds, and few are used
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


def set_variables() -> None:
    """Set what Ray reads when it is imported."""
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0",
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # so that Ray does not replace the loopback address
        RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    )


class RayCluster:
    """A cluster; ``nodes`` are the numbers of its nodes without the head.

    Attributes:
        address: For ``ray.init``.
        nodes: The numbers of the nodes that were started and not killed.
    """

    def __init__(self, *, client_port: int | None = None) -> None:
        set_variables()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address: str = self._ask("head", client_port)
        self.nodes: list[int] = []

    def add_node(
        self, *, cpus: int = 1, variables: dict[str, str] | None = None, **resources: float
    ) -> int:
        """Start a node, and wait until it can be used; its number."""
        number: int = self._ask("add", cpus, resources, variables or {})
        self.nodes.append(number)
        return number

    def kill_node(self, number: int) -> None:
        """Kill all processes of a node."""
        self.nodes.remove(number)
        self._ask("kill", number)

    def worker_pids(self) -> list[int]:
        """The processes that run attempts, and the actors of their coordinators."""
        pids: list[int] = self._ask("workers")
        return pids

    def switched_on(self) -> list[str]:
        """Which of usage statistics and dashboard are on."""
        found: list[str] = self._ask("switched-on")
        return found

    def kill(self) -> None:
        """Kill all processes, those of the head first."""
        self._ask("kill-all")
        self._process.communicate()

    def connect(self) -> None:
        """Call ``ray.init`` in this process."""
        import ray

        ray.init(address=self.address, log_to_driver=False)

    def close(self) -> None:
        """End all processes, and the connection."""
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()
        self._ask("close")
        self._process.communicate()

    def _ask(self, *command: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the cluster died of {command}"
        return json.loads(line)


def common(variables: dict[str, str]) -> dict[str, Any]:
    """The options of all nodes; their workers can import the modules of the tests."""
    path = ":".join([variables.pop("PYTHONPATH", ""), str(_TESTS), str(_TESTS.parent)])
    return {
        "node_ip_address": _LOOPBACK,
        "object_store_memory": _STORE_BYTES,
        "env_vars": {"PYTHONPATH": path.strip(":"), **variables},
    }


def children_of(node: Any) -> list[int]:
    """The workers and agents of a node."""
    found = list[int]()
    for raylet in node.all_processes["raylet"]:
        pid = raylet.process.pid
        with suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return found


def is_busy_worker(pid: int) -> bool:
    """Whether a process runs an attempt, or is the actor of a coordinator."""
    with suppress(OSError):
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
        return title.startswith((b"ray::attempt", b"ray::Mailbox"))
    return False


def switched_on(nodes: list[Any]) -> list[str]:
    """Which of usage statistics and dashboard are on; a process without pages runs in any case."""
    from ray._common.usage.usage_lib import usage_stats_enabled

    found = ["usage statistics"] if usage_stats_enabled() else []
    started = [each for node in nodes for each in node.all_processes.get("dashboard", ())]
    titles = [Path(f"/proc/{each.process.pid}/cmdline").read_bytes() for each in started]
    return found + ["dashboard" for title in titles if b"--disable-frontend" not in title]


def kill_node(node: Any) -> None:
    """Kill all processes of a node, as the end of its machine would."""
    children = children_of(node)
    node.kill_all_processes(check_alive=False, allow_graceful=False)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def serve() -> None:
    """Answer the commands of ``RayCluster``."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray prints
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    nodes: list[Any] = []
    for line in sys.stdin:
        answer: object = None
        match json.loads(line):
            case ["head", client_port]:
                cluster.add_node(
                    num_cpus=0,
                    include_dashboard=False,
                    ray_client_server_port=client_port,
                    _system_config=_SETTINGS,
                    **common({}),
                )
                answer = cluster.address
            case ["add", cpus, resources, variables]:
                nodes.append(
                    cluster.add_node(num_cpus=cpus, resources=resources, **common(variables))
                )
                answer = len(nodes) - 1
            case ["kill", number]:
                kill_node(nodes[number])
                cluster.remove_node(nodes[number], allow_graceful=False)
            case ["workers"]:
                pids = [pid for node in cluster.list_all_nodes() for pid in children_of(node)]
                answer = [pid for pid in pids if is_busy_worker(pid)]
            case ["switched-on"]:
                answer = switched_on(cluster.list_all_nodes())
            case ["kill-all"]:
                for node in [cluster.head_node, *cluster.worker_nodes]:
                    kill_node(node)
            case _:
                cluster.shutdown()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
