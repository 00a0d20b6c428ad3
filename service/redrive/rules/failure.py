"""Turn whatever a handler raised into a Failure that can be stored.

The record of a failure is itself an input: an exception's __str__ may raise, recurse, return 200 MB
or contain NUL, and a queue that cannot write the record down dies of it again and again. So nothing
here calls str(error) bare, every size and depth is bounded, and the last rung of the ladder is a
constant.
"""

import functools
import hashlib
import re
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import CodeType, TracebackType
from typing import Any, cast

from redrive.rules.categories import Rule, evidence_of, judge, read_attribute
from redrive.rules.model import Category, Failure
from redrive.rules.redact import HIDDEN, scrub

MAX_MESSAGE = 4_096
READ_MESSAGE = 4 * MAX_MESSAGE
MAX_CUT_SECRET = 2_048
MAX_FRAMES = 30
MAX_CAUSES = 16
MAX_CLASS_NAME = 200
MAX_RETRY_AFTER = 7 * 86_400.0
OWN_FRAMES_IN_FINGERPRINT = 3

_LIBRARY_PATHS = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
_VARIABLE_PARTS = [
    ("-", re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"), "<uuid>"),
    ("'\"`", re.compile(r"'[^']{0,400}'|\"[^\"]{0,400}\"|`[^`]{0,400}`"), "<text>"),
    ("@", re.compile(r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}"), "<email>"),
    (":", re.compile(r"\b\w{2,10}://\S{1,400}"), "<url>"),
    ("/", re.compile(r"(?:/[\w.@+-]{1,100}){2,20}/?"), "<path>"),
    # one in 2,500 of eight hexadecimal digits has no decimal one
    ("", re.compile(r"\b[0-9a-fA-F]{8,64}\b"), "<n>"),
    ("", re.compile(r"\b(?=\w{0,63}\d)\w*\d\w*\b|\d+"), "<n>"),
    ("[", re.compile(re.escape(HIDDEN)), "<n>"),  # one number of ten looks like that of a card
]
"""One of the characters that the pattern needs, where there are such; the pattern; its stand-in."""
_QUOTED = re.compile(r'".*"', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def describe(
    error: BaseException,
    kind: str,
    *,
    rules: Iterable[Rule] = (),
    secrets: Collection[str] = (),
    **detail: Any,
) -> Failure:
    """Record an exception that ended an attempt of a job of `kind`. Never raises.

    Args:
        rules: of the handler's policy, asked before the table of categories.
        secrets: texts of the payload that must not turn up in the record.
        detail: more to keep, as JSON.
    """
    try:
        return _describe(error, kind, rules, secrets, detail)
    except BaseException:  # noqa: BLE001 # the last rung: whatever the exception did to us, the job is settled
        return made_up(
            "UnprintableError", "the failure itself could not be recorded", Category.OTHER, kind
        )


def made_up(
    error_class: str, message: str, category: Category, kind: str, **detail: Any
) -> Failure:
    """Record a failure that no exception stands for: a killed process, a deadline, a job out of
    attempts.
    """
    fingerprint = _hash(kind, error_class, normalise(message))
    return Failure(error_class, clean(message, MAX_MESSAGE), category, fingerprint, detail)


def safe_text(error: BaseException) -> str:
    """`str(error)`, or a constant when that raises or returns something else."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 # __str__ may raise anything, SystemExit too
        return "<its __str__ raised>"
    return text if type(text) is str else "<its __str__ returned no text>"


def clean(text: str, limit: int) -> str:
    """Text that Postgres, a terminal and a log line can hold: no control characters, no surrogates,
    bounded.
    """
    cut = text[: limit + 1]
    cut = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", cut)
    return cut if len(cut) <= limit else cut[:limit] + f"... ({len(text)} characters)"


def normalise(message: str) -> str:
    """A message without what differs from one job to the next: numbers, ids, quoted text, paths,
    addresses.
    """
    text = message[:500]
    for needed, pattern, stand_in in _VARIABLE_PARTS:
        if not needed or any(character in text for character in needed):
            text = pattern.sub(stand_in, text)
    return text


def class_name(error: BaseException) -> str:
    """Module and name of an exception's class, bounded; without what is private or builtin of the
    module.
    """
    cls = type(error)
    path = [
        part
        for part in str(cls.__module__).split(".")
        if not part.startswith("_") and part != "builtins"
    ]
    return clean(".".join((*path, cls.__qualname__)), MAX_CLASS_NAME)


def _describe(
    error: BaseException,
    kind: str,
    rules: Iterable[Rule],
    secrets: Collection[str],
    detail: dict[str, Any],
) -> Failure:
    def text_of(one: BaseException) -> str:
        return clean(_scrubbed(_message(one), secrets), MAX_MESSAGE)

    message = text_of(error)
    frames = _frames(error.__traceback__)
    own = [f"{f['module']}:{f['function']}" for f in frames if f["own"]][
        -OWN_FRAMES_IN_FINGERPRINT:
    ]
    evidence = evidence_of(error, message)
    category, verdict = judge(evidence, rules)
    name = class_name(error)
    extra = {
        "stack": frames,
        "causes": [
            {"error_class": class_name(cause), "message": text_of(cause)}
            for cause in _causes(error)
        ],
        "classes": evidence.classes,
        "status": evidence.status,
        "sqlstate": evidence.sqlstate,
    }
    known = {key: value for key, value in (extra | detail).items() if value is not None}
    fingerprint = _hash(kind, name, normalise(message), *own)
    return Failure(name, message, category, fingerprint, known, _retry_after(error), verdict)


def _scrubbed(text: str, secrets: Collection[str]) -> str:
    """The beginning of a text without secrets: of one that the cut goes through, no piece may stay."""
    if len(text) <= READ_MESSAGE:
        return scrub(text, secrets)
    # a character can be written as three
    longest = 3 * max((len(secret) for secret in secrets), default=0)
    return scrub(text[:READ_MESSAGE], secrets)[: -max(longest, MAX_CUT_SECRET)]


def _message(error: BaseException) -> str:
    """The exception's text, without the values that drivers and validators put into it."""
    original = read_attribute(error, "orig")
    # SQLAlchemy: it would add the statement and its parameters
    if isinstance(original, BaseException):
        return f"({class_name(original)}) {_message(original)}"
    diagnosis = read_attribute(error, "diag")
    primary = read_attribute(diagnosis, "message_primary")
    if isinstance(primary, str):  # psycopg: DETAIL would print the row's values
        constraint = read_attribute(diagnosis, "constraint_name")
        text = (
            f"{primary} ({constraint})"
            if isinstance(constraint, str) and constraint not in primary
            else primary
        )
        state = read_attribute(error, "sqlstate")
        # data exceptions quote the value that does not fit: 'invalid input syntax for type integer:
        # "..."'
        return (
            _QUOTED.sub(f'"{HIDDEN}"', text)
            if isinstance(state, str) and state.startswith("22")
            else text
        )
    errors = read_attribute(error, "errors")
    if callable(errors) and type(error).__name__ == "ValidationError":
        found: Any = errors(include_input=False, include_url=False, include_context=False)
        return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found[:10])
    return safe_text(error)


def _frames(trace: TracebackType | None) -> list[dict[str, Any]]:
    """The innermost frames, outermost first: where, never with what values."""
    found: list[dict[str, Any]] = []
    for frame, line in traceback.walk_tb(trace):
        module = str(frame.f_globals.get("__name__", "?"))
        if module.startswith("redrive.worker.") or (
            not found and module.startswith(("asyncio.", "concurrent."))
        ):
            continue  # what led to the handler is the same for all of them
        found.append({**_place(frame.f_code, module), "line": line})
        if len(found) > 4 * MAX_FRAMES:
            del found[MAX_FRAMES : 2 * MAX_FRAMES]
    return found[-MAX_FRAMES:]


@functools.lru_cache(4_096)
def _place(code: CodeType, module: str) -> dict[str, Any]:
    path = code.co_filename
    is_own = (
        not path.startswith(_LIBRARY_PATHS)
        and "site-packages" not in path
        and not path.startswith("<")
    )
    return {
        "file": clean(path, 200),
        "function": clean(code.co_name, 100),
        "module": clean(module, 100),
        "own": is_own,
    }


def _causes(error: BaseException) -> list[BaseException]:
    """What led to it: causes, contexts and the members of groups, each once, at most MAX_CAUSES."""
    found: list[BaseException] = []
    seen = {id(error)}
    waiting = [error]
    while waiting and len(found) < MAX_CAUSES:
        current = waiting.pop(0)
        context = None if current.__suppress_context__ else current.__context__
        members: Sequence[object] = ()
        if isinstance(current, BaseExceptionGroup):
            members = cast("BaseExceptionGroup[BaseException]", current).exceptions[:MAX_CAUSES]
        for cause in (current.__cause__ or context, *members):
            if (
                isinstance(cause, BaseException)
                and id(cause) not in seen
                and len(found) < MAX_CAUSES
            ):
                seen.add(id(cause))
                found.append(cause)
                waiting.append(cause)
    return found


def _retry_after(error: BaseException) -> float | None:
    """Seconds from a Retry-After header (seconds or a date, RFC 9110 10.2.3) of the response an
    exception carries.
    """
    for carrier in (read_attribute(error, "response"), error):
        headers: Any = read_attribute(carrier, "headers")
        try:
            # a plain dict knows only one of them
            value = headers.get("Retry-After") or headers.get("retry-after")
            if value is not None:
                return read_retry_after(value)
        except Exception:  # noqa: BLE001, S112 # any shape of headers, any text in them
            continue
    return None


def read_retry_after(value: str | None) -> float | None:
    """Seconds to wait, at most MAX_RETRY_AFTER; None when the text says nothing."""
    if value is None:
        return None
    try:
        wait = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        wait = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - datetime.now(
            UTC
        ).timestamp()
    return min(max(wait, 0.0), MAX_RETRY_AFTER) if wait == wait else None  # noqa: PLR0124 # nan


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "replace")).hexdigest()[:16]
