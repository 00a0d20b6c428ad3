"""redrive check: a list of findings, each made by a function of its own."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple

import click
import psycopg
from psycopg.rows import class_row

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import database_option, json_option, settings_of_cells
from redrive.cli.support.output import counted, emit
from redrive.cli.support.unhandled import sentence
from redrive.database import audit, foreign, publications
from redrive.database import migrate as migrations
from redrive.database.embedded import THROWAWAY
from redrive.encryption import configured
from redrive.errors import RedriveError
from redrive.live_jobs import standing
from redrive.live_jobs.unhandled import unhandled
from redrive.rules.payloads.escape import escaped_lines
from redrive.settings import Settings

CLOCK_SECONDS = 5.0
LONG_TRANSACTION_SECONDS = 1800.0
LOCK_TIMEOUT = "2s"
DEAD_ROWS = 100_000
DEAD_SHARE = 10


class Finding(NamedTuple):
    """Result of one check.

    `text` describes the good state, or the fault and its remedy.
    """

    check: str
    ok: bool
    text: str


@click.command()
@database_option
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Also import this registry. [env: REDRIVE_HANDLERS]",
)
@json_option
def check(database_url: str | None, handlers: str | None, as_json: bool) -> int:
    """Look at settings, database, roles, clock, bloat, audit log.

    \b
    redrive check --json

    Exit code 1 when something is wrong.
    """
    cells = settings_of_cells(database_url, handlers=handlers)
    answers, code = ask_each(cells, lambda settings: list(_of_the_database(settings)))
    findings: list[tuple[Mapping[str, str], Finding]]
    findings = [({}, finding) for finding in _of_the_process(cells[0])]
    findings += [(cell, finding) for cell, its in answers for finding in its]
    for cell, finding in findings:
        if as_json:
            emit({**cell, **finding._asdict()})
        else:
            _show(cell, finding)
    return code or (
        Exit.DONE if all(finding.ok for _, finding in findings) else Exit.FAILED
    )


def _show(cell: Mapping[str, str], finding: Finding) -> None:
    mark = (
        click.style("ok  ", fg="green") if finding.ok else click.style("bad ", fg="red")
    )
    text = escaped_lines(finding.text.replace("\n", "\n     "))
    click.echo(" ".join((mark, *cell.values(), f"{finding.check:12}", text)))


def _of_the_process(settings: Settings) -> Iterator[Finding]:
    yield Finding("settings", ok=True, text="all known")  # otherwise loading had failed
    yield _encryption()
    if settings.handlers is not None:
        yield _handlers(settings.handlers, settings.name_of("handlers"))


def _encryption() -> Finding:
    try:
        keyring = configured()
    except RedriveError as error:
        return Finding("encryption", ok=False, text=str(error))
    if keyring is None:
        text = "off: payloads and failures are stored in the clear"
    else:
        others = ", ".join(keyring.ids[1:])
        text = f"on, with key {keyring.ids[0]}" + (
            f"; {others} can decrypt" if others else ""
        )
    return Finding("encryption", ok=True, text=text)


def _handlers(target: str, name: str) -> Finding:
    try:
        found = importlib.import_module("redrive.handlers").load(target, name)
    except RedriveError as error:
        return Finding("handlers", ok=False, text=str(error))
    kinds = ", ".join(handler.kind for handler in found)
    return Finding("handlers", bool(kinds), kinds or "the registry is empty")


@dataclass(frozen=True, slots=True)
class _Vitals:
    """Figures that the database reports about itself.

    Attributes:
        clock: time of the database, in seconds of Unix time.
        dead_rows: dead rows of `redrive.jobs` in the statistics.
        oldest_transaction: age of the oldest transaction in seconds.
        missing_roles: roles of `redrive migrate` that do not exist.
    """

    server_version: str
    is_read_only: bool
    is_throwaway: bool
    has_fsync: bool
    is_logged: bool
    clock: float
    dead_rows: int
    live_rows: int
    oldest_transaction: float
    missing_roles: list[str]


_READ_VITALS: LiteralString = """
    select current_setting('server_version') as server_version,
           current_setting('transaction_read_only') = 'on' as is_read_only,
           current_setting('cluster_name') = %s as is_throwaway,
           current_setting('fsync') = 'on' as has_fsync,
           (select relpersistence = 'p' from pg_class
            where oid = 'redrive.jobs'::regclass) as is_logged,
           extract(epoch from clock_timestamp())::float8 as clock,
           pg_stat_get_dead_tuples('redrive.jobs'::regclass) as dead_rows,
           pg_stat_get_live_tuples('redrive.jobs'::regclass) as live_rows,
           coalesce((select extract(epoch from max(clock_timestamp() - xact_start))::float8
                     from pg_stat_activity where datname = current_database()), 0)
               as oldest_transaction,
           array(select role from unnest(%s::text[]) role
                 where not exists (select from pg_roles where rolname = role)) as missing_roles"""


def _of_the_database(settings: Settings) -> Iterator[Finding]:
    login = "this login"
    try:
        with database(settings, lock_timeout=LOCK_TIMEOUT) as conn:
            login = conn.info.user
            yield from _of_vitals(conn)
            for name, look in _LOOKS.items():
                try:
                    yield look(conn)
                except psycopg.errors.LockNotAvailable:
                    text = f"nobody can look: {_blocked_by(standing.blockers(conn))}"
                    yield Finding(name, ok=False, text=text)
    except psycopg.errors.InsufficientPrivilege as error:
        said = f"{error.diag.message_primary}: {login} may not look there, and nothing after it was"
        yield Finding(
            "rights", ok=False, text=f"{said} looked at; grant redrive_operator to it"
        )


def _of_vitals(conn: psycopg.Connection[Any]) -> Iterator[Finding]:
    with conn.cursor(row_factory=class_row(_Vitals)) as cursor:
        vitals = cursor.execute(
            _READ_VITALS, (THROWAWAY, list(migrations.ROLES))
        ).fetchone()
    assert vitals is not None  # noqa: S101 # a select without a table has one row
    for look in (_server, _durability, _schema, _roles, _clock, _bloat, _transactions):
        yield look(vitals)


def _owners(conn: psycopg.Connection[Any]) -> Finding:
    found = foreign.find(conn)
    if found is None:
        return Finding("owners", ok=True, text="all of it is ours")
    thing, owner = found
    return Finding(
        "owners", ok=False, text=f"{thing} belongs to {owner}: who made it, and why?"
    )


def _replication(conn: psycopg.Connection[Any]) -> Finding:
    published_by = publications.publishing(conn)
    without_identity = publications.without_identity(conn)
    who = f"published by {', '.join(published_by)}" if published_by else "not published"
    if not without_identity:
        text = f"our tables are {who}, and each has a replica identity"
        return Finding("replication", ok=True, text=text)
    text = (
        f"our tables are {who}, and these have no replica identity:"
        f" {', '.join(without_identity)}; a publication stops every update and delete of them,"
        " and so the workers; run for each: alter table ... replica identity full"
    )
    return Finding("replication", ok=False, text=text)


def _audit(conn: psycopg.Connection[Any]) -> Finding:
    verdict = audit.verify(conn)
    if verdict.fault is None:
        text = f"{verdict.lines} lines, as they were written"
        return Finding("audit", ok=True, text=text)
    text = f"somebody changed the audit log: {verdict.fault}; see redrive audit verify"
    return Finding("audit", ok=False, text=text)


def _kinds(conn: psycopg.Connection[Any]) -> Finding:
    found = unhandled(conn)
    if not found:
        return Finding(
            "kinds", ok=True, text="whatever is due, a live worker of its queue handles"
        )
    first, more = sentence(found[0]), len(found) - 1
    text = first + (
        f"; and {more} more such kinds: see redrive queue ls" if more else ""
    )
    return Finding("kinds", ok=False, text=text)


def _server(vitals: _Vitals) -> Finding:
    if vitals.is_read_only:
        return Finding("database", ok=False, text="read-only: is this a standby?")
    return Finding("database", ok=True, text=f"Postgres {vitals.server_version}")


def _durability(vitals: _Vitals) -> Finding:
    if not vitals.is_logged:
        text = "the jobs table is unlogged: a crash loses jobs"
        return Finding("durability", ok=False, text=text)
    if vitals.is_throwaway:  # a server of redrive.testing is temporary on purpose
        text = "none is meant: a Postgres to try things on, whose data goes with it"
        return Finding("durability", ok=True, text=text)
    if not vitals.has_fsync:
        text = (
            "fsync is off: a crash of its machine may lose jobs, or the whole database"
        )
        return Finding("durability", ok=False, text=text)
    return Finding("durability", ok=True, text="fsync on, tables logged")


def _schema(_: _Vitals) -> Finding:
    return Finding("schema", ok=True, text=f"version {migrations.latest()}")


def _roles(vitals: _Vitals) -> Finding:
    if not vitals.missing_roles:
        return Finding("roles", ok=True, text="all there")
    missing = ", ".join(vitals.missing_roles)
    text = f"missing: {missing}; run redrive migrate as a user with CREATEROLE"
    return Finding("roles", ok=False, text=text)


def _clock(vitals: _Vitals) -> Finding:
    apart = abs(time.time() - vitals.clock)
    if apart <= CLOCK_SECONDS:
        return Finding(
            "clock", ok=True, text=f"within {CLOCK_SECONDS:.0f} s of the database's"
        )
    text = f"{apart:.0f} s apart from the database's: waits in /metrics are wrong by as much"
    return Finding("clock", ok=False, text=text)


def _bloat(vitals: _Vitals) -> Finding:
    rows = (
        f"{vitals.dead_rows} dead rows in redrive.jobs for {vitals.live_rows} live ones"
    )
    if (
        vitals.dead_rows <= DEAD_ROWS
        or vitals.dead_rows <= DEAD_SHARE * vitals.live_rows
    ):
        return Finding("bloat", ok=True, text=rows)
    text = f"{rows}: is a long transaction holding vacuum back?"
    return Finding("bloat", ok=False, text=text)


def _transactions(vitals: _Vitals) -> Finding:
    if vitals.oldest_transaction <= LONG_TRANSACTION_SECONDS:
        return Finding("transactions", ok=True, text="none is long")
    text = (
        f"one has been open for {vitals.oldest_transaction:.0f} s:"
        " vacuum cannot remove what died since"
    )
    return Finding("transactions", ok=False, text=text)


def _workers(conn: psycopg.Connection[Any]) -> Finding:
    alive, unserved = standing.alive(conn), standing.unserved(conn)
    if not unserved:
        return Finding(
            "workers", ok=True, text=f"{alive} live; each due job has one for its queue"
        )
    first, more = unserved[0], len(unserved) - 1
    others = f" and {counted(more, 'more queue')}" if more else ""
    text = f"jobs are due in queue {first}{others}, and no live worker serves it: start one"
    return Finding("workers", ok=False, text=text)


def _rescue(conn: psycopg.Connection[Any]) -> Finding:
    lost = standing.lost(conn)
    if not lost:
        return Finding("rescue", ok=True, text="no lost worker holds jobs")
    text = (
        f"{counted(lost, 'worker')} lost with jobs in hand, and nobody has taken these back;"
        " any live worker does so within seconds: is one running?"
    )
    return Finding("rescue", ok=False, text=text)


def _progress(conn: psycopg.Connection[Any]) -> Finding:
    found = standing.standing(conn)
    if not found:
        return Finding(
            "progress", ok=True, text="no due job is left waiting beside a free slot"
        )
    first, more = found[0], len(found) - 1
    others = f" and {counted(more, 'more queue')}" if more else ""
    text = (
        f"queue {first.queue}{others}: jobs are due, {counted(first.workers, 'live worker')} with"
        f" free slots, and nothing was claimed or ended for {first.seconds:.0f} s;"
        f" {_blocked_by(standing.blockers(conn))}"
    )
    return Finding("progress", ok=False, text=text)


def _blocked_by(found: Sequence[standing.Blocker]) -> str:
    """Return a text about the session that stops everything, and its remedy."""
    if not found:
        return (
            "no session was seen to block it: see the workers' logs and their /readyz"
        )
    first = found[0]
    what = "rows" if first.table is None else f"table {first.table}"
    since = "" if first.seconds is None else f", for {first.seconds:.0f} s"
    application = first.application or "no application name"
    return (
        f"session {first.pid} ({application}) has locked {what}{since};"
        f" to end it: select pg_terminate_backend({first.pid})"
    )


_LOOKS: Mapping[str, Callable[[psycopg.Connection[Any]], Finding]] = {
    "workers": _workers,
    "rescue": _rescue,
    "progress": _progress,
    "kinds": _kinds,
    "owners": _owners,
    "replication": _replication,
    "audit": _audit,
}
"""Checks that run one by one.

If a table is locked, only the checks that read it have no result.
"""
