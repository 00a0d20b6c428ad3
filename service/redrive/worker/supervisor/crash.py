"""What becomes of the jobs of a runner that died, and what is known of its death."""

import random
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from redrive.rules.failure import made_up
from redrive.rules.model import Category, Claimed
from redrive.rules.policy import Policy, decide, decide_loss
from redrive.rules.settlement import NotComplete, Release
from redrive.worker.protocol import Kind, read_extras
from redrive.worker.supervisor.pool import Held, RunnerProcess

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Crash:
    """How a runner died: its exit status (negative: the signal), its peak memory in bytes, the
    kernel's OOM kills.
    """

    status: int
    peak: int
    oom_kills: int

    def record(self) -> dict[str, object]:
        """For the failure of a job that was in it."""
        found: dict[str, object] = {"exit": _how(self.status)}
        if self.peak:
            found["peak_memory_bytes"] = self.peak
        if self.oom_kills:
            found["oom_kills"] = self.oom_kills
        return found

    def __str__(self) -> str:
        return _how(self.status) + (
            ", out of memory" if self.oom_kills and self.status == -signal.SIGKILL else ""
        )


class OomWatch:
    """Counts the processes of our cgroup that the kernel killed for want of memory."""

    def __init__(self) -> None:
        self._files = [path for path in _oom_files() if path.is_file()][:1]
        self._seen = self._count()

    def since(self) -> int:
        """Kills since the last call; 0 where the system does not tell."""
        before, self._seen = self._seen, self._count()
        return max(0, self._seen - before)  # a look that failed counts nothing

    def _count(self) -> int:
        try:
            counts = dict(
                line.split() for path in self._files for line in path.read_text().splitlines()
            )
            return int(counts["oom_kill"])
        except (OSError, ValueError, KeyError):
            return 0


def loss(  # noqa: PLR0913 # what is known of one death
    held: Held,
    runner: RunnerProcess,
    death: Crash,
    running: int,
    known: Kind | None,
    where: Mapping[str, str],
) -> NotComplete:
    """Decide about a job whose process died while `running` jobs, this one too, ran in it (0: it
    had just failed).
    """
    policy = policy_of(known)
    extras = read_extras(held.row[5])
    claimed = Claimed(
        held.kind,
        held.row[2],
        extras.max_attempts,
        extras.losses,
        extras.streak,
        extras.fingerprint,
        extras.expires_in,
    )
    detail = {**death.record(), "running": running, **where}
    if held.id in runner.killed_for:
        limit = known.timeout if known else 0.0
        text = f"it outlived its timeout of {limit:g} s and was killed"
        failure = made_up("DeadlineExceeded", text, Category.LOST, held.kind, **detail)
        return decide(claimed, failure, policy, random.random())
    is_innocent = runner.killed_for or runner.blameless or not running
    if is_innocent and claimed.attempt < (claimed.max_attempts or policy.max_attempts):
        return Release("neighbour_killed")
    failure = made_up(
        "RunnerLost", f"its process died: {death}", Category.LOST, held.kind, **detail
    )
    return decide_loss(claimed, failure, policy, alone=running == 1)


def policy_of(known: Kind | None) -> Policy:
    """As much of a kind's policy as the supervisor knows; the defaults for a kind that it does not."""
    return (
        Policy()
        if known is None
        else Policy(max_attempts=known.max_attempts, max_losses=known.max_losses)
    )


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {-status}"


def _oom_files() -> Iterator[Path]:
    """Where version 1 and version 2 of cgroups tell: ours, or the root that a container sees as its
    own.
    """
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            name = "memory.oom_control" if controllers else "memory.events"
            root = _CGROUPS / controllers
            yield root / path.lstrip("/") / name
            yield root / name
