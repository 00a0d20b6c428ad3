"""Statistics of two sets of jobs: Fisher's exact test, G, and rank correlation.

Fisher's test is one-sided (Fisher, The Logic of Inductive Inference, 1935). G is twice
the number of jobs times the information, in nats, that a condition gives about a job's
set (Woolf 1957; Sokal and Rohlf, Biometry, 17.2).
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from operator import mul


def g_test(n: int, of: int, base_n: int, base_of: int) -> float:
    """Return G of a condition in both sets; 0 if its shares are equal."""
    total = of + base_of
    met = n + base_n
    cells = (
        (n, of, met),
        (of - n, of, total - met),
        (base_n, base_of, met),
        (base_of - base_n, base_of, total - met),
    )

    return 2 * sum(
        observed * math.log(observed * total / (row * column))
        for observed, row, column in cells
        # x * log(x) tends to 0 with x.
        if observed
    )


def fisher(n: int, of: int, base_n: int, base_of: int) -> float:
    """Return the chance that the first set has `n` or more that meet a condition."""
    total = of + base_of
    met = n + base_n

    # In logarithms, because factorials exceed the range of a float.
    ways = _log_choose(of, n) + _log_choose(base_of, base_n)
    all_ways = _log_choose(total, met)
    term = chance = math.exp(ways - all_ways)

    for k in range(n, min(of, met)):
        # The next term of the hypergeometric distribution, from the one before it.
        rising = (of - k) * (met - k)
        falling = (k + 1) * (base_of - met + k + 1)
        term *= rising / falling
        chance += term

        # All further terms together are too small to matter.
        if term < chance * 1e-12:
            break

    return min(1.0, chance)


def _log_choose(n: int, k: int) -> float:
    # The logarithms of three factorials.
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's rank correlation; 0 if all values of a sequence are equal."""
    a = _deviations(first)
    b = _deviations(second)
    spread = math.hypot(*a) * math.hypot(*b)
    if not spread:
        return 0.0

    return sum(map(mul, a, b)) / spread


def _deviations(values: Sequence[float]) -> list[float]:
    """Return how far the rank of each value is from the mean rank."""
    mean = (len(values) + 1) / 2
    return [rank - mean for rank in _ranks(values)]


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal values get their mean rank."""
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values), 1):
        places[value].append(place)

    means = {value: sum(of) / len(of) for value, of in places.items()}
    return [means[value] for value in values]
