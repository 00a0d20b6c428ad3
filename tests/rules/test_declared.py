"""What a handler cannot be declared with is refused where it stands, in words that name it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redrive import Handlers


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"policy": {"timeout": 30}}, "policy must be a Policy, not {'timeout': 30}"),
        ({"depends_on": "smtp"}, "depends_on must be a list of names, not 'smtp'"),
        ({"secret": "password"}, "secret must be a list of names, not 'password'"),
        ({"version": "2"}, "version must be a whole number, not '2'"),
        ({"upgrade": []}, "upgrade must be functions by version"),
        ({"on_expired": "late"}, "on_expired must be a function, not 'late'"),
        ({"on_cancelled": "late"}, "on_cancelled must be a function"),
        (
            {"schedule": "@daily"},
            "schedule must be a Schedule, or a list of them, not '@daily'",
        ),
        ({"schedule": ["@daily"]}, "schedule must be a Schedule, or a list of them"),
        (
            {"keep_result": "1d"},
            "keep_result must be a timedelta or a number of seconds, not '1d'",
        ),
        ({"sample": "no"}, "sample must be True or False, not 'no'"),
        ({"heal": True}, "heal must be a Heal, not True"),
        ({"validate": "yes"}, "validate must be a function"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_its_field(
    wrong: dict[str, Any], said: str
):
    """A text alone was read by its letters: `secret="password"` hid nothing."""
    with pytest.raises(ValueError) as refused:
        Handlers().handle("mail.send", **wrong)

    assert str(refused.value).startswith(f"mail.send: {said}")


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": "5"}, {"window": "10"}, {"cooldown": None}, {"threshold": 0}],
)
def test_a_breaker_of_what_is_no_number_is_refused(wrong: dict[str, Any]):
    with pytest.raises(
        ValueError, match=r"breaker\('smtp'\): .* must be numbers above 0"
    ):
        Handlers().breaker("smtp", **wrong)


def test_two_handlers_of_a_kind_are_named_by_module_and_line():
    jobs = Handlers()

    @jobs.handle("report")
    def report(payload: dict[str, Any]) -> None: ...

    def send() -> None: ...

    first = report.__wrapped__.__code__.co_firstlineno
    with pytest.raises(ValueError, match="has two handlers") as refused:
        jobs.every("@daily", kind="report")(send)

    name, here = (
        test_two_handlers_of_a_kind_are_named_by_module_and_line.__name__,
        __name__,
    )
    assert str(refused.value) == (
        f"kind 'report' has two handlers: {here}.{name}.<locals>.report (line {first}),"
        f" and {here}.{name}.<locals>.send (line {send.__code__.co_firstlineno})"
    )


async def asynchronous(payload: dict[str, Any]) -> AsyncIterator[int]:
    yield 1


def generator(payload: dict[str, Any]) -> Iterator[int]:
    yield 1


class Yielding:
    """A function that is an object."""

    def __call__(self, payload: dict[str, Any]) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize("function", [asynchronous, generator, Yielding()])
def test_a_function_whose_call_would_run_nothing_is_refused(function: Any):
    jobs = Handlers()
    said = r"must not have `yield`"

    with pytest.raises(ValueError, match=f"the handler of 'mail' {said}"):
        jobs.handle("mail")(function)
    with pytest.raises(ValueError, match=f"mail: on_expired {said}"):
        jobs.handle("mail", on_expired=function)
    with pytest.raises(ValueError, match=f"on_dead {said}"):
        Handlers(on_dead=function)


def test_a_schedule_whose_function_would_run_nothing_is_refused():
    jobs = Handlers()

    with pytest.raises(ValueError, match=r"the handler of 'report' must not have"):

        @jobs.every("@daily")
        def report() -> Iterator[int]:
            yield 1
