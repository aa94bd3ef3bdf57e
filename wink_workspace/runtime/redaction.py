"""The redaction of what calls leave behind: results, records, and texts for a model.

No text of a record has a lone surrogate, such as a byte of a file that is not UTF-8: U+FFFD
replaces it. Values keep theirs, because a path with U+FFFD would name another file.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wink_workspace import serde

if TYPE_CHECKING:
    from wink_workspace.prompt import ToolResult
    from wink_workspace.session import ToolInvoked


_log = logging.getLogger(__name__)

_TEXTS = ("message", "rendered_text", "text", "decisions", "error", "outside_effects")
_WITHHELD = "[withheld: it could not be redacted]"


class Redaction:
    """Redacts the strings of one owner's calls.

    Args:
        redact: Applied to every string of parameters and results before they enter the session,
            the journal, telemetry or a model's context; ``None`` changes nothing.
    """

    def __init__(self, redact: Callable[[str], str] | None) -> None:
        self._redact = redact

    def text(self, text: str) -> str:
        """*text* redacted, or a note if *redact* raises, so that a failed call has a record too."""
        if self._redact is None:
            return text
        try:
            return self._redact(text)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            # without its traceback, which may hold the text
            _log.error("The redactor raised %s; the text is withheld", type(error).__name__)
            return _WITHHELD

    def result(self, result: ToolResult[Any], *, failed: bool = False) -> ToolResult[Any]:
        """*result* with redacted strings; raises what *redact* raises unless the call *failed*."""
        if self._redact is None:
            return result
        return serde.map_strings(result, self.text if failed else self._redact)

    def event(self, event: ToolInvoked, *, failed: bool) -> ToolInvoked:
        """*event* with its other strings redacted too; its result must be redacted already."""
        if self._redact is not None:
            redact = self.text if failed else self._redact
            try:
                params = serde.map_strings(event.params, redact)
            except Exception:  # noqa: BLE001 - raw arguments may have any type
                params = _WITHHELD
            event = dataclasses.replace(
                event,
                params=params,
                rendered_text=redact(event.rendered_text),
                text=redact(event.text),
                decisions=serde.map_strings(event.decisions, redact),
                error=None if event.error is None else redact(event.error),
            )
        texts = {
            name: serde.map_strings(getattr(event, name), serde.well_formed) for name in _TEXTS
        }
        return dataclasses.replace(event, **texts)
