"""The console that prints no control characters except those of its own styles."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from .display import printable

__all__ = ["SafeConsole"]


class SafeConsole(Console):
    """Prints no control characters except those of its own styles.

    Names of tools, paths and the words of a model may hold escape sequences. All printed text
    passes ``render``, so no call of ``print`` can forget to filter it.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        """The segments of *renderable* with control characters replaced."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)
