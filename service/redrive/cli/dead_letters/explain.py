"""redrive dlq explain: common features of a group's dead letters."""

from collections.abc import Iterator
from typing import Any

import click

from redrive.cli.dead_letters.groups import missing
from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import database_option, json_option, settings_for
from redrive.cli.support.output import counted, emit, printable
from redrive.dead_letters import explain as explaining
from redrive.rules.dead_letters.explain import MIN_BASE, MIN_JOBS, sentence


@click.command()
@click.argument("group")
@database_option
@json_option
def explain(group: str, database_url: str | None, as_json: bool) -> int:
    """Say what a group's dead letters have in common.

    \b
    redrive dlq explain 3f9a

    Which values of payload and headers, which version, node or hour set them apart from jobs of
    the kind that succeeded, or else from other dead letters: the clearest first, and nothing that
    may well be chance. Secrets are redacted.
    """
    with database(settings_for(database_url)) as conn:
        found = explaining.explain(conn, group)
    if found is None:
        return missing(group)
    if as_json:
        emit(found)
    else:
        click.echo("\n".join(_told(found)))
    return Exit.DONE


def _told(found: dict[str, Any]) -> Iterator[str]:
    """Yield the findings in words, or the reason for none, then the numbers
    examined.
    """
    others = found["compared_with"]
    yield from (printable(sentence(one)) for one in found["findings"])
    if found["looked_at"] < MIN_JOBS:
        yield f"too few to compare: at least {MIN_JOBS} dead letters are needed"
    elif not any(count >= MIN_BASE for count in others.values()):
        yield f"nothing to compare with: at least {MIN_BASE} jobs are needed, succeeded or dead"
    elif not found["findings"]:
        yield "nothing stands out"
    yield (
        f"looked at {counted(found['looked_at'], 'dead letter')} of the group,"
        f" {others['succeeded']} of the kind that succeeded, {others['dead']} other dead letters"
        f" of the kind, {others['other_kinds']} of other kinds"
    )
