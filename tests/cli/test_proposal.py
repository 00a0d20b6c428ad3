"""redrive proposal: a person sees what an agent proposes, and starts or rejects it."""

from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.filter import Filter
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.store import Agent
from redrive.verbs.failing import FAILING
from tests.cli.conftest import Redrive
from tests.factories import (
    failure,
    make_dead_letter,
    make_jobs,
    make_worker,
    settle_next,
)
from tests.postgres import Database

ADAS = Agent("claude", "ada")
NAME = 'agent "claude" on behalf of "ada"'
PATCH = [{"op": "replace", "path": "/currency", "value": "EUR"}]


def _edit(database: Database, **payload: str) -> int:
    """Let an agent propose an edit of a new dead letter."""
    make_dead_letter(database.conn, payload=payload)
    found = edits.find(database.conn, Filter(state=("open",)))
    letters = [one for one in found if isinstance(one, Letter)]
    return proposals.propose_edit(database.conn, ADAS, letters, PATCH, "EURO is none")


def test_proposals_are_listed_with_the_commands_that_start_them(
    database: Database, redrive: Redrive
) -> None:
    assert "no proposals" in redrive("proposal", "ls").out
    number = _edit(database, currency="EURO")
    proposals.propose_campaign(
        database.conn, ADAS, Filter(kind=("invoice.charge",)), "fixed"
    )

    found = redrive("proposal", "ls", "--json").lines
    assert [(row["action"], row["start"]) for row in found] == [
        ("redrive", "redrive campaign start 1"),
        ("edit", f"redrive proposal start {number}"),
    ]
    (planned,) = redrive("campaign", "ls", "--state", "planned", "--json").lines
    assert planned["proposed_by"] == NAME
    assert NAME in redrive("campaign", "show", "1").out


def test_the_changes_of_an_edit_are_shown_before_it_starts(
    database: Database, redrive: Redrive
) -> None:
    number = str(_edit(database, currency="EURO", password="hunter2"))
    shown = redrive("proposal", "start", number)
    assert shown.code == 0
    assert '+  "currency": "EUR"' in shown.out
    assert "hunter2" not in shown.out

    done = redrive("proposal", "start", number, "--why", "yes", "--yes", "--json")
    report = {"proposal": int(number), "action": "edit", "state": "started"}
    assert done.json == report | {"changed": 1}
    line = database.row(
        "select action, why from redrive.audit order by id desc limit 1"
    )
    assert line == ("edit", f"proposal {number} of {NAME}: yes")
    again = redrive("proposal", "start", number, "--why", "yes", "--yes")
    assert (again.code, "no open proposal" in again.err) == (2, True)


def test_each_change_of_failing_jobs_is_proposed_and_started(
    database: Database, redrive: Redrive
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    make_jobs(conn, 4)
    for _ in range(4):
        said = failure(category="transient")
        settle_next(conn, worker, "retry", delay=3600, failure=said)

    def propose(action: str) -> str:
        return str(proposals.propose(conn, action, ADAS, "it is slow", {"group": "f1"}))

    released = propose("release")
    refused = redrive("proposal", "start", released, "--why", "yes", "--yes")
    assert (refused.code, "not held" in refused.out + refused.err) == (2, True)
    assert proposals.show(conn, int(released))

    for action in ("hold", "retry", "give-up", "release"):
        number = released if action == "release" else propose(action)
        shown = redrive("proposal", "start", number)
        assert (shown.code, "it is slow" in shown.out) == (0, True), shown.err
        done = redrive("proposal", "start", number, "--why", "yes", "--yes", "--json")
        assert done.code == 0, done.err
        assert (done.json["state"], done.json["group"]) == ("started", "f1")

    assert database.value("select count(*) from redrive.dead_letters") > 0
    assert database.rows(
        "select action from redrive.audit where why = %s order by id",
        f"proposal {number} of {NAME}: yes",
    ) == [("release",), ("start proposal",)]
    assert {"hold", "release", "retry", "give-up"} == set(FAILING)


def test_a_rejected_proposal_changes_nothing(
    database: Database, redrive: Redrive
) -> None:
    number = str(_edit(database, currency="EURO"))
    assert redrive("proposal", "reject", number, "--why", "no", "--yes").code == 0

    assert redrive("proposal", "ls", "--json").lines == []
    assert (
        database.value("select payload ->> 'currency' from redrive.dead_letters")
        == "EURO"
    )


def test_a_detail_that_nobody_can_read_hides_no_other_proposal(
    database: Database, redrive: Redrive
) -> None:
    """A program with the login of an agent can call the function itself, or could before."""
    propose = (
        "insert into redrive.proposals (action, proposed_by, why, detail)"
        " values (%s, 'x', 'why', %s::jsonb)"
    )
    for action, detail in (
        ("mute", "{}"),
        ("mute", '{"group": "f1", "seconds": "2 h"}'),
        ("edit", '{"ids": 1, "patch": []}'),
        ("edit", '{"ids": [1], "patch": [{"op": "add"}]}'),
    ):
        database.rows(propose, action, detail)
    _edit(database, currency="EURO")

    listed = redrive("proposal", "ls")

    assert (listed.code, listed.out.count("unreadable: reject it")) == (0, 4)
    assert "/currency" in listed.out
    started = redrive("proposal", "start", "1", "--why", "so", "--yes")
    assert "unreadable: reject it" in started.err
    assert (started.code, "Traceback" in started.err) == (64, False)
    assert redrive("proposal", "reject", "1", "--why", "so", "--yes").code == 0
