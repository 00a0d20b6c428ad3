"""Quantiles from buckets, and the steps of a time axis."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from redrive.rules.marks import (
    Mark,
    change_before,
    is_about,
    lasting,
    may_cause,
    sentence,
)
from redrive.rules.times import HOUR, MINUTE, STEPS, period, quantile

NOW = datetime(2026, 3, 4, 12, 34, 56, tzinfo=UTC)
BOUNDS = (1, 2, 4)


@pytest.mark.parametrize(
    ("share", "counts", "seconds"),
    [
        (0.5, [0, 0, 0, 0], None),
        (0.5, [], None),
        (0.5, None, None),
        (0.5, [10, 0, 0, 0], 0.5),
        (0.5, [0, 10, 0, 0], 1.5),
        (0.95, [0, 0, 20, 0], 3.9),
        (0.5, [5, 0, 5, 0], 1.0),
        (0.99, [5, 0, 0, 5], 4.0),
        (1.0, [1, 1, 1, 0], 4.0),
    ],
)
def test_a_quantile_is_interpolated_in_its_bucket(
    share: float, counts: list[int] | None, seconds: float | None
) -> None:
    assert quantile(share, counts, BOUNDS) == (
        None if seconds is None else pytest.approx(seconds)
    )


@pytest.mark.parametrize(
    ("ago", "most", "step"),
    [
        (timedelta(hours=1), 60, MINUTE),
        (timedelta(hours=1), 40, 2 * MINUTE),
        (timedelta(hours=6), 36, 10 * MINUTE),
        (timedelta(hours=26), 2000, MINUTE),
        (timedelta(hours=27), 2000, HOUR),
        (timedelta(days=35), 300, 3 * HOUR),
        (timedelta(days=35), 3, 24 * HOUR),
        (timedelta(0), 10, MINUTE),
    ],
)
def test_a_period_has_the_shortest_step_that_fits(
    ago: timedelta, most: int, step: timedelta
) -> None:
    found = period(NOW - ago, NOW, NOW, most)

    assert found.step == step
    assert found.span == (60 if step >= HOUR else 1)
    assert NOW - ago - step < found.since <= NOW - ago
    starts = list(found.starts())
    assert starts[0] == found.since
    assert len(starts) <= most + 1 or step == STEPS[-1]
    assert all(at.minute % (step / MINUTE) == 0 for at in starts if step < HOUR)


def at(minutes: int, action: str, **fields: object) -> Mark:
    return Mark(NOW + minutes * MINUTE, "deploy", action, **fields)  # type: ignore[arg-type] # any


def test_the_change_before_is_the_last_one_that_may_be_a_cause() -> None:
    marks = [at(-90, "deploy"), at(-20, "pause"), at(3, "edit")]

    assert change_before(marks, NOW) == marks[1]
    assert change_before(reversed(marks), NOW) == marks[1]
    assert change_before(marks, NOW - 30 * MINUTE) == marks[0]
    assert change_before(marks, NOW - 120 * MINUTE) is None
    assert change_before(marks, NOW, within=10 * MINUTE) is None


def of(what: str, action: str, **fields: object) -> Mark:
    return Mark(NOW, what, action, **fields)  # type: ignore[arg-type] # any


@pytest.mark.parametrize(
    ("mark", "category", "versions", "expected"),
    [
        (of("deploy", "deploy", name="1.0.2"), "bug", ["1.0.2"], True),
        (of("deploy", "deploy", name="1.0.2"), "bug", ["1.0.1"], False),
        (of("deploy", "deploy", name="1.0.2"), "bug", [], True),
        (of("deploy", "deploy", name="1.0.2"), "auth", ["1.0.2"], False),
        (of("deploy", "deploy", name="1.0.2"), "transient", ["1.0.2"], False),
        (of("deploy", "deploy", name="1.0.2"), "throttled", ["1.0.2"], False),
        (of("breaker", "breaker open", kinds=["a.b"]), "transient", [], True),
        (of("breaker", "breaker open"), "transient", [], False),
        (of("breaker", "breaker half-open", kinds=["a.b"]), "bug", [], False),
        (of("limit", "set limit", name="bank"), "bug", [], False),
        (of("campaign", "end redrive", name="1"), "bug", [], False),
        (of("pause", "resume", name="mail"), "transient", [], True),
    ],
)
def test_a_change_may_be_a_cause_of_what_it_touches(
    mark: Mark, category: str, versions: list[str], expected: bool
) -> None:
    assert may_cause(mark, category, versions) is expected


@pytest.mark.parametrize(
    ("known", "queues", "kinds", "expected"),
    [
        ({}, ["mail"], ["mail.send"], True),
        ({"queues": ["mail"]}, ["mail"], [], True),
        ({"queues": ["mail"]}, ["bills"], [], False),
        ({"queues": ["mail"]}, [], ["any.kind"], True),
        ({"kinds": ["mail.*"]}, [], ["mail.send"], True),
        ({"kinds": ["mail.*"]}, [], ["mails.send"], False),
        ({"kinds": ["mail.send"]}, ["mail"], ["bill.send", "mail.send"], True),
        ({"kinds": ["mail.send"]}, ["mail"], ["bill.send"], False),
    ],
)
def test_a_change_of_others_is_left_out(
    known: dict[str, list[str]], queues: list[str], kinds: list[str], expected: bool
) -> None:
    assert is_about(of("breaker", "breaker open", **known), queues, kinds) is expected


def test_a_breaker_is_half_open_only_if_it_stays_so() -> None:
    states = ("open", "half-open", "open", "half-open")
    smtp = [of("breaker", f"breaker {state}", name="smtp") for state in states]
    bank = [of("breaker", f"breaker {state}", name="bank") for state in states[:3]]

    found = lasting([*smtp, *bank])

    assert [(m.name, m.action.split()[1]) for m in found] == [
        *(("smtp", state) for state in ("open", "open", "half-open")),
        *(("bank", state) for state in ("open", "open")),
    ]


def test_a_mark_has_a_sentence() -> None:
    assert sentence(at(0, "deploy", name="1.4.2")) == "version 1.4.2 started"
    assert sentence(at(0, "edit", actor="ada", n=1)) == "ada edited 1 dead letter"
    assert sentence(at(0, "edit", actor="ada", n=2)) == "ada edited 2 dead letters"
    assert sentence(at(0, "something new", actor="bo")) == "bo something new"


def test_a_period_that_begins_in_year_1_has_steps():
    zone = timezone(timedelta(hours=14))
    since = datetime(1, 1, 1, tzinfo=zone)

    assert period(since, NOW, NOW, 10).since.year == 2000
