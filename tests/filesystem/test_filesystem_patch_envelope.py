"""The ``*** Begin Patch`` form finds hunks by their text and never guesses."""

from __future__ import annotations

import pytest
from patch_trees import apply_changes, file, link, plan, tree

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.model import FileState
from wink_workspace.filesystem.patch import touched_paths

SHAPES = """\
import math


class Circle:
    def area(self):
        return math.pi

    def name(self):
        return "circle"


class Square:
    def area(self):
        return 4

    def name(self):
        return "square"
"""


def envelope(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"]) + "\n"


def update(*lines: str) -> str:
    return envelope("*** Update File: f", *lines)


def changed(patch: str, data: bytes | str = SHAPES) -> bytes:
    after = plan(patch, {"f": data}).changes[0].after
    assert after is not None
    return after.data


def refused(patch: str, data: bytes | str = SHAPES) -> str:
    with pytest.raises(PatchError) as error:
        changed(patch, data)
    assert error.value.hint
    return error.value.message


def test_files_are_added_updated_moved_and_deleted() -> None:
    patch = envelope(
        *("*** Add File: docs/new.md", "+# Title", "+", "+text"),
        *("*** Add File: empty",),
        *("*** Update File: f", "@@", " one", "-two", "+2"),
        *("*** Update File: old.txt", "*** Move to: new/old.txt", "-a", "+b"),
        *("*** Update File: kept", "*** Move to: moved"),
        *("", "*** Delete File: gone", "", "*** Delete File: l"),
    )
    files = {"f": "one\ntwo\n", "old.txt": "a\n", "kept": b"\0", "gone": "any\n", "l": link("up")}
    result: dict[str, FileState] = {
        str(path): state
        for path, state in apply_changes(plan(patch, files).changes, tree(files)).items()
    }
    assert result == {
        "docs/new.md": file("# Title\n\ntext\n"),
        "empty": file(""),
        "f": file("one\n2\n"),
        "new/old.txt": file("b\n"),
        "moved": file(b"\0"),
    }


def test_a_file_may_be_deleted_and_added_again_in_one_patch() -> None:
    patch = envelope("*** Delete File: f", "*** Add File: f", "+new")
    assert changed(patch) == b"new\n"


def test_adding_a_file_that_exists_is_refused() -> None:
    assert "it exists already" in refused(envelope("*** Add File: f", "+new"))


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "I will change it.\n\n{}",
        "```\n{}```\nDone.\n",
        "apply_patch <<'EOF'\n{}EOF\n",
        "\n  {}",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_around_the_patch_is_skipped(around: str, end: str) -> None:
    patch = around.format(update("-import math", "+import cmath")).replace("\n", end)
    assert changed(patch) == SHAPES.replace("import math", "import cmath").encode()


def test_the_last_line_needs_no_newline_and_may_have_spaces_after_it() -> None:
    assert (
        changed(update("-import math", "+x").rstrip("\n") + "  ")
        == SHAPES.replace("import math", "x").encode()
    )


@pytest.mark.parametrize(
    "scopes",
    [
        ["@@ class Square:"],
        ["@@ class Square"],
        ["@@ class Square:", "@@ def name(self):"],
        ["@@ class Square:", "@@     def name(self):"],
        ["@@ class Square: @@"],
    ],
)
def test_a_scope_selects_one_of_several_matches(scopes: list[str]) -> None:
    patch = update(*scopes, "     def name(self):", "+        print()")
    expected = "class Square:\n    def area(self):\n        return 4\n\n    def name(self):\n        print()\n"
    assert changed(patch).endswith(expected.encode() + b'        return "square"\n')


def test_a_match_after_the_end_of_the_scope_is_not_taken() -> None:
    """The named method has changed; applying to the next class would be a silent mistake."""
    data = SHAPES.replace("return math.pi", "return 3")
    data = data.replace("return 4", "return math.pi") + "\ndef area():\n        return math.pi\n"
    patch = update(
        "@@ class Circle:", "@@ def area(self):", "-        return math.pi", "+        return 0"
    )
    assert "fits equally well at lines 14, 20" in refused(patch, data)


def test_a_scope_in_braces_ends_at_the_closing_brace() -> None:
    data = "int f()\n{\n    return 1;\n}\n\nint g()\n{\n    return 1;\n}\n"
    patch = update("@@ int g()", "-    return 1;", "+    return 2;")
    assert (
        changed(patch, data) == data.replace("return 1", "return 2").replace("2", "1", 1).encode()
    )


def test_a_scope_in_unindented_text_ends_at_the_next_line_like_it() -> None:
    data = "# Use\ntext\n\n# More\ntext\n"
    expected = b"# Use\ntext\n\n# More\nnew\n"
    assert changed(update("@@ # More", "-text", "+new"), data) == expected
    assert "fits equally well at lines 2, 5" in refused(update("@@ # No", "-text", "+new"), data)


def test_the_only_match_is_taken_and_reported_if_the_scope_is_elsewhere() -> None:
    patch = update("@@ class Triangle:", "@@ def area", "-import math", "+x")
    assert changed(patch) == SHAPES.replace("import math", "x").encode()
    notes = plan(patch, {"f": SHAPES}).files[0].notes
    assert notes == ("not below 'class Triangle:' and 'def area': the only match is elsewhere",)


def test_a_match_without_scope_must_be_the_only_one() -> None:
    message = refused(update(" ", "     def name(self):", "+        print()"))
    assert "f, hunk 1 (patch line 3): fits equally well at lines 7, 15" in message


def test_a_hunk_is_searched_after_the_previous_one() -> None:
    hunk = ["@@", "     def name(self):", "+        print()"]
    patch = update("@@ class Square:", "-        return 4", "+        return 5", *hunk)
    assert changed(patch).count(b"print()") == 1
    assert b"return 5\n\n    def name(self):\n        print()" in changed(patch)


def test_hunks_in_another_order_than_the_file_are_refused() -> None:
    patch = update("-class Square:", "+class Box:", "@@", "-class Circle:", "+class Disc:")
    assert "f, hunk 2 (patch line 5): fits at line 4 only, which is above hunk 1" in refused(patch)


def test_end_of_file_selects_the_last_of_several_matches() -> None:
    data = "a\nb\n\na\nb\n"
    assert changed(update(" a", "-b", "+c", "*** End of File"), data) == b"a\nb\n\na\nc\n"
    message = refused(update("-a", "+c", "*** End of File"), data)
    assert "marked as the end of the file, but its lines are at lines 1, 4" in message
    patch = update("@@", " b", "+x", " ", "@@", "-b", "+c", "*** End of File")
    assert changed(patch, data) == b"a\nb\nx\n\na\nc\n"


def test_lines_without_context_are_added_only_at_the_end_or_after_a_scope() -> None:
    assert changed(update("@@", "+new", "*** End of File"), "a\nb") == b"a\nb\nnew"
    assert changed(update("+new", "*** End of File"), b"a\r\n") == b"a\r\nnew\r\n"
    patch = update("@@ class Square:", "+    sides = 4")
    assert changed(patch) == SHAPES.replace("Square:\n", "Square:\n    sides = 4\n").encode()
    assert "has no line of context" in refused(update("+new"))
    assert "fits equally well at lines 6, 14" in refused(update("@@ def area(self):", "+        x"))


def test_an_empty_file_takes_lines_without_context() -> None:
    assert changed(update("+new"), "") == b"new\n"


def test_line_numbers_as_in_a_unified_diff_are_accepted() -> None:
    hunk = ["@@ -{0},2 +{0},3 @@", "     def name(self):", "+        print()"]
    patch = update(*hunk).format(16)
    assert b"print()" in changed(patch).split(b"class Square")[1]
    patch = update("@@ -16,2 +16,3 @@ class Circle", "@@ class Circle:", *hunk[1:])
    assert b"print()" in changed(patch).split(b"class Square")[0]


def test_fuzz_applies_in_a_scope_and_at_the_end_of_the_file_too() -> None:
    context = [
        " wrong",
        "         return 4",
        " ",
        "     def name(self):",
        "+        print()",
        '         return "square"',
    ]
    data = SHAPES + "\n\ndef last():\n    pass\n"
    patch = update("@@ class Square:", *context, " wrong")
    assert "hunk 1" in refused(patch, data)
    patch = update("@@ class Square:", *context, " ", " ", " def last():")
    assert b"print()" in changed(patch, data).split(b"class Square")[1]
    assert "expected below 'class Circle:'" in refused(
        patch.replace("class Square:", "class Circle:"), data
    )
    patch = update(" a", " b", "-c", "+C", " d", " wrong", "*** End of File")
    assert changed(patch, "a\nb\nc\nd\nx\n") == b"a\nb\nC\nd\nx\n"


def test_line_ends_stay_as_the_file_has_them() -> None:
    data = SHAPES.replace("\n", "\r\n").encode()
    patch = update("@@ class Square:", " ", "     def name(self):", "+        print()")
    assert changed(patch, data).count(b"\r\n") == SHAPES.count("\n") + 1
    assert changed(patch, data).replace(b"\r\n", b"\n").count(b"\r") == 0


def test_a_final_newline_is_removed_when_marked() -> None:
    assert changed(update(" a", "-b", "+c", "\\ No newline at end of file"), "a\nb\n") == b"a\nc"
    patch = envelope("*** Add File: g", "+a", "\\ No newline at end of file")
    assert plan(patch, {}).changes[0].after == file("a")


def test_empty_lines_between_the_parts_are_ignored() -> None:
    patch = update(
        "",
        "@@",
        "-import math",
        "+import cmath",
        "",
        "@@ class Square:",
        "-        return 4",
        "",
        "",
    )
    assert b"return 4" not in changed(patch)


# ------------------------------------------------------------------------ accepted forms

IMPORT = SHAPES.replace("import math", "import cmath").encode()
BODY = "@@\n-import math\n+import cmath\n"
HEADER = "--- a/f\n+++ b/f\n"


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(
            f"  *** Begin Patch\n  *** Update File: f\n{BODY}  *** End Patch\n",
            id="markers indented",
        ),
        pytest.param(
            f"*** Begin Patch\n *** Update File: f\n{BODY} *** End Patch\n",
            id="inner markers indented",
        ),
        pytest.param(
            f"*** Begin Patch\n*** Update File: f\n{BODY} *** End Patch", id="end indented"
        ),
        pytest.param(
            "".join(f"    {line}\n" for line in update(*BODY.splitlines()).splitlines()),
            id="all lines indented",
        ),
        pytest.param(f"*** Begin Patch\n*** Update File: f\n{BODY}", id="no end"),
        pytest.param(
            f"```\n*** Begin Patch\n*** Update File: f\n{BODY}```\n", id="fence for an end"
        ),
        pytest.param(
            f"apply <<EOF\n*** Begin Patch\n*** Update File: f\n{BODY}EOF\n", id="no end, shell"
        ),
        pytest.param(f"*** Begin Patch\n{HEADER}{BODY}*** End Patch\n", id="unified inside"),
        pytest.param(
            f"*** Begin Patch\ndiff --git a/f b/f\n{HEADER}@@ -1,2 +1,2 @@\n"
            "-import math\n+import cmath\n \n*** End Patch\n",
            id="git's unified inside",
        ),
        pytest.param(f"*** Begin Patch\n{HEADER}{BODY}", id="unified inside, no end"),
        pytest.param(
            f"*** Begin Patch\n*** Update File: f\n{HEADER}{BODY}*** End Patch\n",
            id="unified below the name",
        ),
        pytest.param(
            f"*** Begin Patch\n*** Update File: `f`\n{BODY}*** End Patch\n", id="backticks"
        ),
        pytest.param(f'*** Begin Patch\n*** Update File: "f"\n{BODY}*** End Patch\n', id="quotes"),
        pytest.param(f"*** Begin Patch\n*** Update File: a/f\n{BODY}*** End Patch\n", id="a/"),
        pytest.param(f"--- `f`\n+++ `f`\n{BODY}", id="backticks in a unified diff"),
        pytest.param(f"--- `a/f`\n+++ `b/f`\n{BODY}", id="backticks around a prefix"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_common_variants_written_by_models_are_read_as_intended(patch: str, end: str) -> None:
    assert changed(patch.replace("\n", end)) == IMPORT


def test_an_indented_marker_is_context_if_the_other_markers_are_not_indented() -> None:
    data = "*** Update File: f\na\n*** End Patch\n"
    patch = update(" *** Update File: f", "-a", "+b", " *** End Patch")
    assert changed(patch, data) == data.replace("a\n", "b\n").encode()


def test_a_prefix_is_kept_if_a_directory_of_that_name_has_the_file() -> None:
    patch = envelope("*** Update File: a/f", "-1", "+2", "*** Add File: a/new", "+3")
    files = {"a/f": "1\n", "f": "1\n"}
    paths = [str(change.path) for change in plan(patch, files).changes]
    assert paths == ["a/f", "a/new"]


def test_a_prefix_that_is_not_a_directory_is_removed_from_all_names() -> None:
    patch = envelope(
        *("*** Update File: a/f", "*** Move to: b/g", "-1", "+2"),
        *("*** Delete File: a/old", "*** Add File: b/new", "+3"),
    )
    result = apply_changes(
        plan(patch, {"f": "1\n", "old": "x\n"}).changes, tree({"f": "1\n", "old": "x\n"})
    )
    assert {str(path): state for path, state in result.items()} == {
        "g": file("2\n"),
        "new": file("3\n"),
    }


def test_a_patch_of_one_new_file_keeps_the_prefix_of_its_name() -> None:
    assert str(plan(envelope("*** Add File: a/new", "+3"), {"f": ""}).changes[0].path) == "a/new"


def test_both_names_are_touched_where_only_the_files_can_decide() -> None:
    patch = envelope("*** Update File: a/f", "*** Move to: b/g", "-1", "+2")
    assert [str(path) for path in touched_paths(patch)] == ["a/f", "f", "b/g", "g"]
