"""What sets dead letters apart: the cause of an incident is named, and chance is not."""

import math
from typing import Any

import pytest

from redrive.dead_letters.explain.answer import (
    Base,
    Condition,
    Finding,
    Observed,
    Test,
    explain,
    sentence,
    shown,
)
from redrive.dead_letters.explain.significance import fisher, g_test
from redrive.rules.payloads.facts import UNREAD, Mark
from tests.rules.incidents import INCIDENTS, Incident, run, verdict

KNOWN = [
    incident for incident in INCIDENTS if not incident.name.startswith("not looked for")
]


@pytest.mark.parametrize("incident", KNOWN, ids=lambda incident: incident.name)
def test_the_cause_of_an_incident_is_named_first(incident: Incident) -> None:
    """Without a cause, nothing stands out; docs/explain.md has the whole table."""
    assert [verdict(incident, run(incident, 40, seed)) for seed in (0, 1)] == [
        "right",
        "right",
    ]


def jobs(count: int, since: int = 0, **facts: Any) -> list[Observed]:
    """Jobs whose facts are values, or functions of their number."""
    return [
        Observed(
            {name: f(n) if callable(f) else f for name, f in facts.items()}, float(n)
        )
        for n in range(since, since + count)
    ]


def explained(mine: list[Observed], *bases: Base) -> list[tuple[str, Mark, str]]:
    return [
        (c.field, c.value, c.test)
        for c in (finding.condition for finding in explain(mine, bases))
    ]


def test_fisher_agrees_with_the_definition() -> None:
    def exact(n: int, of: int, base_n: int, base_of: int) -> float:
        met, total = n + base_n, of + base_of
        return sum(
            math.comb(of, k) * math.comb(base_of, met - k)
            for k in range(n, min(of, met) + 1)
        ) / math.comb(total, met)

    for table in [
        (3, 4, 1, 4),
        (0, 5, 0, 9),
        (5, 5, 0, 20),
        (7, 10, 30, 40),
        (40, 40, 40, 40),
    ]:
        assert fisher(*table) == pytest.approx(exact(*table), rel=1e-9)
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)  # the lady tasting tea
    assert fisher(2000, 2000, 0, 200) < 1e-100


def test_g_is_the_information_in_the_table() -> None:
    assert g_test(10, 20, 15, 30) == pytest.approx(0.0)
    assert g_test(10, 10, 0, 10) == pytest.approx(
        2 * 20 * math.log(2)
    )  # one bit for each job


def test_few_jobs_are_no_ground_for_anything() -> None:
    base = Base("succeeded", jobs(200, node="b"))
    assert explained(jobs(4, node="a"), base) == []
    assert explained(jobs(5, node="a"), base) == [("node", "a", "equals")]
    assert explained(jobs(50, node="a"), Base("succeeded", jobs(19, node="b"))) == []


def test_it_is_compared_with_those_that_succeeded_before_others() -> None:
    mine = jobs(30, node="a", version="2")
    succeeded = Base("succeeded", jobs(50, node="a", version="1"))
    dead = Base("dead", jobs(50, node="b", version="2"))
    other_kinds = Base("other_kinds", jobs(50, node="c", version="2", queue="q"))

    assert explained(mine, succeeded, dead) == [("version", "2", "equals")]
    assert explained(mine, Base("succeeded", []), dead) == [("node", "a", "equals")]
    assert explained(mine, Base("succeeded", []), Base("dead", []), other_kinds) == [
        ("node", "a", "equals")
    ]


def test_a_payload_that_was_not_kept_is_compared_with_other_dead_letters() -> None:
    """The payloads of an encrypted kind are in no sample."""
    mine = jobs(30, **{"payload.a": "x", "node": "n1"})
    succeeded = Base("succeeded", jobs(50, payload=UNREAD, node="n2"))
    dead = Base("dead", jobs(50, **{"payload.a": "y", "node": "n1"}))

    assert explained(mine, succeeded, dead) == [
        ("node", "n1", "equals"),
        ("payload.a", "x", "equals"),
    ]
    assert [f.base for f in explain(mine, [succeeded, dead])] == ["succeeded", "dead"]
    assert explained(mine, succeeded) == [("node", "n1", "equals")]


def test_a_number_that_grows_with_time_is_no_finding() -> None:
    """An id, a clock: it tells when, and not what."""
    base = Base("succeeded", jobs(100, id=lambda n: n))
    assert explained(jobs(30, since=100, id=lambda n: n), base) == []
    mixed = Base("succeeded", jobs(100, id=lambda n: n * 37 % 100))
    assert explained(jobs(30, since=100, id=lambda n: 100 + n * 7 % 30), mixed) == [
        ("id", 100, "at_least")
    ]


def test_a_secret_is_told_apart_by_its_absence_alone() -> None:
    base = Base("succeeded", jobs(100, **{"payload.pin": "?secret"}))
    assert explained(jobs(30, **{"payload.pin": "#00000000"}), base) == []
    assert explained(jobs(30), base) == [("payload.pin", None, "missing")]


def test_both_fields_are_named_where_neither_explains_it_alone() -> None:
    mine = jobs(40, a=1, b=1, c=lambda n: n % 2)
    others = jobs(
        200, a=lambda n: n % 2, b=lambda n: n // 2 % 2, c=lambda n: n // 4 % 2
    )
    others = [o for o in others if not (o.facts["a"] == 1 and o.facts["b"] == 1)]

    assert explained(mine, Base("succeeded", others)) == [
        ("a", 1, "equals"),
        ("b", 1, "equals"),
    ]


def test_values_are_not_mixed_up_with_those_of_other_types() -> None:
    assert not Condition("a", Test.EQUALS, 1).holds({"a": True})
    assert Condition("a", Test.EQUALS, 1).holds({"a": 1.0})
    assert Condition("a", Test.EQUALS, None).holds({"a": None})
    assert not Condition("a", Test.EQUALS, None).holds({})
    assert not Condition("a", Test.AT_LEAST, 0).holds({"a": True})


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (Condition("a", Test.EQUALS, "#1"), 'have a = "XAU"'),
        (Condition("a", Test.EQUALS, None), "have a = null"),
        (Condition("a", Test.EQUALS, True), "have a = true"),
        (Condition("a", Test.MISSING), "have no a"),
        (Condition("a", Test.PRESENT), "have a"),
        (Condition("a", Test.TYPE, "text"), "have a text in a"),
        (Condition("a", Test.AT_LEAST, 3), "have a >= 3"),
        (Condition("a", Test.AT_MOST, 0.5), "have a <= 0.5"),
    ],
)
def test_a_finding_is_a_sentence_with_its_counts(
    condition: Condition, said: str
) -> None:
    finding = shown(
        Finding(condition, 312, 312, "succeeded", 0, 200, 1e-9), {"#1": "XAU"}
    )

    assert sentence(finding) == f"312 of 312 {said}; 0 of 200 that succeeded do"
    assert (
        finding | {"share": 1.0, "base_share": 0.0, "n": 312, "base_n": 200} == finding
    )
