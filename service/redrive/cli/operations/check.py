"""redrive check: a list of findings, each made by a function of its own."""

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import click
import psycopg

from redrive.cli.operations import check_server
from redrive.cli.operations.check_server import Finding, Verdict, bad, good
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
    is_fine = True
    for cell, findings in ({}, _of_the_process(cells[0])), *answers:
        for check, verdict in findings:
            is_fine &= verdict.ok
            _show(cell, check, verdict)

    # A cell that does not answer decides the exit code: nothing is known about it.
    return code or (Exit.DONE if is_fine else Exit.FAILED)


def _show(cell: Mapping[str, str], check: str, verdict: Verdict) -> None:
    if wants_json():
        emit({**cell, "check": check, **verdict._asdict()})
        return

    mark, color = ("ok  ", "green") if verdict.ok else ("bad ", "red")
    text = escaped_lines(verdict.text.replace("\n", "\n     "))
    click.echo(
        " ".join((click.style(mark, fg=color), *cell.values(), f"{check:12}", text))
    )


def _of_the_process(settings: Settings) -> Iterator[Finding]:
    yield "settings", good("all known")  # otherwise loading had failed
    yield "encryption", _encryption()
    if settings.handlers is not None:
        yield "handlers", _handlers(settings.handlers, settings.name_of("handlers"))


def _encryption() -> Verdict:
    try:
        keyring = configured()
    except RedriveError as error:
        return bad(str(error))

    if keyring is None:
        return good("off: payloads and failures are not encrypted")

    first, *others = keyring.ids
    text = f"on, with key {first}"
    if others:
        text += f"; {', '.join(others)} can decrypt"

    return good(text)


def _handlers(target: str, name: str) -> Verdict:
    try:
        # Imported only if there are handlers to check, so that commands start fast.
        found = importlib.import_module("redrive.handlers").load(target, name)
    except RedriveError as error:
        return bad(str(error))

    kinds = ", ".join(handler.kind for handler in found)
    return good(kinds) if kinds else bad("the registry is empty")


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
                yield name, _looked(conn, look)
    except psycopg.errors.InsufficientPrivilege as error:
        text = (
            f"{error.diag.message_primary}: {login} may not look there, so the checks from"
            f" there on are missing; grant redrive_operator to it"
        )
        yield "rights", bad(text)


def _looked(conn: Connection, look: Callable[[Connection], Verdict]) -> Verdict:
    try:
        return look(conn)
    except psycopg.errors.LockNotAvailable:
        return bad(f"a table is locked: {_blocked_by(standing.blockers(conn))}")


def _of_vitals(conn: Connection) -> Iterator[Finding]:
    vitals = first_record(
        conn, _Vitals, _READ_VITALS, THROWAWAY, list(migrations.ROLES)
    )
    assert vitals is not None  # noqa: S101 # a select without a table has one row

    yield "database", _server(vitals)
    yield "durability", _durability(vitals)
    yield "schema", good(f"version {vitals.schema_version}")
    yield "roles", _roles(vitals)
    yield "clock", _clock(vitals)


def _owners(conn: Connection) -> Verdict:
    found = foreign.find(conn)
    if found is None:
        return good("the owner of the schema owns everything")

    thing, owner = found
    return bad(f"{thing} belongs to {owner}: find out who made it, and why")


def _replication(conn: Connection) -> Verdict:
    published_by = publications.publishing(conn)
    without_identity = publications.without_identity(conn)

    tables = "our tables are not published"
    if published_by:
        tables = f"our tables are published by {', '.join(published_by)}"

    if not without_identity:
        return good(f"{tables}, and each has a replica identity")

    return bad(
        f"{tables}, and these have no replica identity: {', '.join(without_identity)};"
        " a publication stops every update and delete of them, and so the workers;"
        " run for each: alter table ... replica identity full"
    )


def _audit(conn: Connection) -> Verdict:
    verdict = audit.verify(conn)
    if verdict.fault is None:
        return good(f"{verdict.lines} lines, as they were written")

    return bad(
        f"somebody changed the audit log: {verdict.fault}; see redrive audit verify"
    )


def _kinds(conn: Connection) -> Verdict:
    found = unhandled(conn)
    if not found:
        return good("each due job has a live worker of its queue that handles it")

    text = sentence(found[0])
    if len(found) > 1:
        text += f"; and {len(found) - 1} more such kinds: see redrive queue ls"

    return bad(text)


def _failing(conn: Connection) -> Verdict:
    kinds = list(failing.failing_kinds(failing.find(conn)))
    if not kinds:
        return good("no kind fails more often than its objective")

    return bad(f"{' '.join(kinds)} See redrive dlq groups")


def _server(vitals: _Vitals) -> Verdict:
    if vitals.harmful:
        return bad(
            f"{vitals.harmful}, so parts of Redrive do not work; reset it for the role,"
            " the database or the server"
        )

    if vitals.is_read_only:
        return bad("read-only: is this a standby?")
    return good(f"Postgres {vitals.server_version}")


def _durability(vitals: _Vitals) -> Verdict:
    if not vitals.is_logged:
        return bad("the jobs table is unlogged: a crash loses jobs")

    if vitals.is_throwaway:  # a server of redrive.testing is temporary on purpose
        return good(
            "not needed: this Postgres is for trials, and its data is deleted with it"
        )

    if not vitals.has_fsync:
        return bad(
            "fsync is off: a crash of the machine may lose jobs, or the whole database"
        )

    return good("fsync on, tables logged")


def _roles(vitals: _Vitals) -> Verdict:
    if not vitals.missing_roles:
        return good("all exist")

    missing = ", ".join(vitals.missing_roles)
    return bad(f"missing: {missing}; run redrive migrate as a user with CREATEROLE")


def _clock(vitals: _Vitals) -> Verdict:
    apart = abs(time.time() - vitals.clock)
    if apart <= CLOCK_SECONDS:
        return good(f"within {CLOCK_SECONDS:.0f} s of the database's")

    return bad(
        f"{apart:.0f} s off the database's: waits in /metrics are wrong by as much"
    )


def _workers(conn: Connection) -> Verdict:
    alive = standing.alive(conn)
    fault = standing.fault(conn)
    if fault is not None:
        return bad(f"worker {fault.name}: {fault.text}")

    unserved = standing.unserved(conn)
    if not unserved:
        return good(f"{alive} live; each due job has one for its queue")

    queues = f"queue {unserved[0]}{_more_queues(unserved)}"
    return bad(f"jobs are due in {queues}, and no live worker serves it: start one")


def _more_queues(found: Sequence[object]) -> str:
    more = len(found) - 1
    return f" and {counted(more, 'more queue')}" if more else ""


def _rescue(conn: Connection) -> Verdict:
    lost = standing.lost(conn)
    if not lost:
        return good("no lost worker holds jobs")

    return bad(
        f"{counted(lost, 'worker')} lost, and no worker has rescued their jobs;"
        " any live worker does so within seconds: is one running?"
    )


def _progress(conn: Connection) -> Verdict:
    found = standing.standing(conn)
    if not found:
        return good("no due job waits beside a free slot")

    first = found[0]
    queues = f"queue {first.queue}{_more_queues(found)}"
    workers = counted(first.workers, "live worker")
    return bad(
        f"{queues}: jobs are due, {workers} with free slots, and nothing was claimed or"
        f" ended for {first.seconds:.0f} s; {_blocked_by(standing.blockers(conn))}"
    )


def _speed(conn: Connection) -> Verdict:
    found = standing.slowest(conn)
    if found is None:
        return good("no worker's exchange takes much longer than usual")

    causes: list[str] = []
    if blockers := standing.blockers(conn):
        causes.append(_blocked_by(blockers))
    if oldest := oldest_transaction(conn):
        causes.append(f"{oldest.text} holds vacuum back; to end it: {oldest.end}")
    if not causes:
        causes.append("no session explains it: see the load of the server")

    text = f"an exchange of worker {found.name}: {slow_text(found.seconds, found.factor)}; "
    return bad(text + "; ".join(causes))


def _locks(conn: Connection) -> Verdict:
    found = standing.lasting_locks(conn)
    if not found:
        return good("no session keeps a table locked")
    return bad(_blocked_by(found))


def _blocked_by(found: Sequence[standing.Blocker]) -> str:
    """Return a text about the session that stops everything, and its remedy."""
    if found:
        return found[0].text
    return "no session was seen to block it: see the workers' logs and their /readyz"


_LOOKS: Mapping[str, Callable[[Connection], Verdict]] = {
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
