"""What a batch of endings or redrives costs grows with its size and no faster.

Counted are the rows and the elements of arrays that the plan's nodes look at, so the numbers are
exact.
"""

import re
from typing import Any

import pytest
from psycopg import ClientCursor

from redrive.worker import store
from tests.factories import (
    Claimed,
    claim,
    failure,
    make_dead_letters,
    make_job,
    make_jobs,
    make_worker,
    redrive,
)
from tests.postgres import Database, Session

pytestmark = pytest.mark.every_version


@pytest.mark.parametrize("outcome", ["complete", "dead", "cancel"])
def test_the_end_of_a_redriven_job_costs_the_same_in_a_batch_of_any_size(
    database: Database, outcome: str
) -> None:
    """By the plan of an empty table, and by that of a full one."""
    session, worker = database.session(), make_worker(database.conn)
    prepare(session, "complete_v1" if outcome == "complete" else "settle_v1")
    looks_at(session, worker, [], outcome)
    costs: list[float] = []
    for count in (50, 500):
        redrive(database.conn, make_dead_letters(database.conn, count))
        jobs = claim(database.conn, worker, count)
        costs.append(looks_at(session, worker, jobs, outcome) / len(jobs))
    database.rows("analyze redrive.jobs, redrive.dead_letters")
    costs.append(looks_at(session, worker, jobs, outcome) / len(jobs))

    assert len(jobs) == 500
    assert max(costs) <= costs[0] * 1.1, costs


def test_what_special_jobs_need_costs_the_same_in_a_batch_of_any_size(
    database: Database,
) -> None:
    """The second statement of complete_v1: here for redriven jobs with ordering keys."""
    session = database.session()
    prepare_special(session)
    looks(session, 0, [[]] * len(SPECIAL))
    costs: list[float] = []
    for count in (50, 500):
        ids = make_dead_letters(database.conn, count)
        redrive(database.conn, ids)
        specials = [[value] * count for value in SPECIAL.values()]
        costs.append(looks(session, count, [ids, *specials[1:]]) / count)
    database.rows("analyze redrive.jobs, redrive.dead_letters")
    costs.append(looks(session, count, [ids, *specials[1:]]) / count)

    assert max(costs) <= costs[0] * 1.1, costs


def test_a_redrive_costs_the_same_in_a_chunk_of_any_size(database: Database) -> None:
    session = database.session()
    campaign = database.value(
        "select redrive.open_campaign_v1('ada', 'a test', '{}', null, 0)"
    )
    prepare(session, "redrive_v1")
    costs: list[float] = []
    for count in (50, 500):
        ids = make_dead_letters(database.conn, count)
        costs.append(
            looks(session, count, [ids, campaign, None, None, 5, False]) / count
        )

    assert max(costs) <= costs[0] * 1.1, costs


def test_to_find_claimed_jobs_costs_the_same_for_each_of_any_number(
    database: Database,
) -> None:
    """A campaign of 20,000 running jobs could not be cancelled, nor could many jobs."""
    session, worker = database.session(), make_worker(database.conn)
    prepare_unclaimed(session)
    costs: list[float] = []
    for count in (100, 2000):
        make_jobs(database.conn, count)
        while claim(database.conn, worker, 100):
            pass
        ids = database.column("select id from redrive.jobs")
        costs.append(looks(session, 1, [ids]) / len(ids))

    assert max(costs) <= costs[0] * 1.1, costs


def prepare_unclaimed(session: Session) -> None:
    """Prepare what unclaimed_v1 does for many jobs as `statement`."""
    body, settings = session.row(
        "select prosrc, proconfig from pg_proc where proname = 'unclaimed_v1'"
    )
    for setting in settings:
        session.rows("select set_config(%s, %s, false)", *setting.split("="))
    statement = re.findall(r"return (array\(.*?\));", body, re.DOTALL)[-1]
    statement = statement.replace("unclaimed_v1.ids", "$1")
    session.rows(f"prepare statement (bigint[]) as select {statement}")  # type: ignore[arg-type]


@pytest.mark.parametrize("function", ["tend_limits_v1", "unpark_v1"])
def test_to_find_what_no_claim_holds_costs_the_same_for_each_of_any_number(
    database: Database, function: str
) -> None:
    """Also if the planner expects more claims than fit into its memory, as after an open snapshot."""
    session, worker = database.session(), make_worker(database.conn)
    prepare_delete(session, function)
    costs: list[float] = []
    for count in (100, 2000):
        make_jobs(database.conn, count)
        while claim(database.conn, worker, 100):
            pass
        database.rows(
            "insert into redrive.limit_slots (name, job) select 'emails', id from redrive.jobs"
            " on conflict do nothing"
        )
        database.rows(
            "insert into redrive.running_keys (queue, ordering_key, job)"
            " select queue, id::text, id from redrive.jobs on conflict do nothing"
        )
        database.rows("analyze redrive.claims")
        database.rows(
            "update pg_class set reltuples = 1e7 where oid = 'redrive.claims'::regclass"
        )
        jobs = database.value("select count(*) from redrive.jobs")
        costs.append(looks(session, 1, []) / jobs)

    assert max(costs) <= costs[0] * 1.5, costs


def prepare_delete(session: Session, function: str) -> None:
    """Prepare the first delete of a function as `statement`."""
    body, settings = session.row(
        "select prosrc, proconfig from pg_proc where proname = %s", function
    )
    for setting in settings:
        session.rows("select set_config(%s, %s, false)", *setting.split("="))
    statement = re.search(r"delete from .*?;", body, re.DOTALL)[0]  # type: ignore[index]
    statement = re.sub(r"\bstart\b", "0", re.sub(r"\bblocks\b", "512", statement))
    session.rows(f"prepare statement as {statement}")  # type: ignore[arg-type]


RETURNED = r"return query (with .*?);"

READERS: dict[str, tuple[str, dict[str, str]]] = {
    "due_v1": (
        RETURNED,
        {
            "only_queues": "null::text[]",
            "at_most": "1000",
            "due_v1.kinds": "null::text[]",
        },
    ),
    "depths_v1": (RETURNED, {"first_claim": "0"}),
    "look_at_campaign_v1": (
        r"'others_late', \((.*)\)\);",
        {"queues": "array['default']", "is_retry": "false"},
    ),
}
"""Queries that look for a job that no claim holds, and values of their variables."""


@pytest.mark.parametrize("function", READERS)
def test_to_find_a_job_behind_claimed_ones_costs_the_same_for_each_of_any_number(
    database: Database, function: str
) -> None:
    """Also if the planner expects more claims than fit into its memory."""
    session, worker = database.session(), make_worker(database.conn)
    prepare_reader(session, function, *READERS[function])
    costs: list[float] = []
    for count in (100, 2000):
        make_jobs(database.conn, count)
        while claim(database.conn, worker, 100):
            pass
        release(database, database.value("select max(id) - 1 from redrive.jobs"))
        database.rows("analyze redrive.claims, redrive.jobs")
        database.rows(
            "update pg_class set reltuples = 1e7 where oid = 'redrive.claims'::regclass"
        )
        jobs = database.value("select count(*) from redrive.jobs")
        costs.append(looks(session, 1, []) / jobs)

    assert costs[1] <= costs[0] * 1.5, costs


def test_to_find_unhandled_jobs_costs_the_same_for_each_of_any_number_of_queues(
    database: Database,
) -> None:
    """Beside 10,000 queues it took longer than any statement of a chore may."""
    session = database.session()
    store.register(database.conn, store.Registration("w", "1", 3600, ["b"], None))
    values = {"cap": "1000", "most": "10000"}
    prepare_reader(session, "unhandled_v1", RETURNED, values)
    costs: list[float] = []
    for count in (50, 500):
        for n in range(count):
            make_job(database.conn, queue=f"q{count}-{n}")
        fold(database)
        queues = database.value("select count(distinct queue) from redrive.jobs")
        costs.append(looks(session, 1, []) / queues)

    assert costs[1] <= costs[0] * 1.5, costs


def release(database: Database, job: int) -> None:
    """Take a job out of its claim, so that it waits among claimed jobs."""
    database.rows("update redrive.claims set ids = array_remove(ids, %s)", job)
    database.rows(
        "insert into redrive.deltas (queue, kind, event, n)"
        " select queue, kind, 'released', 1 from redrive.jobs where id = %s",
        job,
    )
    fold(database)


def fold(database: Database) -> None:
    """Add all deltas to the tallies."""
    while any(more for _, more in database.rows("select * from redrive.fold_v1()")):
        pass


def prepare_reader(
    session: Session, function: str, pattern: str, values: dict[str, str]
) -> None:
    """Prepare a query of a function as `statement`, with values of its variables."""
    body, settings = session.row(
        "select prosrc, proconfig from pg_proc where proname = %s", function
    )
    for setting in settings:
        session.rows("select set_config(%s, %s, false)", *setting.split("="))
    code = re.sub(r"\s+", " ", re.sub(r"--.*", "", body))
    statement = re.search(pattern, code)[1]  # type: ignore[index]
    for name, value in values.items():
        statement = re.sub(rf"(?<![.\w]){re.escape(name)}(?!\w)", value, statement)
    session.rows(f"prepare statement as {statement}")  # type: ignore[arg-type]


SPECIAL: dict[str, Any] = {
    "special_ids bigint[]": 0,
    "queues text[]": "default",
    "kinds text[]": "a",
    "idempotency_keys text[]": None,
    "ordering_keys text[]": "k",
    "have_failed boolean[]": True,
    "redrives int[]": 1,
    "are_noted boolean[]": True,
    "created_ats timestamptz[]": "2026-01-01 UTC",
}
"""The variables of complete_v1 that hold the special jobs, with a value for each job."""


def prepare_special(session: Session) -> None:
    """Prepare what complete_v1 does for special jobs as `statement`."""
    body, settings = session.row(
        "select prosrc, proconfig from pg_proc where proname = 'complete_v1'"
    )
    for setting in settings:
        session.rows("select set_config(%s, %s, false)", *setting.split("="))
    code = re.sub(r"\s+", " ", re.sub(r"--.*", "", body))
    statement = re.search(r"\bwith special as .*?;", code)[0].rstrip(";")  # type: ignore[index]
    names, types = zip(*(variable.split() for variable in SPECIAL), strict=True)
    given = ", ".join(f"${n}" for n in range(1, len(names) + 1))
    statement = statement.replace(f"unnest({', '.join(names)})", f"unnest({given})")
    statement = statement.replace(" into noted", "")
    session.rows(f"prepare statement ({', '.join(types)}) as {statement}")  # type: ignore[arg-type]


def prepare(session: Session, function: str) -> None:
    """Prepare the (first) statement of a function as `statement`, to be planned as it is there."""
    body, settings, types, names = session.row(
        "select prosrc, proconfig, proargtypes::regtype[]::text[], proargnames from pg_proc"
        " where proname = %s",
        function,
    )
    for setting in settings:
        session.rows("select set_config(%s, %s, false)", *setting.split("="))
    code = re.sub(r"\s+", " ", re.sub(r"--.*", "", body))
    statement = re.search(r"\bwith \w+ as .*?;", code)[0].rstrip(";")  # type: ignore[index]
    statement = re.sub(
        r" into (?:settled, [\w, ]+?|ours|found_ids, causes)(?= from )", "", statement
    )
    if function == "redrive_v1":
        for n, name in enumerate(names[: len(types)], 1):
            statement = re.sub(
                rf"redrive_v1\.{name}|(?<!['.]){name}(?! =)\b", f"${n}", statement
            )
        for variable, value in {
            "allowed": "'{}'::jsonb",
            "destination": "null::text",
            "fair_lanes": "null::int",
        }.items():
            statement = re.sub(rf"\b{variable}\b", value, statement)
    else:
        for n, name in enumerate(names[: len(types)], 1):
            if name not in {
                "deliveries",
                "losses",
                "refunds",
            }:  # columns, too: these are qualified
                statement = re.sub(rf"(?<![.\w]){name}(?=[\[,)])", f"${n}", statement)
            statement = statement.replace(f"{function}.{name}[", f"${n}[")
    session.rows(f"prepare statement ({', '.join(types)}) as {statement}")  # type: ignore[arg-type]


def looks_at(session: Session, worker: int, jobs: list[Claimed], outcome: str) -> int:
    """How many rows and elements the ending of these jobs looks at."""
    columns: list[list[Any]] = [
        [worker] * len(jobs),
        [job.claim for job in jobs],
        [job.id for job in jobs],
        [job.deliveries for job in jobs],
    ]
    if outcome != "complete":
        columns += [
            [value] * len(jobs)
            for value in (outcome, None, 0.0, False, 0, failure(), "expired")
        ]
    columns.append(sorted({job.claim for job in jobs}))
    return looks(session, len(jobs), columns)


def looks(session: Session, count: int, parameters: list[Any]) -> int:
    """How many rows and elements `statement` looks at. It is rolled back."""
    arguments = f"({', '.join(['%s'] * len(parameters))})" if parameters else ""
    execute = f"explain (analyze, timing off, format json) execute statement{arguments}"
    with session.conn.transaction(force_rollback=True):
        (plan,) = ClientCursor(session.conn).execute(execute, parameters).fetchone()[0]  # type: ignore[arg-type,index]
    return looks_of(plan["Plan"], count)


def looks_of(node: dict[str, Any], elements: int) -> int:
    """Of a node and the nodes below it. An array holds something of each job."""
    each = (
        node["Actual Rows"]
        + node.get("Rows Removed by Filter", 0)
        + node.get("Rows Removed by Join Filter", 0)
    )
    if "ANY (" in node.get("Index Cond", "") + node.get("Filter", ""):
        each += elements
    return each * node["Actual Loops"] + sum(
        looks_of(child, elements) for child in node.get("Plans", ())
    )
