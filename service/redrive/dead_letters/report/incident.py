"""An incident report of one group, in Markdown, to share.

Texts from producers and handlers stand in a code span or a fence. So a link, image,
tag or mention in such a text stays inactive where the report is shown.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import LiteralString

import msgspec

from redrive.database.rows import Connection, rows
from redrive.dead_letters.explain.answer import sentence
from redrive.dead_letters.explain.facts import explain
from redrive.dead_letters.find import show
from redrive.dead_letters.groups import store as groups
from redrive.dead_letters.report.review import GAVE_UP
from redrive.rules.attempts.stack import stack_lines
from redrive.rules.brief import MOST, brief
from redrive.rules.payloads.escape import escaped, escaped_lines
from redrive.rules.rows import Fields, Row

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
       or detail -> 'groups' ? %(group)s
    order by at desc limit 20"""

_HEAD = """\
# {kind}: {error_class}

> {message}

group {group}, category {category}. **{open} open** of {total} ever; \
first seen {first_seen:%Y-%m-%d %H:%M:%S %Z}, last {last_seen:%Y-%m-%d %H:%M:%S %Z}."""

_FAILURE = (
    "- attempt {attempt}, {at:%Y-%m-%d %H:%M:%S}, on {worker}: {error_class}: {message}"
)


def report(conn: Connection, fingerprint: str) -> str | None:
    """Return the counts, timeline, a sample and the actions of one group.

    The sample has its history. Payloads are redacted. Returns None unless exactly one
    group's fingerprint begins with `fingerprint`.
    """
    group = groups.show(conn, fingerprint)
    if group is None:
        return None

    sections = (
        _head(group),
        _hours(rows(conn, _HOURS, **group)),
        _common(explain(conn, group["group"])),
        _sample(show(conn, group["sample"])),
        _jobs(rows(conn, _JOBS, **group)),
        _actions(rows(conn, _ACTIONS, **group)),
        _redrive(group),
    )

    return "\n\n".join(chain.from_iterable(sections)) + "\n"


def _head(group: Row) -> Iterator[str]:
    yield _HEAD.format_map(_in_code(group))
    if group["failing"]:
        yield "**{failing} failing** now, since {failing_since:%Y-%m-%d %H:%M:%S %Z}.".format_map(
            group
        )
    if group["versions"]:
        yield "Versions: " + ", ".join(_versions(group["versions"]))


def _hours(hours: Iterable[Fields]) -> Iterator[str]:
    yield "## By hour"
    rows = _lines("| {hour:%Y-%m-%d %H:00} | {count} |", hours)
    yield "| hour | dead letters |\n|---|---:|\n" + rows


def _jobs(jobs: Sequence[Fields]) -> Iterator[str]:
    yield f"## Jobs (the latest {len(jobs)})"
    template = "| {id} | {died_at:%Y-%m-%d %H:%M:%S} | {reason} | {state} |"
    rows = _lines(template, jobs)
    yield "| id | died | reason | state |\n|---|---|---|---|\n" + rows


def _actions(actions: Iterable[Fields]) -> Iterator[str]:
    yield "## What was done"
    template = "- {at:%Y-%m-%d %H:%M} {actor}: {action} of {n}, {why}"
    yield _lines(template, map(_in_code, actions)) or "Nothing yet."


def _redrive(group: Row) -> Iterator[str]:
    if group["error_class"] == GAVE_UP:
        yield "## Handlers gave up on purpose"
        yield f"    redrive dlq dismiss --group {group['group']} --why '...'"
        return

    yield "## Back to work"
    if group["failing"]:
        yield f"    redrive dlq retry {group['group']} --why '...'"
    if group["total"]:
        yield f"    redrive dlq redrive --group {group['group']} --rate 10 --why '...'"


def _lines(template: str, rows: Iterable[Fields]) -> str:
    return "\n".join(template.format_map(row) for row in rows)


def _versions(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield each version with the time of its first failure, oldest first."""
    oldest_first = sorted(versions.items(), key=itemgetter(1))
    for version, since in oldest_first:
        yield f"{_code(version)} since {since[:16]}"


def _common(explained: Row | None) -> Iterator[str]:
    """Yield the features that set the group apart, if there are any."""
    if explained is None or not explained["findings"]:
        return

    yield "## What they have in common"
    sentences = map(sentence, explained["findings"])
    yield "\n".join(f"- {_code(text)}" for text in sentences)


def _sample(letter: Row | None) -> Iterator[str]:
    if letter is None:
        return

    yield f"## A sample: job {letter['id']}"
    encoded = msgspec.json.encode(letter["payload"])
    payload = msgspec.json.format(encoded).decode()
    yield _fenced(payload, "json")
    failures = letter["failures"]

    for failure in failures:
        yield _FAILURE.format_map(_in_code(failure))

    stack = failures[-1]["detail"].get("stack") if failures else None
    if stack:
        yield _fenced("\n".join(stack_lines(stack)))


def _fenced(text: str, language: str = "") -> str:
    # A fence must be longer than any run of backticks in the text.
    longer = _longest_run(text) + 1
    fence = "`" * max(3, longer)

    return f"{fence}{language}\n{escaped_lines(text)}\n{fence}"


def _in_code(row: Fields) -> Row:
    """Return the row with its texts as code spans, a message on one line."""
    if "message" in row:
        row = {**row, "message": brief(row["message"], MOST)}

    return {
        name: _code(value) if isinstance(value, str) else value
        for name, value in row.items()
    }


def _code(text: str) -> str:
    """Return a code span on one line that no backtick in the text ends."""
    if not text:
        return ""

    span = "`" * (_longest_run(text) + 1)
    # A backtick next to the span's own ones would become a part of them.
    if "`" in (text[0], text[-1]):
        pad = " "
    else:
        pad = ""

    return f"{span}{pad}{escaped(text)}{pad}{span}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
