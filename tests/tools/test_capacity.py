"""What a job costs as a formula, and what to buy for it."""

import json
import statistics
from itertools import pairwise

import pytest

from bench.costs import (
    MANY,
    SIZES,
    TRIPS,
    UNITS,
    Cost,
    Load,
    Measured,
    Part,
    check_table,
    costs_of,
    fit,
    size,
    size_table,
)
from tools.docs_tables import MEASURED, OF_CELLS

RESULT = json.loads(MEASURED.read_text())
COSTS = costs_of(RESULT)


def figures(value: float) -> dict[str, float]:
    return dict.fromkeys(UNITS, value)


def fitted() -> dict[str, Cost]:
    return fit(
        Measured(Load(0, 1, 1), figures(100.0), figures(300.0)),
        Measured(Load(0, MANY, 1), figures(1.0), figures(3.0)),
        Measured(Load(1000, MANY, 1), figures(2.0), figures(13.0)),
    )


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(
    ("load", "cost"),
    [(Load(0, 1, 1), 300.0), (Load(0, MANY, 1), 3.0), (Load(1000, MANY, 1), 13.0)],
)
def test_the_formula_gives_back_what_was_measured(unit: str, load: Load, cost: float):
    assert fitted()[unit].of(load, unit) == pytest.approx(cost)


@pytest.mark.parametrize("unit", UNITS)
def test_a_job_costs_no_more_the_more_come_together(unit: str):
    told = [fitted()[unit].of(Load(0, batch, 1), unit) for batch in range(1, MANY + 50)]

    assert told == sorted(told, reverse=True)
    assert told[-1] == pytest.approx(3.0)


def test_bytes_fall_like_the_inverse_and_cpu_like_a_power():
    part = Part(alone=101.0, many=1.0)

    assert part.at(2, bytes_of=True) == pytest.approx(51.0, rel=0.01)
    assert part.at(MANY**0.5, bytes_of=False) == pytest.approx(101**0.5)


def test_what_costs_nothing_together_costs_nothing():
    assert Part(alone=0.0, many=0.0).at(7, bytes_of=False) == 0.0


def test_a_payload_that_measured_cheaper_is_not_cheaper():
    costs = fit(
        Measured(Load(0, 1, 1), figures(1.0), figures(2.0)),
        Measured(Load(0, MANY, 1), figures(1.0), figures(2.0)),
        Measured(Load(1000, MANY, 1), figures(1.0), figures(1.0)),
    )

    assert {cost.byte for cost in costs.values()} == {0.0}


def test_workers_claim_together_what_comes_faster_than_they_claim():
    assert Load(0, 1, TRIPS / 2).claimed == 1
    assert Load(0, 1, TRIPS * 20).claimed == 20
    assert Load(0, 50, TRIPS * 20).claimed == 50


@pytest.mark.parametrize("batch", [1, 20, MANY])
def test_more_jobs_need_no_less(batch: int):
    needs = [size(Load(100, batch, rate), COSTS) for rate in (10, 1e3, 1e4, 5e4)]

    for less, more in pairwise(needs):
        assert all(a <= b for a, b in zip(less, more, strict=True))
    assert all(need.database_cores in SIZES for need in needs)
    assert all(need.dollars < need.dollars_two_zones for need in needs)


def test_a_rate_beyond_the_largest_server_is_said_so():
    dear = {unit: cost._replace(byte=cost.byte + 1e3) for unit, cost in COSTS.items()}

    lines = list(size_table(RESULT | {"costs": dear}))

    assert f"more than {SIZES[-1]}" in lines[-1]


def test_the_results_predict_the_load_that_was_not_measured_for_them():
    """As docs/capacity.md says; a result that does not is not to be published."""
    ratios = {
        line.split(" | ")[0].strip("| "): float(line.rstrip(" |").split()[-1])
        for line in list(check_table(RESULT))[2:]
    }

    assert ratios.pop("WAL, bytes") == pytest.approx(1, abs=0.065)
    assert ratios.pop("disk while it waits, bytes") == pytest.approx(1, abs=0.065)
    assert all(0.65 <= ratio <= 1.5 for ratio in ratios.values()), ratios


def test_three_cells_work_like_three_times_one():
    """As docs/internals/decisions/scale-out.md says; a result that does not is not to be published."""
    runs = json.loads(OF_CELLS.read_text())["runs"]

    def middle(which: str, name: str) -> float:
        return statistics.median(figures[name] for figures in runs[which])

    for name in ("jobs_per_second", "wal_bytes"):
        assert middle("three", name) == pytest.approx(middle("one", name), rel=0.02)
    for name in ("database_us", "worker_us", "p99_ms"):
        assert middle("three", name) < 1.25 * middle("one", name)
