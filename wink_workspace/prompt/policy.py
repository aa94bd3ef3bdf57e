"""Policies: rules that may refuse a call before its handler runs.

Rule 1: the knowledge of a policy is in a STATE slice of the session. So it is rolled back with the
call that it came from, and equal policies of different sections share it.
Rule 2: a policy learns only from calls that succeeded.
Rule 3: a policy that cannot decide refuses, and so does one that raises.

``ReadBeforeWritePolicy`` stores a fingerprint of the content that was seen, under the physical path
of the file: all spellings of a path and all links to a file share one entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable
from weakref import WeakSet

from immutables import Map

from wink_workspace.counts import counted
from wink_workspace.errors import (
    FilesystemError,
    PromptValidationError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem.links import physical_path
from wink_workspace.filesystem.model import FileKind, FileStat
from wink_workspace.filesystem.paths import ROOT, WorkspacePath, parse_path
from wink_workspace.filesystem.protocol import Filesystem
from wink_workspace.session import Append, ChunkedMap, Replace, SliceKind

if TYPE_CHECKING:
    from wink_workspace.session import SessionProtocol, SliceOp, SliceView, WorkspaceRestored

    from .tool import Tool
    from .tool_context import ToolContext
    from .tool_result import ToolResult


_LISTED_REFUSALS = 5


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """Whether a call may run; the ``reason`` of a refusal says what the model should do first."""

    allowed: bool
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.allowed and not self.reason.strip():
            raise UsageError(
                "a refusal without a reason",
                hint="Give a reason that says what the model should do first.",
            )

    @staticmethod
    def allow() -> PolicyDecision:
        """The call may run."""
        return _ALLOWED

    @staticmethod
    def deny(reason: str) -> PolicyDecision:
        """The call may not run; *reason* is a sentence without a full stop, for the model."""
        return PolicyDecision(allowed=False, reason=reason)


_ALLOWED: Final = PolicyDecision(allowed=True)


class ToolPolicy(ABC):
    """A rule about calls, attached to a section: it sees the calls of all tools in and below it.

    A subclass sets ``name``, which refusals and records contain. The methods get the *tool* and its
    parsed *params*: an object of its type of parameters.
    """

    __slots__ = ()

    name: str

    @abstractmethod
    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Whether the call may run; must not change anything."""

    def on_result(  # noqa: B027 - most policies need no result
        self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext
    ) -> None:
        """Learn from the *result* of a successful call; events dispatched here belong to it."""

    def install(self, session: SessionProtocol) -> None:  # noqa: B027 - as above
        """Register the reducers that the policy needs; may be called again."""


# Dependencies between tools


@dataclass(frozen=True, slots=True)
class ToolCompleted:
    """Event: a tool that another depends on has succeeded."""

    tool: str


@dataclass(frozen=True, slots=True)
class CompletedTools:
    """STATE slice, one value: ``names`` of tools that have succeeded and that others depend on."""

    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SequentialDependencyPolicy(ToolPolicy):
    """Tools that may run only after others: ``dependencies={"deploy": {"test", "build"}}``.

    A tool is done after its first success in the session. Attach the policy to a section above all
    the tools, or to each section that has one of them: it does not see calls elsewhere, and a
    prompt with such tools elsewhere is refused.

    Attributes:
        dependencies: Tool to the tools that must have succeeded before it.

    Raises:
        PromptValidationError: If the dependencies have a cycle.
    """

    dependencies: Mapping[str, AbstractSet[str]]

    name = "sequential-dependency"

    def __post_init__(self) -> None:
        given = {tool: _as_names(needed) for tool, needed in self.dependencies.items()}
        object.__setattr__(self, "dependencies", Map(given))
        for tool in given:
            if tool in _all_needed(tool, given):
                raise PromptValidationError(
                    f"{tool!r} depends on itself, so it could never run",
                    field="dependencies",
                    hint="Remove one dependency of the cycle.",
                )

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Refuse a tool until all tools that it depends on have succeeded."""
        del params
        done = context.session[CompletedTools].latest() or CompletedTools()
        missing = sorted(self.dependencies.get(tool.name, frozenset()) - done.names)
        if not missing:
            return PolicyDecision.allow()
        return PolicyDecision.deny(f"call {' and '.join(missing)} successfully before {tool.name}")

    def on_result(
        self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext
    ) -> None:
        """Record the success of a tool that others depend on."""
        del params, result
        if any(tool.name in needed for needed in self.dependencies.values()):
            self.install(context.session)
            context.session.dispatch(ToolCompleted(tool.name))

    def install(self, session: SessionProtocol) -> None:
        """Register the slice of completed tools."""
        session[CompletedTools].register(ToolCompleted, _completed, kind=SliceKind.STATE)


def _as_names(needed: Iterable[str]) -> frozenset[str]:
    return frozenset((needed,) if isinstance(needed, str) else needed)


def _all_needed(tool: str, dependencies: Mapping[str, AbstractSet[str]]) -> set[str]:
    """All direct and indirect dependencies of *tool*."""
    found: set[str] = set()
    waiting = [tool]
    while waiting:
        new = dependencies.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return found


def _completed(view: SliceView[CompletedTools], event: ToolCompleted) -> SliceOp[CompletedTools]:
    done = view.latest() or CompletedTools()
    if event.tool in done.names:
        return Append()
    return Replace((CompletedTools(done.names | {event.tool}),))


# Knowledge of files


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """The files that a call uses, as parsed paths.

    Attributes:
        reads: Files whose content the result shows.
        writes: Files that are created or changed. If one is also the target of a move, the changed
            content is that of the moved file.
        deletes: Files or directories that are deleted.
        moves: Files or directories, each with its target. If a move replaces a file, the target is
            also in ``writes``.
        follows_links: Whether a write through a link changes the link's target. If not, creating a
            link gives no knowledge of that file's content.
    """

    reads: tuple[WorkspacePath, ...] = ()
    writes: tuple[WorkspacePath, ...] = ()
    deletes: tuple[WorkspacePath, ...] = ()
    moves: tuple[tuple[WorkspacePath, WorkspacePath], ...] = ()
    follows_links: bool = True

    @property
    def is_nothing(self) -> bool:
        """Whether the call uses no files."""
        return not (self.reads or self.writes or self.deletes or self.moves)


_NO_FILES: Final = FileUse()


@runtime_checkable
class UsesFiles(Protocol):
    """Parameters that know which files their call uses."""

    def file_use(self) -> FileUse:
        """The files; raises the filesystem's errors for text that is not a valid path."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesUsed:
    """Event: what a successful call did to files, and the file contents that are known after it.

    Paths are strings without links. ``deletes`` has the deleted paths, ``moves`` the old and the
    new path of each moved file, and ``seen`` pairs a path and a fingerprint.
    """

    deletes: tuple[str, ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    seen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """STATE slice, one value: ``fingerprints`` by path, as the model last saw each file."""

    fingerprints: Mapping[str, str] = field(default_factory=ChunkedMap[str])

    def __post_init__(self) -> None:
        if not isinstance(self.fingerprints, ChunkedMap):
            object.__setattr__(self, "fingerprints", ChunkedMap(self.fingerprints))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBeforeWritePolicy(ToolPolicy):
    """An existing file may be changed only after the model has seen its present content.

    - *Writing* an existing file requires that its present content is known: the agent read or
      wrote it, and it has not changed since. A new file may be written.
    - *Deleting* requires no read, as it does not use the content and some files cannot be read.
      But a file that was read and has changed since must be read again, because the decision to
      delete it used other content. The same holds for every known file in a deleted directory.
    - *Moving* requires nothing: the content stays. The fingerprint moves with the file.

    The params say which files a call uses (``UsesFiles``); for tools whose params do not, use the
    two mappings. Other tools are allowed.

    Attributes:
        read_tools: Tool to the parameter with the path, or paths, that it reads.
        write_tools: Tool to the parameter with the path, or paths, that it writes.
    """

    read_tools: Mapping[str, str] = field(default_factory=dict[str, str])
    write_tools: Mapping[str, str] = field(default_factory=dict[str, str])

    name = "read-before-write"

    def __post_init__(self) -> None:
        object.__setattr__(self, "read_tools", Map(self.read_tools))
        object.__setattr__(self, "write_tools", Map(self.write_tools))

    def check(
        self, tool: Tool[Any, Any], params: object, *, context: ToolContext
    ) -> PolicyDecision:
        """Refuse a call that would change or delete content that the model has not seen."""
        try:
            use = self._use_of(tool, params)
            if use.is_nothing:
                return PolicyDecision.allow()
            files = context.filesystem
            if files is None:
                return PolicyDecision.deny(
                    "no filesystem is bound to the prompt, so files cannot be checked"
                )
            if not use.writes and not use.deletes:
                return PolicyDecision.allow()
            known = _known(context.session[KnownFiles].view())
            refusals = list(_refusals(use, _PhysicalPaths(files), known))
        except WinkError as error:
            return PolicyDecision.deny(str(error).rstrip("."))
        return PolicyDecision.deny(_listed(refusals)) if refusals else PolicyDecision.allow()

    def on_result(
        self, tool: Tool[Any, Any], params: object, result: ToolResult[Any], *, context: ToolContext
    ) -> None:
        """Record files that were read or written; forget deleted ones and rename moved ones."""
        del result
        use, files = self._use_of(tool, params), context.filesystem
        if use.is_nothing or files is None:
            return
        used = _PhysicalPaths(files).after(use)
        if used.deletes or used.moves or not _all_known(used.seen, context.session):
            if context.session not in _prepared:
                self.install(context.session)
            context.session.dispatch(used)

    def install(self, session: SessionProtocol) -> None:
        """Register the slice of known files; an undo or restore removes the files it changes."""
        from wink_workspace.session import WorkspaceRestored  # a policy is made without a session

        known = session[KnownFiles]
        known.register(FilesUsed, _used, kind=SliceKind.STATE)
        known.register(WorkspaceRestored, _restored, kind=SliceKind.STATE)
        _prepared.add(session)

    def _use_of(self, tool: Tool[Any, Any], params: object) -> FileUse:
        # isinstance(params, UsesFiles) would cost more than the rest of the check of other tools
        file_use: Callable[[], FileUse] | None = getattr(params, "file_use", None)
        declared: FileUse = file_use() if callable(file_use) else _NO_FILES
        if tool.name not in self.read_tools and tool.name not in self.write_tools:
            return declared
        return replace(
            declared,
            reads=(*declared.reads, *_paths_in(params, self.read_tools.get(tool.name))),
            writes=(*declared.writes, *_paths_in(params, self.write_tools.get(tool.name))),
        )


def _paths_in(params: object, name: str | None) -> tuple[WorkspacePath, ...]:
    """The path or paths in the parameter *name*; none for ``None``."""
    if name is None:
        return ()
    try:
        value = getattr(params, name)
    except AttributeError:
        raise UsageError(
            f"the params have no field {name!r} for a path",
            hint="Correct the policy's read_tools or write_tools.",
        ) from None
    if value is None:
        return ()
    if isinstance(value, str | WorkspacePath):
        return (parse_path(value),)
    return tuple(parse_path(path) for path in cast("Sequence[str | WorkspacePath]", value))


def _refusals(use: FileUse, physical: _PhysicalPaths, known: ChunkedMap[str]) -> Iterator[str]:
    moved_from = {target: source for source, target in use.moves} if use.moves else None
    for path in use.writes:
        seen = physical.content(moved_from.get(path, path) if moved_from else path)
        if seen is None:
            continue
        key, fingerprint = seen
        if key not in known:
            yield f"{path} was not read yet; read it first"
        elif known[key] != fingerprint:
            yield f"{path} changed since it was read; read it again"
    for path in use.deletes:
        deleted = physical.of(path)
        for key in sorted(key for key in known if _is_below(key, deleted)):
            seen = physical.content(parse_path(key))
            if seen is not None and seen != (key, known[key]):
                yield f"{key} changed since it was read; read it again"


def _listed(refusals: Sequence[str]) -> str:
    shown = ". ".join(refusals[:_LISTED_REFUSALS])
    n_more = len(refusals) - _LISTED_REFUSALS
    return shown if n_more <= 0 else f"{shown}. The same goes for {counted(n_more, 'more file')}"


class _PhysicalPaths:
    """Resolves links in paths, to the keys of ``KnownFiles``; made for one check."""

    def __init__(self, files: Filesystem) -> None:
        self._files = files
        self._stats: dict[WorkspacePath, FileStat | None] = {}

    def content(self, path: WorkspacePath, *, follow: bool = True) -> tuple[str, str] | None:
        """The physical path of the file at *path* and its fingerprint, or ``None``.

        ``None`` for a missing file and for a link that is broken or leads outside. The handler
        reports those.
        """
        try:
            target, fingerprint = self._files.identify(path, follow=follow)
        except FilesystemError:
            return None
        return str(target), fingerprint

    def of(self, path: WorkspacePath) -> str:
        """The physical path of *path* itself, which may be a link: moves and deletes act on it."""
        try:
            return str(physical_path(self._stat, path, follow=False))
        except FilesystemError:
            return str(path)

    def after(self, use: FileUse) -> FilesUsed:
        """The event to dispatch after a call that used files."""
        seen: list[tuple[str, str]] = []
        for paths, follow in ((use.reads, True), (use.writes, use.follows_links)):
            for path in paths:
                content = self.content(path, follow=follow)
                if content is not None:
                    seen.append(content)
        moves: list[tuple[str, str]] = []
        for source, target in use.moves:
            moves.append((self.of(source), self.of(target)))
        return FilesUsed(
            deletes=tuple(map(self.of, use.deletes)), moves=tuple(moves), seen=tuple(seen)
        )

    def _stat(self, path: WorkspacePath) -> FileStat | None:
        """The stat of *path*, cached; ``None`` if missing or its parent is not a directory."""
        if path not in self._stats:
            self._stats[path] = self._fresh_stat(path)
        return self._stats[path]

    def _fresh_stat(self, path: WorkspacePath) -> FileStat | None:
        if path == ROOT:
            return FileStat(ROOT, FileKind.DIRECTORY)
        parent = self._stat(path.parent)
        if parent is None or parent.kind is not FileKind.DIRECTORY:
            return None
        try:
            return self._files.stat(path, follow=False)
        except FilesystemError:
            return None


_prepared: WeakSet[SessionProtocol] = WeakSet()
"""The sessions in which the slice of known files is registered; this is permanent."""


_NONE_KNOWN: Final = ChunkedMap[str]()


def _known(view: SliceView[KnownFiles]) -> ChunkedMap[str]:
    latest = view.latest()
    if latest is None:
        return _NONE_KNOWN
    known = latest.fingerprints
    return known if isinstance(known, ChunkedMap) else ChunkedMap(known)


def _all_known(seen: Sequence[tuple[str, str]], session: SessionProtocol) -> bool:
    """Whether all fingerprints in *seen* are stored already, as when a file is read again."""
    known = _known(session[KnownFiles].view())
    for path, fingerprint in seen:  # noqa: SIM110 - a generator is slower, and this runs in each call
        if known.get(path) != fingerprint:
            return False
    return True


def _used(view: SliceView[KnownFiles], event: FilesUsed) -> SliceOp[KnownFiles]:
    before = _known(view)
    if not event.deletes and not event.moves:
        return _replaced(before, before, dict(event.seen))
    moved = {
        destination + key[len(source) :]: fingerprint
        for source, destination in event.moves
        for key, fingerprint in before.items()
        if _is_below(key, source)
    }
    replaced = (path for move in event.moves for path in move)
    rest = _without(before, (*event.deletes, *replaced))
    return _replaced(before, rest, {**moved, **dict(event.seen)})


def _restored(view: SliceView[KnownFiles], event: WorkspaceRestored) -> SliceOp[KnownFiles]:
    before = _known(view)
    return _replaced(before, _without(before, event.paths), {})


def _replaced(
    before: ChunkedMap[str], rest: ChunkedMap[str], news: Mapping[str, str]
) -> SliceOp[KnownFiles]:
    """*rest* with *news*; no change of the slice if nothing differs."""
    after = rest.updated(news)
    return Append() if after is before else Replace((KnownFiles(after),))


def _without(known: ChunkedMap[str], removed: Sequence[str]) -> ChunkedMap[str]:
    """*known* without each path that is in *removed* or below one; the same object if none is."""
    candidates = known if removed else ()
    dropped = [path for path in candidates if any(_is_below(path, each) for each in removed)]
    return known.without(dropped)


def _is_below(key: str, directory: str) -> bool:
    return key == directory or directory == str(ROOT) or key.startswith(f"{directory}/")
