"""Makes overlay mounts without a mount point, and attaches them to containers.

A program of its own, because a threaded process must not fork or change its namespaces. It is
started as ``python -I -S mounter.py FD [own]``, and uses the standard library only. FD is one end
of a ``SOCK_SEQPACKET`` pair. With ``own`` it first enters a new user namespace, in which its user
is root. It ends when the other end is closed. It keeps no mount: each one ends with its last
descriptor.

Every request is one packet: a JSON object with ``do``, and descriptors. Every answer is one packet:
a JSON object, which has ``errno`` and ``text`` after a failure, and perhaps one descriptor. The
first packet is an answer to no request: it says whether the program is ready, its ``pid``, and
whether it is ``privileged``, which is root of the first user namespace.

``mount``    the paths ``lower``, ``upper`` and ``work``; answers with the mount. They are not
             descriptors, because the kernel takes directories of the own mount namespace only.
``forget``   a mount: the kernel forgets the names of its files that no process uses.
``subtree``  a mount and ``path``; answers with a mount of that directory of it.
``attach``   a mount, ``pid``, ``path`` and ``target``: mounts that directory of it on *target* in
             the mount namespace of that process. Without a mount, *path* is one of this machine.
             With ``writes``, a list of directories below *path*, everything else is read-only.

A mount writes with the rights of the process that made it. So it is made with the file-system ids
of the owner of the upper layer, and without ``CAP_SYS_RESOURCE``. With either of them that owner
could fill the blocks that ext4 reserves for root.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any

# The numbers of system calls added since Linux 5.1 are the same on every architecture but Alpha.
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _FSPICK = range(428, 434)
_OPENAT2, _MOUNT_SETATTR = 437, 442
_SET_FLAG, _SET_STRING, _CREATE, _RECONFIGURE = 0, 1, 6, 7
_FSPICK_CLOEXEC, _FSPICK_EMPTY_PATH = 1, 8
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1
_NOSUID_NODEV = 0x2 | 0x4
_OPEN_TREE_CLONE = 1
_MOVE_FROM_EMPTY_PATH, _MOVE_TO_EMPTY_PATH = 4, 64
_AT_EMPTY_PATH = 0x1000
_ATTR_RDONLY, _MS_PRIVATE = 1, 1 << 18
_RESOLVE_NO_XDEV, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 1, 4, 8
_AT_FDCWD = -100
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_CAP_SYS_RESOURCE = 24
_CAPABILITY_VERSION_3 = 0x2008_0522
_MAX_BYTES = 65_536
_MAX_DESCRIPTORS = 8
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ALL_IDS = ["0", "0", "4294967295"]

_OPTIONS = {"index": "off", "metacopy": "off", "redirect_dir": "on"}
_USER_OPTIONS = {"userxattr": None}
"""In a user namespace the kernel refuses the others, or they are off."""

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _system_call(*arguments: int | bytes | None) -> int:
    return _checked(_libc.syscall(*arguments))


def _is_privileged() -> bool:
    """Whether this process is root in the first user namespace."""
    ids = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    return os.geteuid() == 0 and ids == _ALL_IDS


def _enter_user_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        Path("/proc/self", name).write_text(text, encoding="ascii")


def _act_for(user: int, group: int) -> None:
    """Use these ids for files, with every capability of this process but one."""
    _libc.setfsgid(group)
    _libc.setfsuid(user)  # drops the capabilities for files, which capset sets again
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, data))
    _, low, low_inherited, _, high, high_inherited = struct.unpack("=6I", data.raw)
    effective = low & ~(1 << _CAP_SYS_RESOURCE)
    wanted = struct.pack("=6I", effective, low, low_inherited, high, high, high_inherited)
    _checked(_libc.capset(header, wanted))


def _mount(request: dict[str, object], _: list[int]) -> int:
    opened: list[int] = []
    options: dict[str, str | None] = dict(_OPTIONS if _is_privileged() else _USER_OPTIONS)
    try:
        for name in ("lower", "upper", "work"):
            opened.append(os.open(str(request[name]), _DIRECTORY))
            # mountinfo shows these texts, and they must not name a path of the host.
            options[f"{name}dir"] = f"/proc/self/fd/{opened[-1]}"
        owner = os.fstat(opened[1])
        _act_for(owner.st_uid, owner.st_gid)
        return _mounted(options)
    finally:
        _act_for(0, 0)
        for descriptor in opened:
            os.close(descriptor)


def _mounted(options: dict[str, str | None]) -> int:
    context = _system_call(_FSOPEN, b"overlay", _FSOPEN_CLOEXEC)
    try:
        for key, text in options.items():
            kind = _SET_FLAG if text is None else _SET_STRING
            value = None if text is None else text.encode()
            _system_call(_FSCONFIG, context, kind, key.encode(), value, 0)
        _system_call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _system_call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, _NOSUID_NODEV)
    finally:
        os.close(context)


def _forget(_: dict[str, object], descriptors: list[int]) -> None:
    (mount,) = descriptors
    context = _system_call(_FSPICK, mount, b"", _FSPICK_CLOEXEC | _FSPICK_EMPTY_PATH)
    try:
        _system_call(_FSCONFIG, context, _RECONFIGURE, None, None, 0)  # without any change
    finally:
        os.close(context)


def _subtree(request: dict[str, object], descriptors: list[int]) -> int:
    (mount,) = descriptors
    path = os.fsencode(str(request["path"]))
    return _system_call(_OPEN_TREE, mount, path, _OPEN_TREE_CLONE | os.O_CLOEXEC)


def _attach(request: dict[str, Any], descriptors: list[int]) -> None:
    target, pid = os.fsencode(request["target"]), int(request["pid"])
    writes: list[str] | None = request.get("writes")
    opened: list[int] = []
    mounts: list[tuple[int, bytes]] = []
    try:
        tree = _subtree(request, descriptors or [_AT_FDCWD])
        opened.append(tree)
        mounts.append((tree, b""))
        if writes is not None:
            for path in map(os.fsencode, writes):
                below = _opened_below(tree, path)
                opened.append(below)
                part = _system_call(
                    _OPEN_TREE, below, b"", _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
                )
                opened.append(part)
                _set_attributes(part, _NOSUID_NODEV)
                mounts.append((part, path))
            _set_attributes(tree, _NOSUID_NODEV | _ATTR_RDONLY)
        for name in ("user", "mnt"):
            path = f"/proc/{pid}/ns/{name}"
            opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        user_namespace, mount_namespace = opened[-2:]
        child = os.fork()
        if child == 0:
            os._exit(_move(mounts, user_namespace, mount_namespace, target))
        status = os.waitpid(child, 0)[1]
    finally:
        for descriptor in opened:
            os.close(descriptor)
    number = os.waitstatus_to_exitcode(status)
    if number:
        raise OSError(abs(number), os.strerror(abs(number)))


def _opened_below(directory: int, path: bytes) -> int:
    """A descriptor of a directory below another one, without any link on the way."""
    resolve = _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
    how = struct.pack("=QQQ", _DIRECTORY, 0, resolve)
    return _system_call(_OPENAT2, directory, path, how, len(how))


def _set_attributes(mount: int, attributes: int) -> None:
    """Add attributes to a mount that is not attached, and separate it from the one it copies."""
    wanted = struct.pack("=QQQQ", attributes, 0, _MS_PRIVATE, 0)
    _system_call(_MOUNT_SETATTR, mount, b"", _AT_EMPTY_PATH, wanted, len(wanted))


def _move(
    mounts: list[tuple[int, bytes]], user_namespace: int, mount_namespace: int, target: bytes
) -> int:
    """Mount the first of *mounts* on *target* there, the others below it; the ``errno``, or 0."""
    try:
        own = Path("/proc/self/ns/user").stat()
        if not os.path.samestat(os.fstat(user_namespace), own):
            _checked(_libc.setns(user_namespace, _CLONE_NEWUSER))
        _checked(_libc.setns(mount_namespace, _CLONE_NEWNS))
        (first, _), *others = mounts
        _system_call(_MOVE_MOUNT, first, b"", _AT_FDCWD, target, _MOVE_FROM_EMPTY_PATH)
        for mount, path in others:
            onto = _opened_below(first, path)  # the attached mount, so links cannot lead away
            flags = _MOVE_FROM_EMPTY_PATH | _MOVE_TO_EMPTY_PATH
            _system_call(_MOVE_MOUNT, mount, b"", onto, b"", flags)
    except OSError as error:
        return error.errno or 255
    return 0


_ACTIONS = {"mount": _mount, "forget": _forget, "subtree": _subtree, "attach": _attach}


def _serve(channel: socket.socket) -> None:
    while True:
        space = socket.CMSG_SPACE(4 * _MAX_DESCRIPTORS)
        packet, ancillary, _, _ = channel.recvmsg(_MAX_BYTES, space)
        if not packet:
            return
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        answer: dict[str, object] = {}
        made: list[int] = []
        try:
            request = json.loads(packet)
            result = _ACTIONS[request["do"]](request, list(descriptors))
            if result is not None:
                made.append(result)
        except OSError as error:
            answer = {"errno": error.errno, "text": error.strerror}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        socket.send_fds(channel, [json.dumps(answer).encode()], made)
        for descriptor in made:
            os.close(descriptor)


def main() -> None:
    """Serve until the other end is closed."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        if "own" in sys.argv[2:]:
            _enter_user_namespace()
        answer: dict[str, object] = {"pid": os.getpid(), "privileged": _is_privileged()}
    except OSError as error:
        answer = {"errno": error.errno, "text": error.strerror}
    channel.send(json.dumps(answer).encode())
    _serve(channel)


if __name__ == "__main__":
    main()
