"""Python itself as the interpreter of a child, with the standard library and numpy.

Nothing in here isolates the code: ``restrictions`` does, and the code may reach every object of
this process. This module makes ordinary programs work without one more system call.

Rule 1: a child opens no files, so the server imports every module that a program may need, before
the isolation. A module that is not in ``sys.modules`` cannot be imported.
Rule 2: ``open``, ``pathlib``, ``glob`` and the reading functions of ``os`` work on the workspace's
files, which the host provides. Other functions of ``os`` make their system call, which fails.
Rule 3: an event loop of asyncio has timers only. It needs no descriptor.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import glob
import io
import os
import posixpath
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module  # noqa: TID251 - of modules that code may use
from importlib.machinery import BuiltinImporter, FrozenImporter
from types import ModuleType
from typing import Any, ClassVar, Final, NoReturn, cast

from .files import HOME, WorkspaceFiles
from .main_program import MainProgram

MODULES: Final = (
    *("abc", "argparse", "array", "ast", "asyncio", "atexit", "base64", "binascii", "bisect"),
    *("bz2", "calendar", "cmath", "cmd", "code", "codecs", "collections", "collections.abc"),
    *("colorsys", "concurrent.futures", "concurrent.futures.thread", "configparser", "contextlib"),
    *("contextvars", "copy", "copyreg", "csv", "ctypes", "dataclasses", "datetime", "decimal"),
    *("difflib", "dis", "doctest", "email", "email.message", "email.parser", "enum", "errno"),
    *("fileinput", "fnmatch", "fractions", "functools", "gc", "getopt", "gettext", "glob"),
    *("graphlib", "gzip", "hashlib", "heapq", "hmac", "html", "html.entities", "html.parser"),
    *("http", "importlib", "importlib.util", "inspect", "io", "ipaddress", "itertools", "json"),
    *("keyword", "linecache", "locale", "logging", "lzma", "marshal", "math", "mimetypes"),
    *("multiprocessing", "numbers", "operator", "os", "pathlib", "pickle", "pickletools"),
    *("platform", "pprint", "queue", "quopri", "random", "re", "reprlib", "resource", "sched"),
    *("secrets", "select", "selectors", "shlex", "shutil", "signal", "socket", "sqlite3"),
    *("ssl", "stat", "statistics", "string", "stringprep", "struct", "subprocess", "symtable"),
    *("sys", "tempfile", "textwrap", "threading", "time", "timeit", "token", "tokenize"),
    *("tomllib", "traceback", "tracemalloc", "types", "typing", "unicodedata", "unittest"),
    *("unittest.mock", "urllib.error", "urllib.parse", "urllib.request", "uuid", "warnings"),
    *("weakref", "xml.dom.minidom", "xml.etree.ElementTree", "zipfile", "zlib", "zoneinfo"),
    *("_strptime", "__future__"),
)
"""Modules that programs can import, with what these import. A Python may lack some of them."""

NUMPY_MODULES: Final = (
    *("numpy", "numpy.fft", "numpy.linalg", "numpy.ma", "numpy.polynomial", "numpy.random"),
    *("numpy.testing", "numpy.typing"),
)

_WARM_UP: Final = """
from dataclasses import dataclass
@dataclass
class Point:
    x: int = 0
    def moved(self, *, by=1):
        return Point(self.x + by)
[f"{Point(x).moved()}" for x in range(3)]
"""


class PythonInterpreter(MainProgram):
    """Runs one program as the module ``__main__``. Makes all modules available at once."""

    warm_up_code: ClassVar[str] = _WARM_UP

    def __init__(self, *, use_numpy: bool) -> None:
        for name in (*MODULES, *(NUMPY_MODULES if use_numpy else ())):
            with contextlib.suppress(ImportError):
                import_module(name)
        time.localtime()  # reads the time zone
        numpy_random = sys.modules.get("numpy.random")
        self._seeds: Callable[[], None] = getattr(numpy_random, "seed", lambda: None)

    def clear(self) -> None:
        """Start with another module ``__main__``, and a random state of its own."""
        main = sys.modules["__main__"] = ModuleType("__main__")
        self.names = main.__dict__
        self._seeds()

    def provide(self, given: Mapping[str, Any], files: WorkspaceFiles) -> None:
        """Set the global names, and let the file functions work on *files*."""
        self.names.update(__builtins__=builtins, **given)
        sys.argv[:] = ["-c"]
        sys.path[:] = []
        finders = cast("list[Any]", sys.meta_path)
        finders[:] = [BuiltinImporter, FrozenImporter, _NotImported]
        asyncio.set_event_loop_policy(_Policy())  # pyright: ignore[reportDeprecated] - from 3.14 on
        sys.stdin = io.StringIO()
        warnings.resetwarnings()
        warnings.simplefilter("default")
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)
        _install(files)


class _NotImported:
    """The last finder of modules."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> NoReturn:
        del path, target
        raise ModuleNotFoundError(
            f"No module named {name!r} here: most of the standard library can be imported,"
            " and numpy where it is installed",
            name=name,
        )


# Files


class _Entry:
    """As ``os.DirEntry``."""

    __slots__ = ("_found", "name", "path")

    def __init__(self, path: str, name: str, found: os.stat_result) -> None:
        self.path = path
        self.name = name
        self._found = found

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self._found.st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        del follow_symlinks
        return stat.S_ISDIR(self._found.st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        del follow_symlinks
        return stat.S_ISREG(self._found.st_mode)

    def is_symlink(self) -> bool:
        return False

    def is_junction(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        del follow_symlinks
        return self._found


class _Entries:
    """As the iterator of ``os.scandir``."""

    def __init__(self, entries: Iterator[_Entry]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[_Entry]:
        return self._entries

    def __next__(self) -> _Entry:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def _result(kind: str, size_bytes: int, *, executable: bool) -> os.stat_result:
    if kind == "directory":
        mode = stat.S_IFDIR | 0o755
    else:
        mode = stat.S_IFREG | (0o755 if executable else 0o644)
    return os.stat_result((mode, 0, 0, 1, os.getuid(), os.getgid(), size_bytes, 0, 0, 0))


def _install(files: WorkspaceFiles) -> None:
    """Replace ``open`` and the functions of ``os`` that work without a system call."""

    def status(
        path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        del dir_fd, follow_symlinks
        kind, size_bytes, executable = files.stat(path)
        return _result(kind, size_bytes, executable=executable)

    def listdir(path: Any = ".") -> list[str]:
        return [name for name, *_ in files.list(path)]

    def scandir(path: Any = ".") -> _Entries:
        folder = os.fsdecode(path)
        return _Entries(
            _Entry(
                posixpath.join(folder, name),
                name,
                _result(kind, size_bytes, executable=executable),
            )
            for name, kind, size_bytes, executable in files.list(path)
        )

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        del mode, dir_fd
        files.mkdir(path)

    replaced: dict[str, object] = {
        **dict.fromkeys(("stat", "lstat"), status),
        "listdir": listdir,
        "scandir": scandir,
        "mkdir": mkdir,
        "getcwd": lambda: HOME,
        "getcwdb": HOME.encode,
        **dict.fromkeys(("cpu_count", "process_cpu_count"), lambda: 1),
    }
    for name, function in replaced.items():
        setattr(os, name, function)
    globber: Any = getattr(glob, "_StringGlobber", None)  # since 3.13 it keeps os.scandir
    if globber is not None:
        globber.scandir = staticmethod(scandir)
    builtins_: Any = builtins
    builtins_.open = io.open = files.open  # pyright: ignore[reportAttributeAccessIssue] - replaced on purpose
    builtins_.read_text, builtins_.write_text = files.read_text, files.write_text


# asyncio


class _Timers:
    """A selector without descriptors: it only waits."""

    def select(self, timeout: float | None = None) -> list[object]:
        if timeout is None:
            raise RuntimeError("the event loop would wait forever: no task can continue")
        if timeout > 0:
            time.sleep(timeout)  # noqa: TID251 - the code waits, in its own process
        return []


class _Loop(asyncio.BaseEventLoop):
    """An event loop of tasks, futures and timers."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Timers()

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        """Nothing: no other thread can wake it."""


class _Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = _Loop
