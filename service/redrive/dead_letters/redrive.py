"""Put dead letters back to work: plan it, look at the plan, do it."""

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb

from redrive.dead_letters.filter import Filter
from redrive.dead_letters.reveal import reveal

CHUNK = 500
"""Dead letters that one transaction puts back."""
PAGE = 1000
"""Dead letters that a plan looks at at once: of the others it keeps the id alone, in 8 bytes."""
SAMPLE = 5
_EARLIEST = datetime(1, 1, 1, tzinfo=UTC)
MAX_REDRIVES = 5


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a redrive did. `blocked`: cause -> how many stayed."""

    matched: int
    redriven: int = 0
    blocked: dict[str, int] = field(default_factory=dict[str, int])
    campaign: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a redrive would do.

    Attributes:
        chosen: the filter that was asked for.
        max_redrives: what was redriven this often already will stay.
        ids: the open dead letters that the filter selects, the oldest first.
        blocked: cause -> how many of them will stay.
        groups: what they died of, the most frequent first: count, group, kind, error_class,
            message, and the id of one of them.
        acted: how many have side effects on record.
    """

    chosen: Filter
    max_redrives: int
    ids: Sequence[int]
    blocked: dict[str, int]
    groups: list[dict[str, Any]]
    acted: int

    @property
    def matched(self) -> int:
        """How many open dead letters the filter selects."""
        return len(self.ids)

    @property
    def sample(self) -> list[int]:
        """A few of them to look at first."""
        return list(self.ids[:SAMPLE])

    def untouched(self) -> Redriven:
        """What to report while nothing has been done."""
        return Redriven(self.matched, blocked=self.blocked)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A dead letter that a filter selects. `cause`: what stands in its way."""

    id: int
    died_at: datetime
    kind: str
    fingerprint: str
    error_class: str
    message: str
    cause: str | None
    has_acted: bool


def plan(
    conn: psycopg.Connection[Any], chosen: Filter, *, max_redrives: int = MAX_REDRIVES
) -> Plan:
    """Select the open dead letters of a filter, the oldest first, and what stands in their way."""
    ids, causes, counts, acted = array("q"), Counter[str](), Counter[str](), 0
    oldest: dict[str, _Candidate] = {}
    for letter in _candidates(conn, chosen, max_redrives):
        ids.append(letter.id)
        counts[letter.fingerprint] += 1
        oldest.setdefault(letter.fingerprint, letter)
        acted += letter.has_acted
        if letter.cause:
            causes[letter.cause] += 1
    groups = [_group(oldest[fingerprint], count) for fingerprint, count in counts.most_common()]
    reveal(conn, groups)
    return Plan(chosen, max_redrives, ids, dict(causes), groups, acted)


def _group(letter: _Candidate, count: int) -> dict[str, Any]:
    return {
        "count": count,
        "group": letter.fingerprint,
        "id": letter.id,
        "kind": letter.kind,
        "error_class": letter.error_class,
        "message": letter.message,
    }


def _candidates(
    conn: psycopg.Connection[Any], chosen: Filter, max_redrives: int
) -> Iterator[_Candidate]:
    """The dead letters of a filter by the page, each going on where the one before ended.

    Without a transaction around them: what dies meanwhile is left to the next plan.
    """
    conditions, parameters = chosen.where()
    statement: LiteralString = (
        "select d.id, d.died_at, d.kind, d.fingerprint, d.error_class, d.message, o.cause,"
        " exists (select from redrive.side_effects e where e.job = d.id) as has_acted"
        " from redrive.dead_letters d cross join lateral redrive.redrive_obstacle_v1("
        "d.kind, d.idempotency_key, d.redrives, d.fingerprint, %s) o"
        f" where d.state = 'open' and {conditions} and d.died_at <= %s"
        " and (d.died_at, d.id) > (%s, %s) order by d.died_at, d.id limit %s"
    )
    left = chosen.limit or sys.maxsize
    with conn.cursor(binary=True, row_factory=class_row(_Candidate)) as cursor:
        until, after = _now(conn), (_EARLIEST, 0)
        while left > 0:
            want = min(PAGE, left)
            page = cursor.execute(
                statement, (max_redrives, *parameters, until, *after, want)
            ).fetchall()
            yield from page
            if len(page) < want:
                return
            left -= want
            after = page[-1].died_at, page[-1].id


def _now(conn: psycopg.Connection[Any]) -> datetime:
    with conn.cursor(row_factory=scalar_row) as cursor:
        return cursor.execute("select clock_timestamp()").fetchone() or _EARLIEST


def redrive(  # noqa: PLR0913 # what a redrive needs
    conn: psycopg.Connection[Any],
    planned: Plan,
    *,
    why: str,
    actor: str,
    rate: float | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Redriven:
    """Put planned dead letters back to work, a chunk at a time; each chunk is one transaction.

    Args:
        rate: jobs per second, as a schedule from now on; None = all at once.
        progress: told after each chunk how many it handled.
    """
    with conn.cursor(row_factory=scalar_row) as cursor:
        campaign = cursor.execute(
            "select redrive.open_campaign_v1(%s, %s, %s, %s::float8, %s)",
            (actor, why, Jsonb(planned.chosen.described()), rate, planned.matched),
        ).fetchone()
        stayed = _put_back(cursor, planned, campaign, rate, progress)
        redriven = stayed.pop(None, 0)
        blocked = {str(cause): count for cause, count in stayed.items()}
        cursor.execute(
            "select redrive.close_campaign_v1(%s, %s, %s)", (campaign, redriven, Jsonb(blocked))
        )
    return Redriven(planned.matched, redriven, blocked, campaign)


def _put_back(
    cursor: psycopg.Cursor[Any],
    planned: Plan,
    campaign: int | None,
    rate: float | None,
    progress: Callable[[int], None],
) -> Counter[str | None]:
    """Put them back by the chunk. Returns how often each cause kept one back; None: it went."""
    causes: Counter[str | None] = Counter()
    for start in range(0, planned.matched, CHUNK):
        chunk = list(planned.ids[start : start + CHUNK])
        blocked = cursor.execute(
            "select blocked from redrive.redrive_v1(%s::bigint[], %s, %s::float8, %s, %s)",
            (chunk, campaign, rate, start, planned.max_redrives),
        )
        causes.update(blocked)
        progress(len(chunk))
    return causes
