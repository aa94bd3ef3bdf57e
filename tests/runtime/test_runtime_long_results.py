"""A long result of any tool reaches the model as head, tail and the path of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import MOST_TEXT_CHARS, ToolCall
from wink_workspace.sections import VfsToolsSection
from wink_workspace.workspace import Workspace

N_LINES = 400_000
WHOLE = "".join(f"{n:,}: a line of output\n" for n in range(N_LINES))  # 10 MB


@dataclass(frozen=True, slots=True)
class NoParams:
    """No parameters."""


def section(answer: ToolResult[str]) -> MarkdownSection[None]:
    def handle(params: NoParams, *, context: ToolContext) -> ToolResult[str]:
        return answer

    tool = Tool[NoParams, str](name="report", description="Report.", handler=handle)
    return MarkdownSection(title="Reports", template="", tools=[tool])


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    source = tmp_path / "source"
    source.mkdir()
    (source / "many.txt").write_text("a hit in this line\n" * 30_000)
    for n in range(20):
        (source / f"f{n}.txt").write_text("one hit\n" * 2_500)
    with Workspace.temporary(source) as opened:
        yield opened


def answer(workspace: Workspace, call: ToolCall, *sections: MarkdownSection[None]) -> str:
    prompt = Prompt[None](ns="t", key="t", sections=[VfsToolsSection(), *sections])
    return workspace.execute(prompt, call).text


def read(workspace: Workspace, path: str, offset: int) -> str:
    return answer(workspace, ToolCall("read_file", file_path=path, offset=offset, limit=2))


@pytest.mark.behaviour(209)
def test_text_of_10_mb_is_head_tail_and_a_path_that_read_file_opens_in_parts(
    workspace: Workspace,
) -> None:
    text = answer(workspace, ToolCall("report"), section(ToolResult.ok(WHOLE)))
    assert len(text) < MOST_TEXT_CHARS
    assert text.startswith("0: a line of output\n1: a line")
    assert text.endswith("399,999: a line of output\n")
    assert "characters left out; the whole is in .wink-output/report.txt: read it" in text
    assert "200,000: a line of output" in read(workspace, ".wink-output/report.txt", 200_001)
    assert not workspace.changeset().paths  # it is not applied to the source


@pytest.mark.behaviour(209)
def test_one_long_line_is_stored_in_lines_that_read_file_shows_whole(workspace: Workspace) -> None:
    answer(workspace, ToolCall("report"), section(ToolResult.ok("x" * 10_000_000)))
    shown = read(workspace, ".wink-output/report.txt", 9_999)
    assert "lines 9,999 to 10,000, the last" in shown
    assert shown.count("x" * 1_000) == 2
    assert "cut" not in shown


@pytest.mark.behaviour(209)
def test_search_with_50_000_hits_shows_the_first_and_stores_all(workspace: Workspace) -> None:
    text = answer(workspace, ToolCall("grep", pattern="one hit"))
    assert text.startswith("The first 1,000 lines")
    assert text.endswith("[the whole is in .wink-output/grep.txt: read it in parts, or search it]")
    stored = workspace.files.read_bytes(".wink-output/grep.txt").decode()
    assert stored.count("one hit") == 50_000
    record = workspace.record(next(iter(workspace.log())))
    assert len(str(record.data)) < 300_000  # not all of them


@pytest.mark.behaviour(209)
def test_long_diff_of_an_edit_is_stored_whole(workspace: Workspace) -> None:
    answer(workspace, ToolCall("read_file", file_path="many.txt"))
    edit = ToolCall(
        "edit_file", file_path="many.txt", old_string="hit", new_string="miss", replace_all=True
    )
    text = answer(workspace, edit)
    assert "the whole is in .wink-output/edit_file.txt" in text
    diff = workspace.files.read_bytes(".wink-output/edit_file.txt").decode()
    assert diff.count("\n+a miss in this line") == 30_000


@pytest.mark.behaviour(209)
def test_result_that_fits_is_unchanged_and_stores_nothing(workspace: Workspace) -> None:
    fits = "y" * MOST_TEXT_CHARS
    assert answer(workspace, ToolCall("report"), section(ToolResult.ok(fits))) == fits
    assert not workspace.files.exists(".wink-output")


def test_failed_call_leaves_no_file_and_names_none(workspace: Workspace) -> None:
    text = answer(workspace, ToolCall("report"), section(ToolResult.error(WHOLE)))
    assert "characters left out …]" in text
    assert ".wink-output" not in text
    assert not workspace.files.exists(".wink-output")


def test_without_a_place_for_it_the_text_is_only_cut(workspace: Workspace) -> None:
    files = MemoryFilesystem()
    prompt = Prompt[None](ns="t", key="t", sections=[section(ToolResult.ok(WHOLE))])
    prompt.bind(resources={Filesystem: files})
    from wink_workspace import ModelTurn, ScriptedAdapter, Session
    from wink_workspace.session import ToolInvoked

    session = Session()
    script = [ModelTurn(tool_calls=[ToolCall("report")]), ModelTurn("Done.")]
    ScriptedAdapter(script).evaluate(prompt, session=session)
    record = session[ToolInvoked].latest()
    assert record is not None
    assert "characters left out …]" in record.text
    assert not files.list()


def test_file_in_place_of_the_directory_costs_only_the_path(workspace: Workspace) -> None:
    workspace.files.write_text(".wink-output", "a file of the user")
    text = answer(workspace, ToolCall("report"), section(ToolResult.ok(WHOLE)))
    assert "characters left out …]" in text
    assert workspace.files.read_bytes(".wink-output") == b"a file of the user"


@pytest.mark.parametrize("link", [".wink-output", ".wink-output/report.txt"])
def test_link_in_the_source_does_not_lead_to_a_file_of_the_user(
    workspace: Workspace, link: str
) -> None:
    workspace.files.write_text("src/report.txt", "of the user")
    target = "src" if link == ".wink-output" else "../src/report.txt"
    workspace.files.symlink(link, target)
    text = answer(workspace, ToolCall("report"), section(ToolResult.ok(WHOLE)))
    assert "characters left out …]" in text
    assert workspace.files.read_bytes("src/report.txt") == b"of the user"
