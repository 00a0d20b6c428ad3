"""Edits of payloads: preview a patch, then edit exactly the previewed payloads."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from redrive.database.rows import Connection
from redrive.dead_letters.edit import patch as rules
from redrive.dead_letters.edit import store as edits
from redrive.dead_letters.edit.patch import Patch
from redrive.dead_letters.edit.store import Letter
from redrive.dead_letters.edit.store import Preview as Seen
from redrive.dead_letters.filter import Filter
from redrive.handlers import Handlers
from redrive.rules.brief import counted
from redrive.rules.rows import Row
from redrive.verbs import letters
from redrive.verbs.refusal import Conflict
from redrive.verbs.verb import (
    MOST,
    Done,
    Input,
    Opening,
    Order,
    Preview,
    Verb,
    back,
    letters_of,
    refuse_vague,
)

STAYS = {
    "not_applicable": "the patch does not apply",
    "invalid": "their handler could not read what it makes",
    "unchanged": "it changes nothing",
    "unreadable": "they are encrypted with a key that is not known here, or nested too deeply",
    "in_campaign": "a campaign will redrive them",
    "changed": "they are others by now",
    "not_open": "they are not open any more",
}
KEPT = ("not_applicable", "invalid", "unchanged")
"""Causes of a kept payload that a preview counts, besides refusals."""
EXAMPLE = '[{"op": "replace", "path": "/currency", "value": "EUR"}]'


class Found(NamedTuple):
    """A patch, and what it does to the payloads that it was tried on."""

    patch: Patch
    seen: Seen

    @property
    def mark(self) -> str:
        """Return a mark that changes if the preview would change."""
        content = bytes(self.seen.ids) + bytes(self.seen.digests)
        return hashlib.sha256(content).hexdigest()[:32]


def _preview(conn: Connection, order: Order) -> Preview:
    """Preview a patch, or show what can be edited if no patch is given.

    Raises:
        Refused: the filter is invalid.
        InvalidJob: the patch is invalid.
    """
    given = order.more.get("patch", "").strip()
    wanted = rules.read_patch(given) if given else None
    shown = replace(letters.preview(conn, order), rows=(), ids=())
    if shown.obstacle:
        return shown

    chosen = letters_of(order)
    text, found = _found(conn, chosen, order, shown.matched, wanted)
    if found is None:
        return replace(shown, values={"payload": text})

    patch, seen = found
    is_in_vain = not seen.ids
    is_held = is_in_vain and seen.counts.keys() == {"unchanged"}
    mark = "" if is_in_vain else found.mark
    return replace(
        shown,
        matched=seen.matched,
        remarks=list(remarks(patch, seen)),
        values={"payload": text, "patch": rules.encoded(patch), "mark": mark},
        report=report(seen),
        found=found,
        is_held=is_held,
        obstacle="No payload can be edited." if is_in_vain and not is_held else None,
    )


def _found(
    conn: Connection, chosen: Filter, order: Order, matched: int, patch: Patch | None
) -> tuple[str, Found | None]:
    """Return a redacted payload to edit, and what the patch of the order does."""
    sample = next(edits.find(conn, replace(chosen, limit=1)), None)
    shown: Any = None
    text = ""
    if isinstance(sample, Letter):
        (shown,) = sample.redacted([sample.payload])
        text = rules.indented(shown)
    if order.found:
        return text, order.found

    edited = order.more.get("payload")
    if patch is None and edited and text and matched == 1:
        # The user has edited the redacted text. Compared with that text, a secret that
        # they left alone is no difference, so the patch does not replace it.
        patch = rules.difference(shown, rules.decode_typed(edited))
    return text, None if patch is None else _tried(conn, chosen, patch, order)


def _tried(conn: Connection, chosen: Filter, patch: Patch, order: Order) -> Found:
    handlers = order.handlers or Handlers()
    return Found(patch, edits.preview(edits.find(conn, chosen), patch, handlers))


def remarks(patch: Patch, seen: Seen) -> Iterator[str]:
    """Yield a few of the diffs, the number of edits, and which payloads stay."""
    for sample in seen.samples:
        secret = f"job {sample.id}: the change is secret and not shown"
        yield "\n".join(sample.diff) or secret

    if seen.ids:
        yield f"{len(seen.ids):,} to edit; the patch changes {', '.join(rules.paths(patch))}"
    for cause, n in sorted(seen.counts.items()):
        yield f"{n:,} will stay: {STAYS[cause]}."
    for job, fault in seen.faults.items():
        yield f"job {job}: {fault}"
    if seen.ids and seen.unchecked:
        yield f"no handler checked {', '.join(sorted(seen.unchecked))}; see --handlers"


def _edit(opening: Opening, order: Order) -> Done:
    """Edit the payloads that the preview showed.

    Raises:
        Refused: the filter selects everything, too many dead letters match, or they
            have changed since the preview.
        InvalidJob: the patch is invalid.
    """
    chosen = letters_of(order)
    refuse_vague(chosen)

    with opening() as conn:
        found = order.found
        if found is None:
            patch = rules.read_patch(order.more.get("patch", ""))
            found = _tried(conn, chosen, patch, order)
            _refuse_changed(found, order)
        causes = edits.edit(
            conn,
            found.seen,
            found.patch,
            handlers=order.handlers or Handlers(),
            progress=order.advance or (lambda _: None),
            **order.signed,
        )

    path = f"/groups/{chosen.group}" if chosen.group else back(chosen)
    return Done(
        text=_edited(causes),
        report=report(found.seen, causes),
        path=path,
        is_in_vain=not causes[None],
    )


def _refuse_changed(found: Found, order: Order) -> None:
    """Refuse to edit other payloads than the preview showed."""
    if found.seen.matched > MOST:
        raise Conflict(f"more than {MOST:,} match; narrow the filter")

    # The preview of the API returns no mark, so a request to the API has none.
    if order.more.get("mark", found.mark) != found.mark:
        raise Conflict("some dead letters have changed; look at the preview again")


def _edited(causes: Counter[str | None]) -> str:
    """Return how many payloads were edited, and how many stayed, by cause."""
    text = f"{counted(causes[None], 'payload')} edited"
    for cause, n in causes.items():
        if cause:
            text += f"; {n:,} stayed: {STAYS.get(cause, cause)}"
    return f"{text}."


def report(seen: Seen, causes: Counter[str | None] | None = None) -> Row:
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


EDITS: Mapping[str, Verb] = {
    "edit": Verb(
        "Correct payloads of open dead letters by a JSON Patch.",
        "dlq edit",
        "Edit",
        "open dead letter",
        _preview,
        _edit,
        of=Filter,
        inputs=(
            Input(
                "patch",
                "The change, as JSON Patch (RFC 6902)",
                kind="array",
                is_required=True,
                asks=True,
            ),
        ),
        nothing=report(Seen()),
        decodes=True,
    )
}
"""Word in the address -> change."""
