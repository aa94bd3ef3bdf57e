"""The demonstration: a scripted agent renames a function in the source of an installed package.

The agent is a program that plays a model: it sees what a model sees, and each of its turns
follows from what the calls before it returned. It makes the mistakes that models make. It
edits a file it has not read, hands in a patch whose last hunk is from memory, and calls a tool
that fails halfway through its work. The content hash printed before and after each of them
shows that nothing is left.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from wink_workspace.adapters import ModelRequest, ModelTurn, ProviderAdapter
from wink_workspace.errors import UsageError
from wink_workspace.filesystem import FileKind, Filesystem, HostMount, MemoryFilesystem
from wink_workspace.prompt import MarkdownSection, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.sections import AstevalSection, FileWindow, FoundLines, Plan
from wink_workspace.session import Session, ToolInvoked

from .display import print_call
from .running import Run, RunReport, check_place, write_patch

__all__ = ["play_demo"]

PACKAGE = "fsspec"  # a dependency of ours, so it is always installed
OLD_NAME = "infer_compression"
NEW_NAME = "compression_from_name"


def play_demo(console: Console, patch: Path) -> None:
    """Play the demonstration on *console* and write the agent's patch to *patch*.

    Raises:
        UsageError: If the package cannot be found, or *patch* cannot be written.
    """
    check_place(patch)
    source = _package_source()
    demo = Run.over_copy(source, more_sections=(_formatting_section(), AstevalSection()))
    console.print(f"[bold]The package[/] {PACKAGE} {version(PACKAGE)}, a copy held in memory")
    console.print(f"[bold]The task[/]    rename {OLD_NAME} to {NEW_NAME} wherever it is used\n")
    agent = _Agent(demo.session)
    report = demo.evaluate(agent, display=lambda: _narrated(demo, console))
    write_patch(patch, partial(report.diff.write_to, full=True))
    _print_end(console, demo, report, source, patch)


def _package_source() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"the package {PACKAGE} is not installed", hint=f"Install it: pip install {PACKAGE}"
        )
    return Path(spec.origin).parent


# The tool that fails halfway


@dataclass(frozen=True, slots=True)
class FormatAll:
    """Parameters of the formatting tool."""

    pattern: str = field(metadata={"description": "Which files, such as **/*.py"})


def _format_all(params: FormatAll, *, context: ToolContext) -> ToolResult[None]:
    """Rewrite files one after the other, and come to grief at the third."""
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


# The agent

_Call = tuple[str, Mapping[str, object]]


class _Agent(ProviderAdapter[None]):
    """Plays a model that renames a function, clumsily at first."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._turns = enumerate(self._play(), start=1)

    def complete(self, request: ModelRequest) -> ModelTurn:  # noqa: ARG002 - it reads the records
        """The next turn, in view of what the calls of the last one gave."""
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
        patch = _renaming(self._texts_read(len(paths)))
        yield [_done(1), ("apply_patch", {"patch": _misremembered(patch)})]
        yield [("format_all", {"pattern": "**/*.py"})]
        yield [("apply_patch", {"patch": patch}), _done(2)]
        yield [_counting(paths)]
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


_SEARCH: _Call = ("grep", {"pattern": rf"\b{OLD_NAME}\b", "glob": "**/*.py"})


def _counting(paths: Sequence[str]) -> _Call:
    """Python that counts, behind its wall, what was renamed."""
    code = rf"""import re
uses = {{path: len(re.findall(r"\b{NEW_NAME}\b", read_text(path))) for path in paths}}
print(sum(uses.values()), "uses in", len(uses), "files")"""
    paths = list(paths)
    return ("evaluate_python", {"code": code, "globals": {"paths": paths}, "reads": paths})


def _done(step_id: int) -> _Call:
    return ("planning_update_step", {"step_id": step_id, "status": "done"})


def _renaming(texts: dict[str, tuple[str, ...]]) -> str:
    """One patch for all files, made from what was read."""
    lines: list[str] = []
    for path, before in texts.items():
        after = [re.sub(rf"\b{OLD_NAME}\b", NEW_NAME, line) for line in before]
        lines += difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
    return "\n".join(lines) + "\n"


def _misremembered(patch: str) -> str:
    """The patch with one line of its last hunk as nobody ever wrote it."""
    head, removed, tail = patch.rpartition("\n-")
    return f"{head}{removed}    # as I remember it: {tail}"


# What is shown


@contextmanager
def _narrated(demo: Run, console: Console) -> Generator[None]:
    """A line for each call; around one that failed, the content before and after."""
    before = _content_hash(demo.files)

    def show(event: ToolInvoked) -> None:
        nonlocal before
        print_call(console, event)
        after = _content_hash(demo.files)
        if not event.success:
            verdict = "the same" if after == before else "NOT the same"
            console.print(f"    content before {before}, after {after}: {verdict}", style="dim")
        before = after

    stop = demo.session.dispatcher.subscribe(ToolInvoked, show)
    try:
        yield
    finally:
        stop()


def _content_hash(files: Filesystem) -> str:
    """A digest of every path and every byte."""
    digest = hashlib.sha256()
    for stat in files.walk():
        data = files.read_bytes(stat.path) if stat.kind is FileKind.FILE else b""
        digest.update(f"{stat.path}\0{stat.kind}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        digest.update(data)
    return digest.hexdigest()[:16]


def _print_end(console: Console, demo: Run, report: RunReport, source: Path, patch: Path) -> None:
    plan = demo.session[Plan].latest()
    undone = sum(not call.success for call in report.calls)
    console.print(f"\n[bold]The answer[/]  {report.answer}")
    console.print(f"[bold]The plan[/]    {'none' if plan is None else plan.status}")
    console.print(f"[bold]The calls[/]   {len(report.calls)}, of which {undone} were undone")
    console.print(f"[bold]The patch[/]   {patch}: {len(report.changed_paths)} files; ", end="")
    console.print(
        "it applies to a fresh copy and gives the same content"
        if _applies(report.diff.text(full=True), source, _content_hash(demo.files))
        else "[red]it does not give the same content on a fresh copy[/]"
    )
    # Not git apply: below a repository, such as one around .venv, it skips every file in silence.
    dry_run = ["patch", "--dry-run", "-p1", "-d", str(source), "-i", str(patch.resolve())]
    console.print(f"\nTry it: {shlex.join(dry_run)}", markup=False)


def _applies(patch: str, source: Path, expected: str) -> bool:
    fresh = MemoryFilesystem(mounts=[HostMount(source)])
    fresh.apply_patch(patch)
    return _content_hash(fresh) == expected
