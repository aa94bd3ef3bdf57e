"""Isolation probes, run inside a container by the user of commands.

Like the runner, this file is sent to the container as a whole: it imports nothing of this package
and works on Python 3.8 and later. It prints a line of JSON for each probe: its name, whether it was
stopped, and a detail. A probe that is stopped raises ``OSError`` or returns ``None``. Anything else
that it returns describes what it found, which is a hole.
"""

from __future__ import annotations

import _socket  # the module socket takes 5 ms to load, json and typing take as long
import os
import resource
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CANARY = os.environ.get("WINK_CANARY", "")
PORT = int(os.environ.get("WINK_PORT", "0"))
ABSTRACT = os.environ.get("WINK_ABSTRACT", "")
BOUND = os.environ.get("WINK_BOUND", "").split(" ")
"""The paths where something of the host may be bound, escaped as in ``mountinfo``."""
SCRATCH = os.environ.get("WINK_SCRATCH", "/tmp").split("\n")
"""Directories that commands may write, and which are emptied after each of them."""


def system() -> Any:
    """The C library."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def called(result: int) -> str | None:
    """The finding of a C library call: an ``OSError`` if it returned -1."""
    import ctypes

    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "it was allowed"


def first(attempts: list[Callable[[], str | None]]) -> str | None:
    """The first finding of several attempts."""
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
    """An attempt to create a file, which deletes it again."""

    def attempt() -> str:
        with open(path, "wb") as file:
            file.write(b"x")
        os.unlink(path)
        return path + " can be written"

    return attempt


def reads(path: str) -> Callable[[], str | None]:
    """An attempt to read a file."""

    def attempt() -> str:
        with open(path, "rb") as file:
            return f"{path} can be read: {file.read(16)!r}"

    return attempt


def connects(family: int, address: tuple[str, int] | str) -> Callable[[], str | None]:
    """An attempt to connect to a listening socket."""

    def attempt() -> str:
        trial = _socket.socket(family, _socket.SOCK_STREAM)
        trial.settimeout(2)
        trial.connect(address)
        return f"{address!r} answers"

    return attempt


# The probes


def write_outside_the_workspace() -> str | None:
    """Create files in the directories that programs usually write to."""
    directories = (
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
    attempts = [
        writes(os.path.join(path, ".wink-probe")) for path in directories if path not in SCRATCH
    ]
    return first(attempts)


def read_files_of_the_host() -> str | None:
    """Read a canary file that the host has created for this."""
    return first([reads(CANARY), reads("/proc/1/root" + CANARY)])


def see_paths_of_the_host() -> str | None:
    """Find paths of the engine or of the user in the list of mounts [proc(5)]."""
    for process in ("self", "1"):
        with open(f"/proc/{process}/mountinfo", errors="surrogateescape") as lines:
            for line in lines:
                found = path_of_the_host(line)
                if found:
                    return found
    return None


def is_device(path: str) -> bool:
    """Whether *path* is a character device."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


def path_of_the_host(line: str) -> str | None:
    """A path of the host in a line of ``mountinfo``: a mount's root, source or option."""
    mount, _, filesystem = line.rstrip("\n").partition(" - ")
    root, point = mount.split(" ")[3:5]
    kind, source, options = filesystem.split(" ", 2)
    if kind in ("proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue"):
        return None  # their roots do not name files
    if any((point + "/").startswith(each + "/") for each in BOUND):
        return None
    if is_device(point):
        return None  # such as /dev/null
    if root.strip("/") and not root[1:].isdigit():  # our copies of files have numbers
        return f"the mount on {point} is of {root}"
    for text in [source, *options.replace("=", ",").replace(":", ",").split(",")]:
        if text.startswith("/"):
            return f"the mount on {point} shows {text}"
    return None


def read_the_runner() -> str | None:
    """Read the runner's environment, memory and descriptors."""
    return first(
        [reads("/proc/1/environ"), reads("/proc/1/mem"), lambda: str(os.listdir("/proc/1/fd"))]
    )


def inherit_open_files() -> str | None:
    """Find open descriptors, such as the streams to the host."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(4_096))
    held: list[int] = []
    for number in numbers:
        if number < 3:
            continue
        try:
            os.fstat(number)
        except OSError:
            continue
        held.append(number)
    return f"descriptors {held}" if held else None


def signal_the_runner() -> str | None:
    """Send signal 0, which only checks the permission."""
    os.kill(1, 0)
    return "the first process can be signalled"


def trace_the_runner() -> str | None:
    """Attach to the runner as a debugger does."""
    return called(system().ptrace(16, 1, None, None))


def see_other_processes() -> str | None:
    """Find processes other than the runner and this one."""
    others = {name for name in os.listdir("/proc") if name.isdigit()} - {"1", str(os.getpid())}
    return "processes {}".format(", ".join(sorted(others))) if others else None


def gain_rights() -> str | None:
    """Find capabilities, or become root."""
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
    """Check that a seccomp filter is active."""
    with open("/proc/self/status") as status:
        if "Seccomp:\t2" not in status.read():
            return "no filter of system calls"
    return None


def raise_limits() -> str | None:
    """Raise hard limits."""

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
    """Mount a filesystem."""
    return called(system().mount(b"none", b"/tmp", b"tmpfs", 0, None))


def make_devices() -> str | None:
    """Create a device file, or read the host's devices."""

    def made() -> str:
        os.mknod("/tmp/.wink-device", stat.S_IFCHR | 0o600, os.makedev(1, 1))
        return "devices can be made"

    return first(
        [made, reads("/dev/mem"), reads("/dev/kmsg"), reads("/dev/sda"), reads("/dev/vda")]
    )


def change_the_kernel() -> str | None:
    """Write to kernel settings, or leave the container's cgroup."""
    return first(
        [
            writes("/proc/sys/kernel/hostname"),
            writes("/proc/sysrq-trigger"),
            writes("/sys/kernel/uevent_helper"),
            writes("/sys/fs/cgroup/cgroup.procs"),
        ]
    )


def reach_the_engine() -> str | None:
    """Connect to the usual sockets of container engines."""
    sockets = ("/run/podman/podman.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock")
    return first([connects(_socket.AF_UNIX, path) for path in sockets])


def connect_to_the_host() -> str | None:
    """Connect to listeners of the host, on its loopback and on an abstract socket."""
    return first(
        [
            connects(_socket.AF_INET, ("127.0.0.1", PORT)),
            connects(_socket.AF_UNIX, "\0" + ABSTRACT),
        ]
    )


def find_an_interface() -> str | None:
    """Find a network interface other than loopback."""
    with open("/proc/net/dev") as devices:
        names = {line.split(":")[0].strip() for line in devices if ":" in line} - {"lo"}
    with open("/proc/net/if_inet6") as addresses:
        names |= {line.split()[-1] for line in addresses} - {"lo"}
    return "interfaces {}".format(", ".join(sorted(names))) if names else None


def routes() -> list[str]:
    """The interfaces in the kernel's routing tables, without loopback."""
    with open("/proc/net/route") as lines:
        found = [line.split()[0] for line in lines][1:]
    try:
        with open("/proc/net/ipv6_route") as lines:
            found += [line.split()[-1] for line in lines]
    except FileNotFoundError:
        pass  # a kernel without IPv6
    return [interface for interface in found if interface != "lo"]


def find_a_route() -> str | None:
    """Find a route to another machine."""
    found = routes()
    return "there are routes over {}".format(", ".join(sorted(set(found)))) if found else None


def resolve_names() -> str | None:
    """Reach a DNS server; connects only to a server on this machine."""
    with open("/etc/resolv.conf") as lines:
        servers = [line.split()[1] for line in lines if line.startswith("nameserver ")]

    def reached(server: str) -> Callable[[], str | None]:
        def attempt() -> str | None:
            if not server.startswith("127.") and server != "::1":
                return f"there is a route to the server {server}" if routes() else None
            family = _socket.AF_INET6 if ":" in server else _socket.AF_INET
            trial = _socket.socket(family, _socket.SOCK_STREAM)
            trial.settimeout(2)
            trial.connect((server, 53))
            return f"the server {server} answers"

        return attempt

    return first([reached(server) for server in servers])


def send_raw_packets() -> str | None:
    """Open a raw socket."""
    _socket.socket(_socket.AF_INET, _socket.SOCK_RAW, _socket.IPPROTO_ICMP)
    return "raw sockets can be opened"


PROBES = (
    write_outside_the_workspace,
    read_files_of_the_host,
    see_paths_of_the_host,
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
    connect_to_the_host,
    find_an_interface,
    find_a_route,
    resolve_names,
    send_raw_packets,
)


def run_probe(probe: Callable[[], str | None]) -> tuple[bool, str]:
    """Whether a probe was stopped, and the detail."""
    try:
        found = probe()
    except OSError as error:
        return True, error.strerror or str(error)
    except Exception as error:
        return False, f"the probe failed: {error!r}"
    return (False, found) if found else (True, "nothing found")


def main() -> None:
    """Run every probe and print the results."""
    for probe in PROBES:
        stopped, detail = run_probe(probe)
        name = probe.__name__.replace("_", " ")
        shown = (c if c.isalnum() or c in " ./,:_-" else f"\\u{ord(c):04x}" for c in detail[:300])
        sys.stdout.write(f'["{name}", {str(stopped).lower()}, "{"".join(shown)}"]\n')


if __name__ == "__main__":
    main()
