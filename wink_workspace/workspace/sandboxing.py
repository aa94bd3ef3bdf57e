"""The sandbox of a workspace: one sandbox over its files, of the configured kind.

It belongs to the workspace and not to a prompt, so that it stays warm from one prompt to the
next. Only the registry knows which kinds there are. The tracker of the files notices what a
command changes, like all other changes. A transaction only needs every process to be dead when
the command returns.

Output that is too long for a result is stored in ``OUTPUT_FOLDER`` of the workspace, as text. So
the file tools can read it, and a rollback of the call removes it. The next such output replaces
it. It does not belong to the work, so a ``ChangeSet`` leaves that folder out.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wink_workspace.clock import Clock
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxUnavailableError, UsageError
from wink_workspace.filesystem import FileKind, WorkspacePath, parse_path
from wink_workspace.filesystem.disk import DiskEntry
from wink_workspace.resources import Binding
from wink_workspace.sandbox import (
    DEFAULT_SANDBOX,
    SANDBOXES,
    Sandbox,
    SandboxConfig,
    SandboxContext,
    StreamName,
)

from .files.histories import CopyHistory
from .opened_files import OpenedFiles
from .place.path_rules import OUTPUT_FOLDER
from .place.storage import WorkspaceFolder

if TYPE_CHECKING:
    from wink_workspace.sandbox import RememberedServices

_CHUNK_CHARS: Final = 262_144

_BACKEND_NOTE: Final = "backend"
"""Holds the name of the sandbox's backend while there is one, for recovery after a crash."""


class SandboxSlot:
    """Creates the sandbox on first use, and another one for another configuration.

    Args:
        folder: The workspace.
        opened: Its files.
        clock: The time.
    """

    def __init__(self, folder: WorkspaceFolder, opened: OpenedFiles, clock: Clock) -> None:
        self._folder = folder
        self._derived = opened.derived
        self._mount = opened.mount
        self._tree = opened.tree
        self._history = opened.history
        self._clock = clock
        if opened.derived is not None:
            opened.derived.left_alone = self.paths_of_services
        self._sandbox: Sandbox | None = None
        self._config: SandboxConfig | None = None
        self._lock = threading.Lock()  # held while there is none, and shall be none
        self.binding: Binding[Sandbox] = Binding(
            Sandbox, lambda resolver: self.get(resolver.get_optional(SandboxConfig)), owned=False
        )

    def get(
        self, config: SandboxConfig | None = None, *, environment: Environment | None = None
    ) -> Sandbox:
        """The sandbox with this configuration; one with another configuration is ended.

        Raises:
            UsageError: If there is no such sandbox, or it cannot run commands.
            SandboxUnavailableError: If its package cannot be loaded.
        """
        wanted = config or self._config or SANDBOXES.get(DEFAULT_SANDBOX).config()
        if self._sandbox is None or wanted != self._config:
            self._create(wanted, environment)
        assert self._sandbox is not None  # noqa: S101 - otherwise it could not be created
        return self._sandbox

    def _create(self, wanted: SandboxConfig, environment: Environment | None) -> None:
        with self._lock:
            backend = SANDBOXES.of_config(wanted)
            create = backend.factory()
            self.close()
            self._folder.sandbox.mkdir(mode=0o700, exist_ok=True)
            self._note.write_text(backend.name, encoding="utf-8")
            place = SandboxContext(
                files=self._tree.root,
                source=Path(self._folder.info().source),
                notes=self._folder.sandbox,
                publish=self._publish,
                changed=self._changed,
                mount=self._mount,
                services=self._folder.services,
                make_derived=self._make_derived,
                **self._git(),
            )
            self._config = wanted
            if self._derived is not None:
                self._derived.changes.sandbox_opened()
            self._sandbox = create(place, config=wanted, environment=environment, clock=self._clock)

    def _git(self) -> dict[str, Any]:  # Any: each argument has its own type
        """The arguments for the history of the source, if the workspace has a copy of it."""
        copy = self._folder.git_copy
        if copy is None:
            return {}
        from .create.git_copies import GitCopies, write_git_file

        history = GitCopies(self._folder.state_dir).find(copy.name)
        if history is None:
            return {}
        files = self._tree.root
        return {"git_history": history, "write_git_file": lambda: write_git_file(files)}

    # Services

    def frozen(self) -> AbstractContextManager[None]:
        """A block in which no service of the branch runs."""
        services = None if self._sandbox is None else self._sandbox.services
        return nullcontext() if services is None else services.frozen()

    @contextmanager
    def released(self) -> Generator[tuple[str, ...]]:
        """A block in which no command has the files open; see ``Sandbox.released``."""
        with self._lock:
            if self._sandbox is None:
                yield ()
                return
        with self._sandbox.released() as held:
            yield held

    def paths_of_services(self) -> tuple[WorkspacePath, ...]:
        """What running services may change; before the first command, those of a killed process."""
        return (
            () if (known := self._remembered()) is None else tuple(map(parse_path, known.writes()))
        )

    def forget_services(self) -> None:
        """Record that no service runs: the branch has just been opened."""
        if (known := self._remembered()) is not None:
            known.all_stopped()

    def copy_services(self, fork: WorkspaceFolder) -> None:
        """Let a new fork start what runs in this branch, over its own files."""
        services = None if self._sandbox is None else self._sandbox.services
        listed = () if services is None else services.listed()
        running = {each.config.name for each in listed if each.state != "ended"}
        if (known := self._remembered()) is not None:
            known.copy_to(fork.services, running=running)

    def _remembered(self) -> RememberedServices | None:
        """The services that were started in the branch, if any were."""
        if not self._folder.services.exists():
            return None
        from wink_workspace.sandbox import RememberedServices

        return RememberedServices(self._folder.services)

    def _make_derived(self, path: str) -> None:
        parsed = parse_path(path)
        unrecorded = None if self._derived is None else self._derived.unrecorded
        if unrecorded is None or not unrecorded.hides(parsed.parts):
            raise UsageError(
                f"a service cannot write to {path!r}: it is not a derived path",
                hint="Services write to derived paths only, such as caches and build directories;"
                " the import of the workspace names them (--derive).",
            )
        for each in (*parsed.ancestors(), parsed):
            entry = self._tree.entry(each)
            if entry is None and unrecorded.hides(each.parts):
                self._tree.make_directory(each)
            elif entry is None or entry.kind is not FileKind.DIRECTORY:
                raise UsageError(
                    f"a service cannot write to {path!r}: {each} is not a directory",
                    hint="Create it, or choose another path.",
                )

    def close(self) -> None:
        """End the sandbox, if there is one. May be called again, also after an error."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None
            self._note.unlink(missing_ok=True)

    @property
    def _note(self) -> Path:
        return self._folder.sandbox / _BACKEND_NOTE

    def _publish(self, stream: StreamName, file: Path) -> str:
        path = OUTPUT_FOLDER / f"{stream}.txt"
        with file.open(encoding="utf-8", errors="backslashreplace", newline="") as content:
            pieces = iter(lambda: content.read(_CHUNK_CHARS).encode(), b"")
            self._tree.put_file(path, pieces)
        return str(path)

    def _changed(self) -> tuple[int, int]:
        """How many bytes and entries there are at paths that may have changed."""
        if not isinstance(self._history, CopyHistory):
            return 0, 0  # in place no commands run
        dirty = self._history.changed_paths()
        n_bytes = n_entries = 0
        for path in dirty.paths:
            n_bytes += _size(self._tree.entry(path))
            n_entries += 1
        for prefix in dirty.prefixes:
            there = self._tree.entry(prefix)
            n_bytes += _size(there)
            n_entries += 1
            if there is not None and there.kind is FileKind.DIRECTORY:
                for entry in self._tree.walk(prefix):
                    n_bytes += _size(entry)
                    n_entries += 1
        return n_bytes, n_entries


def _size(entry: DiskEntry | None) -> int:
    return entry.size_bytes if entry is not None and entry.kind is FileKind.FILE else 0


def end_interrupted(folder: WorkspaceFolder) -> str:
    """End the sandbox that a killed process left; the last output of its command.

    This runs before the files are read, because the sandbox may still write to them. The caller
    holds the writer lock.

    Raises:
        SandboxError: If it still runs and cannot be ended, or its package is missing.
    """
    if not folder.sandbox.is_dir() or not any(folder.sandbox.iterdir()):
        return ""
    note = folder.sandbox / _BACKEND_NOTE
    name = note.read_text(encoding="utf-8") if note.exists() else ""  # killed before it was written
    try:
        last_output = SANDBOXES.get(name or DEFAULT_SANDBOX).end_leftover(folder.sandbox)
    except UsageError as error:
        raise SandboxUnavailableError(
            f"a sandbox {name!r} may still run over {folder.files}, and its package is missing",
            hint=f"Install the package again. If no such sandbox runs, delete {note}.",
        ) from error
    note.unlink(missing_ok=True)
    return last_output
