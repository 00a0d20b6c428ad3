"""dlq explain: on real dead letters and samples, without secrets, at a bounded cost."""

import json
import re
from typing import Any

from redrive.dead_letters.explain import facts as explaining
from redrive.rules.payloads.facts import facts_of
from redrive.worker import store
from redrive.worker.protocol import Sampled
from tests.cli.conftest import Redrive
from tests.factories import (
    claim,
    claim_one,
    failure,
    let_die,
    make_dead_letters,
    make_job,
    make_worker,
    settle,
)
from tests.postgres import Database

GROUP, OTHER = "f1f1f1f1f1f1f1f1", "e2e2e2e2e2e2e2e2"
CANARY = "Zx9-canary"


def charge(number: int, currency: str) -> dict[str, Any]:
    return {
        "currency": currency,
        "customer": f"c{number}",
        "amount": number * 37 % 100,
        "password": CANARY,
        "memo": CANARY,
    }


def die(
    database: Database, count: int, fingerprint: str, currency: str, node: str
) -> None:
    """Let jobs die that differ in most fields."""
    conn = database.conn
    for number in range(count):
        make_job(
            conn,
            payload=charge(number, currency),
            headers={"source": "web"},
            tenant="acme",
        )
    worker = make_worker(conn)
    for job in claim(conn, worker, count):
        detail = {"node": node, "version": "1.5.0", "secret_fields": ["memo"]}
        let_die(
            conn, worker, job, failure=failure(fingerprint=fingerprint, detail=detail)
        )
    store.fold(conn)


def succeed(
    database: Database, count: int, node: str = "node-1", **changed: Any
) -> None:
    """Offer samples as a runner does."""
    samples = [
        facts_of(
            charge(n, "EUR") | changed, {"source": "web"}, "acme", declared={"memo"}
        )
        | {"node": node, "version": "1.5.0", "queue": "default"}
        for n in range(count)
    ]
    offered = [Sampled("invoice.charge", json.dumps(facts)) for facts in samples]
    assert store.keep_samples(database.conn, offered) == count


def test_the_cause_is_named_with_its_counts(
    database: Database, redrive: Redrive
) -> None:
    die(database, 31, GROUP, "XAU", "node-1")
    succeed(database, 60)

    found = redrive("dlq", "explain", "f1f1", "--json").json

    assert (found["group"], found["open"], len(found["findings"])) == (GROUP, 31, 1)
    expected = {
        "field": "payload.currency",
        "value": "XAU",
        "share": 1.0,
        "base_share": 0.0,
        "n": 31,
        "base_n": 60,
    }
    assert found["findings"][0] | expected == found["findings"][0]
    assert redrive("dlq", "explain", GROUP).out == (
        '31 of 31 have payload.currency = "XAU"; 0 of 60 that succeeded do\n'
        "looked at 31 jobs of the group, 60 of the kind that succeeded,"
        " 0 other dead letters of the kind, 0 of other kinds\n"
    )
    report = redrive("dlq", "report", GROUP).out
    assert (
        '- `31 of 31 have payload.currency = "XAU"; 0 of 60 that succeeded do`'
        in report
    )
    assert redrive("dlq", "explain", "nothing").code == 2


def test_without_samples_other_dead_letters_of_the_kind_are_compared_with(
    database: Database, redrive: Redrive
) -> None:
    die(database, 25, OTHER, "XAU", "node-1")
    die(database, 25, GROUP, "XAU", "node-7")

    (finding,) = redrive("dlq", "explain", GROUP, "--json").json["findings"]

    assert (finding["field"], finding["value"], finding["base"]) == (
        "node",
        "node-7",
        "dead",
    )


def test_where_nothing_stands_out_that_is_said(
    database: Database, redrive: Redrive
) -> None:
    die(database, 4, GROUP, "EUR", "node-1")
    assert redrive("dlq", "explain", GROUP).out.startswith("too few to compare")
    die(database, 20, GROUP, "EUR", "node-1")
    assert redrive("dlq", "explain", GROUP).out.startswith("nothing to compare with")
    succeed(database, 60)
    assert redrive("dlq", "explain", GROUP).out.startswith("nothing stands out\n")
    assert redrive("dlq", "explain", GROUP, "--json").json["findings"] == []
    assert "in common" not in redrive("dlq", "report", GROUP).out


def test_no_secret_is_shown_though_it_is_what_they_have_in_common(
    database: Database, redrive: Redrive
) -> None:
    """A secret that others have not is told by its presence, never by its value."""
    die(database, 25, GROUP, "EUR", "node-1")
    succeed(database, 60, password="other", memo="other")

    shown = (
        redrive("dlq", "explain", GROUP, "--json").out
        + redrive("dlq", "report", GROUP).out
    )

    assert CANARY not in re.sub(r"## A sample.*", "", shown, flags=re.DOTALL)
    assert CANARY not in shown


def test_texts_of_producers_draw_nothing_on_a_terminal(
    database: Database, redrive: Redrive
) -> None:
    die(database, 25, GROUP, "\x1b[31m`x`", "node-1")
    succeed(database, 60)

    assert "\x1b" not in redrive("dlq", "explain", GROUP).out
    assert "``31 of 31" not in redrive("dlq", "report", GROUP).out


def test_a_large_group_costs_no_more_than_a_small_one(database: Database) -> None:
    """At most so many dead letters are read of the group, and of the others."""
    make_dead_letters(database.conn, 1)
    database.rows(
        "insert into redrive.dead_letters select r.* from redrive.dead_letters d,"
        " generate_series(1, %s) n, lateral jsonb_populate_record(d, jsonb_build_object("
        " 'id', d.id + n, 'died_at', d.died_at - n * n * interval '1 millisecond')) r",
        30_000,
    )
    store.fold(database.conn)
    database.rows("analyze redrive.dead_letters")
    session = database.session()
    with session.conn.transaction():
        found = explaining.explain(session.conn, "f1")
        read = session.value(
            "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables"
            " where relname = 'dead_letters'"
        )

    assert found is not None
    assert 1000 < found["looked_at"] <= explaining.OF_GROUP
    assert read <= 3 * explaining.OF_GROUP


def test_failing_jobs_are_explained_before_one_is_dead(
    database: Database, redrive: Redrive
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    for n in range(31):
        make_job(conn, payload=charge(n, "XAU"))
        job = claim_one(conn, worker)
        failed = failure(fingerprint=GROUP, category="transient")
        settle(conn, worker, job, "retry", delay=60, failure=failed)
    succeed(database, 60)

    shown = redrive("dlq", "explain", GROUP).out

    assert '31 of 31 have payload.currency = "XAU"; 0 of 60 that succeeded do' in shown
    assert "looked at 31 jobs of the group" in shown
