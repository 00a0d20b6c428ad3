"""A bad release, found by tool calls alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.rules.payloads.facts import facts_of
from redrive.worker import store
from redrive.worker.protocol import Sampled
from redrive.worker.store import Registration
from tests.agents.conftest import Agent
from tests.factories import claim, complete, failure, let_die, make_job
from tests.postgres import Connection, Database

MOST_CALLS = 6
BAD, GOOD = "1.4.2", "1.4.1"


def _run(
    conn: Connection, version: str, kinds: Iterator[tuple[str, str | None]]
) -> None:
    """Run jobs on a worker of a version; each has a kind, and a fingerprint if it dies."""
    registration = Registration("worker", version, 60, ["*"], None)
    worker = store.register(conn, registration)
    for n, (kind, fingerprint) in enumerate(kinds):
        make_job(conn, kind, {"n": n, "currency": "EUR"}, queue=kind.partition(".")[0])
        (job,) = claim(conn, worker, 1)
        if fingerprint is None:
            complete(conn, worker, job)
            continue
        stack = [{"file": "app/jobs.py", "line": 41, "function": "charge_card"}]
        said = failure(
            error_class="TypeError" if fingerprint == "bad" else "ConnectionError",
            message="unsupported operand type(s)" if fingerprint == "bad" else "reset",
            fingerprint=fingerprint,
            detail={"version": version, "stack": stack},
        )
        let_die(conn, worker, job, failure=said)


@pytest.fixture
def incident(database: Database) -> Database:
    """A shop where all card charges die since a deploy, beside the usual noise."""
    usual = [("mail.send", None), ("card.charge", None)] * 20 + [
        ("mail.send", "noise")
    ] * 4
    _run(database.conn, GOOD, iter(usual))
    _run(database.conn, BAD, iter([("mail.send", None), ("card.charge", "bad")] * 15))
    database.rows("select redrive.fold_groups_v1()")
    facts = facts_of({"currency": "EUR"}, {}, None, declared=())
    samples = [facts | {"version": GOOD, "queue": "card"} for _ in range(40)]
    store.keep_samples(
        database.conn, [Sampled("card.charge", json.dumps(one)) for one in samples]
    )
    store.fold(database.conn)
    store.fold_series(database.conn)
    return database


def _diagnosis(agent: Agent) -> dict[str, Any]:
    """Return what an engineer would want to know, from answers of tools alone."""
    largest = agent.data("list_groups")[0]
    explained = agent.data("explain_group", group=largest["group"])
    sample = agent.data("show_dead_letter", job=largest["sample"])
    findings = {found["field"]: found["value"] for found in explained["findings"]}
    (version,) = largest["versions"]
    frame = sample["failures"][-1]["detail"]["stack"][0]
    return {
        "kind": largest["kind"],
        "error": largest["error_class"],
        "since_version": version,
        "differs_by": findings.get("version"),
        "in": frame["function"],
        "deployed": [
            change["what"]
            for change in agent.data("series", kind=largest["kind"])["changes"]
        ],
        "plan": agent.data(
            *("propose_campaign",), group=largest["group"], why=f"fixed after {version}"
        )["matched"],
    }


def test_a_bad_release_is_diagnosed_in_six_calls(
    incident: Database, agent: Agent
) -> None:
    found = _diagnosis(agent)

    assert found | {"deployed": None} == {
        "kind": "card.charge",
        "error": "TypeError",
        "since_version": BAD,
        "differs_by": BAD,
        "in": "charge_card",
        "deployed": None,
        "plan": 15,
    }
    assert any(BAD in text for text in found["deployed"])
    assert agent.calls <= MOST_CALLS
