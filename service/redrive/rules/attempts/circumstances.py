"""Circumstances of a failed attempt, in words, for command line and console.

A worker records them in the failure's `detail`: `worker/run/sampler.py` where it ran,
`worker/processes/crash.py` how its process ended. What may be read without a key is in
`encryption.py`.
"""

from collections.abc import Iterator
from typing import Any

from redrive.rules.rows import Fields

MIB = 1 << 20
SHOWN = (
    "payload_version",
    "exit",
    "peak_memory_bytes",
    "oom_kills",
    "running",
    "pod",
    "node",
    "environment",
    "version",
)
"""Circumstances that are shown if they are known."""


def circumstances(detail: Fields) -> Iterator[str]:
    """Yield where and how an attempt failed: `exit status 3`, `pod worker-7d9f4`.

    Args:
        detail: what is recorded of the failure besides its message.
    """
    for name in SHOWN:
        if name in detail:
            yield _circumstance(name, detail[name])


def _circumstance(name: str, value: Any) -> str:
    # An exit already contains its name.
    if name == "exit":
        return str(value)
    if name == "peak_memory_bytes":
        return f"peak memory {value / MIB:.0f} MiB"

    words = name.replace("_", " ")
    return f"{words} {value}"
