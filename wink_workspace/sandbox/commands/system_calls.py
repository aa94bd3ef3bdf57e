"""The seccomp filter of commands: the engine's own list, without the calls they do not need.

The engine's list is made for every kind of container, also for containers in containers. So it lets
an ordinary user create namespaces, which give root access to a part of the kernel with many past
vulnerabilities; keep keys in a keyring that outlives the user; and open sockets of families that no
network namespace confines (``vsock`` reaches the hypervisor). All that is removed, and so are the
calls of 32-bit programs, for which some rules would be needed twice.

The filter is made from the installed list, which knows the calls of this kernel and library.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_INSTALLED: Final = (
    Path("/etc/containers/seccomp.json"),
    Path("/usr/share/containers/seccomp.json"),
)

_NAMESPACES_AND_MOUNTS: Final = """
    chroot fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree open_tree_attr
    pivot_root setns umount umount2 unshare
"""
_OF_OTHER_PROCESSES: Final = """
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
"""Allocates disk space immediately, before the disk watch can check. If it fails as not supported,
programs write instead, as the C library's ``posix_fallocate`` does."""
_NEVER: Final = frozenset((_NAMESPACES_AND_MOUNTS + _OF_OTHER_PROCESSES + _THE_MACHINE).split())
_EPERM: Final = 1
_EOPNOTSUPP: Final = 95
_NEW_NAMESPACES: Final = 0x7E02_0000  # every CLONE_NEW flag that clone takes
_FAMILIES: Final = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
_NETLINK, _NETLINK_ROUTE = 16, 0  # the C library lists interfaces with it

_List = dict[str, Any]  # Any: the engine's JSON


def installed_list() -> Path | None:
    """The file with the engine's list; ``None`` if it is only built into the engine."""
    return next((path for path in _INSTALLED if path.is_file()), None)


@contextmanager
def narrowed() -> Generator[Path | None]:
    """A temporary file with the narrowed list, deleted at the end of the block.

    ``None`` if no list is installed: then the engine's built-in list applies.
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
    """The engine's list *allowed* without the calls named above."""
    own_rules = {"clone", "clone3", "socket", "socketcall", _UNBOUNDED}
    rules = list(_without({*_NEVER, *own_rules}, allowed["syscalls"]))
    rules.append({"names": [_UNBOUNDED], "action": "SCMP_ACT_ERRNO", "errnoRet": _EOPNOTSUPP})
    rules.append({"names": sorted(_NEVER), "action": "SCMP_ACT_ERRNO", "errnoRet": _EPERM})
    # A filter cannot read the flags of clone3. It fails with ENOSYS, and libraries use clone.
    rules += _cloning()
    rules += [_allow("socket", _equals(0, family)) for family in _FAMILIES]
    rules.append(_allow("socket", _equals(0, _NETLINK), _equals(2, _NETLINK_ROUTE)))
    native: list[_List] = [{**arch, "subArchitectures": []} for arch in allowed.get("archMap", ())]
    return {**allowed, "archMap": native, "syscalls": rules}


def _cloning() -> Iterable[_List]:
    """Allow clone without namespaces; the position of its flags depends on the architecture."""
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
