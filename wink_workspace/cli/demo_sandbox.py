"""The demonstration's second half: a real package's own tests run in a container.

A scripted agent runs the tests of a copy, makes a change that looks harmless, and runs them
again: they fail. The call that broke them is undone, and they pass. What the tests do, a
container confines; that nothing else differs afterwards the content hash shows.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from wink_workspace.adapters import ModelTurn, ScriptedAdapter
from wink_workspace.environment import Environment
from wink_workspace.errors import SandboxError, SandboxUnavailableError
from wink_workspace.runtime import ToolCall
from wink_workspace.sandbox.podman.images import ImageStore, recipe
from wink_workspace.sections.commands import CommandOutput
from wink_workspace.session import ToolInvoked
from wink_workspace.workspace import Workspace

from .display import print_call, printable
from .running import Run

__all__ = ["PACKAGE", "play_sandbox_demo"]

PACKAGE = "pyflakes"  # small, pure Python, and installed with its own tests
_FILE = f"{PACKAGE}/checker.py"
_BEFORE = "isinstance(node, ast.Constant) or _is_tuple_constant(node)"
_AFTER = "isinstance(node, ast.Constant)"
_TESTS = (  # but for those of the command, which expect the words of one version of Python
    f"python3 -m pytest -q -p no:cacheprovider {PACKAGE}/test --ignore={PACKAGE}/test/test_api.py"
)
_IMAGE = "python"


def play_sandbox_demo(console: Console, environment: Environment, *, build: bool) -> bool:
    """Play it on *console*; whether it could be played. If not, it says plainly why not.

    Args:
        console: Where it is shown.
        environment: Where the engine is known from.
        build: Whether to build the image if it is missing, which takes a minute or two.
    """
    console.print("\n[bold]In a container[/]")
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        _left_out(console, f"the package {PACKAGE} is not installed: pip install {PACKAGE}")
        return False
    try:
        _make_sure_of_image(console, environment, build=build)
        _play(console, Path(spec.origin).parent)
    except SandboxError as error:
        _left_out(console, str(error))
        return False
    return True


def _left_out(console: Console, why: str) -> None:
    console.print("[yellow]Podman is not used here:[/]", end=" ")
    console.print(printable(why), markup=False)


def _make_sure_of_image(console: Console, environment: Environment, *, build: bool) -> None:
    store, wanted = ImageStore(environment), recipe(_IMAGE)
    if build and not store.is_current(wanted):
        with console.status("building the image"):
            store.build(wanted)
    if store.find(wanted.reference) is None:
        raise SandboxUnavailableError(
            f"there is no image {wanted.reference}", hint="Run `wink-workspace image build`."
        )


def _play(console: Console, package: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="wink-demo-") as folder:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, Path(folder) / PACKAGE, ignore=skip)
        with Workspace.temporary(folder) as workspace:
            n_attempts = len(workspace.sandbox().report.probes)  # raises if no sandbox can start
            console.print(
                f"[bold]The package[/] {PACKAGE} {version(PACKAGE)}, a copy with its tests"
            )
            console.print(f"[bold]The walls[/]   {n_attempts} attempts to get out, all stopped")
            console.print("[bold]The task[/]    run them, simplify a line, and run them again\n")
            passed = _evaluate(workspace, console, _tests(1))
            _evaluate(workspace, console, _breaking())
            entry = workspace.undo()
            console.print(f"↩ {entry.subject}", style="yellow", markup=False)
            passed_again = _evaluate(workspace, console, _tests(2))
            is_same = not workspace.diff()
    console.print(
        "\n[bold]The end[/]     the tests pass again, and every file is as it was"
        if is_same and passed == passed_again == 0
        else "[red]the tests do not pass as before[/]"
    )


def _evaluate(workspace: Workspace, console: Console, turns: Sequence[ModelTurn]) -> int | None:
    """Play turns and show them; the exit code of the last command."""
    run = Run(
        workspace.files,
        session=workspace.session,
        sandbox="podman",
        resources=workspace.resources,
    )
    adapter = ScriptedAdapter[None](turns)
    with console.status("in the container"):
        report = run.evaluate(adapter, display=lambda: _narrated(workspace, console))
    output = report.calls[-1].value
    return output.exit_code if isinstance(output, CommandOutput) else None


def _tests(number: int) -> list[ModelTurn]:
    return [_turn(f"tests-{number}", "shell_execute", command=_TESTS, timeout_s=300), _DONE]


def _breaking() -> list[ModelTurn]:
    return [
        _turn("read", "read_file", file_path=_FILE, limit=120),
        _turn("simplify", "edit_file", file_path=_FILE, old_string=_BEFORE, new_string=_AFTER),
        *_tests(0),
    ]


def _turn(call_id: str, tool: str, **arguments: object) -> ModelTurn:
    return ModelTurn(tool_calls=(ToolCall.of(tool, arguments, id=call_id),))


_DONE = ModelTurn("Done.")


@contextmanager
def _narrated(workspace: Workspace, console: Console) -> Generator[None]:
    def show(event: ToolInvoked) -> None:
        print_call(console, event)
        if isinstance(event.value, CommandOutput):
            said = event.value.stdout.text or event.value.stdout.tail
            last = said.strip().rpartition("\n")[2]
            console.print(f"    {printable(last)}", style="dim", markup=False)

    stop = workspace.session.dispatcher.subscribe(ToolInvoked, show)
    try:
        yield
    finally:
        stop()
