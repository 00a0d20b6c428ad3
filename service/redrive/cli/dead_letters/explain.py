"""redrive dlq explain: common features of a group's dead letters."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from redrive.cli.support.completion import Known
from redrive.cli.support.connection import ask_each, database
from redrive.cli.support.exits import Exit
from redrive.cli.support.options import cells_options, json_option
from redrive.cli.support.output import answer, not_found, printable
from redrive.dead_letters.explain import facts as comparison
from redrive.dead_letters.explain.answer import MIN_BASE, MIN_JOBS, sentence
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.groups.store import missing
from redrive.rules.brief import counted
from redrive.rules.rows import Row

if TYPE_CHECKING:
    from redrive.settings import Settings


@click.command()
@click.argument("group", type=Known("group"))
@cells_options()
@json_option
def explain(group: str, cells: "Sequence[Settings]") -> int:
    """Show what a group's dead letters and failing jobs have in common.

    \b
    redrive dlq explain 3f9a

    The command compares them with jobs of the kind that succeeded, or else with other
    dead letters. It lists the values of payload and headers, the versions, nodes and
    hours that set the group apart, the clearest first. It leaves out differences that
    may be chance. Secrets are redacted. With several cells, it compares the jobs of all
    of them, and the cell is one of the values.
    """
    chosen, code = _choose(cells, group)
    if chosen is None:
        answers, _ = ask_each(cells, lambda settings: _named(settings, group))
        names = {name for _, found in answers for name in found}
        return code or not_found(missing(group, sorted(names)))

    # All cells together give as many samples as one database would.
    most = comparison.OF_GROUP // len(cells)
    samples, code = ask_each(cells, lambda settings: _sample(settings, chosen, most))
    by_cell = {cell.get("cell"): sample for cell, sample in samples}
    found = comparison.compare(chosen, by_cell)

    answer(found, "\n".join(_lines(found)))

    return code


def _choose(
    cells: "Sequence[Settings]", name: str
) -> tuple[comparison.Group | None, Exit]:
    """Find the group in all cells; None if no group or more than one has the name."""
    answers, code = ask_each(cells, lambda settings: _find(settings, name))
    found = [group for _, group in answers if group is not None]
    if len({group.fingerprint for group in found}) != 1:
        return None, code

    return found[0]._replace(open=sum(group.open for group in found)), code


def _find(settings: "Settings", name: str) -> comparison.Group | None:
    with database(settings) as conn:
        return comparison.find(conn, name)


def _named(settings: "Settings", beginning: str) -> list[str]:
    with database(settings) as conn:
        return groups.named(conn, beginning)


def _sample(
    settings: "Settings", group: comparison.Group, most: int
) -> comparison.Sample:
    with database(settings) as conn:
        return comparison.sample(conn, group, most)


def _lines(found: Row) -> Iterator[str]:
    """Yield the findings, or the reason for none, then the numbers examined."""
    for finding in found["findings"]:
        yield printable(sentence(finding))

    reason = _no_findings(found)
    if reason is not None:
        yield reason

    others = found["compared_with"]
    yield (
        f"looked at {counted(found['looked_at'], 'job')} of the group,"
        f" {others['succeeded']} of the kind that succeeded, {others['dead']} other dead letters"
        f" of the kind, {others['other_kinds']} of other kinds"
    )


def _no_findings(found: Row) -> str | None:
    """Return why nothing or little was found; None if something was."""
    if found["looked_at"] < MIN_JOBS:
        return f"too few to compare: at least {MIN_JOBS} jobs of the group are needed"

    if max(found["compared_with"].values()) < MIN_BASE:
        return f"nothing to compare with: at least {MIN_BASE} jobs are needed, succeeded or dead"

    if not found["findings"]:
        return "nothing stands out"

    return None
