"""Metrics of every process: its version, and its use of the machine."""

import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

CGROUPS = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Where a container finds the limit of its memory, with version 2 of cgroups and with
version 1.
"""

NO_LIMIT = 1 << 60
"""From here on version 1 means that there is none."""

_itself = ProcessCollector(registry=None)


def collect() -> Iterator[Metric]:
    """The families; those of the system only where it tells."""
    build = GaugeMetricFamily(
        "redrive_build_info",
        "Always 1; the labels carry the versions.",
        labels=("version", "python_version"),
    )
    build.add_metric((version("redrive"), platform.python_version()), 1)
    yield build
    yield from _itself.collect()
    limit = GaugeMetricFamily(
        "redrive_memory_limit_bytes",
        "Memory that the container may use; nothing without a limit.",
    )
    found = memory_limit(CGROUPS)
    if found is not None:
        limit.add_metric((), found)
    yield limit


def memory_limit(cgroups: Path) -> int | None:
    """Bytes; None without a limit, or where nobody tells."""
    for name in LIMITS:
        try:
            limit = int((cgroups / name).read_text())
        except (OSError, ValueError):  # another version, or "max"
            continue
        return limit if limit < NO_LIMIT else None
    return None


def of_runners(memory: Callable[[], int]) -> Callable[[], Iterable[Metric]]:
    """Read what a worker's runners take: a worker itself takes little."""

    def read() -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "redrive_runners_resident_memory_bytes",
            "Resident memory of this worker's runners, added up; what they share counts for each.",
            memory(),
        )

    return read
