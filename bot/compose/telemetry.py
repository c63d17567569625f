"""Sends spans by OTLP over HTTP, if the environment names an endpoint. Needs the extra `[otel]`.

All is configured by the variables that OpenTelemetry documents: endpoint, headers, resource, sampler, and those of the
batch processor. A session never waits for a collector: spans go into a bounded queue, a thread sends them, and spans
that overflow or are refused are dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from bot.compose.spans import Span, Spans, trace_id
from engine.journal.events import Event
from engine.journal.state import State
from engine.language import timestamps
from engine.run.engine import Engine

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
QUEUE, MOST_WAITING = "OTEL_BSP_MAX_QUEUE_SIZE", 2048
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
CLOSE_SECONDS = 2.0
"""Seconds for which the end of a process waits for queued spans."""


def export_spans(engine: Engine, env: Mapping[str, str], exporter: SpanExporter | None = None) -> None:
    """Export the spans of an engine's steps from now on. Raises `ValueError` for invalid variables."""
    for name, value in env.items():
        if name.startswith("OTEL_"):
            os.environ.setdefault(name, value)  # from `.env`: the library reads the environment
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # each of its attempts is a warning
    protocol = next(filter(None, map(env.get, PROTOCOLS)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ValueError(f"{PROTOCOLS[1]} is {protocol}; only http/protobuf is supported")
    content = env.get(CONTENT, "").strip().lower() in ("true", "1", "span_only", "span_and_event")
    sender = Sender(exporter or OTLPSpanExporter(), int(env.get(QUEUE) or MOST_WAITING), Spans(content))
    engine.observe(sender.happened)
    engine.dropped_spans = sender.dropped
    engine.closing.append(sender.close)


class Sender(IdGenerator):
    """Hands spans, with the ids that they have, to the library."""

    def __init__(self, exporter: SpanExporter, waiting: int, spans: Spans) -> None:
        self._spans, self._queue = spans, _Queue(exporter, waiting)
        self._trace = self._span = 0
        self._provider = TracerProvider(id_generator=self, shutdown_on_exit=False)
        self._provider.add_span_processor(self._queue)
        self._tracer = self._provider.get_tracer("sayso")

    def happened(self, before: State, after: State, events: Sequence[Event]) -> None:
        """Queue the spans that end with a committed step."""
        spans = self._spans.of(before, after, events)
        if not spans:
            return
        self._trace = trace_id(after.session_id)
        # A session is sampled as a whole, whichever of its spans comes first.
        decided = self._provider.sampler.should_sample(None, self._trace, "session").decision
        for span in spans:
            self._put(span, TraceFlags(int(decided is Decision.RECORD_AND_SAMPLE)))

    def _put(self, span: Span, flags: TraceFlags) -> None:
        self._span, context = span.id, Context()
        if span.parent is not None:
            around = SpanContext(self._trace, span.parent, is_remote=True, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(around), context)
        made = self._tracer.start_span(
            span.name,
            context,
            SpanKind[span.kind.upper()],
            {**span.attributes, **({"error.type": span.error} if span.error else {})},
            start_time=_nanoseconds(span.start),
        )
        if span.error:
            made.set_status(Status(StatusCode.ERROR))
        made.end(_nanoseconds(span.end))

    def generate_span_id(self) -> int:
        """The id of the span that is being made."""
        return self._span

    def generate_trace_id(self) -> int:
        """That of its trace."""
        return self._trace

    def dropped(self) -> int:
        """Return the number of spans not sent: the queue was full, or the collector refused them."""
        return self._queue.overflown + self._queue.refused

    async def close(self) -> None:
        """Send queued spans, for a short time."""
        ending = threading.Thread(target=self._provider.shutdown, name="otel-shutdown", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, CLOSE_SECONDS)


class _Queue(BatchSpanProcessor):
    """The library's queue, which drops the oldest when it is full, and counts that nowhere."""

    def __init__(self, exporter: SpanExporter, most: int) -> None:
        self._most, self._put = most, 0
        self.taken = self.refused = self.overflown = 0
        super().__init__(_Counted(exporter, self), max_queue_size=most, max_export_batch_size=min(most, 512))

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span."""
        if span.context is not None and span.context.trace_flags.sampled:
            self._put += 1
            self.overflown += self._put - self.taken - self.overflown > self._most
        super().on_end(span)


class _Counted(SpanExporter):
    """An exporter that counts its results."""

    def __init__(self, exporter: SpanExporter, queue: _Queue) -> None:
        self._exporter, self._counts = exporter, queue

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send them."""
        self._counts.taken += len(spans)
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._counts.refused += len(spans)
        return result

    def shutdown(self) -> None:
        """Stop sending."""
        self._exporter.shutdown()


def _nanoseconds(text: str) -> int:
    return round(timestamps.from_text(text).timestamp() * 1000) * 1_000_000
