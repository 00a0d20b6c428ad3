"""A provider is down: each place that shows what is wrong names the cause before a job dies."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from redrive import enqueue_many
from redrive.cli.main import cli
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.campaigns.terms import Terms
from redrive.jobs import failing
from redrive.rules.rows import Signed
from tests.console.conftest import Site
from tests.flow import look
from tests.flow.harness import Workers, wait_for
from tests.postgres import Connection, Database

JOBS = 12
SENTENCE = "fail.outage: 100% of attempts fail since"
CAUSE = f"ConnectionError: 503 from hooks.example; {JOBS} jobs are retried"


@pytest.mark.long
def test_an_outage_is_named_everywhere_until_jobs_succeed_again(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    conn = database.conn

    def run(*words: str) -> str:
        environment = {"REDRIVE_DATABASE_URL": database.url, "COLUMNS": "160"}
        return CliRunner().invoke(cli, words, env=environment).output

    enqueue_many(conn, [{"kind": "fail.outage"} for _ in range(JOBS)])
    workers()
    wait_for(lambda: _sentences(conn) and len(failing.find(conn)) == 1)
    (cause,) = failing.find(conn)
    first = database.value("select min(at) from redrive.failures")

    with ExitStack() as stack:
        site = Site(database, tmp_path, stack)
        operator, viewer = site.bearer("olaf"), site.bearer("vera")
        page = operator.get("/").text
        seen = viewer.get("/").text
        (row,) = operator.get("/api/v1/failing").json()["rows"]
        (figures,) = viewer.get("/api/v1/failing").json()["rows"]

        assert SENTENCE in page
        assert CAUSE in page
        assert "All is well" not in page
        assert "503 from hooks.example" in operator.get("/groups").text
        assert SENTENCE in seen
        assert "hooks.example" not in seen

    top, check = run("top"), _check(run)
    (group,) = map(json.loads, run("dlq", "groups", "--json").splitlines())

    assert (cause["failing"], row["failing"], figures["failing"]) == (JOBS, JOBS, JOBS)
    assert abs((cause["since"] - first).total_seconds()) < 60
    assert (row["message"], figures["message"]) == ("503 from hooks.example", None)
    assert SENTENCE in top
    assert CAUSE in top
    assert not check["ok"]
    assert SENTENCE in check["text"]
    assert CAUSE in check["text"]
    assert (group["failing"], group["open"], group["kind"]) == (JOBS, 0, "fail.outage")
    assert "503 from hooks.example" in run("dlq", "groups")
    assert look.reasons(database) == {}

    (tmp_path / "repaired").touch()
    wait_for(lambda: look.live(database) == 0)

    assert failing.find(conn) == []
    assert _sentences(conn) == []
    assert SENTENCE not in run("top")
    assert _check(run)["ok"]
    assert "hooks.example" not in run("dlq", "groups")
    with ExitStack() as stack:
        page = Site(database, tmp_path, stack).bearer("olaf").get("/").text
        assert "All is well" in page


@pytest.mark.long
def test_held_jobs_wait_until_a_retry_of_their_group_has_succeeded(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    """Workers hold the jobs, take the steps of the retry, and end the hold."""
    conn = database.conn
    held = "select count(*) from redrive.jobs where run_at > now() + interval '1 year'"
    signed = Signed(actor="ada", why="until it is back")
    enqueue_many(conn, [{"kind": "fail.outage"} for _ in range(JOBS)])
    workers()
    wait_for(lambda: [c["failing"] for c in failing.find(conn)] == [JOBS])
    (cause,) = failing.find(conn)
    failing.hold(conn, cause["group"], is_held=True, **signed)
    wait_for(lambda: database.value(held) == JOBS)
    before = dict(database.rows("select id, attempt from redrive.jobs"))

    assert _retry(conn, cause["group"]) == "aborted"
    wait_for(lambda: database.value(held) == JOBS)
    after = dict(database.rows("select id, attempt from redrive.jobs"))
    (tmp_path / "repaired").touch()
    assert _retry(conn, cause["group"]) == "done"

    assert len(dict(after.items() - before.items())) == 3
    wait_for(lambda: look.live(database) == 0)
    wait_for(lambda: not database.value("select count(*) from redrive.held_groups"))
    assert look.reasons(database) == {}


def _retry(conn: Connection, group: str) -> str:
    """Retry a group, and return the state of the campaign when it is over."""
    signed = Signed(actor="ada", why="is it back?")
    plan = campaigns.plan_retry(conn, group, actor="ada")["plan"]
    campaigns.start(conn, plan, Terms(), **signed)

    def found() -> Any:
        return campaigns.show(conn, plan)

    wait_for(lambda: found()["state"] in {"aborted", "done"})
    return found()["state"]


def _sentences(conn: Connection) -> list[str]:
    return list(failing.failing_kinds(failing.find(conn)))


def _check(run: Any) -> Any:
    found = map(json.loads, run("check", "--json").splitlines())
    return next(line for line in found if line["check"] == "failing")
