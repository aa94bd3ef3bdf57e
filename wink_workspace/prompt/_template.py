"""Text with ``${placeholders}``, checked when it is parsed and filled when it is rendered.

Rule 1: only ``${name}`` is a placeholder; a dollar that is not followed by ``{`` is a dollar.
Rule 2: in a run of dollars before ``{`` each pair gives one dollar, and an odd one opens a
placeholder: ``$${HOME}`` gives ``${HOME}``, ``$$${price}`` gives a dollar and the price.
Rule 3: a ``${`` that does not open a valid placeholder is an error: it is usually a mistake.
Rule 4: values are inserted unchanged, neither indented nor expanded again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

from wink_workspace.errors import PromptValidationError

_PLACEHOLDER = re.compile(r"(?P<dollars>\$+)\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)\})?")
_EXCERPT_CHARS = 30


@dataclass(frozen=True, slots=True)
class Template:
    """Dedented text whose placeholders were checked against the names of the params."""

    text: str

    @classmethod
    def parse(
        cls, text: str, names: Sequence[str], *, section_path: Sequence[str], field: str
    ) -> Template:
        """Dedent *text* and check that its placeholders are among *names*.

        Args:
            text: The text, usually an indented triple-quoted string.
            names: The fields of the section's params.
            section_path: The section of the text; named in errors.
            field: The argument that holds the text; named in errors.

        Raises:
            PromptValidationError: If a placeholder is malformed or not among *names*.
        """
        text = dedent(text).strip("\n").rstrip()
        for match in _PLACEHOLDER.finditer(text):
            problem = _problem(match, names)
            if problem is not None:
                raise PromptValidationError(
                    problem,
                    section_path=section_path,
                    field=field,
                    hint="Write '${field}' for a field of the section's params"
                    + (f" ({', '.join(names)})" if names else " (it has none)")
                    + " and '$${' for a literal '${'.",
                )
        return cls(text)

    def fill(self, params: object) -> str:
        """The text, each placeholder replaced by ``str`` of that attribute of *params*."""

        def replacement(match: re.Match[str]) -> str:
            literal = "$" * (len(match["dollars"]) // 2)
            if _opens(match):
                return literal + str(getattr(params, match["name"]))
            return literal + match[0].lstrip("$")

        return _PLACEHOLDER.sub(replacement, self.text)


def _opens(match: re.Match[str]) -> bool:
    return len(match["dollars"]) % 2 == 1


def _problem(match: re.Match[str], names: Sequence[str]) -> str | None:
    if not _opens(match):
        return None
    if match["name"] is None:
        rest = match.string[match.end("dollars") - 1 :].partition("\n")[0]
        return f"malformed placeholder at {rest[:_EXCERPT_CHARS]!r}"
    if match["name"] not in names:
        return f"unknown placeholder '${{{match['name']}}}'"
    return None
