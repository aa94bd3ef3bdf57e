"""Patches by git and GNU diff give the same result here as with git and GNU patch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from patch_trees import (
    Tree,
    file,
    git_diff,
    gnu_diff,
    patched,
    run,
    tree_pairs,
    write_tree,
)
from random_cases import examples

from wink_workspace.errors import PatchError
from wink_workspace.filesystem.model import FileKind
from wink_workspace.filesystem.paths import parse_path

BOUNDED = settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
HOW = ["-M", "-M30%", "-C", "--find-copies-harder", "-B", "-U1", "-U5", "--patience", "--stat"]
PREFIXES = ["--no-prefix", "--src-prefix=old/", "--dst-prefix=new/", "--full-index"]
OPTIONS = st.tuples(st.lists(st.sampled_from(HOW), max_size=3), st.sampled_from(PREFIXES)).map(
    lambda drawn: [*drawn[0], drawn[1]]
)


@given(pair=tree_pairs(), options=OPTIONS)
@BOUNDED
def test_a_git_diff_of_two_trees_turns_the_first_into_the_second(
    pair: tuple[Tree, Tree], options: Sequence[str]
) -> None:
    before, after = pair
    with TemporaryDirectory() as directory:
        text = git_diff(before, after, Path(directory), "--binary", *options, "--patch")
        try:
            assert (patched(text, before) if text else before) == after
        except PatchError:
            # With -B git may write a patch that no tool accepts: a rename onto an existing file.
            strip = f"-p{0 if '--no-prefix' in options else 1}"
            write_tree(Path(directory, "work"), before)
            done = run(["git", "apply", strip, "-"], cwd=Path(directory, "work"), stdin=text)
            assert "-B" in options
            assert b"already exists in working directory" in done.stderr


@given(pair=tree_pairs(textual=True))
@BOUNDED
def test_a_gnu_diff_of_two_trees_turns_the_first_into_the_second(
    pair: tuple[Tree, Tree],
) -> None:
    """GNU diff cannot show modes, links and empty files."""
    before, after = (
        {
            path: file(state.data)
            for path, state in files.items()
            if state.kind is FileKind.FILE and state.data
        }
        for files in pair
    )
    inner = {above for path in [*before, *after] for above in path.ancestors()}
    assume(not inner & (before.keys() | after.keys()))
    with TemporaryDirectory() as directory:
        text = gnu_diff(before, after, Path(directory))
    assert (patched(text, before) if text else before) == after


# ----------------------------------------------------- files that changed after the patch was made

NOTES = parse_path("notes.txt")


@st.composite
def changed_lines(draw: st.DrawFn, lines: Sequence[bytes], sign: bytes, inset: int) -> bytes:
    """*lines* with random edits, except of the first and the last *inset* lines."""
    result = list(lines)
    for n in range(draw(st.integers(1, 3))):
        at = draw(st.integers(inset, max(inset, len(result) - inset)))
        n_old = draw(st.integers(0, min(2, len(result) - inset - at)))
        result[at : at + n_old] = [
            b"%s%d.%d\n" % (sign, n, m) for m in range(draw(st.integers(0, 3)))
        ]
    return b"".join(result)


@st.composite
def drifted_files(draw: st.DrawFn, *, inset: int = 0) -> tuple[bytes, bytes, bytes]:
    """A file, the wanted change of it, and a concurrent change of it.

    All lines of the file differ, so each hunk has only one right match.
    """
    base = [b"line %d\n" % n for n in range(draw(st.integers(2 * inset, 30)))]
    wanted, concurrent = (
        draw(changed_lines(base, b"new ", inset)),
        draw(changed_lines(base, b"other ", 0)),
    )
    assume(wanted != b"".join(base) != b"" != wanted)
    return b"".join(base), wanted, concurrent


def ours(text: str, data: bytes) -> bytes | None:
    """The content after the patch, or ``None`` if it is refused."""
    try:
        return patched(text, {NOTES: file(data)})[NOTES].data
    except PatchError:
        return None


def theirs(command: list[str], text: str, data: bytes) -> bytes | None:
    with TemporaryDirectory() as directory:
        root = Path(directory, "work")
        write_tree(root, {NOTES: file(data)})
        done = run(command, cwd=root, stdin=text)
        return (root / "notes.txt").read_bytes() if done.returncode == 0 else None


@given(files=drifted_files())
@settings(BOUNDED, max_examples=examples(60))
def test_a_patch_that_git_applies_with_an_offset_gives_the_same_here(
    files: tuple[bytes, bytes, bytes],
) -> None:
    base, wanted, concurrent = files
    with TemporaryDirectory() as directory:
        text = git_diff({NOTES: file(base)}, {NOTES: file(wanted)}, Path(directory))
    by_git = theirs(["git", "apply", "--whitespace=nowarn", "-"], text, concurrent)
    if by_git is not None:
        assert ours(text, concurrent) == by_git


@given(files=drifted_files(inset=3))
@settings(BOUNDED, max_examples=examples(60))
def test_a_patch_that_gnu_patch_applies_with_fuzz_gives_the_same_here(
    files: tuple[bytes, bytes, bytes],
) -> None:
    """If more lines are ignored than compared, as its fuzz of 2 allows, ours may be refused."""
    base, wanted, concurrent = files
    with TemporaryDirectory() as directory:
        text = gnu_diff({NOTES: file(base)}, {NOTES: file(wanted)}, Path(directory))
    command = ["patch", "-p1", "-f", "--no-backup-if-mismatch", "-r-"]
    by_patch, by_us = theirs(command, text, concurrent), ours(text, concurrent)
    if by_patch is not None and by_us is None:
        by_patch = theirs([*command, "--fuzz=1"], text, concurrent)
    if by_patch is not None:
        assert by_us == by_patch
