"""Lists as files: CSV for spreadsheets, JSON for programs."""

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from io import StringIO
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from redrive.database import audit
from redrive.dead_letters.filter import Filter
from redrive.dead_letters.find import NAMES
from redrive.dead_letters.groups import store as groups
from redrive.extras.console.job_pages import page as page_of_jobs
from redrive.extras.console.letter_pages import page as page_of_letters
from redrive.extras.console.pages.filters import group_choice
from redrive.extras.console.pages.json_api.api import answer
from redrive.extras.console.pages.listing import filter_of, layout
from redrive.extras.console.pages.time_series.spans import without_span
from redrive.extras.console.state import SignedIn
from redrive.jobs.filter import JobFilter
from redrive.jobs.find import COLUMNS, listed
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Fields
from redrive.verbs.query import Query, parse
from redrive.verbs.refusal import Missing

router = APIRouter(include_in_schema=False)

Rows = Sequence[Fields]
Read = Callable[[Any, Query], Rows]
MOST = 10_000
"""Most rows of a file."""
SECONDS = 10.0
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 # full width
"""Beginnings of a text that a spreadsheet would run. Some skip blanks before them."""


def _letters(conn: Any, query: Query) -> Rows:
    chosen = parse(Filter, query, states=("open",))
    most = min(chosen.limit or MOST, MOST)

    return page_of_letters(conn, chosen, None, most=most, seconds=SECONDS).rows


def _jobs(conn: Any, query: Query) -> Rows:
    chosen = parse(JobFilter, query)
    most = min(chosen.limit or MOST, MOST)
    found = page_of_jobs(conn, chosen, None, most=most, seconds=SECONDS)

    return [listed(row) for row in found.rows]


def _groups(conn: Any, query: Query) -> Rows:
    # The address of the page has its span, too, which is no filter of groups.
    return groups.find(conn, **group_choice(without_span(query)), limit=MOST)


GROUP = (
    *("group", "kind", "category", "error_class", "message", "open", "total"),
    *("first_seen", "last_seen", "state", "owner", "acknowledged_by"),
)
LINE = ("id", "at", "actor", "login", "action", "n", "why", "detail")

LISTS: Mapping[str, tuple[Read, Sequence[str]]] = {
    "dead-letters": (_letters, NAMES),
    "jobs": (_jobs, COLUMNS),
    "groups": (_groups, GROUP),
    "audit": (
        lambda conn, query: audit.newest(conn, parse(audit.Choice, query), MOST),
        LINE,
    ),
}
"""List -> how it is read, and its columns."""


@router.get("/export/{name}.{form}")
def export(visit: SignedIn, name: str, form: str) -> Response:
    """Return a list with its filter and its columns as a file."""
    if name not in LISTS or form not in {"csv", "json"}:
        known = ", ".join(LISTS)
        raise Missing(f"there is no such file; .csv and .json exist of: {known}")

    read, columns = LISTS[name]
    shape = layout(visit.query, known=columns, default=columns, sortable=())

    with visit.reading() as conn:
        rows = read(conn, filter_of(visit.query))

    found = [{column: row[column] for column in shape.columns} for row in rows]
    response = answer(found) if form == "json" else _csv(shape.columns, found)

    response.headers["content-disposition"] = f'attachment; filename="{name}.{form}"'

    return response


def _csv(columns: Sequence[str], rows: Iterable[Fields]) -> Response:
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)

    for row in rows:
        writer.writerow([_safe(row[column]) for column in columns])

    return Response(text.getvalue(), media_type="text/csv; charset=utf-8")


def _safe(value: Any) -> str:
    """Return a cell that a spreadsheet shows as text, and never runs."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int | float):
        return str(value)

    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False, default=str)

    text = escaped(str(value))
    if text.lstrip().startswith(FORMULA):
        return f"'{text}"

    return text
