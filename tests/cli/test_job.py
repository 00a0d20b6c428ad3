"""`redrive job` and what is undone, as they are typed."""

import json
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from redrive.cli.main import cli
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.drive import drive
from redrive.dead_letters.campaigns.terms import Terms
from redrive.dead_letters.filter import Filter
from redrive.jobs.show import show
from redrive.worker import store
from tests.cli.conftest import Redrive
from tests.factories import (
    claim,
    claim_one,
    complete_next,
    failure,
    let_next_die,
    make_dead_letter,
    make_job,
    make_jobs,
    make_worker,
    settle,
    settle_next,
)
from tests.factories import redrive as put_back
from tests.postgres import Connection, Database

LISTED = {
    "id",
    "kind",
    "queue",
    "state",
    "attempt",
    "deliveries",
    "priority",
    "run_at",
    "created_at",
    "worker",
    "key",
    "ordering_key",
    "tenant",
    "waiting_for",
    "last_failure",
    "progress",
}


def register(
    conn: Connection,
    name: str = "w",
    kinds: tuple[str, ...] = ("mail.*",),
    queues: tuple[str, ...] | None = None,
    **depends_on: list[str],
) -> int:
    """A worker that lives and says what it is."""
    said = {kind.replace("_", "."): names for kind, names in depends_on.items()}
    return store.register(
        conn, store.Registration(name, "1", 30.0, kinds, queues, said)
    )


def asked(
    conn: Connection, worker: int, seconds: float = 0.0, **running: float
) -> None:
    """Its last heartbeat said so."""
    progress = {"slots": 4, "asked": seconds, "running": running, "waiting": []}
    store.beat(conn, {worker: len(running)}, {worker: json.dumps(progress)})


def test_ls_has_the_fields_and_the_filters(
    redrive: Redrive, database: Database
) -> None:
    conn = database.conn
    job = make_job(conn, "mail.send", {"n": 1}, tenant="acme", idempotency_key="k")
    worker = make_worker(conn, "pod-1")
    settle_next(conn, worker, "retry", delay=300.0, failure=failure())
    make_job(conn, "mail.send")
    claim_one(conn, worker)

    (retrying,) = redrive("job", "ls", "--state", "retrying,blocked", "--json").lines
    (running,) = redrive("job", "ls", "--state", "running", "--json").lines

    assert retrying.keys() == running.keys() == LISTED
    assert (retrying["id"], retrying["attempt"], retrying["key"]) == (job, 1, "k")
    assert retrying["waiting_for"] == "retrying"
    assert retrying["last_failure"].keys() == {
        "error_class",
        "message",
        "category",
        "at",
    }
    assert (running["worker"], running["attempt"], running["last_failure"]) == (
        "pod-1",
        1,
        None,
    )
    assert redrive("job", "ls", "--tenant", "acme", "--json").json["id"] == job
    shown = redrive("job", "ls").out
    assert "no such invoice" in shown
    assert "pod-1" in shown


def test_ls_says_how_far_a_running_job_is(redrive: Redrive, database: Database) -> None:
    """Of its handler's last `job.progress`; nothing of one that said nothing."""
    conn, worker = database.conn, make_worker(database.conn)
    make_jobs(conn, 2)
    job, other = claim(conn, worker)
    detail = json.dumps({"text": "page 40 of 100"})
    store.keep_progress(
        conn, [store.Noted(worker, job.claim, job.id, job.deliveries, detail, 0.4)]
    )

    first, second = redrive("job", "ls", "--json").lines
    assert (first["id"], second["id"]) == (job.id, other.id)
    assert first["progress"].keys() == {"share", "text", "at", "delivery"}
    assert (first["progress"]["share"], first["progress"]["text"]) == (
        0.4,
        "page 40 of 100",
    )
    assert second["progress"] is None
    assert redrive("job", "ls", COLUMNS="200").out.count("running 40%") == 1


def test_show_says_what_became_of_a_job_of_which_nothing_is_kept(
    redrive: Redrive, database: Database
) -> None:
    """It said the same of one that had succeeded and of one that never was."""
    conn, worker = database.conn, make_worker(database.conn)
    done = make_job(conn, "mail.send")
    complete_next(conn, worker)

    ended, unknown = redrive("job", "show", str(done)), redrive("job", "show", "999999")

    assert (ended.code, unknown.code) == (2, 2)
    assert (
        f"nothing is left of job {done}: it succeeded, its enqueue was rolled back"
        in ended.err
    )
    assert "--history 7d" in ended.err
    assert "there is no job 999999" in unknown.err


def test_show_of_a_job_that_the_audit_log_alone_knows_leaves_no_gaps(
    redrive: Redrive, database: Database
) -> None:
    """`attempt , 0 deliveries; priority ; created` was said of a job that was cancelled."""
    job = make_job(database.conn, "mail.send")
    redrive("job", "cancel", str(job), "--why", "not wanted", "--yes")

    shown = redrive("job", "show", str(job)).out

    assert shown.splitlines()[:2] == [
        f"job {job}  cancelled",
        "it is gone; its last entry in the audit log: cancel",
    ]
    assert "not wanted" in shown
    assert "payload" not in shown


def test_ls_goes_on_where_a_page_ended(redrive: Redrive, database: Database) -> None:
    jobs = make_jobs(database.conn, 7)
    first = redrive("job", "ls", "--limit", "4", "--json")
    place = first.err.strip().rpartition(" ")[2]
    second = redrive("job", "ls", "--after", place, "--json")
    bad = redrive("job", "ls", "--after", "'; drop")

    assert [line["id"] for line in first.lines + second.lines] == jobs
    assert second.err == ""
    assert (bad.code, "is not a place" in bad.err) == (64, True)


def why(database: Database, job: int) -> tuple[str, str]:
    found = show(database.conn, job)
    assert found is not None
    return found["why"]["code"], found["why"]["text"]


def test_why_due_and_running(database: Database) -> None:
    conn = database.conn
    job, worker = make_job(conn, "mail.send"), register(conn, "pod-1")
    asked(conn, worker)
    assert why(database, job)[0] == "due"
    assert "1 live worker can run it, 0 of 4 slots busy" in why(database, job)[1]

    claim_one(conn, worker)
    asked(conn, worker, **{str(job): 65.0})
    assert why(database, job) == ("running", "pod-1 has run it for 65 s")


def test_why_scheduled_and_retrying(database: Database) -> None:
    """Due in 3 min."""
    conn = database.conn
    job, worker = make_job(conn, "mail.send"), register(conn)
    settle_next(conn, worker, "retry", delay=185.0, failure=failure())
    later = make_job(conn, "mail.send")
    database.rows(
        "update redrive.jobs set run_at = now() + interval '2 h' where id = %s", later
    )

    code, text = why(database, job)
    assert (code, "due in 3 min" in text) == ("retrying", True)
    assert "ValueError: no such invoice" in text
    assert why(database, later)[0] == "scheduled"


def test_why_queue_paused(redrive: Redrive, database: Database) -> None:
    """By whom and why; the same for the queue."""
    job = make_job(database.conn, "mail.send")
    redrive(
        "queue",
        "pause",
        "default",
        "--why",
        "the bank is down",
        "--actor",
        "ada",
        "--yes",
    )

    code, text = why(database, job)
    (queue,) = redrive("queue", "ls", "--json").lines
    assert code == queue["why"]["code"] == "queue_paused"
    assert "ada paused queue default" in text
    assert text.endswith("the bank is down")
    assert "the bank is down" in redrive("queue", "ls").out


def test_why_behind_key(database: Database) -> None:
    """Third in line, and what the first one does."""
    conn = database.conn
    first, second, third = (
        make_job(conn, "mail.send", ordering_key="K") for _ in range(3)
    )
    worker = register(conn)
    claimed = claim_one(conn, worker)
    line = f"second in line behind ordering key K; the first is job {first}, which is running"
    assert why(database, second) == ("behind_key", f"it is the {line}")

    settle(conn, worker, claimed, "retry", delay=300.0, failure=failure())
    code, text = why(database, third)
    assert code == "behind_key"
    assert (
        f"the third in line behind ordering key K; the first is job {first}, which"
        in text
    )
    assert "is retrying until" in text


def test_why_behind_a_key_that_a_death_holds(
    redrive: Redrive, database: Database
) -> None:
    """What holds it, and what to do; then that it comes first."""
    conn = database.conn
    said = store.Registration("w", "1", 30.0, ["mail.*"], None, holds=["mail.*"])
    worker = store.register(conn, said)
    first, second, third = (
        make_job(conn, "mail.send", ordering_key="K") for _ in range(3)
    )
    let_next_die(conn, worker)
    held = f"behind ordering key K, held by dead letter {first} (redrive or dismiss it)"

    assert why(database, second) == ("behind_key", f"it is the first in line {held}")
    assert why(database, third) == ("behind_key", f"it is the second in line {held}")
    assert redrive("dlq", "show", str(first), "--json").lines[0]["holds_key"] is True
    assert (
        "it holds ordering key K: the jobs behind it wait"
        in redrive("dlq", "show", str(first)).out
    )

    redrive("dlq", "redrive", str(first), "--why", "mended", "--yes")
    assert f"the first is job {first}, which is due" in why(database, second)[1]
    claim_one(conn, worker)
    assert f"the first is job {first}, which is running" in why(database, third)[1]


def test_why_breaker_open(database: Database) -> None:
    """Workers say what their handlers depend on."""
    conn = database.conn
    job = make_job(conn, "mail.send")
    register(conn, **{"mail.*": ["smtp"]})
    database.rows(
        "insert into redrive.breakers (name, state, open_until)"
        " values ('smtp', 'open', now() + interval '5 min')"
    )

    code, text = why(database, job)
    assert (code, "breaker smtp is open until" in text) == ("breaker_open", True)


def test_why_no_worker_and_not_polled(database: Database) -> None:
    conn = database.conn
    job = make_job(conn, "mail.send")
    assert why(database, job)[0] == "not_polled"

    register(conn, "other", ("a.b",))
    register(conn, "elsewhere", ("mail.send",), ("bulk",))
    code, text = why(database, job)
    assert code == "no_worker"
    assert "workers for it serve: bulk; workers of this queue handle: a.b" in text

    asked(conn, register(conn, "stuck"), 360.0)
    code, text = why(database, job)
    assert (code, "nobody has polled queue default for 6 min" in text) == (
        "not_polled",
        True,
    )


def test_why_of_a_dead_letter_names_the_running_campaign_that_will_redrive_it(
    database: Database,
) -> None:
    conn = database.conn
    first, later = (make_dead_letter(conn, payload={"n": n}) for n in range(2))
    planned = campaigns.plan(conn, Filter(), actor="ada").plan
    assert planned is not None
    assert why(database, later)[0] == "ended"

    campaigns.start(conn, planned, Terms(canaries=1), actor="ada", why="fixed")
    drive(conn, planned)

    code, text = why(database, later)
    assert (code, f"; campaign {planned} will redrive it" in text) == (
        "in_campaign",
        True,
    )
    assert why(database, first)[0] != "in_campaign", "it has had its turn"
    campaigns.pause(conn, planned, actor="ada", why="later")
    assert why(database, later)[0] == "ended"


def test_why_there_is_no_worker_says_who_was_there(database: Database) -> None:
    """One that had ended in peace left no mark; any other one passed for a worker of this job."""
    conn = database.conn
    job = make_job(conn, "mail.send")
    assert why(database, job)[1] == "no live worker serves queue default"

    store.retire(conn, register(conn, "short"))
    conn.execute("update redrive.contact set at = at - interval '5 min'")
    nobody = "no live worker serves queue default; "
    last = f"{nobody}the last worker of any queue was seen 5 min ago"
    assert why(database, job)[1] == last

    conn.execute(
        "update redrive.workers set seen_at = now() - interval '7 min', lost_at = now()"
        " where id = any (%s)",
        (
            [
                register(conn, "other", ("a.b",)),
                register(conn, "bulk", ("mail.send",), ("bulk",)),
            ],
        ),
    )
    assert why(database, job)[1] == last
    conn.execute(
        "update redrive.workers set seen_at = now() - interval '8 min', lost_at = now()"
        " where id = %s",
        (register(conn, "able", ("mail.*",)),),
    )
    assert why(database, job)[1] == f"{nobody}one that would was last seen 8 min ago"


def test_show_tells_the_story_of_a_live_job(
    redrive: Redrive, database: Database
) -> None:
    """Enqueued, failed, died, redriven, in order; the payload without secrets."""
    conn = database.conn
    job = make_dead_letter(conn, "mail.send", {"password": "hunter2hunter2", "n": 1})
    redrive("dlq", "note", str(job), "the bank confirms", "--actor", "ada")
    redrive("dlq", "redrive", str(job), "--why", "fixed", "--actor", "ada", "--yes")

    found = redrive("job", "show", str(job), "--json").json
    assert found.keys() == LISTED | {
        "payload",
        "failures",
        "side_effects",
        "schedule",
        "cause",
        "checkpoint",
        "story",
        "why",
    }
    assert [step["what"].partition(":")[0] for step in found["story"]] == [
        "enqueued",
        "attempt 1 failed",
        "died",
        "note",
        "redriven by campaign 1",
    ]
    assert [step["kind"] for step in found["story"]] == [
        *("enqueued", "failure", "death", "note", "redrive")
    ]
    assert found["story"][-1]["by"] == "ada"
    assert found["story"][-1]["why"] == "fixed"
    assert "hunter2" not in json.dumps(found)
    shown = redrive("job", "show", str(job)).out
    assert "redriven by campaign 1  by ada: fixed" in shown
    assert "hunter2" not in shown

    # The queue has no history.
    worker = make_worker(conn)
    complete_next(conn, worker)
    ended = redrive("job", "show", str(job)).out
    assert "redriven by campaign 1; then completed  by ada: fixed" in ended


def test_show_names_the_cause_of_a_failing_job_and_how_many_jobs_share_it(
    redrive: Redrive, database: Database
) -> None:
    conn = database.conn
    worker = make_worker(conn)
    first, *_ = make_jobs(conn, 3)
    other = make_job(conn)
    for _ in range(3):
        job = claim_one(conn, worker)
        fault = failure(message="503 from the bank", fingerprint="f1")
        settle(conn, worker, job, "retry", delay=3600, failure=fault)

    found = redrive("job", "show", str(first), "--json").json
    shown = redrive("job", "show", str(first)).out

    assert (found["cause"]["group"], found["cause"]["failing"]) == ("f1", 3)
    text = " ".join(shown.split())
    assert "503 from the bank; 3 jobs are retried. See redrive dlq show f1" in text
    assert redrive("job", "show", str(other), "--json").json["cause"] is None


def test_show_finds_a_job_wherever_it_is(redrive: Redrive, database: Database) -> None:
    """Dead, dismissed, and known from the audit log alone."""
    conn = database.conn
    dead, dismissed = make_dead_letter(conn), make_dead_letter(conn)
    redrive("dlq", "dismiss", str(dismissed), "--why", "too late")
    cancelled = make_job(conn, "mail.send")
    redrive("job", "cancel", str(cancelled), "--why", "not wanted", "--yes")

    for job, state in {
        dead: "dead",
        dismissed: "dismissed",
        cancelled: "cancelled",
    }.items():
        found = redrive("job", "show", str(job), "--json").json
        assert (found["state"], found["why"]["code"]) == (state, "ended")
        assert redrive("job", "show", str(job)).code == 0
    assert found["story"][-1] | {"at": ""} == {
        "at": "",
        "kind": "act",
        "what": "cancel",
        "by": "tester",
        "why": "not wanted",
    }
    assert redrive("job", "show", "999999").code == 2


def test_cancel_previews_and_asks_for_a_why(
    redrive: Redrive, database: Database
) -> None:
    conn = database.conn
    jobs = make_jobs(conn, 3, "mail.send")
    make_job(conn, "a.b")
    (claimed,) = claim(conn, make_worker(conn), 1)
    assert claimed.id == jobs[0]

    vague = redrive("job", "cancel", "--why", "all", "--yes")
    untold = redrive("job", "cancel", "--kind", "mail.send", "--yes")
    seen = redrive("job", "cancel", "--kind", "mail.send", "--why", "wrong")
    dry = redrive(
        "job", "cancel", "--kind", "mail.send", "--dry-run", "--yes", "--json"
    )
    done = redrive(
        "job", "cancel", "--kind", "mail.send", "--why", "wrong", "--yes", "--json"
    )
    missed = redrive("job", "cancel", "999999", "--why", "wrong", "--yes")

    assert (vague.code, untold.code) == (64, 64)
    assert "3 live jobs" in seen.out
    assert "add --yes" in seen.out
    assert dry.json == {"matched": 3, "cancelled": 0, "asked": 0}
    assert done.json == {"matched": 3, "cancelled": 2, "asked": 1}
    assert (missed.code, "999999 is not live" in missed.err) == (2, True)


def test_now_and_wait(redrive: Redrive, database: Database) -> None:
    conn = database.conn
    job, worker = make_job(conn, "mail.send"), make_worker(conn)
    settle_next(conn, worker, "retry", delay=300.0, failure=failure())

    done = redrive("job", "now", str(job), "--why", "it is back", "--yes", "--json")
    waited = redrive("job", "wait", str(job), "--timeout", "0", "--json")
    dead = redrive("job", "wait", str(make_dead_letter(conn)), "--json")

    assert done.json == {"matched": 1, "due": 1}
    assert (waited.code, waited.json) == (
        2,
        {"id": job, "outcome": "live", "result": None},
    )
    assert (dead.code, dead.json["outcome"]) == (1, "dead")
    assert redrive("job", "wait", "999999").code == 2
    conn.execute("delete from redrive.jobs where id = %s", (job,))
    unknown = redrive("job", "wait", str(job), "--json")
    assert (unknown.code, unknown.json["outcome"]) == (3, "unknown")


def test_an_enqueue_that_was_rolled_back_is_no_success(
    redrive: Redrive, database: Database
) -> None:
    """`job wait` said succeeded, and ended with 0."""
    with psycopg.connect(database.url) as conn:
        job = make_job(conn, "mail.send")
        conn.rollback()

    waited = redrive("job", "wait", str(job))
    assert (waited.code, waited.out) == (3, "unknown\n")
    assert "its enqueue was rolled back" in redrive("job", "show", str(job)).err


@pytest.mark.parametrize("how", ["open", "dismissed"])
def test_a_dead_letter_that_was_purged_is_no_success(
    redrive: Redrive, database: Database, how: str
) -> None:
    job = make_dead_letter(database.conn)
    if how == "dismissed":
        database.rows("select redrive.dismiss_v1(%s, 'ada', 'why')", [job])
    assert redrive("job", "wait", str(job)).code == 1
    database.rows("select redrive.purge_v1(null, %s, '{0}', '{open,dismissed}')", [job])

    waited = redrive("job", "wait", str(job))
    assert (waited.code, waited.out) == (3, "unknown\n")


def test_what_is_on_record_says_that_a_job_succeeded(
    redrive: Redrive, database: Database
) -> None:
    conn, worker = database.conn, make_worker(database.conn)
    database.rows("insert into redrive.history_queues (queue, days) values ('kept', 7)")
    kept = make_job(conn, "mail.send", queue="kept")
    complete_next(conn, worker)
    died = make_dead_letter(conn)
    put_back(conn, [died])
    complete_next(conn, worker)

    assert [redrive("job", "wait", str(job)).code for job in (kept, died)] == [0, 0]


def test_a_dismissal_is_undone(redrive: Redrive, database: Database) -> None:
    """And dismissed by filters, with a preview."""
    conn = database.conn
    jobs = [make_dead_letter(conn, "mail.send") for _ in range(3)]
    kept = make_dead_letter(conn, "a.b")

    seen = redrive("dlq", "dismiss", "--kind", "mail.send", "--why", "late", "--json")
    done = redrive(
        "dlq", "dismiss", "--kind", "mail.send", "--why", "late", "--yes", "--json"
    )
    back = redrive(
        "dlq",
        "reopen",
        str(jobs[0]),
        str(kept),
        "--why",
        "after all",
        "--yes",
        "--json",
    )

    assert seen.json == {"matched": 3, "dismissed": []}
    assert done.json == {"matched": 3, "dismissed": jobs}
    assert back.json == {"matched": 1, "reopened": [jobs[0]]}
    assert f"job {kept} has no dismissed dead letter" in back.err
    states: dict[int, Any] = dict(
        database.rows("select id, state from redrive.dead_letters")
    )
    assert [states[job] for job in (*jobs, kept)] == [
        "open",
        "dismissed",
        "dismissed",
        "open",
    ]
    assert redrive("dlq", "dismiss", "--why", "all", "--yes").code == 64


@pytest.mark.parametrize(
    ("arguments", "choice"),
    [
        (("dlq", "ls", "--category", "typo"), "transient"),
        (("dlq", "ls", "--reason", "typo"), "gave_up"),
        (("dlq", "ls", "--state", "typo"), "dismissed"),
        (("job", "ls", "--state", "ready,typo"), "blocked"),
        (("purge", "--reason", "typo"), "expired"),
    ],
)
def test_a_typo_in_a_closed_set_is_refused_with_the_choices(
    arguments: tuple[str, ...], choice: str
) -> None:
    """A typo does not read as a filter that matches nothing."""
    done = CliRunner().invoke(cli, list(arguments))

    assert done.exit_code == 2, "click's own; main makes it 64"
    assert "typo" in done.output
    assert choice in done.output


def test_a_redrive_names_the_ids_that_it_did_not_find(
    redrive: Redrive, database: Database
) -> None:
    """An unknown id is named."""
    job = make_dead_letter(database.conn)

    done = redrive("dlq", "redrive", str(job), "999999", "--why", "fixed", "--yes")

    assert done.code == 0
    assert "job 999999 has no open dead letter" in done.err


def test_a_payload_is_revealed_to_who_says_why(
    redrive: Redrive, database: Database
) -> None:
    """`job show` redacts it; nothing is revealed without a line in the audit log."""
    job = make_dead_letter(database.conn, payload={"password": "hunter2"})

    unsure = redrive("job", "reveal", str(job), "--why", "the bank asks")
    done = redrive("job", "reveal", str(job), "--why", "the bank asks", "--yes")
    none = redrive("job", "reveal", "999999", "--why", "the bank asks", "--yes")

    assert (unsure.code, "add --yes" in unsure.out) == (0, True)
    assert json.loads(done.out) == {"password": "hunter2"}
    assert (none.code, none.err) == (2, "redrive: no payload of job 999999 is kept\n")
    assert database.column("select why from redrive.audit where action = 'reveal'") == [
        "the bank asks"
    ]
