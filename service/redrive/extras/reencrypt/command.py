"""redrive reencrypt."""

from collections.abc import Iterator

import click

from redrive.cli.support.connection import database, only_one
from redrive.cli.support.options import (
    actor_option,
    json_option,
    settings_options,
    why_option,
)
from redrive.cli.support.output import emit, table, wants_json
from redrive.cli.support.terminal import progress
from redrive.database.rows import Connection
from redrive.dead_letters.runs import audited
from redrive.encryption import KEYS_FILE, Keyring, configured
from redrive.errors import SettingsError
from redrive.extras.reencrypt import reencrypt as rotation
from redrive.settings import Settings

SHOWN = 20
"""Number of unreadable rows that are named without --json."""


@click.command()
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help="At most this many rows per second.",
)
@why_option("default: rotation", default="rotation")
@actor_option
@click.option("--dry-run", is_flag=True, help="Only count the rows of each key.")
@settings_options("actor")
@json_option
def reencrypt(rate: float | None, why: str, dry_run: bool, settings: Settings) -> None:
    """Encrypt all stored data with the first key of the keyring.

    \b
    redrive reencrypt --why 'yearly rotation'

    The command rewrites data that another key encrypted, and data that is not
    encrypted. Workers may run meanwhile. You can stop it and start it again. It shows
    how many rows each key still has. You can remove a key that has no rows from the
    keyring.
    """
    keyring = _keyring()
    with database(settings) as conn:
        if dry_run:
            report = rotation.Report(left=rotation.count(conn))
        else:
            report = _rotate(conn, settings, keyring, rate, why)

    if wants_json():
        emit(
            {
                "key": keyring.ids[0],
                "rewritten": report.rewritten,
                "skipped": report.skipped,
                "unreadable": len(report.unreadable),
                "unreadable_rows": report.unreadable,
                "left": [{"key": key, **rows} for key, rows in _left(keyring, report)],
            }
        )
        return

    _show_left(keyring, report)
    click.echo("nothing was changed" if dry_run else _summary(keyring, report))


def _keyring() -> Keyring:
    keyring = configured()
    if keyring is None:
        raise SettingsError(
            f"{KEYS_FILE} is not set; it must name a file with lines of `id base64-of-32-bytes`"
        )
    return keyring


def _rotate(
    conn: Connection, settings: Settings, keyring: Keyring, rate: float | None, why: str
) -> rotation.Report:
    """Encrypt all data that the first key has not encrypted, and audit it."""
    first = keyring.ids[0]
    stale = rotation.count_stale(conn, first)

    with (
        only_one(settings, "reencrypt"),
        audited(
            conn,
            "reencrypt",
            actor=settings.who(),
            why=why,
            n=stale,
            detail={"key": first},
        ) as run,
        progress("encrypted", stale) as advance,
    ):
        return rotation.reencrypt(conn, keyring, run=run, rate=rate, progress=advance)


def _summary(keyring: Keyring, report: rotation.Report) -> str:
    text = f"{report.rewritten} encrypted with key {keyring.ids[0]}"
    if report.skipped:
        text += f", {report.skipped} busy: run it again for them"
    if report.unreadable:
        text += f", {len(report.unreadable)} cannot be read (--json names all):"
        for row in report.unreadable[:SHOWN]:
            text += f"\n  job {row['job']} in {row['table']}"

    return text


def _left(
    keyring: Keyring, report: rotation.Report
) -> Iterator[tuple[str | None, dict[str, int]]]:
    """Yield the rows by table of each key, keys of the keyring first.

    None stands for rows that are not encrypted.
    """
    none = dict.fromkeys(rotation.PLACES, 0)
    # A dict keeps the order and drops repeated keys.
    for key in dict.fromkeys((*keyring.ids, *report.left)):
        yield key, report.left.get(key, none)


def _show_left(keyring: Keyring, report: rotation.Report) -> None:
    rows = [
        (_named(keyring, key), *counts.values())
        for key, counts in _left(keyring, report)
    ]
    places = tuple(rotation.PLACES)
    table(("key", *places), rows, right=places)


def _named(keyring: Keyring, key: str | None) -> str:
    if key is None or key in keyring.ids:
        return key or "(not encrypted)"
    return f"{key} (not in the keyring)"
