"""``AGENTS.md`` and ``CLAUDE.md`` in the prompt of a run."""

from __future__ import annotations

from pathlib import Path

from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.prompt import Prompt
from wink_workspace.sections import notes_section, project_notes


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


def test_notes_of_directories_below_come_before_those_above_them() -> None:
    files = MemoryFilesystem(
        {
            "AGENTS.md": "Top.", "a/AGENTS.md": "Of a.", "a/b/CLAUDE.md": "Of b.",
            "a/b/AGENTS.md": "Of b.", "node_modules/x/AGENTS.md": "Of a dependency.",
        }
    )  # fmt: skip
    text = rendered(files)
    places = [text.index(each) for each in ("a/b/AGENTS.md", "a/AGENTS.md", "From AGENTS.md")]
    assert places == sorted(places)
    assert text.count("Of b.") == 1
    assert "dependency" not in text
    assert "the nearest one above it applies" in text


def test_many_notes_are_bounded_and_the_upper_ones_are_shown() -> None:
    long = "x" * 16_000
    notes = project_notes(MemoryFilesystem({f"d{n}/AGENTS.md": f"{n}{long}" for n in range(9)}))
    assert notes is not None
    assert len(notes.notes) < 70_000
    assert notes.notes.count("read it before you work there") == 5
    assert "From d8/AGENTS.md" in notes.notes


def test_notes_above_a_source_apply_up_to_the_top_of_its_repository(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Outside of the repository.")
    source = tmp_path / "repository" / "packages" / "one"
    source.mkdir(parents=True)
    (tmp_path / "repository" / "AGENTS.md").write_text("Of the repository.")
    (tmp_path / "secret").write_text("A secret.")
    (source.parent / "AGENTS.md").symlink_to(tmp_path / "secret")
    (source.parent / "CLAUDE.md").write_text("Of all packages.")
    files = MemoryFilesystem({"AGENTS.md": "Of one."})

    def notes(source: Path) -> str:
        found = project_notes(files, source)
        return "" if found is None else found.notes

    assert notes(source) == "From AGENTS.md:\n\nOf one.", "there is no repository"
    (tmp_path / "repository" / ".git").mkdir()
    assert notes(source).split("\n\n") == [
        "From AGENTS.md:", "Of one.", "From ../CLAUDE.md:", "Of all packages.",
        "From ../../AGENTS.md:", "Of the repository.",
    ]  # fmt: skip
    (source / ".git").mkdir()
    assert notes(source) == "From AGENTS.md:\n\nOf one.", "the source is a repository"
