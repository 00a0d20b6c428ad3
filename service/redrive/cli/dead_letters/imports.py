"""redrive dlq import: import dead letters of another system."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, NamedTuple

import click
import psycopg

from redrive.cli.support.connection import database
from redrive.cli.support.json_lines import read_object
from redrive.cli.support.options import Run, json_option, require_why, run_options
from redrive.cli.support.output import counted, emit, table
from redrive.cli.support.terminal import progress
from redrive.dead_letters.imports import CHUNK, Preview, Reader, take
from redrive.errors import InvalidJob
from redrive.rules.dead_letters.imported import Imported
from redrive.rules.payloads.limits import check_text

GROUPS_SHOWN = 10


@click.command("import")
@click.argument("file", metavar="FILE|-", type=click.File("rb"))
@click.option(
    "--source",
    metavar="NAME",
    required=True,
    help="Where they come from; from there none comes twice.",
)
@run_options()
@json_option
def import_dead_letters(file: IO[bytes], source: str, run: Run, as_json: bool) -> None:
    """Take in dead letters of another system, as JSON lines.

    \b
    redrive dlq import dead.jsonl --source orders-dlq --why 'sort them out here'
    sidekiq-dead | redrive dlq import - --source sidekiq --yes --why 'we move'

    A line has "kind" and "payload", and what is known of queue, tenant, headers, idempotency_key,
    source_id, reason, category, error_class, message, stack, attempts, created_at, died_at. They
    are grouped, redacted and kept as those that died here, and count as imported, which no alert
    takes for an incident. Those that came from the source before are left out. Lines are imported
    in chunks of 500, each as a whole or not at all; the error names the bad line. Shows first what
    would come; then asks, unless --yes. Without a terminal and without --yes it only shows. Where
    lines come from other systems: docs/moving.
    """
    check_text("--source", source)
    with database(run.settings) as conn:
        if run.yes and not run.dry_run:
            why, came = require_why(run.why), Came()
        else:
            seen = _look(conn, _chunks(file, source), source)
            why, came = (
                _agreed(file, seen, run, as_json=as_json),
                Came(seen.matched, 0, seen.known),
            )
        if why is not None:
            came = _take(conn, _chunks(file, source), source, run, why)
    if as_json:
        emit(came._asdict())
    elif why is None:
        click.echo(
            "nothing was changed" + ("" if run.dry_run else "; add --yes to do it")
        )
    else:
        known = f", {came.skipped} came in before" if came.skipped else ""
        click.echo(f"{came.imported} imported{known}")


class Came(NamedTuple):
    """Numbers of dead letters: all, new, and those that were imported before."""

    matched: int = 0
    imported: int = 0
    skipped: int = 0


def _agreed(file: IO[bytes], seen: Preview, run: Run, *, as_json: bool) -> str | None:
    """Return the reason for the import after confirmation.

    Input that cannot be read a second time is only previewed.
    """
    if not as_json:
        _show(seen)
    new = seen.matched - seen.known
    if not (new and file.seekable()):
        return None
    why = run.consent(f"Import {counted(new, 'dead letter')}?", str(new))
    file.seek(0)
    return why


def _chunks(file: IO[bytes], source: str) -> Iterator[list[Imported]]:
    """Yield the dead letters of the lines.

    Raises:
        InvalidJob: a line is wrong. The text names the line, the field and its rule.
    """
    reader = Reader(source)

    def letters() -> Iterator[Imported]:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            fields = read_object(
                f"line {number}", text, "must be an object with at least a kind"
            )
            try:
                yield reader.read(fields)
            except InvalidJob as error:
                raise InvalidJob(f"line {number}.{error.path}", error.rule) from None

    rest = letters()
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _look(
    conn: psycopg.Connection[Any], chunks: Iterable[Sequence[Imported]], source: str
) -> Preview:
    seen = Preview()
    with progress("looked at", None) as advance:
        for chunk in chunks:
            seen.add(conn, source, chunk)
            advance(len(chunk))
    return seen


def _take(
    conn: psycopg.Connection[Any],
    chunks: Iterable[Sequence[Imported]],
    source: str,
    run: Run,
    why: str,
) -> Came:
    """Import the dead letters."""
    imported = matched = 0
    with progress("imported", None) as advance:
        try:
            for chunk in chunks:
                imported += take(conn, source, chunk, why=why, actor=run.settings.who())
                matched += len(chunk)
                advance(len(chunk))
        except Exception:  # a bad line further on, or the database
            click.echo(f"{imported} imported before this chunk", err=True)
            raise
    return Came(matched, imported, matched - imported)


def _show(seen: Preview) -> None:
    """Print the number of dead letters and their groups."""
    known = f", {seen.known} came in before" if seen.known else ""
    kinds = counted(len(seen.kinds), "kind")
    groups = counted(len(seen.groups), "group")
    click.echo(f"{counted(seen.matched, 'dead letter')} of {kinds} in {groups}{known}")
    rows = (
        (count, group.fingerprint, group.kind, group.error_class, seen.messages[group])
        for group, count in seen.groups.most_common(GROUPS_SHOWN)
    )
    if seen.matched:
        table(
            ("count", "group", "kind", "error_class", "message"), rows, right=("count",)
        )
