"""Escape attempts, each as Python that a command runs inside of the sandbox.

An attempt that is stopped raises ``OSError``, or ``Stopped`` if the system raises nothing. One that
runs to its end has escaped. The error must be an expected one, so that an attempt with a bug does
not count as stopped.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Literal

REFUSED = "EPERM|EACCES|EROFS|ENOENT|ENOSYS"

Ends = Literal["refused", "timed out", "stopped", "killed", "broken"]


@dataclass(frozen=True)
class Attempt:
    """An attempt, and how it may end.

    ``refused``: it reports the error that stopped it. ``timed out``: it runs until its time limit.
    ``stopped``: the sandbox ends it for using too much. ``killed``: the system does that.
    ``broken``: the whole container is ended. ``fills_memory`` marks memory that no process holds;
    only a memory cgroup bounds it.
    """

    name: str
    code: str
    by: str = REFUSED
    ends: tuple[Ends, ...] = ("refused",)
    timeout_s: float = 60.0
    fills_memory: bool = False

    @property
    def program(self) -> str:
        return PRELUDE + textwrap.indent(textwrap.dedent(self.code).strip(), "    ") + CODA


PRELUDE = '''
import ctypes, errno, fcntl, os, platform, resource, signal, socket, stat, struct, subprocess, sys
import time
from array import array
from contextlib import closing

libc = ctypes.CDLL(None, use_errno=True)
SECRET, SERVER, ABSTRACT = (os.environ.get(name, "") for name in ("SECRET", "SERVER", "ABSTRACT"))
ENGINE, HOST_PROCESS = os.environ.get("ENGINE", ""), int(os.environ.get("HOST_PROCESS", "0"))
OUTSIDE, UDP = os.path.dirname(SECRET), int(os.environ.get("UDP", "0"))
NEWNS, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000

NUMBERS = {
    "x86_64": dict(
        add_key=248, bpf=321, clone=56, finit_module=313, fsopen=430, init_module=175, io_uring=425,
        kexec_load=246, keyctl=250, mount=165, name_to_handle_at=303, open_by_handle_at=304,
        open_tree=428, perf_event_open=298, pidfd_getfd=438, pidfd_open=434, pivot_root=155,
        fallocate=285, process_vm_readv=310, ptrace=101, request_key=249, setns=308, unshare=272,
        userfaultfd=323, fanotify_init=300, quotactl=179, syslog=103, clone3=435,
    ),
    "aarch64": dict(
        add_key=217, bpf=280, clone=220, finit_module=273, fsopen=430, init_module=105,
        io_uring=425, kexec_load=104, keyctl=219, mount=40, name_to_handle_at=264,
        open_by_handle_at=265, open_tree=428, perf_event_open=241, pidfd_getfd=438, pidfd_open=434,
        pivot_root=41, fallocate=47, process_vm_readv=270, ptrace=117, request_key=218, setns=268, unshare=97,
        userfaultfd=282, fanotify_init=262, quotactl=60, syslog=116, clone3=435,
    ),
}


class Stopped(Exception):
    """The attempt found no way to continue."""


def called(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def syscall(name, *arguments):
    plain = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return called(libc.syscall(ctypes.c_long(NUMBERS[platform.machine()][name]), *plain))


def write(path, content=b"x", flags=os.O_WRONLY):
    fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
    os.write(fd, content)
    os.close(fd)


def read(path):
    with open(path, "rb") as file:
        return file.read(4096)


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as trial:
        trial.settimeout(3)
        trial.connect(address)


def daemon(action):
    """Run *action* in a process that is detached from parent, session and terminal."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            null = os.open("/dev/null", os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            action()
        os._exit(0)


def each_refused(action, *arguments):
    """Make one of several attempts; each must be refused."""
    try:
        action(*arguments)
    except PermissionError:
        return
    sys.exit(f"ESCAPED {action.__name__} {arguments}")


def write_forever():
    while True:
        write("/workspace/daemon", b"still here", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        time.sleep(0.01)


def attempt():
'''

CODA = """

try:
    attempt()
except OSError as error:
    print("STOPPED", errno.errorcode.get(error.errno, type(error).__name__), error, flush=True)
except (Stopped, MemoryError) as error:
    print("STOPPED", type(error).__name__, error, flush=True)
else:
    print("ESCAPED", flush=True)
    sys.exit(0)
sys.exit(1)
"""

_NOTHING_LEFT = 'raise Stopped("the command has ended; so must its processes")'


def _files() -> list[Attempt]:
    return [
        Attempt("read a file of the host by its path", "read(SECRET)", "ENOENT"),
        Attempt(
            "read a file of the host through ..", 'read("/workspace/../.." + SECRET)', "ENOENT"
        ),
        Attempt(
            "read a file of the host through a link",
            'os.symlink(SECRET, "link"); read("link")',
            "ENOENT",
        ),
        Attempt(
            "read a file of the host through a linked directory",
            'os.symlink(OUTSIDE, "link"); read("link/secret")',
            "ENOENT",
        ),
        Attempt(
            "write a file of the host by its path",
            "write(SECRET, b'x', os.O_WRONLY | os.O_CREAT)",
            "ENOENT",
        ),
        Attempt(
            "make a file beside the workspace",
            'write("/workspace/../beside", b"x", os.O_WRONLY | os.O_CREAT)',
        ),
        Attempt("enter the root of the first process", 'os.listdir("/proc/1/root")', "EACCES"),
        Attempt("enter the directory of the first process", 'os.chdir("/proc/1/cwd")', "EACCES"),
        Attempt(
            "read the variables, the memory, the map of the first process",
            """
            for name in ("environ", "mem", "maps", "auxv"):
                each_refused(read, f"/proc/1/{name}")
            raise Stopped("nothing is readable")
            """,
            "Stopped",
        ),
        Attempt("list the descriptors of the first process", 'os.listdir("/proc/1/fd")', "EACCES"),
        Attempt(
            "find environment variables of the host in any process",
            """
            for pid in os.listdir("/proc"):
                if pid.isdigit() and int(pid) != os.getpid():
                    read(f"/proc/{pid}/environ")
            """,
            "EACCES",
        ),
        Attempt(
            "leave the root through /proc/self/root",
            'read("/proc/self/root/.." + SECRET)',
            "ENOENT",
        ),
        Attempt(
            "find a directory of the host among open descriptors",
            """
            for fd in range(3, 1024):
                try:
                    where = os.readlink(f"/proc/self/fd/{fd}")
                except OSError:
                    continue
                sys.exit(f"ESCAPED: {fd} is {where}")
            raise Stopped("no descriptor of the host is open")
            """,
            "Stopped",
        ),
        Attempt("write to the kernel's settings", 'write("/proc/sys/kernel/core_pattern")'),
        Attempt("trigger a magic SysRq key", 'write("/proc/sysrq-trigger", b"h")'),
        Attempt(
            "read the kernel's memory",
            'sys.exit("ESCAPED") if read("/proc/kcore") else None; raise Stopped("empty")',
            f"{REFUSED}|Stopped",
        ),
        Attempt("read the kernel's log", 'read("/dev/kmsg")'),
        Attempt(
            "read the kernel's log by a call",
            "syscall('syslog', 3, ctypes.create_string_buffer(99), 99)",
        ),
        Attempt("make the kernel run a helper", 'write("/sys/kernel/uevent_helper")'),
        Attempt(
            "make a cgroup run a program on the host",
            """
            for folder, names, files in os.walk("/sys/fs/cgroup"):
                for name in ("release_agent", "notify_on_release", "cgroup.procs"):
                    if name in files:
                        write(os.path.join(folder, name), b"1")
            raise Stopped("no cgroup is visible")
            """,
            f"{REFUSED}|Stopped",
        ),
        Attempt(
            "remove the memory limit",
            """
            for path in ("memory/memory.limit_in_bytes", "memory.max"):
                if os.path.exists("/sys/fs/cgroup/" + path):
                    write("/sys/fs/cgroup/" + path, b"-1")
            raise Stopped("it is not visible")
            """,
            f"{REFUSED}|Stopped",
        ),
        Attempt(
            "read the disk of the host",
            """
            for name in ("vda", "sda", "nvme0n1", "mem", "port", "kvm", "fuse", "loop0", "dm-0"):
                if os.path.exists("/dev/" + name):
                    os.open("/dev/" + name, os.O_RDONLY)
            raise Stopped("no such device")
            """,
            "EPERM|EACCES|Stopped",
        ),
        Attempt(
            "make a device",
            """
            for folder in ("/workspace", "/tmp", "/dev/shm"):
                each_refused(os.mknod, folder + "/disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))
                each_refused(os.mknod, folder + "/mem", stat.S_IFCHR | 0o600, os.makedev(1, 1))
            raise Stopped("no device can be created")
            """,
            "Stopped",
        ),
        Attempt(
            "link a file of the image into the workspace",
            'os.link("/etc/passwd", "passwd")',
            "EXDEV|EPERM",
        ),
        Attempt(
            "link a file of a process into the workspace",
            'os.link("/proc/self/exe", "exe")',
            "EXDEV|EPERM",
        ),
        Attempt(
            "link a descriptor of the first process",
            'os.link("/proc/1/fd/0", "fd", follow_symlinks=True)',
            "EACCES|EXDEV|EPERM",
        ),
        Attempt(
            "mount a directory over another",
            'called(libc.mount(b"/", b"/tmp", b"", 4096, None))',
            "EPERM",
        ),
        Attempt(
            "mount another proc",
            'called(libc.mount(b"proc", b"/tmp", b"proc", 0, None))',
            "EPERM",
        ),
        Attempt("make the root writable", 'called(libc.mount(b"", b"/", b"", 32, None))', "EPERM"),
        Attempt(
            "let the workspace hold setuid programs",
            'called(libc.mount(b"", b"/workspace", b"", 32 | 4096, None))',
            "EPERM",
        ),
        Attempt("unmount the workspace", 'called(libc.umount2(b"/workspace", 2))', "EPERM"),
        Attempt(
            "lay another filesystem over the root",
            """
            os.makedirs("up"); os.makedirs("work")
            called(libc.mount(b"o", b"/tmp", b"overlay", 0, b"lowerdir=/,upperdir=up,workdir=work"))
            """,
            "EPERM",
        ),
        Attempt(
            "open a mount as a file", 'syscall("open_tree", -100, b"/workspace", 1)', "EPERM|ENOSYS"
        ),
        Attempt(
            "create a filesystem with fsopen", 'syscall("fsopen", b"tmpfs", 0)', "EPERM|ENOSYS"
        ),
        Attempt("change the root with chroot", 'os.chroot("/tmp")', "EPERM"),
        Attempt(
            "change the root with pivot_root", 'syscall("pivot_root", b"/tmp", b"/tmp")', "EPERM"
        ),
        Attempt(
            "open a file of the host by its handle",
            """
            handle = struct.pack("=Ii8s", 8, 1, struct.pack("=II", 2, 0))
            syscall("open_by_handle_at", os.open("/workspace", os.O_RDONLY), ctypes.c_char_p(handle), 0)
            """,
            "EPERM",
        ),
        Attempt(
            "get the handle of a file",
            'syscall("name_to_handle_at", -100, b"/workspace", ctypes.create_string_buffer(64), ctypes.create_string_buffer(8), 0)',
            "EPERM|ENOSYS",
        ),
        Attempt(
            "run a setuid program from the workspace",
            """
            import shutil
            shutil.copy("/bin/dash", "shell")
            os.chmod("shell", 0o6777)
            before = os.getresuid() + os.getresgid()
            out = subprocess.run(["./shell", "-c", "id -u; id -ru"], capture_output=True, text=True)
            if set(out.stdout.split()) != {str(os.getuid())}:
                sys.exit("ESCAPED " + out.stdout)
            raise Stopped("it runs as its caller")
            """,
            "Stopped",
        ),
        Attempt(
            "give a file away", 'open("mine", "w").close(); os.chown("mine", 0, 0)', "EPERM|EINVAL"
        ),
        Attempt(
            "give a program capabilities",
            """
            open("program", "w").close()
            caps = struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
            os.setxattr("program", "security.capability", caps)
            """,
            "EPERM|EOPNOTSUPP",
        ),
        Attempt(
            "make an undeletable file",
            """
            with open("stone", "w") as file:
                fcntl.ioctl(file, 0x40086602, array("l", [0x10]))
            """,
            "EPERM|ENOTTY|EOPNOTSUPP",
        ),
        Attempt("write to the image", 'write("/usr/bin/python3")'),
        Attempt(
            "write to the users of the image",
            'write("/etc/passwd", b"root::0:0:::", os.O_WRONLY | os.O_APPEND)',
        ),
        Attempt(
            "write to what the engine mounts",
            'write("/etc/hosts", b"x", os.O_WRONLY | os.O_APPEND)',
        ),
        Attempt("write to the marker file that the engine mounts", 'write("/run/.containerenv")'),
        Attempt(
            "move the workspace away",
            'os.rename("/workspace", "/tmp/workspace")',
            "EBUSY|EXDEV|EACCES|EROFS|EPERM",
        ),
        Attempt(
            "write in other places of the root",
            """
            for place in ("/", "/etc", "/usr", "/var", "/var/lib", "/run", "/run/lock", "/home", "/root", "/mnt", "/srv", "/opt", "/dev", "/sys"):
                try:
                    write(place + "/left", b"x", os.O_WRONLY | os.O_CREAT)
                except OSError:
                    continue
                sys.exit("ESCAPED " + place)
            raise Stopped("no other directory is writable")
            """,
            "Stopped",
        ),
        Attempt(
            "leave names that are not text",
            r"""
            for name in (b"\xff\xfe", b"a\nb", b" ", b"-rf", b"\x1b]0;x\x07", "\u202e".encode()):
                write(os.path.join(b"/workspace", name), b"x", os.O_WRONLY | os.O_CREAT)
            raise Stopped("the call is rolled back")
            """,
            "Stopped",
        ),
        Attempt(
            "leave files that cannot be opened",
            """
            os.mkfifo("pipe")
            with closing(socket.socket(socket.AF_UNIX)) as server:
                server.bind("socket")
            os.makedirs("closed/deep/er")
            write("closed/deep/er/file", b"x", os.O_WRONLY | os.O_CREAT)
            os.chmod("closed/deep/er/file", 0); os.chmod("closed/deep/er", 0); os.chmod("closed", 0)
            raise Stopped("the call is rolled back")
            """,
            "Stopped",
        ),
        Attempt(
            "change files that a rollback relies on",
            """
            for folder, names, files in os.walk("/workspace"):
                for name in files:
                    os.chmod(os.path.join(folder, name), 0o000)
                    os.utime(os.path.join(folder, name), (0, 0))
            try:
                os.rename("src", ".src"); os.symlink("/etc", "src")
            except OSError as error:  # a directory of the base, in a mount by an ordinary user
                if error.errno != errno.EXDEV: raise
            os.chmod("/workspace", 0o000)
            raise Stopped("the call is rolled back")
            """,
            "Stopped",
        ),
        Attempt(
            "create programs that git would run on the host",
            """
            os.makedirs(".git/hooks", exist_ok=True)
            run = f"#!/bin/sh\\ntouch {OUTSIDE}/git-ran\\n"
            for name in ("post-checkout", "pre-commit", "post-index-change", "fsmonitor"):
                with open(f".git/hooks/{name}", "w") as file:
                    file.write(run)
                os.chmod(f".git/hooks/{name}", 0o755)
            with open(".git/config", "a") as file:
                file.write(f"[core]\\nfsmonitor = touch {OUTSIDE}/git-ran\\nhooksPath = .git/hooks\\n")
                file.write(f'[filter "x"]\\nclean = touch {OUTSIDE}/git-ran\\n')
            with open(".gitattributes", "w") as file:
                file.write("* filter=x diff=x\\n")
            raise Stopped("nothing inside runs them")
            """,
            "Stopped",
        ),
    ]


def _processes() -> list[Attempt]:
    return [
        Attempt(
            "signal the first process",
            """
            for number in (0, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCHLD):
                each_refused(os.kill, 1, number)
            raise Stopped("no signal is allowed")
            """,
            "Stopped",
        ),
        Attempt("trace the first process", "syscall('ptrace', 16, 1, 0, 0)", "EPERM"),
        Attempt(
            "read the first process from outside",
            """
            there = ctypes.create_string_buffer(8)
            vector = struct.pack("QQ", ctypes.addressof(there), 8)
            remote = struct.pack("QQ", 0x400000, 8)
            syscall("process_vm_readv", 1, ctypes.c_char_p(vector), 1, ctypes.c_char_p(remote), 1, 0)
            """,
            "EPERM|ENOSYS",
        ),
        Attempt(
            "take a descriptor of the first process",
            "syscall('pidfd_getfd', syscall('pidfd_open', 1, 0), 0, 0)",
            "EPERM|ENOSYS",
        ),
        Attempt(
            "signal the first process by a pidfd",
            "signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGKILL)",
            "EPERM",
        ),
        Attempt(
            "write into the stream of the first process",
            """
            for fd in range(20):
                write(f"/proc/1/fd/{fd}", b"A" * 9)
            """,
            "EACCES|ENOENT",
        ),
        Attempt(
            "change the limits of the first process",
            "resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1))",
            "EPERM|EACCES",
        ),
        Attempt(
            "slow down the first process", "os.setpriority(os.PRIO_PROCESS, 1, 19)", "EPERM|EACCES"
        ),
        Attempt(
            "make the kernel kill the first process for memory",
            "write('/proc/1/oom_score_adj', b'1000')",
            "EACCES|EPERM",
        ),
        Attempt(
            "be spared by the OOM killer",
            "write('/proc/self/oom_score_adj', b'-1000')",
            "EACCES|EPERM",
        ),
        Attempt(
            "take the processor for itself",
            "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))",
            "EPERM",
        ),
        Attempt("raise its priority", "os.setpriority(os.PRIO_PROCESS, 0, -20)", "EPERM|EACCES"),
        Attempt("become root", "os.setuid(0)", "EPERM|EINVAL"),
        Attempt("become a member of root's group", "os.setgid(0)", "EPERM|EINVAL"),
        Attempt("join groups", "os.setgroups([0, 1])", "EPERM"),
        Attempt(
            "raise capabilities",
            """
            head = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
            sets = ctypes.create_string_buffer(struct.pack("6I", *[0xFFFFFFFF] * 6))
            called(libc.capset(head, sets))
            """,
            "EPERM",
        ),
        Attempt(
            "keep capabilities for programs", "called(libc.prctl(47, 2, 7, 0, 0))", "EPERM|EINVAL"
        ),
        Attempt("regain privileges", "called(libc.prctl(38, 0, 0, 0, 0))", "EINVAL|EPERM"),
        Attempt(
            "raise a limit",
            "resource.prlimit(0, resource.RLIMIT_NOFILE, (1 << 20, 1 << 20))",
            "EPERM",
        ),
        Attempt(
            "signal a process of the host",
            "os.kill(HOST_PROCESS, signal.SIGKILL)",
            "ESRCH|EPERM",
        ),
        Attempt(
            "see a process of the host",
            'read(f"/proc/{HOST_PROCESS}/cmdline")',
            "ENOENT",
        ),
        Attempt(
            "kill whatever can be killed",
            """
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.kill(-1, signal.SIGTERM)
            raise Stopped("the first process is not among them")
            """,
            "Stopped|ESRCH|EPERM",
        ),
        Attempt(
            "stay as many daemons",
            f"""
            for _ in range(20):
                daemon(write_forever)
            time.sleep(0.1)
            {_NOTHING_LEFT}
            """,
            "Stopped",
        ),
        Attempt(
            "stay as a process that is stopped",
            f"daemon(lambda: os.kill(os.getpid(), signal.SIGSTOP)); time.sleep(0.1); {_NOTHING_LEFT}",
            "Stopped",
        ),
        Attempt(
            "stay as a program without a file",
            f"""
            fd = os.memfd_create("program")
            os.write(fd, open("/bin/dash", "rb").read())
            program = f"/proc/self/fd/{{fd}}"
            daemon(lambda: os.execv(program, ["sh", "-c", "while :; do echo x > /workspace/daemon; done"]))
            {_NOTHING_LEFT}
            """,
            "Stopped",
        ),
        Attempt(
            "stay as a subreaper of orphans",
            f"""
            called(libc.prctl(36, 1, 0, 0, 0))
            daemon(lambda: (called(libc.prctl(36, 1, 0, 0, 0)), daemon(write_forever), signal.pause()))
            {_NOTHING_LEFT}
            """,
            "Stopped",
        ),
        Attempt(
            "stay in a namespace of its own",
            "called(libc.unshare(NEWUSER | NEWPID)); daemon(write_forever)",
            "EPERM",
        ),
        Attempt(
            "fill the process table",
            """
            for _ in range(20_000):
                if os.fork() == 0:
                    signal.pause()
            """,
            "EAGAIN|ENOMEM",
        ),
        Attempt(
            "fill the process table, forever",
            """
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
            """,
            ends=("timed out",),
            timeout_s=1.5,
        ),
        Attempt(
            "fill the process table with threads",
            """
            import threading
            for _ in range(20_000):
                try:
                    threading.Thread(target=signal.pause, daemon=True).start()
                except RuntimeError as error:
                    raise OSError(errno.EAGAIN, str(error))
            """,
            "EAGAIN",
        ),
        Attempt("spin", "while True: pass", ends=("timed out",), timeout_s=0.5),
        Attempt("sleep past the end", "time.sleep(600)", ends=("timed out",), timeout_s=0.3),
        Attempt(
            "ignore all signals that end it",
            """
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            while True:
                time.sleep(1)
            """,
            ends=("timed out",),
            timeout_s=0.5,
        ),
        Attempt(
            "hide behind a child that continues",
            "daemon(write_forever); time.sleep(600)",
            ends=("timed out",),
            timeout_s=0.5,
        ),
        Attempt(
            "print the output of a runner",
            """
            for kind in range(64, 70):
                os.write(1, struct.pack("!BII", kind, 1, 12) + b"\\0\\0\\0\\4exit\\0\\0\\0\\1" + b"0")
            raise Stopped("it is ordinary output")
            """,
            "Stopped",
        ),
    ]


def _network() -> list[Attempt]:
    refused = "ECONNREFUSED|ENETUNREACH|EPERM|EACCES|ENOENT"
    return [
        Attempt(
            "reach a server on the host's loopback",
            "connect(socket.AF_INET, ('127.0.0.1', int(SERVER)))",
            refused,
        ),
        Attempt(
            "reach it at the IPv6 loopback",
            "connect(socket.AF_INET6, ('::1', int(SERVER)))",
            f"{refused}|EADDRNOTAVAIL",
        ),
        Attempt(
            "reach it at another address of the loopback",
            "connect(socket.AF_INET, ('127.8.8.8', int(SERVER)))",
            refused,
        ),
        Attempt(
            "reach it at the unspecified address",
            "connect(socket.AF_INET, ('0.0.0.0', int(SERVER)))",
            refused,
        ),
        Attempt(
            "fetch from it with a program",
            """
            import urllib.request
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{SERVER}/", timeout=3)
            except OSError as error:
                raise error.reason
            """,
            refused,
        ),
        Attempt(
            "reach it by the engine's name for the host",
            "connect(socket.AF_INET, ('host.containers.internal', int(SERVER)))",
            f"{refused}|gaierror|EAI_NONAME",
        ),
        Attempt(
            "send a datagram to the host",
            """
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
                trial.settimeout(1)
                trial.connect(("127.0.0.1", UDP))
                trial.send(b"escaped")
                trial.recv(100)
            """,
            refused,
        ),
        Attempt(
            "find an interface",
            """
            names = [name for _, name in socket.if_nameindex() if name != "lo"]
            if names:
                sys.exit(f"ESCAPED {names}")
            raise Stopped("there is only the loopback")
            """,
            "Stopped",
        ),
        Attempt(
            "find a route",
            """
            routes = read("/proc/net/route").splitlines()[1:]
            if routes:
                sys.exit(f"ESCAPED {routes}")
            raise Stopped("none")
            """,
            "Stopped",
        ),
        Attempt(
            "send raw packets",
            "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
            "EPERM|EACCES",
        ),
        Attempt(
            "ping",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)",
            "EPERM|EACCES|EPROTONOSUPPORT",
        ),
        Attempt(
            "listen to all packets",
            "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
            "EPERM|EACCES|ENOSYS|EAFNOSUPPORT",
        ),
        Attempt(
            "connect to the hypervisor",
            "socket.socket(40, socket.SOCK_STREAM)",
            "EPERM|EACCES|ENOSYS|EAFNOSUPPORT",
        ),
        Attempt(
            "use AF_ALG sockets",
            "socket.socket(38, socket.SOCK_SEQPACKET)",
            "EPERM|EACCES|ENOSYS|EAFNOSUPPORT",
        ),
        Attempt(
            "make an interface",
            """
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as trial:
                new = struct.pack("=BxHiII", 0, 0, 0, 0, 0) + struct.pack("=HH", 8, 3) + b"out\\0"
                kind = struct.pack("=HH", 10, 1) + b"dummy\\0" + b"\\0\\0"
                new += struct.pack("=HH", 4 + len(kind), 18) + kind
                trial.send(struct.pack("=IHHII", 16 + len(new), 16, 0x605, 1, 0) + new)
                answer = trial.recv(4096)
                code = -struct.unpack_from("=i", answer, 16)[0]
                if code:
                    raise OSError(code, os.strerror(code))
            """,
            "EPERM|EOPNOTSUPP",
        ),
        Attempt(
            "use other protocols of the kernel",
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)",
            "EPERM|ENOSYS|EPROTONOSUPPORT",
        ),
        Attempt(
            "enter the network of the first process",
            "called(libc.setns(os.open('/proc/1/ns/net', os.O_RDONLY), NEWNET))",
            "EACCES|EPERM",
        ),
        Attempt("create a network namespace", "called(libc.unshare(NEWUSER | NEWNET))", "EPERM"),
        Attempt(
            "reach an abstract socket of the host",
            "connect(socket.AF_UNIX, chr(0) + ABSTRACT)",
            "ECONNREFUSED|EPERM",
        ),
        Attempt(
            "reach the engine that made the container", "connect(socket.AF_UNIX, ENGINE)", "ENOENT"
        ),
        Attempt(
            "reach an engine where one usually is",
            """
            for path in ("/run/podman/podman.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock",
                         f"/run/user/{os.getuid()}/podman/podman.sock", "/run/dbus/system_bus_socket",
                         "/run/systemd/private", "/run/systemd/notify"):
                if os.path.exists(path):
                    connect(socket.AF_UNIX, path)
            raise Stopped("there is none")
            """,
            "Stopped",
        ),
    ]


def _resources() -> list[Attempt]:
    return [
        Attempt(
            "take all memory",
            """
            taken = []
            while True:
                taken.append(bytearray(16 << 20))
            """,
            "MemoryError|ENOMEM",
            ends=("refused", "killed"),
        ),
        Attempt(
            "take all memory without naming it",
            """
            import mmap
            taken = []
            while True:
                taken.append(mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
                for at in range(0, 16 << 20, 4096):
                    taken[-1][at] = 1
            """,
            "MemoryError|ENOMEM",
            ends=("refused", "killed"),
        ),
        Attempt(
            "fill /dev/shm and /tmp",
            """
            for folder in ("/dev/shm", "/tmp"):
                with open(folder + "/bomb", "wb", buffering=0) as file:
                    try:
                        for _ in range(100):
                            file.write(bytes(1 << 20))
                    except OSError as error:
                        if error.errno not in (errno.ENOSPC, errno.EFBIG):
                            raise
                    else:
                        sys.exit("ESCAPED " + folder)
            raise Stopped("both are limited")
            """,
            "Stopped",
        ),
        Attempt(
            "fill /tmp with names",
            """
            for n in range(1_000_000):
                os.close(os.open(f"/tmp/{n}", os.O_CREAT | os.O_WRONLY))
            """,
            "ENOSPC|ENOMEM",
            ends=("refused", "killed", "broken"),
            fills_memory=True,
        ),
        Attempt(
            "fill /dev",
            """
            with open("/dev/bomb", "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
            """,
            "EACCES|EROFS|EPERM",
        ),
        Attempt(
            "fill the disk",
            """
            for n in range(10_000):
                with open(f"bomb-{n}", "wb") as file:
                    for _ in range(16):
                        file.write(os.urandom(1 << 20))
            """,
            ends=("stopped",),
        ),
        Attempt(
            "fill the disk with one call",
            """
            for n in range(10_000):
                with open(f"bomb-{n}", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, 48 << 20)
            """,
            ends=("stopped",),
        ),
        Attempt(
            "fill the disk in a locked directory",
            """
            os.mkdir("locked")
            os.chdir("locked")
            os.chmod(".", 0o300)
            for n in range(10_000):
                with open(f"bomb-{n}", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, 48 << 20)
            """,
            ends=("stopped",),
        ),
        Attempt(
            "fill the disk with deleted files",
            """
            held = []
            for n in range(10_000):
                held.append(os.open("bomb", os.O_WRONLY | os.O_CREAT))
                os.unlink("bomb")
                for _ in range(16):
                    os.write(held[-1], os.urandom(1 << 20))
            """,
            ends=("stopped",),
        ),
        Attempt(
            "allocate disk space without writing",
            """
            with open("large", "wb") as file:
                syscall("fallocate", file.fileno(), 0, 0, 1 << 20)
            """,
            "EOPNOTSUPP|ENOTSUP",
        ),
        Attempt(
            "take every inotify instance of the user",
            "held = [called(libc.inotify_init1(0)) for _ in range(64)]",
            "EMFILE",
        ),
        Attempt(
            "queue signals without bound",
            """
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
            for _ in range(20_000):
                called(libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None))
            """,
            "EAGAIN",
        ),
        Attempt(
            "leave a port in TIME_WAIT for the next command",
            """
            with socket.create_server(("127.0.0.1", 0)) as server:
                with socket.create_connection(server.getsockname()) as client:
                    accepted, _ = server.accept()
                while accepted.recv(1):
                    pass
                accepted.close()
            states = [line.split()[3] for line in open("/proc/net/tcp") if ":" in line]
            if "06" not in states:
                raise Stopped("no port is in TIME_WAIT")
            """,
            "Stopped",
        ),
        Attempt(
            "make a file larger than any disk",
            """
            with open("large", "wb") as file:
                file.truncate(1 << 50)
            """,
            "EFBIG",
            ends=("refused", "killed"),
        ),
        Attempt(
            "allocate a file larger than allowed",
            """
            with open("large", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 1 << 40)
            """,
            "EFBIG|ENOSPC",
            ends=("refused", "killed"),
        ),
        Attempt(
            "make files of holes",
            """
            for n in range(100):
                with open(f"holes-{n}", "wb") as file:
                    file.truncate(60 << 20)
            os._exit(0)
            """,
            ends=("stopped",),
        ),
        Attempt(
            "make 100,000 files",
            """
            for n in range(100):
                os.mkdir(str(n))
                for m in range(1_000):
                    os.close(os.open(f"{n}/{m}", os.O_CREAT | os.O_WRONLY))
            os._exit(0)
            """,
            ends=("stopped",),
            timeout_s=60,
        ),
        Attempt(
            "make directories deeper than any path",
            """
            for _ in range(2_200):
                os.mkdir("d")
                os.chdir("d")
            raise Stopped("the call is rolled back")
            """,
            "Stopped",
            timeout_s=60,
        ),
        Attempt(
            "make deep directories with long names",
            """
            for _ in range(300):
                os.mkdir("n" * 250)
                os.chdir("n" * 250)
            raise Stopped("the call is rolled back")
            """,
            "Stopped",
            timeout_s=60,
        ),
        Attempt(
            "print output without end",
            """
            line = b"x" * 65536
            while True:
                os.write(1, line)
            """,
            ends=("stopped",),
        ),
        Attempt(
            "print output and errors without end from many processes",
            """
            for _ in range(4):
                os.fork()
            while True:
                os.write(1, b"x" * 65536)
                os.write(2, b"x" * 65536)
            """,
            ends=("stopped",),
        ),
        Attempt(
            "print forever, slowly",
            """
            while True:
                os.write(1, b"x")
                time.sleep(0.01)
            """,
            ends=("timed out",),
            timeout_s=0.5,
        ),
        Attempt(
            "open files without end",
            """
            while True:
                os.open("/dev/null", os.O_RDONLY)
            """,
            "EMFILE",
        ),
        Attempt(
            "lock memory without end",
            """
            import mmap
            locked = mmap.mmap(-1, 256 << 20)
            called(libc.mlockall(3))
            """,
            "ENOMEM|EPERM|MemoryError|EAGAIN",
        ),
        Attempt(
            "leave shared memory for the next command",
            """
            key = called(libc.shmget(ctypes.c_int(0x77696E6B), ctypes.c_size_t(4096), 0o1666))
            raise Stopped("it is removed with the last process")
            """,
            "Stopped|ENOSYS",
        ),
        Attempt(
            "leave a core dump on the host",
            """
            if os.fork() == 0:
                os.kill(os.getpid(), signal.SIGSEGV)
            os.wait()
            found = [name for name in os.listdir(".") if name.startswith("core")]
            if found:
                sys.exit(f"ESCAPED {found}")
            raise Stopped("no core is written")
            """,
            "Stopped",
        ),
    ]


def _kernel() -> list[Attempt]:
    buffer = "ctypes.create_string_buffer(256)"
    return [
        Attempt("create a user namespace", "called(libc.unshare(NEWUSER))", "EPERM"),
        Attempt("create all namespaces", "called(libc.unshare(0x7E020000))", "EPERM"),
        Attempt(
            "clone into a user namespace",
            "syscall('clone', NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)",
            "EPERM|ENOSYS",
        ),
        Attempt("clone with clone3", f"syscall('clone3', {buffer}, 64)", "ENOSYS"),
        Attempt(
            "enter a namespace",
            "called(libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0))",
            "EPERM",
        ),
        Attempt("add a key", "syscall('add_key', b'user', b'wink', b'x', 1, -3)", "EPERM|ENOSYS"),
        Attempt("create a keyring", "syscall('keyctl', 0, -3, 0, 0, 0)", "EPERM|ENOSYS"),
        Attempt("request a key", "syscall('request_key', b'user', b'wink', 0, -3)", "EPERM|ENOSYS"),
        Attempt(
            "load a program into the kernel", f"syscall('bpf', 5, {buffer}, 48)", "EPERM|ENOSYS"
        ),
        Attempt(
            "count performance events of the machine",
            f"syscall('perf_event_open', {buffer}, 0, -1, -1, 0)",
            "EPERM|ENOSYS|EACCES",
        ),
        Attempt("handle its own page faults", "syscall('userfaultfd', 1)", "EPERM|ENOSYS"),
        Attempt(
            "queue system calls with io_uring", f"syscall('io_uring', 4, {buffer})", "EPERM|ENOSYS"
        ),
        Attempt("watch whole filesystems", "syscall('fanotify_init', 0, 0)", "EPERM|ENOSYS"),
        Attempt("load a module", f"syscall('init_module', {buffer}, 0, b'')", "EPERM|ENOSYS"),
        Attempt("load another kernel", "syscall('kexec_load', 0, 0, 0, 0)", "EPERM|ENOSYS"),
        Attempt("restart the machine", "called(libc.reboot(0x01234567))", "EPERM"),
        Attempt("set the clock", "time.clock_settime(time.CLOCK_REALTIME, 0)", "EPERM"),
        Attempt("rename the machine", "socket.sethostname('mine')", "EPERM"),
        Attempt("swap to a file", "called(libc.swapon(b'/workspace/swap', 0))", "EPERM|ENOSYS"),
        Attempt("account for processes", "called(libc.acct(b'/workspace/acct'))", "EPERM|ENOSYS"),
        Attempt("access I/O ports", "called(libc.iopl(3))", "EPERM|ENOSYS"),
        Attempt(
            "type at a terminal of the host",
            "fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')",
            "ENXIO|ENOENT",
        ),
        Attempt("type at its own input", "fcntl.ioctl(0, 0x5412, b'x')", "ENOTTY|EPERM"),
        Attempt(
            "make a system call as a 32-bit program",
            r"""
            if platform.machine() != "x86_64":
                raise Stopped("there are none")
            import mmap
            code = mmap.mmap(-1, 4096, prot=7)
            code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # getpid by int 0x80
            address = ctypes.addressof(ctypes.c_char.from_buffer(code))
            if os.fork() == 0:
                ctypes.CFUNCTYPE(ctypes.c_int)(address)()
                os._exit(0)
            if os.waitstatus_to_exitcode(os.wait()[1]) >= 0:
                sys.exit("ESCAPED")
            raise Stopped("it was killed")
            """,
            "Stopped",
        ),
    ]


ATTEMPTS = {
    f"{kind}: {attempt.name}": attempt
    for kind, attempts in {
        "files": _files(),
        "processes": _processes(),
        "network": _network(),
        "resources": _resources(),
        "kernel": _kernel(),
    }.items()
    for attempt in attempts
}
