"""Python requirements of a project, parsed into lines that this machine's pip may be given.

pip on the host reads the user's own configuration. Files of a project must not add to that: an
index, a URL, a path or a repository in them would make pip contact other hosts, read other files or
run code. So only names, versions, markers and hashes pass. pip would also replace ``${NAME}`` by a
variable of the user; no character of that passes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from wink_workspace import serde
from wink_workspace.errors import UsageError

from .source_files import SourceFiles, decoded

__all__ = ["Requirements", "build_requirements", "files_read_with", "read_requirements"]

_VERSION: Final = r"(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+"
_LINE: Final = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*"
    r"(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    rf"(?:\(?\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*,?\s*\)?)?\s*"
    r"(?:;[A-Za-z0-9_.<>=!~'\"()\s,+*-]*)?"
    r"(?:\s--hash=sha(?:256|384|512):[0-9a-f]+)*"
)
_FILE_OPTION: Final = re.compile(r"(-r|-c|--requirement|--constraint)(?:\s+|=)?(\S+)")
_ITSELF: Final = re.compile(r"(?:(?:-e|--editable)[\s=]*)?\.(?:/)?(?:\[(?P<extras>[\w\s,.-]*)\])?")
_EXTRA: Final = re.compile(r"\s*(?:;|\band)\s*extra\s*==\s*['\"]([^'\"]*)['\"]")
_HARMLESS: Final = ("--require-hashes", "--prefer-binary", "--only-binary", "--pre")
_TEST_NAMES: Final = ("dev", "test", "testing", "tests")
"""Extras and dependency groups that the tests of a project usually need."""
_OF_ITSELF: Final = ("pyproject.toml", "PKG-INFO")
"""The files that state the dependencies of the project itself."""
_OF_BACKENDS: Final = {"hatchling": "editables", "setuptools": "wheel"}
"""What backends ask for while they build: the first for editable projects, the second if it is old.

Others ask for nothing.
"""
_MOST_FILES: Final = 50
_MOST_CONDITIONS: Final = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Group:
    include: str = field(metadata={"alias": "include-group"})


@dataclass(frozen=True, slots=True)
class _BuildSystem:
    requires: tuple[str, ...] = ("setuptools", "wheel")


@dataclass(frozen=True, slots=True)
class _Project:
    name: str = ""
    dependencies: tuple[str, ...] = ()
    extras: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], metadata={"alias": "optional-dependencies"}
    )


@dataclass(frozen=True, slots=True)
class _ProjectFile:
    project: _Project = field(default_factory=_Project)
    build: _BuildSystem = field(default_factory=_BuildSystem, metadata={"alias": "build-system"})
    groups: Mapping[str, tuple[str | _Group, ...]] = field(
        default_factory=dict[str, tuple[str | _Group, ...]], metadata={"alias": "dependency-groups"}
    )


@dataclass(frozen=True, slots=True)
class _Edge:
    name: str
    version: str = ""
    marker: str = ""
    extras: tuple[str, ...] = field(default=(), metadata={"alias": "extra"})


@dataclass(frozen=True, slots=True)
class _File:
    hash: str = ""


@dataclass(frozen=True, slots=True)
class _Source:
    registry: str | None = None
    editable: str | None = None
    virtual: str | None = None


@dataclass(frozen=True, slots=True)
class _Locked:
    """A package of a ``uv.lock``."""

    name: str
    version: str = ""
    source: _Source = field(default_factory=_Source)
    dependencies: tuple[_Edge, ...] = ()
    development: Mapping[str, tuple[_Edge, ...]] = field(
        default_factory=dict[str, tuple[_Edge, ...]], metadata={"alias": "dev-dependencies"}
    )
    extras: Mapping[str, tuple[_Edge, ...]] = field(
        default_factory=dict[str, tuple[_Edge, ...]], metadata={"alias": "optional-dependencies"}
    )
    wheels: tuple[_File, ...] = ()
    sdist: _File | None = None

    @property
    def is_root(self) -> bool:
        return self.source.editable is not None or self.source.virtual is not None

    def edges(self, extra: str) -> tuple[_Edge, ...]:
        """What the package needs, or one of its extras; of the project also for its tests."""
        if extra:
            return self.extras.get(extra, ())
        groups = [self.development, self.extras] if self.is_root else []
        wanted = (group.get(name, ()) for group in groups for name in _TEST_NAMES)
        return (*self.dependencies, *(edge for edges in wanted for edge in edges))

    def line(self, when: Iterable[frozenset[str]]) -> str:
        files = [*self.wheels, *([self.sdist] if self.sdist else [])]
        hashes = "".join(f" --hash={file.hash}" for file in files if file.hash)
        marker = " or ".join(sorted(" and ".join(sorted(each)) for each in when))
        return f"{self.name}=={self.version}{f' ; {marker}' if marker else ''}{hashes}"


@dataclass(frozen=True, slots=True)
class _LockFile:
    packages: tuple[_Locked, ...] = field(default=(), metadata={"alias": "package"})


@dataclass(frozen=True, slots=True)
class Requirements:
    """Lines for pip: what to install with its dependencies, and constraints on versions.

    *locked* are lines of a complete lock, which are installed without looking for dependencies: the
    project itself can be one, and has no hash.
    """

    lines: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    locked: tuple[str, ...] = ()

    def __add__(self, other: Requirements) -> Requirements:
        return Requirements(
            tuple(dict.fromkeys((*self.lines, *other.lines))),
            tuple(dict.fromkeys((*self.constraints, *other.constraints))),
            tuple(dict.fromkeys((*self.locked, *other.locked))),
        )

    def __bool__(self) -> bool:
        """Whether there is something to install."""
        return bool(self.lines or self.locked)


def read_requirements(source: Path | SourceFiles, path: str) -> Requirements:
    """The requirements in a ``requirements.txt``, ``pyproject.toml`` or ``uv.lock`` of *source*.

    A ``pyproject.toml`` or ``uv.lock`` gives the project's dependencies, and its extras and
    dependency groups called dev, test, tests or testing. A line ``-e .`` gives those of the project
    itself, from its ``pyproject.toml`` or, in a source distribution, its ``PKG-INFO``.

    Raises:
        UsageError: If the file cannot be read, or has a line that is not only names, versions,
            markers and hashes; the message has the file and the line.
    """
    files = SourceFiles.of(source)
    name = PurePosixPath(path).name
    if name == "uv.lock":
        return Requirements(locked=tuple(_locked(_toml(_LockFile, files, path), path)))
    if name.endswith(".toml"):
        found = _project(_toml(_ProjectFile, files, path), _TEST_NAMES, path)
        return found if found.lines or path != "pyproject.toml" else _itself(files, _TEST_NAMES)
    return _text_file(files, path, {})


def build_requirements(source: Path | SourceFiles) -> tuple[str, ...]:
    """What the build of *source* itself needs: those of its ``pyproject.toml``, or setuptools."""
    files = SourceFiles.of(source)
    if files.has("pyproject.toml"):
        requires = _toml(_ProjectFile, files, "pyproject.toml").build.requires
        checked = _checked(requires, "pyproject.toml")
        more = (
            need for name, need in _OF_BACKENDS.items() for line in checked if _is_named(line, name)
        )
        return tuple(dict.fromkeys((*checked, *more)))
    return ("setuptools", "wheel") if files.has("setup.py") else ()


def files_read_with(path: str, content: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What else ``read_requirements`` reads because of a file with this content.

    Returns:
        The files that it includes, and those that are read if the source has them.

    Raises:
        UsageError: If it includes a file outside of the source.
    """
    if PurePosixPath(path).name == "uv.lock":
        return (), ()
    if path.endswith(".toml"):
        return (), _OF_ITSELF if path == "pyproject.toml" else ()
    included: list[str] = []
    itself: tuple[str, ...] = ()
    for number, line in _logical_lines(decoded(content, "replace")):
        if option := _FILE_OPTION.fullmatch(line):
            included.append(_below(path, option[2], f"{path}, line {number}"))
        elif _ITSELF.fullmatch(line):
            itself = _OF_ITSELF
    return tuple(included), itself


def _text_file(source: SourceFiles, path: str, known: dict[str, Requirements]) -> Requirements:
    """The requirements in a file and in those that it includes; *known* are those read so far."""
    if path in known:
        return known[path]
    if len(known) > _MOST_FILES:
        raise UsageError(f"{path}: too many files", hint="Put the requirements into fewer files.")
    known[path] = Requirements()  # what a file has that includes itself
    lines: dict[str, None] = {}
    constraints: dict[str, None] = {}
    for number, line in _logical_lines(source.text(path)):
        where = f"{path}, line {number}"
        if option := _FILE_OPTION.fullmatch(line):
            read = _text_file(source, _below(path, option[2], where), known)
            is_constraint = option[1] in ("-c", "--constraint")
            (constraints if is_constraint else lines).update(dict.fromkeys(read.lines))
            constraints.update(dict.fromkeys(read.constraints))
        elif itself := _ITSELF.fullmatch(line):
            extras = [each.strip() for each in (itself["extras"] or "").split(",") if each.strip()]
            lines.update(dict.fromkeys(_itself(source, extras).lines))
        elif not line.startswith(_HARMLESS):
            lines[_checked_line(line, where)] = None
    known[path] = Requirements(tuple(lines), tuple(constraints))
    return known[path]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with continued lines joined, and their numbers."""
    joined, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        first = first if joined else number
        line = re.sub(r"(^|\s)#.*$", "", raw)
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        line = f"{joined}{line}".strip()
        joined = ""
        if line:
            yield first, line
    if joined.strip():
        yield first, joined.strip()


def _below(path: str, given: str, where: str) -> str:
    """The path of a file that another one names, relative to the source."""
    if "://" in given:
        raise UsageError(f"{where}: {given!r} is not in the project", hint="Copy the file into it.")
    parts: list[str] = []
    for part in (*PurePosixPath(path).parent.parts, *PurePosixPath(given).parts):
        if part == ".." and parts:
            parts.pop()
        elif part in ("..", "/"):
            raise UsageError(
                f"{where}: {given!r} leads outside of the source", hint="Copy the file into it."
            )
        else:
            parts.append(part)
    return "/".join(parts)


def _checked(lines: Iterable[str], where: str) -> tuple[str, ...]:
    return tuple(_checked_line(line, where) for line in lines)


def _checked_line(line: str, where: str) -> str:
    plain = " ".join(line.split())  # also bounds the time of the match
    if _LINE.fullmatch(plain):
        return plain
    raise UsageError(
        f"{where}: {line[:120]!r} is not a requirement with a name, versions and markers",
        hint="Indexes are those of your own pip configuration. URLs, paths and repositories are"
        " not fetched: use a released version, or install it in a set-up command.",
    )


def _project(file: _ProjectFile, extras: Iterable[str], path: str) -> Requirements:
    """The dependencies of a ``pyproject.toml``, with those extras and groups that it has."""
    project = file.project
    lines = list(project.dependencies)
    seen: set[str] = set()
    for extra in extras:
        lines += project.extras.get(extra, ())
        lines += _group(file.groups, extra, seen)
    checked = (_checked_line(line, path) for line in lines)
    return Requirements(
        tuple(dict.fromkeys(line for line in checked if not _is_named(line, project.name)))
    )


def _group(
    groups: Mapping[str, tuple[str | _Group, ...]], name: str, seen: set[str]
) -> Iterator[str]:
    """The lines of a group and of those that it includes, each group once."""
    todo = [name]
    while todo:
        group = todo.pop()
        if group in seen:
            continue
        seen.add(group)
        for entry in groups.get(group, ()):
            if isinstance(entry, str):
                yield entry
            else:
                todo.append(entry.include)


def _itself(source: SourceFiles, extras: Iterable[str]) -> Requirements:
    """The dependencies of the project in *source*, as far as its files state them."""
    if source.has("pyproject.toml"):
        project = _toml(_ProjectFile, source, "pyproject.toml")
        if project.project.name:
            return _project(project, extras, "pyproject.toml")
    if source.has("PKG-INFO"):  # of a source distribution
        metadata = HeaderParser().parsestr(source.text("PKG-INFO"))
        lines = [str(line) for line in metadata.get_all("Requires-Dist") or []]
        return Requirements(
            tuple(
                _checked_line(_EXTRA.sub("", line), "PKG-INFO")
                for line in lines
                if (extra := _EXTRA.search(line)) is None or extra[1] in extras
            )
        )
    return Requirements()


def _is_named(line: str, name: str) -> bool:
    """Whether a requirement is the project itself with other extras."""
    found = _LINE.fullmatch(line)
    return found is not None and _normal(found["name"]) == _normal(name)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# uv.lock


def _locked(lock: _LockFile, path: str) -> Iterator[str]:
    """A line with version, marker and hashes for each package that a ``uv.lock`` installs."""
    packages = {(package.name, package.version): package for package in lock.packages}
    versions = {package.name: package.version for package in lock.packages}
    for package in lock.packages:
        if not package.is_root and package.source.registry is None:
            raise UsageError(
                f"{path}: {package.name} does not come from an index",
                hint="Lock a released version, or install it in a set-up command.",
            )
    always = frozenset({frozenset[str]()})
    # Keys are names, versions and extras; "" is the package itself.
    # Each condition is a set of markers that must all hold; one of the conditions must.
    conditions = {(*key, ""): always for key, package in packages.items() if package.is_root}
    todo = list(conditions)
    while todo:
        above = todo.pop()
        for edge in packages[above[:2]].edges(above[2]):
            needed = (edge.name, edge.version or versions.get(edge.name, ""))
            if needed not in packages:
                continue
            own = {f"({edge.marker})"} if edge.marker else set[str]()
            for key in ((*needed, extra) for extra in ("", *edge.extras)):
                known = conditions.get(key, frozenset[frozenset[str]]())
                merged = known | {condition | own for condition in conditions[above]}
                if frozenset() in merged or len(merged) > _MOST_CONDITIONS:
                    merged = always
                if merged != known:
                    conditions[key] = merged
                    todo.append(key)
    for (name, version, extra), when in sorted(conditions.items()):
        if not (extra or packages[name, version].is_root):
            yield _checked_line(packages[name, version].line(when), path)


# Files


def _toml(kind: type[T], source: SourceFiles, path: str) -> T:
    try:
        data = tomllib.loads(source.text(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="Correct the file.") from error
    keys = [str(each.metadata.get("alias", each.name)) for each in fields(kind)]  # pyright: ignore[reportArgumentType] - each kind is a dataclass
    return serde.parse(
        kind, {key: data[key] for key in keys if key in data}, what=path, extra="ignore"
    )
