"""The filter of system calls as the kernel reads it, compiled once for this machine.

It allows what containers are allowed, by a list of our own, since no engine needs to be installed.
A second filter protects the first process of the sandbox, which is the runner: an ordinary user
has one id only, so commands have the runner's.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.sandbox.commands.system_calls import narrowed_list
from wink_workspace.system_packages import install_hint

_NAMES: Final = Path(__file__).with_name("system_calls.txt")
_PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF)
_ENOSYS: Final = 38
_EPERM: Final = 1
_VERSION: Final = 1
_FIRST_PROCESS: Final = (
    (
        "kill tkill rt_sigqueueinfo pidfd_open prlimit64 sched_setaffinity sched_setattr"
        " sched_setparam sched_setscheduler"
    ),
    "tgkill rt_tgsigqueueinfo setpriority ioprio_set",
)
"""Calls that act on a process: those whose first argument is its id, and those with the second."""
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
    def allow(names: list[str], *conditions: dict[str, Any]) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(conditions)}

    equal = {"index": 0, "valueTwo": 0, "op": "SCMP_CMP_EQ"}
    rules = [allow(["personality"], {**equal, "value": value}) for value in _PERSONALITIES]
    names = _NAMES.read_text(encoding="ascii").split()
    return narrowed_list({"syscalls": [allow(names), *rules]})


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
    is_s390 = os.uname().machine in ("s390", "s390x")  # the one whose rules differ
    for rule in rules["syscalls"]:
        if ("excludes" if is_s390 else "includes") in rule:
            continue
        is_allowed = rule["action"] == "SCMP_ACT_ALLOW"
        action = library.ALLOW if is_allowed else library.ERRNO(rule["errnoRet"])
        conditions = [
            library.Arg(each["index"], _operator(library, each), each["value"], each["valueTwo"])
            for each in rule.get("args") or ()
        ]
        for name in rule["names"]:
            _add(library, made, action, name, *conditions)
    return _exported(made)


def _operator(library: Any, condition: dict[str, Any]) -> Any:
    return getattr(library, condition["op"].removeprefix("SCMP_CMP_"))


def _compiled_protection() -> bytes:
    library = _library()
    made = library.SyscallFilter(library.ALLOW)
    refused = library.ERRNO(_EPERM)
    protected = [(name, i, 1) for i, names in enumerate(_FIRST_PROCESS) for name in names.split()]
    protected += [(name, 0, value) for name, value in _WHOLE_USER.items()]
    for name, index, value in protected:
        # the kernel reads 32 bits of these arguments
        condition = library.Arg(index, library.MASKED_EQ, _LOW_32_BITS, value)
        _add(library, made, refused, name, condition)
    return _exported(made)


def _add(library: Any, made: Any, action: int, name: str, *conditions: Any) -> None:
    with suppress(ValueError, OSError):  # a name that this library or architecture lacks
        if library.resolve_syscall(library.system_arch(), name) >= 0:
            made.add_rule(action, name, *conditions)


def _exported(made: Any) -> bytes:
    with os.fdopen(os.memfd_create("wink-seccomp"), "w+b", buffering=0) as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()
