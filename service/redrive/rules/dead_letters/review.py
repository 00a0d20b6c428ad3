"""The review of a period as headlines and tables: plain text, Markdown and HTML.

Texts from producers stand in code spans or are escaped, so none becomes active where
the report is shown. The tables hold no messages of failures and no payloads.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from redrive.rules.attempts.waiting import ago, span
from redrive.rules.payloads.escape import escaped
from redrive.rules.scheduling.cells import id_in_cell
from redrive.rules.scheduling.instants import duration

Row = Mapping[str, Any]
MOST = 10
"""Rows that a table shows."""
GROUP_LENGTH = 10
EXPLAINED = frozenset({"bug", "invalid"})
"""Categories of groups for which a redrive alone does not help."""
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the review. `right`: columns of numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()
    empty: str = "None."


@dataclass(frozen=True, slots=True)
class Review:
    """The review of one database, ready to be shown.

    Attributes:
        commands: pairs of a reason and a command to type.
    """

    title: str
    headlines: Sequence[str]
    sections: Sequence[Section]
    commands: Sequence[tuple[str, str]]


def redrives(campaigns: Iterable[Row]) -> dict[str, Any]:
    """Add up the results of campaigns; `success_rate` is a share of the ended jobs."""
    names = ("redriven", "succeeded", "dead_again", "cancelled")
    found = list(campaigns)
    sums: dict[str, Any] = {
        name: sum(campaign[name] for campaign in found) for name in names
    }
    ended = sums["succeeded"] + sums["dead_again"]
    in_flight = sums["redriven"] - ended - sums["cancelled"]
    rate = sums["succeeded"] / ended if ended else None
    return {
        "campaigns": len(found),
        **sums,
        "in_flight": max(in_flight, 0),
        "success_rate": rate,
    }


def owners(pairs: Iterable[Row]) -> list[dict[str, Any]]:
    """Add up the open dead letters of each owner, the most first; None has no owner."""
    by_owner: dict[str | None, list[Row]] = defaultdict(list)
    for pair in pairs:
        by_owner[pair["owner"]].append(pair)
    found = [
        {
            "owner": owner,
            "open": sum(pair["open"] for pair in of_owner),
            "oldest": _oldest(of_owner),
        }
        for owner, of_owner in by_owner.items()
    ]
    return sorted(found, key=lambda row: -row["open"])


def _oldest(pairs: Iterable[Row]) -> datetime | None:
    known = [pair["oldest"] for pair in pairs if pair["oldest"] is not None]
    return min(known, default=None)


def growing(groups: Iterable[Row]) -> list[Row]:
    """Return the known groups with more deaths than in the period before."""
    known = [g for g in groups if not g["is_new"] and g["new"] > g["before"]]
    return sorted(known, key=lambda g: g["before"] - g["new"])


def shown(found: Row, cell: str | None = None) -> Review:
    """Return a review as headlines and tables."""
    now = found["until"]
    place = f" in {cell}" if cell else ""
    length = span((now - found["since"]).total_seconds())
    return Review(
        f"Dead letters{place}, the last {length}",
        list(_headlines(found)),
        list(_sections(found, now, cell)),
        list(_commands(found["groups"], cell)),
    )


def _headlines(found: Row) -> Iterator[str]:
    is_open = sum(pair["open"] for pair in found["open"])
    new_groups = sum(group["is_new"] for group in found["groups"])
    yield f"{is_open:,} open."
    yield _deaths(found)
    yield f"{new_groups} new {'group' if new_groups == 1 else 'groups'}."
    yield _redriven(found["redrives"])
    if found["time_to_dlq"]["measured"]:
        yield _times(found["time_to_dlq"])


def _deaths(found: Row) -> str:
    most = "at least " if found["is_more"] else ""
    before = f"{most}{found['before']:,} in the period before"
    return f"{most}{found['new']:,} new; {before}."


def _redriven(sums: Row) -> str:
    if not sums["redriven"]:
        return "Nothing was redriven."
    rate = sums["success_rate"]
    share = "" if rate is None else f", success rate {rate:.0%}"
    return f"{_SUMS.format_map(sums)}{share}."


_SUMS = (
    "{redriven:,} redriven: {succeeded:,} succeeded, {dead_again:,} died again,"
    " {in_flight:,} in flight"
)


def _times(found: Row) -> str:
    median, most = duration(found["median"]), duration(found["p90"])
    longest = duration(found["longest"])
    return f"Time to DLQ: median {median}, 90 % within {most}, longest {longest}."


def _sections(found: Row, now: datetime, cell: str | None) -> Iterator[Section]:
    groups: Sequence[Row] = found["groups"]
    is_open = [group for group in groups if group["open"]]
    is_new = [group for group in groups if group["is_new"]]
    yield _of_owners(found["owners"][:MOST], now)
    yield _of_groups("Largest groups", is_open, now)
    yield _of_groups("New groups", is_new, now)
    yield _of_groups("Growing groups", growing(groups), now)
    yield _of_oldest(found["oldest"], now, cell)
    yield _of_campaigns(found["campaigns"][:MOST], now, cell)


def _of_owners(found: Iterable[Row], now: datetime) -> Section:
    rows = [(_owner(r), f"{r['open']:,}", _age(r["oldest"], now)) for r in found]
    columns = ("owner", "open", "oldest")
    return Section("Whose", columns, rows, frozenset({"open"}), "No open dead letters.")


def _owner(row: Row) -> str:
    return row["owner"] or NOBODY


def _of_oldest(found: Iterable[Row], now: datetime, cell: str | None) -> Section:
    columns = ("id", "queue", "kind", "error", "owner", "died")
    rows = [_old(row, now, cell) for row in found]
    return Section("Oldest", columns, rows, frozenset({"id"}))


def _old(row: Row, now: datetime, cell: str | None) -> Sequence[str]:
    died = _age(row["died_at"], now)
    of_job = (row["queue"], row["kind"], row["error_class"])
    return (id_in_cell(row["id"], cell), *of_job, _owner(row), died)


def _of_groups(title: str, groups: Iterable[Row], now: datetime) -> Section:
    columns = (
        *("group", "queue", "kind", "category", "error", "owner"),
        *("open", "new", "before", "first seen"),
    )
    return Section(
        title,
        columns,
        [_of_group(group, now) for group in list(groups)[:MOST]],
        frozenset({"open", "new", "before"}),
    )


def _of_group(group: Row, now: datetime) -> Sequence[str]:
    return (
        group["group"][:GROUP_LENGTH],
        group["queue"] or "",
        group["kind"],
        group["category"],
        group["error_class"],
        _owner(group),
        f"{group['open']:,}",
        f"{group['new']:,}",
        f"{group['before']:,}",
        _age(group["first_seen"], now),
    )


def _of_campaigns(found: Iterable[Row], now: datetime, cell: str | None) -> Section:
    counts = ("redriven", "succeeded", "dead again")
    columns = ("campaign", "state", "by", "started", *counts, "why")
    rows = [_campaign(row, now, cell) for row in found]
    return Section("Redrives", columns, rows, frozenset({"campaign", *counts}))


def _campaign(row: Row, now: datetime, cell: str | None) -> Sequence[str]:
    counts = (row["redriven"], row["succeeded"], row["dead_again"])
    return (
        id_in_cell(row["campaign"], cell),
        row["state"],
        row["actor"],
        _age(row["started_at"], now),
        *(f"{n:,}" for n in counts),
        row["why"] or "",
    )


def _age(at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{ago(at, now)} ago"


def _commands(groups: Iterable[Row], cell: str | None) -> Iterator[tuple[str, str]]:
    """Yield what to type next about each of the largest groups."""
    is_open = [group for group in groups if group["open"]]
    in_cell = f" --cell {cell}" if cell else ""
    for group in is_open[:MOST]:
        name = group["group"][:GROUP_LENGTH]
        what = f"{group['kind']}: {group['error_class']}"
        words = (
            f"redrive dlq explain {name}"
            if group["category"] in EXPLAINED
            else f"redrive campaign plan --group {name}"
        )
        yield what, words + in_cell


# ---------------------------------------------------------------------- formats


def text(review: Review) -> str:
    """Return a review as plain text with aligned columns."""
    tables = [f"{each.title}\n{_aligned(each)}" for each in review.sections]
    parts = [review.title, "\n".join(review.headlines), *tables]
    if review.commands:
        lines = [f"  {words}   # {escaped(what)}" for what, words in review.commands]
        parts.append("\n".join(["What to do next", *lines]))
    return "\n\n".join(parts) + "\n"


def _aligned(section: Section) -> str:
    if not section.rows:
        return f"  {section.empty}"
    rows = [section.columns, *([escaped(cell) for cell in r] for r in section.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in section.right else cell.ljust(width)
            for column, cell, width in zip(section.columns, row, widths, strict=True)
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown(review: Review) -> str:
    """Return a review as Markdown."""
    headlines = "\n".join(f"- {line}" for line in review.headlines)
    parts = [f"# {review.title}", headlines]
    for section in review.sections:
        parts += [f"## {section.title}", _table(section)]
    if review.commands:
        lines = [f"- {_code(what)}: {_code(words)}" for what, words in review.commands]
        parts += ["## What to do next", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _table(section: Section) -> str:
    if not section.rows:
        return section.empty
    rules = ["---:" if c in section.right else "---" for c in section.columns]
    rows = [[_code(cell) for cell in row] for row in section.rows]
    lines = [section.columns, rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(cell: str) -> str:
    """Return a code span that fits into a table, with no backtick and no bar."""
    safe = escaped(cell).replace("`", "'").replace("|", "/")
    return f"`{safe}`" if safe else ""


def html(review: Review) -> str:
    """Return a review as an HTML page without scripts, images or links."""
    title = escape(review.title)
    headlines = "".join(f"<li>{escape(line)}</li>" for line in review.headlines)
    parts = [f"<h1>{title}</h1><ul>{headlines}</ul>"]
    parts += [_html_section(section) for section in review.sections]
    if review.commands:
        items = "".join(
            f"<li>{_html(what)}: <code>{_html(words)}</code></li>"
            for what, words in review.commands
        )
        parts.append(f"<h2>What to do next</h2><ul>{items}</ul>")
    head = f'<meta charset="utf-8"><title>{title}</title>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _html_section(section: Section) -> str:
    title = f"<h2>{section.title}</h2>"
    if not section.rows:
        return f"{title}<p>{section.empty}</p>"
    head = "".join(f'<th align="left">{column}</th>' for column in section.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_html(cell)}</td>' for cell in row)}</tr>"
        for row in section.rows
    )
    return f'{title}<table cellpadding="4"><tr>{head}</tr>{rows}</table>'


def _html(value: str) -> str:
    return escape(escaped(value))


def slack(reviews: Iterable[Review]) -> str:
    """Return reviews as one message for Slack: the headlines, and the causes to look at.

    Slack shows no tables, so the tables that people read first stand in a fence.
    """
    return "\n\n".join(map(_slack_part, reviews))


def _slack_part(review: Review) -> str:
    headlines = "\n".join(f"• {line}" for line in review.headlines)
    first = "\n\n".join(f"{s.title}\n{_aligned(s)}" for s in review.sections[:2])
    commands = "\n".join(words for _, words in review.commands[:3])
    fenced = _slack_escaped(f"{first}\n\n{commands}".rstrip().replace("`", "'"))
    return f"*{_slack_escaped(review.title)}*\n{headlines}\n```{fenced}```"


def _slack_escaped(value: str) -> str:
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
