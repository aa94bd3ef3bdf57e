"""Which files a patch touches, and what they are after it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from patch_trees import apply_changes, file, link, plan, reader, tree

from wink_workspace.errors import LimitExceededError, PatchError, PathEscapeError
from wink_workspace.filesystem.model import FileChange, FileKind, FileState, LineRange, PatchedFile
from wink_workspace.filesystem.patch import parse_patch, plan_patch, touched_paths
from wink_workspace.filesystem.paths import ROOT, WorkspacePath, parse_path

Files = Mapping[str, FileState | bytes | str]

LINK_MODIFIED = """\
diff --git a/l b/l
index 1111111..2222222 120000
--- a/l
+++ b/l
@@ -1 +1 @@
-old
\\ No newline at end of file
+new
\\ No newline at end of file
"""


def after(patch: str, files: Files) -> dict[str, FileState]:
    before = tree(files)
    result = apply_changes(plan(patch, before).changes, before)
    return {str(path): state for path, state in result.items()}


def content(patch: str, data: bytes | str, *, name: str = "f") -> bytes:
    """The content of one file after a patch."""
    return after(patch, {name: data})[name].data


def refused(patch: str, files: Files) -> str:
    with pytest.raises(PatchError) as error:
        plan(patch, files)
    assert error.value.hint
    return error.value.message


# ------------------------------------------------------------------------------------- headers

HUNK = "@@ -1 +1 @@\n-one\n+two\n"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("--- a/f\n+++ b/f\n", "f"),
        ("--- f\n+++ f\n", "f"),
        ("--- f\n+++ b/f\n", "f"),
        ("--- a/f\n+++ f\n", "f"),
        ("--- a/a/f\n+++ b/a/f\n", "a/f"),
        ("--- src/a/f\n+++ src/a/f\n", "src/a/f"),
        ("--- old/src/f\n+++ new/src/f\n", "src/f"),
        ("--- i/f\n+++ w/f\n", "f"),
        ("--- a/f g\t2024-01-01 10:00:00.000000000 +0100\n+++ b/f g\t2024-01-01\n", "f g"),
        ("--- a/f 2024-01-01 10:00:00\n+++ b/f 2024-01-01 10:00:01.5 +0100\n", "f"),
        ('--- "a/\\303\\244\\t\\"x"\n+++ "b/\\303\\244\\t\\"x"\n', 'ä\t"x'),
        ("diff --git a/f b/f\n--- a/f\n+++ b/f\n", "f"),
        ("diff --git a/f b/f\n--- f\n+++ f\n", "f"),
        ("diff --git a/f b/f\n", "f"),
        ("diff --git a/x y b/x y\n", "x y"),
        ("diff --git old/x b/y b/x b/y\n", "x b/y"),
        ('diff --git a/f "b/f"\n', "f"),
        ('diff --git "a/f" b/f\n', "f"),
        ('diff --git "a/f\\303\\266" "b/f\\303\\266"\nindex 1..2 100644\n', "fö"),
        ("diff --git a/f b/f\nindex 1234567..89abcde 100644\n--- a/f\n+++ b/f\n", "f"),
        ("Index: f\n====\n--- f\t(revision 1)\n+++ f\t(working copy)\n", "f"),
        ("Sure:\n```diff\n--- a/f\n+++ b/f\n", "f"),
        ("From 12\nSubject: x\n\n- a point\n---\n f | 2 +-\n\n--- a/f\n+++ b/f\n", "f"),
        ("diff -u f.txt g\n--- a/f\n+++ b/f\n", "f"),
    ],
)
def test_the_file_that_a_header_means_is_found(header: str, name: str) -> None:
    assert after(header + HUNK, {name: "one\n"}) == {name: file("two\n")}


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "\n",
        "```\n",
        "-- \n2.39.5\n\n",
        "--\n2.39\n",
        "\nThat is all.\n",
        "```\n\nI also:\n* x\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_after_the_last_hunk_is_not_part_of_it(tail: str, end: str) -> None:
    patch = f"--- a/f\n+++ b/f\n{HUNK}{tail}".replace("\n", end)
    assert content(patch, "one\n") == b"two\n"


@pytest.mark.parametrize(
    "tail", ["\n", "\n\n", "-- \n2.39.5\n\n", "\n```\n", "\ndiff --git a/f b/f\n"]
)
def test_text_after_a_hunk_with_wrong_counts_is_not_part_of_it(tail: str) -> None:
    more = "old mode 100644\nnew mode 100644\n" if "diff" in tail else ""
    assert (
        content(f"--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n-one\n+two\n{tail}{more}", "one\n") == b"two\n"
    )


def test_the_last_line_of_a_patch_needs_no_newline() -> None:
    assert content("--- a/f\n+++ b/f\n" + HUNK.rstrip("\n"), "one\n") == b"two\n"


def test_mails_with_several_patches_are_read_to_the_end() -> None:
    mail = "From 1\nSubject: x\n\n- point\n---\n\ndiff --git a/{0} b/{0}\n{1}-- \n2.39\n\n"
    patch = mail.format("f", HUNK) + mail.format("g", HUNK)
    assert after(patch, {"f": "one\n", "g": "one\n"}) == {"f": file("two\n"), "g": file("two\n")}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
            {"f": file("1\n", executable=True)},
        ),
        (
            "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n",
            {},
        ),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n", {}),
        ("--- a/f\n+++ b/f\t1970-01-01 01:00:00.000000000 +0100\n@@ -1 +0,0 @@\n-1\n", {}),
        ("--- a/f\n+++ b/f\t1970-01-01 01:00:00 +0000\n@@ -1 +0,0 @@\n-1\n", {"f": file("")}),
        ("--- a/f\n+++ b/f\t1970-13-01 01:00:00 +0000\n@@ -1 +0,0 @@\n-1\n", {"f": file("")}),
        (
            "diff --git a/g b/g\nnew file mode 100755\n--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+2\n",
            {"f": file("1\n"), "g": file("2\n", executable=True)},
        ),
        ("--- /dev/null\n+++ b/d/g\n@@ -0,0 +1 @@\n+2\n", {"f": file("1\n"), "d/g": file("2\n")}),
        ("--- a/g\n+++ b/g\n@@ -0,0 +1 @@\n+2\n", {"f": file("1\n"), "g": file("2\n")}),
        ("diff --git a/g b/g\nnew file mode 100644\n", {"f": file("1\n"), "g": file("")}),
        (
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+f\n\\\n",
            {"f": file("1\n"), "l": link("f")},
        ),
        (
            "diff --git a/f b/d/g\nrename from f\nrename to d/g\n--- a/f\n+++ b/d/g\n@@ -1 +1 @@\n-1\n+2",
            {"d/g": file("2\n")},
        ),
        (
            'diff --git "a/f" b/g\nold mode 100644\nnew mode 100755\ncopy from "f"\ncopy to g\n',
            {"f": file("1\n"), "g": file("1\n", executable=True)},
        ),
    ],
)
def test_files_are_made_deleted_renamed_copied_and_made_executable(
    patch: str, expected: dict[str, FileState]
) -> None:
    assert after(patch, {"f": "1\n"}) == expected


def test_a_link_is_changed_by_a_patch_that_says_it_is_one() -> None:
    assert after(LINK_MODIFIED, {"l": link("old")}) == {"l": link("new")}


def test_a_mode_in_the_index_line_does_not_change_that_of_the_file() -> None:
    patch = f"diff --git a/f b/f\nindex 1111..2222 100644\n--- a/f\n+++ b/f\n{HUNK}"
    assert after(patch, {"f": file("one\n", executable=True)}) == {
        "f": file("two\n", executable=True)
    }


# --------------------------------------------------------------------------- several sections


def section(name: str, old: str, new: str) -> str:
    return (
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    )


def renamed(source: str, target: str) -> str:
    return f"diff --git a/{source} b/{target}\nrename from {source}\nrename to {target}\n"


def deleted(name: str, line: str) -> str:
    return f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{line}\n"


def made(name: str, line: str) -> str:
    return f"diff --git a/{name} b/{name}\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{line}\n"


def copied(source: str, target: str) -> str:
    return f"diff --git a/{source} b/{target}\ncopy from {source}\ncopy to {target}\n"


A_AND_B = {"a": "1\n", "b": "2\n"}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param(
            section("a", "1", "x") + section("a", "x", "y"), {"a": "y", "b": "2"}, id="twice"
        ),
        pytest.param(renamed("a", "b") + renamed("b", "a"), {"a": "2", "b": "1"}, id="swapped"),
        pytest.param(
            renamed("a", "b") + renamed("b", "c") + made("a", "3"),
            {"a": "3", "b": "1", "c": "2"},
            id="renamed in a chain",
        ),
        pytest.param(
            section("a", "1", "x") + copied("a", "c"),
            {"a": "x", "b": "2", "c": "1"},
            id="copied as it was",
        ),
        pytest.param(deleted("a", "1") + made("a", "x"), {"a": "x", "b": "2"}, id="replaced"),
        pytest.param(made("a", "x") + deleted("a", "1"), {"a": "x", "b": "2"}, id="in any order"),
        pytest.param(
            made("c", "x") + section("c", "x", "y"),
            {"a": "1", "b": "2", "c": "y"},
            id="created, changed",
        ),
        pytest.param(
            renamed("a", "c") + section("c", "1", "y"), {"b": "2", "c": "y"}, id="renamed, changed"
        ),
        pytest.param(
            deleted("a", "1") + made("a/x", "y"), {"a/x": "y", "b": "2"}, id="now a directory"
        ),
        pytest.param(
            copied("a", "c") + deleted("a", "1"), {"b": "2", "c": "1"}, id="copied, deleted"
        ),
    ],
)
def test_changes_build_on_earlier_changes_and_copies_take_the_original(
    patch: str, expected: dict[str, str]
) -> None:
    assert after(patch, A_AND_B) == {name: file(f"{text}\n") for name, text in expected.items()}


def test_a_directory_that_the_patch_empties_may_become_a_file() -> None:
    patch = made("d", "now a file") + deleted("d/e/f", "1") + renamed("d/g", "h")
    files = {"d/e/f": "1\n", "d/g": "2\n"}
    changes = plan(patch, files).changes
    assert [str(change.path) for change in changes] == ["d/e/f", "d/e", "d/g", "d", "h"]
    assert changes[3].before == FileState(FileKind.DIRECTORY)
    assert after(patch, files) == {"d": file("now a file\n"), "h": file("2\n")}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (made("a", "x"), "a (patch line 1): it exists already"),
        (made("d", "x"), "d (patch line 1): it is a directory"),
        (made("a/x", "y"), "a is not a directory"),
        (made("l/x", "y"), "l is not a directory, and a patch does not follow links"),
        (made("new", "x") + made("new", "y"), "new (patch line 6): another section"),
        (made("new", "x") + made("new/y", "y"), "new/y: the patch makes new a file"),
        (section("none", "1", "2"), "none (patch line 1): it does not exist"),
        (section("d/none", "1", "2"), "it does not exist"),
        (section("a/none", "1", "2"), "a is not a directory"),
        (section("l/f", "1", "2"), "l is not a directory, and a patch does not follow links"),
        (section("d", "1", "2"), "it is a directory"),
        (section("l", "1", "2"), "it is a link to 'd'; patch the target instead"),
        (renamed("d", "e"), "it is a directory"),
        (renamed("a", "b"), "it exists already"),
        (renamed("none", "new"), "it does not exist"),
        (copied("a", "d/f"), "it exists already"),
        (
            renamed("a", "c") + renamed("a", "e"),
            "line 1 of the patch deletes or renames it; use one section",
        ),
        (
            section("a", "1", "2") + renamed("a", "c"),
            "line 7 of the patch deletes or renames it; use one section",
        ),
        (
            deleted("a", "1") + deleted("a", "1"),
            "line 1 of the patch deletes or renames it; use one section",
        ),
        (deleted("a", "9"), "a, hunk 1 (patch line 4): expected near line 1"),
        (deleted("two", "1"), "two (patch line 1): the patch deletes it without showing all"),
        (
            "diff --git a/a b/a\ndeleted file mode 100644\n",
            "the patch deletes it without showing all its content",
        ),
        ("diff --git a/a b/a\ndeleted file mode 120000\n", "it is a file, not a symlink"),
        (
            LINK_MODIFIED.replace("a/l b/l", "a/a b/a").replace("/l\n", "/a\n"),
            "it is a file, not a symlink",
        ),
        (
            "diff --git a/new b/new\nnew file mode 120000\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n",
            "new (patch line 1): a link cannot have this target",
        ),
        ("diff --git a/new b/new\nnew file mode 120000\n", "a link cannot have this target"),
        (
            "diff --git a/a b/a\nold mode 100644\nnew mode 120000\n",
            "to turn a file into a link or back, use two sections: delete it, then create it",
        ),
    ],
)
def test_a_patch_that_does_not_fit_the_files_is_refused(patch: str, message: str) -> None:
    files = {"a": "1\n", "b": "2\n", "two": "1\n2\n", "d/f": "1\n", "l": link("d")}
    assert message in refused(patch, files)


def test_every_problem_in_every_file_is_reported_at_once() -> None:
    patch = (
        "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n one\n-twoo\n+2\n@@ -9 +9 @@\n-ninety\n+9\n"
        + section("none", "1", "2")
        + made("g", "x")
    )
    message = refused(patch, {"f": "one\ntwo\nthree\n", "g": "1\n"})
    assert message.count("\n- ") == 4
    assert "f, hunk 1 (patch line 3): expected near line 1\n       | one\n       | twoo" in message
    assert "but the file has\n     1 | one\n     2 | two" in message
    assert "f, hunk 2 (patch line 7): expected near line 9\n       | ninety" in message
    assert "the file has nothing similar" in message
    assert "none (patch line 10): it does not exist" in message
    assert "g (patch line 16): it exists already" in message
    assert message.startswith("no file was changed, because the patch does not apply:\n- ")


def test_hundreds_of_problems_are_counted_and_not_all_listed() -> None:
    message = refused("".join(section(f"f{n}", "1", "2") for n in range(300)), {})
    assert "… 250 more problems" in message
    assert message.count("does not exist") == 50


def test_files_are_listed_in_the_order_of_the_patch_with_their_changes() -> None:
    patch = section("b", "2", "x") + renamed("a", "c") + made("d", "new") + deleted("e", "5")
    files = plan(patch, {**A_AND_B, "e": "5\n"}).files
    line = (LineRange(1, 1),)
    assert files == (
        PatchedFile(parse_path("b"), "modified", n_added=1, n_removed=1, lines=line),
        PatchedFile(parse_path("c"), "moved", moved_from=parse_path("a")),
        PatchedFile(parse_path("d"), "created", n_added=1, lines=line),
        PatchedFile(parse_path("e"), "deleted", n_removed=1),
    )


def test_changes_that_cancel_out_are_not_in_the_plan() -> None:
    assert plan(section("a", "1", "x") + section("a", "x", "1"), A_AND_B).changes == ()


def test_a_plan_has_each_path_once_with_its_state_before_and_after() -> None:
    changes = plan(section("b", "2", "x") + section("b", "x", "y"), A_AND_B).changes
    assert changes == (FileChange(parse_path("b"), file("2\n"), file("y\n")),)


def test_a_plan_reads_each_path_once_and_nothing_behind_a_link() -> None:
    asked: list[WorkspacePath] = []
    read = reader(tree({"d/a": "1\n", "l": link("d")}))

    def counting(path: WorkspacePath) -> FileState | None:
        asked.append(path)
        return read(path)

    patch = section("d/a", "1", "2") + section("d/a", "2", "3") + copied("d/a", "d/b")
    plan_patch(parse_patch(patch), counting)
    assert sorted(map(str, asked)) == ["d", "d/a", "d/b"]
    asked.clear()
    with pytest.raises(PatchError):
        plan_patch(parse_patch(section("l/a", "1", "2")), counting)
    assert [str(path) for path in asked] == ["l"]
    assert ROOT not in asked


# ------------------------------------------------------------------------------------- policies


def test_touched_paths_are_all_that_a_patch_reads_or_writes() -> None:
    patch = section("b", "1", "2") + renamed("a", "c") + made("d/e", "x") + section("b", "2", "3")
    assert [str(path) for path in touched_paths(patch)] == ["b", "a", "c", "d/e"]
    envelope = (
        "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** Delete File: c\n*** End Patch"
    )
    assert [str(path) for path in touched_paths(envelope)] == ["a", "b", "c"]


@pytest.mark.behaviour(42)
@pytest.mark.parametrize(
    "patch",
    [
        section("../up", "1", "2"),
        section("d/../../up", "1", "2"),
        "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-1\n+2\n",
        '--- "a/../\\165p"\n+++ "b/../\\165p"\n@@ -1 +1 @@\n-1\n+2\n',
        renamed("a", "../b"),
        copied("/etc/passwd", "b"),
        made("../../x", "1"),
        "*** Begin Patch\n*** Add File: /x\n+1\n*** End Patch\n",
        "*** Begin Patch\n*** Update File: a\n*** Move to: ../b\n@@\n-1\n+2\n*** End Patch\n",
        "*** Begin Patch\n*** Delete File: ../b\n*** End Patch\n",
    ],
)
def test_a_name_that_leads_outside_is_refused_when_the_patch_is_read(patch: str) -> None:
    with pytest.raises(PathEscapeError):
        touched_paths(patch)


def test_a_name_that_is_too_long_is_refused_when_the_patch_is_read() -> None:
    with pytest.raises(LimitExceededError):
        parse_patch(section("x" * 256, "1", "2"))
