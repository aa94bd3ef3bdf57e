"""``IgnoreRules`` ignores the same paths as git, for any rules."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from wink_workspace.filesystem.ignoring import IgnoreRules, Parts

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "PATH": "/usr/bin:/bin",
}
NAMES = ("a", "b", "ab", "a.log", "[x]", "a b", "!c", "#d", "foo ", "é")
PIECES = (
    *("a", "b", "*", "?", "a*", "*.log", "[ab]", "[!a]", "[a-z]", "**", "\\!c", "\\#d", "foo\\ "),
    *("foo ", "[[]x]", "a\\", "é", "[^b]", "a**", "**a", "[[:alpha:]]", "[[:digit:]x]", "*b*", ""),
    *("[]-]", "[!]]", "[a", "[a-", "*a*b*", "[\\]]", "[]a]"),
)


def rules_of(files: Mapping[str, bytes], exclude: bytes | None = None) -> IgnoreRules:
    """The rules of a ``.gitignore`` in each directory."""
    return IgnoreRules(
        lambda parts: files.get("/".join(parts)),
        is_repository=lambda _: False,
        exclude=lambda _: exclude,
    )


def answers_of_git(root: Path, files: Mapping[str, bytes], paths: list[str]) -> dict[str, bool]:
    """Make those of *paths* that can be made, and say for each whether git ignores it."""
    made: list[str] = []
    for path in paths:
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).open("x").close()
            made.append(path)
        except OSError:  # a file is where a directory is needed, or a directory where the file is
            continue
    for directory, content in files.items():
        if (root / directory).is_dir():
            (root / directory / ".gitignore").write_bytes(content)
    listed = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=root, env=ENVIRONMENT, check=True, capture_output=True,
    ).stdout.split(b"\0")  # fmt: skip
    return {path: os.fsencode(path) not in listed for path in made}


def pattern(choose: random.Random) -> str:
    text = "/".join(choose.choice(PIECES) for _ in range(choose.choice((1, 1, 2, 2, 3))))
    text = ("/" if choose.random() < 0.25 else "") + text + ("/" if choose.random() < 0.35 else "")
    ends = ("\r", "  ") if choose.random() < 0.1 else ("",)
    return ("!" if choose.random() < 0.3 else "") + text + choose.choice(ends)


@pytest.mark.parametrize("seed", range(2))
def test_random_rules_are_read_as_git_reads_them(tmp_path: Path, seed: int) -> None:
    """One repository holds many directories with their own rules, so git runs only once."""
    choose = random.Random(seed)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=ENVIRONMENT, check=True)
    files: dict[str, bytes] = {}
    paths: list[str] = []
    for n in range(50):
        for below in ("", "/a") if choose.random() < 0.5 else ("",):
            lines = [pattern(choose) for _ in range(choose.choice((1, 2, 3)))]
            files[f"d{n}{below}"] = "\n".join(lines).encode()
        for _ in range(25):
            parts = (choose.choice(NAMES) for _ in range(choose.choice((1, 2, 2, 3, 4))))
            paths.append(f"d{n}/" + "/".join(parts))
    rules = rules_of(files)
    expected = answers_of_git(tmp_path, files, paths)
    assert len(expected) > 400
    assert {path: rules.ignores(tuple(path.split("/"))) for path in expected} == expected


def test_rules_on_which_libgit2_crashes_are_read_as_git_reads_them(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=ENVIRONMENT, check=True)
    files = {"": b"/a*\n!//\n//\n/\n!\n#\n!/\n"}
    rules = rules_of(files)
    expected = answers_of_git(tmp_path, files, ["abc", "b", "c/a"])
    assert {path: rules.ignores(tuple(path.split("/"))) for path in expected} == expected


def test_rules_do_not_apply_inside_a_nested_repository() -> None:
    found: dict[Parts, bytes] = {(): b"*.log\nmodule/\n", ("module",): b"!keep\n"}
    rules = IgnoreRules(
        found.get,
        is_repository=lambda parts: parts == ("module",),
        exclude=lambda parts: b"own\n" if parts == ("module",) else b"outer\n",
    )
    ignored = {
        path
        for path in ("x.log", "outer", "own", "module/x.log", "module/own", "module/d/outer")
        if rules.ignores(tuple(path.split("/")))
    }
    assert ignored == {"x.log", "outer", "module/own"}


def test_rules_of_parent_directories_apply_in_a_subdirectory() -> None:
    found: dict[Parts, bytes] = {(): b"/sub/out\n*.log\n", ("sub",): b"!b.log\n"}
    rules = IgnoreRules(
        found.get, is_repository=lambda _: False, exclude=lambda _: None, above=("sub",)
    )
    assert [rules.ignores((name,)) for name in ("out", "a.log", "b.log")] == [True, True, False]


def test_patterns_made_to_be_slow_are_matched_in_time() -> None:
    """With backtracking, each of these patterns would take practically forever."""
    name, deep = "a" * 250, ("a" * 60,) * 60
    stars = b"*a" * 60 + b"b\n" + b"**/a*a*a*b/" * 30 + b"c\n" + b"a*" * 100 + b"[b]\n"
    rules = rules_of({"": stars})
    assert not rules.ignores((name,))
    assert not rules.ignores(deep)


def test_the_number_of_comparisons_is_bounded() -> None:
    """After many million comparisons no more paths are ignored: too many are shown, not too few."""
    rules = rules_of({"": b"".join(b"x%d\n" % n for n in range(40_000)) + b"*.log\n"})
    ignored = [rules.ignores((f"{n}.log",)) for n in range(600)]
    assert ignored[0]
    assert not ignored[-1]
