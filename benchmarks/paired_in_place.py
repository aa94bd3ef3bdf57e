"""The time of a call in a copy and in place, in turns in one run; see benchmarks/results.md.

    python benchmarks/paired_in_place.py [DIRECTORY ...]

A failed call is rolled back: in a copy by restoring the tree, in place by reverting the effects.
Times are processor times, so that other programs on the machine do not count.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from wink_workspace.adapters import ScriptedAdapter
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall, ToolExecutor
from wink_workspace.sections import VfsToolsSection
from wink_workspace.workspace import Workspace, WorkspaceMode, WorkspaceStorage

N_FILES = 1_000
ROUNDS = 100


def write_and_fail(params: None, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write_text("d0/f0.txt", "to be taken back\n")
    return ToolResult.error("this always fails")


def delete_and_fail(params: None, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.delete("d1", recursive=True)
    return ToolResult.error("this always fails")


def opened(directory: Path, mode: WorkspaceMode, stack: ExitStack) -> Callable[..., object]:
    """Open a new workspace of that mode; returns a function that runs a call in it."""
    source = directory / "source"
    for n in range(N_FILES):
        (path := source / f"d{n // 100}/f{n % 100}.txt").parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"file %d\n" % n)
    storage = WorkspaceStorage(directory / "state")
    workspace = stack.enter_context(Workspace.create(source, storage=storage, mode=mode))
    tools = [
        Tool[None, None](name=handler.__name__, description="Bench", handler=handler)
        for handler in (write_and_fail, delete_and_fail)
    ]
    root = MarkdownSection(title="Bench", template="Bench", tools=tools)
    prompt = Prompt(ns="bench", key="b", sections=[root, VfsToolsSection(workspace.files)])
    prompt.bind(resources=workspace.resources)
    prompt.install(workspace.session)
    stack.enter_context(prompt.resources)
    executor = ToolExecutor(
        prompt=prompt,
        rendered_prompt=prompt.render(session=workspace.session),
        adapter=ScriptedAdapter(()),
        session=workspace.session,
    )

    def call(name: str, n: int, **arguments: object) -> None:
        outcome = executor.execute(ToolCall(f"{name}-{n}", name, arguments))
        assert outcome.result.success != name.endswith("_fail"), outcome.text

    call("read_file", -1, file_path="d0/f0.txt")  # a file must be read before it is replaced

    return call


def main(directories: list[str]) -> None:
    """Print a table for each directory."""
    for parent in directories:
        print(f"\n{parent}\n\n| Call | Copy (µs) | In place (µs) | Difference (µs) |")
        print("|---|---|---|---|")
        with ExitStack() as stack:
            sides: list[Callable[..., object]] = []
            for mode in ("copy", "in_place"):
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent)))
                sides.append(opened(directory, mode, stack))
            time.sleep(2.1)  # until then the files are racily clean, and each call reads them again
            for name, arguments in (
                ("read_file", {"file_path": "d2/f2.txt"}),
                ("write_file", {"file_path": "d0/f0.txt"}),
                ("write_and_fail", {}),
                ("delete_and_fail", {}),
            ):
                times: list[list[float]] = [[], []]
                for n in range(ROUNDS if name != "delete_and_fail" else 20):
                    if name == "write_file":
                        arguments = {**arguments, "content": f"content {n}\n"}
                    for which in (0, 1) if n % 2 else (1, 0):
                        start = time.process_time()
                        sides[which](name, n, **arguments)
                        times[which].append(time.process_time() - start)
                copy, in_place = (statistics.median(side) * 1e6 for side in times)
                print(f"| {name} | {copy:,.0f} | {in_place:,.0f} | {in_place - copy:+,.0f} |")


if __name__ == "__main__":
    main(sys.argv[1:] or ["/dev/shm", tempfile.gettempdir()])
