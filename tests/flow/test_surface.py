"""What a worker shows and what it costs: HTTP, metrics, log, memory, processor time."""

import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import Workers, cpu_seconds, memory_kib, wait_for
from tests.postgres import Database

THE_CARD = [
    "redrive_jobs_inflight",
    "redrive_job_retries_total",
    "redrive_dlq_depth",
    "redrive_dlq_added_total",
    "redrive_dlq_added_per_minute",
]


def test_metrics_name_everything_that_is_promised_with_its_labels(
    database: Database, workers: Workers
):
    enqueue(database.conn, "fail.always", queue="mail")
    enqueue(database.conn, "work.until-file", {"file": "go"}, queue="mail")
    worker = workers().wait_ready()
    wait_for(lambda: look.reasons(database))
    # a rate over the last full minute needs the counters at the start of two; it stays the last
    database.conn.execute(
        "insert into redrive.samples (minute, queue, dead)"
        " select date_trunc('minute', now()) + m * interval '1 min', 'mail', m"
        " from generate_series(9, 10) m"
    )
    wait_for(lambda: worker.metric("redrive_dlq_depth", queue="mail") == 1)
    wait_for(
        lambda: (
            worker.metric("redrive_jobs_inflight", queue="mail", kind="work.until-file")
            == 1
        )
    )
    text = worker.get("/metrics")[1]
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}

    assert [name for name in THE_CARD if name not in named] == []
    assert (
        worker.metric(
            "redrive_job_retries_total",
            queue="mail",
            kind="fail.always",
            reason="transient",
        )
        == 2
    )
    assert (
        worker.metric("redrive_dlq_depth", queue="mail", reason="attempts_exhausted")
        == 1
    )
    assert (
        worker.metric(
            "redrive_dlq_added_total",
            queue="mail",
            kind="fail.always",
            reason="attempts_exhausted",
        )
        == 1
    )
    wait_for(
        lambda: (
            'redrive_dlq_added_per_minute{queue="mail"} 1.0'
            in worker.get("/metrics")[1]
        )
    )
    assert (
        worker.metric("redrive_job_attempts_total", kind="fail.always", outcome="dead")
        == 1
    )
    assert "attempt 3 of" not in text, "no message of a failure"


def test_a_worker_leaves_the_figures_of_the_database_to_the_exporter(
    database: Database, workers: Workers
):
    """Each of them exported the whole block, and none what it takes of the machine."""
    worker = workers(redrive_database_metrics="false").wait_ready()
    text = worker.get("/metrics")[1]
    named = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}

    assert "redrive_job_attempts_total" in named
    assert {
        name for name in named if "stats" in name or "_dlq_" in name or "_pg_" in name
    } == {"redrive_dlq_time_to_death_seconds"}  # of its own jobs
    assert "redrive_queue_depth" not in named
    assert (
        database.column(
            "select pid from pg_stat_activity where application_name = 'redrive stats'"
        )
        == []
    )
    assert worker.metric("redrive_build_info") == 1
    assert worker.metric("process_resident_memory_bytes") > 1_000_000
    runners = worker.metric("redrive_runners_resident_memory_bytes")
    assert runners == pytest.approx(
        sum(memory_kib(p, "Rss") for p in worker.runners) * 1024, 0.2
    )


def test_probes_say_what_is_wrong_and_the_rest_is_not_found(
    database: Database, workers: Workers
):
    worker = workers().wait_ready()
    request = urllib.request.Request(
        f"http://127.0.0.1:{worker.port}/metrics", method="POST", data=b"x"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    refused.value.close()

    assert worker.get("/livez") == (200, "loop: ok\n")
    assert worker.get("/readyz")[0] == 200
    assert (
        worker.get("/")[0]
        == worker.get("/metrics/")[0]
        == worker.get("/jobs?x=1")[0]
        == 404
    )
    assert refused.value.code == 405

    worker.signal(signal.SIGSTOP)
    worker.signal(signal.SIGCONT)
    assert worker.get("/livez")[0] == 200


def test_a_database_out_of_reach_makes_a_worker_unready_but_not_dead(
    database: Database, workers: Workers
):
    from tests.flow.proxy import proxy_for

    with proxy_for(database.url) as proxy:
        worker = workers(url=proxy.url).wait_ready()
        proxy.refuse = True
        wait_for(lambda: worker.get("/readyz")[0] == 503)

        assert "database: " in worker.get("/readyz")[1]
        assert worker.get("/livez")[0] == 200
        proxy.refuse = False
        wait_for(lambda: worker.get("/readyz")[0] == 200)


def test_log_lines_are_json_and_hold_the_failures_of_attempts_but_no_secret(
    database: Database, workers: Workers
):
    """Class and message of each failed attempt, and what comes next; redacted."""
    job = enqueue(
        database.conn, "fail.always", {"password": "hunter2"}, headers={"x": "canary-7"}
    )
    worker = workers.run(redrive_log_level="debug")
    text = worker.log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]

    assert {"time", "level", "logger", "event"} <= set.intersection(
        *(set(line) for line in lines)
    )
    assert {"claimed", "retried", "dead-lettered"} <= {line["event"] for line in lines}
    assert "hunter2" not in text
    assert "canary-7" not in text
    failed = [line for line in lines if "error_class" in line]
    assert [(line["event"], line["job"], line["attempt"]) for line in failed] == [
        ("retried", job, 1),
        ("retried", job, 2),
        ("dead-lettered", job, 3),
    ]
    assert [line["message"] for line in failed] == [
        f"attempt {attempt} of {{'password': [redacted]}}" for attempt in (1, 2, 3)
    ]
    assert {line["error_class"] for line in failed} == {"ConnectionError"}
    assert all("retry_in" in line for line in failed[:2])
    assert failed[2]["reason"] == "attempts_exhausted"


def test_in_the_console_a_failed_attempt_shows_its_traceback(
    database: Database, workers: Workers
):
    """What a developer looks for; no colours where stderr is no terminal."""
    job = enqueue(database.conn, "fail.always", {"password": "hunter2"}, max_attempts=1)
    text = workers.run(redrive_log_format="console").log.read_text()

    assert f"warning dead-lettered job={job} kind=fail.always attempt=1 " in text
    assert re.search(
        r"""  File ".*/tests/flow/handlers.py", line \d+, in fail_always
    raise ConnectionError\(f"attempt {job.attempt} of {payload}"\) from error
ConnectionError: attempt 1 of {'password': \[redacted\]}
because KeyError: 'inner'
""",
        text,
    )
    assert "hunter2" not in text
    assert "\x1b" not in text


def test_where_failures_are_encrypted_the_log_has_neither_message_nor_traceback(
    database: Database, workers: Workers, keys: Callable[..., Path]
):
    enqueue(database.conn, "fail.always", {"n": 1}, max_attempts=1)
    text = workers.run(
        redrive_log_format="console", redrive_encryption_keys_file=keys("old")
    ).log.read_text()

    assert "ConnectionError: [encrypted]\n" in text
    assert "attempt 1 of" not in text
    assert "handlers.py" not in text


@pytest.mark.slow
def test_an_idle_worker_costs_almost_nothing(
    database: Database, workers: Workers, record_property
):
    worker = workers(forked=False).wait_ready()  # a fork's memory is shared
    does_chores = (
        "select exists (select from pg_stat_activity where datname = current_database()"
        " and application_name = 'redrive worker' and query like '%take_chore%')"
    )
    wait_for(lambda: database.value(does_chores), what="nothing was lent")
    settled = time.monotonic()
    wait_for(
        lambda: time.monotonic() - settled > 6, 10
    )  # the poll interval grows with idleness
    pids = [worker.pid, *worker.runners]
    before, began = sum(map(cpu_seconds, pids)), time.monotonic()
    wait_for(lambda: time.monotonic() - began > 10, 15)
    share = (sum(map(cpu_seconds, pids)) - before) / (time.monotonic() - began)
    memory = {
        field: sum(memory_kib(pid, field) for pid in pids) / 1024
        for field in ("Pss", "Rss")
    }
    record_property("idle_cpu_percent", round(share * 100, 2))
    record_property(
        "idle_memory_mib", {name: round(value, 1) for name, value in memory.items()}
    )
    print(
        f"idle: {share:.2%} of a core, {memory['Pss']:.0f} MiB PSS, {memory['Rss']:.0f} MiB RSS"
    )

    assert len(pids) == 2
    assert share <= 0.02, "a busy loop?"
    assert memory["Pss"] <= 75  # 55 to 61 here: less where others run the same Python


def test_a_worker_whose_suspects_wait_does_not_spin(
    database: Database, workers: Workers
):
    """Suspects run one at a time; while they wait nothing is claimed, and the loop must sleep and
    not turn.
    """
    for _ in range(30):
        enqueue(database.conn, "work.until-file", {"file": "go"})
    database.conn.execute("update redrive.jobs set losses = 2")
    worker = workers("--slots", "64").wait_ready()
    wait_for(workers.ledger)
    before, began = cpu_seconds(worker.pid), time.monotonic()
    wait_for(lambda: time.monotonic() - began > 3)
    share = (cpu_seconds(worker.pid) - before) / (time.monotonic() - began)
    (workers.home / "go").touch()
    wait_for(lambda: look.live(database) == 0)

    assert share < 0.2
