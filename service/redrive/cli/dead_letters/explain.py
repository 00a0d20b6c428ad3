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
    """Show what a group's dead letters have in common.

    \b
    redrive dlq explain 3f9a

    The command compares the dead letters with jobs of the kind that succeeded, or else with other
    dead letters. It lists the values of payload and headers, the versions, nodes and hours that set
    the group apart, the clearest first. It leaves out differences that may be chance. Secrets are
    redacted.
    """
    with database(settings_for(database_url)) as conn:
        found = explaining.explain(conn, group)
    if found is None:
        return missing(group)
    if as_json:
        emit(found)
    else:
        click.echo("\n".join(_lines(found)))
    return Exit.DONE


def _lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the findings, or the reason for none, then the numbers examined."""
    for finding in found["findings"]:
        yield printable(sentence(finding))
    reason = _no_findings(found)
    if reason is not None:
        yield reason
    others = found["compared_with"]
    yield (
        f"looked at {counted(found['looked_at'], 'dead letter')} of the group,"
        f" {others['succeeded']} of the kind that succeeded, {others['dead']} other dead letters"
        f" of the kind, {others['other_kinds']} of other kinds"
    )


def _no_findings(found: dict[str, Any]) -> str | None:
    """Return why nothing or little was found; None if something was."""
    if found["looked_at"] < MIN_JOBS:
        return f"too few to compare: at least {MIN_JOBS} dead letters are needed"
    if max(found["compared_with"].values()) < MIN_BASE:
        return f"nothing to compare with: at least {MIN_BASE} jobs are needed, succeeded or dead"
    return None if found["findings"] else "nothing stands out"
