"""What agents may do in the database: ask within a budget, and propose."""

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import read_patch
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.filter import Filter
from redrive.errors import InvalidJob
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.store import Agent
from redrive.handlers import Handlers
from tests.factories import make_dead_letter
from tests.postgres import Connection, Database

ADAS = Agent("claude", "ada")
PATCH = [{"op": "add", "path": "/currency", "value": "EUR"}]
NAME = 'agent "claude" on behalf of "ada"'
SAID = {"actor": "ada", "why": "why"}


@pytest.fixture
def agent(database: Database) -> Connection:
    """A login of the role for programs that agents call."""
    return database.session("redrive_agent").conn


def _letters(conn: Connection) -> list[Letter]:
    return [
        one
        for one in edits.find(conn, Filter(state=("open",)))
        if isinstance(one, Letter)
    ]


def _state(database: Database, proposal: int) -> str:
    return database.value("select state from redrive.proposals where id = %s", proposal)


def test_a_budget_is_charged_for_each_call_and_begins_anew_after_an_hour(
    database: Database, agent: Connection
) -> None:
    def charge(tool: str, name: str = "claude") -> str | None:
        return proposals.charge(agent, Agent(name, "ada"), tool, {}, most=(4, 1))

    assert [charge("report"), charge("propose_change"), charge("propose_edit")] == [
        *(None, None),
        "proposals",
    ]
    # The agent chooses its own name, so a new name gives it no new budget.
    assert [charge("report", "other"), charge("report"), charge("report")] == [
        *(None, None),
        "calls",
    ]
    assert (
        proposals.charge(agent, Agent("claude", "bo"), "report", {}, most=(4, 1))
        is None
    )
    database.rows("update redrive.agent_budgets set since = since - interval '61 min'")
    assert charge("propose_edit") is None

    lines = database.rows("select action, why, detail ->> 'refused' from redrive.audit")
    assert len(lines) == 8
    assert lines[2] == ("call", "tool propose_edit", "proposals")


def test_two_sessions_of_one_token_share_a_budget(database: Database) -> None:
    """Each charge waits for the other, so none of them is lost."""
    sessions = [database.session("redrive_agent").conn for _ in range(2)]
    found = [
        proposals.charge(conn, ADAS, "report", {}, most=(5, 1))
        for _ in range(5)
        for conn in sessions
    ]
    assert found == [None] * 5 + ["calls"] * 5


def test_a_proposed_redrive_is_a_plan_that_only_a_person_can_start(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn)
    report = proposals.propose_campaign(
        agent, ADAS, Filter(kind=("invoice.charge",)), "fixed in 2"
    )
    number = report["plan"]
    (planned,) = campaigns.find(database.conn, ("planned",))
    assert (planned["campaign"], planned["proposed_by"], planned["why"]) == (
        *(number, NAME),
        "fixed in 2",
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        campaigns.start(agent, number, Terms(), **SAID)

    (listed,) = proposals.find(database.conn)
    assert (listed["action"], listed["campaign"]) == ("redrive", number)
    campaigns.start(database.conn, number, Terms(), **SAID)
    assert proposals.find(database.conn) == []
    assert database.rows(
        "select actor, action, detail ->> 'proposed_by' from redrive.audit order by id"
    ) == [(NAME, "propose redrive", None), ("ada", "redrive", NAME)]


def test_an_agent_is_not_one_of_two_people(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn)
    database.rows("insert into redrive.approvals (kind) values ('invoice.charge')")
    report = proposals.propose_campaign(
        agent, ADAS, Filter(kind=("invoice.charge",)), "why"
    )

    with pytest.raises(psycopg.Error, match="an agent is none; plan it again"):
        campaigns.start(database.conn, report["plan"], Terms(), **SAID)


def test_an_agent_cannot_confirm_obstacles(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn)
    report = agent.execute(
        'select redrive.propose_campaign_v1(\'{"kind": ["invoice.charge"], "include_quarantined": true,'
        " \"include_invalid\": true, \"repeat\": true}', 5, 'a', 'p', 'why')"
    ).fetchone()
    assert report
    (plan,) = report
    assert database.value(
        "select filter from redrive.campaigns where id = %s", plan["plan"]
    ) == {"kind": ["invoice.charge"]}


def test_a_plan_that_matches_nothing_is_no_proposal(
    database: Database, agent: Connection
) -> None:
    report = proposals.propose_campaign(
        agent, ADAS, Filter(kind=("invoice.charge",)), "why"
    )

    assert report["plan"] is None
    assert database.value("select count(*) from redrive.audit") == 0


def test_a_login_makes_5000_proposals_a_day_whatever_others_make(
    database: Database, agent: Connection
) -> None:
    def made(n: int, login: str, days: int) -> None:
        database.conn.execute(
            "insert into redrive.proposals (action, proposed_by, login, why, detail, created_at)"
            " select 'mute', 'x', coalesce(nullif(%s, ''), session_user), 'why', '{}',"
            " clock_timestamp() - %s * interval '1 day' from generate_series(1, %s)",
            (login, days, n),
        )

    def propose() -> None:
        agent.execute(
            "select redrive.propose_v1('mute', 'claude', 'ada', 'why', '{\"seconds\": 60}')"
        )

    made(5000, "another", days=0)
    made(1, "", days=2)
    made(4999, "", days=0)
    propose()
    with pytest.raises(psycopg.Error, match="this login has made 5000 in a day"):
        propose()


def test_one_person_does_not_use_up_what_agents_of_others_may_propose(
    database: Database, agent: Connection
) -> None:
    """All people of a server share its login."""
    propose = (
        "select redrive.propose_v1('mute', 'helper', %s, 'why', '{\"seconds\": 60}')"
    )
    database.rows(
        "insert into redrive.proposals (action, proposed_by, login, why, detail)"
        " select 'mute', redrive.agent_name_v1('agent ' || n, 'ada'), session_user, 'why', '{}'"
        " from generate_series(1, 1000) n"
    )

    with pytest.raises(psycopg.Error, match="this person have made 1000 in a day"):
        agent.execute(propose, ("ada",))
    agent.execute(propose, ("bo",))


def test_a_patch_of_an_encrypted_payload_is_not_kept_in_the_clear(
    database: Database, agent: Connection
) -> None:
    job = make_dead_letter(database.conn, payload={"n": 1})
    letters = _letters(agent)
    database.rows(
        "update redrive.dead_letters set payload = '{\"$redrive\": {}}' where id = %s",
        job,
    )

    with pytest.raises(psycopg.Error, match="would be kept in the clear"):
        proposals.propose_edit(agent, ADAS, letters, PATCH, "EURO")
    assert database.value("select count(*) from redrive.proposals") == 0


@pytest.mark.parametrize(
    "ids", ["null", '"7"', '["7"]', "[1.5]", "[-1]", "[1e30]", "{}"]
)
def test_an_edit_is_proposed_for_ids_alone(agent: Connection, ids: str) -> None:
    """Others were stored, and nobody could see what they stand for."""
    detail = f'{{"patch": [], "ids": {ids}}}'

    with pytest.raises(psycopg.Error, match="ids: must be a list of whole numbers"):
        agent.execute(
            "select redrive.propose_v1('edit', 'helper', 'ada', 'why', %s)", (detail,)
        )


def test_no_plan_keeps_a_filter_that_no_start_could_record(
    database: Database, agent: Connection
) -> None:
    """Anybody's plan, and an agent's proposal, stored megabytes without a line of the log."""
    make_dead_letter(database.conn)
    filled = "jsonb_build_object('x', repeat('y', 70000))"

    with pytest.raises(psycopg.Error, match="filter: more than 65536 bytes"):
        agent.execute(f"select redrive.propose_campaign_v1({filled}, 3, 'x', 'p', 'w')")  # type: ignore[arg-type]
    with pytest.raises(psycopg.Error, match="filter: more than 65536 bytes"):
        database.rows(f"select redrive.plan_campaign_v1({filled}, 3, 'ada')")  # type: ignore[arg-type]


def test_a_proposed_edit_changes_nothing_before_a_person_starts_it_once(
    database: Database, agent: Connection
) -> None:
    job = make_dead_letter(database.conn, payload={"n": 1})
    number = proposals.propose_edit(agent, ADAS, _letters(agent), PATCH, "EURO")
    payload = "select payload from redrive.dead_letters where id = %s"
    assert database.value(payload, job) == {"n": 1}

    assert proposals.start(database.conn, number, Handlers(), **SAID) == 1
    assert database.value(payload, job) == {"n": 1, "currency": "EUR"}
    with pytest.raises(psycopg.Error, match=f"proposal: {number} is started"):
        proposals.start(database.conn, number, Handlers(), **SAID)
    with pytest.raises(psycopg.Error, match=f"proposal: {number} is started"):
        proposals.decide(database.conn, number, is_started=False, **SAID)


def test_an_operator_cannot_close_a_proposed_edit_without_a_line(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn, payload={"n": 1})
    number = proposals.propose_edit(agent, ADAS, _letters(agent), PATCH, "EURO")
    operator = database.connect("redrive_operator")
    operator.execute("select redrive.decide_v1(%s, true, 'bo', 'mine')", (number,))

    assert _state(database, number) == "started"
    assert database.row(
        "select actor, action, detail from redrive.audit order by id desc limit 1"
    ) == ("bo", "start proposal", {"proposal": number, "proposed_by": NAME})


def test_a_payload_that_changed_since_is_not_edited(
    database: Database, agent: Connection
) -> None:
    job = make_dead_letter(database.conn, payload={"n": 1})
    number = proposals.propose_edit(agent, ADAS, _letters(agent), PATCH, "EURO")
    database.rows(
        "update redrive.dead_letters set payload = '{\"n\": 2}' where id = %s", job
    )

    assert proposals.preview(database.conn, number, Handlers()).changed == 1
    with pytest.raises(InvalidJob, match="none of its payloads"):
        proposals.start(database.conn, number, Handlers(), **SAID)
    assert _state(database, number) == "open"


def test_a_proposed_mute_begins_when_a_person_starts_it(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn)
    group = database.value("select fingerprint from redrive.grouped")
    number = proposals.propose(
        agent, "mute", ADAS, "noise", {"group": group, "seconds": 7200}
    )
    muted = "select muted_until - clock_timestamp() from redrive.grouped"
    assert database.value(muted) is None

    assert proposals.start(database.conn, number, Handlers(), **SAID) == 1
    assert timedelta(minutes=119) < database.value(muted) <= timedelta(hours=2)


def test_a_proposed_mute_of_no_group_stays_open(
    database: Database, agent: Connection
) -> None:
    number = proposals.propose(
        agent, "mute", ADAS, "noise", {"group": "nothing", "seconds": 7200}
    )

    with pytest.raises(psycopg.Error, match="its group is not found"):
        proposals.start(database.conn, number, Handlers(), **SAID)
    assert _state(database, number) == "open"


def test_a_rejected_proposal_is_closed(database: Database, agent: Connection) -> None:
    number = proposals.propose(
        agent, "mute", ADAS, "noise", {"group": "f", "seconds": 7200}
    )
    proposals.decide(database.conn, number, is_started=False, **SAID)

    assert proposals.show(database.conn, number) is None
    assert database.rows("select actor, action from redrive.audit order by id") == [
        (NAME, "propose mute"),
        ("ada", "reject proposal"),
    ]


def test_a_proposal_expires_after_a_day_and_is_deleted_after_thirty(
    database: Database, agent: Connection
) -> None:
    old, older = (
        proposals.propose(agent, "mute", ADAS, "w", {"group": "f", "seconds": 60})
        for _ in range(2)
    )
    shift = "update redrive.proposals set created_at = created_at - %s where id = %s"
    database.rows(shift, timedelta(days=1, seconds=1), old)
    database.rows(shift, timedelta(days=31), older)
    assert proposals.find(database.conn) == []
    with pytest.raises(psycopg.Error, match="is older than a day"):
        proposals.start(database.conn, old, Handlers(), **SAID)

    new = proposals.propose(agent, "mute", ADAS, "w", {"group": "f", "seconds": 60})
    ids = database.column("select id from redrive.proposals order by id")
    assert ids == [old, new]


@pytest.mark.parametrize(
    "statement",
    [
        "select redrive.decide_v1(1, true, 'a', 'w')",
        "select redrive.plan_campaign_v1('{}', 5, 'a')",
        "select redrive.start_campaign_v1(1, 'a', 'w', 1, 0, 0.1, null, '{}')",
        "select redrive.mute_v1('f', now() + interval '1 h', 'a', 'w')",
        "select redrive.edit_v1('{}', '{}', '{}', '{}', '[]', '{}', 'a', 'w')",
        "select redrive.reveal_v1(1, 'a', 'w')",
        "select redrive.pause_v1('q', 'a', 'w')",
        "select redrive.run_now_v1('{1}', 'a', 'w')",
        "select redrive.enqueue('a.b')",
        "select redrive.use_link_v1('x')",
        "update redrive.dead_letters set state = 'redriven'",
        "insert into redrive.proposals (action) values ('edit')",
        "update redrive.agent_budgets set calls = 0",
        "delete from redrive.audit",
    ],
)
def test_the_role_of_agents_can_do_nothing_else(
    agent: Connection, statement: Any
) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        agent.execute(statement)


def test_a_link_is_used_once(database: Database) -> None:
    operator = database.session("redrive_operator")
    database.rows(
        "insert into redrive.used_links values ('old', now() - interval '25 h')"
    )
    use = "select redrive.use_link_v1(%s)"

    assert [operator.value(use, link) for link in ("a", "b", "a")] == [
        True,
        True,
        False,
    ]
    assert database.column("select link from redrive.used_links order by 1") == [
        "a",
        "b",
    ]


def test_a_number_of_a_patch_keeps_every_digit(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn)
    text = '[{"op": "add", "path": "/n", "value": 0.10000000000000000000001}]'
    patch = read_patch(text)
    number = proposals.propose_edit(agent, ADAS, _letters(agent), patch, "why")

    proposals.start(database.conn, number, Handlers(), **SAID)
    found = database.value("select payload ->> 'n' from redrive.dead_letters")
    assert found == "0.10000000000000000000001"


def test_an_agents_name_cannot_continue_our_sentence(
    database: Database, agent: Connection
) -> None:
    """Somebody called their agent after the person whose consent was wanted."""
    forged = Agent('x" on behalf of boss@corp (approved)\u200b', "ada")
    proposals.propose(agent, "mute", forged, "w", {"group": "f", "seconds": 60})

    assert database.column("select actor from redrive.audit") == [
        'agent "x? ? boss@corp (?)?" on behalf of "ada"'
    ]


def test_each_value_of_a_proposed_edit_is_shown_to_who_approves_it(
    database: Database, agent: Connection
) -> None:
    """Also a value that redaction hides: it is the proposer's text, and it will be paid."""
    make_dead_letter(database.conn, payload={"iban": "DE01", "password": "old"})
    patch = [
        {"op": "replace", "path": "/password", "value": "pa$$word-of-the-agent"},
        {"op": "replace", "path": "/iban", "value": "GB33BUKB20201555555555"},
    ]
    number = proposals.propose_edit(agent, ADAS, _letters(agent), patch, "w")
    (row,) = proposals.find(database.conn)
    told = proposals.effects(database.conn, row, Handlers())

    assert row["proposal"] == number
    assert told[:2] == [
        'replace /password: "pa$$word-of-the-agent"',
        'replace /iban: "GB33BUKB20201555555555"',
    ]


def test_a_patch_that_nobody_can_read_is_not_proposed(
    database: Database, agent: Connection
) -> None:
    make_dead_letter(database.conn, payload={})
    patch = [{"op": "add", "path": "/text", "value": "x" * 20_000}]

    with pytest.raises(psycopg.Error, match="patch: must have at most 16384 bytes"):
        proposals.propose_edit(agent, ADAS, _letters(agent), patch, "w")
