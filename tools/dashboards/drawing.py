"""Draw answers of Prometheus as a dashboard would show them. Needs matplotlib, for the picture in
the README only.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.dates import DateFormatter, MinuteLocator
from matplotlib.gridspec import GridSpec
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator

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
NAMED = {
    "succeeded": GREEN,
    "retried": YELLOW,
    "dead": RED,
    "released": BLUE,
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


def draw(answers: Mapping[str, Any], output: Path) -> None:
    """The picture."""
    plt.rcParams |= {
        "font.family": ["Liberation Sans", "DejaVu Sans"],
        "font.size": 9,
        "text.color": TEXT,
        "axes.edgecolor": PANEL,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "axes.labelcolor": FAINT,
    }
    page = plt.figure(figsize=(16, 10.4), dpi=110, facecolor=PAGE)
    page.text(0.018, 0.966, "Redrive / Overview", fontsize=17, fontweight="bold")
    minutes = (answers["end"] - answers["start"]) / 60
    told = (
        f"real data of a {minutes:.0f}-minute run, drawn by the dashboard's own queries;"
        " not a screenshot of Grafana"
    )
    page.text(0.984, 0.968, told, fontsize=10, color=FAINT, ha="right")
    grid = GridSpec(
        4,
        24,
        page,
        left=0.018,
        right=0.984,
        top=0.945,
        bottom=0.03,
        hspace=0.1,
        wspace=0.55,
        height_ratios=(0.42, 1, 1, 1),
    )
    panels = answers["panels"]
    for place, (title, suffix, calm, bad) in enumerate(FIGURES):
        _figure(
            page.add_subplot(grid[0, 3 * place : 3 * place + 3]),
            title,
            suffix,
            panels[title],
            calm,
            bad,
        )
    marks = _firing(answers["alerts"])
    for place, (title, unit, stacked) in enumerate(CHARTS):
        row, column = divmod(place, 3)
        frame = page.add_subplot(grid[row + 1, 8 * column : 8 * column + 8])
        inside = _frame(frame, title)
        span = (_instant(answers["start"]), _instant(answers["end"]))
        if title == "Wait until claimed":
            _heat(inside, panels[title])
        else:
            _chart(inside, panels[title], unit, stacked=stacked)
        _time(inside, span, marks, named=place == 0)
    output.parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(output, facecolor=PAGE, metadata={"Software": None})


def _frame(axes: Axes, title: str) -> Axes:
    """A box with a title; returns the axes inside it."""
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
        0.022, 0.925, title, transform=axes.transAxes, fontsize=10.5, fontweight="bold", va="center"
    )
    inside = axes.inset_axes((0.085, 0.235, 0.885, 0.61))
    inside.set_facecolor("none")
    return inside


def _figure(  # noqa: PLR0913 # what a figure shows, and in which colours
    axes: Axes, title: str, suffix: str, queries: Sequence[Any], calm: str, bad: str
) -> None:
    """A large number over its past."""
    inside = _frame(axes, "")
    inside.remove()
    axes.text(
        0.06, 0.84, title, transform=axes.transAxes, fontsize=10, fontweight="bold", va="center"
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
    lines = [
        each
        for each in _series([q for q in queries if q["ref"] != "objective"])
        if max(each[2], default=0) > 0
    ]
    lines.sort(key=lambda line: -sum(line[2]))
    colors = [
        NAMED.get(name, CYCLE[place % len(CYCLE)]) for place, (name, _, _) in enumerate(lines)
    ]
    if stacked and lines:
        times = sorted({time for _, at, _ in lines for time in at})
        table = [
            [dict(zip(at, values, strict=True)).get(time, 0.0) for time in times]
            for _, at, values in lines
        ]
        axes.stackplot(times, table, colors=colors, alpha=0.35, linewidth=0)
        below = [0.0] * len(times)
        for color, values in zip(colors, table, strict=True):
            below = [a + b for a, b in zip(below, values, strict=True)]
            axes.plot(times, below, color=color, linewidth=1.1)
    else:
        for color, (_, at, values) in zip(colors, lines, strict=True):
            axes.plot(at, values, color=color, linewidth=1.5)
            axes.fill_between(at, values, color=color, alpha=0.07, linewidth=0)
    seen = {name for name, _, _ in lines}
    for query in queries:
        if query["ref"] == "objective":
            for name, at, values in _series([query]):
                queue = name.removeprefix("objective of ")
                if queue in seen:
                    axes.plot(at, values, color=RED, linewidth=1.1, dashes=(5, 4))
                    axes.text(
                        at[len(at) // 24],
                        values[-1],
                        f"objective of {queue}",
                        fontsize=8,
                        color=RED,
                        va="bottom",
                    )
    axes.set_ylim(0, (max(axes.get_ylim()[1], 1e-9)) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    x = 0.0
    for color, (name, _, values) in zip(colors, lines, strict=True):
        text = f"{name}  {values[-1]:.3g}{SUFFIX[unit]}"
        axes.plot(
            x,
            -0.245,
            marker="s",
            markersize=6,
            color=color,
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(
            x + 0.018, -0.25, text, transform=axes.transAxes, fontsize=8.5, va="center", color=TEXT
        )
        x += 0.05 + 0.0133 * len(text)


def _heat(axes: Axes, queries: Sequence[Any]) -> None:
    """Cumulative buckets, taken apart."""
    found = sorted(queries[0]["series"], key=lambda series: float(series["metric"]["le"]))
    bounds = [series["metric"]["le"] for series in found]
    times = sorted({value[0] for series in found for value in series["values"]})
    below = [0.0] * len(times)
    rows = []
    for series in found:
        values = dict(series["values"])
        now = [float(values.get(time, 0)) for time in times]
        rows.append([max(0.0, a - b) for a, b in zip(now, below, strict=True)])
        below = now
    last = max((n for n, row in enumerate(rows) if max(row) > 0), default=0) + 2
    colors = LinearSegmentedColormap.from_list(
        "heat", [PANEL, "#2b3f8c", "#7b3fa0", "#e0547a", "#ffb347", "#fff3b0"]
    )
    edges = [_instant(time) for time in times]
    axes.pcolormesh(
        edges,
        range(len(rows[:last])),
        rows[:last],
        cmap=colors,
        norm=PowerNorm(0.5, 0),
        shading="nearest",
    )
    axes.set_ylim(-0.5, last - 0.5)
    shown = range(0, last, 2)
    axes.set_yticks(list(shown), [bounds[n] if bounds[n] != "+Inf" else "more" for n in shown])
    told = "seconds from due to claimed; the brighter, the more jobs"
    axes.text(0, -0.25, told, transform=axes.transAxes, fontsize=8.5, va="center", color=TEXT)


def _time(
    axes: Axes, span: tuple[datetime, datetime], marks: Mapping[str, list[datetime]], *, named: bool
) -> None:
    axes.set_xlim(*span)
    axes.xaxis.set_major_locator(MinuteLocator(interval=3))
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
            axes.text(
                *at,
                f"  {name}",
                transform=axes.get_xaxis_transform(),
                fontsize=8,
                color=RED,
                va="top",
            )


def _firing(alerts: Sequence[Any]) -> dict[str, list[datetime]]:
    """When each alert fired."""
    found: dict[str, list[datetime]] = {}
    for series in alerts:
        if series["metric"]["alertstate"] == "firing":
            times = [_instant(time) for time, _ in series["values"]]
            found[series["metric"]["alertname"]] = sorted(
                [*found.get(series["metric"]["alertname"], ()), *times]
            )
    return dict(sorted(found.items(), key=lambda mark: mark[1][0]))


def _series(queries: Sequence[Any]) -> list[Series]:
    """Named as the legend says."""
    lines: list[Series] = []
    for query in queries:
        for series in query["series"]:
            name = query["legend"]
            for label, value in series["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            points = [(_instant(time), float(value)) for time, value in series["values"]]
            points = [(time, value) for time, value in points if not math.isnan(value)]
            if points:
                lines.append((name, [time for time, _ in points], [value for _, value in points]))
    return lines


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
