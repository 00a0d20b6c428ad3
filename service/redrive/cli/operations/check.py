"""redrive check: a list of findings, each made by a function of its own."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import click
import psycopg

from redrive.cli.operations import check_server
from redrive.cli.operations.check_server import Finding
from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import cells_options, json_option
from redrive.cli.support.output import emit, wants_json
from redrive.cli.support.unhandled import sentence
from redrive.database import audit
from redrive.database.embedded import THROWAWAY
from redrive.database.rows import Connection, first_record
from redrive.database.schema import foreign, publications
from redrive.database.schema import migrate as migrations
from redrive.database.transactions import oldest_transaction
from redrive.encryption import configured
from redrive.errors import RedriveError
from redrive.jobs import failing, standing
from redrive.jobs.unhandled import unhandled
from redrive.rules.brief import counted
from redrive.rules.pace import slow_text
from redrive.rules.payloads.escape import escaped_lines
from redrive.settings import Settings

CLOCK_SECONDS = 5.0
LOCK_TIMEOUT = "2s"


_Row = tuple[Mapping[str, str], Finding]
"""Columns that name a cell, and a finding of the cell."""


@click.command()
@cells_options("handlers")
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Also import this registry. [env: REDRIVE_HANDLERS]",
)
@json_option
def check(cells: Sequence[Settings]) -> int:
    """Check settings, database, roles, clock, server and audit log.

    \b
    redrive check --json

    Exit code 1: something is wrong.
    """
    answers, code = ask_each(cells, lambda settings: list(_of_the_database(settings)))
    # The process has the same settings in every cell, so they are checked once.
    findings: list[_Row] = [({}, finding) for finding in _of_the_process(cells[0])]

    for cell, found in answers:
        findings += [(cell, finding) for finding in found]

    for cell, finding in findings:
        if wants_json():
            emit({**cell, **finding._asdict()})
        else:
            _show(cell, finding)

    # A cell that does not answer decides the exit code: nothing is known about it.
    if code:
        return code

    return Exit.DONE if all(finding.ok for _, finding in findings) else Exit.FAILED


def _show(cell: Mapping[str, str], finding: Finding) -> None:
    mark = click.style("bad ", fg="red")
    if finding.ok:
        mark = click.style("ok  ", fg="green")

    check = f"{finding.check:12}"
    text = escaped_lines(finding.text.replace("\n", "\n     "))
    click.echo(" ".join((mark, *cell.values(), check, text)))


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
        text = "off: payloads and failures are not encrypted"
        return Finding("encryption", ok=True, text=text)

    first, *others = keyring.ids
    text = f"on, with key {first}"
    if others:
        text += f"; {', '.join(others)} can decrypt"

    return Finding("encryption", ok=True, text=text)


def _handlers(target: str, name: str) -> Finding:
    try:
        # Imported only if there are handlers to check, so that commands start fast.
        found = importlib.import_module("redrive.handlers").load(target, name)
    except RedriveError as error:
        return Finding("handlers", ok=False, text=str(error))

    kinds = ", ".join(handler.kind for handler in found)
    return Finding(
        check="handlers", ok=bool(kinds), text=kinds or "the registry is empty"
    )


@dataclass(frozen=True, slots=True)
class _Vitals:
    """Figures that the database reports about itself.

    Attributes:
        clock: time of the database, in seconds of Unix time.
        missing_roles: roles of `redrive migrate` that do not exist.
        harmful: settings of the role or the database that Redrive cannot undo.
    """

    server_version: str
    is_read_only: bool
    is_throwaway: bool
    has_fsync: bool
    schema_version: int
    is_logged: bool
    clock: float
    missing_roles: list[str]
    harmful: str | None


_READ_VITALS: LiteralString = """
    select current_setting('server_version') as server_version,
           current_setting('transaction_read_only') = 'on' as is_read_only,
           current_setting('cluster_name') = %s as is_throwaway,
           current_setting('fsync') = 'on' as has_fsync,
           (select max(version) from redrive.migrations) as schema_version,
           (select relpersistence = 'p' from pg_class
            where oid = 'redrive.jobs'::regclass) as is_logged,
           extract(epoch from clock_timestamp())::float8 as clock,
           array(select role from unnest(%s::text[]) role
                 where not exists (select from pg_roles where rolname = role)) as missing_roles,
           (select string_agg(name || ' is ' || setting, ', ' order by name) from pg_settings
            where name = 'session_replication_role' and setting <> 'origin'
               or name = 'default_transaction_read_only' and setting = 'on'
               or name in ('track_activities', 'track_counts') and setting = 'off') as harmful"""


def _of_the_database(settings: Settings) -> Iterator[Finding]:
    login = "this login"
    try:
        # A locked table must not stop the checks that do not read it.
        with database(settings, lock_timeout=LOCK_TIMEOUT) as conn:
            login = conn.info.user
            yield from _of_vitals(conn)
            yield from check_server.findings(conn, settings.disk_budget_gib << 30)
            for name, look in _LOOKS.items():
                yield _looked(conn, name, look)
    except psycopg.errors.InsufficientPrivilege as error:
        text = (
            f"{error.diag.message_primary}: {login} may not look there, so the checks from"
            f" there on are missing; grant redrive_operator to it"
        )
        yield Finding("rights", ok=False, text=text)


def _looked(
    conn: Connection, name: str, look: Callable[[Connection], Finding]
) -> Finding:
    try:
        return look(conn)
    except psycopg.errors.LockNotAvailable:
        text = f"a table is locked: {_blocked_by(standing.blockers(conn))}"
        return Finding(name, ok=False, text=text)


def _of_vitals(conn: Connection) -> Iterator[Finding]:
    vitals = first_record(
        conn, _Vitals, _READ_VITALS, THROWAWAY, list(migrations.ROLES)
    )
    assert vitals is not None  # noqa: S101 # a select without a table has one row

    for look in (_server, _durability, _schema, _roles, _clock):
        yield look(vitals)


def _owners(conn: Connection) -> Finding:
    found = foreign.find(conn)
    if found is None:
        return Finding(
            "owners", ok=True, text="the owner of the schema owns everything"
        )

    thing, owner = found
    text = f"{thing} belongs to {owner}: find out who made it, and why"

    return Finding("owners", ok=False, text=text)


def _replication(conn: Connection) -> Finding:
    published_by = publications.publishing(conn)
    without_identity = publications.without_identity(conn)

    tables = "our tables are not published"
    if published_by:
        tables = f"our tables are published by {', '.join(published_by)}"

    if not without_identity:
        text = f"{tables}, and each has a replica identity"
        return Finding("replication", ok=True, text=text)

    text = (
        f"{tables}, and these have no replica identity: {', '.join(without_identity)};"
        " a publication stops every update and delete of them, and so the workers;"
        " run for each: alter table ... replica identity full"
    )
    return Finding("replication", ok=False, text=text)


def _audit(conn: Connection) -> Finding:
    verdict = audit.verify(conn)
    if verdict.fault is None:
        text = f"{verdict.lines} lines, as they were written"
        return Finding("audit", ok=True, text=text)

    text = f"somebody changed the audit log: {verdict.fault}; see redrive audit verify"
    return Finding("audit", ok=False, text=text)


def _kinds(conn: Connection) -> Finding:
    found = unhandled(conn)
    if not found:
        text = "each due job has a live worker of its queue that handles it"
        return Finding("kinds", ok=True, text=text)

    text = sentence(found[0])
    if len(found) > 1:
        text += f"; and {len(found) - 1} more such kinds: see redrive queue ls"

    return Finding("kinds", ok=False, text=text)


def _failing(conn: Connection) -> Finding:
    kinds = list(failing.failing_kinds(failing.find(conn)))
    if not kinds:
        text = "no kind fails more often than its objective"
        return Finding("failing", ok=True, text=text)

    text = f"{' '.join(kinds)} See redrive dlq groups"
    return Finding("failing", ok=False, text=text)


def _server(vitals: _Vitals) -> Finding:
    if vitals.harmful:
        text = (
            f"{vitals.harmful}, so parts of Redrive do not work; reset it for the role,"
            " the database or the server"
        )
        return Finding("database", ok=False, text=text)

    if vitals.is_read_only:
        return Finding("database", ok=False, text="read-only: is this a standby?")
    return Finding("database", ok=True, text=f"Postgres {vitals.server_version}")


def _durability(vitals: _Vitals) -> Finding:
    if not vitals.is_logged:
        text = "the jobs table is unlogged: a crash loses jobs"
        return Finding("durability", ok=False, text=text)

    if vitals.is_throwaway:  # a server of redrive.testing is temporary on purpose
        text = (
            "not needed: this Postgres is for trials, and its data is deleted with it"
        )
        return Finding("durability", ok=True, text=text)

    if not vitals.has_fsync:
        text = (
            "fsync is off: a crash of the machine may lose jobs, or the whole database"
        )
        return Finding("durability", ok=False, text=text)

    return Finding("durability", ok=True, text="fsync on, tables logged")


def _schema(vitals: _Vitals) -> Finding:
    return Finding("schema", ok=True, text=f"version {vitals.schema_version}")


def _roles(vitals: _Vitals) -> Finding:
    if not vitals.missing_roles:
        return Finding("roles", ok=True, text="all exist")

    missing = ", ".join(vitals.missing_roles)
    text = f"missing: {missing}; run redrive migrate as a user with CREATEROLE"

    return Finding("roles", ok=False, text=text)


def _clock(vitals: _Vitals) -> Finding:
    apart = abs(time.time() - vitals.clock)
    if apart <= CLOCK_SECONDS:
        text = f"within {CLOCK_SECONDS:.0f} s of the database's"
        return Finding("clock", ok=True, text=text)

    text = f"{apart:.0f} s off the database's: waits in /metrics are wrong by as much"
    return Finding("clock", ok=False, text=text)


def _workers(conn: Connection) -> Finding:
    alive = standing.alive(conn)
    fault = standing.fault(conn)
    if fault is not None:
        return Finding("workers", ok=False, text=f"worker {fault.name}: {fault.text}")

    unserved = standing.unserved(conn)
    if not unserved:
        text = f"{alive} live; each due job has one for its queue"
        return Finding("workers", ok=True, text=text)

    queues = f"queue {unserved[0]}{_more_queues(unserved)}"
    text = f"jobs are due in {queues}, and no live worker serves it: start one"

    return Finding("workers", ok=False, text=text)


def _more_queues(found: Sequence[object]) -> str:
    more = len(found) - 1
    return f" and {counted(more, 'more queue')}" if more else ""


def _rescue(conn: Connection) -> Finding:
    lost = standing.lost(conn)
    if not lost:
        return Finding("rescue", ok=True, text="no lost worker holds jobs")

    text = (
        f"{counted(lost, 'worker')} lost, and no worker has rescued their jobs;"
        " any live worker does so within seconds: is one running?"
    )
    return Finding("rescue", ok=False, text=text)


def _progress(conn: Connection) -> Finding:
    found = standing.standing(conn)
    if not found:
        text = "no due job waits beside a free slot"
        return Finding("progress", ok=True, text=text)

    first = found[0]
    queues = f"queue {first.queue}{_more_queues(found)}"
    workers = counted(first.workers, "live worker")
    text = (
        f"{queues}: jobs are due, {workers} with free slots, and nothing was claimed or"
        f" ended for {first.seconds:.0f} s; {_blocked_by(standing.blockers(conn))}"
    )

    return Finding("progress", ok=False, text=text)


def _speed(conn: Connection) -> Finding:
    found = standing.slowest(conn)
    if found is None:
        text = "no worker's exchange takes much longer than usual"
        return Finding("speed", ok=True, text=text)

    causes: list[str] = []
    if blockers := standing.blockers(conn):
        causes.append(_blocked_by(blockers))
    if oldest := oldest_transaction(conn):
        causes.append(f"{oldest.text} holds vacuum back; to end it: {oldest.end}")
    if not causes:
        causes.append("no session explains it: see the load of the server")

    text = f"an exchange of worker {found.name}: {slow_text(found.seconds, found.factor)}; "
    return Finding("speed", ok=False, text=text + "; ".join(causes))


def _locks(conn: Connection) -> Finding:
    found = standing.lasting_locks(conn)
    if not found:
        return Finding("locks", ok=True, text="no session keeps a table locked")
    return Finding("locks", ok=False, text=_blocked_by(found))


def _blocked_by(found: Sequence[standing.Blocker]) -> str:
    """Return a text about the session that stops everything, and its remedy."""
    if not found:
        return (
            "no session was seen to block it: see the workers' logs and their /readyz"
        )

    return found[0].text


_LOOKS: Mapping[str, Callable[[Connection], Finding]] = {
    "workers": _workers,
    "rescue": _rescue,
    "progress": _progress,
    "speed": _speed,
    "locks": _locks,
    "autovacuum": check_server.autovacuum,
    "kinds": _kinds,
    "failing": _failing,
    "owners": _owners,
    "replication": _replication,
    "audit": _audit,
}
"""Checks that run one by one.

If a table is locked, only the checks that read it have no result.
"""
