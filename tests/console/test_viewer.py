"""A viewer sees figures only, on every page, by the API and in metrics."""

from collections.abc import Iterator
from typing import Any

import psycopg
from prometheus_client import CollectorRegistry, generate_latest
from starlette.testclient import TestClient

from redrive.database.connections.address import Address
from redrive.observability.stats import DatabaseStats
from tests.cli.conftest import Redrive, redrive, started
from tests.console.conftest import TOKENS, Site, digest, login
from tests.console.test_hostile_values import PATCH, ROWS, paths_of, write
from tests.factories import (
    failure,
    let_next_die,
    make_dead_letter,
    make_job,
    make_schedule,
    make_worker,
)
from tests.postgres import Database
from tests.sql.test_roles import SAID

__all__ = ["redrive", "started"]

PRIVATE = """
    select table_name::text, column_name::text, data_type = 'ARRAY'
    from information_schema.columns join information_schema.tables using (table_schema, table_name)
    where table_schema = 'redrive' and table_type = 'BASE TABLE'
      and (column_name ~ '(^|_)why$' or column_name in ('message', 'tenant', 'idempotency_key',
           'ordering_key', 'session', 'link', 'token', 'source_id', 'key', 'limits', 'contact')
           or (table_name, column_name) in (('side_effects', 'what'), ('limit_keys', 'name')))
      and (data_type = 'text' or udt_name = '_text')"""
"""Columns of text that hold what people, producers or handlers write."""


def test_no_page_no_call_and_no_figure_shows_a_viewer_what_somebody_wrote(
    site: Site, database: Database, redrive: Redrive
) -> None:
    """Write SECRET wherever somebody may write a text, and look for it everywhere."""
    conn = database.conn
    make_schedule(conn, "report")
    conn.execute("alter table redrive.jobs alter id restart 7001")
    facts = {"payload": {"card": "SECRET"}, "tenant": "SECRET"}
    facts |= {"headers": {"traceparent": "SECRET"}, "idempotency_key": "SECRET"}
    bad = make_job(conn, **facts)
    worker = make_worker(conn)
    told = failure(message="SECRET", detail={"stack": [], "repr": "SECRET"})
    let_next_die(conn, worker, failure=told)
    make_dead_letter(conn, payload={"card": "SECRET"})
    for statement in SAID:
        conn.execute(statement.replace("'{2}'", "'{7002}'"))
    live = make_job(conn, "live", **facts | {"idempotency_key": "SECRET 2"})
    secret = PATCH.replace("7", '"SECRET"')
    why = ("--yes", "--why", "SECRET")
    for command in (
        ("edit", str(bad), "--patch", secret, *why),
        ("assign", str(bad), "--owner", "SECRET", *why),
        ("note", str(bad), "SECRET"),
    ):
        ran = redrive("dlq", *command)
        assert ran.code == 0, ran.err
    seen = list(leaks(site, live, bad))

    conn.execute(ROWS.replace("start_campaign_v1(2", "start_campaign_v1(4"))
    write(database, '{"n": "SECRET", "SECRET": {"token": "SECRET"}}', 0)
    planted = write_texts(database)
    seen += leaks(site, live, bad)

    assert seen == []
    assert len(planted) > 25
    olaf = site.bearer("olaf")
    for path in (f"/jobs/{bad}", f"/jobs/{live}", "/limits", "/audit", "/campaigns/2"):
        assert "SECRET" in olaf.get(path).text, path


def write_texts(database: Database) -> list[str]:
    """Write to each private column of text; return the columns that took it."""
    planted: list[str] = []
    database.rows("set session_replication_role = replica")
    for table, column, is_list in database.rows(PRIVATE):
        text = f"'SECRET {table} {column} ' || ctid"
        new = f"array[{text}]" if is_list else text
        try:
            ran = database.conn.execute(f"update redrive.{table} set {column} = {new}")  # type: ignore[arg-type] # from the catalog
        except psycopg.errors.CheckViolation:
            continue
        if ran.rowcount:
            planted.append(f"{table}.{column}")
    database.rows("reset session_replication_role")
    return planted


def leaks(site: Site, live: int, bad: int) -> Iterator[tuple[str, str]]:
    """Yield each answer that tells a viewer a secret, and where in it."""
    secrets = ["SECRET", *(digest(f"{name}-token") for name in TOKENS), "olaf-token"]
    shown = 0
    for path, client, body in requests(site, live, bad):
        answer = client.get(path) if body is None else client.post(path, **body)
        shown += answer.status_code == 200
        for secret in secrets:
            before, found, after = answer.text.partition(secret)
            if found:
                yield path, before[-100:] + found + after[:50]
    assert shown > 20

    stats = DatabaseStats(Address(login(site.database, "redrive_viewer")))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(stats)
    figures = generate_latest(registry).decode()
    stats.link.close()
    assert "redrive_jobs" in figures
    for line in figures.splitlines():
        if "SECRET" in line:
            yield "the exporter", line


def requests(
    site: Site, live: int, bad: int
) -> Iterator[tuple[str, TestClient, dict[str, Any] | None]]:
    """Yield all requests of a viewer: path, client, and body of a POST."""
    browser, program = site.signed_in("vera"), site.bearer("vera")
    for path in [*paths_of(live, bad), "/export/jobs.csv", "/metrics"]:
        yield path, program if path.startswith("/api") else browser, None
    for path in paths_of(live, bad, "POST"):
        if path.startswith("/api"):
            yield f"{path}?id={bad}", program, {"json": {"why": "x", "yes": True}}
        elif not path.startswith("/sign-"):
            yield f"{path}?id={bad}", browser, {"data": {"why": "x"}}
