"""redrive migrate, redrive check."""

import importlib
from typing import Any

import click

from redrive.cli.common import database, database_option, emit, json_option, settings_for
from redrive.database import migrate as migrations
from redrive.encryption import configured
from redrive.errors import RedriveError
from redrive.settings import unknown

CLOCK_SECONDS = 5.0
LONG_TRANSACTION_SECONDS = 1800.0


@click.command()
@database_option
@json_option
def migrate(database_url: str | None, as_json: bool) -> None:
    """Bring the schema up to date. Safe to repeat, to run twice at once, and to kill."""
    with database(settings_for(database_url), any_schema=True) as conn:
        report = migrations.migrate(conn)
    if as_json:
        emit(
            {
                "before": report.before,
                "after": report.after,
                "applied": report.applied,
                "without_roles": report.without_roles,
            }
        )
        return
    for name in report.applied:
        click.echo(f"applied {name}")
    click.echo(f"schema version {report.after}" + ("" if report.applied else ", nothing to do"))
    if report.without_roles:
        click.echo(f"without roles: {report.without_roles}", err=True)


@click.command()
@database_option
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Also import this registry. [env: REDRIVE_HANDLERS]",
)
@json_option
@click.pass_context
def check(
    ctx: click.Context, database_url: str | None, handlers: str | None, as_json: bool
) -> None:
    """Look at settings, handlers, database, schema, roles, clock and bloat. Exit 1 when something
    is wrong.
    """
    settings = settings_for(database_url, handlers=handlers)
    findings: list[tuple[str, str | None, str]] = [
        ("settings", f"unknown: {', '.join(unknown())}" if unknown() else None, "all known"),
    ]
    findings.append(_encryption())
    if settings.handlers is not None:
        findings.append(_handlers(settings.handlers))
    with database(settings, any_schema=True) as conn:
        migrations.require(conn)
        findings += _database(conn)
    if as_json:
        for name, wrong, good in findings:
            emit({"check": name, "ok": wrong is None, "text": wrong or good})
    else:
        for name, wrong, good in findings:
            mark = (
                click.style("ok  ", fg="green") if wrong is None else click.style("bad ", fg="red")
            )
            click.echo(f"{mark} {name:12} {wrong or good}")
    ctx.exit(1 if any(wrong for _, wrong, _ in findings) else 0)


def _encryption() -> tuple[str, str | None, str]:
    try:
        keyring = configured()
    except RedriveError as error:
        return ("encryption", str(error), "")
    if keyring is None:
        return ("encryption", None, "off: payloads and failures are stored in the clear")
    others = f"; {', '.join(keyring.ids[1:])} can decrypt" if keyring.ids[1:] else ""
    return ("encryption", None, f"on, with key {keyring.ids[0]}{others}")


def _handlers(target: str) -> tuple[str, str | None, str]:
    load = importlib.import_module("redrive.handlers").load
    try:
        found = load(target)
    except RedriveError as error:
        return ("handlers", str(error), "")
    return (
        "handlers",
        None if len(found) else "the registry is empty",
        ", ".join(h.kind for h in found),
    )


def _database(conn: Any) -> list[tuple[str, str | None, str]]:
    version, readonly, persistence, skew, dead, live, oldest, commit = conn.execute(
        "select current_setting('server_version'), current_setting('transaction_read_only') = 'on',"
        " (select relpersistence from pg_class where oid = 'redrive.jobs'::regclass),"
        " extract(epoch from clock_timestamp())::float8,"
        " pg_stat_get_dead_tuples('redrive.jobs'::regclass), pg_stat_get_live_tuples('redrive.jobs'::regclass),"
        " coalesce((select extract(epoch from max(clock_timestamp() - xact_start))::float8 from pg_stat_activity"
        "           where datname = current_database()), 0),"
        " (select setting from pg_settings where name = 'fsync')"
    ).fetchone()
    import time  # noqa: PLC0415

    apart = abs(time.time() - skew)
    missing = conn.execute(
        "select array_agg(r) from unnest(%s::text[]) r where not exists (select from pg_roles p where p.rolname = r)",
        (list(migrations.ROLES),),
    ).fetchone()[0]
    lost = conn.execute(
        "select count(*) from redrive.workers where seen_at < clock_timestamp() - interval '5 min'"
    ).fetchone()[0]
    return [
        ("database", "read-only: is this a standby?" if readonly else None, f"Postgres {version}"),
        (
            "durability",
            "fsync is off, or the jobs table is unlogged: a crash loses jobs"
            if commit != "on" or persistence != "p"
            else None,
            "fsync on, tables logged",
        ),
        ("schema", None, f"version {migrations.latest()}"),
        (
            "roles",
            f"missing: {', '.join(missing)}; run redrive migrate as a user with CREATEROLE"
            if missing
            else None,
            "all there",
        ),
        (
            "clock",
            f"{apart:.0f} s apart from the database's: the waits in /metrics will be off by that"
            if apart > CLOCK_SECONDS
            else None,
            f"within {CLOCK_SECONDS:.0f} s of the database's",
        ),
        (
            "bloat",
            f"{dead} dead rows in redrive.jobs for {live} live ones: is a long transaction holding vacuum back?"
            if dead > 100_000 and dead > 10 * live  # noqa: PLR2004
            else None,
            f"{dead} dead rows for {live} live ones",
        ),
        (
            "transactions",
            f"one has been open for {oldest:.0f} s: vacuum cannot clean behind it"
            if oldest > LONG_TRANSACTION_SECONDS
            else None,
            "none is long",
        ),
        (
            "rescue",
            f"{lost} workers are silent and their jobs not taken back: no worker is up?"
            if lost
            else None,
            "nobody waits for it",
        ),
    ]
