"""The review of a period as headlines and tables: plain text and Markdown.

Texts from producers stand in code spans or are escaped, so none becomes active where
the report is shown. The tables hold no messages of failures and no payloads.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import islice, starmap
from operator import itemgetter

from redrive.rules.cells import id_in_cell
from redrive.rules.instants import ago, duration, span
from redrive.rules.payloads.escape import escaped
from redrive.rules.rows import Fields, Row

MOST = 10
"""Rows that a table shows."""
MOST_CAUSES = 3
"""Causes of failing jobs in the headlines."""
MOST_GROUPS = 100
"""Groups that a review looks at."""
GROUP_LENGTH = 10
EXPLAINED = frozenset({"bug", "invalid"})
"""Categories of groups for which a redrive alone does not help."""
GAVE_UP = "GiveUp"
"""Class of the failures of handlers that give up on purpose: a redrive does the same."""
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


def redrives(campaigns: Sequence[Fields]) -> Row:
    """Add up the results of campaigns; `success_rate` is a share of the ended jobs."""
    redriven = _sum(campaigns, "redriven")
    succeeded = _sum(campaigns, "succeeded")
    dead_again = _sum(campaigns, "dead_again")
    cancelled = _sum(campaigns, "cancelled")
    ended = succeeded + dead_again
    in_flight = redriven - ended - cancelled

    return {
        "campaigns": len(campaigns),
        "redriven": redriven,
        "succeeded": succeeded,
        "dead_again": dead_again,
        "cancelled": cancelled,
        "in_flight": max(in_flight, 0),
        "success_rate": _share(succeeded, ended),
    }


def _share(part: int, whole: int) -> float | None:
    if not whole:
        return None
    return part / whole


def _sum(rows: Iterable[Fields], name: str) -> int:
    return sum(row[name] for row in rows)


def owners(pairs: Iterable[Fields]) -> list[Row]:
    """Add up the open dead letters of each owner, the most first; None has no owner."""
    by_owner = _by_owner(pairs)
    found = starmap(_of_owner, by_owner.items())
    return sorted(found, key=itemgetter("open"), reverse=True)


def _by_owner(pairs: Iterable[Fields]) -> dict[str | None, list[Fields]]:
    found: dict[str | None, list[Fields]] = defaultdict(list)
    for pair in pairs:
        owner = pair["owner"]
        found[owner].append(pair)

    return found


def _of_owner(owner: str | None, pairs: Sequence[Fields]) -> Row:
    return {"owner": owner, "open": _sum(pairs, "open"), "oldest": _oldest(pairs)}


def _oldest(pairs: Iterable[Fields]) -> datetime | None:
    oldest = map(itemgetter("oldest"), pairs)
    known = (at for at in oldest if at is not None)
    return min(known, default=None)


def growing(groups: Iterable[Fields]) -> list[Fields]:
    """Return the known groups with more deaths than in the period before."""
    found = (group for group in groups if not group["is_new"] and _growth(group) > 0)
    return sorted(found, key=_growth, reverse=True)


def _growth(group: Fields) -> int:
    return group["new"] - group["before"]


def shown(found: Fields, cell: str | None = None) -> Review:
    """Return a review as headlines and tables."""
    now = found["until"]
    period = now - found["since"]
    length = span(period.total_seconds())
    place = f" in {cell}" if cell else ""

    return Review(
        title=f"Dead letters{place}, the last {length}",
        headlines=list(_headlines(found)),
        sections=list(_sections(found, now, cell)),
        commands=list(_commands(found["groups"], cell)),
    )


def unanswered(cell: str) -> Review:
    """Return the review of a cell whose database did not answer."""
    return Review(
        title=f"Dead letters in {cell}",
        headlines=["The database did not answer."],
        sections=[],
        commands=[],
    )


def _headlines(found: Fields) -> Iterator[str]:
    is_open = _sum(found["open"], "open")
    yield f"{is_open:,} open."
    yield from _failing(found["failing"])
    yield _deaths(found)
    yield _new_groups(found["groups"])
    yield _redriven(found["redrives"])
    times = found["time_to_dlq"]
    if times["measured"]:
        yield _times(times)


def _failing(causes: Sequence[Fields]) -> Iterator[str]:
    """Yield how many jobs fail and are retried, and the main causes."""
    failing = _sum(causes, "failing")
    if failing:
        yield f"{failing:,} failing now; they are retried."

    for cause in causes[:MOST_CAUSES]:
        yield f"{cause['text']}."


def _new_groups(groups: Sequence[Fields]) -> str:
    new = sum(group["is_new"] for group in groups)
    if new == 1:
        noun = "group"
    else:
        noun = "groups"

    # The list of groups ends at this number.
    if len(groups) >= MOST_GROUPS:
        return f"at least {new} new {noun}."
    return f"{new} new {noun}."


def _deaths(found: Fields) -> str:
    text = _DEATHS.format_map(found)
    if not found["is_more"]:
        return text

    return _AT_LEAST.format_map(found)


_DEATHS = "{new:,} new; {before:,} in the period before."
_AT_LEAST = "at least {new:,} new; at least {before:,} in the period before."


def _redriven(sums: Fields) -> str:
    if not sums["redriven"]:
        return "Nothing was redriven."

    text = _SUMS.format_map(sums)
    rate = sums["success_rate"]
    if rate is None:
        return f"{text}."

    return f"{text}, success rate {rate:.0%}."


_SUMS = (
    "{redriven:,} redriven: {succeeded:,} succeeded, {dead_again:,} died again,"
    " {in_flight:,} in flight"
)


def _times(found: Fields) -> str:
    names = ("median", "p90", "longest")
    shown = {name: duration(found[name]) for name in names}
    return _TIMES.format_map(shown)


_TIMES = "Time to DLQ: median {median}, 90 % within {p90}, longest {longest}."


def _sections(found: Fields, now: datetime, cell: str | None) -> Iterator[Section]:
    yield _of_owners(found["owners"], now)
    yield from _of_all_groups(found["groups"], now)
    yield _of_oldest(found["oldest"], now, cell)
    yield _of_campaigns(found["campaigns"], now, cell)


def _of_all_groups(groups: Sequence[Fields], now: datetime) -> Iterator[Section]:
    is_new = filter(itemgetter("is_new"), groups)
    yield _of_groups("Largest groups", _with_jobs(groups), now)
    yield _of_groups("New groups", is_new, now)
    yield _of_groups("Growing groups", growing(groups), now)


def _with_jobs(groups: Iterable[Fields]) -> Iterator[Fields]:
    """Return the groups with open dead letters or failing jobs."""
    return (group for group in groups if group["open"] or group["failing"])


def _of_owners(found: Sequence[Fields], now: datetime) -> Section:
    return Section(
        title="Whose",
        columns=("owner", "open", "oldest"),
        rows=[
            (_owner(row), f"{row['open']:,}", _age(row["oldest"], now))
            for row in found[:MOST]
        ],
        right=frozenset({"open"}),
        empty="No open dead letters.",
    )


def _owner(row: Fields) -> str:
    return row["owner"] or NOBODY


def _of_oldest(found: Iterable[Fields], now: datetime, cell: str | None) -> Section:
    rows = [_old(row, now, cell) for row in found]
    return Section(
        title="Oldest", columns=_OLD_COLUMNS, rows=rows, right=frozenset({"id"})
    )


_OLD_COLUMNS = ("id", "queue", "kind", "error", "owner", "died")


def _old(row: Fields, now: datetime, cell: str | None) -> Sequence[str]:
    return (
        id_in_cell(row["id"], cell),
        row["queue"],
        row["kind"],
        row["error_class"],
        _owner(row),
        _age(row["died_at"], now),
    )


def _of_groups(title: str, groups: Iterable[Fields], now: datetime) -> Section:
    shown = islice(groups, MOST)
    rows = [_of_group(group, now) for group in shown]
    return Section(title=title, columns=_GROUP_COLUMNS, rows=rows, right=_GROUP_COUNTS)


_GROUP_COUNTS = frozenset({"failing", "open", "new", "before"})


_GROUP_COLUMNS = (
    *("group", "failing", "open", "new", "before"),
    *("queue", "kind", "category", "error", "owner", "first seen"),
)


def _of_group(group: Fields, now: datetime) -> Sequence[str]:
    return (
        group["group"][:GROUP_LENGTH],
        f"{group['failing']:,}",
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


def _of_campaigns(found: Sequence[Fields], now: datetime, cell: str | None) -> Section:
    counts = ("redriven", "succeeded", "dead again")
    columns = ("campaign", "state", "by", "started", *counts, "why")
    right = frozenset({"campaign", *counts})
    rows = [_campaign(row, now, cell) for row in found[:MOST]]

    return Section(title="Redrives", columns=columns, rows=rows, right=right)


def _campaign(row: Fields, now: datetime, cell: str | None) -> Sequence[str]:
    return (
        id_in_cell(row["campaign"], cell),
        row["state"],
        row["actor"],
        _age(row["started_at"], now),
        f"{row['redriven']:,}",
        f"{row['succeeded']:,}",
        f"{row['dead_again']:,}",
        row["why"] or "",
    )


def _age(at: datetime | None, now: datetime) -> str:
    if at is None:
        return ""

    age = ago(at, now)
    return f"{age} ago"


def _commands(groups: Iterable[Fields], cell: str | None) -> Iterator[tuple[str, str]]:
    """Yield what to type next about each of the largest groups."""
    if cell:
        in_cell = f" --cell {cell}"
    else:
        in_cell = ""

    largest = islice(_with_jobs(groups), MOST)
    for group in largest:
        what = f"{group['kind']}: {group['error_class']}"
        words = _next_command(group)
        yield what, words + in_cell


def _next_command(group: Fields) -> str:
    name = group["group"][:GROUP_LENGTH]
    if not group["open"]:
        return f"redrive dlq show {name}"
    if group["error_class"] == GAVE_UP:
        return f"redrive dlq ls --group {name}"
    if group["category"] in EXPLAINED:
        return f"redrive dlq explain {name}"

    return f"redrive campaign plan --group {name}"


# ---------------------------------------------------------------------- formats

NEXT = "What to do next"


def text(review: Review) -> str:
    """Return a review as plain text with aligned columns."""
    headlines = "\n".join(review.headlines)
    tables = map(_titled, review.sections)
    parts = [review.title, headlines, *tables]

    if review.commands:
        lines = starmap(_commented, review.commands)
        commands = "\n".join(lines)
        parts.append(f"{NEXT}\n{commands}")

    return "\n\n".join(parts) + "\n"


def _commented(what: str, words: str) -> str:
    comment = escaped(what)
    return f"  {words}   # {comment}"


def _titled(section: Section) -> str:
    rows = _aligned(section)
    return f"{section.title}\n{rows}"


def _aligned(section: Section) -> str:
    """Return the rows with columns of equal width, indented."""
    if not section.rows:
        return f"  {section.empty}"

    rows = zip(*_padded_columns(section), strict=True)
    return "\n".join(map(_indented, rows))


def _padded_columns(section: Section) -> Iterator[list[str]]:
    """Yield the cells of each column below its title, in its width."""
    for place, name in enumerate(section.columns):
        cells = map(itemgetter(place), section.rows)
        yield _padded(name, cells, section.right)


def _indented(cells: Iterable[str]) -> str:
    line = "  ".join(cells)
    return f"  {line}".rstrip()


def _padded(name: str, cells: Iterable[str], right: Container[str]) -> list[str]:
    """Return the title and the cells of a column in its width."""
    shown = [name, *map(escaped, cells)]
    width = max(map(len, shown))
    if name in right:
        return [cell.rjust(width) for cell in shown]

    return [cell.ljust(width) for cell in shown]


def markdown(review: Review) -> str:
    """Return a review as Markdown."""
    title = f"# {review.title}"
    parts = [title, _listed(review.headlines)]

    for section in review.sections:
        title = f"## {section.title}"
        parts += [title, _table(section)]

    if review.commands:
        lines = starmap(_code_line, review.commands)
        parts += [f"## {NEXT}", _listed(lines)]

    return "\n\n".join(parts) + "\n"


def _code_line(what: str, words: str) -> str:
    reason = _code(what)
    command = _code(words)
    return f"{reason}: {command}"


def _listed(lines: Iterable[str], mark: str = "-") -> str:
    return "\n".join(f"{mark} {line}" for line in lines)


def _table(section: Section) -> str:
    if not section.rows:
        return section.empty

    rules = [_rule(name, section.right) for name in section.columns]
    rows = [map(_code, row) for row in section.rows]
    lines = [section.columns, rules, *rows]

    return "\n".join(map(_row, lines))


def _rule(name: str, right: Container[str]) -> str:
    if name in right:
        return "---:"
    return "---"


def _row(cells: Iterable[str]) -> str:
    inner = " | ".join(cells)
    return f"| {inner} |"


def _code(cell: str) -> str:
    """Return a code span that fits into a table, with no backtick and no bar."""
    if not cell:
        return ""

    # A backslash does not escape a backtick inside a code span.
    without_backtick = escaped(cell).replace("`", "'")
    safe = without_backtick.replace("|", "/")

    return f"`{safe}`"


def slack(reviews: Iterable[Review]) -> str:
    """Return reviews as one message for Slack: the headlines, and the causes to look at.

    Slack shows no tables, so the tables that people read first stand in a fence.
    """
    return "\n\n".join(map(_slack_part, reviews))


def _slack_part(review: Review) -> str:
    title = _slack_escaped(review.title)
    headlines = _listed(review.headlines, "•")
    tables = _fenced(review)
    fence = f"\n```{tables}```" if tables else ""

    return f"*{title}*\n{headlines}{fence}"


def _fenced(review: Review) -> str:
    """Return the first tables and commands, without backticks that end the fence."""
    tables = map(_titled, review.sections[:2])
    first = review.commands[:3]
    commands = "\n".join(words for _, words in first)

    text = "\n\n".join([*tables, commands])
    safe = text.rstrip().replace("`", "'")

    return _slack_escaped(safe)


def _slack_escaped(value: str) -> str:
    return escape(value, quote=False)
