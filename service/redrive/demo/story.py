"""What happens in a demo and what it says: an incident, and the commands that get everything back
to work.

The commands are made from what is in the database at that moment, so each of them works as it is
printed.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from redrive.database.migrate import latest
from redrive.demo import shop
from redrive.demo.monitoring import PACKAGES, find
from redrive.demo.pager import told
from redrive.demo.stage import TICK, Stage
from redrive.errors import RedriveError

BEFORE_OUTAGE = 175
"""Lines of the order file that arrive while the mail server is up."""

ORDERS_PER_SECOND = 100
DRAIN_SECONDS = 120.0
ALERT_SECONDS = 60.0
OBJECTIVE = 3
"""Dead letters of the payments in five minutes that page."""

WIDTH = "100"
ALL_IS_WELL = "All is well: every payment is booked once, every receipt mailed or accounted for, no dead letter open."


@dataclass(frozen=True, slots=True)
class Chapter:
    """What is to be done, and the commands that do it. `drains`: then wait until no job is left."""

    title: str
    commands: list[str]
    drains: bool = False


# ---------------------------------------------------------------------- the incident


def begin(stage: Stage, *, observe: bool = False) -> None:
    """Bring the stage up and let the orders of the file arrive, until what went wrong lies in the
    dead letters.

    With `observe` Prometheus and Alertmanager watch it, and a page comes; where they are missing it
    says so.
    """
    click.echo(
        "A shop books payments and mails receipts. Its Postgres, mail server and worker run on this machine,"
    )
    click.echo(f"with all they have in {stage.home}.\n")
    began = time.monotonic()
    with _busy("starting Postgres"):
        stage.start_postgres()
    _say(began, f"Postgres 18 serves, with schema version {latest()}")
    with _busy("starting the worker"):
        stage.start()
    _say(began, f"mail server and worker are up; http://127.0.0.1:{stage.metrics_port}/metrics")
    if observe:
        _observe(stage, began)
    if shop.is_placed(stage.conn):
        _say(began, "the orders of the demo that was kept here are in the database already")
        return
    _arrive(stage, began)


def _observe(stage: Stage, began: float) -> None:
    missing = [program for program in PACKAGES if not find(program)]
    if missing:
        packages = " ".join(PACKAGES[program] for program in missing)
        figures = f"http://127.0.0.1:{stage.metrics_port}/metrics"
        absent = f"{' and '.join(missing)} not found (Debian: apt-get install {packages})"
        _say(began, f"no alerts: {absent}; the figures are on {figures}")
        return
    stage.conn.execute(
        "select redrive.set_objective_v1('payments', 'dlq_added_5m', %s, 'redrive demo', 'each one is money')",
        (OBJECTIVE,),
    )
    with _busy("starting Prometheus and Alertmanager"):
        watch = stage.start_monitoring()
        stage.wait(
            "Prometheus knows the payments",
            lambda: watch.growth("payments") == [0.0],
            ALERT_SECONDS,
        )
    addresses = f"http://127.0.0.1:{watch.prometheus}, Alertmanager on http://127.0.0.1:{watch.alertmanager}"
    _say(began, f"Prometheus is on {addresses}")
    _say(
        began,
        f"they watch with the shipped rules and routes, {watch.faster} times faster: a minute takes a second",
    )


def _arrive(stage: Stage, began: float) -> None:
    lines = shop.orders()
    with _busy(f"{len(lines)} orders arrive"):
        created = _place(stage, lines[:BEFORE_OUTAGE])
        stage.wait("the first jobs end", lambda: not shop.is_busy(stage.conn), DRAIN_SECONDS)
    _say(
        began,
        f"{BEFORE_OUTAGE} orders came in a CSV file and became jobs; release 1.0 of the handlers has run them",
    )
    stage.turn("mail", "down")
    _say(began, "the mail server went down")
    with _busy("more orders arrive; their receipts have nowhere to go"):
        created += _place(stage, lines[BEFORE_OUTAGE:])
        stage.wait("the breaker opens", lambda: shop.is_held_up(stage.conn), DRAIN_SECONDS)
    again = len(lines) - created
    _say(
        began,
        f"{len(lines) - BEFORE_OUTAGE} more orders came; {again} of all came twice, and its key made it one job",
    )
    _say(
        began,
        f"{shop.waiting(stage.conn)} receipts wait: the breaker of the mail server opened before any gave up",
    )
    if watch := stage.monitoring:
        with _busy("the alert has yet to fire"):
            stage.wait("the page", lambda: watch.pager.sent("trigger", "payments"), ALERT_SECONDS)
        _show_pages(stage)


def _place(stage: Stage, lines: list[dict[str, str]]) -> int:
    created = 0
    for line in lines:
        created += shop.place(stage.conn, line).created
        stage.pause(1 / ORDERS_PER_SECOND)
    return created


def chapters(stage: Stage) -> list[Chapter]:
    """What to type, with the ids of this database in it."""
    crash = shop.dead(stage.conn, "payment.book", "AttributeError")
    refused = shop.dead(stage.conn, "payment.book", "GiveUp")
    nowhere = shop.dead(stage.conn, "receipt.deliver", "ValidationError")
    return [
        Chapter(
            "Look: what is in the queues, what died, and why",
            [
                "redrive queue ls",
                "redrive dlq groups",
                *(f"redrive dlq show {job}" for job in crash[:1]),
            ],
        ),
        Chapter(
            "Receipts wait for the mail server behind an open breaker, and lose no attempt; it comes back",
            ["redrive breaker ls", "redrive demo mail up"] if shop.waiting(stage.conn) else [],
            drains=True,
        ),
        Chapter(
            "One receipt tried, the breaker closed, and the others followed", ["redrive breaker ls"]
        ),
        Chapter(
            "Release 1.0 cannot read 1249,50; release 1.1 can",
            [
                "redrive demo fix decimal-commas",
                _redrive("payment.book", "bug", "release 1.1 reads decimal commas"),
            ]
            if crash
            else [],
            drains=True,
        ),
        Chapter(
            "Nothing can mend the rest: no mail address, and a payment in gold",
            [
                f"redrive dlq dismiss {_ids(jobs)} --why '{why}'"
                for jobs, why in ((nowhere, "sent by post"), (refused, "withdrawn by the shop"))
                if jobs
            ],
        ),
        Chapter(
            "Is everything right? No dead letter is open, and the ledger agrees with the bank",
            ["redrive queue ls", "redrive demo ledger"],
        ),
    ]


def _redrive(kind: str, category: str, why: str) -> str:
    return f"redrive dlq redrive --kind {kind} --category {category} --rate 20 --why '{why}' --yes"


def _ids(jobs: list[int]) -> str:
    return " ".join(map(str, jobs))


# ---------------------------------------------------------------------- typed by somebody


def tell(stage: Stage) -> None:
    """Say what to type."""
    click.secho(f"\n{_what_died(stage)} In another terminal:\n", bold=True)
    _show(f"source {shlex.quote(str(stage.env_file))}")
    for chapter in (chapter for chapter in chapters(stage) if chapter.commands):
        click.secho(f"\n  # {chapter.title}", dim=True)
        for command in chapter.commands:
            _show(command)
    click.echo(
        "\nWithout --yes a redrive shows what it would do, and asks. Every command has --help, most have --json."
    )
    click.echo(
        f"Metrics are on http://127.0.0.1:{stage.metrics_port}/metrics, mails in {stage.mailbox}."
    )
    click.echo("Ctrl-C ends the demo.\n")


def stay(stage: Stage) -> None:
    """Stay up until the end, and say so when all is well."""
    was_well = False
    with _busy("") as show:
        while True:
            accounts = list(shop.accounts(stage.conn))
            booked, expected = sum(a.booked for a in accounts), sum(a.expected for a in accounts)
            _, dead = shop.causes(stage.conn)
            show(
                f"{booked} of {expected} payments booked, {mailed(stage)} receipts mailed,"
                f" {shop.waiting(stage.conn)} waiting, {dead} dead letters open"
            )
            is_well = (
                dead == 0
                and all(account.agrees for account in accounts)
                and not shop.is_busy(stage.conn)
            )
            if is_well and not was_well:
                click.secho(ALL_IS_WELL, fg="green")
            was_well = is_well
            _show_pages(stage)
            stage.pause(1.0)


def _what_died(stage: Stage) -> str:
    causes, dead = shop.causes(stage.conn)
    return (
        f"{dead} jobs are dead letters now, for {causes} causes."
        if dead
        else "No dead letter is open."
    )


def mailed(stage: Stage) -> int:
    """Receipts that the mail server has taken."""
    return len(list(stage.mailbox.glob("*.eml")))


# ---------------------------------------------------------------------- played by itself


def play(stage: Stage) -> None:
    """Type it all ourselves. Raises RedriveError when not everything is right in the end."""
    click.secho(f"\n{_what_died(stage)}", bold=True)
    for chapter in (chapter for chapter in chapters(stage) if chapter.commands):
        click.secho(f"\n# {chapter.title}", bold=True)
        for command in chapter.commands:
            click.secho(f"$ {command}", fg="cyan")
            _type(stage, command)
        if chapter.drains:
            stage.wait("the redriven jobs end", lambda: not shop.is_busy(stage.conn), DRAIN_SECONDS)
        _show_pages(stage)
    wrong = [account.currency for account in shop.accounts(stage.conn) if not account.agrees]
    _, dead = shop.causes(stage.conn)
    if wrong or dead:
        msg = f"the demo did not end well: {dead} dead letters are open, wrong accounts: {', '.join(wrong) or 'none'}"
        raise RedriveError(msg)
    if watch := stage.monitoring:
        stage.wait("the page is resolved", lambda: not watch.pager.unresolved(), ALERT_SECONDS)
        _show_pages(stage)
    click.secho(f"\n{ALL_IS_WELL}", fg="green")


def _type(stage: Stage, command: str) -> None:
    """Run a command as a shell would, while the stage is tended: the command may wait for it."""
    sys.stdout.flush()
    environment = {"COLUMNS": WIDTH} | stage.environment() | {"REDRIVE_DEMO_HOME": str(stage.home)}
    process = subprocess.Popen(
        shlex.split(command), stdin=subprocess.DEVNULL, env=environment, start_new_session=True
    )
    try:
        while process.poll() is None:
            stage.pause(TICK)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        msg = f"exit code {process.returncode} from: {command}"
        raise RedriveError(msg)


# ---------------------------------------------------------------------- how it looks


def _show_pages(stage: Stage) -> None:
    """What PagerDuty was told since the last time."""
    for event in stage.monitoring.pager.news() if stage.monitoring else ():
        rings = event["event_action"] == "trigger"
        title, colour = ("PagerDuty rings", "red") if rings else ("PagerDuty: resolved", "green")
        click.secho(f"\n{title}", fg=colour, bold=True)
        for name, text in told(event):
            click.echo(f"  {click.style(f'{name:9}', dim=True)}  {text}")


def _say(began: float, text: str) -> None:
    click.echo(click.style(f"{time.monotonic() - began:5.1f} s", dim=True) + f"  {text}")


def _show(command: str) -> None:
    click.secho(f"  {command}", fg="cyan")


@contextmanager
def _busy(text: str) -> Iterator[Callable[[str], None]]:
    """Something that moves while we wait, where somebody watches."""
    if not sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 # only where people look

    with Console().status(text) as status:
        yield status.update
