"""redrive dlq show: one dead letter with its history, or one group."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import click

from redrive.cli.dead_letters.groups import the_group
from redrive.cli.support.completion import Known
from redrive.cli.support.exits import NotFound
from redrive.cli.support.options import conn_options, json_option, keep_cell
from redrive.cli.support.output import (
    answer,
    bold,
    no_letter,
    printable,
    printable_facts,
    printable_fields,
    printable_json,
    shown_id,
)
from redrive.database.rows import Connection
from redrive.dead_letters import find
from redrive.dead_letters.campaigns.obstacles import stays
from redrive.rules.attempts.circumstances import circumstances
from redrive.rules.attempts.plan import why_over
from redrive.rules.attempts.stack import stack_lines
from redrive.rules.brief import counted
from redrive.rules.cells import parted
from redrive.rules.instants import duration
from redrive.rules.rows import Fields, Row

FINGERPRINT_LENGTH = 16
FRAMES = 3

_LETTER = """\
{title}  {kind}  queue {queue}  {state}
died {died_at}{after}: {reason}, {category}, group {group}
{attempts}, {deliveries}, {redrives}; created {created_at}"""

_GROUP = """\
{title}  {kind}  {category}
{error}
{counts}; first seen {first_seen}, last {last_seen}"""


class _Which(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] # older versions take none
    """Id of a dead letter, or the name of a group; eu:17 also selects the cell."""

    name = "id|group"

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,  # noqa: ARG002 # click's signature
        ctx: click.Context | None,  # noqa: ARG002 # as above
    ) -> int | str:
        cell, name = parted(str(value))
        if cell is not None:
            keep_cell(cell)

        # A whole fingerprint may consist of digits only.
        is_group = len(name) == FINGERPRINT_LENGTH or not name.isdigit()
        return name if is_group else int(name)


@click.command()
@click.argument(
    "which",
    metavar="ID|GROUP",
    type=_Which(),
    shell_complete=Known("group").shell_complete,
)
@click.option(
    "--original", is_flag=True, help="Show the payload from before all edits."
)
@conn_options
@json_option
def show(which: int | str, original: bool, conn: Connection) -> None:
    """Show a dead letter with its whole history, or a group.

    \b
    redrive dlq show 17
    redrive dlq show eu:17     # in the cell eu, if there are several databases
    redrive dlq show 3f9a      # a group, by the beginning of its name

    Secrets in payloads are redacted.
    """
    if isinstance(which, str):
        group = the_group(conn, which)
        group["failure"] = find.failure_of(conn, group)
        answer(group, "\n".join(_group(group)))
        return

    letter = find.show(conn, which, original=original)
    if letter is None:
        raise NotFound(no_letter(which))

    title = "original payload" if original else "payload"
    answer(letter, "\n\n".join(_letter(letter, title)))


def _letter(letter: Row, title: str) -> Iterator[str]:
    """Yield the sections of a dead letter, with its payload under `title`."""
    yield _head(letter)

    *_, last = letter["failures"] or [None]
    if last and last["detail"].get("stack"):
        yield "\n".join(_stack(last))

    yield f"{bold(title)}  {printable_json(letter['payload'])}"

    yield from _edits(letter["edits"])
    yield _failures(letter["failures"])
    yield from _filled("side effect, {at}: {what} {detail}", letter["side_effects"])
    yield from _state(letter)

    lineage = letter["lineage"]
    if len(lineage) > 1 or letter["campaign"]:
        yield _lineage(lineage)

    note = bold("note")
    yield from _filled(f"{note} of {{actor}}, {{at}}\n  {{text}}", _notes(letter))


def _edits(edits: Sequence[Row]) -> Iterator[str]:
    """Yield a section for each edit of the payload."""
    edited = bold("edited")
    template = f"{edited} by {{actor}}, {{at}}: {{paths}}\n  {{why}}"
    for edit in edits:
        shown = printable_fields(edit)
        shown["paths"] = printable(", ".join(edit["paths"]))
        yield template.format_map(shown)


def _state(letter: Row) -> Iterator[str]:
    """Yield what ended its retries, what it holds up, and what holds it up."""
    over = why_over(letter["failures"])
    if over:
        yield over

    if letter["holds_key"]:
        key = printable(letter["ordering_key"])
        yield f"it holds ordering key {key}: the jobs behind it wait until it is settled"

    if letter["quarantined"]:
        yield (
            "quarantined: it died of the same failure as before its redrive;"
            " redrive it by its id"
        )

    yield from _obstacles(letter)


def _obstacles(letter: Row) -> Iterator[str]:
    """Yield why a redrive would leave it, and why the last one did."""
    obstacle = letter["obstacle"]
    blocked = letter["blocked"]
    if obstacle:
        words = stays(obstacle, letter["id"])
        yield f"a redrive would leave it ({obstacle}): {words}"

    if blocked and blocked != obstacle:
        yield f"its last redrive was refused: {blocked}"


def _notes(letter: Row) -> Iterator[Row]:
    for note in letter["notes"]:
        yield note | {"at": datetime.fromisoformat(note["at"])}


def _head(letter: Row) -> str:
    """Return the first lines: identity, cause of death, attempts and facts."""
    job = shown_id(letter["id"])
    words = {
        "title": bold(f"job {job}"),
        "attempts": counted(letter["attempts"], "attempt"),
        "deliveries": counted(letter["deliveries"], "delivery", "deliveries"),
        "redrives": counted(letter["redrives"], "redrive"),
        "after": _after(letter["time_to_dlq_seconds"]),
    }
    head = _LETTER.format_map(printable_fields(letter) | words)
    return f"{head}\n{printable_facts(find.facts(letter))}".rstrip()


def _after(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f", after {duration(seconds)}"


def _lineage(deaths: Iterable[Fields]) -> str:
    lines = [bold("lineage")]
    for death in deaths:
        lines.extend(_death(death))

    return "\n".join(lines)


def _death(death: Fields) -> Iterator[str]:
    """Yield the lines of a death, and of the redrive after it."""
    shown = printable_fields(death)
    yield "  {died_at}  {reason}  {state}  {outcome}".format_map(shown).rstrip()

    if death["campaign"]:
        place = f" to the queue {shown['to_queue']}" if death["to_queue"] else ""
        line = f"    redriven{place} by {{redriven_by}}, campaign {{campaign}}: {{why}}"
        yield line.format_map(shown)


def _stack(failure: Fields) -> Iterator[str]:
    """Yield the lines of a failure's error and stack, with its source."""
    title = bold("last failure")
    yield f"{title}  {_error(failure, '  ')}"
    for line in stack_lines(failure["detail"]["stack"]):
        yield f"  {printable(line)}"

    for cause in failure["detail"].get("causes", []):
        yield f"  because {_error(cause, '    ')}"
        for line in stack_lines(cause.get("stack", ())):
            yield f"    {printable(line)}"


def _failures(failures: Sequence[Row]) -> str:
    title = bold("failures")
    lines = [f"{title}, oldest first"]
    for failure in failures:
        # The stack of the last one is shown above.
        lines.extend(_failure(failure, 0 if failure is failures[-1] else FRAMES))

    return "\n".join(lines)


def _failure(failure: Row, frames: int) -> Iterator[str]:
    """Yield the lines of a failure, with its innermost `frames`."""
    detail = failure["detail"]
    yield from _filled("  attempt {attempt}  {at}  {category}  on {worker}", [failure])
    yield f"    {_error(failure, '      ')}"

    known = ", ".join(map(printable, circumstances(detail)))
    if known:
        yield f"      {known}"

    last = detail.get("stack", [])[-frames:] if frames else ()
    yield from _filled("      {file}:{line} in {function}", last)

    for cause in detail.get("causes", []):
        yield f"    because {_error(cause, '      ')}"


def _error(failure: Fields, indent: str) -> str:
    """Return class and message of an error; later lines of the message are indented."""
    text = f"{failure['error_class']}: {failure['message']}"
    return f"\n{indent}".join(map(printable, text.splitlines()))


_LINES = {
    "owner": "owner {owner}",
    "acknowledged_at": "acknowledged {acknowledged_at} by {acknowledged_by}: {acknowledged_why}",
    "held_at": "held {held_at} by {held_by}: {held_why}",
    "muted_until": "muted until {muted_until} by {muted_by}: {muted_why}",
    "failing": "failing:  redrive job ls --group {group}",
}
"""Field of a group -> the line that it has if the field is set."""


def _group(group: Row) -> Iterator[str]:
    """Yield the lines of a group."""
    words = {
        "title": bold(f"group {group['group']}"),
        "sample": shown_id(group["sample"]),
        "counts": _counts(group),
        "error": _error(group, "  "),
    }
    shown = printable_fields(group) | words
    yield _GROUP.format_map(shown)

    failure = group["failure"]
    if failure and failure["detail"].get("stack"):
        yield ""
        yield from _stack(failure)
        yield ""

    yield from _versions(group["versions"])

    if group["quarantined"]:
        yield "{quarantined} are quarantined: they died again after a redrive".format_map(
            shown
        )

    yield from _resolution(group)
    for field, template in _LINES.items():
        if group.get(field):
            yield template.format_map(shown)

    if group["total"]:
        yield "a sample: redrive dlq show {sample}".format_map(shown)
        yield "all:      redrive dlq ls --group {group}".format_map(shown)
    else:
        yield "a sample: redrive job show {sample}".format_map(shown)


def _counts(group: Row) -> str:
    """Return how many jobs of a group fail now, and how many died."""
    dead = f"{group['open']:,} open of {group['total']:,} ever"
    if not group["failing"]:
        return dead

    jobs = counted(group["failing"], "job")
    since = printable(group["failing_since"])
    return f"{jobs} failing since {since}; {dead}"


def _resolution(group: Row) -> Iterator[str]:
    """Yield in which version a group is fixed, and its failures in each version since."""
    if group["fixed_in"] is None:
        return

    fixes = ", ".join(group["fixed_in"])
    shown = printable_fields(group) | {"fixes": printable(fixes)}
    yield "resolved in {fixes} by {resolved_by}, {resolved_at}: {resolved_why}".format_map(
        shown
    )

    if group["regressed_in"]:
        yield "regressed in {regressed_in}, {regressed_at}".format_map(shown)

    for version, failures in sorted(group["since"].items()):
        name = f"in {printable(version)}" if version else "in an unknown version"
        yield f"  {failures} since then {name}"


def _versions(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield each version with the time of its first failure, oldest first."""
    for version, at in sorted(versions.items(), key=itemgetter(1)):
        shown = printable(version)
        since = printable(datetime.fromisoformat(at))
        yield f"  version {shown} since {since}"


def _filled(template: str, rows: Iterable[Fields]) -> Iterator[str]:
    """Yield the template filled with each row's fields as `printable`."""
    for row in rows:
        yield template.format_map(printable_fields(row))
