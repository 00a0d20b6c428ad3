"""Releases of jobs that cannot run now, spread over time."""

from redrive.rules.attempts import settlement

RETURNS_PER_SECOND = 100.0
"""Released jobs that return to one process each second after a breaker closes.

More jobs at once might open the breaker again."""

SUSPECTS_PER_SECOND = 2.0
"""Suspects that return to one worker each second; it runs only a few at a time."""

LONGEST_SPREAD_SECONDS = 300.0


def put_off(
    name: str, open_for: float, cooldown: float, ahead: int, jitter: float
) -> settlement.Release:
    """Release a job that waits for a dependency, and spread the returns over time.

    Args:
        name: the name of the dependency.
        open_for: seconds until its breaker lets a probe through; a negative number
            counts as 0.
        cooldown: the breaker's cooldown in seconds.
        ahead: number of jobs that were put off since the breaker opened.
        jitter: a random number in [0, 1).
    """
    returns = min(LONGEST_SPREAD_SECONDS, ahead / RETURNS_PER_SECOND)
    spread = max(cooldown, returns)
    opens_in = max(0.0, open_for)

    return settlement.Release(f"breaker {name}", opens_in + spread * jitter)


def put_off_suspect(
    why: str, after: float, ahead: int, jitter: float
) -> settlement.Release:
    """Release a suspect for about `after` seconds, because it cannot run now.

    Args:
        why: the resource that is missing.
        after: seconds until the resource may be free.
        ahead: number of suspects put off since it was last free, this one included.
        jitter: a random number in [0, 1).
    """
    returns = 1.0 + ahead / SUSPECTS_PER_SECOND
    spread = min(LONGEST_SPREAD_SECONDS, returns)
    later = spread * (0.5 + jitter)

    return settlement.Release(why, after + later)
