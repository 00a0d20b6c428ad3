"""python -m bench.scrape: what a scrape costs on a database with millions of dead letters and
waiting jobs.

python -m bench.scrape --dead 10000000 --waiting 5000000

The rows are written by plain inserts with triggers and indexes off and the tallies set to what they
add up to. A scrape is a GET of /metrics: from `redrive exporter`, which reads ahead, and from a
process that reads when it is asked, as workers do, with a new snapshot each time.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import LiteralString
from urllib.request import urlopen

import psycopg

from bench.server import Connection
from bench.usage import cpu_of
from redrive.database.embedded import EmbeddedPostgres, free_port
from redrive.database.schema.migrate import migrate
from redrive.observability.health import serve
from redrive.observability.metrics import Exposition
from redrive.observability.stats import DatabaseStats

QUEUES, KINDS = 20, 50
CHUNK = 500_000
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "16GB",
    "shared_buffers": "512MB",
    "maintenance_work_mem": "512MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}

DEAD = """
insert into redrive.dead_letters (id, redrives, state, queue, kind,
    reason, category, error_class, message, fingerprint,
    attempts, deliveries, losses, priority, lane,
    created_at, died_at, headers, payload)
select i, 0, 'open', 'q' || i %% %(queues)s, 'kind' || i %% %(kinds)s,
    'attempts_exhausted', 'transient', 'ConnectionError', 'connection refused',
    md5((i %% 1000)::text),
    5, 5, 0, 0, 0,
    now() - interval '3 days', now() - i * interval '9 ms', '{}', '{"number": 1}'
from generate_series(%(first)s::int, %(last)s::int) i
"""

WAITING = """
insert into redrive.jobs (queue, kind, payload, run_at, failed_at)
select 'q' || i %% %(queues)s, 'kind' || i %% %(kinds)s, '{"number": 1}',
    now() + case when is_due then - interval '1 hour' else interval '1 day' end
        + i %% 100000 * interval '10 ms',
    case when i / %(queues)s %% 20 = 0 then now() end
from generate_series(%(first)s::int, %(last)s::int) i,
    lateral (select i / %(queues)s %% 2 = 1 as is_due) d
"""

TALLIES = """
insert into redrive.tallies (queue, kind, event, reason, n)
select queue, kind, 'dead', reason, count(*) from redrive.dead_letters group by 1, 2, 4
union all
select queue, kind, 'enqueued', '', sum(n) from (
    select queue, kind, count(*) n from redrive.dead_letters group by 1, 2
    union all select queue, kind, count(*) from redrive.jobs group by 1, 2) both_tables
group by 1, 2
union all
select queue, kind, 'claimed', '', count(*) from redrive.dead_letters group by 1, 2
on conflict (queue, kind, event, reason) do update set n = excluded.n
"""


def fill(
    conn: Connection,
    table: LiteralString,
    statement: LiteralString,
    n: int,
    until: float,
) -> int:
    """Write up to `n` rows, with the indexes made at the end. Returns how many it was time for."""
    indexes = conn.execute(
        "select 'drop index ' || indexrelid::regclass, pg_get_indexdef(indexrelid) from pg_index"
        " where indrelid = %s::regclass and not indisprimary",
        (table,),
    ).fetchall()
    for drop, _ in indexes:
        conn.execute(drop)
    done, among = 0, {"queues": QUEUES, "kinds": KINDS}
    while done < n and time.monotonic() < until:
        first, done = done + 1, min(n, done + CHUNK)
        conn.execute(statement, {"first": first, "last": done, **among})
    for _, definition in indexes:
        conn.execute(definition)
    conn.execute(f"vacuum analyze {table}")
    return done


def timed(act: Callable[[], object], times: int, pause: float) -> str:
    """Median and worst, in milliseconds."""
    costs = []
    for _ in range(times):
        time.sleep(pause)
        began = time.perf_counter()
        act()
        costs.append((time.perf_counter() - began) * 1000)
    return f"median {statistics.median(costs):6.1f} ms, worst {max(costs):6.1f} ms"


def main() -> None:
    """Fill, scrape, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dead", type=int, default=10_000_000)
    parser.add_argument("--waiting", type=int, default=5_000_000)
    parser.add_argument(
        "--seconds", type=float, default=3600, help="write rows for at most this long"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redrive-scrape-") as home:
        Path(home).chmod(0o755)
        postgres = EmbeddedPostgres(Path(home), settings=SETTINGS)
        postgres.start()
        try:
            write(postgres.url(), asked.dead, asked.waiting, asked.seconds)
            measure(postgres.url())
        finally:
            postgres.stop()


def write(url: str, dead: int, waiting: int, seconds: float) -> None:
    """So many rows, or as many as there is time for."""
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)
        conn.execute("set session_replication_role = replica")
        conn.execute("set synchronous_commit = off")
        waiting = fill(conn, "redrive.jobs", WAITING, waiting, began + seconds / 3)
        dead = fill(conn, "redrive.dead_letters", DEAD, dead, began + seconds)
        conn.execute("truncate redrive.tallies, redrive.deltas")
        conn.execute(TALLIES)
        conn.execute("analyze")
    print(
        f"{dead:,} dead letters, {waiting:,} waiting jobs, {QUEUES} queues, {KINDS} kinds;"
        f" written in {time.monotonic() - began:.0f} s"
    )


def measure(url: str) -> None:
    """Snapshots and scrapes."""
    stats = DatabaseStats(url)
    own = serve(0, Exposition(None, stats.collect).registry, live=dict, ready=dict)
    port = free_port()
    exporter = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "redrive",
            "exporter",
            "--database-url",
            url,
            "--http-port",
            str(port),
        ],
        env=os.environ | {"REDRIVE_LOG_LEVEL": "error"},
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with suppress(OSError):
                size = len(scrape(port))
                break
            time.sleep(0.2)
        with psycopg.connect(url, autocommit=True) as conn:
            used = cpu_of(conn.info.backend_pid)
            print(
                "the snapshot alone:       ",
                timed(
                    lambda: conn.execute("select redrive.stats_v1('0')").fetchone(),
                    100,
                    0.02,
                ),
            )
            spent = cpu_of(conn.info.backend_pid) - used
            print(f"  of the processor:        mean {spent / 100 * 1000:8.1f} ms")
        print("a scrape of the exporter: ", timed(lambda: scrape(port), 20, 2.2))
        exporter.terminate()
        exporter.wait()
        print("a scrape, new snapshot:   ", timed(lambda: scrape(own), 20, 2.2))
        print(f"{size / 1024:.0f} KiB of metrics")
    finally:
        exporter.kill()
        exporter.wait()
        stats.link.close()


def scrape(port: int) -> bytes:
    """What a process shows."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return bytes(answer.read())


if __name__ == "__main__":
    main()
