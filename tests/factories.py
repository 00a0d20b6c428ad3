"""Plain functions that bring jobs where a test wants them, by the worker's own statements."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from redrive.enqueue import enqueue
from redrive.rules.slots import Declaration
from redrive.worker import store
from redrive.worker.protocol import Report
from redrive.worker.round_trip import (
    START,
    Answer,
    ClaimReport,
    ClaimRequest,
    Completion,
    Lane,
    Place,
    Settlements,
)
from redrive.worker.round_trip import exchange as exchange_of_worker
from tests.postgres import Connection


class Claimed(NamedTuple):
    """A row of claimed_v1."""

    claim: int
    id: int
    deliveries: int
    attempt: int
    kind: str
    payload: str
    extras: str | None
    run_at: datetime
    created: float

    @property
    def more(self) -> dict[str, Any]:
        """`extras`, parsed."""
        return json.loads(self.extras or "{}")


def make_job(
    conn: Connection, kind: str = "invoice.charge", payload: Any = None, **options: Any
) -> int:
    """Enqueue one job. Returns its id."""
    return enqueue(conn, kind, payload, **options)


def make_full_job(conn: Connection) -> int:
    """Enqueue a job in which no field is at its default. Returns its id."""
    return make_job(
        conn,
        "a.b",
        {"n": 1},
        queue="q",
        priority=-3,
        max_attempts=9,
        idempotency_key="ik",
        ordering_key="ok",
        tenant="acme",
        expires_in=3600,
        headers={"traceparent": "00-1"},
    )


def make_jobs(
    conn: Connection, count: int, kind: str = "invoice.charge", **columns: Any
) -> list[int]:
    """Insert many plain jobs in one statement. Returns their ids, ascending."""
    given = {"kind": kind} | columns
    rows = conn.execute(
        "with made as (insert into redrive.jobs (kind, queue, priority, lane, tenant)"
        " select j ->> 'kind', coalesce(j ->> 'queue', 'default'),"
        " coalesce((j ->> 'priority')::smallint, 0), coalesce((j ->> 'lane')::smallint, 0),"
        " j ->> 'tenant'"
        " from (select %s::jsonb as j) g, generate_series(1, %s) returning id)"
        " select id from made order by id",
        (json.dumps(given), count),
    )
    return [row[0] for row in rows]


def make_worker(
    conn: Connection, name: str = "worker-1", ttl: float | None = None
) -> int:
    """Register a worker. Returns its id. Without a `ttl` of its own it is judged by its rescuer."""
    if ttl is not None:
        return store.register(conn, store.Registration(name, "test", ttl, ["*"], None))
    row = conn.execute(
        "select redrive.register_v1(%s, 'test', null, null, null, null, null)", (name,)
    ).fetchone()
    assert row
    return row[0]


def make_schedule(conn: Connection, name: str, cron: str = "0 7 * * *") -> int:
    """Let a worker declare a schedule of the kind `report`. Returns the worker."""
    worker = make_worker(conn)
    declared = Declaration(name, "report", "default", cron, "UTC", "one", "{}")
    assert store.declare_schedules(conn, worker, "1", [declared])
    return worker


def make_limited_worker(conn: Connection, *templates: str, kind: str = "a.b") -> int:
    """Register a worker whose jobs of a kind count under these limits. Returns its id."""
    limits = {kind: templates} if templates else {}
    return store.register(
        conn, store.Registration("w", "test", 30.0, [kind, "*"], None, limits=limits)
    )


def silence(conn: Connection, worker: int, seconds: float = 3600) -> None:
    """Let the last beat of a worker be that long ago, in a time without an outage."""
    conn.execute(
        "update redrive.workers set seen_at = seen_at - %(s)s * interval '1 second',"
        " heard = redrive.contact_now_v1() - %(s)s * interval '1 second' where id = %(id)s",
        {"s": seconds, "id": worker},
    )


def lanes_of(conn: Connection) -> list[Lane]:
    """Every lane that holds a job."""
    return [lane for lane, _ in store.lanes(conn, None)[0]]


def claim(
    conn: Connection,
    worker: int,
    want: int = 100,
    *,
    lanes: Sequence[Lane] | None = None,
    places: Sequence[Place] | None = None,
) -> list[Claimed]:
    """Claim from all lanes that hold jobs, or from those given; without places, from the beginning.

    In the order of the statement's rows.
    """
    chosen = lanes_of(conn) if lanes is None else lanes
    request = ClaimRequest(
        worker,
        chosen,
        places or [START] * len(chosen),
        want,
        from_start=places is None,
        after=last_claim(conn),
    )
    return [Claimed(*row) for row in exchange(conn, claim=request).rows()]


def last_claim(conn: Connection) -> int:
    """The newest claim of anybody that is still there, 0 when there is none."""
    row = conn.execute("select coalesce(max(id), 0) from redrive.claims").fetchone()
    return row[0] if row else 0


def holders(conn: Connection) -> dict[int, int]:
    """Whose the claimed jobs are: job -> worker."""
    rows = conn.execute(
        "select j.id, k.worker from redrive.claims k, unnest(k.ids) as c(id)"
        " join redrive.jobs j on j.id = c.id order by j.id"
    )
    return dict(rows.fetchall())


def exchange(
    conn: Connection,
    completions: Sequence[Completion] = (),
    reports: Sequence[ClaimReport] = (),
    claim: ClaimRequest | None = None,
) -> Answer:
    """Settle and claim as a worker does. An error of the claim is raised, too."""
    answer = exchange_of_worker(conn, Settlements(completions, reports), claim)
    if answer.claim_error is not None:
        raise answer.claim_error
    return answer


def claim_one(conn: Connection, worker: int) -> Claimed:
    """Claim the one job that is due."""
    (job,) = claim(conn, worker, 1)
    return job


def complete(conn: Connection, worker: int, *jobs: Claimed) -> set[int]:
    """Complete jobs. Returns the ids that were."""
    answer = exchange(
        conn, [(job.id, job.deliveries, job.claim, worker) for job in jobs]
    )
    return {job.id for job in jobs} if answer.completed is None else answer.completed


def failure(**overrides: Any) -> str:
    """What is recorded of an attempt that went wrong."""
    return json.dumps(
        {
            "error_class": "ValueError",
            "message": "no such invoice",
            "category": "bug",
            "fingerprint": "f1",
            "detail": {
                "stack": [{"file": "app/jobs.py", "line": 3, "function": "charge"}]
            },
        }
        | overrides
    )


def settle(
    conn: Connection, worker: int, job: Claimed, outcome: str, **report: Any
) -> bool:
    """End an attempt by retry, release, dead or cancel. Returns whether it was this worker's to
    end.
    """
    said = Report(job.id, job.deliveries, outcome, **report)
    return exchange(conn, reports=[(said, job.claim, worker)]).settled == {job.id}


def let_die(conn: Connection, worker: int, job: Claimed, **report: Any) -> int:
    """Dead-letter a claimed job. Returns its id."""
    if not settle(
        conn,
        worker,
        job,
        "dead",
        **({"reason": "not_retryable", "failure": failure()} | report),
    ):
        msg = f"job {job.id} was not this worker's"
        raise AssertionError(msg)
    return job.id


def complete_next(conn: Connection, worker: int) -> set[int]:
    """Claim the one job that is due, and complete it. Returns its id, if it was completed."""
    return complete(conn, worker, claim_one(conn, worker))


def settle_next(conn: Connection, worker: int, outcome: str, **report: Any) -> bool:
    """Claim the one job that is due, and settle it. Returns whether that was done."""
    return settle(conn, worker, claim_one(conn, worker), outcome, **report)


def let_next_die(conn: Connection, worker: int, **report: Any) -> int:
    """Claim the one job that is due, and dead-letter it. Returns its id."""
    return let_die(conn, worker, claim_one(conn, worker), **report)


def make_dead_letter(
    conn: Connection, kind: str = "invoice.charge", payload: Any = None, **options: Any
) -> int:
    """Enqueue a job and let it die. Returns its id."""
    job_id, worker = (
        make_job(conn, kind, payload, **options),
        make_worker(conn, "undertaker"),
    )
    (job,) = (job for job in claim(conn, worker, 1000) if job.id == job_id)
    let_die(conn, worker, job)
    store.retire(conn, worker)
    return job_id


def make_dead_letters(conn: Connection, count: int, **columns: Any) -> list[int]:
    """Many plain jobs, all dead. Returns their ids, ascending."""
    ids, worker = make_jobs(conn, count, **columns), make_worker(conn, "undertaker")
    jobs = claim(conn, worker, count)
    reports = [
        (
            Report(
                job.id,
                job.deliveries,
                "dead",
                reason="not_retryable",
                failure=failure(),
            ),
            job.claim,
            worker,
        )
        for job in jobs
    ]
    exchange(conn, reports=reports)
    store.retire(conn, worker)
    return ids


def redrive(
    conn: Connection,
    ids: Sequence[int],
    *,
    rate: float | None = None,
    first: int = 0,
    max_redrives: int = 10,
    campaign: int | None = None,
) -> dict[int, str | None]:
    """Redrive dead letters. Returns why each was left where it is, or None."""
    rows = conn.execute(
        "select id, blocked from redrive.redrive_v1(%s::bigint[], %s, %s,"
        " statement_timestamp() + make_interval(secs => %s), %s, true)",
        (
            list(ids),
            campaign or make_campaign(conn),
            rate,
            first / rate if rate else 0,
            max_redrives,
        ),
    )
    return dict(rows.fetchall())


def make_campaign(conn: Connection, matched: int = 1) -> int:
    """Open a campaign. Returns its id."""
    row = conn.execute(
        "select redrive.open_campaign_v1('ada', 'the fix is out', '{}', null, %s)",
        (matched,),
    ).fetchone()
    return row[0] if row else 0


def totals(conn: Connection) -> dict[str, int]:
    """Every counter, added up over queues, kinds and reasons."""
    rows = conn.execute(
        "select event, sum(n)::bigint from redrive.totals group by event having sum(n) <> 0"
    )
    return dict(rows.fetchall())


class Depth(NamedTuple):
    """A row of depths_v1, without its age."""

    ready: int = 0
    scheduled: int = 0
    retrying: int = 0
    running: int = 0
    dead: int = 0
    paused: bool = False


def depths(conn: Connection) -> dict[str, Depth]:
    """What each queue holds, by name."""
    rows = conn.execute(
        "select queue, ready, scheduled, retrying, running, dead, paused from redrive.depths_v1()"
    )
    return {queue: Depth(*figures) for queue, *figures in rows}


def outcome(conn: Connection, job: int, *, was_live: bool = True) -> str | None:
    """What became of a job that was seen live, None when there was none."""
    query = "select outcome from redrive.outcome_v1(%s, %s)"
    row = conn.execute(query, (job, was_live)).fetchone()
    return row[0] if row else None


SERIES_SUMS: LiteralString = """
    insert into redrive.series (span, at, queue, kind, enqueued, completed, failed, retried, died,
                                redriven, duration, wait)
    select g.span, g.at, g.queue, g.kind, g.enqueued, g.completed, g.failed, g.retried, g.died,
           g.redriven,
           (select array_agg(c.n order by c.place) from (
                select (i - 1) % 17 as place, sum(v) as n
                from unnest(g.durations) with ordinality u(v, i)
                group by 1) c),
           (select array_agg(c.n order by c.place) from (
                select (i - 1) % 18 as place, sum(v) as n
                from unnest(g.waits) with ordinality u(v, i)
                group by 1) c)
    from (select s.span, s.at, coalesce(s.queue, '') as queue, coalesce(s.kind, '') as kind,
                 sum(s.enqueued) as enqueued, sum(s.completed) as completed,
                 sum(s.failed) as failed, sum(s.retried) as retried, sum(s.died) as died,
                 sum(s.redriven) as redriven,
                 array_agg(s.duration) filter (where s.duration is not null) as durations,
                 array_agg(s.wait) filter (where s.wait is not null) as waits
          from redrive.series s where s.queue <> '' and s.kind <> ''
          group by s.span, s.at, grouping sets ((s.queue), (s.kind), ())) g
    on conflict do nothing"""
"""Adds the sums by queue, by kind and of everything to rows of the series."""
