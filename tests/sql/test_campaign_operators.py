"""What operators do with a campaign: pause, cancel, and approve as the second of two."""

import contextlib
from typing import Any

import psycopg
import pytest

from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.drive import drive, watch
from redrive.dead_letters.campaigns.store import plan, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from tests.factories import (
    claim,
    complete,
    depths,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    settle,
)
from tests.postgres import Database
from tests.sql.test_campaigns import AT_ONCE, counts, run_all, started, state_of
from tests.sql.test_edit import edit

KIND = "invoice.charge"


def test_a_paused_campaign_puts_nothing_back_and_counts_still(
    database: Database,
) -> None:
    make_dead_letters(database.conn, 50)
    campaign = started(database.conn, terms=Terms())
    drive(database.conn, campaign)
    campaigns.pause(database.conn, campaign, actor="bo", why="lunch")
    run_all(database.conn)
    for _ in range(3):
        drive(database.conn, campaign)

    assert counts(database.conn, campaign) == ("paused", 3, 3, 0, 0, 47, {})
    with pytest.raises(psycopg.Error, match="only a running campaign can be paused"):
        campaigns.pause(database.conn, campaign, actor="bo", why="lunch")


def test_a_cancelled_campaign_takes_back_what_nobody_has_begun(
    database: Database,
) -> None:
    ids = make_dead_letters(database.conn, 6)
    before = depths(database.conn)
    history = (
        "select d.id, d.reason, d.deliveries, d.died_at, d.state, d.campaign, d.settled_at,"
        " d.outcome from redrive.dead_letters d order by 1"
    )
    as_it_was = database.rows(history)
    campaign = started(database.conn)
    database.rows(
        "select redrive.step_campaign_v1(%s, 0, 'running', 4, null, null)", campaign
    )
    worker = make_worker(database.conn)
    running, tried = claim(database.conn, worker, 2)
    settle(database.conn, worker, tried, "retry", delay=60.0)

    assert campaigns.cancel(database.conn, campaign, actor="bo", why="wrong group") == 2
    assert counts(database.conn, campaign) == ("cancelled", 4, 0, 0, 2, 2, {})
    assert database.column("select id from redrive.jobs order by id") == [
        running.id,
        tried.id,
    ]
    assert [r for r in database.rows(history) if r[0] in ids[2:]] == as_it_was[2:]

    complete(database.conn, worker, running)
    drive(database.conn, campaign)
    assert counts(database.conn, campaign) == ("cancelled", 4, 1, 0, 2, 2, {})
    left = depths(database.conn)["default"]
    assert (left.dead, left.ready + left.scheduled + left.running) == (4, 1)
    assert before["default"].dead == 6
    assert database.row(
        "select action, n from redrive.audit order by id desc limit 1"
    ) == ("cancel redrive", 2)


def test_nobody_claims_what_is_ended_while_its_lane_is_forgotten(
    database: Database,
) -> None:
    """The row of the lane has nothing to do with it."""
    conn = database.conn
    worker = make_worker(conn)
    make_job(conn)
    complete(conn, worker, *claim(conn, worker))
    database.rows("delete from redrive.names")
    forgetter, canceller = database.session(), database.session()
    # a look that began before the job came
    forgetter.rows("begin isolation level repeatable read")
    forgetter.rows("select from redrive.jobs")
    job = make_job(conn)
    assert forgetter.value("select redrive.forget_lanes_v1(10)") == 1
    canceller.rows("begin")
    cancelled = canceller.rows(
        "select * from redrive.cancel_v1(%s, 'ada', 'why')", [job]
    )
    assert cancelled == [(job, "cancelled")]
    forgetter.rows("commit")
    assert claim(database.session().conn, worker) == []
    canceller.rows("commit")
    assert claim(conn, worker) == []


def test_a_claim_and_a_cancel_never_have_the_same_job(database: Database) -> None:
    """The claim holds the mark of the lane; the cancel waits for it and sees the job begun."""
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    drive(database.conn, campaign)
    other = database.transaction()
    worker = make_worker(other.conn)
    assert len(claim(other.conn, worker)) == 1
    operator = database.session()
    taken = operator.start(
        lambda: campaigns.cancel(operator.conn, campaign, actor="bo", why="x")
    )
    database.wait_until_blocked(operator)
    other.rows("commit")

    assert taken.result(60) == 0
    assert database.value("select count(*) from redrive.jobs") == 1


def test_the_next_of_an_ordering_key_moves_up_when_one_is_taken_back(
    database: Database,
) -> None:
    dead = make_dead_letter(database.conn, ordering_key="o")
    campaign = started(database.conn)
    drive(database.conn, campaign)
    later = make_job(database.conn, ordering_key="o")
    campaigns.cancel(database.conn, campaign, actor="bo", why="x")

    assert [job.id for job in claim(database.conn, make_worker(database.conn))] == [
        later
    ]
    assert database.column(
        "select id from redrive.dead_letters where state = 'open'"
    ) == [dead]


def test_what_is_taken_back_holds_its_key_and_counts_as_dead_in_its_batch(
    database: Database,
) -> None:
    batch = database.value('select redrive.open_batch_v1(null, \'{"kind": "over"}\')')
    make_dead_letter(database.conn, ordering_key="o")
    database.rows("update redrive.dead_letters set holds_key = true, batch = %s", batch)
    campaign = started(database.conn)
    drive(database.conn, campaign)
    make_job(database.conn, ordering_key="o")
    campaigns.cancel(database.conn, campaign, actor="bo", why="x")

    assert claim(database.conn, make_worker(database.conn)) == []
    assert database.value("select sum(dead) from redrive.batch_deltas") == 0


def test_a_viewer_lists_and_watches(database: Database) -> None:
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    viewer = database.connect("redrive_viewer")
    watched = watch(viewer, campaign, every=0.0)

    assert [next(watched)["state"] for _ in range(2)] == ["waiting", "waiting"]
    assert [found["campaign"] for found in campaigns.find(viewer)] == [campaign]


def test_an_operator_waits_for_workers_who_take_the_steps(database: Database) -> None:
    """Who takes a step says how many jobs it releases, whatever the campaign's terms are."""
    make_dead_letters(database.conn, 1)
    campaign = started(database.conn)
    operator = database.login("redrive_operator")
    watched = watch(operator.conn, campaign, every=0.0)

    assert [next(watched)["state"] for _ in range(2)] == ["waiting", "waiting"]
    drive(database.conn, campaign)
    assert next(watched)["redriven"] == 1


# Two people


def make_one_for_two(database: Database) -> None:
    """Make a dead letter of a kind whose campaigns need two people."""
    make_dead_letters(database.conn, 1, kind=KIND)
    database.rows("select redrive.say_approvals_v1(array[%s], array[%s])", KIND, KIND)


def test_a_kind_that_needs_two_is_not_started_by_who_planned_it(
    database: Database,
) -> None:
    make_one_for_two(database)
    operator = database.login("redrive_operator")
    made = plan(operator.conn, Filter(), actor="ada")

    with pytest.raises(psycopg.Error, match="needs two people; a database login other"):
        start(operator.conn, made.plan, AT_ONCE, actor="not ada", why="x")

    start(database.conn, made.plan, AT_ONCE, actor="bo", why="x")
    drive(database.conn, made.plan)
    found = state_of(database.conn, made.plan)
    assert (found["planned_by"], found["planned_login"]) == ("ada", "redrive_operator")
    assert (found["actor"], found["login"]) == ("bo", database.conn.info.user)
    assert found["redriven"] == 1


def test_one_person_behind_two_logins_is_one_person(database: Database) -> None:
    """With a token of each role, somebody started what they had planned."""
    make_one_for_two(database)
    operator = database.login("redrive_operator")
    made = plan(operator.conn, Filter(), actor="ada")

    with pytest.raises(psycopg.Error, match="ada planned this, so another person"):
        start(database.conn, made.plan, AT_ONCE, actor="ada", why="x")
    assert state_of(database.conn, made.plan)["state"] == "planned"


@pytest.mark.parametrize(
    "alias",
    [
        *("Ada@Corp", "ada@corp\u200b", "\uff21da@corp", " ada@corp", "\u00c1da@corp"),
        *("\u0430da@corp", "\u0410da@corp", "ad\u03b1@c\u03bfrp"),
    ],
)
def test_a_name_in_another_form_is_no_other_person(
    refusing: Database, alias: str
) -> None:
    make_one_for_two(refusing)
    operator = refusing.login("redrive_operator")
    made = plan(operator.conn, Filter(), actor="ada@corp")

    with pytest.raises(psycopg.Error, match="so another person must start it"):
        start(refusing.conn, made.plan, AT_ONCE, actor=alias, why="x")


def test_case_does_not_count_in_any_alphabet_or_locale(database: Database) -> None:
    """A database with the locale C leaves each letter beyond ASCII as it is."""
    upper, lower = "ÄÉØŁ БЙЖЯ ΑΛΣΩ", "äéøł бйжя αλσω"
    query = (
        'select redrive.person_v1(%s collate "C") = redrive.person_v1(%s collate "C")'
    )

    assert database.column(query, upper, lower) == [True]
    assert database.column(query, "山田", "鈴木") == [False]


NAME = 'agent "helper" on behalf of "ada"'
WAYS = ("oidc:bo@corp", "proxy:bo@corp", "token:bo", "bo")


@pytest.mark.parametrize("first", ["oidc:ada@corp", "proxy:ada", "token:ada", "ada"])
def test_people_of_two_sign_in_methods_could_be_one_person(
    database: Database, first: str
) -> None:
    """Somebody has an account of the provider, a token, and a login of the database."""
    make_one_for_two(database)
    console = login(database, "redrive_operator", "redrive_console")
    refused = pytest.raises(psycopg.Error, match="another person must start it, and in")
    for second in WAYS:
        made = plan(console, Filter(), actor=first)
        is_sure = first.split(":")[:-1] == second.split(":")[:-1]
        with contextlib.nullcontext() if is_sure else refused:
            start(database.conn, made.plan, AT_ONCE, actor=second, why="x")


@pytest.mark.parametrize(
    "actor",
    [
        *WAYS[:3],
        "OIDC:bo@corp",
        " oidc:bo",
        "o\u200bidc:bo",
        "\u043eidc:bo",
        "oidc\uff1abo",
    ],
)
def test_no_login_but_the_consoles_speaks_as_somebody_who_signed_in(
    database: Database, actor: str
) -> None:
    make_dead_letters(database.conn, 1)
    made = plan(database.conn, Filter(), actor="ada")
    operator = login(database, "redrive_operator")
    acts = (
        lambda: plan(operator, Filter(), actor=actor),
        lambda: start(operator, made.plan, AT_ONCE, actor=actor, why="x"),
        lambda: operator.execute(
            "select redrive.plan_retry_v1('f1', %(actor)s)", {"actor": actor}
        ),
        lambda: operator.execute(
            "select redrive.pause_v1('default', %(actor)s, 'x')", {"actor": actor}
        ),
    )

    for act in acts:
        with pytest.raises(psycopg.Error, match="grant redrive_console to it"):
            act()


@pytest.mark.parametrize(
    "actor", [NAME, 'Agent  "x" on behalf of "bo"', "bo\nada: approved", "bo\u2028ada"]
)
def test_no_operator_speaks_as_an_agent_or_writes_a_second_line(
    database: Database, actor: str
) -> None:
    operator = login(database, "redrive_operator")

    with pytest.raises(psycopg.Error, match="actor: "):
        operator.execute(
            "select redrive.pause_v1('default', %(actor)s, 'x')", {"actor": actor}
        )
    assert database.value("select count(*) from redrive.audit") == 0


def login(database: Database, *roles: str) -> psycopg.Connection[tuple[Any, ...]]:
    """Return the session of a login that is a member of these roles alone."""
    name = "_".join(["test", *roles])
    database.rows(
        f"do $$ begin create role {name} login in role {', '.join(roles)};"  # type: ignore[arg-type]
        " exception when duplicate_object or unique_violation then null; end $$"
    )
    session = database.session()
    session.conn.execute(f"set session authorization {name}")  # type: ignore[arg-type]
    return session.conn


def test_a_kind_needs_two_until_a_worker_says_otherwise(database: Database) -> None:
    for twice, left in (("{a,b,elsewhere}", ["a", "b"]), ("{b}", ["b"]), ("{}", [])):
        database.rows("select redrive.say_approvals_v1('{a,b}', %s::text[])", twice)
        assert database.column("select kind from redrive.approvals order by 1") == left


# What is approved are values


def test_a_plan_is_not_started_if_its_dead_letters_were_edited_since(
    database: Database,
) -> None:
    """The second person would approve something else than the first one planned."""
    ids = [make_dead_letter(database.conn, payload={"n": n}) for n in range(5)]
    made = plan(database.conn, Filter(), actor="ada")
    for job in ids[:3]:
        assert edit(database.conn, job, {"n": 9}) is None

    with pytest.raises(psycopg.Error, match="3 of its dead letters were edited"):
        start(database.conn, made.plan, AT_ONCE, actor="bo", why="x")

    assert state_of(database.conn, made.plan)["state"] == "planned"
    again = plan(database.conn, Filter(), actor="ada")
    start(database.conn, again.plan, AT_ONCE, actor="bo", why="x")
    drive(database.conn, again.plan)
    assert state_of(database.conn, again.plan)["redriven"] == 5


def test_an_edit_that_is_undone_keeps_no_plan_from_its_start(
    database: Database,
) -> None:
    job = make_dead_letter(database.conn, payload={"n": 1})
    made = plan(database.conn, Filter(), actor="ada")
    for n in (9, 1):
        assert edit(database.conn, job, {"n": n}) is None

    start(database.conn, made.plan, AT_ONCE, actor="bo", why="x")
    drive(database.conn, made.plan)
    assert state_of(database.conn, made.plan)["redriven"] == 1


@pytest.mark.parametrize("column", ["payload", "headers"])
def test_what_changed_without_an_edit_is_not_released(
    database: Database, column: str
) -> None:
    """Whoever changed it, and however late."""
    changed, same = make_dead_letters(database.conn, 2)
    campaign = started(database.conn)
    database.rows(
        f"update redrive.dead_letters set {column} = '{{\"x\": 1}}' where id = %s",  # type: ignore[arg-type]
        changed,
    )
    drive(database.conn, campaign)

    assert database.column("select id from redrive.jobs") == [same]
    assert state_of(database.conn, campaign)["blocked"] == {"edited": 1}
    assert database.rows(
        "select state, blocked from redrive.dead_letters where id = %s", changed
    ) == [("open", "edited")]


@pytest.mark.parametrize(("twice", "released"), [("{}", 2), ("{invoice.charge}", 1)])
def test_who_resumes_approves_edits_except_of_kinds_that_need_two(
    database: Database, twice: str, released: int
) -> None:
    edited, _ = make_dead_letters(database.conn, 2)
    campaign = started(database.conn)
    campaigns.pause(database.conn, campaign, actor="ada", why="a typo")
    assert edit(database.conn, edited, {"n": 9}) is None
    database.rows(
        "select redrive.say_approvals_v1('{invoice.charge}', %s::text[])", twice
    )
    campaigns.resume(database.conn, campaign, actor="ada", why="corrected")
    drive(database.conn, campaign)

    assert state_of(database.conn, campaign)["redriven"] == released


@pytest.mark.parametrize("is_started", [True, False])
def test_what_is_encrypted_anew_is_what_was_planned(
    database: Database, is_started: bool
) -> None:
    sealed, other = make_dead_letters(database.conn, 2)
    made = plan(database.conn, Filter(), actor="ada").plan
    assert made
    if is_started:
        start(database.conn, made, AT_ONCE, actor="ada", why="x")
    envelope = '{"$redrive": {"k": "new", "n": "AA==", "c": "AA=="}}'
    database.rows(
        "select redrive.reencrypt_v1(null, 'dead_letters', %s, '{0}',"
        " (select array_agg(payload) from redrive.dead_letters where id = %s),"
        " array[%s::jsonb], '{s}')",
        [sealed],
        sealed,
        envelope,
    )
    if not is_started:
        start(database.conn, made, AT_ONCE, actor="ada", why="x")
    drive(database.conn, made)

    assert database.column("select id from redrive.jobs order by id") == [sealed, other]


def test_nothing_is_encrypted_anew_while_its_campaign_is_locked(
    database: Database,
) -> None:
    """Its digest could not follow."""
    (job,) = make_dead_letters(database.conn, 1)
    made = plan(database.conn, Filter(), actor="ada").plan
    database.transaction("select from redrive.campaigns where id = %s for update", made)

    assert (
        database.value(
            "select redrive.reencrypt_v1(null, 'dead_letters', %s, '{0}',"
            " (select array_agg(payload) from redrive.dead_letters),"
            ' array[\'{"$redrive": {"k": "n"}}\'::jsonb], \'{s}\')',
            [job],
        )
        == 0
    )
