"""Put dead letters back to work: plan it, look at the plan, do it."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import class_row, scalar_row
from psycopg.types.json import Jsonb

from redrive.dead_letters.filter import Filter
from redrive.dead_letters.reveal import reveal

CHUNK = 500
"""Dead letters that one transaction puts back."""
SAMPLE = 5
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
    ids: list[int]
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
        return self.ids[:SAMPLE]

    def untouched(self) -> Redriven:
        """What to report while nothing has been done."""
        return Redriven(self.matched, blocked=self.blocked)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A dead letter that a filter selects. `cause`: what stands in its way."""

    id: int
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
    found = _candidates(conn, chosen, max_redrives)
    groups = _by_group(found)
    reveal(conn, groups)
    return Plan(
        chosen,
        max_redrives,
        ids=[letter.id for letter in found],
        blocked=dict(Counter(letter.cause for letter in found if letter.cause)),
        groups=groups,
        acted=sum(letter.has_acted for letter in found),
    )


def _candidates(
    conn: psycopg.Connection[Any], chosen: Filter, max_redrives: int
) -> list[_Candidate]:
    conditions, parameters = chosen.where()
    with conn.cursor(row_factory=class_row(_Candidate)) as cursor:
        return cursor.execute(
            "select d.id, d.kind, d.fingerprint, d.error_class, d.message, o.cause,"
            " exists (select from redrive.side_effects e where e.job = d.id) as has_acted"
            " from redrive.dead_letters d cross join lateral redrive.redrive_obstacle_v1("
            "d.kind, d.idempotency_key, d.redrives, d.fingerprint, %s) o"
            f" where d.state = 'open' and {conditions} order by d.died_at, d.id limit %s",
            (max_redrives, *parameters, chosen.limit),
        ).fetchall()


def _by_group(found: Sequence[_Candidate]) -> list[dict[str, Any]]:
    counts = Counter(letter.fingerprint for letter in found)
    oldest = {letter.fingerprint: letter for letter in reversed(found)}
    return [
        {
            "count": count,
            "group": fingerprint,
            "id": oldest[fingerprint].id,
            "kind": oldest[fingerprint].kind,
            "error_class": oldest[fingerprint].error_class,
            "message": oldest[fingerprint].message,
        }
        for fingerprint, count in counts.most_common()
    ]


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
        chunk = planned.ids[start : start + CHUNK]
        blocked = cursor.execute(
            "select blocked from redrive.redrive_v1(%s::bigint[], %s, %s::float8, %s, %s)",
            (chunk, campaign, rate, start, planned.max_redrives),
        )
        causes.update(blocked)
        progress(len(chunk))
    return causes
