"""temporalio/sdk-python #333, #393; collectiveidea/delayed_job #790.

A handler raises what is no `Exception`, a group, or one whose text no database can store.
The record names it, the worker works on, and a group with one exception counts as that one.
"""

import asyncio
from typing import Any

import pytest

from redrive import Cancel, GiveUp, Handlers, Retry
from redrive.testing import run


class Odd(BaseException):
    pass


class Argumentative(Exception):
    def __init__(self, one: int, *, two: int) -> None:
        super().__init__(one, two)


LOST = ConnectionResetError("reset by peer")
RAISED: dict[str, BaseException] = {
    "base": Odd("abc"),
    "arguments": Argumentative(1, two=2),
    "nul": ValueError("a\0b"),
    "surrogates": ValueError("a\udcffb \ud800"),
    "bytes": ValueError(b"\xff\xfe"),
    "long": ValueError("x" * 5_000_000),
}


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_was_raised_is_on_record(name: str, is_async: bool) -> None:
    jobs = Handlers()
    error = RAISED[name]

    if is_async:

        @jobs.handle("a.b")
        async def fail(payload: dict[str, Any]) -> None:
            raise error from None

    else:

        @jobs.handle("a.b")
        def fail_plainly(payload: dict[str, Any]) -> None:
            raise error from None

    outcome = run(jobs, "a.b", {})
    assert outcome.outcome in {"retried", "dead"}
    assert outcome.error_class.endswith(type(error).__name__)
    assert "\0" not in outcome.message
    outcome.message.encode()


@pytest.mark.parametrize(
    ("group", "category"),
    [
        (ExceptionGroup("one", [LOST]), "transient"),
        (ExceptionGroup("nested", [ExceptionGroup("in", [LOST])]), "transient"),
        (ExceptionGroup("two", [LOST, TypeError("bug")]), "other"),
    ],
    ids=lambda value: value.message if isinstance(value, ExceptionGroup) else "",
)
def test_a_group_with_one_exception_counts_as_that_one(
    group: ExceptionGroup[Exception], category: str
) -> None:
    jobs = Handlers()

    @jobs.handle("a.b")
    async def fail(payload: dict[str, Any]) -> None:
        raise group

    outcome = run(jobs, "a.b", {})
    assert outcome.category == category


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (GiveUp("no"), ("dead", "gave_up")),
        (Retry(after=60), ("retried", None)),
        (Cancel("no"), ("cancelled", None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_signal_reaches_redrive_from_a_task_of_a_group(
    signal: Exception, expected: tuple[str, str | None]
) -> None:
    jobs = Handlers()

    async def work() -> None:
        raise signal

    @jobs.handle("a.b")
    async def call(payload: dict[str, Any]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work())

    outcome = run(jobs, "a.b", {})
    assert (outcome.outcome, outcome.reason) == expected
