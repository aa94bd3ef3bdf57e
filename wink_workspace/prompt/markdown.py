"""Sections with text: three spellings of one thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from typing_extensions import TypeVar

from .section import Section, SectionOptions
from .tool import Tool

__all__ = ["MarkdownSection", "TextSection", "ToolsSection"]

P = TypeVar("P", default=None)


class MarkdownSection(Section[P]):
    """A section whose body is a Markdown template: ``MarkdownSection[Params](title=…, …)``.

    Args:
        title: The heading.
        template: The body, dedented. ``${field}`` shows a field of the params, ``$${`` a
            literal ``${``; any other dollar is itself.
        tools: What the section explains.
        options: As for ``Section``.

    Raises:
        PromptValidationError: If a placeholder in *template* is malformed or no field of the
            params.
    """

    def __init__(
        self,
        title: str,
        template: str,
        *,
        tools: Sequence[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[P]],
    ) -> None:
        super().__init__(title, tools=tools, **options)
        self._template = self._parsed(template, "template")

    @property
    def template(self) -> str:
        """The body before values are put in."""
        return self._template.text

    def body(self, params: P | None, *, override: str | None = None) -> str:
        """The template with the fields of *params* put in; see ``Section.body``."""
        template = self._template if override is None else self._parsed(override, "template")
        return template.fill(params)


class TextSection(MarkdownSection[P]):
    """A ``MarkdownSection`` spelled ``TextSection(title=…, body=…, params=Params)``."""

    def __init__(
        self,
        title: str,
        body: str,
        *,
        tools: Sequence[Tool[Any, Any]] = (),
        **options: Unpack[SectionOptions[P]],
    ) -> None:
        super().__init__(title, body, tools=tools, **options)


class ToolsSection(MarkdownSection[P]):
    """Tools under a heading of their own, with or without words about them.

    Args:
        title: The heading.
        tools: What the section is about; the text does not list them.
        description: The body, a template; nothing when omitted.
        options: As for ``Section``.
    """

    def __init__(
        self,
        title: str,
        tools: Sequence[Tool[Any, Any]],
        description: str | None = None,
        **options: Unpack[SectionOptions[P]],
    ) -> None:
        super().__init__(title, description or "", tools=tools, **options)
