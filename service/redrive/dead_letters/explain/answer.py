"""Comparison of two sets of jobs: which fields differ, how clearly and how surely.

Each condition that enough of the jobs meet is counted in both sets. Fisher's exact test
decides whether the difference may be chance. Its level is divided by the number of
tried conditions (Bonferroni). Findings are ranked by G.

Two conditions together are a finding if each of them still separates the sets among the
jobs that meet the other.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from itertools import combinations
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
CLEAR_SHARE, CLEAR_BASE = 0.9, 0.05
"""If one condition has at least this share, no pairs are tried."""
MAX_PAIRED = 30
MAX_PAIRS = 2
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
    BOTH = "both"


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
            # Only a finding of two conditions is shown as BOTH; no single one has it.
            case Test.BOTH:
                return False

    def _equals(self, mark: Mark) -> bool:
        is_alike = _is_number(mark) == _is_number(self.value)  # True == 1
        return is_alike and mark == self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """One or two conditions that `n` of `of` jobs meet, and `base_n` of `base_of`."""

    conditions: tuple[Condition, ...]
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
    """A condition and the jobs of both sets that meet it, as bit sets."""

    condition: Condition
    jobs: int
    others: int

    @property
    def n(self) -> int:
        """Return the number of jobs that meet the condition."""
        return self.jobs.bit_count()

    @property
    def base_n(self) -> int:
        """Return the number of other jobs that meet the condition."""
        return self.others.bit_count()

    def both(self, other: "_Counted") -> "_Counted":
        """Return the jobs that meet both conditions, under this one."""
        return _Counted(
            condition=self.condition,
            jobs=self.jobs & other.jobs,
            others=self.others & other.others,
        )


class _Look(NamedTuple):
    """Comparison with a base: all fields, and fields that a finding must include."""

    base: Base
    fields: Callable[[str], bool]
    about: Callable[[str], bool]

    def is_about(self, counted: _Counted) -> bool:
        """Return True if a finding may consist of this condition alone."""
        return self.about(counted.condition.field)


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
        yield _Look(base=whole, fields=_is_any, about=_is_any)
        return

    if read is not None:
        yield _Look(base=read, fields=_is_content, about=_is_any)

    if whole is not None:
        yield _Look(base=whole, fields=_is_around, about=_is_any)
    elif others is not None:
        yield _Look(base=others, fields=SHARED_FIELDS.__contains__, about=_is_any)


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
    yield look._replace(base=near, about=OF_A_TIME.__contains__)


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


def _is_any(_field: str) -> bool:
    return True


def _is_content(field: str) -> bool:
    return field.startswith(f"{CONTENT}.")


def _is_around(field: str) -> bool:
    return not _is_content(field) and field != CONTENT


def _explained(jobs: Sequence[Observed], look: _Look, level: float) -> list[Finding]:
    every = _counted(jobs, look)
    paired = _paired(every, len(jobs), len(look.base.jobs))
    both = combinations(paired, 2)
    pairs = [pair for pair in both if any(map(look.is_about, pair))]

    counted = list(filter(look.is_about, every))
    tests = len(counted) + 2 * len(pairs)
    trial = _Trial(jobs=len(jobs), base=look.base, level=level, tries=tests)

    single = trial.best_of_each_field(counted)
    if any(f.share >= CLEAR_SHARE and f.base_share <= CLEAR_BASE for f in single):
        return single

    return [*single, *trial.best_pairs(pairs)]


def _counted(jobs: Sequence[Observed], look: _Look) -> list[_Counted]:
    """Return the conditions to try. A condition that all jobs meet is left out."""
    others = look.base.jobs
    counted = [
        _Counted(condition=one, jobs=_met(one, jobs), others=_met(one, others))
        for one in _conditions(jobs, others, look.fields)
    ]

    return [c for c in counted if c.n != len(jobs) or c.base_n != len(others)]


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
    return sum(1 << n for n, job in enumerate(jobs) if condition.holds(job.facts))


def _paired(counted: Iterable[_Counted], jobs: int, others: int) -> list[_Counted]:
    """Return the conditions for pairs: at least half of the jobs meet each of them."""

    def rank(one: _Counted) -> tuple[float, int]:
        return -_more(one, jobs, others), _ORDER[one.condition.test]

    # Nothing can add to a condition that none of the other jobs meets.
    likely = [c for c in counted if c.n >= jobs / 2 and c.others]
    return _one_of_each(sorted(likely, key=rank))[:MAX_PAIRED]


def _more(counted: _Counted, jobs: int, others: int) -> float:
    """Return G if the jobs meet the condition more often than the others, else 0."""
    if counted.n * others <= counted.base_n * jobs:
        return 0.0

    return g_test(counted.n, jobs, counted.base_n, others)


def _one_of_each(counted: Iterable[_Counted]) -> list[_Counted]:
    """Keep the simplest of several conditions that the same jobs meet."""
    kept: dict[tuple[int, int], _Counted] = {}
    # In reverse, so that the first one, which ranks highest, replaces the others.
    for one in reversed(list(counted)):
        kept[one.jobs, one.others] = one

    return list(reversed(kept.values()))


class _Trial(NamedTuple):
    """The two sets, and the number and the level of all tries together."""

    jobs: int
    base: Base
    level: float
    tries: int

    def finding(self, counted: tuple[_Counted, ...]) -> Finding | None:
        """Combine conditions into a finding; None if it is small or may be chance."""
        others = len(self.base.jobs)
        n = _in_all(c.jobs for c in counted)
        base_n = _in_all(c.others for c in counted)
        gap = n / self.jobs - base_n / others

        if n < MIN_SHARE * self.jobs or gap < MIN_GAP:
            return None

        # Bonferroni: the chance of any false finding among all tries.
        p = fisher(n, self.jobs, base_n, others) * self.tries
        if p > self.level:
            return None

        return Finding(
            conditions=tuple(c.condition for c in counted),
            n=n,
            of=self.jobs,
            base=self.base.name,
            base_n=base_n,
            base_of=others,
            p=p,
        )

    def best_of_each_field(self, counted: Iterable[_Counted]) -> list[Finding]:
        """Return the findings of one condition, the best of each field."""
        found = filter(None, (self.finding((one,)) for one in counted))
        return _one_of_each_field(sorted(found, key=_rank))

    def best_pairs(self, pairs: Iterable[tuple[_Counted, _Counted]]) -> list[Finding]:
        """Return the best pairs of conditions in which each adds to the other."""
        found = (
            self.finding(pair) for pair in pairs if self.are_better_together(*pair)
        )
        return sorted(filter(None, found), key=_rank)[:MAX_PAIRS]

    def are_better_together(self, one: _Counted, other: _Counted) -> bool:
        """Return True if the conditions have two fields and each adds to the other."""
        has_two_fields = one.condition.field != other.condition.field
        return has_two_fields and self.adds(one, other) and self.adds(other, one)

    def adds(self, one: _Counted, other: _Counted) -> bool:
        """Return True if `one` still separates the jobs that meet `other`."""
        both = one.both(other)
        jobs = other.n
        base = other.base_n

        # The difference of the shares, times both numbers of jobs.
        share = both.n * base
        base_share = both.base_n * jobs
        if share - base_share < MIN_GAP * jobs * base:
            return False

        chance = fisher(both.n, jobs, both.base_n, base)
        return chance * self.tries <= self.level


def _in_all(sets: Iterable[int]) -> int:
    """Return how many jobs are in all of the bit sets."""
    return reduce(int.__and__, sets).bit_count()


def _one_of_each_field(findings: Iterable[Finding]) -> list[Finding]:
    """Keep the best finding of each field, and all values if the best is a value."""
    best: dict[str, Test] = {}
    kept: list[Finding] = []

    for finding in findings:
        field, test, _ = finding.conditions[0]
        is_best = field not in best
        best.setdefault(field, test)
        if is_best or best[field] is test is Test.EQUALS:
            kept.append(finding)

    return kept


_ORDER = {test: n for n, test in enumerate(Test)}


def _rank(finding: Finding) -> tuple[Any, ...]:
    """Return the sort key: clearest first, then simplest, and content last."""
    conditions = finding.conditions
    return (
        # Rounded, so that errors of floating point do not decide between equals.
        -round(finding.g, 6),
        len(conditions),
        [_ORDER[c.test] for c in conditions],
        [_is_content(c.field) for c in conditions],
        [(c.field, str(c.value)) for c in conditions],
    )


def sentence(finding: Fields) -> str:
    """Return a finding of `shown` as a sentence."""
    base = _BASES[finding["base"]].format(finding["base_n"])
    met = finding["met"]
    jobs = finding["n"]
    base_met = finding["base_met"]

    return f"{met} of {jobs} {finding['says']}; {base_met} of {base} do"


def shown(finding: Finding, texts: Mapping[str, str]) -> Row:
    """Return a finding for people and machines; `texts` maps marks to their texts."""
    conditions = finding.conditions
    values = [_plain(c.value, texts) for c in conditions]
    tests = [str(c.test) for c in conditions]
    is_pair = len(conditions) > 1

    return {
        "field": " & ".join(c.field for c in conditions),
        "value": values if is_pair else values[0],
        "share": round(finding.share, 4),
        "base_share": round(finding.base_share, 4),
        "n": finding.of,
        "base_n": finding.base_of,
        "met": finding.n,
        "base_met": finding.base_n,
        "test": str(Test.BOTH) if is_pair else tests[0],
        "tests": tests,
        "base": finding.base,
        "p": finding.p,
        "says": " and ".join(map(_says, conditions, values)),
    }


def _plain(value: Mark, texts: Mapping[str, str]) -> Mark:
    if isinstance(value, str):
        return texts.get(value, value)
    return value


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
