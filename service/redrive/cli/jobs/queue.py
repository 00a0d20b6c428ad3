"""redrive queue."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

import click

from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import NotFound
from redrive.cli.support.names import unknown
from redrive.cli.support.options import (
    Change,
    Duration,
    acting_options,
    cells_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import (
    counted,
    emit_each,
    listing,
    printable,
    table,
    wants_json,
)
from redrive.cli.support.unhandled import sentence
from redrive.database.rows import Connection, value
from redrive.database.rows import rows as rows_of
from redrive.live_jobs.surroundings.around import Surroundings
from redrive.live_jobs.surroundings.unhandled import Unhandled, unhandled
from redrive.rules.attempts.waiting import Around, why_queue
from redrive.rules.payloads.limits import check_name
from redrive.rules.rows import Fields, Row

if TYPE_CHECKING:
    from redrive.settings import Settings

Limit = tuple[str, int]
"""Name of a limit, and its value."""

NAMES = {
    "queues": "once each",
    "kinds": "once for each queue and each priority",
}
FAIR_LANES = 16
"""Number of lanes that tenants share; the lanes take turns.

Two tenants in the same lane are served in order.
"""
MOST_NAMES = 1_000_000
_DEPTHS: LiteralString = """
    select queue, ready, scheduled, retrying, running, dead, paused, oldest_ready_seconds,
           redrive.owner_of_v1(queue, null) as owner
    from redrive.depths_v1()"""
_FAIR: LiteralString = "select queue from redrive.queues where lanes > 1"
_LIMITED: LiteralString = "select queue, waiting from redrive.limited_v1()"
_PAUSED: LiteralString = "select redrive.pause_v1(%s, %s, %s)"
_RESUMED: LiteralString = "select redrive.resume_v1(%s, %s, %s)"
_LANES_SET: LiteralString = "select redrive.set_lanes_v1(%s, %s, %s, %s)"
_HISTORY_SET: LiteralString = "select redrive.set_history_v1(%s, %s, %s, %s)"
DAY = 86_400.0
MOST_DAYS = 400
STATES = ("ready", "scheduled", "retrying", "running", "dead")


class _Days(Duration):
    """Number of days, or `off` for 0."""

    name = "days"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if value == "off":
            return 0

        days = super().convert(value, param, ctx) / DAY
        if not days.is_integer() or not 1 <= days <= MOST_DAYS:
            self.fail(
                f"{value!r} must be 1d to {MOST_DAYS}d in whole days, or off",
                param,
                ctx,
            )

        return int(days)


@click.group()
def queue() -> None:
    """Queues: what they hold, pause, resume, set, limit."""


@queue.command("ls")
@cells_options()
@json_option
def list_queues(cells: "Sequence[Settings]") -> int:
    """List the queues, their jobs by state, and kinds without a worker.

    \b
    redrive queue ls
    """
    answers, code = ask_each(cells, _read)
    rows = [cell | row for cell, seen in answers for row in seen.queues]
    if wants_json():
        emit_each(rows)
        return code

    _show_queues(rows)
    for cell, seen in answers:
        for found in seen.unhandled:
            click.echo(_named(cell) + sentence(found))

    return code


class _Seen(NamedTuple):
    """Queues of a cell, and the kinds without a worker."""

    queues: list[Row]
    unhandled: list[Unhandled]


def _read(settings: "Settings") -> _Seen:
    with database(settings) as conn:
        rows = rows_of(conn, _DEPTHS)
        fair = {row["queue"] for row in rows_of(conn, _FAIR)}
        limited = {row["queue"]: row["waiting"] for row in rows_of(conn, _LIMITED)}
        waiting = unhandled(conn)
        around = Surroundings(conn).around

    for row in rows:
        queue = row["queue"]
        row["limited"] = limited.get(queue, 0)
        row["why"] = _why(queue, around)
        row["fair_by"] = "tenant" if queue in fair else None
        row["unhandled"] = _by_kind(waiting, queue)

    return _Seen(rows, waiting)


def _by_kind(waiting: Sequence[Unhandled], queue: str) -> dict[str, int]:
    """Return how many jobs of each kind wait for a worker in a queue."""
    return {one.kind: one.jobs for one in waiting if one.queue == queue}


def _why(queue: str, around: Around) -> dict[str, str] | None:
    """Return why no job of a queue runs, for JSON; None if nothing prevents it."""
    answer = why_queue(queue, around)
    return answer and {"code": str(answer.code), "text": answer.text}


def _named(of_cell: Fields) -> str:
    """Return the prefix of a line about one of several cells."""
    return f"{of_cell['cell']}: " if "cell" in of_cell else ""


def _cells(row: Row, counts: Sequence[str]) -> list[Any]:
    return [*(row[name] for name in counts), *_described(row)]


def _show_queues(rows: Sequence[Row]) -> None:
    """Print the table for people, and why due jobs do not run."""
    first = ["queue"]
    if any("cell" in row for row in rows):
        first.insert(0, "cell")

    counts = (*first, *STATES)
    table(
        (*counts, "paused", "fair by", "oldest ready"),
        [_cells(row, counts) for row in rows],
        right=(*STATES, "oldest ready"),
        empty="no queue has held a job yet",
    )

    for row in rows:
        name = _named(row) + row["queue"]
        for reason in _reasons(row):
            click.echo(f"{name}: {reason}")


def _reasons(row: Row) -> Iterator[str]:
    """Yield why due jobs of a queue do not run."""
    if row["why"] and row["ready"]:
        yield printable(row["why"]["text"])
    if row["limited"]:
        yield f"due jobs that wait for limits: {row['limited']} (redrive limit ls)"


def _described(row: Row) -> tuple[str, str, str]:
    """Return, for people: paused or fair, and the age of its oldest ready job."""
    waited = row["oldest_ready_seconds"]
    paused = "yes" if row["paused"] else ""
    age = f"{waited:.0f} s" if waited else ""

    return paused, row["fair_by"] or "", age


_create_option = click.option(
    "--create", is_flag=True, help="Allow a queue that no job has been in yet."
)


@queue.command()
@click.argument("name")
@_create_option
@acting_options
def pause(name: str, create: bool, change: Change) -> None:
    """Stop claiming from a queue; running jobs continue.

    \b
    redrive queue pause mail --why 'the provider is down'
    """
    if not create:
        _require_known(name, change.settings)

    change.agree(f"Pause the queue {name}")
    _act(_PAUSED, name, change)
    click.echo(f"{name} is paused; workers stop claiming from it within a second")


@queue.command()
@click.argument("name")
@acting_options
def resume(name: str, change: Change) -> None:
    """Claim from a paused queue again.

    \b
    redrive queue resume mail --why 'the provider is back'
    """
    change.agree(f"Resume the queue {printable(name)}")
    if not _act(_RESUMED, name, change):
        raise NotFound(f"{name} was not paused")
    click.echo(f"{name} is resumed")


@queue.command("set")
@click.argument("name")
@click.option(
    "--fair-by",
    type=click.Choice(["tenant", "none"]),
    help="Who takes turns, for jobs enqueued from now on.",
)
@click.option(
    "--paused/--no-paused", default=None, help="Whether workers stop claiming from it."
)
@click.option(
    "--history",
    type=_Days(),
    metavar="DAYS|off",
    help="How long to keep jobs that end from now on: 7d.",
)
@_create_option
@acting_options
def set_options(  # settings that may be set alone or together
    name: str,
    fair_by: str | None,
    paused: bool | None,
    history: int | None,
    create: bool,
    change: Change,
) -> None:
    """Set how a queue is served.

    \b
    redrive queue set mail --fair-by tenant --why 'one customer imports a million addresses'
    redrive queue set mail --paused --why 'the provider is down'
    redrive queue set mail --history 7d --why 'support asks how a mail ended'
    """
    wanted = tuple(_wanted(fair_by, paused, history))
    if not wanted:
        msg = "give --fair-by, --paused, --no-paused or --history"
        raise click.UsageError(msg)

    if create:
        check_name("queue", name)
    else:
        _require_known(name, change.settings)

    texts = "; ".join(setting.text for setting in wanted)
    change.agree(f"Set the queue {name}: {texts}")

    actor = change.settings.who()
    with database(change.settings) as conn, conn.transaction():
        for setting in wanted:
            conn.execute(setting.statement, (name, *setting.values, actor, change.why))

    for setting in wanted:
        click.echo(f"{name} is set: {setting.text}")


class _Setting(NamedTuple):
    """Setting of a queue to change, and its description."""

    statement: LiteralString
    text: str
    values: tuple[object, ...] = ()


def _wanted(
    fair_by: str | None, paused: bool | None, history: int | None
) -> Iterator[_Setting]:
    """Yield each setting to change."""
    if fair_by == "tenant":
        text = "tenants take turns, for jobs enqueued from now on"
        yield _Setting(_LANES_SET, text, (FAIR_LANES,))
    elif fair_by is not None:
        text = "jobs run in the order of their times, for jobs enqueued from now on"
        yield _Setting(_LANES_SET, text, (1,))

    if paused:
        yield _Setting(_PAUSED, "paused")
    elif paused is not None:
        yield _Setting(_RESUMED, "not paused")

    if history:
        days = counted(history, "day")
        text = f"jobs that end from now on are kept for {days}"
        yield _Setting(_HISTORY_SET, text, (history,))
    elif history is not None:
        text = "jobs that end from now on are no longer kept"
        yield _Setting(_HISTORY_SET, text, (None,))


_LIMIT_NAMES: LiteralString = "select redrive.limit_names_v1(%s, %s, %s, %s)"
_COUNT = click.IntRange(1, MOST_NAMES)


class _Limit(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    name = "what=number"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> Limit:
        what, _, number = value.partition("=")
        if what not in NAMES:
            known = " and ".join(NAMES)
            self.fail(f"{what!r} has no limit; {known} have", param, ctx)
        return what, int(_COUNT(number, param, ctx))


@queue.command("limits")
@conn_options
@json_option
def list_limits(conn: Connection) -> None:
    """List the numbers of queues and kinds in use, and their limits.

    \b
    redrive queue limits
    """
    found = rows_of(conn, "select what, used, at_most from redrive.names_used_v1()")

    listing(
        found,
        {
            "what": "what",
            "in use": "used",
            "at most": "at_most",
            "counted": "counted",
        },
        for_people=lambda row: row | {"counted": NAMES[row["what"]]},
        right=("in use", "at most"),
    )


@queue.command("limit")
@click.argument(
    "limits",
    metavar="WHAT=NUMBER...",
    nargs=-1,
    required=True,
    type=_Limit(),
)
@acting_options
def limit_names(limits: Sequence[Limit], change: Change) -> None:
    """Limit the numbers of queues and kinds that producers may use.

    \b
    redrive queue limit queues=5000 kinds=20000 --why 'a queue for each tenant'

    A name counts until nobody has used it for the time that `redrive retention` keeps names.
    """
    texts = ", ".join(f"{number} {what}" for what, number in limits)
    change.agree(f"Allow at most {texts}")
    actor = change.settings.who()

    with database(change.settings) as conn, conn.transaction():
        for limit in limits:
            conn.execute(_LIMIT_NAMES, (*limit, actor, change.why))

    for what, number in limits:
        click.echo(f"{what}: at most {number}")


def _require_known(name: str, settings: "Settings") -> None:
    """Raise NotFound if no job has ever been in a queue."""
    check_name("queue", name)
    with database(settings) as conn:
        warning = unknown(conn, "queue", name)

    if warning:
        raise NotFound(f"{warning} (--create allows it)")


def _act(statement: LiteralString, name: str, change: Change) -> Any:
    check_name("queue", name)
    actor = change.settings.who()

    with database(change.settings) as conn:
        return value(conn, statement, name, actor, change.why)
