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

``mount``    the paths ``lower`` (a list, the topmost first), ``upper`` and ``work``; answers with
             the mount. They are not descriptors, because the kernel takes directories of the own
             mount namespace only.
``forget``   a mount: the kernel forgets the names of its files that no process uses.
``subtree``  a mount and ``path``; answers with a mount of that directory of it.
``attach``   a mount, ``pid``, ``path`` and ``target``: mounts that directory of it on *target* in
             the mount namespace of that process. Without a mount, *path* is one of this machine.
             With ``writes``, a list of directories below *path*, everything else is read-only.
``hide``     the ``pid`` of a container whose first program has not started: gives its mount
             namespace a new root that shows the same files, without any path of the host in its
             list of mounts. Nothing changes if it fails. ``path`` is any directory there. Of
             what was mounted there files are copied and bound directories are left out, except
             the paths in ``keep``, and those in ``unchanging``, which become overlays.
``start``    descriptors, and perhaps a mount as the last one: starts ``argv`` in user, mount, IPC
             and network namespaces of its own, with the first descriptor as standard input and
             output and the others from 2 on. It answers with a pidfd. The program ends with this
             one if it asks for that. ``/tmp`` there is a new tree of ``entries``; see ``_build``.
             The other keys are ``limits``, ``settings`` and ``own_settings`` of the kernel, and
             ``first_id``, the first of the host's ids, or ``None`` for the caller's id alone.

A mount writes with the rights of the process that made it. So it is made with the file-system ids
of the owner of the upper layer, and without ``CAP_SYS_RESOURCE``. With either of them that owner
could fill the blocks that ext4 reserves for root.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import json
import os
import re
import resource
import socket
import stat
import struct
import sys
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
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
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
_ATTR_RDONLY, _MS_PRIVATE = 1, 1 << 18
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_RESOLVE_NO_XDEV, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 1, 4, 8
_AT_FDCWD = -100
_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000
_CLONE_NEWIPC, _CLONE_NEWNET = 0x0800_0000, 0x4000_0000
_N_IDS, _COMMANDS_ID = 65_536, 1_000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _SIGKILL = 1, 36, 9
_MS_REC = 16_384
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_STAGE = "/tmp"  # noqa: S108 - in a mount namespace of its own
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


def _mount(request: dict[str, Any], _: list[int]) -> int:
    opened: list[int] = []
    options: dict[str, str | None] = dict(_OPTIONS if _is_privileged() else _USER_OPTIONS)
    try:
        paths = (request["upper"], request["work"], *request["lower"])
        opened.extend(os.open(path, _DIRECTORY) for path in paths)
        # mountinfo shows these texts, and they must not name a path of the host. They are relative
        # paths, because the kernel takes at most 255 bytes for each.
        upper, work, *lower = map(str, opened)
        options |= {"upperdir": upper, "workdir": work, "lowerdir": ":".join(lower)}
        os.chdir("/proc/self/fd")
        owner = os.fstat(opened[0])
        _act_for(owner.st_uid, owner.st_gid)
        return _mounted(b"overlay", options)
    finally:
        _act_for(0, 0)
        os.chdir("/")
        for descriptor in opened:
            os.close(descriptor)


def _mounted(
    filesystem: bytes, options: Mapping[str, str | None], attributes: int = _NOSUID_NODEV
) -> int:
    context = _system_call(_FSOPEN, filesystem, _FSOPEN_CLOEXEC)
    try:
        for key, text in options.items():
            kind = _SET_FLAG if text is None else _SET_STRING
            value = None if text is None else text.encode()
            _system_call(_FSCONFIG, context, kind, key.encode(), value, 0)
        _system_call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _system_call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, attributes)
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
    mounts = [(_subtree(request, descriptors or [_AT_FDCWD]), b"")]
    try:
        if writes is not None:
            _add_parts(mounts, writes)
            _set_attributes(mounts[0][0], _NOSUID_NODEV | _ATTR_RDONLY)
        _in_namespaces_of(pid, lambda: _move(mounts, target))
    finally:
        for descriptor, _ in mounts:
            os.close(descriptor)


def _add_parts(mounts: list[tuple[int, bytes]], writes: list[str]) -> None:
    """Add a mount of each of the directories *writes* of the first mount."""
    for path in map(os.fsencode, writes):
        below = _opened_below(mounts[0][0], path)
        flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH
        mounts.append((_system_call(_OPEN_TREE, below, b"", flags), path))
        os.close(below)
        _set_attributes(mounts[-1][0], _NOSUID_NODEV)


def _in_namespaces_of(pid: int, action: Callable[[], None]) -> None:
    """Call *action* in a child in the user and mount namespaces of *pid*; raises its ``errno``."""
    opened: list[int] = []
    try:
        for name in ("user", "mnt"):
            path = f"/proc/{pid}/ns/{name}"
            opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        child = os.fork()
        if child == 0:
            number = 255
            try:
                number = _error_number(action, *opened)
            finally:
                os._exit(number)  # the child must not go on as another server
        status = os.waitpid(child, 0)[1]
    finally:
        for descriptor in opened:
            os.close(descriptor)
    number = os.waitstatus_to_exitcode(status)
    if number:
        raise OSError(abs(number), os.strerror(abs(number)))


def _error_number(action: Callable[[], None], user_namespace: int, mount_namespace: int) -> int:
    try:
        own = Path("/proc/self/ns/user").stat()
        if not os.path.samestat(os.fstat(user_namespace), own):
            _checked(_libc.setns(user_namespace, _CLONE_NEWUSER))
        _checked(_libc.setns(mount_namespace, _CLONE_NEWNS))
        action()
    except OSError as error:
        return error.errno or 255
    return 0


def _opened_below(directory: int, path: bytes, flags: int = _DIRECTORY) -> int:
    """A descriptor of a directory below another one, without any link on the way."""
    resolve = _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
    how = struct.pack("=QQQ", flags, 0, resolve)
    return _system_call(_OPENAT2, directory, path, how, len(how))


def _set_attributes(mount: int, attributes: int, *, recursive: bool = False) -> None:
    """Add attributes to a mount that is not attached, and separate it from the one it copies."""
    wanted = struct.pack("=QQQQ", attributes, 0, _MS_PRIVATE, 0)
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _system_call(_MOUNT_SETATTR, mount, b"", flags, wanted, len(wanted))


def _move(mounts: list[tuple[int, bytes]], target: bytes) -> None:
    """Mount the first of *mounts* on *target*, the others below it."""
    (first, _), *others = mounts
    _system_call(_MOVE_MOUNT, first, b"", _AT_FDCWD, target, _MOVE_FROM_EMPTY_PATH)
    for mount, path in others:
        # the attached mount, so links cannot lead away
        _attach_to(mount, _opened_below(first, path))


def _attach_to(mount: int, onto: int) -> None:
    flags = _MOVE_FROM_EMPTY_PATH | _MOVE_TO_EMPTY_PATH
    _system_call(_MOVE_MOUNT, mount, b"", onto, b"", flags)


def _hide(request: dict[str, Any], _: list[int]) -> None:
    pid, spare = int(request["pid"]), os.fsencode(request["path"])
    keep = set(map(os.fsencode, request["keep"]))
    unchanging = set(map(os.fsencode, request["unchanging"]))
    points = _mount_points(pid, keep | unchanging)
    _in_namespaces_of(pid, lambda: _replace_root(points, spare, keep, unchanging))


def _mount_points(pid: int, keep: set[bytes]) -> list[bytes]:
    """What is mounted directly on the root of process *pid*, and belongs on its new root [proc(5)].

    Directories that the engine bound, such as secrets of the host, do not; *keep* does.
    """
    lines = Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines()
    fields = [line.split(b" ", 5) for line in lines]
    above = {number for number, _, _, _, point, _ in fields if point == b"/"}
    escaped = re.compile(rb"\\([0-7]{3})")
    points: list[bytes] = []
    for _, parent, _, root, point, _ in fields:
        path = escaped.sub(lambda each: bytes([int(each[1], 8)]), point)
        if parent in above and path != b"/" and (path in keep or not _is_bound(pid, path, root)):
            points.append(path)
    return points


def _is_bound(pid: int, path: bytes, root: bytes) -> bool:
    """Whether the mount on *path* is of a directory below the root of a filesystem."""
    return root != b"/" and Path(f"/proc/{pid}/root{os.fsdecode(path)}").is_dir()


def _replace_root(
    points: list[bytes], spare: bytes, keep: set[bytes], unchanging: set[bytes]
) -> None:
    """Make an overlay of the root, mount on it what is mounted on the root, and exchange them.

    The list of mounts shows the options of an overlay and, for every other mount, its path in its
    filesystem. So the options are relative paths, and files that the engine mounted, such as
    ``/etc/hosts``, become files of a tmpfs, and *unchanging* directories become overlays with such
    options. Directories on *spare* are mounted for a moment only:
    older kernels make layers and copies of attached mounts alone.
    """
    os.setgid(0)  # the container's, which owns the copies
    os.setuid(0)
    os.umask(0)
    copied = [point for point in points if point not in keep and Path(os.fsdecode(point)).is_file()]
    cloned = [point for point in points if point not in copied and point not in unchanging]
    clones = [(_cloned(point), point) for point in cloned]
    with _mounted_on(spare, _copies_of(copied)):
        clones += [(_overlay_of(point, spare), point) for point in points if point in unchanging]
        for number, point in enumerate(copied):
            clones.append((_cloned(b"%s/%d" % (spare, number)), point))
            _set_attributes(clones[-1][0], _NOSUID_NODEV | _ATTR_RDONLY)
        root = _overlay_of(b"/", spare)
        with _mounted_on(spare, root):
            for clone, point in clones:
                onto = _opened_below(root, point.lstrip(b"/"), os.O_PATH | os.O_CLOEXEC)
                _attach_to(clone, onto)
            os.fchdir(root)
            _system_call(_pivot_root_number(), b".", b".")
    _checked(_libc.umount2(b".", _MNT_DETACH))  # the old root, with all that is mounted on it


def _overlay_of(directory: bytes, spare: bytes) -> int:
    """A read-only overlay of *directory*, whose options do not name it."""
    empty = os.path.relpath(spare, directory) + b"/empty"
    os.chdir(directory)
    try:
        options = {"lowerdir": f".:{os.fsdecode(empty)}", "userxattr": None}
        return _mounted(b"overlay", options, _NOSUID_NODEV | _ATTR_RDONLY)
    finally:
        os.chdir(b"/")


@contextmanager
def _mounted_on(directory: bytes, mount: int) -> Generator[None]:
    """Mount *mount* on *directory* above what is mounted there, and end that if the block fails."""
    _system_call(_MOVE_MOUNT, mount, b"", _AT_FDCWD, directory, _MOVE_FROM_EMPTY_PATH)
    try:
        yield
    except BaseException:
        _libc.umount2(directory, _MNT_DETACH)
        raise


def _copies_of(paths: list[bytes]) -> int:
    """A tmpfs with the content of *paths* as the files 0, 1, …, and an empty directory."""
    made = _mounted(b"tmpfs", {"mode": "0755", "nr_inodes": "1k", "size": "32m"})
    os.mkdir("empty", 0o755, dir_fd=made)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    for number, path in enumerate(paths):
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        with os.fdopen(os.open(str(number), flags, mode, dir_fd=made), "wb") as file:
            file.write(Path(os.fsdecode(path)).read_bytes())
    return made


def _pivot_root_number() -> int:
    machine = os.uname().machine
    if machine not in _PIVOT_ROOT:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _PIVOT_ROOT[machine]


def _cloned(path: bytes) -> int:
    """A copy of the mount on *path*, with everything that is mounted below it."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    return _system_call(_OPEN_TREE, _AT_FDCWD, path, flags)


# Starting programs


def _start(request: dict[str, Any], descriptors: list[int]) -> int:
    with suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            _started.discard(pid)
    _kill_children(except_for=_started)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        child = os.fork()
        if child == 0:
            try:
                _become(request, descriptors, theirs)
            except OSError as error:
                about = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
                theirs.send(json.dumps([error.errno, about]).encode())
            finally:
                os._exit(127)  # the child must not go on as another server
        theirs.close()
        answer = ours.recv(_MAX_BYTES)
        if answer == b"map":
            first = request["first_id"]
            ids = "0 0 1" if first is None else f"0 {first} {_N_IDS}"
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{child}/{name}").write_text(ids, encoding="ascii")
            ours.send(b"mapped")
            answer = ours.recv(_MAX_BYTES)  # nothing once the program runs
    if answer:
        os.waitpid(child, 0)
        raise OSError(*json.loads(answer))
    _started.add(child)
    return os.pidfd_open(child)


_started: set[int] = set()


def _kill_children(*, except_for: Collection[int] = ()) -> None:
    """Kill the programs that were started, or what one left that was killed while it started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    for pid in map(int, children.read_text(encoding="ascii").split() if children.exists() else ()):
        if pid not in except_for:
            with suppress(ProcessLookupError):
                os.kill(pid, _SIGKILL)


def _end_programs() -> None:
    """Kill everything that was started, and wait for it."""
    with suppress(ChildProcessError):
        while True:
            _kill_children()
            os.waitpid(-1, 0)


def _become(request: dict[str, Any], descriptors: list[int], server: socket.socket) -> None:
    """In the child: enter the namespaces, build the tree, and become the program."""
    parent = os.getppid()
    _checked(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWNET))
    _checked(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
    _write_all(request["settings"])
    first = request["first_id"]
    n_streams = request["n_streams"]
    _build(request["entries"], descriptors[n_streams:], first)
    _checked(_libc.unshare(_CLONE_NEWUSER))
    server.send(b"map")
    server.recv(16)
    if first is not None:
        os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    _write_all(request["own_settings"])
    for name, value in request["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name.upper()}"), (value, value))
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 100) for each in descriptors[:n_streams]]
    for number, each in enumerate([high[0], *high]):
        os.dup2(each, number)  # 0 and 1 are the first
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
    os.chdir("/")
    os.execve(request["argv"][0], request["argv"], {})  # noqa: S606 - no shell is meant


def _write_all(settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        Path("/proc/sys", *name.split(".")).write_text(str(value), encoding="ascii")


def _build(entries: list[dict[str, Any]], mounts: list[int], first_id: int | None) -> None:
    """Mount a new tree on ``/tmp``: each entry has a ``target`` below it, and parents come first.

    It has one of ``source``, a path of this machine; ``mounted``, the path in the mount that is
    the last descriptor; ``text`` of a file; ``link``; ``filesystem`` with its ``options``; and
    ``within``, the target of such a filesystem of which it is a part.
    Commands can write the last two. Other mounts are read-only unless they are ``writable``, except
    the directories ``writes`` below them.

    A mount point cannot be renamed or removed. So each directory above one that commands could
    write becomes a mount point, too.
    """
    first, owner = (0, 0) if first_id is None else (first_id, first_id + _COMMANDS_ID)
    opened: dict[str, list[tuple[int, bytes]]] = {}
    for entry in entries:
        if "source" in entry or "mounted" in entry:
            clone = _source_of(entry, mounts)
            attributes = _NOSUID_NODEV | (0 if entry.get("writable") else _ATTR_RDONLY)
            opened[entry["target"]] = trees = [(clone, b"")]
            _add_parts(trees, entry.get("writes", ()))
            _set_attributes(clone, attributes, recursive=True)
    root = _mounted(b"tmpfs", {"mode": "0755", "size": "16m", "nr_inodes": "8k"})
    _move([(root, b"")], os.fsencode(_STAGE))
    os.umask(0o022)
    writable: list[str] = []
    mounted: list[str] = []
    for entry in entries:
        path = f"{_STAGE}/{entry['target']}"
        above = _made_above(path)
        for each in above:
            if any(each.startswith(f"{top}/") for top in writable):
                os.chown(each, owner, owner)
                _move([(_cloned(os.fsencode(each)), b"")], os.fsencode(each))
        if "text" in entry:
            Path(path).write_text(entry["text"], encoding="utf-8")
        elif "link" in entry:
            Path(path).symlink_to(entry["link"])
        elif "filesystem" in entry or "within" in entry:
            Path(path).mkdir(exist_ok=True)
            if "filesystem" in entry:
                clone = _mounted(entry["filesystem"].encode(), entry["options"])
            else:
                whole = f"{_STAGE}/{entry['within']}"
                part = f"{whole}/{len(writable)}"
                Path(part).mkdir()
                clone = _cloned(os.fsencode(part))
            _move([(clone, b"")], os.fsencode(path))
            os.chown(path, first, first)
            Path(path).chmod(0o1777)
            writable.append(path)
        elif entry["target"] in opened:
            trees = opened.pop(entry["target"])
            clone = trees[0][0]
            if stat.S_ISDIR(os.fstat(clone).st_mode):
                Path(path).mkdir(exist_ok=True)
            else:
                Path(path).touch()
            _move(trees, os.fsencode(path))
            for each, _ in trees:
                os.close(each)
            mounted.append(path)
        else:
            Path(path).mkdir(exist_ok=True)
        is_below = any(path.startswith(f"{tree}/") for tree in mounted)
        if is_below and os.path.realpath(path) != path:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), entry["target"])


def _made_above(path: str) -> list[str]:
    """Make the directories above *path*; returns the new ones, the topmost first."""
    made: list[str] = []
    above = str(Path(path).parent)
    while not Path(above).is_dir():
        made.append(above)
        above = str(Path(above).parent)
    for each in reversed(made):
        Path(each).mkdir()
    return made[::-1]


def _source_of(entry: dict[str, Any], mounts: list[int]) -> int:
    """A copy of the mount that an entry names."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    if "mounted" in entry:
        return _system_call(_OPEN_TREE, mounts[-1], os.fsencode(entry["mounted"]), flags)
    try:
        return _system_call(_OPEN_TREE, _AT_FDCWD, os.fsencode(entry["source"]), flags)
    except OSError as error:
        raise OSError(error.errno, error.strerror, entry["source"]) from error


_ACTIONS = {
    "mount": _mount,
    "forget": _forget,
    "subtree": _subtree,
    "attach": _attach,
    "hide": _hide,
    "start": _start,
}


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
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    channel.send(json.dumps(answer).encode())
    try:
        _serve(channel)
    finally:
        _end_programs()


if __name__ == "__main__":
    main()
    os._exit(0)  # the caller waits, and the interpreter takes 8 ms to end
