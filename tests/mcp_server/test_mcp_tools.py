"""Tools for a client: the list, the results of calls, and their effects."""

from __future__ import annotations

import base64
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client
from mcp_harness import WATCHDOG_S, Harness, exchange, run, text_of
from raw_http import INITIALIZE

from wink_workspace.clock import Cancellation
from wink_workspace.errors import LedgerError, UsageError
from wink_workspace.filesystem import Filesystem
from wink_workspace.mcp_server import hosting
from wink_workspace.mcp_server.catalog import Catalog
from wink_workspace.mcp_server.hosting import Answer, HostedWorkspace, WorkspaceProvider
from wink_workspace.mcp_server.protocol_types import mcp_tool
from wink_workspace.prompt import MarkdownSection, Tool, ToolAnnotations, ToolContext, ToolResult
from wink_workspace.runtime import MOST_TEXT_CHARS
from wink_workspace.sections import PlanningToolsSection, PodmanSandboxSection
from wink_workspace.session import Outcome, ToolInvoked
from wink_workspace.workspace import Workspace

FILES = {"app.py": "print('helo')\n", "lib/deep.py": "x = 1\n", "old.txt": "old\n"}

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ls", {}),
    ("read_file", {"file_path": "app.py"}),
    ("read_file", {"file_path": "old.txt", "offset": None, "limit": None}),
    ("grep", {"pattern": "x"}),
    ("glob", {"pattern": "**/*.py"}),
    ("edit_file", {"file_path": "app.py", "old_string": "helo", "new_string": "hello"}),
    ("write_file", {"file_path": "new.txt", "content": "new\n"}),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Add File: p.txt\n+p\n*** End Patch\n"}),
    ("mv", {"source": "old.txt", "destination": "moved.txt"}),
    ("rm", {"path": "moved.txt"}),
    ("planning_setup_plan", {"objective": "all", "initial_steps": ["one"]}),
    ("planning_add_step", {"steps": ["two"]}),
    ("planning_update_step", {"step_id": 1, "status": "done"}),
    ("planning_read_plan", {}),
    ("workspace_diff", {}),
    ("workspace_diff", {"entry": 2}),
    ("workspace_log", {"limit": 3}),
    ("workspace_undo", {}),
    ("undo_entry", {"entry": 5}),
    ("workspace_apply", {}),
    ("workspace_sync", {}),
    ("fork_workspace", {"branch": "try"}),
    ("switch_branch", {"branch": "try"}),
    ("compare_branches", {"branch": "main"}),
    ("merge_branch", {"branch": "main"}),
]


@pytest.fixture
def harness(tmp_path: Any) -> Harness:
    return Harness(tmp_path, dict(FILES))


@dataclass(frozen=True, slots=True)
class Nothing:
    """No parameters."""


def section(handler: Any, result_type: Any = None, name: str = "act") -> MarkdownSection[None]:
    def handle(params: Nothing, *, context: ToolContext) -> ToolResult[Any]:
        return handler(context)

    handle.__annotations__["return"] = ToolResult[result_type]
    tool = Tool[Nothing, result_type](name=name, description="A test.", handler=handle)
    return MarkdownSection[None](title=name, template="", tools=[tool])


def write(context: ToolContext) -> None:
    context.resources.get(Filesystem).write_text("trace", "left")


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_result_of_every_tool_matches_its_schema(harness: Harness, mode: str) -> None:
    async def test() -> None:
        async with harness.client(mode=mode, structured=True) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name, arguments in CALLS:
                tool = tools[name]
                given = {key: value for key, value in arguments.items() if value is not None}
                jsonschema.validate(given, tool.input_schema)
                result = await client.call_tool(name, arguments)
                assert not result.is_error, text_of(result)
                jsonschema.validate(result.structured_content, tool.output_schema)
            assert {name for name, _ in CALLS} == tools.keys()
            for tool in tools.values():
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
                assert tool.description
            with_example = {"apply_patch", "edit_file", "planning_setup_plan"}
            assert {
                name for name, tool in tools.items() if "\n\nExample: {" in str(tool.description)
            } == with_example

    run(test)


@pytest.mark.behaviour(130)
def test_b970_results_are_text_as_a_model_reads_it(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            assert {tool.output_schema for tool in (await client.list_tools()).tools} == {None}
            read = await client.call_tool("read_file", {"file_path": "app.py"})
            assert text_of(read) == "app.py, all 1 line\n\n     1\tprint('helo')"
            new = {"file_path": "app.py", "old_string": "helo", "new_string": "hello"}
            await client.call_tool("edit_file", new)
            diff = await client.call_tool("workspace_diff", {})
            assert "\n-print('helo')\n+print('hello')\n" in text_of(diff)
            for result in (read, diff):
                assert result.structured_content is None
                assert len(result.content) == 1

    run(test)


@pytest.mark.parametrize("structured", [False, True])
def test_an_image_is_image_content_once(harness: Harness, structured: bool) -> None:
    data = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    (harness.source / "logo.png").write_bytes(data)

    async def test() -> None:
        async with harness.client(structured=structured) as client:
            read = await client.call_tool("read_file", {"file_path": "logo.png"})
            text, image = read.content
            assert text.text == "logo.png, an image of type image/png, 264 bytes"
            assert (image.type, image.mime_type) == ("image", "image/png")
            assert base64.b64decode(image.data) == data
            assert (read.structured_content or {}).get("image") is None

    run(test)


def test_exactly_the_tools_with_the_read_only_hint_change_no_file(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            for name, arguments in CALLS:
                before = None if harness.workspace is None else harness.workspace.head
                await client.call_tool(name, arguments)
                hints = tools[name].annotations
                assert hints is not None
                assert hints.open_world_hint is False
                if before is not None and hints.read_only_hint:
                    assert harness.workspace.head.files == before.files, name
                    if not name.startswith("workspace_") and "branch" not in name:
                        assert harness.workspace.head.outcome is Outcome.COMMITTED
            only_read = {name for name, tool in tools.items() if tool.annotations.read_only_hint}
            assert only_read == {
                "ls", "read_file", "glob", "grep", "planning_read_plan", "workspace_diff",
                "workspace_log", "compare_branches",
            }  # fmt: skip

    run(test)


def test_a_client_gets_the_annotations_of_a_custom_tool(harness: Harness) -> None:
    look = Tool[Nothing, None](
        name="look",
        description="Look.",
        annotations=ToolAnnotations(read_only=True, open_world=False),
    )
    own = MarkdownSection[None](title="Own", template="", tools=[look])

    async def test() -> None:
        async with harness.client(sections=[own]) as client:
            hints = (await client.list_tools()).tools[0].annotations
            assert (hints.read_only_hint, hints.open_world_hint) == (True, False)
            assert (hints.destructive_hint, hints.idempotent_hint) == (None, None)

    run(test)


def test_a_tool_without_annotations_has_no_hints(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client(sections=[section(lambda _: ToolResult.ok(None))]) as client:
            tool = (await client.list_tools()).tools[0]
            assert tool.annotations.read_only_hint is None
            assert tool.annotations.destructive_hint is None
            assert tool.annotations.open_world_hint is None
            assert tool.output_schema is None
            result = await client.call_tool("act", {})
            assert (result.structured_content, result.is_error) == (None, False)

    run(test)


@pytest.mark.parametrize(
    ("result_type", "value", "sent"),
    [
        (str, "text", {"result": "text"}),
        (tuple[int, ...], (1, 2), {"result": [1, 2]}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (str, "odd \udcff name", {"result": "odd \\udcff name"}),
        (dict[str, str], {"\udcfe": "\udcff"}, {"\\udcfe": "\\udcff"}),
    ],
)
def test_value_that_is_not_an_object_is_wrapped_in_result(
    harness: Harness, result_type: Any, value: Any, sent: Any
) -> None:
    async def test() -> None:
        offered = section(lambda _: ToolResult.ok(value, "message"), result_type)
        async with harness.client(sections=[offered], structured=True) as client:
            result = await client.call_tool("act", {})
            assert result.structured_content == sent
            assert text_of(result).startswith("message")

    run(test)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda context: (write(context), ToolResult.error("it broke"))[1], "it broke"),
        (lambda context: (write(context), 1 / 0)[1], "ZeroDivisionError"),
        (lambda context: (write(context), context.adapter.evaluate(context.prompt,
          session=context.session))[1], "this run has no model"),
    ],
)  # fmt: skip
def test_failed_call_is_an_error_result_and_leaves_no_trace(
    harness: Harness, result: Any, message: str
) -> None:
    async def test() -> None:
        async with harness.client(sections=[section(result)]) as client:
            answer = await client.call_tool("act", {})
            assert answer.is_error
            assert message in text_of(answer)
            assert answer.structured_content is None
            assert not harness.workspace.files.exists("trace")
            assert harness.workspace.head.outcome is Outcome.ROLLED_BACK

    run(test)


@pytest.mark.behaviour(15)
def test_b15_unknown_tool_and_wrong_arguments_give_failed_results(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            unknown = await client.call_tool("raed_file", {"file_path": "app.py"})
            assert unknown.is_error
            assert "read_file" in text_of(unknown)
            wrong = await client.call_tool("read_file", {"file_path": 3, "more": 1})
            assert wrong.is_error
            assert "file_path" in text_of(wrong)
            assert "more" in text_of(wrong)
            wrong = await client.call_tool("workspace_log", {"limit": "x"})
            assert wrong.is_error
            assert "limit" in text_of(wrong)
            wrong = await client.call_tool("workspace_diff", {"entry": 99})
            assert wrong.is_error
            assert "changed nothing" in text_of(wrong)

    run(test)


def test_undo_with_nothing_to_undo_fails_with_a_message(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            result = await client.call_tool("workspace_undo", {})
            assert result.is_error
            assert "nothing to undo" in text_of(result)

    run(test)


def test_apply_to_a_source_with_conflicting_changes_changes_nothing(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            await client.call_tool("read_file", {"file_path": "app.py"})
            await client.call_tool("write_file", {"file_path": "app.py", "content": "mine"})
            (harness.source / "app.py").write_text("theirs")
            result = await client.call_tool("workspace_apply", {})
            assert result.is_error
            assert (harness.source / "app.py").read_text() == "theirs"

    run(test)


def test_an_answer_says_that_the_source_was_edited_and_sync_merges_the_edits(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It looks at the source before each answer, and not only every few seconds
    monkeypatch.setattr(hosting, "_LOOK_S", 0.0)
    monkeypatch.setattr(hosting, "_LOOK_SHARE", 0)

    async def test() -> None:
        async with harness.client() as client:

            async def answer_text() -> str:
                return text_of(await client.call_tool("ls", {}))

            assert "edited outside" not in await answer_text() + await answer_text()
            for n in range(100):  # the clock of the kernel makes steps
                (harness.source / "theirs.txt").write_text(f"{n}")
                if "`workspace_sync` merges" in await answer_text() + await answer_text():
                    break
            assert "theirs.txt" not in await answer_text()
            await answer_text()
            assert "edited outside" not in await answer_text(), "it is said once"
            merged = text_of(await client.call_tool("workspace_sync", {}))
            assert merged == "Merged 1 path of the source.\n\ntheirs.txt"
            assert "theirs.txt" in await answer_text()
            again = await client.call_tool("workspace_sync", {})
            assert text_of(again) == "The source has no later changes."

    run(test)


def test_one_entry_is_undone_by_its_number(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            for name in ("one.txt", "two.txt"):
                await client.call_tool("write_file", {"file_path": name, "content": name})
            undone = await client.call_tool("undo_entry", {"entry": 2})
            assert text_of(undone) == "Undid entry 2.\n\none.txt"
            listed = text_of(await client.call_tool("ls", {}))
            assert ("one.txt" in listed, "two.txt" in listed) == (False, True)

    run(test)


def test_apply_can_make_a_branch(harness: Harness) -> None:
    import subprocess

    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *command],
            cwd=harness.source,
            check=True,
        )

    async def test() -> None:
        async with harness.client() as client:
            await client.call_tool("write_file", {"file_path": "new", "content": "x"})
            result = await client.call_tool("workspace_apply", {"branch": "work"})
            assert "branch work" in text_of(result)
            assert not (harness.source / "new").exists()

    run(test)


def test_diff_and_apply_name_runnable_and_left_out_paths(harness: Harness) -> None:
    (harness.source / ".gitignore").write_text("*.log\n")

    async def test() -> None:
        async with harness.client() as client:
            for path in ("Makefile", "a.log", "plain.txt"):
                await client.call_tool("write_file", {"file_path": path, "content": "x\n"})
            shown = await client.call_tool("workspace_diff", {})
            with_ignored = await client.call_tool("workspace_diff", {"include_ignored": True})
            applied = await client.call_tool("workspace_apply", {})
            runs = "can run something on the user's machine: Makefile: build file"
            assert runs in text_of(shown)
            assert "left out: a.log: ignored" in text_of(shown)
            assert "plain.txt: " not in text_of(shown)
            assert "left out" not in text_of(with_ignored)
            assert runs in text_of(applied)
            assert "a.log (left out)" in text_of(applied)
            assert not (harness.source / "a.log").exists()
            await client.call_tool("workspace_apply", {"include_ignored": True})
            assert (harness.source / "a.log").exists()

    run(test)


def test_failure_to_open_the_workspace_is_answered_and_the_next_call_tries_again(
    harness: Harness,
) -> None:
    async def test() -> None:
        async with harness.client() as client:
            away = harness.source.rename(harness.root / "away")
            result = await client.call_tool("ls", {})
            assert result.is_error
            assert "source" in text_of(result)
            away.rename(harness.source)
            assert not (await client.call_tool("ls", {})).is_error

    run(test)


# Concurrency and progress


@contextmanager
def released(*events: threading.Event) -> Iterator[None]:
    """An event that is set at the end of the test, so that waiting handlers end."""
    try:
        yield
    finally:
        for event in events:
            event.set()


async def happens(event: threading.Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, WATCHDOG_S)


@pytest.mark.behaviour(82)
def test_call_that_is_cancelled_while_it_runs_leaves_no_trace(harness: Harness) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(context: ToolContext) -> ToolResult[None]:
        write(context)
        begun.set()
        go_on.wait(WATCHDOG_S)
        return ToolResult.ok(None)

    async def test() -> None:
        async with harness.client(sections=[section(slow)]) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "act", {})
                await happens(begun)
                tasks.cancel_scope.cancel()
            await client.list_tools()  # so the server has received the cancellation
            go_on.set()
            log = text_of(await client.call_tool("workspace_log", {}))
            assert "rolled_back" in log, log
            assert not harness.workspace.files.exists("trace")
            assert not (await client.call_tool("act", {})).is_error, "the next one is not affected"
            assert harness.workspace.files.exists("trace")

    with released(go_on):
        run(test)


def test_call_that_is_cancelled_while_it_waits_never_begins(harness: Harness) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(context: ToolContext) -> ToolResult[None]:
        begun.set()
        go_on.wait(WATCHDOG_S)
        return ToolResult.ok(None)

    async def test() -> None:
        never = section(lambda context: (write(context), ToolResult.ok(None))[1], name="never")
        async with harness.client(sections=[section(slow), never]) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "act", {})
                await happens(begun)
                async with anyio.create_task_group() as waiting:
                    waiting.start_soon(client.call_tool, "never", {})
                    waiting.start_soon(client.call_tool, "workspace_undo", {})
                    await client.list_tools()
                    waiting.cancel_scope.cancel()
                await client.list_tools()
                go_on.set()
            listed = text_of(await client.call_tool("workspace_log", {}))
            assert "never" not in listed
            assert "act" in listed

    with released(go_on):
        run(test)


def test_calls_of_one_client_run_in_order_one_at_a_time(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            async with anyio.create_task_group() as tasks:
                for n in range(20):
                    arguments = {"file_path": f"{n}.txt", "content": str(n)}
                    tasks.start_soon(client.call_tool, "write_file", arguments)
            entries = [entry for entry in harness.workspace.log() if entry.tool == "write_file"]
            assert len(entries) == 20
            records = harness.workspace.session[ToolInvoked].all()
            assert [r.outcome for r in records] == [Outcome.COMMITTED] * 20

    run(test)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_client_gets_progress_for_heartbeats_and_for_silence(harness: Harness, mode: str) -> None:
    reported: list[float] = []
    go_on = threading.Event()

    def slow(context: ToolContext) -> ToolResult[None]:
        context.beat()
        go_on.wait(WATCHDOG_S)
        return ToolResult.ok(None)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(progress)
        if len(reported) > 5:
            go_on.set()

    async def test() -> None:
        tools = [section(slow)]
        async with harness.client(sections=tools, mode=mode, progress_interval_s=0.01) as client:
            await client.call_tool("act", {}, progress_callback=on_progress)
            assert reported == sorted(set(reported)), "it only grows"
            n = len(reported)
            await client.call_tool("act", {})
            assert len(reported) == n, "this call did not ask for progress"

    with released(go_on):
        run(test)


@pytest.mark.behaviour(131)
def test_b971_tools_are_listed_and_progress_is_reported_during_an_import(harness: Harness) -> None:
    begun, go_on = threading.Event(), threading.Event()
    messages: list[str | None] = []

    def slow_import(progress: Callable[[int, int], None]) -> None:
        progress(12_345, 1)
        begun.set()
        go_on.wait(WATCHDOG_S)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)
        assert begun.is_set()
        go_on.set()

    async def test() -> None:
        async with harness.client(before_open=slow_import, progress_interval_s=0.01) as client:
            async with anyio.create_task_group() as tasks:
                read = partial(client.call_tool, progress_callback=on_progress)
                tasks.start_soon(read, "read_file", {"file_path": "app.py"})
                await happens(begun)
                assert (await client.list_tools()).tools
        assert "importing the files: 12,345 so far" in messages

    with released(go_on):
        run(test)


@pytest.mark.behaviour(131)
def test_b971_import_stops_when_the_client_disconnects() -> None:
    begun = threading.Event()

    def endless(progress: Callable[[int, int], None]) -> Any:
        for n in itertools.count():
            progress(n, 0)
            begun.set()

    hosted = HostedWorkspace(WorkspaceProvider(endless), Catalog())
    opening = hosted.open()
    assert begun.wait(WATCHDOG_S)
    hosted.close().result(WATCHDOG_S)
    with pytest.raises(UsageError, match="is closed"):
        opening.result(WATCHDOG_S)


def test_calls_work_on_the_opened_branch_if_the_one_before_cannot_be_closed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted = HostedWorkspace(
        WorkspaceProvider(lambda _: Workspace.create(harness.source, storage=harness.storage)),
        Catalog(operations=True),
    )

    def call(name: str, **arguments: object) -> Answer:
        return hosted.call(name, arguments, cancellation=Cancellation()).result(WATCHDOG_S)

    close, is_first = Workspace.close, iter([True])

    def fail_first(workspace: Workspace) -> None:
        close(workspace)
        if next(is_first, False):
            raise LedgerError("the lock cannot be written")

    try:
        assert call("fork_workspace", branch="one").success
        assert call("fork_workspace", branch="two").success
        assert call("switch_branch", branch="one").success
        monkeypatch.setattr(Workspace, "close", fail_first)
        refused = call("switch_branch", branch="two")
        assert "the lock cannot be written" in refused.text
        assert call("write_file", file_path="new.txt", content="kept\n").success
        assert hosted.read(lambda workspace: workspace.branch_name).result(WATCHDOG_S) == "main"
        assert call("switch_branch", branch="one").success
        assert "new.txt" not in call("ls").text
        assert call("switch_branch", branch="main").success
        assert "new.txt" in call("ls").text
    finally:
        hosted.close().result(WATCHDOG_S)


def test_the_import_begins_while_a_server_over_stdio_starts(harness: Harness) -> None:
    with harness.stdio_process() as process:
        try:
            exchange(process, **INITIALIZE)
            assert exchange(process, id=1, method="tools/list")["result"]["tools"]
            while not harness.workspaces():
                assert exchange(process, id=2, method="ping")["result"] == {}
            process.stdin.close()
            assert process.wait(WATCHDOG_S) == 0
        finally:
            process.kill()


def test_closed_workspace_refuses_calls_and_may_be_closed_twice(harness: Harness) -> None:
    catalog = Catalog()
    hosted = HostedWorkspace(WorkspaceProvider(lambda _: pytest.fail("not needed")), catalog)
    first = hosted.close()
    assert hosted.close() is first
    first.result(WATCHDOG_S)
    with pytest.raises(UsageError, match="is closed"):
        hosted.call("ls", {}, cancellation=Cancellation())


def test_tools_and_instructions_together_are_small_enough_for_every_client() -> None:
    """Claude Code cuts instructions after 2 KB, and every byte costs tokens in each conversation."""
    sections = (PodmanSandboxSection(), PlanningToolsSection())
    for catalog in (Catalog(operations=True), Catalog(sections, operations=True)):
        tools = [mcp_tool(each, structured=False) for each in catalog.tools]
        n_bytes = sum(
            len(each.model_dump_json(by_alias=True, exclude_none=True).encode()) for each in tools
        )
        assert len(catalog.instructions) <= 2_000
        assert n_bytes + len(catalog.instructions.encode()) <= 14_600
        sizes = {each.name: (each.meta or {}).get("anthropic/maxResultSizeChars") for each in tools}
        assert sizes["read_file"] > MOST_TEXT_CHARS
        assert sizes["rm"] is None


def test_long_text_of_a_section_without_summary_is_cut(harness: Harness) -> None:
    long = MarkdownSection[None](title="Long", template="x" * 3_000)
    text = Catalog((long,)).instructions
    assert (len(text), text[-1]) == (2_000, "…")
    assert "private copy" in text


def test_instructions_are_the_text_of_the_sections(harness: Harness) -> None:
    async def test() -> None:
        async with harness.client() as client:
            message = await instructions_of(client)
            for words in ("workspace_apply", "read_file", "planning_setup_plan"):
                assert words in message

    run(test)


async def instructions_of(client: Client) -> str:
    return client.instructions or ""
