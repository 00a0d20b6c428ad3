"""Credentials of today's providers through a real worker: how many are legible anywhere afterwards."""

import base64
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, LiteralString, cast

import pytest

from redrive import enqueue_many
from redrive.cli.main import main
from redrive.database.connections.address import Address
from redrive.extras.agents.desk import Budget, Desk
from redrive.extras.proposals.store import Agent
from tests.console.conftest import Site
from tests.flow.harness import Workers
from tests.flow.leaking import BARE, HOWS
from tests.postgres import Database
from tests.rules.test_providers import NO_FORM, PUBLIC, SAMPLES, TAIL

TABLES = """
    select c.oid::regclass::text from pg_class as c
    where c.relnamespace = 'redrive'::regnamespace and c.relkind in ('r', 'p')
      and not c.relispartition
"""
ALL_ROWS = "select coalesce(string_agg(x::text, chr(10)), '') from {} as x"
PAGES = (
    *("/", "/groups", "/dead-letters", "/workers", "/kinds", "/report", "/audit"),
    *("/export/dead-letters.csv", "/export/groups.json"),
    *("/api/v1/dead-letters", "/api/v1/groups", "/api/v1/report"),
)
LOOKED_AT = 12
"""Number of dead letters whose own pages, reports and bundles are read."""


def _chosen() -> list[tuple[str, str]]:
    """Return which credential is said how: each beside a name, and by its form if it has one."""
    alone = [name for name in SAMPLES if not SAMPLES[name].startswith("https://")]
    known = [name for name in alone if name not in NO_FORM | PUBLIC]
    named = [how for how in HOWS if how not in BARE]
    return [
        *zip(known, cycle(BARE), strict=False),
        *zip(alone, cycle(named), strict=False),
    ]


def _legible(text: str) -> set[str]:
    """Return the credentials whose end is in a text, also as base64."""
    return {name for name, ends in ENDS.items() if any(end in text for end in ends)}


def _ends(secret: str) -> tuple[str, str]:
    encoded = base64.b64encode(f"robot:{secret}".encode()).decode().rstrip("=")
    return secret.strip("=/\n")[-TAIL:], encoded[-2 * TAIL :]


ENDS = {name: _ends(secret) for name, secret in SAMPLES.items()}


@pytest.mark.long
def test_no_credential_is_legible_after_a_worker_ran(
    database: Database,
    workers: Workers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The store, logs, pages, reports, series, bundles, and answers to agents."""
    chosen = _chosen()
    enqueue_many(
        database.conn,
        [
            {"kind": "leak.raise", "payload": {"name": name, "how": how}}
            for name, how in chosen
        ],
    )
    worker = workers.run(handlers="tests.flow.leaking:jobs", redrive_slots=16)

    ids = database.column("select id from redrive.dead_letters order by id")
    assert len(ids) == len(chosen) > 400
    seen = {"log": worker.log.read_text()}
    for table in database.column(TABLES):
        seen[table] = database.value(cast("LiteralString", ALL_ROWS.format(table)))
    assert "[redacted]" in seen["redrive.dead_letters"] + seen["redrive.failures"]

    looked_at = ids[:: len(ids) // LOOKED_AT]
    with ExitStack() as stack:
        site = Site(database, tmp_path, stack)
        browser, program = site.signed_in("olaf"), site.bearer("olaf")
        for path in (*PAGES, *(f"/jobs/{job}" for job in looked_at)):
            answer = (program if "/api/" in path else browser).get(path)
            assert answer.status_code == 200, path
            seen[path] = answer.text

    groups = database.column("select fingerprint from redrive.dead_letters")
    desk = Desk(Address(database.url), Budget(10_000, 10))
    for group in sorted(set(groups))[:LOOKED_AT]:
        _run(seen, capsys, database, "dlq", "report", group)
        seen[f"explain_group {group}"] = _ask(desk, "explain_group", group=group)
    for job in looked_at:
        _run(seen, capsys, database, "dlq", "export", str(job))
        _run(seen, capsys, database, "dlq", "show", str(job))
        seen[f"show_dead_letter {job}"] = _ask(desk, "show_dead_letter", job=job)
    for name in ("list_groups", "report", "series"):
        seen[name] = _ask(desk, name)

    legible = {
        place: found for place, text in seen.items() if (found := _legible(text))
    }
    assert legible == {}


def _run(
    seen: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    database: Database,
    *arguments: str,
) -> None:
    assert main([*arguments, "--database-url", database.url]) == 0
    seen[" ".join(arguments)] = capsys.readouterr().out


def _ask(desk: Desk, name: str, **given: Any) -> str:
    answer = desk.call(Agent("claude", "ada"), name, given)
    assert not answer.is_error, answer.text
    return answer.text
