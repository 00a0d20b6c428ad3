"""The audit log: nothing that matters changes without a line, and no line changes unseen."""

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import LiteralString

import psycopg
import pytest

from tests.factories import make_dead_letter, make_dead_letters, make_job, make_schedule
from tests.postgres import Database, Session

VERIFY = "select place, lines, more, fault from redrive.verify_audit_v1(%s, %s)"
START = "select redrive.start_campaign_v1(%s, 'ada', 'why', null, 3, 0.1, null, '{}')"
PAUSE = "select redrive.pause_v1('q', 'ada', 'why')"
EDIT: LiteralString = (
    "edit_v1(%s::bigint[], (select array_agg(sha256(convert_to("
    "d.redrives || ':' || d.payload::text, 'UTF8'))) from redrive.dead_letters d"
    " where d.id = (select max(id) from redrive.dead_letters)), array['{{\"n\": 2}}'::jsonb],"
    " '{{null}}', '[]', '{{/n}}', 'ada', 'why')"
)
IMPORT: LiteralString = (
    "import_v1('sqs', jsonb_build_array(jsonb_build_object('source_id', '1',"
    " 'kind', 'a', 'queue', 'q', 'payload', '{{}}'::jsonb, 'headers', '{{}}'::jsonb, 'reason',"
    " 'gave_up', 'category', 'bug', 'error_class', 'E', 'message', '', 'fingerprint', 'f',"
    " 'attempts', 1)), 'ada', 'why')"
)
SEALED = '{"$redrive": {"k": "new", "n": "AA==", "c": "AA=="}}'


def fault(database: Database, batch: int = 100) -> str | None:
    """What is wrong with the audit log, looked at step by step."""
    place, more = None, True
    while more:
        place, _, more, found = database.row(VERIFY, place, batch)
        if found is not None:
            return str(found)
    return None


# Each change has its line

ACTS: dict[LiteralString, str] = {
    "purge_v1(null, %s::bigint[], '{{0}}', '{{open}}')": "purge",
    "done_chore_v1('purge', '1 day')": "done",
    "dismiss_v1(%s::bigint[], 'ada', 'why')": "dismiss",
    EDIT: "edit",
    "assign_v1(%s::bigint[], 'bo', 'ada', 'why')": "assign",
    "set_history_v1('q', 7, 'ada', 'why')": "set history",
    "pause_v1('q', 'ada', 'why')": "pause",
    "set_lanes_v1('q', 4, 'ada', 'why')": "set lanes",
    "set_limit_v1('emails', 20, null, 'ada', 'why')": "set limit",
    "set_retention_v1('keys', '9 days', 'ada', 'why')": "retention",
    "set_objective_v1('*', 'dead_ratio', 0.02, 'ada', 'why')": "objective",
    "set_owner_v1('q', '*', 'payments', null, 'ada', 'why')": "owner",
    "resume_v1('paused', 'ada', 'why')": "resume",
    "limit_names_v1('queues', 9, 'ada', 'why')": "limit names",
    "mute_v1((select fingerprint from redrive.grouped), now() + interval '1 h', 'ada', 'why')": "mute",
    "resolve_v1('f1', '{{1.4.2}}', '{{test}}', 'ada', 'why')": "resolve",
    "set_objective_v2('q', 'k', 'dlq_added_5m', 3, 'ada', 'why')": "objective",
    "acknowledge_v1(array(select fingerprint from redrive.grouped), true, 'ada', 'why')": "acknowledge",
    "force_breaker_v1('smtp', 'open', 'ada', 'why')": "force breaker",
    "decide_v1({proposal}, false, 'ada', 'why')": "reject proposal",
    "give_up_v1(array(select id from redrive.jobs), 'ada', 'why')": "give up",
    "hold_group_v1((select fingerprint from redrive.grouped), true, 'ada', 'why')": "hold",
    "reveal_v1((%s::bigint[])[1], 'ada', 'why')": "reveal",
    "note_v1((%s::bigint[])[1], 'ada', 'why')": "note",
    "cancel_v1(array(select id from redrive.jobs), 'ada', 'why')": "cancel",
    "run_now_v1(array(select id from redrive.jobs), 'ada', 'why')": "run now",
    "pause_schedule_v1('report', 'ada', 'why')": "pause schedule",
    "resume_schedule_v1('paused', 'ada', 'why')": "resume schedule",
    "run_schedule_v1('report', 'ada', 'why')": "run schedule",
    "reopen_v1(array(select id from redrive.dead_letters), 'ada', 'why')": "reopen",
    "start_campaign_v1({plan}, 'ada', 'why', null, 3, 0.1, null, '{{}}')": "redrive",
    "pause_campaign_v1({going}, 'ada', 'why')": "pause redrive",
    "resume_campaign_v1({paused}, 'ada', 'why')": "resume redrive",
    "cancel_campaign_v1({going}, 'ada', 'why')": "cancel redrive",
    IMPORT: "import",
    "begin_run_v1('purge', 'ada', 'why', 3, '{{}}')": "purge",
}
"""Each call of an operator, and the action of its line."""

NO_ACTS = {
    *("enqueue", "enqueue_many", "open_batch", "close_batch"),  # as a producer
    *(
        "fold_groups",
        "forget",
        "stats",
        "health",
    ),  # as a worker and the exporter: what is due anyway
    *("hold_run", "end_run", "lock_starts"),  # begin and end of what is on record
    *("plan_campaign", "plan_retry", "leave_out"),  # a plan changes nothing
    "end_session",  # of their own, of the console
    "use_link",  # what the link asks for has a line of its own
    "import_failures",  # the rest of what has come in, once, under the line of import
}
"""What an operator may do without a line; end_run has one where there was a run."""


def test_an_operator_changes_nothing_without_a_line_and_a_reason(
    database: Database,
) -> None:
    """Purge, redrive and done_chore left none. Blanks are no reason."""
    database.rows(
        "select redrive.dismiss_v1(%s, 'bo', 'why')", [make_dead_letter(database.conn)]
    )
    dead = make_dead_letter(database.conn)
    make_job(database.conn, run_at=datetime.now(UTC) + timedelta(hours=1))
    database.rows("update redrive.jobs set failed_at = now()")
    database.rows("insert into redrive.breakers (name) values ('smtp')")
    database.rows("select redrive.pause_v1('paused', 'bo', 'why')")
    make_schedule(database.conn, "report")
    make_schedule(database.conn, "paused")
    database.rows("select redrive.pause_schedule_v1('paused', 'bo', 'why')")
    operator = database.login("redrive_operator")
    plan, going, paused = (
        operator.value("select redrive.plan_campaign_v1('{}', 5, 'ada') -> 'plan'")
        for _ in "123"
    )
    for started in (going, paused):
        operator.rows(START, started)
    operator.rows("select redrive.pause_campaign_v1(%s, 'ada', 'why')", paused)
    propose = (
        "select redrive.propose_v1('mute', 'claude', 'ada', 'why', '{\"seconds\": 60}')"
    )
    campaigns = {
        "plan": plan,
        "going": going,
        "paused": paused,
        "proposal": database.value(propose),
    }
    before = database.value("select max(id) from redrive.audit")
    written = {}
    for call in sorted(ACTS, key=lambda call: call == EDIT):
        if call == EDIT:  # of one that no campaign is to put back
            dead = make_dead_letter(database.conn)
        statement = f"select * from redrive.{call}"
        values = ([dead],) if "%s" in statement else ()
        with operator.conn.transaction(force_rollback=True):
            operator.rows(statement.format(**campaigns), *values)  # type: ignore[arg-type]
            operator.rows("reset session authorization")
            lines = "select action, n from redrive.audit where id > %s"
            written[call] = operator.rows(lines, before)
        if "'why'" in statement:
            blank = statement.replace("'why'", "E' \\t\\n'").format(**campaigns)
            with (
                pytest.raises(psycopg.errors.CheckViolation, match="audit_why_said"),
                operator.conn.transaction(),
            ):
                operator.rows(blank, *values)  # type: ignore[arg-type]

    assert written == {
        call: [(action, 0 if call.startswith("begin_run") else 1)]
        for call, action in ACTS.items()
    }


def test_no_act_of_an_operator_is_left_out(database: Database) -> None:
    """What they may execute is read-only, tried above, or none of their own."""
    changing = database.column(
        "select distinct regexp_replace(p.proname, '_v[0-9]+$', '') from pg_proc p"
        " where p.pronamespace = 'redrive'::regnamespace and p.provolatile = 'v'"
        " and p.prorettype <> 'trigger'::regtype"
        " and has_function_privilege('redrive_operator', p.oid, 'execute')"
    )

    assert set(changing) - NO_ACTS == {call.partition("_v")[0] for call in ACTS}


def test_a_line_and_its_change_commit_together_or_not_at_all(
    database: Database,
) -> None:
    """The line is part of the function; a detail too long for it undoes the change."""
    ids = make_dead_letters(database.conn, 12_000)
    with pytest.raises(psycopg.Error, match="detail: more than 65536 bytes") as caught:
        database.rows("select redrive.dismiss_v1(%s, 'ada', 'why')", ids)

    assert caught.value.sqlstate == "RD001"
    assert database.column("select distinct state from redrive.dead_letters") == [
        "open"
    ]
    assert database.value("select count(*) from redrive.audit") == 0


def test_nobody_writes_a_line_alone(database: Database) -> None:
    """Nobody invents entries through `record_audit_v1`, or 50 MB of detail."""
    assert (
        database.column(
            "select proname::text from pg_proc where pronamespace = 'redrive'::regnamespace"
            " and proname ~ 'record_audit'"
        )
        == []
    )
    assert database.column(
        "select distinct privilege_type::text from information_schema.role_table_grants"
        " where table_schema = 'redrive' and table_name = 'audit'"
        " and grantee <> 'redrive_owner'"
    ) == ["SELECT"]


@pytest.mark.parametrize(
    "statement",
    [
        "select redrive.forget_completions_v1('0', 1)",
        "select redrive.forget_effects_v1('0', 1)",
        "select redrive.hide_messages_v1()",
        "select redrive.reencrypt_v1(null, 'jobs', '{}', '{}', '{}', '{}', '{}')",
        "select redrive.count_run_v1(1, 'purge', 1, '{}')",
        "select redrive.forget_audit_v1('0', 1)",
        "select redrive.done_chore_v1('rescue', null)",
        "select redrive.begin_run_v1('dismiss', 'ada', 'why', 1, '{}')",
        "select redrive.begin_run_v1('reencrypt', 'ada', 'why', 1, '{}')",
        "select redrive.done_chore_v1('purge', '100 years')",
        "select redrive.start_campaign_v1(1, 'a', 'w', null, 0, 0.1, now() + '2 years', '{}')",
        "select redrive.step_campaign_v1(1, 0, 'running', 20, null, 'x')",
        "select redrive.look_at_campaign_v1(1)",
    ],
)
def test_an_operator_may_not(refusing: Database, statement: LiteralString) -> None:
    """Keys were forgotten before their time, live payloads rewritten, chores held back, and all
    jobs of a campaign released in one step, whatever its terms.
    """
    operator = refusing.login("redrive_operator")
    with pytest.raises(psycopg.Error) as caught:
        operator.rows(statement)

    assert caught.value.sqlstate in {"42501", "RD001"}


# Runs


def test_a_run_is_two_lines_however_many_steps_it_takes(database: Database) -> None:
    """One at its beginning, one with what it changed."""
    ids = make_dead_letters(database.conn, 5)
    run = database.value(
        "select redrive.begin_run_v1('purge', 'ada', 'old', 5,"
        ' \'{"states": ["open"], "ids": [1], "line": 2}\')'
    )
    for one in ids[:3]:
        database.rows("select redrive.purge_v1(%s, %s, '{0}', '{open}')", run, [one])
    database.rows("select redrive.end_run_v1(%s)", run)

    assert database.rows(
        "select actor, action, why, n, detail from redrive.audit order by id"
    ) == [
        ("ada", "purge", "old", 0, {"expected": 5, "states": ["open"]}),
        ("ada", "end purge", "old", 3, {"line": run}),
    ]


def test_a_run_is_its_logins_own_and_ends_once(database: Database) -> None:
    """Nobody continues under the line of another actor."""
    run = database.value("select redrive.begin_run_v1('purge', 'ada', 'old', 5, '{}')")
    (one,) = make_dead_letters(database.conn, 1)
    other = database.login("redrive_operator")
    step = "select redrive.purge_v1(%s, %s, '{0}', '{open}')"
    with pytest.raises(
        psycopg.Error, match="run: must be a purge that this login began"
    ):
        other.rows(step, run, [one])
    other.rows("select redrive.end_run_v1(%s)", run)
    assert database.value("select count(*) from redrive.audit") == 1
    database.rows("select redrive.end_run_v1(%s), redrive.end_run_v1(%s)", run, run)

    with pytest.raises(psycopg.Error, match="run: must be a purge"):
        database.rows(step, run, [one])
    assert database.value("select count(*) from redrive.dead_letters") == 1
    assert database.value("select count(*) from redrive.audit") == 2


def test_a_run_is_counted_and_ended_alone(database: Database) -> None:
    """Beside another of its sort and one of another, all of one login; nothing done is no line."""
    (dead,) = make_dead_letters(database.conn, 1)
    begin: LiteralString = "select redrive.begin_run_v1(%s, 'ada', 'old', 5, '{}')"
    one, other, sealing = (
        database.value(begin, action) for action in ("purge", "purge", "reencrypt")
    )
    step: LiteralString = "select redrive.purge_v1(%s, %s, '{0}', '{open}')"
    with pytest.raises(
        psycopg.Error, match="run: must be a purge that this login began"
    ):
        database.rows(step, sealing, [dead])
    database.rows(step, one, [dead])
    database.rows(step, None, [dead])
    counts: LiteralString = "select id, n from redrive.runs order by id"
    assert database.rows(counts) == [(one, 1), (other, 0), (sealing, 0)]
    database.rows("select redrive.end_run_v1(%s)", one)

    assert database.rows(counts) == [(other, 0), (sealing, 0)]
    assert database.value("select count(*) from redrive.audit") == 4


def test_a_run_that_nobody_goes_on_with_says_so(database: Database) -> None:
    database.rows("select redrive.begin_run_v1('purge', 'ada', 'old', 5, '{}')")
    database.rows(
        "update redrive.runs set n = 3, active_at = now() - interval '25 hours'"
    )
    database.rows("select redrive.forget_v1(100)")

    assert database.rows("select actor, action, n from redrive.audit order by id") == [
        ("ada", "purge", 0),
        ("redrive", "interrupt purge", 3),
    ]
    assert database.value("select count(*) from redrive.runs") == 0


def test_a_mark_of_a_scheduled_run_is_on_record_once_a_day(database: Database) -> None:
    """It silences an alert; a run every five minutes leaves no line each."""
    for _ in range(3):
        database.rows("select redrive.done_chore_v1('redrive', '5 min')")
    database.rows("select redrive.done_chore_v1('redrive', '31 days')")
    other = database.login("redrive_operator")
    other.rows("select redrive.done_chore_v1('redrive', null)")

    assert database.rows(
        "select db_user, detail ->> 'every' from redrive.audit order by id"
    ) == [("postgres", "00:05:00"), ("postgres", "31 days"), ("redrive_operator", None)]


# Envelopes


@pytest.mark.parametrize(
    "new",
    [
        '{"amount": 1000000}',
        '{"$redrive": {"k": "new"}, "amount": 1000000}',
        '{"$redrive": {"amount": 1000000}}',
        '{"$redrive": "new"}',
        "null",
    ],
)
def test_only_an_envelope_takes_the_place_of_a_payload(
    database: Database, new: str
) -> None:
    """A live payload was rewritten in clear."""
    job = make_job(database.conn, payload={"amount": 1})
    with pytest.raises(psycopg.Error, match="news: must be encrypted envelopes"):
        database.rows(
            "select redrive.reencrypt_v1(null, 'jobs', %s, '{0}', '{\"{\\\"amount\\\": 1}\"}',"
            " array[%s::jsonb], '{salt}')",
            [job],
            new,
        )

    assert database.column("select payload from redrive.jobs") == [{"amount": 1}]


def test_what_a_failure_says_in_the_clear_is_what_it_said(database: Database) -> None:
    """Beside its envelope nothing is added."""
    dead = make_dead_letter(database.conn)
    old = '{"pod": "a"}'
    database.rows("update redrive.failures set detail = %s::text::jsonb", old)
    call: LiteralString = (
        "select redrive.reencrypt_v1(null, "
        "'failures', %s, %s, array[%s::jsonb], array[%s::jsonb], '{null}')"
    )
    deliveries = database.column("select deliveries from redrive.failures")
    with pytest.raises(psycopg.Error, match="news: must be encrypted envelopes"):
        database.rows(
            call, [dead], deliveries, old, '{"$redrive": {"k": "new"}, "pod": "b"}'
        )

    assert (
        database.value(
            call, [dead], deliveries, old, '{"$redrive": {"k": "n"}, "pod": "a"}'
        )
        == 1
    )


def test_a_re_encryption_is_on_record_and_has_a_role_of_its_own(
    database: Database,
) -> None:
    """An operator rewrote payloads with 0 lines."""
    job = make_job(database.conn, payload={})
    login = database.login("redrive_encryptor")
    reencrypt = "select redrive.reencrypt_v1(%s, 'jobs', %s, '{0}', '{\"{}\"}', array[%s::jsonb], '{s}')"
    run = login.value(
        "select redrive.begin_run_v1('reencrypt', 'ada', 'rotation', 1, '{}')"
    )
    assert login.value(reencrypt, run, [job], SEALED) == 1
    login.rows("select redrive.end_run_v1(%s)", run)

    assert database.rows(
        "select db_user, action, n from redrive.audit order by id"
    ) == [
        ("redrive_encryptor", "reencrypt", 0),
        ("redrive_encryptor", "end reencrypt", 1),
    ]
    for statement in (PAUSE, "select redrive.purge_v1(null, '{1}', '{0}', '{open}')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            login.rows(statement)


# The chain

THE_THIRD = "line 3 or the line before"
TAMPERING: dict[str, tuple[LiteralString, str]] = {
    "an actor": ("update redrive.audit set actor = 'bo' where id = 3", THE_THIRD),
    "a login": ("update redrive.audit set db_user = 'bo' where id = 3", THE_THIRD),
    "an instant": (
        "update redrive.audit set at = at - interval '1 us' where id = 3",
        THE_THIRD,
    ),
    "a number": ("update redrive.audit set n = 0 where id = 3", THE_THIRD),
    "a detail": (
        'update redrive.audit set detail = \'{"queue": "x"}\' where id = 3',
        THE_THIRD,
    ),
    "a line and its seal": (
        (
            "update redrive.audit a set n = 9, hash = redrive.audit_hash_v1("
            "(select hash from redrive.audit where id = 2),"
            " (a.id, a.at, a.actor, a.db_user, a.action, a.why, 9, a.detail, null)::redrive.audit)"
            " where id = 3"
        ),
        "line 4 or the line before",
    ),
    "one is gone": (
        "delete from redrive.audit where id = 3",
        "lines 3 to 3 are missing",
    ),
    "the oldest are gone": (
        "delete from redrive.audit where id < 3",
        "lines 1 to 2 are missing",
    ),
    "the newest is gone": (
        "delete from redrive.audit where id = 9",
        "the newest lines are missing",
    ),
    "all are gone": ("delete from redrive.audit", "the newest lines are missing"),
    "two have changed places": (
        (
            "alter table redrive.audit alter id set generated by default;"
            "update redrive.audit set id = case id when 3 then 103 else 3 end where id in (3, 4);"
            "update redrive.audit set id = 4 where id = 103"
        ),
        THE_THIRD,
    ),
    "one is added": (
        (
            "set session_replication_role = replica;"
            "insert into redrive.audit (id, actor, action, why, n) overriding system value"
            " values (10, 'bo', 'x', 'x', 1)"
        ),
        "line 10 or the line before",
    ),
}


@pytest.mark.parametrize("what", TAMPERING)
def test_a_change_by_a_superuser_shows(database: Database, what: str) -> None:
    """Each line is sealed with the one before it, however many lines a step looks at."""
    for _ in range(9):
        database.rows(PAUSE)
    statement, expected = TAMPERING[what]
    assert [fault(database, batch) for batch in (1, 100)] == [None] * 2
    database.rows(statement)

    for batch in (1, 100):
        assert (fault(database, batch) or "").startswith(expected)


def test_lines_are_numbered_and_sealed_one_after_the_other(database: Database) -> None:
    """Also lines of acts at the same time, and after one that was rolled back."""
    sessions = [database.session() for _ in range(4)]
    undone = database.transaction(PAUSE)
    undone.rows("rollback")

    def act(session: Session) -> None:
        for _ in range(20):
            session.rows(PAUSE)

    for done in [session.start(partial(act, session)) for session in sessions]:
        done.result(30)

    assert database.column("select id from redrive.audit order by id") == list(
        range(1, 81)
    )
    assert fault(database, 7) is None


def test_retention_leaves_a_chain_that_can_be_verified(database: Database) -> None:
    """It starts from the newest line that is gone, and says so."""
    for _ in range(6):
        database.rows(PAUSE)
    database.rows("alter table redrive.audit disable trigger audit_chained")
    # written long ago
    database.rows(
        "update redrive.audit set at = at - interval '500 days' where id <= 4;"
        "update redrive.audit_chain set hash = '';"
    )
    database.rows(
        "do $$ declare line redrive.audit; seal bytea := sha256(''); begin"
        " for line in select * from redrive.audit order by id loop"
        "  seal := redrive.audit_hash_v1(seal, line);"
        "  update redrive.audit set hash = seal where id = line.id;"
        " end loop; update redrive.audit_chain set hash = seal; end $$"
    )
    database.rows("alter table redrive.audit enable trigger audit_chained")
    assert fault(database) is None
    database.rows("select redrive.forget_v1(3), redrive.forget_v1(3)")

    assert database.column("select id from redrive.audit order by id") == [5, 6, 7, 8]
    assert database.column(
        "select detail ->> 'last' from redrive.audit where id > 6 order by id"
    ) == ["3", "4"]
    database.rows(  # neither says what is forgotten
        "select redrive.begin_run_v1('purge', 'ada', 'x', 1, '{\"last\": 0}');"
        "insert into redrive.audit (actor, action, why, n)"
        " values ('redrive', 'forget audit', 'x', 1)"
    )
    assert fault(database) is None
    assert fault(database, 1) is None
    database.rows(
        "update redrive.audit_chain c set forgotten_id = 5, forgotten_hash = a.hash"
        " from redrive.audit a where a.id = 5"
    )
    database.rows("delete from redrive.audit where id = 5")
    assert fault(database) == "lines up to 5 are missing"


def test_an_open_transaction_that_acted_keeps_no_worker_waiting(
    database: Database,
) -> None:
    """The chores of workers write lines as well, and wait for nobody who holds the chain."""
    database.transaction(PAUSE)
    worker = database.session("redrive_worker", lock_timeout="1ms")

    assert worker.row("select gone, more from redrive.forget_v1(100)") == (0, False)


def test_a_long_log_is_verified_by_the_step(database: Database) -> None:
    database.rows(
        "insert into redrive.audit (actor, action, why, n)"
        " select 'ada', 'note', 'x', 1 from generate_series(1, 250)"
    )
    steps, place = [], None
    while not steps or steps[-1][2]:
        steps.append(database.row(VERIFY, place, 100))
        place = steps[-1][0]

    assert steps == [
        (100, 100, True, None),
        (200, 100, True, None),
        (250, 50, False, None),
    ]
