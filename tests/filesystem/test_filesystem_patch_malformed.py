"""Patches that make no sense: one error each, with the line and what to do; and soon."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_trees import plan, texts

from wink_workspace.errors import FilesystemError, InvalidPathError, PatchError
from wink_workspace.filesystem.patch import parse_patch, touched_paths

NAMES = "--- a/f\n+++ b/f\n"
GIT = "diff --git a/f b/f\n"
HUNK = "@@ -1 +1 @@\n-a\n+b\n"
NEW = "--- /dev/null\n+++ b/f\n"
ADDED = f"{NEW}@@ -0,0 +1 @@\n+a\n"
BEGIN = "*** Begin Patch\n"
END = "*** End Patch\n"
UPDATE = f"{BEGIN}*** Update File: f\n"
BINARY = f"{GIT}index {'0' * 40}..{'1' * 40}\nGIT binary patch\n"

MALFORMED = [
    ("", "there is no patch"),
    ("please change a to b", "there is no patch"),
    ("1c1\n< a\n---\n> b\n", "there is no patch"),
    (
        "*** a/f\n--- b/f\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n",
        "line 3: a context diff",
    ),
    ("diff --cc f\nindex 1,2..3\n@@@ -1 -1 +1 @@@\n", "line 1: a combined diff"),
    (HUNK, "line 1: a change without a file header"),
    ("GIT binary patch\nliteral 0\n\n", "line 1: a change without a file header"),
    (f"{HUNK}{NAMES}{HUNK}", "line 1: a change without a file header"),
    (NAMES, "line 1: a file header without any change"),
    (GIT, "line 1: a file header without any change"),
    (f"{GIT}new file mode 100644\n{NEW}", "line 1: a file header without any change"),
    (f"{NAMES}{HUNK}{NAMES}", "line 6: a file header without any change"),
    (f"{NAMES}@@ -1 +1 @@\n", "line 3: the hunk changes nothing"),
    (f"{NAMES}@@ -1,2 +1,2 @@\n a\n b\n", "line 3: the hunk changes nothing"),
    (f"{NAMES}@@ -1,-3 +1 @@\n-a\n+b\n", "line 3: no valid hunk header"),
    (f"{NAMES}@@ -x +y @@\n-a\n+b\n", "line 3: no valid hunk header"),
    (f"{NAMES}@@ -{'9' * 5_000} +1 @@\n-a\n+b\n", "line 3: no valid hunk header"),
    (f"{NAMES}@@@ -1 -1 +1 @@@\n--a\n++b\n", "line 3: no valid hunk header"),
    (f"{NAMES}@@ -1,3 +1,3 @@\n-a\n+b\nc\nd\n", "line 6: no line of a hunk"),
    (f"{NAMES}@@ -1,3 +1,3 @@\n-a\n+b\n\rc\nd\n", "line 6: no line of a hunk"),
    (f"{NAMES}{HUNK}c\n+d\n", "line 7: a changed line outside of a hunk"),
    (f"{NAMES}{HUNK}\n-c\n", "line 7: a changed line outside of a hunk"),
    (f"{NAMES}{HUNK}c\n@@ -5 +5 @@\n-a\n+b\n", "line 7: a changed line outside of a hunk"),
    (f"{NAMES}@@ -1,9 +1,9 @@\n-a\n--- b\n+++ c\n+d\n", "line 5: this may be a file header"),
    (f"{NAMES}@@ -1,9 +1,9 @@\n-a\n--- b\n+++ b\n+d\n", "line 5: this may be a file header"),
    (f"{NAMES}@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n", "line 4: a '\\' line without"),
    (f"{NAMES}@@ -1 +1 @@\n-a\n\\ No\n\\ No\n+b\n", "line 6: a '\\' line without"),
    (
        f"{NAMES}@@ -1,2 +1 @@\n-a\n\\ No newline\n-b\n+c\n",
        "line 6: a line follows one that is marked",
    ),
    (
        f"{NAMES}@@ -1 +1,2 @@\n-a\n+b\n\\ No newline\n+c\n",
        "line 7: a line follows one that is marked",
    ),
    (f"{NAMES}@@ -1,2 +1 @@\n a\n\\ No newline\n-b\n", "line 6: a line follows one that is marked"),
    ("--- a/f\n+++ b/g\n" + HUNK, "line 1: the header names different files"),
    (f"{GIT}--- a/g\n+++ b/g\n{HUNK}", "line 1: the header names different files"),
    (
        "diff --git a/f b/g\nold mode 100644\nnew mode 100755\n",
        "line 1: the file's name is missing",
    ),
    ("--- a/\n+++ b/\n" + HUNK, "line 1: the header names different files"),
    ("--- .\n+++ .\n" + HUNK, "line 1: the file's name is missing"),
    ("--- /dev/null\n+++ /dev/null\n" + HUNK, "line 1: a file both made and deleted"),
    (
        f"{GIT}new file mode 100644\ndeleted file mode 100644\n",
        "line 1: a file both made and deleted",
    ),
    (f"{GIT}rename from f\n", "line 1: the header contradicts itself"),
    (f"{GIT}copy to f\n", "line 1: the header contradicts itself"),
    (f"{GIT}rename from f\nrename to g\n{NAMES}{HUNK}", "line 1: the header contradicts itself"),
    (
        f"{GIT}rename from f\nrename to g\nnew file mode 100644\n",
        "line 1: the header contradicts itself",
    ),
    (f"{GIT}rename from f\nrename to f\n", "line 1: a file header without any change"),
    ('diff --git a/f b/g\nrename from "f\nrename to g\n', "line 2: '\"f' is no quoted name"),
    (
        'diff --git a/f b/g\nrename from "f\\z"\nrename to g\n',
        "line 2: '\"f\\\\z\"' is no quoted name",
    ),
    (f"{GIT}new file mode 160000\nindex 0000..1111\n", "line 2: mode '160000'"),
    (f"{GIT}old mode 100644\nnew mode 040000\n", "line 3: mode '040000'"),
    (f"{GIT}old mode 100644\nnew mode rwx\n", "line 3: mode 'rwx'"),
    (f"{ADDED}@@ -5 +5 @@\n+b\n", "line 5: a second hunk for a new file"),
    (f"{NEW}@@ -1 +1 @@\n-a\n+b\n", "line 3: the file is created, so only '+' lines fit"),
    ("--- a/f\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", "the file is deleted, so only '-' lines fit"),
    (
        f"{GIT}index 1111..2222 100644\nBinary files a/f and b/f differ\n",
        "line 3: a change of a binary file",
    ),
    (f"{BINARY}delta x\n", "line 4: neither 'literal SIZE' nor 'delta SIZE'"),
    (f"{BINARY}literal 999999999\nzcmV\n\n", "line 4: 999999999 bytes of binary content"),
    (f"{BINARY}literal 5\n!nonsense\n\n", "line 4: a line of binary data has the wrong length"),
    (f"{BINARY}literal 5\nDA  AA\n\n", "line 4: a line of binary data is not base 85"),
    (f"{BINARY}literal 5\nD00000\n\n", "line 4: the binary data is damaged"),
    (
        f"{BINARY}literal 5\nHcmV?d00001\n\n",
        "line 4: the binary data does not inflate to the 5 bytes",
    ),
    (f"{BINARY}literal 0\nHcmV?d00001\n\n{HUNK}", "line 7: both binary and text changes"),
    (f"{NAMES}{HUNK}{BEGIN}*** Delete File: g\n{END}", "line 6: two forms of patches are mixed"),
    (f"{BEGIN}{END}", "line 1: the patch is empty"),
    (BEGIN, "line 2: the patch of line 1 has no end"),
    (f"{UPDATE}-a\n+b\n", "line 5: the patch of line 1 has no end"),
    (f"{UPDATE}{END}", "line 2: an update without any change"),
    (f"{UPDATE}@@\n{END}", "line 3: the hunk changes nothing"),
    (f"{UPDATE}@@\n a\n{END}", "line 3: the hunk changes nothing"),
    (f"{UPDATE}-a\nb\n{END}", "line 4: no section header"),
    (f"{BEGIN}*** Add File: f\na\n{END}", "line 3: no section header"),
    (f"{BEGIN}*** Add File: f\n+a\n\n+b\n{END}", "line 5: no section header"),
    (f"{BEGIN}*** Rename File: f\n{END}", "line 2: no section header"),
    (f"{BEGIN}*** Update File:\n-a\n+b\n{END}", "line 2: the file's name is missing"),
    (f"{UPDATE}*** Move to:\n{END}", "line 3: the file's name is missing"),
    (f"{UPDATE}-a\n+b\n{END}{UPDATE}-b\n+c\n{END}", "line 6: a second patch after the end"),
    (f"{UPDATE}-a\n+b\n{END}{NAMES}{HUNK}", "line 6: a second patch after the end"),
    (f"{NAMES}@@ -1 +1 @@\n-a\n+\ud800\n", "line 5: a lone surrogate"),
]


@pytest.mark.parametrize(("patch", "told"), MALFORMED)
def test_a_malformed_patch_gives_one_error_with_its_line_and_a_hint(patch: str, told: str) -> None:
    with pytest.raises(PatchError) as refused:
        touched_paths(patch)
    assert told in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    "patch",
    [
        "--- a/x\0y\n+++ b/x\0y\n" + HUNK,
        "--- a/x\\y\n+++ b/x\\y\n" + HUNK,
        '--- "a/x\\000y"\n+++ "b/x\\000y"\n' + HUNK,
        f"{BEGIN}*** Delete File: a\\b\n{END}",
    ],
)
def test_a_name_that_is_no_path_is_refused_as_such(patch: str) -> None:
    with pytest.raises(InvalidPathError) as refused:
        touched_paths(patch)
    assert refused.value.hint


PIECES = [NAMES, GIT, HUNK, ADDED, BEGIN, END, UPDATE, BINARY, "literal 0\nHcmV?d00001\n\n", "\n"]
PIECES += [
    "@@ -1,2 +1,2 @@\n",
    "@@\n",
    " a\n",
    "-a\n",
    "+a\n",
    "\\ No\n",
    "--- x\n",
    "+++ x\n",
    "```\n",
]
PIECES += ["*** Add File: g\n", "*** Move to: h\n", "*** End of File\n", "rename from f\n", "a\r\n"]
PIECES += [
    "rename to g\n",
    "new mode 100755\n",
    "index 1111..2222 100644\n",
    '"a\\',
    "-- \n",
    "\ufeff",
]


def error_of(patch: str, data: bytes) -> FilesystemError | InvalidPathError | None:
    try:
        plan(patch, {"f": data, "x": "a\n"})
    except (FilesystemError, InvalidPathError) as error:
        return error
    return None


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12), data=texts())
@settings(max_examples=200, deadline=None)
def test_no_patch_however_garbled_gives_anything_but_a_plan_or_an_error_with_a_hint(
    pieces: list[str], data: bytes
) -> None:
    error = error_of("".join(pieces), data)
    assert error is None or error.hint


# ----------------------------------------------------------- made to take long: 1 MiB of trouble

SIZE = 1_048_576


def filled(start: str, piece: str, end: str = "") -> str:
    return start + piece * (SIZE // len(piece)) + end


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param(filled("", "--- a\n"), id="half of a header"),
        pytest.param(filled(NAMES, "@@\n"), id="hunk headers"),
        pytest.param(filled(NAMES + "@@ -", "1"), id="one long number"),
        pytest.param(filled("diff --git", " "), id="spaces for names"),
        pytest.param(filled("diff --git a/x", " b/x"), id="many ways to split names"),
        pytest.param(filled('diff --git "', "\\1"), id="one long quoted name"),
        pytest.param(filled("--- a", " 2020-01-01 00:00:00", "\n+++ b\n"), id="many dates"),
        pytest.param(filled(NAMES, "@@ -1,99999 +1,99999 @@\n-a\n+b\n", "x"), id="wrong counts"),
        pytest.param(filled(UPDATE, "\n"), id="empty lines"),
    ],
)
def test_reading_a_large_patch_ends_with_an_error(patch: str) -> None:
    with pytest.raises((PatchError, InvalidPathError)):
        parse_patch(patch)


PLACING = {
    "lines that are everywhere": filled(NAMES, "@@\n a\n-a\n+b\n a\n"),
    "one file": filled(NAMES + HUNK, f"{NAMES}{HUNK}{NAMES}@@ -1 +1 @@\n-b\n+a\n"),
}
MORE_PLACING = {
    "lines that are missing": filled(NAMES, "@@ -1,3 +1,3 @@\n x\n-y\n+b\n z\n"),
    "fuzz": filled(NAMES, "@@ -9,3 +9,3 @@\n b\n a\n-c\n+x\n a\n b\n"),
    "scopes": filled(UPDATE, "@@ a\n-a\n+b\n", END),
    "lines to add below scopes": filled(UPDATE, "@@ a\n+b\n", END),
    "one deep scope": filled(UPDATE, "@@ a\n", f"-a\n+b\n{END}"),
    "one long scope": filled(NAMES + "@@", " ", "x\n-a\n+b\n"),
    "one large hunk": filled(NAMES + "@@ -1 +1 @@\n", "-a\n", "-b\n+c\n"),
}


def ends_with_an_error(patch: str) -> bool:
    with pytest.raises(PatchError) as refused:
        plan(patch, {"f": "a\n" * 20_000})
    return "takes too long" in refused.value.message or "does not apply" in refused.value.message


@pytest.mark.parametrize("patch", PLACING.values(), ids=PLACING)
def test_placing_a_large_patch_in_a_repetitive_file_ends_with_an_error(patch: str) -> None:
    assert ends_with_an_error(patch)


@pytest.mark.soak
@pytest.mark.parametrize("patch", MORE_PLACING.values(), ids=MORE_PLACING)
def test_placing_any_large_patch_in_a_repetitive_file_ends_with_an_error(patch: str) -> None:
    assert ends_with_an_error(patch)
