"""The file section in prompts: its files, names, text and policies."""

from __future__ import annotations

from typing import Any

import pytest
from support import executor_of, small_workspace

from wink_workspace.errors import PromptValidationError, UsageError
from wink_workspace.filesystem import Filesystem, FilesystemLimits, MemoryFilesystem
from wink_workspace.prompt import (
    MarkdownSection,
    Prompt,
    ReadBeforeWritePolicy,
    Section,
    SequentialDependencyPolicy,
)
from wink_workspace.resources import Binding
from wink_workspace.runtime import CallOutcome, ToolCall
from wink_workspace.sections import FileToolLimits, VfsToolsSection, file_tools
from wink_workspace.session import Session

NAMES = ["ls", "read_file", "write_file", "edit_file", "apply_patch", "glob", "grep", "rm", "mv"]


def prompt_of(*sections: Section[Any]) -> Prompt[None]:
    return Prompt(ns="tests", key="files", sections=sections)


def call_once(prompt: Prompt[None], name: str, **arguments: object) -> CallOutcome:
    """Make one call, with the prompt's resources opened for it."""
    session = Session()
    prompt.install(session)
    with prompt.resources:
        return executor_of(prompt, session).execute(ToolCall.of(name, arguments, id="1"))


def test_the_tools_come_in_a_fixed_order() -> None:
    assert [tool.name for tool in VfsToolsSection().tools()] == NAMES


def test_tools_act_on_the_files_passed_to_the_section() -> None:
    files = MemoryFilesystem({"a.txt": "text\n"})
    call_once(prompt_of(VfsToolsSection(files)), "write_file", file_path="b.txt", content="")
    assert files.exists("b.txt")


def test_a_section_without_files_starts_empty_each_time_it_is_opened() -> None:
    prompt = prompt_of(VfsToolsSection())
    for _ in range(2):
        outcome = call_once(prompt, "write_file", file_path="a.txt", content="")
        assert outcome.text.startswith("Created a.txt")


def test_files_may_come_from_a_binding() -> None:
    binding = Binding(Filesystem, lambda _: MemoryFilesystem({"made.txt": "text\n"}))
    assert "made.txt" in call_once(prompt_of(VfsToolsSection(binding)), "ls").text


def test_files_bound_to_the_prompt_replace_those_of_the_section() -> None:
    prompt = prompt_of(VfsToolsSection(MemoryFilesystem({"mine.txt": ""})))
    prompt.bind(resources={Filesystem: MemoryFilesystem({"yours.txt": ""})})
    assert "yours.txt" in call_once(prompt, "ls").text


@pytest.mark.behaviour(21)
def test_tools_without_a_filesystem_answer_that_none_is_bound() -> None:
    section = MarkdownSection(title="Tools", template="", tools=file_tools())
    outcome = call_once(prompt_of(section), "ls")
    assert not outcome.result.success
    assert outcome.text.startswith("No filesystem is bound to this prompt, so there are no files.")


@pytest.mark.behaviour(13)
def test_a_prefix_renames_tools_text_and_key_together() -> None:
    section = VfsToolsSection(prefix="vfs_")
    assert [tool.name for tool in section.tools()] == [f"vfs_{name}" for name in NAMES]
    assert section.key == "vfs_files"
    assert all(f"`vfs_{name}`" in section.body(None) for name in NAMES)


@pytest.mark.behaviour(13)
def test_two_file_sections_work_side_by_side_on_the_same_files() -> None:
    files = MemoryFilesystem({"a.txt": "text\n"})
    prompt = prompt_of(VfsToolsSection(files), VfsToolsSection(files, prefix="other_"))
    assert len(prompt.tools()) == 2 * len(NAMES)
    assert call_once(prompt, "other_ls").text == call_once(prompt, "ls").text


@pytest.mark.behaviour(13)
def test_two_sections_without_files_share_one_filesystem() -> None:
    sections = [VfsToolsSection(), VfsToolsSection(prefix="other_")]
    with small_workspace(sections=sections) as agent:
        agent.call("write_file", file_path="a.txt", content="one")
        assert "a.txt" in agent.call("other_ls").text


@pytest.mark.behaviour(4)
def test_two_sections_with_equal_tools_are_refused_with_their_names() -> None:
    with pytest.raises(PromptValidationError, match="ls") as caught:
        prompt_of(VfsToolsSection(), VfsToolsSection(key="again"))
    assert "files" in str(caught.value)
    assert "again" in str(caught.value)


def test_read_before_write_is_the_default_policy() -> None:
    assert VfsToolsSection().policies == (ReadBeforeWritePolicy(),)
    assert "before you edit, patch or overwrite" in VfsToolsSection().body(None)
    free = VfsToolsSection(policies=())
    assert free.policies == ()
    assert "before you edit, patch or overwrite" not in free.body(None)


def test_a_section_without_the_policy_overwrites_unread_files() -> None:
    section = VfsToolsSection(MemoryFilesystem({"a.txt": "text\n"}), policies=())
    outcome = call_once(prompt_of(section), "write_file", file_path="a.txt", content="")
    assert outcome.result.success


def test_other_policies_may_be_combined_with_it() -> None:
    first = SequentialDependencyPolicy(dependencies={"rm": frozenset({"ls"})})
    section = VfsToolsSection(policies=(first, ReadBeforeWritePolicy()))
    assert section.policies == (first, ReadBeforeWritePolicy())
    assert "before you edit, patch or overwrite" in section.body(None)


def test_resources_of_the_caller_are_added_to_the_files() -> None:
    section = VfsToolsSection(resources={FileToolLimits: FileToolLimits()})
    assert set(section.resources) == {Filesystem, FileToolLimits}


def test_the_text_states_the_limits_of_files_and_answers() -> None:
    files = MemoryFilesystem(limits=FilesystemLimits(read_lines=77, write_bytes=8_888))
    text = VfsToolsSection(files, limits=FileToolLimits(result_chars=555)).body(None)
    assert "555 characters per result" in text
    assert "77 lines per read" in text
    assert "8,888 bytes per write" in text


def test_the_text_fills_lines_of_at_most_100_characters() -> None:
    assert max(map(len, VfsToolsSection().body(None).split("\n"))) <= 100


@pytest.mark.behaviour(10)
def test_descriptions_constraints_and_defaults_reach_the_provider() -> None:
    schema = prompt_of(VfsToolsSection()).render().tool_schema("read_file")
    offset = schema["properties"]["offset"]
    assert schema["required"] == ["file_path", "offset", "limit"]
    assert "counted from 1" in offset["description"]
    assert "1" in offset["description"]


@pytest.mark.parametrize("limits", [{"result_chars": 0}, {"diff_chars": -1}, {"write_bytes": 0}])
def test_limits_below_one_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="not positive"):
        FileToolLimits(**limits)


@pytest.mark.behaviour(55)
def test_a_link_made_by_a_patch_does_not_mark_its_target_as_read() -> None:
    files = MemoryFilesystem({"unread.txt": "not read yet\n"})
    link = """\
diff --git a/link b/link
new file mode 120000
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+unread.txt
\\ No newline at end of file
"""
    with small_workspace(sections=[VfsToolsSection(files)], filesystem=files) as workspace:
        assert workspace.call("apply_patch", patch=link).result.success
        outcome = workspace.call("write_file", file_path="unread.txt", content="over it")
    assert not outcome.result.success
    assert files.read_bytes("unread.txt") == b"not read yet\n"
