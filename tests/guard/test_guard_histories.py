"""Random days of an agent and a person in one project, in one process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from guard_rig import repository

from wink_workspace.errors import ConflictError
from wink_workspace.filesystem import parse_path
from wink_workspace.guard import GuardedProject, ObservedCall
from wink_workspace.ledger import EntryKind
from wink_workspace.workspace import WorkspaceStorage

N_STEPS = 30
AGENT = [f"agent/{n}.txt" for n in range(6)]
PERSON = [f"person/{n}.txt" for n in range(6)]
START = {name: name.encode() for name in (*AGENT[:3], *PERSON[:3])}


class Day:
    """One day: what happens, and what the files of the person must be at its end."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.source = repository(directory, {**START, ".gitignore": b"*.local\n"})
        self.project = GuardedProject(WorkspaceStorage(directory / "state"), self.source)
        self.numbers = iter(range(1_000))
        self.saves_during_commands = False

    def write(self, names: list[str]) -> str:
        """Write, or delete, one of *names*."""
        name = self.random.choice(names)
        path = self.source / name
        if path.exists() and self.random.random() < 0.2:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{name} {next(self.numbers)}\n")
        return name

    def call(self, tool: str, *names: str) -> ObservedCall:
        paths = tuple(map(parse_path, names))
        number = str(next(self.numbers))
        return ObservedCall(id=number, tool=tool, paths=paths, is_broad=tool == "Bash")

    def edit(self) -> None:
        name = self.random.choice(AGENT)
        call = self.call("Edit", name)
        self.project.begin(call)
        if self.random.random() < 0.5:
            self.write(PERSON)
        self.write([name])
        self.project.end(call.id)

    def command(self) -> None:
        call = self.call("Bash")
        self.project.begin(call)
        for _ in range(self.random.randrange(4)):
            self.write(AGENT)
        if self.saves_during_commands and self.random.random() < 0.5:
            self.write(PERSON)
        self.project.end(call.id)

    def overlapping(self) -> None:
        calls = [self.call("Bash"), self.call("Edit", AGENT[0]), self.call("Bash")]
        for call in calls:
            self.project.begin(call)
        self.write(AGENT)
        self.write(AGENT[:1])
        self.random.shuffle(calls)
        for call in calls:
            self.project.end(call.id)
            if call is not calls[-1]:
                self.write(AGENT)

    def person(self) -> None:
        self.write(PERSON)

    def live(self) -> None:
        steps = [self.edit, self.command, self.overlapping, self.person, self.project.release]
        for _ in range(N_STEPS):
            self.random.choice(steps)()
        self.project.look()

    def files(self, names: list[str]) -> dict[str, str]:
        paths = {name: self.source / name for name in names}
        return {name: path.read_text() for name, path in paths.items() if path.exists()}


@pytest.fixture
def day(seed: int, tmp_path: Path) -> Iterator[Day]:
    made = Day(tmp_path, seed)
    yield made
    made.project.release()


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(100))
def test_all_that_the_agent_did_is_undone_and_the_person_loses_nothing(day: Day) -> None:
    day.live()
    saved = day.files(PERSON)
    workspace = day.project.workspace
    for entry in [*workspace.log()]:
        changed = {str(change.path) for change in workspace.changes_of(entry)}
        if entry.kind is EntryKind.EXTERNAL:
            assert changed <= {*PERSON, "person"}
        elif entry.kind is EntryKind.CALL:
            assert changed <= {*AGENT, "agent"}
            if changed:
                workspace.undo(entry.number, uncertain=True)
    assert day.files(AGENT) == {
        name: text.decode() for name, text in START.items() if name in AGENT
    }
    assert day.files(PERSON) == saved


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(100))
def test_undo_without_uncertain_paths_keeps_what_a_person_saved_meanwhile(day: Day) -> None:
    day.saves_during_commands = True
    day.live()
    saved = day.files(PERSON)
    workspace = day.project.workspace
    for entry in [*workspace.log()]:
        if entry.kind is EntryKind.CALL:
            uncertain = set(workspace.record(entry).event.uncertain_paths)
            changed = {str(change.path) for change in workspace.changes_of(entry)}
            assert not (changed & set(PERSON)) - uncertain
            if entry.tool == "Edit" and changed - uncertain:
                with suppress(ConflictError):  # a later command changed the file, too
                    workspace.undo(entry.number)
    assert day.files(PERSON) == saved
