"""redrive dlq report: of one group for an incident, of everything for a review."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from redrive.cli.dead_letters.deliver import post, webhook
from redrive.cli.dead_letters.groups import the_group
from redrive.cli.support.completion import Known
from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.options import (
    Instant,
    database_option,
    json_option,
    settings_for,
    settings_of_cells,
)
from redrive.cli.support.output import listing, shown_cell, wants_json
from redrive.dead_letters.groups.store import missing
from redrive.dead_letters.report import incident
from redrive.dead_letters.report import review as rules
from redrive.dead_letters.report.weekly import review
from redrive.jobs import failing
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings


@click.command()
@click.argument("group", required=False, type=Known("group"))
@click.option(
    "--since",
    type=Instant(),
    metavar="TIME",
    help="Report on everything since this time: 7d, or an instant.",
)
@click.option(
    "--post",
    "is_posted",
    is_flag=True,
    help="Post the report to the Slack-compatible webhook in"
    " REDRIVE_REPORT_WEBHOOK_URL, or in the file ..._URL_FILE.",
)
@database_option
@json_option
def report(  # its options
    group: str | None, since: datetime | None, is_posted: bool, database_url: str | None
) -> int:
    """Report on one group, or on everything since a time, in Markdown.

    \b
    redrive dlq report 3f9a > incident.md
    redrive dlq report --since 7d > review.md

    The report of a group is an incident report, with redacted payloads.
    With --since, the report is for a review: what is open, new, old and growing, who
    owns it, and how redrives went. It has no payloads and no messages of failures. A
    CronJob can --post it.
    """
    if group is not None and since is None:
        if wants_json() or is_posted:
            raise click.UsageError("these options need --since, and no group")

        return _incident(group, settings_for(database_url))

    if group is not None or since is None:
        raise click.UsageError("give a group or --since, for example --since 7d")

    cells = settings_of_cells(database_url)
    # A missing URL is an error before the databases are read.
    hook = webhook(cells[0]) if is_posted else None
    answers, code = ask_each(cells, partial(_read, since=since))

    found = [cell | answer for cell, answer in answers]
    if wants_json():
        listing(found, ())
    elif found:
        reviews = _reviews(found, cells)
        if hook is None:
            click.echo("\n".join(map(rules.markdown, reviews)), nl=False)
        else:
            post(hook, rules.slack(reviews))
            click.echo("posted")

    return code


def _incident(group: str, settings: "Settings") -> int:
    with database(settings) as conn:
        found = incident.report(conn, the_group(conn, group)["group"])

    if found is None:
        raise NotFound(missing(group))

    click.echo(found, nl=False)
    return Exit.DONE


def _read(settings: "Settings", since: datetime) -> Row:
    with database(settings) as conn:
        return review(conn, since, failing.find(conn, messages=False))


def _reviews(found: Sequence[Row], cells: Sequence["Settings"]) -> list[rules.Review]:
    """Return the review of each cell; one that did not answer is named."""
    reviews = [rules.shown(each, each.get("cell") or shown_cell()) for each in found]
    if len(cells) > 1:
        reviews.extend(_silent(cells, {each.get("cell") for each in found}))

    return reviews


def _silent(
    cells: Sequence["Settings"], answered: Collection[str | None]
) -> Iterator[rules.Review]:
    for settings in cells:
        name = str(settings.cell)
        if name not in answered:
            yield rules.unanswered(name)
