"""Comparison of two sets of jobs: which fields differ, how clearly and how surely.

Each condition that enough of the jobs meet is counted in both sets. Fisher's exact test
decides whether the difference may be chance. Its level is divided by the number of
tried conditions (Bonferroni). Findings are ranked by G.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from redrive.dead_letters.explain.significance import correlation, fisher, g_test
from redrive.rules.payloads.facts import SECRET, UNREAD, Facts, Mark, is_value, type_of
from redrive.rules.rows import Fields, Row

MIN_JOBS, MIN_BASE = 5, 20
"""With fewer jobs, or fewer jobs to compare with, there are no findings."""
MIN_SHARE = 0.25
"""Smallest share of the jobs that must meet a condition of a finding."""
MIN_GAP = 0.2
"""Smallest difference between the shares. A smaller one explains little, even if sure.
"""
LEVEL = 0.01
"""Chance of any false finding, for all conditions together."""
MAX_FINDINGS = 10
DRIFT = 0.9
"""Rank correlation with time above which a number only tells when a job ran."""

CONTENT = "payload"
OF_A_TIME = frozenset({"pod", "version"})
"""Fields that change with each deploy, the fields of a time."""
NEAR = 50
"""Compare fields of a time with at least this many jobs nearest in time."""
SHARED_FIELDS = frozenset(
    {"cell", "environment", "node", "pod", "tenant", "version", "hour"}
)
"""Fields that jobs of different kinds share."""


_BASES = {
    "succeeded": "{} that succeeded",
    "dead": "{} other dead letters of the kind",
    "other_kinds": "{} dead letters of other kinds",
}


class Test(StrEnum):
    """Way to test a field."""

    __test__ = False  # pytest must not collect it

    EQUALS = "equals"
    MISSING = "missing"
    PRESENT = "present"
    TYPE = "type"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"


class Observed(NamedTuple):
    """Facts of a job, and the time of its end in seconds."""

    facts: Facts
    at: float


class Base(NamedTuple):
    """Jobs to compare with, and their sort: `succeeded`, `dead` or `other_kinds`."""

    name: str
    jobs: Sequence[Observed]


class Condition(NamedTuple):
    """Condition that a job may meet."""

    field: str
    test: Test
    value: Mark = None

    def holds(self, facts: Facts) -> bool:
        """Return True if a job with these facts meets the condition."""
        is_there = self.field in facts
        mark = facts.get(self.field)

        match self.test:
            case Test.MISSING:
                return not is_there
            case Test.PRESENT:
                return is_there
            case Test.TYPE:
                return is_there and type_of(mark) == self.value
            case Test.EQUALS:
                return is_there and self._equals(mark)
            case Test.AT_LEAST:
                return _is_number(mark) and mark >= self.value  # type: ignore[operator]
            case Test.AT_MOST:
                return _is_number(mark) and mark <= self.value  # type: ignore[operator]

    def _equals(self, mark: Mark) -> bool:
        is_alike = _is_number(mark) == _is_number(self.value)  # True == 1
        return is_alike and mark == self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """Condition that `n` of `of` jobs meet, and `base_n` of `base_of`."""

    condition: Condition
    n: int
    of: int
    base: str
    base_n: int
    base_of: int
    p: float
    """Upper bound of the probability of chance, for all tries together."""

    @property
    def share(self) -> float:
        """Return the share of the jobs that meet the condition."""
        return self.n / self.of

    @property
    def base_share(self) -> float:
        """Return the share of the other jobs that meet the condition."""
        return self.base_n / self.base_of

    @property
    def g(self) -> float:
        """Return how much the condition tells about a job's set."""
        return g_test(self.n, self.of, self.base_n, self.base_of)


class _Counted(NamedTuple):
    """A condition, and how many jobs of both sets meet it."""

    condition: Condition
    n: int
    base_n: int


class _Look(NamedTuple):
    """Comparison of some fields with a base."""

    base: Base
    fields: Callable[[str], bool]


def explain(jobs: Sequence[Observed], bases: Sequence[Base]) -> list[Finding]:
    """Find the conditions that separate these jobs from others, clearest first.

    Each field is compared with the first of `bases` that has enough jobs with the
    field.
    """
    if len(jobs) < MIN_JOBS:
        return []

    looks = [part for look in _looks(bases) for part in _by_time(look, jobs)]
    found: list[Finding] = []

    for look in looks:
        # A payload that could not be read has no content to compare.
        is_about_content = look.fields is _is_content
        known = list(filter(_is_read, jobs)) if is_about_content else jobs
        if len(known) >= MIN_JOBS:
            # The comparisons share the chance of a false finding.
            found += _explained(known, look, LEVEL / len(looks))

    return sorted(found, key=_rank)[:MAX_FINDINGS]


def _looks(bases: Sequence[Base]) -> Iterator[_Look]:
    """Yield the comparisons to make: all fields with one base, if it has content.

    Otherwise the content is compared with one base and the other fields with another.
    """
    of_kind = [base for base in bases if base.name != "other_kinds"]
    whole = _enough(of_kind)
    others = _enough(base for base in bases if base.name == "other_kinds")
    read = _enough(map(_only_read, of_kind))

    # All payloads could be read, so one comparison is enough.
    if whole is not None and read == whole:
        yield _Look(base=whole, fields=lambda _: True)
        return

    if read is not None:
        yield _Look(base=read, fields=_is_content)

    if whole is not None:
        yield _Look(base=whole, fields=_is_around)
    elif others is not None:
        yield _Look(base=others, fields=SHARED_FIELDS.__contains__)


def _only_read(base: Base) -> Base:
    """Return the base with only those jobs whose payload could be read."""
    return Base(base.name, list(filter(_is_read, base.jobs)))


def _by_time(look: _Look, jobs: Sequence[Observed]) -> Iterator[_Look]:
    """Compare fields that change with time only with jobs of about the same time.

    Otherwise every problem that begins after a deploy would be blamed on the new
    version.
    """
    if look.fields is _is_content:
        yield look
        return

    def is_lasting(field: str) -> bool:
        return field not in OF_A_TIME and look.fields(field)

    nearest = _near(look.base.jobs, jobs)
    near = Base(look.base.name, nearest)
    yield look._replace(fields=is_lasting)
    yield _Look(base=near, fields=OF_A_TIME.__contains__)


def _near(others: Sequence[Observed], jobs: Sequence[Observed]) -> list[Observed]:
    """Return the other jobs of the same period, and at least the NEAR nearest."""
    times = [job.at for job in jobs]
    since = min(times)
    until = max(times)

    def distance(job: Observed) -> float:
        return max(since - job.at, job.at - until, 0.0)

    meanwhile = sum(distance(job) <= 0.0 for job in others)
    return sorted(others, key=distance)[: max(NEAR, meanwhile)]


def _enough(bases: Iterable[Base]) -> Base | None:
    return next((base for base in bases if len(base.jobs) >= MIN_BASE), None)


def _is_read(job: Observed) -> bool:
    return job.facts.get(CONTENT) != UNREAD


def _is_content(field: str) -> bool:
    return field.startswith(f"{CONTENT}.")


def _is_around(field: str) -> bool:
    return not _is_content(field) and field != CONTENT


def _explained(jobs: Sequence[Observed], look: _Look, level: float) -> list[Finding]:
    """Return the findings of a comparison, the best of each field."""
    others = look.base.jobs
    every = (
        _Counted(one, _met(one, jobs), _met(one, others))
        for one in _conditions(jobs, others, look.fields)
    )
    # A condition that all jobs meet is not tried.
    counted = [c for c in every if c.n != len(jobs) or c.base_n != len(others)]
    trial = _Trial(jobs=len(jobs), base=look.base, level=level, tries=len(counted))
    found = filter(None, map(trial.finding, counted))

    return _one_of_each_field(sorted(found, key=_rank))


def _conditions(
    jobs: Sequence[Observed], others: Sequence[Observed], knows: Callable[[str], bool]
) -> Iterator[Condition]:
    """Yield the conditions that enough of the jobs meet."""
    least = max(2, math.ceil(MIN_SHARE * len(jobs)))
    fields = {field for job in (*jobs, *others) for field in job.facts}

    for field in sorted(filter(knows, fields)):
        yield from _of_field(field, jobs, others, least)


def _of_field(
    field: str, jobs: Sequence[Observed], others: Sequence[Observed], least: int
) -> Iterator[Condition]:
    marks = _marks(field, jobs)
    their_marks = _marks(field, others)

    without = len(jobs) - len(marks)
    if without >= least:
        yield Condition(field, Test.MISSING)
    if len(marks) >= least:
        yield Condition(field, Test.PRESENT)

    # The mark of a secret tells nothing but that the field is there.
    if SECRET in marks or SECRET in their_marks:
        return

    yield from _by_type(field, marks, their_marks, least)
    yield from _by_value(field, marks, least)
    yield from _by_range(field, jobs, others, least)


def _marks(field: str, jobs: Iterable[Observed]) -> list[Mark]:
    return [job.facts[field] for job in jobs if field in job.facts]


def _by_type(
    field: str, marks: Iterable[Mark], others: Iterable[Mark], least: int
) -> Iterator[Condition]:
    types = Counter(map(type_of, marks))
    their_types = set(map(type_of, others))
    if len(types.keys() | their_types) <= 1:
        return

    for type_, count in types.items():
        if count >= least:
            yield Condition(field, Test.TYPE, type_)


def _by_value(field: str, marks: Iterable[Mark], least: int) -> Iterator[Condition]:
    # By type as well, because True, 1 and 1.0 are equal.
    counts = Counter((type(mark), mark) for mark in marks)

    for (_, mark), count in counts.items():
        if count >= least and is_value(mark):
            yield Condition(field, Test.EQUALS, mark)


def _by_range(
    field: str, jobs: Sequence[Observed], others: Sequence[Observed], least: int
) -> Iterator[Condition]:
    """Yield bounds of the jobs' numbers, with and without a few outliers."""
    mine = _numbers(field, jobs)
    theirs = _numbers(field, others)
    values = sorted(value for value, _ in mine)

    # A single value is a matter of `_by_value`.
    if len(values) < least or values[0] == values[-1]:
        return
    if max(_drift(mine), _drift(theirs)) > DRIFT:
        return

    # The widest bounds, and bounds without the outermost twentieth of the jobs.
    few = len(values) // 20
    for place in sorted({0, few}):
        yield Condition(field, Test.AT_LEAST, values[place])
        yield Condition(field, Test.AT_MOST, values[-1 - place])


def _numbers(field: str, jobs: Iterable[Observed]) -> list[tuple[float, float]]:
    """Return the numbers in a field, each with the time of its job."""
    found: list[tuple[float, float]] = []
    for job in jobs:
        value: Any = job.facts.get(field)
        if _is_number(value):
            found.append((value, job.at))

    return found


def _is_number(mark: Mark) -> bool:
    return isinstance(mark, int | float) and not isinstance(mark, bool)


def _drift(pairs: Sequence[tuple[float, float]]) -> float:
    """Return how closely numbers follow time, from 0 to 1."""
    if len(pairs) < MIN_JOBS:
        return 0.0

    values = [value for value, _ in pairs]
    times = [at for _, at in pairs]

    return abs(correlation(values, times))


def _met(condition: Condition, jobs: Iterable[Observed]) -> int:
    return sum(condition.holds(job.facts) for job in jobs)


class _Trial(NamedTuple):
    """The two sets, and the number and the level of all tries together."""

    jobs: int
    base: Base
    level: float
    tries: int

    def finding(self, counted: _Counted) -> Finding | None:
        """Return the finding of a condition; None if it is small or may be chance."""
        condition, n, base_n = counted
        others = len(self.base.jobs)
        gap = n / self.jobs - base_n / others

        if n < MIN_SHARE * self.jobs or gap < MIN_GAP:
            return None

        # Bonferroni: the chance of any false finding among all tries.
        p = fisher(n, self.jobs, base_n, others) * self.tries
        if p > self.level:
            return None

        return Finding(
            condition=condition,
            n=n,
            of=self.jobs,
            base=self.base.name,
            base_n=base_n,
            base_of=others,
            p=p,
        )


def _one_of_each_field(findings: Iterable[Finding]) -> list[Finding]:
    """Keep the best finding of each field, and all values if the best is a value."""
    best: dict[str, Test] = {}
    kept: list[Finding] = []

    for finding in findings:
        field, test, _ = finding.condition
        is_best = field not in best
        best.setdefault(field, test)
        if is_best or best[field] is test is Test.EQUALS:
            kept.append(finding)

    return kept


_ORDER = {test: n for n, test in enumerate(Test)}


def _rank(finding: Finding) -> tuple[Any, ...]:
    """Return the sort key: clearest first, then simplest, and content last."""
    field, test, value = finding.condition
    # G is rounded, so that errors of floating point do not decide between equals.
    g = -round(finding.g, 6)
    return g, _ORDER[test], _is_content(field), field, str(value)


def sentence(finding: Fields) -> str:
    """Return a finding of `shown` as a sentence."""
    base = _BASES[finding["base"]].format(finding["base_n"])
    met = finding["met"]
    jobs = finding["n"]
    base_met = finding["base_met"]

    return f"{met} of {jobs} {finding['says']}; {base_met} of {base} do"


def shown(finding: Finding, texts: Mapping[str, str]) -> Row:
    """Return a finding for people and machines; `texts` maps marks to their texts."""
    field, test, mark = finding.condition
    value = texts.get(mark, mark) if isinstance(mark, str) else mark
    return {
        "field": field,
        "value": value,
        "share": round(finding.share, 4),
        "base_share": round(finding.base_share, 4),
        "n": finding.of,
        "base_n": finding.base_of,
        "met": finding.n,
        "base_met": finding.base_n,
        "test": str(test),
        "base": finding.base,
        "p": finding.p,
        "says": _says(finding.condition, value),
    }


def _says(condition: Condition, value: Mark) -> str:
    field = condition.field
    text = json.dumps(value, ensure_ascii=False)

    match condition.test:
        case Test.MISSING:
            return f"have no {field}"
        case Test.PRESENT:
            return f"have {field}"
        case Test.TYPE:
            return f"have a {value} in {field}"
        case Test.AT_LEAST:
            return f"have {field} >= {text}"
        case Test.AT_MOST:
            return f"have {field} <= {text}"
        case _:
            return f"have {field} = {text}"
