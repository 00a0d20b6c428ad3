"""redrive demo."""

import contextlib
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click

from redrive.cli.support.connection import database
from redrive.cli.support.options import settings_options
from redrive.cli.support.output import table
from redrive.database.rows import Connection
from redrive.errors import SettingsError
from redrive.extras.demo import shop
from redrive.settings import Settings

TURN_SECONDS = 90.0
NO_DEMO = (
    "no demo runs here; start one with redrive demo, and source the file that it names"
)


@click.group(invoke_without_command=True)
@click.option("--once", is_flag=True, help="Play the whole story unattended, then end.")
@click.pass_context
def demo(ctx: click.Context, once: bool) -> None:
    """Run a shop with an incident: see it break, fix it, redrive.

    \b
    redrive demo

    The demo runs on this machine, with its own Postgres, mail server and worker. It
    needs no settings and leaves nothing behind.
    """
    if ctx.invoked_subcommand is None:
        ctx.exit(_run(once=once))


def _run(*, once: bool) -> int:
    from redrive.extras.demo.home import open_home  # noqa: PLC0415 # it brings the embedded Postgres

    with open_home(None) as home:
        was_stopped = _play(home, once=once)

    with contextlib.suppress(OSError):  # the terminal may be gone
        click.echo("\nThe demo has ended; nothing is left of it.")

    return 1 if once and was_stopped else 0


def _play(home: Path, *, once: bool) -> bool:
    """Tell the story; return True if it was stopped."""
    from redrive.extras.demo import story  # noqa: PLC0415 # it brings the embedded Postgres
    from redrive.extras.demo.stage import Stage, Stopped  # noqa: PLC0415 # as above

    stage = Stage(home)
    stage.listen_for_the_end()

    try:
        story.begin(stage, console=not once)
        if once:
            story.play(stage)
        else:
            story.tell(stage)
            story.stay(stage)
    except Stopped:
        return True
    finally:
        stage.stop()

    return False


@demo.command()
@click.argument("what", type=click.Choice(["decimal-commas"]))
@settings_options()
def fix(what: str, settings: Settings) -> None:  # noqa: ARG001 # there is one bug
    """Deploy release 1.1 of the shop's jobs, which fixes a bug of 1.0.

    \b
    redrive demo fix decimal-commas
    """
    _turn(settings, "release", "1.1")
    click.echo(
        "release 1.1 is deployed: the worker finished what it had and was replaced"
    )

    with _demo_database(settings) as conn:
        _until(lambda: shop.has_healed(conn, "1.1"))

    click.echo("what died before it is tried by itself: redrive campaign ls")


@demo.command()
@click.argument("state", type=click.Choice(["up", "down"]))
@settings_options()
def mail(state: str, settings: Settings) -> None:
    """Start or stop the mail server.

    \b
    redrive demo mail up
    """
    _turn(settings, "mail", state)
    click.echo(f"the mail server is {state}")


@demo.command()
@settings_options()
def ledger(settings: Settings) -> None:
    """Compare the ledger with the bank's books, and count the mails.

    \b
    redrive demo ledger
    """
    with _demo_database(settings) as conn:
        _require(conn, "mail")
        rows = [
            (
                account.currency,
                f"{account.booked} of {account.expected}",
                f"{account.amount:,}",
                f"{account.expected_amount:,}",
                "yes" if account.agrees else "no",
            )
            for account in shop.accounts(conn)
        ]

    counts = ("payments booked", "in the ledger", "says the bank")
    table(("currency", *counts, "agree"), rows, right=counts)

    home = os.environ.get("REDRIVE_DEMO_HOME")
    if home:
        mails = list(Path(home, "mail").glob("*.eml"))
        click.echo(f"{len(mails)} receipts are with the mail server")


def _turn(settings: Settings, name: str, wanted: str) -> None:
    """Set a switch of the demo and wait until it has taken effect."""
    with _demo_database(settings) as conn:
        _require(conn, name)
        shop.turn(conn, name, wanted)

        in_effect = (wanted, wanted)
        _until(lambda: shop.switch(conn, name) == in_effect)


def _until(is_done: Callable[[], bool]) -> None:
    """Wait until the demo has done something."""
    give_up_at = time.monotonic() + TURN_SECONDS
    while not is_done():
        if time.monotonic() > give_up_at:
            msg = "the demo does not answer; check that it still runs"
            raise SettingsError(msg)
        time.sleep(0.05)


def _demo_database(settings: Settings) -> AbstractContextManager[Connection]:
    if settings.database_url is None and settings.database_url_file is None:
        raise SettingsError(NO_DEMO)
    return database(settings)


def _require(conn: Any, name: str) -> None:
    if shop.switch(conn, name) is None:
        raise SettingsError(NO_DEMO)
