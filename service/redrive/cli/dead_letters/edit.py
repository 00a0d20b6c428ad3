"""redrive dlq edit: correct payloads, by a patch or in an editor."""

import sys
from collections import Counter
from collections.abc import Iterator

import click

from redrive.cli.support.connection import database
from redrive.cli.support.exits import Exit
from redrive.cli.support.filters import filter_options
from redrive.cli.support.options import Run, json_option, run_options
from redrive.cli.support.output import answer, no_letter, not_found, wants_json, warn
from redrive.cli.support.terminal import is_watched, progress
from redrive.cli.support.verbs import handlers_option, load_handlers
from redrive.database.rows import Connection
from redrive.dead_letters.edit import patch as rules
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import NotApplicable, Patch
from redrive.dead_letters.edit.store import Letter, Preview, Sample
from redrive.dead_letters.filter import Filter
from redrive.errors import InvalidJob
from redrive.handlers import Handlers
from redrive.rules.brief import counted
from redrive.rules.payloads.escape import escaped
from redrive.verbs.edits import report

COLOURS = {"+": "green", "-": "red", "@": "cyan"}
"""Colour of a line of a diff, by its first character."""

Causes = Counter[str | None]
"""Counts by cause that kept a payload as it was; None = it was edited."""


@click.command("edit")
@click.option("--patch", metavar="JSON", help="The change, as JSON Patch (RFC 6902).")
@handlers_option
@filter_options(states=("open",), takes_ids=True)
@run_options()
@json_option
def edit(patch: str | None, handlers: str | None, chosen: Filter, run: Run) -> int:
    """Correct payloads of open dead letters, by id or by filters.

    \b
    redrive dlq edit 17                    # in $VISUAL or $EDITOR
    redrive dlq edit --group 3f9a --why 'the importer wrote EURO' \\
        --patch '[{"op": "replace", "path": "/currency", "value": "EUR"}]'

    The command shows the changes and asks, unless you give --yes. Without a terminal and without
    --yes it only shows them. The payloads from before are kept: redrive dlq show ID --original. If
    the patch does not apply, for example because a `test` in it fails, the payload stays as it is.
    """
    _refuse(chosen, in_editor=patch is None)
    wanted: Patch | None = None
    if patch is not None:
        wanted = rules.read_patch(patch)

    checked_by = load_handlers(run, handlers) or Handlers()

    with database(run.settings) as conn:
        if wanted is None:
            wanted, seen = _in_editor(conn, chosen, checked_by)
        else:
            seen = edits.preview(edits.find(conn, chosen), wanted, checked_by)

        if not wants_json():
            _show(seen, wanted)

        causes = _edit(conn, seen, wanted, run, checked_by)

    answer(report(seen, causes), _outcome(seen, causes, run))

    return _exit(seen, causes, chosen)


def _refuse(chosen: Filter, *, in_editor: bool) -> None:
    """Refuse combinations of options that make no sense."""
    if not chosen.narrows():
        raise click.UsageError("give ids or a filter")
    if tuple(chosen.state) != ("open",):
        raise click.UsageError("--state: only open dead letters can be edited")

    if in_editor and (len(chosen.ids) != 1 or wants_json()):
        raise click.UsageError(
            "give --patch, or give one id without --json to use an editor"
        )
    if in_editor and not sys.stdin.isatty():
        raise click.UsageError("an editor needs a terminal; give --patch")


def _in_editor(
    conn: Connection, chosen: Filter, checked_by: Handlers
) -> tuple[Patch, Preview]:
    """Open a payload in an editor; return the edit as a patch and a preview of it."""
    letter = next(edits.find(conn, chosen), None)
    if letter is None:
        return [], Preview()

    patch: Patch = []
    # A payload that cannot be read, or is in a campaign, stays; the preview counts it.
    if isinstance(letter, Letter) and not letter.campaign:
        patch = _patch_from_editor(letter, checked_by)

    return patch, edits.preview([letter], patch, checked_by)


def _patch_from_editor(letter: Letter, checked_by: Handlers) -> Patch:
    """Open an editor until the edit is right, or the user gives up."""
    handler = checked_by.get(letter.whose.kind)
    (shown,) = letter.redacted([letter.payload], handler.secret if handler else ())
    text = rules.indented(shown)

    while True:
        text = click.edit(text, extension=".json", require_save=False) or ""
        try:
            # The difference to what was shown leaves redacted values as they are.
            patch = rules.difference(shown, rules.decode_typed(text))
            edits.edited(letter, patch, checked_by)
        except (InvalidJob, NotApplicable) as error:
            if not _again(error):
                raise
        else:
            return patch


def _again(error: Exception) -> bool:
    """Ask whether to correct the edit."""
    if not is_watched():
        return False

    warn(str(error))
    return click.confirm("Open it again?", default=True)


def _edit(
    conn: Connection, seen: Preview, patch: Patch, run: Run, checked_by: Handlers
) -> Causes | None:
    """Edit the previewed payloads after confirmation.

    Returns None if there was nothing to do or the user declined.
    """
    n = len(seen.ids)
    why = run.consent(f"Edit {counted(n, 'payload')}?", str(n)) if n else None
    if why is None:
        return None

    actor = run.settings.who()
    with progress("edited", n) as advance:
        return edits.edit(
            conn,
            seen,
            patch,
            why=why,
            actor=actor,
            handlers=checked_by,
            progress=advance,
        )


def _show(seen: Preview, patch: Patch) -> None:
    """Print the number of edits, a few of the diffs, and the payloads that stay."""
    if not seen.matched:
        click.echo("nothing matched")
        return

    for sample in seen.samples:
        click.echo("\n".join(_coloured(sample)))

    matched = counted(seen.matched, "open dead letter")
    click.echo(f"{matched}, {len(seen.ids)} to edit")
    for line in _remarks(seen, patch):
        click.echo(escaped(line))


def _coloured(sample: Sample) -> Iterator[str]:
    if not sample.diff:
        yield f"job {sample.id}: the change is secret and not shown"

    for line in sample.diff:
        colour = COLOURS.get(line[0])
        yield click.style(escaped(line), fg=colour)


def _remarks(seen: Preview, patch: Patch) -> Iterator[str]:
    if seen.ids:
        yield f"changes {', '.join(rules.paths(patch))}"

    for cause, count in sorted(seen.counts.items()):
        yield f"{count} will stay: {cause}"

    for job, fault in seen.faults.items():
        yield f"  job {job}: {fault}"

    if seen.ids and seen.unchecked:
        yield f"no handler checked {', '.join(sorted(seen.unchecked))}; see --handlers"


def _outcome(seen: Preview, causes: Causes | None, run: Run) -> str | None:
    """Return the result as text; None if nothing matched."""
    if causes is not None:
        edited = causes.get(None, 0)
        text = f"{edited} edited"
        for cause, n in causes.items():
            if cause:
                text += f", {n} {cause}"

        return text

    if seen.ids:
        return run.unchanged()
    if seen.matched:
        return "nothing was changed"

    return None


def _exit(seen: Preview, causes: Causes | None, chosen: Filter) -> Exit:
    """Name the ids that were not found; failed = some edits could not be made."""
    for job in sorted(set(chosen.ids).difference(seen.found)):
        not_found(no_letter(job, "no open dead letter, or it does not match"))

    if not seen.matched:
        return Exit.NOTHING_MATCHED if chosen.ids else Exit.DONE

    # A patch that changes nothing is no failure.
    is_in_vain = not seen.ids and seen.counts.keys() != {"unchanged"}
    if is_in_vain or (causes is not None and not causes[None]):
        return Exit.FAILED
    return Exit.DONE
