"""``AGENTS.md`` and ``CLAUDE.md`` in the prompt of a run."""

from __future__ import annotations

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.project import notes_section, project_notes
from wink_workspace.prompt import Prompt


def rendered(files: MemoryFilesystem) -> str:
    notes = project_notes(files)
    assert notes is not None
    prompt = Prompt[None](ns="test", key="notes", sections=[notes_section()]).bind(notes)
    return prompt.render().text


def test_notes_are_shown_as_text_of_the_repository() -> None:
    text = rendered(MemoryFilesystem({"AGENTS.md": "Use ${tabs}.\n", "CLAUDE.md": "Be kind."}))
    assert "From AGENTS.md:\n\nUse ${tabs}." in text
    assert "From CLAUDE.md:\n\nBe kind." in text
    assert "not from the user" in text


def test_equal_files_are_shown_once() -> None:
    text = rendered(MemoryFilesystem({"AGENTS.md": "Same.", "CLAUDE.md": "Same.\n"}))
    assert text.count("Same.") == 1


def test_long_notes_are_cut_with_a_notice() -> None:
    notes = project_notes(MemoryFilesystem({"AGENTS.md": b"\xff" + b"x" * 100_000}))
    assert notes is not None
    assert len(notes.notes) < 17_000
    assert "The rest of AGENTS.md is left out; read the file." in notes.notes


def test_missing_empty_and_unreadable_files_give_no_notes() -> None:
    assert project_notes(MemoryFilesystem()) is None
    files = MemoryFilesystem({"AGENTS.md": " \n", "CLAUDE.md/x": "a directory"})
    files.make_symlink("LINK.md", "../outside") if hasattr(files, "make_symlink") else None
    assert project_notes(files) is None
