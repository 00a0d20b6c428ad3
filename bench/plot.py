"""Draw the medians of a run: `python -m bench.plot [NAME]` writes docs/performance.png. Needs
matplotlib.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.report import RESULTS

mpl.use("Agg")

OUTPUT = Path(__file__).parents[1] / "docs" / "performance.png"
OURS, PEER, PGBENCH = "#d9534f", "#9aa5b1", "#dfe3e8"

PANELS = (
    ("drain, 1 worker", "jobs_per_second", "jobs/s"),
    ("drain, 2 workers", "jobs_per_second", "jobs/s"),
    ("drain, 2 workers", "cpu_us", "us of CPU per job, all processes"),
    ("mixed, 1 producer and 1 worker", "jobs_per_second", "jobs/s"),
    ("256 slots, waits 1 ms", "jobs_per_second", "jobs/s"),
    ("mixed for 60 s, one snapshot held open", "last_slice", "jobs/s in the last 10 s"),
    ("enqueue, thousands at once", "jobs_per_second", "jobs/s"),
)
"""Scenario, figure, what it is."""

Medians = Mapping[str, Mapping[str, Mapping[str, float]]]


def draw(medians: Medians, title: str) -> None:
    """The panels that the run has figures for."""
    shown = [panel for panel in PANELS if panel[0] in medians]
    figure, grid = plt.subplots(
        -(-len(shown) // 2), 2, figsize=(12, 1.9 * len(shown) / 2 + 1), squeeze=False
    )
    places = list(grid.flat)
    for axes, (scenario, name, unit) in zip(places, shown, strict=False):
        _bars(
            axes,
            {
                system: row[name]
                for system, row in medians[scenario].items()
                if name in row
            },
        )
        axes.set_title(f"{scenario}: {unit}", fontsize=9, loc="left")
    for axes in places[len(shown) :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(OUTPUT, dpi=110)


def _bars(axes: Axes, values: Mapping[str, float]) -> None:
    names = list(values)[::-1]
    colours = [
        OURS if name == "redrive" else PGBENCH if name.startswith("pgbench") else PEER
        for name in names
    ]
    bars = axes.barh(names, [values[name] for name in names], color=colours)
    axes.bar_label(
        bars,
        fmt=lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.1f}",
        fontsize=7,
        padding=2,
    )
    axes.tick_params(labelsize=7, length=0)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.margins(x=0.12)


def main() -> None:
    """Draw `bench/results/NAME.json`."""
    run = json.loads(
        (RESULTS / f"{sys.argv[1] if len(sys.argv) > 1 else 'latest'}.json").read_text()
    )
    machine = run["machine"]
    draw(
        run["medians"],
        f"{run['began']}, {machine['cores']} cores, load before {machine['load_before']},"
        " Postgres 18, fsync on; medians of interleaved runs",
    )


if __name__ == "__main__":
    main()
