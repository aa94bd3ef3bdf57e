"""The file tools: the effect of each on files, and its answer to the model."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support import SmallWorkspace, call_ok, call_refused, contents, small_workspace

from wink_workspace.filesystem import FilesystemLimits, MemoryFilesystem
from wink_workspace.filesystem.disk import DiskFilesystem
from wink_workspace.prompt import MarkdownSection, Tool, ToolContext, ToolImage, ToolResult
from wink_workspace.sections import CommandOutput, FileToolLimits, VfsToolsSection


@dataclass(frozen=True)
class Command:
    """Arguments of a tool that runs commands."""

    command: str


FILES = {
    "README.md": "",
    "src/app.py": "def main():\n    print('hello')\n    return 0\n",
    "src/data.bin": b"\x00\xff",
}


@pytest.fixture
def agent() -> Iterator[SmallWorkspace]:
    with small_workspace(sections=[VfsToolsSection()], files=FILES) as agent:
        yield agent


# Listing and searching


def test_ls_shows_sizes_and_marks_links_directories_and_executables(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("run.sh", "x" * 1234)
    agent.filesystem.set_executable("run.sh", True)
    agent.filesystem.symlink("latest", "src/app.py")
    assert call_ok(agent, "ls") == (
        "., 4 entries\n\n"
        "          0  README.md\n"
        "          -  latest -> src/app.py\n"
        "      1,234  run.sh*\n"
        "          -  src/"
    )


def test_ls_of_an_empty_directory_answers_empty_directory(agent: SmallWorkspace) -> None:
    agent.filesystem.mkdir("empty")
    assert call_ok(agent, "ls", path="empty") == "empty, 0 entries\n\n(empty directory)"


def test_ls_quotes_ambiguous_names(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("odd/a\nb", "")
    agent.filesystem.write_text("odd/right\u202etxt", "")
    answer = call_ok(agent, "ls", path="odd")
    assert "'a\\nb'" in answer
    assert "'right\\u202etxt'" in answer


@pytest.mark.behaviour(48)
def test_glob_lists_one_path_per_line(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("setup.py", "")
    assert call_ok(agent, "glob", pattern="**/*.py") == "2 paths\n\nsetup.py\nsrc/app.py"
    assert call_ok(agent, "glob", pattern="*.py") == "1 path\n\nsetup.py"


def test_glob_without_a_match_suggests_a_recursive_pattern(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "glob", pattern="*.py") == (
        "0 paths\n\n(no path matches; '**/*.py' would search all directories below)"
    )
    assert call_ok(agent, "glob", pattern="**/*.rs") == "0 paths\n\n(no path matches)"


@pytest.mark.behaviour(49)
def test_grep_groups_lines_by_file_and_counts_skipped_files(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("src/util.py", "def help():\n")
    assert call_ok(agent, "grep", pattern=r"^def \w+", path="src") == (
        "2 lines in 2 files of 2 searched\n\n"
        "src/app.py\n"
        "     1\tdef main():\n"
        "src/util.py\n"
        "     1\tdef help():\n"
        "(1 binary file skipped)"
    )


def test_grep_shows_lines_around_matches_and_ignores_case(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("src/util.py", "".join(f"line {n}\n" for n in range(1, 13)))
    found = call_ok(
        agent, "grep", pattern="LINE (2|4|11)$", path="src/util.py", ignore_case=True, context=1
    )
    shown = [line.strip().partition("\t")[0] for line in found.splitlines()[3:]]
    assert shown == ["1-", "2", "3-", "4", "5-", "10-", "11", "12-"]
    assert found.startswith("3 lines in 1 file of 1 searched")
    assert "line 12" in found


def test_grep_whose_time_is_up_returns_what_it_found_and_says_how_far_it_came() -> None:
    content = {"a.txt": "xx\n", "b.txt": "x" * 5_000 + "!\n", "c.txt": "xx\n"}
    limits = FilesystemLimits(search_timeout_s=0.05)
    files = MemoryFilesystem(content, limits=limits)
    with small_workspace(sections=[VfsToolsSection(files)], filesystem=files) as agent:
        assert call_ok(agent, "grep", pattern="(x|xx)+$") == (
            "1 line in 1 file of 1 searched; stopped at b.txt after 0.05 s, before all files were "
            "searched\n\na.txt\n     1\txx\n(the time limit of 0.05 s ended the search; files "
            "after b.txt were not searched; use a narrower path or glob, or a simpler expression)"
        )


def test_grep_without_a_match_answers_no_line(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "grep", pattern="nothing", glob="*.py") == (
        "0 lines in 0 files of 1 searched\n\n(no line matches)"
    )


@pytest.mark.behaviour(43)
def test_a_dangling_link_does_not_break_searches(agent: SmallWorkspace) -> None:
    agent.filesystem.symlink("src/gone", "nowhere")
    assert "gone -> nowhere" in call_ok(agent, "ls", path="src")
    assert "src/gone" in call_ok(agent, "glob", pattern="src/*")
    assert "1 line in 1 file" in call_ok(agent, "grep", pattern="hello")


# Reading


def test_read_file_numbers_the_lines(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "read_file", file_path="src/app.py") == (
        "src/app.py, all 3 lines\n\n"
        "     1\tdef main():\n"
        "     2\t    print('hello')\n"
        "     3\t    return 0"
    )


def test_reading_on_at_the_stated_offset_gives_the_whole_file(agent: SmallWorkspace) -> None:
    lines = [f"line {n}" for n in range(1, 8)]
    agent.filesystem.write_text("long.txt", "\n".join(lines) + "\n")
    first = call_ok(agent, "read_file", file_path="long.txt", limit=4)
    assert first.startswith("long.txt, lines 1 to 4\n\n     1\tline 1\n")
    assert first.endswith("\n(more lines follow; continue with offset=5)")
    rest = call_ok(agent, "read_file", file_path="long.txt", offset=5)
    assert rest.startswith("long.txt, lines 5 to 7, the last\n\n     5\tline 5\n")
    assert rest.endswith("     7\tline 7")


def test_a_limit_above_the_filesystems_is_reduced_to_it() -> None:
    files = MemoryFilesystem(
        {"long.txt": "x\n" * 5}, limits=FilesystemLimits(read_lines=2, read_line_chars=10)
    )
    with small_workspace(sections=[VfsToolsSection()], filesystem=files) as agent:
        answer = call_ok(agent, "read_file", file_path="long.txt", limit=100)
    assert answer.endswith("     2\tx\n(more lines follow; continue with offset=3)")


def test_long_lines_are_truncated_and_counted() -> None:
    files = MemoryFilesystem({"wide.txt": "x" * 30}, limits=FilesystemLimits(read_line_chars=10))
    with small_workspace(sections=[VfsToolsSection()], filesystem=files) as agent:
        answer = call_ok(agent, "read_file", file_path="wide.txt")
    assert answer.endswith(f"     1\t{'x' * 10}\n(1 long line cut)")


def test_an_empty_file_is_reported_as_empty(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "read_file", file_path="README.md") == (
        "README.md, all 0 lines\n\n(empty file)"
    )


def test_reading_past_the_end_is_refused_and_does_not_count_as_reading(
    agent: SmallWorkspace,
) -> None:
    answer = call_refused(agent, "read_file", file_path="src/app.py", offset=4)
    assert answer == "src/app.py has no line 4. Use a smaller offset."
    call_refused(agent, "write_file", file_path="src/app.py", content="")


@pytest.mark.behaviour(47)
def test_a_binary_file_is_refused_with_a_hint(agent: SmallWorkspace) -> None:
    assert "not text" in call_refused(agent, "read_file", file_path="src/data.bin")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("src/ap.py", "src/app.py"),
        ("SRC/app.py", "src"),
        ("scr/app.py", "src"),
        ("readme.md", "README.md"),
    ],
)
def test_a_missing_file_is_answered_with_a_similar_name(
    agent: SmallWorkspace, given: str, meant: str
) -> None:
    answer = call_refused(agent, "read_file", file_path=given)
    assert answer.endswith(f"Did you mean {meant}?")


def test_a_missing_file_without_a_similar_name_is_answered_with_a_hint(
    agent: SmallWorkspace,
) -> None:
    answer = call_refused(agent, "read_file", file_path="src/zzz")
    assert answer.endswith("List the directory, or search with a glob, to find the right path.")


def test_a_dangling_link_does_not_suggest_itself(agent: SmallWorkspace) -> None:
    agent.filesystem.symlink("src/gone", "nowhere")
    assert "Did you mean" not in call_refused(agent, "read_file", file_path="src/gone")


# Changing


def test_write_file_distinguishes_created_and_overwritten_files(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "write_file", file_path="a/b.md", content="one\ntwo") == (
        "Created a/b.md\n\n7 bytes, 2 lines"
    )
    assert call_ok(agent, "write_file", file_path="a/b.md", content="é\n") == (
        "Overwrote a/b.md\n\n3 bytes, 1 line"
    )
    assert call_ok(agent, "write_file", file_path="a/b.md", content="") == (
        "Overwrote a/b.md\n\n0 bytes, 0 lines"
    )
    assert agent.filesystem.read_bytes("a/b.md") == b""


def test_edit_file_answers_with_a_diff(agent: SmallWorkspace) -> None:
    call_ok(agent, "read_file", file_path="src/app.py")
    answer = call_ok(
        agent, "edit_file", file_path="src/app.py", old_string="hello", new_string="goodbye"
    )
    assert answer.startswith("Replaced 1 occurrence in src/app.py, line 2\n\ndiff --git ")
    assert "\n-    print('hello')\n+    print('goodbye')\n" in answer


@pytest.mark.behaviour(51)
def test_edit_file_replaces_all_occurrences_only_on_request(agent: SmallWorkspace) -> None:
    call_ok(agent, "write_file", file_path="a.txt", content="x\nx\n")
    assert "or replace all of them" in call_refused(
        agent, "edit_file", file_path="a.txt", old_string="x", new_string="y"
    )
    answer = call_ok(
        agent, "edit_file", file_path="a.txt", old_string="x", new_string="y", replace_all=True
    )
    assert answer.startswith("Replaced 2 occurrences in a.txt, line 1\n")
    assert agent.filesystem.read_bytes("a.txt") == b"y\ny\n"


PATCH = """\
--- a/src/app.py
+++ b/src/app.py
@@ -1,3 +1,3 @@
 def main():
-    print('hello')
+    print('goodbye')
     return 0
--- /dev/null
+++ b/docs/new.md
@@ -0,0 +1,2 @@
+# New
+text
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-old
diff --git a/moved.txt b/kept.txt
similarity index 100%
rename from moved.txt
rename to kept.txt
"""


def test_apply_patch_lists_the_change_of_each_file(agent: SmallWorkspace) -> None:
    for path, text in (("old.txt", "old\n"), ("moved.txt", "kept\n")):
        call_ok(agent, "write_file", file_path=path, content=text)
    call_ok(agent, "read_file", file_path="src/app.py")
    assert call_ok(agent, "apply_patch", patch=PATCH) == (
        "Patched 4 files\n\n"
        "modified  src/app.py +1 -1, line 2\n"
        "created   docs/new.md +2\n"
        "deleted   old.txt -1\n"
        "moved     moved.txt -> kept.txt"
    )


def test_a_patch_that_matches_at_another_line_reports_the_line(agent: SmallWorkspace) -> None:
    call_ok(agent, "write_file", file_path="a.txt", content="new\n" * 3 + "one\ntwo\nthree\nfour\n")
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,4 +1,4 @@\n one\n-two\n+2\n three\n four\n"
    assert call_ok(agent, "apply_patch", patch=patch) == (
        "Patched 1 file\n\nmodified  a.txt +1 -1, line 5  (found 3 lines away: check the result)"
    )


def test_apply_patch_names_the_lines_that_each_hunk_changed(agent: SmallWorkspace) -> None:
    call_ok(agent, "write_file", file_path="a.txt", content="".join(f"{n}\n" for n in range(1, 31)))
    hunks = (
        "@@ -1,2 +1 @@\n-1\n 2\n@@ -9,3 +8,5 @@\n 9\n-10\n+x\n+y\n+z\n 11\n"
        "@@ -19,4 +20,2 @@\n 19\n-20\n-21\n 22\n@@ -29,2 +28,3 @@\n 29\n 30\n+end\n"
    )
    assert call_ok(agent, "apply_patch", patch=f"--- a/a.txt\n+++ b/a.txt\n{hunks}") == (
        "Patched 1 file\n\nmodified  a.txt +4 -4, lines before 1, 9-11, after 20, 30"
    )


def test_apply_patch_reports_ignored_context_and_inexact_matches(
    agent: SmallWorkspace,
) -> None:
    text = "one\r\ntwo\r\n\u201cthree\u201d\r\nfour \r\nfive\r\n"
    call_ok(agent, "write_file", file_path="a.txt", content=text)
    patch = '*** Begin Patch\n*** Update File: a.txt\n@@\n 1\n two\n-"three"\n+3\n four\n'
    assert call_ok(agent, "apply_patch", patch=f"{patch}*** End Patch\n") == (
        "Patched 1 file\n\nmodified  a.txt +1 -1, line 3  "
        "(1 context line ignored, patch line 4; matched although line endings differ; "
        "matched although Unicode punctuation differs (patch line 6); "
        "matched although trailing white space differs (patch line 8): check the result)"
    )


LATIN_1 = "caf\xe9\nx = 1\nna\xefve\n".encode("latin-1")


def test_a_patch_with_u_fffd_for_bytes_that_a_search_showed_so_keeps_these_bytes(
    agent: SmallWorkspace,
) -> None:
    agent.filesystem.write_bytes("a.txt", LATIN_1)
    assert "caf\xe9\n" in call_ok(agent, "read_file", file_path="a.txt")
    assert "\tcaf\ufffd" in call_ok(agent, "grep", pattern="caf")
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,2 @@\n-caf\ufffd\n+un caf\ufffd\n-x = 1\n na\ufffdve\n"
    call_ok(agent, "apply_patch", patch=patch)
    assert agent.filesystem.read_bytes("a.txt") == b"un caf\xe9\nna\xefve\n"


def test_a_patch_that_replaces_a_byte_by_u_fffd_is_refused_with_its_place(
    agent: SmallWorkspace,
) -> None:
    agent.filesystem.write_bytes("a.txt", LATIN_1)
    call_ok(agent, "read_file", file_path="a.txt")
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-caf\ufffd\n+un caf\ufffd\ufffd\n"
    answer = call_refused(agent, "apply_patch", patch=patch)
    assert "a.txt, line 1, column 7: U+FFFD stands for a byte" in answer
    assert "(patch line 1)" in answer
    answer = call_refused(agent, "apply_patch", patch=patch.replace("\ufffd", "\udce9"))
    assert "for the byte E9, which is not UTF-8, send U+FFFD where that is accepted" in answer


def test_edit_file_reports_the_character_that_differs(agent: SmallWorkspace) -> None:
    call_ok(agent, "write_file", file_path="a.txt", content="def f():\n\treturn 1\n")
    answer = call_refused(
        agent, "edit_file", file_path="a.txt", old_string="    return 1", new_string="pass"
    )
    assert "line 2, column 1: the file has a tab here, the text to replace has 4 spaces" in answer


@pytest.mark.behaviour(22)
def test_a_patch_that_fails_in_its_last_file_changes_no_file(agent: SmallWorkspace) -> None:
    call_ok(agent, "read_file", file_path="src/app.py")
    broken = PATCH.split("--- a/old.txt")[0] + (
        "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-not there\n+new\n"
    )
    call_ok(agent, "read_file", file_path="README.md")
    assert "README.md" in call_refused(agent, "apply_patch", patch=broken)


def test_rm_deletes_a_directory_tree_and_counts_entries(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("src/deep/er/x", "")
    assert call_ok(agent, "rm", path="src/") == "Deleted src\n\ndirectory with 5 entries"
    assert list(contents(agent.filesystem)) == ["README.md"]


def test_rm_deletes_a_file_that_was_never_read(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "rm", path="src/data.bin") == "Deleted src/data.bin\n\nfile"


@pytest.mark.behaviour(44)
def test_rm_and_mv_act_on_a_link_and_not_on_its_target(agent: SmallWorkspace) -> None:
    agent.filesystem.symlink("one", "src")
    assert call_ok(agent, "mv", source="one", destination="two") == "Moved one to two\n\nlink"
    assert call_ok(agent, "rm", path="two") == "Deleted two\n\nlink"
    assert agent.filesystem.exists("src/app.py")


def test_mv_renames_files_and_directories(agent: SmallWorkspace) -> None:
    assert call_ok(agent, "mv", source="src", destination="lib/code") == (
        "Moved src to lib/code\n\ndirectory"
    )
    assert agent.filesystem.exists("lib/code/app.py")


def test_mv_onto_a_directory_is_refused_with_the_path_inside_it(agent: SmallWorkspace) -> None:
    answer = call_refused(agent, "mv", source="README.md", destination="src")
    assert answer == "src is a directory. Use the full new path, such as 'src/README.md'."


def test_mv_never_replaces_a_file(agent: SmallWorkspace) -> None:
    assert "src/app.py" in call_refused(agent, "mv", source="README.md", destination="src/app.py")


# Read before write


@pytest.mark.behaviour(27, 55)
def test_a_file_must_be_read_before_it_is_changed(agent: SmallWorkspace) -> None:
    change = {"file_path": "src/app.py", "old_string": "hello", "new_string": "bye"}
    assert "read-before-write" in call_refused(agent, "edit_file", **change)
    call_ok(agent, "read_file", file_path="./src//app.py")
    call_ok(agent, "edit_file", **change)


@pytest.mark.behaviour(55)
def test_a_moved_file_still_counts_as_read(agent: SmallWorkspace) -> None:
    call_ok(agent, "read_file", file_path="src/app.py")
    call_ok(agent, "mv", source="src", destination="lib")
    call_ok(agent, "edit_file", file_path="lib/app.py", old_string="hello", new_string="bye")


@pytest.mark.behaviour(56)
def test_a_file_written_by_the_agent_counts_as_read(agent: SmallWorkspace) -> None:
    call_ok(agent, "write_file", file_path="new.txt", content="one\n")
    call_ok(agent, "edit_file", file_path="new.txt", old_string="one", new_string="two")
    patch = "--- a/new.txt\n+++ b/new.txt\n@@ -1 +1 @@\n-two\n+three\n"
    call_ok(agent, "apply_patch", patch=patch)
    call_ok(agent, "write_file", file_path="new.txt", content="four\n")


@pytest.mark.behaviour(58)
def test_a_file_changed_externally_must_be_read_again(agent: SmallWorkspace) -> None:
    call_ok(agent, "read_file", file_path="src/app.py")
    agent.filesystem.write_text("src/app.py", "changed\n")
    change = {"file_path": "src/app.py", "content": "mine\n"}
    assert "read it again" in call_refused(agent, "write_file", **change)
    call_ok(agent, "read_file", file_path="src/app.py")
    call_ok(agent, "write_file", **change)


@pytest.mark.behaviour(53)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write_file", {"file_path": "new", "content": ""}),
        ("edit_file", {"file_path": "src/app.py", "old_string": "hello", "new_string": ""}),
        ("apply_patch", {"patch": "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"}),
        ("rm", {"path": "src"}),
        ("mv", {"source": "src", "destination": "lib"}),
    ],
)
def test_read_only_files_refuse_every_change(name: str, arguments: dict[str, object]) -> None:
    files = MemoryFilesystem(FILES, read_only=True)
    with small_workspace(sections=[VfsToolsSection()], filesystem=files) as agent:
        call_ok(agent, "read_file", file_path="src/app.py")
        assert "can only be read" in call_refused(agent, name, **arguments)


# Limits of answers

TINY = FileToolLimits(result_chars=50, diff_chars=60)


@pytest.fixture
def narrow() -> Iterator[SmallWorkspace]:
    files = {f"dir/file-{n}.txt": f"line of {n}\n" * 9 for n in range(9)}
    with small_workspace(sections=[VfsToolsSection(limits=TINY)], files=files) as narrow:
        yield narrow


def test_a_truncated_listing_counts_the_missing_entries(narrow: SmallWorkspace) -> None:
    assert call_ok(narrow, "ls", path="dir") == (
        "dir, 9 entries\n\n"
        "         90  file-0.txt\n"
        "         90  file-1.txt\n"
        "(7 more; use a glob to see some of them)"
    )


def test_a_truncated_text_can_be_read_on_at_the_stated_offset(narrow: SmallWorkspace) -> None:
    answer = call_ok(narrow, "read_file", file_path="dir/file-0.txt")
    assert answer.endswith("     5\tline of 0\n(more lines follow; continue with offset=6)")


def test_at_least_one_line_is_shown(narrow: SmallWorkspace) -> None:
    narrow.filesystem.write_text("wide", "x" * 1_000 + "\nend\n")
    assert "continue with offset=2" in call_ok(narrow, "read_file", file_path="wide")


def test_a_truncated_search_result_asks_for_a_narrower_search(narrow: SmallWorkspace) -> None:
    assert call_ok(narrow, "glob", pattern="dir/*") == (
        "The first 3 paths\n\n"
        "dir/file-0.txt\ndir/file-1.txt\ndir/file-2.txt\n"
        "(there are more; use a narrower pattern or path)"
    )
    assert call_ok(narrow, "grep", pattern="line", path="dir/file-1.txt") == (
        "The first 2 lines in 1 file of 1 searched\n\n"
        "dir/file-1.txt\n     1\tline of 1\n     2\tline of 1\n"
        "(there are more; use a narrower expression, path or glob)"
    )


def test_a_result_truncated_by_the_filesystem_asks_for_a_narrower_search() -> None:
    limits = FilesystemLimits(glob_results=1, grep_matches=1)
    files = MemoryFilesystem({"a.txt": "x\n", "b.txt": "x\n"}, limits=limits)
    with small_workspace(sections=[VfsToolsSection()], filesystem=files) as agent:
        assert call_ok(agent, "glob", pattern="*").startswith(
            "The first 1 path\n\na.txt\n(there are"
        )
        assert call_ok(agent, "grep", pattern="x").startswith("The first 1 line in 1 file of ")


def test_a_long_diff_is_truncated_at_a_line_and_counted(narrow: SmallWorkspace) -> None:
    call_ok(narrow, "read_file", file_path="dir/file-0.txt")
    answer = call_ok(
        narrow,
        "edit_file",
        file_path="dir/file-0.txt",
        old_string="line",
        new_string="row",
        replace_all=True,
    )
    assert answer.startswith("Replaced 9 occurrences in dir/file-0.txt, line 1\n\ndiff --git ")
    assert answer.endswith("more lines of diff; read the file to see them)")
    assert len(answer) < 200


DEPENDENCIES = {
    ".venv/a.py": "x\nx\n", "a/node_modules/b.py": "x\n", "a/node_modules/c/d.py": "x\n",
    "src/app.py": "x\n", "zoo.py": "x\n",
}  # fmt: skip


def test_the_projects_own_files_come_first_and_those_of_dependencies_are_counted() -> None:
    limits = FilesystemLimits(grep_matches=3, glob_results=4)
    files = MemoryFilesystem(DEPENDENCIES, limits=limits)
    with small_workspace(sections=[VfsToolsSection()], filesystem=files) as agent:
        assert call_ok(agent, "grep", pattern="x") == (
            "2 lines in 2 files of 5 searched\n\nsrc/app.py\n     1\tx\nzoo.py\n     1\tx\n"
            "(at least 1 line in .venv not shown; search there with path='.venv')"
        )
        assert call_ok(agent, "glob", pattern="**/*.py") == (
            "2 paths\n\nsrc/app.py\nzoo.py\n(at least 1 path in .venv not shown)\n"
            "(at least 1 path in a/node_modules not shown)"
        )
        assert "b.py\n" in call_ok(agent, "grep", pattern="x", path="a/node_modules")
        assert "a/node_modules/c/d.py" in call_ok(agent, "glob", pattern="**/node_modules/**/*.py")


def test_files_on_disk_are_searched_in_the_same_order_as_those_in_memory(tmp_path: Path) -> None:
    with DiskFilesystem(tmp_path) as disk:
        for name, text in DEPENDENCIES.items():
            disk.write_text(name, text)
        memory = MemoryFilesystem(DEPENDENCIES)
        assert disk.grep("x").matches == memory.grep("x").matches
        assert disk.glob("**/*.py") == memory.glob("**/*.py")
        assert str(disk.grep("x").matches[1].path) == "zoo.py"


# Images, and other files that are not text

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize(
    ("start", "media_type"),
    [
        (PIXEL, "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\x01\0\x01\0", "image/gif"),
        (b"RIFF\n\x20\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_read_whole_whatever_its_name(
    agent: SmallWorkspace, start: bytes, media_type: str
) -> None:
    data = start + bytes(range(256)) * 300
    agent.filesystem.write_bytes("picture.txt", data)
    outcome = agent.call("read_file", file_path="picture.txt")
    assert ToolImage.of(outcome.result.value) == ToolImage(media_type, data)
    assert outcome.text == f"picture.txt, an image of type {media_type}, {len(data):,} bytes"


def test_an_image_above_the_limit_of_providers_is_refused(agent: SmallWorkspace) -> None:
    agent.filesystem.write_bytes("big.png", PIXEL.ljust(3_932_161, b"\0"))
    refusal = call_refused(agent, "read_file", file_path="big.png")
    assert "3,932,161 bytes, and at most 3,932,160 are read" in refusal


def notebook(first: list[str], **options: Any) -> str:
    stream = {"output_type": "stream", "name": "stdout", "text": [f"{n}\n" for n in range(30)]}
    image = {"output_type": "display_data", "data": {"image/png": "x" * 9_000, "text/plain": ["f"]}}
    error = {"output_type": "error", "ename": "E", "evalue": "no", "traceback": ["y" * 9_000]}
    cells = [
        {"cell_type": "code", "source": first, "outputs": [image, error, stream]},
        {"cell_type": "markdown", "source": "# Ünder\ntwo"},
    ]
    return json.dumps({"cells": cells, "nbformat": 4, "x": 1.50}, **options) + "\n"


def test_a_notebook_is_read_as_numbered_cells_with_bounded_outputs(agent: SmallWorkspace) -> None:
    agent.filesystem.write_text("a.ipynb", notebook(["import os\n", "os.getcwd()"], indent=1))
    text = call_ok(agent, "read_file", file_path="a.ipynb")
    lines = [line.partition("\t")[2] for line in text.splitlines()[2:]]
    assert lines[:7] == [
        "# Cell 1, code:",
        "import os",
        "os.getcwd()",
        "# Output of cell 1:",
        "f",
        "(not shown: image/png)",
        "E: no",
    ]
    assert lines[24:] == ["# (13 more lines of output)", "# Cell 2, markdown:", "# Ünder", "two"]
    part = call_ok(agent, "read_file", file_path="a.ipynb", offset=26, limit=2)
    assert part.splitlines()[2].split() == ["26", "#", "Cell", "2,", "markdown:"]


@pytest.mark.parametrize("options", [{"indent": 1, "ensure_ascii": False}, {"indent": 4}, {}])
def test_an_edit_of_a_cell_changes_its_source_and_no_other_byte(
    agent: SmallWorkspace, options: Any
) -> None:
    agent.filesystem.write_text("a.ipynb", notebook(["a = 1\n", "b = 'é'"], **options))
    call_ok(agent, "read_file", file_path="a.ipynb")
    edit = {"old_string": "a = 1\nb = 'é'", "new_string": 'a = "ö"\n\nb = 2\n'}
    call_ok(agent, "edit_file", file_path="a.ipynb", **edit)
    expected = notebook(['a = "ö"\n', "\n", "b = 2\n"], **options)
    assert agent.filesystem.read_bytes("a.ipynb") == expected.encode()
    edit = {"old_string": "# Ünder\n", "new_string": ""}
    call_ok(agent, "edit_file", file_path="a.ipynb", **edit)
    markdown = json.loads(agent.filesystem.read_bytes("a.ipynb"))["cells"][1]
    assert markdown == {"cell_type": "markdown", "source": "two"}
    twice = {"file_path": "a.ipynb", "old_string": "o", "new_string": "0"}
    agent.filesystem.write_text("a.ipynb", notebook(["o\n", "o"], **options))
    call_ok(agent, "read_file", file_path="a.ipynb")
    assert "3 times, in these cells: 1, 2" in call_refused(agent, "edit_file", **twice)
    assert "3 occurrences" in call_ok(agent, "edit_file", **twice, replace_all=True)


def test_a_notebook_of_odd_json_is_shown_without_lone_surrogates_and_keeps_them(
    agent: SmallWorkspace,
) -> None:
    outputs = [{"output_type": "stream", "text": 5}, 7]
    cells: list[object] = [{"source": ["x = '\ud83d'\n", "y"], "outputs": outputs}, 3]
    text = json.dumps({"cells": cells}, indent=1)
    agent.filesystem.write_text("a.ipynb", text)
    shown = call_ok(agent, "read_file", file_path="a.ipynb")
    assert "x = '\ufffd'" in shown
    assert "\ud83d" not in shown
    call_ok(agent, "edit_file", file_path="a.ipynb", old_string="y", new_string="z")
    assert agent.filesystem.read_bytes("a.ipynb") == text.replace('"y"', '"z"').encode()


def test_a_notebook_in_another_style_is_read_and_edited_as_text(agent: SmallWorkspace) -> None:
    text = '{"cells":[{"source":"a\\nb"}], "x": 1.50}'
    agent.filesystem.write_text("a.ipynb", text)
    assert text in call_ok(agent, "read_file", file_path="a.ipynb")
    call_ok(agent, "edit_file", file_path="a.ipynb", old_string='"a\\nb"', new_string='"c"')
    assert agent.filesystem.read_bytes("a.ipynb") == text.replace("a\\nb", "c").encode()
    agent.filesystem.write_bytes("a.ipynb", latin := b'{"cells": [{"source": "\xe9"}]}')
    assert '{"cells"' in call_ok(agent, "read_file", file_path="a.ipynb")
    call_ok(agent, "edit_file", file_path="a.ipynb", old_string="source", new_string="s")
    assert agent.filesystem.read_bytes("a.ipynb") == latin.replace(b"source", b"s")


@pytest.mark.parametrize("has_commands", [False, True])
def test_a_pdf_is_refused_with_a_command_only_if_a_tool_runs_commands(
    *, has_commands: bool
) -> None:
    def handle(params: Command, /, *, context: ToolContext) -> ToolResult[CommandOutput]:
        raise NotImplementedError

    run = Tool[Command, CommandOutput](name="run_it", description="Runs it.", handler=handle)
    commands = MarkdownSection(title="Commands", template="Run.", tools=[run] * has_commands)
    pdf = {"paper.pdf": ""}
    with small_workspace(sections=[VfsToolsSection(), commands], files=pdf) as agent:
        agent.filesystem.write_bytes("paper.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\0stream")
        refusal = call_refused(agent, "read_file", file_path="paper.pdf")
    assert "is a PDF file" in refusal
    assert ("pdftotext" in refusal, "run_it" in refusal) == (has_commands, has_commands)


def test_a_part_of_a_file_of_8_mib_is_read_and_edited(agent: SmallWorkspace) -> None:
    lines = [f"{n:07d}{'x' * 120}\n" for n in range(65_536)]
    agent.filesystem.write_text("big.txt", "".join(lines))
    assert agent.filesystem.stat("big.txt").size_bytes == 8_388_608
    text = call_ok(agent, "read_file", file_path="big.txt", offset=65_001, limit=2)
    assert "0065001x" in text
    assert len(text) < 1_000
    call_ok(agent, "edit_file", file_path="big.txt", old_string="0065000x", new_string="1234567y")
    lines[65_000] = lines[65_000].replace("0065000x", "1234567y")
    assert agent.filesystem.read_bytes("big.txt") == "".join(lines).encode()
    agent.filesystem.write_text("big.txt", "".join(lines) + "x")
    call_refused(agent, "edit_file", file_path="big.txt", old_string="1234567y", new_string="z")
