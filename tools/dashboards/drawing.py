"""Draw answers of Prometheus as a dashboard would show them.

This needs matplotlib, and only the picture in the README needs this.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.dates import DateFormatter, MinuteLocator
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tools.dashboards.parts import BAD, CALM, GOOD, GREY, OUTCOMES, WARN

mpl.use("Agg")

PAGE, PANEL, GRID, TEXT, FAINT = "#111217", "#181b1f", "#2a2d34", "#d8d9da", "#8e9198"
GREEN, YELLOW, RED, BLUE, PURPLE, ORANGE = (
    "#73bf69",
    "#f2cc0c",
    "#f2495c",
    "#5794f2",
    "#b877d9",
    "#ff9830",
)
CYCLE = (BLUE, ORANGE, PURPLE, GREEN, YELLOW, "#8ab8ff", "#ffa6b0", "#96d98d")
SHADES = {GOOD: GREEN, WARN: YELLOW, BAD: RED, CALM: BLUE, GREY: FAINT}
NAMED = {
    **{label: SHADES[color] for label, color in OUTCOMES.items()},
    "ready": BLUE,
    "running": GREEN,
    "retrying": YELLOW,
    "scheduled": PURPLE,
    "not_retryable": RED,
    "attempts_exhausted": ORANGE,
    "transient": YELLOW,
    "billing": ORANGE,
    "mail": BLUE,
    "reports": PURPLE,
    "enqueued": BLUE,
    "completed": GREEN,
    "p50": GREEN,
    "p95": YELLOW,
    "p99": RED,
}

FIGURES = (
    ("Alerts firing", "", GREEN, RED),
    ("Ready", "", BLUE, BLUE),
    ("Running", "", GREEN, GREEN),
    ("Retrying", "", YELLOW, YELLOW),
    ("Dead letters", "", GREEN, YELLOW),
    ("Added per minute", "", GREEN, RED),
    ("Oldest wait", "s", BLUE, BLUE),
    ("Workers", "", GREEN, GREEN),
)
CHARTS = (
    ("Added per minute by reason", "cpm", True),
    ("Added within 5 minutes", "", False),
    ("Open dead letters", "", True),
    ("Attempts by outcome", "ops", True),
    ("Retries by reason", "ops", True),
    ("Backlog by state", "", True),
    ("Time in the handler", "s", False),
    ("Enqueued and completed", "ops", False),
    ("Wait until claimed", "s", False),
)
SUFFIX = {"cpm": " /min", "ops": " /s", "s": " s", "": ""}
Series = tuple[str, list[datetime], list[float]]

LOOK = {
    "font.family": ["Liberation Sans", "DejaVu Sans"],
    "font.size": 9,
    "text.color": TEXT,
    "axes.edgecolor": PANEL,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "axes.labelcolor": FAINT,
}


def draw(answers: Mapping[str, Any], output: Path) -> None:
    """Draw the picture."""
    plt.rcParams |= LOOK
    page = plt.figure(figsize=(16, 10.4), dpi=110, facecolor=PAGE)
    page.text(0.018, 0.966, "Redrive / Overview", fontsize=17, fontweight="bold")
    minutes = (answers["end"] - answers["start"]) / 60
    told = (
        f"real data of a {minutes:.0f}-minute run, drawn by the dashboard's own queries;"
        " not a screenshot of Grafana"
    )
    page.text(0.984, 0.968, told, fontsize=10, color=FAINT, ha="right")
    edges = {"left": 0.018, "right": 0.984, "top": 0.945, "bottom": 0.03}
    heights = (0.42, 1, 1, 1)
    grid = GridSpec(
        4, 24, page, **edges, hspace=0.1, wspace=0.55, height_ratios=heights
    )
    _draw_figures(page, grid, answers["panels"])
    _draw_charts(page, grid, answers)
    output.parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(output, facecolor=PAGE, metadata={"Software": None})


def _draw_figures(page: Figure, grid: GridSpec, panels: Mapping[str, Any]) -> None:
    for place, (title, suffix, calm, bad) in enumerate(FIGURES):
        axes = page.add_subplot(grid[0, 3 * place : 3 * place + 3])
        _figure(axes, title, suffix, panels[title], calm, bad)


def _draw_charts(page: Figure, grid: GridSpec, answers: Mapping[str, Any]) -> None:
    marks = _firing(answers["alerts"])
    events = {name: _instant(time) for name, time in answers.get("events", {}).items()}
    span = (_instant(answers["start"]), _instant(answers["end"]))
    for place, (title, unit, stacked) in enumerate(CHARTS):
        row, column = divmod(place, 3)
        frame = page.add_subplot(grid[row + 1, 8 * column : 8 * column + 8])
        inside = _frame(frame, title)
        if title == "Wait until claimed":
            _heat(inside, answers["panels"][title])
        else:
            _chart(inside, answers["panels"][title], unit, stacked=stacked)
        _time(inside, span, marks, named=place == 0)
        _events(inside, events, named=place == 0)


def _frame(axes: Axes, title: str) -> Axes:
    """Draw a box with a title; return the axes inside it."""
    axes.set_axis_off()
    box = FancyBboxPatch(
        (0, 0),
        1,
        1,
        transform=axes.transAxes,
        boxstyle="round,pad=0,rounding_size=0.012",
        facecolor=PANEL,
        edgecolor=GRID,
        linewidth=0.8,
        mutation_aspect=2,
        zorder=-1,
    )
    axes.add_patch(box)
    axes.text(
        0.022,
        0.925,
        title,
        transform=axes.transAxes,
        fontsize=10.5,
        fontweight="bold",
        va="center",
    )
    inside = axes.inset_axes((0.085, 0.235, 0.885, 0.61))
    inside.set_facecolor("none")
    return inside


def _figure(  # noqa: PLR0913 # what a figure shows, and in which colours
    axes: Axes, title: str, suffix: str, queries: Sequence[Any], calm: str, bad: str
) -> None:
    """Draw a large number over its history."""
    inside = _frame(axes, "")
    inside.remove()
    axes.text(
        0.06,
        0.84,
        title,
        transform=axes.transAxes,
        fontsize=10,
        fontweight="bold",
        va="center",
    )
    (_, times, values), *_ = _series(queries)
    color = bad if values[-1] > 0 else calm
    text = f"{values[-1]:.3g}" + (f" {suffix}" if suffix else "")
    axes.text(
        0.5,
        0.52,
        text,
        transform=axes.transAxes,
        fontsize=25,
        fontweight="bold",
        color=color,
        ha="center",
        va="center",
    )
    past = axes.inset_axes((0.0, 0.02, 1, 0.3))
    past.set_axis_off()
    past.fill_between(times, values, color=color, alpha=0.22, linewidth=0)
    past.plot(times, values, color=color, linewidth=1)
    past.set_xlim(times[0], max(times[-1], times[0] + timedelta(seconds=1)))
    past.set_ylim(0, max(*values, 1) * 1.1)


def _chart(axes: Axes, queries: Sequence[Any], unit: str, *, stacked: bool) -> None:
    objectives = [query for query in queries if query["ref"] == "objective"]
    found = _series([query for query in queries if query not in objectives])
    lines = [line for line in found if max(line[2], default=0) > 0]
    lines.sort(key=lambda line: -sum(line[2]))
    colors = [
        NAMED.get(line[0], CYCLE[place % len(CYCLE)])
        for place, line in enumerate(lines)
    ]
    draw_lines = _stack if stacked and lines else _overlay
    draw_lines(axes, lines, colors)
    _objectives(axes, _series(objectives), {name for name, _, _ in lines})
    _scale(axes)
    _legend(
        axes, [f"{name}  {v[-1]:.3g}{SUFFIX[unit]}" for name, _, v in lines], colors
    )


def _overlay(axes: Axes, lines: Sequence[Series], colors: Sequence[str]) -> None:
    for color, (_, at, values) in zip(colors, lines, strict=True):
        axes.plot(at, values, color=color, linewidth=1.5)
        axes.fill_between(at, values, color=color, alpha=0.07, linewidth=0)


def _stack(axes: Axes, lines: Sequence[Series], colors: Sequence[str]) -> None:
    """Draw stacked parts; one without a value at an instant counts as 0 there."""
    times = sorted({time for _, at, _ in lines for time in at})
    parts = [dict(zip(at, values, strict=True)) for _, at, values in lines]
    table = [[part.get(time, 0.0) for time in times] for part in parts]
    axes.stackplot(times, table, colors=colors, alpha=0.35, linewidth=0)
    below = [0.0] * len(times)
    for color, values in zip(colors, table, strict=True):
        below = [a + b for a, b in zip(below, values, strict=True)]
        axes.plot(times, below, color=color, linewidth=1.1)


def _objectives(axes: Axes, lines: Sequence[Series], queues: Collection[str]) -> None:
    """Draw the thresholds of the displayed queues, dashed."""
    look = {"fontsize": 8, "color": RED, "va": "bottom"}
    for name, at, values in lines:
        if name.removeprefix("objective of ") in queues:
            axes.plot(at, values, color=RED, linewidth=1.1, dashes=(5, 4))
            axes.text(at[len(at) // 24], values[-1], name, **look)


def _scale(axes: Axes) -> None:
    axes.set_ylim(0, (max(axes.get_ylim()[1], 1e-9)) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _legend(axes: Axes, texts: Sequence[str], colors: Sequence[str]) -> None:
    square = {"marker": "s", "markersize": 6, "clip_on": False}
    x = 0.0
    for color, text in zip(colors, texts, strict=True):
        axes.plot(x, -0.245, color=color, transform=axes.transAxes, **square)
        _note(axes, x + 0.018, text)
        x += 0.05 + 0.0133 * len(text)


def _note(axes: Axes, x: float, text: str) -> None:
    """Write a note below a chart."""
    axes.text(
        x, -0.25, text, transform=axes.transAxes, fontsize=8.5, va="center", color=TEXT
    )


def _heat(axes: Axes, queries: Sequence[Any]) -> None:
    """Draw the number of jobs by waiting time, over time."""
    times, bounds, rows = _buckets(queries[0]["series"])
    last = max((n for n, row in enumerate(rows) if max(row) > 0), default=0) + 2
    colors = LinearSegmentedColormap.from_list(
        "heat", [PANEL, "#2b3f8c", "#7b3fa0", "#e0547a", "#ffb347", "#fff3b0"]
    )
    look = {"cmap": colors, "norm": PowerNorm(0.5, 0), "shading": "nearest"}
    axes.pcolormesh(
        list(map(_instant, times)), range(len(rows[:last])), rows[:last], **look
    )
    axes.set_ylim(-0.5, last - 0.5)
    shown = range(0, last, 2)
    axes.set_yticks(
        list(shown), [bounds[n] if bounds[n] != "+Inf" else "more" for n in shown]
    )
    _note(axes, 0, "seconds from due to claimed; the brighter, the more jobs")


def _buckets(series: Sequence[Any]) -> tuple[list[float], list[str], list[list[float]]]:
    """Return instants, upper bounds, and the counts of each bound over time.

    The cumulative counts of Prometheus are taken apart.
    """
    found = sorted(series, key=lambda each: float(each["metric"]["le"]))
    times = sorted({value[0] for each in found for value in each["values"]})
    below = [0.0] * len(times)
    rows: list[list[float]] = []
    for each in found:
        values = dict(each["values"])
        now = [float(values.get(time, 0)) for time in times]
        rows.append([max(0.0, a - b) for a, b in zip(now, below, strict=True)])
        below = now
    return times, [each["metric"]["le"] for each in found], rows


def _time(
    axes: Axes,
    span: tuple[datetime, datetime],
    marks: Mapping[str, list[datetime]],
    *,
    named: bool,
) -> None:
    axes.set_xlim(*span)
    few = span[1] - span[0] < timedelta(minutes=6)
    axes.xaxis.set_major_locator(MinuteLocator(interval=1 if few else 3))
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.tick_params(length=0, labelsize=8)
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if marks:
        every = [time for times in marks.values() for time in times]
        axes.axvspan(min(every), max(every), color=RED, alpha=0.06, linewidth=0)
    for place, (name, times) in enumerate(marks.items()):
        axes.axvline(times[0], color=RED, linewidth=1, linestyle=(0, (2, 2)))
        if named:
            at = (times[0], 0.985 - 0.1 * place)
            is_late = (
                times[0] - span[0] > (span[1] - span[0]) / 2
            )  # otherwise it leaves its panel
            axes.text(
                *at,
                f"  {name}  ",
                ha="right" if is_late else "left",
                transform=axes.get_xaxis_transform(),
                fontsize=8,
                color=RED,
                va="top",
            )


def _events(axes: Axes, events: Mapping[str, datetime], *, named: bool) -> None:
    """Draw the events of the installation.

    A chart must not show a false jump at an event.
    """
    for place, (name, time) in enumerate(events.items()):
        axes.axvline(time, color=BLUE, linewidth=1, linestyle=(0, (1, 2)))
        if named:
            look = {"fontsize": 8, "color": BLUE, "va": "top"}
            transform = axes.get_xaxis_transform()
            axes.text(
                time, 0.685 - 0.1 * place, f"  {name}", transform=transform, **look
            )


def _firing(alerts: Sequence[Any]) -> dict[str, list[datetime]]:
    """Return the times at which each alert fired."""
    found: dict[str, list[datetime]] = {}
    for series in alerts:
        if series["metric"]["alertstate"] == "firing":
            times = [_instant(time) for time, _ in series["values"]]
            found[series["metric"]["alertname"]] = sorted(
                [*found.get(series["metric"]["alertname"], ()), *times]
            )
    return dict(sorted(found.items(), key=lambda mark: mark[1][0]))


def _series(queries: Sequence[Any]) -> list[Series]:
    """Return the series with the names of the legend."""
    lines: list[Series] = []
    for query in queries:
        for series in query["series"]:
            name = query["legend"]
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = [
                (_instant(time), float(value)) for time, value in series["values"]
            ]
            points = [(time, value) for time, value in points if not math.isnan(value)]
            if points:
                lines.append(
                    (name, [time for time, _ in points], [value for _, value in points])
                )
    return lines


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
