"""Category of a failure: the handler's own rules, then a table; first match wins.

An exception is matched by the names of its class and its base classes. So the table can
contain classes of libraries that are not installed. Status codes and SQLSTATEs come
from the attributes that common libraries use.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Literal

from redrive.rules.model import Category

BY_CLASS: dict[str, Category] = {
    # The payload does not fit.
    "pydantic_core._pydantic_core.ValidationError": Category.INVALID,
    "pydantic.ValidationError": Category.INVALID,
    "msgspec.DecodeError": Category.INVALID,
    "json.decoder.JSONDecodeError": Category.INVALID,
    "redrive.errors.InvalidJob": Category.INVALID,
    # Waiting can help.
    "builtins.TimeoutError": Category.TRANSIENT,
    "builtins.ConnectionError": Category.TRANSIENT,
    "builtins.BlockingIOError": Category.TRANSIENT,
    "socket.gaierror": Category.TRANSIENT,
    "socket.timeout": Category.TRANSIENT,
    "ssl.SSLError": Category.TRANSIENT,
    "http.client.HTTPException": Category.TRANSIENT,
    "urllib.error.URLError": Category.TRANSIENT,
    "smtplib.SMTPServerDisconnected": Category.TRANSIENT,
    "smtplib.SMTPConnectError": Category.TRANSIENT,
    "httpcore.NetworkError": Category.TRANSIENT,
    "httpcore.ProtocolError": Category.TRANSIENT,
    "httpcore.TimeoutException": Category.TRANSIENT,
    "httpx.TransportError": Category.TRANSIENT,
    "requests.exceptions.ConnectionError": Category.TRANSIENT,
    "requests.exceptions.Timeout": Category.TRANSIENT,
    "urllib3.exceptions.TimeoutError": Category.TRANSIENT,
    "aiohttp.client_exceptions.ClientConnectionError": Category.TRANSIENT,
    "psycopg.OperationalError": Category.TRANSIENT,
    "psycopg_pool.PoolTimeout": Category.TRANSIENT,
    "redis.exceptions.ConnectionError": Category.TRANSIENT,
    "redis.exceptions.TimeoutError": Category.TRANSIENT,
    "botocore.exceptions.EndpointConnectionError": Category.TRANSIENT,
    # Access must be granted first.
    "builtins.PermissionError": Category.AUTH,
    "smtplib.SMTPAuthenticationError": Category.AUTH,
    "builtins.FileNotFoundError": Category.MISSING,
    # Only a deploy helps.
    "builtins.TypeError": Category.BUG,
    "builtins.AttributeError": Category.BUG,
    "builtins.NameError": Category.BUG,
    "builtins.AssertionError": Category.BUG,
    "builtins.NotImplementedError": Category.BUG,
    "builtins.ImportError": Category.BUG,
    "builtins.SyntaxError": Category.BUG,
    "builtins.RecursionError": Category.BUG,
    "builtins.ZeroDivisionError": Category.BUG,
    "builtins.IndexError": Category.BUG,
    "builtins.UnboundLocalError": Category.BUG,
}
"""Full class name -> category.

The exception's class is looked up first, then its bases.
"""

BY_STATUS: dict[int, Category] = {
    400: Category.INVALID,
    401: Category.AUTH,
    403: Category.AUTH,
    404: Category.MISSING,
    408: Category.TRANSIENT,
    410: Category.MISSING,
    422: Category.INVALID,
    425: Category.TRANSIENT,
    429: Category.THROTTLED,
}

BY_SQLSTATE: dict[str, Category] = {
    "08": Category.TRANSIENT,  # connection
    "22": Category.INVALID,  # data
    "23": Category.INVALID,  # integrity
    "25006": Category.TRANSIENT,  # read-only after a failover
    "28": Category.AUTH,
    "40": Category.TRANSIENT,  # serialization, deadlock
    "42501": Category.AUTH,
    "42": Category.BUG,  # syntax, names
    "53": Category.TRANSIENT,  # resources
    "55": Category.TRANSIENT,  # lock not available
    "57": Category.TRANSIENT,  # operator intervention
    "58": Category.TRANSIENT,  # system
}
"""SQLSTATE or its first two characters -> category; the full code comes first."""

FIRST_STATUS, LAST_STATUS = 100, 599
FIRST_SERVER_ERROR = 500
MAX_CLASSES = 12
MAX_CLASS_NAME = 200


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts that decide a failure's category, stored so that it can be judged again.

    `classes`: full names of the exception's class and its bases, nearest first.
    """

    classes: tuple[str, ...]
    message: str
    status: int | None = None
    sqlstate: str | None = None


Verdict = Literal["retry", "give_up", "cancel"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a handler's policy: if all given conditions match, `then` applies.

        Rule("stripe.error.CardError", then="give_up")
        Rule(status=range(520, 530), then=Category.TRANSIENT)
        Rule(message=r"quota .* exceeded", then=Category.THROTTLED)

    Args:
        error: an exception class, or the full name of a class that need not be
            installed.
        status: one or several HTTP statuses.
        sqlstate: a SQLSTATE, or the beginning of one.
        message: a regular expression that is searched for in the message.
        then: a category, or an action for any category: retry, give_up, cancel.
    """

    error: type[BaseException] | str | None = None
    status: int | Container[int] | None = None
    sqlstate: str | None = None
    message: str | None = None
    then: Category | Verdict = Category.OTHER

    def __post_init__(self) -> None:
        if self.then not in {*Category, "retry", "give_up", "cancel"}:
            msg = f"Rule(then={self.then!r}): must be a category, 'retry', 'give_up' or 'cancel'"
            raise ValueError(msg)

    def matches(self, evidence: Evidence) -> bool:
        """Return True if the rule applies to the failure."""
        return (
            (self.error is None or _name_of(self.error) in evidence.classes)
            and (self.status is None or _is_among(evidence.status, self.status))
            and (
                self.sqlstate is None
                or (evidence.sqlstate or "").startswith(self.sqlstate)
            )
            and (
                self.message is None
                or re.search(self.message, evidence.message) is not None
            )
        )


def evidence_of(error: BaseException, message: str) -> Evidence:
    """Collect the facts that decide an exception's category.

    Args:
        message: the message as it will be stored.
    """
    original = read_attribute(error, "orig")  # SQLAlchemy wraps the driver's error
    driver = original if isinstance(original, BaseException) else error
    return Evidence(
        classes=_class_names(error) if driver is error else _class_names(error, driver),
        message=message,
        status=status_of(error),
        sqlstate=read_text(driver, "sqlstate") or read_text(driver, "pgcode"),
    )


def _class_names(*errors: BaseException) -> tuple[str, ...]:
    """Return the classes of exceptions and their bases, each once, nearest first."""
    names = [
        full_name(c) for error in errors for c in type(error).__mro__ if c is not object
    ]
    return tuple(dict.fromkeys(names))[:MAX_CLASSES]


def judge(
    evidence: Evidence, rules: Iterable[Rule] = ()
) -> tuple[Category, Verdict | None]:
    """Return the category, and the action of the matching rule, if it demands one."""
    rule = next((rule for rule in rules if rule.matches(evidence)), None)
    if rule is None:
        return category_of(evidence), None
    if isinstance(rule.then, Category):
        return rule.then, None

    return category_of(evidence), rule.then


def category_of(evidence: Evidence) -> Category:
    """Classify by status, then SQLSTATE, then class."""
    return (
        _category_of_status(evidence.status)
        or _category_of_sqlstate(evidence.sqlstate)
        or next(
            (BY_CLASS[name] for name in evidence.classes if name in BY_CLASS),
            Category.OTHER,
        )
    )


def _category_of_status(status: int | None) -> Category | None:
    if status is None:
        return None
    return Category.TRANSIENT if status >= FIRST_SERVER_ERROR else BY_STATUS.get(status)


def _category_of_sqlstate(sqlstate: str | None) -> Category | None:
    if sqlstate is None:
        return None
    return BY_SQLSTATE.get(sqlstate) or BY_SQLSTATE.get(sqlstate[:2])


def _name_of(error: type[BaseException] | str) -> str:
    return error if isinstance(error, str) else full_name(error)


def _is_among(status: int | None, wanted: int | Container[int]) -> bool:
    if isinstance(wanted, int):
        return status == wanted
    return status is not None and status in wanted


def full_name(cls: type) -> str:
    """Return the module and the name of a class, in the form of the tables."""
    return f"{cls.__module__}.{cls.__qualname__}"[:MAX_CLASS_NAME]


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an exception, or None.

    It knows the exceptions of httpx, requests, aiohttp and urllib.
    """
    response = read_attribute(error, "response")
    candidates = (
        None if response is None else read_attribute(response, "status_code"),
        read_attribute(error, "status_code"),
        read_attribute(error, "status"),
        read_attribute(error, "code"),
    )
    return next(
        (found for found in map(_status, candidates) if found is not None), None
    )


def _status(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if FIRST_STATUS <= value <= LAST_STATUS else None
    return None


def read_attribute(thing: object, name: str) -> object:
    """Return an attribute; None if it is missing or reading it fails."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 # a property may raise anything
        return None


def read_text(thing: object, name: str) -> str | None:
    """Return an attribute if it is a text; else None."""
    value = read_attribute(thing, name)
    return value if isinstance(value, str) else None
