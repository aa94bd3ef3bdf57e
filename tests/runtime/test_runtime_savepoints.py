"""Calls made inside calls, and calls made from several threads."""

from __future__ import annotations

import threading

import pytest
from support import Note, Text, small_workspace

from wink_workspace.errors import PoisonedError, PromptEvaluationError, RollbackError
from wink_workspace.filesystem import Filesystem, MemoryFilesystem
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall, ToolExecutor, transactions_of
from wink_workspace.session import ExternalChange, Outcome, Session, ToolInvoked


def note(params: Text, *, context: ToolContext) -> ToolResult[None]:
    """Write the text to a file and the session; fail if it begins with ``bad``."""
    assert context.filesystem is not None
    context.filesystem.write_text(f"{params.text}.txt", params.text)
    context.session[Note].append(Note(params.text))
    if params.text.startswith("bad"):
        raise ValueError("asked to fail")
    effects = (f"{params.text} to a server",) if params.text.startswith("sent") else ()
    return ToolResult.ok(None, outside_effects=effects)


NOTE = Tool[Text, None](name="note", description="Leave a note", handler=note)


def inner_executor(
    context: ToolContext, filesystem: Filesystem, session: Session | None = None
) -> ToolExecutor:
    prompt = Prompt(
        ns="tests",
        key="inner",
        name="inner",
        sections=[MarkdownSection(title="Inner", template="Note.", tools=[NOTE])],
    )
    prompt.bind(resources={Filesystem: filesystem})
    prompt.resources.__enter__()
    return ToolExecutor(
        prompt=prompt,
        rendered_prompt=prompt.render(),
        adapter=context.adapter,
        session=session or context.session,
    )


def nesting(filesystem: Filesystem | None = None) -> Tool[Text, None]:
    """A tool that notes ``first``, then its text, and then fails if the text is ``fail``."""

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        files = filesystem or context.filesystem
        assert files is not None
        executor = inner_executor(context, files)
        for number, text in enumerate(("first", params.text)):
            executor.execute(ToolCall.of("note", {"text": text}, id=f"inner-{number}"))
        return ToolResult.error("asked to fail") if params.text == "fail" else ToolResult.ok(None)

    return Tool[Text, None](name="nest", description="Call inside", handler=handle)


def test_a_failed_call_inside_a_call_undoes_only_itself() -> None:
    with small_workspace(nesting()) as workspace:
        outcome = workspace.call("nest", text="bad")
        assert outcome.result.success
        assert workspace.filesystem.exists("first.txt")
        assert not workspace.filesystem.exists("bad.txt")
        assert workspace.session[Note].all() == (Note("first"),)


def test_a_failed_outer_call_undoes_the_inner_calls_and_keeps_their_records() -> None:
    with small_workspace(nesting()) as workspace:
        before = workspace.state()
        workspace.call("nest", text="fail")
        assert workspace.state() == before
        assert [(record.tool, record.depth) for record in workspace.records] == [
            ("note", 1),
            ("note", 1),
            ("nest", 0),
        ]


def test_a_failed_outer_call_restores_files_that_only_the_inner_prompt_binds() -> None:
    elsewhere = MemoryFilesystem({"kept.txt": "kept"})
    with small_workspace(nesting(elsewhere)) as workspace:
        workspace.call("nest", text="fail")
        assert [str(stat.path) for stat in elsewhere.list(".")] == ["kept.txt"]


@pytest.mark.behaviour(81)
def test_an_inner_call_on_a_child_session_is_a_savepoint() -> None:
    elsewhere = MemoryFilesystem({"kept.txt": "kept"})

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        for number in range(2):
            executor = inner_executor(context, elsewhere, child)
            executor.execute(ToolCall("note", text=f"n{number}"))
            elsewhere.write_text(f"by-outer-{number}.txt", "the outer call's own")
        return ToolResult.error("asked to fail")

    tool = Tool[Text, None](name="delegate", description="Delegate", handler=handle)
    with small_workspace(tool) as workspace:
        child = workspace.session.child()
        workspace.call("delegate")
        assert [str(stat.path) for stat in elsewhere.list(".")] == ["kept.txt"]
        assert child[Note].all() == ()
        assert [record.depth for record in child[ToolInvoked].all()] == [1, 1]
        assert child[ExternalChange].all() == ()
        assert len(workspace.journal.entries) == 1


def test_outside_effects_of_an_inner_call_are_in_the_record_of_the_outer_one() -> None:
    with small_workspace(nesting()) as workspace:
        workspace.call("nest", text="sent once")
        workspace.call("nest", text="good")
        entries = [entry.event for entry in workspace.journal.entries]
        assert [event and event.outside_effects for event in entries] == [
            ("sent once to a server",),
            (),
        ]


def test_only_the_outermost_call_makes_a_journal_entry() -> None:
    with small_workspace(nesting()) as workspace:
        workspace.call("nest", text="good")
        (entry,) = workspace.journal.entries
        assert entry.event is not None
        assert entry.event.tool == "nest"
        assert {str(change.path) for change in workspace.journal.changes(entry)} == {
            "first.txt",
            "good.txt",
        }


@pytest.mark.behaviour(67)
def test_calls_from_several_threads_run_one_at_a_time_and_lose_no_update() -> None:
    inside = threading.Lock()

    def count(params: Text, *, context: ToolContext) -> ToolResult[None]:
        assert inside.acquire(blocking=False), "two handlers at once"
        try:
            files = context.filesystem
            assert files is not None
            files.write_text("n.txt", str(int(files.read_bytes("n.txt")) + 1))
            latest = context.session[Note].latest() or Note("0")
            context.session[Note].seed(Note(str(int(latest.text) + 1)))
        finally:
            inside.release()
        return ToolResult.ok(None)

    tool = Tool[Text, None](name="count", description="Count", handler=count)
    with small_workspace(tool, files={"n.txt": "0"}) as workspace:
        threads = [
            threading.Thread(target=lambda: [workspace.call("count") for _ in range(25)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert workspace.filesystem.read_bytes("n.txt") == b"100"
        assert workspace.session[Note].latest() == Note("100")
        assert len(workspace.records) == 100


class Unrestorable:
    """A participant whose state cannot be restored."""

    def snapshot(self) -> object:
        return None

    def restore(self, token: object) -> None:
        raise OSError("cannot restore")


@pytest.mark.behaviour(34)
def test_a_failed_restore_ends_the_run_after_all_others_were_restored() -> None:
    session = Session()
    with small_workspace(
        NOTE, session=session, resources={Unrestorable: Unrestorable()}
    ) as workspace:
        with pytest.raises(RollbackError, match="cannot restore"):
            workspace.call("note", text="bad")
        assert not workspace.filesystem.exists("bad.txt")
        assert workspace.session[Note].all() == ()
        assert [record.outcome for record in workspace.records] == [Outcome.UNKNOWN]


def test_a_failed_rollback_can_be_recovered_after_the_resources_are_closed() -> None:
    session, cell = Session(), Sometimes()
    with small_workspace(NOTE, session=session, resources={Sometimes: cell}) as workspace:
        cell.broken = True
        with pytest.raises(RollbackError):
            workspace.call("note", text="bad")
    cell.broken = False
    transactions_of(session).recover()
    with small_workspace(NOTE, session=session) as workspace:
        assert workspace.call("note", text="good").result.success


def test_a_call_does_not_commit_changes_that_an_inner_call_could_not_undo() -> None:
    """Even if its handler ignores the error."""
    cell = Sometimes()

    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        cell.broken = True
        with pytest.raises(RollbackError):
            workspace.call("note", text="bad")
        cell.broken = False
        return ToolResult.ok(None)

    tool = Tool[Text, None](name="outer", description="Call inside", handler=handle)
    with small_workspace(tool, NOTE, resources={Sometimes: cell}) as workspace:
        before = workspace.state()
        with pytest.raises(PoisonedError):
            workspace.call("outer")
        assert workspace.state() == before
        assert [record.outcome for record in workspace.records] == [
            Outcome.UNKNOWN,
            Outcome.ROLLED_BACK,
        ]
        assert workspace.call("note", text="good").result.success


def test_a_participant_whose_snapshot_fails_fails_the_call_before_its_handler() -> None:
    class Unsaved:
        def snapshot(self) -> object:
            raise OSError("cannot be read")

        def restore(self, token: object) -> None:
            raise AssertionError

    with small_workspace(NOTE, resources={Unsaved: Unsaved()}) as workspace:
        outcome = workspace.call("note", text="good")
        assert "cannot be read" in outcome.text
        assert not workspace.filesystem.exists("good.txt")
        assert [record.outcome for record in workspace.records] == [Outcome.ROLLED_BACK]
        assert len(workspace.journal.entries) == 1


class Sometimes:
    """A participant that can be restored unless it is broken."""

    broken = False

    def snapshot(self) -> object:
        return None

    def restore(self, token: object) -> None:
        if self.broken:
            raise OSError("not now")


def test_a_nested_evaluation_error_ends_the_outer_call() -> None:
    def handle(params: Text, *, context: ToolContext) -> ToolResult[None]:
        assert context.filesystem is not None
        context.filesystem.write_text("a.txt", "a")
        raise PromptEvaluationError("provider is down", phase="request")

    tool = Tool[Text, None](name="ask", description="Ask", handler=handle)
    with small_workspace(tool) as workspace:
        with pytest.raises(PromptEvaluationError):
            workspace.call("ask")
        assert not workspace.filesystem.exists("a.txt")
