"""Spans, recorded by an exporter in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def _exporter() -> InMemorySpanExporter:
    """Install the exporter once: opentelemetry allows a program to set its provider only once."""
    exporter = InMemorySpanExporter()
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@dataclass
class Spans:
    """The spans exported so far."""

    exporter: InMemorySpanExporter

    @property
    def all(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def tree(self) -> list[tuple[str, str]]:
        names = {span.context.span_id: span.name for span in self.all}
        return [(span.name, names[span.parent.span_id] if span.parent else "") for span in self.all]


@contextmanager
def recorded_spans() -> Iterator[Spans]:
    """Record the spans that end in the block."""
    exporter = _exporter()
    exporter.clear()
    yield Spans(exporter)
    exporter.clear()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
