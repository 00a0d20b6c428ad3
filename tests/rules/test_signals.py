"""Whatever a handler says, by a signal, an exception or a side effect: no secret is recorded."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import Cancel, GiveUp, Handlers, Job, Retry, Snooze
from redrive.rules.attempts.failure import describe
from redrive.signals import DependencyOpen, Signal
from redrive.testing import Outcome, run
from tests.rules.secrets_table import CANARY, CREDENTIALS, DISGUISED, TEXTS


class Mine(Signal):
    """A signal of the application's own."""


class MineToo(GiveUp):
    """One that is a GiveUp as well."""

    def __str__(self) -> str:
        return f"I give up: {self.args[0]}"


SIGNALS: dict[str, Callable[[str], BaseException]] = {
    "GiveUp": GiveUp,
    "Retry": Retry,
    "Retry after": lambda text: Retry(text, after=5),
    "Cancel": Cancel,
    "Snooze": lambda text: _with_cause(Snooze(5), text),
    "DependencyOpen": lambda text: DependencyOpen(text, 1.0),
    "Mine": Mine,
    "MineToo": MineToo,
    "two arguments": lambda text: _with(GiveUp("no"), "no", text),
    "RuntimeError": RuntimeError,
    "KeyError": KeyError,
    "a note": lambda text: _with_note(ValueError("no"), text),
    "a cause": lambda text: _with_cause(ValueError("no"), text),
    "a group": lambda text: ExceptionGroup("two", [GiveUp(text), ValueError(text)]),
    "SystemExit": SystemExit,
}
SECRET = "s3cr3t of the payl\u00f6ad"


def _with(error: BaseException, *arguments: object) -> BaseException:
    error.args = arguments
    return error


def _with_note(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


def _with_cause(error: BaseException, text: str) -> BaseException:
    error.__cause__ = RuntimeError(text)
    return error


def _raised(make: Callable[[str], BaseException], text: str) -> Outcome:
    jobs = Handlers()

    @jobs.handle("x")
    def handler(payload: dict[str, Any], job: Job) -> None:
        job.side_effect(text[:200], said=text)
        raise make(text)

    return run(jobs, "x", {"password": SECRET}, headers={"x-api-key": f"{SECRET}-too"})


@pytest.mark.parametrize("name", SIGNALS)
@settings(max_examples=12)
@given(
    shape=st.sampled_from(TEXTS + DISGUISED),
    known=st.sampled_from([SECRET, f"{SECRET}-too"]),
)
def test_nothing_that_a_handler_says_holds_a_secret(name: str, shape: str, known: str):
    """Every signal, with a secret by its name and one of the payload or the headers."""
    outcome = _raised(SIGNALS[name], f"{shape.format(CANARY)} and {known}")

    assert "canary" not in repr(outcome)
    assert "s3cr3t" not in repr(outcome)


@pytest.mark.parametrize("name", SIGNALS)
@settings(max_examples=5)
@given(secret=st.sampled_from(CREDENTIALS))
def test_nor_a_credential_by_its_form(name: str, secret: str):
    """Bearer tokens, cards, and what else is known by its looks."""
    assert secret not in repr(_raised(SIGNALS[name], f"no luck with {secret} here"))


def test_the_record_holds_none_in_causes_members_and_places():
    """All that is stored of it."""
    for make in SIGNALS.values():
        failure = describe(make(f"password={CANARY} {SECRET}"), "k", secrets={SECRET})
        assert "canary" not in json.dumps(failure.record())
        assert "s3cr3t" not in json.dumps(failure.record())


def test_what_a_death_does_to_its_key_is_one_of_two():
    """A typo would be the unintended one."""
    with pytest.raises(
        ValueError, match=r"on_death: must be continue or hold, not 'wait'"
    ):
        Handlers().handle("x", on_death="wait")  # type: ignore[arg-type]
