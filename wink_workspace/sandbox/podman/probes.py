"""Attempts to get out, made from inside a container by a command's own user.

As the runner, this file is handed over as a whole: it imports nothing of ours and works on
Python 3.8 and later. It prints a line of JSON for each attempt: its name, whether it was
stopped, and how it was answered. An attempt that is stopped raises ``OSError``, or finds
nothing; whatever it returns is what it found, and a hole.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

CANARY = os.environ.get("WINK_CANARY", "")
PORT = int(os.environ.get("WINK_PORT", "0"))
ABSTRACT = os.environ.get("WINK_ABSTRACT", "")
NEW_NAME = os.environ.get("WINK_NEW_NAME", "")
"""What no file of the workspace is called: an earlier command may have left links there."""


def system() -> Any:
    """The C library."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def called(result: int) -> str | None:
    """What a call to the system found; it fails with -1."""
    import ctypes

    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "it was allowed"


def first(attempts: list[Callable[[], str | None]]) -> str | None:
    """The first of several attempts that found something."""
    errors: list[str] = []
    for attempt in attempts:
        try:
            found = attempt()
        except OSError as error:
            errors.append(error.strerror or str(error))
        else:
            if found:
                return found
    if errors:
        raise OSError("; ".join(sorted(set(errors))))
    return None


def writes(path: str) -> Callable[[], str | None]:
    """Writing to a place, and taking it back."""

    def attempt() -> str:
        with open(path, "wb") as file:
            file.write(b"x")
        os.unlink(path)
        return path + " can be written"

    return attempt


def reads(path: str) -> Callable[[], str | None]:
    """Reading a file."""

    def attempt() -> str:
        with open(path, "rb") as file:
            return f"{path} can be read: {file.read(16)!r}"

    return attempt


def connects(family: int, address: tuple[str, int] | str) -> Callable[[], str | None]:
    """Connecting to whoever listens."""

    def attempt() -> str:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.settimeout(2)
            trial.connect(address)
        return f"{address!r} answers"

    return attempt


# The attempts


def work_in_the_workspace() -> str | None:
    """The one thing that must work, which shows that the others were really tried."""
    try:
        writes(os.path.join("/workspace", NEW_NAME))()
    except OSError as error:
        return f"a command cannot write to the workspace: {error}"
    return None


def write_outside_the_workspace() -> str | None:
    """In every place that a program might write to."""
    places = (
        "/",
        "/etc",
        "/usr",
        "/usr/bin",
        "/root",
        "/home",
        "/opt",
        "/var",
        "/var/tmp",
        "/run",
        "/mnt",
    )
    return first([writes(os.path.join(place, ".wink-probe")) for place in places])


def read_files_of_the_host() -> str | None:
    """A file that the host has planted."""
    return first([reads(CANARY), reads("/proc/1/root" + CANARY), reads("/workspace/.." + CANARY)])


def read_the_runner() -> str | None:
    """Its variables, its memory, its streams."""
    return first(
        [reads("/proc/1/environ"), reads("/proc/1/mem"), lambda: str(os.listdir("/proc/1/fd"))]
    )


def inherit_open_files() -> str | None:
    """The streams to the host, above all."""
    held: list[int] = []
    for number in range(3, 4_096):
        try:
            os.fstat(number)
        except OSError:
            continue
        held.append(number)
    return f"descriptors {held}" if held else None


def signal_the_runner() -> str | None:
    """Signal 0 asks whether another would be allowed."""
    os.kill(1, 0)
    return "the first process can be signalled"


def trace_the_runner() -> str | None:
    """As a debugger."""
    return called(system().ptrace(16, 1, None, None))


def see_other_processes() -> str | None:
    """Any but the runner and this one."""
    others = {name for name in os.listdir("/proc") if name.isdigit()} - {"1", str(os.getpid())}
    return "processes {}".format(", ".join(sorted(others))) if others else None


def gain_rights() -> str | None:
    """Hold any, or become root."""
    with open("/proc/self/status") as lines:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
    held = [name for name in ("CapInh", "CapPrm", "CapEff", "CapAmb") if int(status[name], 16)]
    if held:
        return "capabilities in {}".format(", ".join(held))
    if status.get("NoNewPrivs") != "1":
        return "programs may gain rights"
    if os.getuid() == 0 or os.getgid() == 0 or 0 in os.getgroups():
        return "the command is root"
    return first([lambda: os.setuid(0) or "setuid", lambda: os.setgid(0) or "setgid"])


def use_forbidden_system_calls() -> str | None:
    """Without a filter all of them are allowed."""
    with open("/proc/self/status") as status:
        if "Seccomp:\t2" not in status.read():
            return "no filter of system calls"
    return None


def raise_limits() -> str | None:
    """Above what the container was given."""

    def raised(kind: int) -> Callable[[], str | None]:
        def attempt() -> str | None:
            soft, hard = resource.getrlimit(kind)
            if hard == resource.RLIM_INFINITY:
                return f"limit {kind} is infinite"
            try:
                resource.setrlimit(kind, (soft, hard + 1))
            except ValueError as error:
                raise OSError(str(error)) from error
            return f"limit {kind} can be raised"

        return attempt

    kinds = (
        resource.RLIMIT_NOFILE,
        resource.RLIMIT_NPROC,
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_CORE,
    )
    return first([raised(kind) for kind in kinds])


def mount() -> str | None:
    """A filesystem over another."""
    return called(system().mount(b"none", b"/tmp", b"tmpfs", 0, None))


def make_devices() -> str | None:
    """Or use those of the host."""
    import stat

    def made() -> str:
        os.mknod("/tmp/.wink-device", stat.S_IFCHR | 0o600, os.makedev(1, 1))
        return "devices can be made"

    return first(
        [made, reads("/dev/mem"), reads("/dev/kmsg"), reads("/dev/sda"), reads("/dev/vda")]
    )


def change_the_kernel() -> str | None:
    """Its settings, and the limits of this container."""
    return first(
        [
            writes("/proc/sys/kernel/hostname"),
            writes("/proc/sysrq-trigger"),
            writes("/sys/kernel/uevent_helper"),
            writes("/sys/fs/cgroup/cgroup.procs"),
        ]
    )


def reach_the_engine() -> str | None:
    """Where its sockets usually are."""
    sockets = ("/run/podman/podman.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock")
    return first([connects(socket.AF_UNIX, path) for path in sockets])


def connect_to_the_host() -> str | None:
    """On its loopback, and on a socket that has no file."""
    return first(
        [
            connects(socket.AF_INET, ("127.0.0.1", PORT)),
            connects(socket.AF_UNIX, "\0" + ABSTRACT),
        ]
    )


def find_an_interface() -> str | None:
    """Beyond loopback."""
    with open("/proc/net/dev") as devices:
        names = {line.split(":")[0].strip() for line in devices if ":" in line} - {"lo"}
    with open("/proc/net/if_inet6") as addresses:
        names |= {line.split()[-1] for line in addresses} - {"lo"}
    return "interfaces {}".format(", ".join(sorted(names))) if names else None


def routes() -> list[str]:
    """The kernel's own list of ways to other machines; no address is tried for it."""
    with open("/proc/net/route") as lines:
        found = [line.split()[0] for line in lines][1:]
    try:
        with open("/proc/net/ipv6_route") as lines:
            found += [line.split()[-1] for line in lines]
    except FileNotFoundError:
        pass  # a kernel without IPv6
    return [interface for interface in found if interface != "lo"]


def find_a_route() -> str | None:
    """To anywhere but here."""
    found = routes()
    return "there are routes over {}".format(", ".join(sorted(set(found)))) if found else None


def resolve_names() -> str | None:
    """Whether a server for names can be reached; only one on this machine is tried."""
    with open("/etc/resolv.conf") as lines:
        servers = [line.split()[1] for line in lines if line.startswith("nameserver ")]

    def reached(server: str) -> Callable[[], str | None]:
        def attempt() -> str | None:
            if not server.startswith("127.") and server != "::1":
                return f"there is a route to the server {server}" if routes() else None
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as trial:
                trial.settimeout(2)
                trial.connect((server, 53))
            return f"the server {server} answers"

        return attempt

    return first([reached(server) for server in servers])


def send_raw_packets() -> str | None:
    """With a header of their own."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "raw sockets can be opened"


FILES_AND_PROCESSES = (
    work_in_the_workspace,
    write_outside_the_workspace,
    read_files_of_the_host,
    read_the_runner,
    inherit_open_files,
    signal_the_runner,
    trace_the_runner,
    see_other_processes,
    gain_rights,
    use_forbidden_system_calls,
    raise_limits,
    mount,
    make_devices,
    change_the_kernel,
    reach_the_engine,
)
NETWORK = (
    connect_to_the_host,
    find_an_interface,
    find_a_route,
    resolve_names,
    send_raw_packets,
)


def tried(attempt: Callable[[], str | None]) -> tuple[bool, str]:
    """Whether an attempt was stopped, and how it was answered."""
    try:
        found = attempt()
    except OSError as error:
        return True, error.strerror or str(error)
    except Exception as error:
        return False, f"could not be tried: {error!r}"
    return (False, found) if found else (True, "nothing found")


def main(with_network: bool) -> None:
    """Make every attempt."""
    for attempt in FILES_AND_PROCESSES + (NETWORK if with_network else ()):
        stopped, detail = tried(attempt)
        name = attempt.__name__.replace("_", " ")
        sys.stdout.write(json.dumps([name, stopped, str(detail)[:300]]) + "\n")


if __name__ == "__main__":
    main(PORT > 0)
