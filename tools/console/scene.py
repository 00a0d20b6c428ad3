"""An example incident: dead letters of several causes, a campaign, and blocked jobs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg

from redrive.dead_letters.campaigns import store as campaign
from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.filter import Filter
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.store import Agent
from redrive.rules.payloads.facts import facts_of
from redrive.rules.slots import Declaration
from redrive.worker import store
from redrive.worker.protocol import Report as Said
from redrive.worker.protocol import Sampled
from tests.factories import Claimed, claim, complete, exchange, failure, make_worker
from tools.console import series

Connection = psycopg.Connection[Any]
TENANTS = ("acme", "globex", "initech", "umbrella")
CURRENCIES = ("EUR", "USD", "GBP")
CHUNK = 500


class Error(NamedTuple):
    """Failure that jobs died of."""

    category: str
    error_class: str
    message: str
    function: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Jobs that died of the same cause. `hours`: time since the first death."""

    group: str
    kind: str
    queue: str
    error: Error
    n: int
    hours: float
    version: str = "1.4.1"
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])


TIMEOUT = Error(
    "transient", "BankTimeout", "the bank did not answer within 10 s", "charge"
)
EURO = Error(
    "invalid",
    "ValidationError",
    "currency: 'EURO' is none of EUR, USD, GBP",
    "read_order",
)
FULL = Error(
    "throttled",
    "SMTPResponseException",
    "452 4.3.1 insufficient system storage",
    "deliver",
)
TOTAL = Error("bug", "KeyError", "'total'", "render")
EXPIRED = Error(
    "auth", "PermissionError", "401 of the directory: the token has expired", "fetch"
)
MEMORY = Error(
    "lost", "WorkerLost", "the process was killed while it ran: out of memory", "resize"
)

CAUSES = (
    Cause("7c1e90b2aa41", "invoice.charge", "billing", TIMEOUT, 2314, 2.5),
    Cause(
        "3f9a51d07be2",
        "order.import",
        "imports",
        EURO,
        842,
        9,
        "1.4.0",
        {"currency": "EURO"},
    ),
    Cause("b04477e1c9d8", "mail.send", "mail", FULL, 417, 4),
    Cause("e1d2a6f4c033", "report.render", "reports", TOTAL, 96, 20, "1.3.7"),
    Cause("95b0c7d3f1aa", "user.sync", "default", EXPIRED, 37, 1),
    Cause("0ad84f6be711", "thumbnail.make", "media", MEMORY, 12, 15, "1.3.7"),
)
WAITING = (("invoice.charge", "billing", 1240), ("mail.send", "mail", 318))
WAITING += (("report.render", "reports", 24), ("user.sync", "default", 61))


def build(conn: Connection) -> None:
    """Create the incident in a database that has only the schema."""
    worker = make_worker(conn, "worker-7d9f4-x2k8p")
    for cause in CAUSES:
        _die(conn, cause, worker)
        place = {"queue": cause.queue, "version": cause.version}
        facts = [facts_of(_payload(n), {}, TENANTS[n % 4]) | place for n in range(60)]
        store.keep_samples(
            conn, [Sampled(cause.kind, json.dumps(well)) for well in facts]
        )
    conn.execute("select redrive.fold_v1()")
    conn.execute("select redrive.fold_groups_v1()")
    _date_groups(conn)
    _campaigns(conn, worker)
    _propose(conn)
    _set_up(conn, worker)
    _hold_up(conn)
    _run_some(conn, worker)
    for n in ("b9c4r", "q7w2n"):
        make_worker(conn, f"worker-7d9f4-{n}")
    conn.execute(
        "update redrive.workers set ttl = interval '1 day', version = '1.4.1',"
        " started_at = now() - interval '154 min', progress = coalesce(progress, %s)",
        (json.dumps({"slots": 16}),),
    )
    series.record(conn)


def _run_some(conn: Connection, worker: int) -> None:
    """Let some jobs run since a while, as a heartbeat reports them."""
    for n in range(4):
        _enqueue(conn, "thumbnail.make", "media", n)
    jobs = claim(conn, worker, 4)
    running = {str(job.id): 12.0 + 97 * n for n, job in enumerate(jobs)}
    conn.execute(
        "update redrive.workers set progress = %s::jsonb, inflight = %s where id = %s",
        (json.dumps({"slots": 16, "running": running}), len(jobs), worker),
    )


def _payload(n: int, **more: Any) -> dict[str, Any]:
    return {
        "order": f"A-{10_400 + n}",
        "amount": f"{(n * 37) % 900 + 9}.90",
        "currency": CURRENCIES[n % 3],
        "card_token": "tok_4242",
        **more,
    }


def _enqueue(conn: Connection, kind: str, queue: str, n: int, **more: Any) -> None:
    payload = _payload(n, **more)
    conn.execute(
        "select redrive.enqueue(%s, %s::jsonb, %s, tenant => %s)",
        (kind, json.dumps(payload), queue, TENANTS[n % 4]),
    )


def _die(conn: Connection, cause: Cause, worker: int) -> None:
    """Let jobs die over the hours since the start, more of them lately."""
    error = cause.error
    stack = [{"file": f"shop/{cause.queue}.py", "line": 41, "function": error.function}]
    said = failure(
        error_class=error.error_class,
        message=error.message,
        category=error.category,
        fingerprint=cause.group,
        detail={
            "stack": stack,
            "version": cause.version,
            "trace_id": "4bf92f3577b34da6",
        },
    )
    for start in range(0, cause.n, CHUNK):
        with conn.transaction():
            for n in range(start, min(start + CHUNK, cause.n)):
                _enqueue(conn, cause.kind, cause.queue, n, **cause.payload)
        _bury(conn, worker, claim(conn, worker, CHUNK), said)
    conn.execute(
        "with spread as (select id, %s * interval '1 hour' * power(random(), 1.6) as ago"
        "  from redrive.dead_letters where fingerprint = %s),"
        " failed as (update redrive.failures f set at = at - ago from spread s where job = s.id)"
        " update redrive.dead_letters d set died_at = died_at - ago,"
        " first_failed_at = died_at - ago, created_at = created_at - ago - interval '4 min'"
        " from spread s where d.id = s.id",
        (cause.hours, cause.group),
    )


def _bury(conn: Connection, worker: int, jobs: Sequence[Claimed], said: str) -> None:
    ends = [
        Said(job.id, job.deliveries, "dead", reason="not_retryable", failure=said)
        for job in jobs
    ]
    exchange(
        conn,
        reports=[(end, j.claim, worker) for end, j in zip(ends, jobs, strict=True)],
    )


def _date_groups(conn: Connection) -> None:
    """Backdate groups as if the incident had taken these hours."""
    for cause in CAUSES:
        conn.execute(
            "update redrive.groups g set first_seen = d.since, last_seen = d.until,"
            " versions = jsonb_build_object(%s::text, d.since)"
            " from (select min(died_at) as since, max(died_at) as until from redrive.dead_letters"
            "       where fingerprint = %s) d where g.fingerprint = %s",
            (cause.version, cause.group, cause.group),
        )


def _campaigns(conn: Connection, worker: int) -> None:
    """Create campaigns: one finished, one aborted, one running, and a plan."""
    for group, kind, limit, why in (
        ("95b0", "user.sync", 14, "the token was renewed"),
        ("e1d2", "report.render", 30, "1.3.8 adds the total"),
        ("3f9a", "order.import", None, "the importer maps EURO to EUR since 1.4.2"),
    ):
        chosen = Filter(group=group, kind=(kind,), state=("open",), limit=limit)
        made = campaign.plan(conn, chosen, actor="ada")
        assert made.plan is not None  # noqa: S101 # somebody plans
        terms = Terms(rate=5.0 if limit is None else None, canaries=3)
        campaign.start(conn, made.plan, terms, actor="ada", why=why)
        _carry_on(conn, made.plan, worker, kind, rounds=8 if limit else 24)
    campaign.plan(conn, Filter(group="7c1e", state=("open",)), actor="bo")


def _set_up(conn: Connection, worker: int) -> None:
    """Set limits and declare schedules, three days before the incident."""
    for name, most in (("bank", 20), ("tenant:acme", 4)):
        why = "as many as the bank allows"
        conn.execute(
            "select redrive.set_limit_v1(%s, %s, null, 'ada', %s)", (name, most, why)
        )
    declared = [
        Declaration(name, name, "reports", cron, "Europe/Berlin", "one", "{}")
        for name, cron in (
            ("report.daily", "0 7 * * 1-5"),
            ("report.month", "0 6 1 * *"),
        )
    ]
    store.declare_schedules(conn, worker, "1", declared)
    conn.execute("select redrive.pause_schedule_v1('report.month', 'bo', 'it is late')")
    conn.execute(
        "update redrive.audit set at = at - interval '3 days'"
        " where action in ('set limit', 'pause schedule')"
    )


def _propose(conn: Connection) -> None:
    """Let an agent propose a redrive, an edit and a mute."""
    agent = Agent("claude", "ada")
    token = Filter(group="95b0", state=("open",))
    proposals.propose_campaign(conn, agent, token, "the directory's token was renewed")
    chosen = Filter(group="7c1e", state=("open",), limit=20)
    found = edits.find(conn, chosen)
    letters = [one for one in found if isinstance(one, edits.Letter)]
    patch = [{"op": "replace", "path": "/currency", "value": "EUR"}]
    why = "the bank charges in EUR only since noon"
    proposals.propose_edit(conn, agent, letters, patch, why)
    why = "the mail server's disk is being enlarged"
    proposals.propose(
        conn, "mute", agent, why, {"group": "b04477e1c9d8", "seconds": 7200}
    )


def _carry_on(
    conn: Connection, number: int, worker: int, kind: str, rounds: int
) -> None:
    """Run the jobs that were put back.

    Reports die again, and the last imports are still running.
    """
    again = next(cause for cause in CAUSES if cause.kind == kind)
    said = failure(
        error_class=again.error.error_class, message="'total'", fingerprint=again.group
    )
    for n in range(rounds):
        drive(conn, number)
        conn.execute("update redrive.jobs set run_at = now() where run_at > now()")
        jobs = claim(conn, worker, CHUNK)
        if kind == "report.render":
            _bury(conn, worker, jobs, said)
        elif n < rounds - 1 or kind != "order.import":
            complete(conn, worker, *jobs)
        conn.execute(
            "update redrive.campaigns set fed_at = fed_at - interval '4 s' where id = %s",
            (number,),
        )
    drive(conn, number)


def _hold_up(conn: Connection) -> None:
    """Create waiting jobs: a paused queue, an open breaker, and jobs for later."""
    for kind, queue, n in WAITING:
        for job in range(n):
            _enqueue(conn, kind, queue, job)
    conn.execute(
        "select redrive.enqueue('report.render', '{}', 'reports', now() + n * interval '1 h')"
        " from generate_series(1, 40) n"
    )
    conn.execute(
        "select redrive.pause_v1('billing', 'ada', 'the bank asks us to wait')"
    )
    conn.execute(
        "insert into redrive.breakers (name, state, failures, successes, opened, opened_at,"
        " open_until) values ('smtp', 'open', 41, 12, 3, now() - interval '6 min',"
        " now() + interval '90 s'), ('bank', 'half_open', 9, 240, 1, now() - interval '20 min',"
        " now()), ('directory', 'closed', 0, 1893, 0, null, null)"
    )
    conn.execute(
        "select redrive.mute_v1('0ad84f6be711', now() + interval '1 day', 'bo', 'memory doubles')"
    )
    conn.execute(
        "select redrive.note_v1(max(id), 'ada', 'asked the bank; they see no such call')"
        " from redrive.dead_letters where kind = 'invoice.charge'"
    )
