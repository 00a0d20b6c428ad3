"""redrive campaign, and dlq redrive as a campaign planned and started in one."""

import json

import pytest

from redrive.cli.main import main
from redrive.cli.support.exits import Exit
from redrive.dead_letters.campaigns import drive as driver
from redrive.dead_letters.campaigns.drive import drive
from redrive.worker.store import retire
from tests.cli.conftest import Redrive
from tests.factories import (
    claim,
    complete,
    failure,
    let_die,
    let_next_die,
    make_dead_letter,
    make_dead_letters,
    make_job,
    make_worker,
)
from tests.postgres import Database

SHOWN = {
    *("campaign", "state", "matched", "redriven", "succeeded", "dead_again", "waiting"),
    *("blocked", "invalid", "rate", "actor", "login", "why"),
}


def plan(redrive: Redrive, *options: str) -> int:
    return int(redrive("campaign", "plan", *options, "--json").json["plan"])


def test_a_plan_says_what_is_promised_and_changes_nothing(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letter(database.conn, "mail", {"currency": "XAU"})
    make_dead_letter(database.conn, "mail", {"currency": "EUR"})
    narrow = ("--kind", "mail", "--where", "payload.currency=XAU")
    made = redrive("campaign", "plan", *narrow, "--rate", "0.5", "--json").json

    assert made.keys() >= {"plan", "matched", "blocked", "invalid", "groups", "seconds"}
    assert (made["matched"], made["seconds"], made["stops_after"]) == (1, 2, 21)
    assert "start it with: redrive campaign start 2" in redrive("campaign", "plan").out
    assert database.column("select distinct state from redrive.dead_letters") == [
        "open"
    ]
    assert redrive("campaign", "ls", "--json").lines == []
    assert len(redrive("campaign", "ls", "--state", "planned", "--json").lines) == 2


def test_a_plan_leaves_out_what_its_handlers_cannot_take(
    redrive: Redrive, database: Database
) -> None:
    """Nobody was told before the start that a payload does not fit."""
    make_dead_letter(database.conn, "work.typed", {"number": 5})
    make_dead_letter(database.conn, "work.typed", {})
    make_dead_letter(database.conn, "nobody.knows")
    read = ("campaign", "plan", "--handlers", "tests.flow.typed_work:jobs")
    made = redrive(*read, "--json").json
    said = redrive(*read).out

    assert (made["matched"], made["invalid"]) == (3, {"number: missing": 1})
    assert made["unchecked"] == {"no handler for nobody.knows": 1}
    assert (
        "1 will stay, invalid: number: missing. 1 not checked: no handler for nobody"
        in said
    )
    asked = redrive("campaign", "start", str(made["plan"]), "--why", "x")
    assert "1 will stay, invalid: number: missing" in asked.out
    shown = redrive("campaign", "show", str(made["plan"]), "--json").json
    assert shown["invalid"] == {"number: missing": 1}


def test_heal_lists_the_groups_and_says_why_not(
    redrive: Redrive, database: Database
) -> None:
    assert (
        "no jobs fail, and no group of bugs or invalid payloads is open"
        in redrive("campaign", "heal").out
    )
    make_dead_letter(database.conn)
    (group,) = redrive("campaign", "heal", "--json").lines

    assert (group["open"], group["heals"], group["why"]) == (1, False, "no_policy")
    said = redrive("campaign", "heal").out
    assert "no live worker of its kind says both heal= and a version" in said


def test_what_is_no_condition_is_named_with_the_fix(redrive: Redrive) -> None:
    done = redrive("campaign", "plan", "--where", "currency=XAU")

    assert done.code == 64
    assert (
        "'currency=XAU' is not a path and its value; write payload.currency=XAU"
        in done.err
    )


def test_a_campaign_from_its_plan_to_its_end(
    redrive: Redrive, database: Database
) -> None:
    """One could not be listed, shown or stopped."""
    make_dead_letters(database.conn, 5)
    made = plan(redrive)
    why = ("--why", "fixed in 1.4.2", "--yes", "--json")

    assert (
        "nothing was changed; add --yes to do it"
        in redrive("campaign", "start", str(made)).out
    )
    assert redrive("campaign", "start", str(made), "--yes").code == 64
    started = redrive("campaign", "start", str(made), *why)
    assert (started.json["campaign"], started.json["state"]) == (made, "canary")
    assert redrive("campaign", "start", str(made), *why).code == 2
    worker = make_worker(database.conn)
    complete(database.conn, worker, *claim(database.conn, worker))
    drive(database.conn, made)
    complete(database.conn, worker, *claim(database.conn, worker))
    watched = redrive("campaign", "watch", str(made), "--json")

    assert watched.code == 0
    shown = redrive("campaign", "show", str(made), "--json").json
    assert shown.keys() >= SHOWN
    assert (shown["state"], shown["succeeded"], shown["waiting"]) == ("done", 5, 0)
    assert (shown["actor"], shown["why"]) == ("tester", "fixed in 1.4.2")
    assert (
        "5 of 5 redriven: 5 succeeded, 0 dead again"
        in redrive("campaign", "show", "1").out
    )
    assert [c["campaign"] for c in redrive("campaign", "ls", "--json").lines] == [made]
    assert redrive("campaign", "show", "99").code == 2


def test_one_that_aborted_says_so_and_is_resumed(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letters(database.conn, 50)
    made = str(plan(redrive))
    redrive("campaign", "start", made, "--why", "x", "--yes")
    worker = make_worker(database.conn)
    for job in claim(database.conn, worker):
        let_die(database.conn, worker, job)
    watched = redrive("campaign", "watch", made)

    assert watched.code == 4
    assert "aborted: 3 of 3 died again, more than 10%" in watched.out
    resumed = redrive(
        "campaign", "resume", made, "--why", "fixed at last", "--yes", "--json"
    ).json
    assert (resumed["state"], resumed["redriven"]) == ("canary", 6)


def test_a_campaign_is_paused_and_cancelled(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letters(database.conn, 5)
    made = str(plan(redrive))
    redrive("campaign", "start", made, "--why", "x", "--yes")

    paused = redrive(
        "campaign", "pause", made, "--why", "lunch", "--yes", "--json"
    ).json
    assert (paused["state"], paused["said"]) == ("paused", "lunch")
    assert "add --yes to do it" in redrive("campaign", "cancel", made, "--why", "x").out
    gone = redrive(
        "campaign", "cancel", made, "--why", "wrong group", "--yes", "--json"
    ).json
    assert (gone["state"], gone["cancelled"], gone["waiting"]) == ("cancelled", 3, 2)
    assert database.column("select distinct state from redrive.dead_letters") == [
        "open"
    ]
    assert redrive("campaign", "cancel", made, "--why", "again", "--yes").code == 2


def test_it_waits_for_what_was_asked(redrive: Redrive, database: Database) -> None:
    make_dead_letter(database.conn)
    made = str(plan(redrive))
    conditions = ("--when-breaker", "smtp:closed", "--when-version", ">=1.4")
    started = redrive(
        "campaign", "start", made, "--why", "x", "--yes", *conditions, "--json"
    )
    assert started.json["state"] == "waiting"

    database.rows("insert into redrive.breakers (name, state) values ('smtp', 'open')")
    drive(database.conn, int(made))
    assert redrive("campaign", "show", made, "--json").json["said"] == (
        "breaker smtp is open, not closed"
    )
    database.rows("update redrive.breakers set state = 'closed'")
    database.rows(
        "select redrive.register_v1('w', '1.4.1', '1 min', '{*}', null, null, null)"
    )
    drive(database.conn, int(made))
    assert redrive("campaign", "show", made, "--json").json["state"] == "canary"


def test_what_is_no_condition_of_a_start_is_refused(redrive: Redrive) -> None:
    breaker = redrive("campaign", "start", "1", "--when-breaker", "smtp")
    version = redrive("campaign", "start", "1", "--when-version", "newest")

    assert (breaker.code, version.code) == (64, 64)
    assert "write smtp:closed (closed, half_open, open)" in breaker.err
    assert "--when-version is 'newest'; write >=1.4" in version.err


# dlq redrive


def test_ids_that_are_not_there_are_named(redrive: Redrive, database: Database) -> None:
    """`dlq redrive 83 99999` dropped the unknown one in silence."""
    dead = make_dead_letter(database.conn)
    done = redrive(
        "dlq", "redrive", str(dead), "99999", "--why", "x", "--yes", "--json"
    )

    counts = {"matched": 1, "redriven": 1, "blocked": {}, "campaign": 1}
    assert done.json == counts | {"state": "running"}
    look = "redrive job show 99999 shows what happened to it"
    missed = "job 99999 has no open dead letter, or it does not match"
    assert done.err == f"redrive: {missed}; {look}\n"


def test_many_have_canaries_and_what_aborts_is_a_failure(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letters(database.conn, 10)
    for few, canaries in ((("--limit", "9"), 0), ((), 3), (("--canaries", "7"), 7)):
        waiting = database.session()
        waiting.rows(
            "create function stop() returns trigger language plpgsql as"
            " $$begin raise 'seen: %', new.canaries; end$$"
        )
        waiting.rows(
            "create trigger stop before update on redrive.campaigns for each row"
            " when (new.state = 'waiting') execute function stop()"
        )
        done = redrive("dlq", "redrive", "--all", "--why", "x", "--yes", *few)
        waiting.rows("drop function stop cascade")

        assert f"seen: {canaries}" in done.err


def test_a_redrive_that_aborts_says_so(redrive: Redrive, database: Database) -> None:
    """It has an exit status of its own, and is not counted as done."""
    make_dead_letter(database.conn)
    database.rows("update redrive.dead_letters set tenant = repeat('x', 300)")
    scheduled = {"REDRIVE_REDRIVE_EVERY": "15m"}
    options = ("--all", "--why", "x", "--yes", "--json")
    done = redrive("dlq", "redrive", *options, **scheduled)

    assert done.code == Exit.ABORTED
    counts = {"matched": 1, "redriven": 0, "blocked": {}, "campaign": 1}
    assert done.json == counts | {"state": "aborted"}
    assert "campaign aborted" in done.err
    assert (
        database.rows(
            "select ran_at from redrive.chores where name = 'redrive' and marked_by is not null"
        )
        == []
    )


def test_without_a_worker_it_is_left_to_those_that_come(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It waited for its canaries for ever, where nobody could run them."""
    make_dead_letters(database.conn, 5)
    monkeypatch.setattr(driver, "PATIENCE_SECONDS", 0.5)
    narrowed = ["--all", "--canaries", "2", "--why", "x", "--yes", "--json"]
    capsys.readouterr()
    code = main(["dlq", "redrive", *narrowed, "--database-url", database.url])
    said = capsys.readouterr()

    assert code == 0
    assert json.loads(said.out) == {
        "matched": 5,
        "redriven": 2,
        "blocked": {},
        "campaign": 1,
        "state": "canary",
    }
    assert "no worker is alive: campaign 1 waits until you start one" in said.err
    assert "will drive it; to watch it: redrive campaign watch 1" in said.err
    assert database.value("select state from redrive.campaigns") == "canary"


def test_a_look_at_it_leaves_nothing_behind(
    redrive: Redrive, database: Database
) -> None:
    make_dead_letter(database.conn)
    redrive("dlq", "redrive", "--all")
    redrive("dlq", "redrive", "--all", "--why", "x", "--yes", "--dry-run")

    assert database.value("select count(*) from redrive.campaigns") == 0


def test_a_plan_of_nothing_is_not_kept(redrive: Redrive, database: Database) -> None:
    """It could be started for a day; so did each scheduled redrive that found nothing."""
    planned = redrive("campaign", "plan", "--kind", "a.b")
    redrive("dlq", "redrive", "--all", "--why", "x", "--yes")

    assert (planned.code, planned.out) == (2, "nothing matched\n")
    assert redrive("campaign", "plan", "--kind", "a.b", "--json").json["plan"] is None
    assert database.value("select count(*) from redrive.campaigns") == 0


def test_dlq_show_says_who_redrove_it(redrive: Redrive, database: Database) -> None:
    """It did not say who, when, why, which campaign."""
    dead = make_dead_letter(database.conn)
    redrive("dlq", "redrive", str(dead), "--why", "the bank is back", "--yes")

    (life,) = redrive("dlq", "show", str(dead), "--json").json["lineage"]
    assert (life["campaign"], life["redriven_by"], life["why"]) == (
        1,
        "tester",
        "the bank is back",
    )
    shown = redrive("dlq", "show", str(dead)).out
    assert "redriven by tester, campaign 1: the bank is back" in shown


def test_quarantine_is_shown_left_out_and_left_when_told(
    redrive: Redrive, database: Database
) -> None:
    """What died of the same again after a redrive: somebody has to look at it."""
    (job,) = make_dead_letters(database.conn, 1)
    redrive("dlq", "redrive", str(job), "--why", "fixed", "--yes")
    worker = make_worker(database.conn)
    let_next_die(database.conn, worker)
    many = ("dlq", "redrive", "--kind", "invoice.charge")

    assert (
        "ValueError: quarantined, no such invoice"
        in redrive("dlq", "ls", COLUMNS="80").out
    )
    assert redrive("dlq", "ls", "--json").json["quarantined"] is True
    assert "1 (1 quarantined)" in redrive("dlq", "groups").out
    assert (
        "quarantined: it died of the same failure as before"
        in redrive("dlq", "show", str(job)).out
    )
    assert "1 will stay: it died again of the same cause" in redrive(*many).out
    left = redrive(*many, "--why", "x", "--yes", "--json").json
    assert (left["redriven"], left["blocked"]) == (0, {"quarantined": 1})
    taken = redrive(
        *many, "--include-quarantined", "--why", "looked at", "--yes", "--json"
    ).json
    assert (taken["redriven"], taken["blocked"]) == (1, {})


def test_what_stays_is_named_with_what_to_do(
    redrive: Redrive, database: Database
) -> None:
    """In the preview and in dlq show. Flags let it go; a job that must not run twice goes by id."""
    said = '{"wire": {"rate": 2, "repeatable": false}}'
    database.rows("select redrive.declare_redrives_v1('{wire}', %s)", said)
    once = make_dead_letter(database.conn, "wire")
    bad = make_dead_letter(database.conn, "read")
    database.rows(
        "update redrive.dead_letters set category = 'invalid' where id = %s", bad
    )
    act = ("dlq", "redrive", "--why", "x", "--yes", "--json")
    many = redrive("dlq", "redrive", "--all", COLUMNS="300").out

    assert "redrive dlq redrive ID --repeat" in many
    assert "1 will stay: the payload is invalid" in many
    assert "wire: at most 2 per second over all campaigns" in many
    assert f"redrive dlq edit {bad}" in redrive("dlq", "show", str(bad)).out
    assert redrive("dlq", "show", str(once), "--json").json["obstacle"] == (
        "not_repeatable"
    )
    assert "--repeat needs ids" in redrive(*act, "--kind", "wire", "--repeat").err
    by_variable = redrive(*act, str(once), REDRIVE_REDRIVE_REPEAT="true")
    assert "REDRIVE_REDRIVE_REPEAT is not a setting" in by_variable.err
    assert redrive(*act, "--all").json["blocked"] == {"invalid": 1, "not_repeatable": 1}
    assert redrive(*act, str(once), "--repeat").json["redriven"] == 1
    assert redrive(*act, "--kind", "read", "--include-invalid").json["redriven"] == 1


def test_a_start_says_how_long_it_takes_at_the_rate_of_its_kind(
    redrive: Redrive, database: Database
) -> None:
    """It counted by --rate alone; the plan showed a start without a time."""
    said = '{"wire": {"rate": 2, "repeatable": true}}'
    database.rows("select redrive.declare_redrives_v1('{wire}', %s)", said)
    for _ in range(6):
        make_dead_letter(database.conn, "wire")
    plan = str(redrive("campaign", "plan", "--json").json["plan"])
    start = ("campaign", "start", plan, "--why", "x")

    assert "Takes 3 s at least" in redrive(*start, "--rate", "50").out
    assert "Takes 6 s at least" in redrive(*start, "--rate", "1").out
    assert "Takes 3 s at least" in redrive(*start).out
    assert "started by" not in redrive("campaign", "show", plan).out
    redrive(*start, "--yes")
    assert "started by tester" in redrive("campaign", "show", plan).out


@pytest.mark.parametrize("how", ["redrive", "start"])
def test_a_redrive_may_change_the_queue_and_the_history_says_so(
    redrive: Redrive, database: Database, how: str
) -> None:
    """--to-queue, for ids, filters and plans."""
    job = make_dead_letter(database.conn, "mail")
    to = ("--to-queue", "slow", "--why", "the big machines", "--yes")

    if how == "redrive":
        ran = redrive("dlq", "redrive", str(job), *to)
    else:
        ran = redrive("campaign", "start", str(plan(redrive)), *to)

    assert ran.code == 0
    warning = "No live worker works on mail in the queue slow."
    assert f"They go to the queue slow. {warning}" in ran.out
    assert database.column("select queue from redrive.jobs") == ["slow"]
    assert "redriven to the queue slow by tester, campaign" in (
        redrive("dlq", "show", str(job)).out
    )
    (death,) = redrive("dlq", "show", str(job), "--json").json["lineage"]
    assert death["to_queue"] == "slow"
    assert "to the queue slow" in redrive("job", "show", str(job)).out
    assert "to the queue slow" in redrive("campaign", "show", "1").out
    detail = "select detail -> 'conditions' from redrive.audit where action = 'redrive'"
    assert database.column(detail) == [{"to_queue": "slow"}]

    refused = redrive("dlq", "redrive", str(job), "--to-queue", "1slow", "--dry-run")
    assert (refused.code, "--to-queue" in refused.err) == (64, True)


def test_a_queue_with_workers_for_the_kind_needs_no_warning(
    redrive: Redrive, database: Database
) -> None:
    """The warning names only kinds that nobody works on there."""
    job = make_dead_letter(database.conn, "mail")
    database.conn.execute(
        "select redrive.register_v1('w', 'test', interval '1 minute', '{mail}', '{slow}',"
        " null, null)"
    )

    ran = redrive("dlq", "redrive", str(job), "--to-queue", "slow", "--dry-run")

    assert "They go to the queue slow." in ran.out
    assert "No live worker" not in ran.out


def died_in(database: Database, version: str, category: str = "bug") -> int:
    """Return a dead letter that failed in a version."""
    job = make_job(database.conn, "mail")
    worker = make_worker(database.conn, "undertaker")
    record = failure(category=category, detail={"version": version})
    let_next_die(database.conn, worker, failure=record)
    retire(database.conn, worker)
    return job


def run_version(database: Database, version: str) -> None:
    database.conn.execute(
        "select redrive.register_v1('w', %s, interval '1 minute', '{mail}', null, null, null)",
        (version,),
    )


def test_a_redrive_into_the_version_that_failed_says_so(
    redrive: Redrive, database: Database
) -> None:
    job = str(died_in(database, "1.4.2"))
    look = ("dlq", "redrive", job, "--dry-run")
    warning = "only version 1.4.2 is running, in which they failed before"
    assert "is running" not in redrive(*look).out

    run_version(database, "1.4.2")
    shown = f"O{warning[1:]}."
    assert shown in redrive(*look).out
    assert redrive("campaign", "plan", "--json").json["remarks"] == [warning]
    assert shown in redrive("campaign", "plan").out
    assert shown in redrive("campaign", "start", "2", "--dry-run").out

    run_version(database, "1.4.3")
    assert "running" not in redrive(*look).out


def test_a_provider_that_is_back_needs_no_new_version(
    redrive: Redrive, database: Database
) -> None:
    job = str(died_in(database, "1.4.2", category="transient"))
    run_version(database, "1.4.2")

    assert "running" not in redrive("dlq", "redrive", job, "--dry-run").out


def test_a_redrive_names_the_command_that_shows_its_end(
    redrive: Redrive, database: Database
) -> None:
    job = str(make_dead_letter(database.conn))

    ran = redrive("dlq", "redrive", job, "--why", "x", "--yes")

    assert ran.out.endswith(
        "1 dead letter redriven by campaign 1.\n"
        "to see how they end: redrive campaign show 1\n"
    )


def test_a_redrive_waits_and_says_how_it_ended(
    redrive: Redrive, database: Database
) -> None:
    jobs = [str(make_dead_letter(database.conn)) for _ in range(2)]
    session = database.session()

    def work() -> None:
        worker = make_worker(session.conn, "late")
        done: list[int] = []
        while len(done) < 2:
            for job in claim(session.conn, worker, 1):
                if done:
                    let_die(session.conn, worker, job)
                else:
                    complete(session.conn, worker, job)
                done.append(job.id)

    working = session.start(work)
    ran = redrive("dlq", "redrive", *jobs, "--why", "x", "--yes", "--wait")
    working.result(60)

    assert "2 dead letters redriven by campaign 1.\n" in ran.out
    assert "1 succeeded, 1 died again, 0 cancelled" in ran.out
    assert "to see how they end" not in ran.out
