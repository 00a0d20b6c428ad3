"""Check of a plan: its handlers must accept the payloads, or they are left out.

Causes contain no value of any payload, because every viewer of a campaign sees them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString

from redrive.database.rows import Connection, rows
from redrive.encryption import Undecryptable, opened_text
from redrive.handlers import Handler, Handlers, decode_object
from redrive.rules.payloads.redact import scrub, secret_values
from redrive.rules.rows import Fields

PAGE = 500
"""Payloads that are held in memory at once."""

CAUSES = 50
"""Causes that are counted by name; all others are counted together, as OTHER."""

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
    """Numbers of dead letters that do not fit, by cause.

    Attributes:
        invalid: the handler cannot read the payload, or its `validate` refuses it.
        unchecked: it could not be checked, because this process lacks the handler or
            the key.
    """

    invalid: dict[str, int] = field(default_factory=dict[str, int])
    unchecked: dict[str, int] = field(default_factory=dict[str, int])


def leave_out(
    conn: Connection,
    campaign: int,
    handlers: Handlers,
    *,
    progress: Callable[[int], None] | None = None,
) -> Unfit:
    """Leave out of a plan the payloads that the handlers cannot take.

    Each page is a transaction of its own, and its result stays. If the check stops
    half-way, the plan holds less, and nothing that was found unfit.
    """
    found = Unfit()
    last = 0

    while page := rows(conn, _READ, campaign, last, PAGE):
        causes: dict[int, str] = {}
        for row in page:
            _look(row, handlers, found, causes)

        _leave_out(conn, campaign, causes)
        last = page[-1]["n"]
        if progress:
            progress(len(page))

    return found


def _leave_out(conn: Connection, campaign: int, causes: Mapping[int, str]) -> None:
    if not causes:
        return

    numbers = list(causes)
    conn.execute(
        "select redrive.leave_out_v1(%s, %s, %s)",
        (campaign, numbers, list(causes.values())),
    )


def _look(
    row: Fields, handlers: Handlers, found: Unfit, causes: dict[int, str]
) -> None:
    """Check a dead letter of the plan; record the cause if it does not fit."""
    handler = handlers.get(row["kind"])
    if handler is None:
        _count(found.unchecked, f"no handler for {row['kind']}")
        return

    try:
        text = opened_text(row)
    except Undecryptable as error:
        _count(found.unchecked, str(error))
        return

    cause = fault(handler, text, row["headers"].get("version", 1))
    if cause is not None:
        causes[row["n"]] = _count(found.invalid, cause)


def _count(causes: dict[str, int], cause: str) -> str:
    """Count a cause, or OTHER in its place; return the name that was counted."""
    counted = cause if cause in causes or len(causes) < CAUSES else OTHER
    causes[counted] = causes.get(counted, 0) + 1
    return counted


def fault(handler: Handler, text: str, version: Any) -> str | None:
    """Return why a handler cannot take a payload's JSON; None if it can."""
    if isinstance(version, int) and version > handler.version:
        return f"payload: version {version}, the handler takes {handler.version}"

    try:
        handler.payload(text, version)
    except Exception as error:  # noqa: BLE001 # models and upgrades are user code
        return _bounded(_cause(error, "payload"), handler, text)

    return refusal(handler, text, version)


def refusal(handler: Handler, text: str, version: Any) -> str | None:
    """Return why `validate` refuses a readable payload; None if it does not refuse."""
    is_readable = isinstance(version, int) and version <= handler.version
    # An unreadable payload is a fault of its own; see `fault`.
    if handler.validate is None or not is_readable:
        return None

    try:
        handler.validate(handler.payload(text, version))
    except Exception as error:  # noqa: BLE001 # it is user code
        return _bounded(_cause(error, "validate"), handler, text)

    return None


def _cause(error: Exception, where: str) -> str:
    """Return the first wrong field and its fault, or else the error's class."""
    errors: Any = getattr(error, "errors", None)
    if not callable(errors):
        return f"{where}: {type(error).__name__}"

    listed: Any = errors(include_input=False, include_url=False, include_context=False)
    first = next(iter(listed))
    what = first["type"].replace("_", " ")

    return f"{_path(first['loc']) or where}: {what}"


def _path(location: Sequence[str | int]) -> str:
    """Return the path of a field without the places in lists."""
    parts = ("[]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _bounded(cause: str, handler: Handler, text: str) -> str:
    """Scrub and shorten a cause, because a path may contain a key of the payload."""
    secrets = secret_values(decode_object(text), handler.secret)
    return scrub(cause, secrets)[:MAX_CAUSE]
