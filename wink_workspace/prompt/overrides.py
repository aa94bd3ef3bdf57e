"""Overrides: texts that replace those of a prompt without changing code, and a store for them.

Rule 1: an override names the hash of the text that it was written for. If the section or tool has
changed since, the override is not applied, and a warning is logged.
Rule 2: only texts can be replaced: a section's body, a tool's description, and the description,
type and default shown for a parameter. Names, real types and handlers stay.
Rule 3: an override that a section or tool does not accept is refused when it is stored; one that
was written to the file in another way is not applied.
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

_log = logging.getLogger(__name__)

_FILE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionDescriptor:
    """A section as an override of its body refers to it.

    Attributes:
        path: The section's keys from the root, joined by dots.
        content_hash: SHA-256 of its template and summary, in hexadecimal.
        template: The text itself; None if the body is not a template.
        placeholders: The names that a new text may use.
        accepts_overrides: Whether it may be replaced.
    """

    path: str
    content_hash: str
    template: str | None
    placeholders: tuple[str, ...]
    accepts_overrides: bool

    @classmethod
    def of(cls, path: str, section: Section[Any]) -> SectionDescriptor:
        """Describe *section* at *path*."""
        return cls(
            path=path,
            content_hash=_hash(section.template, section.summary),
            template=section.template,
            placeholders=section.placeholders,
            accepts_overrides=section.accepts_overrides,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDescriptor:
    """A tool as an override of its texts refers to it.

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
    """A prompt's identity and the hashes of its ``sections`` and ``tools``, in their order."""

    ns: str
    key: str
    sections: tuple[SectionDescriptor, ...]
    tools: tuple[ToolDescriptor, ...]

    def section(self, path: str) -> SectionDescriptor | None:
        """The section at *path*, or ``None``."""
        return next((section for section in self.sections if section.path == path), None)

    def tool(self, name: str) -> ToolDescriptor | None:
        """The tool with the name *name*, or ``None``."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionOverride:
    """A new body for a section; ``body`` is a template like the one it replaces."""

    expected_hash: str
    body: str

    def problem(self, section: SectionDescriptor | None) -> str | None:
        """Why this cannot replace *section*'s body, as a clause; None if it can."""
        if section is None:
            return "there is no such section"
        if not section.accepts_overrides:
            return "it does not accept overrides"
        if section.template is None:
            return "its body is not a template"
        if section.content_hash != self.expected_hash:
            return "the section has changed since the override was written"
        try:
            Template.parse(self.body, section.placeholders, section_path=(), field="body")
        except PromptValidationError as error:
            return error.reason
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """New texts for a tool; None and missing parameters keep their own.

    ``param_descriptions``, ``param_types`` and ``param_defaults`` are shown to the model. The
    values that ``parse`` accepts, and the default it fills in, do not change.
    """

    expected_hash: str
    description: str | None = None
    param_descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    param_types: Mapping[str, str] = field(default_factory=dict[str, str])
    param_defaults: Mapping[str, str] = field(default_factory=dict[str, str])

    def problem(self, tool: ToolDescriptor | None) -> str | None:
        """Why this cannot replace *tool*'s texts, as a clause; None if it can."""
        if tool is None:
            return "there is no such tool"
        if not tool.accepts_overrides:
            return "it does not accept overrides"
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

    The keys of ``sections`` are dotted paths, those of ``tools`` are names.
    """

    ns: str
    key: str
    tag: str = "latest"
    sections: Mapping[str, SectionOverride] = field(default_factory=dict[str, SectionOverride])
    tools: Mapping[str, ToolOverride] = field(default_factory=dict[str, ToolOverride])

    def problems(self, descriptor: PromptDescriptor) -> dict[str, str]:
        """Why overrides do not apply to *descriptor*, by ``section a.b`` or ``tool x``."""
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
        """The overrides that apply to *descriptor*; a warning is logged for each of the others."""
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
    """A store of overrides. A prompt calls only ``resolve``."""

    def resolve(
        self, descriptor: PromptDescriptor, *, tag: str = "latest"
    ) -> PromptOverrides | None:
        """The overrides stored for the prompt under *tag*, stale ones too, or None."""
        ...

    def set(self, descriptor: PromptDescriptor, overrides: PromptOverrides) -> None:
        """Replace the stored overrides; ``OverridesError`` if one does not apply."""
        ...

    def seed(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> PromptOverrides:
        """The overrides under *tag*; if there are none, store the prompt's texts for editing."""
        ...

    def delete(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> bool:
        """Delete the prompt's overrides under *tag*; ``False`` if there were none."""
        ...


@dataclass(frozen=True, slots=True)
class _File:
    """The content of one file."""

    version: int
    overrides: PromptOverrides


class LocalPromptOverridesStore:
    """Overrides as JSON files in one directory, one file per prompt and tag.

    A write replaces the whole file atomically. Every method raises ``OverridesError`` if the file
    cannot be read or written.

    Args:
        directory: Created by the first write.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def path(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> Path:
        """The file for the prompt and *tag*.

        The name starts with readable parts; the hash at its end makes it unique.
        """
        identity = (descriptor.ns, descriptor.key, tag)
        readable = "_".join(re.sub(r"[^a-z0-9]+", "-", part.lower())[:40] for part in identity)
        return self._directory / f"{readable}_{_hash(*identity)[:12]}.json"

    def resolve(
        self, descriptor: PromptDescriptor, *, tag: str = "latest"
    ) -> PromptOverrides | None:
        """The overrides stored for the prompt under *tag*, stale ones too, or None.

        Raises:
            OverridesError: If the file cannot be read, or has another prompt or version.
        """
        path = self.path(descriptor, tag=tag)
        with _file_errors(path):
            try:
                text = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
            stored = serde.parse_json(_File, text, what=path.name)
        if stored.version != _FILE_VERSION:
            raise OverridesError(
                f"{path} has version {stored.version}, not {_FILE_VERSION}",
                hint="Use the version of wink_workspace that wrote the file.",
            )
        _check_identity(stored.overrides, descriptor, tag)
        return stored.overrides

    def set(self, descriptor: PromptDescriptor, overrides: PromptOverrides) -> None:
        """Replace the stored overrides.

        Raises:
            OverridesError: Also if one does not apply to the present prompt; nothing is stored.
        """
        _check_identity(overrides, descriptor, overrides.tag)
        problems = overrides.problems(descriptor)
        if problems:
            raise OverridesError(
                "; ".join(f"{subject}: {problem}" for subject, problem in problems.items()),
                hint="Nothing was stored; correct these overrides and store them again.",
            )
        path = self.path(descriptor, tag=overrides.tag)
        with _file_errors(path):
            _write_atomically(path, serde.dump_json(_File(_FILE_VERSION, overrides), indent=2))

    def seed(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> PromptOverrides:
        """The overrides under *tag*; if there are none, store the prompt's texts for editing."""
        stored = self.resolve(descriptor, tag=tag)
        if stored is None:
            stored = _own_texts(descriptor, tag)
            self.set(descriptor, stored)
        return stored

    def delete(self, descriptor: PromptDescriptor, *, tag: str = "latest") -> bool:
        """Delete the prompt's overrides under *tag*; ``False`` if there were none."""
        path = self.path(descriptor, tag=tag)
        with _file_errors(path):
            try:
                path.unlink()
            except FileNotFoundError:
                return False
        return True


def _problem_of(description: str) -> str | None:
    """Why *description* is not valid for a tool, as a clause."""
    try:
        _described(description, tool="")
    except PromptValidationError as error:
        return error.reason
    return None


def _hash(*parts: object) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _own_texts(descriptor: PromptDescriptor, tag: str) -> PromptOverrides:
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
            f"these overrides are for {'/'.join(given)}, not for {'/'.join(wanted)}",
            hint="Set ns, key and tag to those of the prompt.",
        )


@contextlib.contextmanager
def _file_errors(path: Path) -> Generator[None]:
    """Translate errors of reading or writing *path* into ``OverridesError``."""
    try:
        yield
    except (OSError, UnicodeDecodeError, ParseError) as error:
        raise OverridesError(
            f"{path}: {error}", hint="Correct the file, or delete it to remove the overrides."
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
