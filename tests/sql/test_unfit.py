"""What of a plan its handlers could not take is found before it starts, and left out."""

from typing import Any

import psycopg
import pytest
from pydantic import BaseModel, ConfigDict, SecretStr

from redrive import Handlers
from redrive.dead_letters.campaigns import unfit
from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.store import cancel, plan, show, start
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.campaigns.unfit import fault, leave_out
from redrive.dead_letters.filter import Filter
from tests.factories import make_dead_letter, make_dead_letters
from tests.postgres import Connection, Database

AT_ONCE = Terms(canaries=0)


class NotSold(Exception):
    """The hook of these handlers refuses a payload."""


class Line(BaseModel):
    """A part of a payload."""

    amount: int


class Charge(BaseModel):
    """A payload."""

    model_config = ConfigDict(extra="forbid")
    amount: int
    lines: list[Line] = []
    token: SecretStr | None = None


def refuse_gold(payload: dict[str, Any]) -> None:
    if payload.get("currency") == "XAU":
        raise NotSold(payload["currency"])


jobs = Handlers()


@jobs.handle("charge", version=2, upgrade={1: lambda p: {"amount": p["sum"]}})
def charge(payload: Charge) -> None:
    raise AssertionError("a plan runs no handler")


@jobs.handle("mail", validate=refuse_gold)
def mail(payload: dict[str, Any]) -> None:
    raise AssertionError("a plan runs no handler")


def planned(conn: Connection) -> int:
    made = plan(conn, Filter(), actor="ada").plan
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("kind", "text", "version", "cause"),
    [
        ("charge", '{"sum": 5}', 1, None),
        ("charge", '{"amount": 5}', 2, None),
        ("charge", '{"total": 5}', 1, "payload: KeyError"),
        ("charge", "{}", 2, "amount: missing"),
        ("charge", '{"amount": "a lot"}', 2, "amount: int parsing"),
        (
            "charge",
            '{"amount": 1, "lines": [{"amount": 1}, {}]}',
            2,
            "lines[].amount: missing",
        ),
        (
            "charge",
            '{"amount": 1, "token": "s3cr3t-token", "s3cr3t-token": 1}',
            2,
            None,
        ),
        ("charge", "{}", 3, "payload: version 3, the handler takes 2"),
        ("charge", "{}", "newest", "payload: TypeError"),
        ("mail", '{"currency": "EUR"}', 1, None),
        ("mail", '{"currency": "XAU"}', 1, "validate: NotSold"),
    ],
)
def test_a_cause_names_the_field_and_no_value(
    kind: str, text: str, version: object, cause: str | None
) -> None:
    found = fault(jobs.known(kind), text, version)

    if "s3cr3t" in text:
        assert found is not None
        assert found.endswith(": extra forbidden")
        assert "s3cr3t" not in found
    else:
        assert found == cause


def test_what_handlers_cannot_take_is_counted_and_stays(database: Database) -> None:
    """It goes into no step; the others go, and its dead letter says why it is there still."""
    conn = database.conn
    ids = [
        make_dead_letter(conn, "charge", payload)
        for payload in ({"sum": 1}, {}, {"sum": 2}, {"sum": "x"}, {})
    ]
    gold = make_dead_letter(conn, "mail", {"currency": "XAU"})
    other = make_dead_letter(conn, "other")
    campaign = planned(conn)
    found = leave_out(conn, campaign, jobs)

    causes = {"payload: KeyError": 2, "amount: int parsing": 1, "validate: NotSold": 1}
    assert found.invalid == causes
    assert found.unchecked == {"no handler for other": 1}
    start(conn, campaign, AT_ONCE, actor="ada", why="x")
    drive(conn, campaign)
    assert database.column("select id from redrive.jobs order by id") == [
        ids[0],
        ids[2],
        other,
    ]
    shown = show(conn, campaign)
    assert shown is not None
    assert (shown["invalid"], shown["blocked"]) == (causes, {"invalid": 4})
    assert (shown["redriven"], shown["waiting"]) == (3, 0)
    stayed = "select id from redrive.dead_letters where state = 'open' and blocked = 'invalid'"
    assert database.column(f"{stayed} order by id") == [ids[1], ids[3], ids[4], gold]


def test_canaries_are_of_those_that_fit(database: Database) -> None:
    """The first three of the list would have been three that are left out."""
    conn = database.conn
    bad = [make_dead_letter(conn, "charge", {}) for _ in range(4)]
    good = [make_dead_letter(conn, "charge", {"sum": n}) for n in range(4)]
    campaign = planned(conn)
    leave_out(conn, campaign, jobs)
    start(conn, campaign, Terms(canaries=3), actor="ada", why="x")
    drive(conn, campaign)

    assert database.column("select id from redrive.jobs order by id") == good[:3]
    assert (
        database.column(
            "select id from redrive.campaign_jobs where state = 'invalid' order by id"
        )
        == bad
    )


def test_many_that_do_not_fit_take_no_share_of_the_rate(database: Database) -> None:
    """At one a second 2,500 of them would keep the last one waiting for 41 minutes."""
    make_dead_letters(database.conn, 2500, kind="charge")
    fits = make_dead_letter(database.conn, "charge", {"sum": 5})
    campaign = planned(database.conn)
    leave_out(database.conn, campaign, jobs)
    start(database.conn, campaign, Terms(rate=1.0), actor="ada", why="x")
    for step in range(3):
        database.rows(
            "select redrive.step_campaign_v1(%s, %s, 'canary', 1, null, null)",
            campaign,
            step,
        )

    assert database.column("select id from redrive.jobs") == [fits]
    assert show(database.conn, campaign)["blocked"] == {"invalid": 2500}  # type: ignore[index]


def test_a_plan_is_read_by_the_page(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more payloads are held than a page has, however many there are."""
    monkeypatch.setattr(unfit, "PAGE", 3)
    make_dead_letters(database.conn, 8, kind="charge")
    campaign, pages = planned(database.conn), list[int]()
    found = leave_out(database.conn, campaign, jobs, progress=pages.append)

    assert pages == [3, 3, 2]
    assert found.invalid == {"payload: KeyError": 8}
    assert show(database.conn, campaign)["invalid"] == found.invalid  # type: ignore[index]


def test_causes_are_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfit, "CAUSES", 2)
    monkeypatch.setattr(unfit, "PAGE", 2)

    def tell(payload: dict[str, Any]) -> None:
        raise type(payload["name"], (Exception,), {})

    told = Handlers()
    told.handle("a", validate=tell)(mail)
    for name in ("A", "B", "C", "A", "D"):
        make_dead_letter(database.conn, "a", {"name": name})
    found = leave_out(database.conn, planned(database.conn), told)

    assert found.invalid == {"validate: A": 2, "validate: B": 1, "other": 2}


def test_a_plan_that_was_started_is_left_as_it_is(database: Database) -> None:
    """Between two pages somebody starts it, or cancels it."""
    make_dead_letter(database.conn, "charge")
    going, gone = planned(database.conn), planned(database.conn)
    start(database.conn, going, AT_ONCE, actor="ada", why="x")
    cancel(database.conn, gone, actor="ada", why="x")

    for campaign, state in ((going, "waiting"), (gone, "cancelled")):
        with pytest.raises(
            psycopg.Error, match=f"plan: {campaign} is {state}; make a new plan"
        ):
            leave_out(database.conn, campaign, jobs)


def test_two_who_read_the_same_plan_count_each_once(database: Database) -> None:
    """Both have read the page before one of them leaves anything out."""
    make_dead_letters(database.conn, 3, kind="charge")
    campaign, other = planned(database.conn), database.session()
    took = other.value("select redrive.leave_out_v1(%s, '{1,2}', '{a,b}')", campaign)
    left = other.value(
        "select redrive.leave_out_v1(%s, '{1,2,3}', '{a,b,c}')", campaign
    )

    assert (took, left) == (2, 1)
    assert show(database.conn, campaign)["invalid"] == {"a": 1, "b": 1, "c": 1}  # type: ignore[index]


def test_a_hook_that_is_async_is_refused() -> None:
    async def hook(payload: dict[str, Any]) -> None: ...

    with pytest.raises(
        ValueError, match="mail: validate must be a plain function, not async"
    ):
        Handlers().handle("mail", validate=hook)


def test_a_plan_is_cut_only_by_the_login_that_made_it(database: Database) -> None:
    make_dead_letters(database.conn, 2, kind="charge")
    campaign, other = planned(database.conn), database.session()
    other.rows("set session authorization redrive_operator")

    with pytest.raises(psycopg.Error, match="who made it"):
        other.value("select redrive.leave_out_v1(%s, '{1}', '{a}')", campaign)
