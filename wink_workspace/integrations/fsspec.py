# pyright: basic
# fsspec has no types, so a subclass of its classes cannot be checked strictly.
"""Workspaces as an fsspec filesystem: ``wink://WORKSPACE[[/BRANCH]@ENTRY]/path``.

Without ``@``, a URL names the newest entry of the main branch. ``wink://3f1@12/app.py`` is a file
after entry 12, and ``wink://3f1/try-2@/app.py`` one after the newest entry of a fork. An ``@`` in
the first name of a path needs one before it: ``wink://3f1@/a@b``. A stripped URL keeps its
place, as ``3f1@12/app.py``, as do the names of a listing: they are URLs with ``wink://`` before.

Rule 1: reading waits for no call, and sees what was committed, or in a transaction of this object
what the transaction has changed.
Rule 2: each change is one call, with several files also ``put``, ``copy``, ``mv``, ``pipe`` and
``rm``. A transaction of fsspec is one call, too: its changes are committed together at its end, or
rolled back. All threads that use this object take part in it.
Rule 3: the branch is open during a change only, so that other processes can write to it, too. An
entry cannot be changed.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from fsspec import AbstractFileSystem
from fsspec.transaction import Transaction
from fsspec.utils import stringify_path, tokenize

from wink_workspace.errors import EntryMissingError, ReadOnlyError, UsageError
from wink_workspace.filesystem import Filesystem
from wink_workspace.filesystem.fsspec_memory import MemoryFsspec
from wink_workspace.ledger import MAIN_BRANCH
from wink_workspace.workspace import Workspace, WorkspaceReader, WorkspaceStorage
from wink_workspace.workspace.program_calls import WorkspaceCall

_URL: Final = re.compile(
    r"wink(?:://|::)(?P<workspace>[^/@]*)"
    r"(?:(?:/(?P<branch>[^/@]+))?@(?P<entry>[^/]*))?(?P<path>/.*)?",
    re.DOTALL,
)

_PLACE: Final = re.compile(r"[^/@]+(?:/[^/@]+)?@[^/]*(?![^/])")
"""The workspace, branch and entry in a path."""


class _CallTransaction(Transaction):
    """A transaction of fsspec as one call."""

    fs: WinkFileSystem | None

    def start(self) -> None:
        """Begin the call."""
        fs = self._filesystem()
        fs.begin_call()
        super().start()

    def complete(self, commit: bool = True) -> None:
        """Commit the call, or roll it back."""
        self._end(None, commit=commit)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._end(error, commit=error is None)

    def _filesystem(self) -> WinkFileSystem:
        if self.fs is None:
            raise UsageError("the transaction is over", hint="Begin another one.")
        return self.fs

    def _end(self, error: BaseException | None, *, commit: bool) -> None:
        fs, files = self._filesystem(), list(self.files)
        self.fs = None
        self.files.clear()
        try:
            for file in files:
                file.close() if commit else file.discard()
        except BaseException as failure:
            fs.end_call(failure, commit=False)
            raise
        fs.end_call(error, commit=commit)


class WinkFileSystem(MemoryFsspec):
    """The files of a workspace; for fsspec, ``wink``.

    Args:
        workspace: The id of a workspace, or the beginning of it.
        branch: The main branch, or the name of a fork.
        entry: The number of an entry, or the beginning of its id; empty for the newest.
        storage: Where workspaces are stored; the default storage when omitted.
        options: As for every filesystem of fsspec.

    Raises:
        UsageError: If no workspace is named. Methods raise it if there is no such workspace.
    """

    protocol = "wink"
    transaction_type = _CallTransaction

    def __init__(
        self,
        workspace: str = "",
        *,
        branch: str = MAIN_BRANCH,
        entry: str | int = "",
        storage: WorkspaceStorage | None = None,
        **options: Any,
    ) -> None:
        AbstractFileSystem.__init__(self, **options)
        if not workspace:
            raise UsageError(
                "the URL names no workspace",
                hint="Write wink://WORKSPACE/path, as in wink://3f1/a.txt.",
            )
        self._workspace = workspace
        self._branch = branch
        self._entry = str(entry)
        self._storage = storage
        self._reader: WorkspaceReader | None = None
        self._committed: tuple[str, Filesystem] | None = None
        self._reading = threading.Lock()
        self._lock = threading.RLock()  # of one change; a transaction does not hold it
        self._call: WorkspaceCall | None = None
        self._thread = 0
        self._transaction_end: ExitStack | None = None

    # Names

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        found = _URL.fullmatch(stringify_path(path))
        if found is None:
            return {}
        named = found.groupdict()
        return {key: named[key] for key in ("workspace", "branch", "entry") if named[key]}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        given = stringify_path(path)
        found = _URL.fullmatch(given)
        if found is not None and found["workspace"]:
            branch = f"/{found['branch']}" if found["branch"] else ""
            given = f"{found['workspace']}{branch}@{found['entry'] or ''}{found['path'] or ''}"
        place, inside = _split(given)
        return place + super()._strip_protocol(inside)

    @classmethod
    def _parent(cls, path: str) -> str:
        place, inside = _split(cls._strip_protocol(path))
        return f"{place}{super()._parent(inside)}".removesuffix("/" if place else "")

    def _place(self, path: str) -> str:
        place, _ = _split(self._strip_protocol(path))
        branch = "" if self._branch == MAIN_BRANCH else f"/{self._branch}"
        return place if place == f"{self._workspace}{branch}@{self._entry}" else ""

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path of this filesystem."""
        path = self._strip_protocol(name).removeprefix(self._place(name))
        branch = "" if self._branch == MAIN_BRANCH else f"/{self._branch}"
        needs_end = branch or self._entry or "@" in path.removeprefix("/").partition("/")[0]
        return f"wink://{self._workspace}{branch}{f'@{self._entry}' if needs_end else ''}{path}"

    @property
    def _fs_token(self) -> str:
        return tokenize(self._workspace, self._branch, self._entry, str(self._storage))

    def __reduce__(self) -> Any:
        return AbstractFileSystem.__reduce__(self)

    # Reading

    @property
    def _files(self) -> Filesystem:
        call, is_shared = self._call, self._transaction_end is not None
        if call is not None and (is_shared or self._thread == threading.get_ident()):
            return call.files
        with self._reading:
            reader = self._open_reader()
            entry = reader.entry(_entry(self._entry)) if self._entry else reader.refresh()
            if self._committed is None or self._committed[0] != entry.id:
                self._committed = entry.id, reader.files_at(entry)
            return self._committed[1]

    def _open_reader(self) -> WorkspaceReader:
        if self._reader is None:
            storage = self._storage or WorkspaceStorage.default()
            try:
                self._reader = WorkspaceReader(storage.folder(self._workspace), branch=self._branch)
            except EntryMissingError as error:
                path = f"wink://{self._workspace}@/{self._branch}@{self._entry}"
                raise EntryMissingError(
                    error.message, hint=f"Write {path} if it is a path."
                ) from error
            weakref.finalize(self, self._reader.__exit__, None, None, None)
        return self._reader

    # Changes

    @contextmanager
    def _changing(self, what: str, path: str) -> Generator[Filesystem]:
        """The files in a call, which is that of the transaction or of an operation around it."""
        with self._lock:
            if self._call is not None:
                yield self._call.files
                return
            with self._begun(what, path) as call:
                yield call.files

    @contextmanager
    def _begun(self, what: str, path: str) -> Generator[WorkspaceCall]:
        if self._entry:
            raise ReadOnlyError(
                f"entry {self._entry} of workspace {self._workspace} cannot be changed",
                hint="Leave the entry out of the URL.",
            )
        params = {"path": path} if path else None
        with (
            Workspace.open(self._workspace, storage=self._storage, branch=self._branch) as opened,
            opened.call(f"fsspec {what}", params=params) as call,
        ):
            self._call, self._thread = call, threading.get_ident()
            try:
                yield call
            finally:
                self._call = None

    def _open(self, path: str, mode: str = "rb", *, autocommit: bool = True, **options: Any) -> Any:
        # In a transaction, a file is written when it is closed, for what the transaction reads.
        return super()._open(path, mode, autocommit=autocommit or self._call is not None, **options)

    def pipe(self, path: Any, value: Any = None, **options: Any) -> None:
        """Write whole files."""
        with self._changing("write", "" if isinstance(path, dict) else str(path)):
            super().pipe(path, value, **options)

    def put(self, lpath: Any, rpath: Any, *arguments: Any, **options: Any) -> None:
        """Copy files of this machine into the workspace."""
        with self._changing("put", str(rpath)):
            super().put(lpath, rpath, *arguments, **options)

    def put_file(self, lpath: Any, rpath: Any, *arguments: Any, **options: Any) -> None:
        """Copy a file of this machine into the workspace."""
        with self._changing("put", str(rpath)):
            super().put_file(lpath, rpath, *arguments, **options)

    def copy(self, path1: Any, path2: Any, *arguments: Any, **options: Any) -> None:
        """Copy files inside of the workspace."""
        with self._changing("copy", str(path1)):
            super().copy(path1, path2, *arguments, **options)

    def mv(self, path1: Any, path2: Any, *arguments: Any, **options: Any) -> None:
        """Move files inside of the workspace."""
        with self._changing("move", str(path1)):
            super().mv(path1, path2, *arguments, **options)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files, links and directories; of the root, only the entries."""
        with self._changing("delete", str(path)):
            super().rm(path, recursive=recursive, maxdepth=maxdepth)

    # Transactions

    def start_transaction(self) -> Any:
        """Begin a transaction, to be ended by ``end_transaction``."""
        self.transaction.start()
        return self.transaction

    def begin_call(self) -> None:
        """Begin the call of a transaction.

        Raises:
            UsageError: If one has begun: it may wait for the thread that asks.
        """
        with self._lock, ExitStack() as opened:
            if self._transaction_end is not None:
                raise UsageError(
                    "a transaction of this filesystem has begun", hint="End it, or use its block."
                )
            opened.enter_context(self._begun("transaction", ""))
            self._transaction_end = opened.pop_all()

    def end_call(self, error: BaseException | None, *, commit: bool) -> None:
        """End the call of the transaction; roll it back after *error*, or without *commit*."""
        self._intrans, self._transaction = False, None
        opened, self._transaction_end = self._transaction_end, None
        if opened is None or self._call is None:
            raise UsageError(
                "the transaction has not begun", hint="Use start_transaction, or with."
            )
        if not commit and error is None:
            self._call.fail("The transaction was discarded.")
        with self._lock:  # after a change by another thread
            opened.__exit__(None if error is None else type(error), error, None)


def _entry(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _split(path: str) -> tuple[str, str]:
    """The place at the beginning of a path, and the rest."""
    found = _PLACE.match(path)
    return (found[0], path[found.end() :]) if found else ("", path)
