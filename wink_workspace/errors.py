"""Every error that this package raises deliberately, in one tree.

Rule 1: each class has a stable ``code``, for programs. Each error has a ``hint``: a sentence or
two, for a model or a user, that say what to do next.
Rule 2: an error that Python already has a name for is also that built-in, so that
``except FileNotFoundError`` works.

::

    WinkError
     +-- UsageError (ValueError)            the caller passed something wrong
     |    +-- ForkedProcessError            a forked child used an object of its parent
     |    +-- InvalidPathError              a path that cannot be a workspace path
     |    |    +-- PathEscapeError          ... because it leads outside
     |    +-- ParseError                    data that does not fit its type; lists every problem
     |    +-- SchemaError                   a type that has no JSON Schema
     |    +-- ProgramError                  a program that a sandbox cannot run
     |    +-- MissingExtraError (ImportError)  an extra of this package is not installed
     +-- DeadlineExceededError (TimeoutError)
     +-- BudgetExceededError
     +-- CallCancelledError                 the caller cancelled the call
     +-- AttemptStoppedError                the run of an attempt was stopped
     +-- ScorerError                        the command of a scorer gave no score
     +-- ClusterError                       a cluster cannot be reached, or cannot run attempts
     +-- CallRefusedError                   a policy refused a program's own call
     +-- ResourceError
     |    +-- UnboundResourceError (LookupError)
     |    +-- CircularDependencyError
     |    +-- DuplicateBindingError
     |    +-- ProviderError                 a provider function raised
     |    +-- ResourcesClosedError
     +-- SessionError
     |    +-- ReducerError                  a reducer raised
     |    +-- SnapshotError                 a snapshot that is unknown or of another object
     |         +-- SnapshotVersionError     ... or of another schema version
     +-- FilesystemError
     |    +-- FileMissingError (FileNotFoundError)
     |    +-- PathExistsError (FileExistsError)
     |    +-- FileExpectedError (IsADirectoryError)
     |    +-- DirectoryExpectedError (NotADirectoryError)
     |    +-- DirectoryNotEmptyError (OSError)
     |    +-- ReadOnlyError (PermissionError)
     |    |    +-- GitRepositoryError       ... because git would find a repository there
     |    +-- LinkError (OSError)           a link that loops or leads outside
     |    +-- LimitExceededError
     |    +-- BinaryFileError (ValueError)
     |    +-- EditError                     the text to replace is missing or not unique
     |    +-- PatchError                    a patch that does not parse or does not apply
     |    +-- PatternError (ValueError)     an invalid glob or regular expression
     |    +-- SearchTimeoutError (TimeoutError)
     |    +-- MountError
     |    |    +-- SourceTooLargeError      ... because it exceeds a limit
     +-- LedgerError                        history that cannot be read or written
     |    +-- LedgerBusyError               another process is writing it
     |    +-- LedgerMovedError              it grew since it was last read
     |    +-- LedgerDamagedError            an object is missing or damaged
     |    +-- EntryMissingError             no such entry, or it is no longer kept
     |    +-- BundleError                   a bundle that is damaged, newer, or not allowed
     +-- SandboxError                       untrusted code cannot be run, or its sandbox failed
     |    +-- SandboxUnavailableError       the engine, an image or a kernel feature is missing
     |    +-- IsolationError                an isolation layer is missing: nothing was run
     |    +-- ServiceError                  a service ended, or was not ready in time
     |    +-- AgentError                    an agent program failed, or a limit ended it
     |    +-- SandboxBrokenError            the sandbox broke the protocol or died; it was ended
     +-- McpServerError                     a foreign MCP server failed, or was refused
     +-- ConflictError                      later edits are in the way; nothing was changed
     |    +-- UncertainChangesError         ... or may be what is to be undone
     |    +-- FileChangedError              ... in a file, since it was last read or written
     +-- PromptError
     |    +-- PromptValidationError
     |    +-- PromptRenderError
     |    +-- PromptEvaluationError         the provider or a limit ended a run
     |    +-- OverridesError                the store of overrides cannot be read
     +-- ToolValidationError                raised by handlers: the call's arguments are wrong
     +-- VisibilityExpansionRequired        the model asked to open sections; re-render
     +-- ScriptError                        a recorded script that cannot be replayed
     +-- RollbackError                      a restore failed; the workspace is poisoned
     +-- PoisonedError                      ... and refuses calls until it is recovered
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "AgentError",
    "AttemptStoppedError",
    "BinaryFileError",
    "BudgetExceededError",
    "BundleError",
    "CallCancelledError",
    "CallRefusedError",
    "CircularDependencyError",
    "ClusterError",
    "Conflict",
    "ConflictError",
    "ConflictHunk",
    "DeadlineExceededError",
    "DirectoryExpectedError",
    "DirectoryNotEmptyError",
    "DuplicateBindingError",
    "EditError",
    "EntryMissingError",
    "FileChangedError",
    "FileExpectedError",
    "FileMissingError",
    "FilesystemError",
    "ForkedProcessError",
    "GitRepositoryError",
    "InvalidPathError",
    "IsolationError",
    "LedgerBusyError",
    "LedgerDamagedError",
    "LedgerError",
    "LedgerMovedError",
    "LimitExceededError",
    "LinkError",
    "McpServerError",
    "MissingExtraError",
    "MountError",
    "OverridesError",
    "ParseError",
    "PatchError",
    "PathEscapeError",
    "PathExistsError",
    "PatternError",
    "PoisonedError",
    "Problem",
    "ProgramError",
    "PromptError",
    "PromptEvaluationError",
    "PromptRenderError",
    "PromptValidationError",
    "ProviderError",
    "ReadOnlyError",
    "ReducerError",
    "ResourceError",
    "ResourcesClosedError",
    "RollbackError",
    "SandboxBrokenError",
    "SandboxError",
    "SandboxUnavailableError",
    "SchemaError",
    "ScorerError",
    "ScriptError",
    "SearchTimeoutError",
    "ServiceError",
    "SessionError",
    "SnapshotError",
    "SnapshotVersionError",
    "SourceTooLargeError",
    "ToolValidationError",
    "UnboundResourceError",
    "UncertainChangesError",
    "UsageError",
    "VisibilityExpansionRequired",
    "WinkError",
]


_MAX_LISTED_PROBLEMS = 50


class WinkError(Exception):
    """The root of the tree.

    Args:
        message: What happened and where, without a final full stop.
        hint: What to do next; the class's ``default_hint`` when omitted.
    """

    code: ClassVar[str] = "error"
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class UsageError(WinkError, ValueError):
    """The caller passed something that cannot work."""

    code = "usage"


class ForkedProcessError(UsageError):
    """A forked child used an object of its parent."""

    code = "forked-process"
    default_hint = (
        "Open it again in the child once the parent has closed it, or let the parent do this:"
        " a forked child cannot use what its parent has open."
    )


class InvalidPathError(UsageError):
    """A text that is not a workspace path."""

    code = "path-invalid"
    default_hint = "Use a POSIX path relative to the workspace root, such as 'src/main.py'."


class PathEscapeError(InvalidPathError):
    """A path that would leave the workspace root."""

    code = "path-escape"
    default_hint = "Use a path relative to the workspace root, without '..' or a leading '/'."

    def __init__(self, given: str, *, hint: str | None = None) -> None:
        super().__init__(f"{given!r} leads outside the workspace", hint=hint)
        self.given = given


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with parsed data.

    ``path`` is dotted with indexes (``steps[2].title``) and empty for the whole value;
    ``message`` is a clause such as ``must be an integer, not the string '7'``.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ParseError(UsageError):
    """Data that does not fit its type; ``problems`` holds all of them, not only the first.

    It holds at most a thousand, and then the number of the others. The message lists the first
    fifty, so that it stays readable.
    """

    code = "parse"
    default_hint = "Correct every problem listed and try again."

    def __init__(self, what: str, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        listed = "; ".join(str(problem) for problem in problems[:_MAX_LISTED_PROBLEMS])
        n_more = len(problems) - _MAX_LISTED_PROBLEMS
        more = f"; and {n_more} more" if n_more > 0 else ""
        super().__init__(f"{what}: {listed}{more}", hint=hint)
        self.problems = tuple(problems)


class SchemaError(UsageError):
    """A type from which no JSON Schema can be made."""

    code = "schema"


class ProgramError(UsageError):
    """A program that a sandbox cannot run; ``is_missing`` if no program has that name.

    *fix* says what to do about one that is missing, where that is known.
    """

    code = "program"

    def __init__(self, given: str, reason: str, *, is_missing: bool, fix: str = "") -> None:
        super().__init__(
            f"{given!r} cannot be run: {reason}",
            hint=fix
            or "Name a program of the sandbox. A program is also not found if its first line names"
            " an interpreter that the sandbox lacks."
            if is_missing
            else "Name an executable program: `chmod +x` it, or run it with its"
            " interpreter, as in `sh FILE`.",
        )
        self.is_missing = is_missing


class MissingExtraError(UsageError, ImportError):
    """A feature needs a library that an extra of this package installs."""

    code = "extra-missing"

    @classmethod
    def of(cls, feature: str, extra: str, library: str | None) -> MissingExtraError:
        """The error for *feature*, such as "the MCP server", which lacks *library*."""
        return cls(
            f"{feature} needs a library that is missing: {library}",
            hint=f"Install it: pip install 'wink-workspace[{extra}]'.",
        )


class DeadlineExceededError(WinkError, TimeoutError):
    """The time allowed for the work is over."""

    code = "deadline"
    default_hint = "Allow more time, or do less in one run."


class BudgetExceededError(WinkError):
    """More tokens or money were used than the budget allows."""

    code = "budget"
    default_hint = "Raise the budget, or do less in one run."


class AttemptStoppedError(WinkError):
    """The run that an attempt belongs to was stopped, so no further call begins."""

    code = "attempt-stopped"
    default_hint = "Let it end the attempt; what is committed is kept on its branch."


class ScorerError(WinkError):
    """The command of a scorer gave no score; ``kind`` says how, such as ``no tests``."""

    code = "scorer"
    default_hint = "Run the command in a sandbox of the workspace to see why."

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class ClusterError(WinkError):
    """A cluster cannot be reached, or no node of it can run the attempts; a run can be resumed."""

    code = "cluster"


class CallCancelledError(WinkError):
    """The caller cancelled the call."""

    code = "cancelled"
    default_hint = "Nothing was changed. Call again if the result is needed after all."


class CallRefusedError(WinkError):
    """A policy refused a program's own call; nothing was changed."""

    code = "refused"
    default_hint = "Do first what the reason asks for, then call again."

    def __init__(self, policy: str, reason: str) -> None:
        super().__init__(f"refused by policy {policy!r}: {reason.rstrip('.')}")
        self.policy = policy
        self.reason = reason


class ResourceError(WinkError):
    """A resource could not be provided."""

    code = "resource"


class UnboundResourceError(ResourceError, LookupError):
    """No binding exists for a requested type."""

    code = "resource-unbound"


class CircularDependencyError(ResourceError):
    """Resources that need one another in a cycle."""

    code = "resource-cycle"


class DuplicateBindingError(ResourceError):
    """Two bindings for one type, and no rule that chooses between them."""

    code = "resource-duplicate"


class ProviderError(ResourceError):
    """The function that builds a resource raised; its exception is the ``__cause__``."""

    code = "resource-provider"


class ResourcesClosedError(ResourceError):
    """A resource was asked for outside the ``with`` block that owns it."""

    code = "resource-closed"
    default_hint = "Ask inside `with prompt.resources:`."


class SessionError(WinkError):
    """The session cannot do what was asked."""

    code = "session"


class ReducerError(SessionError):
    """A reducer raised; its exception is the ``__cause__`` and no slice has changed."""

    code = "reducer"
    default_hint = "Correct the reducer; the event was not applied."


class SnapshotError(SessionError):
    """A snapshot that this object did not make; nothing was changed."""

    code = "snapshot"
    default_hint = "Restore only snapshots taken from the same object."


class SnapshotVersionError(SnapshotError):
    """A stored snapshot of another schema version; nothing was changed."""

    code = "snapshot-version"
    default_hint = "Open it with the version of the package that wrote it."


class FilesystemError(WinkError):
    """A file operation that cannot be done."""

    code = "filesystem"


class FileMissingError(FilesystemError, FileNotFoundError):
    """The path does not exist."""

    code = "file-missing"
    default_hint = "List the directory, or search with a glob, to find the right path."


class PathExistsError(FilesystemError, FileExistsError):
    """The path exists already."""

    code = "path-exists"
    default_hint = "Choose another path, or delete or overwrite the existing one on purpose."


class FileExpectedError(FilesystemError, IsADirectoryError):
    """A directory where a file is needed."""

    code = "file-expected"
    default_hint = "Name a file inside the directory."


class DirectoryExpectedError(FilesystemError, NotADirectoryError):
    """A file where a directory is needed."""

    code = "directory-expected"
    default_hint = "Name a directory."


class DirectoryNotEmptyError(FilesystemError, OSError):
    """A directory that still has entries."""

    code = "directory-not-empty"
    default_hint = "Delete recursively if everything below it should go."


class ReadOnlyError(FilesystemError, PermissionError):
    """A change at a path that may only be read."""

    code = "read-only"
    default_hint = "Write somewhere else; this part of the workspace can only be read."


class GitRepositoryError(ReadOnlyError):
    """A change inside a git repository, or one that would create a repository for git."""

    code = "git-repository"
    default_hint = "Change the files beside it; only the user changes the repository."


class LinkError(FilesystemError, OSError):
    """A symbolic link that loops, or that leads outside the workspace."""

    code = "link"
    default_hint = "Use the path of the file itself; links are followed only inside the workspace."


class LimitExceededError(FilesystemError):
    """A value above a configured limit; the message names both."""

    code = "limit"


class BinaryFileError(FilesystemError, ValueError):
    """A text operation on a file that is not text."""

    code = "binary-file"
    default_hint = "Read it as bytes, or do not read it."


class EditError(FilesystemError):
    """The text to replace is missing or not unique."""

    code = "edit"


class PatchError(FilesystemError):
    """A patch that does not parse or does not apply; no file was changed."""

    code = "patch"
    default_hint = "Read the file again and make the patch from its present content."


class PatternError(FilesystemError, ValueError):
    """A glob or regular expression that does not parse."""

    code = "pattern"


class SearchTimeoutError(FilesystemError, TimeoutError):
    """A search that exceeded its time limit."""

    code = "search-timeout"
    default_hint = "Use a simpler expression or search fewer files."


class MountError(FilesystemError):
    """Something that cannot be mounted into the workspace."""

    code = "mount"


class SourceTooLargeError(MountError):
    """A directory that is larger than a workspace may be."""

    code = "source-too-large"
    default_hint = (
        "Leave paths out with --exclude, keep them out of the history with --derived, or raise"
        " the limit with --max-size or --max-files."
    )


class LedgerError(WinkError):
    """The history of a workspace cannot be read or written."""

    code = "ledger"


class LedgerBusyError(LedgerError):
    """Another process is writing to the history; the message names it."""

    code = "ledger-busy"
    default_hint = (
        "Wait until that process has finished, or fork the workspace and work on the fork."
    )


class LedgerMovedError(LedgerError):
    """The history grew since it was last read; nothing was written."""

    code = "ledger-moved"
    default_hint = "Open the workspace again and repeat the operation."


class LedgerDamagedError(LedgerError):
    """An object of the history is missing or damaged."""

    code = "ledger-damaged"
    default_hint = (
        'Run "wink-workspace repair ID" with the id of the workspace: it restores what can be read '
        "elsewhere, and names the entries and paths that are permanently lost."
    )


class EntryMissingError(LedgerError):
    """No entry of the history has this number or id, or several ids begin with it."""

    code = "entry-missing"
    default_hint = "List the history to find the entry's number."


class BundleError(LedgerError):
    """A bundle cannot be read: it is damaged, newer, or exceeds a limit; nothing was imported."""

    code = "bundle"
    default_hint = "Export it again, and copy the whole file."


class SandboxError(WinkError):
    """Untrusted code cannot be run, or its sandbox failed."""

    code = "sandbox"


class SandboxUnavailableError(SandboxError):
    """The engine, an image, a library or a feature of the kernel is missing."""

    code = "sandbox-unavailable"
    default_hint = "Run `wink-workspace doctor` to see what is missing and how to get it."


class IsolationError(SandboxError):
    """An isolation layer of the sandbox is missing; nothing was run."""

    code = "sandbox-isolation"
    default_hint = "Run `wink-workspace doctor` to see which isolation layers are missing."


class ServiceError(SandboxError):
    """A service ended, or was not ready in time; it was stopped."""

    code = "service"


class AgentError(SandboxError):
    """An agent program failed, or a limit ended it; its edits are kept."""

    code = "agent"


class SandboxBrokenError(SandboxError):
    """A sandbox broke its protocol, stopped answering or died; it was ended."""

    code = "sandbox-broken"
    default_hint = "Call again: a new sandbox is started. The effects of the call were undone."


@dataclass(frozen=True, slots=True)
class ConflictHunk:
    """One place of a text file that both sides changed.

    Each side has its text there, cut if it is long, and the number of its first line, counted
    from 1. A side without lines there has an empty text.
    """

    base_line: int
    base: str
    ours_line: int
    ours: str
    theirs_line: int
    theirs: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that cannot be merged.

    Attributes:
        path: The path.
        reason: A clause such as ``was deleted since``.
        hunks: Where a text file was changed on both sides; empty for every other conflict.
        n_more_hunks: The number of hunks that ``hunks`` does not list.
    """

    path: str
    reason: str
    hunks: tuple[ConflictHunk, ...] = ()
    n_more_hunks: int = 0

    def __str__(self) -> str:
        return f"{self.path} {self.reason}"

    def shown(self, ours: str, theirs: str) -> str:
        """The conflict with its hunks, between git's markers; *ours* and *theirs* are names."""
        lines = [str(self)]
        for hunk in self.hunks:
            lines += [
                f"@@ {ours} line {hunk.ours_line}, {theirs} line {hunk.theirs_line} @@",
                f"<<<<<<< {ours}",
                *hunk.ours.splitlines(),
                "||||||| before",
                *hunk.base.splitlines(),
                "=======",
                *hunk.theirs.splitlines(),
                f">>>>>>> {theirs}",
            ]
        if self.n_more_hunks:
            lines.append(f"and {self.n_more_hunks} more in {self.path}")
        return "\n".join(lines)


class McpServerError(WinkError):
    """A foreign MCP server does not start or answer, or what it sent is refused."""

    code = "mcp-server"
    default_hint = "Check the command or the URL of the server, or continue without it."


class ConflictError(WinkError):
    """Another program or a later edit changed the files that were to be written.

    The operation wrote nothing, or undid what it had written.

    Attributes:
        conflicts: One ``Conflict`` for each path, in path order; empty if no path is known.
        sides: What ``details`` calls the two versions: first ours, then theirs.
    """

    code = "conflict"
    default_hint = "Make both versions of each named path agree, then try again."

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        conflicts: Sequence[Conflict] = (),
        sides: tuple[str, str] = ("ours", "theirs"),
    ) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = tuple(conflicts)
        self.sides = sides

    @property
    def details(self) -> str:
        """The conflicts hunk by hunk, as text of several lines; empty if none is known."""
        return "\n".join(conflict.shown(*self.sides) for conflict in self.conflicts)


class UncertainChangesError(ConflictError):
    """What would be undone may not be of the call: it changed while that ran."""

    code = "uncertain-changes"


class FileChangedError(ConflictError, FilesystemError):
    """Another program changed a file since it was last read; it was not touched."""

    code = "file-changed"
    default_hint = "Call again: the external edit is committed first. Then read the file again."


class PromptError(WinkError):
    """A prompt cannot be used."""

    code = "prompt"


class PromptValidationError(PromptError):
    """A prompt, section or tool that is built wrongly.

    Args:
        message: What is wrong.
        section_path: Titles or keys from the root, empty when no section is known yet.
        tool: The tool's name as given.
        field: The wrong field or argument.
    """

    code = "prompt-validation"

    def __init__(
        self,
        message: str,
        *,
        section_path: Sequence[str] = (),
        tool: str | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        location = [
            *(["section " + " > ".join(section_path)] if section_path else []),
            *([f"tool {tool!r}"] if tool is not None else []),
            *([f"field {field!r}"] if field is not None else []),
        ]
        super().__init__(f"{', '.join(location)}: {message}" if location else message, hint=hint)
        self.reason = message
        self.section_path = tuple(section_path)
        self.tool = tool
        self.field = field


class PromptRenderError(PromptError):
    """A prompt that cannot be rendered with its parameters."""

    code = "prompt-render"


class PromptEvaluationError(PromptError):
    """A run that had to end.

    ``phase`` is ``"request"`` (asking the provider), ``"response"`` (reading its answer),
    ``"tool"`` (deadline passed before a call), ``"turns"`` (the limit of turns), ``"budget"``, or
    ``"repetition"`` (the model repeated itself).
    """

    code = "prompt-evaluation"

    def __init__(
        self, message: str, *, phase: str, prompt_name: str = "", hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.phase = phase
        self.prompt_name = prompt_name


class OverridesError(PromptError):
    """A store of prompt overrides that cannot be read or written."""

    code = "overrides"


class ToolValidationError(WinkError):
    """Raised by a handler whose arguments parse but make no sense; the model gets the message."""

    code = "tool-validation"


class VisibilityExpansionRequired(WinkError):  # noqa: N818 - a request, not a fault
    """The model asked to open summarised sections.

    Args:
        section_keys: The sections to show in full, as dotted paths of keys.
        reason: Why, in the model's words.
        problems: Section key to sentence, for requested keys that cannot be opened.
    """

    code = "visibility-expansion"

    def __init__(
        self,
        section_keys: Sequence[str],
        *,
        reason: str = "",
        problems: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            f"sections to open: {', '.join(section_keys)}",
            hint="Render the prompt again with these sections in full.",
        )
        self.section_keys = tuple(section_keys)
        self.reason = reason
        self.problems = dict(problems or {})


class ScriptError(WinkError):
    """A recorded script that is malformed, or that ended before the run did."""

    code = "script"


class RollbackError(WinkError):
    """Some parts (files, session, resources) could not be restored; all others were.

    ``failures`` holds the exceptions in the order in which they happened.
    """

    code = "rollback"
    default_hint = (
        "Fix the cause. If calls are refused then, close the workspace and open it again, or run"
        " `wink-workspace recover`."
    )

    def __init__(
        self, message: str, failures: Sequence[BaseException], *, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.failures = tuple(failures)


class PoisonedError(WinkError):
    """A rollback failed earlier, so the state is unknown and no call may run.

    Opening the workspace again retries the rollback. For a session without a workspace,
    ``transactions_of(session).recover()`` does.
    """

    code = "poisoned"
    default_hint = (
        "Fix what made the rollback fail. Then close the workspace and open it again, or run"
        " `wink-workspace recover`."
    )
