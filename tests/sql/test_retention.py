"""What grows has an end: forget_v1, retention as data, campaigns that nobody carries on."""

from collections import Counter
from datetime import timedelta

import psycopg
import pytest

from redrive.dead_letters.purge import forget
from redrive.worker import store
from tests.factories import (
    Depth,
    claim,
    complete,
    depths,
    make_campaign,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    redrive,
    totals,
)
from tests.postgres import Database

DAYS = 500
BATCH = 50
KEPT = {"audit": 400, "campaigns": 400, "groups": 90, "keys": 30, "names": 90}
"""Days, as they are installed."""

TABLES = (
    *("audit", "breakers", "campaigns", "completions", "effects", "failures", "groups"),
    *("side_effects", "tallies"),
)
AT = (
    "clock_timestamp() - n * interval '1 day' + interval '1 minute'"
    " from generate_series(1, :days) n"
)
A_DAY_EACH = f"""
    insert into redrive.audit (actor, action, why, n, at)
        select 'ada', 'note', 'x', 1, {AT} order by n desc;
    insert into redrive.campaigns (actor, why, filter, matched, state, created_at)
        select 'ada', 'x', '{{}}', 1, 'done', {AT} order by n desc;
    insert into redrive.completions (kind, key, job, at) select 'a', n::text, n, {AT};
    insert into redrive.effects (key, at) select n::text, {AT};
    insert into redrive.groups (fingerprint, kind, category, error_class, message, sample, total,
                                open, first_seen, last_seen)
        select 'f' || n, 'a', 'bug', 'E', 'm', n, 1, 0, now(), {AT};
    insert into redrive.failures (job, deliveries, attempt, error_class, message, category,
                                  fingerprint, at)
        select n, 1, 1, 'E', 'm', 'bug', 'f', {AT};
    insert into redrive.side_effects (job, deliveries, what, at) select n, 1, 'x', {AT};
    insert into redrive.breakers (name, window_at, changed_at)
        select 'b' || n, at, at from (select n, {AT}) v(n, at);
    insert into redrive.tallies (queue, kind, event, reason, n, at)
        select 'q', 'k' || n, event, '', 1, at
        from (select n, {AT}) v(n, at), unnest('{{enqueued,completed}}'::text[]) event;
"""


def live_through(database: Database, days: int) -> None:
    """Leave one of everything on each day."""
    database.rows(A_DAY_EACH.replace(":days", str(days)))  # type: ignore[arg-type] # a constant


def sizes(database: Database) -> Counter[str]:
    return Counter(
        {t: database.value(f"select count(*) from redrive.{t}") for t in TABLES}
    )  # type: ignore[arg-type]


def test_after_years_there_is_what_retention_says_and_no_more(
    database: Database,
) -> None:
    """Audit, campaigns, groups, tallies and remains of vanished jobs are deleted in time."""
    live_through(database, DAYS)
    before, more = sizes(database), True
    while more:
        _, more = database.row("select gone, more from redrive.forget_v1(%s)", BATCH)
        after = sizes(database)
        gone = before - after
        # a kind has two counters here; breakers are as many as code names
        assert all(
            gone[t] <= BATCH * (1 + (t == "tallies")) for t in TABLES if t != "breakers"
        )
        before = after

    whole_days = database.value(
        "select count(*) from redrive.audit where action = 'note'"
    )
    assert KEPT["audit"] <= whole_days <= KEPT["audit"] + 1
    forgotten = database.value(
        "select count(*) from redrive.audit where action = 'forget audit'"
    )
    assert sizes(database) == {
        "audit": whole_days + forgotten,
        "breakers": KEPT["names"],
        "campaigns": KEPT["campaigns"],
        "completions": KEPT["keys"],
        "effects": KEPT["keys"],
        "failures": 0,
        "groups": KEPT["groups"],
        "side_effects": 0,
        "tallies": KEPT["names"] * 2 + 2,
    }
    assert database.value(
        "select sum(n) from redrive.audit where action = 'forget audit'"
    ) == (DAYS - whole_days)
    assert forget(database.conn) == 0


def test_workers_do_it_by_themselves_and_a_purge_to_its_end(database: Database) -> None:
    """Workers forget keys, too, not the CronJob alone."""
    live_through(database, DAYS)
    worker = database.session("redrive_worker")
    assert store.take_chore(worker.conn, "forget", 60)
    store.forget(worker.conn)
    assert sizes(database)["completions"] == KEPT["keys"]

    forget(database.session("redrive_operator").conn)
    assert sizes(database)["failures"] == 0
    assert forget(database.conn) == 0


def test_a_worker_cannot_shorten_what_is_kept(database: Database) -> None:
    worker = database.session("redrive_worker")
    for statement in (
        "select redrive.forget_audit_v1('0', 1)",
        "select redrive.set_retention_v1('audit', '31 days', 'me', 'why')",
        "update redrive.retention set keep = '31 days'",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.rows(statement)  # type: ignore[arg-type] # as above
    with pytest.raises(psycopg.errors.CheckViolation):
        database.rows(
            "select redrive.set_retention_v1('audit', '29 days', 'ada', 'why')"
        )


def test_retention_is_set_and_audited(database: Database) -> None:
    database.rows(
        "select redrive.set_retention_v1('keys', '400 days', 'ada', 'slow customers')"
    )
    live_through(database, DAYS)
    forget(database.conn)

    assert sizes(database)["completions"] == 400
    assert database.rows(
        "select actor, why, detail ->> 'what' from redrive.audit where action = 'retention'"
    ) == [("ada", "slow customers", "keys")]


def test_forgetting_lines_of_the_audit_leaves_one_a_day(database: Database) -> None:
    live_through(database, 410)
    for _ in range(3):
        forget(database.conn)

    found = database.column(
        "select actor from redrive.audit where action = 'forget audit'"
    )
    assert found == ["redrive"]


# Names


def test_the_sums_of_a_queue_stay_when_its_kinds_are_forgotten(
    database: Database,
) -> None:
    worker = make_worker(database.conn)
    make_jobs(database.conn, 7, "old.kind", queue="q")
    complete(database.conn, worker, *claim(database.conn, worker))
    make_jobs(database.conn, 2, "new.kind", queue="q")
    store.fold(database.conn)
    before, shown = totals(database.conn), depths(database.conn)
    database.rows(
        "update redrive.tallies set at = now() - interval '1 year' where kind ~ '^old'"
    )
    forget(database.conn)

    assert set(database.column("select kind from redrive.tallies")) == {"", "new.kind"}
    assert totals(database.conn) == before
    assert depths(database.conn) == shown == {"q": Depth(ready=2)}


def test_a_queue_of_which_nothing_is_left_is_forgotten(database: Database) -> None:
    worker = make_worker(database.conn)
    make_jobs(database.conn, 3, queue="gone")
    complete(database.conn, worker, *claim(database.conn, worker))
    store.fold(database.conn)
    database.rows("update redrive.tallies set at = now() - interval '1 year'")
    forget(database.conn)

    assert depths(database.conn) == {}
    make_jobs(database.conn, 1, queue="gone")
    assert depths(database.conn) == {"gone": Depth(ready=1)}


def test_a_kind_with_a_job_or_an_open_dead_letter_is_not_forgotten(
    database: Database,
) -> None:
    letters = make_dead_letters(database.conn, 2, kind="lies.there")
    make_job(database.conn, "waits.for.years")
    store.fold(database.conn)
    database.rows("update redrive.tallies set at = now() - interval '1 year'")
    before = database.rows(
        "select queue, kind, event, n from redrive.totals order by 1, 2, 3"
    )
    forget(database.conn)

    assert database.rows(
        "select queue, kind, event, n from redrive.totals order by 1, 2, 3"
    ) == (before)
    database.rows("select redrive.dismiss_v1(%s, 'ada', 'x')", letters)
    store.fold(database.conn)
    database.rows("update redrive.tallies set at = now() - interval '1 year'")
    forget(database.conn)
    assert set(database.column("select kind from redrive.tallies")) == {
        "",
        "waits.for.years",
    }


def test_a_kind_of_which_something_is_not_folded_yet_is_not_forgotten(
    database: Database,
) -> None:
    """Totals of a kind stay while some of its deltas are not folded."""
    conn = database.conn
    (letter,) = make_dead_letters(conn, 1, kind="lies.there")
    store.fold(conn)
    database.rows("update redrive.tallies set at = now() - interval '1 year'")
    redrive(conn, [letter])
    worker = make_worker(conn)
    complete(conn, worker, *claim(conn, worker))
    forget(conn)

    by_kind = dict(
        database.rows("select event, n from redrive.totals where kind = 'lies.there'")
    )
    assert (by_kind["enqueued"], by_kind["dead"], by_kind["redriven"]) == (1, 1, 1)


def test_a_breaker_that_somebody_holds_is_not_forgotten(database: Database) -> None:
    database.rows(
        "insert into redrive.breakers (name, state, open_until, forced_by, window_at, changed_at)"
        " select name, 'open', until, by, '2020-01-01Z', '2020-01-01Z' from (values"
        " ('held', null::timestamptz, 'ada'), ('lapsed', '2020-01-02Z', null),"
        " ('open', now() + interval '1 hour', null)) v(name, until, by)"
    )
    forget(database.conn)

    assert database.column("select name from redrive.breakers order by 1") == [
        "held",
        "open",
    ]


def test_a_group_that_is_open_or_muted_is_not_forgotten(database: Database) -> None:
    database.rows(
        "insert into redrive.groups (fingerprint, kind, category, error_class, message, sample,"
        " total, open, first_seen, last_seen, muted_until)"
        " select name, 'a', 'bug', 'E', 'm', 1, 1, open, '2020-01-01Z', '2020-01-01Z', until"
        " from (values ('open', 1, null::timestamptz), ('muted', 0, now() + interval '1 hour'),"
        " ('was muted', 0, '2020-01-01Z')) v(name, open, until)"
    )
    forget(database.conn)

    assert database.column("select fingerprint from redrive.groups order by 1") == [
        "muted",
        "open",
    ]


# What jobs leave


def test_what_a_job_left_behind_is_forgotten_and_what_others_hold_stays(
    database: Database,
) -> None:
    """A job that succeeds after its dead letter was purged leaves no failures behind."""
    purged, kept, alive = make_dead_letters(database.conn, 3)
    redrive(database.conn, [purged, alive])
    database.rows("select redrive.purge_v1(null, %s, '{0}', '{redriven}')", [purged])
    worker = make_worker(database.conn)
    jobs = {job.id: job for job in claim(database.conn, worker)}
    complete(database.conn, worker, jobs[purged])
    failures = "select job from redrive.failures order by job"
    assert database.column(failures) == [purged, kept, alive]

    forget(database.conn)
    assert database.column(failures) == [kept, alive]


def test_the_lists_of_old_campaigns_are_deleted_in_steps(database: Database) -> None:
    """A statement that deleted ten million rows at once was cancelled, and so was each next one."""
    campaigns = [make_campaign(database.conn, 50) for _ in range(3)]
    *old, kept = campaigns
    database.rows(
        "insert into redrive.campaign_jobs (campaign, n, id, redrives)"
        " select c, n, n, 0 from unnest(%s::bigint[]) c, generate_series(1, 50) n",
        campaigns,
    )
    database.rows(
        "update redrive.campaigns set created_at = now() - interval '2 years', state = 'done'"
        " where id = any (%s)",
        old,
    )
    left = "select count(*) from redrive.campaign_jobs"
    counts: list[int] = []
    for _ in range(7):
        database.rows("select redrive.forget_campaigns_v1('1 year', 1)")
        counts.append(database.value(left))

    assert counts[0] == 130, "a step deletes 20 rows for each campaign that it looks at"
    assert counts[-1] == 50
    assert database.column("select id from redrive.campaigns") == [kept]


def test_a_campaign_stays_as_long_as_its_dead_letters(database: Database) -> None:
    ids = make_dead_letters(database.conn, 2)
    empty, holding = make_campaign(database.conn), make_campaign(database.conn)
    redrive(database.conn, ids, campaign=holding)
    for campaign in (empty, holding):
        database.rows("select redrive.close_campaign_v1(%s, 2, '{}')", campaign)
    database.rows(
        "update redrive.campaigns set created_at = now() - interval '2 years'"
    )
    forget(database.conn)

    assert database.column("select id from redrive.campaigns") == [holding]


def test_each_chunk_is_a_sign_of_life(database: Database) -> None:
    ids = make_dead_letters(database.conn, 2)
    campaign = make_campaign(database.conn, matched=2)
    database.rows(
        "update redrive.campaigns set active_at = active_at - interval '1 hour'"
    )
    redrive(database.conn, ids[:1], campaign=campaign)

    (age,) = database.row("select clock_timestamp() - active_at from redrive.campaigns")
    assert age < timedelta(minutes=1)
