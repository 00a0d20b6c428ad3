"""What somebody added to our tables refuses an ending: it is that job's, and stops no other one."""

from typing import LiteralString

import pytest

from redrive import enqueue
from tests.flow import look
from tests.flow.harness import Worker, Workers, wait_for
from tests.postgres import Database

KEY = "customer-4111"
CHECK: LiteralString = """
    alter table redrive.completions add constraint short_keys check (length(key) < 5)"""
TRIGGER: LiteralString = """
    create function public.refuse() returns trigger language plpgsql as $$
    begin
        if length(new.key) < 5 then return new; end if;
        raise exception 'no such key: %', new.key;
    end $$;
    create trigger refuse before insert on redrive.completions
    for each row execute function public.refuse()"""
FOREIGN_KEY: LiteralString = """
    create table public.invoices (job bigint constraint invoice_job references redrive.jobs (id));
    insert into public.invoices select id from redrive.jobs where payload ? 'invoice'"""


def run_now(database: Database, job: int) -> None:
    """Make it due at once, if it waits for its time.

    An operator does the same. An update of `run_at` by hand may move a claimed job, and then
    that job is claimed again.
    """
    database.rows("select redrive.run_now_v1(array[%s::bigint], 'ada', 'test')", job)


def others_complete(database: Database, worker: Worker, others: list[int]) -> None:
    wait_for(lambda: look.counted(database).get("completed") == len(others))
    assert worker.process.poll() is None, worker.log.read_text()[-4000:]


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (
            CHECK,
            "CheckViolation (23514), by constraint short_keys of table redrive.completions",
        ),
        (TRIGGER, "RaiseException (P0001), in public.refuse()"),
    ],
    ids=["a constraint", "a trigger"],
)
def test_a_job_whose_completion_is_refused_dies_of_that_alone(
    database: Database, workers: Workers, added: LiteralString, said: str
):
    database.conn.execute(added)
    others = [enqueue(database.conn, "work.sync") for _ in range(20)]
    refused = enqueue(
        database.conn,
        "work.sync",
        {"at_once": True},
        idempotency_key=KEY,
        max_attempts=1,
    )
    others += [
        enqueue(database.conn, "work.sync", idempotency_key=f"k{n}") for n in range(20)
    ]
    worker = workers("--slots", "4")
    others_complete(database, worker, others)
    wait_for(lambda: look.dead(database, refused))

    assert look.live(database) == 0
    letter = look.dead(database, refused)
    assert letter is not None
    assert (letter.error_class, letter.message) == (
        "CompletionRefused",
        f"its handler succeeded, and the database refused to complete it: {said}",
    )
    assert len(workers.starts(refused)) == 1
    assert KEY not in str(database.rows("select message, detail from redrive.failures"))


def test_a_job_that_may_not_go_at_all_stays_and_runs_no_more_often_than_it_may(
    database: Database, workers: Workers
):
    """It cannot die either: its row is wanted where it is."""
    kept = enqueue(database.conn, "work.sync", {"invoice": True}, max_attempts=2)
    others = [enqueue(database.conn, "work.sync") for _ in range(40)]
    database.conn.execute(FOREIGN_KEY)
    worker = workers("--slots", "4")
    others_complete(database, worker, others)
    for attempt in range(1, 5):
        run_now(database, kept)
        wait_for(lambda attempt=attempt: look.row(database, kept)["attempt"] == attempt)

    assert len(workers.starts(kept)) == 2
    assert worker.process.poll() is None
    database.conn.execute("drop table public.invoices")
    run_now(database, kept)
    wait_for(lambda: look.live(database) == 0)
    assert look.reasons(database) == {kept: "attempts_exhausted"}


PREREQUISITE: LiteralString = """
    create function public.refuse() returns trigger language plpgsql as $$
    begin
        if length(new.key) < 5 then return new; end if;
        raise object_not_in_prerequisite_state;
    end $$;
    create trigger refuse before insert on redrive.completions
    for each row execute function public.refuse()"""


def test_an_error_that_may_pass_holds_up_the_job_that_meets_it_and_no_other(
    database: Database, workers: Workers
):
    """Such an error ended the worker, and each that came after it."""
    database.conn.execute(PREREQUISITE)
    held_up = enqueue(database.conn, "work.sync", idempotency_key=KEY)
    others = [
        enqueue(database.conn, "work.sync", idempotency_key=f"k{n}") for n in range(40)
    ]
    worker = workers("--slots", "4")
    others_complete(database, worker, others)
    assert look.live(database) == 1

    database.conn.execute("drop function public.refuse cascade")
    wait_for(lambda: look.live(database) == 0)
    assert look.reasons(database) == {}
    assert [len(workers.starts(job)) for job in (held_up, *others)] == [1] * 41


def test_a_worker_outlives_a_database_that_can_settle_nothing_and_then_claim_nothing(
    database: Database, workers: Workers
):
    database.conn.execute(PREREQUISITE)
    worker = workers("--slots", "4")
    jobs = [
        enqueue(database.conn, "work.sync", idempotency_key=f"{KEY}-{n}")
        for n in range(20)
    ]
    wait_for(lambda: worker.metric("redrive_db_errors_total", operation="settle") > 2)
    assert look.live(database) == len(jobs)
    database.rows("alter table redrive.lanes rename to gone")
    jobs += [enqueue(database.conn, "work.sync") for _ in range(20)]
    wait_for(lambda: worker.metric("redrive_db_errors_total", sqlstate="42P01") > 0)

    database.rows("alter table redrive.gone rename to lanes")
    database.conn.execute("drop function public.refuse cascade")
    wait_for(lambda: look.live(database) == 0)
    assert look.reasons(database) == {}
    assert [len(workers.starts(job)) for job in jobs] == [1] * len(jobs)
    assert worker.process.poll() is None
