"""The filter of system calls as the kernel reads it, compiled once for this machine.

It allows what containers are allowed, by a list of our own, since no engine needs to be installed.
A second filter protects the first process of the sandbox, which is the runner: an ordinary user
has one id only, so commands have the runner's.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox.commands.system_calls import narrowed_list
from wink_workspace.system_packages import install_hint

__all__ = ["compiled_filters"]

_NAMES: Final = Path(__file__).with_name("system_calls.txt")
_PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF)
_ENOSYS: Final = 38
_EPERM: Final = 1
_VERSION: Final = 1
_FIRST_PROCESS: Final = {
    "kill": 0,
    "tkill": 0,
    "tgkill": 1,
    "rt_sigqueueinfo": 0,
    "rt_tgsigqueueinfo": 1,
    "pidfd_open": 0,
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setattr": 0,
    "sched_setparam": 0,
    "sched_setscheduler": 0,
    "setpriority": 1,
    "ioprio_set": 1,
    "process_mrelease": 0,
}
"""Calls that act on a process, and which argument is its id."""
_WHOLE_USER: Final = {"setpriority": 2, "ioprio_set": 3}
"""Calls that act on every process of a user if their first argument has this value."""
_LOW_32_BITS: Final = 0xFFFF_FFFF


def compiled_filters(environment: Environment) -> tuple[bytes, bytes]:
    """The two filters; compiled once, and kept in the user's cache.

    Raises:
        SandboxUnavailableError: If the library that compiles them is missing.
    """
    rules = _rules()
    about = json.dumps([_VERSION, os.uname().machine, rules, _FIRST_PROCESS, _WHOLE_USER])
    name = f"seccomp-{hashlib.sha256(about.encode()).hexdigest()[:24]}"
    try:
        folder: Path | None = environment.cache_dir
    except UsageError:
        folder = None  # without a home directory nothing is kept
    if folder is not None:
        with suppress(OSError):
            return (folder / f"{name}.1").read_bytes(), (folder / f"{name}.2").read_bytes()
    filters = (_compiled(rules), _compiled_protection())
    if folder is not None:
        with suppress(OSError):  # it only saves time
            folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            for number, content in enumerate(filters, 1):
                temporary = folder / f"{name}.{os.getpid()}.new"
                temporary.write_bytes(content)
                temporary.rename(folder / f"{name}.{number}")
    return filters


def _rules() -> dict[str, Any]:
    names = _NAMES.read_text(encoding="ascii").split()
    personality = [
        {
            "names": ["personality"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": value, "valueTwo": 0, "op": "SCMP_CMP_EQ"}],
        }
        for value in _PERSONALITIES
    ]
    allowed = {"names": names, "action": "SCMP_ACT_ALLOW", "args": []}
    return narrowed_list({"syscalls": [allowed, *personality]})


def _library() -> Any:
    try:
        import pyseccomp  # pyright: ignore[reportMissingTypeStubs] - has none; loads a library
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxUnavailableError(
            f"the filter of system calls cannot be compiled: {error}",
            hint=install_hint("libseccomp2"),
        ) from error
    return pyseccomp


def _compiled(rules: dict[str, Any]) -> bytes:
    library = _library()
    made = library.SyscallFilter(library.ERRNO(_ENOSYS))
    for rule in _applicable(rules["syscalls"]):
        is_allowed = rule["action"] == "SCMP_ACT_ALLOW"
        action = library.ALLOW if is_allowed else library.ERRNO(rule["errnoRet"])
        conditions = [
            library.Arg(
                each["index"],
                getattr(library, each["op"].removeprefix("SCMP_CMP_")),
                each["value"],
                each["valueTwo"],
            )
            for each in rule.get("args") or ()
        ]
        for name in rule["names"]:
            _add(library, made, action, name, *conditions)
    return _exported(made)


def _compiled_protection() -> bytes:
    library = _library()
    made = library.SyscallFilter(library.ALLOW)
    refused = library.ERRNO(_EPERM)
    for name, index in _FIRST_PROCESS.items():
        # the kernel reads 32 bits of these arguments
        _add(library, made, refused, name, library.Arg(index, library.MASKED_EQ, _LOW_32_BITS, 1))
    for name, value in _WHOLE_USER.items():
        condition = library.Arg(0, library.MASKED_EQ, _LOW_32_BITS, value)
        _add(library, made, refused, name, condition)
    return _exported(made)


def _applicable(rules: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rules of this architecture; only s390 differs."""
    is_s390 = os.uname().machine in ("s390", "s390x")
    for rule in rules:
        if ("includes" in rule and not is_s390) or ("excludes" in rule and is_s390):
            continue
        yield rule


def _add(library: Any, made: Any, action: int, name: str, *conditions: Any) -> None:
    with suppress(ValueError, OSError):  # a name that this library or architecture lacks
        if library.resolve_syscall(library.system_arch(), name) >= 0:
            made.add_rule(action, name, *conditions)


def _exported(made: Any) -> bytes:
    with os.fdopen(os.memfd_create("wink-seccomp"), "w+b", buffering=0) as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()
