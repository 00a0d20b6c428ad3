"""redrive gateway."""

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import psycopg

from redrive.cli.operations import worker
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.misplaced import refuse_before_subcommand
from redrive.cli.support.options import (
    database_option,
    json_option,
    port_option,
    settings_for,
    settings_options,
)
from redrive.cli.support.output import emit, table, wants_json
from redrive.database.connections.trouble import first_line
from redrive.dead_letters.imports.store import Preview
from redrive.errors import SettingsError
from redrive.rules.brief import counted
from redrive.rules.rows import Fields, Row

if TYPE_CHECKING:
    from redrive.database.connections.address import Address
    from redrive.extras.gateway.file import AnySource
    from redrive.settings import Settings

    Sources = Mapping[str, AnySource]

HANDLERS = "redrive.extras.gateway.handlers:handlers"
QUEUE = "gateway"
STOP_SECONDS = 10.0
"""How long the intake may take to commit and acknowledge its last batch."""

ENVIRONMENT = "*,PGPASSWORD,REDRIVE_DATABASE_URL"
"""Variables of the runners. The handlers of the gateway write to the database."""

sources_option = click.option(
    "--sources",
    "gateway",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="YAML file of the dead letter queues. [env: REDRIVE_GATEWAY]",
)


@click.group(invoke_without_command=True)
@database_option
@sources_option
@click.option(
    "--slots",
    type=click.INT,
    help="Messages that are sent back at once. [env: REDRIVE_SLOTS; default: 16]",
)
@port_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the first messages of each source as they would be taken in, and end.",
)
@click.pass_context
def gateway(
    context: click.Context,
    database_url: str | None,
    gateway: Path | None,
    dry_run: bool,
    **flags: object,
) -> int:
    """Take in dead letters of RabbitMQ or SQS, and send them back.

    \b
    redrive gateway --sources gateway.yaml --dry-run
    redrive gateway --sources gateway.yaml

    A message is acknowledged there only after its dead letter is committed here. Dead
    letters of the source NAME have the kind rabbitmq.NAME or sqs.NAME. A redrive sends
    the message to the queue where it died, and succeeds if it does not come back dead
    in time. The command runs until SIGTERM. With --dry-run, messages return to their
    queue, marked as redelivered.
    """
    if context.invoked_subcommand is not None:
        refuse_before_subcommand(context)
        return Exit.DONE  # not used: the subcommand sets the exit code

    settings = settings_for(
        database_url,
        gateway=gateway,
        handlers=HANDLERS,
        queues=QUEUE,
        runner_env=ENVIRONMENT,
        **flags,
    )

    sources = _sources(settings)
    if dry_run:
        return _preview(settings, sources)

    with TemporaryDirectory(prefix="redrive-gateway-") as tally:
        return _run(settings, sources, Path(tally))


@gateway.command()
@settings_options("gateway")
@sources_option
@json_option
def check(settings: "Settings") -> int:
    """Check the file, the login and each queue.

    \b
    redrive gateway check --sources gateway.yaml

    It counts the waiting messages, and reads none. Exit code 1: something is wrong.
    """
    rows = [_checked_login(settings)]
    rows += [_checked(kind, source) for kind, source in _sources(settings).items()]

    for row in rows:
        _say(row)

    if any(row["fault"] for row in rows):
        return Exit.FAILED

    return Exit.DONE


def _say(row: Fields) -> None:
    if wants_json():
        emit(row)
        return

    text = "ok"
    if row["fault"]:
        text = row["fault"]
    elif "waiting" in row:
        messages = counted(row["waiting"], "message")
        text = f"{messages} waiting"

    click.echo(f"{row['check']}: {text}")


def _checked_login(settings: "Settings") -> Row:
    """Return whether the login may import, and settle jobs."""
    fault = None
    with database(settings) as conn:
        for role in ("redrive_operator", "redrive_worker"):
            (has,) = conn.execute(
                "select pg_has_role(%s, 'usage')", (role,)
            ).fetchone() or (False,)
            if not has:
                fault = f"the login must be a member of {role}"

    return {"check": "database", "fault": fault}


def _checked(kind: str, source: "AnySource") -> Row:
    from redrive.extras.gateway.connect import connect  # noqa: PLC0415 # as above

    try:
        with closing(connect(source)) as connected:
            waiting = connected.waiting()
    except Exception as error:  # noqa: BLE001 # a client library may raise anything
        return {"check": kind, "fault": _fault(error), "waiting": None}

    return {"check": kind, "fault": None, "waiting": waiting}


def _fault(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def _sources(settings: "Settings") -> "Sources":
    from redrive.extras.gateway.file import load  # noqa: PLC0415 # no other command pays for it

    if settings.gateway is None:
        msg = "REDRIVE_GATEWAY is not set; name a file of sources by it or by --sources"
        raise SettingsError(msg)
    return load(settings.gateway)


def _preview(settings: "Settings", sources: "Sources") -> int:
    from redrive.extras.gateway.intake import preview  # noqa: PLC0415 # as above

    with database(settings) as conn:
        code = Exit.DONE
        for kind, source in sources.items():
            seen = Preview()
            try:
                too_large = preview(conn, kind, source, seen)
            except psycopg.Error:
                # It is the fault of our database, and not of the source.
                raise
            except Exception as error:  # noqa: BLE001 # a client library may raise anything
                code = Exit.FAILED
                click.echo(f"{kind}: {_fault(error)}")
            else:
                _show(kind, seen, too_large)

    click.echo("nothing was changed")
    return code


def _show(kind: str, seen: Preview, too_large: int) -> None:
    messages = counted(seen.matched, "message")
    known = f", {seen.known} taken in before" if seen.known else ""
    click.echo(f"{kind}: the first {messages}{known}")

    rows = [
        (count, group.error_class, seen.messages[group])
        for group, count in seen.groups.most_common()
    ]
    if rows:
        table(("count", "error_class", "message"), rows, right=("count",))

    if too_large:
        large = counted(too_large, "message")
        click.echo(f"{large} too large; the gateway leaves them")


def _run(settings: "Settings", sources: "Sources", directory: Path) -> int:
    """Run the intake of each source, and a worker that sends messages back."""
    from redrive.extras.gateway.figures import figures  # noqa: PLC0415 # as above
    from redrive.extras.gateway.intake import Intake  # noqa: PLC0415 # as above
    from redrive.extras.gateway.tally import Tally  # noqa: PLC0415 # as above

    address = settings.address()
    tally = Tally(directory)
    # The runners of the worker inherit the environment, so it is set first.
    _hand_over(settings, address, directory)
    start = _start(settings)

    stop = threading.Event()
    intakes = [
        Intake(
            kind=kind, source=source, database=address, actor=settings.who(), stop=stop
        )
        for kind, source in sources.items()
    ]

    def begin() -> None:
        for intake in intakes:
            intake.start()

    try:
        return worker.run(
            start,
            [lambda: figures(intakes, tally)],
            lambda: {
                intake.kind: ", ".join(map(": ".join, intake.state.faults.items()))
                or None
                for intake in intakes
            },
            begin,
        )
    finally:
        stop.set()
        for intake in intakes:
            if intake.is_alive():  # none is, if the worker could not start
                intake.join(STOP_SECONDS)


def _start(settings: "Settings") -> worker.Start:
    """Return the start-up values of the worker that sends messages back."""
    name = f"{socket.gethostname()}/{os.getpid()}"
    start = worker.start_of(settings, name, until_empty=False, reload=False)
    return replace(start, options=replace(start.options, targets=""))


def _hand_over(settings: "Settings", address: "Address", tally: Path) -> None:
    """Let the handlers find the file, the database and the counts."""
    os.environ["REDRIVE_GATEWAY"] = str(settings.gateway)
    os.environ["REDRIVE_GATEWAY_TALLY"] = str(tally)
    if address.file is None:
        os.environ["REDRIVE_DATABASE_URL"] = address.url
    else:
        os.environ.pop("REDRIVE_DATABASE_URL", None)
        os.environ["REDRIVE_DATABASE_URL_FILE"] = str(address.file)
