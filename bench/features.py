"""What features cost the jobs that use them: CPU and WAL of a job's whole life, from enqueue to
end, beside those of a plain job.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from bench.scenarios import Figures, Lab, until_handled, until_settled
from bench.server import Connection
from bench.session import Session
from bench.systems import System
from redrive.batches import close_batch, open_batch
from redrive.enqueue import enqueue_many
from redrive.rules.payloads.job_fields import JobOptions

CHUNK = 5000
MISSED = 1000
"""Slots of each schedule that come at once; catch_up fires no more."""

Fields = Callable[[int], JobOptions]


@dataclass(frozen=True)
class Feature:
    """What differs from a plain job: its handler, its fields, or what was set."""

    does: str = ""
    limits: Sequence[str] = ()
    schedules: int = 0
    fields: Fields = lambda _: {}
    setting: LiteralString = ""
    in_batch: bool = False
    full: int = 40_000


LIMITED: Mapping[str, Any] = {"limits": ["bench"]}
FEATURES = {
    "plain": Feature(),
    "limit, with room": Feature(
        **LIMITED,
        setting="select redrive.set_limit_v1('bench', 100000, null, 'bench', 'bench')",
    ),
    "limit of 8, the others wait": Feature(
        **LIMITED,
        setting="select redrive.set_limit_v1('bench', 8, null, 'bench', 'bench')",
        full=4_000,
    ),
    "rate, with room": Feature(
        **LIMITED,
        setting="select redrive.set_limit_v1('bench', null, 1e6, 'bench', 'bench')",
    ),
    "ordering key, 1,000 of them": Feature(
        fields=lambda i: {"ordering_key": f"k{i % 1000}"}
    ),
    "idempotency key": Feature(fields=lambda i: {"idempotency_key": f"order-{i}"}),
    "unique_for": Feature(fields=lambda _: {"unique_for": 3600.0, "unique_by": ["i"]}),
    "batch": Feature(in_batch=True),
    "schedule": Feature(schedules=20),
    "checkpoint": Feature(does="checkpoint", full=10_000),
    "progress": Feature(does="progress"),
    "result": Feature(does="result"),
    "history": Feature(
        setting="select redrive.set_history_v1('default', 7, 'bench', 'bench')"
    ),
}


def feature(lab: Lab, system: System, name: str) -> Figures:
    """Jobs that use one of FEATURES are enqueued, then a worker runs them."""
    used = FEATURES[name]
    jobs = used.schedules * MISSED or lab.jobs(system, used.full)
    with lab.session(system) as at:
        _prepare(at.monitor, used)
        before, cpu, own = lab.server.written(at.monitor), at.cpu(), time.process_time()
        if not used.schedules:
            _enqueue(at.monitor, used, jobs)
        producer, enqueueing = time.process_time() - own, at.cpu() - cpu
        enqueued = lab.server.written(at.monitor) - before
        at.monitor.execute("analyze")
        before = lab.server.written(at.monitor)
        running = _drain(at, used, jobs)
        settled = lab.server.written(at.monitor) - before
    return {
        "jobs": jobs,
        "producer_us": producer / jobs * 1e6,
        "enqueue_us": enqueueing.database / jobs * 1e6,
        "database_us": running["database"] / jobs * 1e6,
        "worker_us": running["workers"] / jobs * 1e6,
        "runner_us": running["runners"] / jobs * 1e6,
        "cpu_us": (producer + enqueueing.database + sum(running.values())) / jobs * 1e6,
        "enqueue_bytes": enqueued.wal / jobs,
        "wal_bytes": (enqueued.wal + settled.wal) / jobs,
    }


def _prepare(conn: Connection, used: Feature) -> None:
    if used.limits:
        conn.execute(
            "select redrive.declare_limits_v1("
            "array['noop'], jsonb_build_object('noop', %s::text[]))",
            (list(used.limits),),
        )
    if used.setting:
        conn.execute(used.setting)


def _enqueue(conn: Connection, used: Feature, jobs: int) -> None:
    for first in range(0, jobs, CHUNK):
        with conn.transaction():
            batch = None
            if used.in_batch:
                batch = open_batch(conn, on_end={"kind": "noop", "payload": {"i": 0}})
            more: JobOptions = {} if batch is None else {"batch": batch}
            enqueue_many(
                conn,
                [
                    {"kind": "noop", "payload": {"i": i}, **used.fields(i), **more}
                    for i in range(first, min(first + CHUNK, jobs))
                ],
            )
            if batch is not None:
                close_batch(conn, batch)


def _drain(at: Session, used: Feature, jobs: int) -> dict[str, float]:
    """Run a worker until all are settled. Returns the CPU seconds from its first handler on."""
    config = at.system.config("drain") | {
        "does": used.does,
        "limits": list(used.limits),
        "schedules": used.schedules,
        "settings": {"REDRIVE_HANDLERS": "feature_handlers:jobs"},
    }
    at.start_workers(1, config)
    if used.schedules:
        _let_slots_be_missed(at)
    else:
        at.wait_for("first", 60)
    cpu = at.cpu()
    until_handled(at, jobs)
    until_settled(at)
    cpu = at.cpu() - cpu
    return {"database": cpu.database, "workers": cpu.workers, "runners": cpu.runners}


def _let_slots_be_missed(at: Session) -> None:
    """As if no worker had been up for so long, once this one has declared its schedules."""
    at.wait_for("first", 60)
    at.monitor.execute(
        "update redrive.schedules set last_at = null,"
        " next_at = date_trunc('second', now()) - %s * interval '1 s'",
        (MISSED,),
    )
