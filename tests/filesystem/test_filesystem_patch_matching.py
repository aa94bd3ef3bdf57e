"""Where hunks are applied; one that fits equally well in two places is refused."""

from __future__ import annotations

import pytest
from patch_trees import file, link, plan

from wink_workspace.errors import PatchError

TEN = "".join(f"{n}\n" for n in range(1, 11))


def changed(hunks: str, data: bytes | str) -> bytes:
    """A file's content after a unified diff with these hunks."""
    after = plan(f"--- a/f\n+++ b/f\n{hunks}", {"f": data}).changes[0].after
    assert after is not None
    return after.data


def refused(hunks: str, data: bytes | str) -> str:
    with pytest.raises(PatchError) as error:
        changed(hunks, data)
    return error.value.message


def offset_and_fuzz(hunks: str, data: str) -> tuple[int, int]:
    patched = plan(f"--- a/f\n+++ b/f\n{hunks}", {"f": data}).files[0]
    return patched.offset_lines, len(patched.ignored_lines)


MIDDLE = "@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n"


@pytest.mark.parametrize(
    ("data", "offset"),
    [(TEN, 0), ("0\n" + TEN, 1), ("0\n0\n" + TEN, 2), (TEN[2:], 1), (TEN[6:], 3)],
)
def test_a_hunk_is_found_where_its_lines_have_moved_to(data: str, offset: int) -> None:
    assert changed(MIDDLE, data) == data.replace("5\n", "five\n").encode()
    assert offset_and_fuzz(MIDDLE, data) == (offset, 0)


def test_the_nearest_of_several_matches_is_not_preferred() -> None:
    block = "a\nb\nc\n"
    data = block + "\n" * 10 + block + "\n\n" + block
    hunk = "@@ -{0},3 +{0},3 @@\n a\n-b\n+B\n c\n"
    for line in (3, 13, 99):
        assert "fits equally well at lines 1, 14, 19" in refused(hunk.format(line), data)
    assert changed(hunk.format(14), data) == (block + "\n" * 10 + "a\nB\nc\n\n\n" + block).encode()


def test_of_several_matches_the_one_with_the_offset_of_both_neighbours_is_taken() -> None:
    lines = [*"0123", *"xyz", *"789", *"xyz", *"456"]
    data = "".join(f"{line}\n" for line in ["new"] * 6 + lines)
    before, hunk = "@@ -2,3 +2,3 @@\n 1\n-2\n+two\n 3\n", "@@ -11,3 +11,3 @@\n x\n-y\n+Y\n z\n"
    after = "@@ -14,3 +14,3 @@\n 4\n-5\n+five\n 6\n"
    assert changed(before + hunk + after, data).endswith(b"x\ny\nz\n7\n8\n9\nx\nY\nz\n4\nfive\n6\n")
    assert offset_and_fuzz(before + hunk + after, data) == (6, 0)


def test_the_offset_of_one_neighbour_does_not_decide_between_several_matches() -> None:
    """Lines may also have been added between the two hunks."""
    lines = [*"0123", *"xyz", *"789", *"xyz"]
    data = "".join(f"{line}\n" for line in ["new"] * 6 + lines)
    hunks = "@@ -2,3 +2,3 @@\n 1\n-2\n+two\n 3\n@@ -11,3 +11,3 @@\n x\n-y\n+Y\n z\n"
    assert "hunk 2 (patch line 8): fits equally well at lines 11, 17" in refused(hunks, data)


def test_a_hunk_at_the_end_of_the_file_stays_there() -> None:
    """For git and GNU patch, a change without context after it is at the end of the file."""
    hunk = "@@ -2,2 +2,3 @@\n }\n }\n+more\n"
    data = "a\n}\n}\nb\n}\n}\n"
    for line in (3, 5, 9):
        moved = hunk.replace("-2,2 +2,3", f"-{line},2 +{line},3")
        assert changed(moved, data).endswith(b"b\n}\n}\nmore\n")
    assert "belongs at the end of the file" in refused(hunk, data)


def test_a_hunk_at_the_start_of_the_file_stays_there() -> None:
    hunk = "@@ -1,2 +1,3 @@\n+more\n a\n a\n"
    assert changed(hunk, "a\na\nb\na\na\n") == b"more\na\na\nb\na\na\n"


@pytest.mark.parametrize("hunk", ["@@ -1 +1 @@\n-b\n+B\n", "@@ -1,2 +1,2 @@\n-b\n+B\n c\n"])
def test_a_hunk_with_little_context_needs_one_match_or_its_exact_line(hunk: str) -> None:
    assert changed(hunk, "b\nc\na\nb\nc\n") == b"B\nc\na\nb\nc\n"
    assert changed(hunk, "a\nb\nc\n") == b"a\nB\nc\n"
    assert "lines 2, 4" in refused(hunk, "a\nb\nc\nb\nc\n")


# ---------------------------------------------------------------------------------------- fuzz

AROUND = "@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n"


@pytest.mark.parametrize(
    ("old", "new", "fuzz"),
    [("3\n", "x\n", 1), ("9\n", "x\n", 1), ("3\n4\n", "x\ny\n", 2), ("8\n9\n", "", 2)],
)
def test_up_to_two_lines_of_context_on_each_side_are_ignored(old: str, new: str, fuzz: int) -> None:
    data = TEN.replace(old, new)
    assert changed(AROUND, data) == data.replace("6\n", "six\n").encode()
    assert offset_and_fuzz(AROUND, data)[1] == fuzz


def test_context_that_is_ignored_is_left_as_it_is() -> None:
    data = TEN.replace("3\n", "three\n").replace("9\n", "nine\n")
    assert changed(AROUND, data) == data.replace("6\n", "six\n").encode()


def test_three_wrong_lines_of_context_are_too_many() -> None:
    message = refused(AROUND, TEN.replace("3\n4\n5\n", "x\ny\nz\n"))
    assert "expected near line 3\n       | 3\n       | 4" in message
    assert "but the file has\n     3 | x\n     4 | y" in message


def test_a_wrong_line_between_the_context_is_never_ignored() -> None:
    assert "expected near line 3" in refused(AROUND, TEN.replace("6\n", "x\n"))


def test_two_matches_with_fuzz_are_refused_even_if_one_is_at_the_stated_line() -> None:
    data = "x\n4\n5\n6\n7\n8\ny\n" * 2
    hunk = "@@ -1,7 +1,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n"
    assert "fits equally well at lines 2, 9" in refused(hunk, data)


def test_fuzz_always_leaves_a_line_to_compare() -> None:
    """GNU patch would insert the line at the stated number without any comparison."""
    assert "expected near line 1" in refused("@@ -1,2 +1,3 @@\n a\n+new\n b\n", TEN)


def test_only_the_first_of_many_matches_are_listed() -> None:
    message = refused("@@ @@\n a\n-b\n+c\n", "a\nb\n" * 20)
    assert "lines 1, 3, 5, 7, 9, 11, 13, 15, …;" in message


# --------------------------------------------------------------------------- mistakes in patches


@pytest.mark.parametrize(
    "header",
    ["@@ -1,9 +1,9 @@", "@@ -1,3 +1,3 @@", "@@ -1 +1,2 @@", "@@ -4,0 +4,0 @@", "@@ -4,5 +4,5"],
)
def test_wrong_counts_are_ignored_where_the_end_of_the_hunk_is_clear(header: str) -> None:
    assert changed(f"{header}\n 3\n 4\n-5\n+five\n 6\n", TEN) == TEN.replace("5", "five").encode()


def test_wrong_counts_before_the_next_file_do_not_swallow_its_header() -> None:
    patch = "--- a/f\n+++ b/f\n@@ -1,9 +1,9 @@\n-1\n+x\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-2\n+y\n"
    changes = plan(patch, {"f": "1\n", "g": "2\n"}).changes
    assert [change.after for change in changes] == [file("x\n"), file("y\n")]


def test_lines_that_look_like_a_header_are_content_if_the_counts_include_them() -> None:
    hunk = "@@ -1,3 +1,3 @@\n a\n--- x\n+++ x\n b\n"
    assert changed(hunk, "a\n-- x\nb\n") == b"a\n++ x\nb\n"


@pytest.mark.parametrize("header", ["@@", "@@ @@", "@@ ... @@", "@@ … @@", "@@ def f(): @@"])
def test_a_hunk_without_line_numbers_is_applied_at_its_only_match(header: str) -> None:
    data = "def f():\n    x\n\ndef g():\n    y\n"
    assert changed(f"{header}\n-    x\n+    z\n", data) == data.replace("x", "z").encode()


def test_an_empty_line_counts_as_empty_context() -> None:
    assert changed("@@ -1,4 +1,4 @@\n a\n\n-b\n+c\n d\n", "a\n\nb\nd\n") == b"a\n\nc\nd\n"


def test_hunks_may_share_the_context_between_them() -> None:
    hunks = "@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n@@ -3,3 +3,3 @@\n 3\n-4\n+four\n 5\n"
    assert changed(hunks, TEN).startswith(b"1\ntwo\n3\nfour\n5\n")
    assert offset_and_fuzz(hunks, TEN) == (0, 0)


def test_hunks_found_in_another_order_than_their_line_numbers_are_refused() -> None:
    hunks = "@@ -{},3 +{},3 @@\n 7\n-8\n+x\n 9\n@@ -{},3 +{},3 @@\n 1\n-2\n+y\n 3\n"
    assert "which is above hunk 1" in refused(hunks.format(1, 1, 7, 7), TEN)
    assert changed(hunks.format(7, 7, 1, 1), TEN) == b"1\ny\n3\n4\n5\n6\n7\nx\n9\n10\n"


@pytest.mark.parametrize("hunk", ["@@ -3,0 +4 @@\n+new\n", "@@ -0,0 +1 @@\n+new\n", "@@\n+new\n"])
def test_lines_to_add_without_any_context_are_refused(hunk: str) -> None:
    assert "has no line of context" in refused(hunk, TEN)


def test_lines_are_added_to_an_empty_file() -> None:
    assert changed("@@ -0,0 +1,2 @@\n+a\n+b\n", "") == b"a\nb\n"


# ------------------------------------------------------------- line ends and byte order marks


@pytest.mark.parametrize(
    ("hunk", "data", "expected"),
    [
        pytest.param(
            "@@ -1,3 +1,4 @@\n a\n-b\n+B\n+C\n d\n",
            b"a\r\nb\r\nd\r\n",
            b"a\r\nB\r\nC\r\nd\r\n",
            id="CRLF in the file only",
        ),
        pytest.param(
            "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n d\r\n",
            b"a\nb\nd\n",
            b"a\nB\nd\n",
            id="CRLF in the hunk only",
        ),
        pytest.param(
            "@@ -1,3 +1,3 @@\n a\r\n-b\r\n+b\n d\r\n",
            b"a\r\nb\r\nd\r\n",
            b"a\r\nb\nd\r\n",
            id="changed on purpose",
        ),
        pytest.param(
            "@@ -1,4 +1,5 @@\n a\n-b\n+B\n c\n+C\n d\n",
            b"a\r\nb\nc\r\nd\n",
            b"a\r\nB\nc\r\nC\r\nd\n",
            id="mixed line ends, those of context kept",
        ),
        pytest.param(
            "@@ -1,2 +1,2 @@\n-a\n+A\n b\n",
            b"\xef\xbb\xbfa\nb\n",
            b"\xef\xbb\xbfA\nb\n",
            id="byte order mark",
        ),
        pytest.param(
            "@@ -1,2 +1,3 @@\n+0\n a\n b\n",
            b"\xef\xbb\xbfa\r\nb",
            b"\xef\xbb\xbf0\r\na\r\nb",
            id="byte order mark, CRLF, no final newline",
        ),
        pytest.param("@@ -1,2 +1,2 @@\n a\n-b\n+B\n", b"a\nb", b"a\nB", id="no final newline"),
        pytest.param(
            "@@ -1,2 +1,3 @@\n a\n b\n+c\n",
            b"a\r\nb",
            b"a\r\nb\r\nc",
            id="added after a line without newline",
        ),
        pytest.param("@@ -1,2 +1 @@\n a\n-b\n", b"a\nb", b"a", id="removed a line without newline"),
        pytest.param(
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n",
            b"a\nb\n",
            b"a\nc\n",
            id="final newline in the file already",
        ),
        pytest.param(
            "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n",
            b"a\r\nb\r\n",
            b"a\r\nc",
            id="final newline removed",
        ),
        pytest.param(
            "@@ -1 +1 @@\n-a\n\\ No newline\n+a\n", b"a", b"a\n", id="final newline added"
        ),
        pytest.param(
            "@@ -1,3 +1,3 @@\n \u2028\x0c\n-b\x1d\n+c\n d\x85\n",
            "\u2028\x0c\nb\x1d\nd\x85\n".encode(),
            "\u2028\x0c\nc\nd\x85\n".encode(),
            id="characters that only look like line ends",
        ),
        pytest.param("@@ -1 +1 @@\n-\udcff\n+\udcfe\n", b"\xff\n", b"\xfe\n", id="not UTF-8"),
    ],
)
def test_line_ends_and_byte_order_marks_stay_as_the_file_has_them(
    hunk: str, data: bytes, expected: bytes
) -> None:
    assert changed(hunk, data) == expected


def test_a_hunk_marked_as_end_of_file_is_refused_if_lines_follow() -> None:
    hunk = (
        "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
    )
    assert "is marked as the end of the file, but its lines are at line 1" in refused(
        hunk, "a\nb\nmore\n"
    )


def test_a_patch_with_crlf_in_all_its_lines_applies_like_one_with_lf() -> None:
    patch = "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"
    for data, expected in (
        (b"1\n2\n3\n", b"1\ntwo\n3\n"),
        (b"1\r\n2\r\n3\r\n", b"1\r\ntwo\r\n3\r\n"),
    ):
        after = plan(patch.replace("\n", "\r\n"), {"f": data}).changes[0].after
        assert after == file(expected)


def test_the_target_of_a_link_is_replaced_as_a_whole() -> None:
    patch = (
        "diff --git a/l b/l\nindex 1111..2222 120000\n--- a/l\n+++ b/l\n"
        "@@ -1 +1 @@\n-{}\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n"
    )
    assert plan(patch.format("old"), {"l": link("old")}).changes[0].after == link("new")
    with pytest.raises(PatchError, match="but the file has nothing similar"):
        plan(patch.format("zzz"), {"l": link("old")})
