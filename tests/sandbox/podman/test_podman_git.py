"""git in a sandbox: it shows the newest history of the source, and leaves nothing behind.

Run by root and, in ``test_podman_rootless``, by an ordinary user.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal

import pytest
from test_podman_calls import calls

from wink_workspace import Workspace, WorkspaceStorage
from wink_workspace.environment import Environment
from wink_workspace.sandbox import ExecRequest
from wink_workspace.sandbox.git_directory import GIT_DIRECTORY_FILE
from wink_workspace.workspace import WorkspaceConfig
from wink_workspace.workspace.place.path_rules import ImportConfig

pytestmark = pytest.mark.xdist_group("podman-git")

Mode = Literal["overlay", "copy"]
SECRET = "token = abcdef0123456789"
AUTHORS = ("Ada", "Grace")
VARIABLES = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
}
EDITS = (
    "echo changed >> src/module.py; rm doc/guide.txt; echo new > added.txt; chmod +x setup.cfg;"
    "mv src/renamed.py src/moved.py; mkdir -p build; echo x > build/out; ln -s setup.cfg link"
)
QUESTIONS = (
    "git status --porcelain=v2 --branch",
    "git status --short --ignored",
    "git diff",
    "git diff-files --name-status",
    "git diff -M --stat HEAD~5",
    "git log --format='%H %P %an %ae %at %cn %s %d' --stat",
    "git log --follow --format=%s -- src/renamed.py",
    "git shortlog -sn HEAD",
    "git show -M HEAD~3",
    "git blame HEAD -- src/module.py",
    "git blame -s src/module.py",
    "git describe --tags --dirty --long",
    "git ls-files -s",
    "git grep -n line -- src",
    "git rev-parse --abbrev-ref HEAD",
)
"""What git is asked, inside and on the host."""


def git(directory: Path, *arguments: str, n: int = 0) -> str:
    """Run git on the host, in a repository that the test has made, as the author of commit *n*."""
    who = AUTHORS[n % len(AUTHORS)]
    when = f"{1_700_000_000 + 60 * n} +0000"
    identity = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", who), ("EMAIL", f"{who}@example.org"), ("DATE", when))
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=directory,
        env={"PATH": os.environ["PATH"], **VARIABLES, **identity},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def history(source: Path) -> Path:
    """Make a repository with 30 commits of two authors, renames, a merge and a tag."""
    source.mkdir()
    git(source, "init", "-q", "-b", "trunk")
    (source / "src").mkdir()
    (source / "doc").mkdir()
    for n in range(30):
        lines = (f"line {i} of commit {n if i % 30 == n else 0}\n" for i in range(30))
        (source / "src/module.py").write_text("".join(lines))
        (source / f"doc/page{n % 7}.txt").write_text(f"page of commit {n}\n")
        if n == 0:
            (source / "src/first.py").write_text("def first():\n    return 'first'\n" * 5)
            (source / "setup.cfg").write_text("[metadata]\n")
            (source / "doc/guide.txt").write_text("guide\n")
            (source / ".gitignore").write_text("build/\n")
        if n == 2:
            (source / "settings.py").write_text(SECRET)
        if n == 4:
            git(source, "rm", "-q", "settings.py")
        if n == 12:
            git(source, "mv", "src/first.py", "src/renamed.py")
        git(source, "add", "-A", n=n)
        git(source, "commit", "-q", "-m", f"commit {n}", n=n)
        if n == 20:
            git(source, "tag", "-a", "v1.0", "-m", "release", n=n)
    return source


def shell(workspace: Workspace, command: str) -> str:
    request = ExecRequest(argv=("/bin/sh", "-c", command), env=VARIABLES)
    result = workspace.sandbox().run(request)
    assert result.exit_code == 0, result
    return (result.stdout.head + result.stdout.tail).decode()


def answers(run: Callable[[str], str]) -> dict[str, str]:
    """Ask git all questions with one command."""
    script = "\necho =====\n".join(QUESTIONS)
    found = run(f"set -e\n{script}").split("=====\n")
    return dict(zip(QUESTIONS, found, strict=True))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return history(tmp_path_factory.mktemp("git") / "source")


@pytest.fixture(scope="module", params=["overlay", "copy"])
def workspace(
    request: pytest.FixtureRequest,
    source: Path,
    tmp_path_factory: pytest.TempPathFactory,
    environment: Environment,
) -> Generator[Workspace]:
    """A workspace of the source, which the tests leave unchanged."""
    storage = WorkspaceStorage(tmp_path_factory.mktemp("state"))
    with Workspace.create(source, storage=storage, mode=request.param) as workspace:
        yield workspace


@pytest.mark.behaviour(123)
def test_git_shows_what_git_on_the_host_shows_after_the_same_edits(
    workspace: Workspace, tmp_path: Path, source: Path
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-hardlinks", str(source), str(clone))
    git(clone, "remote", "remove", "origin")

    def on_the_host(script: str) -> str:
        variables = {"PATH": os.environ["PATH"], **VARIABLES}
        return subprocess.run(
            ["/bin/sh", "-c", script],
            cwd=clone,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    for edits in ("true", EDITS):
        on_the_host(f"{edits}; git update-index -q --refresh || true")
        shell(workspace, edits)
        expected = answers(on_the_host)
        found = answers(lambda script: shell(workspace, f"git status > /dev/null\n{script}"))
        assert found == expected
        assert expected["git diff"] == "" or edits == EDITS
    shell(workspace, "git stash -q -u; rm -rf build")
    assert workspace.changes() == (), "a stash restores the files of the commit"


@pytest.mark.behaviour(124)
def test_nothing_of_git_is_in_the_tree_the_diff_the_history_or_an_apply(
    workspace: Workspace, source: Path
) -> None:
    with calls(workspace) as made:
        made.shell("git commit -q --allow-empty -m x; git gc -q; echo ok > kept; cat .git")
        assert (workspace.files_path / ".git").read_bytes() == GIT_DIRECTORY_FILE
        entry = next(iter(workspace.log(limit=1)))
        assert [str(each.path) for each in workspace.changes_of(entry)] == ["kept"]
        assert [str(each.path) for each in workspace.changes()] == ["kept"]
        assert ".git" not in workspace.diff().replace(".gitignore", "")
        assert ".git" not in {str(path) for path in workspace.derived_paths()}
        assert [str(each.path) for each in workspace.source.preview().trees] == ["kept"]
        listed = made.call("ls").text
        assert "kept" in listed
        assert ".git\n" not in f"{listed}\n".replace(" ", "\n")
        for name in (".git", ".git/config"):
            refused = made.call("write_file", file_path=name, content="[core]\n")
            assert not refused.result.success
        assert not made.call("read_file", file_path=".git").result.success
        workspace.undo()
        assert workspace.changes() == ()


@pytest.mark.behaviour(125)
def test_refs_index_and_configuration_of_a_call_end_with_it(workspace: Workspace) -> None:
    head = shell(workspace, "git rev-parse HEAD")
    shell(
        workspace,
        "echo x > x; git add x; git commit -qm x; git tag t; git config alias.y '!true';"
        "echo '#!/bin/sh' > /run/wink/call/git/hooks; echo z > /run/wink/call/other; git branch b;"
        "git update-index --assume-unchanged setup.cfg; rm x",
    )
    assert shell(workspace, "git rev-parse HEAD; git tag; git branch --format='%(refname)'") == (
        f"{head}v1.0\nrefs/heads/trunk\n"
    )
    assert shell(workspace, "git status --short; git ls-files -v | grep ^h || true") == ""
    assert "alias" not in shell(workspace, "git config --list; ls -A /run/wink/call/*")
    assert shell(workspace, "ls -A /run/wink/call") == "git\n"
    shell(workspace, "rm .git; git init -q; git config core.fsmonitor /bin/false; git add .")
    assert shell(workspace, "cat .git; git rev-parse HEAD").endswith(head)
    assert shell(workspace, "ln -sf /etc/passwd .git; echo") == "\n"
    assert shell(workspace, "cat .git").encode() == GIT_DIRECTORY_FILE
    assert workspace.changes() == ()


@pytest.mark.behaviour(125)
def test_objects_cannot_be_changed_and_python_and_forks_see_the_same(workspace: Workspace) -> None:
    found = shell(
        workspace,
        "for f in /run/wink/history/objects/pack/* /run/wink/history/template/HEAD; do"
        " (echo x >> $f) 2>/dev/null && echo $f; rm -f $f 2>/dev/null && echo $f; done; true",
    )
    assert found == ""
    if "fork" not in workspace.forks():
        workspace.fork("fork")
    opened = Workspace.open(
        workspace.info.id, storage=WorkspaceStorage(workspace._folder.state_dir), branch="fork"
    )
    with opened as fork, calls(fork) as made:
        code = "import subprocess\nsubprocess.run(['git', 'describe', '--tags'])"
        assert "v1.0-9-g" in made.call("evaluate_python", code=code).text
        assert shell(fork, "git status --short") == ""


@pytest.mark.behaviour(120)
def test_list_of_mounts_does_not_show_where_the_history_is(workspace: Workspace) -> None:
    mounts = shell(workspace, "cat /proc/self/mountinfo /proc/mounts")
    (history,) = (line for line in mounts.splitlines() if " - " in line and "/history " in line)
    assert " overlay " in history
    shown = [line for line in mounts.splitlines() if workspace._folder.state_dir.name in line]
    assert [line.split(" ")[4] for line in shown] == (
        [] if workspace.info.mode == "overlay" else ["/workspace"]
    )


def test_failed_call_that_changed_the_repository_is_rolled_back(workspace: Workspace) -> None:
    with calls(workspace) as made:
        made.shell(
            "git rm -q setup.cfg; git reset -q --hard HEAD~3; rm .git; sleep 60", timeout=0.5
        )
        assert workspace.changes() == ()
        assert made.shell("git status --short").text.endswith("(no output)")


def test_the_copy_is_not_made_for_depth_0_and_without_a_repository(
    tmp_path: Path, source: Path, environment: Environment
) -> None:
    storage = WorkspaceStorage(tmp_path / "state")
    none = WorkspaceConfig(imported=ImportConfig(git_depth=0))
    (tmp_path / "plain").mkdir()
    with (
        Workspace.create(source, storage=storage, config=none) as without,
        Workspace.create(tmp_path / "plain", storage=storage) as plain,
    ):
        for each in (without, plain):
            assert shell(each, "ls -A | grep -x .git; git status 2>&1 || true").startswith(
                "fatal: not a git repository"
            )
    assert not (tmp_path / "state/git").exists()


VICTIM = """
import sys
from wink_workspace import *
from wink_workspace.sandbox import ExecRequest

workspace = Workspace.open(sys.argv[1], storage=WorkspaceStorage(sys.argv[2]))
with workspace.call("commit"):
    workspace.sandbox().run(
        ExecRequest(argv=("/bin/sh", "-c", sys.argv[3])),
        observer=lambda *_: print("begun", flush=True),
    )
"""


@pytest.mark.behaviour(125)
def test_killed_command_leaves_nothing_of_its_repository(
    tmp_path: Path, source: Path, environment: Environment
) -> None:
    storage = WorkspaceStorage(tmp_path / "state")
    with Workspace.create(source, storage=storage) as created:
        which = created.info.id
    command = "echo x > x; git add -A; git commit -qm x; rm .git; git init -q; echo x; sleep 600"
    victim = subprocess.Popen(
        [sys.executable, "-c", VICTIM, which, str(tmp_path / "state"), command],
        stdout=subprocess.PIPE,
        text=True,
    )
    with victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "begun\n"
        victim.send_signal(signal.SIGKILL)
    head = git(source, "rev-parse", "HEAD")
    with Workspace.open(which, storage=storage) as workspace:
        assert workspace.changes() == ()
        assert shell(workspace, "cat .git; git rev-parse HEAD; git status --short") == (
            f"{GIT_DIRECTORY_FILE.decode()}{head}"
        )


def test_submodules_and_sparse_checkouts_look_clean_and_git_works_in_them(tmp_path: Path) -> None:
    module, source = history(tmp_path / "module"), history(tmp_path / "source")
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(module), "lib")
    git(source, "commit", "-q", "-m", "module")
    git(source, "sparse-checkout", "set", "src")
    assert git(source, "status", "--short") == ""
    assert not (source / "doc").exists()
    with Workspace.create(source, storage=WorkspaceStorage(tmp_path / "state")) as workspace:
        assert shell(workspace, "git status --short; cat lib/setup.cfg") == "[metadata]\n"
        assert shell(workspace, "git submodule status").endswith(" lib\n")
        shown = shell(workspace, "echo x >>setup.cfg; git add -A; git stash -q; git status --short")
        assert shown == ""
        shell(workspace, "echo x >>setup.cfg; git commit -qam x")
        workspace.files.write_text("lib/setup.cfg", "changed")
        workspace.apply()
    assert (source / "lib/setup.cfg").read_text() == "changed"
    assert (source / "lib/.git").is_file()
    assert not (source / "doc").exists()


def test_repository_that_a_command_makes_needs_no_identity(workspace: Workspace) -> None:
    printed = shell(workspace, "git init -q /tmp/r; cd /tmp/r; git commit -q --allow-empty -m x;"
                 "git log --format=%ae; git config user.email a@example.org;"
                 "git commit -q --allow-empty -m y; git log -1 --format=%ae")  # fmt: skip
    assert printed == "wink_workspace@localhost\na@example.org\n"
