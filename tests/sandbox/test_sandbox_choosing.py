"""``auto``: the best sandbox that works here, and the message about those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from wink_workspace.clock import ManualClock
from wink_workspace.environment import Environment
from wink_workspace.sandbox import SANDBOXES, Finding, SandboxBackend, choose_sandbox, has_image
from wink_workspace.sandbox import auto_choice as choosing
from wink_workspace.sandbox.auto_choice import SandboxChoice

GOOD = Finding("part", "isolation", "good", "all stopped")
LIMITED = Finding("part", "disk", "limited", "no quota", "Use a disk.")
MISSING = Finding("podman", "podman", "missing", "not on the PATH", "Install it: `apt-get …`.")


class Machine:
    """What the checks of each sandbox find; counts how often they are made."""

    def __init__(self, home: Path) -> None:
        names = ("bubblewrap", "podman", "python")
        self.found: dict[str, tuple[Finding, ...]] = dict.fromkeys(names, (GOOD,))
        self.examined: list[str] = []
        self.clock = ManualClock()
        self.environment = Environment(variables={"PATH": ""}, home=home)

    def backend(self, name: str) -> SandboxBackend:
        def examine(_: Environment) -> tuple[Finding, ...]:
            self.examined.append(name)
            return self.found[name]

        return replace(SANDBOXES.get(name), examine=examine)

    def choose(self, needs_image: str = "the project has an image") -> SandboxChoice:
        return choose_sandbox(self.environment, needs_image=needs_image, clock=self.clock)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    backends = {name: machine.backend(name) for name in machine.found}
    monkeypatch.setattr(choosing, "SANDBOXES", backends)
    return machine


@pytest.mark.behaviour(129)
def test_podman_is_chosen_where_its_checks_pass(machine: Machine) -> None:
    machine.found["podman"] = (LIMITED, GOOD)
    assert machine.choose().name == "podman"
    assert machine.choose().summary() == "sandbox: podman; the project has an image"


def test_programs_of_this_machine_are_chosen_for_a_project_without_an_image(
    machine: Machine,
) -> None:
    assert machine.choose("").name == "bubblewrap"
    assert machine.choose("").summary() == (
        "sandbox: bubblewrap; programs of this machine; the project has no image"
    )
    assert machine.examined == ["bubblewrap"]
    machine.found["bubblewrap"] = (replace(MISSING, part="bubblewrap", name="bwrap"),)
    machine.clock.advance(90_000)
    choice = machine.choose("")
    assert choice.name == "podman"
    assert choice.summary().startswith(
        "sandbox: podman; because bubblewrap cannot be used: bwrap: not on the PATH."
    )


def test_an_image_that_was_built_for_a_project_is_known_without_its_engine(
    machine: Machine, tmp_path: Path
) -> None:
    assert not has_image(machine.environment, tmp_path)
    choosing.remember_image(machine.environment, tmp_path)
    assert has_image(machine.environment, tmp_path)
    assert not has_image(machine.environment, tmp_path / "other")


@pytest.mark.behaviour(129)
def test_isolated_python_is_chosen_otherwise_and_one_line_says_what_is_missing(
    machine: Machine,
) -> None:
    machine.found |= {"podman": (MISSING,), "bubblewrap": (MISSING,)}
    choice = machine.choose()
    assert (choice.name, choice.reasons) == ("python", (MISSING, MISSING))
    assert choice.summary() == (
        "sandbox: python; no shell_execute and no services, because podman cannot be used: podman: "
        "not on the PATH. Install it: `apt-get …`. All checks: wink-workspace doctor"
    )


@pytest.mark.behaviour(129)
def test_there_is_no_sandbox_where_none_works(machine: Machine) -> None:
    machine.found = dict.fromkeys(machine.found, (MISSING,))
    choice = machine.choose()
    assert (choice.name, len(choice.reasons)) == ("none", 3)
    assert "no tool runs code" in choice.summary()


def test_a_success_is_remembered_for_a_day(machine: Machine) -> None:
    machine.choose()
    machine.clock.advance(86_000)
    assert machine.choose().name == "podman"
    assert machine.examined == ["podman"]
    machine.clock.advance(1_000)
    machine.choose()
    assert machine.examined == ["podman"] * 2


def test_a_failure_is_not_remembered(machine: Machine) -> None:
    machine.found["podman"] = (MISSING,)
    machine.choose()
    machine.found["podman"] = (GOOD,)
    assert machine.choose().name == "podman"


def test_another_engine_is_checked_again(machine: Machine) -> None:
    machine.choose()
    machine.environment = replace(
        machine.environment, variables={"PATH": "", "CONTAINER_HOST": "unix:///other"}
    )
    machine.choose()
    assert machine.examined == ["podman"] * 2


def test_another_environment_of_python_is_checked_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lack the package with bwrap."""
    machine.choose()
    monkeypatch.setattr("sys.prefix", "/other")
    machine.choose()
    assert machine.examined == ["podman"] * 2


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"machine": 1}'])
def test_a_damaged_memory_is_ignored(machine: Machine, content: str) -> None:
    machine.choose()
    (file,) = machine.environment.cache_dir.glob("*")
    file.write_text(content)
    assert machine.choose().name == "podman"
    assert machine.examined == ["podman"] * 2
