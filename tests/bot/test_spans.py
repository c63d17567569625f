"""Spans of committed steps: over the journals of earlier releases, and into the SDK of OpenTelemetry."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bot.compose import spans as module
from bot.compose.environment import traced
from bot.compose.spans import Span, Spans, span_id, trace_id
from bot.compose.telemetry import QUEUE, export_spans
from engine.journal import events as ev
from engine.journal.fold import evolve
from engine.journal.state import State
from engine.language.codec import encode
from engine.storage.open import open_store
from tests.cli.clikit import Cli, until
from tests.cli.flowtexts import counting
from tests.support.engine import running
from tests.test_histories import HISTORIES, journal

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TALKED = next(path for path in HISTORIES if path.stem == "talked")
FLOW = """
nodes:
  - {id: work, type: shell, with: {run: [now]}}
  - {id: ok, type: ask, with: {message: The secret word?}}
"""


def derived(events: list[ev.Event], restart: int | None = None, content: bool = False) -> list[Span]:
    """The spans of a journal, one step an event; before event `restart` the process is another one."""
    spans, state, found = Spans(content), State(), []
    for number, event in enumerate(events):
        if number == restart:
            spans = Spans(content)
        after = evolve(state, event)
        found += spans.of(state, after, [event])
        state = after
    return found


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_every_history_is_one_trace(path: Path) -> None:
    """No two spans have one id, none ends before it begins, and of a session that has ended each has its parent."""
    found = derived(journal(path))
    ids = {span.id for span in found}
    assert len(ids) == len(found)
    assert all(span.start <= span.end for span in found)
    roots = [span for span in found if span.parent is None]
    if roots:
        assert [span.name.partition(" ")[0] for span in roots] == ["invoke_workflow"]
        assert {span.parent for span in found if span.parent is not None} <= ids


def differs() -> bool:
    """Whether another process that continues, at any event, makes spans with other ids."""
    events = journal(TALKED)
    plain = {(span.name, span.id, span.parent) for span in derived(events)}
    return any(
        {(span.name, span.id, span.parent) for span in derived(events, restart)} != plain
        for restart in range(len(events))
    )


def test_another_process_goes_on_with_the_same_spans() -> None:
    """Wherever a process is replaced, ids and parents are those of a run that nothing stopped."""
    assert not differs()


def test_random_ids_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seeded fault: ids that follow from nothing."""
    monkeypatch.setattr(module, "_number", lambda text, size: int.from_bytes(os.urandom(size)))
    assert differs()


def test_a_conversation_is_told_by_the_conventions() -> None:
    """Agents, model calls and tools have the names of the conventions, and are in each other."""
    found = derived(journal(TALKED))
    named = {span.id: span.name for span in found}
    around = {(span.name, named.get(span.parent or 0)) for span in found}
    assert ("invoke_agent helper", "invoke_workflow look") in around
    assert ("chat claude-sonnet-5-5", "invoke_agent helper") in around
    assert ("execute_tool read_file", "invoke_agent helper") in around
    assert ("await_human", "execute_tool shell") in around
    chat = next(span for span in found if span.name.startswith("chat"))
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100
    assert [span.error for span in found if span.name.startswith("chat") and span.error] == [
        "crash",
        "overloaded",
    ]


def test_content_is_told_only_when_asked_for() -> None:
    """Neither words nor people nor outputs are attributes, unless a setting asks for content."""
    plain = str([span.attributes for span in derived(journal(TALKED))])
    told = str([span.attributes for span in derived(journal(TALKED), content=True)])
    for word in ("rm -i a", "disk", "db-1", "Which?"):
        assert word not in plain
        assert word in told
    assert "U0ANA" not in plain


def test_a_reply_is_a_message_that_was_processed() -> None:
    """What a person said in Slack is a consumer span from when it was said, in the wait that it ended."""
    events = journal(TALKED)
    place = next(n for n, event in enumerate(events) if isinstance(event, ev.PromptAnswered))
    wire = events[place].to_wire() | {"key": "message:T1:C1:1763715000.000100"}
    events[place] = ev.decode_event(encode(wire))
    (span,) = (span for span in derived(events) if span.name == "process inbox")
    wait = next(span for span in derived(events) if span.name == "await_human")
    assert (span.kind, span.parent, span.start) == ("consumer", wait.id, "2025-11-21T08:50:00.000Z")


def test_nothing_is_sent_without_an_endpoint() -> None:
    """Telemetry is off unless the standard variables name an endpoint, and they can turn it off again."""
    assert not traced({})
    assert traced({ENDPOINT: "http://there:4318"})
    assert not traced({ENDPOINT: "http://there:4318", "OTEL_SDK_DISABLED": "true"})
    assert not traced({ENDPOINT: "http://there:4318", "OTEL_TRACES_EXPORTER": "none"})


# --- with the library ---------------------------------------------------------------------------------------


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where spans are kept."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    return InMemorySpanExporter()


async def test_spans_of_an_engine_reach_the_exporter(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    """What a session did is exported with its ids, with the wait for a person from when the question was asked."""
    async with running(open_store("memory:"), tmp_path) as rig:
        export_spans(rig.engine, {}, memory)
        state = await rig.settled(FLOW)
        rig.clock.advance(3600)
        state = await rig.reply(state.session_id, "hello")
    found = {span.name: span for span in memory.get_finished_spans()}
    assert {"shell work", "pause", "await_human", "ask ok"} < found.keys()
    wait, root = found["await_human"], found[f"invoke_workflow {state.flow_name}"]
    assert wait.end_time - wait.start_time == 3600 * 10**9  # type: ignore[operator]
    assert {span.context.trace_id for span in found.values() if span.context} == {trace_id(state.session_id)}
    assert root.parent is None
    assert root.context is not None
    assert root.context.span_id == span_id(state.session_id, "", 0)
    assert wait.parent is not None
    assert wait.parent.span_id == span_id(state.session_id, "ok", 1)


async def test_a_sampler_takes_whole_sessions(
    tmp_path: Path, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a ratio, a session is exported with all of its spans or with none."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    async with running(open_store("memory:"), tmp_path) as rig:
        export_spans(rig.engine, {}, memory)
        for _ in range(12):
            await rig.settled(FLOW)
    counts: dict[int, int] = {}
    for span in memory.get_finished_spans():
        assert span.context is not None
        counts[span.context.trace_id] = counts.get(span.context.trace_id, 0) + 1
    assert 0 < len(counts) < 12
    assert len(set(counts.values())) == 1


class Stuck(SpanExporter):
    """A collector that takes nothing until it is let go, and refuses then."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def export(self, spans: Any) -> SpanExportResult:
        """Wait."""
        self.gone.wait(20)
        return SpanExportResult.FAILURE


async def test_a_collector_that_hangs_stops_nothing(tmp_path: Path) -> None:
    """Sessions continue; what does not fit into the queue is dropped, and so is what is refused; both are counted."""
    stuck = Stuck()
    async with running(open_store("memory:"), tmp_path) as rig:
        export_spans(rig.engine, {QUEUE: "4", "OTEL_BSP_SCHEDULE_DELAY": "1"}, stuck)
        assert rig.engine.dropped_spans is not None
        for _ in range(8):
            await rig.settled(FLOW)
        dropped = rig.engine.dropped_spans()
        assert dropped >= 8
        stuck.gone.set()
    assert rig.engine.dropped_spans() > dropped


class Receiver(BaseHTTPRequestHandler):
    """A collector that speaks OTLP over HTTP."""

    seen: list[dict[str, Any]]

    def do_POST(self) -> None:
        """Take spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    ids = {"trace": span.trace_id.hex(), "id": span.span_id.hex()}
                    told = {"name": span.name, "parent": span.parent_span_id.hex(), "path": self.path}
                    named = {one.key: one.value.string_value for one in span.attributes}
                    self.seen.append({**ids, **told, "session": named["sayso.session.id"]})
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def collector() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A collector on a socket: its address, and what came."""
    seen: list[dict[str, Any]] = []
    server = HTTPServer(("127.0.0.1", 0), type("Here", (Receiver,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SLOW = """flow: slow
nodes:{before}
  - id: work
    type: shell
    on_crash: again
    with: {{script: 'echo begun >> "$BEGUN"; while ! test -e "$GO"; do sleep 0.01; done', env: {{BEGUN: {at}/begun, GO: {at}/go}}}}
"""


@pytest.mark.process
def test_a_killed_process_is_gone_on_with_in_the_same_trace(tmp_path: Path) -> None:
    """After `kill -9` a new process sends the rest of the trace to a real receiver: the attempt that the crash ended, the
    next one, and the session, around what the first process had sent."""
    cli = Cli(tmp_path)
    cli.write("flows/slow.yml", SLOW.format(before=counting(cli, "before"), at=tmp_path))
    with collector() as (address, seen):
        cli.env = {ENDPOINT: address, "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_SERVICE_NAME": "runbooks"}
        with cli.started("run", "slow", "--no-input") as process:
            until(lambda: bool(cli.lines("begun")) and bool(seen), "a node ran, and the next one begins")
            process.kill()
            process.wait()
        first = list(seen)
        cli.write("go", "")
        (found,) = first
        session_id = found["session"]
        done = cli.run("sessions", "resume", session_id, "--wait")
        assert done.code == 0, done
    ids = [span["id"] for span in seen]
    assert [span["name"] for span in first] == ["shell before"]
    assert [span["name"] for span in seen[1:]] == ["shell work", "shell work", "invoke_workflow slow"]
    assert {span["trace"] for span in seen} == {f"{trace_id(session_id):032x}"}
    assert {span["parent"] for span in seen[:-1]} == {ids[-1]}
    assert ids[1:3] == [f"{span_id(session_id, 'work', attempt):016x}" for attempt in (1, 2)]
    assert {span["path"] for span in seen} == {"/v1/traces"}


def test_a_missing_package_or_a_wrong_variable_is_said(tmp_path: Path) -> None:
    """Where traces cannot be sent the command says why, and does its work."""
    cli = Cli(tmp_path)
    cli.write("flows/one.yml", "flow: one\nnodes: [{id: a, type: noop}]\n")
    cli.env = {ENDPOINT: "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    done = cli.run("run", "one")
    assert (done.code, "only http/protobuf is supported" in done.err) == (0, True), done
