"""`redrive limit`: set, seen, removed."""

import pytest

from tests.cli.conftest import Redrive
from tests.factories import claim, make_job, make_limited_worker
from tests.postgres import Database


def test_a_limit_is_set_seen_and_removed(redrive: Redrive, database: Database) -> None:
    worker = make_limited_worker(database.conn, "emails", "c:{c}")
    given = ("--concurrency", "1", "--rate", "20/1m")
    done = redrive("limit", "set", "emails", *given, "--why", "the provider", "--yes")
    assert (done.code, done.out) == (0, "emails: 1 at once, 20/m\n")
    redrive(
        "limit", "set", "c:*", "--concurrency", "5", "--why", "one took all", "--yes"
    )
    for _ in range(3):
        make_job(database.conn, "a.b")
    claim(database.conn, worker)

    rows = {row.pop("name"): row for row in redrive("limit", "ls", "--json").lines}
    assert rows["emails"].pop("set_at")
    assert rows["emails"] == {"concurrency": 1, "rate": "20/m", "used": 1, "waiting": 2}
    assert rows["c:*"]["used"] == 1
    assert redrive("queue", "ls", "--json").json["limited"] == 2
    assert "due jobs that wait for limits: 2" in redrive("queue", "ls").out
    assert "20/m" in redrive("limit", "ls").out
    shown = redrive("job", "ls", "--state", "blocked", "--json").lines
    assert [row["waiting_for"] for row in shown] == ["limited"] * 2
    over = ("limit", "rm", "emails", "--why", "over", "--yes")
    assert redrive(*over).out == "The limit emails is removed\n"
    assert redrive(*over).code == 2
    assert database.column("select action from redrive.audit order by id") == [
        "set limit",
        "set limit",
        "remove limit",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("emails", "--concurrency", "-1"),
            "--concurrency is '-1'; it must be a whole number, 0 to 1000000",
        ),
        (("emails", "--rate", "20/x"), "--rate: must be written like 20/1m"),
        (
            ("1emails", "--rate", "20/s"),
            "must be like emails, customer:17 or customer:*",
        ),
        (("emails",), "give concurrency, rate or both"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_with_what_can(
    redrive: Redrive, arguments: tuple[str, ...], said: str
) -> None:
    refused = redrive("limit", "set", *arguments, "--why", "why")

    assert refused.code == 64
    assert said in refused.err


def test_a_limit_that_no_handler_has_jobs_for_is_set_and_said(
    redrive: Redrive, database: Database
) -> None:
    """It was made without a word, and limited nothing."""
    make_limited_worker(database.conn, "emails", "customer:{customer_id}", "api:search")
    meant = {
        "emals": "; did you mean emails?",
        "custmer:17": "; did you mean customer:*?",
        "customer": "; did you mean customer:*?",
        "emails:*": "; did you mean emails?",
        "api:searchh": "; did you mean api:search?",
        "somewhere": "",
    }
    for name, said in meant.items():
        asked = ("limit", "set", name, "--concurrency", "1", "--why", "why", "--yes")
        done, again = redrive(*asked), redrive(*asked)

        warning = f"No handler has jobs that count under {name!r} yet{said}"
        assert (done.code, done.out) == (0, f"{name}: 1 at once. {warning}\n")
        assert again.out == f"{name}: 1 at once\n"

    for name in ("emails", "customer:17", "customer:*", "api:search", "api:*"):
        asked = ("limit", "set", name, "--concurrency", "1", "--why", "why", "--yes")
        done = redrive(*asked)

        assert (done.code, done.out) == (0, f"{name}: 1 at once\n")
