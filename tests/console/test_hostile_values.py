"""No stored value ends a reader: commands, pages, the API, agents."""

import base64
import re
from pathlib import Path
from traceback import extract_tb
from typing import Any

import psycopg
import pytest

from redrive.extras.console.app import PARTS
from tests.agents.conftest import Agent, agent, make_agent
from tests.cli.conftest import Redrive, redrive, started
from tests.console.conftest import Site
from tests.factories import make_dead_letter, make_job, make_schedule
from tests.postgres import Database

__all__ = ["agent", "make_agent", "redrive", "started"]

HOSTILE = {
    "infinite": '{"n": 1e999, "m": -1e999}',
    "deep": '{"n": ' + "[" * 5_000 + "]" * 5_000 + "}",
    "many digits": '{"n": ' + "9" * 5_000 + ', "m": [' + "9" * 310 + "]}",
    "escapes": r'{"n": "\\u0000 \\ud800 \u202e \u001b[2J \ufffe"}',
    "number": "7e400",
    "wide": '{"n": "' + "x" * (2 << 20) + '"}',
    "list": '[1, {"n": 2}, null]',
    "text": '"text"',
    "null": "null",
    "types": '{"traceparent": 7, "$redrive": {"k": []}, "": null, "name": {"value": 1},'
    ' "group": 7, "kind": 7, "ids": {}, "patch": 7, "stack": 7, "sample": []}',
    "envelope": '{"$redrive": 5}',
}
"""Values that somebody may have written by SQL, or an older release has let in."""

PATCH = '[{"op": "add", "path": "/seen", "value": 7}]'

COLUMNS = """
    select table_name::text, column_name::text from information_schema.columns
    join information_schema.tables using (table_schema, table_name)
    where table_schema = 'redrive' and data_type in ('json', 'jsonb') and table_type = 'BASE TABLE'
    order by 1, 2"""

EMPTY = {"replacements"}
"""Tables that are empty between transactions."""

INSIDE_IS_OURS = {
    "campaigns.blocked",
    "campaigns.plan",
    "dead_letters.notes",
    "groups.since",
    "groups.versions",
    "reservoir_samples.facts",
    "snapshots.body",
    "workers.depends_on",
    "workers.progress",
}
"""Columns whose inside only functions write. Their outer shape is refused by the table."""

SHAPED = {
    "failures.detail": "jsonb_build_object('stack', '[]'::jsonb, 'more', %s::jsonb)",
    "checkpoints.data": "jsonb_build_object('data', %s::jsonb)",
    "progress.detail": "jsonb_build_object('data', %s::jsonb)",
    "results.result": "jsonb_build_object('data', %s::jsonb)",
}
"""Columns with a value of a handler inside of what workers write."""

ROWS = """
    insert into redrive.failures (job, deliveries, attempt, error_class, message, category, fingerprint)
    select id, 1, 1, 'E', 'm', 'bug', 'f' from redrive.jobs where kind = 'live';
    insert into redrive.checkpoints (data, job, deliveries)
    select '{}'::jsonb, id, 1 from redrive.jobs union all select '{}'::jsonb, id, 1 from redrive.dead_letters;
    insert into redrive.progress (detail, job, deliveries, share)
    select '{}'::jsonb, id, 1, 0.5 from redrive.jobs union all select '{}'::jsonb, id, 1, 0.5 from redrive.dead_letters;
    insert into redrive.side_effects (job, deliveries, what)
    select id, 1, 'mailed' from redrive.dead_letters union all select id, 1, 'x' from redrive.jobs;
    insert into redrive.results (job, deliveries, outcome, result, keep_until)
    select id, 1, 'succeeded', '{}', 'infinity' from redrive.jobs;
    insert into redrive.history_default select now()::date + 1, id + 1000, 'completed', queue, kind, 1, 1,
        0, 0, now(), now(), now(), 'w', null, null, null, '{}', '{}' from redrive.jobs;
    insert into redrive.reservoir_samples (kind, slot, facts)
    select 'invoice.charge', n, '{}' from generate_series(1, 20) n;
    insert into redrive.snapshots default values on conflict do nothing;
    select redrive.fold_groups_v1();
    select redrive.plan_campaign_v1('{}', 5, 'bo'), redrive.plan_campaign_v1('{}', 5, 'bo');
    select redrive.start_campaign_v1(2, 'bo', 'why', 0.01, 1, 0.1, now() + '1 h', '{}');
    select redrive.propose_v1('mute', 'a', 'bo', 'why', '{"group": "f1", "seconds": 9}');
    select redrive.propose_v1('edit', 'a', 'bo', 'why', '{"ids": [7001], "patch": [], "digests": {"7001": "00"}}');
    select redrive.fold_groups_v1();
    """


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name == "wide" else [])
        for name in HOSTILE
    ],
)
def test_no_stored_value_ends_a_reader(
    name: str,
    redrive: Redrive,
    agent: Agent,
    site: Site,
    database: Database,
    tmp_path: Path,
) -> None:
    """Write the value to each column of JSON; one dead letter stays as it is."""
    conn = database.conn
    make_schedule(conn, "report")
    conn.execute("alter table redrive.jobs alter id restart 7001")
    bad, good = make_dead_letter(conn), make_dead_letter(conn)
    live = make_job(conn, "live")
    edit = ("dlq", "edit", str(bad), "--patch", PATCH, "--yes", "--why", "x")
    assert redrive(*edit).code == 0
    conn.execute(ROWS)
    refused = write(database, HOSTILE[name], good)
    if not HOSTILE[name].startswith(("{", "[")):
        assert refused >= {*INSIDE_IS_OURS, *SHAPED}
    keys = tmp_path / "keys"
    keys.touch(0o600)
    keys.write_text(f"new {base64.b64encode(bytes(32)).decode()}\n")

    found = [
        *by_commands(redrive, live, bad, tmp_path),
        *by_pages(site, live, bad),
        *by_agent(agent, bad),
        *by_bulk(redrive, bad, good, keys),
    ]

    assert not found, "\n".join(map(str, found))


def write(database: Database, value: str, good: int) -> set[str]:
    """Write a value to every column that takes it; return the columns that refused its shape."""
    database.rows("set session_replication_role = replica")
    refused = set[str]()
    for table, column in database.rows(COLUMNS):
        place = f"{table}.{column}"
        for new in ("%s", SHAPED.get(place, "%s")):
            query = (
                f"update redrive.{table} t set {column} = {new}"
                " where coalesce(to_jsonb(t) ->> 'job', to_jsonb(t) ->> 'id', '') <> %s"
            )
            try:
                is_ours = place in INSIDE_IS_OURS or new != SHAPED.get(place, new)
                with database.conn.transaction(force_rollback=is_ours):
                    ran = database.conn.execute(query, (value, str(good)))  # type: ignore[arg-type] # from the catalog
                assert ran.rowcount or table in EMPTY, place
            except psycopg.errors.CheckViolation:
                refused.add(place)
    database.rows("reset session_replication_role")
    return refused


def by_commands(redrive: Redrive, live: int, bad: int, home: Path) -> list[Any]:
    every = """
        worker ls; job ls; job show {live}; job show {bad}; queue ls; schedule ls; top --once
        dlq ls --json; dlq groups; dlq show f1; dlq show {bad}; dlq show {bad} --json
        dlq export {bad}; dlq export {live}; dlq explain f1; dlq explain f1 --json
        dlq report f1; dlq report; campaign ls; campaign show 1; campaign show 2 --json
        campaign plan --kind invoice.charge; audit ls; audit export; audit verify; proposal ls
        job now {live}; dlq retry f1; dlq hold f1; job reveal {bad}; campaign pause 2
        dlq mute f1 1h; dlq resolve f1; dlq redrive {bad}
        """
    lines = re.split("[;\n]+", every.format(live=live, bad=bad).strip())
    found = [failed(redrive, *line.split()) for line in lines]
    file = home / f"{bad}.json"
    file.write_text(redrive("dlq", "export", str(bad)).out)
    replay = ("job", "replay", "--handlers", "tests.replay.apps:jobs")
    found.append(failed(redrive, *replay, "--bundle", str(file)))
    found.append(failed(redrive, "dlq", "import", str(file)))
    return [*filter(None, found)]


def failed(redrive: Redrive, *command: str) -> Any:
    """Return what a command said if it ended by an error of ours."""
    ran = redrive(*command)
    is_ours = "Traceback" in ran.err or "the database refused: " in ran.err
    return (command, ran.code, ran.err[-900:]) if is_ours else None


def paths_of(live: int, bad: int, method: str = "GET") -> list[str]:
    """Return the paths of all pages and of the API, with names that exist."""
    names = {
        "fingerprint:path": ["f1"],
        "job": [live, bad],
        "campaign": [1, 2],
        "queue:path": ["default"],
        "kind:path": ["invoice.charge", "live"],
        "name": ["dead-letters", "jobs", "groups", "audit"],
        "form": ["csv"],
        "word": ["redrive", "dismiss", "edit"],
    }
    paths = []
    routes = [route for part in PARTS for route in part.router.routes]
    for path in (str(route.path) for route in routes if method in route.methods):
        some = [path]
        for field in re.findall("{([^}]+)}", path):
            some = [
                each.replace("{" + field + "}", str(value))
                for each in some
                for value in names.get(field, ["x"])
            ]
        paths += some
    return paths


def by_pages(site: Site, live: int, bad: int) -> list[Any]:
    paths = [
        f"/change/edit?id={bad}",
        "/export/jobs.json",
        f"/change/cancel?id={live}",
        "/change/campaign-start?id=1",
        "/change/proposal-start?id=2",
        "/dead-letters?state=any",
        "/groups?closed=yes",
        *paths_of(live, bad),
    ]
    browser, program = site.signed_in("olaf"), site.bearer("olaf")
    found: list[Any] = []
    for path in paths:
        client = program if path.startswith("/api") else browser
        try:
            answer = client.get(path)
        except Exception as error:  # noqa: BLE001 # the client raises what the page did
            found.append((path, place_of(error)))
        else:
            if answer.status_code >= 500 or "SQLSTATE" in answer.text:
                found.append((path, answer.text[:300]))
    return found


def place_of(error: BaseException) -> Any:
    frames = [f"{f.filename}:{f.lineno}" for f in extract_tb(error.__traceback__)]
    return repr(error)[:200], [f for f in frames if "/service/redrive/" in f][-3:]


def by_agent(agent: Agent, bad: int) -> list[Any]:
    calls: list[Any] = [("show_dead_letter", {"job": bad})]
    calls += [("list_groups", {}), ("explain_group", {"group": "f1"})]
    calls += [("report", {"group": "f1"})]
    told = zip(calls, agent.ask(*calls), strict=True)
    return [(call, text[:300]) for call, (text, is_error) in told if is_error]


def by_bulk(redrive: Redrive, bad: int, good: int, keys: Path) -> list[Any]:
    """Make every change of many; the good dead letter takes part in each."""
    kind, why = ("--kind", "invoice.charge"), ("--yes", "--why", "a test")
    changes = (
        ("campaign", "cancel", "2"),
        ("dlq", "edit", *kind, "--patch", PATCH),
        ("dlq", "dismiss", *kind),
        ("dlq", "reopen", str(bad), str(good)),
        ("dlq", "redrive", *kind, "--canaries", "0"),
        ("proposal", "start", "1"),
        ("proposal", "start", "2"),
        ("campaign", "start", "1"),
        ("schedule", "now", "report"),
        ("dlq", "give-up", "f1"),
        ("job", "cancel", "--all"),
    )
    found = [failed(redrive, *command, *why) for command in changes]
    shown = redrive("dlq", "show", str(good), "--json").json["payload"]
    assert shown.get("seen") == 7

    ran = redrive("reencrypt", "--json", REDRIVE_ENCRYPTION_KEYS_FILE=str(keys))
    assert ran.out, ran.err
    named = ran.json["unreadable_rows"]
    assert len(named) == ran.json["unreadable"]
    assert good not in [row["job"] for row in named]
    return [*filter(None, found)]
