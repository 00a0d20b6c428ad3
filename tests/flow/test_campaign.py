"""Campaigns with real workers: whoever is alive carries them on, whoever is killed."""

import os
import signal
import subprocess
import sys
import time
from bisect import bisect_left

import pytest

from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from tests.factories import make_dead_letters
from tests.flow.harness import Workers, kill, wait_for
from tests.postgres import Database


def test_a_campaign_goes_on_though_its_starter_and_a_worker_are_killed(
    database: Database, workers: Workers
) -> None:
    """kill -9 of `dlq redrive`, then of a worker: rows in are rows out, with one new life each."""
    ids = make_dead_letters(database.conn, 40, kind="work.sync")
    first, _ = (workers().wait_ready() for _ in range(2))
    options = ("--all", "--canaries", "3", "--rate", "15", "--why", "fixed", "--yes")
    starter = subprocess.Popen(
        [sys.executable, "-m", "redrive", "dlq", "redrive", *options],
        env=os.environ | {"REDRIVE_DATABASE_URL": database.url},
    )
    put_back = "select coalesce(max(redriven), 0) from redrive.campaigns"
    wait_for(lambda: database.value(put_back) >= 3)
    starter.kill()
    starter.wait()
    wait_for(lambda: database.value(put_back) >= 8)
    kill(database, first)
    wait_for(lambda: database.value("select state from redrive.campaigns") == "done")

    (found,) = campaigns.find(database.conn)
    assert (found["redriven"], found["succeeded"], found["waiting"]) == (40, 40, 0)
    left = "select id, redrives, state, outcome from redrive.dead_letters order by id"
    assert database.rows(left) == [(job, 0, "resolved", "succeeded") for job in ids]
    assert database.value("select count(*) from redrive.jobs") == 0
    assert {job for job in ids if workers.starts(job)} == set(ids)


def test_workers_alone_stop_what_dies_again(
    database: Database, workers: Workers
) -> None:
    make_dead_letters(database.conn, 30, kind="fail.bug")
    workers().wait_ready()
    made = campaigns.plan(database.conn, Filter(), actor="ada")
    assert made.plan is not None
    campaigns.start(database.conn, made.plan, Terms(), actor="ada", why="fixed")
    wait_for(lambda: database.value("select state from redrive.campaigns") == "aborted")

    assert database.row("select redriven, dead_again from redrive.campaigns") == (3, 3)
    assert (
        database.value("select count(*) from redrive.dead_letters where state = 'open'")
        == 30
    )


def test_workers_carry_a_campaign_through_of_which_few_die_again(
    database: Database, workers: Workers
) -> None:
    """They end hundreds between two looks, and 3 % of them die: fewer than the 10 % allowed."""
    for _ in range(100):
        make_dead_letters(database.conn, 32, kind="work.sync")
        make_dead_letters(database.conn, 1, kind="fail.bug")
    workers().wait_ready()
    made = campaigns.plan(database.conn, Filter(), actor="ada")
    assert made.plan is not None
    campaigns.start(
        database.conn, made.plan, Terms(canaries=0), actor="ada", why="fixed"
    )
    over = "select state in ('aborted', 'done') from redrive.campaigns"
    wait_for(lambda: database.value(over))

    (found,) = campaigns.find(database.conn)
    assert (found["state"], found["said"]) == ("done", None)
    assert (found["succeeded"], found["dead_again"]) == (3_200, 100)


@pytest.mark.waits
def test_no_second_has_more_than_the_rate_after_the_pauses_of_a_worker(
    database: Database, workers: Workers
) -> None:
    """150 and 162 jobs ran within one second at 100/s. The times are those in the database."""
    make_dead_letters(database.conn, 400, kind="work.sync")
    database.rows("create table public.turns (due timestamptz)")
    database.rows(
        "create function public.note_turn() returns trigger language plpgsql security definer"
        " as 'begin insert into public.turns values (new.run_at); return null; end'"
    )
    database.rows(
        "create trigger note_turn after insert on redrive.jobs"
        " for each row execute function public.note_turn()"
    )
    worker = workers().wait_ready()
    made = campaigns.plan(database.conn, Filter(), actor="ada")
    assert made.plan is not None
    terms = Terms(canaries=0, rate=50.0)
    campaigns.start(database.conn, made.plan, terms, actor="ada", why="fixed")
    put_back = "select redriven from redrive.campaigns"
    for before, seconds in ((1, 1.0), (160, 5.0)):
        wait_for(lambda fed=before: database.value(put_back) >= fed)
        worker.signal(signal.SIGSTOP)
        time.sleep(seconds)
        worker.signal(signal.SIGCONT)
    wait_for(lambda: database.value("select state from redrive.campaigns") == "done")

    due = [
        at.timestamp()
        for at in database.column("select due from public.turns order by due")
    ]
    assert len(due) == 400
    assert max(bisect_left(due, at + 0.99) - n for n, at in enumerate(due)) <= 50


def test_a_handler_that_wants_two_people_gets_them(
    database: Database, workers: Workers
) -> None:
    workers().wait_ready()

    wait_for(
        lambda: database.column("select kind from redrive.approvals") == ["work.two"]
    )
