"""The review of a period as headlines and tables, in Markdown and for Slack.

Texts from producers stand in code spans or are escaped, so none becomes active where
the report is shown. The tables hold no messages of failures and no payloads.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import islice
from operator import itemgetter

from redrive.dead_letters.campaigns.pace import again
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
    """Add up the results of campaigns, but not of retries of failing jobs.

    `success_rate` is a share of the ended jobs.
    """
    campaigns = [each for each in campaigns if not each["is_retry"]]
    names = ("redriven", "succeeded", "dead_again", "cancelled")
    sums = {name: _sum(campaigns, name) for name in names}
    ended = sums["succeeded"] + sums["dead_again"]

    return {
        "campaigns": len(campaigns),
        **sums,
        "in_flight": max(sums["redriven"] - ended - sums["cancelled"], 0),
        "success_rate": sums["succeeded"] / ended if ended else None,
    }


def _sum(rows: Iterable[Fields], name: str) -> int:
    return sum(row[name] for row in rows)


def owners(pairs: Iterable[Fields]) -> list[Row]:
    """Add up the open dead letters of each owner, the most first; None has no owner."""
    by_owner: dict[str | None, list[Fields]] = defaultdict(list)
    for pair in pairs:
        by_owner[pair["owner"]].append(pair)

    found = (
        {
            "owner": owner,
            "open": _sum(own, "open"),
            "oldest": min((p["oldest"] for p in own if p["oldest"]), default=None),
        }
        for owner, own in by_owner.items()
    )
    return sorted(found, key=itemgetter("open"), reverse=True)


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
    yield f"{_sum(found['open'], 'open'):,} open."
    yield from _failing(found["failing"])

    at_least = "at least " if found["is_more"] else ""
    before = f"{at_least}{found['before']:,} in the period before"
    yield f"{at_least}{found['new']:,} new; {before}."
    yield _new_groups(found["groups"])
    yield _redriven(found["redrives"])

    times = found["time_to_dlq"]
    if times["measured"]:
        median, p90, longest = (
            duration(times[n]) for n in ("median", "p90", "longest")
        )
        most = f"90 % within {p90}, longest {longest}"
        yield f"Time to DLQ: median {median}, {most}."


def _failing(causes: Sequence[Fields]) -> Iterator[str]:
    """Yield how many jobs fail and are retried, and the main causes."""
    failing = _sum(causes, "failing")
    if failing:
        yield f"{failing:,} failing now; they are retried."

    for cause in causes[:MOST_CAUSES]:
        yield f"{cause['text']}."


def _new_groups(groups: Sequence[Fields]) -> str:
    new = sum(group["is_new"] for group in groups)
    # The list of groups ends at this number.
    at_least = "at least " if len(groups) >= MOST_GROUPS else ""
    return f"{at_least}{new} new {'group' if new == 1 else 'groups'}."


def _redriven(sums: Fields) -> str:
    if not sums["redriven"]:
        return "Nothing was redriven."

    text = (
        "{redriven:,} redriven: {succeeded:,} succeeded, {dead_again:,} died again,"
        " {in_flight:,} in flight"
    ).format_map(sums)
    rate = sums["success_rate"]
    return f"{text}." if rate is None else f"{text}, success rate {rate:.0%}."


def _sections(found: Fields, now: datetime, cell: str | None) -> Iterator[Section]:
    groups = found["groups"]
    yield _of_owners(found["owners"], now)
    yield _of_groups("Largest groups", _with_jobs(groups), now)
    yield _of_groups("New groups", filter(itemgetter("is_new"), groups), now)
    yield _of_groups("Growing groups", growing(groups), now)
    yield _of_oldest(found["oldest"], now, cell)
    yield _of_campaigns(found["campaigns"], now, cell)


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
    return Section(
        title="Oldest",
        columns=("id", "queue", "kind", "error", "owner", "died"),
        rows=[
            (
                id_in_cell(row["id"], cell),
                row["queue"],
                row["kind"],
                row["error_class"],
                _owner(row),
                _age(row["died_at"], now),
            )
            for row in found
        ],
        right=frozenset({"id"}),
    )


def _of_groups(title: str, groups: Iterable[Fields], now: datetime) -> Section:
    counts = ("failing", "open", "new", "before")
    about = ("queue", "kind", "category", "error", "owner", "first seen")
    return Section(
        title=title,
        columns=("group", *counts, *about),
        rows=[
            (
                group["group"][:GROUP_LENGTH],
                *(f"{group[name]:,}" for name in counts),
                group["queue"] or "",
                group["kind"],
                group["category"],
                group["error_class"],
                _owner(group),
                _age(group["first_seen"], now),
            )
            for group in islice(groups, MOST)
        ],
        right=frozenset(counts),
    )


def _of_campaigns(found: Sequence[Fields], now: datetime, cell: str | None) -> Section:
    about = ("campaign", "state", "by", "started")
    return Section(
        title="Redrives",
        columns=(*about, "redriven", "succeeded", "again", "why"),
        rows=[
            (
                id_in_cell(row["campaign"], cell),
                row["state"],
                row["actor"],
                _age(row["started_at"], now),
                f"{row['redriven']:,}",
                f"{row['succeeded']:,}",
                again(row),
                row["why"] or "",
            )
            for row in found[:MOST]
        ],
        right=frozenset({"campaign", "redriven", "succeeded", "again"}),
    )


def _age(at: datetime | None, now: datetime) -> str:
    return "" if at is None else f"{ago(at, now)} ago"


def _commands(groups: Iterable[Fields], cell: str | None) -> Iterator[tuple[str, str]]:
    """Yield what to type next about each of the largest groups."""
    in_cell = f" --cell {cell}" if cell else ""
    for group in islice(_with_jobs(groups), MOST):
        yield f"{group['kind']}: {group['error_class']}", _next_command(group) + in_cell


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


def markdown(review: Review) -> str:
    """Return a review as Markdown."""
    parts = [f"# {review.title}", _listed(review.headlines)]
    for section in review.sections:
        parts += [f"## {section.title}", _table(section, _code)]

    if review.commands:
        lines = [f"{_code(what)}: {_code(words)}" for what, words in review.commands]
        parts += [f"## {NEXT}", _listed(lines)]

    return "\n\n".join(parts) + "\n"


def _listed(lines: Iterable[str], mark: str = "-") -> str:
    return "\n".join(f"{mark} {line}" for line in lines)


def _table(section: Section, shown: Callable[[str], str]) -> str:
    """Return a table with columns of equal width, so that a terminal shows it, too."""
    if not section.rows:
        return section.empty

    rules = ["---:" if name in section.right else "---" for name in section.columns]
    cells = [section.columns, rules, *(map(shown, row) for row in section.rows)]
    padded: list[list[str]] = []
    for column in zip(*cells, strict=True):
        width = max(map(len, column))
        fit = str.rjust if column[0] in section.right else str.ljust
        padded.append([fit(cell, width) for cell in column])

    return "\n".join(f"| {' | '.join(row)} |" for row in zip(*padded, strict=True))


def _code(cell: str) -> str:
    """Return a code span that fits into a table, with no backtick and no bar."""
    if not cell:
        return ""

    # A backslash does not escape a backtick inside a code span.
    safe = escaped(cell).replace("`", "'").replace("|", "/")
    return f"`{safe}`"


def slack(reviews: Iterable[Review]) -> str:
    """Return reviews as one message for Slack: the headlines, and the causes to look at.

    Slack shows no tables, so the tables that people read first stand in a fence.
    """
    return "\n\n".join(map(_slack_part, reviews))


def _slack_part(review: Review) -> str:
    tables = [
        f"{section.title}\n{_table(section, escaped)}"
        for section in review.sections[:2]
    ]
    commands = "\n".join(words for _, words in review.commands[:3])
    # A backtick would end the fence.
    fenced = "\n\n".join([*tables, commands]).rstrip().replace("`", "'")
    fence = f"\n```{escape(fenced, quote=False)}```" if fenced else ""

    return f"*{escape(review.title, quote=False)}*\n{_listed(review.headlines, '•')}{fence}"
