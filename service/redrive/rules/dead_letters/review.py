"""The review of a period as headlines and tables: plain text, Markdown and HTML.

Texts from producers stand in code spans or are escaped, so none becomes active where
the report is shown. The tables hold no messages of failures and no payloads.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from operator import itemgetter
from typing import Any

from redrive.rules.attempts.waiting import ago, span
from redrive.rules.payloads.escape import escaped
from redrive.rules.scheduling.cells import id_in_cell
from redrive.rules.scheduling.instants import duration

Row = Mapping[str, Any]
MOST = 10
"""Rows that a table shows."""
MOST_GROUPS = 100
"""Groups that a review looks at."""
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


def redrives(campaigns: Sequence[Row]) -> dict[str, Any]:
    """Add up the results of campaigns; `success_rate` is a share of the ended jobs."""
    redriven = _sum(campaigns, "redriven")
    succeeded = _sum(campaigns, "succeeded")
    dead_again = _sum(campaigns, "dead_again")
    cancelled = _sum(campaigns, "cancelled")
    ended = succeeded + dead_again
    return {
        "campaigns": len(campaigns),
        "redriven": redriven,
        "succeeded": succeeded,
        "dead_again": dead_again,
        "cancelled": cancelled,
        "in_flight": max(redriven - ended - cancelled, 0),
        "success_rate": succeeded / ended if ended else None,
    }


def _sum(rows: Iterable[Row], name: str) -> int:
    return sum(row[name] for row in rows)


def owners(pairs: Iterable[Row]) -> list[dict[str, Any]]:
    """Add up the open dead letters of each owner, the most first; None has no owner."""
    by_owner: dict[str | None, list[Row]] = defaultdict(list)
    for pair in pairs:
        by_owner[pair["owner"]].append(pair)
    found = [_of_owner(owner, its_pairs) for owner, its_pairs in by_owner.items()]
    return sorted(found, key=itemgetter("open"), reverse=True)


def _of_owner(owner: str | None, pairs: Sequence[Row]) -> dict[str, Any]:
    return {
        "owner": owner,
        "open": _sum(pairs, "open"),
        "oldest": _oldest(pairs),
    }


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


def unanswered(cell: str) -> Review:
    """Return the review of a cell whose database did not answer."""
    return Review(f"Dead letters in {cell}", ["The database did not answer."], [], [])


def _headlines(found: Row) -> Iterator[str]:
    is_open = sum(pair["open"] for pair in found["open"])
    yield f"{is_open:,} open."
    yield _deaths(found)
    yield _new_groups(found["groups"])
    yield _redriven(found["redrives"])
    if found["time_to_dlq"]["measured"]:
        yield _times(found["time_to_dlq"])


def _new_groups(groups: Sequence[Row]) -> str:
    new = sum(group["is_new"] for group in groups)
    most = "at least " if len(groups) >= MOST_GROUPS else ""
    return f"{most}{new} new {'group' if new == 1 else 'groups'}."


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
        *("group", "open", "new", "before"),
        *("queue", "kind", "category", "error", "owner", "first seen"),
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
        f"{group['open']:,}",
        f"{group['new']:,}",
        f"{group['before']:,}",
        group["queue"] or "",
        group["kind"],
        group["category"],
        group["error_class"],
        _owner(group),
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

NEXT = "What to do next"


def text(review: Review) -> str:
    """Return a review as plain text with aligned columns."""
    tables = [_titled(section) for section in review.sections]
    parts = [review.title, "\n".join(review.headlines), *tables]
    if review.commands:
        lines = [_commented(what, words) for what, words in review.commands]
        parts.append("\n".join([NEXT, *lines]))
    return "\n\n".join(parts) + "\n"


def _commented(what: str, words: str) -> str:
    comment = escaped(what)
    return f"  {words}   # {comment}"


def _titled(section: Section) -> str:
    return f"{section.title}\n{_aligned(section)}"


def _aligned(section: Section) -> str:
    """Return the rows with columns of equal width, indented."""
    if not section.rows:
        return f"  {section.empty}"
    columns = [
        _padded(name, [row[place] for row in section.rows], section.right)
        for place, name in enumerate(section.columns)
    ]
    lines = map("  ".join, zip(*columns, strict=True))
    return "\n".join(f"  {line.rstrip()}" for line in lines)


def _padded(name: str, cells: Iterable[str], right: Container[str]) -> list[str]:
    """Return the title and the cells of a column in its width."""
    shown = [name, *map(escaped, cells)]
    width = max(map(len, shown))
    pad = str.rjust if name in right else str.ljust
    return [pad(cell, width) for cell in shown]


def markdown(review: Review) -> str:
    """Return a review as Markdown."""
    headlines = _listed(review.headlines)
    parts = [f"# {review.title}", headlines]
    for section in review.sections:
        title = f"## {section.title}"
        parts += [title, _table(section)]
    if review.commands:
        lines = [f"{_code(what)}: {_code(words)}" for what, words in review.commands]
        parts += [f"## {NEXT}", _listed(lines)]
    return "\n\n".join(parts) + "\n"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(section: Section) -> str:
    if not section.rows:
        return section.empty
    rules = ["---:" if c in section.right else "---" for c in section.columns]
    rows = [map(_code, row) for row in section.rows]
    lines = [section.columns, rules, *rows]
    return "\n".join(map(_row, lines))


def _row(cells: Iterable[str]) -> str:
    inner = " | ".join(cells)
    return f"| {inner} |"


def _code(cell: str) -> str:
    """Return a code span that fits into a table, with no backtick and no bar."""
    safe = escaped(cell).replace("`", "'").replace("|", "/")
    return f"`{safe}`" if safe else ""


def html(review: Review) -> str:
    """Return a review as an HTML page without scripts, images or links."""
    title = _html(review.title)
    headlines = _tagged("li", map(_html, review.headlines))
    sections = "\n".join(map(_html_section, review.sections))
    commands = _html_commands(review.commands)
    return _PAGE.format(
        title=title,
        headlines=headlines,
        sections=sections,
        commands=commands,
    )


_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><ul>{headlines}</ul>
{sections}
{commands}</body></html>
"""


def _html_commands(commands: Iterable[tuple[str, str]]) -> str:
    items = [f"{_html(what)}: <code>{_html(words)}</code>" for what, words in commands]
    listed = _tagged("li", items)
    return f"<h2>{NEXT}</h2><ul>{listed}</ul>" if items else ""


def _html_section(section: Section) -> str:
    title = f"<h2>{section.title}</h2>"
    if not section.rows:
        return f"{title}<p>{section.empty}</p>"
    head = _tagged("th", section.columns)
    rows = [_tagged("td", map(_html, row)) for row in section.rows]
    lines = _tagged("tr", [head, *rows])
    return f'{title}<table cellpadding="4">{lines}</table>'


def _tagged(tag: str, parts: Iterable[str]) -> str:
    """Return each part of HTML in an element of its own."""
    return "".join(f"<{tag}>{part}</{tag}>" for part in parts)


def _html(value: str) -> str:
    return escape(escaped(value))


def slack(reviews: Iterable[Review]) -> str:
    """Return reviews as one message for Slack: the headlines, and the causes to look at.

    Slack shows no tables, so the tables that people read first stand in a fence.
    """
    return "\n\n".join(map(_slack_part, reviews))


def _slack_part(review: Review) -> str:
    title = _slack_escaped(review.title)
    headlines = "\n".join(f"• {line}" for line in review.headlines)
    first = [_titled(section) for section in review.sections[:2]]
    commands = "\n".join(words for _, words in review.commands[:3])
    tables = "\n\n".join((*first, commands)).rstrip()
    fenced = _slack_escaped(tables.replace("`", "'"))
    fence = f"\n```{fenced}```" if fenced else ""
    return f"*{title}*\n{headlines}{fence}"


def _slack_escaped(value: str) -> str:
    without = value.replace("&", "&amp;")
    return without.replace("<", "&lt;").replace(">", "&gt;")
