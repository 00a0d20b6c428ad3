"""Correct payloads of open dead letters: preview a patch, then apply it.

Only previewed payloads are edited. A dead letter stays as it is if its payload has
changed since, or if it is no longer open. A preview keeps only the payloads that it
shows.
"""

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, NamedTuple

import msgspec

from redrive.database.rows import Connection, rows
from redrive.dead_letters.campaigns.unfit import refusal
from redrive.dead_letters.edit import patch as rules
from redrive.dead_letters.edit.patch import NotApplicable, Patch
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.groups import store as groups
from redrive.encryption import MARK, Undecryptable, Whose, configured, opened_text
from redrive.errors import InvalidJob
from redrive.handlers import Handler, Handlers
from redrive.handlers.job_function import check_payload
from redrive.rules.payloads.redact import redact, secret_values
from redrive.rules.rows import Fields, Row, fields_of

CHUNK = 500
"""Dead letters that are read at once, or edited by one transaction."""
DIGEST = hashlib.sha256().digest_size
SAMPLE = 3
"""Number of edits, and of failures to edit, that a preview shows."""

_READ: LiteralString = """
    select d.id, d.redrives, d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key,
           d.headers, d.payload::text as payload, coalesce((
               select f.detail -> 'secret_fields' from redrive.failures f
               where f.job = d.id and f.detail ? 'secret_fields'
               order by f.deliveries desc limit 1), '[]') as secret_fields
    from redrive.dead_letters d where d.state = 'open'"""


@dataclass(frozen=True, slots=True)
class Letter:
    """Open dead letter with its payload decrypted.

    `digest` identifies the version that was seen. `campaign` is the running campaign
    that will put it back.
    """

    id: int
    digest: bytes
    whose: Whose
    version: Any
    payload: Any
    headers: Fields
    secret_fields: frozenset[str]
    campaign: int | None

    def redacted(
        self, payloads: Sequence[Any], handler: Handler | None = None
    ) -> list[Any]:
        """Redact payloads of this dead letter for display.

        Args:
            handler: handler whose secret fields are redacted, too.
        """
        fields = {*self.secret_fields, *(handler.secret if handler else ())}
        values = [*payloads, self.payload, self.headers]
        secrets = secret_values(values, fields)

        return [redact(payload, fields, secrets) for payload in payloads]


@dataclass(frozen=True, slots=True)
class Sample:
    """Edit of a preview: the redacted lines of its diff."""

    id: int
    diff: list[str]


@dataclass(slots=True)
class Preview:
    """Preview of a patch.

    Attributes:
        found: ids of the matching open dead letters.
        counts: maps a reason to the number that cannot be edited: not_applicable,
            invalid, unchanged, unreadable, in_campaign.
        ids: dead letters that can be edited.
        digests: digests of these as they were seen, concatenated.
        samples: a few of the edits.
        faults: maps a few ids to the reason why they cannot be edited.
        unchecked: kinds whose payloads no handler checked.
    """

    found: "array[int]" = field(default_factory=lambda: array("q"))
    counts: Counter[str] = field(default_factory=Counter[str])
    ids: "array[int]" = field(default_factory=lambda: array("q"))
    digests: bytearray = field(default_factory=bytearray)
    samples: list[Sample] = field(default_factory=list[Sample])
    faults: dict[int, str] = field(default_factory=dict[int, str])
    unchecked: set[str] = field(default_factory=set[str])

    @property
    def matched(self) -> int:
        """Return the number of open dead letters."""
        return len(self.found)

    def chunks(self) -> Iterator[dict[int, bytes]]:
        """Yield the editable dead letters in chunks, each id with its digest."""
        for start in range(0, len(self.ids), CHUNK):
            chunk = self.ids[start : start + CHUNK]
            yield {
                job: bytes(self.digests[place * DIGEST : (place + 1) * DIGEST])
                for place, job in enumerate(chunk, start)
            }

    def leave(self, cause: str, job: int, fault: str) -> None:
        """Count a dead letter that cannot be edited."""
        self.counts[cause] += 1
        if len(self.faults) < SAMPLE:
            self.faults[job] = fault


def find(conn: Connection, chosen: Filter) -> Iterator[Letter | int]:
    """Yield the open dead letters of a filter by id.

    One that cannot be decrypted is only its id. Pages are read without a transaction
    around them, so later deaths are left out.
    """
    conditions, parameters = groups.where(conn, chosen)
    query: LiteralString = (
        f"{_READ} and {conditions} and d.id > %s order by d.id limit %s"
    )
    left = chosen.limit or sys.maxsize
    last = 0

    while left > 0:
        wanted = min(CHUNK, left)
        page = rows(conn, query, *parameters, last, wanted)
        yield from _letters(conn, page)

        if len(page) < wanted:
            return

        left -= wanted
        last = page[-1]["id"]


def _letters(conn: Connection, page: list[Row]) -> Iterator[Letter | int]:
    rows = conn.execute(
        "select id, campaign from redrive.in_campaign_v1(%s)",
        ([row["id"] for row in page],),
    )
    campaigns = dict(rows)
    for row in page:
        yield _opened(row, campaigns.get(row["id"]))


def _opened(row: Fields, campaign: int | None) -> Letter | int:
    """Return a row as a dead letter, or its id if its payload cannot be read."""
    headers = fields_of(row["headers"])
    try:
        payload = rules.decode(opened_text(row))
    except (Undecryptable, InvalidJob):
        return row["id"]

    return Letter(
        id=row["id"],
        # edit_v1 computes the same digest, so it changes nothing else than what was seen.
        digest=hashlib.sha256(f"{row['redrives']}:{row['payload']}".encode()).digest(),
        whose=Whose.of(row),
        version=headers.get("version", 1),
        payload=payload,
        headers=headers,
        secret_fields=frozenset(row["secret_fields"]),
        campaign=campaign,
    )


def edited(letter: Letter, patch: Patch, handlers: Handlers) -> str:
    """Return the JSON of a payload after a patch.

    It is unchanged if the patch changes nothing.

    Raises:
        NotApplicable: the payload lacks what the patch names, or a `test` failed.
        InvalidJob: a job cannot hold the result, or the handler cannot read it or
            refuses it.
    """
    made = rules.apply(patch, letter.payload)
    text = rules.encode(made)
    if MARK in made:
        path = f"payload.{MARK}"
        raise InvalidJob(path, "this name is reserved for encrypted payloads")

    handler = handlers.get(letter.whose.kind)
    if handler is None:
        return text

    check_payload(handler, text, letter.version)
    cause = refusal(handler, text, letter.version)
    if cause:
        rule = f"the handler of {handler.kind!r} refuses it: {cause}"
        raise InvalidJob(rules.PAYLOAD, rule)

    return text


def preview(
    letters: Iterable[Letter | int], patch: Patch, handlers: Handlers
) -> Preview:
    """Preview a patch of these dead letters; changes nothing."""
    seen = Preview()
    for letter in letters:
        if isinstance(letter, int):
            seen.found.append(letter)
            seen.leave("unreadable", letter, UNREADABLE)
            continue

        seen.found.append(letter.id)
        if letter.campaign:
            fault = _IN_CAMPAIGN.format(letter.campaign)
            seen.leave("in_campaign", letter.id, fault)
            continue

        _look(seen, letter, patch, handlers)

    return seen


UNREADABLE = (
    "its payload is encrypted with a key that this process lacks, or nested too deeply"
)
_IN_CAMPAIGN = (
    "campaign {0} will redrive it; pause the campaign first: redrive campaign pause {0}"
)


def _look(seen: Preview, letter: Letter, patch: Patch, handlers: Handlers) -> None:
    """Add the edit of a dead letter to the preview, or the reason for none."""
    try:
        text = edited(letter, patch, handlers)
    except NotApplicable as error:
        seen.leave("not_applicable", letter.id, str(error))
        return
    except InvalidJob as error:
        seen.leave("invalid", letter.id, str(error))
        return

    handler = handlers.get(letter.whose.kind)
    if handler is None:
        seen.unchecked.add(letter.whose.kind)

    after = rules.decode(text)
    if rules.is_same(letter.payload, after):
        seen.counts["unchanged"] += 1
        return

    seen.ids.append(letter.id)
    seen.digests += letter.digest
    if len(seen.samples) < SAMPLE:
        seen.samples.append(_sample(letter, after, handler))


def _sample(letter: Letter, after: Any, handler: Handler | None) -> Sample:
    old, new = letter.redacted([letter.payload, after], handler)
    return Sample(letter.id, rules.diff(old, new, f"job {letter.id}"))


def edit(  # noqa: PLR0913 # what an edit needs
    conn: Connection,
    seen: Preview,
    patch: Patch,
    *,
    handlers: Handlers,
    why: str,
    actor: str,
    progress: Callable[[int], None] = lambda _: None,
) -> Counter[str | None]:
    """Apply a previewed patch, each chunk in one transaction.

    Returns:
        Counts by cause: changed or not_open kept one as it was, None means that it was
        edited.
    """
    # Beside encrypted payloads, the record must not hold their values.
    recorded = patch if configured() is None else rules.without_values(patch)
    how = _How(
        patch=rules.encoded(recorded), paths=rules.paths(patch), actor=actor, why=why
    )
    causes: Counter[str | None] = Counter()

    for chunk in seen.chunks():
        same = _unchanged(conn, chunk, causes)
        rows = [
            (each.id, each.digest, *_sealed(each, edited(each, patch, handlers)))
            for each in same
        ]
        refused = _write(conn, rows, how)
        causes.update(refused)
        progress(len(chunk))

    # The plus drops the counts of 0.
    return +causes


class _How(NamedTuple):
    """Patch as it is recorded, the paths that it changes, and who applies it."""

    patch: str
    paths: list[str]
    actor: str
    why: str


def _unchanged(
    conn: Connection, chunk: Mapping[int, bytes], causes: Counter[str | None]
) -> list[Letter]:
    """Return the dead letters that are as they were previewed; count the others."""
    found = list(find(conn, Filter(ids=list(chunk))))
    same = [
        letter
        for letter in found
        if isinstance(letter, Letter) and letter.digest == chunk[letter.id]
    ]

    causes["not_open"] += len(chunk) - len(found)
    causes["changed"] += len(found) - len(same)

    return same


def _sealed(letter: Letter, text: str) -> tuple[str, str | None]:
    """Return a payload as it is stored, and the header of an encrypted one."""
    keyring = configured()
    if keyring is None:
        return text, None

    envelope, header = keyring.seal_payload(text.encode(), letter.whose)
    return msgspec.json.encode(envelope).decode(), header[MARK]


def _write(
    conn: Connection, rows: Sequence[tuple[int, bytes, str, str | None]], how: _How
) -> Iterator[str | None]:
    """Edit a chunk in the database; yield for each the cause that kept it, or None."""
    if not rows:
        return

    columns = [list(column) for column in zip(*rows, strict=True)]
    for _, refused in conn.execute(
        "select id, refused from redrive.edit_v1("
        "%s::bigint[], %s::bytea[], %s::jsonb[], %s::text[], %s::jsonb, %s::text[], %s, %s)",
        (*columns, *how),
    ):
        yield refused
