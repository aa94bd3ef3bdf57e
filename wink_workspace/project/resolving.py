"""All settings together: flags, then variables, the project's own file, and the user's.

The project's file comes with a repository, so it is not trusted. What narrows a setting applies at
once. What widens one is a *request*: it applies only if the user confirmed it (``Confirmations``).
Nothing here asks the user; the caller decides that.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from wink_workspace import serde
from wink_workspace.environment import Environment
from wink_workspace.errors import ParseError, UsageError
from wink_workspace.sandbox import AUTO_SANDBOX, DEFAULT_SANDBOX, NO_SANDBOX, SANDBOXES

from .settings import KEYS, Key, Settings, Trust
from .settings_file import PROJECT_FILE, USER_FILE, ProjectFile, read_user_file
from .toml_file import KeyPath, TomlFile, key_text

# ---------------------------------------------------------------------------------- confirmations

# What the user has confirmed: the content of a project's file, and repositories outside of it.
#
# Rule 1: a note is outside of every project and workspace, in the state directory.
# Rule 2: it is bound to the path of the project, to the bytes of its file and of every file that it
# names, and to the requests that the user saw. After any change of these, the user is asked again.
# Rule 3: a note that cannot be read confirms nothing.
# Rule 4: a second note of a project lists the directories to which its ``.git`` may lead.


_VERSION: Final = 1
_FILE: Final = ".json"
_GIT: Final = ".git.json"
_MOST_BYTES: Final = 4 * 1_048_576


@dataclass(frozen=True, slots=True)
class _Note:
    version: int
    directory: str
    digest: str
    requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _GitNote:
    version: int
    source: str
    directories: tuple[str, ...]


class Confirmations:
    """The notes below *state_dir*."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "confirmed"

    def granted(self, file: ProjectFile) -> frozenset[str]:
        """The requests that the user has confirmed for exactly this content."""
        try:
            with self._path(file.source).open("rb") as stored:
                note = serde.parse_json(_Note, stored.read(_MOST_BYTES))
        except (OSError, ParseError):
            return frozenset()
        is_valid = (
            note.version == _VERSION
            and note.directory == _name(file.source)
            and note.digest == file.digest
        )
        return frozenset(note.requests) if is_valid else frozenset()

    def confirm(self, file: ProjectFile, requests: Iterable[str]) -> None:
        """Note that the user has seen *requests* of this content, and wants them.

        Raises:
            UsageError: If the note cannot be written.
        """
        note = _Note(_VERSION, _name(file.source), file.digest, tuple(sorted(set(requests))))
        self._write(self._path(file.source), note)

    def _write(self, path: Path, note: _Note | _GitNote) -> None:
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            unfinished.write_text(serde.dump_json(note), encoding="utf-8")
            unfinished.replace(path)
        except OSError as error:
            raise UsageError(
                f"the confirmation cannot be written to {path}: {error.strerror}",
                hint="Get permission to write there; XDG_STATE_HOME moves it.",
            ) from error

    def git_links(self) -> dict[Path, tuple[Path, ...]]:
        """By project: the directories outside of it to which its ``.git`` may lead."""
        found: dict[Path, tuple[Path, ...]] = {}
        for path in self._folder.glob(f"*{_GIT}"):
            with suppress(OSError, ParseError, ValueError), path.open("rb") as stored:
                note = serde.parse_json(_GitNote, stored.read(_MOST_BYTES))
                source = Path(json.loads(note.source))
                if note.version == _VERSION and path == self._path(source, _GIT):
                    found[source] = tuple(Path(json.loads(each)) for each in note.directories)
        return found

    def confirm_git(self, source: Path, directories: Iterable[Path]) -> None:
        """Note that the ``.git`` of *source* may lead to *directories*; raises as ``confirm``."""
        source = source.resolve()
        note = _GitNote(_VERSION, _name(source), tuple(map(_name, directories)))
        self._write(self._path(source, _GIT), note)

    def revoke(self, source: Path) -> bool:
        """Delete the notes of the project in *source*; whether there was one."""
        paths = [self._path(source.resolve(), kind) for kind in (_FILE, _GIT)]
        there = [path for path in paths if path.exists()]
        for path in there:
            path.unlink(missing_ok=True)
        return bool(there)

    def _path(self, source: Path, kind: str = _FILE) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(source)).hexdigest()}{kind}"


def _name(source: Path) -> str:
    """The path as text that JSON can hold, whatever bytes it has."""
    return json.dumps(str(source))


# ---------------------------------------------------------------------------------------- budgets


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBudgets:
    """When a run ends that does not end by itself; what a resumed run used before counts.

    Attributes:
        tokens: Input and output tokens of all turns; input that a cache served counts.
        turns: Turns of the model.
        time: Seconds, without the time between an interruption and the resumption.
        money: US dollars, at list prices; ``None`` for no limit.
    """

    tokens: int = 5_000_000
    turns: int = 200
    time: float = 7_200.0
    money: Decimal | None = None


# -------------------------------------------------------------------------------------- resolving


_IMAGE: Final = frozenset(name for name, key in KEYS.items() if key.path[0] == "image")
_MOST_CHARS: Final = 60
_MOST_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """One thing that a project's file asks for and that widens a setting.

    Attributes:
        line: Its line in the file.
        path: Its key.
        text: All of it on one line, in ASCII.
    """

    line: int
    path: KeyPath
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSettings:
    """The settings for one project.

    Attributes:
        settings: What applies.
        file: The project's own file; ``None`` if it has none.
        applied: The keys of this file that apply, at least in part.
        granted: The requests that the user has confirmed.
        denied: The requests that do not apply, because the user has not confirmed them.
        origins: Where each setting that applies is from, by the name of its field in ``Settings``:
            ``an option``, ``WINK_WORKSPACE_NETWORK``, ``wink-workspace.toml, line 3`` or
            ``config.toml``.
    """

    settings: Settings
    file: ProjectFile | None = None
    applied: tuple[KeyPath, ...] = ()
    granted: tuple[SandboxRequest, ...] = ()
    denied: tuple[SandboxRequest, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict[str, str])

    def summary(self) -> str:
        """One line: what of the project's file applies, and what was not confirmed.

        It is empty if there is no file, or if it does what the user has confirmed.
        """
        is_confirmed = self.granted and not self.denied
        if self.file is None or is_confirmed or not (self.applied or self.denied):
            return ""
        parts: list[str] = []
        if self.applied:
            parts.append(f"{', '.join(map(key_text, self.applied))} applied")
        if self.denied:
            shown = "; ".join(_shortened(str(each)) for each in self.denied[:_MOST_SHOWN])
            if len(self.denied) > _MOST_SHOWN:
                shown += f"; and {len(self.denied) - _MOST_SHOWN} more"
            parts.append(
                f"not confirmed and not applied: {shown}"
                f" (to confirm: wink-workspace trust {shlex.quote(str(self.file.source))})"
            )
        return f"{PROJECT_FILE}: {'. '.join(parts)}"


def own_settings(environment: Environment, source: Path | None = None) -> Settings:
    """The settings of the user alone: variables, then the user's file.

    Args:
        environment: The variables, and where the user's file is.
        source: The project, which the user's file may have settings for.

    Raises:
        UsageError: If the file or a variable cannot be used.
    """
    first = _variable_settings(environment.variables)
    user = read_user_file(environment.config_dir, source, environment.home)
    return _without_own_image(first, first.over(user))


def load_settings(
    source: Path, environment: Environment, given: Settings | None = None
) -> ProjectSettings:
    """The settings for the project in *source*.

    Args:
        source: The project's directory.
        environment: The variables, and where the user's file and confirmations are.
        given: What flags set.

    Raises:
        UsageError: If a file or a variable cannot be used. It names the line or the variable.
    """
    user = read_user_file(environment.config_dir, source, environment.home)
    first = (given or Settings()).over(_variable_settings(environment.variables))
    file = ProjectFile.read(source)
    if file is None:
        settings = _without_own_image(first, first.over(user))
        return ProjectSettings(settings=settings, origins=_origins(settings, given, first, None))
    granted = Confirmations(environment.state_dir).granted(file)
    merged = _Merging(file.toml, granted)
    values: dict[str, object] = {}
    for name, key in KEYS.items():
        asked, own = getattr(file.asked, name), getattr(user, name)
        is_overridden = getattr(first, name) is not None or (
            first.base is not None and name in _IMAGE
        )
        if asked is None or is_overridden:
            values[name] = own
        else:
            sandbox = first.sandbox or cast("str | None", values.get("sandbox"))
            values[name] = merged.value(key, asked, own, partial(_default, key, sandbox))
    settings = first.over(Settings(**cast("dict[str, None]", values)))
    return ProjectSettings(
        settings=_without_own_image(first, settings),
        file=file,
        applied=tuple(merged.applied),
        granted=tuple(merged.granted),
        denied=tuple(sorted(merged.denied, key=lambda each: each.line)),
        origins=_origins(settings, given, first, file.toml, merged.applied),
    )


def _origins(
    settings: Settings,
    given: Settings | None,
    first: Settings,
    toml: TomlFile | None,
    applied: Collection[KeyPath] = (),
) -> Mapping[str, str]:
    """See ``ProjectSettings``; *first* are options and variables."""
    found: dict[str, str] = {}
    for name, key in KEYS.items():
        if getattr(settings, name) is None:
            continue
        if given is not None and getattr(given, name) is not None:
            found[name] = "an option"
        elif getattr(first, name) is not None:
            found[name] = str(key.variable)
        elif toml is not None and key.path in applied:
            found[name] = toml.place(key.path)
        else:
            found[name] = USER_FILE
    return found


def _variable_settings(variables: Mapping[str, str]) -> Settings:
    """The settings in environment variables; an empty variable sets nothing.

    Raises:
        UsageError: If the text of a variable cannot be used.
    """
    found: dict[str, Any] = {  # Any: each field has its own type
        name: key.parse_text(variables[key.variable])
        for name, key in KEYS.items()
        if key.variable is not None and variables.get(key.variable)
    }
    return Settings(**found)


def _without_own_image(first: Settings, settings: Settings) -> Settings:
    """*settings*, where an image that a flag or a variable names is used as it is."""
    if first.base is None:
        return settings
    kept: dict[str, Any] = {name: getattr(first, name) for name in _IMAGE}
    return replace(settings, **kept)


def _default(key: Key, sandbox: str | None) -> float | None:
    """The value of a limit that no source sets; ``None`` if there is no limit."""
    if key.path[0] == "budgets":
        return getattr(RunBudgets(), key.path[1])
    if key.path == ("git", "depth"):
        from wink_workspace.workspace import ImportConfig

        return ImportConfig().git_depth
    if key.limit is None:
        return None
    # `exec` uses the default sandbox also where the user has chosen another one for the model.
    names = {
        DEFAULT_SANDBOX,
        DEFAULT_SANDBOX if sandbox in (None, NO_SANDBOX, AUTO_SANDBOX) else sandbox,
    }
    limits = [getattr(SANDBOXES.get(name).config(), key.limit, None) for name in names]
    return min((limit for limit in limits if limit is not None), default=None)


class _Merging:
    """Joins what a project's file asks for with the user's own settings, key by key."""

    def __init__(self, toml: TomlFile, confirmed: frozenset[str]) -> None:
        self._toml = toml
        self._confirmed = confirmed
        self.applied: list[KeyPath] = []
        self.granted: list[SandboxRequest] = []
        self.denied: list[SandboxRequest] = []

    def value(self, key: Key, asked: Any, own: Any, default: Callable[[], float | None]) -> Any:
        """The value that applies; *own* is the user's, *default* the limit if that is ``None``."""
        match key.trust:
            case Trust.ADD:
                value = (*(own or ()), *(each for each in asked if each not in (own or ())))
            case Trust.SUBSET:
                value = tuple(
                    each
                    for each in asked
                    if each in (own or ()) or self._is_granted(key.path, each)
                )
            case Trust.LOWER:
                limit = own if own is not None else default()
                narrows = limit is None or asked <= limit
                value = asked if narrows or self._is_granted(key.path) else own
            case Trust.NONE:
                narrows = asked in (own or AUTO_SANDBOX, NO_SANDBOX)
                value = asked if narrows or self._is_granted(key.path) else own
            case _ if isinstance(asked, Mapping):
                entries = cast("Mapping[str, object]", asked)
                value = self._joined(key.path, entries, own or {})
            case _:
                value = asked if asked == own or self._is_granted(key.path) else own
        if _set(value) != _set(own) or asked == own:
            self.applied.append(key.path)
        return value

    def _joined(
        self, path: KeyPath, asked: Mapping[str, object], own: Mapping[str, object]
    ) -> Mapping[str, object]:
        allowed = {
            name: value
            for name, value in asked.items()
            if own.get(name) == value or self._is_granted((*path, name))
        }
        return {**own, **allowed}

    def _is_granted(self, path: KeyPath, item: str | None = None) -> bool:
        """Whether the user has confirmed the value at *path*, or one *item* of its list."""
        value = _raw(self._toml.table, path) if item is None else item
        text = f"{key_text(path)} = {json.dumps(value, default=str)}"
        request = SandboxRequest(self._toml.line(path), path, text)
        is_granted = text in self._confirmed
        (self.granted if is_granted else self.denied).append(request)
        return is_granted


def _set(value: object) -> object:
    """*value*, or ``None`` for an empty list or table, which sets nothing."""
    return None if value in ((), {}) else value


def _raw(table: Mapping[str, Any], path: Iterable[str]) -> object:
    value: Any = table  # Any: a value of TOML
    for part in path:
        value = value[part]
    return value


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
