"""When schedules are due: slots, changes of the clocks, what was missed, and what is refused."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from redrive import Handlers, InvalidJob, Job, Schedule
from redrive.rules.slots import MOST_MISSED, next_slot, plan, slots_after
from redrive.testing import run, run_scheduled, slots

BERLIN = "Europe/Berlin"
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
"""In Berlin there is no 02:00 to 03:00 on the one, and twice that on the other."""


def of_day(cron: str, day: datetime, tz: str = BERLIN) -> list[str]:
    """The slots of a day there, by the clock on the wall with its offset from UTC."""
    zone = ZoneInfo(tz)
    begin = day.replace(tzinfo=zone)
    end = (day + DAY).replace(tzinfo=zone)
    found = takewhile(lambda slot: slot < end, slots_after(cron, tz, begin - MINUTE))
    return [slot.astimezone(zone).strftime("%H:%M%z")[:-2] for slot in found]


@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        # a time of the day comes once a day
        ("30 2 * * *", ["03:00+02"], ["02:30+02"]),
        ("0 7 * * *", ["07:00+02"], ["07:00+01"]),
        # several in the gap come once together, also with what stands at its end
        ("0,30 2 * * *", ["03:00+02"], ["02:00+02", "02:30+02"]),
        ("30 2,3 * * *", ["03:00+02", "03:30+02"], ["02:30+02", "03:30+01"]),
        ("0 2,3 * * *", ["03:00+02"], ["02:00+02", "03:00+01"]),
        # an interval goes by real time
        (
            "0 */6 * * *",
            ["00:00+01", "06:00+02", "12:00+02", "18:00+02"],
            ["00:00+02", "06:00+01", "12:00+01", "18:00+01"],
        ),
    ],
)
def test_the_clocks_change(cron: str, spring: list[str], autumn: list[str]):
    assert of_day(cron, SPRING) == spring
    assert of_day(cron, AUTUMN) == autumn


def test_an_interval_goes_on_through_a_change_of_the_clocks():
    for day, hours in ((SPRING, 23), (AUTUMN, 25)):
        assert len(of_day("*/15 * * * *", day)) == 4 * hours
        assert len(of_day("0 * * * *", day)) == hours
        assert len(of_day("@every 30m", day)) == 2 * hours


def test_the_second_of_two_equal_hours_fires_nothing_again():
    """Asked within it, too: a worker that works out the next slot then must not go back."""
    second = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time

    assert next_slot("30 2 * * *", BERLIN, second) == datetime(
        2026, 10, 26, 1, 30, tzinfo=UTC
    )
    assert next_slot("0 3 * * *", BERLIN, second) == datetime(
        2026, 10, 25, 2, 0, tzinfo=UTC
    )


FIELDS = st.sampled_from(
    ["*", "*/2", "*/7", "1", "2", "2,3", "0-3", "30", "0,30", "59"]
)
HOURS = st.sampled_from(["*", "*/2", "*/7", "0", "1", "2", "3", "2,3", "0-3", "23"])
INSTANTS = st.sampled_from([SPRING, AUTUMN]).flatmap(
    lambda day: st.integers(-90_000, 120_000).map(lambda s: day + timedelta(seconds=s))
)


@settings(max_examples=60)
@given(
    minute=FIELDS,
    hour=HOURS,
    tz=st.sampled_from(
        [BERLIN, "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
    ),
    since=INSTANTS,
    later=st.integers(0, 200_000),
)
def test_slots_are_the_same_from_wherever_one_looks(
    minute: str, hour: str, tz: str, since: datetime, later: int
):
    """Whoever works out what comes next finds what another one would: none twice, none missed."""
    cron, middle = f"{minute} {hour} * * *", since + timedelta(seconds=later)
    found = list(islice(slots_after(cron, tz, since), 100))

    assert all(a < b for a, b in pairwise(found))
    assert found[0] > since
    if found[-1] > middle:
        rest = [slot for slot in found if slot > middle]
        assert list(islice(slots_after(cron, tz, middle), len(rest))) == rest


# ---------------------------------------------------------------------- what was missed

NOW = datetime(2026, 11, 22, 12, 0, 30, tzinfo=UTC)


def ago(**since: float) -> datetime:
    return NOW.replace(second=0) - timedelta(**since)


@pytest.mark.parametrize("catch_up", ["skip", "one", "all"])
def test_what_is_a_little_late_is_not_missed(catch_up: str):
    assert plan("0 12 * * *", "UTC", catch_up, ago(), NOW) == (
        [ago()],
        ago(days=-1),
        False,
    )


@pytest.mark.parametrize(
    ("catch_up", "slots"),
    [
        ("skip", []),
        ("one", [ago(minutes=30)]),
        ("all", [ago(hours=2, minutes=30), ago(hours=1, minutes=30), ago(minutes=30)]),
    ],
)
def test_what_was_missed_is_made_up_for_as_the_schedule_says(
    catch_up: str, slots: list[datetime]
):
    found = plan("30 * * * *", "UTC", catch_up, ago(hours=2, minutes=30), NOW)

    assert found == (slots, ago(minutes=-30), catch_up != "all")


def test_one_stands_for_all_when_one_is_on_time():
    assert plan("* * * * *", "UTC", "one", ago(days=9), NOW).slots == [ago()]


@pytest.mark.parametrize("years", [0.1, 9])
def test_all_is_bounded_and_says_so(years: float):
    """However long it was: it looks back from now, not forward through millions of minutes."""
    found = plan("* * * * *", "UTC", "all", ago(days=365 * years), NOW)

    assert found.slots == [ago(minutes=n) for n in range(MOST_MISSED - 1, -1, -1)]
    assert found.left_out


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"cron": "0 7 * *"},
            "'0 7 .* .*' is not a cron expression: it must have 5 fields",
        ),
        ({"cron": "0 7 * * * *"}, "must have 5 fields"),
        ({"cron": "0 25 * * *"}, "is not a cron expression: Bad hour"),
        ({"cron": "0 0 31 2 *"}, "is not a cron expression: Bad day-of-month"),
        ({"cron": "@every 0s"}, "more than once a second"),
        (
            {"cron": "0 7 * * *", "tz": "Berlin"},
            "tz is 'Berlin'; it must be .* Europe/Berlin",
        ),
        ({"cron": "0 7 * * *", "tz": "Europe"}, "tz is 'Europe'"),
        ({"cron": "0 7 * * *", "tz": "/etc/localtime"}, "tz is '/etc/localtime'"),
        (
            {"cron": "0 7 * * *", "catch_up": "none"},
            "catch_up is 'none'; .* skip, one, all",
        ),
    ],
)
def test_a_bad_schedule_is_refused_where_it_is_written(
    arguments: dict[str, str], message: str
):
    with pytest.raises(ValueError, match=message):
        Schedule(**arguments)  # type: ignore[arg-type] # what is wrong is tried


class Report(BaseModel):
    days: int


def test_a_payload_that_the_handler_does_not_take_is_refused_by_field_without_its_value():
    jobs = Handlers()
    wrong = Schedule("@daily", payload={"days": "hunter2"})

    with pytest.raises(
        ValueError, match=r"'report'.* schedule 'report': days: int_parsing$"
    ):

        @jobs.handle("report", schedule=wrong)
        def report(payload: Report) -> None: ...


def test_two_schedules_need_two_names():
    jobs, more = Handlers(), Handlers()

    @jobs.handle(
        "report", schedule=[Schedule("@daily"), Schedule("@weekly", name="weekly")]
    )
    @more.handle("other", schedule=Schedule("@daily", name="weekly"))
    def report(payload: dict[str, int]) -> None: ...

    assert {name: (d.kind, d.cron) for name, d in jobs.schedules.items()} == {
        "report": ("report", "@daily"),
        "weekly": ("report", "@weekly"),
    }
    with pytest.raises(ValueError, match="two schedules 'report'; give each a name"):
        jobs.schedule("report", Schedule("@hourly"))
    with pytest.raises(ValueError, match="two schedules 'weekly'"):
        jobs.include(more)
    with pytest.raises(ValueError, match="schedule of 'nothing' needs a handler"):
        jobs.schedule("nothing", Schedule("@hourly"))
    with pytest.raises(InvalidJob, match="schedule: must match"):
        jobs.schedule("report", Schedule("@hourly", name="Not A Name"))


# ---------------------------------------------------------------------- functions by the clock


def test_every_takes_functions_with_and_without_a_payload():
    jobs, seen = Handlers(), list[object]()

    @jobs.every("@daily")
    def nothing() -> None:
        seen.append("nothing")

    @jobs.every("@daily", queue="reports")
    async def defaults(days: int = 3) -> None:
        seen.append(days)

    @jobs.every("@daily", kind="report.daily", name="mornings", tz=BERLIN)
    def only_the_job(job: Job) -> None:
        seen.append(job.scheduled_for)

    @jobs.every("@daily")
    def both(payload: dict[str, int], job: Job) -> None:
        seen.extend([payload, job.kind])

    slot = {"schedule": "mornings", "scheduled_for": "2026-11-22T06:00:00Z"}
    for kind, headers in (
        ("nothing", {}),
        ("defaults", {}),
        ("report.daily", slot),
        ("both", {}),
    ):
        assert run(jobs, kind, headers=headers).outcome == "completed"

    assert seen == ["nothing", 3, datetime(2026, 11, 22, 6, tzinfo=UTC), {}, "both"]
    assert [(d.name, d.kind, d.queue, d.tz) for d in jobs.schedules.values()] == [
        ("nothing", "nothing", "default", "UTC"),
        ("defaults", "defaults", "reports", "UTC"),
        ("mornings", "report.daily", "default", BERLIN),
        ("both", "both", "default", "UTC"),
    ]


@pytest.mark.parametrize("text", [None, 7, "soon", ""])
def test_a_header_of_that_name_that_is_no_time_is_none(text: object):
    job = Job(id=1, kind="a", deadline=NOW, headers={"scheduled_for": text})

    assert job.scheduled_for is None


def test_a_schedule_can_be_tried_in_a_test():
    jobs, seen = Handlers(), list[object]()

    @jobs.handle(
        "report", schedule=Schedule("0 7 * * 1-5", BERLIN, payload={"days": 1})
    )
    def report(payload: dict[str, int], job: Job) -> None:
        seen.extend([payload, job.scheduled_for])

    friday_noon = datetime(2026, 3, 27, 12, tzinfo=UTC)
    monday = datetime(2026, 3, 30, 5, tzinfo=UTC)
    assert slots(jobs, "report", friday_noon, 2) == [monday, monday + DAY]
    assert run_scheduled(jobs, "report", monday).outcome == "completed"
    assert seen == [{"days": 1}, monday]
    with pytest.raises(
        LookupError, match="there is no schedule 'other'; there are: report"
    ):
        slots(jobs, "other", monday)
