"""An incident report of one group, in Markdown, to share.

Texts from producers and handlers stand in a code span or a fence. So no link, image,
tag or mention of theirs becomes active where the report is shown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, LiteralString

import msgspec
import psycopg
from psycopg.rows import dict_row

from redrive.dead_letters import groups
from redrive.dead_letters.explain import explain
from redrive.dead_letters.find import show
from redrive.rules.dead_letters.explain import sentence
from redrive.rules.payloads.escape import escaped, escaped_lines

_HOURS: LiteralString = """
    select date_trunc('hour', died_at) as hour, count(*) as count from redrive.dead_letters
    where fingerprint = %(group)s and died_at > clock_timestamp() - interval '7 days'
    group by 1 order by 1 desc limit 24"""

_JOBS: LiteralString = """
    select id, died_at, reason, state from redrive.dead_letters
    where fingerprint = %(group)s order by died_at desc limit 50"""

_ACTIONS: LiteralString = """
    select at, actor, action, why, n from redrive.audit
    where detail -> 'filter' ->> 'group' is not null
          and starts_with(%(group)s, detail -> 'filter' ->> 'group')
       or detail ->> 'group' = %(group)s
    order by at desc limit 20"""

_HEAD = """\
# {kind}: {error_class}

> {message}

group {group}, category {category}. **{open} open** of {total} ever; \
first seen {first_seen:%Y-%m-%d %H:%M:%S %Z}, last {last_seen:%Y-%m-%d %H:%M:%S %Z}."""

_FAILURE = (
    "- attempt {attempt}, {at:%Y-%m-%d %H:%M:%S}, on {worker}: {error_class}: {message}"
)


def report(conn: psycopg.Connection[Any], fingerprint: str) -> str | None:
    """Return the counts, timeline, a sample and the actions of one group.

    The sample has its history. Payloads are redacted. Returns None unless exactly one
    group's fingerprint begins with `fingerprint`.
    """
    group = groups.show(conn, fingerprint)
    if group is None:
        return None
    with conn.cursor(row_factory=dict_row) as cursor:
        hours = cursor.execute(_HOURS, group).fetchall()
        jobs = cursor.execute(_JOBS, group).fetchall()
        actions = cursor.execute(_ACTIONS, group).fetchall()
    sections = [_HEAD.format_map(_in_code(group))]
    if group["versions"]:
        sections.append("Versions: " + ", ".join(_versions(group["versions"])))
    sections += [
        "## By hour",
        "| hour | dead letters |\n|---|---:|\n"
        + _lines("| {hour:%Y-%m-%d %H:00} | {count} |", hours),
        *_common(explain(conn, group["group"])),
        *_sample(show(conn, group["sample"])),
        f"## Jobs (the latest {len(jobs)})",
        "| id | died | reason | state |\n|---|---|---|---|\n"
        + _lines("| {id} | {died_at:%Y-%m-%d %H:%M:%S} | {reason} | {state} |", jobs),
        "## What was done",
        _lines(
            "- {at:%Y-%m-%d %H:%M} {actor}: {action} of {n}, {why}",
            map(_in_code, actions),
        )
        or "Nothing yet.",
        "## Back to work",
        f"    redrive dlq redrive --group {group['group']} --rate 10 --why '...'",
    ]
    return "\n\n".join(sections) + "\n"


def _lines(template: str, rows: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(template.format_map(row) for row in rows)


def _versions(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield each version with the time of its first failure, oldest first."""
    for version, since in sorted(versions.items(), key=lambda item: item[1]):
        yield f"{_code(version)} since {since[:16]}"


def _common(explained: dict[str, Any] | None) -> Iterator[str]:
    """Yield the features that set the group apart, if there are any."""
    if explained is not None and explained["findings"]:
        yield "## What they have in common"
        yield "\n".join(f"- {_code(sentence(one))}" for one in explained["findings"])


def _sample(letter: dict[str, Any] | None) -> Iterator[str]:
    if letter is None:
        return
    yield f"## A sample: job {letter['id']}"
    payload = msgspec.json.format(msgspec.json.encode(letter["payload"])).decode()
    yield _fenced(payload, "json")
    for failure in letter["failures"]:
        yield _FAILURE.format_map(_in_code(failure))
    if letter["failures"]:
        stack = letter["failures"][-1]["detail"].get("stack", ())
        yield _fenced(_lines("{file}:{line} in {function}", stack))


def _fenced(text: str, language: str = "") -> str:
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{escaped_lines(text)}\n{fence}"


def _in_code(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with its texts as code spans."""
    return {
        name: _code(value) if isinstance(value, str) else value
        for name, value in row.items()
    }


def _code(text: str) -> str:
    """Return a code span on one line that no backtick in the text ends."""
    if not text:
        return ""
    span = "`" * (_longest_run(text) + 1)
    pad = " " if "`" in (text[0], text[-1]) else ""
    return f"{span}{pad}{escaped(text)}{pad}{span}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
