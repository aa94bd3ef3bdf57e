"""The system calls that commands may make: the engine's own list, less what they have no use for.

The engine's list is made for everything that runs in containers, containers included. So it lets
an ordinary user make namespaces, in which it is root over a part of the kernel that has had more
holes than any other; keep keys in a ring that outlives it; and open sockets of families that no
network namespace confines (``vsock`` leads to the hypervisor). All that is taken out, and so are
the calls of 32-bit programs, for which some filters would have to be written twice.

Made from the list that is installed here, so that it knows the calls of this kernel and library.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["installed_list", "narrowed", "narrowed_list"]

_INSTALLED: Final = (
    Path("/etc/containers/seccomp.json"),
    Path("/usr/share/containers/seccomp.json"),
)

_NAMESPACES_AND_MOUNTS: Final = """
    chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree open_tree_attr
    pivot_root setns umount umount2 unshare
"""
_OF_OTHERS: Final = """
    add_key keyctl request_key name_to_handle_at open_by_handle_at pidfd_getfd kcmp process_madvise
"""
_THE_MACHINE: Final = """
    acct bpf clock_adjtime clock_adjtime64 clock_settime clock_settime64 delete_module fanotify_init
    fanotify_mark finit_module init_module io_uring_enter io_uring_register io_uring_setup ioperm
    iopl kexec_file_load kexec_load lookup_dcookie memfd_secret modify_ldt perf_event_open
    query_module quotactl quotactl_fd reboot setdomainname sethostname settimeofday stime swapoff
    swapon syslog userfaultfd vhangup vmsplice
"""
_UNBOUNDED: Final = "fallocate"
"""Takes room on the disk at once, before any watch can look. Programs that are told that the
filesystem does not support it write instead, as the C library's ``posix_fallocate`` does."""
_NEVER: Final = frozenset((_NAMESPACES_AND_MOUNTS + _OF_OTHERS + _THE_MACHINE).split())
_EPERM: Final = 1
_EOPNOTSUPP: Final = 95
_NEW_NAMESPACES: Final = 0x7E02_0000  # every CLONE_NEW flag that clone takes
_FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _NETLINK_ROUTE = 16, 0  # how the C library lists interfaces

_List = dict[str, Any]  # Any: it is the engine's JSON


def installed_list() -> Path | None:
    """Where the engine's list is; ``None`` if it is only built into the engine."""
    return next((path for path in _INSTALLED if path.is_file()), None)


@contextmanager
def narrowed() -> Generator[Path | None]:
    """A file with the narrowed list, for as long as the block lasts.

    ``None`` if no list is installed: then the engine's own applies.
    """
    found = installed_list()
    if found is None:
        yield None
        return
    with tempfile.NamedTemporaryFile("w", prefix="wink-workspace-", suffix=".json") as file:
        json.dump(narrowed_list(json.loads(found.read_bytes())), file)
        file.flush()
        yield Path(file.name)


def narrowed_list(allowed: Mapping[str, Any]) -> _List:
    """What *allowed* allows, less all that is named above."""
    own_rules = {"clone", "clone3", "socket", "socketcall", _UNBOUNDED}
    rules = list(_without({*_NEVER, *own_rules}, allowed["syscalls"]))
    rules.append({"names": [_UNBOUNDED], "action": "SCMP_ACT_ERRNO", "errnoRet": _EOPNOTSUPP})
    rules.append({"names": sorted(_NEVER), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM})
    # clone3 passes its flags where no filter can look; answered with ENOSYS, libraries use clone.
    rules += _cloning()
    rules += [_allow("socket", _equals(0, family)) for family in _FAMILIES]
    rules.append(_allow("socket", _equals(0, _NETLINK), _equals(2, _NETLINK_ROUTE)))
    native: list[_List] = [{**arch, "subArchitectures": []} for arch in allowed.get("archMap", ())]
    return {**allowed, "archMap": native, "syscalls": rules}


def _cloning() -> Iterable[_List]:
    """Threads and processes, but no namespaces; where the flags are depends on the machine."""
    s390 = ["s390", "s390x"]
    for index, machines in (
        (0, {"excludes": {"arches": s390}}),
        (1, {"includes": {"arches": s390}}),
    ):
        none_of = {
            "index": index,
            "value": _NEW_NAMESPACES,
            "valueTwo": 0,
            "op": "SCMP_CMP_MASKED_EQ",
        }
        yield {**_allow("clone", none_of), **machines}


def _without(names: set[str], rules: Sequence[_List]) -> Iterable[_List]:
    for rule in rules:
        left = [name for name in rule["names"] if name not in names]
        if left:
            yield {**rule, "names": left}


def _allow(name: str, *conditions: _List) -> _List:
    return {"names": [name], "action": "SCMP_ACT_ALLOW", "args": list(conditions)}


def _equals(index: int, value: int) -> _List:
    return {"index": index, "value": value, "valueTwo": 0, "op": "SCMP_CMP_EQ"}
