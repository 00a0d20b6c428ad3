"""Story of the demo: an incident, and the commands that mend it.

The commands contain ids from the database, so each command works as printed.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from redrive.errors import RedriveError
from redrive.extras.demo import shop
from redrive.extras.demo.stage import TICK, Stage
from redrive.jobs import failing

BEFORE_OUTAGE = 175
"""Number of the order file's lines that arrive while the mail server is up."""

ORDERS_PER_SECOND, ORDERS_AT_ONCE = 100, 5
DRAIN_SECONDS = 120.0
WIDTH = "100"
FIXED = "release 1.1 reads decimal commas"
ALL_IS_WELL = (
    "All is well: every payment is booked once, every receipt is mailed or dismissed,"
    " and no dead letter is open."
)

_OUTAGE = ("redrive dlq groups --failing", "redrive breaker ls")
"""Commands that show the outage of the mail server."""

ABORTED = 4
"""Exit code of a command whose campaign aborted."""
Say = Callable[[str], None]
"""Function that prints a text with the time since the demo began."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """Chapter of the story: a task and its commands.

    `drains`: wait afterwards until no job is left. `aborts`: the last command must end
    with exit code 4.
    """

    title: str
    commands: list[str]
    drains: bool = False
    aborts: bool = False

    def code(self, command: str) -> int:
        """Return the exit code that a command must have."""
        aborts = self.aborts and command == self.commands[-1]
        return ABORTED if aborts else 0


# ---------------------------------------------------------------------- the incident


def begin(stage: Stage, *, console: bool) -> None:
    """Start the stage and place the orders, until the incident's dead letters exist.

    With `console` the stage can be viewed in a browser.
    """
    click.echo(
        "A shop books payments and mails receipts. Its Postgres, mail server and worker"
        f" run on this machine.\nTheir files are in {stage.home}.\n"
    )
    say = _clock()
    _bring_up(stage, say, console=console)
    _arrive(stage, say)


def _bring_up(stage: Stage, say: Say, *, console: bool) -> None:
    with _busy("starting Postgres"):
        stage.start_postgres()

    say("Postgres 18 serves, with the tables of Redrive")
    if console:
        stage.start_console()

    with _busy("starting the worker"):
        stage.start()

    say(f"mail server and worker are up; {_metrics(stage)}")
    if stage.console:
        say(f"look at it in a browser: {stage.console}")


def _arrive(stage: Stage, say: Say) -> None:
    """Place the orders: first with the mail server up, then with it down."""
    lines = shop.orders()
    early = lines[:BEFORE_OUTAGE]
    late = lines[BEFORE_OUTAGE:]

    created = _arrive_early(stage, say, early)
    created += _arrive_late(stage, say, late)

    again = f"{len(lines) - created} order came twice, and its key made it one job"
    say(f"{len(late)} more orders came; {again}")
    for cause in failing.find(stage.conn, kind=["receipt.deliver"]):
        say(cause["text"])

    waiting = f"{shop.waiting(stage.conn)} receipts wait"
    say(f"{waiting}: the breaker of the mail server opened before any receipt died")


def _arrive_early(stage: Stage, say: Say, lines: list[dict[str, str]]) -> int:
    """Place orders and wait for their jobs. Return how many are new."""
    with _busy(f"{len(lines)} orders arrive"):
        created = _place(stage, lines)
        stage.wait(
            "the first jobs end", lambda: not shop.is_busy(stage.conn), DRAIN_SECONDS
        )

    came = f"{len(lines)} orders came in a CSV file and became jobs"
    say(f"{came}; release 1.0 of the handlers has run them")

    return created


def _arrive_late(stage: Stage, say: Say, lines: list[dict[str, str]]) -> int:
    """Stop the mail server and place orders. Return how many are new."""
    stage.turn("mail", "down")
    say("the mail server went down")

    with _busy("more orders arrive; their receipts cannot be sent"):
        created = _place(stage, lines)
        stage.wait(
            "the breaker opens", lambda: shop.is_held_up(stage.conn), DRAIN_SECONDS
        )

    return created


def _place(stage: Stage, lines: list[dict[str, str]]) -> int:
    created = 0
    for start in range(0, len(lines), ORDERS_AT_ONCE):
        for line in lines[start : start + ORDERS_AT_ONCE]:
            created += shop.place(stage.conn, line).created
        stage.pause(ORDERS_AT_ONCE / ORDERS_PER_SECOND)

    return created


def chapters(stage: Stage) -> list[Chapter]:
    """Return the chapters with the ids of the incident's dead letters."""
    job, group, amount = shop.dead(stage.conn, "payment.book", "IndexError")[0]
    hopeless = [
        _dismiss(stage, "receipt.deliver", "ValidationError", why="sent by post"),
        _dismiss(stage, "payment.book", "GiveUp", why="withdrawn by the shop"),
    ]

    return [
        Chapter(
            "The mail server is down: its receipts fail and are retried, and none has"
            " died; when it is back, they are sent",
            [*_OUTAGE, "redrive demo mail up"],
        ),
        _see(job, group),
        _edit(job, str(amount)),
        _redrive_too_early(group),
        _deploy(),
        _free_from_quarantine(group),
        Chapter(
            "The rest cannot be repaired: no mail address, and a payment in gold",
            hopeless,
            drains=True,
        ),
        Chapter(
            "Check: the ledger agrees with the bank; the audit log has every change",
            ["redrive breaker ls", "redrive demo ledger", "redrive audit ls"],
        ),
    ]


def _see(job: int, group: str) -> Chapter:
    title = "See what died, why, and what the dead letters have in common"
    commands = [
        "redrive dlq groups",
        f"redrive dlq show {job}",
        f"redrive dlq explain {group}",
    ]
    return Chapter(title, commands)


def _edit(job: int, amount: str) -> Chapter:
    title = "One customer cannot wait: correct that payment, and redrive it"
    right = amount.replace(",", ".")
    patch = f'[{{"op": "replace", "path": "/amount", "value": "{right}"}}]'
    why = "--why 'the customer called'"
    commands = [
        f"redrive dlq edit {job} --patch '{patch}' {why} --yes",
        f"redrive dlq redrive {job} --why 'corrected' --yes",
    ]

    return Chapter(title, commands)


def _redrive_too_early(group: str) -> Chapter:
    title = "Redrive before the fix: three canaries die again, and the others stay"
    # The redrive of the edited job is campaign 1.
    commands = [
        f"redrive campaign plan --group {group}",
        "redrive campaign start 2 --why 'perhaps it has passed' --yes",
        "redrive campaign watch 2",
    ]
    return Chapter(title, commands, aborts=True)


def _deploy() -> Chapter:
    title = "Release 1.1 can read 1249,50, and redrives the payments that died of it"
    commands = ["redrive demo fix decimal-commas", "redrive campaign watch 3"]
    return Chapter(title, commands)


def _free_from_quarantine(group: str) -> Chapter:
    title = "Jobs that died twice stay in quarantine until somebody redrives them"
    options = f"--group {group} --include-quarantined --why '{FIXED}' --yes"
    return Chapter(title, [f"redrive dlq redrive {options}"])


def _dismiss(stage: Stage, kind: str, error_class: str, why: str) -> str:
    """Return the command that dismisses hopeless dead letters."""
    found = shop.dead(stage.conn, kind, error_class)
    jobs = " ".join(str(dead.job) for dead in found)
    return f"redrive dlq dismiss {jobs} --why '{why}'"


# ---------------------------------------------------------------- typed by the user


def tell(stage: Stage) -> None:
    """Print the commands to type."""
    click.secho(f"\n{_what_died(stage)} In another terminal:\n", bold=True)
    _show(f"source {shlex.quote(str(stage.env_file))}")

    for chapter in chapters(stage):
        click.secho(f"\n  # {chapter.title}", dim=True)
        for command in chapter.commands:
            _show(command)

    click.echo(
        "\nWithout --yes a redrive shows what it would do, and asks."
        " Every command has --help, most have --json."
    )
    click.echo(f"Metrics are on {_metrics(stage)}, mails in {stage.mailbox}.")
    click.echo("Ctrl-C ends the demo.\n")


def stay(stage: Stage) -> None:
    """Keep the stage up until the end, and report when all is well."""
    was_well = False
    with _busy("") as show:
        while True:
            status = shop.status(stage.conn)
            show(_progress(stage, status))
            if status.is_well and not was_well:
                click.secho(ALL_IS_WELL, fg="green")

            was_well = status.is_well
            stage.pause(1.0)


def _progress(stage: Stage, status: shop.Status) -> str:
    booked = sum(account.booked for account in status.accounts)
    expected = sum(account.expected for account in status.accounts)
    return (
        f"{booked} of {expected} payments booked, {mailed(stage)} receipts mailed,"
        f" {status.waiting} waiting, {status.dead} dead letters open"
    )


def _what_died(stage: Stage) -> str:
    status = shop.status(stage.conn)
    return f"{status.dead} jobs are dead letters now, for {status.causes} causes."


def mailed(stage: Stage) -> int:
    """Return the number of receipts that the mail server has accepted."""
    return len(list(stage.mailbox.glob("*.eml")))


# ---------------------------------------------------------------- played by the demo


def play(stage: Stage) -> None:
    """Run all commands.

    Raises:
        RedriveError: a command fails, or not everything is right in the end.
    """
    click.secho(f"\n{_what_died(stage)}", bold=True)
    for chapter in chapters(stage):
        _play(stage, chapter)

    _check(shop.status(stage.conn))
    click.secho(f"\n{ALL_IS_WELL}", fg="green")


def _check(status: shop.Status) -> None:
    if status.wrong or status.dead:
        wrong = ", ".join(status.wrong) or "none"
        result = f"{status.dead} dead letters are open, wrong accounts: {wrong}"
        msg = f"the demo did not end well: {result}"
        raise RedriveError(msg)


def _play(stage: Stage, chapter: Chapter) -> None:
    click.secho(f"\n# {chapter.title}", bold=True)
    for command in chapter.commands:
        click.secho(f"$ {command}", fg="cyan")
        _type(stage, command, chapter.code(command))

    if chapter.drains:
        stage.wait(
            "the redriven jobs end", lambda: not shop.is_busy(stage.conn), DRAIN_SECONDS
        )


def _type(stage: Stage, command: str, code: int) -> None:
    """Run a command like a shell, and tend the stage meanwhile."""
    sys.stdout.flush()
    home = {"REDRIVE_DEMO_HOME": str(stage.home)}
    process = subprocess.Popen(
        shlex.split(command),
        stdin=subprocess.DEVNULL,
        env={"COLUMNS": WIDTH} | stage.environment() | home,
        start_new_session=True,
    )

    try:
        while process.poll() is None:
            stage.pause(TICK)
    finally:
        # Also if `pause` has raised Stopped.
        process.kill()
        process.wait()

    if process.returncode != code:
        msg = f"exit code {process.returncode} from: {command}"
        raise RedriveError(msg)


# ---------------------------------------------------------------------- how it looks


def _clock() -> Say:
    """Start the clock of the demo."""
    began = time.monotonic()

    def say(text: str) -> None:
        seconds = time.monotonic() - began
        clock = click.style(f"{seconds:5.1f} s", dim=True)
        click.echo(f"{clock}  {text}")

    return say


def _metrics(stage: Stage) -> str:
    return f"http://127.0.0.1:{stage.metrics_port}/metrics"


def _show(command: str) -> None:
    click.secho(f"  {command}", fg="cyan")


@contextmanager
def _busy(text: str) -> Iterator[Callable[[str], None]]:
    """Show a moving symbol during a wait, if the output is a terminal."""
    if not sys.stdout.isatty():
        yield lambda _: None
        return

    from rich.console import Console  # noqa: PLC0415 # only for terminals

    with Console().status(text) as status:
        yield status.update
