"""What pages of the console take, with a million dead letters and five million live jobs."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import LiteralString
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from psycopg.rows import dict_row

from bench import usage
from bench.scenarios import Figures, Lab
from bench.scrape import TALLIES, fill
from bench.server import Connection
from bench.session import SystemFailed
from bench.systems import System
from redrive.database.embedded import free_port
from redrive.database.schema.migrate import migrate
from tests.factories import SERIES_SUMS

LETTERS, JOBS = 1_000_000, 5_000_000
REQUESTS, AT_ONCE = 40, 2

_DEAD = """
insert into redrive.dead_letters (
    id, redrives, state, queue, kind, reason, category, error_class, message, fingerprint, attempts,
    deliveries, losses, priority, lane, created_at, died_at, tenant, version, environment, headers,
    payload)
select 10000000 + i, 0,
       case when i %% 20 = 0 then 'dismissed' when i %% 10 = 1 then 'resolved' else 'open' end,
       'q' || k %% 20, 'kind' || k, 'attempts_exhausted',
       case when g %% 3 = 0 then 'bug' else 'transient' end, 'Error' || g %% 10,
       'the bank said ' || g, md5(k || '/' || g), 5, 5, 0, 0, 0, now() - interval '40 days',
       now() - (i / 1e6) ^ 3 * interval '30 days', 't' || i %% 997, '1.' || i * 12 / 1000000,
       'prod', '{}', jsonb_build_object('order', i, 'currency', 'EUR')
from generate_series(%(first)s::int, %(last)s::int) i,
     lateral (select hashint4(i) & 63 as k,
                     floor(40 * ((hashint4(-i) & 1023) / 1024.0) ^ 3)::int as g) c
"""
_FAILED = """
insert into redrive.failures (
    job, deliveries, attempt, at, worker, error_class, message, category, fingerprint, detail)
select d.id, 5, 5, d.died_at, 'worker-1', d.error_class, d.message, d.category, d.fingerprint,
       '{"pod": "worker-1", "stack": [{"file": "app/bank.py", "line": 17, "function": "charge"}]}'
from redrive.dead_letters d
where d.id between 10000000 + %(first)s::int and 10000000 + %(last)s::int
"""
_LIVE = """
insert into redrive.jobs (
    queue, kind, run_at, failed_at, tenant, ordering_key, idempotency_key, payload)
select 'q' || k %% 20, 'kind' || k,
       case when i %% 50 = 7 then 'infinity' when i %% 2 = 0 then now() + i * interval '10 ms'
            else now() - i * interval '5 ms' end,
       case when i %% 20 = 0 then now() end, 't' || i %% 997,
       case when i %% 50 = 7 then 'k' || i %% 10000 end,
       case when i %% 10 = 0 then 'order-' || i end,
       jsonb_build_object('order', i)
from generate_series(%(first)s::int, %(last)s::int) i, lateral (select hashint4(i) & 63 as k) c
"""
_SERIES: LiteralString = """
insert into redrive.series (span, at, queue, kind, enqueued, completed, failed, retried, died,
                            duration, wait)
select %(span)s, m.at, 'q' || (k * 7 + copy * 5) %% 20, 'kind' || k, %(span)s * 40, %(span)s * 38,
       %(span)s * 3, %(span)s * 2, %(span)s,
       array[0, 1, 4, 9, 20, 9, 4, 2, 1, 1, k %% 3, 0, 0, 0, 0, 0, 0],
       array[0, 2, 9, 20, 20, 9, 4, 2, 1, 1, k %% 5, 0, 0, 0, 0, 0, 0, 0]
from generate_series(date_trunc(%(unit)s, now()) - %(kept)s::interval,
                     date_trunc(%(unit)s, now()) - interval '1 min', %(step)s::interval) m(at),
     generate_series(0, 63) k, generate_series(0, 2) copy"""
_QUEUE_SERIES: LiteralString = """
insert into redrive.queue_series (span, at, queue, minutes, backlog, running, workers)
select s.span, s.at, q.queue, s.span, count(*) * 100, count(*), 40
from redrive.series s cross join lateral (values (s.queue), ('')) q(queue)
where s.queue <> '' and s.kind <> ''
group by s.span, s.at, q.queue"""
_REST: tuple[LiteralString, ...] = (
    """insert into redrive.groups (fingerprint, kind, category, error_class, message, sample, total,
                                   open, first_seen, last_seen, versions)
       select fingerprint, min(kind), min(category), min(error_class), min(message), max(id),
              count(*), count(*) filter (where state = 'open'), min(died_at), max(died_at),
              jsonb_build_object(max(version), min(died_at))
       from redrive.dead_letters group by fingerprint""",
    """insert into redrive.lanes (queue, priority, lane) select 'q' || n, 0, 0
       from generate_series(0, 19) n""",
    """insert into redrive.samples (minute, queue, dead)
       select date_trunc('minute', now()) - n * interval '1 minute', 'q' || q, 40000 - n
       from generate_series(0, 60) n, generate_series(0, 19) q""",
    """insert into redrive.workers (name, kinds, queues, seen_at)
       select 'worker-' || n, array(select 'kind' || k from generate_series(0, 63) k), null,
              now() + interval '1 day'
       from generate_series(1, 40) n""",
    """insert into redrive.claims (worker, queue, priority, lane, upto, upto_id, ids)
       select w.id, 'q' || w.id % 20, 0, 0, now(), 0, array(
           select j.id from redrive.jobs j where j.queue = 'q' || w.id % 20 and j.run_at < now()
           order by j.run_at, j.id offset w.id / 20 * 16 limit 16)
       from redrive.workers w""",
    """insert into redrive.campaigns (state, actor, why, filter, matched, redriven, rate)
       select 'done', 'ada', 'the fix is out', '{}', 100, 100, 10 from generate_series(1, 500)""",
    """insert into redrive.audit (at, actor, action, why, n, detail)
       select now() - n * interval '1 minute', 'ada', 'dismiss', 'no longer wanted', 1,
              jsonb_build_object('ids', jsonb_build_array(10000000 + n * 20))
       from generate_series(1, 50000) n order by n desc""",
    """insert into redrive.limits (name, concurrency, rate)
       select 'limit' || n, 20, 5 from generate_series(1, 100) n""",
)


def write(conn: Connection, letters: int, jobs: int) -> None:
    """The rows, with triggers and indexes off, and the counters set to what they add up to."""
    conn.execute("set session_replication_role = replica")
    conn.execute("set statement_timeout = 0")
    fill(conn, "redrive.jobs", _LIVE, jobs, math.inf)
    fill(conn, "redrive.dead_letters", _DEAD, letters, math.inf)
    fill(conn, "redrive.failures", _FAILED, letters, math.inf)
    conn.execute("truncate redrive.series, redrive.queue_series")
    for span, unit, kept in ((1, "minute", "26 h"), (60, "hour", "35 days")):
        values = {"span": span, "unit": unit, "kept": kept, "step": f"{span} min"}
        conn.execute(_SERIES, values)
    conn.execute(SERIES_SUMS)
    conn.execute(_QUEUE_SERIES)
    for statement in (*_REST, "truncate redrive.tallies, redrive.deltas", TALLIES):
        conn.execute(statement)
    conn.execute(
        "update redrive.chores set place = extract(epoch from date_trunc('minute', now())) / 60 - 1"
        " where name = 'series'"
    )
    conn.execute("vacuum analyze")


PATHS = {
    "overview": "/",
    "groups": "/groups",
    "groups of a kind": "/groups?kind=kind7",
    "groups since a version": "/groups?new-since=1.3",
    "a group": "/groups/{group}",
    "dead letters": "/dead-letters",
    "dead letters, page 2000": "/dead-letters?after={at}",
    "dead letters of a kind": "/dead-letters?kind=kind7",
    "dead letters of two kinds": "/dead-letters?kind=kind7&kind=kind8",
    "dead letters of a queue, in any state": "/dead-letters?queue=q7&state=any",
    "dead letters of a group": "/dead-letters?group={group}",
    "dead letters of a class": "/dead-letters?error-class=Error9",
    "dead letters of a tenant": "/dead-letters?tenant=t7",
    "dead letters that hold a value": "/dead-letters?where=payload.order=777777",
    "dead letters, no match": "/dead-letters?tenant=nobody",
    "dead letters of a kind, no match": "/dead-letters?kind=kind7&tenant=nobody",
    "a dead letter": "/jobs/{dead}",
    "live jobs": "/jobs",
    "live jobs that run": "/jobs?state=running",
    "live jobs that retry": "/jobs?state=retrying",
    "live jobs of a key": "/jobs?ordering-key=k57",
    "live jobs of a kind": "/jobs?kind=kind7",
    "live jobs of a tenant": "/jobs?tenant=t7",
    "live jobs, no match": "/jobs?tenant=nobody",
    "a live job": "/jobs/{live}",
    "campaigns": "/campaigns",
    "proposals": "/proposals",
    "act on an alert": "/act?queue=q7",
    "queues": "/queues",
    "a queue": "/queues/q7",
    "a queue, 26 hours": "/queues/q7?from=26h",
    "a queue, a month": "/queues/q7?from=35d",
    "kinds": "/kinds",
    "kinds, 26 hours": "/kinds?from=26h",
    "kinds, a month": "/kinds?from=35d",
    "a kind": "/kinds/kind7",
    "a kind, 26 hours": "/kinds/kind7?from=26h",
    "a kind, a month": "/kinds/kind7?from=35d",
    "overview, 26 hours": "/?from=26h",
    "overview, a week": "/?from=7d",
    "overview, a month": "/?from=35d",
    "groups, a month": "/groups?from=35d",
    "dead letters, sorted": "/dead-letters?sort=attempts",
    "workers": "/workers",
    "breakers": "/breakers",
    "limits": "/limits",
    "schedules": "/schedules",
    "report": "/report",
    "audit": "/audit",
    "audit, no match": "/audit?actor=nobody",
    "redrive of a group, looked at": "/change/redrive?group={group}",
    "dismiss of a kind, looked at": "/change/dismiss?kind=kind7",
}
_PARTS = """
select (select fingerprint from redrive.groups order by open desc limit 1) as group, d.id as dead,
       to_char(d.died_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US') || '/' || d.id as at,
       (select min(id) from redrive.jobs where run_at = 'infinity') as live
from redrive.dead_letters d where d.state = 'open'
order by d.died_at desc, d.id desc offset %s limit 1"""


def paths(conn: Connection, deep: int) -> dict[str, str]:
    """What is asked for: name -> path."""
    with conn.cursor(row_factory=dict_row) as cursor:
        parts = cursor.execute(_PARTS, (deep,)).fetchone() or {}
    return {name: path.format(**parts) for name, path in PATHS.items()}


def _get(port: int, path: str) -> tuple[float, int]:
    """Seconds until a page was read, and its bytes."""
    signed = {"x-forwarded-user": "ada", "x-forwarded-groups": "oncall"}
    began = time.perf_counter()
    try:
        with urlopen(
            Request(f"http://127.0.0.1:{port}{path}", headers=signed), timeout=60
        ) as page:
            size = len(page.read())
    except HTTPError as error:
        msg = f"{path}: {error.code} {error.read()[-800:]!r}"
        raise SystemFailed(msg) from None
    return time.perf_counter() - began, size


@contextmanager
def served(url: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The console as a process, and its port."""
    port = free_port()
    own = {
        "REDRIVE_CONSOLE_OPERATOR_URL": url,
        "REDRIVE_CONSOLE_PROXIES": "127.0.0.1",
        "REDRIVE_CONSOLE_GROUPS": "oncall=operator",
        "REDRIVE_CONSOLE_PORT": str(port),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "redrive", "console"],
        env=os.environ | own,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            for _ in range(300):
                try:
                    _get(port, "/livez")
                    break
                except OSError:
                    time.sleep(0.1)
            yield process, port
        finally:
            process.terminate()


def timed(port: int, path: str, people: Executor) -> Figures:
    """A page with two who ask at once: its times, median and 95th percentile, and its size."""
    _get(port, path)
    answers = list(people.map(lambda _: _get(port, path), range(REQUESTS)))
    times = sorted(seconds for seconds, _ in answers)
    p95 = times[math.ceil(len(times) * 0.95) - 1]
    size = max(size for _, size in answers)
    return {"p50_ms": median(times) * 1e3, "p95_ms": p95 * 1e3, "page_kb": size / 1e3}


class Pages:
    """Every page in turn, on one database and one process: the first makes them, the last ends."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._paths: dict[str, str] = {}

    def __call__(self, lab: Lab, _system: System, name: str) -> Figures:
        """One page, and the memory of the process by then."""
        if not self._paths:
            self._start(lab)
        page = timed(self._port, self._paths[name], self._people)
        memory = usage.memory([self._pid]) / 2**20
        if name == next(reversed(PATHS)):
            self._open.close()
        return page | {"memory_mib": memory}

    def _start(self, lab: Lab) -> None:
        lab.server.fresh("bench_console")
        with lab.server.connect("bench_console") as conn:
            migrate(conn)
            write(conn, round(LETTERS * lab.size), round(JOBS * lab.size))
            self._paths = paths(conn, round(LETTERS * lab.size / 10))
        process, self._port = self._open.enter_context(
            served(lab.server.url_of("bench_console"))
        )
        self._pid = process.pid
        self._people = self._open.enter_context(ThreadPoolExecutor(AT_ONCE))
