"""Dead letters by cause: what is new, how many, since when, with which version; and a report to
hand around.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from redrive.dead_letters import redrive as dead_letters

Connection = psycopg.Connection[Any]

_FIELDS: LiteralString = (
    'g.fingerprint as "group", g.kind, g.category, g.error_class, g.message, g.open, g.total, g.first_seen,'
    " g.last_seen, g.versions, g.sample, g.muted_until, g.muted_by, g.muted_why"
)
REPORTED_IDS = 50
REPORTED_ACTIONS = 20


def find(  # noqa: PLR0913 # filters
    conn: Connection,
    *,
    kind: Sequence[str] = (),
    category: Sequence[str] = (),
    new_since: str | None = None,
    closed: bool = False,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Groups, the largest first.

    Args:
        new_since: only groups first seen after this image version was first seen failing anything.
        closed: also those with no open dead letter left.
    """
    conditions: list[LiteralString] = ["true"] if closed else ["g.open > 0"]
    parameters: list[Any] = []
    if kind:
        conditions.append("g.kind = any (%s::text[])")
        parameters.append(list(kind))
    if category:
        conditions.append("g.category = any (%s::text[])")
        parameters.append(list(category))
    if new_since is not None:
        conditions.append(
            "g.first_seen >= (select min((o.versions ->> %s)::timestamptz)"
            " from redrive.grouped o where o.versions ? %s)"
        )
        parameters += [new_since, new_since]
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "select "
            + _FIELDS
            + " from redrive.grouped g where "
            + " and ".join(conditions)
            + " order by g.open desc, g.last_seen desc nulls last limit %s",
            (*parameters, limit),
        ).fetchall()
    dead_letters.reveal(conn, found, "sample")
    return found


def show(conn: Connection, fingerprint: str) -> dict[str, Any] | None:
    """One group by its fingerprint or the beginning of it; None when there is none, or more than
    one.
    """
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "select "
            + _FIELDS
            + " from redrive.grouped g where starts_with(g.fingerprint, %s) limit 2",
            (fingerprint,),
        ).fetchall()
    dead_letters.reveal(conn, found, "sample")
    return found[0] if len(found) == 1 else None


def mute(
    conn: Connection, fingerprint: str, until: datetime | None, *, actor: str, why: str
) -> bool:
    """Leave a group out of redrives until an instant; None takes that back. Returns whether there
    is such a group.
    """
    row = conn.execute(
        "select redrive.mute_v1(%s, %s, %s, %s)", (fingerprint, until, actor, why)
    ).fetchone()
    return bool(row and row[0])


def report(conn: Connection, fingerprint: str) -> str | None:
    """An incident bundle of one group in Markdown: counts, timeline, a sample with its history,
    what was done.

    Payloads are redacted. None when there is no such group.
    """
    group = show(conn, fingerprint)
    if group is None:
        return None
    ids = conn.execute(
        "select id, died_at, reason, state from redrive.dead_letters"
        " where fingerprint = %s order by died_at desc limit %s",
        (group["group"], REPORTED_IDS),
    ).fetchall()
    hours = conn.execute(
        "select date_trunc('hour', died_at), count(*) from redrive.dead_letters"
        " where fingerprint = %s and died_at > clock_timestamp() - interval '7 days'"
        " group by 1 order by 1 desc limit 24",
        (group["group"],),
    ).fetchall()
    actions = conn.execute(
        "select at, actor, action, why, n from redrive.audit where detail -> 'filter' ->> 'group' is not null"
        " and starts_with(%s, detail -> 'filter' ->> 'group') or detail ->> 'group' = %s order by at desc limit %s",
        (group["group"], group["group"], REPORTED_ACTIONS),
    ).fetchall()
    sample = dead_letters.show(conn, group["sample"])
    parts = [
        f"# {group['kind']}: {_code(group['error_class'])}",
        f"> {_code(group['message'])}",
        (
            f"group `{group['group']}`, category {group['category']}. **{group['open']} open** of {group['total']}"
            f" ever; first seen {group['first_seen']:%Y-%m-%d %H:%M:%S %Z},"
            f" last {group['last_seen']:%Y-%m-%d %H:%M:%S %Z}."
        ),
        _versions(group["versions"]),
        "## By hour\n\n| hour | dead letters |\n|---|---:|\n"
        + "\n".join(f"| {at:%Y-%m-%d %H:00} | {n} |" for at, n in hours),
        _sample(sample),
        f"## Jobs (the latest {len(ids)})\n\n| id | died | reason | state |\n|---|---|---|---|\n"
        + "\n".join(
            f"| {job} | {at:%Y-%m-%d %H:%M:%S} | {reason} | {state} |"
            for job, at, reason, state in ids
        ),
        "## What was done\n\n"
        + (
            "\n".join(
                f"- {at:%Y-%m-%d %H:%M} {actor}: {action} of {n}, {why}"
                for at, actor, action, why, n in actions
            )
            or "Nothing yet."
        ),
        f"## Back to work\n\n    redrive dlq redrive --group {group['group']} --rate 10 --why '...'",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")


def _versions(versions: dict[str, str]) -> str:
    return (
        "Versions: "
        + ", ".join(
            f"`{v}` since {at[:16]}" for v, at in sorted(versions.items(), key=lambda i: i[1])
        )
        if versions
        else ""
    )


def _sample(sample: dict[str, Any] | None) -> str:
    if sample is None:
        return ""
    import msgspec  # noqa: PLC0415

    lines = [
        f"## A sample: job {sample['id']}",
        "```json\n"
        + msgspec.json.format(msgspec.json.encode(sample["payload"])).decode()
        + "\n```",
    ]
    lines += (
        f"- attempt {failure['attempt']}, {failure['at']:%Y-%m-%d %H:%M:%S}, on {failure['worker']}: "
        f"{_code(failure['error_class'])}: {_code(failure['message'])}"
        for failure in sample["failures"]
    )
    if sample["failures"]:
        stack = sample["failures"][-1]["detail"].get("stack", [])
        lines.append(
            "```\n"
            + "\n".join(f"{f['file']}:{f['line']} in {f['function']}" for f in stack)
            + "\n```"
        )
    return "\n\n".join(lines)
