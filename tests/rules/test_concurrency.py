"""Names of limits, and how a rate is written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Handlers
from redrive.errors import InvalidJob
from redrive.rules.concurrency import check_templates, of_rate, per_second


@pytest.mark.parametrize(
    "template",
    ["emails", "customer:{customer_id}", "a:{order.shop}-{tenant}", "a.b_c-d:x"],
)
def test_a_handler_may_have_such_a_limit(template: str) -> None:
    assert check_templates([template]) == (template,)


@pytest.mark.parametrize(
    "templates",
    [
        "emails",
        ["1emails"],
        ["a:"],
        ["{tenant}"],
        ["a:{"],
        ["a:{}"],
        ["a:{a..b}"],
        ["a:*"],
        ["a"] * 9,
    ],
)
def test_any_other_is_refused_when_it_is_declared(templates: Any) -> None:
    with pytest.raises(InvalidJob, match="limits: "):
        Handlers().handle("a.b", limits=templates)


@pytest.mark.parametrize(
    ("text", "jobs"),
    [("20/1m", 1 / 3), ("100/s", 100.0), ("5/24h", 5 / 86_400), ("0.5/s", 0.5)],
)
def test_a_rate_is_jobs_in_a_time(text: str, jobs: float) -> None:
    assert per_second(text) == pytest.approx(jobs)


@pytest.mark.parametrize(
    "text", ["", "20", "20/", "/s", "0/s", "1/0s", "-1/s", "1e9/s", "9999999/s"]
)
def test_a_rate_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        per_second(text)


@given(st.integers(1, 9999), st.sampled_from(["s", "m", "h", "d"]))
def test_a_rate_is_shown_as_it_could_have_been_written(number: int, unit: str) -> None:
    rate = per_second(f"{number}/{unit}")

    assert per_second(of_rate(rate)) == pytest.approx(rate)


def test_a_rate_of_no_whole_number_is_shown_by_the_minute() -> None:
    assert of_rate(0.0123456) == "0.741/m"
