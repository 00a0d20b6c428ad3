"""What a collector sees of the life of jobs."""

import re
import subprocess
import sys

from opentelemetry.sdk.trace import TracerProvider

from redrive import enqueue
from tests.flow.harness import ROOT, Workers
from tests.postgres import Database
from tests.tracing.collector import Collector

HANDLERS = "tests.tracing.handlers:jobs"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
ALLOWED = {
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.message.id",
    "messaging.batch.message_count",
    "redrive.kind",
    "redrive.attempt",
    "error.type",
}


def run(workers: Workers, collector: Collector, **env: object):
    return workers.run(
        handlers=HANDLERS, otel_exporter_otlp_endpoint=collector.url, **env
    )


def test_a_job_enqueued_by_sql_has_a_span_for_each_step(
    workers: Workers, database: Database, collector: Collector
) -> None:
    job = database.value(
        "select redrive.enqueue('note.sync', '{\"note\": \"within\"}', queue => 'mail',"
        " headers => jsonb_build_object('traceparent', %s::text))",
        PARENT,
    )

    run(workers, collector, otel_service_name="shop")

    collector.wait_for(
        lambda c: c.of("process mail") and c.of("receive mail") and c.of("settle mail")
    )
    [process], [receive], [settle] = (
        collector.of(f"{name} mail") for name in ("process", "receive", "settle")
    )
    assert process.kind == "CONSUMER"
    assert process.links == [(SPAN, "creation")]
    assert not process.parent, "links, not parents"
    assert process.attributes == {
        "messaging.system": "redrive",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job),
        "redrive.kind": "note.sync",
        "redrive.attempt": 1,
    }
    assert (receive.kind, receive.links) == ("CLIENT", [(SPAN, "creation")])
    assert receive.attributes["messaging.batch.message_count"] == 1
    assert settle.kind == "CLIENT"
    assert {span.service for span in collector.spans} == {"shop"}, (
        "OpenTelemetry's own settings hold"
    )


def test_handlers_run_within_their_attempt(
    workers: Workers, database: Database, collector: Collector
) -> None:
    for kind in ("note.sync", "note.async"):
        database.rows(
            "select redrive.enqueue(%s, jsonb_build_object('note', %s::text), queue => 'mail')",
            kind,
            kind,
        )

    run(workers, collector)

    for kind in ("note.sync", "note.async"):
        collector.wait_for(
            lambda c, kind=kind: c.of(kind) and c.of("process mail", redrive__kind=kind)
        )
        [within] = collector.of(kind)
        [attempt] = collector.of("process mail", redrive__kind=kind)
        assert (within.trace, within.parent) == (attempt.trace, attempt.id)


def test_a_job_enqueued_by_a_handler_is_linked_to_what_sent_it(
    workers: Workers, database: Database, collector: Collector
) -> None:
    database.rows(
        "select redrive.enqueue('chain', jsonb_build_object('url', %s::text), queue => 'mail')",
        database.url,
    )

    run(workers, collector)

    collector.wait_for(lambda c: c.of("process mail", redrive__kind="note.sync"))
    [outer] = collector.of("process mail", redrive__kind="chain")
    [sent] = collector.of("send mail", redrive__kind="note.sync")
    [inner] = collector.of("process mail", redrive__kind="note.sync")
    assert (sent.kind, sent.trace, sent.parent) == ("PRODUCER", outer.trace, outer.id)
    assert inner.links == [(sent.id, "creation")]


def test_a_producer_that_traces_leaves_its_context_with_the_job(
    database: Database,
) -> None:
    with TracerProvider().get_tracer("app").start_as_current_span("request") as request:
        job = enqueue(database.conn, "note.sync", {"note": "x"}, queue="mail")
    plain = enqueue(database.conn, "note.sync", {"note": "x"}, queue="mail")

    headers = dict(database.rows("select id, headers from redrive.jobs"))

    assert (
        headers[job]["traceparent"].split("-")[1]
        == f"{request.get_span_context().trace_id:032x}"
    )
    assert headers[plain] == {}


def test_links_lead_from_creation_through_attempts_and_death_to_the_redrive(
    workers: Workers, database: Database, collector: Collector
) -> None:
    job = database.value(
        "select redrive.enqueue('fail.twice', '{\"secret\": \"hunter2\"}', queue => 'mail',"
        " headers => jsonb_build_object('traceparent', %s::text))",
        PARENT,
    )
    worker = run(workers, collector)
    command = ["dlq", "redrive", str(job), "--why", "the network is back", "--yes"]
    subprocess.run(
        [sys.executable, "-m", "redrive", *command, "--database-url", database.url],
        cwd=ROOT,
        check=True,
        timeout=300,
        stdout=subprocess.DEVNULL,
    )
    again = run(workers, collector)

    collector.wait_for(lambda c: len(c.of("process mail")) == 3)
    first, second, third = collector.of("process mail")
    assert first.links == [(SPAN, "creation")]
    assert set(second.links) == {(SPAN, "creation"), (first.id, "attempt before")}
    assert set(third.links) == {(SPAN, "creation"), (second.id, "dead attempt")}
    assert [span.status for span in (first, second, third)] == [2, 2, 0]
    assert (
        first.attributes["error.type"]
        == second.attributes["error.type"]
        == "ConnectionError"
    )
    kept = [
        detail["traceparent"].split("-")[1]
        for (detail,) in database.rows("select detail from redrive.failures")
    ]
    assert kept == [first.trace, second.trace], "a dead letter knows its traces"
    logged = {
        event["trace_id"]
        for event in worker.events() + again.events()
        if event.get("job") == job
    }
    assert logged == {first.trace, second.trace}, "and so does the log"

    assert {name for span in collector.spans for name in span.attributes} <= ALLOWED
    assert b"hunter2" not in collector.bodies, "neither payload nor message leaves"
    assert b"no route" not in collector.bodies


def test_exemplars_point_to_traces_in_openmetrics_only(
    workers: Workers, database: Database, collector: Collector
) -> None:
    import urllib.request

    worker = workers(
        handlers=HANDLERS, otel_exporter_otlp_endpoint=collector.url
    ).wait_ready()
    database.rows(
        "select redrive.enqueue('quick', '{}', queue => 'mail') from generate_series(1, 50)"
    )
    collector.wait_for(lambda c: len(c.of("process mail")) == 50)
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{worker.port}/metrics", headers=accept
    )

    with urllib.request.urlopen(request) as answer:
        shown = answer.read().decode()

    traces = re.findall(
        r'redrive_job_duration_seconds_bucket\{.*"succeeded".*\} .* # \{trace_id="(\w+)"\}',
        shown,
    )
    assert traces
    assert set(traces) <= {span.trace for span in collector.of("process mail")}
    assert "trace_id" not in worker.get("/metrics")[1]


def test_what_is_not_sampled_is_not_sent(
    workers: Workers, database: Database, collector: Collector
) -> None:
    database.rows("select redrive.enqueue('quick', '{}', queue => 'mail')")

    worker = run(workers, collector, otel_traces_sampler="always_off")

    assert worker.process.returncode == 0
    assert not collector.spans
