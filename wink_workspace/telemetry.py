"""Spans, by OpenTelemetry's conventions for generative AI: the only module that uses that library.

Rule 1: spans go to the tracer provider that the program has set; by default there is none. A
program that never imported opentelemetry has set none, so no span is made and nothing is imported.
Rule 2: a span holds names, numbers and outcomes. Messages, arguments, results and error texts are
content; the code that makes a span adds content only when asked to.
Rule 3: telemetry cannot fail a call: the library catches what its exporters raise.

``export_spans`` is for commands; a program that embeds this package sets its own provider.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .errors import UsageError

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["AttributeValue", "Span", "export_spans", "open_span", "span"]

_SCOPE: Final = "wink_workspace"

_OTLP_EXPORTERS: Final = {
    "": "otlp_proto_grpc",  # the default of the SDK for Python
    "grpc": "otlp_proto_grpc",
    "http/protobuf": "otlp_proto_http",
}

AttributeValue = str | bool | int | float | list[str]


class Span:
    """One unit of work for telemetry; does nothing without a tracer provider."""

    __slots__ = ("_inner",)

    def __init__(self, inner: trace.Span | None) -> None:
        self._inner = inner

    @property
    def is_recording(self) -> bool:
        """Whether attributes are recorded."""
        return self._inner is not None and self._inner.is_recording()

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Add *attributes*, by name."""
        if self._inner is not None:
            self._inner.set_attributes(attributes)

    def fail(self, error_type: str) -> None:
        """Record that the work failed; *error_type* is one of few words, never a sentence."""
        if self._inner is not None:
            from opentelemetry.trace import StatusCode

            self._inner.set_attribute("error.type", error_type)
            self._inner.set_status(StatusCode.ERROR)


_SILENT: Final = Span(None)


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, AttributeValue],
    *,
    is_remote: bool = False,
    asked_by: Mapping[str, object] | None = None,
) -> Generator[Span]:
    """Make a span for the block, as a child of the current span.

    Args:
        name: What is done, with few different values.
        attributes: What is known at the start.
        is_remote: Whether another party does the work, such as a provider.
        asked_by: The headers of the party that requested the work. Their ``traceparent``, if
            there is one, names the parent. ``OTEL_PROPAGATORS`` decides which keys are read.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        yield _SILENT
        return
    from opentelemetry.trace import SpanKind, get_tracer

    here = SpanKind.INTERNAL if asked_by is None else SpanKind.SERVER
    kind = SpanKind.CLIENT if is_remote else here
    starting = get_tracer(_SCOPE).start_as_current_span(
        name,
        context=None if asked_by is None else _context_of(asked_by),
        kind=kind,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    )
    with starting as inner:
        made = Span(inner)
        try:
            yield made
        except BaseException as error:
            made.fail(type(error).__name__)
            raise


def _context_of(carrier: Mapping[str, object]) -> Context:
    """The context in *carrier*, or the current one if *carrier* has none that can be read."""
    from opentelemetry.propagate import extract

    return extract({key: value for key, value in carrier.items() if isinstance(value, str)})


def open_span() -> dict[str, str]:
    """The ids of the current span, as ``trace_id`` and ``span_id``; empty if there is none."""
    if sys.modules.get("opentelemetry.trace") is None:
        return {}
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": format_trace_id(context.trace_id),
        "span_id": format_span_id(context.span_id),
    }


def export_spans(variables: Mapping[str, str]) -> Callable[[], None]:
    """Send spans where ``OTEL_TRACES_EXPORTER`` says; returns the function to call at the end.

    Nothing is sent when it is unset or ``none``, or when ``OTEL_SDK_DISABLED`` is true. All
    other settings (``OTEL_SERVICE_NAME``, ``OTEL_EXPORTER_OTLP_…``) are read by the SDK.

    Raises:
        UsageError: If the SDK or the exporter is not installed, or lacks the protocol.
    """
    wanted = [name.strip() for name in variables.get("OTEL_TRACES_EXPORTER", "").split(",")]
    names = [name for name in wanted if name and name != "none"]
    if not names or variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return lambda: None
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise UsageError(
            "OTEL_TRACES_EXPORTER is set, but the OpenTelemetry SDK is not installed",
            hint="Install it: pip install 'wink-workspace[otel]'",
        ) from error
    provider = TracerProvider()
    for name in names:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name, variables)))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _exporter(name: str, variables: Mapping[str, str]) -> SpanExporter:
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stderr)  # standard output is for results
    wanted = _otlp_exporter(variables) if name == "otlp" else name
    from importlib.metadata import entry_points  # slow to import, and most runs export nothing

    found = list(entry_points(group="opentelemetry_traces_exporter", name=wanted))
    if not found:
        raise UsageError(
            f"there is no exporter {name!r} for OTEL_TRACES_EXPORTER",
            hint="Use otlp, console or none; otlp needs pip install 'wink-workspace[otel]'.",
        )
    make: Callable[[], SpanExporter] = found[0].load()
    return make()


def _otlp_exporter(variables: Mapping[str, str]) -> str:
    """The exporter for the protocol in the variables."""
    protocol = (
        variables.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or variables.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    ).strip()
    if protocol not in _OTLP_EXPORTERS:
        raise UsageError(
            f"there is no exporter for the OTLP protocol {protocol!r}",
            hint="Set OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf.",
        )
    return _OTLP_EXPORTERS[protocol]
