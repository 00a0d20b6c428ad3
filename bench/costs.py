"""What a job costs as a formula, and what to give Postgres for a rate of jobs. No I/O: bench.capacity
measures the figures, and docs/capacity.md shows the tables.

A job is inserted by a producer and worked off by a worker. Jobs of one transaction share its costs:
with the number of jobs in it, WAL and disk of a job fall like its inverse, and CPU falls like a power
of it. Each is measured alone and at MANY jobs per transaction, and the rest is drawn between.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Figures = Mapping[str, float]
"""By unit, such as `wal_bytes`; of a job."""

UNITS = ("wal_bytes", "database_us", "worker_us", "producer_us", "disk_bytes")
"""What is measured of each job."""

MANY = 500
"""Jobs per transaction; more save nothing."""

TRIPS = 500.0
"""Claims a second of all workers together, about; docs/performance.md has a simulation."""


class Load(NamedTuple):
    """Jobs as producers enqueue them."""

    payload: int
    """Bytes of the payload's filler."""
    batch: int
    """Jobs per transaction."""
    rate: float
    """Jobs per second."""

    @property
    def claimed(self) -> float:
        """Jobs that workers get together, at least; at high rates more than in a transaction."""
        return max(float(self.batch), self.rate / TRIPS)


class Measured(NamedTuple):
    """A load that ran, and what each of its jobs cost: its insert, and all of its life."""

    load: Load
    insert: Figures
    life: Figures


class Part(NamedTuple):
    """A cost of a job that comes alone, and of one that comes with MANY."""

    alone: float
    many: float

    def at(self, together: float, *, bytes_of: bool) -> float:
        """Return the cost of one of so many jobs."""
        together = min(max(together, 1.0), float(MANY))
        if bytes_of:
            each = (self.alone - self.many) / (1 - 1 / MANY)
            return self.many + each * (1 / together - 1 / MANY)
        if min(self) <= 0:
            return 0.0
        power = math.log(self.alone / self.many) / math.log(MANY)
        return self.alone / together**power


class Cost(NamedTuple):
    """What one unit of a job costs."""

    insert: Part
    work: Part
    byte: float
    """Each byte of the payload."""

    def of(self, load: Load, unit: str) -> float:
        """Return the cost of one job of the load."""
        bytes_of = unit.endswith("_bytes")
        insert = self.insert.at(load.batch, bytes_of=bytes_of)
        work = self.work.at(load.claimed, bytes_of=bytes_of)
        return insert + work + self.byte * load.payload


Costs = Mapping[str, Cost]


def fit(single: Measured, small: Measured, large: Measured) -> dict[str, Cost]:
    """Return the costs that three measurements show: alone, many, and many of large payloads."""
    found: dict[str, Cost] = {}
    for unit in UNITS:
        bytes_more = large.load.payload - small.load.payload
        more = large.life[unit] - small.life[unit]
        found[unit] = Cost(
            insert=Part(single.insert[unit], small.insert[unit]),
            work=Part(_work(single, unit), _work(small, unit)),
            byte=max(0.0, more / bytes_more),
        )
    return found


def _work(run: Measured, unit: str) -> float:
    """Return what is left of a job's cost after its insert."""
    return max(0.0, run.life[unit] - run.insert[unit])


# ------------------------------------------------------------------ sizing

BUSY = 0.6
"""Share of the cores that the rate may keep busy. The rest is for peaks, vacuum and standbys."""

SIZES = (2, 4, 8, 16, 32, 48, 64, 96)
"""vCPUs of a server."""

BACKLOG_HOURS = 1.0
"""How long workers may be away before the disk for waiting jobs is full."""

DISK_SLACK = 3.0
"""Disk over what the backlog takes: WAL that is kept, dead letters, growth."""

LEAST_DISK_GB = 100.0
WAL_DAYS = 7
"""Days of WAL that a restore to a point in time needs."""

HOURS = 730.0
"""Of a month, as clouds count."""

PRICES: Mapping[str, float] = {
    "database vCPU hour": 0.478 / 4,  # RDS for PostgreSQL, db.r8g.xlarge, one zone
    "worker vCPU hour": 0.0816 / 2,  # EC2, m7g.large
    "disk GB month": 0.115,  # RDS, gp3
    "backup GB month": 0.095,  # RDS
}
"""On demand, in dollars, us-east-1, June 2026; docs/capacity.md names the sources."""


class Size(NamedTuple):
    """What a rate of jobs needs."""

    rate: float
    database_busy: float
    """Cores that are busy in the database."""
    database_cores: int
    worker_busy: float
    worker_cores: int
    wal_mb_second: float
    wal_gb_day: float
    disk_gb: float
    dollars: float
    """A month, in one zone."""
    dollars_two_zones: float


def size(load: Load, costs: Costs) -> Size:
    """Return what a load needs, and what that costs."""
    each = {unit: costs[unit].of(load, unit) for unit in UNITS}
    database = load.rate * each["database_us"] / 1e6
    worker = load.rate * each["worker_us"] / 1e6
    wal = load.rate * each["wal_bytes"]
    backlog = load.rate * 3600 * BACKLOG_HOURS * each["disk_bytes"]
    disk = max(LEAST_DISK_GB, backlog / 1e9 * DISK_SLACK)
    cores, workers = _cores(database), math.ceil(worker / BUSY)
    wal_gb_day = wal * 86_400 / 1e9
    server = HOURS * cores * PRICES["database vCPU hour"]
    server += disk * PRICES["disk GB month"]
    others = HOURS * workers * PRICES["worker vCPU hour"]
    others += wal_gb_day * WAL_DAYS * PRICES["backup GB month"]
    return Size(
        rate=load.rate,
        database_busy=database,
        database_cores=cores,
        worker_busy=worker,
        worker_cores=workers,
        wal_mb_second=wal / 1e6,
        wal_gb_day=wal_gb_day,
        disk_gb=disk,
        dollars=server + others,
        dollars_two_zones=2 * server + others,
    )


def _cores(busy: float) -> int:
    """Return the smallest server that stays below BUSY; the largest, if none does."""
    return next((n for n in SIZES if n * BUSY >= busy), SIZES[-1])


# ------------------------------------------------------------------ tables

NAMES = {
    "wal_bytes": "WAL, bytes",
    "database_us": "CPU of the database, µs",
    "worker_us": "CPU of the worker, µs",
    "producer_us": "CPU of the producer, µs",
    "disk_bytes": "disk while it waits, bytes",
}
RATES = (1_000.0, 10_000.0, 50_000.0)
SIZED = ((100, 500), (100, 1))
"""Payload and batch of the loads that are sized."""


def load_of(found: Mapping[str, Any]) -> Load:
    """Return a load as a result has it."""
    return Load(found["payload"], found["batch"], found["rate"])


def costs_of(result: Mapping[str, Any]) -> dict[str, Cost]:
    """Return the costs as a result has them."""
    return {
        unit: Cost(Part(*insert), Part(*work), byte)
        for unit, (insert, work, byte) in result["costs"].items()
    }


def cost_table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table of costs."""
    yield (
        f"| of a job | insert alone | insert, {MANY} together | claim, run, settle, alone"
        f" | the same, {MANY} together | each 1,000 bytes of payload |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for unit, cost in costs_of(result).items():
        parts = (*cost.insert, *cost.work, cost.byte * 1000)
        yield f"| {NAMES[unit]} | {' | '.join(map(_short, parts))} |"


def check_table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that compare the prediction with the second measurement."""
    yield "| of a job | predicted | measured | measured / predicted |"
    yield "|---|---:|---:|---:|"
    load, costs = load_of(result["check"]["load"]), costs_of(result)
    for unit in UNITS:
        told, found = costs[unit].of(load, unit), result["check"]["life"][unit]
        yield f"| {NAMES[unit]} | {_short(told)} | {_short(found)} | {found / told:.2f} |"


def size_table(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of what rates of jobs need."""
    yield (
        "| jobs/s | jobs per transaction | database: cores busy | vCPUs to buy | workers: cores"
        " busy | vCPUs to buy | WAL, MB/s | WAL, GB a day | disk, GB | $ a month | with a standby"
        " in another zone |"
    )
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    costs = costs_of(result)
    for payload, batch in SIZED:
        for rate in RATES:
            yield _sized(batch, size(Load(payload, batch, rate), costs))


def _sized(batch: int, needs: Size) -> str:
    cells = (
        f"{needs.rate:,.0f}",
        str(batch),
        f"{needs.database_busy:.2f}",
        _bought(needs),
        f"{needs.worker_busy:.2f}",
        str(needs.worker_cores),
        f"{needs.wal_mb_second:.1f}",
        f"{needs.wal_gb_day:,.0f}",
        f"{needs.disk_gb:,.0f}",
        f"{needs.dollars:,.0f}",
        f"{needs.dollars_two_zones:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _bought(needs: Size) -> str:
    """Return the size of the server; one that is too small says so."""
    fits = needs.database_cores * BUSY >= needs.database_busy
    return str(needs.database_cores) if fits else f"more than {needs.database_cores}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 20 else f"{value:.1f}"


def told_machine(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence on where and when this was measured."""
    m = result["machine"]
    yield (
        f"Measured on {result['began'][:10]}: {m['cores']} cores ({m['cpu']}), {m['memory_gib']} GiB,"
        f" Postgres 18, fsync on, Python {m['python']}. The machine was busy with other work: load"
        f" {m['load_before']} before, {m['load_after']} after. With one worker, the database had"
        f" {result['worker']['connections']} connections of {result['worker']['mb_per_connection']:.0f} MB"
        f" each, and supervisor and runner took {result['worker']['worker_mb']:.0f} MB together."
    )
