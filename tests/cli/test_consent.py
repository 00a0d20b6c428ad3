"""Nothing changes before somebody agrees: at a terminal by a word, without one by --yes."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from redrive.cli.main import cli, main
from redrive.dead_letters.campaigns import store as campaigns
from redrive.dead_letters.filter import Filter
from redrive.extras.proposals import store as proposals
from redrive.extras.proposals.store import Agent
from tests.factories import (
    claim_one,
    failure,
    make_dead_letter,
    make_job,
    make_schedule,
    make_worker,
    settle,
)
from tests.postgres import Database

IN_ORDER = (
    "breaker force smtp open",
    "breaker reset smtp",
    "campaign start 1",
    "campaign pause 1",
    "campaign resume 1",
    "campaign cancel 1",
    "dlq assign 1 --owner ada",
    "dlq export 1 --reveal",
    "dlq dismiss --kind invoice.charge",
    "dlq reopen 1",
    'dlq edit 1 --patch [{"op":"add","path":"/a","value":1}]',
    "dlq ack GROUP",
    "dlq unack GROUP",
    "dlq resolve GROUP --in 9.0.0",
    "dlq unresolve GROUP",
    "dlq mute GROUP",
    "dlq mute GROUP --off",
    "dlq retry f501",
    "dlq hold f503",
    "dlq release f503",
    "dlq give-up f503",
    "job reveal 1",
    "job replay 1 --reveal --handlers tests.replay.apps:jobs",
    "dlq redrive --id 1",
    "dlq import FILE --source sqs",
    "job now 2",
    "job cancel 2",
    "limit set emails --rate 20/1m",
    "limit rm emails",
    "objective set mail dead_ratio 0.5",
    'objective apply {"mail":{"dead_ratio":0.6}}',
    "owner set mail team-mail",
    'owner apply {"mail":{"owner":"team-post"}}',
    "owner rm mail",
    "proposal start 1",
    "proposal reject 2",
    "purge --older-than 0d --state any",
    "queue limit queues=5000",
    "queue pause mail --create",
    "queue resume mail",
    "queue set mail --fair-by tenant --paused --history 7d",
    "retention set audit=800d",
    "schedule pause report",
    "schedule resume report",
    "schedule now report",
)

COMMANDS = cli.list_commands(click.Context(cli))
"""Each can be done after those before it."""

SMTP = (["smtp"], [0], [1], [5], [60.0], [60.0])
"""A breaker, as it is reported."""

NO_QUESTION = {"reencrypt"}
"""It changes how rows are stored and not what they say, and is safe to stop and to repeat."""


def _changing(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    """The commands that want to know why."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _changing((*path, name), found)
    elif any("--why" in parameter.opts for parameter in command.params):
        yield " ".join(path)


def test_every_command_that_changes_something_is_tried_here() -> None:
    tried = set(map(_path, IN_ORDER))

    assert set(_changing((), cli)) - NO_QUESTION == tried
    assert set(COMMANDS) > NO_QUESTION


def _path(line: str) -> str:
    first, second, *_ = line.split()
    return first if second.startswith("-") else f"{first} {second}"


def test_without_a_terminal_nothing_changes_until_yes_is_said(
    database: Database, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text('{"kind": "mail", "payload": {}, "source_id": "1"}\n')
    make_dead_letter(database.conn)
    make_job(database.conn, delay=9_000)
    make_schedule(database.conn, "report")
    database.conn.execute("select redrive.breakers_v1(%s, %s, %s, %s, %s, %s)", SMTP)
    assert campaigns.plan(database.conn, Filter(), actor="ada").plan == 1
    group = database.value("select fingerprint from redrive.grouped")
    worker = make_worker(database.conn)
    for fingerprint in ("f501", "f503"):
        make_job(database.conn, "hook", queue="hooks", priority=-1)
        job = claim_one(database.conn, worker)
        fault = failure(fingerprint=fingerprint, category="transient")
        settle(database.conn, worker, job, "retry", delay=3600, failure=fault)
    for _ in range(2):
        proposals.propose(
            database.conn,
            "mute",
            Agent("helper", "ada"),
            "why",
            {"group": group, "seconds": 60},
        )
    lines = "select count(*) from redrive.audit"

    for line in IN_ORDER:
        said = [
            *line.replace("GROUP", group).replace("FILE", str(file)).split(),
            "--why",
            "why",
        ]
        said += ["--database-url", database.url]
        before = database.value(lines)
        main(said)
        told = "".join(capsys.readouterr())
        assert "--yes" in told, line
        assert database.value(lines) == before, line
        assert main([*said, "--yes"]) == 0, (line, capsys.readouterr())
        assert database.value(lines) > before, line
        capsys.readouterr()
