"""redrive dlq report: of one group for an incident, of everything for a review."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import SplitResult

import click

from redrive.cli.dead_letters.deliver import (
    Mail,
    mail_server,
    post,
    send,
    webhook,
)
from redrive.cli.dead_letters.groups import missing
from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import Exit, NotFound
from redrive.cli.support.options import (
    Instant,
    database_option,
    json_option,
    option,
    settings_for,
    settings_of_cells,
)
from redrive.cli.support.output import listing, shown_cell, wants_json
from redrive.dead_letters.analysis import report as incident
from redrive.dead_letters.analysis.review import review
from redrive.rules.dead_letters import review as rules
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings

ENV = "REDRIVE_REPORT"
_ADDRESS = re.compile(r"[!-~]+@[!-~]+(?<!,)")
"""An address of a mail, without a name."""
FORMATS: Mapping[str, Callable[[rules.Review], str]] = {
    "text": rules.text,
    "markdown": rules.markdown,
    "html": rules.html,
}


class Targets(NamedTuple):
    """Where the report goes: URLs of the webhook and the mail server, or None."""

    webhook: SplitResult | None
    server: SplitResult | None
    mail: Mail

    @property
    def are_any(self) -> bool:
        """Return True if the report is sent, and not printed."""
        return self.webhook is not None or self.server is not None


def check_addresses(
    _context: click.Context, _option: click.Parameter, given: Any
) -> Any:
    """Return one or several addresses. Raises BadParameter if one is no mail address."""
    for text in [given] if isinstance(given, str) else given:
        if not _ADDRESS.fullmatch(text):
            msg = f"{text!r} is no mail address; write one such as oncall@shop.example"
            raise click.BadParameter(msg)

    return given


@click.command()
@click.argument("group", required=False)
@option(
    ENV,
    "--since",
    type=Instant(),
    metavar="TIME",
    help="Report on everything since this time: 7d, or an instant.",
)
@option(
    ENV,
    "--format",
    "format_",
    type=click.Choice(tuple(FORMATS)),
    help="Format. [default: text; of a group always markdown]",
)
@option(
    ENV,
    "--post",
    "is_posted",
    is_flag=True,
    help="Post the report to the Slack-compatible webhook in"
    " REDRIVE_REPORT_WEBHOOK_URL, or in the file ..._URL_FILE.",
)
@option(
    ENV,
    "--mail-to",
    multiple=True,
    callback=check_addresses,
    metavar="ADDRESS",
    help="Mail the report through the server in REDRIVE_REPORT_SMTP_URL, or in the"
    " file ..._URL_FILE.",
)
@option(
    ENV,
    "--mail-from",
    callback=check_addresses,
    metavar="ADDRESS",
    default="redrive@localhost",
    show_default=True,
    help="Sender of the mail.",
)
@database_option
@json_option
def report(  # its options
    group: str | None,
    since: datetime | None,
    format_: str | None,
    is_posted: bool,
    mail_to: Sequence[str],
    mail_from: str,
    database_url: str | None,
) -> int:
    """Write a report of one group, or of everything since a time.

    \b
    redrive dlq report 3f9a > incident.md
    redrive dlq report --since 7d
    redrive dlq report --since 7d --format html > review.html

    The report of a group is an incident report in Markdown, with redacted payloads. With --since,
    the report is for a review: what is open, new, old and growing, who owns it, and how redrives
    went. It has no payloads and no messages of failures. A CronJob can post or mail it: --post,
    --mail-to. Each option is also an environment variable: REDRIVE_REPORT_SINCE, ...
    """
    if group is not None and since is None:
        has_others = wants_json() or is_posted or mail_to
        is_markdown = format_ in {None, "markdown"}
        if has_others or not is_markdown:
            raise click.UsageError("these options need --since, and no group")

        settings = settings_for(database_url)
        return _incident(group, settings)

    if group is not None or since is None:
        raise click.UsageError("give a group or --since, for example --since 7d")

    cells = settings_of_cells(database_url)
    mail = Mail(
        sender=mail_from,
        to=mail_to,
        title="Dead letters",
    )
    # A missing URL is an error before the databases are read.
    targets = _targets(cells[0], mail, is_posted)
    answers, code = ask_each(cells, partial(_read, since=since))

    found = [cell | answer for cell, answer in answers]
    if wants_json():
        listing(found, ())
    elif found:
        _hand_over(_reviews(found, cells), format_ or "text", targets)

    return code


def _targets(settings: "Settings", mail: Mail, is_posted: bool) -> Targets:
    """Return where to send the report. Raises SettingsError if a URL is missing."""
    hook = webhook(settings) if is_posted else None
    server = mail_server(settings) if mail.to else None

    return Targets(
        webhook=hook,
        server=server,
        mail=mail,
    )


def _hand_over(reviews: Sequence[rules.Review], format_: str, targets: Targets) -> None:
    """Post and mail the report, or print it."""
    if not targets.are_any:
        pages = map(FORMATS[format_], reviews)
        click.echo("\n".join(pages), nl=False)

    if targets.webhook is not None:
        post(targets.webhook, rules.slack(reviews))
        click.echo("posted")
    if targets.server is not None:
        _mail(targets.server, targets.mail, reviews)


def _incident(group: str, settings: "Settings") -> int:
    with database(settings) as conn:
        found = incident.report(conn, group)

    if found is None:
        raise NotFound(missing(group))

    click.echo(found, nl=False)
    return Exit.DONE


def _read(settings: "Settings", since: datetime) -> Row:
    with database(settings) as conn:
        return review(conn, since)


def _reviews(found: Sequence[Row], cells: Sequence["Settings"]) -> list[rules.Review]:
    """Return the review of each cell; one that did not answer is named."""
    reviews: list[rules.Review] = []
    for each in found:
        cell = each.get("cell") or shown_cell()
        reviews.append(rules.shown(each, cell))

    if len(cells) > 1:
        names = [str(settings.cell) for settings in cells]
        answered = {each.get("cell") for each in found}
        silent = [name for name in names if name not in answered]
        reviews += map(rules.unanswered, silent)

    return reviews


def _mail(server: SplitResult, mail: Mail, reviews: Sequence[rules.Review]) -> None:
    texts = map(rules.text, reviews)
    pages = map(rules.html, reviews)
    send(
        server,
        mail=mail,
        text="\n".join(texts),
        page="\n".join(pages),
    )

    addresses = ", ".join(mail.to)
    click.echo(f"mailed to {addresses}")
