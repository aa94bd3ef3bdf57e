"""Resources built and closed during a call, and files that two sessions share."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from support import Note, Text, small_workspace, tool

from wink_workspace.errors import PoisonedError
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import MarkdownSection, Prompt, ToolContext, ToolResult
from wink_workspace.resources import Binding
from wink_workspace.runtime import ToolCall, ToolExecutor, transactions_of
from wink_workspace.session import Append, Session, SliceView

WATCHDOG_S = 30


class Outside:
    """State that outlives the resources that use it, like a directory."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.log: list[str] = []


class Store:
    """Uses the outside state while it is open, and can restore it only then."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._is_open = True

    def add(self, line: str) -> None:
        assert self._is_open
        self._outside.lines.append(line)

    def snapshot(self) -> object:
        return tuple(self._outside.lines)

    def restore(self, token: object) -> None:
        if not self._is_open:
            raise RuntimeError("the store is closed")
        assert isinstance(token, tuple)
        self._outside.lines[:] = token
        self._outside.log.append("restored")

    def close(self) -> None:
        self._is_open = False
        self._outside.log.append("closed")


class Buffer:
    """Writes to the store only when it is closed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def close(self) -> None:
        self._store.add("flushed")


def store_binding(outside: Outside) -> Binding[Store]:
    return Binding(Store, lambda _: Store(outside))


BUFFER = Binding(Buffer, lambda resolver: Buffer(resolver.get(Store)))


def add_lines(params: Text, *, context: ToolContext) -> ToolResult[None]:
    context.resources.get(Store).add(params.text)
    return ToolResult.error("asked to fail") if params.text == "fail" else ToolResult.ok(None)


def test_changes_through_a_resource_built_in_the_failed_call_are_undone() -> None:
    outside = Outside()
    with small_workspace(tool(add_lines), resources={Store: store_binding(outside)}) as workspace:
        workspace.call("act", text="fail")
        assert outside.lines == []
        assert outside.log == ["restored", "closed"]
        workspace.call("act", text="kept")
        assert outside.lines == ["kept"]


def test_writes_by_closing_a_resource_of_a_failed_call_are_undone() -> None:
    outside = Outside()

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        context.resources.get(Buffer)
        return ToolResult.error("asked to fail")

    resources = {Store: store_binding(outside), Buffer: BUFFER}
    with small_workspace(tool(handle), resources=resources) as workspace:
        workspace.call("act")
        assert outside.lines == []


def test_a_resource_whose_snapshot_fails_is_closed_and_never_returned() -> None:
    outside = Outside()

    class Unsaved(Store):
        def snapshot(self) -> object:
            raise OSError("no room for a snapshot")

    binding = Binding(Store, lambda _: Unsaved(outside))
    with small_workspace(tool(add_lines), resources={Store: binding}) as workspace:
        outcome = workspace.call("act", text="kept")
        assert "no room for a snapshot" in outcome.text
        assert outside.lines == []
        assert outside.log == ["closed"]


def inner_prompt(outside: Outside) -> Prompt[None]:
    section = MarkdownSection(title="Inner", template="Add.", tools=[tool(add_lines, name="add")])
    prompt = Prompt(ns="tests", key="inner", name="inner", sections=[section])
    prompt.bind(resources={Store: store_binding(outside)})
    return prompt


def run_inside(prompt: Prompt[None], context: ToolContext, text: str) -> None:
    executor = ToolExecutor(
        prompt=prompt,
        rendered_prompt=prompt.render(),
        adapter=context.adapter,
        session=context.session,
    )
    executor.execute(ToolCall("add", text=text))


def evaluating(outside: Outside, *, inner: str, succeed: bool) -> Callable[..., ToolResult[None]]:
    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        prompt = inner_prompt(outside)
        with prompt.resources:
            prompt.resources.get(Store)
            run_inside(prompt, context, inner)
        return ToolResult.ok(None) if succeed else ToolResult.error("asked to fail")

    return handle


@pytest.mark.parametrize("succeed", [True, False], ids=["kept", "undone"])
def test_a_store_of_a_nested_prompt_stays_open_until_the_outer_call_ends(
    succeed: bool,
) -> None:
    outside = Outside()
    with small_workspace(tool(evaluating(outside, inner="line", succeed=succeed))) as workspace:
        workspace.call("act")
        assert outside.lines == (["line"] if succeed else [])
        assert outside.log == (["closed"] if succeed else ["restored", "closed"])
        transactions_of(workspace.session).check()


def test_an_error_closing_a_nested_store_is_logged_and_the_call_is_not_affected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(Store):
        def close(self) -> None:
            raise OSError("stuck")

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        prompt = inner_prompt(outside)
        prompt.bind(resources={Store: Binding(Store, lambda _: Stuck(outside))})
        with prompt.resources:
            run_inside(prompt, context, "line")
        return ToolResult.ok(None)

    outside = Outside()
    with small_workspace(tool(handle)) as workspace:
        assert workspace.call("act").result.success
        assert outside.lines == ["line"]
    assert "did not close" in caplog.text


def test_a_store_evicted_by_a_failed_inner_call_is_not_restored_by_the_outer_one() -> None:
    """The same prompt inside itself: the failed inner call closes the store that it built."""
    outside = Outside()

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        executor = workspace.executor
        executor.execute(ToolCall("add", text="fail"))
        return ToolResult.error("asked to fail, too")

    tools = (tool(handle), tool(add_lines, name="add"))
    with small_workspace(*tools, resources={Store: store_binding(outside)}) as workspace:
        workspace.call("act")
        assert outside.lines == []
        assert outside.log == ["restored", "closed"]
        assert workspace.call("add", text="kept").result.success


def test_a_built_store_that_cannot_be_restored_poisons_the_session() -> None:
    class Broken(Store):
        def restore(self, token: object) -> None:
            raise OSError("cannot restore")

    outside = Outside()
    binding = Binding(Store, lambda _: Broken(outside))
    with small_workspace(tool(add_lines), resources={Store: binding}) as workspace:
        with pytest.raises(Exception, match="cannot restore"):
            workspace.call("act", text="fail")
        with pytest.raises(PoisonedError):
            workspace.call("act", text="kept")


def write(params: Text, *, context: ToolContext) -> ToolResult[None]:
    assert context.filesystem is not None
    context.filesystem.write_text(f"{params.text}.txt", params.text, mode="overwrite")
    return ToolResult.ok(None)


def test_a_call_of_another_session_on_files_in_use_is_refused() -> None:
    """Two threads, two sessions, one filesystem: a rollback does not undo the other's changes."""
    files = MemoryFilesystem()
    is_inside, may_end = threading.Event(), threading.Event()

    def slow(params: Text, *, context: ToolContext) -> ToolResult[None]:
        files.write_text("mine.txt", "mine")
        is_inside.set()
        assert may_end.wait(WATCHDOG_S)
        return ToolResult.error("asked to fail")

    with (
        small_workspace(tool(slow, name="slow"), filesystem=files) as one,
        small_workspace(tool(write, name="write"), filesystem=files) as two,
    ):
        thread = threading.Thread(target=one.call, args=("slow",))
        thread.start()
        assert is_inside.wait(WATCHDOG_S)
        refused = two.call("write", text="early")
        may_end.set()
        thread.join(WATCHDOG_S)
        assert "used by a call of another session" in refused.text
        assert two.call("write", text="late").result.success
        assert [str(stat.path) for stat in files.list(".")] == ["late.txt"]


def test_a_call_of_another_session_inside_a_call_works_on_the_same_files() -> None:
    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        with small_workspace(
            tool(write, name="write"), filesystem=files, session=Session()
        ) as inner:
            assert inner.call("write", text="inner").result.success
        return ToolResult.error("asked to fail") if params.text == "fail" else ToolResult.ok(None)

    files = MemoryFilesystem()
    with small_workspace(tool(handle), filesystem=files) as workspace:
        workspace.call("act", text="fail")
        assert not files.exists("inner.txt")
        workspace.call("act")
        assert files.exists("inner.txt")


def test_another_session_can_use_files_after_a_call_has_ended() -> None:
    files = MemoryFilesystem()
    tools = [tool(write, name="write")]
    with (
        small_workspace(*tools, filesystem=files) as one,
        small_workspace(*tools, filesystem=files) as two,
    ):
        for name, workspace in (("a", one), ("b", two), ("c", one)):
            assert workspace.call("write", text=name).result.success
        assert isinstance(one.prompt.resources.get(Filesystem), MemoryFilesystem)


def test_parameters_that_a_failed_call_binds_to_the_prompt_are_undone() -> None:
    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        context.prompt.bind(Text(params.text))
        return ToolResult.error("asked to fail") if params.text == "fail" else ToolResult.ok(None)

    section = MarkdownSection[Text](title="Said", template="It says ${text}.")
    with small_workspace(tool(handle), sections=[section]) as workspace:
        prompt = workspace.prompt.bind(Text("first"))
        workspace.call("act", text="fail")
        assert "It says first." in prompt.render().text
        workspace.call("act", text="second")
        assert "It says second." in prompt.render().text


def test_a_handler_cannot_make_a_read_only_filesystem_writable() -> None:
    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        for name, value in (("read_only", False), ("read_only_paths", ()), ("limits", None)):
            with pytest.raises(AttributeError, match=name):
                setattr(context.filesystem, name, value)
        return ToolResult.ok(None)

    with small_workspace(tool(handle), filesystem=MemoryFilesystem(read_only=True)) as workspace:
        assert workspace.call("act").result.success


def test_a_reducer_that_makes_a_call_fails_the_outer_call_without_poisoning() -> None:
    def call_back(view: SliceView[Note], event: Note) -> Append[Note]:
        workspace.call("act")
        return Append(event)

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        if params.text:
            context.session.dispatch(Note(params.text))
        return ToolResult.ok(None)

    with small_workspace(tool(handle)) as workspace:
        workspace.session[Note].register(Note, call_back)
        failed = workspace.call("act", text="note")
        assert "a reducer tried to change its own session" in failed.text
        assert workspace.session[Note].all() == ()
        assert workspace.call("act").result.success
