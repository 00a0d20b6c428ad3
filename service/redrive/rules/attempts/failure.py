"""Conversion of any exception of a handler to a Failure that can be stored.

The record of a failure must survive hostile input. An exception's __str__ may raise,
recurse, return 200 MB or contain NUL. A queue that cannot store the record fails on the
same job again and again. So no code here calls str(error) unprotected. Every size and
depth is bounded, and the last fallback is a constant.
"""

import functools
import hashlib
import math
import re
import sysconfig
import traceback
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import accumulate
from types import (
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    TracebackType,
)
from typing import Any, NamedTuple, cast

from redrive.rules.attempts.categories import (
    Evidence,
    Rule,
    category_of,
    evidence_of,
    judge,
    read_attribute,
    read_text,
)
from redrive.rules.model import Category, Failure
from redrive.rules.payloads.redact import HIDDEN, scrub
from redrive.rules.rows import Fields

MAX_MESSAGE = 4_096
READ_MESSAGE = 4 * MAX_MESSAGE
MAX_CUT_SECRET = 2_048
MAX_FRAMES = 30
MAX_OWN_FRAMES = 10
MAX_CAUSES = 16
MAX_CLASS_NAME = 200
MAX_RETRY_AFTER = 7 * 86_400.0
OWN_FRAMES_IN_FINGERPRINT = 3

_PACKAGE = "redrive."
_OUR_CALLERS = "redrive.worker."
_CALLERS = (_PACKAGE, "asyncio.", "concurrent.")
_LIBRARY_PATHS = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)


class _Variable(NamedTuple):
    """Part of a message that differs between jobs; it contains one of `hints`."""

    hints: str
    pattern: re.Pattern[str]
    placeholder: str


_VARIABLES = (
    _Variable(
        "-",
        re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
        "<uuid>",
    ),
    _Variable(
        "'\"`", re.compile(r"'[^']{0,400}'|\"[^\"]{0,400}\"|`[^`]{0,400}`"), "<text>"
    ),
    _Variable(
        "@", re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}"), "<email>"
    ),
    _Variable(":", re.compile(r"\b\w{2,10}://\S{1,400}"), "<url>"),
    _Variable("/", re.compile(r"(?:/[\w.@+-]{1,100}){2,20}/?"), "<path>"),
    # Numbers in any form (-3, 1,234.50, 1e-05, 3.5kg), hexadecimal ids, and words with
    # a digit. One in 2,500 hexadecimal ids of eight digits has no decimal digit.
    _Variable(
        "",
        re.compile(
            r"(?<![\w.])[+-]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][+-]?\d+)?\w*"
            r"|\b(?:[0-9a-fA-F]{8,64}\b|[^\W\d]*\d\w*)"
            r"|\d+"
        ),
        "<n>",
    ),
    # scrub() takes one number in ten for a card number and hides it.
    _Variable("[", re.compile(re.escape(HIDDEN)), "<n>"),
)
_QUOTED = re.compile(r'".*"', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Reported(Exception):
    """A handler raises this when another system did the work and it failed there.

    The attempt is recorded with that system's failure, whose verdict applies.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def describe(
    error: BaseException,
    kind: str,
    *,
    rules: Iterable[Rule] = (),
    secrets: Collection[str] = (),
    own: frozenset[str] = frozenset(),
    **detail: Any,
) -> Failure:
    """Record an exception that ended an attempt of a job of `kind`. Never raises.

    Args:
        rules: rules of the handler's policy; they come before the table of categories.
        secrets: texts of the payload that the record must not contain.
        own: packages that belong to the application although they are installed like
            libraries, or are a part of this one.
        detail: further JSON values to keep; None is left out.
    """
    try:
        return _describe(error, kind, rules, secrets, own, detail)
    except BaseException:  # noqa: BLE001 # the job must be settled despite any error
        return made_up(
            "UnprintableError",
            message="the failure itself could not be recorded",
            category=Category.OTHER,
            kind=kind,
        )


def made_up(
    error_class: str, message: str, category: Category, kind: str, **detail: Any
) -> Failure:
    """Record a failure without an exception, such as a killed process or a deadline."""
    fingerprint = _hash(kind, error_class, normalise(message))
    return Failure(
        error_class=error_class,
        message=clean(message, MAX_MESSAGE),
        category=category,
        fingerprint=fingerprint,
        detail=detail,
    )


def reported(  # noqa: PLR0913 # the fields of a failure
    error_class: str,
    message: str,
    stack: Sequence[Fields],
    kind: str,
    *,
    category: Category | None = None,
    secrets: Collection[str] = (),
) -> Failure:
    """Record a failure from another system, like `describe` does for exceptions."""
    name = clean(scrubbed(error_class, secrets), MAX_CLASS_NAME)
    text = clean(scrubbed(message, secrets), MAX_MESSAGE)
    frames = [
        {
            name: clean(scrub(value, secrets), 200) if type(value) is str else value
            for name, value in frame.items()
        }
        for frame in stack[-MAX_FRAMES:]
    ]
    if category is None:
        category = _category_by_name(name, text)

    fingerprint = _hash(kind, name, normalise(text), *_own_places(frames))
    detail = {"stack": frames} if frames else {}

    return Failure(
        error_class=name,
        message=text,
        category=category,
        fingerprint=fingerprint,
        detail=detail,
    )


def _category_by_name(name: str, text: str) -> Category:
    # The table lists built-in exceptions as `builtins.X`; a traceback prints only `X`.
    names = (name, f"builtins.{name}")
    return category_of(Evidence(names, text))


def safe_text(error: BaseException) -> str:
    """Return `str(error)`, or a constant if that raises or returns no text."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 # __str__ may raise anything, SystemExit too
        return "<its __str__ raised>"

    if type(text) is str:
        return text

    return "<its __str__ returned no text>"


_PLAIN_ARGUMENTS = {str, bytes, int, float, bool, type(None)}
_PLAIN_MEMBERS = {
    str,
    int,
    tuple,
    type(None),
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
}
_PYTHON_CLASS = 1 << 9
"""Flag of classes that Python code has made."""


def without_group(error: BaseException) -> BaseException:
    """Return the only exception of a group, as `asyncio.TaskGroup` raises it."""
    exceptions: Any = BaseExceptionGroup.exceptions  # not what a subclass has instead
    while issubclass(type(error), BaseExceptionGroup):
        inside = exceptions.__get__(error)
        if len(inside) > 1:
            break
        (error,) = inside

    return error


def is_plain(error: BaseException) -> bool:
    """Return True if no code of the application runs when an error is described."""
    try:
        return all(
            _is_plain_class(type(each))
            and all(type(argument) in _PLAIN_ARGUMENTS for argument in each.args)
            for each in (error, *_causes(error))
        )
    except BaseException:  # noqa: BLE001 # then it is not plain
        return False


@functools.lru_cache(1_024)
def _is_plain_class(cls: type) -> bool:
    """Return True if neither the text nor an attribute of its objects is computed."""
    return not any(
        type(member) not in _PLAIN_MEMBERS
        or name in {"__str__", "__repr__", "__getattr__", "__getattribute__"}
        for base in cls.__mro__
        if base.__flags__ & _PYTHON_CLASS
        for name, member in vars(base).items()
    )


def clean(text: str, limit: int) -> str:
    """Return a text that is safe for Postgres, terminals and logs.

    It is bounded, without control characters and surrogates.
    """
    # Cut first, because the text may be huge. One more character shows that it was cut.
    cut = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1])
    if len(cut) <= limit:
        return cut

    return f"{cut[:limit]}... ({len(text)} characters)"


def scrubbed(text: str, secrets: Collection[str] = ()) -> str:
    """Return the beginning of a text without secrets or pieces of cut secrets."""
    if len(text) <= READ_MESSAGE:
        return scrub(text, secrets)
    # A secret that crosses the cut may stay unseen, so the end is dropped, too.
    return scrub(text[:READ_MESSAGE], secrets)[:-MAX_CUT_SECRET] or HIDDEN


def normalise(message: str) -> str:
    """Replace the parts of a message that differ between jobs.

    These are numbers, ids, quoted texts, paths and addresses.
    """
    text = message[:500]
    for variable in _VARIABLES:
        # A search for a hint is cheaper than the pattern.
        if not variable.hints or any(hint in text for hint in variable.hints):
            text = variable.pattern.sub(variable.placeholder, text)

    return text


def class_name(error: BaseException) -> str:
    """Return the module and the name of an exception's class, bounded.

    Private modules and builtins are left out.
    """
    cls = type(error)
    modules = str(cls.__module__).split(".")
    public = [
        name for name in modules if not name.startswith("_") and name != "builtins"
    ]
    full_name = ".".join((*public, cls.__qualname__))

    return clean(full_name, MAX_CLASS_NAME)


def _describe(  # noqa: PLR0913 # the arguments of `describe`
    error: BaseException,
    kind: str,
    rules: Iterable[Rule],
    secrets: Collection[str],
    own: frozenset[str],
    detail: dict[str, Any],
) -> Failure:
    # Not `isinstance`, which asks for a `__class__` that may raise.
    if issubclass(type(error), Reported):
        known = {name: value for name, value in detail.items() if value is not None}
        failure = cast("Reported", error).failure
        return replace(failure, detail=known | failure.detail)

    name = class_name(error)
    message = _text(error, secrets)
    frames = _frames(error.__traceback__, own)
    evidence = evidence_of(error, message)
    category, verdict = judge(evidence, rules)
    fingerprint = _hash(kind, name, normalise(message), *_own_places(frames))
    places = {
        "stack": frames,
        "causes": [
            {
                "error_class": class_name(cause),
                "message": _text(cause, secrets),
                "stack": _ours(_frames(cause.__traceback__, own)),
            }
            for cause in _causes(error)
        ],
    }

    return Failure(
        error_class=name,
        message=message,
        category=category,
        fingerprint=fingerprint,
        detail=places | _known(evidence, detail),
        retry_after=_retry_after(error),
        verdict=verdict,
    )


def _known(evidence: Evidence, detail: dict[str, Any]) -> dict[str, Any]:
    """Return the evidence and further details that are not None."""
    found: dict[str, Any] = {
        "classes": evidence.classes,
        "status": evidence.status,
        "sqlstate": evidence.sqlstate,
        "code": evidence.code,
    }
    found |= detail
    return {name: value for name, value in found.items() if value is not None}


def _text(error: BaseException, secrets: Collection[str]) -> str:
    """Return the exception's text in its stored form."""
    return clean(scrubbed(_message(error), secrets), MAX_MESSAGE)


def _message(error: BaseException) -> str:
    """Return the exception's text without values that drivers and validators add."""
    original = read_attribute(error, "orig")
    if isinstance(original, BaseException):
        # SQLAlchemy adds its statement and parameters.
        return f"({class_name(original)}) {_message(original)}"

    text = _message_of_psycopg(error)
    if text is None:
        text = _message_of_pydantic(error)
    if text is None:
        text = safe_text(error)

    if _quotes_value(error):
        return _QUOTED.sub(f'"{HIDDEN}"', text)

    return text


def _quotes_value(error: BaseException) -> bool:
    """Return True for data exceptions, whose text may quote the value.

    An example is 'invalid input syntax for type integer: "..."'.
    """
    sqlstate = read_text(error, "sqlstate") or read_text(error, "pgcode") or ""
    return sqlstate.startswith("22")


def _message_of_psycopg(error: BaseException) -> str | None:
    """Return only the primary message, because DETAIL contains values of the row.

    None for other errors.
    """
    diagnosis = read_attribute(error, "diag")
    text = read_text(diagnosis, "message_primary")
    if text is None:
        return None

    constraint = read_text(diagnosis, "constraint_name")
    if constraint and constraint not in text:
        text = f"{text} ({constraint})"

    return text


def _message_of_pydantic(error: BaseException) -> str | None:
    """Return the fields and their faults without values; None for other errors."""
    errors = read_attribute(error, "errors")
    if not (callable(errors) and type(error).__name__ == "ValidationError"):
        return None

    found: Any = errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(map(_fault, found[:10]))


def _fault(error: Fields) -> str:
    path = ".".join(map(str, error["loc"]))
    return f"{path}: {error['msg']}"


def _frames(trace: TracebackType | None, own: frozenset[str]) -> list[dict[str, Any]]:
    """Return the places of the innermost frames, outermost first, without values.

    A driver may add more frames than are kept, so the innermost frames of the
    application have priority.
    """
    found: list[dict[str, Any]] = []
    for frame, line in traceback.walk_tb(trace):
        module = str(frame.f_globals.get("__name__", "?"))
        place = _place(frame.f_code, module, own)

        # Frames above the handler are always the same.
        above = _OUR_CALLERS if found else _CALLERS
        if module.startswith(above) and not place["own"]:
            continue

        found.append({**place, "line": line})

    kept = {id(frame) for frame in _ours(found, MAX_OWN_FRAMES)}
    for frame in reversed(found):
        if len(kept) < MAX_FRAMES:
            kept.add(id(frame))

    return [frame for frame in found if id(frame) in kept]


def _own_places(frames: Sequence[Fields]) -> list[str]:
    """Return the innermost places of the application's own code for the fingerprint."""
    return [f"{frame['module']}:{frame['function']}" for frame in _ours(frames)]


def _ours(frames: Sequence[Any], most: int = OWN_FRAMES_IN_FINGERPRINT) -> list[Any]:
    """Return the innermost frames of the application's own code."""
    return [frame for frame in frames if frame["own"]][-most:]


@functools.lru_cache(4_096)
def _place(code: CodeType, module: str, own: frozenset[str]) -> dict[str, Any]:
    path = code.co_filename
    packages = accumulate(module.split("."), "{}.{}".format)
    is_ours = module.startswith(_PACKAGE) or is_library(path)
    is_own = not is_ours or not own.isdisjoint(packages)
    return {
        "file": clean(path, 200),
        "function": clean(code.co_name, 100),
        "module": clean(module, 100),
        # Generated code, such as <string>, belongs to nobody.
        "own": is_own and not path.startswith("<"),
    }


def is_library(path: str) -> bool:
    """Return True if a file lies where packages are installed."""
    return path.startswith(_LIBRARY_PATHS) or is_installed(path)


def is_installed(path: str) -> bool:
    """Return True if a file belongs to an installed package."""
    return "site-packages" in path or "dist-packages" in path


def _causes(error: BaseException) -> list[BaseException]:
    """Return causes, contexts and group members of an error, at most MAX_CAUSES.

    Each of them appears once.
    """
    found: list[BaseException] = []
    # By identity: causes may form a circle, and an exception may be unhashable.
    seen = {id(error)}
    waiting = deque([error])

    while waiting and len(found) < MAX_CAUSES:
        for cause in _direct_causes(waiting.popleft()):
            if id(cause) not in seen:
                seen.add(id(cause))
                found.append(cause)
                waiting.append(cause)

    return found[:MAX_CAUSES]


def _direct_causes(error: BaseException) -> Iterator[BaseException]:
    # As Python prints it: `raise ... from ...` hides the context.
    context = None if error.__suppress_context__ else error.__context__
    cause = error.__cause__ or context
    if isinstance(cause, BaseException):
        yield cause

    if issubclass(type(error), BaseExceptionGroup):
        yield from cast("BaseExceptionGroup[BaseException]", error).exceptions[
            :MAX_CAUSES
        ]


def _retry_after(error: BaseException) -> float | None:
    """Return the seconds of an exception's Retry-After header, or None."""
    for carrier in (read_attribute(error, "response"), error):
        headers: Any = read_attribute(carrier, "headers")
        try:
            # A plain dict distinguishes upper and lower case, so try both.
            value = headers.get("Retry-After") or headers.get("retry-after")
            if value is not None:
                return read_retry_after(value)
        except Exception:  # noqa: BLE001, S112 # any shape of headers, any text in them
            continue

    return None


def read_retry_after(value: str | None) -> float | None:
    """Return the seconds to wait, at most MAX_RETRY_AFTER; None if not readable.

    The text has seconds or a date (RFC 9110, 10.2.3).
    """
    if value is None:
        return None

    try:
        wait = float(value)
    except ValueError:
        wait = _seconds_until(value)

    # float() also reads `nan`, and max() and min() would let it pass.
    if wait is None or math.isnan(wait):
        return None

    return min(max(wait, 0.0), MAX_RETRY_AFTER)


def _seconds_until(date: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 # few servers send a date

    try:
        at = parsedate_to_datetime(date)
    except (ValueError, TypeError):
        return None

    # An HTTP date is in UTC; with the zone -0000, Python returns it without a zone.
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at.timestamp() - datetime.now(UTC).timestamp()


def _hash(*parts: str) -> str:
    # A message may have lone surrogates, which UTF-8 cannot encode.
    text = "\n".join(parts).encode("utf-8", "replace")
    digest = hashlib.sha256(text)
    return digest.hexdigest()[:16]
