"""Building blocks of the dashboards: selectors, queries, panels, and the frame.

There are two kinds of figures, which add up in different ways. Every process exports
the same figures of the database: `same()` takes the maximum over the processes, and
only then a sum may follow. The growth of database counters is recorded (`growth`),
because no rate() of them is right across rollouts and restores. Figures of a worker are
its own: first take the rate of each series, then sum over the workers.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from redrive.rules.attempts.settlement import Outcome

# The older of two formats, which all current Grafana versions read. The SDK warns that
# it is deprecated.
with warnings.catch_warnings(action="ignore"):
    from grafana_foundation_sdk.builders import (
        common,
        heatmap,
        prometheus,
        stat,
        table,
        text,
        timeseries,
    )
    from grafana_foundation_sdk.builders import dashboard as build
    from grafana_foundation_sdk.models import common as c
    from grafana_foundation_sdk.models import dashboard as d
    from grafana_foundation_sdk.models import heatmap as h
    from grafana_foundation_sdk.models import prometheus as p
    from grafana_foundation_sdk.models import text as t

Board = build.Dashboard
Made = d.Dashboard

DATASOURCE = c.DataSourceRef(type_val="prometheus", uid="${datasource}")
RUNBOOK = "https://runbooks.example/redrive/runbook.md"

INSTALLATION = "cluster, cell, namespace, job"
WHERE = 'cluster=~"$cluster", cell=~"$cell", namespace=~"$namespace", job=~"$job"'
QUEUE = f'{WHERE}, queue=~"$queue"'
QUEUE_OR_ALL = (
    f'{WHERE}, queue=~"$queue|[*]"'  # '*' stands for a worker without a list of queues
)
INSTANCE = f'{WHERE}, instance=~"$instance"'
INSTANCE_QUEUE = f'{INSTANCE}, queue=~"$queue"'
ALERTS = (
    'ALERTS{service="redrive", alertstate="firing", cluster=~"$cluster",'
    ' cell=~"$cell", namespace=~"$namespace|", job=~"$job", queue=~"$queue|"}'
)

COUNTERS = {
    "dlq_added": ("queue", "kind", "reason"),
    "dlq_removed": ("queue", "action"),
    "redrive_outcomes": ("queue", "outcome"),
    "jobs_enqueued": ("queue", "kind"),
    "jobs_completed": ("queue", "kind"),
}
"""Counters of the database whose growth is recorded, with their labels."""

RECORDED_EVERY = 30
"""Interval of the rules in seconds."""

GOOD, WARN, BAD, CALM, GREY, VIOLET = (
    "green",
    "yellow",
    "red",
    "blue",
    "#8e8e8e",
    "purple",
)
_COLORS = {
    Outcome.COMPLETE: GOOD,
    Outcome.RETRY: WARN,
    Outcome.RELEASE: CALM,
    Outcome.DEAD_LETTER: BAD,
    Outcome.CANCEL: GREY,
}
OUTCOMES = {outcome.label: _COLORS[outcome] for outcome in Outcome}
STATES = {"ready": CALM, "running": GOOD, "retrying": WARN, "scheduled": VIOLET}

THRESHOLD = "objective"
"""Name of the query that is drawn dashed, as the threshold for the others."""

CHOSEN = (
    "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&${cell:queryparam}"
    "&${namespace:queryparam}&${job:queryparam}"
)
DEAD_LETTERS_OF_SERIES = (
    f"/d/redrive-dead-letters?{CHOSEN}&var-queue=${{__field.labels.queue}}"
)
DEAD_LETTERS_OF_ROW = DEAD_LETTERS_OF_SERIES.replace(
    "__field.labels.queue", "__data.fields.queue"
)


def same(metric: str, *labels: str, where: str = QUEUE) -> str:
    """Return a gauge of the database by `labels`, once for all exporting processes."""
    return _once(f"{metric}{{{where}}}", *labels)


def grown_per_second(counter: str, *by: str) -> str:
    """Return the growth per second of a database counter.

    The recorded growth is right from the first event of a kind on, across rollouts of
    exporters and restores of the database. If the rules are not loaded, this is an
    estimate from the counter.
    """
    grown = total(
        f"avg_over_time(redrive:{counter}:growth{{{QUEUE}}}[$__rate_interval])", *by
    )
    raw = f"rate(redrive_{counter}_total{{{QUEUE}}}[$__rate_interval])"
    return f"{grown} / {RECORDED_EVERY} or {total(_once(raw, *COUNTERS[counter]), *by)}"


def grown_in_range(counter: str, *by: str, where: str = QUEUE) -> str:
    """Return the growth of a database counter in the displayed range."""
    grown = total(f"sum_over_time(redrive:{counter}:growth{{{where}}}[$__range])", *by)
    raw = f"increase(redrive_{counter}_total{{{where}}}[$__range])"
    return f"({grown} or {total(_once(raw, *COUNTERS[counter]), *by)})"


def _once(expression: str, *labels: str) -> str:
    return f"max by ({', '.join((INSTALLATION, *labels))}) ({expression})"


def total(expression: str, *by: str) -> str:
    """Return the sum by labels."""
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def or_zero(figure: str) -> str:
    """Return 0 for a figure of the database without a series, if somebody reads the database.

    A panel with one number shows the last value in its range. Without this, it would
    show a number that is over.
    """
    return f"{figure} or 0 * count(redrive_stats_up{{{WHERE}}} == 1)"


def rate(metric: str, *by: str, where: str = QUEUE) -> str:
    """Return the rate per second of a worker counter, summed over workers."""
    return total(f"rate({metric}{{{where}}}[$__rate_interval])", *by)


def quantile(share: float, metric: str, *by: str, where: str = QUEUE) -> str:
    """Return a quantile of a histogram of workers."""
    return f"histogram_quantile({share:g}, {rate(metric + '_bucket', 'le', *by, where=where)})"


def query(
    expression: str, legend: str = "", *, exemplars: bool = False
) -> prometheus.Dataquery:
    """Return a query for a series over time."""
    made = (
        prometheus.Dataquery()
        .expr(expression)
        .legend_format(legend)
        .range()
        .datasource(DATASOURCE)
    )
    return made.exemplar(exemplar=True) if exemplars else made


def now(expression: str) -> prometheus.Dataquery:
    """Return a query for one value per series, as rows of a table."""
    return (
        prometheus.Dataquery()
        .expr(expression)
        .instant()
        .format(p.PromQueryFormat.TABLE)
        .datasource(DATASOURCE)
    )


def objective(name: str) -> prometheus.Dataquery:
    """Return the threshold of each queue as a query, drawn dashed.

    `redrive objective set` wrote these values.
    """
    where = f'{QUEUE}, objective="{name}"'
    made = query(
        f"max by (queue) (redrive:objective:max{{{where}}})", "objective of {{queue}}"
    )
    return made.ref_id(THRESHOLD)


def runbook(*alerts: str) -> list[build.DashboardLink]:
    """Return links from a panel to the runbook sections about its alerts."""
    return [
        build.DashboardLink(f"Runbook: {alert}")
        .type(d.DashboardLinkType.LINK)
        .url(f"${{runbook}}#{alert.lower()}")
        .target_blank(target_blank=True)
        for alert in alerts
    ]


def _prepare(  # noqa: PLR0913 # what every panel has
    panel: Any,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Any],
    alerts: Sequence[str],
) -> Any:
    """Set the properties that every panel has."""
    panel.title(title).description(description).unit(unit).datasource(DATASOURCE).links(
        runbook(*alerts)
    )
    for number, each in enumerate(queries):
        if not each.build().ref_id:
            each.ref_id(chr(ord("A") + number))
        panel.with_target(each)
    return panel


def chart(  # noqa: PLR0913 # options of a panel
    title: str,
    description: str,
    unit: str,
    *queries: prometheus.Dataquery,
    alerts: Sequence[str] = (),
    colors: Mapping[str, str] | None = None,
    stacked: bool = False,
    most: float | None = None,
    decimals: int | None = None,
    links_to: str | None = None,
    width: int = 8,
    height: int = 8,
) -> timeseries.Panel:
    """Return a chart of lines; filled and stacked if the parts make a whole."""
    panel: timeseries.Panel = _prepare(
        timeseries.Panel(), title, description, unit, queries, alerts
    )
    panel.span(width).height(height).min(0)
    _draw_lines(panel, stacked=stacked)
    _explain_lines(panel)
    if most is not None:
        panel.max(most)
    if decimals is not None:
        panel.decimals(decimals)
    if links_to is not None:
        panel.data_links([_link(links_to)])
    for name, color in (colors or {}).items():
        panel.override_by_name(
            name, [_property("color", {"mode": "fixed", "fixedColor": color})]
        )
    if any(each.build().ref_id == THRESHOLD for each in queries):
        panel.override_by_query(THRESHOLD, _dashed())
    return panel


def _draw_lines(panel: timeseries.Panel, *, stacked: bool) -> None:
    panel.line_width(1 if stacked else 2).fill_opacity(30 if stacked else 6)
    panel.show_points(c.VisibilityMode.NEVER).span_nulls(span_nulls=False)
    panel.gradient_mode(c.GraphGradientMode.OPACITY)
    panel.color_scheme(
        build.FieldColor().mode(d.FieldColorModeId.PALETTE_CLASSIC_BY_NAME)
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(c.StackingMode.NORMAL).group("A"))


def _explain_lines(panel: timeseries.Panel) -> None:
    tooltip = common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI)
    panel.tooltip(tooltip.sort(c.SortOrder.DESCENDING))
    legend = common.VizLegendOptions().display_mode(c.LegendDisplayMode.LIST)
    legend.placement(c.LegendPlacement.BOTTOM).show_legend(show_legend=True)
    panel.legend(legend.calcs(["lastNotNull"]))


def _dashed() -> list[d.DynamicConfigValue]:
    """Return the style of an objective among the other lines."""
    return [
        _property("custom.lineStyle", {"fill": "dash", "dash": [8, 8]}),
        _property("custom.lineWidth", 1),
        _property("custom.fillOpacity", 0),
        _property("custom.stacking", {"mode": "none", "group": "A"}),
        _property("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
        _property("color", {"mode": "fixed", "fixedColor": BAD}),
    ]


def figure(  # noqa: PLR0913 # options of a panel
    title: str,
    description: str,
    unit: str,
    expression: str,
    *,
    alerts: Sequence[str] = (),
    steps: Sequence[tuple[float | None, str]] = ((None, CALM),),
    decimals: int | None = None,
    over_range: bool = False,
    width: int = 3,
) -> stat.Panel:
    """Return a panel with one large number and its history behind it.

    With `over_range`, the number covers the whole displayed range.
    """
    asked = query(expression) if not over_range else now(expression)
    panel: stat.Panel = _prepare(
        stat.Panel(), title, description, unit, (asked,), alerts
    )
    panel.graph_mode(
        c.BigValueGraphMode.NONE if over_range else c.BigValueGraphMode.AREA
    )
    panel.color_mode(c.BigValueColorMode.VALUE).span(width).height(4)
    panel.reduce_options(
        common.ReduceDataOptions()
        .calcs(["lastNotNull"])
        .fields("")
        .values(values=False)
    )
    panel.thresholds(_steps(steps)).color_scheme(
        build.FieldColor().mode(d.FieldColorModeId.THRESHOLDS)
    )
    if decimals is not None:
        panel.decimals(decimals)
    return panel


def heat(
    title: str,
    description: str,
    expression: str,
    *,
    alerts: Sequence[str] = (),
    width: int = 8,
) -> heatmap.Panel:
    """Return a heat map: the number of jobs by duration over time."""
    buckets = query(expression, "{{le}}", exemplars=True).format(
        p.PromQueryFormat.HEATMAP
    )
    panel: heatmap.Panel = _prepare(
        heatmap.Panel(), title, description, "s", (buckets,), alerts
    )
    panel.calculate(calculate=False).span(width).height(8).hide_legend().cell_gap(1)
    panel.y_axis(heatmap.YAxisConfig().unit("s").axis_placement(c.AxisPlacement.LEFT))
    panel.cell_values(heatmap.CellValues().unit("ops"))
    panel.color(
        heatmap.HeatmapColorOptions()
        .mode(h.HeatmapColorMode.SCHEME)
        .scheme("Turbo")
        .fill("dark-orange")
        .scale(h.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
        .reverse(reverse=False)
    )
    panel.tooltip(
        heatmap.HeatmapTooltip()
        .mode(c.TooltipDisplayMode.SINGLE)
        .y_histogram(y_histogram=True)
    )
    return panel


def rows(  # noqa: PLR0913 # options of a panel
    title: str,
    description: str,
    columns: Mapping[str, tuple[prometheus.Dataquery, str]],
    *,
    labels: Mapping[str, str],
    sort_by: str,
    alerts: Sequence[str] = (),
    links_to: str | None = None,
    colors: Mapping[str, Sequence[tuple[float | None, str]]] | None = None,
    width: int = 24,
    height: int = 8,
) -> table.Panel:
    """Return a table with a row per set of `labels` and a column per query.

    `labels` maps a name to its heading. A column's heading maps to its query and unit.
    """
    panel: table.Panel = _prepare(
        table.Panel(),
        title,
        description,
        "short",
        [q for q, _ in columns.values()],
        alerts,
    )
    panel.span(width).height(height).show_header(show_header=True).no_value("0")
    panel.cell_height(c.TableCellHeight.SM)
    panel.with_transformation(d.DataTransformerConfig(id_val="merge", options={}))
    organize = d.DataTransformerConfig(
        id_val="organize", options=_organized(labels, [*columns])
    )
    panel.with_transformation(organize)
    for heading, (_, unit) in columns.items():
        if heading:  # without a heading, only the labels matter
            panel.override_by_name(heading, _cells(unit, (colors or {}).get(heading)))
    if links_to is not None:
        link = _property("links", [{"title": "Look closer", "url": links_to}])
        panel.override_by_name(next(iter(labels.values())), [link])
    panel.sort_by(
        [common.TableSortByFieldState().display_name(sort_by).desc(desc=True)]
    )
    return panel


def _organized(labels: Mapping[str, str], headings: Sequence[str]) -> dict[str, Any]:
    """Return which columns are shown, in which order, under which names."""
    # With one query Grafana calls the figure "Value", with several "Value #A" and so
    # on.
    letters = [chr(ord("A") + number) for number in range(len(headings))]
    values = (
        [f"Value #{letter}" for letter in letters] if len(headings) > 1 else ["Value"]
    )
    named = dict(zip(values, headings, strict=True))
    hidden = [value for value, heading in named.items() if not heading]
    shown = {value: heading for value, heading in named.items() if heading}
    return {
        "excludeByName": {"Time": True} | dict.fromkeys(hidden, True),
        "includeByName": {},
        "indexByName": {name: place for place, name in enumerate([*labels, *values])},
        "renameByName": dict(labels) | shown,
    }


def _cells(
    unit: str, steps: Sequence[tuple[float | None, str]] | None
) -> list[d.DynamicConfigValue]:
    if not steps:
        return [_property("unit", unit)]
    return [
        _property("unit", unit),
        _property("custom.cellOptions", {"type": "color-text"}),
        _property("thresholds", _steps(steps).build()),
        _property("color", {"mode": "thresholds"}),
    ]


def note(
    markdown: str, *, title: str, description: str, width: int = 8, height: int = 8
) -> text.Panel:
    """Return a panel of text."""
    panel = (
        text.Panel()
        .title(title)
        .description(description)
        .mode(t.TextMode.MARKDOWN)
        .content(markdown)
    )
    return panel.span(width).height(height)


def board(
    uid: str,
    title: str,
    description: str,
    *,
    show_cluster: bool,
    with_instance: bool = False,
) -> Board:
    """Return an empty dashboard with our common variables, annotations and links."""
    made = Board(title).uid(uid).description(description).tags(["redrive"]).readonly()
    made.time("now-3h", "now").refresh("30s").timezone("browser")
    made.tooltip(d.DashboardCursorSync.CROSSHAIR)
    _add_variables(made, show_cluster=show_cluster, with_instance=with_instance)
    _add_annotations(made)
    _add_links(made)
    return made


def _add_variables(made: Board, *, show_cluster: bool, with_instance: bool) -> None:
    source = (
        build.DatasourceVariable("datasource").label("Data source").type("prometheus")
    )
    cluster = _variable("cluster", "redrive_stats_up", all_value=".*")
    of_cluster, of_cell = 'cluster=~"$cluster"', 'cluster=~"$cluster", cell=~"$cell"'
    cell = _variable("cell", f"redrive_stats_up{{{of_cluster}}}", all_value=".*")
    namespace = _variable("namespace", f"redrive_stats_up{{{of_cell}}}", all_value=".*")
    of_job = f'redrive_stats_up{{{of_cell}, namespace=~"$namespace"}}'
    hide = d.VariableHide.DONT_HIDE if show_cluster else d.VariableHide.HIDE_VARIABLE
    made.with_variable(source).with_variable(cluster.hide(hide))
    made.with_variable(cell).with_variable(namespace)
    made.with_variable(_variable("job", of_job))
    made.with_variable(_variable("queue", f"redrive_queue_depth{{{WHERE}}}"))
    if with_instance:
        made.with_variable(_variable("instance", f"redrive_worker_slots{{{WHERE}}}"))
    made.with_variable(
        build.ConstantVariable("runbook").label("Runbook").value(RUNBOOK)
    )


def _add_annotations(made: Board) -> None:
    alerts = _annotation("Alerts", ALERTS, BAD).title_format("{{alertname}}")
    made.annotation(alerts.text_format("{{queue}} {{severity}}"))
    # changes() of a series that is always 1 is always 0. A new version is a new series,
    # which did not exist before.
    builds = f"redrive_build_info{{{WHERE}}}"
    first_seen = (
        f"group by (version) ({builds}) unless group by (version) ({builds} offset 2m)"
    )
    deployments = _annotation("Deployments", first_seen, CALM)
    made.annotation(deployments.title_format("Redrive {{version}}"))


def _add_links(made: Board) -> None:
    others = build.DashboardLink("Redrive").type(d.DashboardLinkType.DASHBOARDS)
    made.link(
        others.tags(["redrive"])
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )
    book = build.DashboardLink("Runbook").type(d.DashboardLinkType.LINK)
    made.link(book.url("${runbook}").icon("doc").target_blank(target_blank=True))


def fill(made: Board, *panels: Any, **sections: Sequence[Any]) -> Board:
    """Add the panels, then each section under its title, all numbered.

    Links to a panel use its number.
    """
    number = 0
    for panel in panels:
        made.with_panel(panel.id(number := number + 1))
    for title, inside in sections.items():
        made.with_row(build.Row(title.replace("_", " ")).id(number := number + 1))
        for panel in inside:
            made.with_panel(panel.id(number := number + 1))
    return made


def _variable(name: str, series: str, *, all_value: str = ".+") -> build.QueryVariable:
    """Return a variable for several values of a label, or all of them."""
    asked = f"label_values({series}, {name})"
    return (
        build.QueryVariable(name)
        .label(name.title())
        .datasource(DATASOURCE)
        .query({"query": asked, "refId": f"variable-{name}"})
        .definition(asked)
        .refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(d.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(all_value)
        .current(d.VariableOption(selected=True, text="All", value="$__all"))
    )


def _annotation(name: str, expression: str, color: str) -> build.AnnotationQuery:
    return (
        build.AnnotationQuery()
        .name(name)
        .datasource(DATASOURCE)
        .enable(enable=True)
        .icon_color(color)
        .expr(expression)
        .step("30s")
    )


def _steps(steps: Sequence[tuple[float | None, str]]) -> build.ThresholdsConfig:
    thresholds = [d.Threshold(value=value, color=color) for value, color in steps]
    return build.ThresholdsConfig().mode(d.ThresholdsMode.ABSOLUTE).steps(thresholds)


def _property(name: str, value: object) -> d.DynamicConfigValue:
    return d.DynamicConfigValue(id_val=name, value=value)


def _link(url: str) -> build.DashboardLink:
    return build.DashboardLink("Look closer").url(url)
