"""redrive dlq edit: correct payloads, by a patch or in an editor."""

import sys
from dataclasses import replace

import click

from redrive.cli.support.connection import database
from redrive.cli.support.output import wants_json, warn
from redrive.cli.support.terminal import is_watched
from redrive.cli.support.verbs import Asked, verb_options
from redrive.dead_letters.edit import patch as rules
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import NotApplicable, Patch
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.filter import Filter
from redrive.errors import InvalidJob
from redrive.handlers import Handlers
from redrive.verbs.edits import EDITS, Found
from redrive.verbs.verb import Order


@click.command("edit")
@verb_options(EDITS["edit"])
def edit(asked: Asked) -> int:
    """Correct payloads of open dead letters, by id or by filters.

    \b
    redrive dlq edit 17                    # in $VISUAL or $EDITOR
    redrive dlq edit --group 3f9a --why 'the importer wrote EURO' \\
        --patch '[{"op": "replace", "path": "/currency", "value": "EUR"}]'

    The command shows the changes and asks, unless you give --yes. Without a terminal and without
    --yes it only shows them. The payloads from before are kept: redrive dlq show ID --original. If
    the patch does not apply, for example because a `test` in it fails, the payload stays as it is.
    """
    (order,) = asked.orders
    if not order.more["patch"]:
        order = replace(order, found=_in_editor(asked, order))
    return replace(asked, orders=[order]).perform()


def _in_editor(asked: Asked, order: Order) -> Found | None:
    """Open a payload in an editor. Returns None if there is no such dead letter."""
    ids = [int(text) for name, text in order.query if name == "id"]
    if len(ids) != 1 or wants_json():
        raise click.UsageError(
            "give --patch, or give one id without --json to use an editor"
        )
    if not sys.stdin.isatty():
        raise click.UsageError("an editor needs a terminal; give --patch")

    handlers = order.handlers or Handlers()
    with database(asked.run.settings) as conn:
        letter = next(edits.find(conn, Filter(ids=ids)), None)
    if letter is None:
        return None

    patch: Patch = []
    # A payload that cannot be read, or is in a campaign, stays; the preview counts it.
    if isinstance(letter, Letter) and not letter.campaign:
        patch = _patch_from_editor(letter, handlers)
    return Found(patch, edits.preview([letter], patch, handlers))


def _patch_from_editor(letter: Letter, checked_by: Handlers) -> Patch:
    """Open an editor until the edit is right, or the user gives up."""
    (shown,) = letter.redacted([letter.payload], checked_by.get(letter.whose.kind))
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
