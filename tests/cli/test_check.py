"""What `redrive check` says of workers and of progress."""

import msgspec
import pytest
from psycopg import sql

from redrive.cli.operations import check_server
from redrive.observability.snapshot import Health
from tests.cli.conftest import Redrive
from tests.factories import claim, make_job, make_worker, silence
from tests.postgres import Connection, Database


def found(redrive: Redrive, check: str) -> tuple[bool, str]:
    """Return what one finding says, and whether all is well."""
    done = redrive("check", "--json")
    (line,) = [line for line in done.lines if line["check"] == check]
    assert line["ok"] or done.code == 1
    return line["ok"], line["text"]


def has_slots(conn: Connection, worker: int, slots: int, inflight: int = 0) -> None:
    """Let a worker say how many slots it has, an hour after it was started."""
    conn.execute(
        "update redrive.workers set progress = jsonb_build_object('slots', %s::int),"
        " inflight = %s, started_at = started_at - interval '1 hour' where id = %s",
        (slots, inflight, worker),
    )


def make_old_job(conn: Connection, seconds: float = 300, **options: str) -> int:
    """Make a job that has been due for a while, and forget that it was enqueued."""
    job = make_job(conn, **options)
    conn.execute(
        "update redrive.jobs set run_at = run_at - %s * interval '1 second' where id = %s",
        (seconds, job),
    )
    return job


def test_an_idle_worker_that_was_killed_holds_no_jobs(
    redrive: Redrive, database: Database
) -> None:
    """An idle worker that was killed is not said to hold jobs."""
    silence(database.conn, make_worker(database.conn, ttl=30))

    assert found(redrive, "rescue") == (True, "no lost worker holds jobs")


def test_a_lost_worker_that_holds_a_job_is_reported_at_once(
    redrive: Redrive, database: Database
) -> None:
    """It was not seen for five minutes."""
    worker = make_worker(database.conn, ttl=30)
    make_job(database.conn)
    assert len(claim(database.conn, worker)) == 1
    alive = found(redrive, "rescue")
    silence(database.conn, worker, seconds=31)
    lost = found(redrive, "rescue")

    assert alive[0]
    assert not lost[0]
    assert lost[1].startswith("1 worker lost, and no worker has rescued")


def test_jobs_without_a_live_worker_are_a_finding(
    redrive: Redrive, database: Database
) -> None:
    """No worker at all and jobs ready was "ok"."""
    empty = found(redrive, "workers")
    make_job(database.conn, queue="mail")
    make_job(database.conn, queue="pay")
    without = found(redrive, "workers")
    worker = make_worker(database.conn, ttl=30)
    served = found(redrive, "workers")
    silence(database.conn, worker)
    gone = found(redrive, "workers")

    assert empty == (True, "0 live; each due job has one for its queue")
    told = "jobs are due in queue mail and 1 more queue, and no live worker serves it: start one"
    assert without == gone == (False, told)
    assert served == (True, "1 live; each due job has one for its queue")


def test_a_paused_queue_needs_no_worker(redrive: Redrive, database: Database) -> None:
    make_job(database.conn, queue="mail")
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")

    assert found(redrive, "workers")[0]


def test_progress_names_the_queue_that_stands_still(
    redrive: Redrive, database: Database
) -> None:
    """Check fails while a due job waits beside a free slot."""
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4)
    fresh = make_job(database.conn, queue="fresh")
    before = found(redrive, "progress")
    make_old_job(database.conn, queue="mail")
    ok, text = found(redrive, "progress")

    assert fresh
    assert before == (True, "no due job waits beside a free slot")
    assert not ok
    assert text.startswith(
        "queue mail: jobs are due, 1 live worker with free slots, and nothing"
    )
    assert "for 30" in text
    assert text.endswith(
        "no session was seen to block it: see the workers' logs and their /readyz"
    )


def test_progress_is_no_matter_of_busy_slots_nor_of_a_paused_queue_nor_of_a_backlog_that_moves(
    redrive: Redrive, database: Database
) -> None:
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4, inflight=4)
    make_old_job(database.conn, queue="mail")
    busy = found(redrive, "progress")
    database.rows("update redrive.workers set inflight = 1")
    assert not found(redrive, "progress")[0]
    database.rows("insert into redrive.deltas values ('mail', 'k', 'completed', '', 1)")
    moving = found(redrive, "progress")
    database.rows("delete from redrive.deltas where event = 'completed'")
    assert not found(redrive, "progress")[0]
    database.rows("select redrive.pause_v1('mail', 'ada', 'why')")
    paused = found(redrive, "progress")

    assert busy[0]
    assert moving[0]
    assert paused[0]


def test_progress_names_the_session_that_has_locked_a_table(
    redrive: Redrive, database: Database
) -> None:
    """Check names the session that blocks every worker."""
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4)
    make_old_job(database.conn, queue="mail")
    for table in ("lanes", "claims"):
        with database.connect() as other, other.transaction():
            name = sql.Identifier("redrive", table)
            other.execute(
                sql.SQL("lock table {} in access exclusive mode").format(name)
            )
            ok, text = found(redrive, "progress")
            pid = other.info.backend_pid

        assert not ok
        assert f"session {pid} (test) has locked table {table}, for " in text
        assert text.endswith(f"to end it: select pg_terminate_backend({pid})")


def test_a_table_that_a_session_keeps_locked_is_named_before_any_queue_stalls(
    redrive: Redrive, database: Database
) -> None:
    """Workers that cannot claim register again and again, and so none seemed to wait."""
    before = found(redrive, "locks")
    with database.connect() as other, other.transaction():
        other.execute("lock table redrive.schedules in exclusive mode")
        ok, text = found(redrive, "locks")
        pid = other.info.backend_pid

    assert before == (True, "no session keeps a table locked")
    assert not ok
    assert text.startswith(f"session {pid} (test) has locked table schedules, for ")
    assert text.endswith(f"to end it: select pg_terminate_backend({pid})")


def test_progress_names_the_session_that_a_worker_waits_for(
    redrive: Redrive, database: Database
) -> None:
    worker = make_worker(database.conn, ttl=30)
    has_slots(database.conn, worker, slots=4)
    job = make_old_job(database.conn, queue="mail")
    locking = "select from redrive.jobs where id = %s for update"
    other, waits = database.session(), database.session()
    waits.rows("set application_name = 'redrive worker'")
    with other.conn.transaction():
        other.rows(locking, job)
        waiting = waits.start(lambda: waits.rows(locking, job))
        database.wait_until_blocked(waits)
        ok, text = found(redrive, "progress")
    waiting.result()

    assert not ok
    assert f"session {other.pid} (test) has locked rows, for " in text


WELL: Health = msgspec.convert(
    {
        "sees_sessions": True,
        "connections": [["server", 10, 97]],
        "horizons": {},
        "freeze": [["transaction", "server", 150_000_000], ["multixact", "server", 0]],
        "freeze_at": {"transaction": 200_000_000, "multixact": 400_000_000},
        "tables": [["jobs", 900, 5000.0, None], ["deltas", 0, 2000.0, 5.0]],
        "standbys": [["b", 0.0, 0.0]],
        "slots": [["used", True, 6e9]],
        "database_size": None,
        "schema_size": 1.0,
        "sequences": {"workers_id_seq": 0.1},
        "limits": {"emails": 3600.0},
        "campaigns": {"paused": 3600.0},
        "heals_aborted": 2,
        "names": [["kinds", 10, 5000], ["queues", 800, 1000]],
        "disk": {"dead_letters": 50 * 2**20, "history": 30 * 2**20},
    },
    Health,
)
ILL = {
    "statistics": ("sees_sessions", False, "grant pg_read_all_stats to redrive_owner"),
    "bloat": (
        "tables",
        [["deltas", 200_000, 2000.0, None]],
        "run: vacuum redrive.deltas",
    ),
    "wraparound": (
        "freeze",
        [["multixact", "server", 800_000_000]],
        "the oldest multixact id of the server's oldest database is 800000000 old",
    ),
    "standbys": ("standbys", [["b", 1.0, 301.0]], "b is 301 s and 0 MiB behind"),
    "slots": (
        "slots",
        [["gone", False, 6e9]],
        "select pg_drop_replication_slot('gone')",
    ),
    "sequences": ("sequences", {"workers_id_seq": 0.8}, "has used 80.0%"),
    "names": (
        "names",
        [["kinds", 10, 5000], ["queues", 801, 1000]],
        "801 of 1000 allowed names of queues are in use: enqueue refuses new ones",
    ),
    "campaigns": ("campaigns", {"aborted": 90_000.0}, "aborted for 1.0 days"),
    "limits": ("limits", {"emails": 90_000.0}, "limit emails for 1.0 days"),
}


def judged(health: Health) -> dict[str, tuple[bool, str]]:
    """Return the findings that need no further query."""
    looks = {"statistics": check_server.rights, **check_server.LOOKS}
    return {name: look(health) for name, look in looks.items()}


@pytest.mark.parametrize("check", ILL)
def test_check_names_each_trouble_of_the_server_and_no_other(check: str) -> None:
    """Check reports the database's own health."""
    field, value, text = ILL[check]
    ill = msgspec.convert(msgspec.to_builtins(WELL) | {field: value}, Health)
    found = judged(ill)

    assert all(ok for ok, _ in judged(WELL).values())
    assert [name for name, (ok, _) in found.items() if not ok] == [check]
    assert text in found[check][1]


@pytest.mark.parametrize(
    ("mib", "ok", "says"),
    [
        (0, True, "take 80 MiB; REDRIVE_DISK_BUDGET_GIB sets no limit"),
        (100, True, "take 80 MiB of 100 MiB"),
        (99, False, "80 MiB of 99 MiB, most of it dead letters: delete old ones with"),
    ],
)
def test_check_names_what_takes_most_of_the_disk_budget(
    mib: int, *, ok: bool, says: str
) -> None:
    found = check_server.disk(WELL, mib << 20)

    assert found.ok is ok
    assert says in found.text


def test_bloat_names_what_holds_vacuum_back() -> None:
    ill = msgspec.convert(
        msgspec.to_builtins(WELL)
        | {
            "tables": [["jobs", 200_000, 5000.0, 9.0]],
            "horizons": {"slot": 9000, "transaction": 5},
        },
        Health,
    )

    assert judged(ill)["bloat"][1].endswith(
        "a slot holds vacuum back by 9,000 transactions"
    )


def test_check_names_tables_without_autovacuum(
    redrive: Redrive, database: Database
) -> None:
    """The walk of the runbook: a table was not vacuumed for hours, and check was clean."""
    before = found(redrive, "autovacuum")
    for table in ("lanes", "jobs"):
        name = sql.Identifier("redrive", table)
        database.conn.execute(
            sql.SQL("alter table {} set (autovacuum_enabled = off)").format(name)
        )
    ok, text = found(redrive, "autovacuum")

    assert before == (True, "on for all tables")
    assert not ok
    assert text.startswith("off for redrive.jobs, redrive.lanes, so dead rows stay")


def test_check_names_the_long_transaction_and_how_to_end_it(
    redrive: Redrive, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check says whose transaction it is."""
    monkeypatch.setattr(check_server, "LONG_TRANSACTION_SECONDS", -1.0)
    short = found(redrive, "transactions")
    writer = database.session(application_name="forgotten")
    writer.rows("begin")
    writer.rows("select redrive.enqueue('k')")
    pid = writer.value("select pg_backend_pid()")
    held = dict(check_server.findings(database.conn, 0))["transactions"]

    assert short == (True, "none is long")
    assert not held.ok
    assert f"session {pid} of " in held.text
    assert "(forgotten, idle in transaction)" in held.text
    assert held.text.endswith(f"select pg_terminate_backend({pid})")


def test_check_names_who_has_the_connections(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_server, "USED_CONNECTIONS", 0.0)
    full = dict(check_server.findings(database.conn, 0))["connections"]

    assert not full.ok
    assert "are used; most: " in full.text
