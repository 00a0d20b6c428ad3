"""The record of a failure survives whatever the exception is, stays small, and holds no secret."""

import json
import random
import string
import sys
import time
import uuid
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from redrive.rules.attempts.failure import (
    MAX_CAUSES,
    MAX_FRAMES,
    MAX_MESSAGE,
    clean,
    describe,
    made_up,
    normalise,
    safe_text,
)
from redrive.rules.model import Category, Failure

SECRET = "hunter2-canary"


class RaisingText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class ExitingText(Exception):
    def __str__(self) -> str:
        sys.exit(3)


class NoText(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]


class RecursingText(Exception):
    def __str__(self) -> str:
        return str(self)


class OddText(Exception):
    class Text(str):
        def __getitem__(self, _: object) -> str:
            raise KeyboardInterrupt

    def __str__(self) -> str:
        return OddText.Text("odd")


class RaisingProperties(Exception):
    @property
    def diag(self) -> object:
        raise SystemExit

    @property
    def response(self) -> object:
        raise ValueError

    status_code = property(lambda self: 1 / 0)
    sqlstate = property(lambda self: [][0])


class OddAnswers(Exception):
    response = type(
        "R", (), {"status_code": "404", "headers": {"Retry-After": "soon"}}
    )()
    sqlstate = 40001
    errors = 7
    status = 10**400


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__()
        self.lock = object()

    def __reduce__(self) -> str:
        raise TypeError


class EverythingRaises(Exception):
    def __getattribute__(self, name: str) -> object:
        raise MemoryError(name)


def chain(length: int) -> BaseException:
    error: BaseException = ValueError("the first")
    for n in range(length):
        outer = ValueError(f"level {n}")
        outer.__cause__ = error
        error = outer
    return error


def cycle() -> BaseException:
    one, two, three = ValueError("one"), KeyError("two"), OSError("three")
    one.__cause__, two.__context__, three.__cause__ = two, three, one
    return one


def group() -> BaseException:
    return ExceptionGroup("many", [ValueError(f"member {n}") for n in range(2_000)])


def nested_groups() -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(300):
        error = ExceptionGroup("outer", [error])
    return error


def long_name() -> BaseException:
    return type("N" * 10_000, (Exception,), {"__module__": "m" * 10_000})("text")


def recursion() -> BaseException:
    def deeper() -> None:
        deeper()

    try:
        deeper()
    except RecursionError as error:
        return error
    raise AssertionError


CATALOGUE = {
    "__str__ raises": lambda: RaisingText(),
    "__str__ exits": lambda: ExitingText(),
    "__str__ returns None": lambda: NoText(),
    "__str__ recurses": lambda: RecursingText(),
    "__str__ returns an odd str": lambda: OddText(),
    "properties raise": lambda: RaisingProperties("x"),
    "odd answers": lambda: OddAnswers("x"),
    "cannot be pickled": lambda: Unpicklable(1, 2),
    "every attribute raises": lambda: EverythingRaises("x"),
    "20 MB": lambda: ValueError("x" * 20_000_000),
    "20 MB of quotes": lambda: ValueError("'" * 20_000_000),
    "chain of 5000": lambda: chain(5_000),
    "cycle": cycle,
    "group of 2000": group,
    "groups 300 deep": nested_groups,
    "NUL": lambda: ValueError("a\0b"),
    "surrogate": lambda: ValueError("a\ud800b"),
    "ANSI": lambda: ValueError("\x1b[2J\x1b]0;title\x07\r\nline"),
    "bytes": lambda: ValueError(b"\xff\xfe"),
    "long name": long_name,
    "no arguments": lambda: Exception(),
    "recursion": recursion,
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
    "SystemExit": lambda: SystemExit(object()),
    "module is no text": lambda: type("E", (Exception,), {"__module__": 7})("x"),
}


@pytest.mark.parametrize("name", CATALOGUE)
def test_whatever_was_raised_can_be_stored_small_and_soon(name: str):
    error = CATALOGUE[name]()
    began = time.process_time()
    failure = describe(error, "kind")
    took = time.process_time() - began
    text = json.dumps(failure.record(), allow_nan=False)

    assert took < 1.5
    assert len(text) < 120_000
    assert "\\u0000" not in text
    assert "\\ud800" not in text
    assert "\\u001b" not in text
    assert len(failure.message) <= MAX_MESSAGE + 40
    assert len(failure.error_class) < 300
    assert len(failure.fingerprint) == 16
    assert failure.category in Category


def test_what_can_be_said_is_said():
    said = describe(RaisingText(), "kind")
    exiting = describe(ExitingText(), "kind")

    assert (said.error_class.rpartition(".")[2], said.message) == (
        "RaisingText",
        "<its __str__ raised>",
    )
    assert exiting.message == "<its __str__ raised>"
    assert describe(EverythingRaises("x"), "kind").error_class == "UnprintableError"
    assert safe_text(NoText()).startswith("<its __str__")


def test_causes_groups_and_frames_are_bounded_but_there():
    deep = describe(chain(5_000), "kind")
    wide = describe(group(), "kind")
    around = describe(cycle(), "kind")
    stack = describe(recursion(), "kind")

    assert [len(f.detail["causes"]) for f in (deep, wide)] == [MAX_CAUSES, MAX_CAUSES]
    assert [c["error_class"] for c in around.detail["causes"]] == [
        "KeyError",
        "OSError",
    ]
    assert 1 <= len(stack.detail["stack"]) <= MAX_FRAMES


def _raised(act) -> BaseException:
    try:
        act()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


class Card(BaseModel):
    number: int
    holder: SecretStr


def sql_parameters() -> BaseException:
    """As SQLAlchemy wraps a driver's error: the statement, the values, and the server's DETAIL."""
    original = psycopg.errors.UniqueViolation(
        f"duplicate key\nDETAIL:  Key (email)=({SECRET}) already exists."
    )
    return sqlalchemy.exc.IntegrityError(
        "insert into users values (%(a)s)", {"a": SECRET}, original
    )


def asyncpg_detail() -> BaseException:
    return asyncpg.exceptions.PostgresError.new(
        {
            "S": "ERROR",
            "C": "23505",
            "M": 'duplicate key value violates unique constraint "users_email_key"',
            "D": f"Key (email)=({SECRET}) already exists.",
            "n": "users_email_key",
        }
    )


LEAKS = {
    "pydantic": lambda: _raised(
        lambda: Card.model_validate({"number": SECRET, "holder": [SECRET]})
    ),
    "pydantic json": lambda: _raised(
        lambda: Card.model_validate_json(json.dumps({"number": SECRET}))
    ),
    "sqlalchemy": sql_parameters,
    "asyncpg": asyncpg_detail,
}


@pytest.mark.parametrize("name", LEAKS)
def test_values_that_drivers_and_validators_put_into_their_text_are_not_recorded(
    name: str,
):
    error = LEAKS[name]()
    wrapper = RuntimeError("while saving")
    wrapper.__cause__ = error

    for failure in (describe(error, "kind"), describe(wrapper, "kind")):
        assert SECRET not in json.dumps(failure.record())


def test_locals_and_arguments_are_not_recorded():
    def handler(password: str) -> None:
        token = password * 2
        raise ValueError("cannot sign in")

    failure = describe(_raised(lambda: handler(SECRET)), "kind", secrets={SECRET})

    assert SECRET not in json.dumps(failure.record())


MESSAGES = [
    lambda dice: f"order {dice.randint(1, 10**9)} is in an odd state",
    lambda dice: f"user {uuid.UUID(int=dice.getrandbits(128))} not found",
    lambda dice: (
        f"cannot reach https://host-{dice.randint(1, 99)}.example/{dice.random()}"
    ),
    lambda dice: (
        f"no such file: '/data/{dice.getrandbits(64):x}/{dice.randint(1, 999)}.csv'"
    ),
    lambda dice: (
        f"object at 0x{dice.getrandbits(48):x} is locked by {dice.getrandbits(32):08x}"
    ),
]


def test_ten_thousand_failures_of_five_causes_make_five_groups():
    dice = random.Random(7)
    prints = {
        (n, describe(RuntimeError(message(dice)), "kind").fingerprint)
        for n, message in enumerate(MESSAGES)
        for _ in range(2_000)
    }

    assert len(prints) == len(MESSAGES)
    assert len({fingerprint for _, fingerprint in prints}) == len(MESSAGES)


def test_what_differs_in_kind_class_place_or_words_is_another_group():
    def here() -> None:
        raise RuntimeError("the provider said no")

    def there() -> None:
        raise RuntimeError("the provider said no")

    prints = [
        describe(RuntimeError("the provider said no"), "a").fingerprint,
        describe(RuntimeError("the provider said no"), "b").fingerprint,
        describe(LookupError("the provider said no"), "a").fingerprint,
        describe(RuntimeError("the provider said maybe"), "a").fingerprint,
        describe(_raised(here), "a").fingerprint,
        describe(_raised(there), "a").fingerprint,
    ]

    assert len(set(prints)) == len(prints)


@given(st.text(max_size=600))
def test_normalising_ends_soon_and_twice_is_once(text: str):
    began = time.process_time()
    once = normalise(text)

    assert time.process_time() - began < 0.2
    assert (
        describe(ValueError(text), "k").fingerprint
        == describe(ValueError(text), "k").fingerprint
    )
    assert isinstance(once, str)


@pytest.mark.parametrize(
    "text",
    [
        "'" * 500,
        "a" * 500,
        "/" * 500,
        "0" * 500,
        "a@" * 250,
        "x://" * 125,
        "-" * 500,
        "a1" * 250,
    ],
)
def test_normalising_is_not_slow_for_texts_made_to_be(text: str):
    began = time.process_time()
    normalise(text)

    assert time.process_time() - began < 0.2


@given(st.text(), st.integers(1, 50))
def test_clean_text_is_bounded_and_free_of_control_characters(text: str, limit: int):
    cleaned = clean(text, limit)

    assert len(cleaned) <= limit + 40
    assert all(c >= " " or c in "\t\n" for c in cleaned)
    cleaned.encode()


def test_a_made_up_failure_is_a_record_too():
    failure = made_up(
        "RunnerLost",
        "its process died: signal 9\0",
        Category.LOST,
        "kind",
        exit="signal 9",
    )

    assert isinstance(failure, Failure)
    assert failure.record()["detail"] == {"exit": "signal 9"}
    assert "\0" not in failure.message


NUMBERS = [
    "3",
    "-3",
    "+3",
    "3.5",
    ".5",
    "1e-05",
    "-2.5E+10",
    "1,234.50",
    "12345678.5",
    "3kg",
    "3.5kg",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_a_number_whatever_its_form(number: str):
    """2,000 failures of four causes made ten groups."""
    assert normalise(f"of {number} in stock ({number}) 2026-11-22") == (
        "of <n> in stock (<n>) <n>-<n>-<n>"
    )


@given(
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30)
)
def test_every_number_that_python_writes_is_one_placeholder(number: float):
    for text in (
        str(number),
        repr(number),
        f"{number:,}",
        f"{number:e}",
        f"{number:.2f}",
    ):
        assert normalise(f"expected {text}, got less") == "expected <n>, got less"


def test_a_deep_stack_of_a_library_keeps_the_frames_of_the_application() -> None:
    def handler() -> None:
        deep: dict[str, Any] = {"__name__": "driver"}
        source = "def call(n):\n    return call(n - 1) if n else 1 / 0\n"
        exec(compile(source, "<driver>", "exec"), deep)  # no own frames
        deep["call"](MAX_FRAMES * 2)

    with pytest.raises(ZeroDivisionError) as caught:
        handler()

    stack = describe(caught.value, "order.book").detail["stack"]
    own = [frame["function"] for frame in stack if frame["own"]]
    assert own[-1] == "handler"
    assert len(stack) <= MAX_FRAMES
    assert stack[-1]["function"] == "call"


@pytest.mark.parametrize("letter", string.ascii_lowercase)
def test_outer_frames_are_kept_whatever_their_module_is_called(letter: str) -> None:
    scope: dict[str, Any] = {"__name__": f"{letter}hop.jobs"}
    source = "def book():\n    check()\n\ndef check():\n    1 / 0\n"
    exec(compile(source, "/srv/app/jobs.py", "exec"), scope)
    with pytest.raises(ZeroDivisionError) as caught:
        scope["book"]()
    caught.value.__traceback__ = caught.value.__traceback__.tb_next

    stack = describe(caught.value, "order.book").detail["stack"]
    assert [frame["function"] for frame in stack] == ["book", "check"]
