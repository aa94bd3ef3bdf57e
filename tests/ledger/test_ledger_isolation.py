"""The user's git does not affect a ledger, and a ledger does not affect other uses of git."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pygit2
import pytest
from ledger_support import assert_clean, contents, imported, new_ledger
from pygit2.enums import ConfigLevel

from wink_workspace.errors import LedgerError
from wink_workspace.ledger import Ledger

FILES = {
    ".gitattributes": b"* text=auto eol=crlf filter=evil ident\n",
    "text.txt": b"one\r\ntwo\n$Id$\r\n",
    "latin.txt": b"\xe9\xff\n",
}

HOSTILE = """
[core]
    autocrlf = true
    eol = crlf
    hooksPath = {evil}/hooks
    attributesFile = {evil}/attributes
    logAllRefUpdates = always
    fsyncObjectFiles = true
    sharedRepository = world
    protectNTFS = false
[init]
    defaultBranch = hostile
    templateDir = {evil}/template
[filter "evil"]
    clean = touch {evil}/ran
    smudge = touch {evil}/ran
    required = true
[merge]
    default = evil
[merge "evil"]
    driver = touch {evil}/ran
[user]
    name = Mallory
    email = mallory@example.org
"""

BROKEN = "[core\nnot a configuration at all"

SCRIPT = """
import sys
from pathlib import Path
from ledger_support import FILES, imported, new_ledger, tree, call
from wink_workspace.ledger import merge_trees

with new_ledger(Path(sys.argv[1])) as ledger, ledger.write() as writer:
    store = ledger.store
    imported(writer, FILES)
    lines = b"1\\n2\\n3\\n4\\n5\\n"
    sides = [tree(store, {"m": text}) for text in (lines, b"0\\n" + lines, lines + b"6\\n")]
    merged = merge_trees(store, base=sides[0], ours=sides[1], theirs=sides[2]).tree
    writer.discard(merged, reason="merged", call_id="c", at=writer.head.at)
    print(writer.head.id, merged)
""".replace("FILES, ", "").replace("imported(writer, FILES)", f"imported(writer, {FILES!r})")


def run(directory: Path, **environment: str) -> str:
    """The output of the script in a new interpreter with this environment."""
    directory.mkdir()
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(directory)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.behaviour(30)
def test_configuration_templates_hooks_and_environment_of_the_user_have_no_effect(tmp_path):
    evil, home = tmp_path / "evil", tmp_path / "home"
    for directory in (evil / "hooks", evil / "template" / "hooks", home / ".config" / "git"):
        directory.mkdir(parents=True)
    for hook in ("reference-transaction", "post-commit"):
        for where in (evil / "hooks", evil / "template" / "hooks"):
            (where / hook).write_text(f"#!/bin/sh\ntouch {evil}/ran\n")
            (where / hook).chmod(0o755)
    (evil / "attributes").write_text("* merge=evil text eol=crlf filter=evil\n")
    (home / ".config" / "git" / "attributes").write_text("* merge=union -text\n")
    (home / ".gitconfig").write_text(HOSTILE.format(evil=evil))
    plain = run(tmp_path / "plain", HOME=str(tmp_path / "nobody"))
    hostile = run(
        tmp_path / "hostile",
        HOME=str(home),
        XDG_CONFIG_HOME=str(home / ".config"),
        GIT_DIR=str(evil),
        GIT_OBJECT_DIRECTORY=str(evil),
        GIT_INDEX_FILE=str(evil / "index"),
        GIT_TEMPLATE_DIR=str(evil / "template"),
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0="core.autocrlf",
        GIT_CONFIG_VALUE_0="true",
        GIT_AUTHOR_NAME="Mallory",
        TZ="Asia/Tokyo",
    )
    assert hostile == plain
    assert listing(tmp_path / "hostile") == listing(tmp_path / "plain")
    assert not (evil / "ran").exists()
    assert_clean(tmp_path / "hostile")


def listing(directory: Path) -> list[str]:
    """The paths of everything below *directory*."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.behaviour(30)
def test_a_configuration_that_git_cannot_read_does_not_stop_the_ledger(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(BROKEN)
    assert run(tmp_path / "broken", HOME=str(home)) == run(tmp_path / "plain", HOME="/nowhere")


@pytest.mark.behaviour(30)
def test_bytes_are_exact_under_any_attributes(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger, ledger.write() as writer:
        entry = imported(writer, FILES)
        assert contents(ledger.store, entry.files) == FILES


def test_other_users_of_pygit2_in_the_process_keep_their_configuration(tmp_path: Path) -> None:
    levels = (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG)
    before = [pygit2.settings.search_path[level] for level in levels]
    with new_ledger(tmp_path) as ledger:
        assert ledger.store.repository.merge_contents(b"1", b"1", b"2") == b"2"
        assert [pygit2.settings.search_path[level] for level in levels] == before


FORKED_DURING_A_MERGE = """
import os, signal, sys, threading
from pathlib import Path
import pygit2
from pygit2.enums import ConfigLevel
from wink_workspace.ledger import Ledger

directory = Path(sys.argv[1])
Ledger.create(directory)
pygit2.settings.search_path[ConfigLevel.GLOBAL] = "/home/ann"
is_opening, may_open, Repository = threading.Event(), threading.Event(), pygit2.Repository

def waiting(*arguments):
    if threading.current_thread() is thread:
        is_opening.set()
        may_open.wait()
    return Repository(*arguments)

pygit2.Repository = waiting

def merge():
    ledger = Ledger(directory)
    ledger.store.repository.merge_contents(b"1", b"1", b"2")
    ledger.close()

thread = threading.Thread(target=merge)
thread.start()
is_opening.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends a child that hangs
    if pygit2.settings.search_path[ConfigLevel.GLOBAL] != "/home/ann":
        os._exit(2)
    merge()
    os._exit(pygit2.settings.search_path[ConfigLevel.GLOBAL] != "/home/ann")
is_hidden = pygit2.settings.search_path[ConfigLevel.GLOBAL] == ""
may_open.set()
thread.join()
is_restored = pygit2.settings.search_path[ConfigLevel.GLOBAL] == "/home/ann"
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), is_hidden, is_restored)
"""


def test_a_child_forked_during_a_merge_has_the_configuration_and_can_merge(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", FORKED_DURING_A_MERGE, str(tmp_path / "ledger.git")]
    assert subprocess.check_output(command, text=True).strip() == "0 True True"


def test_a_damaged_ledger_inside_a_repository_does_not_fall_back_to_that_one(tmp_path) -> None:
    pygit2.init_repository(tmp_path)
    with new_ledger(tmp_path):
        pass
    (tmp_path / "ledger.git" / "HEAD").unlink()
    with pytest.raises(LedgerError, match="cannot be opened"):
        Ledger(tmp_path / "ledger.git")


def test_writing_and_reading_a_ledger_does_not_load_pygit2(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom ledger_support import imported, new_ledger, reopened\n"
        "with new_ledger(Path(sys.argv[1])) as ledger, ledger.write() as writer:\n"
        "    imported(writer, {'f': b'1'})\n"
        "with reopened(Path(sys.argv[1])) as ledger:\n"
        "    assert ledger.branch().head.number and not ledger.forks()\n"
        "sys.exit('pygit2' in sys.modules)"
    )
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": paths}
    assert subprocess.run(command, env=environment, check=False).returncode == 0
