"""redrive owner."""

from functools import partial

import click
import msgspec

from redrive.cli.support.connection import database
from redrive.cli.support.declared import set_differing
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import (
    Change,
    acting_options,
    conn_options,
    json_option,
)
from redrive.cli.support.output import listing
from redrive.database.rows import Connection
from redrive.dead_letters.grouping import owners
from redrive.dead_letters.grouping.owners import MAX_CONTACT, NAME, Owner, parse_pattern


class _Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """Owner of a pattern, as `apply` reads it."""

    owner: str
    contact: str | None = None


@click.group()
def owner() -> None:
    """Owners of queues and kinds, such as teams.

    A pattern is QUEUE, QUEUE/KIND, '*/KIND' or '*'. The most specific one decides.
    Alerts carry the owner as a label.
    """


@owner.command("ls")
@conn_options
@json_option
def list_owners(conn: Connection) -> None:
    """List the owners by pattern.

    \b
    redrive owner ls
    """
    found = owners.find(conn)
    rows = [{"pattern": str(row.pattern), **row._asdict()} for row in found]
    columns = ("pattern", "owner", "contact")
    listing(rows, columns, empty="no owners")


@owner.command("set")
@click.argument("pattern")
@click.argument("name", metavar="OWNER")
@click.option("--contact", metavar="TEXT", help="Contact of the owner: '#payments'.")
@acting_options
def set_owner(pattern: str, name: str, contact: str | None, change: Change) -> None:
    """Set the owner of a queue, a kind, or both.

    \b
    redrive owner set payments team-money --contact '#money' --why 'their service'
    redrive owner set '*/mail.send' team-mail --why 'they run the mail servers'
    """
    wanted = _owner(pattern, name, contact)
    chosen = wanted.pattern
    change.agree(f"Set the owner of {chosen} to {name}")

    with database(change.settings) as conn:
        _set(conn, wanted, change)

    click.echo(_belongs(wanted))


@owner.command("rm")
@click.argument("pattern")
@acting_options
def remove_owner(pattern: str, change: Change) -> None:
    """Remove the owner of a pattern.

    \b
    redrive owner rm payments --why 'the queue is gone'
    """
    chosen = parse_pattern(pattern)
    with database(change.settings) as conn:
        patterns = [row.pattern for row in owners.find(conn)]
        if chosen not in patterns:
            raise NotFound(f"{chosen} has no owner of its own; see redrive owner ls")

        change.agree(f"Remove the owner of {chosen}")
        _set(conn, Owner(*chosen, None), change)

    click.echo(f"{chosen} has no owner of its own")


@owner.command("apply")
@click.argument("wanted", metavar="JSON")
@acting_options
def apply_owners(wanted: str, change: Change) -> None:
    """Set the owners that differ; the others stay.

    \b
    redrive owner apply '{"payments": {"owner": "team-money"}}' --why 'as in values.yaml'

    Waits for the schema, as a worker does.
    """
    set_differing(
        change,
        _parse(wanted),
        read=owners.find,
        put=partial(_set, change=change),
        describe=_belongs,
        question="Set: {}",
    )


def _belongs(row: Owner) -> str:
    return f"{row.pattern} belongs to {row.owner}"


def _set(conn: Connection, wanted: Owner, change: Change) -> None:
    owners.set_owner(conn, wanted, **change.signed)


def _parse(text: str) -> list[Owner]:
    """Parse {pattern: {owner, contact}}, or raise a usage error."""
    try:
        by_pattern = msgspec.json.decode(text, type=dict[str, _Wanted])
    except msgspec.DecodeError as error:
        example = '{"payments": {"owner": "team-money", "contact": "#money"}}'
        raise click.UsageError(
            f"JSON must hold owners by pattern, as {example}: {error}"
        ) from None

    return [
        _owner(pattern, wanted.owner, wanted.contact)
        for pattern, wanted in by_pattern.items()
    ]


def _owner(pattern: str, name: str, contact: str | None) -> Owner:
    """Return an owner, or raise a usage error."""
    if not NAME.match(name):
        raise click.UsageError(
            f"OWNER is {name!r}; it must have 1 to 63 letters, digits, or any of _.@-"
        )

    contact = (contact or "").strip() or None
    if contact and (len(contact) > MAX_CONTACT or not contact.isprintable()):
        raise click.UsageError(
            f"the contact of {pattern} must be one line of at most {MAX_CONTACT} characters"
        )

    return Owner(*parse_pattern(pattern), name, contact)
