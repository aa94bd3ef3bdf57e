"""Texts that replace a prompt's own without touching its code, and a store for them.

Rule 1: an override names the hash of what it was written for. When the section or tool has
changed since, the override is not applied, and the log says so.
Rule 2: only words can be replaced: a section's body, a tool's description, and what is said of
its parameters: description, type and default. Names, real types and handlers stay.
Rule 3: what a section or tool does not accept is refused when it is stored; what reaches the
file in another way is not applied.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from wink_workspace import serde
from wink_workspace.errors import OverridesError, ParseError, PromptValidationError

from ._template import Template
from .section import Section
from .tool import Tool, _described

__all__ = [
    "LocalPromptOverridesStore",
    "PromptDescriptor",
    "PromptOverrides",
    "PromptOverridesStore",
    "SectionDescriptor",
    "SectionOverride",
    "ToolDescriptor",
    "ToolOverride",
]

_log = logging.getLogger(__name__)

_FILE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionDescriptor:
    """What an override of a section's body is written for.

    Attributes:
        path: The section's keys from the root, joined by dots.
        content_hash: SHA-256 of its template and summary, in hexadecimal.
        template: The text itself; None for a body that is no template.
        placeholders: The names that a new text may use.
        accepts_overrides: Whether it may be replaced at all.
    """

    path: str
    content_hash: str
    template: str | None
    placeholders: tuple[str, ...]
    accepts_overrides: bool

    @classmethod
    def of(cls, path: str, section: Section[Any]) -> SectionDescriptor:
        """Describe *section*, which stands at *path*."""
        return cls(
            path=path,
            content_hash=_hash(section.template, section.summary),
            template=section.template,
            placeholders=section.placeholders,
            accepts_overrides=section.accepts_overrides,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescriptor:
    """What an override of a tool's words is written for.

    Attributes:
        name: The tool.
        section_path: The section that explains it.
        content_hash: SHA-256 of its name, description, parameter schema and examples, in
            hexadecimal.
        description: The text itself.
        param_descriptions: The parameters' own descriptions, by name.
        param_types: Their types in words, by name.
        param_defaults: Their defaults as JSON, by name; none for a required one.
        accepts_overrides: Whether both the tool and its section accept them.
    """

    name: str
    section_path: str
    content_hash: str
    description: str
    param_descriptions: Mapping[str, str]
    param_types: Mapping[str, str]
    param_defaults: Mapping[str, str]
    accepts_overrides: bool

    @classmethod
    def of(cls, section_path: str, section: Section[Any], tool: Tool[Any, Any]) -> ToolDescriptor:
        """Describe *tool*, which *section* at *section_path* declares."""
        params = tool.param_descriptions()
        examples = serde.dump([(e.description, e.input, e.output) for e in tool.examples])
        return cls(
            name=tool.name,
            section_path=section_path,
            content_hash=_hash(
                tool.name, tool.description, serde.schema(tool.params_type), examples
            ),
            description=tool.description,
            param_descriptions={name: param.description for name, param in params.items()},
            param_types={name: param.type for name, param in params.items()},
            param_defaults={
                name: param.default for name, param in params.items() if param.default is not None
            },
            accepts_overrides=tool.accepts_overrides and section.accepts_overrides,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptDescriptor:
    """A prompt's identity and the hashes of all its parts, in declaration order."""

    ns: str
    key: str
    sections: tuple[SectionDescriptor, ...]
    tools: tuple[ToolDescriptor, ...]

    def section(self, path: str) -> SectionDescriptor | None:
        """The section at *path*, if there is one."""
        return next((section for section in self.sections if section.path == path), None)

    def tool(self, name: str) -> ToolDescriptor | None:
        """The tool called *name*, if there is one."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionOverride:
    """Another body for a section; ``body`` is a template like the one it replaces."""

    expected_hash: str
    body: str

    def problem(self, section: SectionDescriptor | None) -> str | None:
        """Why this cannot stand in for *section*'s body, as a clause; None if it can."""
        if section is None:
            return "there is no such section"
        if not section.accepts_overrides:
            return "it accepts no overrides"
        if section.template is None:
            return "its body is no template"
        if section.content_hash != self.expected_hash:
            return "the section has changed since the override was written"
        try:
            Template.parse(self.body, section.placeholders, section_path=(), field="body")
        except PromptValidationError as error:
            return error.reason
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """Other words for a tool; None and missing parameters keep their own.

    ``param_descriptions``, ``param_types`` and ``param_defaults`` say what the model reads of a
    parameter. What ``parse`` accepts, and which default it fills in, stays as it is.
    """

    expected_hash: str
    description: str | None = None
    param_descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    param_types: Mapping[str, str] = field(default_factory=dict[str, str])
    param_defaults: Mapping[str, str] = field(default_factory=dict[str, str])

    def problem(self, tool: ToolDescriptor | None) -> str | None:
        """Why this cannot stand in for *tool*'s words, as a clause; None if it can."""
        if tool is None:
            return "there is no such tool"
        if not tool.accepts_overrides:
            return "it accepts no overrides"
        if tool.content_hash != self.expected_hash:
            return "the tool has changed since the override was written"
        named = {*self.param_descriptions, *self.param_types, *self.param_defaults}
        if unknown := sorted(named - set(tool.param_descriptions)):
            return f"it has no parameter {', '.join(unknown)}"
        if required := sorted(set(self.param_defaults) - set(tool.param_defaults)):
            return f"{', '.join(required)} is required, so it has no default to describe"
        return None if self.description is None else _problem_of(self.description)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptOverrides:
    """All overrides of one prompt under one tag.

    ``sections`` goes by dotted path, ``tools`` by name.
    """

    ns: str
    key: str
    tag: str = "latest"
    sections: Mapping[str, SectionOverride] = field(default_factory=dict[str, SectionOverride])
    tools: Mapping[str, ToolOverride] = field(default_factory=dict[str, ToolOverride])

    def problems(self, descriptor: PromptDescriptor) -> dict[str, str]:
        """What cannot be applied to *descriptor* (``section a.b``, ``tool x``), and why."""
        found = {
            **{
                f"section {path}": override.problem(descriptor.section(path))
                for path, override in self.sections.items()
            },
            **{
                f"tool {name}": override.problem(descriptor.tool(name))
                for name, override in self.tools.items()
            },
        }
        return {subject: problem for subject, problem in found.items() if problem is not None}

    def fitting(self, descriptor: PromptDescriptor) -> PromptOverrides:
        """Those that apply to *descriptor*; the log warns of each of the others."""
        problems = self.problems(descriptor)
        for subject, problem in problems.items():
            _log.warning(
                "Override of %s in prompt %s/%s (tag %s) is not applied: %s",
                *(subject, self.ns, self.key, self.tag, problem),
            )
        return PromptOverrides(
            ns=self.ns,
            key=self.key,
            tag=self.tag,
            sections={p: o for p, o in self.sections.items() if f"section {p}" not in problems},
            tools={name: o for name, o in self.tools.items() if f"tool {name}" not in problems},
        )


class PromptOverridesStore(Protocol):
    """Where overrides are kept. A prompt only calls ``resolve``."""

    def resolve(
        self, descriptor: PromptDescriptor, *, tag: str = "latest"
    ) -> PromptOverrides | None:
        """What is stored for the prompt under *tag*, stale or not; None if nothing is."""
        ...

    def set(self, descriptor: PromptDescriptor, overrides: PromptOverrides) -> None:
        """Store *overrides* in place of what was there; ``OverridesError`` if one does not fit."""
        ...

    def seed(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> PromptOverrides:
        """What is stored; if nothing is, store the prompt's own words, to be edited."""
        ...

    def delete(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> bool:
        """Forget the prompt's overrides under *tag*; whether there were any."""
        ...


@dataclass(frozen=True, slots=True)
class _File:
    """What one file holds."""

    version: int
    overrides: PromptOverrides


class LocalPromptOverridesStore:
    """Overrides as JSON files in one directory, one file per prompt and tag.

    A write replaces the whole file at once, so a reader sees the old or the new. Every
    method raises ``OverridesError`` when the file cannot be read or written.

    Args:
        directory: Made when something is first written.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def path(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> Path:
        """The file for the prompt and *tag*.

        Its name begins readably; the hash at its end keeps apart what reads the same.
        """
        identity = (descriptor.ns, descriptor.key, tag)
        readable = "_".join(re.sub(r"[^a-z0-9]+", "-", part.lower())[:40] for part in identity)
        return self._directory / f"{readable}_{_hash(*identity)[:12]}.json"

    def resolve(
        self, descriptor: PromptDescriptor, *, tag: str = "latest"
    ) -> PromptOverrides | None:
        """What is stored for the prompt under *tag*, stale or not; None if nothing is."""
        path = self.path(descriptor, tag=tag)
        with _reported(path):
            try:
                text = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
            stored = serde.parse_json(_File, text, what=path.name)
        if stored.version != _FILE_VERSION:
            raise OverridesError(
                f"{path} has version {stored.version}, not {_FILE_VERSION}",
                hint="Open it with the version of the package that wrote it.",
            )
        _check_identity(stored.overrides, descriptor, tag)
        return stored.overrides

    def set(self, descriptor: PromptDescriptor, overrides: PromptOverrides) -> None:
        """Store *overrides* in place of what was there.

        Raises:
            OverridesError: Also if one does not fit the prompt as it is now; nothing is stored.
        """
        _check_identity(overrides, descriptor, overrides.tag)
        problems = overrides.problems(descriptor)
        if problems:
            raise OverridesError(
                "; ".join(f"{subject}: {problem}" for subject, problem in problems.items()),
                hint="Nothing was stored; correct these and set them again.",
            )
        path = self.path(descriptor, tag=overrides.tag)
        with _reported(path):
            _write_atomically(path, serde.dump_json(_File(_FILE_VERSION, overrides), indent=2))

    def seed(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> PromptOverrides:
        """What is stored; if nothing is, store the prompt's own words, to be edited."""
        stored = self.resolve(descriptor, tag=tag)
        if stored is None:
            stored = _own_words(descriptor, tag)
            self.set(descriptor, stored)
        return stored

    def delete(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> bool:
        """Forget the prompt's overrides under *tag*; whether there were any."""
        path = self.path(descriptor, tag=tag)
        with _reported(path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        return True


def _problem_of(description: str) -> str | None:
    """What is wrong with *description* as a tool's, as a clause."""
    try:
        _described(description, tool="")
    except PromptValidationError as error:
        return error.reason
    return None


def _hash(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _own_words(descriptor: PromptDescriptor, tag: str) -> PromptOverrides:
    return PromptOverrides(
        ns=descriptor.ns,
        key=descriptor.key,
        tag=tag,
        sections={
            section.path: SectionOverride(expected_hash=section.content_hash, body=section.template)
            for section in descriptor.sections
            if section.accepts_overrides and section.template is not None
        },
        tools={
            tool.name: ToolOverride(
                expected_hash=tool.content_hash,
                description=tool.description,
                param_descriptions=tool.param_descriptions,
                param_types=tool.param_types,
                param_defaults=tool.param_defaults,
            )
            for tool in descriptor.tools
            if tool.accepts_overrides
        },
    )


def _check_identity(overrides: PromptOverrides, descriptor: PromptDescriptor, tag: str) -> None:
    wanted, given = (
        (descriptor.ns, descriptor.key, tag),
        (overrides.ns, overrides.key, overrides.tag),
    )
    if wanted != given:
        raise OverridesError(
            f"overrides of {'/'.join(given)} where {'/'.join(wanted)} is meant",
            hint="ns, key and tag must be those of the prompt.",
        )


@contextlib.contextmanager
def _reported(path: Path) -> Generator[None]:
    """Turn what can go wrong with a file into the error that names it."""
    try:
        yield
    except (OSError, UnicodeDecodeError, ParseError) as error:
        raise OverridesError(
            f"{path}: {error}", hint="Correct the file, or delete it to start afresh."
        ) from error


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
