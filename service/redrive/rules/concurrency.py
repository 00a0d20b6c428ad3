"""Names and rates of the limits on running or starting jobs."""

import math
import re
from collections.abc import Sequence

from redrive.errors import InvalidJob

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}(:.+)?\Z", re.DOTALL)
_TEMPLATE = re.compile(
    r"[A-Za-z][A-Za-z0-9_.-]{0,62}(:([^{}*]|\{[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*\})+)?\Z"
)
_FILLED = re.compile(r"\{[^{}]*\}")
FIELD = "limits"
MOST_CHARACTERS = 255
MOST_TEMPLATES = 8
MOST_PER_SECOND = 1_000_000.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(\d*)([smhd])\Z")


def check_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """Return a handler's limits if they are valid, else raise InvalidJob."""
    if isinstance(templates, str) or len(templates) > MOST_TEMPLATES:
        rule = f"must be a list of at most {MOST_TEMPLATES} names"
        raise InvalidJob(FIELD, rule)

    for template in templates:
        if not _TEMPLATE.match(template) or len(template) > MOST_CHARACTERS:
            rule = (
                "must be names like emails, or with a key like customer:{customer_id},"
                f" not {template[:MOST_CHARACTERS]!r}"
            )
            raise InvalidJob(FIELD, rule)

    return tuple(templates)


def of_all(template: str) -> str:
    """Return the limit for all names of `customer:{customer_id}`: `customer:*`."""
    name, has_key, _ = template.partition(":")
    return f"{name}:*" if has_key else name


def counts_under(name: str, template: str) -> bool:
    """Return True if a limit of this name applies to the jobs of a template."""
    if name in {template, of_all(template)}:
        return True

    fixed = _FILLED.split(template)
    pattern = ".+".join(map(re.escape, fixed))
    found = re.fullmatch(pattern, name, re.DOTALL)
    return found is not None


def per_second(rate: str) -> float:
    """Return the jobs per second of a rate like `20/1m`, `100/s` or `5/24h`.

    Raises:
        ValueError: the format is wrong, or the rate is zero or too high.
    """
    found = _RATE.match(rate)
    if found is None:
        msg = "must be written like 20/1m, 100/s or 5/24h"
        raise ValueError(msg)

    seconds = int(found[2] or 1) * _UNITS[found[3]]
    jobs = float(found[1])
    if not (seconds and jobs and jobs / seconds <= MOST_PER_SECOND):
        msg = f"must be above 0, and at most {MOST_PER_SECOND:.0f}/s"
        raise ValueError(msg)

    return jobs / seconds


def of_rate(jobs: float) -> str:
    """Format jobs per second as a rate, in the shortest unit with a whole number."""
    for unit, seconds in _UNITS.items():
        number = jobs * seconds
        # A rate from a text is not exact: 20/1m is a third of a job per second.
        if number > 0 and math.isclose(number, round(number), rel_tol=1e-9):
            return f"{round(number)}/{unit}"

    return f"{jobs * 60:.3g}/m"
