"""Ways out of a sandbox over the programs of this machine; ``make test`` runs a share of them.

Run by root and, in ``test_bubblewrap_ordinary_user``, by an ordinary user.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from escape_rig import ATTEMPTS, SMALL, Target, assert_escape_fails
from escape_rig import test_permitted_actions_work_inside as test_permitted_actions_work_inside
from escapes import Attempt

from wink_workspace.environment import Environment
from wink_workspace.filesystem.overlay.mounting import overlay_support
from wink_workspace.sandbox.bubblewrap import BubblewrapConfig

pytestmark = pytest.mark.xdist_group("bubblewrap")

SECRETS = [
    ".ssh/id_ed25519",
    ".gnupg/private-keys-v1.d/key",
    ".aws/credentials",
    ".azure/token",
    ".config/gcloud/adc",
    ".config/gh/hosts.yml",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".gitconfig",
    ".cargo/credentials.toml",
    ".cargo/config.toml",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".bash_history",
    ".zsh_history",
    ".local/share/keyrings/login",
    ".mozilla/x",
    ".config/chromium/Cookies",
    ".claude/credentials.json",
    ".codex/auth.json",
    ".password-store/x",
    "other/project/file",
    ".local/state/wink-workspace/workspaces/x",
]
HOME = "os.path.expanduser('~/{name}')"


def _hidden(path: str) -> str:
    return f"os.lstat({path})"


SPECIAL = {
    **{f"secret {name}": (_hidden(HOME.format(name=name)), "ENOENT") for name in SECRETS},
    "sockets: agent of ssh": (_hidden("os.path.join(OUTSIDE, 'agent.sock')"), "ENOENT"),
    "sockets: engine": ("connect(socket.AF_UNIX, '/run/podman/podman.sock')", "ENOENT"),
    "sockets: bus of the system": (
        "connect(socket.AF_UNIX, '/run/dbus/system_bus_socket')",
        "ENOENT",
    ),
    "sockets: display": ("connect(socket.AF_UNIX, '/tmp/.X11-unix/X0')", "ENOENT"),
    "sockets: systemd": ("connect(socket.AF_UNIX, '/run/systemd/private')", "ENOENT"),
    "sockets: abstract display": (
        "connect(socket.AF_UNIX, chr(0) + '/tmp/.X11-unix/X0')",
        "ECONNREFUSED",
    ),
    "terminal: of the host": ("fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')", "ENXIO"),
    "terminal: of another session": ("os.open('/dev/pts/0', os.O_RDWR)", "ENOENT"),
    "terminal: console": ("os.open('/dev/console', os.O_RDWR)", "ENOENT"),
    "setuid: become root": ("os.setuid(0)", "EPERM|EINVAL"),
    "setuid: run a program of the host": (
        (
            "if subprocess.run(['/bin/su', '-c', 'id -u'], capture_output=True).stdout.strip() != b'0':\n"
            "    raise OSError(1, 'not root')"
        ),
        "EPERM",
    ),
    "setuid: make one": (
        (
            "write('own', b'x', os.O_WRONLY | os.O_CREAT)\nos.chmod('own', 0o4755)\n"
            "if os.statvfs('.').f_flag & os.ST_NOSUID:\n    raise Stopped('nosuid')"
        ),
        "Stopped|EPERM",
    ),
    "proc: pattern of core dumps": ("write('/proc/sys/kernel/core_pattern')", "EACCES|EPERM|EROFS"),
    "proc: helper of modules": ("write('/proc/sys/kernel/modprobe')", "EACCES|EPERM|EROFS|ENOENT"),
    "proc: kernel memory": (
        "read('/proc/kcore') or os.stat('/nothing')",
        "ENOENT|EACCES|EPERM",
    ),
    "proc: keys of the user": ("read('/proc/keys') or os.stat('/nothing')", "ENOENT|EACCES"),
    "proc: score of the runner": ("write('/proc/1/oom_score_adj', b'1000')", "EACCES"),
    "proc: memory of the runner": ("os.open('/proc/1/mem', os.O_RDWR)", "EACCES|EPERM"),
    "proc: map of its ids": ("write('/proc/self/uid_map', b'0 0 1')", "EPERM|EACCES"),
    "sys: devices": ("os.listdir('/sys/class')", "ENOENT"),
    "sys: cgroups": ("os.listdir('/sys/fs/cgroup')", "ENOENT"),
    "keys: session": ("syscall('keyctl', 0, -3, 0)", "EPERM|ENOSYS"),
    "keys: of the user": ("syscall('keyctl', 11, -4, 0, 0)", "EPERM|ENOSYS"),
    "trace: the runner": ("called(libc.ptrace(16, 1, None, None))", "EPERM"),
    "trace: read the runner": (
        (
            "buffer = ctypes.create_string_buffer(8)\n"
            "vector = struct.pack('PL', ctypes.addressof(buffer), 8)\n"
            "syscall('process_vm_readv', 1, vector, 1, vector, 1, 0)"
        ),
        "EPERM|ENOSYS",
    ),
    "runner: kill": ("os.kill(1, signal.SIGKILL)", "EPERM"),
    "runner: kill with high bits": (
        "NUMBERS['x86_64']['kill'], NUMBERS['aarch64']['kill'] = 62, 129\nsyscall('kill', 1 | 1 << 32, 9)",
        "EPERM",
    ),
    "runner: queue a signal": ("signal.pidfd_send_signal(os.pidfd_open(1), 9)", "EPERM"),
    "runner: limits": ("resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))", "EPERM"),
    "runner: priority": ("os.setpriority(os.PRIO_PROCESS, 1, 19)", "EPERM|EACCES"),
    "runner: priority of all": ("os.setpriority(os.PRIO_USER, os.getuid(), 19)", "EPERM"),
    "runner: processors": ("os.sched_setaffinity(1, {0})", "EPERM"),
    "handles: of the host": (
        (
            "handle = (ctypes.c_ubyte * 136)(128)\n"
            "syscall('name_to_handle_at', -100, b'/usr', handle, ctypes.byref(ctypes.c_int()), 0)"
        ),
        "EPERM|ENOSYS",
    ),
    "handles: open": (
        "syscall('open_by_handle_at', -100, ctypes.create_string_buffer(136), 0)",
        "EPERM|ENOSYS",
    ),
    "branches: other": (_hidden("os.path.join(OUTSIDE, '..', 'state')"), "ENOENT"),
    "branches: above the files": (
        (
            "left = set(os.listdir(os.path.join(os.getcwd(), '..'))) - {'source', 'home'}\n"
            "if not left:\n    raise Stopped('nothing else')\nprint(left)"
        ),
        "Stopped",
    ),
    "programs: change one": (
        "write('/usr/bin/wink-evil', b'x', os.O_WRONLY | os.O_CREAT)",
        "EROFS",
    ),
    "programs: change a tool": (
        "write(os.path.expanduser('~/.cargo/bin/tool'), b'x')",
        "EROFS|EACCES",
    ),
    "programs: mount over one": ("called(libc.mount(b'/tmp', b'/usr', None, 4096, None))", "EPERM"),
    "programs: remount": ("called(libc.mount(None, b'/usr', None, 32 | 4096, None))", "EPERM"),
    "programs: unmount": ("called(libc.umount2(b'/usr', 2))", "EPERM"),
}
"""What is special here: other attempts are those against every sandbox."""


SAME = {
    name: attempt
    for name, attempt in ATTEMPTS.items()
    if name != "files: make a file beside the workspace"  # the directory there is in memory
}


@pytest.fixture(scope="module", params=["overlay", pytest.param("copy", marks=pytest.mark.soak)])
def target(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    environment: Environment,
) -> Generator[Target]:
    """A branch on an overlay; in ``make soak`` also a plain copy. The home has secrets."""
    folder = tmp_path_factory.mktemp("target")
    home = folder / "home"
    for name in (*SECRETS, ".cargo/bin/tool"):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    mode = request.param if overlay_support(folder).available else "copy"
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("HOME", str(home))
        server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        stack.callback(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        config = BubblewrapConfig(**SMALL)
        engine = Path("/run/podman/podman.sock")
        port = str(server.server_address[1])
        yield Target(folder, config, mode, stack, server=port, engine=engine)


@pytest.mark.share(12)
@pytest.mark.parametrize("attempt", SAME.values(), ids=SAME.keys())
def test_an_escape_attempt_fails_and_leaves_no_trace(attempt: Attempt, target: Target) -> None:
    assert_escape_fails(attempt, target)


@pytest.mark.share(12)
@pytest.mark.parametrize("name", SPECIAL)
def test_an_attempt_on_this_machine_fails_and_leaves_no_trace(name: str, target: Target) -> None:
    code, by = SPECIAL[name]
    assert_escape_fails(Attempt(name, code, by), target)


def test_there_are_sixty_attempts_of_its_own() -> None:
    assert len(SPECIAL) >= 60
