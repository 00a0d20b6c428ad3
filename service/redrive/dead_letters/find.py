"""Read dead letters: a list, or one with its whole history.

A column of `COLUMNS` is in all lists, exports and `--json`. `dlq show`, `job show` and
the console's page of a job show one of `FACTS` as a fact. A detail of its failures is
not here: see `rules/attempts/circumstances.py`.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any, LiteralString, NamedTuple

from redrive.database.rows import Connection, column, rows
from redrive.dead_letters.campaigns.store import MAX_REDRIVES
from redrive.dead_letters.edit.patch import diff
from redrive.dead_letters.filter import STATES, Filter
from redrive.dead_letters.groups import acknowledgements
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.origin import origin
from redrive.dead_letters.reveal import reveal
from redrive.encryption import MARK, shown_failure, shown_payload, shown_side_effect
from redrive.rules.payloads.redact import redact, secret_values
from redrive.rules.rows import Fields, Row


class Column(NamedTuple):
    """Column of the lists of dead letters on the command line and in the console.

    Attributes:
        read: its SQL; `d` is the table of dead letters.
        is_wide: True if users see it only when they ask for it.
    """

    name: LiteralString
    read: LiteralString
    is_wide: bool = False
    is_number: bool = False


COLUMNS = (
    Column("id", "d.id"),
    Column("kind", "d.kind"),
    Column("queue", "d.queue"),
    Column("state", "d.state"),
    Column("reason", "d.reason"),
    Column("category", "d.category", is_wide=True),
    Column("error_class", "d.error_class"),
    Column("message", "d.message"),
    Column("attempts", "d.attempts", is_number=True),
    Column("deliveries", "d.deliveries", is_wide=True, is_number=True),
    Column("redrives", "d.redrives", is_wide=True, is_number=True),
    Column("created_at", "d.created_at", is_wide=True),
    Column("died_at", "d.died_at"),
    Column("group", "d.fingerprint"),
    Column("owner", "d.owner"),
)
NAMES = tuple(column.name for column in COLUMNS)
NARROW = tuple(column.name for column in COLUMNS if not column.is_wide)
NUMBERS = tuple(column.name for column in COLUMNS if column.is_number)
FACTS = ("owner", "tenant", "ordering_key", "max_attempts", "first_failed_at")
"""Columns of the table that people see as facts of one dead letter."""

_COLUMNS_READ: LiteralString = ", ".join(
    f'{column.read} as "{column.name}"' for column in COLUMNS
)
LISTED: LiteralString = f"""
    {_COLUMNS_READ},
    coalesce(d.quarantined and d.state = 'open', false) as quarantined,
    case when d.redrives = 0 then extract(epoch from d.died_at - d.created_at)::float8 end
        as time_to_dlq_seconds"""

_GENERATIONS: LiteralString = f"""
    select {LISTED}, d.{", d.".join(FACTS)}, d.payload, d.notes, d.outcome, d.settled_at, d.campaign,
           c.actor as redriven_by, c.db_user as login, c.why,
           c.conditions ->> 'to_queue' as to_queue, d.blocked,
           d.idempotency_key, d.headers, d.losses,
           coalesce(d.holds_key and d.state = 'open', false) as holds_key,
           case when d.state = 'open' then (
               select o.cause from redrive.redrive_obstacle_v2(
                   d.id, d.redrives, d.kind, d.idempotency_key, d.fingerprint, d.reason,
                   d.category, d.version, d.deliveries, d.quarantined, %s, '{{"ids": []}}') o)
           end as obstacle
    from redrive.dead_letters d left join redrive.campaigns c on c.id = d.campaign
    where d.id = %s order by d.redrives desc"""

_FAILURES: LiteralString = """
    select deliveries, attempt, at, worker, error_class, message, category, fingerprint, detail
    from redrive.failures where job = %s order by deliveries"""

_SIDE_EFFECTS: LiteralString = """
    select at, deliveries, what, detail from redrive.side_effects where job = %s order by at"""

_EDITS: LiteralString = """
    select n, redrives, at, actor, login, why, paths, payload, salt
    from redrive.edits where job = %s order by n"""

EDITED = ("at", "actor", "login", "why", "paths", "redrives")
"""Fields that `show` has for each edit of a payload, besides the changes."""

LINEAGE = (
    *("redrives", "state", "reason", "died_at", "outcome", "settled_at"),
    *("campaign", "redriven_by", "login", "why", "to_queue"),
)
"""Fields that `show` has for each death of a job."""


Place = tuple[datetime, int]
"""Place of a dead letter in a list: time of death and id."""


def find(conn: Connection, chosen: Filter, after: Place | None = None) -> list[Row]:
    """Return dead letters, the latest first, with the fields of `dlq ls --json`.

    Args:
        after: place of the last dead letter already seen; None = from the beginning.
    """
    conditions, parameters = _where(conn, chosen)
    if after is not None:
        conditions += " and (d.died_at, d.id) < (%s, %s)"
        parameters += after

    # The index on the time of death begins with the state. So the latest of each state
    # are read, then the latest of these.
    query: LiteralString = (
        "select o.* from unnest(%s::text[]) as s(state) cross join lateral ("
        f"select {LISTED} from redrive.dead_letters d where d.state = s.state and {conditions}"
        " order by d.died_at desc, d.id desc limit %s) o"
        " order by o.died_at desc, o.id desc limit %s"
    )
    states = list(chosen.state or STATES)
    found = rows(conn, query, states, *parameters, chosen.limit, chosen.limit)
    reveal(conn, found)
    acknowledgements.mark(conn, found)

    return found


def _where(conn: Connection, chosen: Filter) -> tuple[LiteralString, list[Any]]:
    """Return the conditions of a filter apart from the state, and their parameters."""
    return groups.where(conn, replace(chosen, state=()))


def ids(conn: Connection, chosen: Filter) -> list[int]:
    """Return the ids of matching dead letters in one state, ordered as in `find`."""
    (state,) = chosen.state
    conditions, parameters = _where(conn, chosen)

    # Not by the list of states, because indexes by kind and queue hold only open ones.
    query: LiteralString = (
        f"select d.id from redrive.dead_letters d where d.state = %s and {conditions}"
        " order by d.died_at desc, d.id desc limit %s"
    )

    return column(conn, query, state, *parameters, chosen.limit)


def open_by_group(conn: Connection, chosen: Filter) -> dict[str, int]:
    """Return how many open dead letters of each group match."""
    conditions, parameters = _where(conn, chosen)
    query: LiteralString = (
        'select o."group", count(*) from ('
        ' select d.fingerprint as "group" from redrive.dead_letters d'
        f" where d.state = 'open' and {conditions}"
        " order by d.died_at desc, d.id desc limit %s) o group by 1"
    )

    found = conn.execute(query, (*parameters, chosen.limit))

    return dict(found.fetchall())


def show(conn: Connection, job: int, *, original: bool = False) -> Row | None:
    """Return all that is known of a job that died, or None.

    This is its latest death, failures, lineage and side effects. `obstacle` is why a
    redrive by its id would leave an open one where it is. The payload is redacted.
    `original` is the payload from before all edits. The result is None for a job that
    never died.
    """
    generations = rows(conn, _GENERATIONS, MAX_REDRIVES, job)
    if not generations:
        return None

    failures = failures_of(conn, job)
    edits = rows(conn, _EDITS, job)
    latest = generations[0]
    reveal(conn, [latest])
    acknowledgements.mark(conn, [latest])
    payloads, headers = _redacted(latest, edits, failures)

    return latest | {
        "payload": payloads[0 if original else -1],
        "headers": headers,
        "failures": failures,
        "lineage": [_fields(death, LINEAGE) for death in reversed(generations)],
        "side_effects": side_effects_of(conn, job),
        "edits": list(map(_edit, edits, pairwise(payloads))),
    }


def facts(letter: Fields) -> Row:
    """Return the facts of a dead letter by name, and where it came from."""
    return _fields(letter, FACTS) | origin(letter["headers"])


def _fields(row: Fields, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names}


def failures_of(conn: Connection, job: int) -> list[Row]:
    """Return the failures of any job, oldest first."""
    return [shown_failure(job, failure) for failure in rows(conn, _FAILURES, job)]


def failure_of(conn: Connection, group: Fields) -> Row | None:
    """Return the last failure of a group's sample in that group; None if it is deleted."""
    failures = failures_of(conn, group["sample"])
    same = [one for one in failures if one["fingerprint"] == group["group"]]
    return same[-1] if same else None


def side_effects_of(conn: Connection, job: int) -> list[Row]:
    """List the side effects that handlers of a job reported, oldest first."""
    return [shown_side_effect(job, effect) for effect in rows(conn, _SIDE_EFFECTS, job)]


def _edit(edit: Row, payloads: tuple[Any, Any]) -> Row:
    """Describe an edit and its changes."""
    return _fields(edit, EDITED) | {"diff": diff(*payloads, f"edit {edit['n']}")}


def declared_secret(failures: Iterable[Fields]) -> set[str]:
    """Return the keys that the handler declares secret.

    A lost worker could not record them with its failure.
    """
    secret = set[str]()
    for failure in failures:
        secret.update(failure["detail"].get("secret_fields", ()))

    return secret


def _redacted(
    latest: Row, edits: list[Row], failures: list[Row]
) -> tuple[list[Any], Any]:
    """Return the payload before each edit and now, and the headers, without secrets."""
    payloads = [shown_payload(latest | _before(edit)) for edit in edits]
    payloads.append(shown_payload(latest))
    headers = latest["headers"]
    declared = declared_secret(failures)

    # A secret of one version must not show in another one.
    secrets = secret_values([*payloads, headers], declared)
    shown = [redact(payload, declared, secrets) for payload in payloads]

    return shown, redact(headers, declared, secrets)


def _before(edit: Row) -> Row:
    """Return the columns of a dead letter that an edit changed."""
    return {"payload": edit["payload"], "headers": {MARK: edit["salt"]}}
