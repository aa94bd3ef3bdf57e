"""A patch is applied as intended, or refused."""

from __future__ import annotations

import pytest
from patch_trees import plan

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.model import PatchedFile

READERS = """\
class Reader:
    def open(self):
        self.check()
        self.count += 1
        return self.source


class Writer:
    def close(self):
        self.flush()
        self.count -= 1
        return self.target
"""


def unified(*lines: str) -> str:
    return "\n".join(["--- a/f", "+++ b/f", *lines]) + "\n"


def update(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", "*** Update File: f", *lines, "*** End Patch"]) + "\n"


def changed(patch: str, data: bytes | str) -> bytes:
    after = plan(patch, {"f": data}).changes[0].after
    assert after is not None
    return after.data


def reported(patch: str, data: bytes | str) -> PatchedFile:
    return plan(patch, {"f": data}).files[0]


def refused(patch: str, data: bytes | str) -> str:
    with pytest.raises(PatchError) as error:
        changed(patch, data)
    assert error.value.hint
    assert "line -" not in error.value.message
    assert "line 0" not in error.value.message
    return error.value.message


def numbered(n_lines: int) -> str:
    return "".join(f"line {n}\n" for n in range(1, n_lines + 1))


# ----------------------------------------------------------------------- a unique exact match

CLOSE = [
    "     def close(self):",
    "         self.flush()",
    "-        self.count -= 1",
    "+        self.count = 0",
    "         return self.target",
]


@pytest.mark.parametrize(
    "patch",
    [
        update("@@ class Reader:", *CLOSE),
        update("@@ class Missing:", "@@ def close(self):", *CLOSE),
        update("@@ -2,4 +2,4 @@", *CLOSE),
        unified("@@ -2,4 +2,4 @@", *CLOSE),
        unified("@@ -2,4 +2,4 @@ class Reader:", *CLOSE),
        unified("@@ -900,4 +900,4 @@", *CLOSE),
    ],
)
def test_a_unique_exact_match_wins_over_a_header_that_points_elsewhere(patch: str) -> None:
    data = READERS.replace("self.check()", "self.flush()")
    assert changed(patch, data) == data.replace("count -= 1", "count = 0").encode()


def test_a_scope_never_leads_to_a_fuzzy_match() -> None:
    """Without its outermost lines the hunk fits in both classes, and exactly in neither."""
    body = "    def get(self):\n        x = 1\n        return x\n"
    data = f"class Reader:\n{body}\n\nclass Writer:\n{body}"
    patch = update(
        "@@ class Reader:",
        " # gone",
        *(f" {line}" for line in body.split("\n")[:2]),
        "+        x += 1",
    )
    assert "hunk 1" in refused(patch, data)


def test_a_scope_that_does_not_contain_the_fuzzy_match_is_refused() -> None:
    patch = update("@@ class Reader:", "     # gone", *CLOSE)
    assert "hunk 1" in refused(patch, READERS)


def test_two_hunks_that_change_the_same_lines_are_refused() -> None:
    hunk = ["@@", " line 1", "-line 2", "+2"]
    assert "hunk 2" in refused(update(*hunk, *hunk), numbered(5))


# --------------------------------------------------------------------------------------- fuzz


def test_fuzz_keeps_a_line_of_context() -> None:
    """With one or two lines of context, fuzz would change another function."""
    data = "def one():\n    return 1\n\n\ndef two():\n    return 2\n"
    for context in ([" def three():"], [" class A:", " def three():"], ["", " def three():"]):
        patch = unified("@@ -1,3 +1,3 @@", *context, "-    return 2", "+    return 3")
        assert "hunk 1" in refused(patch, data)


def test_fuzz_does_not_count_a_blank_line_as_context() -> None:
    data = "a\n\nreturn x\n\nb\n"
    patch = unified("@@ -1,5 +1,5 @@", " z", "", "-return x", "+return y", "", " z")
    assert "hunk 1" in refused(patch, data)


def test_fuzz_does_not_change_the_only_other_function_with_the_same_lines() -> None:
    data = (
        "class A:\n    def get():\n        return 0\n\nclass B:\n    def get():\n        return 1\n"
    )
    patch = update("@@", " class A:", "     def get():", "-        return 1", "+        return 2")
    assert "hunk 1" in refused(patch, data)


SIMILAR_FUNCTIONS = """\
def load(items):
    check(items)
    total = 0
    for item in items:
        total += item
    return total


def save(items):
    check(items)
    total = 0
    for item in items:
        total += item
    return items
"""
CHANGE_IN_LOAD = [
    " def load(items):",
    "     check(items)",
    "     total = 0",
    "+    limit = 9",
    "     for item in items:",
    "         total += item",
]


def test_fuzz_does_not_match_a_similar_function_when_the_right_one_changed() -> None:
    """Without the line that names it, the hunk fits in the other function only."""
    data = SIMILAR_FUNCTIONS.replace("    total = 0\n", "    total = 1\n", 1)
    assert "hunk 1" in refused(unified("@@ -1,5 +1,6 @@", *CHANGE_IN_LOAD), data)
    assert "hunk 1" in refused(update(*CHANGE_IN_LOAD), data)


def test_fuzz_does_not_match_a_similar_function_when_the_right_one_was_indented() -> None:
    data = "".join(f"    {line}\n" for line in SIMILAR_FUNCTIONS.split("\n")[:6])
    assert "hunk 1" in refused(
        update(*CHANGE_IN_LOAD),
        f"if wanted:\n{data}{SIMILAR_FUNCTIONS[SIMILAR_FUNCTIONS.index('def s') :]}",
    )


def test_fuzz_needs_lines_that_occur_only_once() -> None:
    data = "}\nend\n}\n\nend\na\nb\n"
    assert "hunk 1" in refused(update(" missing", " a", "-b", "+c"), data)


def test_ignored_lines_count_as_context_if_they_are_nearby() -> None:
    patch = update(" one", " a", "+more", " b", " two")
    data = "one\nnew\na\nb\ntwo\n"
    assert changed(patch, data) == b"one\nnew\na\nmore\nb\ntwo\n"
    assert "hunk 1" in refused(patch, data.replace("one", "1").replace("two", "2"))


def test_the_stated_line_counts_as_evidence_for_a_match_with_fuzz() -> None:
    hunk = [" before", " a", "+more", " b"]
    data = "x\na\nb\ny\nz\nb\n"  # only "a" is unique
    assert changed(unified("@@ -1,3 +1,4 @@", *hunk), data) == b"x\na\nmore\nb\ny\nz\nb\n"
    assert "hunk 1" in refused(unified("@@ -2,3 +2,4 @@", *hunk), data)
    assert "hunk 1" in refused(update(*hunk), data)


@pytest.mark.parametrize("n_above", [20, 21])
def test_fuzz_far_from_the_stated_line_may_miss_one_line_only(n_above: int) -> None:
    """The intended lines may be gone, and these be the only similar ones."""
    changes = ["-line 3", "+three", " line 4", " line 5", " line 6", " line 7"]
    above = "".join(f"above {n}\n" for n in range(n_above))
    data = above + numbered(8).replace("line 1\n", "one\n")
    missing_one = unified("@@ -1,7 +1,7 @@", " line 1", " line 2", *changes)
    assert b"three" in changed(missing_one, data)
    missing_two = unified("@@ -1,7 +1,7 @@", " line 1", " 2", *changes)
    if n_above == 20:
        assert b"three" in changed(missing_two, data)
    else:
        assert "hunk 1" in refused(missing_two, data)


def test_fuzz_does_not_insert_lines_that_are_next_to_the_match_already() -> None:
    data = numbered(12).replace("line 4\n", "new 1\nnew 2\n")
    hunk = [" line 3", " line 4", "+new 1", "+new 2", " line 5", " line 6", "-line 7", " line 8"]
    assert "hunk 1" in refused(update(*hunk), data)
    assert changed(update(*hunk), data.replace("new", "old")).count(b"new") == 2


# ------------------------------------------------------------------- old lines that are blank


@pytest.mark.parametrize("blank", ["", "  "])
def test_blank_old_lines_count_only_at_the_stated_line(blank: str) -> None:
    """Blank lines are everywhere, also between scopes: even a single match may be a wrong one."""
    data = f"class A:\n    x = 1\n{blank}\n    def get():\n        return 1\n"
    for scope in (["@@"], ["@@ class A:"], ["@@ class A:", "@@ def get():"], ["@@ -1,1 +1,1 @@"]):
        assert "hunk 1" in refused(update(*scope, "-", "+    y = 2"), data)
    patch = unified("@@ -3,1 +3,1 @@", "-", "+    y = 2")
    assert changed(patch, data) == data.replace(f"1\n{blank}\n", "1\n    y = 2\n").encode()


AROUND = [
    *("@@ -3,7 +3,7 @@", " line 3", " line 4", " line 5", "-line 6", "+six"),
    *(" line 7", " line 8", " line 9"),
]


def test_every_ignored_line_of_context_is_reported() -> None:
    data = numbered(12).replace("line 4\n", "four\n").replace("line 9\n", "nine\n")
    assert changed(unified(*AROUND), data) == data.replace("line 6", "six").encode()
    assert reported(unified(*AROUND), data).ignored_lines == (4, 5, 11)


def test_line_numbers_start_at_one_if_ignored_context_is_before_the_file() -> None:
    data = "".join(numbered(9).splitlines(keepends=True)[4:])
    file = reported(unified(*AROUND), data)
    assert file.ignored_lines == (4, 5)
    assert [(lines.first, lines.n_lines) for lines in file.lines] == [(2, 1)]
    assert "lines 1, 7" in refused(unified(*AROUND), data + data.replace("line 5", "new\nline 5"))


# ---------------------------------------------------------------------------- already applied

INSERTIONS = {
    "between": unified("@@ -2,4 +2,5 @@", " line 2", " line 3", "+new", " line 4", " line 5"),
    "at the end": unified("@@ -8,3 +8,4 @@", " line 8", " line 9", " line 10", "+new"),
    "at the start": unified("@@ -1,2 +1,3 @@", "+new", " line 1", " line 2"),
    "below": update(" line 3", "+new"),
    "above": update("+new", " line 3"),
    "below one of two": unified("@@ -3,2 +3,3 @@", " line 3", "+new", " line 4"),
    "at the marked end": update(" line 10", "+new", "*** End of File"),
    "without context at the end": update("+new", "*** End of File"),
    "below a scope": update("@@ line 3", "+new"),
    "twice": update("@@", " line 2", "+new", "@@", " line 7", "+other"),
    "lines like those above": unified(
        "@@ -2,4 +2,7 @@", " line 2", " line 3", "+new", "+line 2", "+line 3", " line 4", " line 5"
    ),
    "lines like those below": unified(
        "@@ -2,4 +2,7 @@", " line 2", " line 3", "+line 4", "+line 5", "+new", " line 4", " line 5"
    ),
}


@pytest.mark.parametrize("patch", INSERTIONS.values(), ids=INSERTIONS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_insertion_sent_twice_is_refused_as_already_applied(patch: str, end: str) -> None:
    once = changed(patch, numbered(10).replace("\n", end))
    assert "already applied" in refused(patch, once)


@pytest.mark.parametrize(("one", "two"), [("", "text"), ("text", "")])
def test_an_insertion_at_the_stated_line_may_repeat_the_lines_above(one: str, two: str) -> None:
    patch = unified("@@ -3 +3,3 @@", f" {one}", f"+{two}", f"+{one}")
    before = f"{one}\n{two}\n{one}\n"
    after = changed(patch, before)
    assert after == f"{before}{two}\n{one}\n".encode()
    assert "already applied" in refused(patch, after)


def test_the_message_about_an_applied_insertion_names_its_lines() -> None:
    once = changed(INSERTIONS["below"], numbered(10))
    assert "hunk 1 (patch line 3): already applied: its result is at line 4" in refused(
        INSERTIONS["below"], once
    )


@pytest.mark.parametrize(
    ("hunk", "data"),
    [
        pytest.param([" a", "-b", "+B", " c"], "a\nb\nc\n", id="only place"),
        pytest.param(
            ["@@ -1,3 +1,3 @@", " a", "-b", "+B", " c"], "a\nb\nc\nx\na\nb\nc\n", id="stated"
        ),
        pytest.param(["@@ -1,3 +1,2 @@", " a", "-b", " c"], "a\nb\nc\nx\na\nb\nc\n", id="removed"),
        pytest.param(
            ["@@ -1,2 +1,3 @@", " a", "+new", " b"], "a\nb\nx\na\nb\n", id="inserted in one of two"
        ),
    ],
)
def test_a_change_sent_twice_is_not_made_elsewhere(hunk: list[str], data: str) -> None:
    patch = update(*hunk)
    once = changed(patch, data)
    assert "already applied" in refused(patch, once)


def test_a_scoped_change_sent_twice_is_not_made_in_another_scope() -> None:
    body = "    def get(self):\n        x = 1\n        return x\n"
    data = f"class Reader:\n{body}\n\nclass Writer:\n{body}"
    patch = update("@@ class Reader:", "         x = 1", "+        x += 1", "         return x")
    once = changed(patch, data)
    assert once.count(b"x += 1") == 1
    assert "already applied" in refused(patch, once)


def test_lines_equal_to_their_neighbours_can_be_inserted() -> None:
    data = "foo()\n}\n\nnext\n"
    patch = unified("@@ -1,4 +1,6 @@", " foo()", " }", "+}", " ", "+", " next")
    assert changed(patch, data) == b"foo()\n}\n}\n\n\nnext\n"


# ------------------------------------------------------------------------- ends of the file


def test_an_insertion_at_the_end_or_start_is_made_only_there_as_in_git() -> None:
    data = numbered(10)
    assert changed(INSERTIONS["at the end"], data).endswith(b"line 10\nnew\n")
    assert changed(INSERTIONS["at the start"], data).startswith(b"new\nline 1\n")
    message = refused(INSERTIONS["at the end"], data + "more\n")
    assert "belongs at the end of the file, but its lines are at line 8" in message
    message = refused(INSERTIONS["at the start"], "more\n" + data)
    assert "belongs at the start of the file, but its lines are at line 2" in message


def test_an_insertion_that_fits_at_its_stated_line_is_not_made_at_the_end() -> None:
    data = "}\n}\na\n}\n}\n"
    at_end = refused(unified("@@ -1,2 +1,3 @@", " }", " }", "+new"), data + "}\n")
    assert "belongs at the end of the file" in at_end
    assert changed(unified("@@ -3,2 +3,3 @@", " }", " }", "+new"), data).endswith(b"}\nnew\n")


def test_a_change_with_all_its_context_on_one_side_is_not_moved_from_the_end() -> None:
    """The end has changed, and the same lines occur once more elsewhere."""
    block = "def f():\n    a()\n    b()\n    c()\n"
    patch = unified("@@ -7,4 +7,4 @@", " def f():", "     a()", "     b()", "-    c()", "+    d()")
    data = f"{block}\n\ndef f():\n    a()\n    x()\n    c()\n"
    assert "belongs at the end of the file" in refused(patch, data)
    assert changed(patch.replace("-7,4", "-1,4"), data).startswith(
        b"def f():\n    a()\n    b()\n    d()"
    )


# ---------------------------------------------------------------- several exact matches


def test_of_several_exact_matches_the_one_at_the_stated_line_is_taken() -> None:
    data = "a\nb\nc\n" * 4
    patch = unified("@@ -4,3 +4,3 @@", " a", "-b", "+B", " c")
    assert changed(patch, data) == b"a\nb\nc\na\nB\nc\na\nb\nc\na\nb\nc\n"


def test_several_exact_matches_without_a_stated_line_are_refused_with_their_lines() -> None:
    data = "a\nb\nc\n" * 3
    assert "lines 1, 4, 7" in refused(update(" a", "-b", "+B", " c"), data)


# ---------------------------------------------------------------- lines that look the same


@pytest.mark.parametrize(
    ("line", "sent", "note"),
    [
        ("x = 1  ", "x = 1", "trailing white space"),
        ("x = 1\t", "x = 1", "trailing white space"),
        ("x = 1", "x = 1  ", "trailing white space"),
        ("say(\u201chi\u201d)", 'say("hi")', "Unicode punctuation"),
        ("say('hi')", "say(\u2018hi\u2019)", "Unicode punctuation"),
        ("a \u2013 b", "a - b", "Unicode punctuation"),
        ("wait\u2026", "wait...", "Unicode punctuation"),
        ("a\u00a0b", "a b", "no-break spaces"),
        ("a\u202fb", "a b", "no-break spaces"),
    ],
)
@pytest.mark.parametrize("sign", [" ", "-"])
def test_lines_that_look_the_same_match_if_only_one_match_exists(
    line: str, sent: str, note: str, sign: str
) -> None:
    data = f"def f():\n{line}\n    end\n"
    patch = update(" def f():", f"{sign}{sent}", "+new", "     end")
    kept = f"{line}\n" if sign == " " else ""
    assert changed(patch, data) == f"def f():\n{kept}new\n    end\n".encode()
    assert any(note in text for text in reported(patch, data).notes)
    assert "lines 1, 4" in refused(patch, data * 2)


@pytest.mark.parametrize(
    ("line", "sent", "message"),
    [
        ("\tx = 1", "    x = 1", "the file has a tab here"),
        ("    x = 1", "\tx = 1", "a tab"),
        ("  x = 1", "    x = 1", "2 spaces"),
        ("x = 'a  b'", "x = 'a b'", "2 spaces"),
        ("x\u200b = 1", "x = 1", "U+200B"),
        ("caf\u00e9", "cafe\u0301", "U+00E9"),
        ("x\u0430", "xa", "U+0430"),
    ],
)
def test_indentation_is_never_guessed_and_a_refusal_names_the_difference(
    line: str, sent: str, message: str
) -> None:
    assert message in refused(update(" def f():", f"-{sent}", "+new"), f"def f():\n{line}\n")
