"""Conversion of values to HTML: escaped twice, times relative with the exact time as a
title.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from redrive.rules.attempts.waiting import ago, span
from redrive.rules.payloads.escape import escaped, escaped_lines

BAR, GAP, HEIGHT = 5, 1, 24


def environment() -> Environment:
    """Return the template environment with its filters and functions."""
    made = Environment(
        loader=PackageLoader("redrive.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "ago": relative,
        "cell": cell,
        "json": pretty,
        "lines": lines,
        "segment": segment,
        "span": span,
    }
    cast("dict[str, Any]", made.globals).update(spark=spark, bar=bar)
    return made


def shown(value: Any) -> Any:
    """Escape a value for a page; spell out deceptive characters; show nothing for
    None.
    """
    if value is None:
        return ""
    if isinstance(value, Markup):
        return value
    return escaped(value) if isinstance(value, str) else value


def segment(text: object) -> str:
    """Quote text as one segment of a path."""
    return quote(str(text), safe="")


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
    return "" if value is None else str(value)


def relative(at: datetime | str | None) -> Markup:
    """Format how long ago an instant is, or how far ahead, with the exact time as a
    title.
    """
    if at is None:
        return Markup("")
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    now = datetime.now(UTC)
    exact = at.astimezone(UTC)
    words = f"{ago(exact, now)} ago" if exact <= now else f"in {ago(exact, now)}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="seconds"), f"{exact:%Y-%m-%d %H:%M:%S} UTC", words
    )


def spark(values: Sequence[float], what: str) -> Markup:
    """Draw numbers over time as an SVG, latest on the right, with a text label."""
    top = max(values, default=0) or 1
    width = max(1, len(values) * (BAR + GAP) - GAP)
    bars = Markup("").join(
        _bar(n, value / top) for n, value in enumerate(values) if value
    )
    return Markup(
        '<svg class="spark" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img"'
        ' aria-label="{what}"><title>{what}</title>'
        '<rect class="floor" x="0" y="{y}" width="{w}" height="1"/>{bars}</svg>'
    ).format(w=width, h=HEIGHT, y=HEIGHT - 1, what=escaped(what), bars=bars)


def bar(parts: Sequence[tuple[str, int]], what: str) -> Markup:
    """Draw the parts of a whole as one bar, in order, with a text label."""
    whole, x, drawn = sum(n for _, n in parts) or 1, 0.0, Markup("")
    for name, n in parts:
        width = n * 1000 / whole
        drawn += Markup(
            '<rect class="{}" x="{:.1f}" width="{:.1f}" height="10"/>'
        ).format(name, x, width)
        x += width
    return Markup(
        '<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img"'
        ' aria-label="{what}"><title>{what}</title>{drawn}</svg>'
    ).format(what=escaped(what), drawn=drawn)


def _bar(n: int, share: float) -> Markup:
    height = max(1.0, round(share * (HEIGHT - 2), 1))
    return Markup('<rect x="{}" y="{}" width="{}" height="{}"/>').format(
        n * (BAR + GAP), round(HEIGHT - 1 - height, 1), BAR, height
    )
