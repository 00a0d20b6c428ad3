"""Edits of payloads: preview a patch, then edit exactly the previewed payloads."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from redrive.database.rows import Connection
from redrive.dead_letters import find as letters
from redrive.dead_letters.edit import patch as rules
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import Patch
from redrive.dead_letters.edit.store import Letter, Preview
from redrive.dead_letters.filter import Filter
from redrive.errors import InvalidJob
from redrive.handlers import Handlers
from redrive.rules.brief import counted
from redrive.rules.rows import Row
from redrive.verbs.query import Query, command
from redrive.verbs.refusal import Conflict
from redrive.verbs.verb import (
    MOST,
    Done,
    Opening,
    Order,
    as_seen,
    back,
    letters_of,
    obstacle_of,
    refuse_vague,
    typed,
)

STAYS = {
    "not_applicable": "the patch does not apply",
    "invalid": "their handler could not read what it makes",
    "unchanged": "it changes nothing",
    "unreadable": "they are encrypted with a key that is not known here, or nested too deeply",
    "changed": "they are others by now",
    "not_open": "they are not open any more",
}
KEPT = ("not_applicable", "invalid", "unchanged")
"""Causes of a kept payload that a preview counts, besides refusals."""
EXAMPLE = '[{"op": "replace", "path": "/currency", "value": "EUR"}]'


@dataclass(frozen=True, slots=True)
class Look:
    """Preview of an edit.

    Attributes:
        matched: number of open dead letters that the filter selects.
        sample: one dead letter; None if none matches, or if it cannot be read.
        text: redacted payload of the sample, for editing.
        patch: patch as JSON; empty if none was given yet.
        seen: effect of the patch. Its `mark` ensures that the edit does the same.
        fault: reason why the patch is invalid; None if it is valid.
    """

    query: Query
    shell: str
    matched: int
    sample: Letter | None = None
    text: str = ""
    patch: str = ""
    seen: Preview | None = None
    fault: str | None = None
    obstacle: str | None = None

    @property
    def mark(self) -> str:
        """Return a mark that changes if the preview would change."""
        return _mark(self.seen) if self.seen else ""

    @property
    def stays(self) -> Mapping[str, int]:
        """Return how many payloads stay unchanged, by reason."""
        if self.seen is None:
            return {}
        return {STAYS[cause]: n for cause, n in self.seen.counts.items()}


def _mark(seen: Preview) -> str:
    content = bytes(seen.ids) + bytes(seen.digests)
    return hashlib.sha256(content).hexdigest()[:32]


def look(conn: Connection, order: Order) -> Look:
    """Preview the patch of a form, or show what can be edited if there is no patch.

    An invalid patch is no error. Its fault is a part of the preview.

    Raises:
        Refused: the filter is invalid.
    """
    chosen = letters_of(order)
    found = _found(conn, chosen, order)
    if found.obstacle:
        return found

    try:
        patch = _patch(order, found)
        seen = patch and _seen(conn, chosen, patch, order)
    except InvalidJob as error:
        return replace(found, patch=order.more.get("patch", ""), fault=str(error))

    if patch and seen:
        return replace(found, patch=rules.encoded(patch), seen=seen)
    return found


def _found(conn: Connection, chosen: Filter, order: Order) -> Look:
    """Find the payloads to edit, and a sample."""
    matched = 0
    if chosen.narrows():
        matched = len(letters.find(conn, chosen))

    shell = command(("dlq", "edit"), typed(Filter, order.query), patch="...", why="...")
    obstacle = obstacle_of(chosen, matched, order.most)
    found = Look(as_seen(chosen), shell, matched, obstacle=obstacle)

    if obstacle:
        return found

    sample = next(edits.find(conn, replace(chosen, limit=1)), None)
    if not isinstance(sample, Letter):
        return found

    text = order.more.get("payload")
    return replace(found, sample=sample, text=text or _shown(sample))


def _shown(sample: Letter) -> str:
    """Return the redacted payload of a dead letter, as an editor shows it."""
    (redacted,) = sample.redacted([sample.payload])
    return rules.indented(redacted)


def _patch(order: Order, found: Look) -> Patch | None:
    """Return the given patch, or derive one from an edited payload."""
    if text := order.more.get("patch", "").strip():
        return rules.read_patch(text)

    text = order.more.get("payload")
    if not text or found.sample is None or found.matched != 1:
        return None

    # The user has edited the redacted text. Compared with that text, a secret that they
    # left alone is no difference, so the patch does not replace it.
    (shown,) = found.sample.redacted([found.sample.payload])
    return rules.difference(shown, rules.decode_typed(text))


def _seen(conn: Connection, chosen: Filter, patch: Patch, order: Order) -> Preview:
    return edits.preview(edits.find(conn, chosen), patch, order.handlers or Handlers())


def edit(opening: Opening, order: Order) -> Done:
    """Edit the payloads that the preview showed.

    Raises:
        Refused: the filter selects everything, too many dead letters match, or they
            have changed since the preview.
        InvalidJob: the patch is invalid.
    """
    chosen = letters_of(order)
    patch = rules.read_patch(order.more.get("patch", ""))
    refuse_vague(chosen)

    with opening() as conn:
        seen = _seen(conn, chosen, patch, order)
        _refuse_changed(seen, order)
        handlers = order.handlers or Handlers()
        causes = edits.edit(conn, seen, patch, handlers=handlers, **order.signed)

    return Done(
        text=_edited(causes), report=report(seen, causes), path=_page_after(chosen)
    )


def _refuse_changed(seen: Preview, order: Order) -> None:
    """Refuse to edit other payloads than the preview showed."""
    if seen.matched > MOST:
        raise Conflict(f"more than {MOST:,} match; narrow the filter")

    mark = _mark(seen)
    # The preview of the API returns no mark, so a request to the API has none.
    if order.more.get("mark", mark) != mark:
        raise Conflict("some dead letters have changed; look at the preview again")


def _edited(causes: Counter[str | None]) -> str:
    """Return how many payloads were edited, and how many stayed, by cause."""
    text = f"{counted(causes[None], 'payload')} edited"
    for cause, n in causes.items():
        if cause:
            text += f"; {n:,} stayed: {STAYS.get(cause, cause)}"
    return f"{text}."


def _page_after(chosen: Filter) -> str:
    if chosen.group and chosen.narrows():
        return f"/groups/{chosen.group}"
    return back(chosen)


def report(seen: Preview, causes: Counter[str | None] | None = None) -> Row:
    """Report an edit as the command line does.

    Args:
        seen: preview of the edit.
        causes: results of the edit; None if only the preview was made.
    """
    refused = {cause: n for cause, n in (causes or {}).items() if cause}
    # The preview has left these out, so the edit did not count them.
    for cause in ("unreadable", "in_campaign"):
        if n := seen.counts[cause]:
            refused[cause] = n

    kept = {cause: seen.counts[cause] for cause in KEPT}
    edited = causes[None] if causes else 0

    return {"matched": seen.matched, "edited": edited, **kept, "refused": refused}
