"""redrive reencrypt."""

import click

from redrive.cli.common import (
    database,
    database_option,
    emit,
    json_option,
    progress,
    settings_for,
    table,
)
from redrive.database import reencrypt as rotation
from redrive.dead_letters import redrive as dead_letters
from redrive.encryption import KEYS_FILE, configured
from redrive.errors import SettingsError


@click.command()
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="PER_SECOND",
    help="At most this many rows.",
)
@click.option(
    "--why",
    metavar="TEXT",
    default="rotation",
    show_default=True,
    help="Why; the audit log keeps it.",
)
@click.option("--actor", metavar="NAME", help="Who. [env: REDRIVE_ACTOR]")
@click.option("--dry-run", is_flag=True, help="Only count.")
@database_option
@json_option
def reencrypt(
    rate: float | None,
    why: str,
    actor: str | None,
    dry_run: bool,
    database_url: str | None,
    as_json: bool,
) -> None:
    """Encrypt what is stored with the first key of the keyring: what other keys did, and what is in
    clear.

    Safe while workers run, and to stop and start again. Says how many rows each key still has: one
    that has none can be taken out of the keyring.
    """
    keyring = configured()
    if keyring is None:
        msg = f"{KEYS_FILE} is not set; it must be a file with lines of `id base64-of-32-bytes`"
        raise SettingsError(msg)
    settings = settings_for(database_url, actor=actor)
    with database(settings) as conn:
        report = rotation.Report(left=rotation.count(conn))
        if not dry_run:
            stale = sum(
                sum(rows.values()) for key, rows in report.left.items() if key != keyring.ids[0]
            )
            with (
                database(settings) as holder,
                holder.transaction(),
                progress("encrypted", stale) as advance,
            ):
                dead_letters.hold_lock(holder, "reencrypt")
                report = rotation.reencrypt(conn, keyring, rate=rate, progress=advance)
            dead_letters.record(
                conn, settings.who(), "reencrypt", why, report.rewritten, {"key": keyring.ids[0]}
            )
    left = {
        key: report.left.get(key, dict.fromkeys(rotation.PLACES, 0))
        for key in (*keyring.ids, *report.left)
    }
    if as_json:
        emit(
            {
                "key": keyring.ids[0],
                "rewritten": report.rewritten,
                "skipped": report.skipped,
                "unreadable": report.unreadable,
                "left": [{"key": key, **rows} for key, rows in left.items()],
            }
        )
        return
    names = {None: "(in clear)"} | {key: key for key in keyring.ids}
    table(
        ("key", *rotation.PLACES),
        ((names.get(key, f"{key} (not at hand)"), *rows.values()) for key, rows in left.items()),
        right=tuple(rotation.PLACES),
    )
    if dry_run:
        click.echo("nothing was changed")
        return
    skipped = f", {report.skipped} busy: run it again for them" if report.skipped else ""
    unreadable = f", {report.unreadable} cannot be read" if report.unreadable else ""
    click.echo(f"{report.rewritten} encrypted with key {keyring.ids[0]}{skipped}{unreadable}")
