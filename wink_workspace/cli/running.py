"""A run over the files of a directory or a workspace: what is put together, what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from wink_workspace.adapters import ProviderAdapter
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import Filesystem, HostMount, MemoryFilesystem, render_diff
from wink_workspace.prompt import MarkdownSection, Prompt, Section
from wink_workspace.sections import PlanningToolsSection, VfsToolsSection
from wink_workspace.session import Session, ToolInvoked

__all__ = ["Run", "RunReport", "file_sections", "write_patch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run came to; ``patch`` is a git-style diff against the source, empty for none."""

    answer: str
    calls: tuple[ToolInvoked, ...]
    changed_paths: tuple[str, ...]
    patch: str


def file_sections(files: Filesystem) -> list[Section[None]]:
    """The sections that every run has: its task, its files, its plan."""
    return [
        MarkdownSection(
            title="Task",
            template="Work on the files of this workspace. Each call can be undone; take your time.",
        ),
        VfsToolsSection(files),
        PlanningToolsSection(),
    ]


class Run:
    """One evaluation over *files*.

    Args:
        files: What the run works on.
        session: Where it leaves its state; a new one when left out.
        more_sections: Beside the files and the plan.
    """

    def __init__(
        self,
        files: Filesystem,
        *,
        session: Session | None = None,
        more_sections: tuple[Section[None], ...] = (),
    ) -> None:
        self.files = files
        self.session = session or Session()
        self._before = self.files.snapshot()
        self._prompt = Prompt(
            ns="wink-workspace",
            key="run",
            name="run",
            sections=[*file_sections(self.files), *more_sections],
        )

    @classmethod
    def over_copy(cls, source: Path, *, more_sections: tuple[Section[None], ...] = ()) -> Run:
        """A run over a copy in memory of the directory *source*, which is never written.

        Raises:
            MountError: If *source* cannot be copied.
        """
        return cls(MemoryFilesystem(mounts=[HostMount(source)]), more_sections=more_sections)

    def evaluate(
        self, adapter: ProviderAdapter[None], *, display: Callable[[], AbstractContextManager[None]]
    ) -> RunReport:
        """Run *adapter* to its end inside *display*; raises what ``evaluate`` raises."""
        n_earlier = len(self.session[ToolInvoked])
        with display():
            response = adapter.evaluate(self._prompt, session=self.session)
        changes = self.files.changes(self._before)
        return RunReport(
            answer=response.text,
            calls=self.session[ToolInvoked].all()[n_earlier:],
            changed_paths=tuple(str(change.path) for change in changes),
            patch=render_diff(changes),
        )


def write_patch(path: Path, patch: str) -> None:
    """Write *patch* to *path*; ``UsageError`` if that cannot be done."""
    try:
        path.write_text(patch, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise UsageError(
            f"the patch cannot be written to {path}: {error.strerror}",
            hint="Name a file in a directory you may write to.",
        ) from error
