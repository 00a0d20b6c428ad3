"""Draw a chart as SVG. The curves stretch with the page, and the labels do not."""

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from redrive.extras.console.charts import axes
from redrive.extras.console.charts.chart import Chart, Line, Mark
from redrive.rules.payloads.escape import escaped

WIDE, HIGH = 1000, 100
"""Size of the curves in their own units."""
ABOVE, TALL, BELOW = 16, 112, 22
"""Pixels for the heads of the marks, the curves, and the times."""
FULL = ABOVE + TALL + BELOW
FILLED = 0.82
"""Share of a step that a bar fills."""

WHOLE = Markup(
    '<svg class="plot" width="100%" height="{high}" role="img" aria-label="{what}">'
    "{grid}"
    '<svg y="{above}" width="100%" height="{tall}" viewBox="0 0 1000 100"'
    ' preserveAspectRatio="none">{curves}</svg>{values}{times}{marks}{cursor}</svg>'
)
GRID = Markup('<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
VALUE = Markup('<text class="value" x="2" y="{under}">{text}</text>')
TIME = Markup(
    '<text class="time" x="{x}%" y="{y}" data-at="{at}" data-as="{form}">{text}</text>'
)
MARK = Markup(
    '<g class="mark {kind}"><title>{text}</title>'
    '<line x1="{x}%" x2="{x}%" y1="8" y2="{y}"/><circle cx="{x}%" cy="8" r="4.5"/>{label}</g>'
)
LABEL = Markup('<text x="{x}%" dx="8" y="12">{text}</text>')
LABEL_LONG, LABEL_WIDE = 10, 0.16
"""Most characters of a label, and the share of the axis that it takes on a phone."""
CURSOR = Markup(
    '<rect class="chosen" y="{above}" height="{tall}" x="0" width="0"/>'
    '<line class="cursor" y1="{above}" y2="{y}" x1="0" x2="0"/>'
).format(above=ABOVE, tall=TALL, y=ABOVE + TALL)
PATH = Markup('<path class="{form} {look}" d="{path}"/>')


def draw(chart: Chart) -> Markup:
    """Return a chart as SVG."""
    lines = (GRID.format(y=round(_floor(share))) for share in (0, 0.5, 1))
    values = (_value(chart, share) for share in (0.5, 1))

    return WHOLE.format(
        high=FULL,
        above=ABOVE,
        tall=TALL,
        what=escaped(chart.summary),
        grid=_joined(lines),
        curves=_joined(_bars_by_line(chart)) if chart.is_stacked else _curves(chart),
        values=_joined(values),
        times=_times(chart),
        marks=_joined(_marks(chart)),
        cursor=CURSOR,
    )


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def _floor(share: float) -> float:
    """Return the height of a line of the grid."""
    return ABOVE + TALL * (1 - share)


def _value(chart: Chart, share: float) -> Markup:
    """Write a value of the axis under its line of the grid, over the curves."""
    text = axes.short(chart.top * share, chart.unit)
    return VALUE.format(under=round(_floor(share)) + 12, text=text)


def _times(chart: Chart) -> Markup:
    length = chart.until - chart.since
    form = "day" if length > 2 * axes.DAY else "clock"

    return _joined(
        TIME.format(
            x=_percent(share),
            y=FULL - 6,
            at=at.isoformat(),
            form=form,
            text=axes.clock(at, length),
        )
        for share, at in axes.ticks(chart.since, chart.until)
    )


def _percent(share: float) -> str:
    return f"{share * 100:.2f}"


def _marks(chart: Chart) -> Iterator[Markup]:
    """Draw the marks, and the labels that have room up to the next mark."""
    marks = chart.shown_marks
    shares = [axes.share(mark.at, chart.since, chart.until) for mark in marks]
    ends = [*shares[1:], 1.0]

    # Without marks, `ends` still has one element.
    for mark, share, end in zip(marks, shares, ends, strict=False):
        label = _label(mark, share, end - share)
        yield MARK.format(
            kind=mark.kind,
            text=escaped(mark.text),
            x=_percent(share),
            y=ABOVE + TALL,
            label=label,
        )


def _label(mark: Mark, share: float, room: float) -> Markup:
    """Write the label of a mark, if it is short and has room."""
    is_short = 0 < len(mark.label) <= LABEL_LONG
    if not is_short or room <= LABEL_WIDE:
        return Markup()
    return LABEL.format(x=_percent(share), text=escaped(mark.label))


def _bars_by_line(chart: Chart) -> Iterator[Markup]:
    floors = [0.0] * len(chart.starts)

    for line in chart.lines:
        roofs = [
            floor + (value or 0)
            for floor, value in zip(floors, line.values, strict=True)
        ]
        path = "".join(_bar_paths(floors, roofs, chart.top))
        yield PATH.format(form="bars", look=line.look, path=path)
        floors = roofs


def _bar_paths(
    floors: Sequence[float], roofs: Sequence[float], top: float
) -> Iterator[str]:
    step = WIDE / len(floors)
    width = step * FILLED
    for n, (floor, roof) in enumerate(zip(floors, roofs, strict=True)):
        if roof == floor:
            continue

        x = n * step + (step - width) / 2
        low = _y(floor, top)
        high = _y(roof, top)
        yield f"M{x:.1f} {low:.1f}V{high:.1f}h{width:.1f}V{low:.1f}z"


def _y(value: float, top: float) -> float:
    """Return the height of a value; a small one stays visible."""
    if not value:
        return HIGH

    return min(HIGH - HIGH * value / top, HIGH - 1.5)


def _curves(chart: Chart) -> Markup:
    """Draw the lines as curves; the area under the first is filled."""
    first, *_ = chart.lines
    area = _joined(_areas(first, chart.top))
    # SVG paints later elements over earlier ones, so the first line is painted last.
    return area + _joined(_curve(line, chart.top) for line in reversed(chart.lines))


def _curve(line: Line, top: float) -> Markup:
    parts = ("L".join(part) for part in _parts(line, top))
    path = "".join(f"M{through}" for through in parts)

    return PATH.format(form="curve", look=line.look, path=path)


def _areas(line: Line, top: float) -> Iterator[Markup]:
    for part in _parts(line, top):
        # The area reaches down to the floor at both ends of the part.
        left = part[0].split()[0]
        right = part[-1].split()[0]
        through = "L".join(part)
        path = f"M{left} {HIGH}L{through}L{right} {HIGH}z"

        yield PATH.format(form="area", look=line.look, path=path)


def _parts(line: Line, top: float) -> Iterator[list[str]]:
    """Yield the points of each part of a curve; a gap is where nothing is known."""
    step = WIDE / len(line.values)

    part: list[tuple[float, float]] = []
    for n, value in enumerate(line.values):
        if value is not None:
            # A value is about a whole step, so its point is in the middle of the step.
            part.append(((n + 0.5) * step, _y(value, top)))
        elif part:
            yield _visible(part, step)
            part = []

    if part:
        yield _visible(part, step)


def _visible(part: list[tuple[float, float]], step: float) -> list[str]:
    """Return the points of a part as text; a single one becomes a short line."""
    if len(part) == 1:
        ((x, y),) = part
        half = step / 3
        left = (x - half, y)
        part = [left, (x + half, y)]

    return [f"{x:.1f} {y:.1f}" for x, y in part]
