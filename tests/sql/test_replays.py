"""How fast, and whether at all, dead letters of a kind go back."""

import json
import time
from collections.abc import Sequence
from typing import Any, LiteralString

import pytest

from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.obstacles import OBSTACLES, Allow
from redrive.dead_letters.campaigns.store import plan, show, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import show as letter
from redrive.worker import store
from redrive.worker.store import RedriveTerms
from tests.factories import (
    claim,
    complete,
    failure,
    let_next_die,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
    redrive,
)
from tests.postgres import Connection, Database

KIND = "invoice.charge"
EVERY: LiteralString = "update redrive.dead_letters set category = %s, version = %s"
NO_BEGIN = json.loads(failure()) | {"detail": {"began": False}}


def register(
    conn: Connection,
    version: str = "2",
    kinds: Sequence[str] = (KIND,),
    **redrives: RedriveTerms,
) -> int:
    """Register a live worker. `redrives` are by kind, with `_` for `.`."""
    terms = {kind.replace("_", "."): said for kind, said in redrives.items()}
    said = store.Registration("w", version, 600.0, kinds, None, redrives=terms)
    return store.register(conn, said)


def blocked(conn: Connection, chosen: Filter, **allow: bool) -> dict[str, int]:
    """Return what a plan would leave; also check that the redrive leaves the same."""
    made = plan(conn, chosen, actor="ada", allow=Allow(**allow))
    assert made.plan is not None
    start(conn, made.plan, Terms(canaries=0), actor="ada", why="x")
    drive(conn, made.plan)
    found = show(conn, made.plan)
    assert found
    assert found["blocked"] == made.blocked
    return made.blocked


# Invalid payloads


@pytest.mark.parametrize(
    ("judged_by", "live", "goes"),
    [
        ("1", [], False),
        ("1", ["1"], False),
        ("1", ["2"], True),
        ("1", ["1", "2"], False),  # a rollout that has not ended
        (None, [""], False),  # nobody says a version
        (None, ["2"], True),
        ("1", [""], False),
        ("1x0", ["1_0"], True),  # a version is no pattern
        ("1_0", ["1_0"], False),
    ],
)
def test_an_invalid_payload_stays_until_another_version_is_there(
    database: Database, judged_by: str | None, live: list[str], *, goes: bool
) -> None:
    """The version that judged it must be gone, and another one live."""
    conn = database.conn
    dead = make_dead_letter(conn)
    database.rows(EVERY, "invalid", judged_by)
    for version in live:
        register(conn, version)
    register(conn, "9", ["another.kind"])
    found = letter(conn, dead)

    assert found
    assert found["obstacle"] == (None if goes else "invalid")
    assert blocked(conn, Filter(category=("invalid",))) == (
        {} if goes else {"invalid": 1}
    )


@pytest.mark.parametrize("fix", ["edit", "include", "undecryptable", "bug"])
def test_what_lets_an_invalid_payload_go(database: Database, fix: str) -> None:
    """An edit since its death, a flag; another cause is not blocked at all."""
    conn = database.conn
    dead = make_dead_letter(conn)
    database.rows(EVERY, "bug" if fix == "bug" else "invalid", "1")
    if fix == "undecryptable":
        database.rows("update redrive.dead_letters set reason = 'undecryptable'")
    if fix == "edit":
        database.rows(
            "insert into redrive.edits (job, n, redrives, actor, why, patch, paths, payload)"
            " values (%s, 1, 0, 'ada', 'x', '[]', '{/n}', '{}')",
            dead,
        )

    assert blocked(conn, Filter(ids=(dead,)), invalid=fix == "include") == {}


def test_an_edit_of_an_earlier_death_does_not_count(database: Database) -> None:
    """The corrected payload was invalid, too."""
    dead = make_dead_letter(database.conn)
    database.rows(EVERY, "invalid", "1")
    database.rows("update redrive.dead_letters set redrives = 1")
    database.rows(
        "insert into redrive.edits (job, n, redrives, actor, why, patch, paths, payload)"
        " values (%s, 1, 0, 'ada', 'x', '[]', '{/n}', '{}')",
        dead,
    )

    assert blocked(database.conn, Filter(ids=(dead,))) == {"invalid": 1}


@pytest.mark.parametrize("away", ["lost_at = now()", "is_closed = true"])
def test_only_live_workers_say_which_version_is_there(
    database: Database, away: LiteralString
) -> None:
    """One that is gone neither brings a version nor keeps an old one."""
    conn = database.conn
    dead = make_dead_letter(conn)
    database.rows(EVERY, "invalid", "1")
    for version in ("1", "2"):
        worker = register(conn, version)
        database.rows(f"update redrive.workers set {away} where id = %s", worker)

    assert blocked(conn, Filter(ids=(dead,))) == {"invalid": 1}
    register(conn, "2")
    assert blocked(conn, Filter(ids=(dead,))) == {}


def test_facts_of_other_jobs_do_not_count(database: Database) -> None:
    """Only an edit and a proof of the dead letter itself let it go."""
    conn = database.conn
    register(conn, kinds=("wire",), wire=ONCE)
    other = make_dead_letter(conn)
    bad = make_dead_letter(conn, idempotency_key="k")
    once = make_dead_letter(conn, "wire")
    database.rows(EVERY, "invalid", "1")
    database.rows(
        "update redrive.dead_letters set category = 'bug' where id = %s", once
    )
    database.rows(
        "insert into redrive.edits (job, n, redrives, actor, why, patch, paths, payload)"
        " values (%s, 1, 0, 'ada', 'x', '[]', '{/n}', '{}')",
        other,
    )
    database.rows(
        "update redrive.failures set detail = '{\"began\": false}' where job <> %s",
        once,
    )
    database.rows(
        "insert into redrive.completions (kind, key, job) values ('another.kind', 'k', 1)"
    )

    free = make_dead_letter(conn, idempotency_key="free")
    make_job(conn, "another.kind", idempotency_key="free")
    make_job(conn, idempotency_key="another")

    assert redrive(conn, [bad, once, free]) == {
        bad: "invalid",
        once: "not_repeatable",
        free: None,
    }


# Jobs that must not run twice


ONCE = RedriveTerms(repeatable=False)


def test_a_job_that_must_not_run_twice_goes_by_id_and_confirmed(
    database: Database,
) -> None:
    """No filter, group or confirmation alone is enough."""
    conn = database.conn
    register(conn, invoice_charge=ONCE)
    dead = make_dead_letter(conn)
    stays = {"not_repeatable": 1}

    assert blocked(conn, Filter(kind=(KIND,)), repeat=True) == stays
    assert blocked(conn, Filter(group="f"), repeat=True) == stays
    assert blocked(conn, Filter(ids=(dead,))) == stays
    assert redrive(conn, [dead]) == {dead: "not_repeatable"}
    assert blocked(conn, Filter(ids=(dead,)), repeat=True) == {}


def test_no_redrive_without_a_person_repeats_it(database: Database) -> None:
    """A worker that is back forgives losses, and redrives what they killed."""
    conn = database.conn
    register(conn, invoice_charge=ONCE)
    job, worker = make_job(conn), make_worker(conn)
    lost = failure(error_class="WorkerLost", category="lost")
    let_next_die(conn, worker, reason="killed_worker", failure=lost)
    database.rows("select redrive.forgive_v1(array[%s], array[1])", job)

    assert database.rows("select state, blocked from redrive.dead_letters") == [
        ("open", "not_repeatable")
    ]


@pytest.mark.parametrize(
    ("failures", "goes"),
    [
        ([NO_BEGIN], True),
        ([json.loads(failure())], False),
        ([json.loads(failure()), NO_BEGIN], False),
        ([NO_BEGIN, NO_BEGIN], True),
        ([None, NO_BEGIN], False),  # it was given back, perhaps by the handler
    ],
)
def test_what_never_began_goes_as_usual(
    database: Database, failures: list[dict[str, Any] | None], *, goes: bool
) -> None:
    """Each delivery must be proven by a failure from before the call."""
    conn = database.conn
    register(conn, invoice_charge=ONCE)
    dead = make_dead_letter(conn)
    database.rows("delete from redrive.failures")
    for delivery, found in enumerate(failures, 1):
        if found is not None:
            database.rows(
                "insert into redrive.failures (job, deliveries, attempt, error_class, message,"
                " category, fingerprint, detail) values (%s, %s, 1, 'E', '', 'other', 'f', %s)",
                dead,
                delivery,
                json.dumps(found["detail"]),
            )
    database.rows("update redrive.dead_letters set deliveries = %s", len(failures))

    assert blocked(conn, Filter(kind=(KIND,))) == (
        {} if goes else {"not_repeatable": 1}
    )


def test_the_longest_prefix_speaks_for_a_kind_and_the_last_worker_wins(
    database: Database,
) -> None:
    """HTTP targets may have a prefix, and a kind below it its own terms."""
    conn = database.conn
    for kind in ("mail.send", "mail.urgent", "mailx"):
        make_dead_letter(conn, kind)
    terms = {"mail.*": ONCE, "mail.urgent": RedriveTerms()}
    said = store.Registration(
        "w", "1", 600.0, ["mail.*", "mail.urgent"], None, redrives=terms
    )
    store.register(conn, said)

    made = plan(conn, Filter(), actor=None)
    assert (made.matched, made.blocked) == (3, {"not_repeatable": 1})
    store.register(conn, said._replace(redrives={}))
    assert plan(conn, Filter(), actor=None).blocked == {}
    assert database.value("select count(*) from redrive.kind_redrives") == 0


# A rate by kind


def said(database: Database, kinds: str, terms: dict[str, Any]) -> None:
    """Declare what a worker of these kinds says."""
    full = {
        kind: {"rate": rate, "repeatable": is_repeatable}
        for kind, (rate, is_repeatable) in terms.items()
    }
    database.rows(
        "select redrive.declare_redrives_v1(%s::text[], %s)", kinds, json.dumps(full)
    )


def terms_of(database: Database) -> dict[str, tuple[float | None, bool]]:
    rows = database.rows("select kind, rate, is_repeatable from redrive.kind_redrives")
    return {kind: (rate, is_repeatable) for kind, rate, is_repeatable in rows}


def test_a_worker_speaks_for_its_own_kinds_alone(database: Database) -> None:
    """Terms that a worker no longer states go; the kinds of others stay."""
    said(database, "{a,b}", {"a": (1, True), "b": (None, False)})
    said(database, "{c}", {"c": (2, True), "a": (9, True), "d": (9, True)})
    assert terms_of(database) == {"a": (1, True), "b": (None, False), "c": (2, True)}

    before = database.column("select xmin::text from redrive.kind_redrives order by 1")
    said(database, "{a,b}", {"a": (1, True), "b": (None, False)})
    assert before == database.column(
        "select xmin::text from redrive.kind_redrives order by 1"
    )

    said(database, "{a,b}", {"a": (1, False)})
    assert terms_of(database) == {"a": (1, False), "c": (2, True)}


def test_a_worker_does_not_wait_to_speak(database: Database) -> None:
    """A session that holds the rows must not keep workers from starting."""
    said(database, "{a,b}", {"a": (1, True), "b": (2, True)})
    holding = database.transaction("select from redrive.kind_redrives for update")
    database.rows("set lock_timeout = '5s'")

    said(database, "{a,b}", {"a": (3, True)})
    holding.rows("rollback")
    assert terms_of(database) == {"a": (1, True), "b": (2, True)}


def test_two_campaigns_of_a_kind_keep_its_rate_together(database: Database) -> None:
    """Counted when jobs begin, whichever worker or campaign released them.

    A pause of all workers bursts no more, and the rate survives a restart of all.
    """
    conn = database.conn
    rate = 20.0
    worker = register(conn, invoice_charge=RedriveTerms(rate))
    make_dead_letters(conn, 300)
    going: list[int] = []
    for queue_part in (Filter(limit=150), Filter()):
        made = plan(conn, queue_part, actor="ada")
        assert made.plan
        assert made.rates == {KIND: rate}
        start(conn, made.plan, Terms(rate=500, canaries=0), actor="ada", why="x")
        going.append(made.plan)
    begun: list[tuple[float, float]] = []  # of each job, from when until when

    def run(seconds: float, least: int) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(begun) < least:
            for campaign in going:
                drive(conn, campaign)
            since = time.monotonic()
            jobs = claim(conn, worker, 50)
            begun.extend([(since, time.monotonic())] * len(jobs))
            complete(conn, worker, *jobs)
            store.tend_limits(conn)

    run(1.5, 10)
    store.retire(conn, worker)
    time.sleep(0.5)
    worker = register(conn, "3", invoice_charge=RedriveTerms(rate))
    run(1.5, 20)
    for n, (since, _) in enumerate(begun):
        for m, (_, until) in enumerate(begun[n:], n):
            assert m - n + 1 <= 2 + (until - since) * rate + 1
    waiting = database.value("select count(*) from redrive.jobs")
    assert waiting <= 4 * rate, "a pause of the campaigns stops all others"


def test_the_rate_is_of_redrives_alone_and_the_last_worker_says_it(
    database: Database,
) -> None:
    """New jobs of the kind are not limited; a rate that is gone limits nothing."""
    conn = database.conn
    worker = register(conn, invoice_charge=RedriveTerms(0.01))
    dead = make_dead_letters(conn, 3)
    redrive(conn, dead)
    new = [make_job(conn) for _ in range(3)]

    first = {job.id for job in claim(conn, worker, 50)}
    assert first >= set(new)
    assert len(first - set(new)) <= 1
    register(conn, invoice_charge=RedriveTerms(1000.0))
    assert database.column("select rate from redrive.kind_redrives") == [1000.0]
    register(conn)
    store.tend_limits(conn)
    begun = first | {job.id for job in claim(conn, worker, 50)}
    assert len({*dead, *new} - begun) <= 1, "one was given its time before"


def test_a_step_and_a_plan_cost_no_more_for_a_rate(database: Database) -> None:
    """The look at a campaign knows the rates of its kinds."""
    conn = database.conn
    register(conn, invoice_charge=RedriveTerms(5.0))
    make_dead_letters(conn, 100)
    made = plan(conn, Filter(), actor="ada")
    assert made.plan
    start(conn, made.plan, Terms(canaries=0), actor="ada", why="x")
    for _ in range(5):
        drive(conn, made.plan)
    found = show(conn, made.plan)

    assert found
    assert (found["rates"], found["redriven"]) == ({KIND: 5.0}, 10)


def test_each_obstacle_has_words(database: Database) -> None:
    """The causes of redrive_obstacle and the words for them are the same."""
    body = database.value(
        "select pg_get_functiondef('redrive.redrive_obstacle_v2'::regproc)"
    )

    known = OBSTACLES.keys() - {
        "edited",
        "not_waiting",
    }  # steps of campaigns find these
    assert all(f"'{cause}'" in body for cause in known)
    assert body.count("THEN '") == len(known)
