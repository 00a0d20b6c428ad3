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
"""Files with a container's memory limit, in versions 2 and 1 of cgroups."""

NO_LIMIT = 1 << 60
"""Values from here on mean in version 1 that there is no limit."""

_itself = ProcessCollector(registry=None)


def collect() -> Iterator[Metric]:
    """Yield the families; without values that the system does not report."""
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
        "Memory that the container may use; absent without a limit.",
    )
    found = memory_limit(CGROUPS)
    if found is not None:
        limit.add_metric((), found)

    yield limit


def memory_limit(cgroups: Path) -> int | None:
    """Return the limit in bytes; None without a limit, or if it cannot be read."""
    for name in LIMITS:
        try:
            limit = int((cgroups / name).read_text())
        except (OSError, ValueError):  # another version, or "max"
            continue

        return limit if limit < NO_LIMIT else None

    return None


def of_runners(memory: Callable[[], int]) -> Callable[[], Iterable[Metric]]:
    """Return a source for the memory of a worker's runners."""

    def read() -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "redrive_runners_resident_memory_bytes",
            "Resident memory of this worker's runners; shared memory counts for each.",
            memory(),
        )

    return read
