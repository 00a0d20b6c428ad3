"""Check of a plan against its handlers: dead letters they cannot take are left out of
it.

Causes hold no value of any payload: whoever may look at a campaign sees them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.encryption import SEALED, Undecryptable, Whose, configured, open_payload
from redrive.handlers import Handler, Handlers, decode_object
from redrive.rules.payloads.redact import scrub, secret_values

Row = Mapping[str, Any]

PAGE = 500
"""Payloads that are held at once."""

CAUSES = 50
"""Further ones are counted together, as OTHER."""

OTHER = "other"
MAX_CAUSE = 200

_READ: LiteralString = """
    select j.n, d.kind, d.queue, d.tenant, d.idempotency_key, d.ordering_key, d.headers,
           d.payload::text as payload
    from redrive.campaign_jobs j
    join redrive.dead_letters d on d.id = j.id and d.redrives = j.redrives
    where j.campaign = %s and j.n > %s and j.state is null order by j.n limit %s"""


@dataclass(slots=True)
class Unfit:
    """Dead letters that do not fit: cause -> number.

    Attributes:
        invalid: its handler cannot read it, or its `validate` refuses it.
        unchecked: nobody here could tell: it has no handler, or its key is elsewhere.
    """

    invalid: dict[str, int] = field(default_factory=dict[str, int])
    unchecked: dict[str, int] = field(default_factory=dict[str, int])


def leave_out(
    conn: psycopg.Connection[Any],
    campaign: int,
    handlers: Handlers,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Unfit:
    """Let the handlers read the payloads of a plan, and leave out what they cannot take.

    By the page, each in a transaction of its own. What a page leaves out stays so: stopped half-way
    the plan holds less, and nothing that was found to be unfit.
    """
    found, last = Unfit(), 0
    with conn.cursor(row_factory=dict_row) as cursor:
        while page := cursor.execute(_READ, (campaign, last, PAGE)).fetchall():
            causes: dict[int, str] = {}
            for row in page:
                _look(row, handlers, found, causes)
            if causes:
                conn.execute(
                    "select redrive.leave_out_v1(%s, %s, %s)",
                    (campaign, list(causes), list(causes.values())),
                )
            last = page[-1]["n"]
            progress(len(page))
    return found


def _look(row: Row, handlers: Handlers, found: Unfit, causes: dict[int, str]) -> None:
    """Count a dead letter of the plan; what does not fit is among the causes, by its place."""
    handler = handlers.get(row["kind"])
    if handler is None:
        _count(found.unchecked, f"no handler for {row['kind']}")
        return
    text = row["payload"]
    if text.startswith(SEALED):
        try:
            text = open_payload(configured(), text, Whose.of(row), row["headers"]).decode()
        except Undecryptable as error:
            _count(found.unchecked, str(error))
            return
    cause = fault(handler, text, row["headers"].get("version", 1))
    if cause is not None:
        causes[row["n"]] = _count(found.invalid, cause)


def _count(causes: dict[str, int], cause: str) -> str:
    """Count a cause, or what stands for it. Returns that."""
    counted = cause if cause in causes or len(causes) < CAUSES else OTHER
    causes[counted] = causes.get(counted, 0) + 1
    return counted


def fault(handler: Handler, text: str, version: Any) -> str | None:
    """Why a handler cannot take a payload's JSON of this version; None = it can."""
    if isinstance(version, int) and version > handler.version:
        return f"payload: version {version}, the handler takes {handler.version}"
    try:
        handler.payload(text, version)
    except Exception as error:  # noqa: BLE001 # models and upgrades are user code
        return _bounded(_cause(error, "payload"), handler, text)
    return refusal(handler, text, version)


def refusal(handler: Handler, text: str, version: Any) -> str | None:
    """Why its `validate` refuses a payload that it can read; None = it does not, or has none."""
    if handler.validate is None or not isinstance(version, int) or version > handler.version:
        return None
    try:
        handler.validate(handler.payload(text, version))
    except Exception as error:  # noqa: BLE001 # it is user code
        return _bounded(_cause(error, "validate"), handler, text)
    return None


def _cause(error: Exception, where: str) -> str:
    """The first field that is wrong and how; of what has no fields the class of the error."""
    errors: Any = getattr(error, "errors", None)
    if not callable(errors):
        return f"{where}: {type(error).__name__}"
    listed: Any = errors(include_input=False, include_url=False, include_context=False)
    first = next(iter(listed))
    path = "".join("[]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"{path.removeprefix('.') or where}: {first['type'].replace('_', ' ')}"


def _bounded(cause: str, handler: Handler, text: str) -> str:
    """A path may have a key of the payload in it, which may be anything."""
    return scrub(cause, secret_values(decode_object(text), handler.secret))[:MAX_CAUSE]
