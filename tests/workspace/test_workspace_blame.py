"""Blame: every line belongs to the call that wrote it, whatever brought it back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import iniconfig
import pytest
from workspace_support import created, git, make_tree, state

from wink_workspace.errors import FileMissingError, LimitExceededError, UsageError
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.history import blame

pytestmark = pytest.mark.behaviour(110)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with created(tmp_path, {"f": "one\ntwo\nthree\n", "d/other": "x\n"}) as opened:
        yield opened


def write(workspace: Workspace, text: str, path: str = "f") -> int:
    """Write a file in one call; the number of its entry."""
    with workspace.call("write"):
        workspace.files.write_bytes(path, text.encode())
    return workspace.head.number


def writers(workspace: Workspace, path: str = "f") -> list[int]:
    return [line.entry.number for line in workspace.blame(path)]


def test_each_line_belongs_to_the_last_call_that_changed_it(workspace: Workspace) -> None:
    second = write(workspace, "one\nTWO\nthree\n")
    third = write(workspace, "zero\none\nTWO\nthree\n")
    fourth = write(workspace, "zero\none\nTWO\nthree\nno line end")
    assert writers(workspace) == [third, 1, second, 1, fourth]
    lines = workspace.blame("f")
    assert b"".join(line.text for line in lines) == b"zero\none\nTWO\nthree\nno line end"
    assert not any(line.is_older for line in lines)
    assert [line.entry.number for line in workspace.blame("f", at=second)] == [1, second, 1]


def test_undo_and_redo_do_not_count_as_writers(workspace: Workspace) -> None:
    second = write(workspace, "one\nTWO\nthree\n")
    write(workspace, "one\nthree\n")
    workspace.undo()
    assert writers(workspace) == [1, second, 1]
    workspace.undo()
    assert writers(workspace) == [1, 1, 1]
    workspace.redo()
    assert writers(workspace) == [1, second, 1]


def test_a_restore_does_not_count_as_a_writer(workspace: Workspace) -> None:
    second = write(workspace, "one\nTWO\nthree\n")
    write(workspace, "nothing\n")
    workspace.restore(second, paths=["f"])
    assert writers(workspace) == [1, second, 1]
    workspace.restore(1)
    assert writers(workspace) == [1, 1, 1]


def test_a_line_from_a_merged_fork_belongs_to_the_call_in_that_fork(
    tmp_path: Path, workspace: Workspace
) -> None:
    workspace.fork("try")
    with Workspace.open(workspace.info.id, storage=state(tmp_path), branch="try") as fork:
        write(fork, "x\n", "d/new")
        write(fork, "one\ntwo\nthree\nfour\n")
        written = fork.head
    here = write(workspace, "zero\none\ntwo\nthree\n")
    workspace.merge("try")
    found = workspace.blame("f")
    assert [line.entry.number for line in found] == [here, 1, 1, 1, written.number]
    assert found[-1].entry.id == written.id


def test_a_renamed_file_keeps_the_writers_of_its_lines(workspace: Workspace) -> None:
    second = write(workspace, "one\nTWO\nthree\n")
    with workspace.call("rename"):
        workspace.files.write_bytes("d/g", workspace.files.read_bytes("f"))
        workspace.files.delete("f")
    last = write(workspace, "one\nTWO\nthree\nfour\n", "d/g")
    assert writers(workspace, "d/g") == [1, second, 1, last]


def test_an_edit_outside_of_calls_is_an_entry_of_its_own(
    tmp_path: Path, workspace: Workspace
) -> None:
    path = state(tmp_path).folder(workspace.info.id).files / "f"
    path.write_text("one\nby hand\nthree\n")
    write(workspace, "x\n", "d/new")
    kinds = [line.entry.kind.value for line in workspace.blame("f")]
    assert kinds == ["import", "external", "import"]


def test_random_edits_agree_with_a_replay(workspace: Workspace) -> None:
    """Every call writes lines with its own number, so that a line names its writer."""
    chance = random.Random(7)
    lines = ["2 one\n", "2 two\n", "2 three\n"]
    assert write(workspace, "".join(lines)) == 2
    texts = {workspace.head.number: list(lines)}
    for _ in range(60):
        number = workspace.head.number + 1
        match chance.randrange(5):
            case 0 | 1 | 2:
                for n in range(chance.randint(1, 3)):
                    at = chance.randint(0, len(lines))
                    lines[at : at + chance.randint(0, 2)] = [f"{number} line {n}\n"]
                assert write(workspace, "".join(lines)) == number
            case 3 if len(texts) > 5:
                back = chance.choice(sorted(texts))
                workspace.restore(back, paths=["f"])
                lines = list(texts[back])
            case _:
                write(workspace, f"{number}\n", "d/other")
        texts[workspace.head.number] = list(lines)
    found = workspace.blame("f")
    assert [line.text.decode() for line in found] == lines
    assert [line.entry.number for line in found] == [int(line.split()[0]) for line in lines]


def test_every_line_of_a_changed_package_agrees_with_git(tmp_path: Path) -> None:
    """The same versions as commits of git: random edits, which also repeat and delete lines."""
    chance = random.Random(11)
    package = Path(iniconfig.__file__).parent
    texts = {path.name: path.read_text() for path in sorted(package.glob("*.py"))}
    repository = make_tree(tmp_path / "repository", dict(texts))
    git(repository, "init", "-q")
    commits: dict[str, int] = {}

    def commit(number: int) -> None:
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "--allow-empty", "-m", str(number))
        commits[git(repository, "rev-parse", "HEAD").strip()] = number

    commit(1)
    with created(tmp_path, dict(texts)) as workspace:
        for _ in range(40):
            name = chance.choice(sorted(texts))
            lines = texts[name].splitlines(keepends=True)
            for _ in range(chance.randint(1, 4)):
                at = chance.randint(0, len(lines))
                new = chance.choices(lines or ["x\n"], k=chance.randint(0, 3))
                lines[at : at + chance.randint(0, 3)] = new
            texts[name] = "".join(lines)
            number = write(workspace, texts[name], name)
            (repository / name).write_text(texts[name])
            commit(number)
        for name in texts:
            blamed = git(
                repository, "-c", "diff.indentHeuristic=false", "blame", "-s", "-l", "--root", name
            )
            expected = [commits[line.split(" ")[0]] for line in blamed.splitlines()]
            assert writers(workspace, name) == expected, name
        assert len({number for name in texts for number in writers(workspace, name)}) > 20


def test_lines_older_than_the_kept_history_are_marked(workspace: Workspace) -> None:
    write(workspace, "one\nTWO\nthree\n")
    workspace._ledger.store.repository.set_boundary({workspace.head.id})
    last = write(workspace, "one\nTWO\nthree\nfour\n")
    found = workspace.blame("f")
    assert [line.entry.number for line in found] == [2, 2, 2, last]
    assert [line.is_older for line in found] == [True, True, True, False]


def test_only_as_many_entries_are_looked_at_as_wanted(workspace: Workspace) -> None:
    second = write(workspace, "one\nTWO\nthree\n")
    third = write(workspace, "one\nTWO\nthree\nfour\n")
    found = workspace.blame("f", limit=2)
    assert [(line.entry.number, line.is_older) for line in found] == [
        *[(second, True)] * 3,
        (third, False),
    ]


def test_what_has_no_lines_is_refused(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileMissingError, match="missing is not in entry 1"):
        workspace.blame("missing")
    with pytest.raises(UsageError, match="d is not a file"):
        workspace.blame("d")
    # A file of the real size would take seconds.
    monkeypatch.setattr(blame, "_MAX_LINES", 2)
    with pytest.raises(LimitExceededError, match="more than 2 lines"):
        workspace.blame("f")
    # The same.
    monkeypatch.setattr(blame, "_MAX_BYTES", 3)
    with pytest.raises(LimitExceededError, match="14 bytes"):
        workspace.blame("f")
