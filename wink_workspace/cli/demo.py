"""The demonstration: a scripted agent works on a real package, fails, and recovers.

The package is one of our dependencies, so that nothing else must be installed. In the first part
the agent renames a function of it. The agent plays a model: it sees
what a model sees, and decides each turn from the results of the calls before. It makes mistakes
that models make. It edits a file that it has not read, sends a patch whose last hunk is from
memory, and calls a tool that fails halfway. The content hash before and after each mistake shows
that no change remains.

In the second part it writes tests, which run in a sandbox with the package's own examples. A change
that looks harmless makes them fail. The call is undone, and they pass again.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from wink_workspace.adapters import ModelRequest, ModelTurn, ProviderAdapter, ScriptedAdapter
from wink_workspace.errors import SandboxError, SandboxUnavailableError, UsageError
from wink_workspace.filesystem import FileKind, Filesystem, HostMount, MemoryFilesystem
from wink_workspace.prompt import MarkdownSection, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.sandbox import DEFAULT_SANDBOX, SandboxImages
from wink_workspace.sections import AstevalSection, FileWindow, FoundLines, Plan
from wink_workspace.sections.command_results import CommandOutput
from wink_workspace.session import Session, ToolInvoked
from wink_workspace.workspace import Workspace
from wink_workspace.workspace.runs.live_runs import CallEnded
from wink_workspace.workspace.runs.task_run import Run, RunReport

from .screen.console import check_output_file, write_patch
from .screen.display import printable
from .screen.live_area import print_call

PACKAGE = "fsspec"  # a dependency of ours, pure Python, and with no dependencies
OLD_NAME = "infer_compression"
NEW_NAME = "compression_from_name"

_IMAGE = "python"
_FILE = f"{PACKAGE}/utils.py"
_HARMLESS = "    max_int += 1e-8\n"  # looks like a leftover; 0, 10, 100 … need it
_TEST_FILE = "test_names.py"
_TEST = f"""import pytest
from {PACKAGE}.utils import build_name_function


@pytest.mark.parametrize("last", [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 1001])
def test_names_sort_like_their_numbers(last):
    names = [build_name_function(last)(number) for number in range(last + 1)]
    assert names == sorted(names)
"""
_RUN_TESTS = f"python3 -m pytest -q -p no:cacheprovider --doctest-modules {_TEST_FILE} {_FILE}"


def _package_directory() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"the package {PACKAGE}, a dependency of this program, is not installed",
            hint=f"Install it: pip install {PACKAGE}",
        )
    return Path(spec.origin).parent


@contextmanager
def _showing(
    console: Console, session: Session, after_call: Callable[[ToolInvoked], None] | None = None
) -> Generator[None]:
    """Print each call of *session*, and then do *after_call*."""

    def show(event: ToolInvoked) -> None:
        print_call(console, CallEnded.of(event))
        if after_call is not None:
            after_call(event)

    stop = session.dispatcher.subscribe(ToolInvoked, show)
    try:
        yield
    finally:
        stop()


# The first part


def play_renaming(console: Console, patch: Path) -> None:
    """Play the first part on *console*, and write the agent's patch to *patch*.

    Raises:
        UsageError: If the package is not installed, or *patch* cannot be written.
    """
    check_output_file(patch)
    source = _package_directory()
    console.print(f"[bold]The package[/] {PACKAGE} {version(PACKAGE)}, a copy that is deleted")
    console.print(f"[bold]The task[/]    rename {OLD_NAME} to {NEW_NAME} wherever it is used\n")
    with Workspace.temporary(source) as workspace:
        sections = (_formatting_section(), AstevalSection())
        run = Run.in_workspace(workspace, more_sections=sections)
        before = _content_hash(workspace.files)

        def compare_content(event: ToolInvoked) -> None:
            nonlocal before
            after = _content_hash(workspace.files)
            if not event.success:
                verdict = "the same" if after == before else "NOT the same"
                console.print(f"    content before {before}, after {after}: {verdict}", style="dim")
            before = after

        with _showing(console, workspace.session, compare_content):
            report = run.evaluate(_RenamingAgent(workspace.session))
        write_patch(patch, partial(report.changes.review().write_to, full=True))
        _print_result(console, run, report, source, patch)


@dataclass(frozen=True, slots=True)
class FormatAll:
    """Parameters of the formatting tool."""

    pattern: str = field(metadata={"description": "Which files, such as **/*.py"})


def _format_all(params: FormatAll, *, context: ToolContext) -> ToolResult[None]:
    """Rewrite one file after the other, and fail at the third."""
    files = context.resources.get(Filesystem)
    for number, path in enumerate(files.glob(params.pattern).paths, start=1):
        if number > 2:
            raise RuntimeError(
                f"the formatter crashed on {path} after rewriting {number - 1} files"
            )
        files.write_bytes(path, files.read_bytes(path).replace(b"    ", b"\t"))
    return ToolResult.ok(None, "Formatted.")


def _formatting_section() -> MarkdownSection[None]:
    tool = Tool[FormatAll, None](
        name="format_all", description="Format every matching file.", handler=_format_all
    )
    return MarkdownSection[None](
        title="Formatting", template="`format_all` formats files.", tools=[tool]
    )


_Call = tuple[str, Mapping[str, object]]

_SEARCH: _Call = ("grep", {"pattern": rf"\b{OLD_NAME}\b", "glob": "**/*.py"})


class _RenamingAgent(ProviderAdapter[None]):
    """Plays a model that renames a function, with mistakes at first."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._turns = enumerate(self._play(), start=1)

    def complete(self, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - it reads the records
        """The next turn, decided from the results of the last calls."""
        number, calls = next(self._turns)
        if isinstance(calls, str):
            return ModelTurn(calls)
        return ModelTurn(
            tool_calls=tuple(
                ToolCall.of(name, arguments, id=f"{number}-{n}")
                for n, (name, arguments) in enumerate(calls, start=1)
            )
        )

    def _play(self) -> Iterator[Sequence[_Call] | str]:
        steps = ["Find every use", "Change all files at once", "Check that none is left"]
        objective = f"Rename {OLD_NAME} to {NEW_NAME}"
        yield [("planning_setup_plan", {"objective": objective, "initial_steps": steps})]
        yield [_SEARCH]
        paths = self._paths_found()
        edit = {"file_path": paths[0], "old_string": OLD_NAME, "new_string": NEW_NAME}
        yield [("edit_file", edit)]
        yield [("read_file", {"file_path": path}) for path in paths]
        patch = _renaming_patch(self._texts_read(len(paths)))
        yield [_done(1), ("apply_patch", {"patch": _with_wrong_line(patch)})]
        yield [("format_all", {"pattern": "**/*.py"})]
        yield [("apply_patch", {"patch": patch}), _done(2)]
        yield [_count_uses(paths)]
        yield [_SEARCH]
        if not self._paths_found():
            yield [_done(3)]
        yield f"{OLD_NAME} is now {NEW_NAME} in {len(paths)} files."

    def _paths_found(self) -> list[str]:
        found = self._session[ToolInvoked].all()[-1].value
        return sorted({line.path for line in found.lines} if isinstance(found, FoundLines) else ())

    def _texts_read(self, n_files: int) -> dict[str, tuple[str, ...]]:
        values = [record.value for record in self._session[ToolInvoked].all()[-n_files:]]
        return {value.path: value.lines for value in values if isinstance(value, FileWindow)}


def _count_uses(paths: list[str]) -> _Call:
    """Isolated Python that counts the uses of the new name."""
    code = rf"""import re
uses = {{path: len(re.findall(r"\b{NEW_NAME}\b", read_text(path))) for path in paths}}
print(sum(uses.values()), "uses in", len(uses), "files")"""
    return ("evaluate_python", {"code": code, "globals": {"paths": paths}, "reads": paths})


def _done(step_id: int) -> _Call:
    return ("planning_update_step", {"step_id": step_id, "status": "done"})


def _renaming_patch(texts: dict[str, tuple[str, ...]]) -> str:
    """One patch for all files, from their text as it was read."""
    lines: list[str] = []
    for path, before in texts.items():
        after = [re.sub(rf"\b{OLD_NAME}\b", NEW_NAME, line) for line in before]
        lines += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines) + "\n"


def _with_wrong_line(patch: str) -> str:
    """The patch with one line of its last hunk that is not in the file."""
    head, removed, tail = patch.rpartition("\n-")
    return f"{head}{removed}    # as I remember it: {tail}"


def _content_hash(files: Filesystem) -> str:
    """A digest of every path and every byte."""
    digest = hashlib.sha256()
    for stat in files.walk():
        data = files.read_bytes(stat.path) if stat.kind is FileKind.FILE else b""
        digest.update(f"{stat.path}\0{stat.kind}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        digest.update(data)
    return digest.hexdigest()[:16]


def _print_result(console: Console, run: Run, report: RunReport, source: Path, patch: Path) -> None:
    plan = run.workspace.session[Plan].latest()
    n_undone = sum(not call.success for call in report.calls)
    fresh = MemoryFilesystem(mounts=[HostMount(source)])
    fresh.apply_patch(report.changes.review().text(full=True))
    console.print(f"\n[bold]The answer[/]  {report.answer}")
    console.print(f"[bold]The plan[/]    {'none' if plan is None else plan.status}")
    console.print(f"[bold]The calls[/]   {len(report.calls)}, of which {n_undone} were undone")
    console.print(f"[bold]The patch[/]   {patch}: {len(report.changes.paths)} files; ", end="")
    console.print(
        "it applies to a fresh copy and gives the same content"
        if _content_hash(fresh) == _content_hash(run.workspace.files)
        else "[red]it does not give the same content on a fresh copy[/]"
    )
    # `git apply` silently skips every file below a repository, such as one around .venv.
    dry_run = ["patch", "--dry-run", "-p1", "-d", str(source), "-i", str(patch.resolve())]
    console.print(f"\nTry it: {shlex.join(dry_run)}", markup=False)


# The second part


def play_tests(console: Console, images: SandboxImages, *, build: bool) -> bool:
    """Play the second part on *console*; if it cannot be played, print why and return ``False``.

    Args:
        console: Where it is shown.
        images: The images of the default sandbox.
        build: Whether to build a missing image, which takes a minute or two.
    """
    console.print("\n[bold]In a sandbox[/]")
    try:
        if build and images.find(_IMAGE) is None:
            console.print("There is no image yet. Building one takes a minute or two, once.")
            with console.status("building the image"):
                images.build(_IMAGE)
        if images.find(_IMAGE) is None:
            raise SandboxUnavailableError(
                f"there is no image {images.reference(_IMAGE)}",
                hint="Run `wink-workspace image build`.",
            )
        _play_tests(console, _package_directory())
    except (SandboxError, UsageError) as error:
        console.print(f"[yellow]The sandbox {DEFAULT_SANDBOX} is not used here:[/]", end=" ")
        console.print(printable(str(error)), markup=False)
        return False
    return True


def _play_tests(console: Console, package: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="wink-demo-") as folder:
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, Path(folder) / PACKAGE, ignore=skip)
        with Workspace.temporary(folder) as workspace:
            n_probes = len(workspace.sandbox().report.probes)  # raises if no sandbox can start
            console.print(f"[bold]The package[/] {PACKAGE} {version(PACKAGE)}, a copy")
            console.print(f"[bold]Isolation[/]   {n_probes} attempts to get out, all blocked")
            console.print("[bold]The task[/]    test a function, then remove a line from it\n")
            before = workspace.files.read_bytes(_FILE)
            write = _turn("test", "write_file", file_path=_TEST_FILE, content=_TEST)
            passed = _evaluate(workspace, console, [write, *_run_tests(1)])
            read = _turn("read", "read_file", file_path=_FILE, limit=200)
            edit = _turn("edit", "edit_file", file_path=_FILE, old_string=_HARMLESS, new_string="")
            failed = _evaluate(workspace, console, [read, edit, *_run_tests(2)])
            entry = workspace.undo()
            console.print(f"↩ {entry.subject}", style="yellow", markup=False)
            passed_again = _evaluate(workspace, console, _run_tests(3))
            is_same = workspace.files.read_bytes(_FILE) == before
    console.print(
        "\n[bold]The end[/]     the tests pass again, and the package is as it was"
        if is_same and failed and passed == passed_again == 0
        else "[red]the tests do not pass as before[/]"
    )


def _evaluate(workspace: Workspace, console: Console, turns: Sequence[ModelTurn]) -> int | None:
    """Play turns and show them; the exit code of the last command."""
    run = Run.in_workspace(workspace, sandbox=DEFAULT_SANDBOX)
    with console.status("in the sandbox"), _showing(console, workspace.session):
        report = run.evaluate(ScriptedAdapter[None](turns))
    output = report.calls[-1].value
    return output.exit_code if isinstance(output, CommandOutput) else None


def _run_tests(number: int) -> list[ModelTurn]:
    run = _turn(f"tests-{number}", "shell_execute", command=_RUN_TESTS, timeout_s=300)
    return [run, ModelTurn("Done.")]


def _turn(call_id: str, tool: str, **arguments: object) -> ModelTurn:
    return ModelTurn(tool_calls=(ToolCall.of(tool, arguments, id=call_id),))
