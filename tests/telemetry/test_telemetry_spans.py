"""Telemetry of a run: one span for each turn and call, the right parents, and no content."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from recorded_spans import Spans, attributes, recorded_spans
from support import Text

from wink_workspace import telemetry
from wink_workspace.adapters import ModelTurn, ScriptedAdapter
from wink_workspace.clock import TokenUsage
from wink_workspace.errors import PromptEvaluationError, UsageError
from wink_workspace.filesystem import MemoryFilesystem
from wink_workspace.prompt import MarkdownSection, Prompt, Tool, ToolContext, ToolResult
from wink_workspace.runtime import ToolCall
from wink_workspace.sections import VfsToolsSection
from wink_workspace.session import Session

SECRET = "correct horse battery staple"


@pytest.fixture
def spans() -> Iterator[Spans]:
    with recorded_spans() as spans:
        yield spans


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall.of(name, arguments, id=f"id-{name}")


def run(*turns: ModelTurn, tools: tuple[Tool, ...] = (), **options: Any) -> None:
    files = MemoryFilesystem({"a.py": SECRET})
    task = MarkdownSection(title="Task", template=f"Mend. {SECRET}", tools=tools)
    prompt = Prompt(ns="t", key="k", name="mender", sections=[task, VfsToolsSection(files)])
    ScriptedAdapter[Any](turns, **options).evaluate(prompt, session=Session())


EDIT = call("edit_file", file_path="a.py", old_string=SECRET, new_string=SECRET + "!")
READ = call("read_file", file_path="a.py")


def test_each_turn_and_each_call_is_one_span_below_the_run(spans: Spans) -> None:
    run(ModelTurn(tool_calls=(READ, EDIT)), ModelTurn("Done."))
    assert spans.tree() == [
        ("invoke_agent mender", ""),
        ("chat scripted", "invoke_agent mender"),
        ("execute_tool read_file", "invoke_agent mender"),
        ("execute_tool edit_file", "invoke_agent mender"),
        ("chat scripted", "invoke_agent mender"),
    ]
    kinds = {span.name: span.kind for span in spans.all}
    assert kinds["chat scripted"] is SpanKind.CLIENT
    assert kinds["execute_tool read_file"] is SpanKind.INTERNAL


def test_the_span_of_a_call_has_its_outcome_and_transaction_overhead(spans: Spans) -> None:
    run(ModelTurn(tool_calls=(EDIT, READ, EDIT)), ModelTurn("Done."))
    refused, edited = map(attributes, spans.named("execute_tool edit_file"))
    assert refused["wink_workspace.transaction.outcome"] == "rolled_back"
    assert refused["wink_workspace.policy.refused_by"]
    assert refused["error.type"] == "refused"
    assert edited["wink_workspace.transaction.outcome"] == "committed"
    assert edited["wink_workspace.transaction.overhead_s"] >= 0
    assert edited["gen_ai.tool.name"] == "edit_file"
    assert edited["gen_ai.tool.call.id"] == "id-edit_file"
    statuses = [span.status.status_code for span in spans.named("execute_tool edit_file")]
    assert statuses == [StatusCode.ERROR, StatusCode.UNSET]


def test_the_span_of_a_call_has_the_annotations_of_its_tool(spans: Spans) -> None:
    run(ModelTurn(tool_calls=(READ, EDIT, call("no_such_tool"))), ModelTurn("Done."))
    seen = [
        {
            name.removeprefix("wink_workspace.tool."): hint
            for name, hint in attributes(span).items()
            if name.startswith("wink_workspace.tool.")
        }
        for span in spans.all
        if span.name.startswith("execute_tool")
    ]
    closed = {"open_world": False}
    assert seen == [
        {"read_only": True, "destructive": False, "idempotent": True, **closed},
        {"read_only": False, "destructive": True, "idempotent": False, **closed},
        {},
    ]


def test_the_span_of_a_turn_has_its_tokens(spans: Spans) -> None:
    run(ModelTurn(tool_calls=(READ,), usage=TokenUsage(30, 4, 20)), ModelTurn("Done."))
    first, last = map(attributes, spans.named("chat scripted"))
    assert first["gen_ai.usage.input_tokens"] == 30
    assert first["gen_ai.usage.output_tokens"] == 4
    assert first["gen_ai.usage.cache_read.input_tokens"] == 20
    assert list(first["gen_ai.response.finish_reasons"]) == ["tool_call"]
    assert list(last["gen_ai.response.finish_reasons"]) == ["stop"]


def test_attributes_have_no_content_by_default(spans: Spans) -> None:
    turns = (
        ModelTurn(tool_calls=(READ, EDIT, ToolCall(SECRET), call("ls", path=SECRET))),
        ModelTurn(SECRET),
    )
    run(*turns)
    assert SECRET not in "".join(span.to_json() for span in spans.all)
    assert "execute_tool unknown" in [span.name for span in spans.all]


def test_requested_content_is_redacted(spans: Spans) -> None:
    def redact(text: str) -> str:
        return text.replace("horse", "[animal]")

    run(ModelTurn(tool_calls=(READ,)), ModelTurn("Done."), traces_content=True, redact=redact)
    (read,) = map(attributes, spans.named("execute_tool read_file"))
    assert "a.py" in read["gen_ai.tool.call.arguments"]
    assert "correct [animal] battery" in read["gen_ai.tool.call.result"]


def test_the_span_of_a_run_inside_a_call_is_below_that_call(spans: Spans) -> None:
    def delegate(params: Text, *, context: ToolContext) -> ToolResult[None]:
        inner = Prompt[None](
            ns="t", key="inner", name="inner",
            sections=[MarkdownSection(title="Task", template="Look.")],
        )  # fmt: skip
        context.adapter.evaluate(inner, session=context.session)
        return ToolResult.ok(None)

    tool = Tool[Text, None](name="delegate", description="Delegate", handler=delegate)
    turns = (
        ModelTurn(tool_calls=(call("delegate", text="x"),)),
        ModelTurn("In."),
        ModelTurn("Out."),
    )
    run(*turns, tools=(tool,))
    assert ("invoke_agent inner", "execute_tool delegate") in spans.tree()
    assert ("chat scripted", "invoke_agent inner") in spans.tree()


def test_a_run_that_ends_early_marks_its_spans_as_failed(spans: Spans) -> None:
    with pytest.raises(PromptEvaluationError):
        run()
    run_span, chat = spans.all
    for span in (run_span, chat):
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "PromptEvaluationError"
        assert not span.events, "an exception's text is content"


def test_a_program_without_telemetry_does_not_import_opentelemetry() -> None:
    program = (
        "import sys\n"
        "from wink_workspace import MarkdownSection, ModelTurn, Prompt, ScriptedAdapter, Session\n"
        "prompt = Prompt(ns='a', key='b', sections=[MarkdownSection(title='T', template='x')])\n"
        "ScriptedAdapter([ModelTurn('Done.')]).evaluate(prompt, session=Session())\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Exporting, for commands


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_TRACES_EXPORTER": ""},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_nothing_is_exported_by_default(variables: dict[str, str]) -> None:
    before = trace.get_tracer_provider()
    telemetry.export_spans(variables)()
    assert trace.get_tracer_provider() is before


def test_an_exporter_that_is_not_installed_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no exporter 'carrier-pigeon'"):
        telemetry.export_spans({"OTEL_TRACES_EXPORTER": "carrier-pigeon"})


def test_the_console_exporter_writes_only_to_standard_error() -> None:
    program = (
        "from wink_workspace import telemetry\n"
        "end = telemetry.export_spans({'OTEL_TRACES_EXPORTER': 'console'})\n"
        "with telemetry.span('work', {}) as span:\n"
        "    assert span.is_recording\n"
        "end()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == ""
    assert '"name": "work"' in done.stderr
