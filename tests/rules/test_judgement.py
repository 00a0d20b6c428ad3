"""The category of a failure and what follows from it: every line of the tables, and the limits."""

import errno
import json
import smtplib
import socket
import ssl
import urllib.error
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import psycopg
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from redrive import Cancel, GiveUp, Retry, Rule, Snooze
from redrive.rules.attempts import settlement
from redrive.rules.attempts.categories import Evidence, category_of, evidence_of, judge
from redrive.rules.attempts.failure import MAX_RETRY_AFTER, describe, read_retry_after
from redrive.rules.attempts.known_failures import BY_CLASS, BY_SQLSTATE, BY_STATUS
from redrive.rules.attempts.policy import (
    Policy,
    decide,
    decide_signal,
    delay,
    why_not_started,
)
from redrive.rules.attempts.releases import put_off
from redrive.rules.model import Category, Claimed, Failure, Reason
from redrive.signals import LONGEST_WAIT, DependencyOpen

NOTHING = Evidence((), "")


class Model(BaseModel):
    n: int


def _validation_error() -> ValidationError:
    try:
        Model.model_validate_json('{"n": "x"}')
    except ValidationError as error:
        return error
    raise AssertionError


def _answered(status: int, **headers: str) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://shop.example/")
    response = httpx.Response(
        status,
        headers={k.replace("_", "-"): v for k, v in headers.items()},
        request=request,
    )
    return httpx.HTTPStatusError(f"{status}", request=request, response=response)


def _answered_requests(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status  # which makes it false
    return requests.HTTPError(f"{status}", response=response)


def _category(error: BaseException) -> Category:
    return describe(error, "k").category


# ---------------------------------------------------------------------- the tables


@pytest.mark.parametrize(("name", "expected"), BY_CLASS.items())
def test_a_class_of_the_table_has_its_category_whatever_inherits_from_it(
    name: str, expected: Category
):
    assert category_of(Evidence((name, "builtins.Exception"), "")) is expected
    assert (
        category_of(Evidence(("app.Its", name, "builtins.Exception"), "")) is expected
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [*BY_STATUS.items(), *((s, Category.TRANSIENT) for s in range(500, 600))],
)
def test_a_status_of_the_table_has_its_category_whatever_the_class(
    status: int, expected: Category
):
    assert category_of(Evidence(("builtins.TypeError",), "", status)) is expected


@pytest.mark.parametrize("status", [100, 200, 302, 402, 405, 409, 418, 451])
def test_a_status_that_says_nothing_leaves_it_to_the_class(status: int):
    assert category_of(Evidence((), "", status)) is Category.OTHER
    assert category_of(Evidence(("builtins.TypeError",), "", status)) is Category.BUG


@pytest.mark.parametrize(("code", "expected"), BY_SQLSTATE.items())
def test_a_sqlstate_goes_by_itself_or_its_class(code: str, expected: Category):
    assert category_of(Evidence((), "", sqlstate=code.ljust(5, "9"))) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("40001", "transient"),
        ("40P01", "transient"),
        ("23505", "invalid"),
        ("22P02", "invalid"),
        ("42P01", "bug"),
        ("42501", "auth"),
        ("25006", "transient"),
        ("25001", "other"),
        ("57P01", "transient"),
        ("XX000", "other"),
    ],
)
def test_sqlstates_that_people_meet(code: str, expected: str):
    error = psycopg.errors.lookup(code)()
    assert _category(error) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (_validation_error(), "invalid"),
        (json.JSONDecodeError("no", "{", 0), "invalid"),
        (TimeoutError(), "transient"),
        (ConnectionResetError(), "transient"),
        (BrokenPipeError(), "transient"),
        (socket.gaierror(), "transient"),
        (ssl.SSLError(), "transient"),
        (urllib.error.URLError("no route"), "transient"),
        (urllib.error.HTTPError("http://x", 404, "gone", Message(), None), "missing"),
        (httpx.ConnectError("x"), "transient"),
        (httpx.ReadTimeout("x"), "transient"),
        (httpx.RemoteProtocolError("x"), "transient"),
        (httpx2.ConnectError("x"), "transient"),
        (httpx2.ReadTimeout("x"), "transient"),
        (requests.ConnectionError(), "transient"),
        (requests.ReadTimeout(), "transient"),
        (psycopg.OperationalError("server closed the connection"), "transient"),
        (PermissionError(), "auth"),
        (FileNotFoundError(), "missing"),
        (TypeError(), "bug"),
        (AttributeError(), "bug"),
        (NameError(), "bug"),
        (UnboundLocalError(), "bug"),
        (AssertionError(), "bug"),
        (NotImplementedError(), "bug"),
        (ModuleNotFoundError(), "bug"),
        (IndexError(), "bug"),
        (ZeroDivisionError(), "bug"),
        (KeyError("x"), "other"),
        (ValueError("x"), "other"),
        (OSError(28, "disk full"), "other"),
        (OSError(errno.ENETUNREACH, "no network"), "transient"),
        (smtplib.SMTPDataError(451, b"later"), "transient"),
        (smtplib.SMTPDataError(554, b"no"), "invalid"),
        (smtplib.SMTPAuthenticationError(535, b"no"), "auth"),
        (
            smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (452, b"")}),
            "transient",
        ),
        (smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (550, b"")}), "invalid"),
        (ExceptionGroup("two", [TypeError(), TimeoutError()]), "other"),
    ],
    ids=lambda value: (
        type(value).__name__ if isinstance(value, BaseException) else value
    ),
)
def test_exceptions_that_people_meet(error: BaseException, expected: str):
    assert _category(error) == expected


@pytest.mark.parametrize(
    "make",
    [
        _answered,
        _answered_requests,
        lambda s: type("E", (Exception,), {"status": s})(),
        lambda s: type("E", (Exception,), {"status_code": s})(),
    ],
)
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, "invalid"),
        (401, "auth"),
        (404, "missing"),
        (429, "throttled"),
        (503, "transient"),
    ],
)
def test_a_status_is_read_off_the_exceptions_of_the_common_libraries(
    make: Any, status: int, expected: str
):
    assert _category(make(status)) == expected


class RpcError(Exception):
    """Like an error of gRPC: its code is a method."""

    __module__ = "grpc"

    def __init__(self, name: str) -> None:
        self.code = lambda: SimpleNamespace(name=name)


class ClientError(Exception):
    """Like an error of botocore: its response is a dict."""

    __module__ = "botocore.exceptions"

    def __init__(self, code: str, status: int) -> None:
        self.response = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }


@pytest.mark.parametrize(
    ("error", "expected", "code"),
    [
        (RpcError("UNAVAILABLE"), "transient", "grpc:UNAVAILABLE"),
        (RpcError("RESOURCE_EXHAUSTED"), "throttled", "grpc:RESOURCE_EXHAUSTED"),
        (RpcError("NOT_FOUND"), "missing", "grpc:NOT_FOUND"),
        (RpcError("UNKNOWN"), "other", "grpc:UNKNOWN"),
        (RpcError("a secret, in a sentence"), "other", None),
        (
            ClientError("ThrottlingException", 400),
            "throttled",
            "aws:ThrottlingException",
        ),
        (ClientError("ExpiredToken", 400), "auth", "aws:ExpiredToken"),
        (ClientError("Internal", 503), "transient", "aws:Internal"),
        (ClientError("NoSuchKey", 404), "missing", "aws:NoSuchKey"),
    ],
)
def test_a_code_of_a_protocol_or_provider_decides(
    error: Exception, expected: str, code: str | None
):
    assert (_category(error), evidence_of(error, "").code) == (expected, code)
    found = describe(error, "a.b").detail.get("code")
    assert found == code


def test_the_sqlstate_of_an_error_that_sqlalchemy_wraps_is_read():
    from sqlalchemy.exc import OperationalError

    wrapped = OperationalError("select 1", {}, psycopg.errors.SerializationFailure("x"))

    assert (_category(wrapped), evidence_of(wrapped, "").sqlstate) == (
        "transient",
        "40001",
    )


class Hostile(Exception):
    """Every attribute that is looked at raises."""

    def __getattribute__(self, name: str) -> Any:
        if name in {
            "response",
            "status",
            "status_code",
            "code",
            "sqlstate",
            "pgcode",
            "diag",
            "errors",
            "headers",
            "http_status",
            "smtp_code",
            "recipients",
            "errno",
            "orig",
        }:
            raise RuntimeError("not today")
        return super().__getattribute__(name)

    def __str__(self) -> str:
        return "still readable"


def test_an_exception_whose_attributes_raise_keeps_its_class_and_its_message():
    failure = describe(Hostile(), "k")

    assert failure.error_class.endswith("Hostile")
    assert failure.message == "still readable"


# ---------------------------------------------------------------------- rules


class Refused(Exception):
    status = 520


RULE_CASES = [
    (Rule(Refused, then="give_up"), (Category.TRANSIENT, "give_up")),
    (Rule(f"{__name__}.Refused", then="cancel"), (Category.TRANSIENT, "cancel")),
    (Rule("builtins.Exception", then="retry"), (Category.TRANSIENT, "retry")),
    (Rule("other.Refused", then="give_up"), (Category.TRANSIENT, None)),
    (Rule(status=520, then=Category.THROTTLED), (Category.THROTTLED, None)),
    (Rule(status=range(520, 530), then=Category.AUTH), (Category.AUTH, None)),
    (Rule(status={404}, then=Category.AUTH), (Category.TRANSIENT, None)),
    (Rule(sqlstate="40", then=Category.BUG), (Category.BUG, None)),
    (Rule(sqlstate="40002", then=Category.BUG), (Category.TRANSIENT, None)),
    (
        Rule(message=r"quota .* exceeded", then=Category.THROTTLED),
        (Category.THROTTLED, None),
    ),
    (Rule(message="^exceeded", then=Category.THROTTLED), (Category.TRANSIENT, None)),
    (Rule(Refused, status=521, then="give_up"), (Category.TRANSIENT, None)),
    (
        Rule(Refused, status=520, sqlstate="4", message="quota", then=Category.MISSING),
        (Category.MISSING, None),
    ),
    (Rule(then=Category.INVALID), (Category.INVALID, None)),
]


@pytest.mark.parametrize(("rule", "expected"), RULE_CASES)
def test_a_rule_holds_when_all_that_it_says_matches(rule: Rule, expected: Any):
    names = tuple(f"{c.__module__}.{c.__qualname__}" for c in Refused.__mro__)
    evidence = Evidence(names, "the quota of 5 was exceeded", 520, "40001")

    assert judge(evidence, [rule]) == expected


def test_the_first_rule_that_matches_holds():
    rules = [
        Rule(status=1, then="cancel"),
        Rule(then=Category.AUTH),
        Rule(then="cancel"),
    ]
    assert judge(NOTHING, rules) == (Category.AUTH, None)


def test_a_rule_that_says_nothing_known_is_refused():
    with pytest.raises(ValueError, match="must be a category"):
        Rule(then="explode")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- what follows


def _failure(category: str = "other", **more: Any) -> Failure:
    return Failure("E", "m", Category(category), "f", **more)


JOB = Claimed("k", 1)

DECISIONS = [
    # category, attempt, verdict -> what
    ("transient", 1, None, "retry"),
    ("transient", 99, None, "retry"),
    ("transient", 100, None, "attempts_exhausted"),
    ("throttled", 99, None, "retry"),
    ("throttled", 100, None, "attempts_exhausted"),
    ("invalid", 1, None, "invalid_payload"),
    ("bug", 1, None, "not_retryable"),
    ("auth", 1, None, "retry"),
    ("auth", 2, None, "dead"),
    ("missing", 1, None, "retry"),
    ("missing", 2, None, "dead"),
    ("lost", 9, None, "retry"),
    ("lost", 10, None, "attempts_exhausted"),
    ("other", 1, None, "retry"),
    ("other", 4, None, "retry"),
    ("other", 5, None, "attempts_exhausted"),
    ("bug", 1, "retry", "retry"),
    ("invalid", 1, "retry", "retry"),
    ("bug", 99, "retry", "retry"),
    ("bug", 100, "retry", "attempts_exhausted"),
    ("transient", 1, "give_up", "not_retryable"),
    ("bug", 1, "give_up", "not_retryable"),
    ("transient", 1, "cancel", "cancel"),
    ("bug", 1, "cancel", "cancel"),
]


def _what(ending: Any) -> str:
    match ending:
        case settlement.Retry():
            return "retry"
        case settlement.DeadLetter(reason=reason):
            return str(reason)
        case settlement.Cancel():
            return "cancel"
    return type(ending).__name__


@pytest.mark.parametrize(("category", "attempt", "verdict", "expected"), DECISIONS)
def test_what_follows_from_a_category(
    category: str, attempt: int, verdict: str | None, expected: str
):
    what = _what(
        decide(
            Claimed("k", attempt), _failure(category, verdict=verdict), Policy(), 0.5
        )
    )

    assert what == expected or (
        expected == "dead" and what in {"not_retryable", "attempts_exhausted"}
    )


@pytest.mark.parametrize(
    "category", ["auth", "missing", "bug", "invalid", "other", "transient"]
)
def test_attempts_can_be_said_for_each_category(category: str):
    policy = Policy(max_attempts=9, attempts={category: 3}, same_failure_limit=99)

    ends = [
        _what(decide(Claimed("k", n), _failure(category), policy, 0.5))
        for n in (1, 2, 3)
    ]

    assert ends[:2] == ["retry", "retry"]
    assert ends[2] != "retry"


def test_backoffs_can_be_said_for_each_category():
    policy = Policy(
        backoff=1, backoff_cap=8, backoffs={"throttled": (timedelta(seconds=30), 900)}
    )

    assert [delay(policy, n, 1.0) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 8, 8]
    assert [delay(policy, n, 1.0, Category.THROTTLED) for n in (1, 2, 6, 7)] == [
        30,
        60,
        900,
        900,
    ]


@given(
    attempt=st.integers(-5, 2**31),
    jitter=st.floats(0, 1, exclude_max=True),
    base=st.floats(0, 100_000),
    more=st.floats(0, 1_000_000),
    category=st.sampled_from(Category),
)
def test_a_wait_lies_between_half_a_ceiling_and_all_of_it_at_any_attempt(
    attempt: int, jitter: float, base: float, more: float, category: Category
):
    policy = Policy(
        backoff=base, backoff_cap=base + more, backoffs={"throttled": (base / 2, base)}
    )
    ceiling = delay(policy, attempt, 1.0, category)
    cap = base if category is Category.THROTTLED else base + more

    assert ceiling / 2 <= delay(policy, attempt, jitter, category) <= ceiling <= cap


def test_a_retry_is_not_made_at_once():
    """Full jitter began at 0, so that attempts were used up within a second."""
    policy = Policy(backoff=8, backoff_cap=8)
    assert [delay(policy, 1, j) for j in (0.0, 0.25, 0.5, 0.999)] == [
        4,
        5,
        6,
        pytest.approx(8, abs=0.01),
    ]


@pytest.mark.parametrize("category", ["transient", "throttled", "lost"])
def test_the_same_failure_again_says_nothing_where_waiting_helps(category: str):
    job = Claimed("k", 3, streak=50, fingerprint="f")
    assert isinstance(decide(job, _failure(category), Policy(), 0.5), settlement.Retry)


def test_the_same_failure_three_times_in_a_row_ends_it():
    def after(streak: int, fingerprint: str) -> str:
        return _what(
            decide(
                Claimed("k", 3, streak=streak, fingerprint=fingerprint),
                _failure(),
                Policy(),
                0.5,
            )
        )

    assert [after(1, "f"), after(2, "f"), after(2, "g")] == [
        "retry",
        "same_failure",
        "retry",
    ]


def test_a_job_whose_window_ends_before_its_next_attempt_has_expired():
    policy = Policy(backoff=10, backoff_cap=10)

    assert (
        _what(decide(Claimed("k", 1, expires_in=7.4), _failure(), policy, 0.5))
        == "expired"
    )
    assert (
        _what(decide(Claimed("k", 1, expires_in=7.6), _failure(), policy, 0.5))
        == "retry"
    )
    assert (
        _what(
            decide(
                Claimed("k", 1, expires_in=60),
                _failure("throttled", retry_after=60.0),
                policy,
                0.5,
            )
        )
        == "expired"
    )
    assert why_not_started(Claimed("k", 1, expires_in=0), policy) is Reason.EXPIRED
    assert why_not_started(Claimed("k", 101), policy) is Reason.ATTEMPTS_EXHAUSTED
    five = Policy(max_attempts=5)
    assert why_not_started(Claimed("k", 6), five) is Reason.ATTEMPTS_EXHAUSTED
    assert why_not_started(Claimed("k", 6, max_attempts=6), five) is None


@given(
    st.integers(1, 2**31),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, MAX_RETRY_AFTER),
    st.sampled_from(Category),
)
def test_what_the_other_side_asks_for_is_never_undercut(
    attempt: int, jitter: float, asked: float, category: Category
):
    policy = Policy(max_attempts=2**31 - 1, attempts=dict.fromkeys(Category, 2**32))
    ending = decide(
        Claimed("k", attempt, 2**32),
        _failure(category, retry_after=asked),
        policy,
        jitter,
    )

    assert isinstance(ending, settlement.Retry)
    assert ending.delay >= asked


def test_jobs_that_were_throttled_together_come_back_one_by_one():
    """All of them returned in the instant that Retry-After named."""
    failure = _failure(Category.THROTTLED, retry_after=120.0)
    endings = [
        decide(Claimed("k", 3), failure, Policy(backoff=4), n / 10) for n in range(10)
    ]
    delays = [
        ending.delay for ending in endings if isinstance(ending, settlement.Retry)
    ]

    assert delays == [120.0 + 8.0 + 8.0 * n / 10 for n in range(10)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("1.5", 1.5),
        ("-3", 0),
        ("99999999999", MAX_RETRY_AFTER),
        ("nan", None),
        ("", None),
        ("soon", None),
        (None, None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER),
        ("Fri, 99 Dec 2040 23:59:59 GMT", None),
    ],
)
def test_a_retry_after_is_read_or_ignored(text: str | None, expected: float | None):
    assert read_retry_after(text) == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize(
    "shape",
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"],
)
def test_a_date_of_each_of_the_three_forms_is_read_in_any_zone(
    shape: str, zone: str, monkeypatch: pytest.MonkeyPatch
):
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        wait = read_retry_after(
            (datetime.now(UTC) + timedelta(seconds=90)).strftime(shape)
        )
    finally:
        monkeypatch.undo()
        time.tzset()

    assert wait is not None
    assert 60 < wait <= 90


@pytest.mark.parametrize(
    "error",
    [
        _answered(429, retry_after="40"),
        _answered(
            503,
            retry_after=format_datetime(
                datetime.now(UTC) + timedelta(hours=20), usegmt=True
            ),
        ),
        type(
            "E",
            (Exception,),
            {
                "response": SimpleNamespace(
                    status_code=429, headers={"retry-after": "40"}
                )
            },
        )(),
        type("E", (Exception,), {"status": 429, "headers": {"Retry-After": "40"}})(),
    ],
    ids=["seconds", "date", "small letters", "headers of the exception"],
)
def test_retry_after_is_read_off_an_exception(error: Exception):
    failure = describe(error, "k")

    assert failure.retry_after is not None
    assert failure.retry_after == 40 or 0 < failure.retry_after <= 72_000


# ---------------------------------------------------------------------- signals and losses


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (Cancel("x"), settlement.Cancel("m")),
        (GiveUp("x"), settlement.DeadLetter(Reason.GAVE_UP, _failure())),
        (Snooze(5), settlement.Release("snoozed", delay=5.0)),
        (Snooze(-5), settlement.Release("snoozed", delay=0.0)),
        (Snooze(LONGEST_WAIT), settlement.Release("snoozed", delay=366 * 86_400.0)),
        (DependencyOpen("mail", 3.0), settlement.Release("breaker m", delay=3.0)),
        (Retry(after=7), settlement.Retry(7.0, _failure())),
        (Retry(), settlement.Retry(22.5, _failure(detail={"retried_for": 22.5}))),
        (Retry(after=-7), settlement.Retry(0.0, _failure())),
    ],
)
def test_what_a_signal_asks_for(signal: Any, expected: Any):
    assert decide_signal(JOB, signal, _failure(), Policy(), 0.5) == expected


def test_a_retry_asked_for_counts_as_an_attempt():
    assert decide_signal(
        Claimed("k", 5), Retry(after=1), _failure(), Policy(max_attempts=5), 0.5
    ) == settlement.DeadLetter(Reason.ATTEMPTS_EXHAUSTED, _failure())


@pytest.mark.parametrize(
    ("ahead", "spread"), [(1, 5), (500, 5), (2_000, 20), (1_000_000, 300)]
)
def test_jobs_behind_a_breaker_come_back_when_it_may_close_and_a_hundred_a_second(
    ahead: int, spread: float
):
    releases = [put_off("mail", 10.0, 5.0, ahead, jitter) for jitter in (0.0, 0.5, 1.0)]

    assert releases == [
        settlement.Release("breaker mail", 10.0 + spread * jitter)
        for jitter in (0.0, 0.5, 1.0)
    ]
    assert put_off("mail", -1.0, 5.0, ahead, 0.0).delay == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"timeout": 0},
        {"timeout": 8 * 86_400},
        {"window": 0},
        {"window": timedelta(days=400)},
        {"window": float("nan")},
        {"window": 10**400},
        {"timeout": -(10**400)},
        {"backoff": -1},
        {"backoff": 5, "backoff_cap": 4},
        {"attempts": {"authn": 3}},
        {"attempts": {"auth": 0}},
        {"backoffs": {"bug": (5, 4)}},
        {"backoffs": {"x": (1, 2)}},
        {"same_failure_limit": 0},
        {"max_losses": 0},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="Policy"):
        Policy(**wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"timeout": "30"},
            r"timeout='30'\): must be a timedelta or a number of seconds",
        ),
        (
            {"timeout": True},
            r"timeout=True\): must be a timedelta or a number of seconds",
        ),
        ({"backoff": "2"}, r"backoff='2'\): must be a timedelta"),
        ({"window": "1h"}, r"window='1h'\): must be a timedelta"),
        ({"window": True}, r"window=True\): must be a timedelta"),
        ({"max_attempts": "5"}, r"max_attempts='5'\): must be a whole number"),
        ({"max_attempts": 2.5}, r"max_attempts=2.5\): must be a whole number"),
        ({"max_losses": None}, r"max_losses=None\): must be a whole number"),
        (
            {"same_failure_limit": "3"},
            r"same_failure_limit='3'\): must be a whole number",
        ),
        ({"rules": Rule(status=500)}, r"rules=Rule\(.*\): must be a list of Rule"),
        ({"rules": ["give_up"]}, r"rules=\['give_up'\]\): must be a list of Rule"),
        (
            {"attempts": {"auth": "4"}},
            r"attempts=.*: must be whole numbers by category",
        ),
        ({"attempts": 4}, r"attempts=4\): must be whole numbers by category"),
        (
            {"backoffs": {"throttled": 30}},
            r"backoffs=.*: must be \(backoff, backoff_cap\)",
        ),
        (
            {"backoffs": {"throttled": ("30", 900)}},
            r"backoffs=.*: must be \(backoff, backoff_cap",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_its_field(
    wrong: dict[str, Any], said: str
):
    with pytest.raises(ValueError, match=r"Policy\(" + said):
        Policy(**wrong)
