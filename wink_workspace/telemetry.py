"""Spans, by OpenTelemetry's conventions for generative AI: the only door to that library.

Rule 1: spans go to the tracer provider that the program has set, and there is none by default.
A program that never imported opentelemetry has set none, so nothing is made and nothing is
imported; that is what most runs cost.
Rule 2: a span holds names, numbers and outcomes. What was said, arguments, results and the texts
of errors are content; whoever makes a span adds content only when asked to.
Rule 3: telemetry fails no call: the library catches what its exporters raise.

``export_spans`` is for commands; a program that embeds this package sets its own provider.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from wink_workspace.errors import UsageError

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["AttributeValue", "Span", "export_spans", "open_span", "span"]

_SCOPE: Final = "wink_workspace"

_OTLP_EXPORTERS: Final = {
    "": "otlp_proto_grpc",  # what the SDK for Python takes when nothing is said
    "grpc": "otlp_proto_grpc",
    "http/protobuf": "otlp_proto_http",
}

AttributeValue = str | bool | int | float | list[str]


class Span:
    """One piece of work as telemetry sees it; does nothing when nobody listens."""

    __slots__ = ("_inner",)

    def __init__(self, inner: trace.Span | None) -> None:
        self._inner = inner

    @property
    def is_recording(self) -> bool:
        """Whether what is noted goes anywhere."""
        return self._inner is not None and self._inner.is_recording()

    def note(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Add *attributes*."""
        if self._inner is not None:
            self._inner.set_attributes(attributes)

    def fail(self, error_type: str) -> None:
        """Say that the work failed; *error_type* is one of few words, never a sentence."""
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
    """The work of the block, as a child of the span around it.

    Args:
        name: What is done, with few different values.
        attributes: What is known at the start.
        is_remote: Whether another party does the work, such as a provider.
        asked_by: What another party sent along that asked for the work. Its ``traceparent``, if
            there is one, names the parent; which keys are looked at, ``OTEL_PROPAGATORS`` says.
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
    """The context that *carrier* brings; the one around if it brings none that can be read."""
    from opentelemetry.propagate import extract

    return extract({key: value for key, value in carrier.items() if isinstance(value, str)})


def open_span() -> dict[str, str]:
    """The ids of the span around, as ``trace_id`` and ``span_id``; empty if there is none."""
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
    """Send spans where ``OTEL_TRACES_EXPORTER`` says; what to call at the end.

    Nothing is sent when it is unset or ``none``, or when ``OTEL_SDK_DISABLED`` is true. All
    other settings (``OTEL_SERVICE_NAME``, ``OTEL_EXPORTER_OTLP_…``) are read by the SDK.

    Raises:
        UsageError: If the SDK or the exporter is not installed, or speaks no such protocol.
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

        return ConsoleSpanExporter(out=sys.stderr)  # results have the other stream to themselves
    wanted = _otlp_exporter(variables) if name == "otlp" else name
    from importlib.metadata import entry_points  # heavy, and most runs export nothing

    found = list(entry_points(group="opentelemetry_traces_exporter", name=wanted))
    if not found:
        raise UsageError(
            f"there is no exporter {name!r} for OTEL_TRACES_EXPORTER",
            hint="Use otlp, console or none; otlp needs pip install 'wink-workspace[otel]'.",
        )
    make: Callable[[], SpanExporter] = found[0].load()
    return make()


def _otlp_exporter(variables: Mapping[str, str]) -> str:
    """The exporter for the protocol that the variables name."""
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
