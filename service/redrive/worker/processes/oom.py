"""Counter of processes that the kernel killed for lack of memory."""

from collections.abc import Iterator
from pathlib import Path

from redrive.observability.process import CGROUPS


class OomWatch:
    """Counts the kills in this process's cgroup."""

    def __init__(self) -> None:
        self._files = [path for path in _oom_files() if path.is_file()][:1]
        self._seen = self._count()

    def since(self) -> int:
        """Return the kills since the last call; 0 if the system does not tell."""
        before = self._seen
        self._seen = self._count()

        # A look that failed counts nothing.
        return max(0, self._seen - before)

    def _count(self) -> int:
        try:
            counts = dict(
                line.split()
                for path in self._files
                for line in path.read_text().splitlines()
            )
            return int(counts["oom_kill"])
        except (OSError, ValueError, KeyError):
            return 0


def _oom_files() -> Iterator[Path]:
    """Yield the files of cgroups 1 and 2.

    They belong to the cgroup of this process, or to the root that a container sees.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return

    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            name = "memory.oom_control" if controllers else "memory.events"
            root = CGROUPS / controllers
            yield root / path.lstrip("/") / name
            yield root / name
