"""The commands of `redrive dlq` that speak of groups."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from redrive.cli.common import (
    Duration,
    acting_options,
    database,
    database_option,
    emit,
    json_option,
    printable,
    require_why,
    settings_for,
    table,
)
from redrive.dead_letters import groups

CONTROL_BUT_NEWLINE = dict.fromkeys((*range(10), *range(11, 32), *range(127, 160)), "�")


@click.command("groups")
@click.option("--kind", multiple=True, metavar="KIND", help="Kind of job.")
@click.option("--category", multiple=True, metavar="CATEGORY", help="Category: transient, bug, ...")
@click.option(
    "--new-since",
    metavar="VERSION",
    help="First seen after this image version first failed anything.",
)
@click.option("--closed", is_flag=True, help="Also groups with no open dead letter left.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most this many.")
@database_option
@json_option
def list_groups(database_url: str | None, as_json: bool, **options: Any) -> None:
    """Dead letters by cause, the largest first: what to fix."""
    with database(settings_for(database_url)) as conn:
        found = groups.find(conn, **options)
    if as_json:
        for group in found:
            emit(group)
        return
    columns = ("open", "total", "kind", "category", "error_class", "message", "last_seen", "group")
    rows = (
        [
            *(group[c] for c in columns[:-1]),
            group["group"] + (" (muted)" if group["muted_until"] else ""),
        ]
        for group in found
    )
    table(columns, rows, right=("open", "total"), empty="no open dead letters")


@click.command()
@click.argument("group")
@database_option
def report(group: str, database_url: str | None) -> int:
    """Write an incident report of one group, in Markdown, with payloads redacted."""
    with database(settings_for(database_url)) as conn:
        text = groups.report(conn, group)
    if text is None:
        return missing(group)
    click.echo(text.translate(CONTROL_BUT_NEWLINE), nl=False)
    return 0


@click.command()
@click.argument("group")
@click.option("--for", "length", type=Duration(), default="1d", show_default=True, help="How long.")
@click.option("--off", is_flag=True, help="Take it back.")
@acting_options
@database_option
def mute(  # options
    group: str,
    length: float,
    off: bool,
    why: str | None,
    actor: str | None,
    database_url: str | None,
) -> int:
    """Leave a group out of redrives for a while: its cause is known and not mended yet."""
    reason = require_why(why)
    settings = settings_for(database_url, actor=actor)
    until = None if off else datetime.now(UTC) + timedelta(seconds=length)
    with database(settings) as conn:
        found = groups.show(conn, group)
        if found is None or not groups.mute(
            conn, found["group"], until, actor=settings.who(), why=reason
        ):
            return missing(group)
    click.echo(
        f"{group} is no longer muted"
        if until is None
        else f"{group} is muted until {printable(until)}"
    )
    return 0


def missing(group: str) -> int:
    """Say that there is no such group. Returns the exit code."""
    click.echo(
        f"redrive: there is no group {printable(group)}, or more than one begins so", err=True
    )
    return 2


def print_group(found: dict[str, Any]) -> None:
    """One group for people."""
    click.echo(
        f"{click.style('group ' + found['group'], bold=True)}  {found['kind']}  {found['category']}"
    )
    click.echo(f"{printable(found['error_class'])}: {printable(found['message'])}")
    seen = f"first seen {printable(found['first_seen'])}, last {printable(found['last_seen'])}"
    click.echo(f"{found['open']} open of {found['total']} ever; {seen}")
    for version, at in sorted(found["versions"].items(), key=lambda item: item[1]):
        click.echo(f"  version {printable(version)} since {at}")
    if found["muted_until"]:
        who = f"{printable(found['muted_by'])}: {printable(found['muted_why'])}"
        click.echo(f"muted until {printable(found['muted_until'])} by {who}")
    click.echo(f"a sample: redrive dlq show {found['sample']}")
    click.echo(f"all:      redrive dlq ls --group {found['group']}")
