"""Which paths of a copy the history does not record: excluded and derived ones.

*Excluded* paths are not copied from the source. *Derived* paths (``node_modules``, ``.venv``,
caches, ``.env`` and keys) are copied, so that programs run, but not recorded.

Rule 1: the rules are fixed when the workspace is created. They are in ``about.json``, which no
sandbox can reach; nothing that a call writes changes them.
Rule 2: a path below an excluded or derived path is one, too. Upper and lower case differ.
Rule 3: a path that git tracks in the source is content: it is recorded, whatever its name is.
Rule 4: the tree and the tracker that the history uses do not see these paths. The tools and the
sandbox do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from wink_workspace.errors import UsageError
from wink_workspace.filesystem.ignoring import path_patterns
from wink_workspace.filesystem.paths import WorkspacePath

if TYPE_CHECKING:
    from wink_workspace.filesystem.disk.descriptors import Parts
    from wink_workspace.filesystem.disk.tree import HiddenPaths


_MOST_CACHED: Final = 10_000

DerivedRollback = Literal["drop", "restore"]
"""What a rollback does with derived paths that the call changed."""

IGNORED_NAMES: Final = ("build", "dist", "env", "htmlcov", "out", "target", "vendor", "venv")
"""Derived by name where the ignore rules of the source ignore them."""

GIT_RULE: Final = "/.git"
"""The rule that hides ``.git`` from the history of a workspace with a copy of its own history."""

OUTPUT_FOLDER: Final = WorkspacePath((".wink-output",))
"""The directory for command output that is too long for a result; recorded, but never applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportConfig:
    """What a new workspace takes from its source; later openings do not use it.

    Patterns have the syntax of a line of a ``.gitignore``: ``*.mp4`` or ``data`` at any depth,
    ``/data`` or ``docs/_build`` relative to the source, ``out/`` for directories only.

    In place nothing is copied or proposed. ``exclude`` hides paths, and with ``derived``, these and
    what git ignores are kept apart from the history: see ``Workspace.restore_discarded``.

    Attributes:
        exclude: Paths that are not copied.
        derived: Paths that are copied and not recorded.
        propose_derived: Also treat as derived what the names, a ``CACHEDIR.TAG`` and the ignore
            rules of the source suggest: ``node_modules``, ``.venv``, caches, ``.env``, keys.
        on_rollback: ``"drop"`` deletes what a failed call changed in derived paths. ``"restore"``
            restores them from the last checkpoint; it needs their disk space twice.
        most_bytes: A source with more recorded bytes is refused; holes of sparse files count.
        most_files: A source with more recorded files is refused.
        git_depth: How many generations of commits, beginning with HEAD, git in a sandbox sees. 0
            for none: then a sandbox has no repository. See ``docs/sandboxes.md``.
        git_links: By source: directories outside of it that its ``.git`` may lead to, as that of a
            linked working tree does. Without an entry such a repository is not used.
    """

    exclude: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    propose_derived: bool = True
    on_rollback: DerivedRollback = "drop"
    most_bytes: int = 10 * 1_073_741_824
    most_files: int = 500_000
    git_depth: int = 50
    git_links: Mapping[Path, tuple[Path, ...]] = field(
        default_factory=dict[Path, tuple[Path, ...]], hash=False
    )

    def __post_init__(self) -> None:
        for option, patterns in (("exclude", self.exclude), ("derived", self.derived)):
            for pattern in patterns:
                checked_pattern(pattern, option)
        if self.git_depth < 0:
            raise UsageError(
                f"git_depth is {self.git_depth}", hint="Use a number of commits, or 0 for none."
            )

    def trusted_by(self, source: Path) -> tuple[Path, ...]:
        """The directories outside of *source* that its ``.git`` may lead to."""
        return self.git_links.get(source.resolve(), ())


def checked_pattern(pattern: str, option: str) -> None:
    """Raise ``UsageError`` for a pattern that can match nothing, or everything."""
    try:
        path_patterns((pattern,))
        problem = "would match everything" if pattern.strip("/*") == "" else ""
    except ValueError:
        problem = "is not a pattern"
    if problem:
        raise UsageError(
            f"{option}: {pattern!r} {problem}",
            hint="Give a name such as node_modules, a pattern such as *.mp4, or a path such as"
            " /data. Exceptions with ! are not supported.",
        )


def anchored(parts: Parts) -> str:
    """The pattern that matches exactly this path."""
    return "/" + "".join(f"\\{c}" if c in "*?[\\ " else c for c in "/".join(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRules:
    """The rules of one workspace, as its note stores them.

    Attributes:
        excluded: Patterns of excluded paths.
        derived: Patterns of derived paths.
        content: Patterns of paths that are recorded although they match a derived one.
        on_rollback: See ``ImportConfig``.
    """

    excluded: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    on_rollback: DerivedRollback = "drop"

    @classmethod
    def of_json(cls, fields: dict[str, object]) -> PathRules:
        """Parse the form in the note; ``ValueError`` for anything else."""
        if fields["on_rollback"] not in ("drop", "restore"):
            raise ValueError(f"{fields['on_rollback']!r} is not an action")
        return cls(
            excluded=_texts(fields["excluded"]),
            derived=_texts(fields["derived"]),
            content=_texts(fields["content"]),
            on_rollback="restore" if fields["on_rollback"] == "restore" else "drop",
        )

    def unrecorded(self) -> Unrecorded | None:
        """The paths that the history does not see; ``None`` if there are none."""
        return Unrecorded(self) if self.excluded or self.derived else None


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return tuple(map(str, cast("list[object]", value)))


class Unrecorded:
    """The excluded and derived paths of a workspace; implements ``HiddenPaths``.

    Attributes:
        rules: The rules.
        seen: The topmost unrecorded paths that were seen in a listing or an event; some may no
            longer exist.
    """

    def __init__(self, rules: PathRules) -> None:
        self.rules = rules
        self.seen: set[Parts] = set()
        self._any = path_patterns((*rules.excluded, *rules.derived))
        self._excluded = path_patterns(rules.excluded)
        self._content = path_patterns(rules.content)
        self._tops: dict[Parts, Parts | None] = {(): None}
        self._hidden: dict[tuple[Parts, bool], bool] = {}

    def hides(self, parts: Parts, *, is_directory: bool = True) -> bool:
        """Whether a path is not recorded; remembered, because it is asked several times a call."""
        known = self._hidden.get((parts, is_directory))
        if known is None:
            if len(self._hidden) > _MOST_CACHED:
                self._hidden.clear()
            known = self.top(parts, is_directory=is_directory) is not None
            self._hidden[parts, is_directory] = known
        return known

    def hidden_in(
        self, directory: Parts, names: Sequence[str], directories: Sequence[str]
    ) -> Collection[str]:
        """Those of the *names* in *directory* that are not recorded."""
        if self.hides(directory):
            return names
        found = self._any.matching(directory, names, directories)
        below = found.intersection(directories)
        return [
            name for name in found if self.hides((*directory, name), is_directory=name in below)
        ]

    def top(self, parts: Parts, *, is_directory: bool = True) -> Parts | None:
        """The topmost unrecorded path at or above *parts*; ``None`` if it is recorded."""
        if not parts:
            return None
        directory = parts[:-1]
        if directory not in self._tops:
            if len(self._tops) > _MOST_CACHED:
                self._tops = {(): None}
            self._tops[directory] = self.top(directory)
        top = self._tops[directory]
        if (
            top is None
            and self._any.match(parts, is_directory=is_directory)
            and not self._is_content(parts, is_directory)
        ):
            top = parts
            self.seen.add(top)
        return top

    def _is_content(self, parts: Parts, is_directory: bool) -> bool:
        return self._content.match(parts, is_directory=is_directory) and not self._excluded.match(
            parts, is_directory=is_directory
        )

    def is_excluded(self, parts: Parts) -> bool:
        """Whether a topmost unrecorded path is excluded, and not derived."""
        return self._excluded.match(parts, is_directory=True)


class NotImported:
    """The source's own repository, and *unrecorded* paths; implements ``HiddenPaths``."""

    def __init__(self, unrecorded: HiddenPaths | None = None) -> None:
        self._unrecorded = unrecorded

    def hides(self, parts: Parts, *, is_directory: bool = True) -> bool:
        """Whether a path is not imported."""
        return parts[:1] == (".git",) or (
            self._unrecorded is not None
            and self._unrecorded.hides(parts, is_directory=is_directory)
        )

    def hidden_in(
        self, directory: Parts, names: Sequence[str], directories: Sequence[str]
    ) -> Collection[str]:
        """Those of the *names* in *directory* that are not imported."""
        own = (".git",) if not directory and ".git" in names else ()
        if self._unrecorded is None:
            return own
        return {*own, *self._unrecorded.hidden_in(directory, names, directories)}


OWN_REPOSITORY: Final = NotImported()
"""The source's own ``.git``, which is not imported; nested ones are."""


Progress: TypeAlias = Callable[[int, int], None]
"""Called repeatedly with the number of copied files and of their bytes."""


def no_progress(n_files: int, n_bytes: int) -> None:
    """Ignore the progress."""
    del n_files, n_bytes
