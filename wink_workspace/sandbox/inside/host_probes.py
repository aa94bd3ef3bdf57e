"""Probes of a sandbox over the programs of this machine, run inside it by the user of commands.

Like ``probes``, this file is sent into the sandbox as a whole, and prints a line of JSON for each
probe. A probe that is stopped raises ``OSError`` or returns ``None``.
"""

from __future__ import annotations

import _socket  # as in probes: the usual modules take longer to load than all probes
import ctypes
import fcntl
import os
import stat
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

HOME = os.environ.get("WINK_HOST_HOME", "")
"""The user's home on this machine."""
PATHS = [path for path in os.environ.get("WINK_HIDDEN", "").split("\n") if path]
"""Sockets of agents, desktops and engines, and directories of workspaces."""
SCRATCH = os.environ.get("WINK_SCRATCH", "").split("\n")
NUMBERS = {
    "x86_64": {"keyctl": 250, "name_to_handle_at": 303, "open_by_handle_at": 304},
    "aarch64": {"keyctl": 219, "name_to_handle_at": 264, "open_by_handle_at": 265},
}
SECRETS = """
    .ssh .gnupg .aws .azure .config/gcloud .config/gh .config/git .config/rclone .config/containers
    .config/google-chrome .config/chromium .config/opencode .kube .docker .netrc .npmrc .pypirc
    .git-credentials .gitconfig .vault-token .cargo/credentials .cargo/credentials.toml .pki
    .m2/settings.xml .m2/settings-security.xml .gradle/gradle.properties .password-store .mozilla
    .bash_history .zsh_history .python_history .psql_history .local/share/keyrings .terraform.d
    .claude .codex .gemini .anthropic .boto .s3cfg
"""
OF_THE_HOST = """
    /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh /etc/machine-id /run/user /run/dbus /run/systemd
    /run/docker.sock /run/podman /run/snapd.sock /run/containerd /run/nscd /run/secrets
    /var/run/docker.sock /tmp/.X11-unix
"""


def present(paths: list[str]) -> str | None:
    """Which of *paths* exist."""
    found = [path for path in paths if os.path.lexists(path)]
    return ", ".join(found) + " can be seen" if found else None


def call(name: str, *arguments: object) -> int:
    """A system call; an ``OSError`` if it fails or has no known number here."""
    number = NUMBERS.get(os.uname().machine, {}).get(name)
    if number is None:
        raise OSError(f"{name} has no known number")
    library = ctypes.CDLL(None, use_errno=True)
    result = library.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def read_secrets_of_the_home() -> str | None:
    """Find files and directories with credentials."""
    return present([os.path.join(HOME, name) for name in SECRETS.split() if HOME])


def reach_sockets_of_the_host() -> str | None:
    """Find sockets of agents, desktops, engines and the system."""
    return present([*OF_THE_HOST.split(), *PATHS])


def see_the_system() -> str | None:
    """Find what a private ``/sys``, ``/var`` or ``/run`` would hide."""
    for path in ("/sys", "/home", "/root", "/srv", "/mnt", "/var"):
        if path in SCRATCH or any(each.startswith(path + "/") for each in SCRATCH):
            continue
        names = set(os.listdir(path)) - {"tmp"}
        if names and not any(each.startswith(path + "/") for each in BOUND):
            return f"{path} has {sorted(names)[:5]}"
    return None


BOUND = os.environ.get("WINK_BOUND", "").split(" ")


def type_into_a_terminal() -> str | None:
    """Push characters into a controlling terminal."""
    with open("/dev/tty", "rb+", buffering=0) as terminal:
        fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
    return "characters can be typed"


def mounts() -> list[tuple[str, list[str]]]:
    """The mount points with their options [proc(5)]."""
    with open("/proc/self/mountinfo", errors="surrogateescape") as lines:
        fields = [line.split(" ") for line in lines]
    return [(unescaped(each[4]), each[5].split(",")) for each in fields]


def unescaped(path: str) -> str:
    """A path of that list as it is."""
    first, *others = path.split("\\")
    return first + "".join(chr(int(each[:3], 8)) + each[3:] for each in others)


def use_setuid_programs() -> str | None:
    """Find mounts on which setuid programs or devices work."""
    for path, options in mounts():
        if "nosuid" not in options:
            return f"{path} allows setuid programs"
        if "nodev" not in options and not path.startswith("/dev/"):
            return f"{path} allows devices"
    return None


def change_programs_of_the_host() -> str | None:
    """Find mounts of this machine that are not read-only."""
    writable = (*SCRATCH, "/dev", "/proc", os.path.realpath("/workspace"), "/run/wink/call")
    for path, options in mounts():
        is_known = any((path + "/").startswith(each + "/") for each in writable)
        if not is_known and "ro" not in options:
            return f"{path} can be written"
    return None


def use_keys() -> str | None:
    """Use the keyring of the session, or see keys of the user."""
    for path in ("/proc/keys", "/proc/kcore"):
        try:
            with open(path, "rb") as file:
                if file.read(16):
                    return path + " can be read"
        except OSError:
            continue
    call("keyctl", 0, -3, 0)
    return "there is a keyring"


def use_file_handles() -> str | None:
    """Get a handle that opens files outside of the mounts."""
    handle = ctypes.create_string_buffer(136)
    handle[0] = 128
    call("name_to_handle_at", -100, b"/usr", handle, ctypes.byref(ctypes.c_int()), 0)
    return "files have handles"


def open_devices() -> str | None:
    """Find devices other than the harmless ones."""
    known = {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}
    found = [
        name
        for name in os.listdir("/dev")
        if name not in known and not stat.S_ISLNK(os.lstat(f"/dev/{name}").st_mode)
        if name not in ("shm", "mqueue", "pts", "console", "core")
    ]
    return f"devices {found}" if found else None


def inherit_sockets() -> str | None:
    """Find a standard stream that is a socket."""
    held = [fd for fd in range(3) if stat.S_ISSOCK(os.fstat(fd).st_mode)]
    return f"sockets {held}" if held else None


def use_other_socket_families() -> str | None:
    """Open sockets that no network namespace confines."""
    for family in (40, 16, 38, 17, 31):  # vsock, netlink, alg, packet, bluetooth
        try:
            _socket.socket(family, _socket.SOCK_RAW, 15 if family == 16 else 0).close()
        except OSError:
            continue
        return f"family {family} is open"
    return None


PROBES: tuple[Callable[[], str | None], ...] = (
    read_secrets_of_the_home,
    reach_sockets_of_the_host,
    see_the_system,
    type_into_a_terminal,
    use_setuid_programs,
    change_programs_of_the_host,
    use_keys,
    use_file_handles,
    open_devices,
    inherit_sockets,
    use_other_socket_families,
)


def main() -> None:
    """Run every probe and print the results."""
    for probe in PROBES:
        try:
            hole = probe()
            stopped, detail = not hole, hole or "nothing found"
        except OSError as error:
            stopped, detail = True, error.strerror or str(error)
        except Exception as error:
            stopped, detail = False, f"the probe failed: {error!r}"
        name = probe.__name__.replace("_", " ")
        shown = (c if c.isalnum() or c in " ./,:_-" else f"\\u{ord(c):04x}" for c in detail[:300])
        sys.stdout.write(f'["{name}", {str(stopped).lower()}, "{"".join(shown)}"]\n')


if __name__ == "__main__":
    main()
