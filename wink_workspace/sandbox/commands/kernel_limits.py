"""The limits and settings of the kernel that keep commands apart, and the layers of isolation."""

from __future__ import annotations

import resource
from collections.abc import Collection
from typing import Final

from wink_workspace.sandbox.isolation_report import Layer

from .command_config import CommandConfig

PERIOD_US: Final = 100_000
SPARE_PIDS: Final = 64
"""Additional processes of a sandbox, so that a command's limit never affects the runner."""
SETTINGS: Final = {
    "kernel.shm_rmid_forced": "1",
    "kernel.msgmni": "0",
    "kernel.sem": "250 32000 32 0",
    "net.ipv4.tcp_max_tw_buckets": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.ip_unprivileged_port_start": "0",
}
"""Settings of the IPC and network namespaces, so that nothing outlives a command.

Shared memory ends with its last process. Queues and semaphores would stay: none can be made. A
closed connection leaves no port in TIME_WAIT and no metrics that a later command could see. Every
port is free for services: there is nothing else in that network.
"""
NAMESPACE_LIMITS: Final = {"max_inotify_instances": 32, "max_inotify_watches": 65_536}
"""Limits of a user namespace, user_namespaces(7), for objects that the kernel counts by user.

Without root, that user is the caller, who has 128 inotify instances for all programs together.
"""


def process_limits(config: CommandConfig, controllers: Collection[str]) -> dict[str, int]:
    """The names of resource limits with their values, at most our own hard limits."""
    wanted = {
        "nofile": config.n_open_files,
        "nproc": config.n_processes,
        "fsize": config.file_bytes,
        "core": 0,
        "sigpending": 1_024,
        "msgqueue": 819_200,
    }
    if "memory" not in controllers:
        wanted["data"] = config.memory_bytes
    limits: dict[str, int] = {}
    for name, value in wanted.items():
        _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))
        limits[name] = value if hard == resource.RLIM_INFINITY else min(value, hard)
    return limits


def isolation_layers(
    config: CommandConfig,
    controllers: Collection[str],
    *,
    is_root: bool,
    more: tuple[Layer, ...],
    calls: str,
) -> tuple[Layer, ...]:
    """The isolation layers of commands that this configuration has on this machine.

    Args:
        config: The limits.
        controllers: The controllers of cgroups that limit it.
        is_root: Whether root started it.
        calls: The filter of system calls.
        more: What else there is, or is not.
    """

    def limit(name: str, controller: str, instead: str) -> Layer:
        is_active = controller in controllers
        why = "" if is_active else f"there is no {controller} cgroup here; {instead}"
        return Layer(name, is_active, why)

    ids = "with ids that no account has" if is_root else "the caller's"
    reachable = ", ".join(config.network.lines())
    network = f"commands can reach: {reachable}" if reachable else ""
    return (
        Layer("user namespace", True, ids),
        Layer("capabilities", True, "none for commands"),
        Layer("no new privileges", True),
        Layer("filter of system calls", True, calls),
        Layer("read-only root", True),
        *more,
        Layer("no network", not config.network, network),
        limit("memory limit", "memory", "the data of each process is limited instead"),
        limit("process limit", "pids", "the user's processes are limited instead"),
        limit("processor limit", "cpu", "only the time limit applies"),
        Layer("disk quota", False, "the workspace is watched; a command that fills it is ended"),
    )
