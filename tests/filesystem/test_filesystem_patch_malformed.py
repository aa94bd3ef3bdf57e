"""Malformed patches: each gives one error with the line and a hint, in bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_trees import plan, texts
from random_cases import examples

from wink_workspace.errors import FilesystemError, InvalidPathError, PatchError
from wink_workspace.filesystem.patch import touched_paths

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
    (NAMES, "line 1: a file header without a change"),
    (GIT, "line 1: a file header without a change"),
    (f"{GIT}new file mode 100644\n{NEW}", "line 1: a file header without a change"),
    (f"{NAMES}{HUNK}{NAMES}", "line 6: a file header without a change"),
    (f"{NAMES}@@ -1 +1 @@\n", "line 3: the hunk changes nothing"),
    (f"{NAMES}@@ -1,2 +1,2 @@\n a\n b\n", "line 3: the hunk changes nothing"),
    (f"{NAMES}@@ -1,-3 +1 @@\n-a\n+b\n", "line 3: invalid hunk header"),
    (f"{NAMES}@@ -x +y @@\n-a\n+b\n", "line 3: invalid hunk header"),
    (f"{NAMES}@@ -{'9' * 5_000} +1 @@\n-a\n+b\n", "line 3: invalid hunk header"),
    (f"{NAMES}@@@ -1 -1 +1 @@@\n--a\n++b\n", "line 3: invalid hunk header"),
    (f"{NAMES}@@ -1,3 +1,3 @@\n-a\n+b\nc\nd\n", "line 6: not a line of a hunk"),
    (f"{NAMES}@@ -1,3 +1,3 @@\n-a\n+b\n\rc\nd\n", "line 6: not a line of a hunk"),
    (f"{NAMES}{HUNK}c\n+d\n", "line 7: a changed line outside of a hunk"),
    (f"{NAMES}{HUNK}\n-c\n", "line 7: a changed line outside of a hunk"),
    (f"{NAMES}{HUNK}c\n@@ -5 +5 @@\n-a\n+b\n", "line 7: a changed line outside of a hunk"),
    (f"{NAMES}@@ -1,9 +1,9 @@\n-a\n--- b\n+++ c\n+d\n", "line 5: this may be a file header"),
    (f"{NAMES}@@ -1,9 +1,9 @@\n-a\n--- b\n+++ b\n+d\n", "line 5: this may be a file header"),
    (
        f"{NAMES}@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n",
        "line 4: a '\\' line that does not follow",
    ),
    (f"{NAMES}@@ -1 +1 @@\n-a\n\\ No\n\\ No\n+b\n", "line 6: a '\\' line that does not follow"),
    (
        f"{NAMES}@@ -1,2 +1 @@\n-a\n\\ No newline\n-b\n+c\n",
        "line 6: a line follows the line that is marked",
    ),
    (
        f"{NAMES}@@ -1 +1,2 @@\n-a\n+b\n\\ No newline\n+c\n",
        "line 7: a line follows the line that is marked",
    ),
    (
        f"{NAMES}@@ -1,2 +1 @@\n a\n\\ No newline\n-b\n",
        "line 6: a line follows the line that is marked",
    ),
    ("--- a/f\n+++ b/g\n" + HUNK, "line 1: the header names different files"),
    (f"{GIT}--- a/g\n+++ b/g\n{HUNK}", "line 1: the header names different files"),
    (
        "diff --git a/f b/g\nold mode 100644\nnew mode 100755\n",
        "line 1: the file's name is missing",
    ),
    ("--- a/\n+++ b/\n" + HUNK, "line 1: the header names different files"),
    ("--- .\n+++ .\n" + HUNK, "line 1: the file's name is missing"),
    ("--- /dev/null\n+++ /dev/null\n" + HUNK, "line 1: a file both created and deleted"),
    (
        f"{GIT}new file mode 100644\ndeleted file mode 100644\n",
        "line 1: a file both created and deleted",
    ),
    (f"{GIT}rename from f\n", "line 1: the header contradicts itself"),
    (f"{GIT}copy to f\n", "line 1: the header contradicts itself"),
    (f"{GIT}rename from f\nrename to g\n{NAMES}{HUNK}", "line 1: the header contradicts itself"),
    (
        f"{GIT}rename from f\nrename to g\nnew file mode 100644\n",
        "line 1: the header contradicts itself",
    ),
    (f"{GIT}rename from f\nrename to f\n", "line 1: a file header without a change"),
    ('diff --git a/f b/g\nrename from "f\nrename to g\n', "line 2: '\"f' is not a quoted name"),
    (
        'diff --git a/f b/g\nrename from "f\\z"\nrename to g\n',
        "line 2: '\"f\\\\z\"' is not a quoted name",
    ),
    (f"{GIT}new file mode 160000\nindex 0000..1111\n", "line 2: unsupported mode '160000'"),
    (f"{GIT}old mode 100644\nnew mode 040000\n", "line 3: unsupported mode '040000'"),
    (f"{GIT}old mode 100644\nnew mode rwx\n", "line 3: unsupported mode 'rwx'"),
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
        "line 4: the binary data does not inflate to the stated 5 bytes",
    ),
    (f"{BINARY}literal 0\nHcmV?d00001\n\n{HUNK}", "line 7: both binary and text changes"),
    (f"{NAMES}{HUNK}{BEGIN}*** Delete File: g\n{END}", "line 6: two patch formats are mixed"),
    (f"{BEGIN}{END}", "line 1: the patch is empty"),
    (BEGIN, "line 1: the patch is empty"),
    (UPDATE, "line 2: an update without any change"),
    (f"{UPDATE}-a\n+b\nThat is all.\n", "line 5: not a section header"),
    (f"{BEGIN}{NAMES}{END}", "line 2: a file header without a change"),
    (f"{UPDATE}--- a/g\n+++ b/g\n{HUNK}{END}", "line 3: the header names another file"),
    (f"{BEGIN}{NAMES}{HUNK}{END}{UPDATE}-b\n+c\n", "line 8: a second patch after the end"),
    (
        r"*** Begin Patch\n*** Update File: f\n@@\n-a\n+b\n*** End Patch",
        r"line 1: the text has a literal '\n'",
    ),
    (
        BEGIN + r"*** Update File: f\n@@\n-a\n+b\n*** End Patch",
        r"line 2: the text has a literal '\n'",
    ),
    (r"--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", r"line 1: the text has a literal '\n'"),
    (r"diff --git a/f b/f\n--- a/f\n+++ b/f\n", r"line 1: the text has a literal '\n'"),
    (NAMES + r"@@ -1 +1 @@\n-a\n+b\n", r"line 3: the text has a literal '\n'"),
    (UPDATE + r"@@\n-a\n+b\n", r"line 3: the text has a literal '\n'"),
    (f"{UPDATE}{END}", "line 2: an update without any change"),
    (f"{UPDATE}@@\n{END}", "line 3: the hunk changes nothing"),
    (f"{UPDATE}@@\n a\n{END}", "line 3: the hunk changes nothing"),
    (f"{UPDATE}-a\nb\n{END}", "line 4: not a section header"),
    (f"{BEGIN}*** Add File: f\na\n{END}", "line 3: not a section header"),
    (f"{BEGIN}*** Add File: f\n+a\n\n+b\n{END}", "line 5: not a section header"),
    (f"{BEGIN}*** Rename File: f\n{END}", "line 2: not a section header"),
    (f"{BEGIN}*** Update File:\n-a\n+b\n{END}", "line 2: the file's name is missing"),
    (f"{UPDATE}*** Move to:\n{END}", "line 3: the file's name is missing"),
    (f"{UPDATE}-a\n+b\n{END}{UPDATE}-b\n+c\n{END}", "line 6: a second patch after the end"),
    (f"{UPDATE}-a\n+b\n{END}{NAMES}{HUNK}", "line 6: a second patch after the end"),
    (f"{NAMES}@@ -1 +1 @@\n-a\n+\ud800\n", "line 5: a lone surrogate"),
]


@pytest.mark.parametrize(("patch", "message"), MALFORMED)
def test_a_malformed_patch_gives_one_error_with_its_line_and_a_hint(
    patch: str, message: str
) -> None:
    with pytest.raises(PatchError) as refused:
        touched_paths(patch)
    assert message in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    "patch",
    [
        "--- a/x\0y\n+++ b/x\0y\n" + HUNK,
        '--- "a/x\\000y"\n+++ "b/x\\000y"\n' + HUNK,
        f"{BEGIN}*** Delete File: a\0b\n{END}",
    ],
)
def test_a_name_that_is_not_a_path_is_an_invalid_path_error(patch: str) -> None:
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
@settings(max_examples=examples(200), deadline=None)
def test_any_garbled_patch_gives_a_plan_or_an_error_with_a_hint(
    pieces: list[str], data: bytes
) -> None:
    error = error_of("".join(pieces), data)
    assert error is None or error.hint


# ----------------------------------------------------------------------------- slow patches

Repetition = tuple[str, str, str]
"""The start of a patch, the part that is repeated, and the end."""

SLOW_PATCHES: dict[str, Repetition] = {
    "half of a header": ("", "--- a\n", ""),
    "hunk headers": (NAMES, "@@\n", ""),
    "one long number": (f"{NAMES}@@ -", "1", ""),
    "spaces for names": ("diff --git", " ", ""),
    "many ways to split names": ("diff --git a/x", " b/x", ""),
    "one long quoted name": ('diff --git "', "\\1", ""),
    "many dates": ("--- a", " 2020-01-01 00:00:00", "\n+++ b\n"),
    "wrong counts": (NAMES, "@@ -1,99999 +1,99999 @@\n-a\n+b\n", "x"),
    "empty lines": (UPDATE, "\n", ""),
    "a scope that is missing": (f"{NAMES}@@", " ", "x\n-a\n+b\n"),
    "lines that are everywhere": (NAMES, "@@\n a\n-a\n+b\n a\n", ""),
    "one file again and again": (NAMES + HUNK, f"{NAMES}{HUNK}{NAMES}@@ -1 +1 @@\n-b\n+a\n", ""),
    "lines that are missing": (NAMES, "@@ -1,3 +1,3 @@\n x\n-y\n+b\n z\n", ""),
    "fuzz": (NAMES, "@@ -9,3 +9,3 @@\n b\n a\n-c\n+x\n a\n b\n", ""),
    "scopes": (UPDATE, "@@ a\n-a\n+b\n", END),
    "lines to add below scopes": (UPDATE, "@@ a\n+b\n", END),
    "one deep scope": (UPDATE, "@@ a\n", f"-a\n+b\n{END}"),
    "one large hunk": (f"{NAMES}@@ -1 +1 @@\n", "-a\n", "-b\n+c\n"),
}


def error_of_repeated(
    repetition: Repetition, n_chars: int
) -> FilesystemError | InvalidPathError | None:
    start, piece, end = repetition
    patch = start + piece * (n_chars // len(piece)) + end
    return error_of(patch, b"a\n" * (n_chars // 10))


@pytest.mark.parametrize("repetition", SLOW_PATCHES.values(), ids=SLOW_PATCHES)
def test_a_patch_made_to_be_slow_ends_with_an_error(repetition: Repetition) -> None:
    assert error_of_repeated(repetition, 65_536) is not None


@pytest.mark.soak
@pytest.mark.parametrize("repetition", SLOW_PATCHES.values(), ids=SLOW_PATCHES)
def test_a_large_patch_made_to_be_slow_ends_with_an_error(repetition: Repetition) -> None:
    assert error_of_repeated(repetition, 1_048_576) is not None


def test_problems_that_are_slow_to_explain_are_reported_without_details() -> None:
    hunks = "".join(f"@@ -{n} +{n} @@\n-missing {n}\n+x\n" for n in range(1, 40))
    error = error_of(NAMES + hunks, b"".join(b"line %d\n" % n for n in range(30_000)))
    assert error is not None
    assert "f, hunk 1 (patch line 3): expected near line 1" in error.message
    assert "f, hunk 39 (patch line 117): does not match" in error.message


@pytest.mark.parametrize(
    "patch", [f"{NAMES}@@ -600000 +600000 @@\n-a\n+b\n", f"{UPDATE}@@ def f\n-  x\n+  y\n{END}"]
)
def test_a_file_of_any_size_can_be_patched(patch: str) -> None:
    """The limit on the search grows with the size of the file."""
    assert error_of(patch, b"  x\n" + b"a\n" * 600_000 + b"def f\n  x\n") is None


def test_a_search_that_takes_too_long_is_refused_with_a_hint() -> None:
    hunks = "".join(["@@ -1 +1 @@\n-missing\n+x\n"] * 1_000)
    error = error_of(NAMES + hunks, b"".join(b"line %d\n" % n for n in range(30_000)))
    assert error is not None
    assert "takes too long" in error.message
    assert "correct line numbers" in error.hint
