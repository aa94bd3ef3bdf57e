"""Which sections of a prompt are open: STATE of the session.

So it is rolled back, stored and restored. A prompt rendered without a session uses the visibility
that its author set. The tools that open sections are in ``disclosure_tools``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wink_workspace.session import Replace, SliceKind

from .visibility import SectionVisibility

if TYPE_CHECKING:
    from wink_workspace.session import Session, SessionProtocol, SliceOp, SliceView

    from .section import Section


@dataclass(frozen=True, slots=True)
class SetVisibility:
    """The event that opens or closes a section.

    Attributes:
        section_key: Its dotted path.
        visibility: How it is shown from now on.
        prompt: The ``ns/key`` of the prompt, as two prompts on one session may have sections with
            one path; empty for every prompt.
    """

    section_key: str
    visibility: SectionVisibility
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class VisibilityOverrides:
    """STATE slice, one value: ``sections`` has the changed visibilities by key.

    A key is a dotted path, or ``ns/key:`` and a path for one prompt only, which takes precedence.
    Closing a section without a summary has no effect.
    """

    sections: Mapping[str, SectionVisibility] = field(default_factory=dict[str, SectionVisibility])

    @staticmethod
    def of(session: SessionProtocol | None) -> VisibilityOverrides:
        """The overrides of *session*; empty without a session."""
        latest = None if session is None else session[VisibilityOverrides].latest()
        return latest or VisibilityOverrides()

    def of_section(
        self, path: str, section: Section[Any], *, prompt: str = ""
    ) -> SectionVisibility:
        """The visibility of *section* at *path* of a prompt; ``FULL`` if it has no summary."""
        if section.summary is None:
            return SectionVisibility.FULL
        everywhere = self.sections.get(path, section.visibility)
        return self.sections.get(_override_key(path, prompt), everywhere)

    @staticmethod
    def install(session: Session) -> None:
        """Register the reducer of ``SetVisibility``; may be called again."""
        slice_ = session[VisibilityOverrides]
        slice_.register(SetVisibility, _set_visibility, kind=SliceKind.STATE)


def _set_visibility(
    view: SliceView[VisibilityOverrides], event: SetVisibility
) -> SliceOp[VisibilityOverrides]:
    before = view.latest() or VisibilityOverrides()
    after = {**before.sections, _override_key(event.section_key, event.prompt): event.visibility}
    return Replace((VisibilityOverrides(after),))


def _override_key(path: str, prompt: str) -> str:
    return f"{prompt}:{path}" if prompt else path
