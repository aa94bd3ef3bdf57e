"""Names in trees: those with a meaning to git are escaped, all others stay readable."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_support import (
    DIRECTORY,
    assert_clean,
    contents,
    git,
    imported,
    link,
    new_ledger,
    stored,
    tree,
)

from wink_workspace.errors import LedgerDamagedError
from wink_workspace.filesystem.paths import WorkspacePath
from wink_workspace.ledger import EMPTY_TREE_ID, build
from wink_workspace.ledger.store.names import stored_name, workspace_name

BYTES = st.binary(min_size=1, max_size=255).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
NASTY = st.text(
    alphabet=".gitGITmodules~1%\\ :\u200c\ufeff\udcffé", min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))

SPECIAL = [
    ".git",
    ".GIT",
    ".gIt ",
    ".git...",
    ".git. .",
    ".git:stream",
    ".git::$INDEX_ALLOCATION",
    "git~1",
    "GIT~1",
    "git~12",
    "git~1 .",
    ".g\u200cit",
    "\ufeff.git",
    ".git\u206f",
    ".G\u202aI\u200dT",
    ".gitmodules",
    ".GITMODULES. ",
    ".gitmodules:x",
    "gitmod~1",
    "GITMOD~4",
    "gi7eba~1",
    "GI7EB~10",
    "gi7d29~1",
    "gitatt~1",
    "~1000000",
    ".gitattributes",
    ".Git\u200eAttributes",
    "back\\slash",
    "\\.git",
    "a\\.git\\b",
    "a\\git~1",
    "caf\udce9",
    "\udcff",
    "%",
    "%2E",
    "%.git",
    "%%",
]
ORDINARY = [
    "main.py",
    ".gitignore",
    ".github",
    ".gitkeep",
    ".mailmap",
    ".gitx",
    "x.git",
    "git",
    "git~",
    "github~1",
    "backup~",
    "con",
    "nul.txt",
    "aux:",
    "trailing ",
    "trailing.",
    " leading",
    "new\nline",
    "tab\there",
    '"quoted"',
    "-dash",
    "100%",
    "é",
    "e\u0301",
    "日本",
    "\u200c",
    "n" * 255,
    "é" * 127,
]


@given(BYTES)
def test_every_name_of_bytes_survives_a_round_trip(name: bytes) -> None:
    text = name.decode("utf-8", "surrogateescape")
    assert workspace_name(stored_name(text)).encode("utf-8", "surrogateescape") == name


@given(NASTY, NASTY)
def test_different_names_are_stored_differently(one: str, other: str) -> None:
    same_bytes = one.encode("utf-8", "surrogateescape") == other.encode("utf-8", "surrogateescape")
    assert (stored_name(one) == stored_name(other)) == same_bytes


@pytest.mark.parametrize("name", SPECIAL)
def test_a_name_with_a_meaning_to_git_is_escaped(name: str) -> None:
    assert stored_name(name).startswith(b"%")
    assert workspace_name(stored_name(name)) == name


@pytest.mark.parametrize("name", ORDINARY)
def test_any_other_name_is_stored_as_it_is(name: str) -> None:
    assert stored_name(name) == name.encode()


def test_the_longest_escape_is_shorter_than_the_length_that_git_warns_of() -> None:
    assert len(stored_name("\udcff" * 255)) == 766 < 4_096


@pytest.mark.parametrize("foreign", [b"%", b"%x%", b"%plain", b"%.git%2", b"%%2e", b"%%FF%.git"])
def test_an_escape_that_no_name_produces_is_damage(foreign: bytes) -> None:
    with pytest.raises(LedgerDamagedError, match="not a valid escaped name"):
        workspace_name(foreign)


@pytest.mark.behaviour(31)
def test_fsck_accepts_every_name_as_file_directory_and_link(tmp_path: Path) -> None:
    """Links called ``.gitignore`` or ``.mailmap`` are left out: fsck warns of them."""
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        kinds = {"file": b"[core]\nx = y\n" * 300, "directory": DIRECTORY, "link": link("../../x")}
        changes = {
            WorkspacePath((kind, name)): stored(ledger.store, content)
            for kind, content in kinds.items()
            for name in SPECIAL + ORDINARY
            if not (kind == "link" and name in (".gitignore", ".mailmap"))
        }
        imported(writer, {})
        root = build(ledger.store, EMPTY_TREE_ID, changes)
        writer.discard(root, reason="nasty names", call_id="x", at=writer.head.at)
        assert len(contents(ledger.store, root)) == len(changes) + len(kinds)
    assert_clean(tmp_path)


@pytest.mark.behaviour(31)
def test_a_nested_repository_is_content_like_any_other(tmp_path: Path) -> None:
    files = {
        "lib/.git/HEAD": b"ref: refs/heads/main\n",
        "lib/.git/config": b"[core]\n\thooksPath = /evil\n",
        "lib/.git/objects": DIRECTORY,
        "lib/.gitmodules": b'[submodule "x"]\n\turl = -u./payload\n',
        "lib/.gitattributes": b"* filter=evil " + b"x" * 3_000 + b"\n",
        ".git": b"gitdir: elsewhere\n",
    }
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(writer, files)
        found = contents(ledger.store, writer.head.files)
        assert found == {**files, "lib": DIRECTORY, "lib/.git": DIRECTORY}
    assert_clean(tmp_path)
    assert "%.git/HEAD" in git(tmp_path, "ls-tree", "-r", "--name-only", "main")


def test_ordinary_names_are_unchanged_in_plain_git(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        imported(
            writer, {".gitignore": b"*.pyc\n", ".github/ci.yml": b"on: push\n", "a b.txt": b"x"}
        )
        assert tree(ledger.store, {"x": b""}) != writer.head.files
    listed = git(tmp_path, "ls-tree", "-r", "-z", "--name-only", "main:files")
    assert listed.split("\0")[:-1] == [".github/ci.yml", ".gitignore", "a b.txt"]
