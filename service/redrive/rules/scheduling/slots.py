"""Slots of a schedule, by a cron expression and a time zone.

How changes of the clocks are borne is cronsim's rule, which is Debian's: an expression whose minute
or hour begins with `*` is an interval and goes by real time; any other names times of the day, of
which each comes once a day: at the end of the gap where it does not exist, the first time where it
exists twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from redrive.rules.payloads.limits import LAST_INSTANT, MAX_PAYLOAD_BYTES, check_name, encode_object
from redrive.rules.scheduling.schedules import cron_fields, interval, longest_gap

CatchUp = Literal["skip", "one", "all"]
CATCH_UP = ("skip", "one", "all")
ON_TIME = timedelta(minutes=1)
"""How late a slot may be and is not missed: workers that start again take their time."""

MOST_MISSED = 1000
"""Slots that `all` makes up for, the latest ones."""

_START = datetime(2000, 1, 1, tzinfo=UTC)
_INSTANT = timedelta(microseconds=1)
_SHORTEST = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a kind's jobs.

    Attributes:
        cron: five fields, `@daily` and its like, or `@every 90m`, which goes by real time from
            midnight of 2000, UTC.
        tz: the time zone in which the fields are read.
        catch_up: what becomes of slots that came while no worker was up, or that are more than a
            minute late for another reason: `skip` = nothing; `one` = one job for all of them, the
            latest; `all` = one for each, at most for the last 1,000.
        payload: of each job. It stays in the database as it stands here, so it holds no secret.
        name: as operators know it; the kind, unless it has several.

    Raises:
        ValueError: an attribute is wrong; the text names it.
    """

    cron: str
    tz: str = "UTC"
    catch_up: CatchUp = "one"
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
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
    """A schedule of a kind, as a worker tells the database; `payload` is JSON."""

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
        InvalidJob: a name is not valid, or the payload is none.
    """
    return Declaration(
        check_name("schedule", schedule.name or kind),
        check_name("kind", kind),
        check_name("queue", queue),
        schedule.cron,
        schedule.tz,
        schedule.catch_up,
        encode_object("payload", schedule.payload, MAX_PAYLOAD_BYTES),
    )


class Plan(NamedTuple):
    """The slots to fire, the first that is still to come, and whether any was left out."""

    slots: list[datetime]
    next_at: datetime
    left_out: bool


def plan(cron: str, tz: str, catch_up: str, next_at: datetime, now: datetime) -> Plan:
    """Decide what to fire of a schedule whose slot `next_at` has come."""
    next_at, now = next_at.astimezone(UTC), now.astimezone(UTC)
    slots = _lately(cron, tz, max(next_at, now - ON_TIME), now, MOST_MISSED)
    if catch_up == "all":
        slots = _lately(cron, tz, next_at, now, MOST_MISSED)
    elif catch_up == "one" and not slots:
        slots = _lately(cron, tz, next_at, now, 1)
    return Plan(slots, next_slot(cron, tz, now), not slots or slots[0] > next_at)


def next_slot(cron: str, tz: str, after: datetime) -> datetime:
    """The first slot after an instant.

    Raises:
        ValueError: it is no cron expression, or no time zone that is known here.
    """
    return next(slots_after(cron, tz, after), LAST_INSTANT)


def slots_after(cron: str, tz: str, after: datetime) -> Iterator[datetime]:
    """Yield the slots in UTC, in order, endlessly unless none comes for fifty years.

    Raises:
        ValueError: it is no cron expression, or no time zone that is known here.
    """
    after = after.astimezone(UTC)  # elsewhere sums of times are of those on the wall
    zone = _zone(tz)
    every = interval(cron)
    from cronsim import CronSim  # noqa: PLC0415 # most kinds have no schedule

    runs = (
        CronSim(" ".join(cron_fields(cron)), after.astimezone(zone))
        if every is None
        else _multiples(every, after)
    )
    return _rising(runs, after)


def _rising(runs: Iterable[datetime], after: datetime) -> Iterator[datetime]:
    """Each once, in UTC: several times of the day may be in one gap, and one may come twice."""
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


def _lately(cron: str, tz: str, since: datetime, now: datetime, most: int) -> list[datetime]:
    """The last slots from `since` up to now, both included: at most so many, the latest."""
    # From now back by ever longer spans: from `since` on it may be a year of minutes.
    span = ON_TIME
    while True:
        start = max(since, now - span)
        found = list(takewhile(lambda slot: slot <= now, slots_after(cron, tz, start - _INSTANT)))
        if start == since or len(found) >= most:
            return found[-most:]
        span *= 4


@lru_cache(64)
def _zone(tz: str) -> tzinfo:
    if tz == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 # most need none

    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):  # what is none, a path, a folder
        msg = f"tz is {tz!r}; it must be the name of a time zone, e.g. Europe/Berlin"
        raise ValueError(msg) from None
