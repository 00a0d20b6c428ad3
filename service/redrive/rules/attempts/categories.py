"""Category of a failure: the handler's own rules, then a table; first match wins.

An exception is matched by the names of its class and its base classes. So the table can
contain classes of libraries that are not installed. Status codes, SQLSTATEs and other
codes come from the attributes that common libraries use.
"""

import errno
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from redrive.rules.attempts.known_failures import (
    BY_CLASS,
    BY_CODE,
    BY_SQLSTATE,
    BY_STATUS,
)
from redrive.rules.model import Category

FIRST_STATUS, LAST_STATUS = 100, 599
FIRST_SERVER_ERROR = 500
MAX_CLASSES = 12
MAX_CLASS_NAME = 200

_CODE = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Facts that decide a failure's category, stored so that it can be judged again.

    `classes`: full names of the exception's class and its bases, nearest first.
    `code`: the code of a protocol or provider, such as `grpc:UNAVAILABLE`.
    """

    classes: tuple[str, ...]
    message: str
    status: int | None = None
    sqlstate: str | None = None
    code: str | None = None


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

    Raises:
        ValueError: `then` is neither.
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
    if driver is error:
        classes = _class_names(error)
    else:
        classes = _class_names(error, driver)

    return Evidence(
        classes=classes,
        message=message,
        status=status_of(error),
        sqlstate=read_text(driver, "sqlstate") or read_text(driver, "pgcode"),
        code=_code_of(driver, classes),
    )


def _class_names(*errors: BaseException) -> tuple[str, ...]:
    """Return the classes of exceptions and their bases, each once, nearest first."""
    names: dict[str, None] = {}
    for error in errors:
        for cls in type(error).__mro__:
            if cls is not object:
                names[full_name(cls)] = None

    return tuple(names)[:MAX_CLASSES]


def judge(
    evidence: Evidence, rules: Iterable[Rule] = ()
) -> tuple[Category, Verdict | None]:
    """Return the category, and the action of the matching rule, if it demands one.

    Args:
        rules: rules of the handler's policy, in order; the first match is used.
    """
    matching = (rule for rule in rules if rule.matches(evidence))
    rule = next(matching, None)

    if rule is None:
        return category_of(evidence), None
    if isinstance(rule.then, Category):
        return rule.then, None

    return category_of(evidence), rule.then


def category_of(evidence: Evidence) -> Category:
    """Classify by code, then status, then SQLSTATE, then class."""
    # The code comes first, because AWS reports throttling with status 400.
    return (
        BY_CODE.get(evidence.code or "")
        or _category_of_status(evidence.status)
        or _category_of_sqlstate(evidence.sqlstate)
        or next(
            (BY_CLASS[name] for name in evidence.classes if name in BY_CLASS),
            Category.OTHER,
        )
    )


def _category_of_status(status: int | None) -> Category | None:
    if status is None:
        return None
    if status >= FIRST_SERVER_ERROR:
        return Category.TRANSIENT

    return BY_STATUS.get(status)


def _category_of_sqlstate(sqlstate: str | None) -> Category | None:
    if sqlstate is None:
        return None
    return BY_SQLSTATE.get(sqlstate) or BY_SQLSTATE.get(sqlstate[:2])


def _name_of(error: type[BaseException] | str) -> str:
    if isinstance(error, str):
        return error
    return full_name(error)


def _is_among(status: int | None, wanted: int | Container[int]) -> bool:
    if isinstance(wanted, int):
        return status == wanted
    return status is not None and status in wanted


def full_name(cls: type) -> str:
    """Return the module and the name of a class, in the form of the tables."""
    return f"{cls.__module__}.{cls.__qualname__}"[:MAX_CLASS_NAME]


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an exception, or None.

    It knows the exceptions of httpx, requests, aiohttp, urllib, Stripe and botocore.
    """
    response = read_attribute(error, "response")
    # The response is a dict in botocore, and an object in the other libraries.
    candidates = (
        _look_up(response, "ResponseMetadata", "HTTPStatusCode"),
        None if response is None else read_attribute(response, "status_code"),
        read_attribute(error, "status_code"),
        read_attribute(error, "http_status"),
        read_attribute(error, "status"),
        read_attribute(error, "code"),
    )

    return next(
        (found for found in map(_status, candidates) if found is not None), None
    )


def _code_of(error: BaseException, classes: Container[str]) -> str | None:
    """Return the error code of a protocol or provider, or None."""
    if "grpc.RpcError" in classes:
        return _coded("grpc", _grpc_code(error))
    if "botocore.exceptions.ClientError" in classes:
        code = _look_up(read_attribute(error, "response"), "Error", "Code")
        return _coded("aws", code)

    if "smtplib.SMTPException" in classes:
        return _coded("smtp", _smtp_reply(error))

    if issubclass(type(error), OSError):
        number = read_attribute(error, "errno")
        if type(number) is not int:
            return None

        return _coded("errno", errno.errorcode.get(number))

    return None


def _coded(system: str, code: object) -> str | None:
    """Return a code with its system, or None if it cannot be stored."""
    # Exact types only, because a subclass may have any __str__.
    if type(code) in {int, str}:
        text = str(code)
    else:
        text = ""

    if _CODE.fullmatch(text):
        return f"{system}:{text}"
    return None


def _grpc_code(error: BaseException) -> object:
    """Return the name of a gRPC status, which a method returns."""
    read = read_attribute(error, "code")
    try:
        return read_attribute(read(), "name") if callable(read) else None
    except Exception:  # noqa: BLE001 # the method may raise anything
        return None


def _smtp_reply(error: BaseException) -> int | None:
    """Return the reply of a mail server; of several recipients, the worst one."""
    recipients = _dict(read_attribute(error, "recipients"))
    replies = [_first(answer) for answer in recipients.values()]
    replies.append(read_attribute(error, "smtp_code"))

    return max((reply for reply in replies if isinstance(reply, int)), default=None)


def _first(answer: object) -> object:
    """Return the reply of a pair of reply and text."""
    if type(answer) is tuple:
        pair = cast("tuple[object, ...]", answer)
    else:
        pair = ()
    return next(iter(pair), None)


def _look_up(value: object, *path: str) -> object:
    """Return the value at a path in nested dicts, or None."""
    for name in path:
        value = _dict(value).get(name)
    return value


def _dict(value: object) -> dict[object, Any]:
    if type(value) is dict:
        return cast("dict[object, Any]", value)
    return {}


def _status(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    if FIRST_STATUS <= value <= LAST_STATUS:
        return value

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
