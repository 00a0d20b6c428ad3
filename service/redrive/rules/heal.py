"""Conditions of heal: after a deploy, redrive a few dead letters of each group."""

from dataclasses import dataclass

MOST_CANARIES = 1000
LEAST_RATE, MOST_RATE = 1e-9, 1e9
"""Limits of a campaign's rate; start_campaign has the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heal:
    """Redrive dead letters once all workers of their kind run a new version.

    Args:
        canaries: number of dead letters of each group that go first. The others follow
            if these succeed.
        max_rate: limit of jobs of a group per second; None = as fast as they end.

    Raises:
        ValueError: a field is out of range; the text names it.
    """

    canaries: int = 3
    max_rate: float | None = None

    def __post_init__(self) -> None:
        if self.canaries not in range(1, MOST_CANARIES + 1):
            msg = f"Heal: canaries must be a number 1 to {MOST_CANARIES}, not {self.canaries!r}"
            raise ValueError(msg)

        rate = self.max_rate
        if rate is not None and not LEAST_RATE <= rate <= MOST_RATE:
            msg = (
                f"Heal: max_rate must be {LEAST_RATE:g} to {MOST_RATE:g}"
                f" jobs a second, not {rate!r}"
            )
            raise ValueError(msg)
