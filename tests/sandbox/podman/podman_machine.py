"""What the Podman tests need from the machine: images, and a user who is not root."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopback import package_registries

from wink_workspace.clock import SystemClock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError
from wink_workspace.filesystem.overlay.mounting import Mounter
from wink_workspace.sandbox import SandboxContext
from wink_workspace.sandbox.git_directory import give_to_sandbox
from wink_workspace.sandbox.podman import PodmanService
from wink_workspace.sandbox.podman.building.images import USUAL_RECIPES, ImageStore, recipe

TREE = Path(__file__).parents[3]
USER = "wink-tests"
HOME = Path("/var/lib/wink-tests")
WATCHDOG_S = 1_200
_IDS = "300000-365535"  # useradd assigns none of these
_MARKER = "made-by-tests"
_LOCKS = Path("/run/lock")


def missing_requirement() -> str | None:
    """Return why containers cannot run here; ``None`` if no reason is known."""
    if shutil.which("podman") is None:
        return "podman is not installed: run `make test` as root or with sudo, or install it"
    if os.geteuid() and not _has_subordinate_ids(pwd.getpwuid(os.geteuid()).pw_name):
        return "this user has no subordinate ids: see `man newuidmap`"
    return None


def build_images(environment: Environment) -> str | None:
    """Build missing images; return why that failed, or ``None``."""
    store = ImageStore(environment)
    try:
        with package_registries():
            for name in USUAL_RECIPES:
                store.build(recipe(name))
    except SandboxUnavailableError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class OrdinaryUser:
    """A user without privileges, whose containers are rootless."""

    uid: int
    gid: int

    @classmethod
    @contextmanager
    def borrowed(cls) -> Generator[OrdinaryUser]:
        """Create the user if missing, as root; the last borrower removes what was created."""
        with (_LOCKS / "wink-tests.lent").open("ab") as borrowers:
            with _exclusive():
                fcntl.flock(borrowers, fcntl.LOCK_SH)
                user = cls._find_or_create()
            try:
                user._copy_images()
                yield user
            finally:
                with _exclusive(), suppress(BlockingIOError):  # another run still uses it
                    fcntl.flock(borrowers, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    user._remove_created()

    @classmethod
    def _find_or_create(cls) -> OrdinaryUser:
        try:
            entry = pwd.getpwnam(USER)
        except KeyError:
            run("useradd", "--create-home", "--home-dir", str(HOME), "--shell", "/bin/sh", USER)
            (HOME / _MARKER).touch()
            entry = pwd.getpwnam(USER)
        if not _has_subordinate_ids(USER):
            run("usermod", "--add-subuids", _IDS, "--add-subgids", _IDS, USER)
        user = cls(entry.pw_uid, entry.pw_gid)
        user.runtime_dir.mkdir(parents=True, exist_ok=True)
        user.runtime_dir.chmod(0o700)
        os.chown(user.runtime_dir, user.uid, user.gid)
        if not user._processes():
            (user.runtime_dir / _MARKER).touch()
        return user

    def _remove_created(self) -> None:
        """End the processes that hold its namespaces, and remove the user if we created it."""
        if (self.runtime_dir / _MARKER).exists():
            while processes := self._processes():
                for pid in processes:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            (self.runtime_dir / _MARKER).unlink()
        if (HOME / _MARKER).exists():
            run("userdel", "--remove", USER)
            shutil.rmtree(self.runtime_dir)

    def _processes(self) -> list[int]:
        """Return its live processes."""
        found: list[int] = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                state = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                if folder.stat().st_uid == self.uid and state != "Z":
                    found.append(int(folder.name))
        return found

    @property
    def runtime_dir(self) -> Path:
        return Path(f"/run/user/{self.uid}")

    def environment(self) -> Environment:
        variables = {
            "HOME": str(HOME),
            "USER": USER,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "XDG_RUNTIME_DIR": str(self.runtime_dir),
            "LANG": "C.UTF-8",
            "STORAGE_DRIVER": "overlay",  # the default may be vfs, which copies the image each time
            "CI": os.environ.get("CI", ""),
        }
        return Environment(variables=variables, home=HOME)

    def _copy_images(self) -> None:
        """Copy root's cached archives, so that images are built without network."""
        with _exclusive():
            ours = ImageStore(Environment.from_os()).cache
            theirs = ImageStore(self.environment()).cache
            for archive in ours.glob("*.tar"):
                if not (theirs / archive.name).exists():
                    theirs.mkdir(parents=True, exist_ok=True)
                    shutil.copy(archive, theirs)
            if (HOME / ".cache").exists():
                run("chown", "--recursive", f"{self.uid}:{self.gid}", str(HOME / ".cache"))

    def python(
        self, *arguments: str, more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python as this user in this tree, with all installed packages."""
        return subprocess.run(
            self.command(*arguments),
            env=self.python_variables(more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WATCHDOG_S,
        )

    def command(self, *arguments: str) -> list[str]:
        """The command that runs Python as this user in this tree.

        Both may be in root's home, which only root can enter. They are mounted where the user can
        read them, in a mount namespace that ends with the command.
        """
        python = Path(sys.executable).resolve()
        return [
            *("unshare", "--mount", "sh", "-euc", _AS_USER, "sh"),
            *(str(self.uid), str(self.gid), str(TREE), sysconfig.get_path("purelib")),
            *(sys.base_prefix, str(python.relative_to(sys.base_prefix)), *arguments),
        ]

    def python_variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of ``command``."""
        return {
            **self.environment().variables,
            "PYTHONPATH": "/mnt/packages:/mnt/tree:/mnt/tree/tests",
            "LD_LIBRARY_PATH": "/mnt/python/lib",  # the interpreter may need its libpython
            **(more or {}),
        }


_AS_USER = """
uid=$1 gid=$2 tree=$3 packages=$4 prefix=$5 python=$6
shift 6
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/tree /mnt/packages /mnt/python
mount --bind "$tree" /mnt/tree
mount --bind "$packages" /mnt/packages
mount --bind "$prefix" /mnt/python
cd /mnt/tree
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups /mnt/python/"$python" -B "$@"
"""


@contextmanager
def _exclusive() -> Generator[None]:
    """Exclude other workers and runs from changing the ordinary user."""
    with (_LOCKS / "wink-tests").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sandbox_place(folder: Path) -> SandboxContext:
    """Create the directories of a sandbox: one for files, one for notes."""
    files, notes = folder / "files", folder / "notes"
    files.mkdir()
    notes.mkdir(mode=0o700)
    return SandboxContext(files=files, notes=notes)


def mounted_place(folder: Path, name: str = "branch") -> SandboxContext:
    """Create the directories of a sandbox over a mounted branch; branches share one base."""
    base, branch = folder / "base", folder / name
    directories = [base, base / "files", base / "held", *(branch / each for each in _OF_BRANCH)]
    for path in directories:
        if not path.is_dir():
            path.mkdir(parents=True)
            give_to_sandbox(path)
    (branch / "notes").mkdir(mode=0o700)
    mount = Mounter.shared().mount([base], branch / "upper", branch / "work")
    return SandboxContext(files=mount.path / "files", notes=branch / "notes", mount=mount)


_OF_BRANCH = ("upper", "upper/files", "upper/held", "work")


class HeldClock(SystemClock):
    """The machine's clock, which can be stopped until a command has begun.

    So a short time limit is enough for a command that starts late on a busy machine.
    """

    def __init__(self) -> None:
        self._held_s: float | None = None
        self._lag_s = 0.0

    def hold(self) -> None:
        self._held_s = self.monotonic_s()

    def release(self) -> None:
        if self._held_s is not None:
            self._lag_s = super().monotonic_s() - self._held_s
            self._held_s = None

    def monotonic_s(self) -> float:
        if self._held_s is not None:
            return self._held_s
        return super().monotonic_s() - self._lag_s


def listed_containers(
    service: PodmanService, label: str, *, ended: bool = False
) -> list[dict[str, Any]]:
    """Return the containers with *label*, running or not.

    The engine removes a container shortly after its end; this waits a while for that. With *ended*,
    it also waits for the engine to notice that those which it calls running have ended.
    """
    filters = json.dumps({"label": [label]})
    params = {"all": "true", "filters": filters}
    for _ in range(200):
        listed = service.request("GET", "/containers/json", params=params) or []
        if all(not ended and each["State"] in ("created", "running") for each in listed):
            break
        time.sleep(0.05)
    return listed


def children_of(pid: int) -> list[int]:
    """Return the children of *pid*, including adopted ones and zombies."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text(errors="replace")
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    return [child for child, parent in parents.items() if parent == pid]


def run(*command: str) -> str:
    """Run a program and return its output."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=WATCHDOG_S)
    return done.stdout


def _has_subordinate_ids(name: str) -> bool:
    files = [Path("/etc/subuid"), Path("/etc/subgid")]
    return all(file.exists() and f"{name}:" in file.read_text() for file in files)
