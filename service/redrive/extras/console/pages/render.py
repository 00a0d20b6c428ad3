"""Conversion of values to HTML: escaped twice, with relative times."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any, cast
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from redrive.dead_letters.campaigns.obstacles import stays
from redrive.dead_letters.groups.fixes import worded
from redrive.extras.console.charts.axes import exact, short
from redrive.extras.console.charts.chart import folded
from redrive.extras.console.charts.draw import draw
from redrive.extras.console.charts.span import written
from redrive.overview.figures import MOST_OF_A_STEP
from redrive.rules.attempts.circumstances import circumstances
from redrive.rules.attempts.stack import places
from redrive.rules.brief import MOST, brief
from redrive.rules.cells import id_in_cell
from redrive.rules.instants import ago, duration, span
from redrive.rules.payloads.escape import escaped, escaped_lines
from redrive.rules.rows import Fields, Row
from redrive.verbs.query import Query

_AFTER = re.compile(r"[._]")
"""Characters of a name after which a line may break."""
BAR, GAP, HEIGHT = 5, 1, 24
FLOOR = HEIGHT - 1
WHOLE = 1000
SECOND = timedelta(seconds=1)

TIME = Markup('<time datetime="{}" title="{}">{}</time>')
SPARK = (
    '<svg class="spark {look}" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img"'
    ' preserveAspectRatio="none" aria-label="{what}"><title>{what}</title>'
    '<rect class="floor" x="0" y="{y}" width="{w}" height="1"/><path d="{bars}"/></svg>'
)
WHOLE_BAR = Markup(
    '<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img"'
    ' aria-label="{what}"><title>{what}</title>{drawn}</svg>'
)
PART = Markup('<rect class="{}" x="{:.1f}" width="{:.1f}" height="10"/>')


@cache
def environment() -> Environment:
    """Return the template environment with its filters and functions.

    All consoles of a process share it, so each template is compiled once.
    """
    made = Environment(
        loader=PackageLoader("redrive.extras.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cast("Row", made.filters).update(FILTERS)
    cast("Row", made.globals).update(GLOBALS)

    return made


def shown(value: Any) -> Any:
    """Escape a value for a page, and spell out deceptive characters; None is empty."""
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return escaped(value) if isinstance(value, str) else value


def numbers(values: Iterable[float | None], unit: str = "", look: str = "") -> Markup:
    """Format numbers as cells of a row; None is a dash."""
    cells = (_number(value, unit, f"n {look}".rstrip()) for value in values)
    return Markup("".join(cells))  # noqa: S704 # numbers and units


def _number(value: float | None, unit: str, look: str) -> str:
    if value is None:
        return f'<td class="{look} dim">&ndash;</td>'
    if not value:
        look += " zero"
    return f'<td class="{look}">{short(value, unit)}</td>'


def segment(text: object) -> str:
    """Quote text as one segment of a path."""
    return quote(str(text), safe="")


def with_span(given: Query, parameters: Mapping[str, str]) -> str:
    """Return a query string with parameters added, as for another span."""
    both = [*given, *parameters.items()]
    if both:
        return f"?{urlencode(both)}"

    return ""


def in_span(path: str, parameters: Mapping[str, str]) -> str:
    """Return the address of another page with the same span."""
    if not parameters:
        return path
    mark = "&" if "?" in path else "?"
    return f"{path}{mark}{urlencode(parameters)}"


def lines(text: str) -> Markup:
    """Format text of several lines for <pre>."""
    return escape(escaped_lines(text))


def pretty(value: Any) -> Markup:
    """Format a value as indented JSON for <pre>."""
    return lines(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def cell(value: Any, name: str = "") -> Any:
    """Format a table cell: relative times, grouped digits, yes or no."""
    if isinstance(value, datetime):
        return relative(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name not in {"id", "campaign"}:
        return f"{value:,}"
    if name == "group" and isinstance(value, str):
        return value[:10]
    if name == "message" and isinstance(value, str):
        return brief(value, MOST)

    return "" if value is None else str(value)


def breaking(text: str) -> Markup:
    """Let a long name break after its dots and underscores."""
    # Markup would escape the tags that are put in.
    shown = str(escape(escaped(text)))
    return Markup(_AFTER.sub(r"\g<0><wbr>", shown))  # noqa: S704 # escaped above


def relative(at: datetime | str | None) -> Markup:
    """Format how long ago an instant is, or how far ahead; its title is exact."""
    if at is None:
        return Markup("")

    if isinstance(at, str):
        at = datetime.fromisoformat(at)

    now = datetime.now(UTC)
    exact = at.astimezone(UTC)
    distance = ago(exact, now)
    is_past = exact <= now
    words = f"{distance} ago" if is_past else f"in {distance}"
    if abs(exact - now) < SECOND:
        words = "less than 1 s ago"

    return TIME.format(
        exact.isoformat(timespec="seconds"), f"{exact:%Y-%m-%d %H:%M:%S} UTC", words
    )


def spark(values: Sequence[float], what: str, look: str = "warn") -> Markup:
    """Draw numbers over time as an SVG, latest on the right, with a text label."""
    top = max(values, default=0) or 1
    step = BAR + GAP

    bars: list[str] = []
    for place, value in enumerate(values):
        if value:
            bars.append(_bar(place * step, value / top))

    width = max(1, len(values) * step - GAP)
    what = escape(escaped(what))
    drawn = SPARK.format(
        w=width, h=HEIGHT, y=FLOOR, what=what, look=look, bars="".join(bars)
    )

    # Markup.format would take ten times as long
    return Markup(drawn)  # noqa: S704 # all texts are escaped


def _bar(x: int, share: float) -> str:
    """Return the part of a path that draws a bar; a small one stays visible."""
    height = round(share * (HEIGHT - 2), 1)
    height = max(1.0, height)

    return f"M{x} {FLOOR}v-{height:g}h{BAR}V{FLOOR}z"


def bar(parts: Sequence[tuple[str, int]], what: str) -> Markup:
    """Draw the parts of a whole as one bar, in order, with a text label."""
    whole = sum(count for _, count in parts) or 1
    x = 0.0
    drawn = Markup("")

    for name, count in parts:
        width = count * WHOLE / whole
        drawn += PART.format(name, x, width)
        x += width

    return WHOLE_BAR.format(what=escaped(what), drawn=drawn)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "ago": relative,
    "breaking": breaking,
    "brief": partial(brief, most=MOST),
    "cell": cell,
    "circumstances": circumstances,
    "duration": duration,
    "exact": exact,
    "folded": folded,
    "in_cell": id_in_cell,
    "in_span": in_span,
    "json": pretty,
    "lines": lines,
    "minute": written,
    "numbers": numbers,
    "places": places,
    "resolution": worded,
    "segment": segment,
    "short": short,
    "span": span,
    "stays": stays,
    "with_span": with_span,
}
"""Filters of the templates."""

GLOBALS: Fields = {
    "bar": bar,
    "draw": draw,
    "most_of_a_step": MOST_OF_A_STEP,
    "spark": spark,
}
"""Functions and values of the templates."""
