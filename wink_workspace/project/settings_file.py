"""The files that hold settings: the project's own, which is not trusted, and the user's.

Rule 1: a project's file and every file that it names are read once, from the source and not from a
copy. What was read is what is hashed, shown, confirmed and used.
Rule 2: only regular files below the source are read. No link is followed, and sizes are bounded.
Rule 3: an error names the file and the line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Final, cast

from wink_workspace.errors import (
    DirectoryExpectedError,
    FileMissingError,
    FilesystemError,
    ParseError,
    UsageError,
    WinkError,
)
from wink_workspace.filesystem import parse_path
from wink_workspace.filesystem.disk import DiskTree

from .settings import KEYS, Key, Settings, Trust, key_of
from .toml_file import MOST_BYTES, KeyPath, TomlFile, key_text

PROJECT_FILE: Final = "wink-workspace.toml"
"""The project's own file, at the top of its directory."""
USER_FILE: Final = "config.toml"
"""The user's file, in the configuration directory."""

_PROJECTS: Final = "projects"
_MOST_FILES: Final = 32
_MOST_FILE_BYTES: Final = 8 * 1_048_576
_MOST_PROBLEMS: Final = 20
_MOST_NAME_CHARS: Final = 60
_MOST_CHARS: Final = 400
_HINT: Final = "Correct the file; docs/configuration.md describes every key."


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a project's file names: its path in the source, and its ``content`` then."""

    path: str
    content: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 of its content."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """A project's own file, with every file that it names.

    Attributes:
        source: The project's directory, with all links resolved.
        toml: The file.
        asked: What it asks for.
        files: The file itself, then those that it names.
    """

    source: Path
    toml: TomlFile
    asked: Settings
    files: tuple[NamedFile, ...]

    @classmethod
    def read(cls, source: Path) -> ProjectFile | None:
        """The file of the project in *source*; ``None`` if it has none.

        Raises:
            UsageError: If it cannot be used, or a file that it names cannot be read.
        """
        top = source.resolve()
        try:
            tree = DiskTree(top)
        except (FileMissingError, DirectoryExpectedError):
            return None  # the source was deleted or moved; its workspaces can still be used
        with tree:
            try:
                content = _read(tree, PROJECT_FILE, MOST_BYTES)
            except FileMissingError:
                return None
            except FilesystemError as error:
                raise UsageError(
                    f"{PROJECT_FILE} of {source}: {error.message}",
                    hint="Use a regular file of at most 64 KiB, or delete it.",
                ) from error
            toml = TomlFile.parse(PROJECT_FILE, content)
            asked = _settings(toml, toml.table, is_project=True)
            files = (NamedFile(PROJECT_FILE, content), *_named_files(tree, toml, asked))
        return cls(top, toml, asked, files)

    @property
    def digests(self) -> Mapping[str, str]:
        """The SHA-256 of each of the files, by its path."""
        return {each.path: each.digest for each in self.files}

    @property
    def digest(self) -> str:
        """The hash of the path and of the content of all files."""
        content = [str(self.source), *([each.path, each.digest] for each in self.files)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_user_file(directory: Path, source: Path | None, home: Path | None = None) -> Settings:
    """The settings in the user's own file in *directory*; no settings if there is no file.

    Args:
        directory: The configuration directory.
        source: The project. Keys below ``projects."PATH"`` of this path come before the others.
        home: What ``~/`` means in such a path.

    Raises:
        UsageError: If the file cannot be used.
    """
    own_file = directory / USER_FILE
    try:
        with own_file.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Settings()
    except OSError as error:
        raise UsageError(
            f"{own_file} cannot be read: {error.strerror}",
            hint="Correct its permissions, or delete it.",
        ) from error
    toml = TomlFile.parse(str(own_file), content)
    table = dict(toml.table)
    projects = table.pop(_PROJECTS, {})
    settings = _settings(toml, table)
    if not isinstance(projects, dict):
        raise UsageError(f"{toml.place((_PROJECTS,))}: projects is not a table", hint=_HINT)
    for name, value in cast("dict[str, object]", projects).items():
        above = (_PROJECTS, name)
        if not isinstance(value, dict) or not name.startswith(("/", "~/")):
            raise UsageError(
                f"{toml.place(above)}: {name!a} is not an absolute path with a table",
                hint='Write [projects."/home/me/project"].',
            )
        own = _settings(toml, cast("dict[str, object]", value), above=above)
        path = home / name[2:] if home and name.startswith("~/") else Path(name)
        if source is not None and path.resolve() == source.resolve():
            settings = own.over(settings)
    return settings


# Keys


def _settings(
    toml: TomlFile, table: Mapping[str, object], *, above: KeyPath = (), is_project: bool = False
) -> Settings:
    """The settings in *table*, which is at *above* in the file."""
    problems: list[tuple[KeyPath, str]] = []
    found: dict[str, object] = {}

    def read(table: Mapping[str, object], at: KeyPath) -> None:
        for part, value in table.items():
            path = (*at, part)
            name = key_of(path)
            if name is None and any(key.path[: len(path)] == path for key in KEYS.values()):
                if isinstance(value, dict):
                    read(cast("dict[str, object]", value), path)
                else:
                    problems.append((path, f"{key_text(path)} is not a table"))
            elif name is None:
                nearest = _nearest(path) if len(problems) < _MOST_PROBLEMS else ""
                problems.append((path, f"unknown key {_shown(path)}; the nearest is {nearest}"))
            elif is_project and KEYS[name].trust is Trust.USER:
                problems.append((path, f"a project cannot set {key_text(path)}{_ONLY_USER}"))
            elif not is_project and KEYS[name].is_file:
                problems.append((path, f"only a project's own file can set {key_text(path)}"))
            else:
                try:
                    found[name] = KEYS[name].parse(value)
                except ParseError as error:
                    for each in error.problems:
                        below = tuple(each.path.split(".")) if each.path else ()
                        where = key_text((*path, *below))
                        problems.append(((*path, *below), f"{where} {each.message}"))
                except WinkError as error:
                    where = (*path, *_wrong_entry(KEYS[name], value))
                    problems.append((where, f"{key_text(where)}: {error}".rstrip(".")))

    read(table, ())
    if problems:
        listed = "; ".join(
            f"line {toml.line((*above, *path))}: {message[:_MOST_CHARS]}"
            for path, message in problems[:_MOST_PROBLEMS]
        )
        raise UsageError(f"{toml.name}, {listed}", hint=_HINT)
    return Settings(**cast("dict[str, None]", found))


def _wrong_entry(key: Key, value: object) -> KeyPath:
    """The first entry of a table that cannot be used; nothing for another value."""
    if isinstance(value, dict):
        for name, entry in cast("dict[str, object]", value).items():
            try:
                key.parse({name: entry})
            except WinkError:
                return (name,)
    return ()


_ONLY_USER: Final = ", only your own configuration can"


def _shown(path: KeyPath) -> str:
    return key_text(tuple(part[:_MOST_NAME_CHARS] for part in path))


def _nearest(path: KeyPath) -> str:
    """The key or table whose name is most like *path*."""
    known = {key.path[:n] for key in KEYS.values() for n in range(1, len(key.path) + 1)}
    name, dotted = path[-1][:_MOST_NAME_CHARS], _shown(path)

    def likeness(key: KeyPath) -> float:
        parts = SequenceMatcher(None, name, key[-1]).ratio()
        whole = SequenceMatcher(None, dotted, key_text(key)).ratio()
        return max(parts, whole) + (len(name) > 1 and key[-1].startswith(name))

    return key_text(max(sorted(known), key=likeness))


# Files that the project's file names


def _named_files(tree: DiskTree, toml: TomlFile, asked: Settings) -> Iterator[NamedFile]:
    """The files that the settings name, each once."""
    seen: set[str] = set()
    for name, key in KEYS.items():
        value = getattr(asked, name) if key.is_file else None
        for path in [value] if isinstance(value, str) else value or ():
            if path in seen:
                continue
            try:
                file = NamedFile(path, _read(tree, path, _MOST_FILE_BYTES))
                seen.add(path)
                if len(seen) > _MOST_FILES:
                    raise UsageError(f"more than {_MOST_FILES} files are named")
            except WinkError as error:
                raise _unusable(toml, key, error) from error
            yield file


def _unusable(toml: TomlFile, key: Key, error: WinkError) -> UsageError:
    return UsageError(
        f"{toml.place(key.path)}: {key_text(key.path)}: {error.message}",
        hint="Name regular files of the project; links are not followed.",
    )


def _read(tree: DiskTree, path: str, most_bytes: int) -> bytes:
    with tree.open(parse_path(path)) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise UsageError(f"{path} is larger than {most_bytes:,} bytes")
    return content
