"""redrive dlq import: import dead letters of another system."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, NamedTuple

import click
import psycopg

from redrive.cli.support.connection import database
from redrive.cli.support.json_lines import read_object
from redrive.cli.support.options import Run, json_option, require_why, run_options
from redrive.cli.support.output import emit, table, wants_json
from redrive.cli.support.terminal import progress
from redrive.dead_letters.imports.document import Imported as Letter
from redrive.dead_letters.imports.store import CHUNK, Preview, Reader, take
from redrive.errors import InvalidJob
from redrive.rules.brief import counted
from redrive.rules.payloads.limits import check_text

GROUPS_SHOWN = 10


class Imported(NamedTuple):
    """Numbers of dead letters: all, new, and imported before."""

    matched: int = 0
    imported: int = 0
    skipped: int = 0


@click.command("import")
@click.argument("file", metavar="FILE|-", type=click.File("rb"))
@click.option(
    "--source",
    metavar="NAME",
    required=True,
    help="Name of the other system. None of its dead letters is imported twice.",
)
@run_options()
@json_option
def import_dead_letters(file: IO[bytes], source: str, run: Run) -> None:
    """Import dead letters of another system, as JSON lines.

    \b
    redrive dlq import dead.jsonl --source orders-dlq --why 'sort them out here'
    sidekiq-dead | redrive dlq import - --source sidekiq --yes --why 'we move'

    A line has "kind" and "payload", and may have queue, tenant, headers,
    idempotency_key, source_id, reason, category, error_class, message, stack, attempts,
    created_at and died_at. Imported dead letters are grouped, redacted and kept like
    all others, but the alerts about growth do not count them. Dead letters that were
    imported from the source before are left out. Lines are imported in chunks of 500. A
    chunk is imported as a whole or not at all, and an error names the bad line.

    The command shows the dead letters and asks, unless you give --yes. Without a
    terminal and without --yes it only shows them. docs/moving says how to get lines
    from other systems.
    """
    check_text("--source", source)

    with database(run.settings) as conn:
        # With --yes there is no preview, so that standard input is read only once.
        if run.yes and not run.dry_run:
            why = require_why(run.why)
            counts = Imported()
        else:
            seen = _look(conn, _chunks(file, source), source)
            counts = Imported(matched=seen.matched, imported=0, skipped=seen.known)
            why = _agreed(file, seen, run)

        if why is not None:
            counts = _take(conn, _chunks(file, source), source, run, why)

    if wants_json():
        emit(counts._asdict())
    elif why is None:
        click.echo(run.unchanged())
    else:
        click.echo(f"{counts.imported} imported{_known(counts.skipped)}")


def _known(count: int) -> str:
    return f", {count} imported before" if count else ""


def _agreed(file: IO[bytes], seen: Preview, run: Run) -> str | None:
    """Return the reason for the import after confirmation.

    Input that cannot be read a second time is only previewed.
    """
    if not wants_json():
        _show(seen)

    new = seen.matched - seen.known
    if not (new and file.seekable()):
        return None

    why = run.consent(f"Import {counted(new, 'dead letter')}?", str(new))
    # The import reads the file again, from its beginning.
    file.seek(0)

    return why


def _chunks(file: IO[bytes], source: str) -> Iterator[list[Letter]]:
    """Yield the dead letters of the lines.

    Raises:
        InvalidJob: a line is wrong. The text names the line, the field and its rule.
    """
    letters = _letters(file, Reader(source))
    while chunk := list(islice(letters, CHUNK)):
        yield chunk


def _letters(file: IO[bytes], reader: Reader) -> Iterator[Letter]:
    for number, text in enumerate(file, 1):
        if not text.strip():
            continue

        line = f"line {number}"
        fields = read_object(line, text)

        try:
            yield reader.read(fields)
        except InvalidJob as error:
            raise InvalidJob(f"{line}.{error.path}", error.rule) from None


def _look(
    conn: psycopg.Connection[Any], chunks: Iterable[Sequence[Letter]], source: str
) -> Preview:
    seen = Preview()
    with progress("looked at", None) as advance:
        for chunk in chunks:
            seen.add(conn, source, chunk)
            advance(len(chunk))

    return seen


def _take(
    conn: psycopg.Connection[Any],
    chunks: Iterable[Sequence[Letter]],
    source: str,
    run: Run,
    why: str,
) -> Imported:
    """Import the dead letters."""
    imported = matched = 0
    actor = run.settings.who()

    with progress("imported", None) as advance:
        try:
            for chunk in chunks:
                imported += take(conn, source, chunk, why=why, actor=actor)
                matched += len(chunk)
                advance(len(chunk))
        except Exception:  # a bad line further on, or the database
            click.echo(f"{imported} imported before this chunk", err=True)
            raise

    return Imported(matched=matched, imported=imported, skipped=matched - imported)


def _show(seen: Preview) -> None:
    """Print the number of dead letters and their groups."""
    letters = counted(seen.matched, "dead letter")
    kinds = counted(len(seen.kinds), "kind")
    groups = counted(len(seen.groups), "group")
    known = _known(seen.known)
    click.echo(f"{letters} of {kinds} in {groups}{known}")

    if seen.matched:
        columns = ("count", "group", "kind", "error_class", "message")
        table(columns, _rows(seen), right=("count",))


def _rows(seen: Preview) -> Iterator[tuple[Any, ...]]:
    """Yield the largest groups, for a table."""
    for group, count in seen.groups.most_common(GROUPS_SHOWN):
        yield (
            count,
            group.fingerprint,
            group.kind,
            group.error_class,
            seen.messages[group],
        )
