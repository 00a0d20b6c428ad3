"""Slots of a schedule, by a cron expression and a time zone.

Changes of the clocks follow cronsim's rule, which is Debian's. If the minute or the
hour begins with `*`, the expression is an interval in real time. Any other expression
names times of the day, and each of them comes once a day. A time that does not exist
comes at the end of the gap. A time that exists twice comes the first time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from redrive.rules.payloads.limits import (
    LAST_INSTANT,
    MAX_PAYLOAD_BYTES,
    check_name,
    encode_object,
)
from redrive.rules.rows import Fields
from redrive.rules.schedules import cron_fields, interval, longest_gap

CatchUp = Literal["skip", "one", "all"]
CATCH_UP = ("skip", "one", "all")
ON_TIME = timedelta(minutes=1)
"""Delay up to which a slot is not missed, because workers need time to restart."""

MOST_MISSED = 1000
"""Largest number of missed slots that `all` makes up for; the latest ones count."""

_START = datetime(2000, 1, 1, tzinfo=UTC)
_INSTANT = timedelta(microseconds=1)
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a kind's jobs.

    Attributes:
        cron: five fields, a name such as `@daily`, or `@every 90m`. `@every` counts in
            real time from midnight of 2000, UTC.
        tz: the time zone of the fields.
        catch_up: what happens to slots that no worker fired, or that are more than a
            minute late. `skip` = nothing. `one` = one job for all of them, for the
            latest slot. `all` = one job for each, for the last 1,000 at most.
        payload: the payload of each job. The database stores it unencrypted, so it must
            not contain a secret.
        name: the name for operators; by default the kind. Several schedules of a kind
            need names.

    Raises:
        ValueError: an attribute is wrong; the message names it.
    """

    cron: str
    tz: str = "UTC"
    catch_up: CatchUp = "one"
    payload: Fields = field(default_factory=dict[str, Any])
    name: str | None = None

    def __post_init__(self) -> None:
        if self.catch_up not in CATCH_UP:
            msg = f"catch_up is {self.catch_up!r}; it must be one of {', '.join(CATCH_UP)}"
            raise ValueError(msg)

        _zone(self.tz)
        if longest_gap(self.cron) < _SHORTEST:
            msg = f"{self.cron!r} comes more than once a second"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule of a kind, as a worker sends it to the database; `payload` is JSON."""

    name: str
    kind: str
    queue: str
    cron: str
    tz: str
    catch_up: str
    payload: str


def declaration(kind: str, queue: str, schedule: Schedule) -> Declaration:
    """Return the declaration of a kind's schedule.

    Raises:
        InvalidJob: a name or the payload is not valid.
    """
    return Declaration(
        name=check_name("schedule", schedule.name or kind),
        kind=check_name("kind", kind),
        queue=check_name("queue", queue),
        cron=schedule.cron,
        tz=schedule.tz,
        catch_up=schedule.catch_up,
        payload=encode_object("payload", schedule.payload, MAX_PAYLOAD_BYTES),
    )


class Plan(NamedTuple):
    """Slots to fire, the next slot, and whether any slot was left out."""

    slots: list[datetime]
    next_at: datetime
    left_out: bool


def plan(cron: str, tz: str, catch_up: str, next_at: datetime, now: datetime) -> Plan:
    """Decide which slots of a schedule to fire when its slot `next_at` has come."""
    next_at = next_at.astimezone(UTC)
    now = now.astimezone(UTC)
    lately = partial(_lately, cron, tz, now=now)

    # Without catching up, only slots of the last minute are fired.
    slots = lately(max(next_at, now - ON_TIME), most=MOST_MISSED)
    if catch_up == "all":
        slots = lately(next_at, most=MOST_MISSED)
    elif catch_up == "one" and not slots:
        slots = lately(next_at, most=1)

    left_out = not slots or slots[0] > next_at
    return Plan(slots=slots, next_at=next_slot(cron, tz, now), left_out=left_out)


def next_slot(cron: str, tz: str, after: datetime) -> datetime:
    """Return the first slot after an instant.

    Raises:
        ValueError: the cron expression is not valid, or the time zone is unknown.
    """
    return next(slots_after(cron, tz, after), LAST_INSTANT)


def slots_after(cron: str, tz: str, after: datetime) -> Iterator[datetime]:
    """Yield the slots in UTC, in order, endlessly.

    The slots end if none comes for fifty years.

    Raises:
        ValueError: the cron expression is not valid, or the time zone is unknown.
    """
    after = after.astimezone(UTC)  # sums in other zones are not real time
    zone = _zone(tz)
    every = interval(cron)
    from cronsim import CronSim  # noqa: PLC0415 # most kinds have no schedule

    if every is None:
        fields = " ".join(cron_fields(cron))
        runs = CronSim(fields, after.astimezone(zone))
    else:
        runs = _multiples(every, after)

    return _rising(runs, after)


def _rising(runs: Iterable[datetime], after: datetime) -> Iterator[datetime]:
    """Yield each instant once, in UTC; several times may fall into one gap."""
    for run in runs:
        slot = run.astimezone(UTC)
        if slot > after:
            after = slot
            yield slot


def _multiples(every: timedelta, after: datetime) -> Iterator[datetime]:
    slot = after - (after - _START) % every
    while True:
        slot += every
        yield slot


def _lately(
    cron: str, tz: str, since: datetime, now: datetime, most: int
) -> list[datetime]:
    """Return the latest slots from `since` to now, both included, up to a limit."""
    # Search back in growing spans, because `since` may be a year of minutes ago.
    span = ON_TIME
    while True:
        start = max(since, now - span)
        found = list(
            takewhile(lambda slot: slot <= now, slots_after(cron, tz, start - _INSTANT))
        )
        if start == since or len(found) >= most:
            return found[-most:]

        span *= 4


@lru_cache(64)
def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC

    from zoneinfo import ZoneInfo  # noqa: PLC0415 # most schedules use UTC

    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):  # no such zone; a path; a directory
        msg = (
            f"tz is {tz!r}; it must be the name of a time zone, e.g. Europe/Berlin,"
            " that is installed here: pip install tzdata"
        )
        raise ValueError(msg) from None
