"""redrive policy."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import click

from redrive import handlers as registry
from redrive.cli.support.completion import Known
from redrive.cli.support.options import json_option, settings_for
from redrive.cli.support.output import emit, table, wants_json
from redrive.errors import SettingsError
from redrive.rules.attempts.plan import Planned, planned
from redrive.rules.attempts.policy import (
    EXPECTED_TO_REPEAT,
    Policy,
    attempts_of,
    dies_at_once,
    window_of,
)
from redrive.rules.instants import span
from redrive.rules.model import Category
from redrive.rules.rows import Row
from redrive.settings import Settings
from redrive.signals import seconds

PLAN = ("attempt", "wait, from", "to", "in all, from", "to")


@click.group()
def policy() -> None:
    """Retry policies of handlers."""


def _handlers(settings: Settings) -> registry.Handlers:
    if settings.handlers is None:
        raise SettingsError(
            "REDRIVE_HANDLERS is not set; it must be module:attribute, such as app.jobs:jobs"
        )
    return registry.load(settings.handlers, settings.name_of("handlers"))


@policy.command()
@click.argument("kind", required=False, type=Known("kind"))
@click.option(
    "--handlers",
    metavar="MODULE:ATTRIBUTE",
    help="Registry of the handlers. [env: REDRIVE_HANDLERS]",
)
@json_option
def show(kind: str | None, handlers: str | None) -> None:
    """Show the waits between the attempts of a job, by category.

    \b
    redrive policy show
    redrive policy show invoice.charge --handlers app.jobs:jobs

    Without KIND, it shows the defaults. A wait is random between the two times of its
    row. The last columns count from the first failure, without the time of the
    attempts.
    """
    shown = Policy() if kind is None else _policy_of(kind, handlers)
    if wants_json():
        emit(described(kind, shown))
        return

    for categories in _alike(shown).values():
        _print_plan(shown, categories)


def _print_plan(shown: Policy, categories: Sequence[Category]) -> None:
    """Print the plan that these categories share."""
    first = categories[0]
    names = ", ".join(categories)
    words = in_words(shown, first)
    _print_rows(f"{names}: {words}", planned(shown, first))


def _print_rows(title: str, rows: Sequence[Planned]) -> None:
    click.echo(title)
    if rows:
        table(PLAN, _shortened(rows), right=PLAN)

    click.echo()


def _policy_of(kind: str, handlers: str | None) -> Policy:
    settings = settings_for(None, handlers=handlers)
    if settings.handlers is None and settings.targets is not None:
        found = registry.Handlers()
    else:
        found = _handlers(settings)

    if settings.targets is not None:
        # No target is called here, so the number of connections does not matter.
        registry.add_targets(found, settings.targets, slots=1)

    try:
        return found.known(kind).policy
    except LookupError as error:
        text = str(error.args[0])
        raise click.UsageError(text) from None


def described(kind: str | None, shown: Policy) -> Row:
    """Return a policy as JSON. `window` and `waits` are for an outage."""
    categories: dict[str, Row] = {
        str(one): {
            "attempts": attempts_of(shown, one),
            "window": window_of(shown, one),
            "plan": [row._asdict() for row in planned(shown, one)],
        }
        for one in Category
    }
    outage = categories[Category.TRANSIENT]
    waits = [row["latest"] for row in outage["plan"]]

    return {
        "kind": kind,
        "timeout": seconds(shown.timeout),
        "max_losses": shown.max_losses,
        "same_failure_limit": shown.same_failure_limit,
        "window": outage["window"],
        "waits": waits,
        "categories": categories,
    }


def _alike(shown: Policy) -> dict[str, list[Category]]:
    """Return the categories by their description and waits, which some share."""
    groups = defaultdict[str, list[Category]](list)
    for category in Category:
        groups[_key(shown, category)].append(category)

    return groups


def _key(shown: Policy, category: Category) -> str:
    words = in_words(shown, category)
    waits = planned(shown, category)
    return f"{words} {waits}"


def in_words(shown: Policy, category: Category) -> str:
    """Say how long a category is retried."""
    limit = attempts_of(shown, category)
    window = window_of(shown, category)

    if dies_at_once(category, shown) or limit == 1:
        return "not retried"

    if window is not None and not planned(shown, category):
        return f"not retried: the first wait exceeds the window of {span(window)}"

    text = "retried"
    if window is not None:
        text += f" for {span(window)}"
    if limit is not None:
        text += f", at most {limit} attempts"

    alike = shown.same_failure_limit
    # If the attempts run out first, the same failure never ends the retries.
    is_reached = limit is None or alike < limit
    if category not in EXPECTED_TO_REPEAT and is_reached:
        text += f"; the same failure {alike} times in a row ends it"

    return text


def _shortened(rows: Sequence[Planned]) -> Iterator[tuple[str, ...]]:
    """Format the rows; show only the first and the last of several equal waits."""
    before = 0.0
    is_cut = False

    for row in rows:
        is_repeated = row.latest == before and row is not rows[-1]
        if not is_repeated:
            yield (
                str(row.attempt),
                span(row.earliest),
                span(row.latest),
                span(row.after_earliest),
                span(row.after_latest),
            )
        elif not is_cut:
            yield ("...",) * len(PLAN)

        before = row.latest
        is_cut = is_repeated
