"""Correct payloads of open dead letters: preview a patch, then apply it.

Only previewed payloads are edited. A dead letter stays as it is if its payload has
changed since, or if it is no longer open. A preview keeps only the payloads that it
shows.
"""

import hashlib
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg.rows import dict_row

from redrive.dead_letters import groups
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.unfit import refusal
from redrive.encryption import (
    MARK,
    SEALED,
    Undecryptable,
    Whose,
    configured,
    open_payload,
)
from redrive.errors import InvalidJob
from redrive.handlers import Handler, Handlers
from redrive.handlers.job_function import check_payload
from redrive.rules.payloads import edit as rules
from redrive.rules.payloads.edit import NotApplicable, Patch
from redrive.rules.payloads.redact import redact, secret_values

Connection = psycopg.Connection[Any]
Row = Mapping[str, Any]

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
    headers: Mapping[str, Any]
    secret_fields: frozenset[str]
    campaign: int | None

    def redacted(
        self, payloads: Sequence[Any], declared: Collection[str] = ()
    ) -> list[Any]:
        """Redact payloads of this dead letter for display."""
        fields = {*self.secret_fields, *declared}
        secrets = secret_values([*payloads, self.payload, self.headers], fields)
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
            places = range(start * DIGEST, (start + len(chunk)) * DIGEST, DIGEST)
            yield {
                job: bytes(self.digests[place : place + DIGEST])
                for job, place in zip(chunk, places, strict=True)
            }


def find(conn: Connection, chosen: Filter) -> Iterator[Letter | int]:
    """Yield the open dead letters of a filter by id.

    One that cannot be decrypted is only its id. Pages are read without a transaction
    around them, so later deaths are left out.
    """
    conditions, parameters = groups.where(conn, chosen)
    left, last = chosen.limit or sys.maxsize, 0
    query: LiteralString = (
        f"{_READ} and {conditions} and d.id > %s order by d.id limit %s"
    )
    with conn.cursor(row_factory=dict_row) as cursor:
        while left > 0:
            want = min(CHUNK, left)
            page = cursor.execute(query, (*parameters, last, want)).fetchall()
            going = _campaigns(conn, [row["id"] for row in page])
            yield from (_opened(row, going.get(row["id"])) for row in page)
            if len(page) < want:
                return
            left, last = left - want, page[-1]["id"]


def _campaigns(conn: Connection, ids: list[int]) -> dict[int, int]:
    return dict(
        conn.execute("select id, campaign from redrive.in_campaign_v1(%s)", (ids,))
    )


def _opened(row: Row, campaign: int | None) -> Letter | int:
    """Return a row as a dead letter, or its id if its payload cannot be opened."""
    text, whose = row["payload"], Whose.of(row)
    seen = hashlib.sha256(f"{row['redrives']}:{text}".encode()).digest()
    if text.startswith(SEALED):
        try:
            text = open_payload(configured(), text, whose, row["headers"])
        except Undecryptable:
            return row["id"]
    return Letter(
        row["id"],
        seen,
        whose,
        row["headers"].get("version", 1),
        rules.decode(text),
        row["headers"],
        frozenset(row["secret_fields"]),
        campaign,
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
        raise InvalidJob(path, "this name is reserved for what is encrypted")
    handler = handlers.get(letter.whose.kind)
    if handler:
        check_payload(handler, text, letter.version)
        if cause := refusal(handler, text, letter.version):
            raise InvalidJob(
                rules.PAYLOAD, f"the handler of {handler.kind!r} refuses it: {cause}"
            )
    return text


def preview(
    letters: Iterable[Letter | int], patch: Patch, handlers: Handlers
) -> Preview:
    """Preview a patch of these dead letters; changes nothing."""
    seen = Preview()
    for letter in letters:
        seen.found.append(letter if isinstance(letter, int) else letter.id)
        if isinstance(letter, int):
            _count(
                seen,
                "unreadable",
                letter,
                "its payload is encrypted with a key not known here",
            )
            continue
        if which := letter.campaign:
            fix = f"pause that first: redrive campaign pause {which}"
            _count(
                seen,
                "in_campaign",
                letter.id,
                f"campaign {which} is to put it back; {fix}",
            )
            continue
        try:
            text = edited(letter, patch, handlers)
        except NotApplicable as error:
            _count(seen, "not_applicable", letter.id, str(error))
        except InvalidJob as error:
            _count(seen, "invalid", letter.id, str(error))
        else:
            handler = handlers.get(letter.whose.kind)
            _look(seen, letter, rules.decode(text), handler)
            if not handler:
                seen.unchecked.add(letter.whose.kind)
    return seen


def _count(seen: Preview, what: str, job: int, why: str) -> None:
    seen.counts[what] += 1
    if len(seen.faults) < SAMPLE:
        seen.faults[job] = why


def _look(seen: Preview, letter: Letter, after: Any, handler: Handler | None) -> None:
    if rules.is_same(letter.payload, after):
        seen.counts["unchanged"] += 1
        return
    seen.ids.append(letter.id)
    seen.digests += letter.digest
    if len(seen.samples) < SAMPLE:
        old, new = letter.redacted(
            [letter.payload, after], handler.secret if handler else ()
        )
        seen.samples.append(Sample(letter.id, rules.diff(old, new, f"job {letter.id}")))


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
    said = patch if configured() is None else rules.without_values(patch)
    how = (rules.encoded(said), rules.paths(patch), actor, why)
    causes: Counter[str | None] = Counter()
    for chunk in seen.chunks():
        found = list(find(conn, Filter(ids=list(chunk))))
        same = [x for x in found if isinstance(x, Letter) and x.digest == chunk[x.id]]
        causes["not_open"] += len(chunk) - len(found)
        causes["changed"] += len(found) - len(same)
        rows = [(x.id, x.digest, *_sealed(x, edited(x, patch, handlers))) for x in same]
        causes.update(_write(conn, rows, how))
        progress(len(chunk))
    return +causes


def _sealed(letter: Letter, text: str) -> tuple[str, str | None]:
    """Return a payload as it is stored, and the header of an encrypted one."""
    keyring = configured()
    if keyring is None:
        return text, None
    envelope, header = keyring.seal_payload(text.encode(), letter.whose)
    return msgspec.json.encode(envelope).decode(), header[MARK]


def _write(
    conn: Connection,
    rows: Sequence[tuple[int, bytes, str, str | None]],
    how: tuple[str, list[str], str, str],
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
