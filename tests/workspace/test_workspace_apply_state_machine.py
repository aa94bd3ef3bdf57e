"""Two forks, and a source that moves, is stashed, reset, and edited while ``apply`` writes.

Every edit writes a unique token, so that a lost edit is noticed. After each apply:

- the source still has all edits that did not come from this branch;
- it has everything that a person saved meanwhile;
- without a conflict, it has all edits of the branch, unless the result reports edits of the same
  lines;
- after a conflict it is unchanged, except for what the person saved.

A sync adds the source's edits to the branch, a merge those of the other fork. Both keep the edits
of the branch itself.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from workspace_support import GIT, git, make_tree, state

from wink_workspace._kill_points import KillPoint, calling
from wink_workspace.errors import ConflictError
from wink_workspace.workspace import Workspace

N_LINES = 12
NAMES = ("a.txt", "b.txt", "dir/c.txt")
MORE_NAMES = (*NAMES, "new.txt", "dir/new.txt", "made/deep.txt")
TOKEN = re.compile(r"\b[A-Z]+-\d+\b")


def tokens_of(root: Path) -> dict[str, set[str]]:
    """The tokens of every file."""
    found: dict[str, set[str]] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_file() and not name.startswith(".git/"):
            found[name] = set(TOKEN.findall(path.read_text()))
    return found


def all_of(tokens: dict[str, set[str]]) -> set[str]:
    return {token for found in tokens.values() for token in found}


class Run:
    """One random walk; the same seed gives the same walk."""

    def __init__(self, directory: Path, seed: int, stack: ExitStack) -> None:
        self.chosen = random.Random(seed)
        self.n_tokens = 0
        self.have_merged = False
        self.steps_done: list[str] = []
        self.source = make_tree(
            directory / "source",
            {name: "".join(f"{name} {n}\n" for n in range(N_LINES)) for name in NAMES},
        )
        git(self.source, "init", "-q", "-b", "main")
        self.commit()
        with Workspace.create(self.source, storage=state(directory)) as workspace:
            workspace.fork("one")
            workspace.fork("two")
            folder = state(directory).folder(workspace.info.id)
        self.left, self.act = 0, lambda: None
        stack.enter_context(calling(self.step))
        self.branches = {
            name: stack.enter_context(Workspace(folder, branch=line))
            for name, line in (("ONE", "one"), ("TWO", "two"))
        }

    # Steps of a person

    def step(self, point: KillPoint) -> None:
        """Called at each step of an apply; at one of them the person saves a file."""
        if point.value.startswith(("effect-", "source-")):
            self.left -= 1
            if self.left == 0:
                self.act()

    def token(self, of: str) -> str:
        self.n_tokens += 1
        return f"{of}-{self.n_tokens}"

    def edited(self, content: str | None, token: str) -> str:
        """*content* with one line replaced or added; for a new file, one line."""
        lines = (content or "").splitlines()
        free = [n for n, line in enumerate(lines) if not TOKEN.search(line)]
        if free and self.chosen.random() < 0.7:
            lines[self.chosen.choice(free)] = token
        else:
            lines.insert(self.chosen.randint(0, len(lines)), token)
        return "\n".join(lines) + "\n"

    def saving(self, path: Path, content: str):
        """Save *content*, by writing to the file or by renaming another one."""
        by_rename = self.chosen.random() < 0.5

        def save() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if by_rename:
                path.with_name(path.name + "~").write_text(content)
                path.with_name(path.name + "~").replace(path)
            else:
                path.write_text(content)

        return save

    def person_edits(self) -> None:
        path = self.source / self.chosen.choice(MORE_NAMES)
        content = path.read_text() if path.exists() else None
        self.saving(path, self.edited(content, self.token("P")))()

    def commit(self) -> None:
        git(self.source, "add", "-A")
        git(self.source, "commit", "-qm", "more", "--allow-empty")

    def stash(self) -> None:
        git(self.source, "stash", "-q", "-u")

    def pop(self) -> None:
        command = ["git", "stash", "pop", "-q"]
        done = subprocess.run(command, cwd=self.source, env=GIT, check=False, capture_output=True)
        if done.returncode:
            git(self.source, "reset", "-q", "--hard")

    def reset(self) -> None:
        has_more = git(self.source, "rev-list", "--count", "HEAD").strip() != "1"
        to = self.chosen.choice(("HEAD", "HEAD~1")) if has_more else "HEAD"
        git(self.source, "reset", "-q", "--hard", to)

    # Steps of a branch

    def branch_edits(self) -> None:
        name = self.chosen.choice(list(self.branches))
        files = self.branches[name].files
        path = self.chosen.choice(MORE_NAMES)
        there = files.exists(path)
        content = files.read_text(path).text + "\n" if there else None
        own = [line for line in (content or "").splitlines() if line.startswith(f"{name}-")]
        if own and self.chosen.random() < 0.4:  # as an undo
            lines = (content or "").splitlines()
            lines.remove(self.chosen.choice(own))
            if lines:
                files.write_text(path, "\n".join(lines) + "\n")
            else:
                files.delete(path)
            return
        if not files.exists(str(Path(path).parent)):
            files.mkdir(str(Path(path).parent))
        files.write_text(path, self.edited(content, self.token(name)))

    def apply(self, *, with_person: bool) -> None:
        name = self.chosen.choice(list(self.branches))
        branch = self.branches[name]
        before, wanted = tokens_of(self.source), tokens_of(branch._folder.files)
        saved = ""
        self.left = 0
        if with_person:
            saved = self.token("P")
            path = self.source / self.chosen.choice(MORE_NAMES)
            content = self.edited(path.read_text() if path.exists() else None, saved)
            self.act, self.left = self.saving(path, content), self.chosen.randint(1, 12)
        try:
            applied = branch.apply()
        except ConflictError:
            applied = None
        if self.left > 0:
            saved = ""  # the apply ended before
        after = tokens_of(self.source)
        undone = {
            token
            for token in all_of(before) - all_of(wanted)
            if token.startswith(f"{name}-") and applied is not None
        }
        lost = all_of(before) - undone - all_of(after)
        assert not lost, f"{lost} lost by an apply of {name}"
        assert not saved or saved in all_of(after), f"{saved} lost by an apply of {name}"
        if applied is None:
            gained = all_of(after) - all_of(before) - {saved}
            # The person saved over a file that apply had written, so the token of apply may be there.
            assert saved or not gained, f"{gained} applied in spite of a conflict"
        elif not saved:
            for path, tokens in wanted.items():
                if path not in applied.edited:
                    own = {token for token in tokens if token.startswith(f"{name}-")}
                    missing = own - after.get(path, set())
                    assert not missing, f"{missing} of {name} not applied to {path}"
        assert not branch.source.has_unfinished_apply

    def sync(self) -> None:
        name = self.chosen.choice(list(self.branches))
        branch = self.branches[name]
        before, source = tokens_of(branch._folder.files), tokens_of(self.source)
        try:
            branch.sync()
        except ConflictError:
            assert tokens_of(branch._folder.files) == before
            return
        after = all_of(tokens_of(branch._folder.files))
        own = {token for token in all_of(before) if token.startswith(f"{name}-")}
        assert own <= after, f"{own - after} of {name} lost by a sync"
        others = {token for token in all_of(source) if not token.startswith(f"{name}-")}
        assert others <= after, f"{others - after} not taken in by a sync of {name}"
        shown = set(TOKEN.findall(branch.diff()))
        if not self.have_merged:  # else the other branch may have applied it
            assert own <= shown, f"{own - shown} of {name} not in its diff"

    def merge(self) -> None:
        into, of = self.chosen.sample(list(self.branches), 2)
        self.branches[of].commit_edits()
        branch = self.branches[into]
        before = tokens_of(branch._folder.files)
        try:
            branch.merge(of.lower())
        except ConflictError:
            assert tokens_of(branch._folder.files) == before
            return
        self.have_merged = True
        after = all_of(tokens_of(branch._folder.files))
        own = {token for token in all_of(before) if token.startswith(f"{into}-")}
        assert own <= after, f"{own - after} lost by a merge into {into}"

    def walk(self, n_steps: int) -> None:
        acts = [
            *[("person edits", self.person_edits)] * 3,
            *[("branch edits", self.branch_edits)] * 5,
            *[("apply", lambda: self.apply(with_person=False))] * 5,
            *[("apply and save", lambda: self.apply(with_person=True))] * 4,
            ("commit", self.commit),
            ("commit", self.commit),
            ("stash", self.stash),
            ("pop", self.pop),
            ("reset", self.reset),
            *[("sync", self.sync)] * 2,
            ("merge", self.merge),
        ]
        for _ in range(n_steps):
            what, act = self.chosen.choice(acts)
            self.steps_done.append(what)
            act()


def walked(directory: Path, seed: int, *, n_steps: int = 16) -> None:
    with ExitStack() as stack:
        run = Run(directory, seed, stack)
        try:
            run.walk(n_steps)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}, after {', '.join(run.steps_done)}: {error}"
            ) from error


@pytest.mark.parametrize("seed", range(8))
def test_no_edit_of_two_forks_and_a_person_is_lost(tmp_path: Path, seed: int) -> None:
    walked(tmp_path, seed)


@pytest.mark.soak
def test_no_edit_is_lost_in_1000_random_walks(tmp_path: Path) -> None:
    for seed in range(1_000, 2_000):
        walked(tmp_path / "walk", seed)
        shutil.rmtree(tmp_path / "walk")
