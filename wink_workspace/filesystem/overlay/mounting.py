"""The client of the program that makes overlay mounts.

Rule 1: a mount has no mount point on the host. It is one descriptor, and ends with its last
descriptor, also when this process is killed.
Rule 2: the program runs while this process does. If it dies, the mounts stay usable, and the next
request starts another one.
Rule 3: a forked child has neither the program nor a mount: both are closed there.
Rule 4: two mounts on one upper layer are undefined behaviour, but the kernel allows them. The
caller has a lock for each upper layer, and ends every container that may hold an earlier mount.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from inotify_simple import flags  # pyright: ignore[reportMissingTypeStubs] - has none

from wink_workspace._descriptors import ClosedAfterBlock, closed_with, put_at, put_nothing_at
from wink_workspace._module_lock import ModuleLock
from wink_workspace.companion import Companion
from wink_workspace.errors import MountError, UsageError
from wink_workspace.filesystem.changes import instances

PROBE_PREFIX: Final = ".wink-overlay-"
"""The beginning of the names of the directories in which ``overlay_support`` makes a mount."""

FILES: Final = "files"
"""The directory of a mount that has the files of a workspace."""

MOST_LAYERS: Final = 64
"""The most lower layers of a mount: their descriptors are named in 255 bytes."""

_PROGRAM = Path(__file__).with_name("mounter.py")
_MAX_BYTES = 65_536
_TIMEOUT_S = 60.0
_COPY_HINT = 'Use a workspace with a plain copy of the files: mode "copy".'


class OverlaySupport(NamedTuple):
    """Whether branches can be overlays in a directory; *reason* says why, or why not.

    ``privileged`` is whether root makes the mounts. Otherwise a user namespace is used, and a
    directory of the base cannot be renamed (``EXDEV``). ``reports_changes`` is whether inotify
    reports writes for the upper layer (since Linux 6.5); otherwise it is scanned.
    """

    available: bool
    reason: str
    privileged: bool = False
    reports_changes: bool = False


class OverlayMount(ClosedAfterBlock):
    """A mounted branch; ``close`` ends it, unless a container has it too."""

    def __init__(self, mounter: Mounter, descriptor: int) -> None:
        self._mounter = mounter
        self._descriptor = descriptor
        self._close = closed_with(self, descriptor)
        _mounts.add(self)

    @property
    def privileged(self) -> bool:
        """Whether directories of the base can be renamed; see ``OverlaySupport``."""
        return self._mounter.privileged

    @property
    def path(self) -> Path:
        """The mounted directory, for this process only."""
        return Path(f"/proc/self/fd/{self._opened()}")

    def subtree(self, path: str) -> int:
        """A descriptor of a mount of the directory *path* alone; the caller closes it."""
        request = {"do": "subtree", "path": path}
        made = self._mounter.request(request, [self._opened()], f"the directory {path} of a branch")
        if made is None:
            raise MountError("the program that makes mounts answered without a mount")
        return made

    def forget_names(self) -> None:
        """Let the kernel forget the names of files that no process uses; about 0.1 ms."""
        self._mounter.request({"do": "forget"}, [self._opened()], "names of a branch again")

    def attach(self, pid: int, target: str, *, writes: Sequence[str] | None = None) -> None:
        """Mount ``files`` on the directory *target* in the mount namespace of a process.

        Args:
            pid: The process.
            target: An absolute path.
            writes: Existing directories of the files. With it, everything else is read-only there.

        Raises:
            MountError: If the process or a directory does not exist, if there is a link in one of
                *writes*, or if the user namespace of the process is neither that of the mount nor
                below it. In the last case, the next mount is made by a new program, which enters
                the user namespace that Podman uses at that time.
        """
        self._mounter.attach(FILES, pid, target, writes=writes, descriptors=[self._opened()])

    def unmount(self) -> None:
        """End the mount until ``mount_again``; other users of its files have ended before.

        The kernel writes everything to the disk when it ends a mount. So another thread closes it.
        """
        former = os.dup(self._opened())
        put_nothing_at(self._opened())
        threading.Thread(target=os.close, args=(former,), name="wink-unmount", daemon=True).start()

    def mount_again(self, lower: Sequence[Path], upper: Path, work: Path) -> None:
        """Mount these layers in the place of those before, at the same ``path``.

        Raises:
            MountError: If the kernel refuses; there is no mount then.
        """
        put_at(self._opened(), self._mounter.mounted(lower, upper, work))

    def start_program(self, request: Mapping[str, object], descriptors: list[int]) -> int:
        """As ``Mounter.start_program``, with this mount as the last descriptor."""
        return self._mounter.start_program(request, [*descriptors, self._opened()])

    def close(self) -> None:
        """Close the descriptor."""
        self._descriptor = -1
        self._close()

    def _opened(self) -> int:
        if self._descriptor < 0:
            raise UsageError(
                "this mount is closed", hint="Open the workspace again, and use its new mount."
            )
        return self._descriptor


class Mounter:
    """A running program that makes mounts. Methods may be called by any thread.

    Raises:
        MountError: If the program does not start, or has no right to make mounts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _Program | None = _Program()
        self.privileged = self._running.privileged

    @classmethod
    def shared(cls) -> Mounter:
        """The one of this process, started on its first use."""
        global _shared
        with _shared_lock.now:
            if _shared is None:
                _shared = cls()
            return _shared

    @classmethod
    def start_early(cls) -> None:
        """Begin to start ``shared`` on another thread; its first user gets the errors."""

        def start() -> None:
            with suppress(MountError, OSError):
                cls.shared()

        threading.Thread(target=start, name="wink-mounter").start()

    def abandon(self) -> None:
        """Close the connection and leave the program to its owner: for a forked child."""
        if self._running is not None:
            self._running.end.detach()
            self._running.channel.close()

    @property
    def pid(self) -> int | None:
        """The id of the program's process, if it runs."""
        return None if self._running is None else self._running.pid

    def mount(self, lower: Sequence[Path], upper: Path, work: Path) -> OverlayMount:
        """Mount *upper* over *lower*, at most ``MOST_LAYERS`` directories, the topmost first.

        *work* is an empty directory beside *upper*. The owner of *upper* should own the files of
        *lower*: the mount writes with that owner's rights.

        Raises:
            MountError: If the kernel refuses; the message has its reason.
        """
        return OverlayMount(self, self.mounted(lower, upper, work))

    def mounted(self, lower: Sequence[Path], upper: Path, work: Path) -> int:
        """As ``mount``; the descriptor, which the caller closes."""
        request: dict[str, object] = {
            "do": "mount",
            "lower": [os.fspath(path) for path in lower],
            "upper": os.fspath(upper),
            "work": os.fspath(work),
        }
        made = self.request(request, [], f"the branch in {upper.parent}")
        if made is None:
            raise MountError("the program that makes mounts answered without a mount")
        return made

    def attach(
        self,
        path: str,
        pid: int,
        target: str,
        *,
        writes: Sequence[str] | None = None,
        descriptors: list[int] | None = None,
    ) -> None:
        """Mount the directory *path* of this machine, or of a mount; see ``OverlayMount.attach``.

        Raises:
            MountError: See there.
        """
        request: dict[str, object] = {"do": "attach", "pid": pid, "path": path, "target": target}
        if writes is not None:
            request["writes"] = list(writes)
        try:
            self.request(request, descriptors or [], f"{target} in process {pid}")
        except MountError as error:
            if isinstance(error.__cause__, PermissionError) and not self.privileged:
                raise self.other_namespace(error) from error
            raise

    def hide_paths(
        self, pid: int, directory: str, *, keep: Sequence[str], unchanging: Sequence[str] = ()
    ) -> None:
        """Give a container a new root, whose list of mounts shows no path of the host.

        It shows the same files. What is mounted on the old root is mounted on the new one, but
        files that are mounted there are copied, and bound directories are left out.

        Args:
            pid: A process that waits in the container; no program of the image may run yet.
            directory: Any directory there.
            keep: Bound files and directories that stay, and go on showing their path.
            unchanging: Bound directories that stay and do not show it: nothing writes there.

        Raises:
            MountError: If the kernel refuses it; the container is unchanged.
        """
        paths = {"path": directory, "keep": list(keep), "unchanging": list(unchanging)}
        request = {"do": "hide", "pid": pid, **paths}
        what = f"a new root in process {pid}"
        try:
            self.request(request, [], what)
        except MountError as error:
            if not isinstance(error.__cause__, PermissionError) or self.privileged:
                raise
            self.other_namespace(error)  # ends the program
            self.request(request, [], what)  # the new one is in the namespace that is used now

    def start_program(self, request: Mapping[str, object], descriptors: list[int]) -> int:
        """Start a program in namespaces of its own; its pidfd, which the caller closes.

        Args:
            request: The keys of ``start`` in the program's description.
            descriptors: See there.

        Raises:
            MountError: If something of it cannot be made; the message has the kernel's reason.
        """
        made = self.request({"do": "start", **request}, descriptors, "the files of a sandbox")
        if made is None:
            raise MountError("the program that makes mounts answered without a process")
        return made

    def request(
        self, request: Mapping[str, object], descriptors: list[int], what: str
    ) -> int | None:
        """The descriptor that the program answers with.

        Raises:
            MountError: If the program failed, or does not answer.
        """
        with self._lock:
            try:
                answer, made = self._exchanged(request, descriptors)
            except (EOFError, OSError) as error:
                raise MountError(
                    f"cannot mount {what}: the program that makes mounts ended: {error}",
                    hint=_COPY_HINT,
                ) from error
        if "errno" in answer:
            number: int = answer["errno"] or 0
            raise MountError(
                f"cannot mount {what}: {answer['text']} ({errno.errorcode.get(number, number)})",
                hint=_COPY_HINT,
            ) from OSError(number, answer["text"])
        return made

    def other_namespace(self, refused: MountError) -> MountError:
        """The error for a container in another user namespace; ends the program."""
        with self._lock:
            program, self._running = self._running, None
        reason = program.own_namespace if program is not None else None
        if program is not None:
            program.end()
        return MountError(
            f"{refused.message}: the container is in another user namespace than the mount"
            + (f", because {reason}" if reason else ""),
            hint="Open the workspace again. If this is repeated, check `podman unshare true`, or"
            ' use a workspace with a plain copy of the files: mode "copy".',
        )

    @property
    def own_namespace(self) -> str | None:
        """Why the program is not in Podman's user namespace, if Podman is there and refused."""
        return None if self._running is None else self._running.own_namespace

    def _exchanged(
        self, request: Mapping[str, object], descriptors: list[int]
    ) -> tuple[dict[str, Any], int | None]:
        """The answer of the program, or of a new one if it died since the last request."""
        program, self._running = self._running, None  # unless it answers; also after an interrupt
        if program is not None:
            try:
                answered = program.exchange(request, descriptors)
            except (EOFError, ConnectionError):
                program.end()  # it was killed; an unfinished request had no effect
            except BaseException:
                program.end()
                raise
            else:
                self._running = program
                return answered
        program = _Program()
        answered = program.exchange(request, descriptors)
        self._running = program
        return answered


class _Program:
    """The process, and our end of the pair of sockets.

    Attributes:
        own_namespace: Why ``podman unshare`` failed, so that the program has a user namespace of
            its own and its mounts cannot be attached to a container. ``None`` if it did not fail,
            or if there is no Podman and so no container.
    """

    def __init__(self) -> None:
        self.own_namespace: str | None = None
        if os.geteuid() == 0:
            self._start()
            return
        try:  # Podman's user namespace is that of its containers, so it allows to attach
            self._start("podman", "unshare")
        except FileNotFoundError:
            self._start(own_namespace=True)
        except (OSError, MountError) as error:
            self.own_namespace = f"`podman unshare` failed: {error}"
            self._start(own_namespace=True)

    def _start(self, *before: str, own_namespace: bool = False) -> None:
        self._process = Companion(
            lambda channel: [str(_PROGRAM), str(channel), *(["own"] if own_namespace else [])],
            before=before,
            keeps_output=True,
        )
        self.channel, self.end = self._process.channel, self._process.end
        self.channel.settimeout(_TIMEOUT_S)
        try:
            answer, _ = self._received()
        except (EOFError, OSError, ValueError) as error:
            output = self._process.output().rpartition("\n")[2]
            self.end()
            raise MountError(
                f"the program that makes mounts did not start: {output or error}",
                hint=_COPY_HINT,
            ) from error
        if "errno" in answer:
            self.end()
            raise MountError(
                f"this user may not make mounts in a user namespace: {answer['text']}",
                hint=_COPY_HINT,
            )
        self.pid = int(answer["pid"])
        self.privileged = bool(answer["privileged"])

    def exchange(
        self, request: Mapping[str, object], descriptors: list[int]
    ) -> tuple[dict[str, Any], int | None]:
        """The answer to a request; ``EOFError`` or ``OSError`` if the program died."""
        socket.send_fds(self.channel, [json.dumps(request).encode()], descriptors)
        return self._received()

    def _received(self) -> tuple[dict[str, Any], int | None]:
        flags = socket.MSG_CMSG_CLOEXEC
        packet, descriptors, _, _ = socket.recv_fds(self.channel, _MAX_BYTES, 1, flags)
        if not packet:
            raise EOFError("it closed the connection")
        return json.loads(packet), descriptors[0] if descriptors else None


_shared: Mounter | None = None
_shared_lock = ModuleLock()
_mounts: weakref.WeakSet[OverlayMount] = weakref.WeakSet()
_support: dict[int, OverlaySupport] = {}


def overlay_support(directory: Path) -> OverlaySupport:
    """Whether branches in the existing *directory* can be overlays, found out by a real mount.

    The answer is remembered for each filesystem while the process runs, unless *directory* cannot
    be written now.
    """
    device = directory.stat().st_dev
    if device not in _support:
        try:
            _support[device] = _probed(directory)
        except OSError as error:
            return OverlaySupport(False, str(error))
    return _support[device]


def _probed(directory: Path) -> OverlaySupport:
    try:
        with tempfile.TemporaryDirectory(prefix=PROBE_PREFIX, dir=directory) as folder:
            lower, upper, work = (Path(folder, name) for name in ("lower", "upper", "work"))
            for path in (lower / FILES / "emptied", upper / FILES, work):
                path.mkdir(parents=True)
            for name in ("changed", "emptied/old"):
                (lower / FILES / name).write_bytes(b"before")
            mounter = Mounter.shared()
            with mounter.mount([lower], upper, work) as mount:
                os.close(mount.subtree(FILES))
                files = mount.path / FILES
                reports = _reports(files / "changed", upper / FILES)
                (files / "emptied/old").unlink()
                (files / "emptied").rmdir()
                (files / "emptied").mkdir()
                if any((files / "emptied").iterdir()):
                    return OverlaySupport(False, "a deleted directory kept its entries")
    except MountError as error:
        return OverlaySupport(False, str(error))
    who = "by root" if mounter.privileged else "in a user namespace"
    reason = f"the kernel mounts overlays here, {who}"
    if mounter.own_namespace is not None:
        reason += f", but containers cannot use them: {mounter.own_namespace}"
    return OverlaySupport(True, reason, mounter.privileged, reports)


def _reports(changed: Path, upper: Path) -> bool:
    """Whether inotify reports a write to *changed*, in a mount, for its directory in the layer."""
    changed.write_bytes(b"copied up")
    try:
        queue = instances.take()
    except OSError:
        return False
    try:
        queue.add_watch(str(upper), flags.MODIFY)
        changed.write_bytes(b"after")
        return bool(os.read(queue.fileno(), 4_096))
    except BlockingIOError:
        return False
    finally:
        queue.close()


def _forget() -> None:
    """Close what a forked child has of its parent."""
    global _shared
    if _shared is not None:
        _shared.abandon()
    _shared = None
    for mount in list(_mounts):
        mount.close()


os.register_at_fork(after_in_child=_forget)
